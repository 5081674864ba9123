//! Any bytes as an NBD server's answers, in the negotiation and behind it, and as the address of an export.
#![no_main]

use std::io::{self, Read, Write};

use libfuzzer_sys::fuzz_target;
use nbd::negotiate::{self, Query};
use nbd::{Address, Head, wire};

/// A server that says these bytes, whatever it is asked.
struct Says<'a>(&'a [u8]);

impl Read for Says<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.0.read(buffer)
    }
}

impl Write for Says<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }
    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fuzz_target!(|data: &[u8]| {
    let _ = negotiate::greet(&mut Says(data));
    if let Ok(export) = negotiate::choose(&mut Says(data), &Query { export: "disk" }) {
        assert!(export.least_bytes.is_power_of_two() && export.most_bytes >= export.least_bytes);
        assert!(
            export.most_bytes.is_multiple_of(export.least_bytes) && export.best_bytes >= export.least_bytes
        );
    }
    let mut rest = data;
    while let Ok(Some((head, count))) = Head::read(rest) {
        rest = &rest[count..];
        let length = match head {
            Head::Simple { .. } => 0,
            Head::Chunk { length, .. } => length as usize,
        };
        let _ = (wire::error(rest), wire::extent(rest));
        rest = rest.get(length..).unwrap_or_default();
    }
    if let Some(address) = std::str::from_utf8(data).ok().and_then(|text| text.parse::<Address>().ok()) {
        assert_eq!(address.to_string().parse(), Ok(address));
    }
});
