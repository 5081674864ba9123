//! Verdicts on services: who waits for whom, over all connections. Each rule has a case in which it fires, and traffic close to
//! it in which it must not.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod shop;

use analysis::Part;
use analysis::verdict::{Link, VerdictKind};
use record::{Regular, Side};

use shop::{LOCK, MS, Made, SECOND, SLEEP, Shop, US, about, exponential, world, world_with};

#[test]
fn twenty_connections_before_one_lock_are_a_saturated_server() {
    let world = world(LOCK.run(1));
    let verdict = world.only(VerdictKind::Saturated);
    assert!(
        verdict.text.contains("saturated: 2.1") && verdict.text.contains("one at a time"),
        "{verdict:#?}"
    );
    assert!(
        verdict.text.contains("lengthen the queue") && !verdict.frames.numbers.is_empty(),
        "{verdict:#?}"
    );
    let gain = verdict.gain.clone().unwrap();
    let (now_us, then_us) = gain.operation_us.unwrap();
    let most_us = gain.operation_most_us.unwrap();
    // Twice the workers halve the queue; a request that meets no other takes 2.1 ms.
    assert!(gain.text.contains("with 2 workers") && (gain.throughput_least - 2.0).abs() < 0.1, "{gain:?}");
    assert!((now_us / 42e3 - 1.0).abs() < 0.05 && (most_us / 21e3 - 1.0).abs() < 0.05, "{gain:?}");
    assert!(
        (then_us / 2.1e3 - 1.0).abs() < 0.1 && (17.0..20.0).contains(&gain.throughput_factor),
        "{gain:?}"
    );
    // The time that is lost is that of waiting for the others: all but 2.1 ms of 42.
    let time_us: f64 = LOCK.run(1).iter().map(|made| (made.ended - made.began) as f64 / 1000.0).sum();
    assert!((verdict.cost_us / (time_us * 40.0 / 42.0) - 1.0).abs() < 0.05, "{} {time_us}", verdict.cost_us);
    let row = world.row();
    assert_eq!((row.in_flight_max, row.figures.connections, row.clients.len()), (20, 20, 2));
    assert!(row.figures.in_flight > 19.0 && row.figures.in_flight < 20.0 && row.busy_share > 0.99, "{row:?}");
}

/// Also from the middle of the run, where no request meets an idle server, and in any order of service.
#[test]
fn a_lock_is_found_without_its_beginning() {
    for seed in 0..10 {
        let mut all = LOCK.run(seed);
        all.retain(|made| made.began > 200 * MS);
        assert!(world(all).only(VerdictKind::Saturated).text.contains("one at a time"));
    }
}

#[test]
fn latencies_that_overlap_are_no_saturated_server() {
    let scattered = |random: &mut fastrand::Rng| exponential(40 * MS, random) + MS;
    let starts: [fn(u32, &mut fastrand::Rng) -> u64; 3] =
        [|c, _| u64::from(c) * 20 * US, |_, random| random.u64(..43 * MS), |c, _| u64::from(c) * 2150 * US];
    let services: [fn(&mut fastrand::Rng) -> u64; 4] = [
        SLEEP.service,
        scattered,
        |random| about(43 * MS, 0.3, random),
        |random| about(43 * MS, 0.02, random),
    ];
    for seed in 0..12 {
        for starts in starts {
            for service in services {
                for connections in [2, 3, 20] {
                    let shop = Shop { connections, requests: 60, starts, service, ..SLEEP };
                    let judged = world(shop.run(seed)).judge();
                    let is_found = judged.verdicts.iter().chain(&judged.minor);
                    let is_found = is_found.filter(|v| v.kind == VerdictKind::Saturated).count();
                    assert_eq!(is_found, 0, "{seed} {connections}: {judged:#?}");
                }
            }
        }
    }
}

/// Latencies that depend on the time, not on the load: response times and numbers in flight grow together (Little's law).
#[test]
fn slow_minutes_are_no_queue() {
    for seed in 0..10 {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = 0;
        let all: Vec<Made> = (0..4000_u32)
            .map(|i| {
                now += exponential(2 * MS, &mut random);
                let base = if i / 500 % 2 == 0 { 5 * MS } else { 50 * MS };
                let ended = now + about(base, 0.1, &mut random);
                Made { connection: i % 60, began: now, first: ended, ended, bytes: 1000, ..Made::default() }
            })
            .collect();
        let judged = world(all).judge();
        let all = judged.verdicts.iter().chain(&judged.minor);
        assert!(all.clone().all(|verdict| verdict.kind != VerdictKind::Saturated), "{judged:#?}");
    }
}

/// Several workers: the pace is that of all together.
#[test]
fn workers_are_counted() {
    for (workers, connections) in [(2, 24), (4, 40)] {
        let shop = Shop { workers, connections, service: |random| about(8 * MS, 0.05, random), ..LOCK };
        let verdict = world(shop.run(5)).only(VerdictKind::Saturated);
        assert!(verdict.text.contains(&format!("{workers} at a time")), "{workers}: {}", verdict.text);
    }
}

/// Work of very different length at a constant number of clients: only the order of the responses shows the queue.
#[test]
fn irregular_work_for_a_constant_number_of_clients_is_a_queue() {
    for (workers, each) in [(1, "one at a time"), (2, "at a time does not show")] {
        let service = |random: &mut fastrand::Rng| exponential(6 * MS, random);
        let shop = Shop { workers, service, requests: 60, ..LOCK };
        let verdict = world(shop.run(6)).only(VerdictKind::Saturated);
        assert!(verdict.text.contains(each), "{workers}: {}", verdict.text);
    }
}

/// Open arrivals at a server with one worker: waiting dominates at 90 % load, and not at 30 %.
#[test]
fn a_server_with_some_load_is_not_saturated() {
    for (gap, is_saturated) in [(3300 * US, true), (10 * MS, false)] {
        let mut random = fastrand::Rng::with_seed(8);
        let (mut now, mut free) = (0, 0);
        let all: Vec<Made> = (0..4000_u32)
            .map(|i| {
                now += exponential(gap, &mut random);
                free = now.max(free) + about(3 * MS, 0.2, &mut random);
                Made {
                    connection: i % 50,
                    began: now,
                    first: free,
                    ended: free,
                    bytes: 1000,
                    ..Made::default()
                }
            })
            .collect();
        if is_saturated { drop(world(all).only(VerdictKind::Saturated)) } else { world(all).nothing() }
    }
}

/// A benchmark keeps any server busy: what is named then is a note.
#[test]
fn a_benchmark_of_a_fast_server_is_a_note() {
    let shop = Shop {
        connections: 64,
        requests: 100,
        service: |random| about(20 * US, 0.2, random),
        think: |random| about(5 * US, 0.5, random),
        ..LOCK
    };
    let world = world(shop.run(3));
    world.nothing();
    assert!(world.judge().minor.iter().any(|verdict| verdict.kind == VerdictKind::Saturated));
}

/// A client that is always ready: the server is where the time goes. The same server and a client that asks now and then: no
/// verdict, and a note.
#[test]
fn a_server_of_20_ms_is_slow_for_a_client_that_is_always_ready_only() {
    let ready =
        Shop { connections: 1, requests: 100, service: |random| about(20 * MS, 0.01, random), ..LOCK };
    let verdict = world(ready.run(1)).only(VerdictKind::SlowTarget);
    assert!(verdict.text.contains("the server is where the time goes"), "{}", verdict.text);
    let thinks: [fn(&mut fastrand::Rng) -> u64; 2] =
        [|random| about(30 * MS, 0.01, random), |random| exponential(30 * MS, random)];
    for think in thinks {
        let world = world(Shop { think, ..ready }.run(1));
        world.nothing();
        let notes = world.judge().minor;
        assert_eq!((notes.len(), notes[0].kind, notes[0].cost_us), (1, VerdictKind::SlowTarget, 0.0));
        assert!(
            notes[0].text.contains("takes 20.") || notes[0].text.contains("takes 19."),
            "{}",
            notes[0].text
        );
        let largest = world.row().largest_part.unwrap();
        assert!(largest.part == Part::Server && largest.share > 0.99, "{largest:?}");
    }
}

/// 50 requests each second by design: of a clock, of a sleep, or of users.
#[test]
fn low_demand_is_no_slow_initiator() {
    let thinks: [fn(&mut fastrand::Rng) -> u64; 3] = [
        |random| about(20 * MS, 0.002, random),
        |random| about(20 * MS, 0.4, random),
        |random| exponential(20 * MS, random),
    ];
    for connections in [1, 10] {
        for think in thinks {
            let shop = Shop {
                connections,
                requests: 200,
                workers: 1000,
                service: |random| about(300 * US, 0.2, random),
                think,
                starts: |_, random| random.u64(..20 * MS),
                ..LOCK
            };
            world(shop.run(2)).nothing();
        }
    }
    // One schedule for ten connections.
    let mut random = fastrand::Rng::with_seed(3);
    let mut before = [None; 10];
    let all: Vec<Made> = (0..2000_u32)
        .map(|i| {
            let connection = i % 10;
            let began = u64::from(i) * 2 * MS + random.u64(..50 * US);
            let ended = began + about(MS, 0.4, &mut random);
            let thought = before[connection as usize].map(|ended: u64| began - ended);
            before[connection as usize] = Some(ended);
            Made { connection, began, first: ended, ended, thought, bytes: 1000 }
        })
        .collect();
    world(all).nothing();
}

/// A client that sends a request at each tick of 5 ms, whatever the answers do, each of which takes 20 or 22 ms: nobody waits for another,
/// and nobody is ready for more.
#[test]
fn requests_from_a_clock_on_one_connection_are_no_fault_of_the_server() {
    let mut random = fastrand::Rng::with_seed(5);
    let (mut before, mut all) = (0, Vec::new());
    for i in 0..400_u64 {
        let began = i * 5 * MS + random.u64(..50 * US);
        let ended = (began + 20 * MS + random.u64(..2) * 2 * MS + random.u64(..300 * US)).max(before + 1);
        let thought = Some(began.saturating_sub(before)).filter(|_| i > 0);
        before = ended;
        all.push(Made { connection: 0, began, first: ended, ended, thought, bytes: 1000 });
    }
    let world = world_with(all, Side::Client, |_, exchange| exchange.ring_depth = 4);
    world.nothing();
    // What each takes, and no share of it for each in flight.
    let notes = world.judge().minor;
    let states = |ms: u32| notes.iter().any(|note| note.text.contains(&format!("the server takes {ms}.")));
    assert!(states(20) || states(21) || states(22), "{notes:#?}");
}

/// One thread that works 2 ms on each response, ten connections: its responses wait for it.
#[test]
fn a_client_that_works_on_one_response_after_the_other_is_slow() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut waiting: Vec<(u64, u32)> = (0..10).map(|c| (u64::from(c) * 100 * US, c)).collect();
    let (mut free, mut all) = (0, Vec::new());
    for _ in 0..2000 {
        waiting.sort_unstable_by(|a, b| b.cmp(a));
        let (ready, connection) = waiting.pop().unwrap();
        let began = free.max(ready) + about(2 * MS, 0.1, &mut random);
        free = began;
        let ended = began + about(300 * US, 0.2, &mut random);
        all.push(Made { connection, began, first: ended, ended, thought: Some(began - ready), bytes: 1000 });
        waiting.push((ended, connection));
    }
    let verdict = world(all).only(VerdictKind::SlowInitiator);
    assert!(verdict.text.contains("one response at a time, 2.0"), "{}", verdict.text);
    assert!(verdict.cost_us == 0.0 && verdict.pauses_us > 1e6);
}

/// A large result: its first byte takes 0.5 ms, and the rest 200 ms of network. Its server is not slow.
#[test]
fn transfer_is_not_the_server_s_time() {
    let mut now = 0;
    let all: Vec<Made> = (0..60)
        .map(|_| {
            let (began, first) = (now, now + 500 * US);
            now = first + 200 * MS;
            Made { connection: 0, began, first, ended: now, thought: Some(0), bytes: 2_270_000 }
        })
        .collect();
    let world = world(all);
    world.nothing();
    let largest = world.row().largest_part.unwrap();
    assert!(largest.part == Part::Transfer && largest.share > 0.99, "{largest:?}");
    let transfer = *world.traffic.stanzas(None)[0].part(Part::Transfer).unwrap();
    assert!((transfer.mean_us - 200e3).abs() < 1.0, "{transfer:?}");
}

/// The whole server stands still for 300 ms every 2 s.
#[test]
fn pauses_of_the_whole_server_have_a_period() {
    let mut random = fastrand::Rng::with_seed(1);
    let mut now = 0;
    let all: Vec<Made> = (0..1500_u32)
        .map(|i| {
            now += exponential(20 * MS, &mut random);
            let in_pause = now % (2 * SECOND);
            let wait = (300 * MS).saturating_sub(in_pause);
            let ended = now + wait + about(200 * US, 0.3, &mut random);
            Made { connection: i % 4, began: now, first: ended, ended, bytes: 200, ..Made::default() }
        })
        .collect();
    let time: u64 = all.iter().map(|made| made.ended - made.began).sum();
    let world = world(all);
    let verdict = world.only(VerdictKind::RareStalls);
    let period: f64 =
        verdict.text.split("every ").nth(1).unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!((period - 2.0).abs() < 0.1, "{}", verdict.text);
    assert!(verdict.cost_us * 1000.0 > 0.8 * time as f64, "{} of {time}", verdict.cost_us);
    assert!(!verdict.frames.numbers.is_empty() && verdict.text.contains("several requests at once"));
    assert!((world.row().figures.max_us / 300e3 - 1.0).abs() < 0.1);
    let gain = verdict.gain.unwrap();
    let (now_us, then_us) = gain.operation_us.unwrap();
    let mean_us = time as f64 / 1500.0 / 1000.0;
    assert!((now_us / mean_us - 1.0).abs() < 0.01 && then_us < 0.2 * now_us, "{gain:?}");
    assert!(
        (gain.throughput_factor - 1.0).abs() < 1e-9,
        "requests that come by themselves come as often: {gain:?}"
    );
}

#[test]
fn one_request_in_a_hundred_is_a_rare_stall_and_a_long_tail_is_not() {
    let share = |slow: u64| {
        let mut random = fastrand::Rng::with_seed(slow);
        let mut now = 0;
        let made = move |_| {
            let is_slow = random.u64(..100) == 0;
            let took = about(200 * US, 0.5, &mut random) + u64::from(is_slow) * slow;
            now += took + 50 * US;
            Made {
                began: now - took,
                first: now,
                ended: now,
                thought: Some(50 * US),
                bytes: 200,
                connection: 0,
            }
        };
        (0..3000).map(made).collect::<Vec<_>>()
    };
    let verdict = world(share(5 * MS)).only(VerdictKind::RareStalls);
    assert!(
        verdict.operations > 10 && verdict.operations < 60 && verdict.text.contains("5."),
        "{verdict:#?}"
    );
    world(share(0)).nothing();
    // Log-normal with a deviation of 1 (the longest of 20,000 takes fifty times the median) and of 1.5, and exponential.
    for seed in 0..20 {
        for kind in 0..3 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut now = 0;
            let all: Vec<Made> = (0..20_000)
                .map(|_| {
                    let normal: f64 = (0..12).map(|_| random.f64()).sum::<f64>() - 6.0;
                    let took = match kind {
                        0 => (300e3 * normal.exp()) as u64,
                        1 => (300e3 * (1.5 * normal).exp()) as u64,
                        _ => exponential(800 * US, &mut random),
                    };
                    now += took + MS;
                    Made {
                        began: now - took,
                        first: now,
                        ended: now,
                        thought: Some(MS),
                        bytes: 200,
                        connection: 0,
                    }
                })
                .collect();
            world(all).nothing();
        }
    }
}

/// A server that looks for work every 10 ms; and requests that come by a clock themselves, or a loop without any pause.
#[test]
fn answers_at_ticks_are_a_timer_and_requests_at_ticks_are_none() {
    for (drift, connections) in [(0, 1), (20 * US, 3)] {
        let mut random = fastrand::Rng::with_seed(7 + drift);
        let mut all = Vec::new();
        for connection in 0..connections {
            let mut ready = 0;
            for _ in 0..250 {
                let thought = MS + random.u64(..13 * MS);
                let began: u64 = ready + thought;
                let interval = 10 * MS + drift;
                ready = (began / interval + 1) * interval + random.u64(..200 * US);
                all.push(Made {
                    connection,
                    began,
                    first: ready,
                    ended: ready,
                    thought: Some(thought),
                    bytes: 200,
                });
            }
        }
        let verdict = world(all).only(VerdictKind::ServerTimer);
        assert!(verdict.text.contains("timer, 10.0"), "{}", verdict.text);
    }
    // Requests that come at an interval of their own are not answered at once either.
    let all = (0..800_u64).map(|i| {
        let began = i * 26_400 * US + 5 * MS;
        let ready = (began / (15_625 * US) + 1) * 15_625 * US;
        let connection = (i % 2) as u32;
        Made { connection, began, first: ready, ended: ready, bytes: 200, ..Made::default() }
    });
    let verdict = world(all.collect()).only(VerdictKind::ServerTimer);
    assert!(verdict.text.contains("timer, 15.6"), "{}", verdict.text);
    // Even response times without a timer, and a clock on the client's side.
    for is_clock in [false, true] {
        let mut random = fastrand::Rng::with_seed(5);
        let mut now = 0;
        let all: Vec<Made> = (0..1000_u64)
            .map(|i| {
                now = if is_clock { i * 20 * MS } else { now + MS + random.u64(..30 * MS) };
                let ended = now + 200 * US + random.u64(..10 * MS);
                Made {
                    connection: (i % 5) as u32,
                    began: now,
                    first: ended,
                    ended,
                    bytes: 200,
                    ..Made::default()
                }
            })
            .collect();
        let judged = world(all).judge();
        assert!(judged.verdicts.iter().all(|v| v.kind != VerdictKind::ServerTimer), "{judged:#?}");
    }
}

/// A server that tells its state every 10 ms, whatever its clients send meanwhile: some of them have sent the next message before.
#[test]
fn what_is_told_at_intervals_answers_no_request() {
    let made = |overlapping: u64, has_several: bool| {
        let mut random = fastrand::Rng::with_seed(11);
        let all = (0..600_u64).map(|i| {
            let began = i * 12 * MS + random.u64(..9 * MS);
            let ready = (began / (10 * MS) + 1) * 10 * MS;
            Made { connection: 0, began, first: ready, ended: ready, bytes: 200, ..Made::default() }
        });
        world_with(all.collect(), Side::Client, |made, exchange| {
            exchange.overlaps = made.began / (12 * MS) % 100 < overlapping;
            exchange.has_several = has_several;
        })
    };
    made(0, false).only(VerdictKind::ServerTimer);
    made(31, false).nothing();
    // Turns that look like several requests are answered at the ticks all the same.
    made(0, true).only(VerdictKind::ServerTimer);
}

/// Every fourth request follows a response at once, because of a tick, and waits for a whole interval: that is the timer's time, too.
#[test]
fn requests_in_step_with_a_timer_would_not_wait_for_it_either() {
    let mut random = fastrand::Rng::with_seed(9);
    let mut ready = 0;
    let of = |turn: u64| {
        let thought = if turn % 4 == 3 { 20 * US } else { MS + random.u64(..13 * MS) };
        let began: u64 = ready + thought;
        ready = (began / (10 * MS) + 1) * 10 * MS + random.u64(..200 * US);
        Made { began, first: ready, ended: ready, thought: Some(thought), bytes: 200, ..Made::default() }
    };
    let gain = world((0..600).map(of).collect()).only(VerdictKind::ServerTimer).gain.unwrap();
    let (now_us, then_us) = gain.operation_us.unwrap();
    assert!(now_us > 5500.0 && then_us < 250.0, "{gain:?}");
}

/// The first requests of the connections are a log-in of 0.3 ms, which meets no other. What follows takes the server 2.1 ms each, and
/// no longer queue, no more clients and no more workers make it shorter.
#[test]
fn a_request_takes_the_servers_pace_whatever_others_took() {
    let mut all = LOCK.run(1);
    for made in &mut all {
        (made.began, made.first, made.ended) =
            (made.began + 100 * MS, made.first + 100 * MS, made.ended + 100 * MS);
    }
    let log_ins = (0..20_u32).map(|connection| {
        let began = u64::from(connection) * 2 * MS;
        let ended = began + 300 * US;
        Made { connection, began, first: ended, ended, bytes: 1000, ..Made::default() }
    });
    let gain = world(log_ins.chain(all).collect()).only(VerdictKind::Saturated).gain.unwrap();
    let (_, then_us) = gain.operation_us.unwrap();
    assert!((then_us / 2100.0 - 1.0).abs() < 0.05, "{gain:?}");
}

/// A link that many connections fill together, in either direction; none of them alone does.
#[test]
fn a_link_is_full_over_all_connections() {
    let made = |gap: u64, bytes: u32| -> Vec<Made> {
        let of = |i: u64| {
            let began = i * gap;
            let connection = (i % 20) as u32;
            Made {
                connection,
                began,
                first: began + 10 * MS,
                ended: began + 20 * MS,
                bytes,
                thought: Some(10 * US),
            }
        };
        (0..4000).map(of).collect()
    };
    // 100 kB each 0.85 ms: 117 MB/s.
    let mut full = world(made(850 * US, 100_000));
    full.link = Some(Link { bits_per_second: 1e9, efficiency: 0.95, passed: [0.95; 2] });
    let verdict = full.only(VerdictKind::LinkFull);
    assert!(verdict.text.contains("all servers"), "{}", verdict.text);
    // One whose rate is not given, but seen, gains as much.
    let mut unknown = world(made(850 * US, 100_000));
    let regular = Regular { share: 0.9, bits_per_second: 1e9, bytes: 400_000_000 };
    unknown.evidence.spacings.push((Some(regular), Side::Server));
    let gain = unknown.only(VerdictKind::LinkFull).gain.unwrap();
    assert!(gain.text.contains("at most") && verdict.gain == Some(gain), "{:?}", verdict.gain);
    // First bytes within a microsecond: 0.1 ms of each operation remains.
    let mut near = made(850 * US, 100_000);
    near.iter_mut().for_each(|one| one.first = one.began + US);
    let mut near = world(near);
    near.link = full.link;
    let gain = near.only(VerdictKind::LinkFull).gain.unwrap();
    assert!(gain.throughput_factor <= 201.0, "{gain:?}");
    let mut half = world(made(2 * MS, 100_000));
    half.link = full.link;
    assert!(half.judge().verdicts.iter().all(|verdict| verdict.kind != VerdictKind::LinkFull));
}

/// One message alone passes at the link's rate: nothing waits for it. Several behind one another fill the link.
#[test]
fn a_message_alone_does_not_fill_a_link() {
    for (together, is_full) in [(1, false), (12, true)] {
        let of = |i: u64| {
            // 125 kB at 10 Mb/s: 100 ms each, `together` behind one another, and twice as long nothing.
            let began = (i / together * together * 3 + i % together) * 100 * MS;
            let connection = (i % 20) as u32;
            Made {
                connection,
                began,
                first: began,
                ended: began + 100 * MS,
                bytes: 125_000,
                ..Made::default()
            }
        };
        let mut one = world((0..240).map(of).collect());
        one.link = Some(Link { bits_per_second: 10e6, efficiency: 1.0, passed: [1.0; 2] });
        let kinds: Vec<_> = one.judge().verdicts.iter().map(|verdict| verdict.kind).collect();
        assert_eq!(kinds.contains(&VerdictKind::LinkFull), is_full, "{together}: {kinds:?}");
    }
}

/// The rows: each figure by hand.
#[test]
fn a_service_s_figures_are_those_of_its_operations() {
    let mut all = Vec::new();
    for i in 0..100_u64 {
        let (began, took) = (i * 10 * MS, if i == 7 { 9 * MS + 1234 } else { 2 * MS });
        let bytes = if i % 2 == 0 { 1000 } else { 5000 };
        let ended = began + took;
        all.push(Made {
            connection: (i % 20) as u32,
            began,
            first: began + took / 2,
            ended,
            bytes,
            thought: None,
        });
    }
    let world = world(all);
    let row = world.row();
    let figures = row.figures;
    assert_eq!((row.service.as_deref(), row.operation.as_str()), (Some("10.0.0.2:80"), "GET"));
    assert_eq!((figures.operations, figures.connections, figures.failed, row.in_flight_max), (100, 20, 0, 1));
    let near =
        |value: f64, truth: f64| assert!((value / truth - 1.0).abs() < 0.01, "{value} {truth}: {row:?}");
    near(figures.seconds, 0.992);
    near(figures.rate, 100.0 / 0.992);
    near(figures.in_flight, 0.207 / 0.992);
    near(row.busy_share, 0.207 / 0.992);
    near(figures.block_size_bytes, 3000.0);
    near(figures.bytes_per_second, 300_000.0 / 0.992);
    near(figures.mean_us, 2070.0);
    [figures.p50_us, figures.p90_us].into_iter().for_each(|us| near(us, 2000.0));
    assert!((figures.max_us - 9001.234).abs() < 1e-6, "the longest itself: {}", figures.max_us);
    near(figures.time_share, 1.0);
    let sizes: Vec<(&str, u64)> = row.sizes.iter().map(|s| (s.name.as_str(), s.figures.operations)).collect();
    assert_eq!(sizes, [("4096", 50), ("512", 50)], "the size with the most time first");
    let clients: Vec<(&str, u64)> =
        row.clients.iter().map(|c| (c.name.as_str(), c.figures.operations)).collect();
    assert_eq!(clients, [("10.0.1.0", 50), ("10.0.1.1", 50)]);
    near(row.clients[0].figures.time_share, 107.0 / 207.0);
    assert_eq!(
        row.largest_part.map(|largest| largest.part == Part::Server || largest.part == Part::Transfer),
        Some(true)
    );
}
