//! Receive windows that are too small, seen beside the receiver.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use analysis::verdict::VerdictKind;
use common::{ACK, Capture, ONE, SYN};

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\n\r\n";
const SEGMENT: usize = 125;
const MS: u64 = 1_000_000;
const NEAR_NS: u64 = 50_000;
const OPERATIONS: usize = 5;

/// Responses of 40 segments in pairs, which a server 20 ms away sends when an acknowledgement of the pair before the last one, or of
/// the last one, has reached it: with one or two pairs on their way in each round trip. The client's window is 500 bytes.
fn responses(pairs_in_flight: u64) -> Vec<VerdictKind> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 40 * SEGMENT - 41);
    let response = [head.as_bytes(), &vec![b'x'; 40 * SEGMENT - head.len()]].concat();
    let mut capture = Capture::new(80);
    capture.step_ns = 0;
    capture.send(0, SYN, b"", &ONE);
    capture.ns += 20 * MS;
    capture.send(1, SYN | ACK, b"", &ONE);
    capture.ns += NEAR_NS;
    capture.send(0, ACK, b"", &ONE);
    for _ in 0..OPERATIONS {
        capture.send(0, ACK, REQUEST, &ONE);
        capture.ns += 20 * MS;
        for pair in response.chunks(2 * SEGMENT) {
            for segment in pair.chunks(SEGMENT) {
                capture.ns += NEAR_NS;
                capture.send(1, ACK, segment, &ONE);
            }
            capture.ns += NEAR_NS;
            capture.send(0, ACK, b"", &ONE);
            capture.ns += 20 * MS / pairs_in_flight - 3 * NEAR_NS;
        }
    }
    capture.analyse().verdicts.iter().map(|verdict| verdict.kind).collect()
}

#[test]
fn a_window_whose_parts_are_released_one_by_one_is_full_all_the_time() {
    assert!(responses(2).contains(&VerdictKind::WindowLimited), "{:?}", responses(2));
    // Half of the window is on its way: something else stops the server.
    assert!(!responses(1).contains(&VerdictKind::WindowLimited), "{:?}", responses(1));
}
