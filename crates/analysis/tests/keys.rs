//! Operations of one path that are slow, and pauses that strike all paths.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shop;

use analysis::verdict::VerdictKind;
use record::{Key, Side};

use shop::{MS, Made, SECOND, US, World, about, world_of};

/// Requests for ten paths on several connections, each of which takes `time` for its path, its turn and when it comes.
fn paths(connections: u32, time: impl Fn(u32, u64, &mut fastrand::Rng) -> u64) -> Vec<Made> {
    let mut random = fastrand::Rng::with_seed(3);
    let mut all = Vec::new();
    for connection in 0..connections {
        let mut now = u64::from(connection) * 300 * US;
        for _ in 0..300 {
            let path = random.u32(..10);
            let ended = now + time(path, now, &mut random);
            let bytes = 1000 + path;
            all.push(Made { connection, began: now, first: ended, ended, thought: Some(2 * MS), bytes });
            now = ended + 2 * MS;
        }
    }
    all
}

/// The path of a request is what its response is longer than 1000 bytes.
fn named(all: Vec<Made>) -> World {
    let key = |path: u32| Key::new(u64::from(path) + 1);
    let mut world = world_of(all, Side::Client, |made| key(made.bytes - 1000));
    for path in 0..10 {
        world.evidence.services.named(key(path), &format!("/path/{path}"));
    }
    world
}

#[test]
fn one_path_that_is_always_slow_is_named_and_no_pause() {
    let slow = |path, _, random: &mut fastrand::Rng| match path {
        7 => about(30 * MS, 0.2, random),
        _ => about(500 * US, 0.2, random),
    };
    // Less than a tenth of the requests, and more.
    for keep in [0, 1] {
        let mut all = paths(4, slow);
        let mut turn = 0;
        all.retain(|made| {
            turn += u32::from(made.bytes == 1007);
            made.bytes != 1007 || turn % 2 == keep || keep == 1
        });
        let verdict = named(all).only(VerdictKind::SlowTarget);
        assert!(verdict.text.starts_with("one path is slow, /path/7: "), "{}", verdict.text);
        assert!(!verdict.text.contains("pauses") && verdict.text.contains(" ms each"), "{}", verdict.text);
    }
}

/// Ten connections, and a slow path whose answers have two sizes, one of them that of all others.
#[test]
fn one_slow_path_has_one_verdict_whatever_the_sizes_of_its_answers() {
    let slow = |path, _, random: &mut fastrand::Rng| match path {
        7 => about(30 * MS, 0.2, random),
        _ => about(500 * US, 0.2, random),
    };
    let mut all = paths(10, slow);
    for (turn, made) in all.iter_mut().enumerate() {
        made.thought = Some(100 * US);
        if made.bytes == 1007 && turn % 2 == 0 {
            made.bytes = 9007;
        }
    }
    let key = |path: u32| Key::new(u64::from(path) + 1);
    let mut world = world_of(all, Side::Client, |made| key(made.bytes % 1000));
    world.evidence.services.named(key(7), "/path/7");
    let verdict = world.only(VerdictKind::SlowTarget);
    assert!(verdict.text.starts_with("one path is slow, /path/7: "), "{}", verdict.text);
    assert!(verdict.operations > 250, "{}", verdict.operations);
}

#[test]
fn a_pause_of_the_server_is_none_of_a_path() {
    let pause = |_, now: u64, random: &mut fastrand::Rng| {
        (40 * MS).saturating_sub(now % (SECOND / 4)) + about(500 * US, 0.2, random)
    };
    let verdict = named(paths(4, pause)).only(VerdictKind::RareStalls);
    assert!(verdict.text.contains("in 4 pauses"), "{}", verdict.text);
}

/// A client that asks for events on a connection of its own, which the server holds until there is one.
#[test]
fn a_path_that_is_held_on_its_own_connection_is_a_note() {
    let mut all = paths(4, |_, _, random| about(500 * US, 0.2, random));
    all.iter_mut().filter(|made| made.bytes == 1007).for_each(|made| made.bytes = 1006);
    let mut random = fastrand::Rng::with_seed(4);
    let mut now = 0;
    while now < 600 * MS {
        let ended = now + 20 * MS + random.u64(..60 * MS);
        all.push(Made {
            connection: 9,
            began: now,
            first: ended,
            ended,
            thought: Some(MS / 10),
            bytes: 1007,
        });
        now = ended + MS / 10;
    }
    let world = named(all);
    world.nothing();
    let notes = world.judge().minor;
    assert!(notes.iter().any(|note| note.text.contains("/path/7")), "{notes:#?}");
}
