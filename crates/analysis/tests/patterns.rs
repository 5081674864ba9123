//! The four patterns that the paper found by hand, from op records of that structure with realistic noise; and
//! records without structure, which must yield no findings.

use analysis::Part;
use analysis::modes::{Finding, FindingKind, Parts, Point, Shape, find};
use fastrand::Rng;
use proptest::prelude::*;

/// A normal deviate (Box, Muller).
fn normal(random: &mut Rng) -> f64 {
    (-2.0 * (1.0 - random.f64()).ln()).sqrt() * (std::f64::consts::TAU * random.f64()).cos()
}

/// A time about `us`, with log-normal jitter of that share.
fn about(random: &mut Rng, us: f64, jitter: f64) -> f64 {
    us * (jitter * normal(random)).exp()
}

/// A record of a ring of queue depth 1: `paths` gives the request and response path at a time (ms) and index.
fn record(seed: u64, count: usize, mut paths: impl FnMut(f64, usize, &mut Rng) -> (f64, f64)) -> Vec<Point> {
    let mut random = Rng::with_seed(seed);
    let jitter = 0.03 + 0.12 * random.f64();
    let mut now_us = 0.0;
    (0..count)
        .map(|index| {
            let (request, response) = paths(now_us / 1000.0, index, &mut random);
            let noise = |random: &mut Rng, us: f64| us + about(random, 15.0, 2.0 * jitter) - 15.0;
            let mut request = noise(&mut random, request);
            let response = noise(&mut random, response);
            if random.f64() < 0.005 {
                request += 275.0 * (5.0 + 45.0 * random.f64());
            }
            let (client, server) = (about(&mut random, 32.0, jitter), about(&mut random, 32.0, jitter));
            let round_trip = request + server + response;
            let point = Point {
                time_ns: (now_us * 1000.0) as u64 + 1_700_000_000_000_000_000,
                round_trip_us: round_trip as f32,
                parts: Parts {
                    client_us: client as f32,
                    server_us: server as f32,
                    network_us: (request + response) as f32,
                    request_path_us: request as f32,
                    response_path_us: response as f32,
                },
            };
            now_us += round_trip.max(1.0) + client;
            point
        })
        .collect()
}

/// The other findings beside the regimes.
fn without_regimes(mut findings: Vec<Finding>) -> Vec<Finding> {
    findings.retain(|finding| !matches!(finding.kind, FindingKind::Regimes { .. }));
    findings
}

fn kinds(findings: &[Finding]) -> String {
    findings.iter().map(|f| f.text.clone()).collect::<Vec<_>>().join(" | ")
}

/// "One third of the operations 338 us, two thirds 135 us; every third operation, evenly spaced."
#[test]
fn every_third_operation_in_the_network() {
    for seed in 0..25 {
        let points = record(seed, 4000, |_, index, _| {
            let network = if index % 3 == 0 { 338.0 } else { 135.0 };
            (network / 2.0, network / 2.0)
        });
        let findings = find(&points);
        let nth = findings.iter().find_map(|f| match f.kind {
            FindingKind::EveryNth { n, longer_us } => Some((n, longer_us, f.segment)),
            _ => None,
        });
        let (n, longer, segment) = nth.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!(n == 3 && (longer - 203.0).abs() < 12.0 && segment == Part::Network, "{}", kinds(&findings));
        let modes = findings.iter().find_map(|f| match &f.kind {
            FindingKind::Modes { modes } => Some((modes.clone(), f.segment)),
            _ => None,
        });
        let (modes, segment) = modes.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!(modes.len() == 2 && segment == Part::Network, "{}", kinds(&findings));
        assert!((modes[1].share - 0.333).abs() < 0.04, "{}", kinds(&findings));
        assert!((modes[1].centre_us - modes[0].centre_us - 203.0).abs() < 15.0, "{}", kinds(&findings));
        assert_eq!(findings.len(), 2, "{}", kinds(&findings));
    }
}

/// "Every fifth operation takes 119 us longer, all of it in the request path (22 us or 141 us)."
#[test]
fn every_fifth_operation_in_the_request_path() {
    for seed in 0..25 {
        let points = record(seed, 4000, |_, index, _| (if index % 5 == 2 { 141.0 } else { 22.0 }, 30.0));
        let findings = find(&points);
        let nth = findings.iter().find_map(|f| match f.kind {
            FindingKind::EveryNth { n, longer_us } => Some((n, longer_us, f.segment)),
            _ => None,
        });
        let (n, longer, segment) = nth.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!(
            n == 5 && (longer - 119.0).abs() < 8.0 && segment == Part::RequestPath,
            "{}",
            kinds(&findings)
        );
        assert!(findings.iter().all(|f| f.segment == Part::RequestPath), "{}", kinds(&findings));
    }
}

/// A sawtooth of 164 us in 105 ms, falling.
fn ramp(ms: f64) -> f64 {
    164.0 * (1.0 - (ms / 105.0).fract())
}

fn skew(findings: &[Finding]) -> Option<(f64, Option<f64>)> {
    findings.iter().find_map(|f| match f.kind {
        FindingKind::ClockSkew { height_us, period_ms, .. } => Some((height_us, period_ms)),
        _ => None,
    })
}

/// "Request path ramps down while the response path ramps up with a constant sum, jumping back every 105 ms."
#[test]
fn paths_that_move_against_one_another_are_clocks() {
    for seed in 0..25 {
        let points = record(seed, 8192, |ms, _, _| (40.0 + ramp(ms), 204.0 - ramp(ms)));
        let findings = find(&points);
        let (height, period) = skew(&findings).unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!((height - 164.0).abs() < 25.0, "seed {seed}: {}", kinds(&findings));
        assert!((period.unwrap() - 105.0).abs() < 2.0, "seed {seed}: {}", kinds(&findings));
        assert_eq!(findings.len(), 1, "seed {seed}: {}", kinds(&findings));
    }
}

/// "The request path jumps up 30 ms after the response path jumps down, so the sum alternates 75 ms high, 30 ms
/// low; 164 us between extremes."
#[test]
fn a_sum_that_alternates_is_a_square_wave_besides() {
    for seed in 0..25 {
        let points = record(seed, 8192, |ms, _, _| (40.0 + ramp(ms - 30.0 + 105.0), 204.0 - ramp(ms)));
        let findings = find(&points);
        let (_, period) = skew(&findings).unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!((period.unwrap() - 105.0).abs() < 2.0, "seed {seed}: {}", kinds(&findings));
        let square = findings.iter().find_map(|f| match &f.kind {
            FindingKind::PeriodInTime { period_ms, shape: Shape::Square { high_ms }, height_us } => {
                Some((*period_ms, *high_ms, *height_us, f.segment))
            }
            _ => None,
        });
        let (period, high, height, segment) =
            square.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!((period - 105.0).abs() < 2.0 && segment == Part::Network, "{}", kinds(&findings));
        assert!((high - 75.0).abs() < 6.0 && (height - 164.0).abs() < 20.0, "{}", kinds(&findings));
        assert_eq!(findings.len(), 2, "seed {seed}: {}", kinds(&findings));
    }
}

#[test]
fn distinguishes_a_jump_from_a_ramp() {
    for seed in 0..25 {
        let points = record(seed, 4000, |_, index, _| (if index < 2500 { 60.0 } else { 110.0 }, 60.0));
        let findings = without_regimes(find(&points));
        let [Finding { kind: FindingKind::ChangePoint { at_operation: operation, .. }, segment, .. }] =
            &findings[..]
        else {
            panic!("seed {seed}: {}", kinds(&findings));
        };
        assert!(operation.abs_diff(2500) <= 80 && *segment == Part::RequestPath, "{}", kinds(&findings));
        let points = record(seed, 4000, |_, index, _| (60.0, 60.0 + index as f64 / 50.0));
        let findings = find(&points);
        let [Finding { kind: FindingKind::Ramp { change_us }, segment, .. }] = &findings[..] else {
            panic!("seed {seed}: {}", kinds(&findings));
        };
        assert!((change_us - 80.0).abs() < 12.0 && *segment == Part::ResponsePath, "{}", kinds(&findings));
    }
}

#[test]
fn a_change_point_has_its_time_and_its_levels() {
    for seed in 0..10 {
        let points = record(seed, 4000, |_, index, _| (if index < 2500 { 60.0 } else { 110.0 }, 60.0));
        let findings = without_regimes(find(&points));
        let [Finding { kind: FindingKind::ChangePoint { at_operation, after_ms, levels_us }, .. }] =
            &findings[..]
        else {
            panic!("seed {seed}: {}", kinds(&findings));
        };
        let at = points[*at_operation as usize].time_ns - points[0].time_ns;
        assert!((after_ms - at as f64 / 1e6).abs() < 1.0, "{after_ms} {at}");
        // Of the round trip: two paths, and 32 us in the server.
        assert!((levels_us.0 - 152.0).abs() < 4.0 && (levels_us.1 - 202.0).abs() < 4.0, "{levels_us:?}");
    }
}

#[test]
fn a_sawtooth_has_its_direction() {
    for (seed, rises) in (0..10).flat_map(|seed| [(seed, true), (seed, false)]) {
        let height = |ms: f64| if rises { 164.0 - ramp(ms) } else { ramp(ms) };
        let findings = find(&record(seed, 8192, |ms, _, _| (40.0 + height(ms), 60.0)));
        let found = findings.iter().find_map(|f| match f.kind {
            FindingKind::PeriodInTime { shape: Shape::Sawtooth { rising }, period_ms, height_us } => {
                Some((rising, period_ms, height_us))
            }
            _ => None,
        });
        let (rising, period_ms, height_us) =
            found.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert_eq!(rising, rises, "seed {seed}: {}", kinds(&findings));
        assert!((period_ms - 105.0).abs() < 2.0 && (height_us - 164.0).abs() < 25.0, "{}", kinds(&findings));
    }
}

#[test]
fn a_clock_skew_has_its_rate() {
    for seed in 0..10 {
        let findings = find(&record(seed, 8192, |ms, _, _| (40.0 + ramp(ms), 204.0 - ramp(ms))));
        let rate = findings.iter().find_map(|f| match f.kind {
            FindingKind::ClockSkew { us_per_second, .. } => Some(us_per_second),
            _ => None,
        });
        // 164 us in 105 ms; the request path becomes shorter, so the server's clock falls behind.
        let rate = rate.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        assert!((rate.abs() / (164.0 / 0.105) - 1.0).abs() < 0.15, "seed {seed}: {}", kinds(&findings));
    }
}

/// The spread of a mode is the standard deviation of its log-normal distribution.
#[test]
fn spreads_of_modes_are_those_of_their_distributions() {
    for seed in 0..10 {
        let mut random = Rng::with_seed(seed);
        let points: Vec<Point> = (0..4000_u64)
            .map(|index| {
                let is_slow = random.f64() < 0.4;
                let server =
                    if is_slow { about(&mut random, 400.0, 0.1) } else { about(&mut random, 100.0, 0.04) };
                Point {
                    time_ns: index * 1_000_000,
                    round_trip_us: server as f32,
                    parts: Parts {
                        client_us: about(&mut random, 30.0, 0.01) as f32,
                        server_us: server as f32,
                        network_us: 0.0,
                        request_path_us: 0.0,
                        response_path_us: 0.0,
                    },
                }
            })
            .collect();
        let findings = find(&points);
        let modes = findings.iter().find_map(|f| match &f.kind {
            FindingKind::Modes { modes } => Some(modes.clone()),
            _ => None,
        });
        let modes = modes.unwrap_or_else(|| panic!("seed {seed}: {}", kinds(&findings)));
        let [fast, slow] = &modes[..] else { panic!("{modes:?}") };
        assert!(
            (fast.spread / 0.04 - 1.0).abs() < 0.15 && (slow.spread / 0.1 - 1.0).abs() < 0.15,
            "{modes:?}"
        );
        assert!((fast.centre_us - 100.0).abs() < 1.0 && (slow.centre_us - 400.0).abs() < 6.0, "{modes:?}");
    }
}

/// One hundred records without structure: log-normal, gamma, normal; heavy tails, outliers, correlated
/// neighbours, stamps in whole microseconds.
#[test]
fn nothing_is_found_where_nothing_is() {
    let mut wrong = Vec::new();
    for seed in 0..100_u64 {
        let mut random = Rng::with_seed(1000 + seed);
        let count = [200, 500, 1000, 4000, 8192, 16_384][seed as usize % 6];
        let similar = [0.0, 0.2, 0.5][seed as usize % 3];
        let (whole_us, tail) = (seed % 4 == 1, seed % 5 == 2);
        let mean = 20.0 * (1.0 + 40.0 * random.f64());
        let mut state = [0.0_f64; 4];
        let mut now_us = 0.0;
        let points: Vec<Point> = (0..count)
            .map(|_| {
                let mut parts = [0.0_f64; 4];
                for (part, state) in parts.iter_mut().zip(&mut state) {
                    *state = similar * *state + (1.0_f64 - similar * similar).sqrt() * normal(&mut random);
                    let us = mean / 4.0;
                    *part = match seed % 3 {
                        0 => us * (0.25 * *state).exp(),
                        // Erlang 4, and the correlated part.
                        1 => {
                            us * ((0..4).map(|_| -(1.0 - random.f64()).ln()).sum::<f64>() / 4.0
                                + 0.1 * *state
                                + 0.3)
                        }
                        _ => us * (1.0 + 0.15 * *state),
                    };
                    if tail {
                        *part += us * 0.02 / (1.0 - random.f64()).max(1e-4);
                    }
                    if random.f64() < 0.002 {
                        *part += us * 40.0 * random.f64();
                    }
                    if whole_us {
                        *part = part.round();
                    }
                }
                let [client, request, server, response] = parts;
                let round_trip = request + server + response;
                let point = Point {
                    time_ns: (now_us * 1000.0) as u64,
                    round_trip_us: round_trip as f32,
                    parts: Parts {
                        client_us: client as f32,
                        server_us: server as f32,
                        network_us: (request + response) as f32,
                        request_path_us: if seed % 2 == 0 { request as f32 } else { f32::NAN },
                        response_path_us: if seed % 2 == 0 { response as f32 } else { f32::NAN },
                    },
                };
                now_us += round_trip.max(0.1) + client.max(0.0);
                point
            })
            .collect();
        let findings = find(&points);
        if !findings.is_empty() {
            wrong.push(format!("seed {seed} ({count}): {}", kinds(&findings)));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]
    #[test]
    fn no_values_can_panic(values in prop::collection::vec((any::<u64>(), prop_oneof![any::<f32>(), Just(0.0_f32), Just(7.0_f32), 0.0_f32..100.0]), 0..600), few: bool) {
        let points: Vec<Point> = values.into_iter().map(|(time_ns, v)| Point {
            time_ns: if few { time_ns % 1000 } else { time_ns },
            round_trip_us: v,
            parts: Parts { client_us: -v, server_us: v / 3.0, network_us: f32::NAN, request_path_us: v, response_path_us: 1.0 - v },
        }).collect();
        let _ = find(&points);
    }
}

fn modes_of(findings: &[Finding]) -> (Vec<analysis::modes::Mode>, Part) {
    let found = findings.iter().find_map(|f| match &f.kind {
        FindingKind::Modes { modes } => Some((modes.clone(), f.segment)),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("no modes: {}", kinds(findings)))
}

/// Skewed modes, whose centres are not their means: the means are those of the planted operations.
#[test]
fn means_of_modes_are_those_of_their_operations() {
    for seed in 0..25 {
        let mut random = Rng::with_seed(seed);
        let slow: Vec<bool> = (0..6000).map(|_| random.f64() < 0.4).collect();
        let points = record(seed, 6000, |_, index, random| {
            // An exponential tail above each level.
            let tail = -(1.0 - random.f64()).ln();
            let network = if slow[index] { 600.0 + 120.0 * tail } else { 100.0 + 20.0 * tail };
            (network / 2.0, network / 2.0)
        });
        // Without the outliers that `record` adds, which belong to no mode.
        let all: Vec<(Point, bool)> =
            points.into_iter().zip(slow).filter(|(point, _)| point.round_trip_us < 1250.0).collect();
        let points: Vec<Point> = all.iter().map(|(point, _)| *point).collect();
        let (modes, _) = modes_of(&find(&points));
        assert_eq!(modes.len(), 2, "seed {seed}: {modes:?}");
        for (mode, slow) in modes.iter().zip([false, true]) {
            let own = all
                .iter()
                .filter(|(point, is_slow)| *is_slow == slow && (point.round_trip_us < 400.0) != slow);
            let (sum, count) =
                own.fold((0.0, 0.0), |(s, n), (point, _)| (s + f64::from(point.round_trip_us), n + 1.0));
            let truth = sum / count;
            assert!((mode.mean_us / truth - 1.0).abs() < 0.01, "seed {seed}: {} for {truth}", mode.mean_us);
        }
    }
}

/// Every segment moves a little with the slow operations, and the server by most of the difference: the server is named, although
/// it is not the first that moves.
#[test]
fn the_segment_with_the_largest_share_is_named() {
    for seed in 0..10 {
        let mut random = Rng::with_seed(seed);
        let slow: Vec<bool> = (0..5000).map(|_| random.f64() < 0.3).collect();
        let mut points =
            record(seed, 5000, |_, index, _| if slow[index] { (55.0, 45.0) } else { (40.0, 40.0) });
        for (point, _) in points.iter_mut().zip(&slow).filter(|(_, slow)| **slow) {
            point.parts.server_us += 180.0;
            point.round_trip_us += 180.0;
        }
        let (_, segment) = modes_of(&find(&points));
        assert_eq!(segment, Part::Server, "seed {seed}");
    }
}

/// A jump of the server by 200 us with one of the request path by 30 us: the server moved by the amount seen.
#[test]
fn a_drift_is_that_of_the_segment_that_moved_most() {
    for seed in 0..25 {
        let mut points = record(seed, 4000, |_, index, _| (if index < 2000 { 60.0 } else { 90.0 }, 60.0));
        for point in points.iter_mut().skip(2000) {
            point.parts.server_us += 200.0;
            point.round_trip_us += 200.0;
        }
        let findings = without_regimes(find(&points));
        let [Finding { kind: FindingKind::ChangePoint { .. }, segment, .. }] = &findings[..] else {
            panic!("seed {seed}: {}", kinds(&findings));
        };
        assert_eq!(*segment, Part::Server, "seed {seed}: {}", kinds(&findings));
    }
}
