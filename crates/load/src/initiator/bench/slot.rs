//! An operation in flight, and what it transferred when it ends.

use iscsi::initiator::{Completion, Direction};
use record::OpKind;

use crate::failure::{FailureClass, SenseCodes};
use crate::initiator::commands;
use crate::initiator::verify::Ledger;
use crate::result::Operation;

/// An operation in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot {
    pub(super) start_ns: u64,
    pub(super) operation: Operation,
    pub(super) lba: u64,
    pub(super) blocks: u32,
    pub(super) generation: u32,
    pub(super) damaged: bool,
    /// Its command has no response yet.
    pub(super) is_in_flight: bool,
    /// Bytes of its PDUs sent and received.
    pub(super) request_bytes: u32,
    pub(super) response_bytes: u32,
}

impl Slot {
    pub(super) const FREE: Self = Self {
        start_ns: 0,
        operation: Operation::Read,
        lba: 0,
        blocks: 0,
        generation: 0,
        damaged: false,
        is_in_flight: false,
        request_bytes: 0,
        response_bytes: 0,
    };

    /// The command.
    pub(super) fn cdb(&self) -> [u8; 16] {
        match self.operation {
            Operation::Read => commands::read_write(false, self.lba, self.blocks),
            Operation::Write => commands::read_write(true, self.lba, self.blocks),
            Operation::Trim => commands::unmap(),
            Operation::WriteZeroes => commands::write_same(self.lba, self.blocks),
        }
    }

    /// The data of the command.
    pub(super) fn data(&self, block_bytes: u32) -> Direction {
        match self.operation {
            Operation::Read => Direction::In(self.blocks * block_bytes),
            Operation::Write => Direction::Out(self.blocks * block_bytes),
            Operation::Trim => Direction::Out(commands::UNMAP_LIST_BYTES),
            Operation::WriteZeroes => Direction::Out(block_bytes),
        }
    }

    /// Bytes of that data.
    pub(super) fn data_bytes(&self, block_bytes: u32) -> u32 {
        match self.data(block_bytes) {
            Direction::None => 0,
            Direction::In(bytes) | Direction::Out(bytes) => bytes,
        }
    }

    pub(super) fn kind(&self) -> OpKind {
        if self.operation == Operation::Read { OpKind::Read } else { OpKind::Write }
    }

    /// The name of the command in messages.
    pub(super) fn name(&self) -> &'static str {
        match self.operation {
            Operation::Read => "read",
            Operation::Write => "write",
            Operation::Trim => "unmap",
            Operation::WriteZeroes => "write same",
        }
    }
}

/// What a completed command transferred.
pub(super) struct Transfer {
    /// Bytes of the command's data.
    pub(super) bytes: u32,
    /// Bytes of application data; the range of a command that clears blocks.
    pub(super) application_bytes: u64,
    pub(super) failure: Option<FailureClass>,
}

impl Transfer {
    #[inline]
    pub(super) fn of(slot: &Slot, end: &Completion<'_>, block_bytes: u32) -> Self {
        let expected = slot.data_bytes(block_bytes);
        let bytes = match slot.operation {
            Operation::Read => end.received_bytes,
            Operation::Write | Operation::Trim | Operation::WriteZeroes => {
                expected - end.residual_bytes.min(expected)
            }
        };
        let failure = if end.status != iscsi::status::GOOD {
            Some(FailureClass::Scsi { status: end.status, sense: SenseCodes::read(end.sense) })
        } else {
            (bytes != expected).then_some(FailureClass::Short)
        };
        let application_bytes = match slot.operation {
            Operation::Read | Operation::Write => bytes.into(),
            Operation::Trim | Operation::WriteZeroes if failure.is_none() => {
                u64::from(slot.blocks) * u64::from(block_bytes)
            }
            Operation::Trim | Operation::WriteZeroes => 0,
        };
        Self { bytes, application_bytes, failure }
    }

    /// Whether its bytes count as transferred: also those of a short transfer, not those of a failed command.
    pub(super) fn counts(&self) -> bool {
        matches!(self.failure, None | Some(FailureClass::Short))
    }
}

/// Fills in the data of a command from `at` on: a parameter list, verified blocks, or zeros.
pub(super) fn fill(ledger: Option<&Ledger>, slot: &Slot, block_bytes: u32, at: u32, piece: &mut [u8]) {
    if slot.operation == Operation::Trim {
        let list = commands::unmap_list(slot.lba, slot.blocks);
        piece.copy_from_slice(&list[at as usize..][..piece.len()]);
        return;
    }
    let Some(ledger) = ledger else {
        piece.fill(0);
        return;
    };
    let block = block_bytes as usize;
    let mut content = vec![0; block];
    let mut done = 0;
    while done < piece.len() {
        let position = at as usize + done;
        let (index, within) = (position / block, position % block);
        ledger.fill(&mut content, slot.lba + index as u64, slot.generation);
        let count = (block - within).min(piece.len() - done);
        piece[done..done + count].copy_from_slice(&content[within..within + count]);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_write_equal_its_blocks() {
        let mut ledger = Ledger::new(3);
        let generation = ledger.writing(10);
        ledger.writing(11);
        let slot = Slot { operation: Operation::Write, lba: 10, generation, ..Slot::FREE };
        let mut whole = vec![0; 1024];
        fill(Some(&ledger), &slot, 512, 0, &mut whole);
        let mut pieces = vec![0; 1024];
        for at in (0..1024).step_by(100) {
            let end = (at + 100).min(1024);
            fill(Some(&ledger), &slot, 512, at as u32, &mut pieces[at..end]);
        }
        assert_eq!(whole, pieces);
        assert_eq!(ledger.judge(&whole[512..], 11), Ok(()));
    }
    /// Returns failure and counted application bytes of a completion.
    fn transferred(
        operation: Operation,
        status: u8,
        received: u32,
        residual: u32,
    ) -> (Option<FailureClass>, u64) {
        let slot = Slot { operation, blocks: 8, ..Slot::FREE };
        let sense = &[0x72, 7, 0x27, 7][..];
        let end =
            Completion { tag: 1, user: 0, status, received_bytes: received, residual_bytes: residual, sense };
        let transfer = Transfer::of(&slot, &end, 512);
        (transfer.failure, if transfer.counts() { transfer.application_bytes } else { 0 })
    }

    #[test]
    fn bytes_are_those_transferred_and_not_those_requested() {
        use Operation::{Read, Trim, Write, WriteZeroes};
        let short = Some(FailureClass::Short);
        assert_eq!(transferred(Read, 0, 4096, 0), (None, 4096));
        assert_eq!(transferred(Read, 0, 1024, 3072), (short, 1024), "GOOD, but not all of it");
        assert_eq!(transferred(Write, 0, 0, 0), (None, 4096));
        assert_eq!(transferred(Write, 0, 0, 512), (short, 3584));
        assert_eq!(transferred(Trim, 0, 0, 0), (None, 4096), "the range");
        assert_eq!(transferred(WriteZeroes, 0, 0, 0), (None, 4096));
        assert_eq!(transferred(Trim, 0, 0, 24), (short, 0));
        for operation in [Read, Write, Trim, WriteZeroes] {
            let (failure, bytes) = transferred(operation, 2, 4096, 0);
            let text = failure.unwrap().to_string();
            assert!(text.contains("(07/27/07)") && bytes == 0, "{operation:?}: {text}, {bytes} B");
        }
    }
}
