//! The settings in force, and their replacement while sessions continue.

use std::time::Duration;

use anyhow::{Context as _, ensure};
use iscsi_target::{Access, LunConfig, NodeConfig, RunningTarget};

use crate::file::{NodeFile, TargetFile};
use crate::open_disks::{DiskKey, OpenDisks, Which};

/// The served disks and the settings in force.
#[derive(Debug)]
pub struct Served {
    /// The open disks.
    pub disks: OpenDisks,
    file: TargetFile,
    /// The sizes of the disks as initiators know them, bytes.
    sizes: Vec<(DiskKey, u64)>,
}

/// Returns the targets of a file with these open disks.
#[must_use]
pub fn nodes(file: &TargetFile, disks: &[(DiskKey, LunConfig)]) -> Vec<NodeConfig> {
    let node = |node: &NodeFile| NodeConfig {
        iqn: node.name().to_owned(),
        luns: disks.iter().filter(|(key, _)| node.has(key)).map(|(_, lun)| lun.clone()).collect(),
        access: node.access.clone(),
        groups: node.groups.clone(),
    };
    file.nodes.iter().map(node).collect()
}

impl Served {
    /// Creates the state of a target that was started with a file.
    #[must_use]
    pub fn new(file: TargetFile, disks: OpenDisks) -> Self {
        let sizes = disks.sizes();
        Self { disks, file, sizes }
    }

    /// Returns the settings in force.
    #[must_use]
    pub fn file(&self) -> &TargetFile {
        &self.file
    }

    /// Applies a file that was read again. Nothing is removed by omission: the file may be incompletely written. Initiators that
    /// may no longer log in have `patience` to log out.
    ///
    /// # Errors
    /// When a setting is invalid or would need a restart; nothing has changed then.
    pub fn reload(
        &mut self,
        file: TargetFile,
        target: &RunningTarget,
        patience: Duration,
    ) -> anyhow::Result<()> {
        self.check_omissions(&file)?;
        self.apply(file, target, patience)
    }

    /// Applies settings. Initiators that may no longer log in have `patience` to log out.
    ///
    /// # Errors
    /// When a setting is invalid or would need a restart; nothing has changed then.
    pub fn apply(
        &mut self,
        file: TargetFile,
        target: &RunningTarget,
        patience: Duration,
    ) -> anyhow::Result<()> {
        self.check(&file)?;
        let mut next = self.disks.prepare(&file.disks())?;
        next.grow()?;
        next.commit(&mut self.disks, |which, disks| {
            let settings = match which {
                Which::Next => &file,
                Which::Previous => &self.file,
            };
            Ok(target.set_nodes(&nodes(settings, disks), patience)?)
        })?;
        self.file = file;
        self.sizes = self.disks.sizes();
        Ok(())
    }

    /// Tells initiators of disks whose stores have another size than before, as images of a cluster may have at any time.
    ///
    /// # Errors
    /// When a disk cannot have its new size; it is served with the old one.
    pub fn follow_sizes(&mut self, target: &RunningTarget, patience: Duration) -> anyhow::Result<()> {
        let now = self.disks.sizes();
        if now == self.sizes {
            return Ok(());
        }
        for ((key, after), (_, before)) in now.iter().zip(&self.sizes).filter(|(now, before)| now != before) {
            tracing::warn!("{key}: its store has {after} bytes now, and had {before}");
        }
        // Once, also when it fails.
        self.sizes = now;
        Ok(target.set_nodes(&nodes(&self.file, &self.disks.configs()), patience)?)
    }

    /// Checks that only settings differ that can change while the target runs, and that masks name disks.
    ///
    /// # Errors
    /// Names the setting.
    pub fn check(&self, file: &TargetFile) -> anyhow::Result<()> {
        let differs = [
            ("portal", self.file.portals != file.portals),
            ("state", self.file.state != file.state),
            ("limits", self.file.limits != file.limits),
        ];
        for (key, differs) in differs {
            ensure!(!differs, "{key}: differs from the value at start; restart the target to change it");
        }
        file.check_masks()
    }

    /// Checks that the file removes nothing by omission.
    fn check_omissions(&self, file: &TargetFile) -> anyhow::Result<()> {
        for before in &self.file.nodes {
            let Some(after) = file.node(before.name()) else {
                let is_only = self.file.nodes.len() == 1 && file.nodes.len() == 1;
                ensure!(!is_only, "iqn: differs from the value at start; restart the target to change it");
                ensure!(
                    before.luns.is_empty(),
                    "target '{}' is missing, but serves disks; write luns = \"none\" for it first",
                    before.name()
                );
                continue;
            };
            let checked = check_node(before, after);
            if self.file.nodes.len() == 1 {
                checked?;
            } else {
                checked.with_context(|| format!("target '{}'", before.name()))?;
            }
        }
        Ok(())
    }
}

/// Checks that the settings of a target remove neither its rules nor its disks by omission.
fn check_node(before: &NodeFile, after: &NodeFile) -> anyhow::Result<()> {
    ensure!(
        after.access.is_some() || after.is_open_access || before.access.is_none(),
        "access: the file has no rules, but rules are in force; write access = \"open\" to admit every initiator"
    );
    if let (Some(before), Some(after)) = (&before.access, &after.access) {
        check_rules(before, after)?;
    }
    ensure!(
        !after.luns.is_empty() || after.is_diskless || before.luns.is_empty(),
        "luns: the file has no disks, but disks are served; write luns = \"none\" to serve none"
    );
    Ok(())
}

/// Checks that the new rules do not drop a whole kind of the old ones: secrets, the list of initiators, the mask of an
/// initiator. A truncated file would otherwise open the target.
fn check_rules(before: &Access, after: &Access) -> anyhow::Result<()> {
    if after.is_closed {
        return Ok(());
    }
    ensure!(!before.is_closed, "access: nobody may log in; restart the target, or use ctl, to admit others");
    ensure!(
        before.users.is_empty() || !after.users.is_empty(),
        "access.chap: the file has no secrets, but CHAP is in force; restart the target to end it"
    );
    ensure!(
        before.initiators.is_empty() || !after.initiators.is_empty(),
        "access.initiators: the file lists no initiators, but a list is in force; restart the target to end it"
    );
    ensure!(
        before.addresses.is_empty() || !after.addresses.is_empty(),
        "access.addresses: the file lists no addresses, but a list is in force; restart the target to end it"
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
