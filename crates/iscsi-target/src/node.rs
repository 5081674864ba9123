//! The iSCSI target nodes of a process: each has a name, disks and access rules of its own (RFC 7143 4.1).

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use iscsi::login::is_iscsi_name;
use scsi::UnitAttention;
use scsi::ports::AccessState;

use crate::config::{Access, NodeConfig};
use crate::disks::Disks;
use crate::effects::SharedEffects;
use crate::error::TargetError;
use crate::lock::lock;
use crate::session::SessionKey;

/// A target node.
pub(crate) struct Node {
    pub(crate) iqn: String,
    /// The portal groups through which it is reached, in ascending order.
    pub(crate) groups: Vec<u16>,
    pub(crate) disks: Disks,
    access: Mutex<Option<Arc<Access>>>,
}

impl std::fmt::Debug for Node {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Node").field("iqn", &self.iqn).finish_non_exhaustive()
    }
}

impl Node {
    /// Returns the current access rules.
    pub(crate) fn access(&self) -> Option<Arc<Access>> {
        lock(&self.access).clone()
    }

    /// Returns whether a login with this TargetName means it: names are compared without case (RFC 7143 4.2.7.2).
    pub(crate) fn has_name(&self, name: &str) -> bool {
        self.iqn.eq_ignore_ascii_case(name)
    }

    /// Returns whether a session may continue under the current rules, for an initiator at this address.
    pub(crate) fn may_stay(&self, key: &SessionKey, address: IpAddr) -> bool {
        self.access().is_none_or(|access| access.admits(&key.initiator_name, address, key.user.as_deref()))
    }

    /// Sets the ALUA state of a portal group for all its disks; returns whether it has the group.
    pub(crate) fn set_access_state(&self, group: u16, state: AccessState) -> bool {
        let table = self.disks.table();
        for disk in table.luns.0.values().filter(|disk| disk.ports.set(group, state)) {
            table.effects.raise(disk, UnitAttention::AccessStateChanged, |_| true);
        }
        self.groups.contains(&group)
    }
}

/// The target nodes, and their replacement while sessions continue.
pub(crate) struct Nodes {
    current: Mutex<Arc<[Arc<Node>]>>,
    /// The portal groups of the process, in ascending order.
    groups: Vec<u16>,
    effects: Arc<SharedEffects>,
    /// Held during a change.
    changing: Mutex<()>,
}

impl Nodes {
    pub(crate) fn new(
        configs: &[NodeConfig],
        mut groups: Vec<u16>,
        effects: Arc<SharedEffects>,
    ) -> Result<Self, TargetError> {
        groups.sort_unstable();
        groups.dedup();
        let nodes = Self { current: Mutex::new(Arc::new([])), groups, effects, changing: Mutex::default() };
        nodes.set(configs)?;
        Ok(nodes)
    }

    /// Returns the current nodes.
    pub(crate) fn all(&self) -> Arc<[Arc<Node>]> {
        Arc::clone(&lock(&self.current))
    }

    /// Replaces the nodes. A node with the same name stays, and a disk with the same number and store keeps its reservations,
    /// mode pages and tasks. A node that ends serves no disk any more.
    ///
    /// # Errors
    /// When a node or a disk is invalid; nothing has changed then.
    pub(crate) fn set(&self, configs: &[NodeConfig]) -> Result<(), TargetError> {
        let _changing = lock(&self.changing);
        let before = self.all();
        let mut prepared = Vec::new();
        for (index, config) in configs.iter().enumerate() {
            if !is_iscsi_name(&config.iqn) {
                return Err(TargetError::Name(config.iqn.clone()));
            }
            if configs[..index].iter().any(|other| other.iqn.eq_ignore_ascii_case(&config.iqn)) {
                return Err(TargetError::DuplicateName(config.iqn.clone()));
            }
            let groups = self.groups_of(config)?;
            let node = before.iter().find(|node| node.has_name(&config.iqn)).cloned();
            if node.as_ref().is_some_and(|node| node.groups != groups) {
                return Err(TargetError::GroupsChanged(config.iqn.clone()));
            }
            let node = node.unwrap_or_else(|| {
                Arc::new(Node {
                    disks: Disks::new(&config.iqn, groups.clone(), Arc::clone(&self.effects)),
                    iqn: config.iqn.clone(),
                    groups,
                    access: Mutex::default(),
                })
            });
            let table = node.disks.prepare(&config.luns)?;
            prepared.push((node, table, config.access.clone().map(Arc::new)));
        }
        check_identities(prepared.iter().flat_map(|(_, table, _)| table.disks()))?;
        let after: Arc<[Arc<Node>]> = prepared.iter().map(|(node, ..)| Arc::clone(node)).collect();
        for (node, table, access) in prepared {
            // Rules first: a new disk must never be visible under the old rules.
            *lock(&node.access) = access;
            node.disks.replace(table);
        }
        *lock(&self.current) = Arc::clone(&after);
        let ended = before.iter().filter(|old| !after.iter().any(|node| Arc::ptr_eq(node, old)));
        ended.for_each(|node| node.disks.clear());
        Ok(())
    }

    fn groups_of(&self, config: &NodeConfig) -> Result<Vec<u16>, TargetError> {
        let Some(chosen) = &config.groups else { return Ok(self.groups.clone()) };
        let mut chosen = chosen.clone();
        chosen.sort_unstable();
        chosen.dedup();
        match chosen.iter().find(|group| !self.groups.contains(group)) {
            Some(&group) => Err(TargetError::NoGroup { iqn: config.iqn.clone(), group }),
            None if chosen.is_empty() => Err(TargetError::NoPortal),
            None => Ok(chosen),
        }
    }
}

/// Checks that hosts can tell the disks apart.
fn check_identities<'a>(disks: impl Iterator<Item = &'a scsi::Disk>) -> Result<(), TargetError> {
    let mut seen = BTreeMap::new();
    for disk in disks {
        let identity = &disk.identity;
        let hex = |naa: &Vec<u8>| naa.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
        let naa = identity.naa.as_ref().map(|naa| format!("NAA identifier {}", hex(naa)));
        for name in std::iter::once(format!("serial number {}", identity.serial)).chain(naa) {
            if let Some(other) = seen.insert(name.clone(), &identity.target_name) {
                return Err(TargetError::DuplicateIdentity {
                    what: name,
                    first: other.clone(),
                    second: identity.target_name.clone(),
                });
            }
        }
    }
    Ok(())
}
