//! Joining the records of three observers, and merging the distributions of several runs.

use record::latency::Latency;
use record::{HoleReason, Op, Side, Stamp, join};

#[test]
fn bytes_are_those_that_the_wire_carried() {
    // The client's thread knows the request; its capture point counts the bytes that passed, with headers and
    // digests.
    let of_thread =
        Op { tag: 1, start: Stamp::at(1), finish: Stamp::at(9), data_bytes: 512, ..Op::default() };
    let of_client = Op {
        tag: 1,
        request_bytes: 52,
        response_bytes: 568,
        ..Op::seen(Side::Client, Stamp::at(2), Stamp::at(8))
    };
    let of_server = Op { tag: 1, ..Op::seen(Side::Server, Stamp::at(3), Stamp::at(7)) };
    let joined = join(&[of_thread], &[of_client], &[of_server]);
    let whole = Op {
        tag: 1,
        data_bytes: 512,
        request_bytes: 52,
        response_bytes: 568,
        start: Stamp::at(1),
        c1: Stamp::at(2),
        s1: Stamp::at(3),
        s2: Stamp::at(7),
        c2: Stamp::at(8),
        finish: Stamp::at(9),
        ..Op::default()
    };
    assert_eq!(joined.ops, [whole]);
    assert!(joined.holes.is_empty());
}

#[test]
fn one_missing_stamp_makes_a_record_incomplete() {
    let ns = Stamp::at(5);
    let whole = Op { start: ns, c1: ns, s1: ns, s2: ns, c2: ns, finish: ns, ..Op::default() };
    assert!(whole.is_complete());
    for missing in 0..6 {
        let mut op = whole;
        let stamps = [&mut op.start, &mut op.c1, &mut op.s1, &mut op.s2, &mut op.c2, &mut op.finish];
        stamps.into_iter().nth(missing).into_iter().for_each(|stamp| *stamp = Stamp::MISSING);
        assert!(!op.is_complete(), "{missing}");
    }
}

#[test]
fn reasons_and_sides_differ() {
    // Reports show them beside a count: each names the observer that did not see the operation.
    for (reason, word) in [
        (HoleReason::NotSeenAtClient, "not seen at the client"),
        (HoleReason::NotSeenAtServer, "not seen at the server"),
        (HoleReason::NotCompletedByClient, "not completed"),
        (HoleReason::StampMissing, "no stamp"),
    ] {
        assert!(reason.text().contains(word), "{reason:?}: {}", reason.text());
    }
    assert_eq!((Side::Client.name(), Side::Server.name()), ("client", "server"));
    assert_eq!((Side::Client.peer(), Side::Server.peer()), (Side::Server, Side::Client));
}

#[test]
fn a_stamp_says_whether_it_was_taken() {
    assert_eq!(format!("{:?} {:?}", Stamp::at(1200), Stamp::MISSING), "1200ns missing");
    assert_eq!((Stamp::at(0), Stamp::at(7).ns()), (Stamp::MISSING, Some(7)));
}

#[test]
fn two_distributions_added_are_that_of_all_round_trips() {
    let (mut first, mut second, mut all) = (Latency::new(), Latency::new(), Latency::new());
    for us in 1..=100_u64 {
        if us % 3 == 0 { &mut first } else { &mut second }.record(us * 1000);
        all.record(us * 1000);
    }
    first.add(&second);
    assert_eq!((first.count(), first.figures()), (100, all.figures()));
    assert_eq!(all.figures().min, 1.0);
    first.add(&Latency::new());
    assert_eq!(first.figures(), all.figures(), "an empty one adds nothing");
}

#[test]
fn the_mean_is_exact_where_the_histogram_rounds() {
    let mut latency = Latency::new();
    // Three significant digits do not hold these.
    [1_234_567, 1_234_569].into_iter().for_each(|ns| latency.record(ns));
    assert_eq!(latency.figures().mean, 1234.568);
    // An operation of zero duration counts.
    let mut none = Latency::new();
    none.record(0);
    assert_eq!((none.count(), none.figures().mean), (1, 0.0));
}

#[test]
fn each_percentile_is_its_own() {
    let mut latency = Latency::new();
    (1..=10_000_u64).for_each(|us| latency.record(us * 1000));
    let f = latency.figures();
    for (value, expected) in [(f.p50, 5_000.0), (f.p90, 9_000.0), (f.p99, 9_900.0), (f.p999, 9_990.0)] {
        assert!((value - expected).abs() / expected < 1e-3, "{value} is not {expected}");
    }
}
