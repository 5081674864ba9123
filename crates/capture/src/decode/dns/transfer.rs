//! Where the answer to a zone transfer ends.
//!
//! The first record is the zone's SOA, and so is the last. What is between them is the zone, or what has changed since the client's
//! version: for each step the older SOA, what was removed, the newer SOA, what was added (RFC 1995 4). So the newest SOA comes a
//! second time where the last additions begin, and a third time at the end.

use super::wire::{self, Header, Reader};

/// A transfer in flight.
#[derive(Clone, Copy, Debug)]
pub(super) struct Transfer {
    pub(super) id: u16,
    is_incremental: bool,
    /// The client's version, which an incremental transfer begins from.
    from: Option<u32>,
    /// The version at the server, and how often its SOA has come.
    to: Option<u32>,
    seen: u8,
    records: u32,
    /// The second record is an older SOA: the answer has changes.
    has_changes: bool,
}

impl Transfer {
    /// The transfer that a query asks for, if it does.
    pub(super) fn new(kind: u16, header: &Header, query: &[u8]) -> Option<Self> {
        let is_incremental = match kind {
            wire::AXFR => false,
            wire::IXFR => true,
            _ => return None,
        };
        let mut reader = Reader::behind_header(query);
        reader.question()?;
        let from = reader.record().filter(|record| record.kind == wire::SOA);
        Some(Self {
            id: header.id,
            is_incremental,
            from: from.and_then(|record| wire::serial(record.data)),
            to: None,
            seen: 0,
            records: 0,
            has_changes: false,
        })
    }

    /// A message of the answer has passed: whether it is the last.
    pub(super) fn passes(&mut self, header: &Header, bytes: &[u8]) -> bool {
        let mut reader = Reader::behind_header(bytes);
        if header.counts[0] == 1 && reader.question().is_none() {
            return false;
        }
        for _ in 0..header.counts[1] {
            let Some(record) = reader.record() else { return false };
            let version = Some(record.data).filter(|_| record.kind == wire::SOA).and_then(wire::serial);
            self.records = self.records.saturating_add(1);
            match (self.records, version) {
                (1, None) => return true,
                (1, version) => (self.to, self.seen) = (version, 1),
                (2, Some(version)) if self.is_incremental && self.to != Some(version) => {
                    self.has_changes = true;
                }
                (_, Some(version)) if !self.has_changes || self.to == Some(version) => {
                    self.seen = self.seen.saturating_add(1);
                }
                _ => {}
            }
        }
        if self.is_incremental && self.records == 1 {
            // The client has the newest version, or what it has not begins in the next message.
            let ahead = self.from.zip(self.to).map(|(from, to)| to.wrapping_sub(from).cast_signed());
            return ahead.is_none_or(|ahead| ahead <= 0);
        }
        self.records == 0 || self.seen >= if self.has_changes { 3 } else { 2 }
    }
}
