//! Write data that is gathered in memory before its command is executed.

use std::collections::BTreeMap;

use iscsi::target::TargetConnection;
use scsi::Lun;
use scsi::cdb::Cdb;
use store::Buffer;

use crate::memory::Share;
use crate::read::Extent;

/// A command whose data is gathered before execution.
#[derive(Debug)]
pub(crate) struct GatheredCommand {
    pub(crate) cdb: Cdb,
    pub(crate) lun: Lun,
    pub(crate) data: Buffer,
    /// The destination of a plain write; `None` for a command whose parameter list is planned once complete.
    pub(crate) write: Option<GatheredWrite>,
    pub(crate) share: Share,
}

/// A write that is submitted as one operation once its data is complete, because its disk may block.
#[derive(Clone, Copy, Debug)]
pub(crate) struct GatheredWrite {
    pub(crate) extent: Extent,
    pub(crate) fua: bool,
}

/// The commands of a connection whose data is being gathered.
#[derive(Debug, Default)]
pub(crate) struct Gathering {
    pub(crate) commands: BTreeMap<u32, GatheredCommand>,
    pub(crate) bytes: usize,
    pub(crate) limit: usize,
}

impl Gathering {
    /// Creates a table that gathers at most `limit` bytes at a time.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, ..Self::default() }
    }

    /// Returns the bytes that it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Takes over a command that another connection began to gather.
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

    /// Removes commands that are no longer in progress.
    pub(crate) fn prune(&mut self, connection: &TargetConnection) {
        self.commands.retain(|&tag, _| connection.is_in_progress(tag));
        self.bytes = self.commands.values().map(|taken| taken.data.len()).sum();
    }
}
