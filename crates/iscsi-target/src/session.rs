//! A session: its I_T nexus, its connections, its tasks and the disks that its initiator sees.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use iscsi::login::chap::Credentials;
use iscsi::target::Parked;
use iscsi::{CommandSequence, Parameters};
use scsi::{Disk, Lun, Nexus, UnitAttention};

use crate::fence::{Epoch, NexusTasks, TaskOwner};
use crate::gathering::Gathering;
use crate::lock::lock;
use crate::mailbox::{Mailbox, Notice};
use crate::memory::Share;
use crate::node::Node;
use crate::read::Read;
use crate::table::Table;
use crate::unit::Unit;

/// The identity of a session: its I_T nexus (RFC 7143 4.4.1) and its authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey {
    /// In lower case: names are compared after normalisation.
    pub(crate) initiator_name: String,
    pub(crate) isid: [u8; 6],
    pub(crate) target_name: String,
    pub(crate) portal_group: u16,
    /// The authenticated CHAP user; `None` without authentication.
    pub(crate) user: Option<String>,
}

/// An I_T nexus: an initiator port and a target port (RFC 7143 2.2).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NexusKey {
    initiator_name: String,
    isid: [u8; 6],
    target_name: String,
    portal_group: u16,
}

impl SessionKey {
    /// The I_T nexus, which is the same for any user.
    pub(crate) fn nexus(&self) -> NexusKey {
        let Self { initiator_name, isid, target_name, portal_group, user: _ } = self;
        NexusKey {
            initiator_name: initiator_name.clone(),
            isid: *isid,
            target_name: target_name.clone(),
            portal_group: *portal_group,
        }
    }

    /// Returns whether both belong to one initiator, by name and user.
    pub(crate) fn is_same_initiator(&self, other: &Self) -> bool {
        self.initiator_name == other.initiator_name && self.user == other.user
    }

    /// Returns the SCSI initiator port name: iSCSI name and ISID (RFC 7143 4.4.1).
    pub(crate) fn port(&self) -> String {
        let isid = self.isid.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
        format!("{},i,{isid:#014x}", self.initiator_name)
    }
}

/// A session, shared by the threads of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) tsih: u16,
    /// Unique among the sessions of the target; unlike the TSIH it is never reused.
    pub(crate) instance: u64,
    /// [`Nexus::name`].
    pub(crate) nexus_name: String,
    pub(crate) key: SessionKey,
    /// The target node; `None` for a discovery session.
    pub(crate) node: Option<Arc<Node>>,
    /// What its initiator has authenticated with.
    pub(crate) proven: Option<Credentials>,
    /// The parameters negotiated by its leading connection.
    pub(crate) parameters: Parameters,
    pub(crate) commands: Arc<CommandSequence>,
    pub(crate) nexus: Mutex<Nexus>,
    pub(crate) members: Mutex<Members>,
    pub(crate) has_begun: AtomicBool,
    /// The disks that the initiator sees.
    pub(crate) view: Mutex<Option<Arc<Table>>>,
    /// Disk changes that have not been reported by an asynchronous message yet.
    pub(crate) pending_events: Mutex<Vec<(Lun, UnitAttention)>>,
    /// Its tasks by logical unit.
    pub(crate) tasks: Mutex<TasksByLun>,
    /// Whether it has ended: no task begins and no connection joins.
    pub(crate) is_closed: AtomicBool,
    /// Whether one of its connections cannot go on in the next process.
    pub(crate) is_ending: AtomicBool,
}

pub(crate) type TasksByLun = BTreeMap<u16, (Arc<Unit>, Arc<NexusTasks>)>;

/// The connections of a session, by CID.
#[derive(Debug, Default)]
pub(crate) struct Members {
    pub(crate) connections: BTreeMap<u16, Member>,
    pub(crate) lost: BTreeMap<u16, Lost>,
}

#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) id: u64,
    pub(crate) mailbox: Arc<Mailbox>,
    /// The initiator's address.
    pub(crate) address: IpAddr,
}

/// The tasks of a lost connection that can be reassigned (ErrorRecoveryLevel 2).
#[derive(Debug, Default)]
pub(crate) struct RecoverableTasks {
    pub(crate) parked: Parked,
    pub(crate) gathering: Gathering,
    /// Reads with incomplete responses, by tag. They restart on another connection.
    pub(crate) reads: BTreeMap<u32, Read>,
}

impl RecoverableTasks {
    pub(crate) fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.reads.is_empty()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parked.bytes() + self.gathering.bytes() + self.reads.len() * size_of::<Read>()
    }
}

/// A lost connection whose tasks are kept for reassignment.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) recoverable: RecoverableTasks,
    pub(crate) until: Instant,
    /// Its share of the memory budget.
    pub(crate) _share: Share,
    pub(crate) bytes: usize,
}

impl TaskOwner for Session {
    fn nexus_name(&self) -> &str {
        &self.nexus_name
    }

    fn instance(&self) -> u64 {
        self.instance
    }

    fn sweep(&self) {
        self.post(Notice::Sweep);
    }
}

impl Session {
    /// Returns true on the first call only: for the leading connection.
    pub(crate) fn begin_once(&self) -> bool {
        !self.has_begun.swap(true, Ordering::AcqRel)
    }

    /// Calls `take` on the tasks of each lost connection until it returns a value.
    pub(crate) fn with_lost<R>(&self, mut take: impl FnMut(&mut RecoverableTasks) -> Option<R>) -> Option<R> {
        lock(&self.members).lost.values_mut().find_map(|lost| take(&mut lost.recoverable))
    }

    /// Returns the id of the connection with this CID, and whether a lost connection had this CID.
    pub(crate) fn has(&self, cid: u16) -> (Option<u64>, bool) {
        let members = lock(&self.members);
        (members.connections.get(&cid).map(|member| member.id), members.lost.contains_key(&cid))
    }

    /// Returns whether there is no connection other than this one.
    pub(crate) fn is_alone(&self, id: u64) -> bool {
        lock(&self.members).connections.values().all(|member| member.id == id)
    }

    /// Posts a notice to all of its connections.
    pub(crate) fn post(&self, notice: Notice) {
        lock(&self.members).connections.values().for_each(|member| member.mailbox.post(notice));
    }

    /// Posts a notice to all of its connections except this one.
    pub(crate) fn post_to_others(&self, id: u64, notice: Notice) {
        let members = lock(&self.members);
        let others = members.connections.values().filter(|member| member.id != id);
        others.for_each(|member| member.mailbox.post(notice));
    }

    /// Posts a notice to the connection with this CID; returns whether there is one.
    pub(crate) fn end_connection(&self, cid: u16, notice: Notice) -> bool {
        let members = lock(&self.members);
        members.connections.get(&cid).map(|member| member.mailbox.post(notice)).is_some()
    }

    /// Drops the tasks of lost connections.
    pub(crate) fn forget_lost(&self) {
        lock(&self.members).lost.clear();
    }

    /// Returns the disks that the initiator sees.
    pub(crate) fn view(&self) -> Option<Arc<Table>> {
        lock(&self.view).clone()
    }

    /// Returns whether the initiator sees a logical unit.
    pub(crate) fn sees(&self, lun: Lun) -> bool {
        lock(&self.view).as_ref().is_some_and(|view| view.unit(lun).is_some())
    }

    /// Returns the number under which the initiator sees a disk.
    pub(crate) fn number_of(&self, disk: &Disk) -> Option<Lun> {
        let view = self.view()?;
        let (lun, _) = view.luns.0.iter().find(|(_, seen)| Arc::ptr_eq(&seen.shared, &disk.shared))?;
        Some(*lun)
    }

    /// Replaces the disks that the initiator sees. Establishes unit attentions for changes, once per session, and aborts
    /// tasks at removed disks; returns the epochs of those that have not ended yet.
    pub(crate) fn set_view(&self, view: &Arc<Table>) -> Vec<Arc<Epoch>> {
        let changes = {
            let mut there = lock(&self.view);
            let changes = there.as_ref().map(|before| view.changes_since(before)).unwrap_or_default();
            *there = Some(Arc::clone(view));
            changes
        };
        let mut nexus = lock(&self.nexus);
        let mut pending = lock(&self.pending_events);
        for (lun, attention) in changes {
            nexus.raise(lun, attention);
            // A change of the LUN inventory is reported once, not for each logical unit.
            let is_queued =
                pending.iter().any(|(l, a)| *a == attention && (*l == lun || a.is_about_the_list()));
            if !is_queued {
                pending.push((lun, attention));
            }
        }
        drop((nexus, pending));
        let mut tasks = lock(&self.tasks);
        let mut ended = Vec::new();
        tasks.retain(|&lun, (unit, tasks)| {
            let stays = view.unit(Lun(lun)).is_some_and(|now| Arc::ptr_eq(now, unit));
            if !stays {
                ended.extend(tasks.close());
            }
            stays
        });
        drop(tasks);
        self.post(Notice::Disks);
        ended
    }

    /// Takes the disk changes to report by asynchronous messages.
    pub(crate) fn take_events(&self) -> Vec<(Lun, UnitAttention)> {
        std::mem::take(&mut *lock(&self.pending_events))
    }

    /// Returns the session's tasks at a logical unit; `None` once the session has ended or does not see the unit.
    pub(crate) fn tasks_at(self: &Arc<Self>, lun: Lun, unit: &Arc<Unit>) -> Option<Arc<NexusTasks>> {
        let mut tasks = lock(&self.tasks);
        if self.is_closed.load(Ordering::Acquire) || !self.sees(lun) {
            return None;
        }
        if let Some((there, mine)) = tasks.get(&lun.0)
            && Arc::ptr_eq(there, unit)
        {
            return Some(Arc::clone(mine));
        }
        let mine = unit.nexuses.join(self);
        let old = tasks.insert(lun.0, (Arc::clone(unit), Arc::clone(&mine)));
        old.inspect(|(_, old)| drop(old.close()));
        Some(mine)
    }

    /// Returns whether one of its connections cannot go on in the next process.
    pub(crate) fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Returns whether the session has ended: no task begins, and its connections are about to be dropped.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Aborts the session's tasks at a logical unit; returns the epochs to wait for.
    pub(crate) fn abort_tasks(&self, lun: Lun) -> Vec<Arc<Epoch>> {
        let tasks = lock(&self.tasks).get(&lun.0).map(|(_, tasks)| Arc::clone(tasks));
        tasks.map(|tasks| tasks.abort(None)).unwrap_or_default()
    }

    /// Aborts all tasks of the session and admits no new ones; returns the epochs to wait for.
    pub(crate) fn close_tasks(&self) -> Vec<Arc<Epoch>> {
        let all = {
            let tasks = lock(&self.tasks);
            self.is_closed.store(true, Ordering::Release);
            tasks.values().map(|(_, tasks)| Arc::clone(tasks)).collect::<Vec<_>>()
        };
        // Repeated calls return the remaining epochs too.
        all.iter().flat_map(|tasks| tasks.close()).collect()
    }
}
