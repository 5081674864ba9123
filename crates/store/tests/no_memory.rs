//! A store without memory for more data reports an error, and keeps what it has.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use nix::sys::resource::{Resource, setrlimit};
use store::{Buffer, Ram, Store, StoreError};

const IN_CHILD: &str = "STORE_TEST_NO_MEMORY";

#[test]
fn exhausted_memory_is_an_error_and_not_an_abort() {
    if std::env::var_os(IN_CHILD).is_some() {
        return without_memory();
    }
    let name = "exhausted_memory_is_an_error_and_not_an_abort";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(IN_CHILD, "1")
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    assert!(output.status.success(), "{}: {said}", output.status);
    assert!(said.contains("1 passed"), "{said}");
}

/// In a process of its own: a limit on the address space holds for all of it.
fn without_memory() {
    let limit = 512 << 20;
    setrlimit(Resource::RLIMIT_AS, limit, limit).unwrap();
    assert!(matches!(Buffer::try_new(1 << 30), Err(StoreError::NoMemory(_))));
    let ram = Ram::new(1 << 30);
    assert!(matches!(ram.try_buffer(1 << 30), Err(StoreError::NoMemory(_))));
    let data = vec![7; 1 << 20];
    let mut written = 0;
    let error = loop {
        match ram.write_at(written, &data) {
            Ok(()) => written += data.len() as u64,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::NoMemory(_)), "{error}");
    assert!(written > 100 << 20, "{written}");
    // Written data remains, can be overwritten, and frees memory when it is discarded.
    let mut there = vec![0; 1 << 20];
    ram.read_at(written - data.len() as u64, &mut there).unwrap();
    assert!(there == data);
    ram.write_at(0, &there).unwrap();
    ram.discard(0, 64 << 20).unwrap();
    for at in 0..32 {
        ram.write_at((512 + at) << 20, &data).unwrap();
    }
}
