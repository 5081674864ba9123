//! Which connection a segment belongs to where tags, labels and tunnels tell tenants apart.
//!
//! Two tenants may use the same addresses and ports in two VLANs or virtual networks. But one connection may pass a capture
//! point in several encapsulations, too: before and behind a router, plain and inside a tunnel, or with another number in
//! each direction (GTP-U, MPLS, asymmetric VLANs). So a tag alone decides nothing: a segment with a new tag belongs to the
//! connection whose sequence numbers it continues, and if there is none, to a new one.

use std::collections::HashMap;

use foldhash::fast::RandomState;

use crate::connection::Connection;
use crate::encapsulation::Tag;
use crate::follow::Flow;
use crate::packet::{Endpoint, Segment};
use crate::table::Ends;

/// Most connections between the same ends that a segment is compared with.
const TENANTS_MAX: usize = 16;
/// Most further tags that are remembered of a connection. A segment with yet another one is compared each time.
const TAGS_MAX: usize = 8;
/// How far a segment may be from what is due, bytes: larger than usual windows. Of two unrelated connections, whose
/// sequence numbers are random, both directions are that close once in 16,000 times.
const NEAR: u32 = 1 << 24;
/// The same where only one direction can be compared: once in 2000 times.
const NEAR_ALONE: u32 = 1 << 20;

/// A connection that has, or had, other packets than plain ones.
#[derive(Debug)]
struct Tenant {
    /// The tag of its first segment, which is part of its key.
    own: Tag,
    /// Its further tags.
    others: Vec<Tag>,
}

/// The connections with tags, by their ends.
#[derive(Debug, Default)]
pub(crate) struct Tenants {
    by_ends: HashMap<(Endpoint, Endpoint), Vec<Tenant>, RandomState>,
}

impl Tenants {
    /// Whether no packet had a tag so far.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.by_ends.is_empty()
    }

    /// The key of the connection to which packets with this key are known to belong.
    pub(crate) fn known(&self, key: &Ends) -> Option<Ends> {
        let tenants = self.by_ends.get(&(key.0, key.1))?;
        let tenant = tenants.iter().find(|tenant| tenant.others.contains(&key.2))?;
        Some((key.0, key.1, tenant.own))
    }

    /// The keys of connections between the same ends that have other tags, the plain one first.
    pub(crate) fn others(&self, key: &Ends) -> impl Iterator<Item = Ends> {
        let ends = (key.0, key.1);
        let tagged = self.by_ends.get(&ends).into_iter().flatten();
        let tags = tagged.map(|tenant| tenant.own).filter(|&tag| tag != Tag::NONE);
        let all = std::iter::once(Tag::NONE).chain(tags);
        let own = key.2;
        all.filter(move |&tag| tag != own).take(TENANTS_MAX).map(move |tag| (ends.0, ends.1, tag))
    }

    /// Remembers that packets with `key` belong to the connection with the key `own`.
    pub(crate) fn join(&mut self, key: &Ends, own: &Ends) {
        let tenant = self.tenant(own);
        if tenant.others.len() < TAGS_MAX {
            tenant.others.push(key.2);
        }
    }

    /// Adds a connection with a key of its own.
    pub(crate) fn begin(&mut self, own: &Ends) {
        if own.2 != Tag::NONE {
            self.tenant(own);
        }
    }

    /// Forgets a connection.
    pub(crate) fn forget(&mut self, own: &Ends) {
        let ends = (own.0, own.1);
        if let Some(tenants) = self.by_ends.get_mut(&ends) {
            tenants.retain(|tenant| tenant.own != own.2);
            if tenants.is_empty() {
                self.by_ends.remove(&ends);
            }
        }
    }

    fn tenant(&mut self, own: &Ends) -> &mut Tenant {
        let tenants = self.by_ends.entry((own.0, own.1)).or_default();
        let place = tenants.iter().position(|tenant| tenant.own == own.2).unwrap_or_else(|| {
            tenants.push(Tenant { own: own.2, others: Vec::new() });
            tenants.len() - 1
        });
        &mut tenants[place]
    }
}

/// Whether a segment in this direction continues a connection, by its sequence numbers.
pub(crate) fn continues(connection: &Connection, flow: Flow, segment: &Segment<'_>) -> bool {
    let (own, other) = (connection.stream(flow), connection.stream(opposite(flow)));
    let acknowledges = segment.flags & Segment::ACK != 0;
    if segment.flags & Segment::SYN != 0 {
        let answers = || acknowledges && other.syn().is_some_and(|syn| syn.wrapping_add(1) == segment.ack);
        return own.syn().map_or_else(answers, |syn| syn == segment.seq);
    }
    let apart =
        |due: Option<u32>, number: u32| due.map(|due| due.wrapping_sub(number).cast_signed().unsigned_abs());
    let sequence = apart(own.due(), segment.seq);
    let acknowledgement = apart(other.due(), segment.ack).filter(|_| acknowledges);
    match (sequence, acknowledgement) {
        (Some(one), Some(another)) => one.max(another) < NEAR,
        (Some(only), None) | (None, Some(only)) => only < NEAR_ALONE,
        (None, None) => false,
    }
}

/// The encapsulation in which the packets of one direction pass that bring something new.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Carrier {
    tag: Tag,
    ack: u32,
    window: u16,
    has_begun: bool,
}

impl Carrier {
    /// Whether a segment in this direction is a copy: it has another encapsulation than the packets before it, and brings
    /// nothing new. A retransmission that takes another path after the original has passed looks the same, and is one.
    #[inline]
    pub(crate) fn is_copy(&mut self, connection: &Connection, flow: Flow, segment: &Segment<'_>) -> bool {
        if self.tag != segment.tag && self.has_begun && self.brings_nothing(connection, flow, segment) {
            return true;
        }
        *self = Self { tag: segment.tag, ack: segment.ack, window: segment.window, has_begun: true };
        false
    }

    fn brings_nothing(self, connection: &Connection, flow: Flow, segment: &Segment<'_>) -> bool {
        if segment.flags & (Segment::FIN | Segment::RST) != 0 {
            return false;
        }
        let stream = connection.stream(flow);
        if segment.flags & Segment::SYN != 0 {
            return stream.syn() == Some(segment.seq);
        }
        let acknowledges_more = segment.ack.wrapping_sub(self.ack).cast_signed() > 0;
        if segment.payload_bytes == 0 {
            return !acknowledges_more && (segment.ack != self.ack || segment.window == self.window);
        }
        let end = segment.seq.wrapping_add(segment.payload_bytes as u32);
        !acknowledges_more && stream.due().is_some_and(|due| due.wrapping_sub(end).cast_signed() >= 0)
    }
}

fn opposite(flow: Flow) -> Flow {
    match flow {
        Flow::Requests => Flow::Responses,
        Flow::Responses => Flow::Requests,
    }
}

#[cfg(test)]
mod tests;
