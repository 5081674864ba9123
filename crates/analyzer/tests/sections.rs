//! Files in a row in one file (`cat a.pcapng b.pcapng`): each section is a capture with an end of its own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use analysis::verdict::VerdictKind;
use analyzer::AnalysisResult;
use common::{ACK, Capture, ONE, analyse};

const REQUEST: &[u8] = b"GET /a HTTP/1.1\r\n\r\n";
const RESPONSE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
const SECOND: u64 = 1_000_000_000;
const OPERATIONS: usize = 30;

fn ask(capture: &mut Capture, times: usize) {
    for _ in 0..times {
        capture.send(0, ACK, REQUEST, &ONE);
        capture.send(1, ACK, RESPONSE, &ONE);
    }
}

/// A capture of a service on a network nearby.
fn nearby() -> Capture {
    let mut capture = Capture::new(80);
    capture.step_ns = 50_000;
    capture
}

/// A connection from this port, with a request in flight when its capture ends.
fn cut_off(port: u16) -> Capture {
    let mut capture = nearby();
    capture.ports[0] = port;
    capture.open(&ONE);
    ask(&mut capture, OPERATIONS);
    capture.send(0, ACK, REQUEST, &ONE);
    capture
}

/// A capture that begins so long after another one, in which the same connection goes on.
fn later(before: &Capture, ns: u64) -> Capture {
    let mut capture = nearby();
    (capture.ports, capture.next, capture.ns) = (before.ports, before.next, before.ns + ns);
    capture
}

fn row(captures: impl IntoIterator<Item = Capture>) -> AnalysisResult {
    analyse(captures.into_iter().flat_map(Capture::bytes).collect())
}

fn kinds(result: &AnalysisResult) -> Vec<VerdictKind> {
    result.verdicts.iter().map(|verdict| verdict.kind).collect()
}

#[test]
fn requests_in_flight_at_the_end_of_a_section_were_cut_off() {
    let other = || {
        let mut capture = nearby();
        (capture.ports[0], capture.ns) = (40_001, capture.ns + 60 * SECOND);
        capture.open(&ONE);
        ask(&mut capture, OPERATIONS);
        capture
    };
    // The second one is later, or earlier.
    for captures in [[cut_off(40_000), other()], [other(), cut_off(40_000)]] {
        let result = row(captures);
        assert_eq!(kinds(&result), [], "{:#?}", result.verdicts);
        assert_eq!(result.operations, 2 * OPERATIONS as u64);
    }
}

#[test]
fn a_request_that_waits_within_a_section_counts() {
    let mut capture = cut_off(40_000);
    let mut other = later(&capture, 0);
    capture.ns += 5 * SECOND;
    (capture.ports[0], capture.next) = (40_001, [100, 900]);
    capture.open(&ONE);
    ask(&mut capture, 1);
    other.ports[0] = 40_002;
    other.open(&ONE);
    let result = row([capture, other]);
    assert_eq!(kinds(&result), [VerdictKind::NoResponse]);
}

#[test]
fn connections_go_on_in_the_next_sections() {
    for pause_ns in [0, 60 * SECOND] {
        let first = cut_off(40_000);
        let mut second = later(&first, pause_ns);
        second.send(1, ACK, RESPONSE, &ONE);
        ask(&mut second, OPERATIONS);
        second.send(0, ACK, REQUEST, &ONE);
        let mut third = later(&second, pause_ns);
        ask(&mut third, OPERATIONS);
        let result = row([first, second, third]);
        assert_eq!(kinds(&result), [], "{:#?}", result.verdicts);
        assert_eq!(result.operations, 3 * OPERATIONS as u64, "{:#?}", result.notes);
        let whole: u64 = result.stanzas.iter().map(|stanza| stanza.operations).sum();
        assert_eq!(whole, result.operations);
    }
}

#[test]
fn a_connection_whose_sections_are_in_the_wrong_order_has_no_outage() {
    let first = cut_off(40_000);
    let mut second = later(&first, 60 * SECOND);
    second.send(1, ACK, RESPONSE, &ONE);
    ask(&mut second, OPERATIONS);
    second.send(0, ACK, REQUEST, &ONE);
    let result = row([second, first]);
    assert_eq!(kinds(&result), [], "{:#?}", result.verdicts);
    assert_eq!(result.operations, 2 * OPERATIONS as u64, "{:#?}", result.notes);
}

#[test]
fn a_capture_that_is_there_twice_has_no_outage() {
    let result = row([cut_off(40_000), cut_off(40_000)]);
    assert_eq!(kinds(&result), [], "{:#?}", result.verdicts);
}

/// What two capture points saw at one time, in one file: short enough to be joined, or told to be counted twice.
#[test]
fn captures_of_one_time_in_a_row_are_joined_or_said_to_be_counted_twice() {
    let view = |times: usize| {
        let mut capture = nearby();
        capture.open(&ONE);
        ask(&mut capture, times);
        capture
    };
    let says = |result: &AnalysisResult| result.notes.iter().any(|note| note.contains("separate files"));
    let short = row([view(OPERATIONS), view(OPERATIONS)]);
    assert_eq!((short.operations, says(&short)), (OPERATIONS as u64, false), "{:#?}", short.notes);
    let long = row([view(2000), view(2000)]);
    assert!(long.operations == 2000 || says(&long), "{}: {:#?}", long.operations, long.notes);
    // One behind the other in time: nothing is counted twice, and nothing said.
    let first = view(2000);
    let mut second = later(&first, SECOND);
    ask(&mut second, 2000);
    let both = row([first, second]);
    assert_eq!((both.operations, says(&both)), (4000, false), "{:#?}", both.notes);
}
