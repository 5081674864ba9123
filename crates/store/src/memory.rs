//! Zeroed memory.

use std::alloc::{Layout, alloc_zeroed};

use crate::StoreError;

/// The alignment of every buffer, bytes: what O_DIRECT requires everywhere.
pub const ALIGNMENT_BYTES: usize = 4096;

/// Returns `length` zeros, which the system provides without writing them where it can.
///
/// # Errors
/// [`StoreError::NoMemory`] when the system has no memory left.
#[allow(unsafe_code, reason = "the standard library has no allocation of zeros that may fail")]
pub(crate) fn try_zeros(length: usize) -> Result<Vec<u8>, StoreError> {
    if length == 0 {
        return Ok(Vec::new());
    }
    let layout = Layout::array::<u8>(length).map_err(|_| StoreError::NoMemory(length))?;
    // SAFETY: the layout is not empty. The vector gets memory of its allocator, initialised, with its layout.
    unsafe {
        let start = alloc_zeroed(layout);
        if start.is_null() {
            return Err(StoreError::NoMemory(length));
        }
        Ok(Vec::from_raw_parts(start, length, length))
    }
}
