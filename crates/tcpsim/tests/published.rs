//! The paper's curve, from one set of parameters (src/preset/seed-512.toml), and its delays. Its table of busy cycles is in crates/study
//! (`busy_cycles`), beside the published values.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tcpsim::preset::Preset;
use tcpsim::{RunResult, Setup, simulate};

fn run(name: &str, queue_depth: u32, operations: u64) -> RunResult {
    let setup = Setup::read(Preset::named(name).unwrap().text).unwrap();
    simulate(&Setup { queue_depth, operations, ..setup }, &mut ())
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
        ("post-linux", 22.6, 22.8),
        ("post", 4.86, 4.87),
        ("post-nodelay", 20.33, 20.36),
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
