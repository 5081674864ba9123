//! The simulated world itself: what is counted in it must be true before it judges anything.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use opponent::cause::Cause;
use opponent::draw::healthy;
use opponent::judge::{analysed, captured, drawn, judged};
use opponent::setup::{Arrivals, MS, Place, Protocol, SECOND, Setup};
use opponent::tally::Share;
use opponent::world::{Outcome, run};

use fastrand::Rng;

/// A setup without loss, whose capture has everything.
fn clean(seed: u64) -> Setup {
    let mut setup = healthy(&mut Rng::with_seed(seed), seed);
    setup.path.loss = 0.0;
    let tap = &mut setup.tap;
    (tap.place, tap.is_told, tap.snap, tap.doubled, tap.late) = (Place::Client, true, 0, false, false);
    setup
}

#[test]
fn a_run_repeats_to_the_bit() {
    for seed in 0..10 {
        let (setup, _) = drawn(seed, None);
        let bytes = || captured(&setup).1.into_iter().map(|capture| capture.pcapng).collect::<Vec<_>>();
        assert_eq!(bytes(), bytes(), "seed {seed}");
    }
}

#[test]
fn every_operation_of_a_healthy_setup_is_answered_and_seen() {
    for seed in 0..40 {
        let setup = clean(seed);
        let (run, captures) = captured(&setup);
        assert_eq!(run.ops.len(), setup.load.operations as usize, "seed {seed}: {}", setup.line());
        assert!((run.share(Outcome::Answered) - 1.0).abs() < 1e-9, "seed {seed}: {}", setup.line());
        let result = analysed(&setup, captures).unwrap();
        assert_eq!(result.operations as usize, run.ops.len(), "seed {seed}: {}", setup.line());
    }
}

/// The client's capture point has the times of the client: the analysis and the simulation agree on each operation, but for the
/// work of a few packets at either end.
#[test]
fn operations_last_as_long_in_the_capture_as_in_the_run() {
    for seed in 0..40 {
        let mut setup = clean(seed);
        setup.hosts.iter_mut().for_each(|host| {
            (host.packet_ns, host.nodelay, host.offload_segments) = (100, true, 1);
        });
        let (run, captures) = captured(&setup);
        let result = analysed(&setup, captures).unwrap();
        let seen_us: f64 = result.excess.operations_us;
        let true_us = run.time_ns() / 1000.0;
        let each_us = true_us / run.ops.len() as f64;
        assert!(
            (seen_us / true_us - 1.0).abs() < 0.02 || (seen_us - true_us).abs() < 3.0 * run.ops.len() as f64,
            "seed {seed}: {seen_us} of {true_us} us, {each_us} each: {}",
            setup.line()
        );
    }
}

#[test]
fn a_removed_cause_is_gone_and_a_healthy_setup_has_few() {
    for &cause in Cause::ALL {
        for seed in 0..20 {
            let (setup, _) = drawn(seed, Some(cause));
            let without = cause.removed(&setup);
            let again = cause.removed(&without);
            assert!(
                matches!(cause, Cause::QueueDepthLow | Cause::LinkFull) || without == again,
                "{cause:?} {seed}"
            );
        }
    }
}

/// Each way of planting makes a cause that matters in at least a third of the setups: otherwise the table says nothing on it.
#[test]
fn planted_causes_matter() {
    for &cause in Cause::ALL {
        let seeds: Vec<u64> =
            (0..60).filter(|&seed| !drawn(seed, Some(cause)).1.is_empty()).take(9).collect();
        let present =
            seeds.iter().filter(|&&seed| judged(seed, Some(cause)).has(cause) == Some(true)).count();
        assert!(present * 3 >= seeds.len(), "{cause:?}: {present} of {}", seeds.len());
    }
}

/// A connection request that is dropped is repeated after a second, then after two.
#[test]
fn dropped_connection_requests_cost_seconds() {
    let mut setup = clean(3);
    setup.protocol = Protocol::Http;
    setup.load.depth = 1;
    setup.load.connection_per_request = true;
    setup.service.dropped_syns = 0.5;
    setup.load.arrivals = Arrivals::Closed { think_ns: 0 };
    let run = run(&setup, None);
    let rounds = |op: &opponent::world::Op| (op.finish.unwrap() - op.start + 100 * MS) / SECOND;
    let (mut once, mut twice) = (0, 0);
    for op in run.ops.iter().filter(|op| op.outcome == Outcome::Answered) {
        match rounds(op) {
            1 => once += 1,
            3 => twice += 1,
            rounds => assert!([0, 7, 15].contains(&rounds), "{op:?}"),
        }
    }
    assert!(
        once > run.ops.len() / 8 && twice > run.ops.len() / 20,
        "{once} and {twice} of {}",
        run.ops.len()
    );
}

/// Wilson's interval beside published values (Newcombe 1998, table I: 81 of 263, 15 of 148, 0 of 20, 1 of 29).
#[test]
fn intervals_are_wilsons() {
    for ((hits, of), (low, high)) in [
        ((81, 263), (0.2553, 0.3662)),
        ((15, 148), (0.0624, 0.1605)),
        ((0, 20), (0.0, 0.1611)),
        ((1, 29), (0.0061, 0.1718)),
    ] {
        let (l, h) = Share { hits, of }.interval();
        assert!((l - low).abs() < 1e-4 && (h - high).abs() < 1e-4, "{hits} of {of}: {l} to {h}");
    }
}
