//! Data that is gathered in memory before its command is carried out.

use std::collections::BTreeMap;

use iscsi::target::TargetConnection;
use scsi::Lun;
use scsi::cdb::Cdb;
use store::Buffer;

use crate::memory::Share;
use crate::read::Extent;

/// A command whose data is gathered before anything is done.
#[derive(Debug)]
pub(crate) struct GatheredCommand {
    pub(crate) cdb: Cdb,
    pub(crate) lun: Lun,
    pub(crate) data: Buffer,
    /// Where the data of a plain write goes; nothing for a command that is planned again with its data.
    pub(crate) write: Option<GatheredWrite>,
    pub(crate) share: Share,
}

/// A write that is done as a whole when its data is there, for its disk takes its time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatheredWrite {
    pub(crate) extent: Extent,
    pub(crate) fua: bool,
}

/// The commands of a connection whose data is gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) commands: BTreeMap<u32, GatheredCommand>,
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

impl Gathering {
    /// Gathers at most `limit` bytes at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Goes on with a command that another connection began to gather.
    pub(crate) fn adopt(&mut self, other: &mut Gathering, tag: u32) {
        if let Some(taken) = other.remove(tag) {
            self.insert(tag, taken);
        }
    }

    pub(crate) fn insert(&mut self, tag: u32, command: GatheredCommand) {
        self.bytes += command.data.len();
        self.commands.insert(tag, command);
    }

    pub(crate) fn remove(&mut self, tag: u32) -> Option<GatheredCommand> {
        let taken = self.commands.remove(&tag)?;
        self.bytes -= taken.data.len();
        Some(taken)
    }

    /// Forgets the commands that are no longer in progress.
    pub(crate) fn prune(&mut self, connection: &TargetConnection) {
        self.commands.retain(|&tag, _| connection.is_in_progress(tag));
        self.bytes = self.commands.values().map(|taken| taken.data.len()).sum();
    }
}
