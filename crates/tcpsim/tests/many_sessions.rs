//! Many sessions on one thread: what `auto` makes of a CPU, beside the best fixed policy.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use policy::SendPolicy;
use tcpsim::{RunResult, Setup, simulate};

/// Costs of a target and its client on a CPU each, loopback: what a send costs contains the receiver's softirq and waking it. As measured
/// (docs/performance.md): 8.3 us for a turn with one short read, half a microsecond for each further one.
const SIDE: &str = r#"
    receive = "1us"
    send = "1500ns"
    start = "20us"
    interrupt = "0s"
    softirq = "0s"
    softirq-ack = "0s"
    softirq-cpu = 0
    offload-segments = 64
"#;
const SERVER: &str = r#"
    event-loop = true
    wait = "500ns"
    service = "450ns"
    transmit = "4us"
"#;
const CLIENT: &str = r#"
    service = "400ns"
    transmit = "3us"
"#;

fn setup(others: &[&str], policy: SendPolicy) -> Setup {
    let others: Vec<String> = others.iter().map(|&other| other.to_owned()).collect();
    let loopback = format!(
        "jitter = 0.2\n[wire]\nbandwidth = 'none'\n[load]\nbatch = true\n[server]{SERVER}{SIDE}[client]{CLIENT}{SIDE}"
    );
    Setup { policy, ..Setup::read_with(&loopback, &others).unwrap() }
}

fn run(others: &[&str], policy: SendPolicy, sessions: u32, queue_depth: u32) -> RunResult {
    let rounds = u64::from(sessions * queue_depth);
    let operations = (40 * rounds).clamp(40_000, 400_000);
    let result = simulate(
        &Setup { sessions, queue_depth, operations, warm_up: 10 * rounds, ..setup(others, policy) },
        &mut (),
    );
    assert!(result.is_complete, "{result:?}");
    result
}

/// A loop that has work is not woken for each session: a wake that takes a millisecond delays threads of their own, not a busy loop.
#[test]
fn an_event_loop_is_woken_once_for_all() {
    let iops = |own| run(&[own, "server.start=1ms"], SendPolicy::Batch, 64, 8).iops;
    let (apart, together) = (iops("server.event-loop=false"), iops("server.event-loop=true"));
    assert!(together > 1.3 * apart, "{together} {apart}");
}

/// Each round waits for events once, however many have come.
#[test]
fn a_round_costs_one_wait() {
    for sessions in [16, 64] {
        let iops = run(&["server.wait=1ms"], SendPolicy::Batch, sessions, 1).iops;
        // What arrives during the wait is served in the next round, so that there are a few groups.
        let in_round = iops / 1000.0 / f64::from(sessions);
        assert!((0.25..=1.0).contains(&in_round), "{sessions} sessions: {iops}");
    }
}

/// A turn with a long queue ends after a tenth of a millisecond, and sends what it has made.
#[test]
fn a_turn_ends_while_others_wait() {
    let segments = |own| {
        let result = run(&[own, "server.service=20us"], SendPolicy::Batch, 4, 128);
        result.server.segments - result.server.acks
    };
    let (endless, cut) = (segments("server.event-loop=false"), segments("server.event-loop=true"));
    assert!(endless < 0.05, "all requests of a session are answered at once: {endless}");
    assert!((0.12..0.3).contains(&cut), "five or six answers in a turn: {cut}");
}

/// What `auto` serves at 1 to 256 sessions and depths of 1 to 128, learning included, as a share of the best other policy: of its
/// operations and of its bytes, geometrically, since a policy that starves large operations serves more of them. At least 0.97 but for
/// the points in `known`, which are (docs/send-policy.md says why) at least this share.
fn reaches_the_best(others: &[&str], known: &[(u32, u32, f64)]) {
    let mut low = Vec::new();
    for sessions in [1, 4, 16, 64, 256] {
        for depth in [1, 2, 4, 8, 32, 128] {
            let served = |policy| {
                let result = run(others, policy, sessions, depth);
                (result.iops * result.bytes_per_second).sqrt()
            };
            let fixed = SendPolicy::ALL.into_iter().filter(|policy| *policy != SendPolicy::Auto);
            let share = served(SendPolicy::Auto) / fixed.map(served).fold(0.0, f64::max);
            println!("{others:?}, {sessions} sessions, depth {depth}: {share:.2}");
            let least =
                known.iter().find(|known| (known.0, known.1) == (sessions, depth)).map_or(0.97, |k| k.2);
            if share < least {
                low.push(format!("{sessions} sessions, depth {depth}: {share:.3}"));
            }
        }
    }
    assert!(low.is_empty(), "{others:?}: {low:#?}");
}

#[test]
fn auto_reaches_the_best_policy_with_a_client_that_collects() {
    reaches_the_best(&[], &[(1, 4, 0.95)]);
}

#[test]
fn auto_reaches_the_best_policy_with_a_client_that_sends_one_by_one() {
    let known = [4, 16, 64, 256].map(|sessions| (sessions, 32, 0.9));
    let known = [&known[..], &[(1, 32, 0.96), (1, 128, 0.94), (4, 128, 0.93)]].concat();
    reaches_the_best(&["load.batch=false"], &known);
}

#[test]
fn auto_reaches_the_best_policy_with_work() {
    reaches_the_best(&["server.service=10us"], &[]);
}

#[test]
fn auto_reaches_the_best_policy_with_mixed_sizes() {
    // Its first session is that of the first set-up.
    reaches_the_best(&["second-response=64k", "server.service-per-kib=150ns"], &[(1, 4, 0.95)]);
}

/// Every second session has responses of its own size; a single session has none of it.
#[test]
fn sessions_may_differ_in_the_size_of_their_responses() {
    let mixed = run(&["second-response=64k"], SendPolicy::Batch, 4, 1);
    assert_eq!(mixed.block_size_bytes, 64 << 10);
    let mean = mixed.bytes_per_second / mixed.iops;
    assert!((512.0..65_536.0).contains(&mean) && mean > 10_000.0, "{mean}");
    let one = setup(&["second-response=17", "sessions=1"], SendPolicy::Batch);
    let plain = setup(&["sessions=1"], SendPolicy::Batch);
    assert_eq!((one.verb(), one.kind()), (plain.verb(), plain.kind()), "nothing has 17 bytes");
    let two = setup(&["second-response=17", "sessions=2"], SendPolicy::Batch);
    assert_ne!(two.verb(), plain.verb(), "17 bytes are no SCSI data");
}
