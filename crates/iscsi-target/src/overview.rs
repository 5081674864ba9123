//! What an operator sees and ends: targets, disks, sessions and reservations.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use scsi::{Lun, UnitAttention};
use serde::Serialize;

use crate::counters::DiskCounts;
use crate::error::TargetError;
use crate::lock::lock;
use crate::mailbox::Notice;
use crate::node::Node;
use crate::session::Session;
use crate::shared::Shared;

/// How much of a limit of the whole target is in use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LimitUse {
    /// Its name, as in [`Limits`](crate::Limits).
    pub limit: &'static str,
    /// In use: a count, or bytes.
    pub used: usize,
    /// The most.
    pub most: usize,
}

/// Returns the limits that all initiators share.
pub(crate) fn limits(shared: &Shared) -> Vec<LimitUse> {
    let (limits, sessions) = (&shared.config.limits, &shared.sessions);
    [
        ("connections", sessions.connections(), limits.connections),
        ("logins", sessions.logins(), limits.logins),
        ("sessions", sessions.sessions(), limits.sessions),
        ("memory_bytes", shared.memory.used(), limits.memory_bytes),
        ("receive_bytes", shared.inbound.used(), limits.receive_bytes),
    ]
    .map(|(limit, used, most)| LimitUse { limit, used, most })
    .into()
}

/// A target node.
#[derive(Clone, Debug, Serialize)]
pub struct NodeOverview {
    /// Its iSCSI name.
    pub iqn: String,
    /// The portal groups through which it is reached.
    pub groups: Vec<u16>,
    /// Its disks.
    pub disks: Vec<DiskOverview>,
    /// Its sessions.
    pub sessions: usize,
}

/// A disk.
#[derive(Clone, Debug, Serialize)]
pub struct DiskOverview {
    /// Its number.
    pub lun: u16,
    /// Its size, bytes.
    pub bytes: u64,
    /// Logical block length, bytes.
    pub block_bytes: u32,
    /// Writes are refused.
    pub read_only: bool,
    /// Written data may be lost by a power failure until the cache is synchronised.
    pub write_cache: bool,
    /// Unit serial number.
    pub serial: String,
    /// T10 vendor identification.
    pub vendor: String,
    /// Product identification.
    pub product: String,
    /// What has been counted since it was added.
    pub counts: DiskCounts,
}

/// A session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionOverview {
    /// Its number, never used again.
    pub id: u64,
    /// Target session identifying handle.
    pub tsih: u16,
    /// The target's name; `None` for a discovery session.
    pub target: Option<String>,
    /// The initiator's name, in lower case.
    pub initiator: String,
    /// Initiator session identifier, hexadecimal.
    pub isid: String,
    /// The CHAP user.
    pub user: Option<String>,
    /// The portal group.
    pub portal_group: u16,
    /// ErrorRecoveryLevel.
    pub recovery_level: u8,
    /// Its connections.
    pub connections: Vec<SessionConnection>,
}

/// A connection of a session.
#[derive(Clone, Debug, Serialize)]
pub struct SessionConnection {
    /// Its number in the process.
    pub id: u64,
    /// Connection identifier.
    pub cid: u16,
    /// The initiator's address.
    pub address: IpAddr,
}

/// The reservations of a disk.
#[derive(Clone, Debug, Serialize)]
pub struct ReservationsOverview {
    /// The target's name.
    pub target: String,
    /// The disk's number.
    pub lun: u16,
    /// Initiator ports and their keys.
    pub registrations: Vec<(String, u64)>,
    /// The initiator port that holds the persistent reservation, and its type.
    pub holder: Option<(String, &'static str)>,
    /// The nexus that holds a reservation by RESERVE(6).
    pub reserved: Option<String>,
}

fn is_at(session: &Session, node: &Node) -> bool {
    session.node.as_ref().is_some_and(|own| own.has_name(&node.iqn))
}

/// Returns the target nodes.
pub(crate) fn nodes(shared: &Shared) -> Vec<NodeOverview> {
    let sessions = shared.sessions.all();
    let node = |node: &Arc<Node>| {
        let table = node.disks.table();
        NodeOverview {
            iqn: node.iqn.clone(),
            groups: node.groups.clone(),
            disks: table
                .luns
                .0
                .iter()
                .map(|(lun, disk)| DiskOverview {
                    lun: lun.0,
                    bytes: disk.blocks * u64::from(disk.block_bytes),
                    block_bytes: disk.block_bytes,
                    read_only: disk.is_read_only(),
                    write_cache: disk.write_cache,
                    serial: disk.identity.serial.clone(),
                    vendor: disk.identity.vendor.clone(),
                    product: disk.identity.product.clone(),
                    counts: table.unit(*lun).map(|unit| unit.counters.counts()).unwrap_or_default(),
                })
                .collect(),
            sessions: sessions.iter().filter(|session| is_at(session, node)).count(),
        }
    };
    shared.nodes.all().iter().map(node).collect()
}

/// Returns the sessions, in the order of their logins.
pub(crate) fn sessions(shared: &Shared) -> Vec<SessionOverview> {
    let one = |session: &Arc<Session>| {
        let key = &session.key;
        SessionOverview {
            id: session.instance,
            tsih: session.tsih,
            target: session.node.as_ref().map(|node| node.iqn.clone()),
            initiator: key.initiator_name.clone(),
            isid: key.isid.iter().map(|byte| format!("{byte:02x}")).collect(),
            user: key.user.clone(),
            portal_group: key.portal_group,
            recovery_level: session.parameters.error_recovery_level,
            connections: lock(&session.members)
                .connections
                .iter()
                .map(|(&cid, member)| SessionConnection { id: member.id, cid, address: member.address })
                .collect(),
        }
    };
    let mut all: Vec<_> = shared.sessions.all().iter().map(one).collect();
    all.sort_unstable_by_key(|session| session.id);
    all
}

/// Returns the reservations of the disks that have any.
pub(crate) fn reservations(shared: &Shared) -> Vec<ReservationsOverview> {
    let mut all = Vec::new();
    for node in shared.nodes.all().iter() {
        for (lun, disk) in &node.disks.table().luns.0 {
            let scsi::reservations::Overview { registrations, holder, reserved } =
                disk.shared.reservations.overview();
            if !registrations.is_empty() || reserved.is_some() {
                let target = node.iqn.clone();
                all.push(ReservationsOverview { target, lun: lun.0, registrations, holder, reserved });
            }
        }
    }
    all
}

/// Ends all reservations of a disk; returns how many initiators had one, or `None` if there is no such disk.
///
/// # Errors
/// When the durable state cannot be saved; nothing has changed then.
pub(crate) fn clear_reservations(shared: &Shared, iqn: &str, lun: u16) -> Result<Option<usize>, TargetError> {
    let all = shared.nodes.all();
    let Some(node) = all.iter().find(|node| node.has_name(iqn)) else { return Ok(None) };
    let table = node.disks.table();
    let Some(disk) = table.luns.0.get(&Lun(lun)) else { return Ok(None) };
    table.effects.forget_reservations(disk)?;
    let ended = disk.shared.reservations.clear();
    for port in &ended {
        let has_had =
            |recipient: crate::effects::Recipient<'_>| scsi::reservations::names(port, recipient.nexus_name);
        table.effects.raise(disk, UnitAttention::RegistrationsPreempted, has_had);
    }
    Ok(Some(ended.len()))
}

/// Drops the sessions that `chosen` selects; returns how many. Their initiators may log in again.
pub(crate) fn drop_sessions(shared: &Shared, chosen: impl Fn(&SessionOverview) -> bool) -> usize {
    let chosen: Vec<u64> = sessions(shared).iter().filter(|one| chosen(one)).map(|one| one.id).collect();
    let reason = "dropped by the operator";
    for session in shared.sessions.all().iter().filter(|session| chosen.contains(&session.instance)) {
        drop(session.close_tasks());
        session.forget_lost();
        session.post(Notice::Drop(reason));
    }
    // A session that only waits to be recovered has no connection to end it.
    let ended = shared.sessions.remove_empty();
    shared.sessions_ended(&ended);
    chosen.len()
}

/// Refuses logins from now on, and asks the initiators to log out within `patience`.
pub(crate) fn drain(shared: &Shared, patience: Duration) {
    shared.draining.store(true, Ordering::Relaxed);
    shared.sessions.post_to_chosen(|session, _| session.node.is_some(), Notice::LogOut(patience));
}
