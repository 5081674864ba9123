//! Kafka: requests to a broker, paired by their correlation ids.
//!
//! A request is one of the protocol's (Apache Kafka, "A Guide To The Kafka Protocol" and the definitions of its messages). A broker answers
//! those of one connection in their order. The key is the first topic of the request where it stands there by name, or the group, with
//! parts that have digits folded (`orders-*`). The status is the error of the answer, or that of its first topic or partition. A Produce
//! that wants no acknowledgement (`acks=0`) has no answer and is not told. A Fetch that brings nothing has waited for data, and JoinGroup
//! and SyncGroup wait for the other members.

mod apis;
mod errors;
mod fields;

use std::collections::VecDeque;

use record::{Side, Status};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use apis::Api;
use fields::Fields;

/// Kafka, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "kafka", begins, new: |shown| Box::new(Kafka { shown, ..Kafka::default() }) };

/// Kafka's port.
const PORT: u16 = 9092;
/// Largest message: brokers accept 100 MiB by default.
const SIZE_MAX: u32 = 1 << 30;
/// Bytes up to the correlation id, with it.
const HEAD: usize = 12;
/// Versions are fewer.
const VERSION_MAX: i16 = 30;
/// Longest client id that proves something.
const CLIENT_ID_MAX: usize = 256;
/// Requests in flight that are remembered.
const OPEN_MAX: usize = 1024;
/// First bytes of a message that tell what it is: the partitions of a small answer are among them.
const KEPT: usize = 4096;
/// Longest key.
const KEY_MAX: usize = 96;

/// A connection.
#[derive(Debug, Default)]
struct Kafka {
    shown: Shown,
    /// Requests that await their answer, the oldest first.
    open: VecDeque<Header>,
}

/// What a request's header tells.
#[derive(Clone, Copy, Debug)]
struct Header {
    api: &'static Api,
    version: i16,
    correlation: u32,
}

impl Header {
    /// Whether messages of this version have compact fields.
    fn is_flexible(&self) -> bool {
        self.version >= self.api.flexible_from
    }

    fn of(self) -> Of {
        Of::Id(self.correlation.into())
    }
}

/// The size that a message states, without its own four bytes.
fn size(bytes: &[u8]) -> Option<u32> {
    bytes.first_chunk().map(|size| u32::from_be_bytes(*size)).filter(|size| (4..=SIZE_MAX).contains(size))
}

/// The header of a request, up to its correlation id.
fn header(bytes: &[u8]) -> Option<Header> {
    let mut fields = Fields::new(bytes.get(4..)?, false);
    let (key, version, correlation) = (fields.i16()?, fields.i16()?, fields.u32()?);
    let api = apis::of(key).filter(|_| (0..VERSION_MAX).contains(&version))?;
    Some(Header { api, version, correlation })
}

/// The header of a request, and its fields.
fn request(bytes: &[u8]) -> Option<(Header, Option<&[u8]>, Fields<'_>)> {
    let header = header(bytes)?;
    // The client's id never is compact.
    let mut fields = Fields::new(bytes.get(HEAD..)?, false);
    let client = fields.string()?;
    let mut fields = fields.compact(header.is_flexible());
    fields.tags()?;
    Some((header, client, fields))
}

/// Whether the bytes begin requests with the names of their client. The last may go on.
fn are_requests(bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_proven = false;
    while rest.len() > HEAD {
        let Some(size) = size(rest).and_then(|size| usize::try_from(size).ok()) else { return false };
        let Some((header, Some(client), _)) = request(rest) else { return false };
        let is_name = (1..=CLIENT_ID_MAX).contains(&client.len())
            && client.iter().all(|b| (b' '..=b'~').contains(b))
            && size >= HEAD - 4 + 2 + client.len();
        if !is_name || header.correlation > u32::MAX / 2 {
            return false;
        }
        is_proven = true;
        rest = rest.get(4 + size..).unwrap_or_default();
    }
    is_proven
}

/// Whether a client begins with one whole request, of those that come first on a connection.
fn is_first(bytes: &[u8]) -> bool {
    let is_whole = size(bytes).is_some_and(|size| bytes.len() as u64 == 4 + u64::from(size));
    let is_opening =
        header(bytes).is_some_and(|header| header.api.opens && header.version <= header.api.newest);
    is_whole && is_opening
}

fn begins(start: &Start<'_>) -> bool {
    if start.side != Side::Client {
        return false;
    }
    let is_port = start.is_at(PORT);
    let is_anonymous =
        || request(start.bytes).is_some_and(|(_, client, _)| client.is_none_or(<[u8]>::is_empty));
    match start.is_first {
        true if is_port => is_first(start.bytes) && is_anonymous() || are_requests(start.bytes),
        true => is_first(start.bytes) && are_requests(start.bytes),
        false => are_requests(start.bytes),
    }
}

/// A name, of which the parts that have digits are folded: `orders-17` is `orders-*`.
fn named(name: &[u8], shown: Shown) -> String {
    let name = name.get(..name.len().min(KEY_MAX)).unwrap_or_default();
    if shown.verbatim {
        return name.escape_ascii().to_string();
    }
    let mut key = String::new();
    for part in name.split_inclusive(|b| matches!(b, b'.' | b'-' | b'_')) {
        let (word, separator) = match part.split_last() {
            Some((&last, word)) if matches!(last, b'.' | b'-' | b'_') => (word, Some(last)),
            _ => (part, None),
        };
        if word.iter().all(u8::is_ascii_alphabetic) {
            key.extend(word.iter().map(|&b| char::from(b)));
        } else {
            key.push('*');
        }
        key.extend(separator.map(char::from));
    }
    key
}

impl Decoder for Kafka {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if start.len() < HEAD && (side == Side::Client || start.len() < 4) {
            return if start.len() >= 4 && size(start).is_none() { Length::Invalid } else { Length::More };
        }
        match size(start) {
            Some(size) if side == Side::Server || header(start).is_some() => Length::Is(4 + u64::from(size)),
            _ => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        match message.side {
            Side::Client => self.request(message.bytes, requests),
            Side::Server => self.answer(message, requests),
        }
    }

    fn kept(&self) -> usize {
        KEPT
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        if side == Side::Client {
            return are_requests(start);
        }
        // The id of a request that awaits its answer.
        let correlation = Fields::new(start.get(4..).unwrap_or_default(), false).u32();
        size(start).is_some() && self.open.iter().any(|open| Some(open.correlation) == correlation)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        if side == Side::Server {
            requests.excuse_all();
        }
    }
}

impl Kafka {
    fn request(&mut self, bytes: &[u8], requests: &mut Requests) {
        let Some(header) = header(bytes) else { return };
        let fields = request(bytes).map(|(_, _, fields)| fields);
        let name = fields.and_then(|fields| apis::name(&header, fields)).unwrap_or_default();
        if fields.is_some_and(|fields| apis::wants_no_answer(&header, fields)) {
            return;
        }
        if self.open.len() >= OPEN_MAX
            && let Some(oldest) = self.open.pop_front()
        {
            requests.forget(oldest.of());
        }
        let key = named(name, self.shown);
        let of = header.of();
        requests.ask(of, &Asked { operation: header.api.operation(), key: &key, stream: 0 });
        requests.asked(of);
        if header.api.waits || fields.is_some_and(|fields| apis::may_be_held(&header, fields)) {
            requests.awaits_event(of, true);
        }
        self.open.push_back(header);
    }

    fn answer(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let mut fields = Fields::new(message.bytes.get(4..).unwrap_or_default(), false);
        let Some(correlation) = fields.u32() else { return };
        let Some(place) = self.open.iter().position(|open| open.correlation == correlation) else {
            requests.answered(Of::Id(correlation.into()), Status::Unknown);
            return;
        };
        // The broker keeps the order: what is older was answered in a hole.
        for skipped in self.open.drain(..place) {
            requests.forget(skipped.of());
            requests.counted.abandoned += 1;
        }
        let Some(header) = self.open.pop_front() else { return };
        let of = header.of();
        // A client that does not know the broker's versions must understand the answer.
        let mut fields = fields.compact(header.is_flexible());
        if !header.api.is_versions() {
            fields.tags();
        }
        let answer = apis::answer(&header, fields);
        requests.answer(of);
        if answer.is_empty {
            requests.awaits_event(of, true);
        }
        requests.answered(of, answer.error.map_or(Status::Unknown, errors::status));
    }
}

#[cfg(test)]
mod tests;
