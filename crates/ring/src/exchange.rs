//! One request and its response as a capture point saw them, with the frames that prove it.

use serde::{Deserialize, Serialize};

use crate::op::{OpKind, Stamp};
use crate::sighting::Sighting;
use crate::stall::StallSet;

/// A side of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Side {
    /// Who asks: the initiator.
    Client,
    /// Who answers: the target.
    Server,
}

impl Side {
    /// The other one.
    #[must_use]
    pub fn peer(self) -> Self {
        match self {
            Side::Client => Side::Server,
            Side::Server => Side::Client,
        }
    }

    /// Its name in a sentence.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Side::Client => "client",
            Side::Server => "server",
        }
    }
}

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

    /// What a side saw of an operation.
    #[must_use]
    pub fn sighting(&self) -> Sighting {
        Sighting {
            connection: self.connection,
            tag: self.tag,
            kind: self.kind,
            data_bytes: self.data_bytes,
            request_bytes: self.request_bytes,
            response_bytes: self.response_bytes,
            request: self.request.ended,
            response: self.response.ended,
        }
    }
}
