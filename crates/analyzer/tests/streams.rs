//! Responses that have no end in the capture.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ACK, Capture, ONE, has_note};

const REQUEST: &[u8] = b"GET /events HTTP/1.1\r\n\r\n";
const HEAD: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n";
const MS: u64 = 1_000_000;

/// A stream of events at 50 and 150 ms in turn, behind a first byte after 3 ms.
fn stream(capture: &mut Capture) {
    capture.open(&ONE);
    capture.send(0, ACK, REQUEST, &ONE);
    capture.ns += 2 * MS;
    capture.send(1, ACK, HEAD, &ONE);
    for number in 0..10 {
        capture.ns += [48, 148][number % 2] * MS;
        capture.send(1, ACK, b"data: x\n\n", &ONE);
        capture.send(0, ACK, b"", &ONE);
    }
}

#[test]
fn an_endless_response_is_described_as_far_as_it_came() {
    let mut capture = Capture::new(80);
    stream(&mut capture);
    (capture.ports[0], capture.next) = (40_001, [100, 900]);
    stream(&mut capture);
    let result = capture.analyse();
    assert_eq!((result.operations, result.responses_coming, result.verdicts.len()), (0, 2, 0));
    let text = "2 responses were still coming when the capture ended, and no operation yet: the first byte took 3.00 ms on \
                average, and 100 ms between pieces, at most 150 ms";
    assert!(has_note(&result, text), "{:?}", result.notes);
    assert!(!has_note(&result, "without a response"), "{:?}", result.notes);
}

#[test]
fn a_request_without_a_response_is_not_coming() {
    let mut capture = Capture::new(80);
    capture.open(&ONE);
    capture.send(0, ACK, REQUEST, &ONE);
    let result = capture.analyse();
    assert_eq!(result.responses_coming, 0);
    assert!(has_note(&result, "1 request without a response"), "{:?}", result.notes);
    assert_eq!(result.unanswered, 1);
}
