//! Structure of whole runs, also of those of which only a part is kept.

use analysis::Part;
use analysis::modes::{Finding, FindingKind, Regime};
use analysis::samples::Samples;
use fastrand::Rng;
use record::{Exchange, Observed, Op, OpKind, Passage, Side, Stamp, Verb};

/// The first operations of a connection, which are left out.
const SKIPPED: usize = 32;

/// An operation of one capture point that began at a time and took another.
fn observed(began_ns: u64, took_ns: u64, index: u64) -> Observed {
    let detail = Exchange {
        op: Op {
            connection: 0,
            verb: Verb::Scsi(0x28),
            kind: OpKind::Read,
            data_bytes: 512,
            ..Op::default()
        },
        ring_depth: 1,
        request: Passage::begin(began_ns, 2 * index + 1),
        response: Passage::begin(began_ns + took_ns, 2 * index + 2),
        thought_ns: Some(5_000),
        ..Exchange::default()
    };
    let mut observed = Observed::alone(Side::Client, &detail);
    observed.op.c1 = Stamp::at(began_ns);
    observed
}

/// The findings of a run whose operations take these times, microseconds, given the time in ms and the number.
fn findings(count: usize, mut us: impl FnMut(f64, usize) -> f64) -> Vec<Finding> {
    let mut random = Rng::with_seed(7);
    let mut samples = Samples::new(true);
    let mut now_ns = 1_000_000_000_u64;
    for index in 0..count {
        let us = us((now_ns - 1_000_000_000) as f64 / 1e6, index) + 2.0 * random.f64();
        let took_ns = (us * 1000.0) as u64;
        samples.add(0, &observed(now_ns, took_ns, index as u64));
        now_ns += took_ns + 5_000 + random.u64(..500);
    }
    samples.findings().into_iter().map(|(_, finding)| finding).collect()
}

fn regimes(findings: &[Finding]) -> Vec<Regime> {
    let found = findings.iter().find_map(|finding| match &finding.kind {
        FindingKind::Regimes { regimes } => Some(regimes.clone()),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("{findings:#?}"))
}

/// A regime anywhere in a run has its numbers, although nothing but the first operations used to be kept.
#[test]
fn a_regime_far_behind_the_first_operations_is_found() {
    for (count, from, to) in [(60_000, 40_000, 50_000), (3_000_000, 1_800_000, 1_950_000)] {
        let findings =
            findings(
                count,
                |_, index| {
                    if (from..to).contains(&index) && index % 5 == 0 { 149.0 } else { 30.0 }
                },
            );
        let found = regimes(&findings);
        let [first, second, third] = &found[..] else { panic!("{found:#?}") };
        // Of a long run one group of 1024 in eight is kept.
        let near = if count > 1 << 19 { 16 * 1024 } else { 20 };
        let is_near = |own: u64, at: usize| (own as usize).abs_diff(at) <= near;
        assert!(is_near(second.from_operation, from) && is_near(second.to_operation, to), "{found:#?}");
        assert_eq!((first.from_operation, third.to_operation), (0, count as u64));
        let share = (to - from) as f64 / count as f64;
        assert!((second.share - share).abs() < 2.0 * near as f64 / count as f64, "{found:#?}");
        let pattern = &second.patterns[0];
        let FindingKind::EveryNth { n: 5, longer_us } = pattern.kind else { panic!("{found:#?}") };
        assert!((longer_us - 119.0).abs() < 1.0 && pattern.segment == Part::RoundTrip, "{found:#?}");
        assert!(first.patterns.is_empty() && third.patterns.is_empty(), "{found:#?}");
    }
}

/// What is kept does not grow with the run.
#[test]
fn no_more_than_half_a_million_operations_are_kept() {
    for (count, all) in [(400_000, true), (2_000_000, false)] {
        let findings = findings(count, |_, index| if index > count / 2 { 60.0 } else { 30.0 });
        let kept = findings[0].operations as usize;
        let expected = if all { count - SKIPPED..=count - SKIPPED } else { 1 << 18..=1 << 19 };
        assert!(expected.contains(&kept), "{kept} of {count}");
    }
}

/// A pattern in time shows in operations of which groups are left out.
#[test]
fn a_period_is_found_in_a_thinned_run() {
    for count in [100_000, 2_000_000] {
        let findings = findings(count, |ms, _| 30.0 + 164.0 * (1.0 - (ms / 105.0).fract()));
        let period = findings.iter().find_map(|f| match f.kind {
            FindingKind::PeriodInTime { period_ms, height_us, .. } => Some((period_ms, height_us)),
            _ => None,
        });
        let (period_ms, height_us) = period.unwrap_or_else(|| panic!("{count}: {findings:#?}"));
        assert!(
            (period_ms - 105.0).abs() < 0.5 && (height_us - 164.0).abs() < 20.0,
            "{count}: {findings:#?}"
        );
        assert!(!findings.iter().any(|f| matches!(f.kind, FindingKind::Regimes { .. })), "{findings:#?}");
    }
}
