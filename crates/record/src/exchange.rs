//! An operation as capture points saw it, with its frames.

use crate::key::Key;
use crate::op::{Op, Side, Stamp};
use crate::split::Split;
use crate::stall::StallSet;
use crate::status::Status;

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

/// An error with which a service answered a request that it should have carried out. Answers about the request itself are
/// none: a missing page, an unknown command, a unit attention.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum AnswerError {
    /// An HTTP status: 5xx, or 429 (RFC 9110 15.6, RFC 6585 4).
    Http(u16),
    /// CHECK CONDITION with this sense key (SPC-4 4.5.6).
    Sense(u8),
    /// The status of another protocol.
    Other(Status),
}

impl std::fmt::Display for AnswerError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AnswerError::Http(status) => write!(f, "HTTP {status}"),
            AnswerError::Other(status) => f.write_str(&status.text()),
            AnswerError::Sense(key) => write!(f, "CHECK CONDITION, {}", sense_name(*key)),
        }
    }
}

/// The name of a sense key (SPC-4 4.5.6).
fn sense_name(key: u8) -> &'static str {
    match key {
        0x2 => "not ready",
        0x3 => "medium error",
        0x4 => "hardware error",
        0x7 => "data protect",
        0xb => "aborted command",
        0xd => "volume overflow",
        _ => "another sense key",
    }
}

/// The pieces in which a response came. A piece ends with a segment that is not full: its sender had no more to send then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Chunks {
    /// Their number.
    pub count: u32,
    /// The time between the end of one and the begin of the next, summed, nanoseconds.
    pub gaps_ns: u64,
    /// The longest of these gaps, nanoseconds.
    pub gap_max_ns: u64,
    /// Pieces in which its program wrote it, as its framing shows (HTTP's chunks); 0: unknown. Several may have left together.
    pub written: u32,
}

impl Chunks {
    /// Whether the response is a stream: in three pieces or more. Two may be a header and a body.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.count >= 3
    }

    /// Whether its program wrote it as a stream, however it left.
    #[must_use]
    pub fn is_written_as_stream(&self) -> bool {
        self.is_stream() || self.written >= 3
    }

    /// The mean gap between pieces, nanoseconds; `None` for a response that is no stream.
    #[must_use]
    pub fn gap_mean_ns(&self) -> Option<u64> {
        self.is_stream().then(|| self.gaps_ns / u64::from(self.count - 1))
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
    /// Sequence number of the request's first byte, the same at both sides of the wire; none where the decoder does not tell it (HTTP/1.1,
    /// iSCSI). It identifies the operation where the two sides see different ends of the response.
    pub request_begin_seq: Option<u32>,
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
    /// How long its connection's set-up took, nanoseconds: of the first request of a connection whose SYN was seen.
    pub setup_ns: Option<u64>,
    /// The pieces of the response.
    pub chunks: Chunks,
    /// The error with which the service answered.
    pub error: Option<AnswerError>,
    /// How it was answered, if its protocol tells.
    pub status: Status,
    /// What it is for, if its protocol tells.
    pub key: Key,
    /// The stream of a connection that carries several, such as HTTP/2's; 0: none.
    pub stream: u32,
    /// Whether it may be several requests, or none: a turn in which the server began to answer before all of it had come, in which the
    /// client did not wait for the answer, or of messages that nothing pairs.
    pub overlaps: bool,
    /// Whether its bytes look like several requests: a turn of an unknown protocol of which several lines or records were answered by
    /// several.
    pub has_several: bool,
    /// Whether bytes of its request are not in the capture (snap length): a turn of an unknown protocol that may hold several requests.
    pub is_unread: bool,
    /// Whether its protocol holds it until an event comes or a time is over, such as a blocking pop: its time is no work of the server.
    pub awaits_event: bool,
}

impl Exchange {
    /// When its client could read the response, as far as the capture point shows it, nanoseconds; `None` where it has not passed.
    #[must_use]
    pub fn read_ns(&self) -> Option<u64> {
        Some(self.response.ended.ns()?.saturating_add(self.repaired_ns))
    }

    /// The record from a point on this side. The stamps of the other side are missing.
    #[must_use]
    pub fn op(&self, side: Side) -> Op {
        self.op.and(&Op::seen(side, self.request.ended, self.response.ended))
    }

    /// From the request's last byte to the response's first, nanoseconds: the server's work, and the network where the point
    /// is not the server's. A response that begins before its request ends (100 Continue, R2T, an early error) is no measure
    /// of it, and has none.
    #[must_use]
    pub fn first_byte_ns(&self) -> Option<i64> {
        self.response.began.since(self.request.ended).filter(|&ns| ns >= 0)
    }

    /// From the response's first byte to its last, nanoseconds; none if one packet holds it.
    #[must_use]
    pub fn transfer_ns(&self) -> Option<i64> {
        let is_long = self.response.last_frame != self.response.first_frame;
        self.response.ended.since(self.response.began).filter(|&ns| is_long && ns >= 0)
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
    /// From the request's last byte to the response's first byte at the server, nanoseconds, where its capture point saw
    /// them: the server's work, without the transfer of the response.
    pub server_first_ns: Option<i64>,
    /// What the client's capture point saw, or the server's where there is no other.
    pub detail: Exchange,
}

/// Whether the times of an operation can be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeOrder {
    /// Nothing ends before it begins.
    Forwards,
    /// A message arrives at the other capture point before it leaves, on the clock that both share.
    PathBackwards,
    /// A message, or the operation, ends before it begins.
    Backwards,
}

impl Exchange {
    /// Whether a part that this point saw ends before it begins. A response may begin before its request has ended, because a
    /// server may answer early, and does not end before that.
    #[must_use]
    fn is_backwards(&self) -> bool {
        let before = |a: Stamp, b: Stamp| a.since(b).is_some_and(|ns| ns < 0);
        let Self { request, response, .. } = self;
        before(request.ended, request.began)
            || before(response.ended, response.began)
            || before(response.began, request.began)
            || before(response.ended, request.ended)
    }
}

impl Observed {
    /// Whether its times can be right.
    #[must_use]
    pub fn order(&self) -> TimeOrder {
        let Op { c1, s1, s2, c2, .. } = self.op;
        let before = |a: Stamp, b: Stamp| a.since(b).is_some_and(|ns| ns < 0);
        if self.detail.is_backwards() || before(s2, s1) || before(c2, c1) {
            TimeOrder::Backwards
        } else if self.shared_clock && (before(s1, c1) || before(c2, s2)) {
            TimeOrder::PathBackwards
        } else {
            TimeOrder::Forwards
        }
    }

    /// The observation of one point, on this side.
    #[must_use]
    pub fn alone(side: Side, exchange: &Exchange) -> Self {
        let server_first_ns = (side == Side::Server).then(|| exchange.first_byte_ns()).flatten();
        Self {
            op: exchange.op(side),
            shared_clock: false,
            is_partial: false,
            server_first_ns,
            detail: *exchange,
        }
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
        Self { op, shared_clock, is_partial: false, server_first_ns: server.first_byte_ns(), detail }
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

#[cfg(test)]
mod tests {
    use super::*;

    fn exchange(times: [u64; 4]) -> Exchange {
        let [a, b, c, d] = times;
        let passage = |began, ended| Passage { ended: Stamp::at(ended), ..Passage::begin(began, 0) };
        Exchange { request: passage(a, b), response: passage(c, d), ..Exchange::default() }
    }

    fn alone(times: [u64; 4]) -> TimeOrder {
        Observed::alone(Side::Client, &exchange(times)).order()
    }

    #[test]
    fn an_operation_that_ends_before_it_begins_is_backwards() {
        assert_eq!(alone([10, 20, 30, 40]), TimeOrder::Forwards);
        assert_eq!(alone([10, 10, 10, 10]), TimeOrder::Forwards, "a coarse clock");
        assert_eq!(alone([10, 30, 20, 40]), TimeOrder::Forwards, "an early answer");
        for times in
            [[10, 9, 30, 40], [10, 20, 30, 29], [10, 20, 5, 40], [10, 20, 15, 19], [100, 100, 50, 50]]
        {
            assert_eq!(alone(times), TimeOrder::Backwards, "{times:?}");
        }
    }

    #[test]
    fn a_path_is_backwards_only_on_a_shared_clock() {
        let client = exchange([10, 20, 70, 80]);
        for (server, order) in [
            ([12, 25, 60, 65], TimeOrder::Forwards),
            ([5, 15, 60, 65], TimeOrder::PathBackwards),
            ([12, 25, 85, 90], TimeOrder::PathBackwards),
            ([12, 25, 24, 24], TimeOrder::Backwards),
        ] {
            let server = exchange(server);
            assert_eq!(Observed::joined(&client, &server, true).order(), order);
            let apart = Observed::joined(&client, &server, false).order();
            assert_eq!(apart == TimeOrder::Backwards, order == TimeOrder::Backwards);
            assert_ne!(apart, TimeOrder::PathBackwards);
        }
    }
}
