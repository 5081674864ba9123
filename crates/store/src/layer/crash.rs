//! A power loss: what was not brought to stable storage is gone, or half of it.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::operation::Operation;
use crate::{Store, StoreError, check_range};

/// Bytes that a medium writes whole or not at all.
const SECTOR_BYTES: u64 = 512;

/// A store with a volatile cache in front of it that a test can lose: each sector written since the last flush is
/// then kept or lost independently, by a seed.
pub struct Crash {
    inner: Arc<dyn Store>,
    /// Sectors that were written and not flushed, by number.
    cached: Mutex<BTreeMap<u64, Box<[u8]>>>,
}

impl Crash {
    /// A cache before a store.
    #[must_use]
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, cached: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Box<[u8]>>> {
        self.cached.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Simulates a power loss: some of the cached sectors have reached the medium, the others are lost. Returns how many were
    /// lost.
    ///
    /// # Errors
    /// When the store beneath fails.
    pub fn lose_power(&self, seed: u64) -> Result<usize, StoreError> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut lost = 0;
        for (sector, data) in std::mem::take(&mut *self.lock()) {
            if random.bool() {
                self.inner.write_at(sector * SECTOR_BYTES, &data)?;
            } else {
                lost += 1;
            }
        }
        Ok(lost)
    }

    /// The sectors of a range, with the part of each that lies in it.
    fn sectors(offset: u64, length: u64) -> impl Iterator<Item = (u64, usize, usize)> {
        let end = offset + length;
        (offset / SECTOR_BYTES..end.div_ceil(SECTOR_BYTES)).map(move |sector| {
            let begin = sector * SECTOR_BYTES;
            let (from, to) = (offset.max(begin) - begin, end.min(begin + SECTOR_BYTES) - begin);
            (sector, from as usize, to as usize)
        })
    }
}

impl Store for Crash {
    fn kind(&self) -> &'static str {
        self.inner.kind()
    }
    fn size_bytes(&self) -> u64 {
        self.inner.size_bytes()
    }
    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }
    fn has_volatile_cache(&self) -> bool {
        true
    }
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        let cached = self.lock();
        self.inner.read_at(offset, buffer)?;
        let mut at = 0;
        for (sector, from, to) in Self::sectors(offset, buffer.len() as u64) {
            if let Some(data) = cached.get(&sector) {
                buffer[at..at + to - from].copy_from_slice(&data[from..to]);
            }
            at += to - from;
        }
        Ok(())
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        if self.is_read_only() {
            return Err(StoreError::ReadOnly);
        }
        check_range(offset, data.len(), self.size_bytes())?;
        let mut cached = self.lock();
        let mut at = 0;
        for (sector, from, to) in Self::sectors(offset, data.len() as u64) {
            let there = match cached.get_mut(&sector) {
                Some(there) => there,
                None => {
                    let mut there = vec![0; SECTOR_BYTES as usize];
                    let begin = sector * SECTOR_BYTES;
                    let bytes = (self.size_bytes() - begin).min(SECTOR_BYTES) as usize;
                    self.inner.read_at(begin, &mut there[..bytes])?;
                    there.truncate(bytes);
                    cached.entry(sector).or_insert(there.into_boxed_slice())
                }
            };
            there[from..to].copy_from_slice(&data[at..at + to - from]);
            at += to - from;
        }
        Ok(())
    }
    fn may_wait(&self, operation: Operation) -> bool {
        self.inner.may_wait(operation)
    }
    fn geometry(&self) -> Option<crate::Geometry> {
        self.inner.geometry()
    }
    fn resize(&self, size_bytes: u64) -> Result<(), StoreError> {
        self.flush()?;
        self.inner.resize(size_bytes)
    }
    fn flush(&self) -> Result<(), StoreError> {
        let mut cached = self.lock();
        for (sector, data) in &*cached {
            self.inner.write_at(sector * SECTOR_BYTES, data)?;
        }
        self.inner.flush()?;
        cached.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Ram;

    #[test]
    fn flushed_data_survives_and_other_sectors_may_be_lost() {
        let medium: Arc<dyn Store> = Arc::new(Ram::new(1 << 20));
        let store = Crash::new(Arc::clone(&medium));
        store.write_at(100, &[1; 5000]).unwrap();
        store.flush().unwrap();
        store.write_at(0, &[2; 64 << 10]).unwrap();
        let mut there = vec![0; 64 << 10];
        store.read_at(0, &mut there).unwrap();
        assert!(there.iter().all(|&b| b == 2), "it is there until the power is lost");
        let lost = store.lose_power(3).unwrap();
        assert!((20..108).contains(&lost), "{lost} of 128 sectors");
        store.read_at(0, &mut there).unwrap();
        for sector in there.chunks(512).take(10) {
            assert!(sector.iter().all(|&b| b == 2) || !sector.contains(&2), "a sector is whole");
        }
        assert_eq!(there.chunks(512).filter(|sector| sector[511] != 2).count(), lost);
        let mut old = [0; 1];
        medium.read_at(5099, &mut old).unwrap();
        assert!(old[0] == 1 || old[0] == 2, "what was flushed, or what came after it");
    }
}
