//! Whether PDUs that were found in a stream belong to one iSCSI connection.
//!
//! Any 48 bytes can look like a header. A chain cannot: its sequence numbers count up by one, acknowledge those of the
//! other side and name its tasks (RFC 7143 4.2.2). Each such relation between two PDUs is a *link*. A link compares a
//! number of 32 bits with the one expected, so data that is no iSCSI forms one with a probability of some 2^-32, and
//! repeated data forms none, because nothing counts up in it.

use iscsi::bhs::{Bhs, NO_TAG};
use iscsi::opcode::{initiator, target};

use crate::follow::Pdu;

/// Most commands that a target lets an initiator have in flight; more is no plausible window.
const WINDOW_MAX: u32 = 1 << 16;
/// Tasks that are remembered.
const TASKS: usize = 16;

/// The relations seen between the PDUs of both directions.
#[derive(Debug, Default)]
pub(crate) struct Chain {
    /// Command and tag of the latest requests.
    tasks: [Option<(u32, u32)>; TASKS],
    next_task: usize,
    /// The initiator's latest command number.
    command: Option<u32>,
    /// The target's latest status number.
    status: Option<u32>,
    links: u32,
}

fn word(bhs: &Bhs, at: usize) -> u32 {
    bhs.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

impl Chain {
    /// Relations found.
    pub(crate) fn links(&self) -> u32 {
        self.links
    }

    /// Adds a PDU of the initiator.
    pub(crate) fn request(&mut self, pdu: &Pdu) {
        let bhs = &pdu.bhs;
        let acknowledged = word(bhs, 28);
        // ExpStatSN names the status after the last.
        if self.status.is_some_and(|status| acknowledged == status.wrapping_add(1)) {
            self.links += 1;
        }
        let has_number = matches!(
            bhs.opcode(),
            initiator::SCSI_COMMAND | initiator::NOP_OUT | initiator::TASK_MANAGEMENT | initiator::TEXT
        );
        if !has_number {
            return;
        }
        let number = word(bhs, 24);
        if self.command.is_some_and(|last| number == last.wrapping_add(1)) {
            self.links += 1;
        }
        self.command = Some(number);
        let tag = bhs.initiator_task_tag();
        if tag != NO_TAG {
            self.tasks[self.next_task % TASKS] = Some((number, tag));
            self.next_task += 1;
        }
    }

    /// Adds a PDU of the target.
    pub(crate) fn response(&mut self, pdu: &Pdu) {
        let bhs = &pdu.bhs;
        let (tag, expected, most) = (bhs.initiator_task_tag(), word(bhs, 28), word(bhs, 32));
        // MaxCmdSN is at least ExpCmdSN - 1.
        let has_window = most.wrapping_sub(expected.wrapping_sub(1)) <= WINDOW_MAX;
        // The target has received the command that it answers.
        let answers = |task: &Option<(u32, u32)>| {
            task.is_some_and(|(number, of)| of == tag && expected.wrapping_sub(number) <= WINDOW_MAX)
        };
        if has_window && let Some(task) = self.tasks.iter_mut().find(|task| answers(task)) {
            *task = None;
            self.links += 1;
        }
        let has_status = match bhs.opcode() {
            target::DATA_IN => bhs.0[1] & 1 != 0,
            target::R2T => false,
            _ => tag != NO_TAG,
        };
        if has_status {
            let number = word(bhs, 24);
            if has_window && self.status.is_some_and(|last| number == last.wrapping_add(1)) {
                self.links += 1;
            }
            self.status = Some(number);
        }
    }
}

#[cfg(test)]
mod tests {
    use iscsi::pdu::{DataIn, ScsiCommand};

    use super::*;
    use crate::packet::At;

    fn pdu(bhs: Bhs) -> Pdu {
        Pdu { bhs, sense_key: None, bytes: 48, offset: 0, began: At::default(), ended: At::default() }
    }

    fn command(number: u32, status: u32) -> Pdu {
        let mut bhs =
            ScsiCommand { read: true, is_final: true, tag: number, ..ScsiCommand::default() }.write();
        bhs.0[24..28].copy_from_slice(&number.to_be_bytes());
        bhs.0[28..32].copy_from_slice(&status.to_be_bytes());
        pdu(bhs)
    }

    fn data(tag: u32, status: u32, expected: u32) -> Pdu {
        let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
        for (at, value) in [(24, status), (28, expected), (32, expected + 31)] {
            bhs.0[at..at + 4].copy_from_slice(&value.to_be_bytes());
        }
        pdu(bhs)
    }

    #[test]
    fn numbers_that_count_up_and_tags_that_return_are_links() {
        let mut chain = Chain::default();
        chain.request(&command(700, 41));
        assert_eq!(chain.links(), 0, "one header proves nothing");
        chain.response(&data(700, 41, 701));
        assert_eq!(chain.links(), 1, "the tag");
        chain.request(&command(701, 42));
        assert_eq!(chain.links(), 3, "the command's number and the acknowledged status");
        chain.response(&data(701, 42, 702));
        assert_eq!(chain.links(), 5, "the tag and the status's number");
    }

    #[test]
    fn repeated_and_unrelated_headers_are_no_chain() {
        let mut chain = Chain::default();
        for _ in 0..100 {
            chain.request(&command(5, 9));
            chain.response(&data(6, 9, 5));
        }
        assert_eq!(chain.links(), 0);
        for i in 0..100_u32 {
            let random = i.wrapping_mul(0x9e37_79b9);
            chain.request(&command(random, !random));
            chain.response(&data(!random, random.rotate_left(7), random ^ 0x5555));
        }
        assert_eq!(chain.links(), 0);
    }
}
