//! The commands in flight on a connection.

use std::collections::{BTreeMap, VecDeque};

use iscsi::replay::Kept;
use iscsi::target::TargetConnection;

use crate::gathering::Gathering;
use crate::jobs::Jobs;
use crate::open_units::OpenUnits;
use crate::ordering::Ordering;
use crate::read::Read;
use crate::waiting::Waiting;

/// The task state of a connection.
pub(crate) struct Tasks {
    pub(crate) scratch: Vec<u8>,
    pub(crate) gathering: Gathering,
    pub(crate) jobs: Jobs,
    pub(crate) open_units: OpenUnits,
    /// Reads with responses in progress, in order of arrival.
    pub(crate) reads: BTreeMap<u64, Read>,
    pub(crate) next_read: u64,
    /// Responses that wait for aborted tasks to end.
    pub(crate) waiting: Vec<Waiting>,
    pub(crate) ordering: Ordering,
    /// PDUs to retransmit.
    pub(crate) again: VecDeque<Kept>,
    /// Unsent bytes above which no more responses are made.
    pub(crate) unsent_bytes: usize,
}

impl Tasks {
    pub(crate) fn new(jobs: Jobs, gathered_bytes: usize, unsent_bytes: usize) -> Self {
        Self {
            scratch: Vec::new(),
            gathering: Gathering::new(gathered_bytes),
            jobs,
            open_units: OpenUnits::default(),
            reads: BTreeMap::new(),
            next_read: 0,
            waiting: Vec::new(),
            ordering: Ordering::default(),
            again: VecDeque::new(),
            unsent_bytes,
        }
    }

    /// Returns whether a command of this logical unit is in progress.
    pub(crate) fn is_busy(&self, connection: &TargetConnection, lun: [u8; 8]) -> bool {
        connection.has_writes(lun)
            || self.jobs.any(|command| command.lun == lun)
            || self.reads.values().any(|read| read.command.lun == lun)
            || self.waiting.iter().any(|waiting| match waiting.command() {
                Some(command) => command.lun == lun,
                // Aborted writes are still at a disk: an ORDERED command must not overtake them.
                None => waiting.has_in_flight(),
            })
    }

    /// Returns whether the command with this tag is in progress.
    pub(crate) fn is_in_progress(&self, connection: &TargetConnection, tag: u32) -> bool {
        connection.is_in_progress(tag)
            || self.jobs.any(|command| command.tag == tag)
            || self.reads.values().any(|read| read.command.tag == tag)
            || self.waiting.iter().any(|waiting| waiting.command().is_some_and(|c| c.tag == tag))
    }

    /// Returns whether no command is in progress or deferred.
    pub(crate) fn is_idle(&self, connection: &TargetConnection) -> bool {
        self.jobs.is_idle()
            && self.reads.is_empty()
            && self.again.is_empty()
            && self.ordering.is_empty()
            && connection.tasks() == 0
            && self.waiting.iter().all(|waiting| waiting.command().is_none())
    }
}
