//! Invariants of every run: bytes and operations are neither created nor lost, every nanosecond is accounted for, and the
//! same seed gives the same run.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::HashMap;

use policy::SendPolicy;
use proptest::prelude::*;
use record::{Side, Writes};
use tcpsim::setup::{Host, Message};
use tcpsim::{Frame, Observer, Profile, Setup, SimOp, simulate};

/// Checks all events of a run.
#[derive(Default)]
struct Witness {
    queue_depth: u32,
    ops: Vec<SimOp>,
    /// Operations in flight, by session.
    open: HashMap<u32, i64>,
    /// Tags in the order of their requests, by session.
    order: HashMap<u32, Vec<u32>>,
    ended: HashMap<u32, usize>,
    /// New bytes that each end sent, and the bytes that it acknowledged.
    sent: HashMap<(u32, Side), u64>,
    acked: HashMap<(u32, Side), u64>,
}

impl Observer for Witness {
    const FRAMES: bool = true;

    fn op(&mut self, op: &SimOp) {
        let session = op.op.connection;
        let open = self.open.get_mut(&session).unwrap();
        *open -= 1;
        assert!(*open < i64::from(self.queue_depth));
        let ended = self.ended.entry(session).or_default();
        assert_eq!(self.order[&session][*ended], op.op.tag, "first in, first out");
        *ended += 1;
        let rtt = op.op.finish.since(op.op.start).unwrap();
        assert_eq!(op.sum_ns() as i64, rtt, "{op:?}");
        let stamps = [op.op.start, op.op.c1, op.op.s1, op.op.s2, op.op.c2, op.op.finish];
        assert!(stamps.windows(2).all(|pair| pair[0] <= pair[1]), "{:?}", op.op);
        self.ops.push(*op);
    }

    fn message(&mut self, message: &tcpsim::Message) {
        if message.sender == Side::Client {
            let open = self.open.entry(message.session).or_default();
            *open += 1;
            assert!(*open <= i64::from(self.queue_depth), "no more than the depth");
            self.order.entry(message.session).or_default().push(message.tag);
        }
    }

    fn frame(&mut self, frame: &Frame) {
        if frame.point != frame.sender {
            return;
        }
        let (key, segment) = ((frame.session, frame.sender), frame.segment);
        let sent = self.sent.entry(key).or_default();
        if segment.retransmitted {
            assert!(segment.end() <= *sent, "retransmitted, but never sent: {frame:?}");
        } else if segment.bytes > 0 {
            assert_eq!(segment.seq, *sent, "new bytes follow the ones before");
            *sent = segment.end();
        }
        let acked = self.acked.entry(key).or_default();
        assert!(segment.ack >= *acked, "acknowledgements only grow");
        *acked = segment.ack;
        let other = self.sent.get(&(frame.session, frame.sender.peer())).copied().unwrap_or(0);
        assert!(segment.ack <= other, "nothing is acknowledged that was not sent");
    }
}

fn pattern() -> impl Strategy<Value = Writes> {
    prop_oneof![
        3 => Just(Writes::One),
        1 => Just(Writes::Apart),
        1 => Just(Writes::More),
        1 => Just(Writes::MoreUnfinished),
        1 => Just(Writes::Cork),
        1 => Just(Writes::CorkUnfinished),
    ]
}

prop_compose! {
    fn host()(
        (service, send, receive, start) in (0_u64..20_000, 0_u64..3_000, 0_u64..3_000, 0_u64..60_000),
        (softirq, transmit, interrupt) in (0_u64..4_000, 0_u64..6_000, 0_u64..90_000),
        moderation in (0_u64..150_000, 0_u64..60_000, 0_u32..5),
        (wire_start, transmits_apart) in (0_u64..20_000, any::<bool>()),
        (softirq_cpu, thread_cpus) in (0_usize..2, 1_usize..3),
        pattern in pattern(),
        (event_loop, wait) in (any::<bool>(), 0_u64..3_000),
        profile in 0_usize..4,
        buffers in (12_u32..20, 12_u32..20),
        (offload_segments, initial_window) in (1_u32..20, 1_u32..20),
        receive_bytes in prop_oneof![Just(262_144_u64), 100_u64..5_000],
    ) -> Host {
        let (interrupt_gap, interrupt_delay, interrupt_frames) = moderation;
        Host {
            service, send, receive, start, softirq, transmit, interrupt, interrupt_gap, interrupt_delay,
            interrupt_frames, wire_start, transmits_apart, softirq_cpu, thread_cpus, pattern,
            tcp: Profile::ALL[profile],
            send_buffer: 1 << buffers.0,
            receive_buffer: 1 << buffers.1,
            offload_segments, initial_window, receive_bytes, event_loop, wait,
            ..Host::default()
        }
    }
}

prop_compose! {
    fn setup()(
        (queue_depth, sessions) in (1_u32..40, 1_u32..7),
        request in (1_u32..200, prop_oneof![3 => Just(0_u64), 1 => 0_u64..20_000]),
        response in (1_u32..200, prop_oneof![Just(0_u64), 0_u64..40_000]),
        second in prop_oneof![Just(None), (1_u64..40_000).prop_map(Some)],
        policy in 0_usize..5,
        flush in any::<bool>(),
        (client, server) in (host(), host()),
        load in (any::<bool>(), any::<bool>(), 0_u64..100_000),
        wire in (prop_oneof![Just(0_u64), Just(1_000_000_000), Just(100_000_000)], 576_u32..9_001, 0_u64..200_000),
        trouble in prop_oneof![3 => Just((0.0, 0.0)), 1 => (0.0..0.05, 0.0..0.2)],
        queue in prop_oneof![Just(0_u64), Just(30_000_u64)],
        (jitter, disturbed) in (0.0..0.5, prop_oneof![Just(0.0), Just(0.05)]),
        seed in any::<u64>(),
    ) -> Setup {
        let mut setup = Setup {
            queue_depth, sessions,
            request: Message { header: request.0, data: request.1 },
            response: Message { header: response.0, data: response.1 },
            policy: SendPolicy::ALL[policy],
            second_response: second.filter(|_| response.1 > 0),
            flush, client, server, jitter, disturbed, seed,
            operations: 400, warm_up: 20, time_limit: 100_000_000_000_000,
            ..Setup::default()
        };
        (setup.load.batch, setup.load.nagle, setup.load.stagger) = load;
        (setup.wire.bandwidth, setup.wire.mtu, setup.wire.delay) = wire;
        (setup.wire.loss, setup.wire.reorder, setup.wire.queue) = (trouble.0, trouble.1, queue);
        setup
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn bytes_and_operations_are_neither_created_nor_lost(setup in setup()) {
        setup.check().unwrap();
        let mut witness = Witness { queue_depth: setup.queue_depth, ..Witness::default() };
        let result = simulate(&setup, &mut witness);
        // Losses on the wire delay the ring and do not stop it.
        prop_assert!(result.is_complete, "{result:?}");
        prop_assert_eq!(result.operations, setup.operations);
        let mut again = Witness { queue_depth: setup.queue_depth, ..Witness::default() };
        prop_assert_eq!(simulate(&setup, &mut again), result);
        prop_assert!(witness.ops.iter().zip(&again.ops).all(|(a, b)| a.op == b.op && a.request == b.request));
    }
}

#[test]
fn throughput_times_round_trip_is_the_queue_depth_in_a_steady_state() {
    for policy in SendPolicy::ALL {
        for queue_depth in [1, 7, 32] {
            let setup = Setup { policy, queue_depth, operations: 20_000, ..Setup::default() };
            let result = simulate(&setup, &mut ());
            let closure = result.iops * result.rtt_us.mean / 1e6 / f64::from(queue_depth);
            assert!((closure - 1.0).abs() < 0.01, "{policy} {queue_depth}: {closure}");
        }
    }
}

/// Frames of each side at its own end: all, those without data, and those sent again.
#[derive(Default)]
struct Counts {
    ops: Vec<SimOp>,
    all: [u64; 2],
    bare: [u64; 2],
    again: [u64; 2],
}

impl Observer for Counts {
    const FRAMES: bool = true;
    fn op(&mut self, op: &SimOp) {
        self.ops.push(*op);
    }
    fn frame(&mut self, frame: &Frame) {
        if frame.point == frame.sender {
            let side = frame.sender as usize;
            self.all[side] += 1;
            self.bare[side] += u64::from(frame.segment.bytes == 0);
            self.again[side] += u64::from(frame.segment.retransmitted);
        }
    }
}

#[track_caller]
fn near(what: &str, found: f64, expected: f64, error: f64) {
    assert!((found - expected).abs() <= error * expected.abs().max(1e-9), "{what}: {found} for {expected}");
}

/// The figures against the operations and frames that an observer sees.
#[test]
fn figures_of_a_run_are_those_of_its_operations() {
    let setup =
        Setup { policy: SendPolicy::Nagle, queue_depth: 5, operations: 4000, warm_up: 0, ..Setup::default() };
    let mut counts = Counts::default();
    let result = simulate(&setup, &mut counts);
    // The measured time begins when the first operation ends.
    let (begun, ops) = counts.ops.split_first().unwrap();
    assert_eq!(
        (result.operations, result.queue_depth, result.sessions, result.policy),
        (4000, 5, 1, SendPolicy::Nagle)
    );
    assert_eq!((ops.len() as u64, result.mtu_bytes), (result.operations, setup.wire.mtu));
    near("IOPS", result.iops, result.operations as f64 / result.seconds, 1e-9);
    near("bytes", result.bytes_per_second, result.iops * result.block_size_bytes as f64, 1e-9);
    let last = ops.iter().map(|op| op.op.finish).max().unwrap();
    near("seconds", result.seconds, last.since(begun.op.finish).unwrap() as f64 / 1e9, 1e-9);
    let mut rtt: Vec<f64> =
        ops.iter().map(|op| op.op.finish.since(op.op.start).unwrap() as f64 / 1e3).collect();
    rtt.sort_by(f64::total_cmp);
    near("mean", result.rtt_us.mean, rtt.iter().sum::<f64>() / rtt.len() as f64, 1e-3);
    for (what, found, share) in [
        ("min", result.rtt_us.min, 0.0),
        ("p50", result.rtt_us.p50, 0.5),
        ("p90", result.rtt_us.p90, 0.9),
        ("p99", result.rtt_us.p99, 0.99),
        ("p99.9", result.rtt_us.p999, 0.999),
        ("max", result.rtt_us.max, 1.0),
    ] {
        near(what, found, rtt[((rtt.len() - 1) as f64 * share) as usize], 0.02);
    }
    let mut held = 0;
    for part in tcpsim::Part::ALL {
        let mean =
            |of: &dyn Fn(&SimOp) -> u64| ops.iter().map(of).sum::<u64>() as f64 / ops.len() as f64 / 1e3;
        let (request, response) =
            (mean(&|op| op.request[part as usize]), mean(&|op| op.response[part as usize]));
        let of =
            |times: &std::collections::BTreeMap<&str, f64>| times.get(part.name()).copied().unwrap_or(0.0);
        near(part.name(), of(&result.request_us), request, 1e-6);
        near(part.name(), of(&result.response_us), response, 1e-6);
        if let Some(&stalls) = result.stalls_us.get(part.name()) {
            near(part.name(), stalls, request + response, 1e-6);
            held += 1;
        }
    }
    assert!(held > 0 && held == result.stalls_us.len(), "{:?}", result.stalls_us);
    let shares = result.shares;
    // Responses that were on their way when the measured time began or ended make the difference.
    assert_eq!((shares.nodelay, shares.batch), (0, 0));
    assert!(shares.nagle.abs_diff(result.operations) <= u64::from(result.queue_depth), "{shares:?}");
}

#[test]
fn segments_of_a_run_are_those_on_the_wire() {
    let mut setup = Setup { queue_depth: 4, operations: 4000, warm_up: 0, ..Setup::default() };
    setup.wire.loss = 0.01;
    let mut counts = Counts::default();
    let result = simulate(&setup, &mut counts);
    for (side, found) in [(Side::Client, result.client), (Side::Server, result.server)] {
        let side = side as usize;
        let operations = result.operations as f64;
        near("segments", found.segments, counts.all[side] as f64 / operations, 0.01);
        near("without data", found.acks, counts.bare[side] as f64 / operations, 0.01);
        assert!(counts.again[side] > 5 && found.sent_again.abs_diff(counts.again[side]) <= 1, "{found:?}");
    }
}

#[test]
fn work_of_a_run_is_that_of_its_setup() {
    let mut setup = Setup { queue_depth: 1, operations: 1000, warm_up: 0, jitter: 0.0, ..Setup::default() };
    for (host, service) in [(&mut setup.client, 3000), (&mut setup.server, 7000)] {
        (host.service, host.send, host.receive, host.softirq, host.transmit) = (service, 0, 0, 1500, 2000);
    }
    let result = simulate(&setup, &mut ());
    for (own, other, service) in [(result.client, result.server, 3.0), (result.server, result.client, 7.0)] {
        near("threads", own.thread_us, service, 0.01);
        near("transmit", own.transmit_us, 2.0 * own.segments, 0.01);
        near("softirqs", own.softirq_us, 1.5 * other.segments, 0.01);
    }
}
