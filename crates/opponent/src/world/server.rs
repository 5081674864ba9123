//! The server's program: when a request is taken, when its response is ready, and how it is written.

use fastrand::Rng;
use record::Side;
use tcpsim::Ns;
use tcpsim::tcp::More;

use super::connection::Write;
use super::{Event, Outcome, World};
use crate::frames::Packet;
use crate::setup::{Pauses, Protocol, Spread, US, Writes};

/// Between two calls of a program that writes a message in parts, ns.
const BETWEEN_CALLS: Ns = 3 * US;

/// The calls in which a message of a header and a body is written.
pub(super) fn writes(how: Writes, (header, body): (u64, u64)) -> Vec<Write> {
    let call = |gap_ns, bytes, more| Write { gap_ns, bytes, more, ready_at: None };
    let all = header + body;
    match how {
        Writes::Corked => vec![call(0, all, More::Follows)],
        Writes::HeaderThenBody if body > 0 => {
            vec![call(0, header, More::Done), call(BETWEEN_CALLS, body, More::Done)]
        }
        Writes::Whole | Writes::HeaderThenBody => vec![call(0, all, More::Done)],
        Writes::Pieces { bytes } => {
            let piece = |at: u64| call(BETWEEN_CALLS.min(at), bytes.min(all - at), More::Done);
            (0..all).step_by(bytes.max(1) as usize).map(piece).collect()
        }
        Writes::Stream { chunks, gap_ns } => {
            let each = (body / u64::from(chunks.max(1))).max(1);
            let mut calls = vec![call(0, header, More::Done)];
            let ends = (0..body).step_by(each as usize);
            calls.extend(ends.map(|at| call(gap_ns, each.min(body - at), More::Done)));
            calls
        }
    }
}

/// When work of this length that begins now is done.
fn done(pauses: Option<Pauses>, now: Ns, work: Ns) -> Ns {
    let Some(Pauses { period_ns, length_ns }) = pauses else { return now + work };
    let (mut at, mut left) = (now, work);
    loop {
        // The pause is at the end of its period.
        let phase = at % period_ns;
        let until_pause = (period_ns - length_ns).saturating_sub(phase);
        if left <= until_pause && until_pause > 0 {
            return at + left;
        }
        left -= until_pause.min(left);
        at += period_ns - phase;
    }
}

impl World<'_> {
    /// A request has arrived.
    pub(super) fn admit(&mut self, connection: usize, op: usize) {
        let this = &mut self.connections[connection];
        this.queue.push_back(op);
        if self.setup.protocol == Protocol::Iscsi || !this.is_busy {
            self.take(connection);
        }
    }

    fn take(&mut self, connection: usize) {
        let this = &mut self.connections[connection];
        let Some(op) = this.queue.pop_front() else { return };
        (this.is_busy, this.has_answered) = (true, false);
        this.serving.push(op);
        if self.setup.service.workers == 0 {
            self.serve(connection, op);
        } else {
            self.workers.waiting.push_back((connection, op));
            self.employ();
        }
    }

    fn employ(&mut self) {
        while self.workers.busy < self.setup.service.workers
            && let Some((connection, op)) = self.workers.waiting.pop_front()
        {
            self.workers.busy += 1;
            self.serve(connection, op);
        }
    }

    fn serve(&mut self, connection: usize, op: usize) {
        let service = &self.setup.service;
        let mut rng = Rng::with_seed(self.setup.seed ^ (op as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let factor = match service.spread {
            Spread::Narrow => 0.9 + 0.2 * rng.f64(),
            Spread::Exponential => -(1.0 - rng.f64()).ln(),
        };
        let mut work = (service.time_ns as f64 * factor) as Ns;
        if let Some(rare) = service.rare
            && rng.f64() < rare.share
        {
            work += rare.more_ns;
        }
        let mut at = done(service.pauses, self.now, work);
        if service.tick_ns > 0 {
            at = at.next_multiple_of(service.tick_ns);
        }
        self.at(at, Event::Served { connection, op });
    }

    /// A response is ready.
    pub(super) fn served(&mut self, connection: usize, op: usize) {
        let setup = self.setup;
        if setup.service.workers > 0 {
            self.workers.busy -= 1;
            self.employ();
        }
        let this = &mut self.connections[connection];
        if this.is_dead {
            return;
        }
        let is_silent = Rng::with_seed(setup.seed ^ (op as u64 + 7).wrapping_mul(0x5851_f42d_4c95_7f2d))
            .f64()
            < setup.service.silent;
        if is_silent {
            return;
        }
        this.serving.retain(|&other| other != op);
        if self.ops[op].outcome == Outcome::Reset {
            this.serving.push(op);
            let (seq, ack) = self.offsets(connection, Side::Server);
            self.send(connection, Side::Server, Packet::Reset { seq, ack });
            return;
        }
        this.has_answered = true;
        let calls = writes(setup.hosts[Side::Server as usize].writes, self.ops[op].sizes[1]);
        self.write(connection, Side::Server, op, &calls);
    }

    /// A response is written: the connection's thread takes the next request.
    pub(super) fn free(&mut self, connection: usize) {
        self.connections[connection].is_busy = false;
        self.take(connection);
    }
}
