//! The threads of client and server: receive, take what came, send; and sleep when there is nothing more. The server's is
//! the target's connection loop with the same policies, the client's the load generator's closed loop.

use std::collections::VecDeque;

use record::{Side, Writes};

use super::flow::{Letter, stamp};
use super::{Message, Observer, World};
use crate::Ns;
use crate::op::{Part, Parts, SimOp};

/// What a thread does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The client makes the operations that are due.
    Issue,
    Receive,
    /// Takes the next message: the server serves it, the client ends its operation.
    Take,
    /// The next of its writes.
    Write,
    /// Nothing was received: sleeps unless something came meanwhile.
    Idle,
}

/// A call that sends.
#[derive(Clone, Copy, Debug)]
enum Write {
    Data { bytes: u64, more: bool },
    Cork(bool),
}

/// One thread, which serves one end of a session.
#[derive(Debug)]
pub(super) struct Thread {
    pub(super) cpu: u16,
    pub(super) is_asleep: bool,
    pub(super) waits_for_room: bool,
    /// It last began to run after a sleep.
    pub(super) ran_at: Ns,
    /// Operations that the client has still to make.
    pub(super) to_issue: u32,
    step: Step,
    /// What it goes on with after its writes.
    after: Step,
    writes: VecDeque<Write>,
    /// Messages and their bytes that it made and has not sent.
    gathered: u32,
    gathered_bytes: u64,
    /// What it has taken and works on, and where that's time went up to then.
    letter: Option<Letter>,
    parts: Parts,
    /// Time without room in the socket so far, and since when there is none.
    blocked: Ns,
    blocked_at: Option<Ns>,
    /// It served something since it was last idle.
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
            letter: None,
            parts: [0; Part::COUNT],
            blocked: 0,
            blocked_at: None,
            has_served: false,
        }
    }

    /// Time without room so far.
    fn blocked(&self, now: Ns) -> Ns {
        self.blocked + self.blocked_at.map_or(0, |since| now - since)
    }

    /// It runs: if it waited for room, no longer.
    pub(super) fn ends_block(&mut self, now: Ns) {
        if let Some(since) = self.blocked_at.take() {
            self.blocked += now - since;
        }
    }
}

impl<O: Observer> World<'_, O> {
    /// The time that the thread's next step takes; nothing: it sleeps.
    #[inline]
    pub(super) fn step_begins(&mut self, side: Side, session: u32, now: Ns) -> Option<Ns> {
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
                self.take_begins(side, session, now);
                let data = self.setup.request.data.max(self.setup.response.data);
                self.vary(host.service + host.service_per_kib * data / 1024) + self.disturbance()
            }
            Step::Write => match thread.writes.front() {
                Some(Write::Data { .. }) => self.vary(host.send),
                _ => 0,
            },
        })
    }

    /// What the thread's step brings about.
    #[inline]
    pub(super) fn step_ends(&mut self, side: Side, session: u32) {
        match self.end(side, session).thread.step {
            Step::Issue => self.issue(session),
            Step::Receive => self.receive(side, session),
            Step::Take => self.take_ends(side, session),
            Step::Write => self.write(side, session),
            Step::Idle => self.idle(side, session),
        }
    }

    fn receive(&mut self, side: Side, session: u32) {
        let (now, most) = (self.now, self.host(side).receive_bytes);
        let mut out = std::mem::take(&mut self.out);
        let end = self.end(side, session);
        let count = end.tcp.read(now, most, &mut out);
        self.out = out;
        self.transmit(side, session);
        if count > 0 {
            return self.next_message(side, session);
        }
        let end = self.end(side, session);
        let (is_stuck, is_writable) = (!end.thread.writes.is_empty(), end.tcp.is_writable());
        let thread = &mut end.thread;
        if is_stuck {
            // Room or data, whichever comes first.
            thread.step = Step::Write;
            (thread.is_asleep, thread.waits_for_room) = (!is_writable, !is_writable);
            return;
        }
        // What waits is sent before the thread sleeps.
        if thread.gathered > 0 { self.send(side, session, Step::Idle) } else { thread.step = Step::Idle }
    }

    /// The next of the messages that were received, or what follows the last of them.
    #[inline]
    fn next_message(&mut self, side: Side, session: u32) {
        let [client, server] = &mut self.sessions[session as usize].ends;
        let (own, peer) = if side == Side::Client { (client, server) } else { (server, client) };
        if peer.flow.has_message(own.tcp.received().0) {
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
            self.tell_time(session);
        }
    }

    /// A policy that measures learns what time it is.
    fn tell_time(&mut self, session: u32) {
        let now = self.now;
        let control = &mut self.sessions[session as usize].control;
        if control.wants_time() {
            control.clock(now);
            self.take_manner(session);
        }
    }

    /// The server's socket sends as the policy has it now.
    fn take_manner(&mut self, session: u32) {
        let now = self.now;
        let at = &mut self.sessions[session as usize];
        let nodelay = !at.control.mode().nagle;
        let tcp = &mut at.ends[Side::Server as usize].tcp;
        if tcp.is_nodelay() != nodelay {
            tcp.set_nodelay(now, nodelay, &mut self.out);
            self.transmit(Side::Server, session);
        }
    }

    fn take_begins(&mut self, side: Side, session: u32, now: Ns) {
        let at = &mut self.sessions[session as usize];
        let ran = at.ends[side as usize].thread.ran_at;
        let Some(mut letter) = at.ends[side.peer() as usize].flow.take() else { return };
        let parts = letter.parts(ran, now);
        let seen = letter.packet.map_or(letter.delivered, |packet| packet.seen);
        match side {
            Side::Server => {
                letter.request = parts;
                (letter.op.c1, letter.op.s1) = (stamp(letter.transmitted), stamp(seen));
                at.busy.request();
                at.control.requested((at.answered - letter.acknowledged + 1) as u32);
            }
            Side::Client => (letter.op.s2, letter.op.c2) = (stamp(letter.transmitted), stamp(seen)),
        }
        // What the client's taking follows on.
        letter.begun = now;
        let thread = &mut at.ends[side as usize].thread;
        if side == Side::Client {
            thread.has_served = true;
        }
        (thread.letter, thread.parts) = (Some(letter), parts);
    }

    fn take_ends(&mut self, side: Side, session: u32) {
        let now = self.now;
        let Some(letter) = self.end(side, session).thread.letter.take() else { return };
        match side {
            Side::Server => self.answer(session, letter),
            Side::Client => {
                let mut response = self.end(side, session).thread.parts;
                response[Part::Take as usize] += now - letter.begun;
                let mut op = letter.op;
                op.finish = stamp(now);
                let done = SimOp { op, request: letter.request, response };
                let at = &mut self.sessions[session as usize];
                at.taken += 1;
                if self.tally.is_done(now, &done) {
                    // The measured time begins.
                    self.sessions.iter_mut().for_each(|s| s.busy = policy::BusyCount::default());
                }
                self.observer.op(&done);
                self.make_request(session);
                if self.setup.load.batch { self.next_message(side, session) } else { self.send_one(session) }
            }
        }
    }

    fn answer(&mut self, session: u32, letter: Letter) {
        let (now, setup) = (self.now, self.setup);
        let at = &mut self.sessions[session as usize];
        at.answered += 1;
        let end = at.ends[Side::Server as usize].flow.end + setup.response.bytes();
        let tag = letter.op.tag;
        let response = Letter { end, made: now, packet: None, blocked: 0, ..letter };
        let own = &mut at.ends[Side::Server as usize];
        own.flow.push(response);
        own.thread.gathered += 1;
        own.thread.gathered_bytes += setup.response.bytes();
        own.thread.has_served = true;
        let waiting = own.thread.gathered_bytes;
        let is_due = at.control.served(waiting as usize);
        if O::FRAMES {
            let count = at.answered;
            self.observer.message(&Message { session, sender: Side::Server, end, tag, count });
        }
        self.take_manner(session);
        if is_due {
            self.send(Side::Server, session, Step::Take);
        } else {
            self.next_message(Side::Server, session);
        }
    }

    /// The client makes what is still missing at its depth.
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

    fn make_request(&mut self, session: u32) {
        let (now, setup) = (self.now, self.setup);
        let op = self.new_op(session);
        let at = &mut self.sessions[session as usize];
        let own = &mut at.ends[Side::Client as usize];
        let end = own.flow.end + setup.request.bytes();
        own.flow.push(Letter {
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

    /// The client sends its successor, and goes on with what it received.
    fn send_one(&mut self, session: u32) {
        self.send(Side::Client, session, Step::Take);
    }

    /// All that was made is written, in the side's pattern; then the thread goes on with `after`.
    fn send(&mut self, side: Side, session: u32, after: Step) {
        let (now, pattern) = (self.now, self.host(side).pattern);
        let message = if side == Side::Client { self.setup.request } else { self.setup.response };
        let end = self.end(side, session);
        let (count, bytes) =
            (std::mem::take(&mut end.thread.gathered), std::mem::take(&mut end.thread.gathered_bytes));
        end.flow.send_begins(now, end.thread.blocked(now));
        let thread = &mut end.thread;
        (thread.step, thread.after) = (Step::Write, after);
        let header = u64::from(message.header);
        let writes = &mut thread.writes;
        let data = |bytes, more| Write::Data { bytes, more };
        if pattern == Writes::One {
            writes.push_back(data(bytes, false));
        }
        for _ in 0..count {
            match pattern {
                Writes::One => break,
                Writes::Apart => writes.push_back(data(header, false)),
                Writes::More | Writes::MoreUnfinished => {
                    writes.push_back(data(header, message.data > 0 || pattern == Writes::MoreUnfinished));
                }
                Writes::Cork | Writes::CorkUnfinished => {
                    writes.extend([Write::Cork(true), data(header, false)]);
                }
            }
            if message.data > 0 {
                writes.push_back(data(message.data, pattern == Writes::MoreUnfinished));
            }
            if pattern == Writes::Cork {
                writes.push_back(Write::Cork(false));
            }
        }
    }

    /// The socket has no room: a server waits for it; a client takes what has come meanwhile, or two that only write
    /// would wait for each other for ever.
    fn stuck(&mut self, side: Side, session: u32) {
        let [client, server] = &mut self.sessions[session as usize].ends;
        if side == Side::Server {
            server.thread.waits_for_room = true;
        } else if server.flow.has_message(client.tcp.received().0) {
            client.thread.step = Step::Take;
        } else {
            client.thread.step = Step::Receive;
        }
    }

    /// One call of a send.
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
            Some(Write::Data { bytes, more }) => {
                let (wanted, more) = (*bytes, *more);
                let taken = end.tcp.write(now, wanted, more, &mut out);
                end.flow.is_written(now, end.tcp.sent().2, end.tcp.held(now), blocked);
                if taken < wanted {
                    *bytes -= taken;
                    end.thread.blocked_at.get_or_insert(now);
                    is_stuck = true;
                } else {
                    end.thread.ends_block(now);
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

    /// Nothing more was received.
    fn idle(&mut self, side: Side, session: u32) {
        let now = self.now;
        if side == Side::Server {
            let at = &mut self.sessions[session as usize];
            let own = &mut at.ends[Side::Server as usize];
            at.busy.idle();
            let served = std::mem::take(&mut own.thread.has_served);
            if served && at.control.idle() && self.setup.flush && !own.tcp.is_nodelay() {
                own.tcp.flush(now, &mut self.out);
                self.transmit(Side::Server, session);
            }
            self.take_manner(session);
        }
        let end = self.end(side, session);
        end.thread.step = Step::Receive;
        // What came in the meantime is found without a sleep.
        end.thread.is_asleep = end.tcp.readable() == 0;
    }
}
