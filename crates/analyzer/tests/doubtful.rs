//! Captures of which a part must not be believed: clocks that go backwards, ports that lie, holes that cannot be.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::{ACK, Capture, ONE, has_note, operations};

#[test]
fn operations_that_end_before_they_begin_are_left_out_and_counted() {
    let mut capture = Capture::new(9999);
    capture.open(&ONE);
    capture.talk(10, &ONE);
    // The clock is set back by an hour between a question and its answer.
    capture.send(0, ACK, b"question", &ONE);
    capture.ns -= 3_600_000_000_000;
    capture.send(1, ACK, b"answer", &ONE);
    capture.talk(10, &ONE);
    let result = capture.analyse();
    assert_eq!((result.operations, result.operations_backwards), (20, 1));
    assert!(has_note(&result, "1 operations are left out"), "{:?}", result.notes);
    let longest = result.stanzas.iter().flat_map(|s| &s.parts).map(|part| part.max_us).fold(0.0, f64::max);
    // The longest is the handshake.
    assert!(longest < 2500.0, "no part is huge: {longest}");
}

#[test]
fn paths_against_time_between_two_interfaces_are_counted_and_not_shown() {
    // The clock of the second interface is half a millisecond behind: requests arrive before they leave.
    let mut capture = Capture::new(9999);
    let both = [(0, 0), (1, -500_000)];
    capture.open(&both);
    capture.talk(20, &both);
    let result = capture.analyse();
    assert_eq!((result.operations, result.operations_backwards), (20, 0));
    assert_eq!(result.paths_backwards, result.operations_both_sides);
    assert!(
        result.paths_backwards > 0 && has_note(&result, "arrive before they leave"),
        "{:?}",
        result.notes
    );
}

/// As `dumpcap -i lo -i any` writes it: a buffer of each interface after the other.
#[test]
fn interfaces_whose_frames_follow_one_another_show_each_operation_once() {
    let mut capture = Capture::new(9999);
    let (next, ns) = (capture.next, capture.ns);
    for interface in [(0, 0), (1, 300)] {
        (capture.next, capture.ns) = (next, ns);
        capture.open(&[interface]);
        capture.talk(20, &[interface]);
    }
    let result = capture.analyse();
    assert_eq!((result.operations, result.operations_both_sides), (20, 20));
}

/// Operations wait for a second interface that has no frames until all connections have ended.
#[test]
fn a_silent_interface_leaves_operations_their_protocol() {
    let mut capture = Capture::new(9999);
    capture.open(&ONE);
    capture.talk(20, &ONE);
    let result = capture.analyse();
    assert_eq!((result.operations, result.operations_both_sides), (20, 0));
    assert_eq!(result.services[0].protocol.as_deref(), Some("turns"));
}

#[test]
fn connections_without_an_operation_are_counted_and_named() {
    let mut capture = Capture::new(9999);
    capture.open(&ONE);
    for _ in 0..5 {
        capture.send(1, ACK, b"nobody asked", &ONE);
    }
    (capture.ports, capture.next) = ([40_001, 9999], [100, 900]);
    capture.open(&ONE);
    capture.talk(3, &ONE);
    let result = capture.analyse();
    assert_eq!((result.operations, result.streams.without_operations), (3, 1));
    assert!(has_note(&result, "such as 10.0.0.1:40000 to 10.0.0.2:9999 (8 packets)"), "{:?}", result.notes);
}

#[test]
fn a_port_that_lies_is_noted() {
    let mut capture = Capture::new(3260);
    capture.open(&ONE);
    capture.talk(30, &ONE);
    let result = capture.analyse();
    assert_eq!((result.operations, result.streams.mistaken), (30, 1));
    assert_eq!(result.connections[0].protocol, "turns");
    assert!(has_note(&result, "1 connection that seemed to be iSCSI"), "{:?}", result.notes);
}

#[test]
fn a_hole_of_more_than_can_have_passed_is_of_an_unknown_number_of_operations() {
    for (missing, is_known) in [(140, true), (20_000_000, false)] {
        let mut capture = Capture::new(9999);
        capture.open(&ONE);
        capture.talk(100, &ONE);
        capture.next[1] += missing;
        capture.talk(100, &ONE);
        let result = capture.analyse();
        assert_eq!(result.holes.len(), 1, "{missing}");
        let operations = result.holes[0].operations;
        assert_eq!(operations.is_some(), is_known, "{operations:?}");
        // From the answer before to the question that acknowledges what is missing.
        assert_eq!(result.holes[0].missing.within_ns, 1_000_000);
        let verdict = result.verdicts.iter().find(|v| v.text.contains("the capture lost packets")).unwrap();
        assert_eq!(verdict.text.contains("an unknown number of operations"), !is_known, "{}", verdict.text);
        assert!(verdict.operations <= 3, "{}", verdict.operations);
    }
}

#[test]
fn segments_from_elsewhere_are_noted() {
    let mut capture = Capture::new(9999);
    capture.open(&ONE);
    capture.talk(5, &ONE);
    let next = capture.next;
    capture.next = [2_000_000_000, 3_000_000_000];
    capture.send(1, ACK, b"forged", &ONE);
    capture.next = next;
    capture.talk(5, &ONE);
    let result = capture.analyse();
    assert_eq!((result.operations, result.frames.strays, result.streams.holes), (10, 1, 0));
    assert!(has_note(&result, "1 segments are far outside the window"), "{:?}", result.notes);
}

/// The client's interface begins later than the server's, or misses the begin of a connection: what it sees first is another operation.
#[test]
fn the_client_is_on_the_side_where_a_request_is_seen_first() {
    for missing in [0, 1, 3, 30] {
        let mut capture = Capture::new(9999);
        let (server, both) = ([(1, 200_000)], [(0, 0), (1, 200_000)]);
        capture.open(if missing > 3 { &server[..] } else { &both[..] });
        capture.talk(missing, &server);
        capture.talk(40, &both);
        let paths: Vec<i64> = (operations(capture.bytes()).iter())
            .filter_map(|observed| Some((observed.op.c1.ns()?, observed.op.s1.ns()?)))
            .map(|(c1, s1)| s1.cast_signed() - c1.cast_signed())
            .collect();
        assert_eq!(paths, [200_000; 40], "{missing}");
    }
}

/// A file that names an interface without frames shows what it would without it, and in about the same order.
#[test]
fn a_silent_interface_changes_nothing() {
    let capture = |interfaces: &[&str]| {
        let mut capture = Capture::of(9999, interfaces);
        let mut next = [[100, 900]; 10];
        for round in 0..120 {
            let connection = round * 7 % 10;
            (capture.ports, capture.next) = ([40_000 + connection as u16, 9999], next[connection]);
            if round < 10 {
                capture.open(&ONE);
            }
            capture.talk(10, &ONE);
            next[connection] = capture.next;
        }
        capture.bytes()
    };
    let order = |file: Vec<u8>| -> Vec<u64> {
        operations(file).iter().map(|observed| observed.op.c1.ns().unwrap()).collect()
    };
    let began = order(capture(&["a", "b"]));
    assert_eq!(began.len(), 1200);
    // The last operation of a burst is told with the connection's next one, behind those of all others; held ones come in their order.
    let alone = order(capture(&["a"]));
    for (place, began) in began.iter().enumerate() {
        let before = alone.iter().position(|other| other == began).unwrap();
        assert!(place.abs_diff(before) <= 100, "{place} instead of {before}");
    }
}
