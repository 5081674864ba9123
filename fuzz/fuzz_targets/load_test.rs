//! Any bytes as the request of a tester, as the data of either end, as a server's report, and as a peer that a user names.
#![no_main]

use host::load::wire::{Blocks, Report, Request};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Some(request) = Request::parse(data) {
        assert_eq!(Request::parse(request.line().trim_end().as_bytes()), Some(request));
    }
    let _ = Report::parse(data);
    let (whole, mut cut) = (Blocks::default().take(data), Blocks::default());
    // The same in two parts.
    let (first, second) = data.split_at(data.len() / 2);
    let in_parts = cut.take(first).and_then(|(taken, is_last)| {
        if is_last {
            return Ok((taken, true));
        }
        cut.take(second).map(|(more, is_last)| (taken + more, is_last))
    });
    assert_eq!(whole, in_parts);
    let _ = std::str::from_utf8(data).map(str::parse::<host::read::path::Peer>);
});
