//! Planted errors: each is caught by the evidence, and the joined records alone catch none of them.

use record::{KernelEventKind as Kind, Op, Stamp};

use super::*;
use crate::breakdown::{Joined, StanzaInput};
use crate::cost::PathCost;
use crate::stages::tests::{BEGAN, REQUEST, RESPONSE, exchange, window_of};
use record::stage::CpuSharing;

/// A run at queue depth 1 with all its observers: every hundredth operation is slow.
struct Run {
    ops: Vec<Op>,
    traced: Traced,
    issued: u64,
}

impl Run {
    fn new() -> Self {
        Self::captured(0)
    }

    /// Captures have each packet so long on its way from the queue to the driver.
    fn captured(taps_ns: u32) -> Self {
        let mut events =
            vec![record::KernelEvent { at_ns: BEGAN, cpu: 0, thread: 0, kind: Kind::Switched(10) }];
        let (mut ops, mut at) = (Vec::new(), BEGAN);
        for number in 0..1000 {
            let from = events.len();
            let start = at;
            at = exchange(&mut events, at);
            if number % 100 == 99 {
                // The server's thread works 30 us longer.
                let received = events[from..].iter().position(|e| e.kind == Kind::Received(REQUEST as i64));
                events[from + received.unwrap() + 1..].iter_mut().for_each(|e| e.at_ns += 30_000);
                at += 30_000;
            }
            let time = |wanted: &dyn Fn(Kind) -> bool| {
                Stamp::at(events[from..].iter().find(|e| wanted(e.kind)).unwrap().at_ns)
            };
            ops.push(Op {
                start: Stamp::at(start),
                c1: time(&|kind| matches!(kind, Kind::Transmitted { side: Side::Client, .. })),
                s1: time(&|kind| matches!(kind, Kind::Arrived(Side::Server, _))),
                s2: time(&|kind| matches!(kind, Kind::Transmitted { side: Side::Server, .. })),
                c2: time(&|kind| matches!(kind, Kind::Arrived(Side::Client, _))),
                finish: time(&|kind| kind == Kind::Received(RESPONSE as i64)),
                ..Op::default()
            });
        }
        for event in &mut events {
            if let Kind::Transmitted { taps_ns: own, .. } = &mut event.kind {
                *own = taps_ns;
            }
        }
        let traced = Traced::of(&window_of(&events, at)).unwrap();
        Self { issued: ops.len() as u64, ops, traced }
    }

    fn rtt_us(&self) -> f64 {
        Segments::of(&self.ops, true).rtt.mean_us
    }

    /// The evidence with the joined operations and the accounts of a measurement.
    fn evidence(&self, joined: &[Op], accounts: CpuCost) -> Evidence {
        Evidence {
            traced: self.traced.clone(),
            queue_depth: 1,
            issued: self.issued,
            followed: joined.len() as u64,
            segments: Segments::of(joined, true),
            rtt_us: self.rtt_us(),
            accounts,
            accounts_within_us: 0.2,
            own_cpus: true,
        }
    }

    /// Accounts that are right.
    fn accounts(&self) -> CpuCost {
        let (c, s) = (self.traced.client, self.traced.server);
        CpuCost {
            client_thread_us: c.thread_us,
            client_softirq_us: c.busy_us + c.transitions_us / 2.0 - c.thread_us,
            server_thread_us: s.thread_us,
            server_softirq_us: s.busy_us + s.transitions_us / 2.0 - s.thread_us,
        }
    }

    fn breakdown(&self, evidence: &Evidence, service: CpuCost) -> Breakdown {
        Breakdown::of(&StanzaInput {
            queue_depth: 1,
            iops: 1e6 / self.rtt_us(),
            rtt_us: self.rtt_us(),
            segments: evidence.segments,
            cpu: service,
            path: Some(PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: true }),
            sharing: (CpuSharing::Uniprocessor, CpuSharing::Uniprocessor),
            depth_one: &evidence.segments,
            shares: None,
            softirqs: crate::breakdown::Softirqs::Apart,
        })
    }

    /// Service times of a CPU-bound run: without wake-ups.
    fn service() -> CpuCost {
        CpuCost {
            client_thread_us: 1.0,
            client_softirq_us: 0.5,
            server_thread_us: 1.0,
            server_softirq_us: 0.5,
        }
    }

    /// The figures of a calm run without observers.
    fn printed<'a>(
        &self,
        breakdown: &'a Breakdown,
        evidence: &'a Evidence,
        service: &'a CpuCost,
    ) -> Printed<'a> {
        Printed {
            iops: 1e6 / self.rtt_us(),
            cpu_busy: (0.3, 0.3),
            service,
            unlimited: None,
            segments: &evidence.segments,
            breakdown,
        }
    }

    fn closure(&self, evidence: &Evidence) -> Closure {
        let (service, breakdown) = (Self::service(), self.breakdown(evidence, Self::service()));
        Closure::of(&self.printed(&breakdown, evidence, &service), Ok(evidence), &Disturbances::default())
    }

    /// What fails with these records and accounts, which the joined records alone do not notice.
    #[track_caller]
    fn caught(&self, joined: &[Op], accounts: CpuCost) -> Vec<Comparison> {
        let evidence = self.evidence(joined, accounts);
        let breakdown = self.breakdown(&evidence, Self::service());
        assert!(breakdown.joined.holds && breakdown.negative.is_empty(), "{breakdown:?}");
        let closure = self.closure(&evidence);
        let failed: Vec<Comparison> =
            closure.checks.iter().filter(|check| !check.holds()).map(|check| check.comparison).collect();
        assert_eq!(
            closure.outcome,
            if failed.is_empty() { ClosureOutcome::Holds } else { ClosureOutcome::Fails }
        );
        assert_eq!(closure.reasons.len(), failed.len());
        failed
    }
}

#[test]
fn right_figures_hold() {
    let run = Run::new();
    assert_eq!(run.caught(&run.ops, run.accounts()), []);
}

#[test]
fn cpu_accounts_off_by_a_fifth_are_caught() {
    let run = Run::new();
    for factor in [0.8, 1.2, 1000.0] {
        let failed = run.caught(&run.ops, run.accounts().scaled(factor));
        assert_eq!(failed, [Comparison::Work(Side::Client), Comparison::Work(Side::Server)], "{factor}");
    }
}

#[test]
fn a_capture_point_whose_clock_is_off_by_5_us_is_caught() {
    let run = Run::new();
    let shifted = |shift: fn(&mut Op)| {
        let mut ops = run.ops.clone();
        ops.iter_mut().for_each(shift);
        run.caught(&ops, run.accounts())
    };
    let [client, request, server, response] =
        [Segment::Client, Segment::RequestPath, Segment::Server, Segment::ResponsePath]
            .map(Comparison::Segment);
    assert_eq!(shifted(|op| op.c1 = Stamp::at(op.c1.ns().unwrap() + 5000)), [client, request]);
    assert_eq!(shifted(|op| op.s1 = Stamp::at(op.s1.ns().unwrap() + 5000)), [request, server]);
    assert_eq!(shifted(|op| op.s2 = Stamp::at(op.s2.ns().unwrap() - 5000)), [server, response]);
    assert_eq!(shifted(|op| op.c2 = Stamp::at(op.c2.ns().unwrap() - 5000)), [client, response]);
}

/// Captures copy a packet before or after they stamp it: the stamp is anywhere between the queue and the driver, and nowhere else.
#[test]
fn a_stamp_between_the_queue_and_the_driver_holds() {
    let run = Run::captured(3000);
    let shifted = |ns: i64| {
        let mut ops = run.ops.clone();
        for op in &mut ops {
            let by = |stamp: Stamp| Stamp::at(stamp.ns().unwrap().checked_add_signed(ns).unwrap());
            (op.c1, op.s2) = (by(op.c1), by(op.s2));
        }
        run.caught(&ops, run.accounts())
    };
    for ns in [0, 700, 3000] {
        assert_eq!(shifted(ns), [], "{ns} ns");
    }
    let all = Segment::ALL.map(Comparison::Segment);
    for ns in [-2500, 5500] {
        assert_eq!(shifted(ns), all, "{ns} ns");
    }
}

#[test]
fn a_stamp_of_the_wrong_layer_is_caught() {
    let run = Run::new();
    // S1 where the server's thread has received: 3.7 us behind the device.
    let mut ops = run.ops.clone();
    ops.iter_mut().for_each(|op| op.s1 = Stamp::at(op.s1.ns().unwrap() + 3700));
    let segments = [Comparison::Segment(Segment::RequestPath), Comparison::Segment(Segment::Server)];
    assert_eq!(run.caught(&ops, run.accounts()), segments);
    // C1 where the client's program begins: 3.1 us before the device.
    let mut ops = run.ops.clone();
    ops.iter_mut().for_each(|op| op.c1 = Stamp::at(op.c1.ns().unwrap() - 3100));
    let segments = [Comparison::Segment(Segment::Client), Comparison::Segment(Segment::RequestPath)];
    assert_eq!(run.caught(&ops, run.accounts()), segments);
}

#[test]
fn one_percent_of_operations_that_did_not_join_is_caught() {
    let run = Run::new();
    // The slow ones: without them the round trip is 0.7 % shorter.
    let joined: Vec<Op> =
        run.ops.iter().enumerate().filter(|(n, _)| n % 100 != 99).map(|(_, op)| *op).collect();
    let failed = run.caught(&joined, run.accounts());
    assert!(
        failed.contains(&Comparison::Followed) && failed.contains(&Comparison::FollowedRoundTrip),
        "{failed:?}"
    );
}

#[test]
fn lost_events_are_caught() {
    let run = Run::new();
    let mut evidence = run.evidence(&run.ops, run.accounts());
    evidence.traced.counts[3].operations -= 1;
    let failed: Vec<Comparison> =
        evidence.checks().iter().filter(|c| !c.holds()).map(|c| c.comparison).collect();
    assert_eq!(failed, [Comparison::Counts]);
    // 129 operations in a ring of 128.
    let mut evidence = Evidence { queue_depth: 128, ..run.evidence(&run.ops, run.accounts()) };
    for wrong in [0.0, 1.0, -1.0] {
        evidence.traced.stages[0].operations = 127.0 + wrong;
        let fails = evidence.checks().iter().any(|c| c.comparison == Comparison::QueueDepth && !c.holds());
        assert_eq!(fails, wrong != 0.0, "{wrong}");
    }
}

#[test]
fn service_times_longer_than_their_segment_are_caught_and_named() {
    let run = Run::new();
    let evidence = run.evidence(&run.ops, run.accounts());
    let service = CpuCost { client_softirq_us: 12.0, ..Run::service() };
    let breakdown = run.breakdown(&evidence, service);
    let closure =
        Closure::of(&run.printed(&breakdown, &evidence, &service), Ok(&evidence), &Disturbances::default());
    assert_eq!(closure.outcome, ClosureOutcome::Fails);
    assert!(closure.reasons[0].starts_with("contradiction: CQ is -"), "{:?}", closure.reasons);
    assert!(closure.reasons[0].ends_with("longer than this point had time for"), "{:?}", closure.reasons);
    // The sum is the round trip all the same.
    assert!(breakdown.joined.holds && breakdown.joined.rtt_error.abs() < 1e-9);
    assert!(breakdown.joined.rtt_error.abs() < Joined::RTT_LIMIT);
}

#[test]
fn without_evidence_or_calm_nothing_holds() {
    let run = Run::new();
    let evidence = run.evidence(&run.ops, run.accounts());
    let breakdown = run.breakdown(&evidence, Run::service());
    let service = Run::service();
    let printed = run.printed(&breakdown, &evidence, &service);
    let closure = Closure::of(&printed, Err("no rights"), &Disturbances::default());
    assert_eq!(
        (closure.outcome, closure.reasons),
        (ClosureOutcome::NotVerified, vec!["no rights".to_owned()])
    );
    let compiler = ["a compiler".to_owned()];
    for (in_printed, in_traced) in [(&compiler[..], &[][..]), (&[], &compiler)] {
        let disturbances = Disturbances { printed: in_printed, traced: in_traced };
        let disturbed = Closure::of(&printed, Ok(&evidence), &disturbances);
        assert_eq!((disturbed.outcome, &disturbed.reasons[..]), (ClosureOutcome::Unreliable, &compiler[..]));
        // Accounts of the traced run that contradict its events are wrong whatever other runs were disturbed by.
        let wrong = Evidence { accounts: evidence.accounts.scaled(1.3), ..evidence.clone() };
        let outcome = Closure::of(&printed, Ok(&wrong), &disturbances).outcome;
        let expected = if in_traced.is_empty() { ClosureOutcome::Fails } else { ClosureOutcome::Unreliable };
        assert_eq!(outcome, expected);
    }
    let negative = run.breakdown(&evidence, CpuCost { server_thread_us: 90.0, ..Run::service() });
    let printed = Printed { breakdown: &negative, ..printed };
    let disturbances = Disturbances { printed: &compiler, traced: &[] };
    // A latency below zero is impossible, whatever disturbed the runs and whoever saw them.
    for traced in [Ok(&evidence), Err("no rights")] {
        for disturbances in [disturbances, Disturbances::default()] {
            let closure = Closure::of(&printed, traced, &disturbances);
            assert_eq!(closure.outcome, ClosureOutcome::Fails);
            assert!(closure.reasons[0].starts_with("contradiction: SQ is -"), "{:?}", closure.reasons);
        }
    }
}

#[test]
fn figures_that_are_no_numbers_do_not_agree() {
    let check = |found, expected| Check { comparison: Comparison::RoundTrip, found, expected, limit: 1.0 };
    assert!(check(1.0, 1.5).holds() && !check(1.0, 2.5).holds());
    assert!(!check(f64::NAN, 1.0).holds() && !check(1.0, f64::NAN).holds());
}

/// Figures of the other runs are held to what was measured beside them, and to the traced run.
#[test]
fn printed_figures_that_contradict_the_measurement_are_caught() {
    let run = Run::new();
    let evidence = run.evidence(&run.ops, run.accounts());
    let failed = |service: CpuCost, cpu_busy: (f64, f64), iops: f64, segments: &Segments| {
        let breakdown = run.breakdown(&evidence, service);
        let printed = Printed { iops, cpu_busy, segments, ..run.printed(&breakdown, &evidence, &service) };
        let checks = printed.checks(&evidence);
        checks.iter().filter(|c| !c.holds()).map(|c| c.comparison).collect::<Vec<_>>()
    };
    // A server that is the bottleneck: 8 us of its CPU for each operation.
    let right = CpuCost {
        client_thread_us: 3.0,
        client_softirq_us: 1.0,
        server_thread_us: 6.0,
        server_softirq_us: 2.0,
    };
    let (iops, busy) = (1e6 / 8.2, (0.55, 0.97));
    assert_eq!(failed(right, busy, iops, &evidence.segments), []);
    let sides = [Comparison::Service(Side::Client), Comparison::Service(Side::Server)];
    assert_eq!(
        failed(right.scaled(1.5), busy, iops, &evidence.segments),
        [&[Comparison::Bottleneck][..], &sides].concat()
    );
    assert_eq!(
        failed(right.scaled(6.0), busy, iops, &evidence.segments),
        [&[Comparison::Bottleneck][..], &sides].concat()
    );
    // Less work than a saturated CPU does.
    assert_eq!(
        failed(right.scaled(0.5), busy, iops, &evidence.segments),
        [Comparison::Service(Side::Server)]
    );
    // 150 us of the server counted as path.
    let mut segments = evidence.segments;
    segments.request_path.as_mut().unwrap().mean_us += 150.0;
    segments.server.mean_us -= 150.0;
    assert_eq!(failed(right, busy, iops, &segments), [Comparison::Path(Segment::RequestPath)]);
}

/// Service times that come from a run without the wire's rate limit stand on that run's own evidence.
#[test]
fn accounts_of_the_run_without_the_rate_limit_are_compared() {
    let run = Run::new();
    let evidence = run.evidence(&run.ops, run.accounts());
    let (service, breakdown) = (Run::service(), run.breakdown(&evidence, Run::service()));
    for factor in [0.8, 1.0, 1.2] {
        let unlimited = run.evidence(&run.ops, run.accounts().scaled(factor));
        let printed = Printed { unlimited: Some(&unlimited), ..run.printed(&breakdown, &evidence, &service) };
        let closure = Closure::of(&printed, Ok(&evidence), &Disturbances::default());
        let failed: Vec<Comparison> =
            closure.checks.iter().filter(|check| !check.holds()).map(|check| check.comparison).collect();
        let sides = [Comparison::WorkUnlimited(Side::Client), Comparison::WorkUnlimited(Side::Server)];
        assert_eq!(failed, if factor == 1.0 { &[][..] } else { &sides[..] }, "{factor}");
    }
}

/// What is printed of a point is no better than the point from which its service times come.
#[test]
fn a_point_does_not_hold_on_service_times_that_do_not() {
    use ClosureOutcome::{Fails, Holds, NotVerified, Unreliable};
    let of = |outcome| Closure { outcome, reasons: Vec::new(), checks: Vec::new() };
    for (own, source, expected) in [
        (Holds, Holds, Holds),
        (Holds, Unreliable, Unreliable),
        (Holds, Fails, Fails),
        (Unreliable, Fails, Fails),
        (Fails, Unreliable, Fails),
        (Unreliable, Holds, Unreliable),
        (NotVerified, NotVerified, NotVerified),
        (Holds, NotVerified, NotVerified),
    ] {
        let mut closure = of(own);
        closure.depend_on(&of(source), "queue depth 128");
        assert_eq!(closure.outcome, expected, "{own:?} on {source:?}");
        let why = closure.reasons.first().map_or("", String::as_str);
        assert_eq!(why.contains("queue depth 128"), expected != own, "{why}");
    }
}
