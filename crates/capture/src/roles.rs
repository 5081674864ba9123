//! Which end of a connection is the server, where its SYN is not in the capture.
//!
//! In order of their weight: an end that has answered or been sent a SYN, or that the user or iSCSI names; what the first bytes
//! say; a port that is registered for a service; an end that several others have connected to; a port below those that systems
//! choose for clients; the side that speaks
//! after the longer pauses, or first, which is the client; the lower port.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use record::Side;

use crate::decode;
use crate::held::HeldSegment;
use crate::http::Http;
use crate::packet::{Endpoint, Segment};
use crate::plausible;

/// What is known about the ends of all connections of a capture point.
#[derive(Debug, Default)]
pub(crate) struct Roles {
    ends: HashMap<Endpoint, Known, RandomState>,
}

/// What is known about one end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Known {
    is_server: bool,
    /// The last other end that was connected to it, and whether there were others before.
    peer: Endpoint,
    is_shared: bool,
}

/// Ends that are remembered.
const ENDS_MAX: usize = 8192;

/// How certain a decision is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Certainty {
    /// Later evidence cannot change it.
    Certain,
    /// Later evidence may.
    Likely,
}

/// The lowest port that Linux chooses for clients by default.
const EPHEMERAL_MIN: u16 = 32_768;

/// Registered ports of services above the system ports that database and message servers, proxies and storage use.
const SERVICE_PORTS: [u16; 39] = [
    1433, 1521, 1883, 2049, 2181, 2379, 3000, 3128, 3260, 3306, 3389, 4222, 4420, 5000, 5432, 5601, 5671,
    5672, 5984, 6379, 6432, 6443, 7000, 7687, 8000, 8080, 8086, 8123, 8443, 8888, 9000, 9042, 9092, 9200,
    9300, 11211, 27017, 44818, 50051,
];

fn is_service(port: u16) -> bool {
    port < 1024 || SERVICE_PORTS.binary_search(&port).is_ok()
}

/// The answer if a property holds for one of both.
fn one_of(source: bool, destination: bool) -> Option<Side> {
    match (source, destination) {
        (true, false) => Some(Side::Server),
        (false, true) => Some(Side::Client),
        _ => None,
    }
}

impl Roles {
    /// Notes a SYN: the client's is sent to the server, the server's comes from it.
    pub(crate) fn syn(&mut self, segment: &Segment<'_>) {
        let (server, client) = if segment.flags & Segment::ACK == 0 {
            (segment.destination, segment.source)
        } else {
            (segment.source, segment.destination)
        };
        if self.ends.len() < ENDS_MAX || self.ends.contains_key(&server) {
            let known = Known { is_server: true, peer: client, is_shared: false };
            self.ends.entry(server).or_insert(known).is_server = true;
        }
    }

    /// Notes a connection whose SYN was not seen.
    pub(crate) fn seen(&mut self, one: Endpoint, other: Endpoint) {
        for (end, peer) in [(one, other), (other, one)] {
            if self.ends.len() >= ENDS_MAX && !self.ends.contains_key(&end) {
                continue;
            }
            let known = self.ends.entry(end).or_insert(Known { is_server: false, peer, is_shared: false });
            known.is_shared |= known.peer != peer;
        }
    }

    /// The side of a segment's source, by its ends and its bytes alone.
    pub(crate) fn source(&self, segment: &Segment<'_>) -> (Side, Certainty) {
        let (source, destination) = (segment.source, segment.destination);
        let known = |end: Endpoint, of: fn(&Known) -> bool| self.ends.get(&end).is_some_and(of);
        let by_ends = |of: fn(&Known) -> bool| one_of(known(source, of), known(destination, of));
        let certain = by_ends(|known| known.is_server)
            .or_else(|| spoken(segment.payload))
            .or_else(|| one_of(is_service(source.port), is_service(destination.port)))
            .or_else(|| by_ends(|known| known.is_shared));
        if let Some(side) = certain {
            return (side, Certainty::Certain);
        }
        let by_range = one_of(source.port < EPHEMERAL_MIN, destination.port < EPHEMERAL_MIN);
        let lower = if source.port < destination.port { Side::Server } else { Side::Client };
        (by_range.unwrap_or(lower), Certainty::Likely)
    }

    /// The server among the ends of the first segments of a connection, which is not certain by the first alone.
    pub(crate) fn server(&self, segments: &[HeldSegment]) -> Option<Endpoint> {
        let mut likely = None;
        for held in segments {
            let segment = held.segment();
            let (side, certainty) = self.source(&segment);
            let server = if side == Side::Server { segment.source } else { segment.destination };
            if certainty == Certainty::Certain {
                return Some(server);
            }
            likely.get_or_insert((server, segment));
        }
        let (server, first) = likely?;
        let is_by_range =
            one_of(first.source.port < EPHEMERAL_MIN, first.destination.port < EPHEMERAL_MIN).is_some();
        if is_by_range { Some(server) } else { by_turns(segments).or(Some(server)) }
    }
}

/// The side of a sender whose bytes only one side sends.
fn spoken(bytes: &[u8]) -> Option<Side> {
    let begins = |with: &[u8]| bytes.starts_with(with);
    if Http::is_spoken(Side::Client, bytes) || plausible::begins_a_login(bytes) {
        return Some(Side::Client);
    }
    if Http::is_spoken(Side::Server, bytes) {
        return Some(Side::Server);
    }
    // TLS handshake records: client hello, server hello (RFC 8446 4).
    if let [0x16, 3, _, _, _, kind @ (1 | 2), ..] = bytes {
        return Some(if *kind == 1 { Side::Client } else { Side::Server });
    }
    // HTTP/2's preface; Redis's commands are arrays of strings, but so are lists in its answers.
    if begins(b"PRI * HTTP/2.0") || decode::is_redis_command(bytes) {
        return Some(Side::Client);
    }
    // Greetings and replies of text protocols.
    let is_reply =
        begins(b"+OK") || begins(b"-ERR ") || begins(b"* OK ") || begins(b"220 ") || begins(b"220-");
    is_reply.then_some(Side::Server)
}

/// The server by who speaks when. A client pauses longer than its server, or there would be no idle time. Only a clear
/// difference counts: the median pause of one side before it speaks is at least four times that of the other, and each side has
/// spoken three times. Otherwise who speaks first asks, if the other one has the last word: what came before the capture is
/// the longest pause.
fn by_turns(segments: &[HeldSegment]) -> Option<Endpoint> {
    let with_data: Vec<(Endpoint, u64)> = (segments.iter().map(|held| (held.segment(), held.at.ns)))
        .filter(|(segment, _)| segment.payload_bytes > 0)
        .map(|(segment, ns)| (segment.source, ns))
        .collect();
    let first = with_data.first()?.0;
    let other = with_data.iter().map(|&(source, _)| source).find(|&source| source != first);
    let mut pauses: [Vec<u64>; 2] = Default::default();
    for pair in with_data.windows(2) {
        let ((before, before_ns), (source, ns)) = (pair[0], pair[1]);
        if source != before {
            pauses[usize::from(source != first)].push(ns.saturating_sub(before_ns));
        }
    }
    let [own, others] = pauses.map(|mut pauses| {
        pauses.sort_unstable();
        (pauses.len() >= 3).then(|| pauses[pauses.len() / 2])
    });
    match (own, others) {
        (Some(own), Some(others)) if own >= others.saturating_mul(4).max(1) => other,
        (Some(own), Some(others)) if others >= own.saturating_mul(4).max(1) => Some(first),
        _ => with_data.last().map(|&(last, _)| last).filter(|&last| last != first),
    }
}

#[cfg(test)]
mod tests;
