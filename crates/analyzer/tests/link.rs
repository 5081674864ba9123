//! Links whose rate is given, against the packets that pass.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use analysis::verdict::{Verdict, VerdictKind};
use common::{ACK, Capture, ONE, analyse_on};
use record::wire::Wire;

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\n\r\n";
const CONNECTIONS: u16 = 8;
/// Bits per second.
const RATE: u64 = 10_000_000;
/// IPv4 and TCP without options, and what no capture shows of Ethernet; the capture has no header of its own.
const HEADERS: usize = 40 + 24;

/// The verdict on a link that answers of so many bytes fill to this share.
fn link_full(answer_bytes: usize, share: f64) -> Option<Verdict> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", answer_bytes - 40);
    let answer = [head.as_bytes(), &vec![b'x'; answer_bytes - 40]].concat();
    let mut capture = Capture::new(80);
    capture.step_ns = 0;
    let mut next = Vec::new();
    for connection in 0..CONNECTIONS {
        (capture.ports[0], capture.next) = (40_000 + connection, [100, 900]);
        capture.open(&ONE);
        capture.send(0, ACK, REQUEST, &ONE);
        next.push(capture.next);
    }
    let wire_ns = ((answer.len() + HEADERS) as f64 * 8e9 / RATE as f64 / share) as u64;
    for turn in 0..4000 {
        let connection = turn % usize::from(CONNECTIONS);
        (capture.ports[0], capture.next) = (40_000 + connection as u16, next[connection]);
        capture.ns += wire_ns;
        capture.send(1, ACK, &answer, &ONE);
        capture.ns += 1000;
        capture.send(0, ACK, REQUEST, &ONE);
        capture.ns -= 1000;
        next[connection] = capture.next;
    }
    let result = analyse_on(capture.bytes(), Some(Wire::ethernet(RATE, 1500)));
    result.verdicts.into_iter().find(|verdict| verdict.kind == VerdictKind::LinkFull)
}

#[test]
fn small_packets_fill_a_link_with_their_headers() {
    for answer_bytes in [140, 300, 440] {
        let verdict = link_full(answer_bytes, 0.98).unwrap_or_else(|| panic!("{answer_bytes}"));
        assert!(verdict.text.contains("98 % of the link's rate"), "{}", verdict.text);
        assert_eq!(link_full(answer_bytes, 0.8), None, "{answer_bytes}");
    }
}
