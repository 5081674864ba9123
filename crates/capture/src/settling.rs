//! Responses that have passed and are not acknowledged: until then they may have to be sent again, and their client cannot
//! read them. On their way they get what belongs to the connection rather than to the protocol: its set-up, and the pieces in
//! which they came.

use std::collections::VecDeque;

use record::{Chunks, ClockStep, ConnectionFacts, Exchange, Key, Opened, Passage, Side, Stall, StallKind};

use crate::chunks::Pieces;
use crate::in_flight::Pace;
use crate::observer::{Counted, Observer, StreamHole};
use crate::opening::Opening;

/// Exchanges of one connection whose response is not acknowledged, in order.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    waiting: VecDeque<Exchange>,
    /// How long the data of client and server waits in a queue on the path, nanoseconds.
    pub(crate) queued_ns: [u64; 2],
    /// The last step of the capturing clock.
    step: Option<ClockStep>,
    /// The connection's beginning, and the current response's pieces.
    pub(crate) opening: Opening,
    pub(crate) pieces: Pieces,
    has_requests: bool,
    /// Exchanges that were told without their response, because their client had given them up.
    pub(crate) given_up: u64,
    /// Exchanges that are not told, because the capturing clock was set within them.
    pub(crate) stepped_over: u64,
}

/// Most of them, more than a window of small responses holds; beyond that the oldest is delivered.
const WAITING_MAX: usize = 4096;

impl Settling {
    /// Delivers the exchanges whose responses are acknowledged.
    #[inline]
    pub(crate) fn acknowledged(&mut self, ack: u32, observer: &mut impl Observer) {
        while let Some(first) = self.waiting.front()
            && ack.wrapping_sub(first.response_end_seq).cast_signed() >= 0
        {
            observer.exchange(first);
            self.waiting.pop_front();
        }
    }

    /// The client has reset the connection. A response that came after the client had closed its side and that it did not
    /// acknowledge answers a request that it had given up.
    pub(crate) fn reset_by_client(&mut self, observer: &mut impl Observer) {
        let closed = self.opening.client_fin();
        let (late, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|exchange| closed.is_known() && exchange.response.began > closed);
        self.waiting = waiting;
        self.given_up += late.len() as u64;
        for mut exchange in Vec::from(late) {
            exchange.response = Passage::default();
            observer.unanswered(&exchange);
        }
    }

    /// Drops the exchanges across a step of the capturing clock, now and later.
    pub(crate) fn stepped(&mut self, step: ClockStep) {
        let before = self.waiting.len();
        self.waiting.retain(|exchange| !step.is_within(exchange));
        self.stepped_over += (before - self.waiting.len()) as u64;
        self.step = Some(step);
    }

    /// Delivers all.
    pub(crate) fn finish(&mut self, observer: &mut impl Observer) {
        self.waiting.drain(..).for_each(|exchange| observer.exchange(&exchange));
    }

    /// The stall with the name that the connection's beginning gives it: the client's first data, sent again while the server
    /// had not accepted the connection, was not lost on the path.
    pub(crate) fn named(&self, stall: Stall) -> Stall {
        let is_repeated =
            matches!(stall.kind, StallKind::Timeout | StallKind::BlackHole | StallKind::FastRetransmit);
        if is_repeated && stall.sender == Side::Client && self.opening.is_dropped() {
            Stall { kind: StallKind::AcceptQueue, ..stall }
        } else {
            stall
        }
    }

    /// The exchange with what the connection knows of it.
    #[inline]
    fn complete(&mut self, exchange: &Exchange) -> Exchange {
        let mut exchange = *exchange;
        let chunks = self.pieces.take();
        // Between requests for data and the answer, the server waits for the client.
        if !exchange.asked_for_data.is_known() {
            exchange.chunks = Chunks { written: exchange.chunks.written, ..chunks };
        }
        if !self.has_requests && self.opening.exchange(exchange.request.began, exchange.response.ended) {
            self.has_requests = true;
            exchange.setup_ns = self.opening.setup().lasted_ns();
        }
        exchange
    }

    /// Adds the wait for lost data of the server to the responses that needed it, and tells the pace when they could be read: their
    /// repair is no time of the client.
    pub(crate) fn stalled(&mut self, stall: &Stall, pace: &mut Pace) {
        if stall.sender == Side::Server && stall.kind.is_loss() {
            let is_behind = |e: &&mut Exchange| e.response_end_seq.wrapping_sub(stall.seq).cast_signed() > 0;
            for exchange in self.waiting.iter_mut().filter(is_behind) {
                let before = exchange.read_ns();
                repair(exchange, stall);
                if let (Some(before), Some(now)) = (before, exchange.read_ns()) {
                    pace.repaired(before, now);
                }
            }
        }
    }

    /// An observer that keeps exchanges here and passes everything else on.
    #[inline]
    pub(crate) fn observer<'a, O: Observer>(&'a mut self, next: &'a mut O) -> Settler<'a, O> {
        Settler { settling: self, next }
    }
}

/// Adds the time from a response until the lost part of it, or of what is before it, was sent again.
pub(crate) fn repair(exchange: &mut Exchange, stall: &Stall) {
    let (Some(began_ns), Some(ended_ns)) = (exchange.request.began.ns(), exchange.response.ended.ns()) else {
        return;
    };
    let since_ns = stall.time_ns.saturating_sub(stall.wait_ns);
    let before_ns = ended_ns.min(stall.time_ns).saturating_sub(since_ns.max(began_ns));
    let after_ns = stall.time_ns.saturating_sub(ended_ns).saturating_sub(exchange.repaired_ns);
    if before_ns + after_ns > 0 {
        exchange.stalls.insert(stall.kind, stall.sender, before_ns + after_ns);
        exchange.repaired_ns += after_ns;
    }
}

/// See [`Settling::observer`].
pub(crate) struct Settler<'a, O> {
    settling: &'a mut Settling,
    next: &'a mut O,
}

impl<O: Observer> Observer for Settler<'_, O> {
    #[inline]
    fn exchange(&mut self, exchange: &Exchange) {
        if self.settling.waiting.len() >= WAITING_MAX
            && let Some(oldest) = self.settling.waiting.pop_front()
        {
            self.next.exchange(&oldest);
        }
        let mut exchange = self.settling.complete(exchange);
        if let Some(step) = self.settling.step {
            if step.is_within(&exchange) {
                self.settling.stepped_over += 1;
                return;
            }
            let began_ns = exchange.request.began.ns().unwrap_or(0);
            exchange.thought_ns = exchange
                .thought_ns
                .filter(|&thought| !step.is_between(began_ns.saturating_sub(thought), began_ns));
        }
        for side in [Side::Client, Side::Server] {
            let queued_ns = self.settling.queued_ns[side as usize];
            if queued_ns > 0 {
                // The ends of a request and of a response wait once, however many round trips they take.
                exchange.stalls.insert(StallKind::QueuedOnPath, side, queued_ns);
            }
        }
        self.settling.waiting.push_back(exchange);
    }
    fn unanswered(&mut self, exchange: &Exchange) {
        let mut exchange = *exchange;
        if exchange.response.began.is_known() {
            exchange.chunks = Chunks { written: exchange.chunks.written, ..self.settling.pieces.take() };
        }
        self.next.unanswered(&exchange);
    }
    fn named(&mut self, key: Key, name: &str) {
        self.next.named(key, name);
    }
    fn hole(&mut self, hole: StreamHole) {
        self.next.hole(hole);
    }
    fn stall(&mut self, stall: &Stall) {
        self.next.stall(stall);
    }
    fn clock_step(&mut self, step: &ClockStep) {
        self.next.clock_step(step);
    }
    fn opened(&mut self, opened: &Opened) {
        self.next.opened(opened);
    }
    fn connection(&mut self, facts: &ConnectionFacts) {
        self.next.connection(facts);
    }
    fn counted(&mut self, counted: &Counted) {
        self.next.counted(counted);
    }
}
