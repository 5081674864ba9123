//! Requests that a server holds until something happens or a time is over, and requests that it works on.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shop;

use analysis::verdict::VerdictKind;
use record::{Side, Verb, Word};

use shop::{LOCK, MS, Made, SECOND, SLEEP, Shop, US, World, about, exponential, world, world_with};

type Time = fn(&mut fastrand::Rng) -> u64;

/// Clients that are always ready; each request takes the server its time.
fn asked(connections: u32, service: Time) -> World {
    let shop =
        Shop { connections, requests: 120, service, starts: |_, random| random.u64(..SECOND), ..SLEEP };
    world(shop.run(5))
}

#[test]
fn long_polls_are_a_note() {
    let holds: [Time; 3] = [
        // A pop that ends after 5 s, or with an event.
        |random| exponential(4 * SECOND, random).min(5 * SECOND + random.u64(..MS)),
        |random| about(8 * SECOND, 0.9, random).min(10 * SECOND + random.u64(..MS)),
        // Nothing happens within 2 s.
        |random| 2 * SECOND + random.u64(..2 * MS),
    ];
    for (hold, connections) in holds.into_iter().flat_map(|hold| [(hold, 1), (hold, 5)]) {
        let world = asked(connections, hold);
        world.nothing();
        assert!(world.judge().minor.iter().any(|note| note.kind == VerdictKind::SlowTarget));
    }
}

#[test]
fn work_that_takes_long_is_a_slow_server() {
    let works: [Time; 6] = [
        |random| about(1300 * MS, 0.01, random),
        |random| about(2 * SECOND, 0.2, random),
        |random| exponential(200 * MS, random) + MS,
        |random| if random.f64() < 0.7 { about(20 * MS, 0.01, random) } else { about(60 * MS, 0.01, random) },
        |random| about(20 * MS, 0.9, random),
        |random| about(20 * MS, 0.6, random),
    ];
    for (place, work) in works.into_iter().enumerate() {
        let world = asked(1, work);
        let verdict = world.only(VerdictKind::SlowTarget);
        assert!(verdict.text.contains("where the time goes"), "{place}: {}", verdict.text);
    }
    let lock = Shop { service: |random| about(2 * SECOND, 0.001, random) + 50 * US, ..LOCK };
    assert!(world(lock.run(1)).only(VerdictKind::Saturated).text.contains("one at a time"));
}

/// Events come by chance, on average each 0.6 s and each 4 s; a request waits for the next one.
#[test]
fn irregular_long_polls_are_a_note() {
    let holds: [Time; 3] = [
        |random| exponential(600 * MS, random) + MS,
        |random| exponential(4 * SECOND, random) + 300 * US,
        |random| 200 * US + exponential(SECOND, random) * (1 + random.u64(..2)),
    ];
    for (hold, connections) in
        holds.into_iter().flat_map(|hold| [1, 5].map(|connections| (hold, connections)))
    {
        let world = asked(connections, hold);
        world.nothing();
        assert!(world.judge().minor.iter().any(|note| note.kind == VerdictKind::SlowTarget));
    }
}

/// Consumers of a queue take its jobs in turn: their requests are answered one at a time, in their order, and no worker is behind it.
#[test]
fn consumers_of_an_irregular_queue_are_a_note() {
    for connections in [3, 8] {
        let jobs = Shop {
            connections,
            requests: 60,
            workers: 1,
            service: |random| exponential(700 * MS, random) + 100 * US,
            starts: |_, random| random.u64(..SECOND),
            ..SLEEP
        };
        for seed in 0..4 {
            world(jobs.run(seed)).nothing();
        }
    }
}

/// A blocking pop, whatever the pace of the jobs, beside reads that are healthy, or slow.
#[test]
fn a_command_that_waits_for_an_event_is_no_slow_server() {
    let paces: [Time; 4] = [
        |random| about(20 * MS, 0.01, random),
        |random| exponential(30 * MS, random) + 100 * US,
        |random| exponential(400 * MS, random) + 100 * US,
        |random| if random.f64() < 0.9 { 200 * US } else { about(300 * MS, 0.5, random) },
    ];
    let word = |name: &str| Verb::Command(Word::new(name.as_bytes()));
    for (pace, workers) in paces.into_iter().flat_map(|pace| [1, 1000].map(|workers| (pace, workers))) {
        for read_ns in [100 * US, 20 * MS] {
            let pops = Shop { connections: 6, requests: 60, workers, service: pace, ..SLEEP }.run(1);
            let ended = pops.iter().map(|made| made.ended).max().unwrap();
            let reads = (0..400_u64).map(|i| {
                let began = i * ended / 400;
                let ended = began + read_ns;
                Made { connection: 7, began, first: ended, ended, thought: Some(20 * US), bytes: 1000 }
            });
            let all: Vec<Made> = pops.into_iter().chain(reads).collect();
            let world = world_with(all, Side::Client, |made, exchange| {
                exchange.awaits_event = made.connection < 7;
                exchange.op.verb = word(if made.connection < 7 { "BLPOP" } else { "GET" });
            });
            if read_ns > MS {
                let text = world.only(VerdictKind::SlowTarget).text;
                assert!(text.contains("for a GET"), "{text}");
            } else {
                world.nothing();
                let rows = world.evidence.services.rows();
                let pops = rows.iter().find(|row| row.operation == "BLPOP").unwrap();
                assert_eq!(pops.in_flight_max, 6);
            }
        }
    }
}
