//! A lock that wakes any of those who wait for it, or the last one: its responses keep no order. And servers that work on all their
//! requests at once, each slowly.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shop;

use analysis::verdict::VerdictKind;

use shop::{MS, Made, SLEEP, Shop, US, World, about, at_server, exponential, world};

type Time = fn(&mut fastrand::Rng) -> u64;

/// Who gets the lock next, of so many.
type Next = fn(&mut fastrand::Rng, usize) -> usize;

const ANY: Next = |random, waiting| random.usize(..waiting);
const LAST: Next = |_, waiting| waiting - 1;
/// A thread that comes takes the lock before one that has to wake up, now and then.
const BARGING: Next = |random, waiting| if random.u8(..4) == 0 { waiting - 1 } else { 0 };

/// Clients that are always ready, in front of one lock; as they see it over a path.
fn locked(seed: u64, clients: u32, next: Next, hold: Time, network: u64) -> Vec<Made> {
    let mut random = fastrand::Rng::with_seed(seed);
    // When a request comes to the lock, and its client.
    let mut coming: Vec<(u64, u32, Option<u64>)> =
        (0..clients).map(|client| (network / 2 + random.u64(..2 * MS), client, None)).collect();
    let (mut waiting, mut all, mut free) = (Vec::new(), Vec::new(), 0);
    while !(coming.is_empty() && waiting.is_empty()) {
        coming.sort_unstable_by_key(|of| std::cmp::Reverse(of.0));
        if waiting.is_empty() {
            let one = coming.pop().unwrap();
            free = free.max(one.0);
            waiting.push(one);
        }
        while coming.last().is_some_and(|of| of.0 <= free) {
            waiting.push(coming.pop().unwrap());
        }
        let (came, connection, thought) = waiting.remove(next(&mut random, waiting.len()));
        free += hold(&mut random);
        // The thread has to send its response when it has left the lock, and the client to receive it.
        let ended = free + network / 2 + about(60 * US, 0.4, &mut random);
        let began = came - network / 2;
        all.push(Made { connection, began, first: ended, ended, thought, bytes: 200 });
        let think = about(80 * US, 0.5, &mut random);
        // At the end those who were passed over get the lock, too.
        if all.len() < 1200 {
            coming.push((ended + think + network / 2, connection, Some(think)));
        }
    }
    all
}

/// Near the server, and as a client sees it behind a path.
fn views(made: &[Made], network: u64) -> [World; 2] {
    [at_server(made.to_vec(), network.max(40 * US)), world(made.to_vec())]
}

/// How long the lock is held, and that on average, ms.
const HOLDS: [(Time, f64); 3] = [
    (|random| about(2 * MS, 0.02, random), 2.0),
    (|random| about(3 * MS, 0.2, random), 3.0),
    (|random| about(5 * MS, 0.4, random), 5.0),
];

#[test]
fn a_lock_that_wakes_anyone_is_a_saturated_server() {
    for (next, (hold, mean_ms)) in [ANY, BARGING].into_iter().flat_map(|next| HOLDS.map(|hold| (next, hold)))
    {
        for (clients, network, seed) in [(6, 0, 1), (12, 0, 2), (12, 5 * MS, 3), (20, 10 * MS, 4)] {
            for world in views(&locked(seed, clients, next, hold, network), network) {
                let text = world.only(VerdictKind::Saturated).text;
                let each = text.split("saturated: ").nth(1).unwrap().trim_start_matches("one answer in ");
                let ms: f64 = each.split(' ').next().unwrap().parse().unwrap();
                assert!((ms / mean_ms - 1.0).abs() < 0.12, "{mean_ms}: {text}");
            }
        }
    }
}

/// The last one is served first: few requests wait for all the others, and most for one.
#[test]
fn a_lock_that_wakes_the_last_one_is_a_saturated_server() {
    for (clients, seed) in [(6, 1), (12, 2), (20, 3)] {
        let made = locked(seed, clients, LAST, HOLDS[0].0, 0);
        for world in views(&made, 0) {
            let text = world.only(VerdictKind::Saturated).text;
            assert!(text.contains("saturated: 2.0") || text.contains("saturated: 2.1"), "{text}");
        }
    }
}

/// As many workers as requests: each takes its time, and more in flight would get more done.
#[test]
fn slow_workers_in_parallel_are_no_lock() {
    let services: [Time; 5] = [
        |random| about(20 * MS, 0.002, random),
        |random| about(20 * MS, 0.05, random),
        |random| about(20 * MS, 0.4, random),
        |random| exponential(20 * MS, random) + MS,
        |random| 20 * MS + exponential(2 * MS, random),
    ];
    let starts: [fn(u32, &mut fastrand::Rng) -> u64; 3] =
        [|_, random| random.u64(..20 * MS), |c, _| u64::from(c) * 1600 * US, |c, _| u64::from(c) * 20 * US];
    for (service, starts) in services.into_iter().flat_map(|service| starts.map(|starts| (service, starts))) {
        for (connections, seed) in [(2, 1), (6, 2), (12, 3)] {
            let shop = Shop { connections, requests: 80, service, starts, network: MS / 5, ..SLEEP };
            let made = shop.run(seed);
            for world in views(&made, shop.network) {
                let text = world.only(VerdictKind::SlowTarget).text;
                assert!(!text.contains("at a time") && !text.contains("workers"), "{text}");
                // As many as the table of services has.
                let flight = text.split("on each connection, ").nth(1).unwrap().split(' ').next().unwrap();
                let flight: f64 = flight.parse().unwrap();
                assert!((flight / world.row().figures.in_flight - 1.0).abs() < 0.02, "{text}");
            }
        }
    }
}

/// Two requests whose turns are by chance half a turn apart, and others that wait for something else.
#[test]
fn requests_that_take_turns_by_chance_beside_long_ones_are_no_lock() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut all = Vec::new();
        for connection in 0..2_u32 {
            let mut now = u64::from(connection) * 2100 * US;
            for _ in 0..600 {
                let ended = now + about(4 * MS, 0.02, &mut random);
                all.push(Made {
                    connection,
                    began: now,
                    first: ended,
                    ended,
                    thought: Some(100 * US),
                    bytes: 200,
                });
                now = ended + 100 * US;
            }
        }
        for connection in 2..8 {
            all.push(Made {
                connection,
                began: 0,
                first: 2400 * MS,
                ended: 2400 * MS,
                bytes: 200,
                ..Made::default()
            });
        }
        let judged = world(all).judge();
        let mut found = judged.verdicts.iter().chain(&judged.minor);
        assert!(found.all(|verdict| verdict.kind != VerdictKind::Saturated), "{seed}: {judged:#?}");
    }
}

/// A lock that is held for less than a disk takes, behind a path: the queue in front of it is the time, and no slow work.
#[test]
fn a_short_lock_behind_a_path_is_a_note_and_no_slow_server() {
    let holds: [Time; 2] = [|random| about(500 * US, 0.1, random), |random| about(900 * US, 0.2, random)];
    for (next, hold) in [ANY, BARGING].into_iter().flat_map(|next| holds.map(|hold| (next, hold))) {
        for (clients, network, seed) in [(16, MS, 1), (16, 5 * MS, 2), (32, 10 * MS, 3)] {
            for world in views(&locked(seed, clients, next, hold, network), network) {
                let judged = world.judge();
                assert!(judged.verdicts.is_empty(), "{judged:#?}");
                assert!(judged.minor.iter().any(|note| note.kind == VerdictKind::Saturated), "{judged:#?}");
            }
        }
    }
}
