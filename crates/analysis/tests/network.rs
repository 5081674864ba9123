//! Verdicts on the path, from evidence that fires them and from healthy evidence close to it.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod ring;

use analysis::verdict::{Verdict, VerdictKind};
use record::{ClockStep, Conduct, ConnectionFacts, Flights, Queueing, Side, Stall, StallKind, Transit};
use ring::{MS, RING, Ring, found, stalls};

#[test]
fn a_dependent_chain_over_a_network_is_bound_by_its_round_trip() {
    let kind = VerdictKind::RoundTripBound;
    let verdict = found(&RING.evidence(Conduct::default(), 20 * MS), kind).unwrap();
    // 21.1 ms for each, of which 1.08 ms stay, and 0.1 ms of a network within a building.
    let gain = verdict.gain.unwrap();
    assert!((17.5..18.5).contains(&gain.throughput_factor), "{gain:?}");
    assert_eq!(verdict.operations, 199);
    // A client that pauses, a ring of several, a server that is slow, a path within a building, few operations.
    for (ring, round_trip_ns) in [
        (Ring { thought_ns: 30 * MS, ..RING }, 20 * MS),
        (Ring { depth: 4, ..RING }, 20 * MS),
        (RING, 8 * MS),
        (Ring { took_ns: MS, thought_ns: 10_000, ..RING }, MS / 2),
        (Ring { count: 15, ..RING }, 20 * MS),
    ] {
        assert_eq!(found(&ring.evidence(Conduct::default(), round_trip_ns), kind), None);
    }
}

/// Half of the way lies behind it: that is no time of the server, whose own point would have seen 1 ms.
#[test]
fn a_capture_point_on_the_way_is_not_the_servers() {
    let ring = Ring { took_ns: 31 * MS, thought_ns: 30 * MS, ..RING };
    let kind = VerdictKind::SlowTarget;
    let conduct = Conduct::default();
    assert_eq!(found(&ring.seen(Side::Server, conduct, (30 * MS, 30 * MS)), kind), None);
    // The same times with the server beside the point.
    let near = Ring { thought_ns: MS / 10, ..ring };
    assert!(found(&near.seen(Side::Server, conduct, (20_000, 20_000)), kind).is_some());
}

#[test]
fn small_segments_that_leave_one_at_a_time_are_ack_clocked() {
    let kind = VerdictKind::AckClocked;
    let wait = Some((StallKind::AckClocked, 4 * MS));
    let ring = Ring { took_ns: 8 * MS, thought_ns: 4 * MS, wait, ..RING };
    for (together, is_found) in [(0, true), (100, false)] {
        let conduct = Conduct { small_alone: 200, small_together: together, ..Conduct::default() };
        let mut evidence = ring.evidence(conduct, 4 * MS);
        stalls(&mut evidence, StallKind::AckClocked, 4 * MS, (0..190).map(|turn| turn * 8 * MS));
        let verdict = found(&evidence, kind);
        assert_eq!(verdict.is_some(), is_found, "{together}");
        if let Some(Verdict { gain: Some(gain), .. }) = verdict {
            // 12 ms at the client, 4 ms beyond the capture point, instead of 8 ms.
            assert!((gain.throughput_factor - 1.5).abs() < 0.01, "{gain:?}");
        }
    }
}

#[test]
fn flights_that_grow_are_a_congestion_window_and_others_a_buffer() {
    let wait = Some((StallKind::CongestionWindow, 150 * MS));
    let ring = Ring { took_ns: 200 * MS, thought_ns: 50 * MS, wait, ..RING };
    let flights =
        |runs, next, grown| Flights { runs, next, grown, first_bytes: runs * 14_480, ..Flights::default() };
    let later = |most| Flights {
        later_runs: 110,
        later_least_bytes: 14_480,
        later_most_bytes: most,
        ..flights(120, 30, 30)
    };
    for (flights, expected) in [
        (flights(120, 360, 360), Some(VerdictKind::CongestionWindow)),
        // Most messages do not wait: the windows of new connections have grown.
        (flights(8, 24, 24), None),
        (flights(8, 240, 3), Some(VerdictKind::BufferLimited)),
        // They grow once, and are the same on each later message.
        (later(14_480), Some(VerdictKind::BufferLimited)),
        (later(90_000), Some(VerdictKind::CongestionWindow)),
        // One message of one connection begins with a small window.
        (flights(1, 4, 4), None),
    ] {
        let mut evidence = ring.evidence(Conduct { flights, ..Conduct::default() }, 50 * MS);
        stalls(&mut evidence, StallKind::CongestionWindow, 48 * MS, (0..30).map(|turn| turn * 50 * MS));
        for kind in [VerdictKind::CongestionWindow, VerdictKind::BufferLimited] {
            let verdict = found(&evidence, kind);
            assert_eq!(verdict.is_some(), expected == Some(kind), "{flights:?} {kind:?}");
            if let Some(Verdict { gain: Some(gain), .. }) = verdict {
                // The client also waits for the round trip beyond the capture point: 250 ms instead of 100 ms.
                assert!((gain.throughput_factor - 2.5).abs() < 0.1, "{gain:?}");
            }
        }
    }
}

/// What made a window small before the capture is unknown, if its side loses data; a limit that never changes is one.
#[test]
fn windows_that_grow_on_connections_without_a_beginning_are_no_fault() {
    let wait = Some((StallKind::CongestionWindow, 150 * MS));
    let ring = Ring { took_ns: 200 * MS, thought_ns: 50 * MS, wait, is_late: true, ..RING };
    for (grown, retransmitted, expected) in
        [(360, 0, None), (0, 0, Some(VerdictKind::BufferLimited)), (0, 1, None)]
    {
        let flights =
            Flights { runs: 120, next: 360, grown, first_bytes: 120 * 14_480, ..Flights::default() };
        let conduct = Conduct { flights, retransmitted, segments: 9000, ..Conduct::default() };
        let mut evidence = ring.evidence(conduct, 50 * MS);
        stalls(&mut evidence, StallKind::CongestionWindow, 48 * MS, (0..30).map(|turn| turn * 50 * MS));
        for kind in [VerdictKind::CongestionWindow, VerdictKind::BufferLimited] {
            assert_eq!(
                found(&evidence, kind).is_some(),
                expected == Some(kind),
                "{grown} {retransmitted} {kind:?}"
            );
        }
    }
}

#[test]
fn waits_of_a_timer_that_do_not_end_at_ticks_are_no_cork() {
    for (tick_ns, is_found) in [(4 * MS, true), (1, false)] {
        let ring = Ring { took_ns: 203 * MS, wait: Some((StallKind::CorkedAnswer, 202 * MS)), ..RING };
        let mut evidence = ring.evidence(Conduct::default(), MS);
        let ends = (0..100_u64).map(|turn| (turn * 203_377_777).next_multiple_of(tick_ns));
        stalls(&mut evidence, StallKind::CorkedAnswer, 202 * MS, ends);
        assert_eq!(found(&evidence, VerdictKind::UnfinishedCork).is_some(), is_found, "{tick_ns}");
    }
}

#[test]
fn waits_that_do_not_agree_are_no_delayed_acks() {
    let ring = Ring { took_ns: 60 * MS, wait: Some((StallKind::NagleWithinMessage, 40 * MS)), ..RING };
    for (spread_ns, is_found) in [(MS, true), (80 * MS, false)] {
        let mut evidence = ring.evidence(Conduct::default(), MS);
        for turn in 0..50_u64 {
            let wait_ns = 40 * MS + spread_ns * turn / 50;
            stalls(&mut evidence, StallKind::NagleWithinMessage, wait_ns, [turn * 60 * MS].into_iter());
        }
        assert_eq!(found(&evidence, VerdictKind::NagleDelayedAck).is_some(), is_found, "{spread_ns}");
    }
}

#[test]
fn round_trips_that_grow_with_the_data_in_flight_are_a_queue() {
    for (each_ns, is_found) in [(2 * MS, true), (100_000, false)] {
        let ring = Ring { took_ns: 120 * MS, wait: Some((StallKind::QueuedOnPath, 90 * MS)), ..RING };
        let mut queueing = Queueing::default();
        (1..=50_u32).for_each(|step| queueing.add(step * 10_000, 20 * MS + u64::from(step) * each_ns));
        let mut conduct = Conduct { queueing, ..Conduct::default() };
        conduct.ack_min_ns = 10 * MS;
        let evidence = ring.evidence(conduct, 10 * MS);
        assert_eq!(found(&evidence, VerdictKind::Bufferbloat).is_some(), is_found, "{each_ns}");
    }
}

#[test]
fn data_that_had_arrived_is_no_loss_and_shares_are_of_all_segments() {
    for (spurious, is_found) in [(0, true), (300, false)] {
        let conduct = Conduct { segments: 100, retransmitted: 300, spurious, ..Conduct::default() };
        let mut evidence = RING.evidence(conduct, MS);
        stalls(&mut evidence, StallKind::FastRetransmit, 10 * MS, (0..300).map(|turn| turn * MS));
        let ring = Ring { wait: Some((StallKind::FastRetransmit, 10 * MS)), ..RING };
        let mut lossy = ring.evidence(conduct, MS);
        stalls(&mut lossy, StallKind::FastRetransmit, 10 * MS, (0..300).map(|turn| turn * MS));
        let verdict = found(&lossy, VerdictKind::Retransmission);
        assert_eq!(verdict.is_some(), is_found, "{spurious}");
        if let Some(verdict) = verdict {
            assert!(verdict.text.starts_with("300 of 400 segments (75.0 %)"), "{}", verdict.text);
        }
    }
}

#[test]
fn a_step_of_the_clock_is_named_once() {
    let mut evidence = RING.evidence(Conduct::default(), MS);
    let step = ClockStep { before_ns: 2000 * MS, after_ns: 5000 * MS, frame: 77, by_ns: 3000 * MS as i64 };
    evidence.clock_step(0, &step);
    evidence.clock_step(0, &ClockStep { frame: 79, after_ns: 5010 * MS, ..step });
    let verdict = found(&evidence, VerdictKind::ClockStep).unwrap();
    assert!(verdict.text.contains("forward by 3.00 s before frame 77:"), "{}", verdict.text);
    assert_eq!(verdict.frames.numbers, [77]);
    assert_eq!(found(&RING.evidence(Conduct::default(), MS), VerdictKind::ClockStep), None);
}

/// Messages whose time stamps show that they waited on the path: their number, the mean wait and its spread, nanoseconds.
fn waited(count: u64, mean_ns: u64, spread_ns: u64) -> Transit {
    let mut transit = Transit::default();
    for number in 0..count {
        let wait_ns = if number.is_multiple_of(2) { mean_ns - spread_ns } else { mean_ns + spread_ns };
        transit.add(wait_ns, true, 7);
    }
    transit
}

#[test]
fn messages_that_wait_behind_other_traffic_show_a_queue() {
    let ring = Ring { took_ns: 120 * MS, wait: Some((StallKind::QueuedOnPath, 90 * MS)), ..RING };
    let of = |transit| {
        found(&ring.evidence(Conduct { transit, ..Conduct::default() }, 10 * MS), VerdictKind::Bufferbloat)
    };
    let verdict = of(waited(60, 90 * MS, 30 * MS)).unwrap();
    assert_eq!(verdict.frames.numbers, [7]);
    assert!(verdict.text.starts_with("60 of 60 messages of the server waited 90.0 ms"), "{}", verdict.text);
    // Few; less than twice the round trip; all alike, as behind a clock that was set.
    for transit in [waited(10, 90 * MS, 30 * MS), waited(60, 15 * MS, 5 * MS), waited(60, 90 * MS, MS)] {
        assert_eq!(of(transit), None, "{transit:?}");
    }
    // Both directions alike.
    let transit = waited(60, 90 * MS, 30 * MS);
    let mut evidence = ring.evidence(Conduct { transit, ..Conduct::default() }, 10 * MS);
    evidence.connection(
        0,
        &ConnectionFacts {
            client_conduct: Conduct { transit, ..Conduct::default() },
            ..facts(0, 1000, Conduct { transit, ..Conduct::default() })
        },
    );
    assert_eq!(found(&evidence, VerdictKind::Bufferbloat), None);
}

/// A connection that begins at this time, milliseconds.
fn facts(connection: u32, began_ms: u64, server_conduct: Conduct) -> ConnectionFacts {
    ConnectionFacts {
        setup: record::Setup::default(),
        connection,
        client: "10.0.0.1:5000".parse().unwrap(),
        server: "10.0.0.2:80".parse().unwrap(),
        protocol: "turns",
        undecoded: None,
        tls: None,
        packets: 1000,
        bytes: 100_000,
        began_ns: began_ms * MS,
        ended_ns: (began_ms + 5000) * MS,
        handshake_ns: Some((20_000, 10 * MS)),
        ttl: (64, 64),
        exchanges: 10,
        in_flight_ns: 0,
        client_conduct: Conduct::default(),
        server_conduct,
        duplicates: 0,
        has_ended: false,
        both_directions: true,
    }
}

/// Where none of a sender's data arrives, one connection cannot tell a hole for large segments from a path that is down.
#[test]
fn data_that_vanishes_on_connection_after_connection_is_in_a_black_hole() {
    // When connections begin, and the largest segment that arrives on another one.
    let cases: [(&[u64], u32, bool); 4] = [
        (&[1000, 3000, 6000], 0, true),
        (&[1000], 0, false),
        (&[1000, 1001, 1002], 0, false),
        (&[1000, 3000, 6000], 1400, false),
    ];
    for (begins_ms, arrived_max_bytes, is_found) in cases {
        let ring = Ring { wait: Some((StallKind::BlackHole, 20 * MS)), ..RING };
        let mut evidence = ring.evidence(Conduct { arrived_max_bytes, ..Conduct::default() }, MS);
        for (number, &began_ms) in begins_ms.iter().enumerate() {
            let connection = number as u32 + 1;
            let conduct = Conduct { vanished: 1, retransmitted: 4, segments: 1, ..Conduct::default() };
            evidence.connection(0, &facts(connection, began_ms, conduct));
            let stall = Stall {
                connection,
                kind: StallKind::BlackHole,
                sender: Side::Server,
                wait_ns: 3000 * MS,
                time_ns: (began_ms + 4000) * MS,
                frames: [1, 2, 3],
                segment_bytes: 1350,
                seq: 0,
            };
            evidence.stall(0, &stall);
        }
        let verdict = found(&evidence, VerdictKind::PathMtuBlackHole);
        assert_eq!(verdict.is_some(), is_found, "{begins_ms:?} {arrived_max_bytes}");
    }
}

/// A window that was full is no coincidence, and a connection may be idle for most of its time.
#[test]
fn few_full_windows_count_where_operations_wait_for_them() {
    for (waits, wait_ns, is_found) in [(30, 15 * MS, true), (2, 15 * MS, false), (30, MS, false)] {
        let ring = Ring { thought_ns: 500 * MS, wait: Some((StallKind::WindowFull, wait_ns)), ..RING };
        let conduct = Conduct { window_waits: waits, window_wait_ns: waits * wait_ns, ..Conduct::default() };
        let verdict = found(&ring.evidence(conduct, MS), VerdictKind::WindowLimited);
        assert_eq!(verdict.is_some(), is_found, "{waits} {wait_ns}");
    }
}

#[test]
fn bodies_that_wait_in_vain_for_100_continue_are_named() {
    let kind = StallKind::ContinueAwaited;
    for (count, is_found) in [(2, false), (20, true)] {
        let ring = Ring { count: 20, took_ns: 1004 * MS, wait: Some((kind, 1000 * MS)), ..RING };
        let mut evidence = ring.evidence(Conduct::default(), MS);
        stalls(&mut evidence, kind, 1000 * MS, (0..count).map(|turn| turn * 1004 * MS));
        let verdict = found(&evidence, VerdictKind::ContinueUnanswered);
        assert_eq!(verdict.is_some(), is_found, "{count}");
        if let Some(verdict) = verdict {
            assert!(verdict.text.contains("after 1.00 s") && verdict.cost_us == 20e6, "{verdict:?}");
            assert!(verdict.gain.unwrap().throughput_factor > 200.0);
        }
    }
}

/// A window of flow control is too small if its waits are round trips; longer ones are the receiver's own time.
#[test]
fn windows_of_flow_control_that_cost_round_trips() {
    let kind = StallKind::FlowControl;
    for (count, wait_ns, trip_ns, is_found) in [
        (200, 15 * MS, 10 * MS, true),
        (200, 45 * MS, 10 * MS, false),
        (200, 15 * MS, 0, false),
        (2, 15 * MS, 10 * MS, false),
    ] {
        let ring = Ring { took_ns: 50 * MS, wait: Some((kind, wait_ns)), ..RING };
        let mut evidence = ring.evidence(Conduct::default(), trip_ns);
        stalls(&mut evidence, kind, wait_ns, (0..count).map(|turn| turn * 50 * MS));
        let verdict = found(&evidence, VerdictKind::FlowControlWindow);
        assert_eq!(verdict.is_some(), is_found, "{count} {wait_ns} {trip_ns}");
    }
}
