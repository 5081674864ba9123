//! Whether a part of a file is in memory (cachestat, Linux 6.5 and later).

#![allow(unsafe_code, reason = "a system call that no library wraps")]

use std::fs::File;
use std::os::fd::AsRawFd;

/// The smallest page size, bytes; with larger pages, data only appears less resident.
const PAGE_BYTES: u64 = 4096;
const CACHESTAT: libc::c_long = 451;

#[repr(C)]
struct Range {
    offset: u64,
    length: u64,
}

#[repr(C)]
#[derive(Default)]
struct Pages {
    cached: u64,
    dirty: u64,
    writeback: u64,
    evicted: u64,
    recently_evicted: u64,
}

/// Whether all of a range is in the page cache; false where the kernel does not tell.
pub(crate) fn is_resident(file: &File, offset: u64, length: u64) -> bool {
    let range = Range { offset, length };
    let mut pages = Pages::default();
    // SAFETY: both structures are the kernel's (include/uapi/linux/mman.h), live through the call, and the kernel
    // writes only the second.
    let result = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), &raw const range, &raw mut pages, 0 as libc::c_uint)
    };
    let (first, behind) = (offset / PAGE_BYTES, (offset + length).div_ceil(PAGE_BYTES));
    result == 0 && pages.cached >= behind - first
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn written_pages_are_resident_and_holes_are_not() {
        use std::os::unix::fs::FileExt;
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 100_000], 8192).unwrap();
        if !testing::require("cachestat (Linux 6.5)", is_resident(&file, 8192, 1)) {
            return;
        }
        assert!(is_resident(&file, 8192, 100_000));
        assert!(!is_resident(&file, 0, 100_000) && !is_resident(&file, 512 << 10, 4096), "a hole");
    }
}
