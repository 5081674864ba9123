//! Processors: softirqs before threads, and threads until they sleep, or the sessions of an event loop in rounds of a turn each.

use std::collections::VecDeque;

use policy::Turn;
use record::Side;

use super::events::Event;
use super::wire::Packet;
use super::{Frame, Observer, World};
use crate::Ns;

/// The present work of a CPU.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Work {
    #[default]
    Nothing,
    Softirq(u32),
    Thread(u32),
}

/// One processor.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    work: Work,
    ends_at: Ns,
    /// Number of the work that `Event::End` must name: events of preempted work are void.
    number: u32,
    /// A thread that a softirq preempted.
    suspended: Option<Suspended>,
    ready: VecDeque<u32>,
    /// It is busy with the transmit work of the last effect until then.
    free_at: Ns,
    /// Packets that the device holds for it.
    backlog: VecDeque<u32>,
    /// Interrupts are off: one is planned, or the softirq runs.
    is_polled: bool,
    interrupt_at: Ns,
    interrupt_number: u32,
    last_interrupt: Option<Ns>,
    event_loop: EventLoop,
}

/// The thread that serves all sessions of a CPU ([`crate::Host::event_loop`]). Its sessions wait in the CPU's queue.
#[derive(Debug, Default)]
struct EventLoop {
    state: LoopState,
    /// Sessions of this round that have not had their turn.
    round_left: usize,
    /// A session of the last round has more to do.
    goes_on: bool,
    /// When the present turn ends.
    turn_ends: Ns,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LoopState {
    #[default]
    Asleep,
    /// A session has woken it, and it will run soon.
    Waking,
    Awake,
}

/// A preempted thread and the work that it had left.
#[derive(Clone, Copy, Debug)]
struct Suspended {
    session: u32,
    left: Ns,
}

impl<O: Observer> World<'_, O> {
    fn cpu(&mut self, side: Side, cpu: u16) -> &mut Cpu {
        &mut self.cpus[side as usize][usize::from(cpu)]
    }

    /// A packet left the wire: queues it and plans the interrupt.
    #[inline]
    pub(super) fn arrive(&mut self, number: u32) {
        let packet = *self.packets.get(number);
        let side = packet.receiver;
        let host = self.host(side);
        let (now, index) = (self.now, host.softirq_cpu as u16);
        let cpu = self.cpu(side, index);
        cpu.backlog.push_back(number);
        let is_enough = host.interrupt_frames > 0 && cpu.backlog.len() >= host.interrupt_frames as usize;
        let earliest = cpu.last_interrupt.map_or(0, |last| last + host.interrupt_gap);
        let due = (if is_enough { now } else { now + host.interrupt_delay }).max(earliest);
        let is_sooner = cpu.is_polled && is_enough && cpu.interrupt_at > due;
        if !cpu.is_polled || is_sooner {
            cpu.is_polled = true;
            cpu.interrupt_at = due;
            cpu.interrupt_number = cpu.interrupt_number.wrapping_add(1);
            let number = cpu.interrupt_number;
            let sleeps = cpu.work == Work::Nothing && cpu.free_at <= now;
            let latency = self.vary(host.interrupt + if sleeps { host.idle_exit } else { 0 });
            self.events.plan(due + latency, Event::Interrupt { side, cpu: index, number });
        }
    }

    /// The softirq begins and preempts a running thread.
    pub(super) fn interrupt(&mut self, side: Side, index: u16, number: u32) {
        let (host, now) = (self.host(side), self.now);
        let cpu = self.cpu(side, index);
        if cpu.interrupt_number != number {
            return;
        }
        cpu.last_interrupt = Some(cpu.interrupt_at);
        cpu.interrupt_at = 0;
        if let Work::Thread(session) = cpu.work {
            cpu.suspended = Some(Suspended { session, left: cpu.ends_at - now });
        }
        cpu.free_at = cpu.free_at.max(now) + host.interrupt_work;
        self.tally.softirq(side, host.interrupt_work);
        self.next_packet(side, index);
    }

    /// The softirq takes the next packet, or ends.
    fn next_packet(&mut self, side: Side, index: u16) {
        let (host, now) = (self.host(side), self.now);
        let cpu = self.cpu(side, index);
        let begins = now.max(cpu.free_at);
        let Some(number) = cpu.backlog.pop_front() else {
            cpu.is_polled = false;
            cpu.work = Work::Nothing;
            return self.next_thread(side, index);
        };
        let packet = self.packets.get(number);
        packet.seen = begins;
        let Packet { session, segment, number: of_sender, .. } = *packet;
        let cost = self.vary(if segment.bytes > 0 { host.softirq } else { host.softirq_ack });
        self.tally.softirq(side, cost);
        if O::FRAMES {
            let sender = side.peer();
            let frame = Frame { at: begins, point: side, session, sender, segment, number: of_sender };
            self.observer.frame(&frame);
        }
        self.work_until(side, index, Work::Softirq(number), begins + cost);
    }

    /// Plans the end of a CPU's work.
    fn work_until(&mut self, side: Side, index: u16, work: Work, until: Ns) {
        let cpu = self.cpu(side, index);
        cpu.work = work;
        cpu.ends_at = until;
        cpu.number = cpu.number.wrapping_add(1);
        let number = cpu.number;
        self.events.plan(until, Event::End { side, cpu: index, number });
    }

    /// A CPU completes its work: applies the effect and begins the next work.
    #[inline]
    pub(super) fn end_of_work(&mut self, side: Side, index: u16, number: u32) {
        let cpu = self.cpu(side, index);
        if cpu.number != number {
            return;
        }
        match cpu.work {
            Work::Nothing => {}
            Work::Softirq(packet) => {
                self.deliver(side, packet);
                self.charge_transmit(side, index);
                self.next_packet(side, index);
            }
            Work::Thread(session) => {
                self.end_step(side, session);
                self.charge_transmit(side, index);
                self.run(side, index, session);
            }
        }
    }

    /// Charges the transmit work of the present effect to the CPU.
    #[inline]
    pub(super) fn charge_transmit(&mut self, side: Side, index: u16) {
        let work = std::mem::take(&mut self.transmit_work);
        let now = self.now;
        self.cpu(side, index).free_at = now + work;
    }

    /// Data or room has come for a session that slept: its thread wakes, or the event loop that serves it.
    pub(super) fn wake(&mut self, side: Side, session: u32) {
        let (host, now) = (self.host(side), self.now);
        if host.event_loop {
            let index = self.end(side, session).thread.cpu;
            let cpu = self.cpu(side, index);
            if cpu.event_loop.state != LoopState::Asleep {
                return cpu.ready.push_back(session);
            }
            cpu.event_loop.state = LoopState::Waking;
        }
        let start = self.vary(host.start);
        self.events.plan(now + start, Event::Wake { side, session });
    }

    /// As [`Self::charge_transmit`], added to what the CPU has been charged already.
    fn charge_more(&mut self, side: Side, index: u16) {
        let work = std::mem::take(&mut self.transmit_work);
        let now = self.now;
        let cpu = self.cpu(side, index);
        cpu.free_at = cpu.free_at.max(now) + work;
    }

    /// A thread is ready.
    pub(super) fn ready(&mut self, side: Side, session: u32) {
        let index = self.end(side, session).thread.cpu;
        let cpu = self.cpu(side, index);
        cpu.event_loop.state = LoopState::Awake;
        cpu.ready.push_back(session);
        if cpu.work == Work::Nothing {
            self.next_thread(side, index);
        }
    }

    /// The CPU resumes the preempted thread, or runs the next one that is ready.
    fn next_thread(&mut self, side: Side, index: u16) {
        let now = self.now;
        let cpu = self.cpu(side, index);
        if let Some(Suspended { session, left }) = cpu.suspended.take() {
            let begins = now.max(cpu.free_at);
            return self.work_until(side, index, Work::Thread(session), begins + left);
        }
        if self.host(side).event_loop && !self.has_turn(side, index) {
            return;
        }
        let cpu = self.cpu(side, index);
        if let Some(session) = cpu.ready.pop_front() {
            let begins = now.max(cpu.free_at);
            self.begin_turn(side, index, session, begins);
            let thread = &mut self.end(side, session).thread;
            thread.ran_at = begins;
            thread.end_block(begins);
            self.run(side, index, session);
        }
    }

    /// Whether an event loop gives a turn to the next session. It begins a round when all sessions of the last one had theirs, and
    /// sleeps when none is ready.
    fn has_turn(&mut self, side: Side, index: u16) -> bool {
        let (now, wait) = (self.now, self.host(side).wait);
        let cpu = self.cpu(side, index);
        if cpu.event_loop.state != LoopState::Awake {
            return false;
        }
        if cpu.event_loop.round_left == 0 {
            let ready = cpu.ready.len();
            let is_idle = !std::mem::take(&mut cpu.event_loop.goes_on);
            if ready == 0 {
                cpu.event_loop.state = LoopState::Asleep;
            } else {
                cpu.event_loop.round_left = ready;
                cpu.free_at = cpu.free_at.max(now) + wait;
                self.tally.thread(side, wait);
            }
            if side == Side::Server {
                let control = &mut self.controls[usize::from(index)];
                if is_idle {
                    control.idle();
                }
                control.begin_round(ready, now);
            }
            if ready == 0 {
                return false;
            }
        }
        self.cpu(side, index).event_loop.round_left -= 1;
        true
    }

    /// A session of an event loop has a turn.
    fn begin_turn(&mut self, side: Side, index: u16, session: u32, begins: Ns) {
        if !self.host(side).event_loop {
            return;
        }
        let mut turn = Turn::LONG;
        if side == Side::Server {
            let control = &self.controls[usize::from(index)];
            turn = control.turn();
            self.sessions[session as usize].control.begin_turn(control);
            self.apply_send_mode(session);
            self.charge_more(side, index);
        }
        self.cpu(side, index).event_loop.turn_ends = begins + turn.time.as_nanos() as Ns;
    }

    /// Ends a session's turn if it has lasted long enough: what is complete is sent, and the others of the round have theirs. True
    /// when the session no longer runs.
    fn ends_turn(&mut self, side: Side, index: u16, session: u32, begins: Ns) -> bool {
        if !self.host(side).event_loop || begins < self.cpu(side, index).event_loop.turn_ends {
            return false;
        }
        if self.is_within_call(side, session) || self.sends_before_turn_ends(side, session) {
            return false;
        }
        self.end_turn(side, session);
        let cpu = self.cpu(side, index);
        cpu.event_loop.goes_on = true;
        cpu.ready.push_back(session);
        cpu.work = Work::Nothing;
        true
    }

    /// Runs a thread's next step; a thread that sleeps frees the CPU.
    fn run(&mut self, side: Side, index: u16, session: u32) {
        loop {
            let begins = self.now.max(self.cpu(side, index).free_at);
            if self.ends_turn(side, index, session, begins) {
                return self.next_thread(side, index);
            }
            match self.begin_step(side, session, begins) {
                Some(0) if begins == self.now => {
                    self.end_step(side, session);
                    self.charge_transmit(side, index);
                }
                Some(cost) => {
                    self.tally.thread(side, cost);
                    return self.work_until(side, index, Work::Thread(session), begins + cost);
                }
                None => {
                    self.end_turn(side, session);
                    self.cpu(side, index).work = Work::Nothing;
                    return self.next_thread(side, index);
                }
            }
        }
    }
}
