//! Task attributes of a connection's commands (SAM-5 8.6): an ORDERED task begins when earlier tasks at its logical unit
//! have ended, and later tasks begin when it has. Commands that cannot begin are deferred, never dropped: every command is
//! answered or aborted by a function.

use std::collections::VecDeque;

use iscsi::pdu::ScsiCommand;
use iscsi::{Bhs, Frame};

use crate::memory::Share;
use crate::planted::{Bug, is_planted};

/// Bytes charged for a deferred command besides its data.
const DEFERRED_BYTES: usize = 256;

/// A command that waits for earlier commands.
#[derive(Debug)]
pub(crate) struct Deferred {
    pub(crate) command: ScsiCommand,
    /// Immediate data.
    pub(crate) data: Vec<u8>,
    /// Unsolicited Data-Out PDUs received for it.
    pub(crate) followers: Vec<(Bhs, Vec<u8>)>,
    /// The number of the epoch of its task.
    pub(crate) epoch: u64,
    share: Vec<Share>,
}

/// Deferred commands, and the ORDERED commands that they wait for.
#[derive(Debug, Default)]
pub(crate) struct Ordering {
    deferred: VecDeque<Deferred>,
    /// LUN field and tag of ORDERED commands in progress.
    running: Vec<([u8; 8], u32)>,
}

impl Ordering {
    /// Returns whether no command is deferred.
    pub(crate) fn is_empty(&self) -> bool {
        self.deferred.is_empty()
    }

    /// Returns whether a command can begin without checking other commands (fast path).
    #[inline]
    pub(crate) fn is_free(&self, command: &ScsiCommand) -> bool {
        self.deferred.is_empty() && self.running.is_empty() && !command.is_ordered()
    }

    /// Returns whether a command must wait. `is_busy` returns whether others at its logical unit are in progress.
    pub(crate) fn must_wait(&self, command: &ScsiCommand, is_busy: impl FnOnce() -> bool) -> bool {
        let is_behind = self.deferred.iter().any(|deferred| deferred.command.lun == command.lun)
            || self.running.iter().any(|(lun, _)| *lun == command.lun);
        !command.is_head_of_queue() && (is_behind || (command.is_ordered() && is_busy()))
    }

    /// Records that a command has begun, if it is ORDERED.
    pub(crate) fn started(&mut self, command: &ScsiCommand) {
        if command.is_ordered() {
            self.running.push((command.lun, command.tag));
        }
    }

    /// Removes ORDERED commands that have ended.
    pub(crate) fn prune(&mut self, is_in_progress: impl Fn(u32) -> bool) {
        self.running.retain(|(_, tag)| is_in_progress(*tag));
    }

    /// Defers a command; returns false when `claim` grants no memory.
    pub(crate) fn defer(
        &mut self,
        command: &ScsiCommand,
        data: &[u8],
        epoch: u64,
        claim: impl FnOnce(usize) -> Option<Share>,
    ) -> bool {
        let Some(share) = claim(data.len() + DEFERRED_BYTES) else { return false };
        let (data, followers, share) = (data.to_vec(), Vec::new(), vec![share]);
        if !is_planted(Bug::DropsDeferred) {
            self.deferred.push_back(Deferred { command: *command, data, followers, epoch, share });
        }
        true
    }

    /// Queues Data-Out behind its deferred command. `None` when the command is not deferred; the removed command when
    /// there is no memory for the data.
    pub(crate) fn follow(
        &mut self,
        frame: &Frame<'_>,
        tag: u32,
        claim: impl FnOnce(usize) -> Option<Share>,
    ) -> Option<Result<(), Deferred>> {
        let place = self.deferred.iter().position(|deferred| deferred.command.tag == tag)?;
        match claim(frame.data.len() + DEFERRED_BYTES) {
            Some(share) => {
                let deferred = &mut self.deferred[place];
                deferred.followers.push((frame.bhs, frame.data.to_vec()));
                deferred.share.push(share);
                Some(Ok(()))
            }
            None => self.deferred.remove(place).map(Err),
        }
    }

    /// Takes the first command that can begin now. `is_busy` returns whether commands are in progress at a logical unit.
    pub(crate) fn next(&mut self, is_busy: impl Fn([u8; 8]) -> bool) -> Option<Deferred> {
        let mut blocked: Vec<[u8; 8]> = self.running.iter().map(|(lun, _)| *lun).collect();
        let place = self.deferred.iter().position(|deferred| {
            let command = &deferred.command;
            let waits = blocked.contains(&command.lun) || (command.is_ordered() && is_busy(command.lun));
            if waits {
                blocked.push(command.lun);
            }
            !waits
        });
        self.deferred.remove(place?)
    }

    /// Drops the deferred commands that `aborts` selects; returns how many.
    pub(crate) fn abort(&mut self, mut aborts: impl FnMut(&Deferred) -> bool) -> usize {
        let before = self.deferred.len();
        self.deferred.retain(|deferred| !aborts(deferred));
        before - self.deferred.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::Memory;

    fn command(tag: u32, lun: u8, is_ordered: bool) -> ScsiCommand {
        ScsiCommand {
            tag,
            lun: [0, lun, 0, 0, 0, 0, 0, 0],
            attribute_1: !is_ordered,
            attribute_2: is_ordered,
            ..ScsiCommand::default()
        }
    }

    #[test]
    fn ordered_task_separates_earlier_and_later_tasks_of_its_logical_unit() {
        let (memory, mut ordering) = (Memory::new(1 << 20), Ordering::default());
        let defer = |ordering: &mut Ordering, command: &ScsiCommand, is_busy| {
            let waits = ordering.must_wait(command, || is_busy);
            assert!(!waits || ordering.defer(command, &[], 1, |bytes| memory.claim(bytes)));
            waits
        };
        assert!(!defer(&mut ordering, &command(1, 0, false), true), "SIMPLE tasks run concurrently");
        assert!(defer(&mut ordering, &command(2, 0, true), true), "ORDERED waits for task 1");
        assert!(defer(&mut ordering, &command(3, 0, false), true), "behind ORDERED");
        assert!(!defer(&mut ordering, &command(4, 1, false), true), "another logical unit");
        let mut head = command(5, 0, false);
        (head.attribute_1, head.attribute_2) = (true, true);
        assert!(head.is_head_of_queue() && !defer(&mut ordering, &head, true));
        assert!(ordering.next(|_| true).is_none(), "task 1 is in progress");
        let second = ordering.next(|_| false).unwrap();
        assert_eq!(second.command.tag, 2);
        ordering.started(&second.command);
        assert!(ordering.next(|_| true).is_none(), "task 2 is in progress");
        ordering.prune(|_| false);
        assert_eq!(ordering.next(|_| false).unwrap().command.tag, 3);
        assert!(ordering.is_empty() && ordering.is_free(&command(6, 0, false)));
    }

    #[test]
    fn unsolicited_data_is_queued_behind_its_command_and_bounded() {
        let (memory, mut ordering) = (Memory::new(2000), Ordering::default());
        assert!(ordering.defer(&command(2, 0, true), &[1; 100], 1, |bytes| memory.claim(bytes)));
        let data = [7; 500];
        let frame = Frame { bhs: Bhs([0; 48]), ahs: &[], data: &data, total_bytes: 0, is_damaged: false };
        assert!(ordering.follow(&frame, 9, |_| None).is_none(), "no such command");
        assert!(matches!(ordering.follow(&frame, 2, |bytes| memory.claim(bytes)), Some(Ok(()))));
        assert!(matches!(ordering.follow(&frame, 2, |bytes| memory.claim(bytes)), Some(Ok(()))));
        let refused = ordering.follow(&frame, 2, |bytes| memory.claim(bytes));
        assert!(matches!(refused, Some(Err(deferred)) if deferred.followers.len() == 2));
        assert!(ordering.is_empty());
        assert_eq!(memory.used(), 0);
    }
}
