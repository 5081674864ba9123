//! Memory of a `ram:` disk goes back to the system when its blocks are unmapped. The only test of its process, because
//! it measures the whole process.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use store::{Ram, Store};

/// Resident memory of this process, bytes.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = text.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn discarded_memory_is_returned_to_the_system() {
    const DISK: u64 = 256 << 20;
    const PIECE: usize = 1 << 20;
    let start = resident_bytes();
    let ram = Ram::new(DISK);
    // Several threads, as connections are: an allocator has an arena for each.
    let write = || {
        std::thread::scope(|scope| {
            for thread in 0..4 {
                let ram = &ram;
                scope.spawn(move || {
                    let data = vec![0x5a; PIECE];
                    for at in (thread * PIECE as u64..DISK).step_by(4 * PIECE) {
                        ram.write_at(at, &data).unwrap();
                    }
                });
            }
        });
    };
    for round in 0..3 {
        write();
        let full = resident_bytes();
        assert!(full > start + DISK * 9 / 10, "round {round}: {start} {full}");
        // Every other piece first, as UNMAP does it, then all of it, as SANITIZE does.
        for at in (0..DISK).step_by(2 * PIECE) {
            ram.discard(at, PIECE as u64).unwrap();
        }
        let half = resident_bytes();
        assert!(half < start + DISK * 6 / 10, "round {round}: {start} {full} {half}");
        ram.discard(0, DISK).unwrap();
        let empty = resident_bytes();
        assert!(empty < start + (16 << 20), "round {round}: {start} {full} {half} {empty}");
    }
    write();
    drop(ram);
    assert!(resident_bytes() < start + (16 << 20), "a dropped disk");
}
