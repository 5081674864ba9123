//! The paper's figures, from one set of parameters (src/preset/seed-512.toml): the table of busy cycles, and the curve.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tcpsim::preset::Preset;
use tcpsim::{RunResult, Setup, simulate};

fn run(name: &str, queue_depth: u32, operations: u64) -> RunResult {
    let setup = Setup::read(Preset::named(name).unwrap().text).unwrap();
    simulate(&Setup { queue_depth, operations, ..setup }, &mut ())
}

/// Percent of the busy cycles that served 1 to 5 requests.
fn shares(name: &str, queue_depth: u32) -> [f64; 5] {
    let run = run(name, queue_depth, 400_000);
    [1, 2, 3, 4, 5].map(|count| run.busy_count_share.get(&count).copied().unwrap_or(0.0) * 100.0)
}

#[track_caller]
fn near(simulated: [f64; 5], published: [f64; 5], points: f64) {
    for (own, theirs) in simulated.iter().zip(published) {
        assert!((own - theirs).abs() <= points, "{simulated:.0?} and {published:?}");
    }
}

#[test]
fn busy_cycles_with_nodelay() {
    near(shares("seed-512", 1), [100.0, 0.0, 0.0, 0.0, 0.0], 1.0);
    near(shares("seed-512", 2), [0.0, 100.0, 0.0, 0.0, 0.0], 10.0);
    near(shares("seed-512", 3), [0.0, 0.0, 100.0, 0.0, 0.0], 10.0);
    near(shares("seed-512", 4), [8.0, 8.0, 8.0, 76.0, 0.0], 10.0);
    near(shares("seed-512", 5), [15.0, 12.0, 12.0, 15.0, 46.0], 10.0);
}

#[test]
fn busy_cycles_with_nagle() {
    near(shares("seed-512-nagle", 1), [100.0, 0.0, 0.0, 0.0, 0.0], 1.0);
    near(shares("seed-512-nagle", 2), [100.0, 0.0, 0.0, 0.0, 0.0], 10.0);
    near(shares("seed-512-nagle", 3), [50.0, 50.0, 0.0, 0.0, 0.0], 10.0);
    // There are two limit cycles, one and three or two and two. Disturbances decide how often the ring is in which; the
    // paper's ring was in the second more often (40 %).
    near(shares("seed-512-nagle", 4), [30.0, 40.0, 30.0, 0.0, 0.0], 15.0);
    let five = shares("seed-512-nagle", 5);
    assert!(
        five[0].min(five[3]) > five[1].max(five[2]) && five[1].min(five[2]) > five[4] + 5.0,
        "{five:.0?}"
    );
}

/// `auto` reaches the best of the other policies at every depth.
#[test]
fn auto_reaches_the_best_policy() {
    use policy::SendPolicy;
    let base = Setup::read(Preset::named("seed-512").unwrap().text).unwrap();
    for depth in [1, 2, 4, 16, 64] {
        for batch in [false, true] {
            let iops = |policy| {
                let mut setup = Setup { policy, queue_depth: depth, operations: 100_000, ..base.clone() };
                setup.load.batch = batch;
                simulate(&setup, &mut ()).iops
            };
            let others = SendPolicy::ALL.into_iter().filter(|policy| *policy != SendPolicy::Auto);
            let best = others.map(iops).fold(0.0, f64::max);
            let share = iops(SendPolicy::Auto) / best;
            assert!(share >= 0.97, "depth {depth}, client collects: {batch}: {share:.3} of the best");
        }
    }
}

#[test]
fn nagle_costs_half_at_low_depth_crosses_over_and_peaks_higher() {
    let iops = |name: &str| [1, 4, 8, 64, 128].map(|depth| run(name, depth, 60_000).iops);
    let (nodelay, nagle) = (iops("seed-512"), iops("seed-512-nagle"));
    let ratios: Vec<f64> = nagle.iter().zip(nodelay).map(|(a, b)| a / b).collect();
    assert!((0.95..1.05).contains(&ratios[0]), "a single request is not held: {ratios:.2?}");
    assert!(ratios[1] < 0.6 && ratios[2] < 0.6, "nearly half is lost: {ratios:.2?}");
    assert!(ratios[3] > 1.3 && ratios[4] > 1.3, "the peak is higher: {ratios:.2?}");
    // The parameters are fitted to 275.7 us at depth 1 and 63 000 operations per second at most.
    assert!((nodelay[0] / 3627.0 - 1.0).abs() < 0.03, "{nodelay:.0?}");
    assert!((nodelay[4] / 63_000.0 - 1.0).abs() < 0.08, "{nodelay:.0?}");
    assert!(nagle[4] > 90_000.0, "the paper's adaptive mode has more than 100 000: {nagle:.0?}");
}

#[test]
fn delayed_acknowledgements_and_unfinished_writes_limit_the_rate_as_published() {
    for (name, least, most) in [
        ("two-sends", 22.6, 22.8),
        ("post", 22.6, 22.8),
        ("more-broken", 4.7, 4.9),
        ("cork-broken", 4.7, 4.9),
        ("windows-client", 24.5, 25.0),
        ("post-together", 10_000.0, 30_000.0),
    ] {
        let setup = Setup::read(Preset::named(name).unwrap().text).unwrap();
        let iops = simulate(&setup, &mut ()).iops;
        assert!((least..most).contains(&iops), "{name}: {iops}");
    }
    // The paper's bound below one packet of responses is 25 times the depth.
    for depth in [2, 4, 8] {
        let setup = Setup::read(Preset::named("two-sends").unwrap().text).unwrap();
        let iops = simulate(&Setup { queue_depth: depth, ..setup }, &mut ()).iops;
        assert!(iops <= 25.0 * f64::from(depth), "{depth}: {iops}");
    }
}
