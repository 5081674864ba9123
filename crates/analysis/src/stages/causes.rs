//! What was seen while operations stayed in a stage, and how the CPUs spent their time.

use record::{KernelEvent, KernelEventKind, Side, Softirq};
use serde::{Deserialize, Serialize};

use super::counters::Change;
use super::{SideCpus, Stage, TraceWindow};

/// Something that was seen and explains why an operation is still in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The device's queue holds it, or is full and holds it back: the wire's rate.
    Wire,
    /// An interrupt to the CPU that must continue is under way: mostly the wake-up of an idle CPU.
    Interrupt,
    /// That CPU executes a softirq.
    Softirq,
    /// The side's own thread runs, for this operation or for one in front of it.
    Thread,
    /// That CPU executes something else.
    OtherWork,
    /// The thread was woken and does not run yet.
    Runnable,
    /// That CPU enters or leaves an idle state.
    IdleTransition,
    /// TCP held it until an acknowledgement came: Nagle's algorithm, or a window.
    Tcp,
    /// Nothing was seen.
    Unexplained,
}

impl Cause {
    /// All of them.
    pub const ALL: [Self; 9] = [
        Self::Wire,
        Self::Interrupt,
        Self::Softirq,
        Self::Thread,
        Self::OtherWork,
        Self::Runnable,
        Self::IdleTransition,
        Self::Tcp,
        Self::Unexplained,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Wire => "wire",
            Self::Interrupt => "interrupt",
            Self::Softirq => "softirq",
            Self::Thread => "thread",
            Self::OtherWork => "other work",
            Self::Runnable => "runnable",
            Self::IdleTransition => "idle transition",
            Self::Tcp => "TCP",
            Self::Unexplained => "unexplained",
        }
    }
}

/// The work of a side's CPUs, microseconds per operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SideWork {
    /// Work that was seen: all of the following but the last.
    pub busy_us: f64,
    /// Its thread, without softirqs that interrupted it.
    pub thread_us: f64,
    /// Softirqs in which packets arrived at the side.
    pub receive_softirq_us: f64,
    /// Softirqs in which none arrived: they hand the side's own packets to the other CPU, as a part of its send calls.
    pub transmit_softirq_us: f64,
    /// The kernel's: interrupts, timers, other softirqs.
    pub kernel_us: f64,
    /// Threads of the observers: captures.
    pub observers_us: f64,
    /// Other threads: the machine is not this ring's alone.
    pub others_us: f64,
    /// The idle thread outside idle states, on its way into or out of one; on a CPU that reports no idle states, all of the idle
    /// thread's time. CPU accounts count an unknown part of it as work.
    pub transitions_us: f64,
}

impl SideWork {
    /// The thread's share of the work for operations, with its transmit work; `None` without any work.
    #[must_use]
    pub fn thread_share(&self) -> Option<f64> {
        let thread = self.thread_us + self.transmit_softirq_us;
        let all = thread + self.receive_softirq_us;
        (all > 0.0).then(|| thread / all)
    }
}

/// The same in nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Work {
    thread: u64,
    receive: u64,
    transmit: u64,
    kernel: u64,
    observers: u64,
    others: u64,
    transitions: u64,
}

impl Work {
    pub(super) fn per_operation(&self, operations: u64) -> SideWork {
        let us = |ns: u64| ns as f64 / 1000.0 / operations.max(1) as f64;
        SideWork {
            busy_us: us(self.thread
                + self.receive
                + self.transmit
                + self.kernel
                + self.observers
                + self.others),
            thread_us: us(self.thread),
            receive_softirq_us: us(self.receive),
            transmit_softirq_us: us(self.transmit),
            kernel_us: us(self.kernel),
            observers_us: us(self.observers),
            others_us: us(self.others),
            transitions_us: us(self.transitions),
        }
    }
}

/// A stage's sums.
#[derive(Clone, Debug, Default)]
pub(super) struct StageSum {
    /// Operations times nanoseconds, by [`Cause::ALL`].
    pub(super) by_cause: [i128; 9],
    pub(super) times_empty: u64,
    pub(super) least: i64,
}

impl StageSum {
    pub(super) fn operation_ns(&self) -> i128 {
        self.by_cause.iter().sum()
    }
}

/// What a sweep over time found.
pub(super) struct Found {
    pub(super) stages: Vec<StageSum>,
    pub(super) client: Work,
    pub(super) server: Work,
}

/// What a CPU does.
#[derive(Clone, Copy, Debug, Default)]
struct Cpu {
    /// 0 is its idle thread.
    thread: i32,
    softirq: Option<Softirq>,
    /// When the softirq began, and whether a packet arrived in it.
    softirq_began: u64,
    packet_arrived: bool,
    in_interrupt: bool,
    interrupt_sent: bool,
    in_idle_state: bool,
    /// Some virtual CPUs show no event of their idle thread.
    reports_idle: bool,
}

impl Cpu {
    fn is_idle(&self) -> bool {
        self.thread == 0 && self.softirq.is_none() && !self.in_interrupt
    }
}

/// A side's thread.
#[derive(Clone, Copy, Debug)]
struct Thread {
    number: i32,
    cpus: SideCpus,
    is_runnable: bool,
    /// In a send call.
    is_sending: bool,
}

/// A sweep over all events and changes in the order of time.
pub(super) struct Timeline<'a> {
    window: &'a TraceWindow<'a>,
    cpus: Vec<Cpu>,
    client: Thread,
    server: Thread,
    levels: [i64; 10],
    /// Operation time in the two send stages without a cause so far: if an acknowledgement's softirq takes the operations out,
    /// TCP had held them.
    held: [i128; 10],
    found: Found,
}

impl<'a> Timeline<'a> {
    pub(super) fn new(window: &'a TraceWindow<'a>, server_thread: i32) -> Self {
        let most = window.events.iter().map(|event| event.cpu).max().unwrap_or(0);
        let most = [window.client_cpus, window.server_cpus]
            .iter()
            .map(|c| c.thread.max(c.softirq))
            .fold(most, u16::max);
        let thread = |number, cpus| Thread { number, cpus, is_runnable: false, is_sending: false };
        let mut levels = [0; 10];
        // Before the load the client holds all operations.
        levels[Stage::ClientProgram as usize] = i64::from(window.queue_depth);
        let mut cpus = vec![Cpu::default(); usize::from(most) + 1];
        for event in window.events.iter().filter(|event| event.kind == KernelEventKind::IdleBegan) {
            cpus[usize::from(event.cpu)].reports_idle = true;
        }
        Self {
            window,
            cpus,
            client: thread(window.client_thread, window.client_cpus),
            server: thread(server_thread, window.server_cpus),
            levels,
            held: [0; 10],
            found: Found {
                stages: vec![StageSum { least: i64::MAX, ..StageSum::default() }; 10],
                client: Work::default(),
                server: Work::default(),
            },
        }
    }

    /// Sweeps over the measured time.
    pub(super) fn run(mut self, changes: &[Change]) -> Found {
        let mut changes = changes.iter().peekable();
        let mut last = self.window.load_ns.0;
        for event in self.window.events {
            while let Some(change) = changes.next_if(|change| change.at_ns <= event.at_ns) {
                self.pass(last, change.at_ns);
                last = last.max(change.at_ns);
                self.change(change);
            }
            self.pass(last, event.at_ns);
            last = last.max(event.at_ns);
            self.see(event);
        }
        for change in changes {
            self.pass(last, change.at_ns);
            last = last.max(change.at_ns);
            self.change(change);
        }
        self.pass(last, self.window.measured_ns.1);
        for stage in 0..self.held.len() {
            self.settle(stage, Cause::Unexplained);
        }
        for sum in &mut self.found.stages {
            sum.least = if sum.least == i64::MAX { 0 } else { sum.least };
        }
        self.found
    }

    /// Counts held operations by their cause.
    fn settle(&mut self, stage: usize, cause: Cause) {
        let held = std::mem::take(&mut self.held[stage]);
        self.found.stages[stage].by_cause[cause as usize] += held;
    }

    fn change(&mut self, change: &Change) {
        // An acknowledgement releases data in a softirq, or in another call of the thread that owns the socket.
        let by_softirq = self.cpu(change.cpu).softirq == Some(Softirq::Receive);
        let side = if change.leaves == Stage::ClientSend as usize { self.client } else { self.server };
        let by_acknowledgement = by_softirq || !side.is_sending;
        self.settle(change.leaves, if by_acknowledgement { Cause::Tcp } else { Cause::Unexplained });
        let (begin, end) = self.window.measured_ns;
        let operations = change.operations.cast_signed();
        self.levels[change.leaves] -= operations;
        self.levels[(change.leaves + 1) % self.levels.len()] += operations;
        if (begin..end).contains(&change.at_ns) {
            let level = self.levels[change.leaves];
            let sum = &mut self.found.stages[change.leaves];
            sum.least = sum.least.min(level);
            sum.times_empty += u64::from(level == 0);
        }
    }

    /// Counts the time from `from` to `to`, in which nothing changed.
    fn pass(&mut self, from: u64, to: u64) {
        let (begin, end) = self.window.measured_ns;
        let ns = to.min(end).saturating_sub(from.max(begin));
        if ns == 0 {
            return;
        }
        for stage in Stage::ALL {
            let level = self.levels[stage as usize];
            if level != 0 {
                let (cause, time) = (self.cause(stage), i128::from(level) * i128::from(ns));
                let is_send = matches!(stage, Stage::ClientSend | Stage::ServerSend);
                if is_send && cause == Cause::Unexplained {
                    self.held[stage as usize] += time;
                } else {
                    self.found.stages[stage as usize].by_cause[cause as usize] += time;
                }
            }
        }
        for side in [Side::Client, Side::Server] {
            self.work(side, ns);
        }
    }

    fn thread(&self, side: Side) -> Thread {
        match side {
            Side::Client => self.client,
            Side::Server => self.server,
        }
    }

    fn cpu(&self, number: u16) -> Cpu {
        self.cpus.get(usize::from(number)).copied().unwrap_or_default()
    }

    /// Counts the work of a side's CPUs. The receive softirqs of a softirq CPU that both sides share count at their end.
    fn work(&mut self, side: Side, ns: u64) {
        let thread = self.thread(side);
        let cpu = self.cpu(thread.cpus.thread);
        let work = match side {
            Side::Client => &mut self.found.client,
            Side::Server => &mut self.found.server,
        };
        match cpu.softirq {
            Some(Softirq::Other) => work.kernel += ns,
            None if cpu.in_interrupt => work.kernel += ns,
            None if cpu.thread == thread.number => work.thread += ns,
            None if self.window.observers.contains(&cpu.thread) => work.observers += ns,
            None if cpu.thread != 0 => work.others += ns,
            None if !cpu.in_idle_state => work.transitions += ns,
            // A softirq of packets counts when it ends, by what arrived.
            Some(Softirq::Receive) | None => {}
        }
    }

    /// Why operations are in a stage now.
    fn cause(&self, stage: Stage) -> Cause {
        match stage {
            Stage::ClientQueue | Stage::ServerQueue => Cause::Wire,
            Stage::ClientProgram => self.on_thread(Side::Client),
            Stage::ServerProgram => self.on_thread(Side::Server),
            Stage::ClientReceive => self.receiving(Side::Client),
            Stage::ServerReceive => self.receiving(Side::Server),
            Stage::ClientSend => self.sending(Side::Client, Stage::ClientQueue),
            Stage::ServerSend => self.sending(Side::Server, Stage::ServerQueue),
            Stage::RequestPath => self.crossing(Side::Client),
            Stage::ResponsePath => self.crossing(Side::Server),
        }
    }

    /// What a CPU does, for a side's thread.
    fn activity(&self, cpu: u16, thread: Thread) -> Option<Cause> {
        let cpu = self.cpu(cpu);
        match cpu.softirq {
            Some(Softirq::Receive) => Some(Cause::Softirq),
            Some(Softirq::Other) => Some(Cause::OtherWork),
            None if cpu.in_interrupt => Some(Cause::Interrupt),
            None if cpu.thread == thread.number => Some(Cause::Thread),
            None if cpu.thread != 0 => Some(Cause::OtherWork),
            None if cpu.interrupt_sent => Some(Cause::Interrupt),
            None if cpu.reports_idle && !cpu.in_idle_state => Some(Cause::IdleTransition),
            None => None,
        }
    }

    fn on_thread(&self, side: Side) -> Cause {
        let thread = self.thread(side);
        match self.activity(thread.cpus.thread, thread) {
            None | Some(Cause::IdleTransition) if thread.is_runnable => Cause::Runnable,
            activity => activity.unwrap_or(Cause::Unexplained),
        }
    }

    fn receiving(&self, side: Side) -> Cause {
        let thread = self.thread(side);
        let softirq = self.activity(thread.cpus.softirq, thread).filter(|cause| *cause == Cause::Softirq);
        softirq.unwrap_or_else(|| self.on_thread(side))
    }

    fn sending(&self, side: Side, queue: Stage) -> Cause {
        if self.levels[queue as usize] > 0 {
            return Cause::Wire;
        }
        // An acknowledgement lets the sender's softirq go on.
        self.receiving(side)
    }

    /// From `sender`'s device to the other side's.
    fn crossing(&self, sender: Side) -> Cause {
        let (from, to) = (self.thread(sender), self.thread(sender.peer()));
        let receiver = self.cpu(to.cpus.softirq);
        if receiver.interrupt_sent && receiver.is_idle() {
            return Cause::Interrupt;
        }
        let seen = [(to.cpus.softirq, to), (from.cpus.thread, from), (from.cpus.softirq, from)];
        let mut seen: Vec<Cause> =
            seen.iter().filter_map(|&(cpu, thread)| self.activity(cpu, thread)).collect();
        // What a CPU does explains more than that it becomes idle.
        seen.sort_by_key(|cause| *cause == Cause::IdleTransition);
        seen.first().copied().unwrap_or(Cause::Unexplained)
    }

    fn see(&mut self, event: &KernelEvent) {
        if let KernelEventKind::InterruptSent(to) = event.kind {
            if let Some(cpu) = self.cpus.get_mut(usize::from(to)) {
                cpu.interrupt_sent = true;
            }
            return;
        }
        let Some(cpu) = self.cpus.get_mut(usize::from(event.cpu)) else { return };
        match event.kind {
            KernelEventKind::Switched(thread) => {
                // Whatever interrupt was sent to it, a reschedule for example, has come.
                *cpu = Cpu {
                    thread,
                    in_interrupt: false,
                    interrupt_sent: false,
                    in_idle_state: false,
                    softirq: None,
                    ..*cpu
                };
                for known in [&mut self.client, &mut self.server] {
                    known.is_runnable &= known.number != thread;
                }
                return;
            }
            KernelEventKind::InterruptBegan => (cpu.in_interrupt, cpu.interrupt_sent) = (true, false),
            KernelEventKind::TimerBegan => cpu.in_interrupt = true,
            KernelEventKind::IdleBegan => cpu.in_idle_state = true,
            KernelEventKind::IdleEnded => cpu.in_idle_state = false,
            KernelEventKind::InterruptEnded => cpu.in_interrupt = false,
            KernelEventKind::SoftirqBegan(kind) => {
                *cpu = Cpu { softirq: Some(kind), softirq_began: event.at_ns, packet_arrived: false, ..*cpu };
                (cpu.in_interrupt, cpu.interrupt_sent) = (false, false);
            }
            KernelEventKind::SoftirqEnded(kind) => {
                let ended = *cpu;
                cpu.softirq = None;
                if kind == Softirq::Receive && ended.softirq.is_some() {
                    self.count_softirq(event, ended);
                }
            }
            KernelEventKind::Arrived(..) => cpu.packet_arrived = true,
            KernelEventKind::SendBegan | KernelEventKind::Sent(_) => {
                let is_sending = event.kind == KernelEventKind::SendBegan;
                for known in [&mut self.client, &mut self.server] {
                    if known.number == event.thread {
                        known.is_sending = is_sending;
                    }
                }
            }
            KernelEventKind::Woken(thread) => {
                for known in [&mut self.client, &mut self.server] {
                    known.is_runnable |= known.number == thread;
                }
            }
            _ => {}
        }
        // A CPU whose thread was never switched to: the first event tells it.
        if let Some(cpu) = self.cpus.get_mut(usize::from(event.cpu)) {
            cpu.thread = event.thread;
        }
    }

    fn count_softirq(&mut self, event: &KernelEvent, ended: Cpu) {
        let (begin, end) = self.window.measured_ns;
        let ns = event.at_ns.min(end).saturating_sub(ended.softirq_began.max(begin));
        for (thread, work) in [(self.client, &mut self.found.client), (self.server, &mut self.found.server)] {
            if thread.cpus.softirq == event.cpu || thread.cpus.thread == event.cpu {
                *if ended.packet_arrived { &mut work.receive } else { &mut work.transmit } += ns;
            }
        }
    }
}
