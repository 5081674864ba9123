//! Responses that have passed and are not acknowledged: until then they may have to be sent again, and their client cannot
//! read them.

use std::collections::VecDeque;

use record::{ConnectionFacts, Exchange, Opened, Side, Stall};

use crate::observer::{Counted, Observer, StreamHole};

/// Exchanges of one connection whose response is not acknowledged, in order.
#[derive(Debug, Default)]
pub(crate) struct Settling {
    waiting: VecDeque<Exchange>,
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

    /// Delivers all.
    pub(crate) fn finish(&mut self, observer: &mut impl Observer) {
        self.waiting.drain(..).for_each(|exchange| observer.exchange(&exchange));
    }

    /// Adds the wait for lost data of the server to the responses that needed it.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        if stall.sender == Side::Server && stall.kind.is_loss() {
            let is_behind = |e: &&mut Exchange| e.response_end_seq.wrapping_sub(stall.seq).cast_signed() > 0;
            self.waiting.iter_mut().filter(is_behind).for_each(|exchange| repair(exchange, stall));
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
        self.settling.waiting.push_back(*exchange);
    }
    fn unanswered(&mut self, exchange: &Exchange) {
        self.next.unanswered(exchange);
    }
    fn hole(&mut self, hole: StreamHole) {
        self.next.hole(hole);
    }
    fn stall(&mut self, stall: &Stall) {
        self.next.stall(stall);
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
