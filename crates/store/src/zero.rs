//! `zero:`, the disk of the paper's measurements: reads are zeros, writes vanish.

use borrowed::Borrowed;

use crate::{BORROWED_MEMORY_BYTES_MIN, Store, StoreError, check_range};

/// A store without data, of any size: what remains is the cost of everything around it.
#[derive(Clone, Copy, Debug)]
pub struct Zero {
    size_bytes: u64,
}

impl Zero {
    /// A store that claims `size_bytes` bytes.
    #[must_use]
    pub fn new(size_bytes: u64) -> Self {
        Self { size_bytes }
    }
}

impl Store for Zero {
    fn kind(&self) -> &'static str {
        "zero"
    }

    fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    fn has_volatile_cache(&self) -> bool {
        false
    }

    fn lasting_name(&self) -> Option<String> {
        Some(self.kind().to_owned())
    }

    #[inline]
    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        check_range(offset, buffer.len(), self.size_bytes)?;
        // The buffer may hold another session's data: zeros are written, not assumed.
        buffer.fill(0);
        Ok(())
    }

    fn borrow(&self, offset: u64, length: usize) -> Result<Option<Vec<Borrowed>>, StoreError> {
        check_range(offset, length, self.size_bytes)?;
        if length < BORROWED_MEMORY_BYTES_MIN {
            return Ok(None);
        }
        let mut borrowed = Vec::new();
        borrowed::zeros(length, &mut borrowed);
        Ok(Some(borrowed))
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        check_range(offset, data.len(), self.size_bytes)
    }

    fn flush(&self) -> Result<(), StoreError> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_zero_the_buffer_and_writes_vanish() {
        let zero = Zero::new(1 << 40);
        let mut buffer = [7; 512];
        zero.write_at(1 << 30, &[9; 512]).unwrap();
        zero.read_at(1 << 30, &mut buffer).unwrap();
        assert_eq!(buffer, [0; 512]);
        assert!(zero.read_at((1 << 40) - 511, &mut buffer).is_err());
        assert!(zero.write_at(u64::MAX, &[1]).is_err());
    }
}
