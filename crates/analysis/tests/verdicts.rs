//! Verdicts from evidence that no single machine produces on demand (cables, links, CPUs), and from insufficient
//! evidence.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, Link, Verdict, VerdictKind, judge};
use record::{
    Conduct, ConnectionFacts, Exchange, Observed, Op, OpKind, Passage, Side, Stall, StallKind, Stamp, Verb,
};

fn facts(client: Conduct, server: Conduct) -> ConnectionFacts {
    ConnectionFacts {
        connection: 0,
        client: "10.0.0.1:5000".parse().unwrap(),
        server: "10.0.0.2:3260".parse().unwrap(),
        protocol: "iscsi",
        undecoded: None,
        tls: None,
        packets: 1000,
        bytes: 1_000_000,
        began_ns: 1_000_000_000,
        ended_ns: 11_000_000_000,
        handshake_ns: Some((200_000, 10_000)),
        ttl: (64, 64),
        exchanges: 1000,
        in_flight_ns: 0,
        client_conduct: client,
        server_conduct: server,
        duplicates: 0,
        has_ended: false,
        both_directions: true,
        setup: record::Setup::default(),
    }
}

fn stall(kind: StallKind, sender: Side, wait_ms: u64, index: u64) -> Stall {
    Stall {
        connection: 0,
        kind,
        sender,
        wait_ns: wait_ms * 1_000_000,
        time_ns: 1_000_000_000 + index * 300_000_000,
        frames: [3 * index + 1, 3 * index + 2, 3 * index + 3],
        segment_bytes: 500,
        seq: 0,
    }
}

/// A closed ring of reads with this depth, round trip and client time.
fn ring_of(
    connection: u32,
    depth: u32,
    count: u64,
    round_trip_us: u64,
    client_us: u64,
    bytes: u32,
) -> Vec<Observed> {
    let cycle = (round_trip_us + client_us) * 1000;
    (0..count)
        .map(|i| {
            let start = 1_000_000_000
                + (i / u64::from(depth)) * cycle
                + i % u64::from(depth) * cycle / u64::from(depth);
            let at = |ns: u64, frame| Passage {
                began: Stamp::at(ns),
                ended: Stamp::at(ns),
                first_frame: frame,
                last_frame: frame,
            };
            let op = Op {
                connection,
                verb: Verb::Scsi(0x28),
                kind: OpKind::Read,
                queue_depth: depth,
                data_bytes: bytes,
                request_bytes: 48,
                response_bytes: 48 + bytes,
                ..Op::default()
            };
            let client = Exchange {
                op,
                ring_depth: depth,
                request: at(start, 2 * i + 1),
                response: at(start + round_trip_us * 1000, 2 * i + 2),
                thought_ns: Some(client_us * 1000),
                ..Exchange::default()
            };
            Observed::alone(Side::Client, &client)
        })
        .collect()
}

/// The same with the first `count` operations delayed by a wait of this kind.
fn delayed(mut observed: Vec<Observed>, kind: StallKind, wait_ms: u64, count: usize) -> Vec<Observed> {
    for o in observed.iter_mut().take(count) {
        let later = |stamp: Stamp| Stamp::at(stamp.ns().unwrap() + wait_ms * 1_000_000);
        o.detail.response.ended = later(o.detail.response.ended);
        o.op.c2 = later(o.op.c2);
        o.detail.stalls.insert(kind, Side::Server, wait_ms * 1_000_000);
    }
    observed
}

struct World {
    evidence: Evidence,
    traffic: Traffic,
    link: Option<Link>,
    cpu_busy: Option<(f64, f64)>,
    loss: CaptureLoss,
}

impl World {
    fn of(observed: &[Observed]) -> Self {
        let (mut evidence, mut traffic) = (Evidence::default(), Traffic::default());
        for o in observed {
            evidence.observed(o);
            traffic.add(o);
        }
        Self { evidence, traffic, link: None, cpu_busy: None, loss: CaptureLoss::default() }
    }

    fn judge(&self) -> Vec<Verdict> {
        let wire_us = |request: f64, response: f64| (request + response) * 0.008;
        let stanzas = self.traffic.stanzas(self.link.is_some().then_some(&wire_us));
        let case = Case {
            evidence: &self.evidence,
            stanzas: &stanzas,
            link: self.link,
            cpu_busy: self.cpu_busy,
            loss: self.loss,
            inputs: &[0],
        };
        judge(&case).verdicts
    }

    #[track_caller]
    fn only(&self, kind: VerdictKind) -> Verdict {
        let verdicts = self.judge();
        assert_eq!(verdicts.iter().map(|v| v.kind).collect::<Vec<_>>(), [kind], "{verdicts:#?}");
        assert!(!verdicts[0].remedy.is_empty());
        verdicts[0].clone()
    }
}

#[test]
fn losses_that_come_only_against_traffic_are_a_duplex_mismatch_and_others_are_not() {
    let conduct = |against| Conduct {
        segments: 10_000,
        against_traffic: 3000,
        retransmitted: 300,
        retransmitted_against_traffic: against,
        ..Conduct::default()
    };
    let reads = delayed(ring_of(0, 1, 1000, 300, 20, 4096), StallKind::FastRetransmit, 3, 300);
    let mut world = World::of(&reads);
    for i in 0..300 {
        world.evidence.stall(0, &stall(StallKind::FastRetransmit, Side::Client, 3, i));
    }
    world.evidence.connection(0, &facts(conduct(295), Conduct::default()));
    let verdict = world.only(VerdictKind::DuplexMismatch);
    assert!(verdict.text.contains("half duplex"), "{}", verdict.text);
    let reads = delayed(ring_of(0, 1, 1000, 300, 20, 4096), StallKind::FastRetransmit, 3, 300);
    let mut world = World::of(&reads);
    for i in 0..300 {
        world.evidence.stall(0, &stall(StallKind::FastRetransmit, Side::Client, 3, i));
    }
    world.evidence.connection(0, &facts(conduct(90), Conduct::default()));
    world.only(VerdictKind::Retransmission);
}

#[test]
fn a_few_losses_in_a_million_are_nothing() {
    let mut world = World::of(&ring_of(0, 1, 1000, 300, 20, 4096));
    world.evidence.stall(0, &stall(StallKind::FastRetransmit, Side::Server, 3, 1));
    let conduct = Conduct { segments: 1_000_000, retransmitted: 2, ..Conduct::default() };
    world.evidence.connection(0, &facts(Conduct::default(), conduct));
    assert_eq!(world.judge(), []);
}

#[test]
fn a_link_is_full_or_could_take_more() {
    let gigabit = Some(Link { bits_per_second: 1e9, efficiency: 0.95, passed: [0.95; 2] });
    // 64 KiB every 560 us: 117 MB/s.
    let mut world = World::of(&ring_of(0, 4, 4000, 2200, 40, 65_536));
    world.link = gigabit;
    world.only(VerdictKind::LinkFull);
    // A client that fills the link waits for it and is not slow; without the rate it may wait by design.
    let mut world = World::of(&ring_of(0, 4, 4000, 240, 2000, 65_536));
    assert_eq!(world.judge(), []);
    world.link = gigabit;
    world.only(VerdictKind::LinkFull);
    // The same link at queue depth 1: 64 KiB in 2 ms. The server may need them.
    let mut world = World::of(&ring_of(0, 1, 1000, 1990, 10, 65_536));
    world.link = gigabit;
    assert!(world.judge().iter().all(|v| v.kind != VerdictKind::QueueDepthLow));
    // The way is long.
    let far = facts(Conduct { ack_min_ns: 1_900_000, ..Conduct::default() }, Conduct::default());
    world.evidence.connection(0, &ConnectionFacts { handshake_ns: Some((1_900_000, 10_000)), ..far });
    let verdict = world.judge().into_iter().find(|v| v.kind == VerdictKind::QueueDepthLow).unwrap();
    assert!(verdict.text.contains("4 would fill it"), "{}", verdict.text);
    assert!((3.0..4.0).contains(&verdict.gain.unwrap().throughput_factor));
    // A link of unknown rate gets no verdict.
    world.link = None;
    assert!(world.judge().iter().all(|v| v.kind != VerdictKind::QueueDepthLow));
}

/// A client that waits 5 ms between a response and its next request may do so by design: a poll, a schedule, a user.
#[test]
fn pauses_alone_are_no_slow_client() {
    let mut reads = ring_of(0, 1, 100, 300, 5000, 4096);
    reads.extend(ring_of(1, 1, 50, 300, 5000, 4096));
    assert_eq!(World::of(&reads).judge(), []);
}

#[test]
fn a_ring_that_more_depth_does_not_make_faster_is_saturated() {
    let mut observed = ring_of(0, 1, 1000, 90, 10, 512);
    observed.extend(ring_of(1, 16, 4000, 150, 10, 512));
    observed.extend(ring_of(2, 128, 8000, 1270, 10, 512));
    let world = World::of(&observed);
    let verdict = world.only(VerdictKind::CpuBound);
    assert!(verdict.text.contains("the server is busy"), "{}", verdict.text);
    assert!(verdict.gain.unwrap().text.contains("queue depth of 16"));
    let mut busy = World::of(&ring_of(0, 1, 1000, 90, 10, 512));
    busy.cpu_busy = Some((0.4, 0.97));
    assert!(busy.only(VerdictKind::CpuBound).text.contains("server's CPU is busy 97 %"));
    busy.cpu_busy = Some((0.4, 0.7));
    assert_eq!(busy.judge(), []);
}

/// A message each second, whatever is acknowledged then: no acknowledgement may be delayed for half a second.
#[test]
fn a_heartbeat_waits_for_no_delayed_acknowledgement() {
    let kind = VerdictKind::NagleDelayedAck;
    for (wait_ms, is_held) in [(40, true), (200, true), (1000, false)] {
        let mut world = World::of(&delayed(
            ring_of(0, 1, 60, 1_001_000, 20, 64),
            StallKind::NagleBetweenMessages,
            wait_ms,
            60,
        ));
        for i in 0..60 {
            let spread = wait_ms / 10 * (i % 3);
            world
                .evidence
                .stall(0, &stall(StallKind::NagleBetweenMessages, Side::Client, wait_ms + spread, i));
        }
        let conduct = Conduct { segments: 60, pauses: 60, ..Conduct::default() };
        world.evidence.connection(0, &facts(conduct, Conduct::default()));
        assert_eq!(world.judge().iter().any(|verdict| verdict.kind == kind), is_held, "{wait_ms}");
    }
}

#[test]
fn chance_gives_no_verdict() {
    // Two holds between messages, and many pauses without one.
    let mut world = World::of(&ring_of(0, 1, 1000, 300, 20, 4096));
    for i in 0..5 {
        world.evidence.stall(0, &stall(StallKind::NagleBetweenMessages, Side::Client, 44, i));
    }
    let conduct = Conduct { segments: 1000, pauses: 100, ..Conduct::default() };
    world.evidence.connection(0, &facts(conduct, Conduct::default()));
    // Responses between 198 and 225 ms, scattered like those of a disk.
    for i in 0..20 {
        world.evidence.stall(0, &stall(StallKind::CorkedAnswer, Side::Server, 199 + i, i));
    }
    assert_eq!(world.judge(), []);
}

#[test]
fn a_verdict_names_its_cost_frames_and_gain() {
    let reads = delayed(ring_of(0, 1, 200, 300, 20, 4096), StallKind::NagleWithinMessage, 40, 150);
    let mut world = World::of(&reads);
    for i in 0..150 {
        world.evidence.stall(0, &stall(StallKind::NagleWithinMessage, Side::Client, 40, i));
    }
    world
        .evidence
        .connection(0, &ConnectionFacts { exchanges: 200, ..facts(Conduct::default(), Conduct::default()) });
    let verdict = world.only(VerdictKind::NagleDelayedAck);
    assert!((verdict.cost_us - 6e6).abs() < 1.0);
    assert_eq!((verdict.operations, verdict.share), (150, 0.75));
    assert_eq!(verdict.frames.numbers[..4], [1, 2, 3, 4]);
    // 30.3 ms and 20 us of the client, of which 30 ms are lost; hosts that do not sleep are taken to be twice as fast.
    let gain = verdict.gain.unwrap();
    assert!((gain.throughput_least - 30.32 / 0.32).abs() < 0.1, "{gain:?}");
    assert!(gain.throughput_factor < 2.0 * gain.throughput_least, "{gain:?}");
    let (now, then) = gain.operation_us.unwrap();
    let most = gain.operation_most_us.unwrap();
    assert!((now - 30_310.0).abs() < 1.0 && (most - 310.0).abs() < 1.0 && then >= 150.0, "{gain:?}");
}

#[test]
fn a_capture_that_lost_packets_says_so() {
    let mut world = World::of(&ring_of(0, 1, 200, 300, 20, 4096));
    world.loss = CaptureLoss { holes: 3, hole_bytes: 5000, operations: 2, unknown_holes: 1, drops: 7 };
    let verdict = world.only(VerdictKind::CaptureLoss);
    assert_eq!(verdict.operations, 2);
}

/// A server's capture point before a link of 100 Mb/s: what the link needs for a response is no time of the client's, and waits
/// count beside the cycle. At the client's point the same time is the client's.
#[test]
fn the_link_s_own_time_behind_a_server_s_capture_point_is_not_the_client_s() {
    let link = Some(Link { bits_per_second: 1e8, efficiency: 0.95, passed: [0.95; 2] });
    let reads = || ring_of(0, 1, 250, 20, 725, 4096);
    for (handshake_ns, is_named) in [((10_000, 376_000), true), ((376_000, 10_000), false)] {
        for observed in [reads(), delayed(reads(), StallKind::AckWait, 1, 20)] {
            let mut world = World::of(&observed);
            world.link = link;
            let facts = facts(Conduct::default(), Conduct::default());
            let facts = ConnectionFacts { handshake_ns: Some(handshake_ns), ..facts };
            world.evidence.connection(0, &facts);
            let is_low = world.judge().iter().any(|verdict| verdict.kind == VerdictKind::QueueDepthLow);
            assert_eq!(is_low, is_named, "{handshake_ns:?}");
        }
    }
}

/// Of 400 operations TCP makes 300 wait 200 ms. Twelve without such a wait take as long: it was not recognised, and the server did
/// not pause. Twelve that take much longer are pauses.
#[test]
fn a_wait_of_tcp_that_was_not_recognised_is_no_pause() {
    for (ms, is_pause) in [(230, false), (1500, true)] {
        let mut observed = delayed(ring_of(0, 1, 400, 100, 2_000_000, 4096), StallKind::AckWait, 200, 300);
        for slow in observed.iter_mut().skip(388) {
            let ended = slow.detail.response.ended.ns().unwrap() + ms * 1_000_000;
            (slow.detail.response.began, slow.detail.response.ended) = (Stamp::at(ended), Stamp::at(ended));
        }
        let of_server = [VerdictKind::RareStalls, VerdictKind::SlowTarget];
        let said = World::of(&observed).judge();
        let is_named = said.iter().any(|verdict| of_server.contains(&verdict.kind));
        assert_eq!(is_named, is_pause, "{ms}: {said:?}");
    }
}
