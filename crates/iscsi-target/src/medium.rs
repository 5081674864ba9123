//! Medium operations beyond reads and writes: fill, unmap, compare, atomic writes and copies.

use parking_lot::RwLock;
use scsi::{Action, Sense, SenseKey};
use store::{Store, StoreError};

use crate::sense::{read_sense, write_sense};

/// Bytes processed in one step.
const PIECE_BYTES: u64 = 256 << 10;

/// Executes an action. Atomic actions hold `atomic_lock` exclusively.
pub(crate) fn act(store: &dyn Store, atomic_lock: &RwLock<()>, action: Action) -> Result<(), Sense> {
    let failed = |error: StoreError| write_sense(&error);
    let is_used_by_others = store.limits().step_bytes.is_some();
    let shared = || atomic_lock.read();
    let alone = || atomic_lock.write();
    let write = |offset, data: &[u8], fua| {
        if fua { store.write_stable_at(offset, data) } else { store.write_at(offset, data) }
    };
    match action {
        Action::Fill { offset_bytes, length_bytes, block } => {
            let _shared = shared();
            if block.iter().all(|&byte| byte == 0) {
                return store.zero(offset_bytes, length_bytes).map_err(failed);
            }
            let whole = PIECE_BYTES.max(block.len() as u64).min(length_bytes);
            let piece: Vec<u8> = block.iter().copied().cycle().take(whole as usize).collect();
            let mut done = 0;
            while done < length_bytes {
                let count = (length_bytes - done).min(whole);
                store.write_at(offset_bytes + done, &piece[..count as usize]).map_err(failed)?;
                done += count;
            }
            Ok(())
        }
        Action::Unmap { ranges } => {
            let _shared = shared();
            ranges
                .into_iter()
                .try_for_each(|range| store.discard(range.offset_bytes, range.length_bytes))
                .map_err(failed)
        }
        Action::WriteAtomic { offset_bytes, data, fua } => {
            let _alone = alone();
            if is_used_by_others {
                return replace(store, offset_bytes, data.len(), fua, |there| there.copy_from_slice(&data));
            }
            write(offset_bytes, &data, fua).map_err(failed)
        }
        Action::CompareAndWrite { offset_bytes, expected, data, fua } => {
            let _alone = alone();
            // The lock excludes only this target: a store that others use has the operation itself.
            if is_used_by_others {
                store.compare_and_write(offset_bytes, &expected, &data).map_err(failed)?;
                return if fua { store.flush().map_err(failed) } else { Ok(()) };
            }
            compare(store, offset_bytes, expected.len() as u64, &expected)?;
            write(offset_bytes, &data, fua).map_err(failed)
        }
        Action::Compare { offset_bytes, length_bytes, expected } => {
            compare(store, offset_bytes, length_bytes, &expected)
        }
        Action::SelfTest { ranges } => {
            let _shared = shared();
            for range in ranges {
                let mut there = vec![0; range.length_bytes as usize];
                store.read_at(range.offset_bytes, &mut there).map_err(|error| {
                    tracing::warn!(%error, "the self-test failed");
                    Sense::FAILED_SELF_TEST
                })?;
            }
            Ok(())
        }
        Action::Or { offset_bytes, data, fua } => {
            let _alone = alone();
            let or = |there: &mut [u8]| there.iter_mut().zip(&data).for_each(|(byte, bits)| *byte |= bits);
            if is_used_by_others {
                return replace(store, offset_bytes, data.len(), fua, or);
            }
            let mut there = vec![0; data.len()];
            store.read_at(offset_bytes, &mut there).map_err(|error| read_sense(&error))?;
            or(&mut there);
            write(offset_bytes, &there, fua).map_err(failed)
        }
    }
}

/// Replaces a range by what `change` makes of it, atomically for all users of a store that compares and writes in one step: reads, and
/// writes if nobody has written meanwhile.
fn replace(
    store: &dyn Store,
    offset_bytes: u64,
    length: usize,
    fua: bool,
    change: impl Fn(&mut [u8]),
) -> Result<(), Sense> {
    let mut there = vec![0; length];
    for _ in 0..ATTEMPTS_MAX {
        store.read_at(offset_bytes, &mut there).map_err(|error| read_sense(&error))?;
        let mut new = there.clone();
        change(&mut new);
        match store.compare_and_write(offset_bytes, &there, &new) {
            Ok(()) if fua => return store.flush().map_err(|error| write_sense(&error)),
            Ok(()) => return Ok(()),
            Err(StoreError::Miscompare(_)) => {}
            Err(error) => return Err(write_sense(&error)),
        }
    }
    Err(CONTENDED)
}

/// Most attempts of [`replace`]: each that fails means that another one has succeeded.
const ATTEMPTS_MAX: usize = 1000;
/// ABORTED COMMAND: the initiator tries again.
const CONTENDED: Sense = Sense::new(SenseKey::AbortedCommand, 0x00, 0x00);

/// One end of a copy.
#[derive(Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) store: &'a dyn Store,
    /// Held shared while data is read or written.
    pub(crate) atomic_lock: &'a RwLock<()>,
    pub(crate) offset_bytes: u64,
}

/// Copies a range between two disks or within one, in pieces that are each written atomically. Each piece is written
/// while the guard returned by `enter` is held.
///
/// # Errors
/// The sense of the failed side with sense key COPY ABORTED, or COPY ABORTED when `enter` returns none.
pub(crate) fn copy<G>(
    from: Place<'_>,
    to: Place<'_>,
    length_bytes: u64,
    enter: impl Fn() -> Option<G>,
) -> Result<(), Sense> {
    let aborted = |sense: Sense| Sense { key: SenseKey::CopyAborted, ..sense };
    let mut piece = vec![0; length_bytes.min(PIECE_BYTES) as usize];
    // Overlapping ranges on one disk are copied from the end, so that no byte is overwritten before it is read.
    let backwards = std::ptr::addr_eq(from.store, to.store) && to.offset_bytes > from.offset_bytes;
    let mut done = 0;
    while done < length_bytes {
        let count = (length_bytes - done).min(PIECE_BYTES);
        let at = if backwards { length_bytes - done - count } else { done };
        let piece = &mut piece[..count as usize];
        {
            let _shared = from.atomic_lock.read();
            from.store.read_at(from.offset_bytes + at, piece).map_err(|error| aborted(read_sense(&error)))?;
        }
        let _working = enter().ok_or(Sense::COPY_ABORTED)?;
        let _shared = to.atomic_lock.read();
        to.store.write_at(to.offset_bytes + at, piece).map_err(|error| aborted(write_sense(&error)))?;
        done += count;
    }
    Ok(())
}

/// Compares a range with repetitions of `expected`; MISCOMPARE reports the offset of the first different byte.
fn compare(store: &dyn Store, offset_bytes: u64, length_bytes: u64, expected: &[u8]) -> Result<(), Sense> {
    let mut there = vec![0; length_bytes.min(PIECE_BYTES) as usize];
    let mut done = 0;
    while done < length_bytes {
        let count = (length_bytes - done).min(PIECE_BYTES) as usize;
        let piece = &mut there[..count];
        store.read_at(offset_bytes + done, piece).map_err(|error| read_sense(&error))?;
        let mut at = 0;
        while at < count && !expected.is_empty() {
            let wanted = &expected[((done + at as u64) % expected.len() as u64) as usize..];
            let wanted = &wanted[..wanted.len().min(count - at)];
            let there = &piece[at..at + wanted.len()];
            // Whole slices first: they are compared at the speed of the memory.
            if there != wanted {
                let place = there.iter().zip(wanted).position(|(a, b)| a != b).unwrap_or(0);
                return Err(Sense::miscompare(done + (at + place) as u64));
            }
            at += wanted.len();
        }
        done += count as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
