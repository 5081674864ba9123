//! The ring as a sequence of events: for stages that share a CPU, are interrupted, or whose arrivals are
//! coalesced.
//!
//! On one CPU the receive interrupt preempts the thread: operations that arrive while the thread works are received
//! first, so operations that arrive together leave together, and both ends overlap less than separate stages would.
//! Rules:
//!
//! - a CPU runs one stage at a time; interrupt stages preempt the others; the running one of the others continues
//!   until its queue is empty, then the one that has been ready for the longest time is next;
//! - an interrupt stage pays its start latency (waking the CPU) only when its CPU is idle;
//! - the start latency of a stage that shares its CPU with an interrupt is work on that CPU (scheduling and
//!   switching), which interrupts delay; the start latency of any other stage occupies no CPU;
//! - under Nagle's algorithm messages wait at a gate ([`super::gate`]); the transmit work of a packet preempts like an
//!   interrupt, because the call that releases it does it.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::Stage;
use super::extras::{Coalescing, Extras, Side};
use super::gate::{Departure, Gate, PlacedGate, place};
use super::nagle::{CLIENT_TRANSMIT, SERVER_TRANSMIT};
use super::run::Run;

/// Operations of one run.
const OPERATIONS: usize = 6000;
/// Least number of laps of one run; the first quarter is for settling.
const LAPS_MIN: usize = 24;

/// Runs operations that enter the first stage at `starts` until they have settled, and measures.
pub(super) fn run(stages: &[Stage], extras: &Extras, starts: &[f64]) -> Run {
    let depth = starts.len().max(1);
    // Whole laps, so that the first and the last operation have the same place in the ring's cycle; with slow operations
    // their whole number, so that the mean has its share of them.
    let settle = (OPERATIONS.max(LAPS_MIN * depth) / 4).next_multiple_of(depth);
    let every = if extras.slow.is_on() { extras.slow.every as usize } else { depth };
    let measured = (3 * settle).max(every).next_multiple_of(every);
    Events::new(stages, extras, starts, Laps { settle, measured }).run()
}

/// Operations of a run.
#[derive(Clone, Copy, Debug)]
struct Laps {
    /// Until the ring has settled.
    settle: usize,
    /// Behind them.
    measured: usize,
}

/// A time, microseconds. Times are finite, so they have an order.
#[derive(Clone, Copy, PartialEq)]
struct At(f64);

impl Eq for At {}

impl PartialOrd for At {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for At {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// An operation arrives at a stage.
    Arrive { stage: usize, operation: usize },
    /// A stage's start latency is over.
    Awake { stage: usize },
    /// A stage has served the first of its queue; void when `turn` is no longer the stage's turn.
    Served { stage: usize, turn: u64 },
    /// The time of a coalesced group ends; void when the group was complete before.
    Release { stage: usize, group: u64 },
    /// The thread before a gate went idle; void when it works again.
    Flush { gate: usize },
    /// The delayed ACK of a gate's small packet; void when it was acknowledged before.
    DelayedAck { gate: usize, end: u64 },
}

/// An event in the heap. The order of the fields is the order of events: by time, then as they were pushed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Pending {
    at: At,
    order: u64,
    event: Event,
}

/// The delayed ACKs of a gate.
#[derive(Clone, Copy)]
enum DelayedAcks {
    None,
    /// The heap has one; `latest` is the latest of those that began since, with its place in the order of events.
    InHeap {
        latest: Option<Pending>,
    },
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Idle,
    /// In its start latency, which occupies no CPU.
    Starting,
    /// Waits for the CPU.
    Ready,
    Running,
}

struct Queue {
    waiting: VecDeque<usize>,
    arrived: VecDeque<f64>,
    state: State,
    /// Work left on the first of the queue, microseconds.
    left_us: f64,
    turn: u64,
    since: f64,
    idle_since: f64,
    /// When the last operation passed, for a pacer.
    passed: f64,
    cpu: usize,
    /// Held by coalescing.
    held: Vec<usize>,
    group: u64,
}

struct Events<'a> {
    stages: &'a [Stage],
    extras: &'a Extras,
    queues: Vec<Queue>,
    /// Which stage each CPU runs.
    running: Vec<Option<usize>>,
    interrupted: Vec<bool>,
    coalesced: Vec<bool>,
    gates: Vec<PlacedGate>,
    /// For each stage, the gate whose packets it works on.
    gate_of: Vec<Option<usize>>,
    /// For each gate and operation, whether its message shares a packet with one before it.
    follows: Vec<Vec<bool>>,
    /// For each gate, what the heap knows of its delayed ACKs.
    delayed_acks: Vec<DelayedAcks>,
    heap: BinaryHeap<Reverse<Pending>>,
    pushed: u64,
    now: f64,
    entered: Vec<f64>,
    finished: usize,
    operations: usize,
    settle: usize,
    begin: f64,
    run: Run,
}

impl<'a> Events<'a> {
    fn new(stages: &'a [Stage], extras: &'a Extras, starts: &[f64], laps: Laps) -> Self {
        let operations = laps.settle + laps.measured;
        let mut cpus: Vec<&str> = Vec::new();
        let mut cpu_of = |resource: &'a str| {
            cpus.iter().position(|&c| c == resource).unwrap_or_else(|| {
                cpus.push(resource);
                cpus.len() - 1
            })
        };
        let queues: Vec<Queue> = stages
            .iter()
            .map(|stage| Queue {
                waiting: VecDeque::new(),
                arrived: VecDeque::new(),
                state: State::Idle,
                left_us: 0.0,
                turn: 0,
                since: 0.0,
                idle_since: f64::NEG_INFINITY,
                passed: f64::NEG_INFINITY,
                cpu: cpu_of(&stage.resource),
                held: Vec::new(),
                group: 0,
            })
            .collect();
        let mut interrupted = vec![false; cpus.len()];
        for (stage, queue) in stages.iter().zip(&queues) {
            let is_transmit = stage.name == SERVER_TRANSMIT || stage.name == CLIENT_TRANSMIT;
            interrupted[queue.cpu] |= stage.interrupt && !is_transmit;
        }
        let (gates, gate_of) = place(stages, extras, starts.len());
        let mut events = Self {
            stages,
            extras,
            running: vec![None; cpus.len()],
            queues,
            interrupted,
            coalesced: coalesced(stages, extras.coalescing),
            follows: vec![vec![false; starts.len()]; gates.len()],
            delayed_acks: vec![DelayedAcks::None; gates.len()],
            gates,
            gate_of,
            heap: BinaryHeap::new(),
            pushed: 0,
            now: 0.0,
            entered: starts.to_vec(),
            finished: 0,
            operations,
            settle: laps.settle,
            begin: 0.0,
            run: Run::of(stages.len(), operations),
        };
        for (operation, &at) in starts.iter().enumerate() {
            events.push(at, Event::Arrive { stage: 0, operation });
        }
        events
    }

    fn push(&mut self, at: f64, event: Event) {
        self.pushed += 1;
        self.heap.push(Reverse(Pending { at: At(at), order: self.pushed, event }));
    }

    fn measuring(&self) -> bool {
        self.finished >= self.settle
    }

    fn run(mut self) -> Run {
        while self.finished < self.operations {
            let Some(Reverse(Pending { at: At(now), event, .. })) = self.heap.pop() else { break };
            self.now = now;
            match event {
                Event::Arrive { stage, operation } => self.arrive(stage, operation),
                Event::Awake { stage } => {
                    self.queues[stage].state = State::Ready;
                    self.schedule(self.queues[stage].cpu);
                }
                Event::Served { stage, turn } => self.served(stage, turn),
                Event::Release { stage, group } if self.queues[stage].group == group => self.release(stage),
                Event::Release { .. } => {}
                Event::Flush { gate } => self.flush(gate),
                Event::DelayedAck { gate, end } => self.delayed_ack(gate, end),
            }
        }
        self.run.lasted_us = self.now - self.begin;
        self.run.iops = (self.operations - self.settle) as f64 * 1e6 / self.run.lasted_us;
        self.run
    }

    /// Service time of an operation in a stage: what a packet costs, its first message pays.
    fn service_us(&self, stage: usize, operation: usize) -> f64 {
        let spec = &self.stages[stage];
        let follows = self.gate_of[stage].is_some_and(|gate| self.follows[gate][operation]);
        spec.service_us - if follows { spec.per_received_us } else { 0.0 }
    }

    fn arrive(&mut self, stage: usize, operation: usize) {
        let Some(gate) = self.gates.iter().position(|gate| gate.before == stage) else {
            return self.pass(stage, operation);
        };
        self.at_gate(gate, |gate, leaving| gate.write(operation, leaving));
    }

    /// Something happens at a gate: the messages that leave go on.
    fn at_gate(&mut self, index: usize, does: impl FnOnce(&mut Gate, &mut Vec<Departure>)) {
        let placed = &mut self.gates[index];
        let mut leaving = Vec::new();
        let earlier = placed.gate.unacknowledged();
        does(&mut placed.gate, &mut leaving);
        let (before, ack_delay_us, unacknowledged) =
            (placed.before, placed.ack_delay_us, placed.gate.unacknowledged());
        if let Some(end) = unacknowledged.filter(|_| unacknowledged != earlier) {
            self.delay_ack(index, self.now + ack_delay_us, end);
        }
        for departure in leaving {
            self.follows[index][departure.operation] = !departure.leads;
            self.pass(before, departure.operation);
        }
    }

    /// Of a gate's delayed ACKs only the latest can matter. The heap has one of each gate: thousands of void ones would make it deep
    /// where the delay is long.
    fn delay_ack(&mut self, gate: usize, at: f64, end: u64) {
        self.pushed += 1;
        let pending = Pending { at: At(at), order: self.pushed, event: Event::DelayedAck { gate, end } };
        match &mut self.delayed_acks[gate] {
            DelayedAcks::None => {
                self.delayed_acks[gate] = DelayedAcks::InHeap { latest: None };
                self.heap.push(Reverse(pending));
            }
            DelayedAcks::InHeap { latest } => *latest = Some(pending),
        }
    }

    fn delayed_ack(&mut self, gate: usize, end: u64) {
        let latest = match self.delayed_acks[gate] {
            DelayedAcks::InHeap { latest } => latest,
            DelayedAcks::None => None,
        };
        match latest {
            Some(latest) => {
                self.delayed_acks[gate] = DelayedAcks::InHeap { latest: None };
                self.heap.push(Reverse(latest));
            }
            None => self.delayed_acks[gate] = DelayedAcks::None,
        }
        self.at_gate(gate, |gate, leaving| gate.timed_out(end, leaving));
    }

    fn flush(&mut self, gate: usize) {
        let thread = self.gates[gate].flushed_by;
        if thread.is_some_and(|thread| self.queues[thread].state == State::Idle) {
            self.at_gate(gate, Gate::flush);
        }
    }

    fn pass(&mut self, stage: usize, operation: usize) {
        if !self.coalesced[stage] {
            return self.enter(stage, operation);
        }
        let queue = &mut self.queues[stage];
        queue.held.push(operation);
        let (first, full) =
            (queue.held.len() == 1, queue.held.len() >= self.extras.coalescing.packets as usize);
        let group = queue.group;
        if full {
            self.release(stage);
        } else if first {
            self.push(self.now + self.extras.coalescing.hold_us, Event::Release { stage, group });
        }
    }

    fn release(&mut self, stage: usize) {
        self.queues[stage].group += 1;
        for operation in std::mem::take(&mut self.queues[stage].held) {
            self.enter(stage, operation);
        }
    }

    fn enter(&mut self, stage: usize, operation: usize) {
        for index in 0..self.gates.len() {
            let placed = &mut self.gates[index];
            if placed.received_at == stage {
                placed.received = placed.received.max(placed.gate.packet_end(operation));
            }
            if placed.peer_wire == stage {
                placed.carried[operation] = placed.received;
            }
            if placed.acknowledged_at == stage {
                let end = placed.carried[operation];
                self.at_gate(index, |gate, leaving| gate.acknowledged(end, leaving));
            }
        }
        let spec = &self.stages[stage];
        let service_us = self.service_us(stage, operation);
        let measuring = self.measuring();
        if spec.paced {
            let passed = self.now.max(self.queues[stage].passed + service_us);
            self.queues[stage].passed = passed;
            if measuring {
                self.run.stages[stage].served += 1;
                self.run.stages[stage].waited_us += passed - self.now;
                self.run.stages[stage].busy_us += service_us;
            }
            return self.leave(stage, operation, passed);
        }
        let cpu = self.queues[stage].cpu;
        let asleep = self.running[cpu].is_none();
        let queue = &mut self.queues[stage];
        queue.waiting.push_back(operation);
        queue.arrived.push_back(self.now);
        if queue.state != State::Idle {
            return;
        }
        // A stage that served its last operation at this very time is still awake.
        let awake = queue.idle_since >= self.now;
        if measuring && !awake {
            self.run.stages[stage].wakes += 1;
            self.run.stages[stage].idle_us += self.now - queue.idle_since;
        }
        let latency_us = if awake { 0.0 } else { spec.start_latency_us };
        let work = self.interrupted[cpu] && !spec.interrupt;
        queue.left_us = service_us + if work { latency_us } else { 0.0 };
        let pause = if work || (spec.interrupt && !asleep) { 0.0 } else { latency_us };
        if pause > 0.0 {
            queue.state = State::Starting;
            self.push(self.now + pause, Event::Awake { stage });
        } else {
            queue.state = State::Ready;
            queue.since = self.now;
            self.schedule(cpu);
        }
    }

    /// Runs the stage that is next on a CPU.
    fn schedule(&mut self, cpu: usize) {
        let running = self.running[cpu];
        if running.is_some_and(|r| self.stages[r].interrupt) {
            return;
        }
        let ready = |s: &usize| self.queues[*s].cpu == cpu && self.queues[*s].state == State::Ready;
        let next = (0..self.stages.len()).filter(ready).min_by(|&a, &b| {
            let key = |s: usize| (!self.stages[s].interrupt, At(self.queues[s].since));
            key(a).cmp(&key(b))
        });
        let Some(next) = next else { return };
        if let Some(current) = running {
            if !self.stages[next].interrupt {
                return;
            }
            let queue = &mut self.queues[current];
            queue.left_us -= self.now - queue.since;
            queue.state = State::Ready;
            queue.turn += 1;
            // Before all that become ready meanwhile: it resumes as soon as the interrupt ends.
            queue.since = f64::NEG_INFINITY;
        }
        self.start(next);
    }

    fn start(&mut self, stage: usize) {
        let queue = &mut self.queues[stage];
        queue.state = State::Running;
        queue.since = self.now;
        queue.turn += 1;
        let (at, turn) = (self.now + queue.left_us, queue.turn);
        self.running[queue.cpu] = Some(stage);
        self.push(at, Event::Served { stage, turn });
    }

    fn served(&mut self, stage: usize, turn: u64) {
        let measuring = self.measuring();
        let Some(service_us) = self.queues[stage].waiting.front().map(|&first| self.service_us(stage, first))
        else {
            return;
        };
        let next_us = self.queues[stage].waiting.get(1).map_or(0.0, |&next| self.service_us(stage, next));
        let queue = &mut self.queues[stage];
        if queue.turn != turn || queue.state != State::Running {
            return;
        }
        let (operation, arrived) = (queue.waiting.pop_front(), queue.arrived.pop_front());
        let cpu = queue.cpu;
        if measuring {
            self.run.stages[stage].served += 1;
            self.run.stages[stage].waited_us += self.now - service_us - arrived.unwrap_or(self.now);
            self.run.stages[stage].busy_us += service_us;
        }
        self.running[cpu] = None;
        if queue.waiting.is_empty() {
            queue.state = State::Idle;
            queue.idle_since = self.now;
        } else {
            queue.state = State::Ready;
            queue.left_us = next_us;
            // It keeps the CPU: no other stage has been ready for longer.
            queue.since = f64::NEG_INFINITY;
        }
        let is_idle = queue.state == State::Idle;
        if let Some(operation) = operation {
            self.leave(stage, operation, self.now);
        }
        if is_idle && let Some(gate) = self.gates.iter().position(|gate| gate.flushed_by == Some(stage)) {
            // After the message that it has just written.
            self.push(self.now, Event::Flush { gate });
        }
        if self.running[cpu].is_none() {
            self.schedule(cpu);
        }
    }

    fn leave(&mut self, stage: usize, operation: usize, mut at: f64) {
        if stage + 1 < self.stages.len() {
            return self.push(at, Event::Arrive { stage: stage + 1, operation });
        }
        self.finished += 1;
        let slow = self.extras.slow;
        if slow.every > 0 && self.finished.is_multiple_of(slow.every as usize) {
            at += slow.extra_us;
        }
        if self.finished == self.settle {
            self.begin = self.now;
        }
        if self.finished > self.settle {
            self.run.round_trip(at - self.entered[operation]);
        }
        self.entered[operation] = at + self.extras.think_us;
        self.push(self.entered[operation], Event::Arrive { stage: 0, operation });
    }
}

/// The stages whose arrivals are held: those after the wire of the coalesced direction.
fn coalesced(stages: &[Stage], coalescing: Coalescing) -> Vec<bool> {
    let mut held = vec![false; stages.len()];
    if !coalescing.is_on() {
        return held;
    }
    let behind = |wire: &str| stages.iter().position(|s| s.name == wire).map(|i| (i + 1) % stages.len());
    if coalescing.side != Side::Server {
        // Without a stage of that name: the first stage.
        held[behind("W2").unwrap_or(0)] = true;
    }
    if coalescing.side != Side::Client {
        held[behind("W1").unwrap_or(0)] = true;
    }
    held
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Ring;
    use crate::exact::tests::ring;
    use crate::recursion;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(300))]
        /// Both computations agree where stages have resources of their own.
        #[test]
        fn events_and_recursion_agree(
            times in prop::collection::vec((0.1_f64..50.0, 0.0_f64..100.0), 1..7), depth in 1_usize..12,
        ) {
            let ring = ring(&times);
            let starts = vec![0.0; depth];
            let extras = Extras::default();
            let (a, b) = (run(ring.stages(), &extras, &starts), recursion::run(ring.stages(), &extras, &starts));
            prop_assert!((a.iops / b.iops - 1.0).abs() < 0.02, "{} {}", a.iops, b.iops);
        }

        /// With any sharing of CPUs throughput stays in the band: some operation always makes progress, and no resource
        /// exceeds its capacity.
        #[test]
        fn shared_cpus_stay_in_their_band(
            times in prop::collection::vec((0.1_f64..50.0, 0.0_f64..100.0, 0_u8..3, any::<bool>()), 1..7), depth in 1_u32..24,
        ) {
            let stages = times.iter().enumerate().map(|(i, &(p, l, cpu, interrupt))| Stage {
                interrupt, ..Stage::own(&format!("s{i}"), p, l).on(&format!("cpu{cpu}"))
            }).collect();
            let ring = Ring::new(stages).unwrap();
            let (exact, band) = (ring.exact(depth, &Extras::default()).unwrap(), ring.band(depth).unwrap());
            prop_assert!(exact.iops_low >= band.low * 0.98, "{exact:?} {band:?}");
            prop_assert!(exact.iops_high <= band.high * 1.02, "{exact:?} {band:?}");
        }
    }

    fn sides(depth: u32, interrupt: bool, client: f64) -> f64 {
        let side = |i: &str, p: &str, cpu: &str, scale: f64| {
            [
                Stage { interrupt, ..Stage::own(i, 4.0 * scale, 10.0).on(cpu) },
                Stage::own(p, 3.0 * scale, 7.0).on(cpu),
            ]
        };
        let stages = [side("SI", "SP", "server", 1.0), side("CI", "CP", "client", client)].concat();
        Ring::new(stages).unwrap().exact(depth, &Extras::default()).unwrap().iops
    }

    #[test]
    fn interrupts_reduce_overlap_but_not_the_limit() {
        let alone = 1e6 / 48.0;
        assert!((sides(1, true, 1.0) - alone).abs() < 1.0 && (sides(1, false, 1.0) - alone).abs() < 1.0);
        let (with, without) = (sides(2, true, 1.0), sides(2, false, 1.0));
        assert!(with < 0.95 * without, "{with} {without}");
        // A client twice as fast keeps the server busy.
        let (with, without) = (sides(64, true, 0.5), sides(64, false, 0.5));
        assert!(with > 0.95 * without, "{with} {without}");
    }

    #[test]
    fn both_ends_on_one_cpu_share_its_capacity() {
        let stages = vec![
            Stage::own("W1", 1.0, 0.0),
            Stage::own("SP", 6.0, 5.0).on("cpu"),
            Stage::own("W2", 1.0, 0.0),
            Stage::own("CP", 4.0, 5.0).on("cpu"),
        ];
        let ring = Ring::new(stages).unwrap();
        let exact = ring.exact(32, &Extras::default()).unwrap();
        assert!((exact.iops / 1e5 - 1.0).abs() < 0.01, "{exact:?}");
    }

    #[test]
    fn complete_group_is_released_without_delay() {
        let ring = ring(&[(10.0, 0.0), (5.0, 0.0)]);
        let with = |depth, packets| {
            let coalescing = Coalescing { hold_us: 500.0, packets, side: Side::Client };
            ring.exact(depth, &Extras { coalescing, ..Extras::default() }).unwrap()
        };
        assert!((with(1, 2).rtt_us - 515.0).abs() < 1.0, "{:?}", with(1, 2));
        assert!(with(2, 2).rtt_us < 40.0, "{:?}", with(2, 2));
    }
}
