//! Rings whose behaviour can be worked out by hand: what each stage does between two sleeps, what pacers, interrupts and
//! coalescing do.

mod common;

use common::four;
use model::exact::Exact;
use model::extras::{Coalescing, Extras, Side, Slow};
use model::{Ring, Stage};

fn exact(stages: Vec<Stage>, depth: u32, extras: &Extras) -> Exact {
    Ring::new(stages).and_then(|ring| ring.exact(depth, extras)).expect("a ring")
}

fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-6 * expected.abs().max(1.0), "{value} is not {expected}");
}

#[test]
fn alone_each_stage_sleeps_while_the_others_work() {
    let of = |stages: Vec<Stage>| {
        let found = exact(stages, 1, &Extras::default());
        close(found.rtt_us, 38.0);
        for rtt in [found.rtt_p50_us, found.rtt_p99_us, found.rtt_max_us] {
            close(rtt, 38.0);
        }
        for (value, expected) in found.cycles.iter().zip([(1.0, 2.0), (8.0, 4.0), (5.0, 2.0), (6.0, 10.0)]) {
            let (service, latency) = expected;
            close(value.operations.unwrap(), 1.0);
            // From its end to the next arrival: the round less its own part.
            close(value.idle_us, 38.0 - service - latency);
            // Its start latency is a wait in front of it.
            close(value.backlog, latency / 38.0);
        }
    };
    of(four());
    // The same by events: an interrupt that has nothing to interrupt.
    let mut interrupt = four();
    interrupt[1].interrupt = true;
    of(interrupt);
}

#[test]
fn a_bottleneck_never_sleeps_and_the_rest_of_the_ring_waits_for_it() {
    for depth in [10, 40] {
        let found = exact(four(), depth, &Extras::default());
        close(found.iops, 125_000.0);
        close(found.rtt_us, f64::from(depth) * 8.0);
        let sp = &found.cycles[1];
        assert_eq!((sp.stage.as_str(), sp.operations, sp.idle_us), ("SP", None, 0.0));
        // All but those that are elsewhere: one is served, and the others pay W1 3, W2 7, CP 16 at most.
        assert!(sp.backlog > f64::from(depth) - 1.0 - 26.0 / 8.0 && sp.backlog < f64::from(depth) - 1.0);
    }
}

#[test]
fn a_pacer_keeps_operations_apart_among_interrupts_too() {
    let paced = |interrupt: bool, depth: u32| {
        let mut stages = four();
        stages[0] = Stage::pacer("W1", 50.0);
        stages[1].interrupt = interrupt;
        exact(stages, depth, &Extras::default())
    };
    for interrupt in [false, true] {
        // Its spacing is 50 us, and nothing else takes as long.
        close(paced(interrupt, 1).rtt_us, 50.0);
        close(paced(interrupt, 4).iops, 20_000.0);
        // Four in the ring: 35 us of the 200 are work, the rest they wait in front of it.
        close(paced(interrupt, 4).cycles[0].backlog, 165.0 / 50.0);
    }
}

#[test]
fn coalesced_arrivals_reach_the_stage_behind_the_wire_together() {
    let held = |side, depth, packets, hold_us| {
        let extras = Extras { coalescing: Coalescing { hold_us, packets, side }, ..Extras::default() };
        exact(four(), depth, &extras)
    };
    // Alone, every hold is paid: it is no group.
    close(held(Side::Client, 1, 2, 7.0).rtt_us, 45.0);
    close(held(Side::Server, 1, 2, 7.0).rtt_us, 45.0);
    close(held(Side::Both, 1, 2, 7.0).rtt_us, 52.0);
    // A group of one is none, and a hold of nothing is off.
    close(held(Side::Both, 1, 1, 7.0).rtt_us, 38.0);
    close(held(Side::Both, 1, 2, 0.0).rtt_us, 38.0);
    // Two that wait for each other arrive as two: what is behind the wire serves two between its sleeps.
    let operations = |side| {
        held(side, 2, 2, 1e5).cycles.into_iter().map(|c| c.operations.unwrap_or(0.0)).collect::<Vec<_>>()
    };
    let (client, server) = (operations(Side::Client), operations(Side::Server));
    close(client[3], 2.0);
    close(server[1], 2.0);
}

#[test]
fn one_in_three_is_late_and_only_by_its_own() {
    let extras = Extras { slow: Slow { every: 3, extra_us: 203.0 }, ..Extras::default() };
    let mut by_events = four();
    by_events[1].interrupt = true;
    for stages in [four(), by_events] {
        let found = exact(stages, 1, &extras);
        assert!((found.rtt_us - (38.0 + 203.0 / 3.0)).abs() < 0.1, "{}", found.rtt_us);
        close(found.rtt_p50_us, 38.0);
        close(found.rtt_max_us, 241.0);
    }
    close(extras.slow.mean_us(), 203.0 / 3.0);
    assert_eq!(Slow::default().mean_us(), 0.0);
}

#[test]
fn thinking_is_between_operations_and_in_none() {
    let extras = Extras { think_us: 62.0, ..Extras::default() };
    let mut by_events = four();
    by_events[1].interrupt = true;
    for stages in [four(), by_events] {
        let found = exact(stages, 1, &extras);
        close(found.iops, 10_000.0);
        close(found.rtt_us, 38.0);
        close(found.rtt_max_us, 38.0);
    }
}

#[test]
fn an_interrupt_goes_before_the_thread_of_its_cpu() {
    // SI 3 and SP 10 on one CPU: two that come together are both taken in before either is served, so that the second
    // leaves the CPU 10 us behind the first and not 13. The CPU is the limit all the same.
    let stages = |interrupt| {
        vec![
            Stage::own("W1", 0.5, 0.0),
            Stage { interrupt, ..Stage::own("SI", 3.0, 0.0).on("server") },
            Stage::own("SP", 10.0, 0.0).on("server"),
            Stage::own("CP", 30.0, 0.0),
        ]
    };
    let found = exact(stages(true), 2, &Extras::default());
    // CP is the bottleneck, 30 us each: nothing on the server changes that.
    close(found.iops, 1e6 / 30.0);
    let limit = exact(vec![stages(true)[1].clone(), stages(true)[2].clone()], 6, &Extras::default());
    close(limit.iops, 1e6 / 13.0);
    // What arrives while the thread works is taken in at once, and delays the thread.
    close(limit.cycles[0].backlog, 0.0);
    assert!(limit.cycles[1].backlog > 4.0, "{:?}", limit.cycles);
    // Its start latency (waking the CPU) is paid only when nothing runs there.
    let mut waking = stages(true);
    waking[1].start_latency_us = 4.0;
    close(exact(waking.clone(), 1, &Extras::default()).rtt_us, 47.5);
    // What the thread pays for being scheduled is work on that CPU.
    waking[2].start_latency_us = 2.0;
    close(exact(waking, 1, &Extras::default()).rtt_us, 49.5);
}
