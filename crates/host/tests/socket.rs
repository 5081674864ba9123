//! Sockets of programs: the rules about them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use host::check::findings;
use host::facts::Facts;
use host::facts::socket::{
    AcceptQueue, Buffers, Counters, Ends, Owner, SocketFacts, SocketOptions, SocketState, Transfer,
    WatchedTransfer,
};
use host::finding::{Finding, Severity};
use proptest::prelude::*;

/// A server that answers in two small writes under Nagle's algorithm, watched for 0.3 s: 7 exchanges of 44 ms.
fn chatty() -> SocketFacts {
    SocketFacts {
        ends: Ends { local: "10.0.0.1:8000".parse().unwrap(), peer: "10.0.0.2:51514".parse().ok() },
        owners: vec![Owner { pid: 4711, fd: 5, program: "python3".to_owned() }],
        options: Some(SocketOptions {
            nagle: true,
            send_buffer_locked: Some(false),
            receive_buffer_locked: Some(false),
            ..SocketOptions::default()
        }),
        buffers: Buffers {
            send_bytes: 87_040,
            receive_bytes: 131_072,
            queued_bytes: 600,
            unsent_bytes: 512,
            ..Buffers::default()
        },
        transfer: Some(Transfer {
            mss_bytes: 1448,
            rtt_us: Some(20_000),
            rtt_min_us: Some(50),
            congestion_window_segments: 10,
            peer_window_bytes: Some(65_536),
            idle_send_ms: Some(12),
            idle_receive_ms: Some(12),
            ..Transfer::default()
        }),
        watched: Some(WatchedTransfer {
            duration_us: 308_000,
            readings: 30,
            held_behind_data: 29,
            counters: Counters {
                bytes_sent: 7 * 600,
                bytes_received: 7 * 80,
                data_segments_out: 14,
                data_segments_in: 7,
                busy_us: 300_000,
                ..Counters::default()
            },
            ..WatchedTransfer::default()
        }),
        ..SocketFacts::default()
    }
}

/// A connection that copies in bulk, without a fault.
fn bulk() -> SocketFacts {
    but(chatty(), |s| {
        transfer(s).rtt_min_us = Some(10_000);
        transfer(s).rtt_receiver_us = Some(10_000);
        *watched(s) = WatchedTransfer {
            duration_us: 300_000,
            readings: 30,
            counters: Counters {
                bytes_sent: 144_800_000,
                bytes_received: 100_000_000,
                data_segments_out: 100_000,
                data_segments_in: 100_000,
                busy_us: 300_000,
                ..Counters::default()
            },
            ..WatchedTransfer::default()
        };
    })
}

fn judged(sockets: Vec<SocketFacts>) -> Vec<Finding> {
    findings(&Facts { sockets, ..Facts::default() })
}

fn ids(sockets: Vec<SocketFacts>) -> Vec<String> {
    judged(sockets).into_iter().map(|finding| finding.id).collect()
}

/// The facts of a connection with a change.
fn but(mut socket: SocketFacts, change: impl FnOnce(&mut SocketFacts)) -> SocketFacts {
    change(&mut socket);
    socket
}

fn watched(socket: &mut SocketFacts) -> &mut WatchedTransfer {
    socket.watched.as_mut().unwrap()
}

fn transfer(socket: &mut SocketFacts) -> &mut Transfer {
    socket.transfer.as_mut().unwrap()
}

fn options(socket: &mut SocketFacts) -> &mut SocketOptions {
    socket.options.as_mut().unwrap()
}

#[test]
fn nagle_between_two_small_writes_is_found_with_its_cost_and_its_command() {
    let found = judged(vec![chatty()]);
    assert_eq!(found.len(), 1, "{found:?}");
    let finding = &found[0];
    assert_eq!((finding.id.as_str(), finding.severity), ("nagle-on-small-messages", Severity::Slow));
    assert_eq!(finding.subject, "10.0.0.1:8000 -> 10.0.0.2:51514 (python3, pid 4711, fd 5)");
    // 29 of 30 readings of 308 ms, for 7 exchanges.
    let cost = finding.cost.unwrap().us_per_round_trip.unwrap();
    assert!((cost - 29.0 / 30.0 * 308_000.0 / 7.0).abs() < 1e-6, "{cost}");
    assert!(finding.measured.contains("in 29 of 30 readings, 42.5 ms per exchange"), "{}", finding.measured);
    assert!(
        finding.measured.contains("14 segments of 300 bytes sent for 7 received"),
        "{}",
        finding.measured
    );
    assert_eq!(finding.commands, ["roundtrip host socket --pid 4711 --fd 5 nodelay=on --apply"]);
}

#[test]
fn nagle_is_no_finding_where_it_delays_nothing() {
    let healthy: [fn(&mut SocketFacts); 9] = [
        // TCP_NODELAY is set: what waits has another cause.
        |s| options(s).nagle = false,
        // Nagle's state is not known.
        |s| s.options = None,
        // Responses of one write: nothing waits.
        |s| watched(s).held_behind_data = 0,
        // Once by chance.
        |s| watched(s).held_behind_data = 2,
        // Idle: not watched.
        |s| s.watched = None,
        // A bulk copy: full segments, with an odd end.
        |s| {
            watched(s).counters.bytes_sent = 1_400 * 100_000;
            watched(s).counters.data_segments_out = 100_000;
        },
        // One direction only: no program waits for an answer.
        |s| watched(s).counters.data_segments_in = 0,
        // Pipelined requests: a response waits for microseconds, and leaves together with others.
        |s| {
            watched(s).counters.data_segments_in = 5_000;
            watched(s).counters.data_segments_out = 5_000;
        },
        // A cork holds it, not Nagle's algorithm.
        |s| options(s).corked = true,
    ];
    for (index, change) in healthy.into_iter().enumerate() {
        let found = ids(vec![but(chatty(), change)]);
        assert!(found.is_empty(), "{index}: {found:?}");
    }
}

#[test]
fn connections_of_one_server_are_one_finding_that_names_the_worst() {
    let others = (1..=20_u16).map(|i| {
        but(chatty(), |s| {
            s.ends.peer = format!("10.0.0.2:{}", 40_000 + i).parse().ok();
            watched(s).held_behind_data = if i == 13 { 30 } else { 20 };
        })
    });
    let found = judged(others.collect());
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(found[0].subject.contains("10.0.0.2:40013"), "{}", found[0].subject);
    assert!(found[0].measured.ends_with("; 19 more connections of port 8000"), "{}", found[0].measured);
}

#[test]
fn held_data_with_nothing_in_flight_is_a_cork() {
    let corked = but(chatty(), |s| {
        options(s).nagle = false;
        options(s).corked = true;
        watched(s).held_behind_data = 0;
        watched(s).held_alone = 20;
    });
    let found = judged(vec![corked.clone()]);
    assert_eq!(found[0].id, "corked");
    assert_eq!(found[0].commands, ["roundtrip host socket --pid 4711 --fd 5 cork=off --apply"]);
    let measured = "512 bytes unsent with nothing in flight in 20 of 30 readings; TCP_CORK is set";
    assert_eq!(found[0].measured, measured);
    // 20 of 30 readings of 308 ms, for 7 exchanges.
    let cost = found[0].cost.unwrap().us_per_round_trip.unwrap();
    assert!((cost - 20.0 / 30.0 * 308_000.0 / 7.0).abs() < 1e-6, "{cost}");
    let more = judged(vec![but(corked.clone(), |s| options(s).corked = false)]);
    assert!(more[0].measured.ends_with("so the last write had MSG_MORE"), "{more:?}");
    assert!(more[0].commands.is_empty());
    // Corked while a message is built.
    assert!(ids(vec![but(corked, |s| watched(s).held_alone = 2)]).is_empty());
}

#[test]
fn a_fixed_send_buffer_that_limits_is_found_and_an_autotuned_one_is_not() {
    let limited = but(bulk(), |s| {
        options(s).send_buffer_locked = Some(true);
        s.buffers.send_bytes = 32_768;
        watched(s).counters.send_buffer_limited_us = 150_000;
    });
    let found = judged(vec![limited.clone()]);
    assert_eq!(found[0].id, "send-buffer-limited");
    assert!(found[0].measured.contains("50 % of its busy time while it was watched"), "{found:?}");
    assert!(found[0].measured.ends_with("fixed at 16384 bytes"), "{found:?}");
    // 16 KiB per 10 ms.
    assert_eq!(found[0].cost.unwrap().bits_per_second_at_most, Some(16_384.0 * 8.0 * 100.0));
    assert!(found[0].commands[0].contains("sndbuf=4194304"), "{found:?}");
    assert!(ids(vec![bulk()]).is_empty());
    let healthy: [fn(&mut SocketFacts); 4] = [
        |s| options(s).send_buffer_locked = Some(false),
        |s| options(s).send_buffer_locked = None,
        |s| watched(s).counters.send_buffer_limited_us = 30_000,
        |s| transfer(s).idle_send_ms = Some(60_000),
    ];
    for change in healthy {
        assert!(ids(vec![but(limited.clone(), change)]).is_empty());
    }
}

#[test]
fn a_fixed_receive_buffer_that_is_filled_each_round_trip_is_found() {
    let limited = but(bulk(), |s| {
        options(s).receive_buffer_locked = Some(true);
        s.buffers.receive_bytes = 32_768;
        transfer(s).read_per_round_trip_bytes = 16_000;
    });
    let found = judged(vec![limited.clone()]);
    assert_eq!(found[0].id, "receive-buffer-limited");
    assert_eq!(found[0].cost.unwrap().bits_per_second_at_most, Some(16_384.0 * 8.0 * 100.0));
    assert!(
        found[0].measured.contains("16384 bytes") && found[0].measured.contains("16000 bytes"),
        "{found:?}"
    );
    let healthy: [fn(&mut SocketFacts); 5] = [
        |s| options(s).receive_buffer_locked = Some(false),
        |s| transfer(s).read_per_round_trip_bytes = 4_000,
        |s| transfer(s).idle_receive_ms = Some(60_000),
        // The program is the limit.
        |s| s.buffers.unread_bytes = 15_000,
        |s| watched(s).counters.bytes_received = 20_000,
    ];
    for change in healthy {
        assert!(ids(vec![but(limited.clone(), change)]).is_empty());
    }
}

#[test]
fn a_window_of_the_peer_that_limits_is_noted_except_between_programs_of_one_host() {
    let limited = but(bulk(), |s| watched(s).counters.window_limited_us = 200_000);
    let found = judged(vec![limited.clone()]);
    assert_eq!((found[0].id.as_str(), found[0].severity), ("peer-window-limited", Severity::Note));
    assert!(
        found[0].measured.contains("67 % of its busy time") && found[0].measured.contains("65536 bytes"),
        "{found:?}"
    );
    assert_eq!(found[0].cost.unwrap().bits_per_second_at_most, Some(65_536.0 * 8.0 * 100.0));
    assert!(ids(vec![but(limited.clone(), |s| watched(s).counters.window_limited_us = 100_000)]).is_empty());
    for address in ["127.0.0.1:8000", "[::1]:8000", "[::ffff:127.0.0.1]:8000"] {
        let local = but(limited.clone(), |s| s.ends.local = address.parse().unwrap());
        assert!(ids(vec![local]).is_empty(), "{address}");
    }
}

#[test]
fn a_window_that_stays_closed_is_found() {
    let closed = but(bulk(), |s| {
        watched(s).window_closed = 30;
        s.buffers.unsent_bytes = 70_000;
    });
    let found = judged(vec![closed.clone()]);
    assert_eq!(found[0].id, "zero-window");
    let measured = "the peer's window was closed in all 30 readings of 0.3 s, with 70000 bytes waiting";
    assert_eq!(found[0].measured, measured);
    assert!(ids(vec![but(closed, |s| watched(s).window_closed = 29)]).is_empty());
}

#[test]
fn retransmissions_are_found_from_one_percent() {
    let lossy = but(bulk(), |s| {
        watched(s).counters.retransmitted_segments = 2_000;
        watched(s).counters.duplicates_reported = 100;
    });
    let found = judged(vec![lossy.clone()]);
    assert_eq!(found[0].id, "retransmissions");
    let measured =
        "2000 of 100000 segments sent again while it was watched (2.0 %), 100 of them without a loss";
    assert_eq!(found[0].measured, measured);
    assert!(found[0].why.starts_with("Segments are lost"));
    let needless = but(lossy.clone(), |s| watched(s).counters.duplicates_reported = 1_900);
    assert!(judged(vec![needless])[0].why.starts_with("The peer had most"));
    assert!(ids(vec![but(lossy.clone(), |s| watched(s).counters.retransmitted_segments = 900)]).is_empty());
    // Long ago: an idle connection.
    let idle = but(lossy, |s| {
        s.watched = None;
        transfer(s).idle_send_ms = Some(600_000);
        transfer(s).counters =
            Counters { retransmitted_segments: 500, data_segments_out: 1_000, ..Counters::default() };
    });
    assert!(ids(vec![idle]).is_empty());
}

#[test]
fn an_accept_queue_over_its_limit_is_found() {
    let listener = |length, limit| SocketFacts {
        state: SocketState::Listen,
        accept_queue: Some(AcceptQueue { length, limit }),
        ..SocketFacts::default()
    };
    let found = judged(vec![listener(129, 128)]);
    assert_eq!((found[0].id.as_str(), found[0].severity), ("accept-queue-full", Severity::Broken));
    assert_eq!(found[0].measured, "129 connections wait to be accepted, the limit is 128");
    // The kernel accepts one connection more than the limit says.
    assert!(ids(vec![listener(128, 128), listener(0, 0)]).is_empty());
}

/// Connections with any figures.
fn any_socket() -> impl Strategy<Value = SocketFacts> {
    let numbers = prop::collection::vec(prop_oneof![Just(0_u32), Just(u32::MAX), any::<u32>()], 24);
    (numbers, any::<[bool; 6]>()).prop_map(|(n, b)| {
        let long = |i: usize| u64::from(n[i]) << 20;
        but(chatty(), |s| {
            *options(s) = SocketOptions {
                nagle: b[0],
                corked: b[1],
                send_buffer_locked: Some(b[2]),
                receive_buffer_locked: Some(b[3]),
                ..SocketOptions::default()
            };
            s.accept_queue = b[4].then_some(AcceptQueue { length: n[0], limit: n[1] });
            s.buffers = Buffers {
                send_bytes: n[2],
                receive_bytes: n[3],
                unread_bytes: n[4],
                queued_bytes: n[5],
                unsent_bytes: n[6],
                drops: n[7],
            };
            *transfer(s) = Transfer {
                mss_bytes: n[8],
                rtt_min_us: b[5].then_some(n[9]),
                peer_window_bytes: Some(n[7]),
                read_per_round_trip_bytes: n[10],
                idle_send_ms: Some(n[11] % 20_000),
                idle_receive_ms: Some(n[12] % 20_000),
                ..Transfer::default()
            };
            *watched(s) = WatchedTransfer {
                duration_us: long(13),
                readings: n[14],
                held_behind_data: n[15],
                held_alone: n[16],
                window_closed: n[17],
                counters: Counters {
                    bytes_sent: long(18),
                    data_segments_out: long(19),
                    data_segments_in: long(20),
                    retransmitted_segments: long(21),
                    busy_us: long(22),
                    window_limited_us: long(23),
                    send_buffer_limited_us: long(23),
                    ..Counters::default()
                },
            };
        })
    })
}

proptest! {
    #[test]
    fn any_figures_give_findings_with_finite_costs(sockets in prop::collection::vec(any_socket(), 1..4)) {
        for finding in judged(sockets) {
            prop_assert!(!finding.measured.contains("NaN") && !finding.measured.contains("inf"), "{finding:?}");
            let cost = finding.cost.map(|cost| [cost.us_per_round_trip, cost.bits_per_second_at_most]);
            for value in cost.into_iter().flatten().flatten() {
                prop_assert!(value.is_finite() && value >= 0.0, "{finding:?}");
            }
        }
    }
}
