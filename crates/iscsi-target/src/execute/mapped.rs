//! GET LBA STATUS: which blocks of a disk are allocated (SBC-3 5.6).

use store::Store;

/// What is asked for.
#[derive(Clone, Copy)]
pub(super) struct Mapped {
    /// First byte.
    pub(super) offset_bytes: u64,
    /// Logical block length, bytes.
    pub(super) block_bytes: u32,
    /// Most bytes of the answer.
    pub(super) allocation: usize,
}

/// Bytes before the first descriptor.
const HEADER_BYTES: usize = 8;
/// Bytes of an LBA status descriptor.
const DESCRIPTOR_BYTES: usize = 16;
/// Most descriptors in one answer; the initiator asks again from its end.
const DESCRIPTORS_MAX: usize = 64;
/// Most questions to the store for one answer, which bounds its time.
const STEPS_MAX: usize = 4096;

/// Blocks of one state, in a row.
#[derive(Clone, Copy)]
struct Run {
    lba: u64,
    blocks: u64,
    is_mapped: bool,
}

/// Returns the parameter data, cut to the allocation length: runs of allocated and of deallocated blocks, each as long as its state
/// and its field go.
pub(super) fn status(store: &dyn Store, from: Mapped) -> Vec<u8> {
    let Mapped { offset_bytes, block_bytes, allocation } = from;
    let block = u64::from(block_bytes.max(1));
    let wanted = (allocation.saturating_sub(HEADER_BYTES) / DESCRIPTOR_BYTES).clamp(1, DESCRIPTORS_MAX);
    let (mut runs, mut at) = (Vec::<Run>::new(), offset_bytes);
    for _ in 0..STEPS_MAX {
        if at >= store.size_bytes() {
            break;
        }
        let (is_mapped, bytes) = store.is_mapped(at);
        // A block of which a part is allocated is allocated.
        let (is_mapped, blocks) = match (is_mapped, bytes / block) {
            (true, _) => (true, bytes.div_ceil(block).max(1)),
            (false, 0) => (true, 1),
            (false, blocks) => (false, blocks),
        };
        match runs.last_mut() {
            Some(last) if last.is_mapped == is_mapped && last.blocks < u32::MAX.into() => {
                last.blocks += blocks;
            }
            _ => {
                if runs.len() == wanted {
                    break;
                }
                runs.push(Run { lba: at / block, blocks, is_mapped });
            }
        }
        at += blocks * block;
        // What is longer than its field is cut, and the next run begins there.
        if let Some(last) = runs.last_mut().filter(|last| last.blocks > u32::MAX.into()) {
            last.blocks = u32::MAX.into();
            at = (last.lba + last.blocks) * block;
        }
    }
    let mut out = vec![0; HEADER_BYTES];
    for run in runs {
        out.extend_from_slice(&run.lba.to_be_bytes());
        out.extend_from_slice(&(run.blocks as u32).to_be_bytes());
        // 0: mapped; 1: deallocated.
        out.extend_from_slice(&[u8::from(!run.is_mapped), 0, 0, 0]);
    }
    let length = (out.len() - 4) as u32;
    out[..4].copy_from_slice(&length.to_be_bytes());
    out.truncate(allocation);
    out
}

#[cfg(test)]
mod tests {
    use store::{Ram, Zero};

    use super::*;

    fn runs(
        store: &dyn Store,
        offset_bytes: u64,
        block_bytes: u32,
        allocation: usize,
    ) -> Vec<(u64, u32, bool)> {
        let data = status(store, Mapped { offset_bytes, block_bytes, allocation });
        assert_eq!(u32::from_be_bytes(*data.first_chunk().unwrap()) as usize, data.len() - 4);
        let number = |bytes: &[u8]| bytes.iter().fold(0_u64, |sum, &byte| sum << 8 | u64::from(byte));
        data[HEADER_BYTES..]
            .chunks_exact(DESCRIPTOR_BYTES)
            .map(|run| (number(&run[..8]), number(&run[8..12]) as u32, run[12] == 0))
            .collect()
    }

    #[test]
    fn neighbours_of_one_state_are_one_run() {
        let disk = Ram::new(1 << 30);
        assert_eq!(runs(&disk, 0, 512, 24), [(0, 1 << 21, false)], "a whole disk in one answer");
        disk.write_at(256 << 20, &[1]).unwrap();
        let all = runs(&disk, 0, 512, 4096);
        assert_eq!(all.iter().map(|run| run.2).collect::<Vec<_>>(), [false, true, false]);
        assert_eq!(all.iter().map(|run| u64::from(run.1)).sum::<u64>(), 1 << 21);
        assert!(all.windows(2).all(|pair| pair[0].0 + u64::from(pair[0].1) == pair[1].0), "{all:?}");
        // Room for two descriptors, and half of one.
        assert_eq!(runs(&disk, 0, 512, 8 + 32), all[..2]);
        assert_eq!(status(&disk, Mapped { offset_bytes: 0, block_bytes: 512, allocation: 20 }).len(), 20);
        assert_eq!(runs(&disk, all[2].0 * 512, 512, 4096), all[2..]);
    }

    /// Data from byte 3584 to 7680 alone.
    struct Shifted;

    impl Store for Shifted {
        fn kind(&self) -> &'static str {
            "shifted"
        }
        fn size_bytes(&self) -> u64 {
            64 << 10
        }
        fn has_volatile_cache(&self) -> bool {
            false
        }
        fn read_at(&self, _: u64, _: &mut [u8]) -> Result<(), store::StoreError> {
            Ok(())
        }
        fn write_at(&self, _: u64, _: &[u8]) -> Result<(), store::StoreError> {
            Ok(())
        }
        fn flush(&self) -> Result<(), store::StoreError> {
            Ok(())
        }
        fn is_mapped(&self, offset: u64) -> (bool, u64) {
            match offset {
                0..3584 => (false, 3584 - offset),
                3584..7680 => (true, 7680 - offset),
                _ => (false, self.size_bytes() - offset),
            }
        }
    }

    #[test]
    fn a_block_that_is_partly_allocated_is_allocated() {
        assert_eq!(runs(&Shifted, 0, 4096, 4096), [(0, 2, true), (2, 14, false)]);
        assert_eq!(runs(&Shifted, 0, 512, 4096), [(0, 7, false), (7, 8, true), (15, 113, false)]);
    }

    #[test]
    fn a_run_that_is_longer_than_its_field_is_continued() {
        let disk = Zero::new(5 << 40);
        let all = runs(&disk, 0, 512, 4096);
        assert_eq!((all[0].1, all[1].0), (u32::MAX, u64::from(u32::MAX)));
        assert_eq!(all.iter().map(|run| u64::from(run.1)).sum::<u64>(), (5 << 40) / 512);
    }
}
