//! Regimes: planted ones are found with their borders, size, place and pattern, wherever they are; records without any yield
//! none.

use std::ops::Range;

use analysis::Part;
use analysis::modes::{Finding, FindingKind, Parts, Point, Regime, Shape, find};
use fastrand::Rng;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;

/// A normal deviate (Box, Muller).
fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// The time that an operation takes in each part, microseconds.
#[derive(Clone, Copy, Debug)]
struct Times {
    client: f64,
    request: f64,
    server: f64,
    response: f64,
}

/// The paper's local run of 4096 B in its better mode: 22 us to the server.
const USUAL: Times = Times { client: 32.0, request: 22.0, server: 33.0, response: 60.0 };

impl Times {
    /// Adds time to a part.
    fn longer(mut self, part: Part, us: f64) -> Self {
        *match part {
            Part::Client => &mut self.client,
            Part::RequestPath => &mut self.request,
            Part::Server => &mut self.server,
            _ => &mut self.response,
        } += us;
        self
    }
}

/// A ring of queue depth 1 whose operations take `times` (given the time in ms and the number), with noise of 3 to 8 % of 30 us
/// in each part, and three outliers in a thousand.
fn ring(seed: u64, count: usize, times: impl FnMut(f64, usize, &mut Rng) -> Times) -> Vec<Point> {
    ring_with(seed, count, 0.003, times)
}

/// As [`ring`], with another share of outliers.
fn ring_with(
    seed: u64,
    count: usize,
    outliers: f64,
    mut times: impl FnMut(f64, usize, &mut Rng) -> Times,
) -> Vec<Point> {
    let mut random = Rng::with_seed(seed);
    let jitter_us = 1.0 + 1.5 * random.f64();
    let mut now_us = 0.0;
    (0..count)
        .map(|index| {
            let mut own = times(now_us / 1000.0, index, &mut random);
            for part in [&mut own.client, &mut own.request, &mut own.server, &mut own.response] {
                *part = (*part + jitter_us * normal(&mut random)).max(0.5);
            }
            if random.f64() < outliers {
                own.response += 200.0 + 5000.0 * random.f64();
            }
            let point = point(now_us, own);
            now_us += own.client + own.request + own.server + own.response;
            point
        })
        .collect()
}

fn point(at_us: f64, own: Times) -> Point {
    Point {
        time_ns: (at_us * 1000.0) as u64 + 1_700_000_000_000_000_000,
        round_trip_us: (own.request + own.server + own.response) as f32,
        parts: Parts {
            client_us: own.client as f32,
            server_us: own.server as f32,
            network_us: (own.request + own.response) as f32,
            request_path_us: own.request as f32,
            response_path_us: own.response as f32,
        },
    }
}

fn texts(findings: &[Finding]) -> String {
    findings.iter().map(|f| f.text.clone()).collect::<Vec<_>>().join(" | ")
}

fn regimes(findings: &[Finding]) -> Vec<Regime> {
    let found = findings.iter().find_map(|finding| match &finding.kind {
        FindingKind::Regimes { regimes } => Some(regimes.clone()),
        _ => None,
    });
    found.unwrap_or_default()
}

/// The period, size and place of a regime's pattern in the order of operations.
fn nth(regime: &Regime) -> Option<(u32, f64, Part)> {
    regime.patterns.iter().find_map(|finding| match finding.kind {
        FindingKind::EveryNth { n, longer_us } => Some((n, longer_us, finding.segment)),
        _ => None,
    })
}

/// Checks that the regimes are these stretches and what is between them, and that only the stretches have every n-th operation
/// longer.
#[track_caller]
fn assert_every_nth(points: &[Point], stretches: &[Range<usize>], n: u32, longer_us: f64, part: Part) {
    let findings = find(points);
    let found = regimes(&findings);
    let mut edges = vec![0];
    edges.extend(stretches.iter().flat_map(|stretch| [stretch.start, stretch.end]));
    edges.push(points.len());
    edges.dedup();
    let own: Vec<usize> = found
        .iter()
        .map(|r| r.from_operation as usize)
        .chain(found.last().map(|r| r.to_operation as usize))
        .collect();
    let all = texts(&findings);
    assert_eq!(own.len(), edges.len(), "{edges:?}: {all}");
    for (own, edge) in own.iter().zip(&edges) {
        // Between slow operations nothing shows the border, and outliers look like slow ones.
        assert!(own.abs_diff(*edge) <= 8 * n as usize, "{own} for {edge}: {all}");
    }
    for regime in &found {
        let middle = (regime.from_operation + regime.to_operation) as usize / 2;
        let expected = stretches.iter().any(|stretch| stretch.contains(&middle));
        match nth(regime) {
            Some((own_n, own_us, own_part)) => {
                assert!(expected && own_n == n && own_part == part, "{all}");
                assert!((own_us - longer_us).abs() < 3.0 + 0.05 * longer_us, "{all}");
            }
            None => assert!(!expected && regime.patterns.is_empty(), "{all}"),
        }
    }
}

/// The paper's chart of 4096 B: in one mode every fifth operation takes 119 us longer, all of it in the request path.
#[test]
fn two_regimes_of_the_paper_wherever_they_are() {
    let count = 6000;
    let of = |from: f64, to: f64| (from * count as f64) as usize..(to * count as f64) as usize;
    let cases: [&[Range<usize>]; 7] = [
        &[of(1.0 / 3.0, 2.0 / 3.0)],
        &[of(0.0, 1.0 / 3.0)],
        &[of(2.0 / 3.0, 1.0)],
        &[of(0.1, 0.3), of(0.6, 0.85)],
        &[of(0.7, 0.75)],
        &[of(0.0, 0.2), of(0.4, 0.6), of(0.8, 1.0)],
        &[of(0.1, 0.2), of(0.3, 0.4), of(0.5, 0.6), of(0.7, 0.8)],
    ];
    for (stretches, seed) in cases.iter().flat_map(|stretches| (0..6).map(move |seed| (*stretches, seed))) {
        let points = ring(seed, count, |_, index, _| {
            let is_slow = index % 5 == 3 && stretches.iter().any(|stretch| stretch.contains(&index));
            if is_slow { USUAL.longer(Part::RequestPath, 119.0) } else { USUAL }
        });
        assert_every_nth(&points, stretches, 5, 119.0, Part::RequestPath);
    }
}

/// Shares, times and levels of a regime.
#[test]
fn a_regime_has_its_share_its_time_and_its_level() {
    let points =
        ring(
            5,
            9000,
            |_, index, _| {
                if (3000..6000).contains(&index) { USUAL.longer(Part::Server, 60.0) } else { USUAL }
            },
        );
    let findings = find(&points);
    let found = regimes(&findings);
    let [first, second, third] = &found[..] else { panic!("{}", texts(&findings)) };
    let at_ms = |place: usize| (points[place].time_ns - points[0].time_ns) as f64 / 1e6;
    assert_eq!((first.from_operation, third.to_operation), (0, 9000));
    assert!(
        second.from_operation.abs_diff(3000) <= 1 && second.to_operation.abs_diff(6000) <= 1,
        "{second:?}"
    );
    assert!(
        (second.from_ms - at_ms(3000)).abs() < 1.0 && (second.to_ms - at_ms(6000)).abs() < 1.0,
        "{second:?}"
    );
    assert!((third.to_ms - at_ms(8999)).abs() < 1e-6, "{third:?}");
    let lasted = at_ms(8999);
    for regime in &found {
        assert!((regime.share - 1.0 / 3.0).abs() < 0.001, "{regime:?}");
        assert!((regime.time_share - (regime.to_ms - regime.from_ms) / lasted).abs() < 1e-9, "{regime:?}");
    }
    assert!((first.median_us - 115.0).abs() < 1.0 && (second.median_us - 175.0).abs() < 1.0, "{found:?}");
    assert!((first.mean_us - 115.0).abs() < 2.0 && (second.mean_us - 175.0).abs() < 2.0, "{found:?}");
    assert!(first.longer_us.abs() < 1.0 && (second.longer_us - 60.0).abs() < 2.0, "{found:?}");
    assert_eq!(second.segment, Part::Server);
    assert!(
        findings[0].text.contains("60.") && findings[0].text.contains("in the server"),
        "{}",
        findings[0].text
    );
}

/// Regimes of one level each are in the part that changed, also in the client and where only one capture point saw them.
#[test]
fn a_level_is_in_the_part_that_changed() {
    for part in [Part::Client, Part::RequestPath, Part::Server, Part::ResponsePath] {
        let mut points =
            ring(
                9,
                5000,
                |_, index, _| {
                    if (1000..2500).contains(&index) { USUAL.longer(part, 70.0) } else { USUAL }
                },
            );
        let findings = find(&points);
        let found = regimes(&findings);
        assert!(found.len() == 3 && found[1].segment == part, "{part:?}: {}", texts(&findings));
        assert!((found[1].longer_us - 70.0).abs() < 3.0, "{part:?}: {}", texts(&findings));
        // One capture point: only the round trip and the client.
        for point in &mut points {
            point.parts = Parts {
                server_us: f32::NAN,
                network_us: f32::NAN,
                request_path_us: f32::NAN,
                response_path_us: f32::NAN,
                ..point.parts
            };
        }
        let expected = if part == Part::Client { Part::Client } else { Part::RoundTrip };
        let findings = find(&points);
        let found = regimes(&findings);
        assert!(found.len() == 3 && found[1].segment == expected, "{part:?}: {}", texts(&findings));
    }
}

/// A falling sawtooth of 164 us in 105 ms.
fn ramp(ms: f64) -> f64 {
    164.0 * (1.0 - (ms / 105.0).fract())
}

/// "Other patterns also appear, switching between modes every few seconds": mirrored ramps whose sum alternates, every fifth
/// operation, calm, two modes by chance.
#[test]
fn patterns_that_switch_every_few_seconds_are_regimes() {
    for seed in 0..4 {
        let points = ring(seed, 50_000, |ms, index, random| match (ms / 2000.0) as u32 {
            0 => Times {
                request: USUAL.request + ramp(ms - 30.0 + 105.0),
                response: USUAL.response + 164.0 - ramp(ms),
                ..USUAL
            },
            1 if index % 5 == 0 => USUAL.longer(Part::RequestPath, 119.0),
            3 if random.f64() < 0.4 => USUAL.longer(Part::ResponsePath, 90.0),
            _ => USUAL,
        });
        let findings = find(&points);
        let found = regimes(&findings);
        let all = texts(&findings);
        let [ramps, fifth, calm, modes, rest @ ..] = &found[..] else { panic!("seed {seed}: {all}") };
        assert!(rest.len() <= 1, "seed {seed}: {all}");
        for (regime, from_ms) in [(fifth, 2000.0), (calm, 4000.0), (modes, 6000.0)] {
            assert!(
                (regime.from_ms - from_ms).abs() < 5.0,
                "seed {seed}: {} for {from_ms}: {all}",
                regime.from_ms
            );
        }
        let periods: Vec<f64> = ramps
            .patterns
            .iter()
            .filter_map(|finding| match &finding.kind {
                FindingKind::ClockSkew { height_us, period_ms, .. } => {
                    assert!((height_us - 164.0).abs() < 25.0, "seed {seed}: {all}");
                    *period_ms
                }
                FindingKind::PeriodInTime { period_ms, height_us, shape: Shape::Square { high_ms } } => {
                    assert!(
                        (height_us - 164.0).abs() < 25.0 && (high_ms - 75.0).abs() < 6.0,
                        "seed {seed}: {all}"
                    );
                    assert_eq!(finding.segment, Part::Network);
                    Some(*period_ms)
                }
                _ => None,
            })
            .collect();
        assert!(periods.len() == 2 && periods.iter().all(|p| (p - 105.0).abs() < 2.0), "seed {seed}: {all}");
        assert!(matches!(nth(fifth), Some((5, us, Part::RequestPath)) if (us - 119.0).abs() < 5.0), "{all}");
        assert!(calm.patterns.is_empty(), "seed {seed}: {all}");
        let two = modes
            .patterns
            .iter()
            .find(|f| matches!(&f.kind, FindingKind::Modes { modes } if modes.len() == 2));
        assert!(two.is_some_and(|f| f.segment == Part::ResponsePath), "seed {seed}: {all}");
    }
}

/// A pattern that repeats over a whole long record is no sequence of regimes, and its period is exact.
#[test]
fn a_repeating_pattern_is_not_a_sequence_of_regimes() {
    for (seed, count) in [(0, 9_000), (1, 40_000), (2, 200_000)] {
        let points = ring(seed, count, |ms, _, _| Times {
            request: USUAL.request + ramp(ms - 30.0 + 105.0),
            response: USUAL.response + 164.0 - ramp(ms),
            ..USUAL
        });
        let findings = find(&points);
        assert!(regimes(&findings).is_empty(), "{count}: {}", texts(&findings));
        let skew = findings.iter().find_map(|f| match f.kind {
            FindingKind::ClockSkew { period_ms, height_us, .. } => Some((period_ms?, height_us)),
            _ => None,
        });
        let (period, height) = skew.unwrap_or_else(|| panic!("{count}: {}", texts(&findings)));
        assert!(
            (period - 105.0).abs() < 0.5 && (height - 164.0).abs() < 25.0,
            "{count}: {}",
            texts(&findings)
        );
    }
}

/// Every fifth operation is found although one in ten is slow for another reason, some of them by far: a busy machine.
#[test]
fn an_order_is_found_among_other_slow_operations() {
    for seed in 0..20 {
        let points = ring(seed, 4000, |_, index, random| {
            let own = if index % 5 == 0 { USUAL.longer(Part::Server, 119.0) } else { USUAL };
            if random.f64() < 0.1 { own.longer(Part::Server, 100.0 + 4000.0 * random.f64()) } else { own }
        });
        let findings = find(&points);
        let found = findings.iter().find_map(|finding| match finding.kind {
            FindingKind::EveryNth { n, longer_us } => Some((n, longer_us, finding.segment)),
            _ => None,
        });
        let Some((5, us, Part::Server)) = found else { panic!("seed {seed}: {}", texts(&findings)) };
        assert!((115.0..150.0).contains(&us), "seed {seed}: {}", texts(&findings));
        assert!(regimes(&findings).is_empty(), "seed {seed}: {}", texts(&findings));
    }
}

/// One operation in five becomes slower by far where all become slower by a little: on a live ring, a CPU that slept in between
/// is slower behind it. The small step of most operations separates both sides better than the large one of a few.
#[test]
fn a_few_slow_operations_are_found_beneath_a_small_step_of_all() {
    for seed in 0..24 {
        let step_us = 3.0 + 0.25 * seed as f64;
        let points = ring(seed, 4200, |_, index, _| {
            let is_behind = index >= 1000;
            let own = USUAL.longer(Part::Server, if is_behind { step_us } else { 0.0 });
            if is_behind && index % 5 == 0 { own.longer(Part::Server, 1000.0) } else { own }
        });
        let found = find(&points);
        let regimes = regimes(&found);
        let at: Vec<u64> =
            regimes.iter().filter(|regime| nth(regime).is_some()).map(|r| r.from_operation).collect();
        assert!(at.first().is_some_and(|at| at.abs_diff(1000) <= 5), "{seed}: {}", texts(&found));
    }
}

/// A ramp throughout with every fifth operation longer in a part: the ramp is of every regime, and of none alone.
#[test]
fn regimes_are_found_beneath_a_repeating_pattern() {
    for seed in 0..4 {
        let points = ring(seed, 30_000, |ms, index, _| {
            let own = USUAL.longer(Part::ResponsePath, 40.0 * (1.0 - (ms / 105.0).fract()));
            let is_slow = index % 5 == 0 && (12_000..18_000).contains(&index);
            if is_slow { own.longer(Part::RequestPath, 119.0) } else { own }
        });
        let findings = find(&points);
        let found = regimes(&findings);
        let all = texts(&findings);
        let [first, second, third] = &found[..] else { panic!("seed {seed}: {all}") };
        assert!(
            second.from_operation.abs_diff(12_000) <= 20 && second.to_operation.abs_diff(18_000) <= 20,
            "{all}"
        );
        assert!(matches!(nth(second), Some((5, us, Part::RequestPath)) if (us - 119.0).abs() < 5.0), "{all}");
        for regime in [first, second, third] {
            let period = regime.patterns.iter().find_map(|f| match f.kind {
                FindingKind::PeriodInTime { period_ms, .. } => Some((period_ms, f.segment)),
                _ => None,
            });
            assert!(matches!(period, Some((ms, Part::ResponsePath)) if (ms - 105.0).abs() < 2.0), "{all}");
        }
    }
}

/// One hundred and sixty records without regimes: noise of several kinds, a burst, several bursts, a drift, waves, a walk, a heavy
/// tail, a start that becomes faster, a pattern that lasts all the time.
#[test]
fn nothing_but_regimes_is_called_regimes() {
    let mut wrong = Vec::new();
    for seed in 0..160_u64 {
        let count = [400, 1500, 6000, 30_000][seed as usize / 10 % 4];
        let mut walk = 0.0_f64;
        let share = |index: usize| index as f64 / count as f64;
        let (kind, burst) = (seed % 10, (seed as f64 / 160.0, 0.001 + 0.016 * (seed as f64 / 160.0)));
        let name = [
            "noise",
            "burst",
            "bursts",
            "drift",
            "waves",
            "walk",
            "heavy tail",
            "warm-up",
            "every fifth",
            "gamma",
        ];
        let points = ring(seed, count, |_, index, random| {
            walk += normal(random) / (count as f64).sqrt();
            let at = share(index);
            match kind {
                1 if (burst.0..burst.0 + burst.1).contains(&at) => USUAL.longer(Part::Server, 1500.0),
                2 if at * 7.0 % 1.0 < 0.02 => USUAL.longer(Part::ResponsePath, 400.0),
                3 => USUAL.longer(Part::RequestPath, 80.0 * at),
                4 => USUAL.longer(Part::Server, 40.0 * (1.0 + (at * 3.0 * std::f64::consts::TAU).sin())),
                5 => USUAL.longer(Part::Server, 100.0 + 30.0 * walk),
                // Pareto, of infinite variance.
                6 => USUAL.longer(Part::Server, 30.0 * ((1.0 - random.f64()).powf(-1.0 / 1.5) - 1.0)),
                7 => USUAL.longer(Part::Server, 300.0 * (-at / 0.05).exp()),
                8 if index % 5 == 0 => USUAL.longer(Part::RequestPath, 119.0),
                9 => USUAL.longer(Part::Server, -40.0 * ((1.0 - random.f64()) * (1.0 - random.f64())).ln()),
                _ => USUAL,
            }
        });
        let findings = find(&points);
        if !regimes(&findings).is_empty() {
            wrong.push(format!("seed {seed}, {} of {count}: {}", name[kind as usize], texts(&findings)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The same values in another order have no pattern in their order.
#[test]
fn shuffled_operations_have_no_order() {
    for seed in 0..20 {
        let n = 2 + seed as usize % 9;
        let mut slow: Vec<bool> = (0..6000).map(|index| index % n == 0).collect();
        Rng::with_seed(seed).shuffle(&mut slow);
        let points =
            ring(
                seed,
                6000,
                |_, index, _| if slow[index] { USUAL.longer(Part::RequestPath, 119.0) } else { USUAL },
            );
        let findings = find(&points);
        let is_wrong = |f: &Finding| {
            matches!(
                f.kind,
                FindingKind::EveryNth { .. } | FindingKind::Regimes { .. } | FindingKind::PeriodInTime { .. }
            )
        };
        assert!(!findings.iter().any(is_wrong), "every {n}: {}", texts(&findings));
    }
}

/// A regime of a twentieth of a million operations.
#[test]
fn long_records_are_searched() {
    let count = 1_000_000;
    let points = ring(3, count, |_, index, _| {
        let is_slow = index % 5 == 0 && (400_000..450_000).contains(&index);
        if is_slow { USUAL.longer(Part::RequestPath, 119.0) } else { USUAL }
    });
    let planted = 400_000..450_000;
    assert_every_nth(&points, std::slice::from_ref(&planted), 5, 119.0, Part::RequestPath);
}

/// Parts in which a pattern can be planted.
fn a_part() -> impl Strategy<Value = Part> {
    prop::sample::select(vec![Part::Client, Part::RequestPath, Part::Server, Part::ResponsePath])
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, rng_seed: RngSeed::Fixed(5), ..ProptestConfig::with_cases(64) })]
    /// Any period, size, place and position.
    #[test]
    fn any_planted_pattern_is_found(seed: u64, n in 2_u32..20, us in 25.0_f64..400.0, part in a_part(), from in 0.0_f64..0.85, share in 0.08_f64..0.6) {
        let count = 8000;
        let start = if from < 0.04 { 0 } else { (from * count as f64) as usize };
        let end = start + (share * count as f64) as usize;
        let end = if end as f64 > 0.96 * count as f64 { count } else { end };
        // A pattern needs some operations. Outliers are rarer than the slow ones, else they move the borders.
        prop_assume!((end - start) / n as usize >= 60);
        let points = ring_with(seed, count, 0.0005, |_, index, _| {
            let is_slow = (start..end).contains(&index) && (index - start) % n as usize == 0;
            if is_slow { USUAL.longer(part, us) } else { USUAL }
        });
        let planted = start..end;
        assert_every_nth(&points, std::slice::from_ref(&planted), n, us, part);
    }

    /// Any shuffled values with slow operations among them.
    #[test]
    fn no_shuffled_values_have_regimes(seed: u64, share in 0.02_f64..0.5, us in 25.0_f64..400.0, count in 300_usize..6000) {
        let points = ring(seed, count, |_, _, random| {
            if random.f64() < share { USUAL.longer(Part::Server, us) } else { USUAL }
        });
        let findings = find(&points);
        let is_wrong = |f: &Finding| matches!(f.kind, FindingKind::EveryNth { .. } | FindingKind::Regimes { .. });
        prop_assert!(!findings.iter().any(is_wrong), "{}", texts(&findings));
    }
}
