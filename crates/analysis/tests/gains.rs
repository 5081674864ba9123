//! What verdicts predict of their remedies, beside what remains by construction.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ring;

use analysis::verdict::{Evidence, Gain, VerdictKind};
use record::{Conduct, Flights, Side, StallKind};
use ring::{MS, RING, Ring, found, stalls};

#[track_caller]
fn gain(evidence: &Evidence, kind: VerdictKind) -> Gain {
    found(evidence, kind).unwrap().gain.unwrap()
}

/// Both ends of a factor are near this one.
#[track_caller]
fn assert_near(gain: &Gain, factor: f64) {
    let is_near = |end: f64| (end / factor - 1.0).abs() < 0.02;
    assert!(is_near(gain.throughput_least) && is_near(gain.throughput_factor), "{factor}: {gain:?}");
}

/// 200 kB over a round trip of 50 ms, in flights of 10 segments and more: three round trips were waits. The receiver's window held
/// 64 kB when the first data came, so one of these remains: 64 kB, and 128 kB and more. Where it held everything, none does.
#[test]
fn a_larger_congestion_window_is_used_as_far_as_the_receiver_s_window_allows() {
    let wait = Some((StallKind::CongestionWindow, 150 * MS));
    let flights =
        Flights { runs: 200, next: 600, grown: 600, first_bytes: 200 * 14_480, ..Flights::default() };
    for (window_first_bytes, least_ms, most_ms) in
        [(65_536, 100, 100), (1_000_000, 50, 50), (0, 100, 50), (20_000, 200, 200)]
    {
        // Each operation has a connection of its own: its window grows once.
        let conduct = Conduct {
            flights,
            window_first_bytes,
            mss_bytes: 1448,
            bytes: 180_000,
            messages: 1,
            ..Conduct::default()
        };
        let ring = Ring { count: 40, took_ns: 200 * MS, thought_ns: MS, wait, ..RING };
        let mut evidence = ring.seen(Side::Client, conduct, (50 * MS, 20_000));
        stalls(&mut evidence, StallKind::CongestionWindow, 48 * MS, (0..30).map(|turn| turn * 50 * MS));
        for connection in 1..40 {
            ring.connection(&mut evidence, connection, conduct, (50 * MS, 20_000));
        }
        let Some(gain) = found(&evidence, VerdictKind::CongestionWindow).unwrap().gain else {
            assert_eq!(window_first_bytes, 20_000, "no gain");
            continue;
        };
        let (_, then_us) = gain.operation_us.unwrap();
        let most_us = gain.operation_most_us.unwrap();
        let is_near = |us: f64, ms: u64| (us / (ms as f64 * 1000.0) - 1.0).abs() < 0.03;
        assert!(is_near(most_us, least_ms) && is_near(then_us, most_ms), "{window_first_bytes}: {gain:?}");
    }
}

/// A window of 10 kB for 100 kB: ten of a round trip each. That is the pace of a prompt reader, too; one that reads as much in
/// 40 ms still has to read the last window.
#[test]
fn a_prompt_reader_of_a_small_window_has_nothing_left_to_read() {
    for (trip_ms, reading_ms) in [(20, 0), (1, 19)] {
        let wait = Some((StallKind::WindowFull, 180 * MS));
        let conduct = Conduct {
            window_waits: 9 * 200,
            window_wait_ns: 200 * 180 * MS,
            zero_windows: 3,
            window_max_bytes: 10_000,
            mss_bytes: 1448,
            bytes: 200 * 100_000,
            messages: 200,
            sending_ns: 200 * 180 * MS,
            ..Conduct::default()
        };
        let ring = Ring { took_ns: 205 * MS, thought_ns: 20 * MS, wait, ..RING };
        let gain =
            gain(&ring.seen(Side::Client, conduct, (trip_ms * MS, 20_000)), VerdictKind::WindowLimited);
        // The client reads what is left before its next request.
        let most = 225.0 / (45.0 - f64::from(reading_ms));
        assert!((gain.throughput_factor / most - 1.0).abs() < 0.06, "{trip_ms}: {most} {gain:?}");
    }
}

/// 100 segments in 1 ms of the 1.5 ms that an operation takes. Two full ones carry as much, in 20 us at least.
#[test]
fn a_message_in_few_segments_takes_the_time_of_few() {
    let kind = VerdictKind::SmallSegments;
    let ring = Ring { took_ns: MS + MS / 2, ..RING };
    let conduct = Conduct {
        segments: 20_000,
        messages: 200,
        trains: 200,
        train_segments: 20_000,
        train_bytes: 200 * 2896,
        train_ns: 200 * MS,
        mss_bytes: 1448,
        ..Conduct::default()
    };
    assert_near(&gain(&ring.evidence(conduct, MS / 5), kind), 1.62 / (1.62 - 0.98));
    // Trains that took no time cost none: full segments would take as long.
    let fast = Conduct { train_ns: 0, ..conduct };
    assert_eq!(found(&ring.evidence(fast, MS / 5), kind).and_then(|verdict| verdict.gain), None);
}

/// A million segments of which each costs 2 us are more than the 0.3 s that the operations took.
#[test]
fn what_segments_cost_is_no_more_than_the_time_there_is() {
    let conduct = Conduct {
        segments: 1_000_000,
        messages: 200,
        trains: 200,
        train_segments: 1_000_000,
        train_bytes: 200 * 2896,
        train_ns: 200 * MS,
        mss_bytes: 1448,
        ..Conduct::default()
    };
    let ring = Ring { took_ns: MS + MS / 2, ..RING };
    let verdict = found(&ring.evidence(conduct, MS / 5), VerdictKind::SmallSegments).unwrap();
    assert!(verdict.weight <= 1.0 && verdict.cost_us <= 300_000.0, "{verdict:#?}");
}

/// The client takes 0.1 ms between a response and its next request, and so does a server that does nothing else. One that takes the
/// millisecond that counts as normal is told beside it.
#[test]
fn a_server_that_does_nothing_takes_as_long_as_its_client() {
    let kind = VerdictKind::SlowTarget;
    let conduct = Conduct::default();
    // The network takes 5 ms of the 25.
    let ring = Ring { took_ns: 25 * MS, ..RING };
    let gain = gain(&ring.seen(Side::Client, conduct, (5 * MS, 20_000)), kind);
    assert_near(&gain, 25.12 / (5.0 + 0.1 + 0.12));
    assert!(
        gain.text.contains("if it takes 1.00 ms, 4.") && gain.text.contains("than the client"),
        "{gain:?}"
    );
    // It never takes longer than it does, nor than what counts as normal: a client that needs 2 ms is no measure.
    let busy = Ring { took_ns: 25 * MS, thought_ns: 2 * MS, ..RING };
    let gain = found(&busy.seen(Side::Client, conduct, (5 * MS, 20_000)), kind).unwrap().gain.unwrap();
    assert_near(&gain, 27.02 / (27.02 - 19.0));
}

/// A timer released the data of all operations. That of a few was a little late or early, and is no wait that packets prove: theirs
/// are as long, and are lost as surely. Operations that take 20 times as long have another reason.
#[test]
fn waits_as_long_as_a_timer_s_are_its_waits() {
    let kind = VerdictKind::UnfinishedCork;
    for (other_ms, is_alike) in [(220, true), (4000, false)] {
        let wait = Some((StallKind::CorkedAnswer, 200 * MS));
        let mut evidence = Ring { took_ns: 220 * MS, thought_ns: 10 * MS, wait, ..RING }.seen(
            Side::Client,
            Conduct::default(),
            (20 * MS, 20_000),
        );
        Ring { count: 10, took_ns: other_ms * MS, thought_ns: 10 * MS, ..RING }
            .operations(Side::Client, &mut evidence);
        let ends = (0..100_u64).map(|turn| (turn * 203_377_777).next_multiple_of(4 * MS));
        stalls(&mut evidence, StallKind::CorkedAnswer, 200 * MS, ends);
        let gain = gain(&evidence, kind);
        let (_, then_us) = gain.operation_us.unwrap();
        let most_us = gain.operation_most_us.unwrap();
        let expected_us = if is_alike { 20_000.0 } else { (200.0 * 20e3 + 10.0 * 4000e3) / 210.0 };
        assert!(
            (most_us / expected_us - 1.0).abs() < 0.06 && most_us < 1.06 * then_us,
            "{other_ms}: {gain:?}"
        );
    }
}
