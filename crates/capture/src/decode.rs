//! Decoders: what a protocol tells of its messages.
//!
//! A decoder knows how long a message is and what it means: which request it is or answers. [`Frames`] cuts the two streams
//! into messages, also across segments and holes, and [`Requests`] pairs, stamps and delivers what the decoder makes of them. A new
//! protocol is one file with a [`Decoder`] and one line in [`PROTOCOLS`]; docs/decoders.md shows how to write one.

mod amqp;
mod dns;
mod enip;
mod frames;
mod http2;
mod kafka;
mod keys;
mod known;
mod ldap;
mod memcached;
mod modbus;
mod mongodb;
mod mqtt;
mod mysql;
mod numbers;
mod nvme;
mod postgres;
mod redis;
mod requests;
mod rpc;
mod s7;
mod smb;
mod sql;
mod websocket;

use record::Side;

pub(crate) use frames::Frames;
pub(crate) use known::name as known;
pub(crate) use redis::is_known_command as is_redis_command;
pub(crate) use requests::{Asked, Of, Requests};
pub(crate) use websocket::{ENTRY as WEBSOCKET, begins_a_frame as begins_a_websocket_frame};

/// How long the message is that begins with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Length {
    /// More bytes are needed to tell.
    More,
    /// So many bytes in all, at least one.
    Is(u64),
    /// No message of the protocol begins so.
    Invalid,
}

/// A message, or one of several parts of it that the protocol delimits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Message<'a> {
    /// Its sender.
    pub(crate) side: Side,
    /// Its first bytes: all, unless it is longer than what the decoder asks to be kept, or a hole is in it.
    pub(crate) bytes: &'a [u8],
    /// All its bytes on the stream.
    pub(crate) length: u64,
}

/// A request of HTTP/1.1 that is answered in the protocol to which it changed.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Upgraded {
    /// Its method.
    pub(crate) operation: record::Word,
    /// Its key, which has been named.
    pub(crate) key: record::Key,
}

/// A protocol that has agreed on TLS.
#[derive(Debug)]
pub(crate) struct Agreed {
    pub(crate) entry: &'static ProtocolEntry,
    pub(crate) decoder: Box<dyn Decoder>,
}

/// A protocol of one connection. It sees the bytes of each side in order, and keeps a bounded state: no more than a few kilobytes
/// beyond what [`Requests`] holds.
pub(crate) trait Decoder: std::fmt::Debug + Send {
    /// How long the side's message is that begins with these bytes. Called again with more of them after [`Length::More`].
    fn length(&mut self, side: Side, start: &[u8]) -> Length;

    /// A message has passed: states what it means for the requests.
    fn message(&mut self, message: &Message<'_>, requests: &mut Requests);

    /// Whether what follows is of another protocol, by agreement (TLS).
    fn has_ended(&self) -> bool {
        false
    }

    /// TLS was agreed on: what follows is in it, and of the same protocol.
    fn secured(&mut self) {}

    /// The protocol's name, if what has ended it is its own encryption: what follows are messages that nobody can read.
    fn encrypted(&self) -> Option<&'static str> {
        None
    }

    /// Most bytes of a message that are kept.
    fn kept(&self) -> usize {
        1024
    }

    /// Whether a message of the side may begin with these bytes, at the front of a segment behind a hole, or where the capture begins:
    /// a mistake costs wrong operations, so that a short pattern that occurs in data is not enough.
    fn resumes(&mut self, side: Side, start: &[u8]) -> bool;

    /// Bytes of the side are missing, and with them the boundary of its messages.
    fn lost(&mut self, side: Side, requests: &mut Requests);

    /// Bytes of the side are missing where no boundary is known.
    fn absent(&mut self, _side: Side, _count: u64) {}

    /// The connection has come to the protocol by an upgrade, at the begin of both sides' messages; the request that asked for it may
    /// be the protocol's to answer.
    fn upgraded(&mut self, _upgraded: Upgraded, _requests: &mut Requests) {}

    /// Whether a request without an answer has failed: what one side of a conversation says last needs none.
    fn needs_answers(&self) -> bool {
        true
    }

    /// The side has closed its stream.
    fn closed(&mut self, _side: Side, _requests: &mut Requests) {}
}

/// What is known where a protocol is looked for: at the first data of a connection, or of a turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Start<'a> {
    /// The sender of the bytes.
    pub(crate) side: Side,
    /// The segment's bytes.
    pub(crate) bytes: &'a [u8],
    /// The server's port.
    pub(crate) port: u16,
    /// Whether they are the side's first bytes on the connection.
    pub(crate) is_first: bool,
    /// The server has spoken the protocol at hand on other connections.
    is_proven: bool,
    /// The client's first bytes on the connection, if the bytes answer them.
    asked: &'a [u8],
}

impl<'a> Start<'a> {
    pub(crate) fn new(side: Side, bytes: &'a [u8], port: u16, is_first: bool) -> Self {
        Self { side, bytes, port, is_first, is_proven: false, asked: &[] }
    }

    /// The same, in answer to these bytes.
    pub(crate) fn answering(self, asked: &'a [u8]) -> Self {
        Self { asked, ..self }
    }

    /// Whether the server is one of the protocol, by its port or by what it has spoken before.
    pub(crate) fn is_at(&self, port: u16) -> bool {
        self.is_proven || self.port == port
    }
}

/// How a user wants to see what is decoded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Keys as they are, rather than with their numbers, identifiers and literals folded.
    pub verbatim: bool,
}

/// A protocol that can be decoded.
#[derive(Debug)]
pub struct ProtocolEntry {
    /// Its name in reports and on the command line.
    pub name: &'static str,
    /// Whether these bytes are the protocol's.
    pub(crate) begins: fn(&Start<'_>) -> bool,
    /// A decoder for one connection.
    pub(crate) new: fn(Shown) -> Box<dyn Decoder>,
}

impl PartialEq for ProtocolEntry {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for ProtocolEntry {}

/// The protocols, in the order in which they are tried.
pub static PROTOCOLS: &[ProtocolEntry] = &[
    http2::ENTRY,
    redis::ENTRY,
    postgres::ENTRY,
    mysql::ENTRY,
    memcached::ENTRY,
    nvme::ENTRY,
    rpc::ENTRY,
    dns::ENTRY,
    ldap::ENTRY,
    mqtt::ENTRY,
    smb::ENTRY,
    modbus::ENTRY,
    amqp::ENTRY,
    mongodb::ENTRY,
    enip::ENTRY,
    s7::ENTRY,
    kafka::ENTRY,
    websocket::ENTRY,
];

/// The protocol of this name.
#[must_use]
pub fn protocol_named(name: &str) -> Option<&'static ProtocolEntry> {
    PROTOCOLS.iter().find(|entry| entry.name == name)
}

/// The protocol that these bytes begin, on a server that has spoken this one before.
pub(crate) fn detect(
    start: &Start<'_>,
    proven: Option<&'static ProtocolEntry>,
) -> Option<&'static ProtocolEntry> {
    let likely = Start { is_proven: true, ..*start };
    proven
        .filter(|entry| (entry.begins)(&likely))
        .or_else(|| PROTOCOLS.iter().find(|entry| (entry.begins)(start)))
}

/// The key of a name.
pub(crate) fn key_of(name: &[u8]) -> record::Key {
    record::Key::new(hash_of(name))
}

/// The hash of a name, the same in each run.
pub(crate) fn hash_of(name: &[u8]) -> u64 {
    use std::hash::{BuildHasher as _, Hasher as _};
    let mut hasher = foldhash::fast::FixedState::default().build_hasher();
    hasher.write(name);
    hasher.finish()
}

#[cfg(test)]
pub(crate) mod play;
#[cfg(test)]
mod tests;
