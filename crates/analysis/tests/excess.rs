//! The account of lost time: every operation that is slow counts, of every connection; each nanosecond counts once; and the
//! sum over the verdicts and the unexplained rest is the excess, computed here from the operations themselves.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::net::SocketAddr;

use analysis::Part;
use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, Gain, Judgement, VerdictKind, judge};
use proptest::prelude::*;
use record::{
    Conduct, ConnectionFacts, Exchange, Observed, Op, OpKind, Opened, Passage, Side, Stall, StallKind, Stamp,
    Verb,
};

/// An operation of a test.
#[derive(Clone, Debug)]
struct Made {
    connection: u32,
    time_us: u64,
    held_us: u64,
    /// Waits, us.
    waits: Vec<(StallKind, u64)>,
    depth: u32,
}

fn made(connection: u32, time_us: u64) -> Made {
    Made { connection, time_us, held_us: 0, waits: Vec::new(), depth: 1 }
}

const SECOND: u64 = 1_000_000_000;

fn observed(made: &Made, index: u64) -> Observed {
    let began_ns = SECOND + index * 10_000_000;
    let ended_ns = began_ns + made.time_us * 1000;
    let mut detail = Exchange {
        op: Op {
            connection: made.connection,
            verb: Verb::Scsi(0x28),
            kind: OpKind::Read,
            data_bytes: 4096,
            ..Op::default()
        },
        ring_depth: made.depth,
        request: Passage::begin(began_ns, 2 * index + 1),
        response: Passage::begin(ended_ns, 2 * index + 2),
        held_ns: made.held_us * 1000,
        // The client is always ready.
        thought_ns: Some(10_000),
        ..Exchange::default()
    };
    for &(kind, us) in &made.waits {
        detail.stalls.insert(kind, Side::Server, us * 1000);
    }
    let mut observed = Observed::alone(Side::Client, &detail);
    observed.op.c1 = Stamp::at(began_ns);
    observed
}

fn server(connection: u32) -> SocketAddr {
    format!("10.0.0.{}:3260", 1 + connection % 2).parse().unwrap()
}

fn judged(all: &[Made]) -> Judgement {
    let (mut evidence, mut traffic) = (Evidence::default(), Traffic::default());
    let connections: BTreeMap<u32, u64> = all.iter().fold(BTreeMap::new(), |mut sums, made| {
        *sums.entry(made.connection).or_default() += 1;
        sums
    });
    let client: SocketAddr = "10.0.1.1:5000".parse().unwrap();
    for &connection in connections.keys() {
        let opened = Opened {
            connection,
            client,
            server: server(connection),
            client_syn: None,
            handshake_ns: None,
            ttl: (Side::Client, 64),
        };
        evidence.opened(connection, &opened);
    }
    for (made, index) in all.iter().zip(0..) {
        let observed = observed(made, index);
        evidence.observed(&observed);
        traffic.add(&observed);
        for &(kind, us) in &made.waits {
            let frames = [3 * index + 1, 3 * index + 2, 3 * index + 3];
            let (connection, wait_ns, time_ns) = (made.connection, us * 1000, SECOND + index * 10_000_000);
            evidence.stall(
                0,
                &Stall {
                    connection,
                    kind,
                    sender: Side::Server,
                    wait_ns,
                    time_ns,
                    frames,
                    segment_bytes: 500,
                    seq: 0,
                },
            );
        }
    }
    for (&connection, &exchanges) in &connections {
        let facts = ConnectionFacts {
            connection,
            client,
            server: server(connection),
            protocol: "iscsi",
            undecoded: None,
            tls: None,
            packets: 1000,
            bytes: 1_000_000,
            began_ns: SECOND,
            ended_ns: SECOND + all.len() as u64 * 10_000_000,
            handshake_ns: None,
            ttl: (64, 64),
            exchanges,
            in_flight_ns: 0,
            client_conduct: Conduct::default(),
            server_conduct: Conduct { retransmitted: 50, segments: 1000, ..Conduct::default() },
            duplicates: 0,
            has_ended: true,
            both_directions: true,
            setup: record::Setup::default(),
        };
        evidence.connection(0, &facts);
    }
    let stanzas = traffic.stanzas(None);
    judge(&Case {
        evidence: &evidence,
        stanzas: &stanzas,
        link: None,
        cpu_busy: None,
        loss: CaptureLoss::default(),
        inputs: &[0],
    })
}

/// 33 of 500 operations took 100 ms: the verdict is on 33, and on 3.3 s.
#[test]
fn all_slow_operations_count() {
    let all: Vec<Made> =
        (0..500).map(|i| made(0, if i % 15 == 3 && i < 495 { 100_000 } else { 200 })).collect();
    let slow = all.iter().filter(|made| made.time_us > 1000).count() as u64;
    let judged = judged(&all);
    let verdict = &judged.verdicts[0];
    assert_eq!((verdict.kind, verdict.operations, slow), (VerdictKind::RareStalls, 33, 33));
    assert!((verdict.cost_us / 3.3e6 - 1.0).abs() < 0.01, "{}", verdict.cost_us);
    assert!(
        (verdict.share - 33.0 / 500.0).abs() < 1e-9 && verdict.text.contains("33 of 500"),
        "{}",
        verdict.text
    );
}

/// Four connections of 300 operations each, to two servers: all 1,200 count.
#[test]
fn all_connections_count() {
    let all: Vec<Made> = (0..1200).map(|i| made(i % 4, 5000)).collect();
    let judged = judged(&all);
    let verdict = &judged.verdicts[0];
    assert_eq!((verdict.kind, verdict.operations), (VerdictKind::SlowTarget, 1200));
    assert!(
        (verdict.cost_us / (1200.0 * 4000.0) - 1.0).abs() < 0.04,
        "4 of 5 ms exceed the allowance: {}",
        verdict.cost_us
    );
    // Connections with one operation each are one service.
    let all: Vec<Made> = (0..1200).map(|i| made(i, 5000)).collect();
    assert_eq!(self::judged(&all).verdicts[0].operations, 1200);
}

/// A verdict of less than 2 % of the time is a note; the account has it as such.
#[test]
fn verdicts_of_little_weight_are_notes() {
    for (count, is_minor) in [(3, true), (60, false)] {
        let mut all: Vec<Made> = (0..2000).map(|_| made(0, 900)).collect();
        for made in all.iter_mut().take(count) {
            made.time_us += 5000;
            made.waits = vec![(StallKind::FastRetransmit, 5000)];
        }
        let judged = judged(&all);
        assert_eq!(
            (judged.minor.len(), judged.verdicts.len()),
            if is_minor { (1, 0) } else { (0, 1) },
            "{judged:#?}"
        );
        let verdict = judged.minor.iter().chain(&judged.verdicts).next().unwrap();
        assert_eq!((verdict.kind, verdict.operations), (VerdictKind::Retransmission, count as u64));
        assert!((verdict.weight < 0.02) == is_minor && (verdict.cost_us - 5000.0 * count as f64).abs() < 1.0);
    }
}

/// The whole of an operation is what its user waits for: a request of 30 ms and a round trip of 1 ms are 31 ms, and what TCP held
/// before the first byte is part of it.
#[test]
fn the_whole_includes_the_request() {
    let mut traffic = Traffic::default();
    for index in 0..100 {
        let mut observed = observed(&made(0, 31_000), index);
        let ended = Stamp::at(observed.detail.request.began.ns().unwrap() + 30_000_000);
        observed.detail.request.ended = ended;
        observed.detail.request.last_frame += 1;
        observed.op.c1 = ended;
        observed.detail.held_ns = 2_000_000;
        traffic.add(&observed);
    }
    let stanzas = traffic.stanzas(None);
    let figures = |part: Part| *stanzas[0].part(part).unwrap();
    let near = |us: f64, truth: f64| (us / truth - 1.0).abs() < 0.01;
    assert!(near(figures(Part::Whole).p99_us, 33_000.0), "{:?}", figures(Part::Whole));
    assert!(near(figures(Part::Whole).mean_us, 33_000.0) && near(figures(Part::RoundTrip).p99_us, 1000.0));
    assert!(near(figures(Part::Sending).mean_us, 30_000.0));
}

/// No gain is sure to make operations faster than the fastest one seen, and none is predicted that makes them more than twice as
/// fast: hosts that sleep through the waits are slower at the rest, by a factor that no packet shows.
#[test]
fn gains_are_possible() {
    // Waits as long as the connection itself, as they were for "one operation every 0.03 us".
    let mut all: Vec<Made> = (0..100).map(|_| made(0, 10_200)).collect();
    all.iter_mut().for_each(|made| made.waits = vec![(StallKind::NagleWithinMessage, 10_000)]);
    let judged = judged(&all);
    let gain = judged.verdicts[0].gain.as_ref().unwrap();
    let (now_us, then_us) = gain.operation_us.unwrap();
    let most_us = gain.operation_most_us.unwrap();
    assert!((100.0..101.0).contains(&then_us) && (200.0..201.0).contains(&most_us), "{gain:?}");
    // With 10 us of the client for each.
    assert!((gain.throughput_least - (now_us + 10.0) / (most_us + 10.0)).abs() < 0.1, "{gain:?}");
    assert!(gain.throughput_factor <= 2.0 * gain.throughput_least, "{gain:?}");
    assert!(
        gain.text.contains("between 100 us and 200 us") && gain.text.contains("follows a response"),
        "{gain:?}"
    );
}

/// Chance picks what is lost: the operations without a loss show what the others would have taken, also where the waits that packets
/// prove are not all that a loss costs.
#[test]
fn operations_without_a_loss_show_the_gain() {
    let mut all: Vec<Made> = (0..100).map(|_| made(0, 1000)).collect();
    for made in all.iter_mut().take(40) {
        made.time_us = 11_000;
        made.waits = vec![(StallKind::Timeout, 9000)];
    }
    let judged = judged(&all);
    let of_loss = judged.verdicts.iter().find(|verdict| verdict.kind == VerdictKind::Retransmission).unwrap();
    let gain = of_loss.gain.as_ref().unwrap();
    let (now_us, then_us) = gain.operation_us.unwrap();
    assert!((now_us - 5000.0).abs() < 1.0 && (then_us - 1000.0).abs() < 1.0, "{gain:?}");
    // 10 us of the client for each.
    assert!((gain.throughput_factor - 5010.0 / 1010.0).abs() < 0.01, "{gain:?}");
    assert!((gain.throughput_least - gain.throughput_factor).abs() < 1e-9, "{gain:?}");
}

/// Waits that packets prove and that are no habit, and times until the first byte that vary, are notes and explained; what happens
/// after the first byte is neither.
#[test]
fn what_is_proven_is_no_habit_and_not_unexplained() {
    let mut all: Vec<Made> = (0..100).map(|i| made(0, 900 + i % 10)).collect();
    for made in all.iter_mut().take(10) {
        made.time_us += 500;
        made.waits = vec![(StallKind::AckWait, 500)];
    }
    for made in all.iter_mut().skip(10).take(30) {
        made.time_us += 400;
    }
    let judged = judged(&all);
    assert!(judged.verdicts.is_empty(), "{judged:#?}");
    let cost_us = |kind| judged.minor.iter().find(|note| note.kind == kind).map(|note| note.cost_us);
    assert!((cost_us(VerdictKind::BufferLimited).unwrap() - 5000.0).abs() < 1e-6, "{judged:#?}");
    let varying_us = cost_us(VerdictKind::SlowTarget).unwrap();
    assert!((10_000.0..12_100.0).contains(&varying_us), "{judged:#?}");
    let excess = judged.excess;
    assert!((excess.minor_us + excess.unexplained_us - excess.excess_us).abs() < 1e-6, "{excess:?}");
    assert!(excess.unexplained_us < 0.05 * excess.excess_us, "{excess:?}");
}

fn any_made() -> impl Strategy<Value = Made> {
    let kind = (0..StallKind::ALL.len()).prop_map(|place| StallKind::ALL[place]);
    let wait = (kind, prop_oneof![0_u64..100, 20_000_u64..300_000]);
    let time = prop_oneof![50_u64..500, 50_u64..500, 1000_u64..8000, 20_000_u64..400_000];
    (0_u32..6, time, 0_u64..50, prop::collection::vec(wait, 0..3), 1_u32..9).prop_map(
        |(connection, time_us, held_us, waits, depth)| Made { connection, time_us, held_us, waits, depth },
    )
}

/// Without waits and excess: the sum over the operations, each on its own. The edges of buckets are 1/32 apart.
fn excess_us(all: &[Made]) -> (f64, f64) {
    let mut classes: BTreeMap<(SocketAddr, u32), Vec<u64>> = BTreeMap::new();
    let mut waits_us = 0;
    for made in all {
        let time_us = made.time_us + made.held_us;
        let waited = made.waits.iter().map(|(_, us)| us).sum::<u64>().min(time_us);
        waits_us += waited;
        let class = (server(made.connection), made.depth.next_power_of_two());
        classes.entry(class).or_default().push(time_us - waited);
    }
    // The bounds that two neighbouring edges give.
    let (mut least, mut most) = (0.0, 0.0);
    for (&(_, depth), times) in &mut classes {
        times.sort_unstable();
        let median = times[(times.len() - 1) / 2] as f64;
        let beyond = |limit: f64| times.iter().map(|&us| (us as f64 - limit).max(0.0)).sum::<f64>();
        // And two nanoseconds, where the median is none.
        least += beyond(median * (1.0 + 1.0 / 16.0) + 0.002);
        // A server may take 1 ms for each operation in flight, and the class has at least half of its depth.
        let allowance = 1000.0 * f64::from(depth) / 2.0;
        most += beyond(median.min(allowance) * (1.0 - 1.0 / 16.0));
    }
    (waits_us as f64 + least, waits_us as f64 + most)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]
    #[test]
    fn the_account_closes(all in prop::collection::vec(any_made(), 1..400)) {
        let judged = judged(&all);
        let sum: f64 = judged.verdicts.iter().chain(&judged.minor).map(|verdict| verdict.cost_us).sum();
        let excess = judged.excess;
        let close = |a: f64, b: f64| (a - b).abs() <= 1e-9 * (a.abs() + b.abs()) + 1e-3;
        prop_assert!(close(sum + excess.unexplained_us, excess.excess_us), "{sum} {excess:?}");
        prop_assert!(close(excess.verdicts_us + excess.minor_us, sum));
        prop_assert!(excess.unexplained_us >= -1e-3 && excess.excess_us <= excess.operations_us + 1e-3);
        let time_us: u64 = all.iter().map(|made| made.time_us + made.held_us).sum();
        prop_assert!(close(excess.operations_us, time_us as f64), "the time is that of the operations");
        let (least, most) = excess_us(&all);
        prop_assert!((least - 1e-3..=most + 1e-3).contains(&excess.excess_us), "{least}..{most}: {excess:?}");
        for verdict in judged.verdicts.iter().chain(&judged.minor) {
            prop_assert!(verdict.operations <= all.len() as u64 && verdict.cost_us >= 0.0, "{verdict:?}");
            let gains = |gain: &Gain| {
                gain.throughput_factor >= 1.03 || gain.operation_us.is_none_or(|(now, then)| now >= 1.03 * then)
            };
            let is_worth = verdict.weight >= 0.02 && verdict.gain.as_ref().is_none_or(gains);
            prop_assert!(!is_worth || !judged.minor.contains(verdict));
        }
    }
}
