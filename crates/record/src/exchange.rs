//! One request and its response as a capture point saw them, with the frames that prove it.

use serde::{Deserialize, Serialize};

use crate::op::{Op, OpKind, Side, Stamp};
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

/// What was asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Verb {
    /// A SCSI command, by its operation code (SPC-4 annex D).
    Scsi(u8),
    /// An HTTP request, by the first bytes of its method, padded with zeros.
    Http([u8; 7]),
    /// Whatever went one way before something came back.
    #[default]
    Turn,
    /// A task management function (RFC 7143 11.5.1).
    TaskManagement(u8),
    /// A ping: NOP-Out and NOP-In.
    Nop,
}

impl Verb {
    /// Its name for a person.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Verb::Scsi(code) => match scsi_name(code) {
                Some(name) => name.to_owned(),
                None => format!("command {code:#04x}"),
            },
            Verb::Http(method) => {
                let text: Vec<u8> = method.into_iter().take_while(u8::is_ascii_graphic).collect();
                String::from_utf8(text).unwrap_or_default()
            }
            Verb::Turn => "turn".to_owned(),
            Verb::TaskManagement(function) => format!("task management {function}"),
            Verb::Nop => "ping".to_owned(),
        }
    }
}

/// Names of operation codes (SPC-4 annex D, SBC-3).
fn scsi_name(code: u8) -> Option<&'static str> {
    Some(match code {
        0x00 => "test unit ready",
        0x03 => "request sense",
        0x08 => "read(6)",
        0x0a => "write(6)",
        0x12 => "inquiry",
        0x15 | 0x55 => "mode select",
        0x1a | 0x5a => "mode sense",
        0x25 => "read capacity(10)",
        0x28 => "read(10)",
        0x2a => "write(10)",
        0x2e | 0x8e => "write and verify",
        0x2f | 0x8f => "verify",
        0x35 | 0x91 => "synchronize cache",
        0x41 | 0x93 => "write same",
        0x42 => "unmap",
        0x5e => "persistent reserve in",
        0x5f => "persistent reserve out",
        0x83 => "extended copy",
        0x88 => "read(16)",
        0x89 => "compare and write",
        0x8a => "write(16)",
        0x9e => "service action in",
        0xa0 => "report luns",
        0xa3 => "maintenance in",
        0xa8 => "read(12)",
        0xaa => "write(12)",
        _ => return None,
    })
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As asked.
    #[default]
    Good,
    /// With an error status.
    Failed,
}

/// One request and its response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Exchange {
    /// Which connection, as its capture point numbers them.
    pub connection: u32,
    /// The initiator task tag, or a running number.
    pub tag: u32,
    /// What was asked for.
    pub verb: Verb,
    /// Which way the data goes.
    pub kind: OpKind,
    /// How it ended.
    pub outcome: Outcome,
    /// Exchanges in flight on the connection when the request passed, this one included.
    pub queue_depth: u32,
    /// Those and the answered ones whose place no request has taken yet: the depth of a closed ring.
    pub ring_depth: u32,
    /// Application data, bytes.
    pub data_bytes: u32,
    /// Request above TCP, bytes: headers and data, also what followed an R2T.
    pub request_bytes: u32,
    /// Response above TCP, bytes.
    pub response_bytes: u32,
    /// The request: of a write with R2T, its command.
    pub request: Passage,
    /// The response.
    pub response: Passage,
    /// When the first R2T (or 100 Continue) passed: the server asks for the data.
    pub asked_for_data: Stamp,
    /// When the last data that was asked for passed.
    pub data_ended: Stamp,
    /// Sequence number behind the response's last byte: the same at both sides of the wire.
    pub response_end_seq: u32,
    /// From a response to the request that took its place, when this request took one's place: the client's
    /// time, as this capture point sees it, nanoseconds.
    pub thought_ns: Option<u64>,
    /// The stalls that it suffered.
    pub stalls: StallSet,
}

impl Exchange {
    /// Nanoseconds from the request's last byte to the response's last byte.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<i64> {
        self.response.ended.since(self.request.ended)
    }

    /// The op record of what one side saw: the other stamps are missing.
    #[must_use]
    pub fn op(&self, side: Side) -> Op {
        let (request, response) = (self.request.ended, self.response.ended);
        Op {
            connection: self.connection,
            tag: self.tag,
            kind: self.kind,
            data_bytes: self.data_bytes,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            ..Op::seen(side, request, response)
        }
    }
}

/// An exchange as one or both sides of the wire saw it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Observed {
    /// Which connection, the same number at both sides.
    pub connection: u32,
    /// What the capture point of the client saw (C1, C2), or one of unknown place.
    pub client: Option<Exchange>,
    /// What the capture point of the server saw (S1, S2).
    pub server: Option<Exchange>,
    /// Whether the stamps of both may be subtracted from one another.
    pub shared_clock: bool,
}

impl Observed {
    /// One side's view: the client's where there is one.
    #[must_use]
    pub fn main(&self) -> Option<&Exchange> {
        self.client.as_ref().or(self.server.as_ref())
    }

    /// C2 - C1, nanoseconds.
    #[must_use]
    pub fn round_trip_ns(&self) -> Option<i64> {
        self.client?.round_trip_ns()
    }

    /// S2 - S1, nanoseconds.
    #[must_use]
    pub fn server_ns(&self) -> Option<i64> {
        self.server?.round_trip_ns()
    }

    /// (C2 - C1) - (S2 - S1), nanoseconds: no clock is subtracted from another.
    #[must_use]
    pub fn network_ns(&self) -> Option<i64> {
        Some(self.round_trip_ns()? - self.server_ns()?)
    }

    /// S1 - C1, nanoseconds, where both share a clock.
    #[must_use]
    pub fn request_path_ns(&self) -> Option<i64> {
        let (client, server) = (self.client.filter(|_| self.shared_clock)?, self.server?);
        server.request.ended.since(client.request.ended)
    }

    /// C2 - S2, nanoseconds, where both share a clock.
    #[must_use]
    pub fn response_path_ns(&self) -> Option<i64> {
        let (client, server) = (self.client.filter(|_| self.shared_clock)?, self.server?);
        client.response.ended.since(server.response.ended)
    }

    /// The stalls that either side saw.
    #[must_use]
    pub fn stalls(&self) -> StallSet {
        let of = |e: &Option<Exchange>| e.map_or(StallSet::default(), |e| e.stalls);
        of(&self.client).union(of(&self.server))
    }

    /// The op record: start and finish are not to be seen in a capture.
    #[must_use]
    pub fn op(&self) -> Option<Op> {
        let (client, server) =
            (self.client.map(|e| e.op(Side::Client)), self.server.map(|e| e.op(Side::Server)));
        let (main, server) = (client.or(server)?, server.unwrap_or_default());
        Some(Op { connection: self.connection, s1: server.s1, s2: server.s2, ..main })
    }
}
