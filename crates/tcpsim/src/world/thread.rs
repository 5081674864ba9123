//! The threads of client and server: they receive, take messages, send, and sleep when nothing is left. The server's thread
//! is the target's connection loop with the same policies, the client's the load generator's closed loop.

use std::collections::VecDeque;

use record::{Side, Writes};

use super::flow::{Transit, stamp};
use super::{Message, Observer, World};
use crate::Ns;
use crate::op::{Part, Parts, SimOp};
use crate::tcp::More;

/// The next step of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The client issues an operation.
    Issue,
    /// One receive call.
    Receive,
    /// Takes the next message: the server serves it, the client completes its operation.
    Take,
    /// One send call.
    Write,
    /// Nothing was received: sleeps unless data arrived meanwhile.
    Idle,
}

/// A call that writes to the socket.
#[derive(Clone, Copy, Debug)]
enum Write {
    Data { bytes: u64, more: More, after_header: bool },
    Cork(bool),
}

/// One thread, which serves one end of a session.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) cpu: u16,
    pub(super) is_asleep: bool,
    pub(super) waits_for_room: bool,
    /// When it last began to run after a sleep.
    pub(super) ran_at: Ns,
    /// Operations that the client has still to issue.
    pub(super) to_issue: u32,
    step: Step,
    /// The step after its writes.
    after: Step,
    writes: VecDeque<Write>,
    /// Messages that it made and has not sent, and their bytes.
    gathered: u32,
    gathered_bytes: u64,
    /// The message that it works on, and where the message's time went until it was taken.
    message: Option<Transit>,
    parts: Parts,
    /// Time without room in the socket so far, and since when there is no room.
    blocked: Ns,
    blocked_at: Option<Ns>,
    /// It took a message since it was last idle.
    has_served: bool,
}

impl Thread {
    pub(super) fn new(cpu: u16) -> Self {
        Self {
            cpu,
            is_asleep: true,
            waits_for_room: false,
            ran_at: 0,
            to_issue: 0,
            step: Step::Receive,
            after: Step::Receive,
            writes: VecDeque::new(),
            gathered: 0,
            gathered_bytes: 0,
            message: None,
            parts: [0; Part::COUNT],
            blocked: 0,
            blocked_at: None,
            has_served: false,
        }
    }

    /// Time without room in the socket so far.
    fn blocked(&self, now: Ns) -> Ns {
        self.blocked + self.blocked_at.map_or(0, |since| now - since)
    }

    /// Ends the time without room, if there is none.
    pub(super) fn end_block(&mut self, now: Ns) {
        if let Some(since) = self.blocked_at.take() {
            self.blocked += now - since;
        }
    }
}

impl<O: Observer> World<'_, O> {
    /// Begins the thread's next step and returns the time that it takes; `None` when the thread sleeps.
    #[inline]
    pub(super) fn begin_step(&mut self, side: Side, session: u32, now: Ns) -> Option<Ns> {
        let host = self.host(side);
        let thread = &mut self.end(side, session).thread;
        if thread.is_asleep || thread.waits_for_room {
            return None;
        }
        if side == Side::Client && thread.to_issue > 0 && thread.step == Step::Receive {
            thread.step = Step::Issue;
        }
        Some(match thread.step {
            Step::Issue => self.vary(self.setup.load.stagger),
            Step::Idle => 0,
            Step::Receive => self.vary(host.receive),
            Step::Take => {
                self.begin_take(side, session, now);
                let data = self.setup.data_of(session);
                self.vary(host.service + host.service_per_kib * data / 1024) + self.disturbance()
            }
            Step::Write => match thread.writes.front() {
                Some(Write::Data { after_header: true, .. }) => {
                    self.vary(host.send) + self.vary(host.write_gap)
                }
                Some(Write::Data { .. }) => self.vary(host.send),
                _ => 0,
            },
        })
    }

    /// Applies the effect of the thread's step.
    #[inline]
    pub(super) fn end_step(&mut self, side: Side, session: u32) {
        match self.end(side, session).thread.step {
            Step::Issue => self.issue(session),
            Step::Receive => self.receive(side, session),
            Step::Take => self.end_take(side, session),
            Step::Write => self.write(side, session),
            Step::Idle => self.idle(side, session),
        }
    }

    fn receive(&mut self, side: Side, session: u32) {
        let most = self.host(side).receive_bytes;
        let mut out = std::mem::take(&mut self.out);
        let end = self.end(side, session);
        let count = end.tcp.read(most, &mut out);
        self.out = out;
        self.transmit(side, session);
        if count > 0 {
            return self.next_message(side, session);
        }
        let end = self.end(side, session);
        let (is_stuck, is_writable) = (!end.thread.writes.is_empty(), end.tcp.is_writable());
        let thread = &mut end.thread;
        if is_stuck {
            // Wakes for room or for data, whichever comes first.
            thread.step = Step::Write;
            (thread.is_asleep, thread.waits_for_room) = (!is_writable, !is_writable);
            return;
        }
        // Gathered messages are sent before the thread sleeps.
        if thread.gathered > 0 { self.send(side, session, Step::Idle) } else { thread.step = Step::Idle }
    }

    /// Whether a session sleeps, waits for room, or is between the parts of what it sends: its turn is not ended there.
    pub(super) fn is_within_call(&mut self, side: Side, session: u32) -> bool {
        let thread = &self.end(side, session).thread;
        let is_between = matches!(thread.step, Step::Receive | Step::Take | Step::Issue);
        thread.is_asleep || thread.waits_for_room || !thread.writes.is_empty() || !is_between
    }

    /// Begins to send what a session has gathered; false when there is nothing.
    pub(super) fn sends_before_turn_ends(&mut self, side: Side, session: u32) -> bool {
        let thread = &self.end(side, session).thread;
        let (has_gathered, step) = (thread.gathered > 0, thread.step);
        if has_gathered {
            self.send(side, session, step);
        }
        has_gathered
    }

    /// Takes the next received message, or ends the chunk after the last one.
    #[inline]
    fn next_message(&mut self, side: Side, session: u32) {
        let [client, server] = &mut self.sessions[session as usize].ends;
        let (own, peer) = if side == Side::Client { (client, server) } else { (server, client) };
        if peer.flow.has_message(own.tcp.received().read) {
            own.thread.step = Step::Take;
            return;
        }
        own.thread.step = Step::Receive;
        let gathered = own.thread.gathered;
        let sends = match side {
            Side::Client => true,
            Side::Server => self.sessions[session as usize].control.chunk_ended(),
        };
        if sends && gathered > 0 {
            self.send(side, session, Step::Receive);
        }
        if side == Side::Server {
            self.update_policy_clock(session);
        }
    }

    /// The control of a session's thread.
    fn thread_control(&self, session: u32) -> usize {
        let server = Side::Server as usize;
        if self.setup.server.event_loop {
            self.sessions[session as usize].ends[server].thread.cpu.into()
        } else {
            session as usize
        }
    }

    /// The thread learns what a turn of the server's has done.
    pub(super) fn end_turn(&mut self, side: Side, session: u32) {
        if side == Side::Server {
            let thread = self.thread_control(session);
            self.sessions[session as usize].control.end_turn(&mut self.controls[thread]);
        }
    }

    /// A thread with one session begins another turn with each chunk: it would have none else as long as requests come.
    fn update_policy_clock(&mut self, session: u32) {
        if self.setup.server.event_loop {
            return;
        }
        self.end_turn(Side::Server, session);
        let (now, thread) = (self.now, &mut self.controls[session as usize]);
        thread.begin_round(1, now);
        self.sessions[session as usize].control.begin_turn(thread);
        self.apply_send_mode(session);
    }

    /// Sets the server's socket to the policy's present send mode.
    pub(super) fn apply_send_mode(&mut self, session: u32) {
        let now = self.now;
        let at = &mut self.sessions[session as usize];
        let nodelay = !at.control.mode().nagle;
        let tcp = &mut at.ends[Side::Server as usize].tcp;
        if tcp.is_nodelay() != nodelay {
            tcp.set_nodelay(now, nodelay, &mut self.out);
            self.transmit(Side::Server, session);
        }
    }

    /// Takes a message: records its times and starts the work on it.
    fn begin_take(&mut self, side: Side, session: u32, now: Ns) {
        let at = &mut self.sessions[session as usize];
        let ran = at.ends[side as usize].thread.ran_at;
        let Some(mut message) = at.ends[side.peer() as usize].flow.take() else { return };
        let parts = message.parts(ran, now);
        let seen = message.packet.map_or(message.delivered, |packet| packet.seen);
        match side {
            Side::Server => {
                message.request = parts;
                (message.op.c1, message.op.s1) = (stamp(message.transmitted), stamp(seen));
                at.busy.request();
                at.control.requested((at.answered - message.acknowledged + 1) as u32);
            }
            Side::Client => (message.op.s2, message.op.c2) = (stamp(message.transmitted), stamp(seen)),
        }
        // The client's taking (CP) is charged from here on.
        message.begun = now;
        let thread = &mut at.ends[side as usize].thread;
        if side == Side::Client {
            thread.has_served = true;
        }
        (thread.message, thread.parts) = (Some(message), parts);
    }

    /// The work on a message is done: the server answers it, the client completes its operation.
    fn end_take(&mut self, side: Side, session: u32) {
        let now = self.now;
        let Some(message) = self.end(side, session).thread.message.take() else { return };
        match side {
            Side::Server => self.answer(session, message),
            Side::Client => {
                let mut response = self.end(side, session).thread.parts;
                response[Part::Take as usize] += now - message.begun;
                let mut op = message.op;
                op.finish = stamp(now);
                let done = SimOp { op, request: message.request, response };
                let at = &mut self.sessions[session as usize];
                at.taken += 1;
                if self.tally.completed(now, &done) {
                    // The measured time begins: the warm-up's busy cycles do not count.
                    self.sessions.iter_mut().for_each(|s| s.busy = policy::BusyCount::default());
                }
                self.observer.op(&done);
                self.make_request(session);
                if self.setup.load.batch {
                    self.next_message(side, session);
                } else {
                    self.send(Side::Client, session, Step::Take);
                }
            }
        }
    }

    /// Makes the response to a request.
    fn answer(&mut self, session: u32, message: Transit) {
        let (now, setup) = (self.now, self.setup);
        let bytes = setup.response_of(session).bytes();
        let at = &mut self.sessions[session as usize];
        at.answered += 1;
        let end = at.ends[Side::Server as usize].flow.end + bytes;
        let tag = message.op.tag;
        let response = Transit { end, made: now, packet: None, blocked: 0, ..message };
        let own = &mut at.ends[Side::Server as usize];
        own.flow.push(response);
        own.thread.gathered += 1;
        own.thread.gathered_bytes += bytes;
        own.thread.has_served = true;
        let waiting = own.thread.gathered_bytes;
        // Nothing is at work elsewhere: each request is served by its session's thread, in order.
        let is_due = at.control.served(waiting as usize) || at.control.holds_all();
        if O::FRAMES {
            let count = at.answered;
            self.observer.message(&Message { session, sender: Side::Server, end, tag, count });
        }
        self.apply_send_mode(session);
        if is_due {
            self.send(Side::Server, session, Step::Take);
        } else {
            self.next_message(Side::Server, session);
        }
    }

    /// The client issues one operation of its first round.
    fn issue(&mut self, session: u32) {
        self.end(Side::Client, session).thread.to_issue -= 1;
        self.make_request(session);
        let is_last = self.end(Side::Client, session).thread.to_issue == 0;
        if !self.setup.load.batch || is_last {
            self.send(Side::Client, session, Step::Receive);
        } else {
            self.end(Side::Client, session).thread.step = Step::Receive;
        }
    }

    /// Makes the request of the next operation.
    fn make_request(&mut self, session: u32) {
        let (now, setup) = (self.now, self.setup);
        let op = self.new_op(session);
        let at = &mut self.sessions[session as usize];
        let own = &mut at.ends[Side::Client as usize];
        let end = own.flow.end + setup.request.bytes();
        own.flow.push(Transit {
            end,
            op,
            request: [0; Part::COUNT],
            acknowledged: at.taken,
            begun: now,
            made: now,
            send_begun: now,
            blocked: 0,
            written: now,
            held: [0; crate::tcp::HOLDS],
            transmitted: now,
            packet: None,
            delivered: now,
        });
        own.thread.gathered += 1;
        own.thread.gathered_bytes += setup.request.bytes();
        if O::FRAMES {
            let count = at.taken;
            self.observer.message(&Message { session, sender: Side::Client, end, tag: op.tag, count });
        }
    }

    /// Writes all gathered messages in the side's pattern; the thread continues with `after`.
    fn send(&mut self, side: Side, session: u32, after: Step) {
        let (now, pattern) = (self.now, self.host(side).pattern);
        let message = if side == Side::Client { self.setup.request } else { self.setup.response_of(session) };
        let end = self.end(side, session);
        let (count, bytes) =
            (std::mem::take(&mut end.thread.gathered), std::mem::take(&mut end.thread.gathered_bytes));
        end.flow.send_begins(now, end.thread.blocked(now));
        let thread = &mut end.thread;
        (thread.step, thread.after) = (Step::Write, after);
        let header = u64::from(message.header);
        let writes = &mut thread.writes;
        let data = |bytes, more| Write::Data { bytes, more, after_header: false };
        if pattern == Writes::One {
            writes.push_back(data(bytes, More::Done));
        }
        for _ in 0..count {
            match pattern {
                Writes::One => break,
                Writes::Apart => writes.push_back(data(header, More::Done)),
                Writes::More | Writes::MoreUnfinished => {
                    let follows = message.data > 0 || pattern == Writes::MoreUnfinished;
                    writes.push_back(data(header, if follows { More::Follows } else { More::Done }));
                }
                Writes::Cork | Writes::CorkUnfinished => {
                    writes.extend([Write::Cork(true), data(header, More::Done)]);
                }
            }
            if message.data > 0 {
                let follows = pattern == Writes::MoreUnfinished;
                let more = if follows { More::Follows } else { More::Done };
                writes.push_back(Write::Data { bytes: message.data, more, after_header: true });
            }
            if pattern == Writes::Cork {
                writes.push_back(Write::Cork(false));
            }
        }
    }

    /// The socket has no room: the server waits for room. The client takes what has arrived meanwhile: if both sides only
    /// wrote, they would block each other for ever.
    fn stuck(&mut self, side: Side, session: u32) {
        let [client, server] = &mut self.sessions[session as usize].ends;
        if side == Side::Server {
            server.thread.waits_for_room = true;
        } else if server.flow.has_message(client.tcp.received().read) {
            client.thread.step = Step::Take;
        } else {
            client.thread.step = Step::Receive;
        }
    }

    /// One call that writes to the socket.
    fn write(&mut self, side: Side, session: u32) {
        let now = self.now;
        let mut is_stuck = false;
        let mut out = std::mem::take(&mut self.out);
        let end = self.end(side, session);
        let blocked = end.thread.blocked(now);
        match end.thread.writes.front_mut() {
            Some(Write::Cork(cork)) => {
                let cork = *cork;
                end.tcp.set_cork(now, cork, &mut out);
                end.thread.writes.pop_front();
            }
            Some(Write::Data { bytes, more, after_header }) => {
                let (wanted, more) = (*bytes, *more);
                let taken = end.tcp.write(now, wanted, more, &mut out);
                end.flow.is_written(now, end.tcp.sent().written, end.tcp.held(now), blocked);
                if taken < wanted {
                    *bytes -= taken;
                    *after_header = false;
                    end.thread.blocked_at.get_or_insert(now);
                    is_stuck = true;
                } else {
                    end.thread.end_block(now);
                    end.thread.writes.pop_front();
                }
            }
            None => {}
        }
        self.out = out;
        self.transmit(side, session);
        if is_stuck {
            return self.stuck(side, session);
        }
        let thread = &mut self.end(side, session).thread;
        if !thread.writes.is_empty() {
            return;
        }
        let after = thread.after;
        if side == Side::Server {
            self.sessions[session as usize].control.sent();
        }
        if after == Step::Take {
            self.next_message(side, session);
        } else {
            self.end(side, session).thread.step = after;
        }
    }

    /// Nothing more was received: ends the server's busy cycle and sleeps.
    fn idle(&mut self, side: Side, session: u32) {
        let now = self.now;
        if side == Side::Server {
            let at = &mut self.sessions[session as usize];
            let own = &mut at.ends[Side::Server as usize];
            at.busy.idle();
            let served = std::mem::take(&mut own.thread.has_served);
            if !self.setup.server.event_loop {
                at.control.end_turn(&mut self.controls[session as usize]);
                self.controls[session as usize].idle();
            }
            if served && at.control.idle() && self.setup.flush && !own.tcp.is_nodelay() {
                own.tcp.flush(now, &mut self.out);
                self.transmit(Side::Server, session);
            }
            self.apply_send_mode(session);
        }
        let end = self.end(side, session);
        end.thread.step = Step::Receive;
        // Data that arrived in the meantime is received without a sleep.
        end.thread.is_asleep = end.tcp.readable() == 0;
    }
}
