//! The clients: when requests leave, over which connection, and what ends them.

use fastrand::Rng;
use record::Side;
use tcpsim::Ns;

use super::server::writes;
use super::{Event, Op, Outcome, World};
use crate::frames::{CLIENTS, Packet, header_bytes};
use crate::setup::{Arrivals, MS, Size};

/// A client that was refused tries again after this, ns.
const AFTER_A_REFUSAL: u64 = 10 * MS;

fn drawn(size: &Size, rng: &mut Rng) -> u64 {
    // A sum of uniform values is normal enough.
    let normal = (0..6).map(|_| rng.f64()).sum::<f64>() * 2.0_f64.sqrt() - 3.0 * 2.0_f64.sqrt();
    (size.body as f64 * (size.spread * normal).exp()) as u64
}

impl World<'_> {
    pub(super) fn begin(&mut self) {
        let is_closed = matches!(self.setup.load.arrivals, Arrivals::Closed { .. });
        for lane in 0..self.lanes.len() {
            let within = if is_closed { MS } else { self.setup.cycle_ns() };
            let first = self.gaps.u64(0..within.max(1));
            if !self.setup.load.connection_per_request {
                self.now = first.min(MS);
                let connection = self.connect(lane);
                self.lanes[lane].connection = Some(connection);
            }
            let starts = if is_closed { self.setup.load.depth } else { 1 };
            let handshake = 2 * self.setup.path.rtt_ns + MS;
            for _ in 0..starts {
                self.at(first + handshake, Event::Start { lane });
            }
        }
        self.now = 0;
    }

    /// A request's time has come.
    pub(super) fn start(&mut self, lane: usize) {
        let gap_ns = match self.setup.load.arrivals {
            Arrivals::Closed { .. } => None,
            Arrivals::Poisson { gap_ns } => Some((-(1.0 - self.gaps.f64()).ln() * gap_ns as f64) as u64),
            Arrivals::Periodic { gap_ns } => Some(gap_ns),
        };
        if let Some(gap_ns) = gap_ns
            && self.ops.len() < self.setup.load.operations as usize
        {
            self.at(self.now + gap_ns, Event::Start { lane });
        }
        if gap_ns.is_some() && self.lanes[lane].outstanding >= self.setup.load.depth {
            self.lanes[lane].backlog += 1;
        } else {
            self.dispatch(lane);
        }
    }

    fn dispatch(&mut self, lane: usize) {
        let setup = self.setup;
        if self.ops.len() >= setup.load.operations as usize {
            return;
        }
        let op = self.ops.len();
        let mut rng = Rng::with_seed(setup.seed ^ (op as u64).wrapping_mul(0x2545_f491_4f6c_dd1d));
        let outcome = match rng.f64() {
            x if x < setup.service.errors => Outcome::Error,
            x if x < setup.service.errors + setup.service.resets => Outcome::Reset,
            _ => Outcome::Answered,
        };
        let sizes = [Side::Client, Side::Server].map(|side| {
            let size = &setup.sizes[side as usize];
            let body = drawn(size, &mut rng);
            let body = if side == Side::Server && outcome == Outcome::Error { body.min(60) } else { body };
            (header_bytes(setup, side, op, body, size.header, outcome), body)
        });
        self.ops.push(Op { start: self.now, finish: None, outcome, sizes, lane });
        self.lanes[lane].outstanding += 1;
        let present = self.lanes[lane].connection.filter(|_| !setup.load.connection_per_request);
        let connection = match present {
            Some(connection) if !self.connections[connection].is_dead => connection,
            _ => self.connect(lane),
        };
        self.lanes[lane].connection = Some(connection);
        self.at(self.now + setup.load.patience_ns, Event::GiveUp { op, connection });
        if self.connections[connection].is_open {
            self.request(connection, op);
        } else {
            self.connections[connection].waiting.push(op);
        }
    }

    pub(super) fn opened(&mut self, connection: usize) {
        for op in std::mem::take(&mut self.connections[connection].waiting) {
            self.request(connection, op);
        }
    }

    fn request(&mut self, connection: usize, op: usize) {
        let calls = writes(self.setup.hosts[Side::Client as usize].writes, self.ops[op].sizes[0]);
        self.write(connection, Side::Client, op, &calls);
    }

    /// A response is complete.
    pub(super) fn answered(&mut self, connection: usize, op: usize) {
        if self.setup.load.connection_per_request {
            let (seq, ack) = self.offsets(connection, Side::Client);
            self.send(connection, Side::Client, Packet::Fin { seq, ack });
        }
        let outcome = self.ops[op].outcome;
        self.end(op, outcome);
    }

    /// An operation ended; its place is free.
    fn end(&mut self, op: usize, outcome: Outcome) {
        let this = &mut self.ops[op];
        if this.finish.is_some() {
            return;
        }
        (this.finish, this.outcome) = (Some(self.now), outcome);
        let lane = this.lane;
        self.ended += 1;
        self.lanes[lane].outstanding -= 1;
        if let Arrivals::Closed { think_ns } = self.setup.load.arrivals {
            let thinks = (think_ns as f64 * (0.8 + 0.4 * self.gaps.f64())) as u64;
            let pause = if outcome == Outcome::Refused { AFTER_A_REFUSAL } else { 0 };
            let done = self.worked(lane);
            self.at(done + thinks + pause, Event::Start { lane });
        } else if self.lanes[lane].backlog > 0 {
            self.lanes[lane].backlog -= 1;
            self.dispatch(lane);
        }
    }

    /// When the thread of a lane's host has worked on the response that came now.
    fn worked(&mut self, lane: usize) -> Ns {
        let work_ns = self.setup.load.work_ns;
        if work_ns == 0 {
            return self.now;
        }
        let own_ns = (work_ns as f64 * (0.9 + 0.2 * self.gaps.f64())) as Ns;
        let until = &mut self.busy_until[lane % CLIENTS];
        *until = (*until).max(self.now) + own_ns;
        *until
    }

    /// The peer refused or reset a connection.
    pub(super) fn broken(&mut self, connection: usize, to: Side, packet: Packet) {
        self.connections[connection].is_dead = true;
        if to == Side::Client {
            let outcome = if matches!(packet, Packet::Refusal) { Outcome::Refused } else { Outcome::Reset };
            self.fail(connection, outcome);
        }
    }

    /// Ends the operations of a connection.
    fn fail(&mut self, connection: usize, outcome: Outcome) {
        let this = &mut self.connections[connection];
        let mut open: Vec<usize> = std::mem::take(&mut this.waiting);
        open.extend(this.expected[Side::Server as usize].drain(..).map(|(_, op)| op));
        open.extend(this.queue.drain(..));
        open.extend(this.expected[Side::Client as usize].drain(..).map(|(_, op)| op));
        open.extend(std::mem::take(&mut this.serving));
        open.sort_unstable();
        for op in open {
            self.end(op, outcome);
        }
    }

    pub(super) fn give_up(&mut self, op: usize, connection: usize) {
        if self.ops[op].finish.is_some() {
            return;
        }
        if self.connections[connection].is_open {
            let (seq, ack) = self.offsets(connection, Side::Client);
            self.send(connection, Side::Client, Packet::Reset { seq, ack });
        }
        self.connections[connection].is_dead = true;
        self.fail(connection, Outcome::GivenUp);
        self.end(op, Outcome::GivenUp);
    }
}
