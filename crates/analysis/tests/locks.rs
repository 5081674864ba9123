//! A server that works on one request at a time, as its own capture point shows it, and traffic close to it that is no queue.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shop;

use analysis::verdict::VerdictKind;

use shop::{LOCK, MS, Made, SLEEP, Shop, about, at_server, exponential};

type Time = fn(&mut fastrand::Rng) -> u64;

fn two(random: &mut fastrand::Rng, share: f64, short: u64, long: u64) -> u64 {
    let time = if random.f64() < share { short } else { long };
    about(time, 0.1, random)
}

/// How long a lock is held, and that on average, ms: evenly distributed, exponentially, and of two kinds.
const WORKS: [(Time, f64); 5] = [
    (|random| about(4 * MS, 0.8, random), 4.0),
    (|random| about(3 * MS, 0.5, random), 3.0),
    (|random| exponential(4 * MS, random), 4.0),
    (|random| two(random, 0.75, 2 * MS, 12 * MS), 4.5),
    (|random| two(random, 0.5, MS, 5 * MS), 3.0),
];

/// Clients that are always ready over a path, and begin at any time.
fn shops(service: Time, workers: usize) -> impl Iterator<Item = Shop> {
    let of = move |connections| {
        [5 * MS, 10 * MS].map(|network| {
            let starts = |_, random: &mut fastrand::Rng| random.u64(..20 * MS);
            Shop { connections, network, requests: 80, workers, service, starts, ..LOCK }
        })
    };
    [12, 16].into_iter().flat_map(of)
}

#[test]
fn one_lock_behind_a_path_is_a_saturated_server_however_long_it_is_held() {
    for (service, mean_ms) in WORKS {
        for (shop, seed) in shops(service, 1).zip(0..) {
            let verdict = at_server(shop.run(seed), shop.network).only(VerdictKind::Saturated);
            assert!(verdict.text.contains(" each, one at a time"), "{}", verdict.text);
            let ms: f64 =
                verdict.text.split("saturated: ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
            assert!((ms / mean_ms - 1.0).abs() < 0.12, "{mean_ms}: {}", verdict.text);
        }
    }
}

#[test]
fn a_number_of_workers_that_does_not_show_is_not_stated() {
    for (service, _) in WORKS {
        for (shop, seed) in shops(service, 2).zip(0..) {
            let text = at_server(shop.run(seed), shop.network).only(VerdictKind::Saturated).text;
            assert!(text.contains("does not show") || text.contains(" 2 at a time"), "{text}");
        }
    }
}

/// Who gets the lock next may have finished before the one before has sent its response.
#[test]
fn responses_that_change_places_behind_a_lock_are_no_second_worker() {
    for (shop, seed) in shops(WORKS[2].0, 1).zip(0..) {
        let mut all = shop.run(seed);
        // The capture does not show how long the first requests took, which met no other.
        all.retain(|made| made.began > 100 * MS);
        all.sort_unstable_by_key(|made: &Made| made.ended);
        for at in (1..all.len()).step_by(2) {
            let (one, next) = (all[at - 1], all[at]);
            if next.ended - one.ended < MS && next.began < one.ended {
                (all[at - 1].first, all[at - 1].ended) = (next.ended, next.ended);
                (all[at].first, all[at].ended) = (one.ended, one.ended);
            }
        }
        let text = at_server(all, shop.network).only(VerdictKind::Saturated).text;
        assert!(!text.contains("2 at a time"), "{text}");
    }
}

/// Each request takes its time, whatever the others do.
#[test]
fn latencies_that_overlap_behind_a_path_are_no_lock() {
    let services: [Time; 6] = [
        SLEEP.service,
        |random| about(43 * MS, 0.02, random),
        |random| about(43 * MS, 0.1, random),
        |random| about(43 * MS, 0.5, random),
        |random| exponential(43 * MS, random),
        |random| two(random, 0.75, 10 * MS, 60 * MS),
    ];
    let starts: [fn(u32, &mut fastrand::Rng) -> u64; 3] =
        [|c, _| u64::from(c) * MS / 50, |_, random| random.u64(..43 * MS), |c, _| u64::from(c) * 3 * MS];
    let thinks: [Time; 2] = [LOCK.think, |random| exponential(10 * MS, random)];
    for seed in 0..8 {
        for (service, connections) in services.into_iter().zip([3, 12, 16, 4, 12, 40]) {
            for (starts, think) in starts.into_iter().flat_map(|starts| thinks.map(|think| (starts, think))) {
                let network = 5 * MS * (1 + seed % 2);
                let shop = Shop { connections, network, service, starts, think, requests: 80, ..SLEEP };
                let judged = at_server(shop.run(seed), network).judge();
                let mut all = judged.verdicts.iter().chain(&judged.minor);
                assert!(all.all(|verdict| verdict.kind != VerdictKind::Saturated), "{seed}: {judged:#?}");
            }
        }
    }
}

/// Answers that leave at the ticks of a timer, to clients that are always ready: they leave together, in the order of their requests.
#[test]
fn answers_at_ticks_are_not_one_at_a_time() {
    const TICK: u64 = 10 * MS;
    for seed in 0..8 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all = Vec::new();
        for connection in 0..5 {
            let mut began = random.u64(..TICK);
            for _ in 0..80 {
                let ready = began + MS / 5 + about(MS / 5, 0.05, &mut random);
                // Those of a tick leave one behind the other.
                let ended = ready.next_multiple_of(TICK) + MS / 10 + u64::from(connection) * 5000;
                all.push(Made {
                    connection,
                    began,
                    first: ended,
                    ended,
                    thought: Some(MS / 10),
                    bytes: 1406,
                });
                began = ended + about(MS / 10, 0.5, &mut random);
            }
        }
        let judged = at_server(all, MS / 5).judge();
        let mut found = judged.verdicts.iter().chain(&judged.minor);
        assert!(found.all(|verdict| verdict.kind != VerdictKind::Saturated), "{seed}: {judged:#?}");
    }
}
