//! Data verification: every written block carries its LBA, a generation number and a checksum, so that a read detects
//! lost, torn, misplaced and stale data.

use std::collections::HashMap;

/// The kind of corruption of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mismatch {
    /// Neither zeros nor a valid block: torn or damaged.
    Damaged,
    /// A valid block of another LBA.
    Misplaced {
        /// The LBA in the block.
        found_lba: u64,
    },
    /// A valid block of this LBA, but not the last written generation.
    Stale {
        /// The expected generation.
        expected: u32,
        /// The found generation.
        found: u32,
    },
    /// Zeros in a written block.
    Lost,
}

/// Bytes of a block's stamp: seed, LBA, generation, check.
const STAMP_BYTES: usize = 28;

/// Fills a logical block: the stamp, then bytes derived from it.
pub fn fill_block(block: &mut [u8], seed: u64, lba: u64, generation: u32) {
    let Some((stamp, body)) = block.split_first_chunk_mut::<STAMP_BYTES>() else { return };
    let mut state = mix(seed ^ mix(lba) ^ mix(u64::from(generation) | 1 << 63));
    for chunk in body.chunks_mut(8) {
        state = mix(state);
        let len = chunk.len();
        chunk.copy_from_slice(&state.to_le_bytes()[..len]);
    }
    stamp[..8].copy_from_slice(&seed.to_le_bytes());
    stamp[8..16].copy_from_slice(&lba.to_le_bytes());
    stamp[16..20].copy_from_slice(&generation.to_le_bytes());
    let check = check(&stamp[..20], body);
    stamp[20..].copy_from_slice(&check.to_le_bytes());
}

/// The finaliser of splitmix64: cheap, and every input bit affects every output bit.
fn mix(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

fn check(head: &[u8], body: &[u8]) -> u64 {
    [head, body].iter().flat_map(|part| part.chunks(8)).fold(0, |sum, chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        mix(sum ^ u64::from_le_bytes(word))
    })
}

/// What a written block may hold: the last generation whose write succeeded, 0 for what was there before, and those of the writes since
/// then, which have failed or are in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Generations {
    certain: u32,
    last: u32,
}

/// The blocks that a run has written, to verify reads.
#[derive(Debug)]
pub struct Ledger {
    seed: u64,
    generations: HashMap<u64, Generations>,
    limit: usize,
}

impl Ledger {
    /// Most tracked blocks; a run over more verifies the first ones that it wrote.
    pub const LIMIT: usize = 8 << 20;

    /// Creates an empty ledger; `seed` marks the blocks of this run.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, generations: HashMap::new(), limit: Self::LIMIT }
    }

    /// Records that a write of block `lba` begins; returns its generation for [`fill_block`].
    pub fn writing(&mut self, lba: u64) -> u32 {
        if self.generations.len() >= self.limit && !self.generations.contains_key(&lba) {
            return 1;
        }
        let generations = self.generations.entry(lba).or_default();
        generations.last += 1;
        generations.last
    }

    /// Records that the last write of block `lba` succeeded. One that failed may have been done or not.
    pub fn wrote(&mut self, lba: u64) {
        if let Some(generations) = self.generations.get_mut(&lba) {
            generations.certain = generations.last;
        }
    }

    /// Fills a block of this run with a generation.
    pub fn fill(&self, block: &mut [u8], lba: u64, generation: u32) {
        fill_block(block, self.seed, lba, generation);
    }

    /// Returns the blocks that writes were sent for, in ascending order.
    #[must_use]
    pub fn written(&self) -> Vec<u64> {
        let mut all: Vec<u64> = self.generations.keys().copied().collect();
        all.sort_unstable();
        all
    }

    /// Verifies a block that was read while no write of it was in flight. A block that this run has not written may hold
    /// a valid block of another run, or zeros.
    ///
    /// # Errors
    /// The kind of corruption.
    pub fn judge(&self, block: &[u8], lba: u64) -> Result<(), Mismatch> {
        let expected = self.generations.get(&lba).filter(|written| written.certain > 0);
        if block.iter().all(|&b| b == 0) {
            return if expected.is_some() { Err(Mismatch::Lost) } else { Ok(()) };
        }
        let Some((stamp, body)) = block.split_first_chunk::<STAMP_BYTES>() else { return Ok(()) };
        let word = |at: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&stamp[at..at + 8]);
            u64::from_le_bytes(bytes)
        };
        if word(20) != check(&stamp[..20], body) {
            return Err(Mismatch::Damaged);
        }
        if word(8) != lba {
            return Err(Mismatch::Misplaced { found_lba: word(8) });
        }
        let found = word(16) as u32;
        match expected {
            Some(&Generations { certain, last })
                if !(certain..=last).contains(&found) || word(0) != self.seed =>
            {
                Err(Mismatch::Stale { expected: last, found })
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_corruption_is_distinguished() {
        let mut ledger = Ledger::new(9);
        let generation = ledger.writing(5);
        ledger.wrote(5);
        let mut block = [0; 512];
        ledger.fill(&mut block, 5, generation);
        assert_eq!(ledger.judge(&block, 5), Ok(()));
        assert_eq!(ledger.judge(&block, 6), Err(Mismatch::Misplaced { found_lba: 5 }));
        assert_eq!(ledger.judge(&[0; 512], 5), Err(Mismatch::Lost));
        assert_eq!(ledger.judge(&[0; 512], 6), Ok(()), "never written");
        for at in [0, 19, 27, 28, 300, 511] {
            let mut torn = block;
            torn[at] ^= 1;
            assert!(ledger.judge(&torn, 5).is_err(), "byte {at}");
        }
        ledger.writing(5);
        ledger.wrote(5);
        assert_eq!(ledger.judge(&block, 5), Err(Mismatch::Stale { expected: 2, found: 1 }));
    }

    #[test]
    fn a_failed_write_may_have_been_done_or_not() {
        let mut ledger = Ledger::new(9);
        let block = |ledger: &Ledger, generation| {
            let mut block = [0; 512];
            ledger.fill(&mut block, 5, generation);
            block
        };
        // The first one fails: what was there before is there, or what it wrote.
        ledger.writing(5);
        assert_eq!(ledger.judge(&[0; 512], 5), Ok(()));
        assert_eq!(ledger.judge(&block(&ledger, 1), 5), Ok(()));
        ledger.writing(5);
        ledger.wrote(5);
        ledger.writing(5);
        ledger.writing(5);
        for generation in 2..=4 {
            assert_eq!(ledger.judge(&block(&ledger, generation), 5), Ok(()));
        }
        for found in [1, 5] {
            let stale = Err(Mismatch::Stale { expected: 4, found });
            assert_eq!(ledger.judge(&block(&ledger, found), 5), stale);
        }
        assert_eq!(ledger.judge(&[0; 512], 5), Err(Mismatch::Lost));
        ledger.wrote(5);
        assert!(ledger.judge(&block(&ledger, 3), 5).is_err());
    }
}
