//! An operation as capture points saw it, with its frames.

use crate::op::{Op, Side, Stamp};
use crate::split::Split;
use crate::stall::StallSet;

/// How a message passed a capture point.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Passage {
    /// When the packet with its first byte passed.
    pub began: Stamp,
    /// When the packet with its last byte passed.
    pub ended: Stamp,
    /// The frame with its first byte; 0: unknown.
    pub first_frame: u64,
    /// The frame with its last byte; 0: unknown.
    pub last_frame: u64,
}

impl Passage {
    /// A message whose first byte is also the last so far.
    #[must_use]
    pub fn begin(ns: u64, frame: u64) -> Self {
        Self { began: Stamp::at(ns), ended: Stamp::at(ns), first_frame: frame, last_frame: frame }
    }
}

/// What one capture point saw of an operation, before the side of the point is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The record, without stamps: [`Exchange::op`] adds them. Its connection is numbered by the capture point.
    pub op: Op,
    /// Operations in flight, plus completed ones that no further request has replaced yet: the depth of a closed
    /// ring.
    pub ring_depth: u32,
    /// The request; for a write with R2T, its command.
    pub request: Passage,
    /// The response.
    pub response: Passage,
    /// When the first R2T (or 100 Continue) passed: the server asks for the data.
    pub asked_for_data: Stamp,
    /// When the last solicited data passed.
    pub data_ended: Stamp,
    /// Sequence number behind the response's last byte: the same at both sides of the wire.
    pub response_end_seq: u32,
    /// From an earlier response to this request, if the request replaced that response's operation: the client's
    /// time, as this capture point sees it, nanoseconds.
    pub thought_ns: Option<u64>,
    /// Its stalls, each no longer than the time in which the operation was in flight, and of `held_ns`.
    pub stalls: StallSet,
    /// How long TCP held the request before its first byte left, nanoseconds: its user's latency began that much earlier.
    pub held_ns: u64,
    /// From the response's last byte until bytes of it or before it, which had been lost behind this point, were sent again
    /// for the last time, nanoseconds: the client could not read it before.
    pub repaired_ns: u64,
}

impl Exchange {
    /// The record from a point on this side. The stamps of the other side are missing.
    #[must_use]
    pub fn op(&self, side: Side) -> Op {
        self.op.and(&Op::seen(side, self.request.ended, self.response.ended))
    }
}

/// An operation as one or both sides of the wire saw it: its record, and the detail that only packets show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// The record, with the stamps of the sides that saw it. Its connection has the same number on both sides.
    pub op: Op,
    /// Whether the stamps of both sides come from one clock.
    pub shared_clock: bool,
    /// Whether two points see the connection, and only one of them saw this operation: its time is not comparable with
    /// that of the others.
    pub is_partial: bool,
    /// What the client's capture point saw, or the server's where there is no other.
    pub detail: Exchange,
}

impl Observed {
    /// The observation of one point, on this side.
    #[must_use]
    pub fn alone(side: Side, exchange: &Exchange) -> Self {
        Self { op: exchange.op(side), shared_clock: false, is_partial: false, detail: *exchange }
    }

    /// The observation of both sides of one operation.
    #[must_use]
    pub fn joined(client: &Exchange, server: &Exchange, shared_clock: bool) -> Self {
        let op = client.op(Side::Client).and(&server.op(Side::Server));
        let mut stalls = StallSet::joined(&client.stalls, &server.stalls);
        if server.repaired_ns > 0 && !stalls.is_empty() {
            // A copy may be sent again although it had arrived. Nothing waits for it then.
            let network = Split::of(&op, shared_clock).network_ns.unwrap_or(0);
            let network_ns = u64::try_from(network).unwrap_or(0);
            stalls = stalls.less_loss(server.repaired_ns.saturating_sub(network_ns));
        }
        // What was sent again after the response is part of the client's time.
        let detail = Exchange { stalls, repaired_ns: 0, ..*client };
        Self { op, shared_clock, is_partial: false, detail }
    }

    /// The time of the operation as its user sees it at this point, nanoseconds: from the first byte of the request, or from
    /// when TCP began to hold it, to the last byte of the response, or to the retransmission that completed it. 0 where a
    /// stamp is missing or out of order.
    #[must_use]
    pub fn whole_ns(&self) -> u64 {
        let Exchange { held_ns, repaired_ns, .. } = self.detail;
        let seen = self.detail.response.ended.since(self.detail.request.began).unwrap_or(0);
        u64::try_from(seen).map_or(0, |ns| ns.saturating_add(held_ns).saturating_add(repaired_ns))
    }

    /// Its parts, as far as the stamps separate them.
    #[must_use]
    pub fn split(&self) -> Split {
        Split::of(&self.op, self.shared_clock)
    }
}
