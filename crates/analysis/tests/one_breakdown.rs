//! A study and an analysis of captures break down the same operations alike, whatever recorded them.

use analysis::traffic::{Traffic, TrafficStanza};
use analysis::{Part, Segments};
use proptest::prelude::*;
use record::{Exchange, Observed, Op, OpKind, Outcome, Passage, Side, Stamp, Verb};

/// An operation as a simulation records it: all six points, on one clock.
fn op(start: u64, ways: [u64; 5]) -> Op {
    let mut at = start;
    let mut next = |way: u64| {
        at += way;
        Stamp::at(at)
    };
    let [out, request, server, response, back] = ways;
    Op {
        start: Stamp::at(start),
        c1: next(out),
        s1: next(request),
        s2: next(server),
        c2: next(response),
        finish: next(back),
        ..Op::default()
    }
}

/// What a capture point on a side sees of it.
fn seen(side: Side, op: &Op) -> Exchange {
    let (request, response) = match side {
        Side::Client => (op.c1, op.c2),
        Side::Server => (op.s1, op.s2),
    };
    let passage = |stamp: Stamp| Passage { began: stamp, ended: stamp, ..Passage::default() };
    let bare = Op { verb: op.verb, kind: op.kind, ..Op::default() };
    Exchange { op: bare, request: passage(request), response: passage(response), ..Exchange::default() }
}

proptest! {
    #[test]
    fn the_parts_of_a_study_are_those_of_its_captures(
        ways in prop::collection::vec(prop::array::uniform5(1_000_u64..1_000_000), 1..32),
    ) {
        let ops: Vec<Op> = ways.iter().zip(1..).map(|(w, i)| op(i * 10_000_000, *w)).collect();
        let segments = Segments::of(&ops, true);
        let mut traffic = Traffic::default();
        for op in &ops {
            let observed = Observed::joined(&seen(Side::Client, op), &seen(Side::Server, op), true);
            // Two captures show the record without the client's thread.
            let bare = Op { start: Stamp::MISSING, finish: Stamp::MISSING, ..*op };
            prop_assert_eq!(observed.op, bare);
            traffic.add(&observed);
        }
        let stanza = traffic.stanzas(None).pop().unwrap();
        let both = [
            (Some(segments.server), Part::Server),
            (Some(segments.network), Part::Network),
            (segments.request_path, Part::RequestPath),
            (segments.response_path, Part::ResponsePath),
        ];
        for (segment, part) in both {
            let (segment, part) = (segment.unwrap(), stanza.part(part).unwrap());
            prop_assert_eq!(
                (segment.mean_us, segment.p50_us, segment.p99_us),
                (part.mean_us, part.p50_us, part.p99_us)
            );
        }
        let outside = segments.rtt.mean_us - segments.client.mean_us;
        prop_assert!((stanza.mean_us(Part::RoundTrip).unwrap() - outside).abs() < 1e-6);
    }
}

/// Reads of a client with one slot: each follows the last response after 100 us.
fn ring(times_us: &[u64]) -> Vec<Observed> {
    let mut at_ns = 1_000_000_000;
    times_us
        .iter()
        .zip(0_u32..)
        .map(|(us, index)| {
            let began_ns = at_ns;
            let ended_ns = began_ns + us * 1000;
            at_ns = ended_ns + 100_000;
            let outcome = if index % 10 == 0 { Outcome::Failed } else { Outcome::default() };
            let exchange = Exchange {
                op: Op {
                    connection: 3,
                    verb: Verb::Scsi(0x28),
                    kind: OpKind::Read,
                    data_bytes: 4096,
                    request_bytes: 48,
                    response_bytes: 4144,
                    outcome,
                    ..Op::default()
                },
                ring_depth: 1,
                thought_ns: (index > 0).then_some(100_000),
                request: Passage::begin(began_ns, 2 * u64::from(index) + 1),
                response: Passage::begin(ended_ns, 2 * u64::from(index) + 2),
                ..Exchange::default()
            };
            Observed::alone(Side::Client, &exchange)
        })
        .collect()
}

fn stanza_of(all: &[Observed], wire: Option<&dyn Fn(f64, f64) -> f64>) -> TrafficStanza {
    let mut traffic = Traffic::default();
    all.iter().for_each(|observed| {
        traffic.add(observed);
    });
    let mut stanzas = traffic.stanzas(wire);
    assert_eq!(stanzas.len(), 1);
    stanzas.remove(0)
}

#[test]
fn rates_of_a_stanza_are_those_of_its_operations() {
    // 400 operations of 900 us and 100 us of thought.
    let stanza = stanza_of(&ring(&[900; 400]), None);
    let near =
        |found: f64, expected: f64| assert!((found / expected - 1.0).abs() < 1e-9, "{found} {expected}");
    assert_eq!(
        (stanza.connection, stanza.operation.as_str(), stanza.kind),
        (Some(3), "read(10)", OpKind::Read)
    );
    assert_eq!((stanza.operations, stanza.failed, stanza.queue_depth), (400, 40, (1, 1.0, 1)));
    near(stanza.block_size_bytes, 4096.0);
    // From the first request to the last response: without the thought after it.
    near(stanza.seconds, 0.4 - 100e-6);
    near(stanza.iops, 400.0 / stanza.seconds);
    near(stanza.bytes_per_second, 400.0 * 4096.0 / stanza.seconds);
    near(stanza.mean_us(Part::Client).unwrap(), 100.0);
    // IOPS x 1000 us is the depth, but for the missing thought.
    near(1.0 + stanza.queue_depth_error.unwrap(), stanza.iops * 1e-3);
    assert_eq!((stanza.stages_error, stanza.closes), (None, Some(true)));
}

#[test]
fn percentiles_of_a_part_are_those_of_its_operations() {
    let times: Vec<u64> = (1..=100).map(|n| n * 10).collect();
    let stanza = stanza_of(&ring(&times), None);
    let part = stanza.part(Part::RoundTrip).unwrap();
    assert_eq!(part.operations, 100);
    // The distribution has bins of less than 2 %.
    for (found, expected) in [
        (part.mean_us, 505.0),
        (part.p50_us, 500.0),
        (part.p90_us, 900.0),
        (part.p99_us, 990.0),
        (part.max_us, 1000.0),
    ] {
        assert!((found / expected - 1.0).abs() < 0.02, "{found} for {expected}: {part:?}");
    }
}

#[test]
fn wire_time_is_that_of_the_mean_request_and_response() {
    let stanza = stanza_of(&ring(&[900; 10]), Some(&|request, response| request + 1000.0 * response));
    assert_eq!(stanza.wire_us, Some(48.0 + 1000.0 * 4144.0));
}

/// The queue depth of a connection is that of all its operations: the rate of its reads alone does not have to close with it.
#[test]
fn a_mix_of_operations_is_not_held_to_the_queue_depth_of_all() {
    let of = |verb: u8, times: &[u64]| {
        let mut all = ring(times);
        for observed in &mut all {
            observed.op.verb = Verb::Scsi(verb);
            observed.detail.ring_depth = 2;
        }
        all
    };
    let stanzas = |all: &[Observed]| {
        let mut traffic = Traffic::default();
        all.iter().for_each(|observed| {
            traffic.add(observed);
        });
        traffic.stanzas(None)
    };
    let mix = stanzas(&[of(0x28, &[900; 400]), of(0x2a, &[900; 400])].concat());
    assert_eq!(mix.len(), 2);
    for stanza in mix {
        assert_eq!((stanza.queue_depth_error, stanza.closes), (None, None), "{}", stanza.operation);
    }
    // A few other operations, such as those of a load's begin, change nothing: half of the depth is missing.
    let alone = stanzas(&[of(0x28, &[900; 400]), of(0x2a, &[900; 3])].concat());
    assert!(alone[0].queue_depth_error.unwrap() < -0.4 && alone[0].closes == Some(false));
}
