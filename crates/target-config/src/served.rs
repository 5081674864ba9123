//! The settings in force, and their replacement while sessions continue.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use iscsi_target::{Access, Portal, RunningTarget};

use crate::file::TargetFile;
use crate::open_disks::OpenDisks;

/// What a target serves, and the settings that it was started with.
#[derive(Debug)]
pub struct Served {
    /// The open disks.
    pub disks: OpenDisks,
    access: Option<Access>,
    iqn: Option<String>,
    portals: Vec<Portal>,
    state: Option<PathBuf>,
    limits: Vec<(String, String)>,
}

impl Served {
    /// What a target serves after it was started with a file.
    pub fn new(file: &TargetFile, disks: OpenDisks) -> Self {
        Self {
            disks,
            access: file.access.clone(),
            iqn: file.iqn.clone(),
            portals: file.portals.clone(),
            state: file.state.clone(),
            limits: file.limits.clone(),
        }
    }

    /// Serves what the file says now. Initiators that may no longer log in have `patience` to log out.
    ///
    /// # Errors
    /// When something in it is not possible, or would need a restart; then nothing has changed.
    pub fn reload(
        &mut self,
        file: TargetFile,
        target: &RunningTarget,
        patience: Duration,
    ) -> anyhow::Result<()> {
        self.check(&file)?;
        let mut next = self.disks.prepare(&file.luns)?;
        next.grow()?;
        // First the rules: no new disk is seen under the old ones.
        target.set_access(file.access.clone(), patience);
        if let Err(error) = next.commit(&mut self.disks, |luns| Ok(target.set_luns(luns)?)) {
            target.set_access(self.access.clone(), patience);
            return Err(error);
        }
        self.access = file.access;
        Ok(())
    }

    /// Checks that the file changes only what can change, and removes nothing by leaving it out: it may be half
    /// written.
    fn check(&self, file: &TargetFile) -> anyhow::Result<()> {
        let differs = [
            ("iqn", self.iqn != file.iqn),
            ("portal", self.portals != file.portals),
            ("state", self.state != file.state),
            ("limits", self.limits != file.limits),
        ];
        for (key, differs) in differs {
            ensure!(
                !differs,
                "{key}: it differs from what the target was started with; restart the target to change it"
            );
        }
        ensure!(
            file.access.is_some() || file.says_open || self.access.is_none(),
            "access: the file has no rules, but rules are in force; write access = \"open\" to let everybody in"
        );
        if let (Some(before), Some(after)) = (&self.access, &file.access) {
            check_rules(before, after)?;
        }
        ensure!(
            !file.luns.is_empty() || file.says_none || self.disks.is_empty(),
            "luns: the file has no disks, but disks are served; write luns = \"none\" to serve none"
        );
        Ok(())
    }
}

/// Checks that rules which are still there lose none of their kinds: secrets, the list, the mask of an initiator. A file
/// that was cut off between them would open the target.
fn check_rules(before: &Access, after: &Access) -> anyhow::Result<()> {
    ensure!(
        before.authentication.initiators.is_empty() || !after.authentication.initiators.is_empty(),
        "access.chap: the file has no secrets, but CHAP is in force; restart the target to end it"
    );
    ensure!(
        before.initiators.is_empty() || !after.initiators.is_empty(),
        "access.initiators: the file lists no initiators, but a list is in force; restart the target to end it"
    );
    for masked in before.initiators.iter().filter(|initiator| initiator.luns.is_some()) {
        let now = after.initiators.iter().find(|now| now.name.eq_ignore_ascii_case(&masked.name));
        ensure!(
            now.is_none_or(|now| now.luns.is_some()),
            "access.initiators: '{}' has no luns any more, which would show it all disks; name them",
            masked.name
        );
    }
    Ok(())
}
