//! The settings in force, and their replacement while sessions continue.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::ensure;
use iscsi_target::{Access, Portal, RunningTarget};

use crate::file::TargetFile;
use crate::open_disks::OpenDisks;

/// The served disks, the access rules in force, and the settings that the target was started with.
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
    /// Creates the state of a target that was started with a file.
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

    /// Applies a changed file. Initiators that may no longer log in have `patience` to log out.
    ///
    /// # Errors
    /// When a setting is invalid or would need a restart; nothing has changed then.
    pub fn reload(
        &mut self,
        file: TargetFile,
        target: &RunningTarget,
        patience: Duration,
    ) -> anyhow::Result<()> {
        self.check(&file)?;
        let mut next = self.disks.prepare(&file.luns)?;
        next.grow()?;
        // Rules first: a new disk must never be visible under the old rules.
        target.set_access(file.access.clone(), patience);
        if let Err(error) = next.commit(&mut self.disks, |luns| Ok(target.set_luns(luns)?)) {
            target.set_access(self.access.clone(), patience);
            return Err(error);
        }
        self.access = file.access;
        Ok(())
    }

    /// Checks that the file changes only reloadable settings, and removes none by omission: the file may be incompletely
    /// written.
    fn check(&self, file: &TargetFile) -> anyhow::Result<()> {
        let differs = [
            ("iqn", self.iqn != file.iqn),
            ("portal", self.portals != file.portals),
            ("state", self.state != file.state),
            ("limits", self.limits != file.limits),
        ];
        for (key, differs) in differs {
            ensure!(!differs, "{key}: differs from the value at start; restart the target to change it");
        }
        ensure!(
            file.access.is_some() || file.is_open_access || self.access.is_none(),
            "access: the file has no rules, but rules are in force; write access = \"open\" to admit every initiator"
        );
        if let (Some(before), Some(after)) = (&self.access, &file.access) {
            check_rules(before, after)?;
        }
        ensure!(
            !file.luns.is_empty() || file.is_diskless || self.disks.is_empty(),
            "luns: the file has no disks, but disks are served; write luns = \"none\" to serve none"
        );
        Ok(())
    }
}

/// Checks that the new rules do not drop a whole kind of the old ones: secrets, the list of initiators, the mask of an
/// initiator. A truncated file would otherwise open the target.
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
            "access.initiators: '{}' has no luns any more, which would show it all disks; list its luns",
            masked.name
        );
    }
    Ok(())
}
