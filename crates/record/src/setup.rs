//! How a connection was set up, and how it failed: facts that a capture point sees, without a judgement of their cause.

use crate::op::Stamp;

/// Why a connection carried nothing, as its packets show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The server's side answered the SYN with a RST.
    AtSyn,
    /// The server's side reset the connection right after the handshake, before it acknowledged any data.
    AfterHandshake,
}

/// What a connection exchanges before its first request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Greeting {
    /// Nothing.
    #[default]
    None,
    /// A TLS handshake (RFC 8446).
    Tls,
    /// The start-up messages of PostgreSQL, with authentication.
    PostgreSql,
    /// The server speaks first, and the client answers (MySQL, SMTP, FTP).
    ServerFirst,
}

/// The set-up of a connection, from its first SYN until it can carry requests, and its end by a reset.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Setup {
    /// When the first SYN passed; unknown if the connection began before the capture.
    pub syn: Stamp,
    /// SYNs of the client, copies of one packet not counted.
    pub syns: u32,
    /// When the first SYN+ACK passed.
    pub syn_ack: Stamp,
    /// When the client's first packet behind the handshake passed.
    pub established: Stamp,
    /// From the first SYN to the last one before the SYN+ACK, or to the last one: the time that its repetition cost,
    /// nanoseconds.
    pub waited_ns: u64,
    /// SYN+ACKs that the server sent again although the client's ACK had passed: it had dropped that ACK.
    pub syn_acks_again: u32,
    /// How often the client sent its first data again before the server acknowledged any.
    pub first_data_again: u32,
    /// When the connection could carry requests: behind the handshake, or behind the greeting.
    pub ready: Stamp,
    /// What passed before the first request.
    pub greeting: Greeting,
    /// Exchanges of the greeting.
    pub greeting_exchanges: u64,
    /// Their time, nanoseconds.
    pub greeting_in_flight_ns: u64,
    /// Why it carried nothing, if it was refused.
    pub refusal: Option<Refusal>,
    /// Requests that had no response when the server's side reset the connection.
    pub requests_reset: u32,
    /// Requests that had no response, or not all of it, when the server's side sent its FIN.
    pub requests_closed: u32,
    /// Frames: the first SYN, its last repetition, the packet that ended the wait or the connection. 0: none.
    pub frames: [u64; 3],
}

impl Setup {
    /// From the first SYN until the connection could carry requests, nanoseconds; `None` if that was not seen.
    #[must_use]
    pub fn lasted_ns(&self) -> Option<u64> {
        self.ready.since(self.syn).and_then(|ns| u64::try_from(ns).ok())
    }

    /// Whether the server dropped what completed the handshake: it sent its SYN+ACK again although the client's ACK had
    /// passed, or did not acknowledge the client's first data until the client had sent it a third time.
    #[must_use]
    pub fn was_dropped_after_handshake(&self) -> bool {
        self.syn_acks_again > 0 || self.first_data_again >= 2
    }
}
