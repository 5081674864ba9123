//! Verification of a run's data.

use iscsi::initiator::Direction;

use super::Loop;
use crate::initiator::commands;
use crate::initiator::error::InitiatorError;
use crate::initiator::session::Session;
use crate::initiator::verify::Mismatch;

/// Most data of a verification read, bytes.
const READ_BACK_BYTES: u32 = 256 << 10;

impl Loop<'_> {
    /// Verifies the whole blocks of a piece of read data. Blocks that straddle pieces are skipped; that happens only when
    /// the segment length is not a multiple of the block.
    pub(super) fn check_data(&mut self, slot: u32, at: u32, data: &[u8]) {
        let Some(ledger) = &self.ledger else { return };
        let Some(record) = self.slots.get_mut(slot as usize) else { return };
        let block = self.block_bytes as usize;
        if !(at as usize).is_multiple_of(block) {
            return;
        }
        let first = record.lba + u64::from(at / self.block_bytes);
        for (index, content) in data.chunks_exact(block).enumerate() {
            if let Err(mismatch) = ledger.judge(content, first + index as u64) {
                record.damaged = true;
                self.first_error.get_or_insert_with(|| format!("LBA {}: {mismatch:?}", first + index as u64));
            }
        }
    }

    /// Reads back all written blocks, adjacent blocks in one read.
    pub(in super::super) fn read_back(&mut self, session: &mut Session) -> Result<(), InitiatorError> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let written = ledger.written();
        let most = (READ_BACK_BYTES / self.block_bytes.max(1)).max(1) as usize;
        for run in written.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most)) {
            let blocks = run.len() as u32;
            let cdb = commands::read_write(false, run[0], blocks);
            let reply = session.attentive(cdb, Direction::In(blocks * self.block_bytes))?;
            let mut contents = reply.data.chunks_exact(self.block_bytes as usize);
            for &lba in run {
                self.verified += 1;
                let judged = match contents.next() {
                    Some(content) if reply.status == iscsi::status::GOOD => ledger.judge(content, lba),
                    _ => Err(Mismatch::Lost),
                };
                if let Err(mismatch) = judged {
                    self.mismatched += 1;
                    self.first_error.get_or_insert_with(|| format!("LBA {lba} read back: {mismatch:?}"));
                }
            }
        }
        Ok(())
    }
}
