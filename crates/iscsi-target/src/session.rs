//! One session: its I_T nexus, its connections, its tasks and the disks that its initiator sees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use iscsi::target::Parked;
use iscsi::{CommandSequence, Parameters};
use scsi::{Lun, Nexus, UnitAttention};

use crate::fence::{Epoch, NexusTasks, TaskOwner};
use crate::gathering::Gathering;
use crate::lock::lock;
use crate::mailbox::{Mailbox, Notice};
use crate::memory::Share;
use crate::read::Read;
use crate::table::Table;
use crate::unit::Unit;

/// What makes a session the same session (RFC 7143 4.4.1: I_T nexus with its ISID), and who has proven to own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey {
    /// In lower case: names are compared after normalisation.
    pub(crate) initiator_name: String,
    pub(crate) isid: [u8; 6],
    pub(crate) target_name: String,
    pub(crate) portal_group: u16,
    /// The CHAP user that the initiator has proven to be, where it had to.
    pub(crate) user: Option<String>,
}

impl SessionKey {
    /// Whether both are the same I_T nexus, whoever has proven to own it.
    pub(crate) fn is_same_nexus(&self, other: &Self) -> bool {
        let Self { initiator_name, isid, target_name, portal_group, user: _ } = self;
        (initiator_name, isid, target_name, portal_group)
            == (&other.initiator_name, &other.isid, &other.target_name, &other.portal_group)
    }

    /// Whether both are sessions of one initiator, by name and proven user.
    pub(crate) fn is_same_initiator(&self, other: &Self) -> bool {
        self.initiator_name == other.initiator_name && self.user == other.user
    }

    /// The initiator port (SAM: iSCSI name and ISID, RFC 7143 4.4.1).
    pub(crate) fn port(&self) -> String {
        let isid = self.isid.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
        format!("{},i,{isid:#014x}", self.initiator_name)
    }
}

/// One session, shared by the threads of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) tsih: u16,
    /// Tells it from every other session of the target.
    pub(crate) instance: u64,
    /// [`Nexus::name`].
    pub(crate) nexus_name: String,
    pub(crate) key: SessionKey,
    /// What was agreed with its first connection.
    pub(crate) parameters: Parameters,
    pub(crate) commands: Arc<CommandSequence>,
    pub(crate) nexus: Mutex<Nexus>,
    pub(crate) members: Mutex<Members>,
    pub(crate) has_begun: AtomicBool,
    /// The disks that the initiator sees.
    pub(crate) view: Mutex<Option<Arc<Table>>>,
    /// Changes of the disks that the initiator has not been sent a message of.
    pub(crate) pending_events: Mutex<Vec<(Lun, UnitAttention)>>,
    /// Its tasks by logical unit.
    pub(crate) tasks: Mutex<TasksByLun>,
    /// It may begin no task any more, nor may a connection join it.
    pub(crate) is_closed: AtomicBool,
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
}

/// What a lost connection leaves to its session (ErrorRecoveryLevel 2).
#[derive(Debug, Default)]
pub(crate) struct RecoverableTasks {
    pub(crate) parked: Parked,
    pub(crate) gathering: Gathering,
    /// Reads whose answers were not complete, by tag: they begin again.
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

/// What a lost connection has left, and until when it is kept.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) recoverable: RecoverableTasks,
    pub(crate) until: Instant,
    /// Its part of the memory of all, for as long as it is kept.
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
    /// Whether it begins with this call: true once, for its first connection.
    pub(crate) fn begin_once(&self) -> bool {
        !self.has_begun.swap(true, Ordering::AcqRel)
    }

    /// What lost connections have left, to go on with.
    pub(crate) fn with_lost<R>(&self, mut take: impl FnMut(&mut RecoverableTasks) -> Option<R>) -> Option<R> {
        lock(&self.members).lost.values_mut().find_map(|lost| take(&mut lost.recoverable))
    }

    /// The connection with this CID, if it is there; and whether one with it was lost.
    pub(crate) fn has(&self, cid: u16) -> (Option<u64>, bool) {
        let members = lock(&self.members);
        (members.connections.get(&cid).map(|member| member.id), members.lost.contains_key(&cid))
    }

    /// Whether there is no connection but this one.
    pub(crate) fn is_alone(&self, id: u64) -> bool {
        lock(&self.members).connections.values().all(|member| member.id == id)
    }

    /// Posts a notice to all of its connections.
    pub(crate) fn post(&self, notice: Notice) {
        lock(&self.members).connections.values().for_each(|member| member.mailbox.post(notice));
    }

    /// Posts a notice to all of its connections but this one.
    pub(crate) fn post_to_others(&self, id: u64, notice: Notice) {
        let members = lock(&self.members);
        let others = members.connections.values().filter(|member| member.id != id);
        others.for_each(|member| member.mailbox.post(notice));
    }

    /// Ends another connection of it; whether there was one.
    pub(crate) fn end_connection(&self, cid: u16, notice: Notice) -> bool {
        let members = lock(&self.members);
        members.connections.get(&cid).map(|member| member.mailbox.post(notice)).is_some()
    }

    /// Forgets what lost connections have left.
    pub(crate) fn forget_lost(&self) {
        lock(&self.members).lost.clear();
    }

    /// The disks that the initiator sees now.
    pub(crate) fn view(&self) -> Option<Arc<Table>> {
        lock(&self.view).clone()
    }

    /// Whether the initiator sees a logical unit.
    pub(crate) fn sees(&self, lun: Lun) -> bool {
        lock(&self.view).as_ref().is_some_and(|view| view.unit(lun).is_some())
    }

    /// These are the disks that the initiator sees from now on. What changed is established as unit attentions, once
    /// for the session; tasks at what is gone are aborted, and the epochs that may still last are handed out.
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
            // That the list has changed is told once, at whatever logical unit.
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

    /// What the initiator is to be sent messages of: handed out once.
    pub(crate) fn take_events(&self) -> Vec<(Lun, UnitAttention)> {
        std::mem::take(&mut *lock(&self.pending_events))
    }

    /// The session's tasks at a logical unit; nothing once it has ended.
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

    /// Whether it has ended: no task begins any more, and its connections are dropped.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Aborts the session's tasks at a logical unit; the epochs that may still last.
    pub(crate) fn abort_tasks(&self, lun: Lun) -> Vec<Arc<Epoch>> {
        let tasks = lock(&self.tasks).get(&lun.0).map(|(_, tasks)| Arc::clone(tasks));
        tasks.map(|tasks| tasks.abort(None)).unwrap_or_default()
    }

    /// Aborts all tasks of the session, and lets none come any more; the epochs that may still last.
    pub(crate) fn close_tasks(&self) -> Vec<Arc<Epoch>> {
        let all = {
            let tasks = lock(&self.tasks);
            self.is_closed.store(true, Ordering::Release);
            tasks.values().map(|(_, tasks)| Arc::clone(tasks)).collect::<Vec<_>>()
        };
        // Also whoever closes it after another is told what still lasts.
        all.iter().flat_map(|tasks| tasks.close()).collect()
    }
}
