//! The execution context and progress of a command.

use std::sync::Arc;

use iscsi::pdu::ScsiCommand;
use iscsi::target::TargetConnection;
use iscsi::{TransmitBuffer, status};
use scsi::{Lun, Sense};

use crate::clock::Clock;
use crate::jobs::Job;
use crate::session::Session;
use crate::tasks::Tasks;

/// The connection state that command execution uses, besides the disks.
pub(crate) struct Context<'a> {
    pub(crate) connection: &'a mut TargetConnection,
    pub(crate) session: &'a Arc<Session>,
    pub(crate) tasks: &'a mut Tasks,
    pub(crate) out: &'a mut TransmitBuffer,
    pub(crate) clock: &'a Clock,
}

impl Context<'_> {
    pub(crate) fn check(&mut self, command: &ScsiCommand, sense: &[u8]) {
        self.connection.respond_status(command, status::CHECK_CONDITION, sense, 0, 0, self.out);
    }

    pub(crate) fn answer(&mut self, command: &ScsiCommand, data: &[u8]) {
        respond_data(command, data, self.connection, self.out);
    }

    /// Returns a job for a command at a logical unit; `None` when its session may no longer use the unit.
    pub(crate) fn job(&self, command: &ScsiCommand, lun: Lun, changes: bool) -> Option<Job> {
        Some(Job {
            command: *command,
            r2ts: 0,
            epoch: self.tasks.open_units.epoch(lun)?,
            changes,
            is_piece: false,
        })
    }
}

/// The data transfer of a command.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Transfer {
    /// R2Ts sent for it.
    pub(crate) r2ts: u32,
    pub(crate) moved_bytes: u64,
}

/// The state of a command after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum CommandState {
    /// It was answered or aborted.
    Over,
    /// Its response follows later.
    Pending,
}

impl CommandState {
    pub(crate) fn of(is_over: bool) -> Self {
        if is_over { Self::Over } else { Self::Pending }
    }
}

/// Answers a command for a logical unit that does not exist.
pub(crate) fn no_lun(command: &ScsiCommand, context: &mut Context<'_>) -> CommandState {
    context.check(command, &Sense::NO_SUCH_LUN.encode());
    CommandState::Over
}

/// Answers with data in memory; reading it cannot fail.
fn respond_data(
    command: &ScsiCommand,
    data: &[u8],
    connection: &mut TargetConnection,
    out: &mut TransmitBuffer,
) {
    let _ = connection.respond_read(command, data.len() as u64, out, |at, buffer| {
        let from = at as usize;
        data.get(from..from + buffer.len()).map(|piece| buffer.copy_from_slice(piece)).ok_or(())
    });
}
