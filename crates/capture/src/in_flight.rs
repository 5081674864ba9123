//! State of the exchanges in flight, common to all application protocols: the client's think time, their
//! stalls, and their number.

use std::collections::VecDeque;

use record::{Exchange, Side, Stall, StallKind, StallSet, Stamp};

use crate::packet::At;
use crate::room::Room;

/// Adds a stall to an exchange in flight: the part of it since the request left.
#[inline]
pub(crate) fn delay(exchange: &mut Exchange, stall: &Stall) {
    let began_ns = exchange.request.began.ns().unwrap_or(stall.time_ns);
    let wait_ns = stall.wait_ns.min(stall.time_ns.saturating_sub(began_ns));
    if wait_ns > 0 {
        exchange.stalls.insert(stall.kind, stall.sender, wait_ns);
    }
}

/// Time to send solicited data above which a client's delay is a stall, nanoseconds. Whether the network took it is judged when
/// its round trip is known.
const SLOW_DATA_NS: i64 = 20_000_000;

/// The stall of a client whose first solicited data passes at a time, if it is late.
pub(crate) fn slow_data(exchange: &Exchange, at_ns: u64, frame: u64, segment_bytes: u32) -> Option<Stall> {
    let wait = Stamp::at(at_ns).since(exchange.asked_for_data).filter(|&wait| wait >= SLOW_DATA_NS)?;
    Some(Stall {
        connection: exchange.op.connection,
        kind: StallKind::SlowData,
        sender: Side::Client,
        wait_ns: wait.unsigned_abs(),
        time_ns: at_ns,
        frames: [exchange.request.last_frame.max(exchange.request.first_frame), 0, frame],
        segment_bytes,
        seq: 0,
    })
}

/// Clients give up the wait for 100 Continue after times that their programs set (libcurl and Go: 1 s, .NET: 350 ms, Apache's client: 3 s);
/// a body that comes sooner was not held, or not for long, nanoseconds.
const CONTINUE_NS: u64 = 100_000_000;

/// The stall of a client that waited in vain for 100 Continue since its head had passed, and whose body passes now.
pub(crate) fn continue_awaited(exchange: &Exchange, since: At, now: At, segment_bytes: u32) -> Option<Stall> {
    let wait_ns = now.ns.checked_sub(since.ns).filter(|&wait_ns| wait_ns >= CONTINUE_NS)?;
    Some(Stall {
        connection: exchange.op.connection,
        kind: StallKind::ContinueAwaited,
        sender: Side::Client,
        wait_ns,
        time_ns: now.ns,
        frames: [since.frame, 0, now.frame],
        segment_bytes,
        seq: 0,
    })
}

/// Whether a stall concerns all exchanges in flight, rather than the message that its sender is sending.
pub(crate) fn is_of_all(stall: &Stall) -> bool {
    match stall.kind {
        StallKind::Timeout | StallKind::FastRetransmit | StallKind::BlackHole | StallKind::AcceptQueue => {
            true
        }
        // Short and frequent: only the message at hand, of which a part has left.
        StallKind::AckWait
        | StallKind::WindowFull
        | StallKind::CongestionWindow
        | StallKind::SlowStartAfterIdle => false,
        _ => stall.sender == Side::Server,
    }
}

/// Adds the time in which TCP held a request before its first byte left.
fn hold(exchange: &mut Exchange, held: &StallSet) {
    exchange.held_ns = held.sum_ns();
    exchange.stalls = exchange.stalls.then(held);
}

/// Data that leaves so soon after an acknowledgement left with what it released, nanoseconds: Nagle's algorithm would hold
/// later data until the next one.
const PUSH_NS: u64 = 1_000_000;

/// Sums over a connection's exchanges.
#[derive(Clone, Debug, Default)]
pub(crate) struct Pace {
    /// Times of the responses that no further request has replaced yet.
    free: VecDeque<u64>,
    /// How many requests may be remembered.
    pub(crate) room: Room,
    /// Stalls of the current request, and those before its first byte left.
    pending: StallSet,
    held: StallSet,
    /// Those that began before the response that the request follows.
    batched: StallSet,
    /// The client's data that was held and released last.
    released: Option<Stall>,
    /// Exchanges that ended.
    pub(crate) ended: u64,
    /// Number in flight now, the time of its last change, and its integral over time.
    depth: u32,
    since_ns: u64,
    pub(crate) in_flight_ns: u128,
    /// Messages that each side completed.
    pub(crate) messages: [u64; 2],
}

/// A slot that was free for this time is removed, unless it is the only one, nanoseconds: the client has reduced
/// its queue depth.
const FREE_NS: u64 = 500_000_000;

/// Most free slots that are remembered; no client has more requests in flight.
const FREE_MAX: usize = 65_536;

impl Pace {
    /// Completes a request that has passed.
    #[inline]
    pub(crate) fn begin(&mut self, exchange: &mut Exchange, began: At, now: At) {
        self.account(now.ns, 1);
        while self.free.len() > 1 && self.free.front().is_some_and(|&f| f.saturating_add(FREE_NS) < began.ns)
        {
            self.free.pop_front();
        }
        exchange.op.queue_depth = self.depth;
        // A request that is complete before the response that it replaces shows a clock that was set back.
        exchange.thought_ns = (self.free.pop_front().filter(|&response| response <= now.ns))
            .map(|response| began.ns.saturating_sub(response));
        exchange.ring_depth = self.depth + self.free.len() as u32;
        if !self.pending.is_empty() {
            exchange.stalls = exchange.stalls.then(&std::mem::take(&mut self.pending));
        }
        if !self.batched.is_empty() {
            hold(exchange, &std::mem::take(&mut self.batched));
        } else if !self.held.is_empty() {
            // The client had nothing to send before the response that the request replaces.
            let most_ns = exchange.thought_ns.unwrap_or(u64::MAX);
            hold(exchange, &std::mem::take(&mut self.held).within(most_ns));
        } else if let Some(stall) = &self.released {
            if began.ns.saturating_sub(stall.time_ns) > PUSH_NS {
                self.released = None;
            } else if let Some(thought_ns) = exchange.thought_ns
                && began.ns >= stall.time_ns
            {
                let mut held = StallSet::default();
                held.insert(stall.kind, stall.sender, stall.wait_ns.min(thought_ns));
                hold(exchange, &held);
            }
        }
    }

    /// Counts a response that has passed.
    #[inline]
    pub(crate) fn end(&mut self, now: At) {
        self.account(now.ns, -1);
        self.ended += 1;
        if self.free.len() < FREE_MAX {
            self.free.push_back(now.ns);
        }
    }

    /// Counts a request that passed unseen.
    pub(crate) fn began_unseen(&mut self, now: At) {
        self.account(now.ns, 1);
        self.free.pop_front();
    }

    /// Counts a response that passed unseen, or that of a request that did. Its place in the ring is free.
    pub(crate) fn ended_unseen(&mut self, now: At) {
        self.account(now.ns, -1);
        if self.free.len() < FREE_MAX {
            self.free.push_back(now.ns);
        }
    }

    /// Removes abandoned requests.
    pub(crate) fn forget(&mut self, count: usize, now: At) {
        self.account(now.ns, -i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A request that was taken for abandoned is in flight after all.
    pub(crate) fn is_back(&mut self, now: At) {
        self.account(now.ns, 1);
    }

    /// Handles a gap in the stream: clears the free slots, so that no think time is computed over it.
    pub(crate) fn interrupted(&mut self) {
        self.free.clear();
    }

    /// Adds a stall to the next request.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        let is_before = matches!(stall.kind, StallKind::NagleBetweenMessages | StallKind::AckClocked)
            || stall.kind.is_loss();
        let stalls = if is_before { &mut self.held } else { &mut self.pending };
        stalls.insert(stall.kind, stall.sender, stall.wait_ns);
    }

    /// What the client has sent was no request: the waits before it were not those of the next one.
    pub(crate) fn no_request(&mut self) {
        if !(self.held.is_empty() && self.pending.is_empty()) {
            (self.held, self.pending) = Default::default();
        }
    }

    /// Adds a wait of requests that were there before the response came that their turn follows.
    pub(crate) fn batched(&mut self, stall: &Stall) {
        self.batched.insert(stall.kind, stall.sender, stall.wait_ns);
    }

    /// Notes that an acknowledgement released data of the client that Nagle's algorithm or a loss held: all requests that now
    /// leave were held.
    pub(crate) fn released(&mut self, stall: &Stall) {
        use StallKind::{
            AckClocked, BehindLoss, NagleBetweenMessages, NagleHeaderThenBody, NagleWithinMessage,
        };
        let is_hold = matches!(
            stall.kind,
            AckClocked | BehindLoss | NagleBetweenMessages | NagleHeaderThenBody | NagleWithinMessage
        );
        if is_hold && stall.sender == Side::Client {
            self.released = Some(*stall);
        }
    }

    /// Responses that had ended at a time, nanoseconds, had to be sent again, or were behind such data, and could be read only now.
    pub(crate) fn repaired(&mut self, ended_ns: u64, now_ns: u64) {
        // The latest are at the back.
        let alike = self.free.iter_mut().rev().skip_while(|free_ns| **free_ns > ended_ns);
        alike.take_while(|free_ns| **free_ns == ended_ns).for_each(|free_ns| *free_ns = now_ns);
    }

    /// Counts a completed message of a side.
    #[inline]
    pub(crate) fn message(&mut self, side: Side) {
        self.messages[side as usize] += 1;
    }

    /// Whether a side has more to do: the server has requests to answer, the client a place in its ring to fill.
    #[inline]
    pub(crate) fn owes(&self, side: Side) -> bool {
        match side {
            Side::Client => !self.free.is_empty(),
            Side::Server => self.depth > 0,
        }
    }

    /// Number in flight.
    pub(crate) fn depth(&self) -> u32 {
        self.depth
    }

    #[inline]
    fn account(&mut self, ns: u64, change: i64) {
        self.in_flight_ns += u128::from(self.depth) * u128::from(ns.saturating_sub(self.since_ns));
        self.since_ns = self.since_ns.max(ns);
        self.depth = (i64::from(self.depth) + change).clamp(0, i64::from(u32::MAX)) as u32;
    }
}
