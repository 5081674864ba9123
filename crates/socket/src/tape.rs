//! Operations and kernel stamps of one connection, side by side.
//!
//! Without the right to capture packets, the kernel still stamps the bytes of the program's own sockets:
//! "all bytes up to n left (or came) at t". A tape keeps those marks, and the offsets in the two byte streams
//! at which each operation's request and response end; together they yield the operation's stamps.

use std::collections::HashMap;

use record::{Op, OpKind, Side, Stamp};

/// Stream offsets and the times at which they passed, both ascending.
#[derive(Clone, Debug, Default)]
struct Marks {
    marks: Vec<(u64, u64)>,
}

impl Marks {
    fn add(&mut self, end: u64, ns: u64) {
        // Stamps of one direction arrive in order; an out-of-order one is obsolete.
        if self.marks.last().is_none_or(|&(last, _)| end > last) {
            self.marks.push((end, ns));
        }
    }

    /// When the byte before `end` passed: the first mark that covers it.
    fn stamp(&self, end: u64) -> Stamp {
        let index = self.marks.partition_point(|&(covered, _)| covered < end);
        self.marks.get(index).map_or(Stamp::MISSING, |&(_, ns)| Stamp::at(ns))
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    op: Op,
    request_end: u64,
    response_end: Option<u64>,
}

/// The record of one connection.
#[derive(Debug)]
pub struct Tape {
    side: Side,
    received: Marks,
    sent: Marks,
    entries: Vec<Entry>,
    open: HashMap<u32, usize>,
    limit: usize,
    /// Operations beyond the limit.
    pub over_limit: u64,
}

impl Tape {
    /// The tape of a side, for at most `limit` operations.
    #[must_use]
    pub fn new(side: Side, limit: usize) -> Self {
        Self {
            side,
            received: Marks::default(),
            sent: Marks::default(),
            entries: Vec::new(),
            open: HashMap::new(),
            limit,
            over_limit: 0,
        }
    }

    /// Records that all received bytes up to `end` had arrived at `ns`.
    pub fn received(&mut self, end: u64, ns: u64) {
        if self.entries.len() < self.limit {
            self.received.add(end, ns);
        }
    }

    /// Records that all sent bytes up to `end` had left at `ns`.
    pub fn sent(&mut self, end: u64, ns: u64) {
        if self.entries.len() < self.limit {
            self.sent.add(end, ns);
        }
    }

    /// Records a request of `bytes` bytes that ends at `end` of its stream.
    pub fn request(&mut self, tag: u32, kind: OpKind, data_bytes: u32, bytes: u32, end: u64) {
        if self.entries.len() >= self.limit {
            self.over_limit += 1;
            return;
        }
        self.open.insert(tag, self.entries.len());
        let op = Op { tag, kind, data_bytes, request_bytes: bytes, ..Op::default() };
        self.entries.push(Entry { op, request_end: end, response_end: None });
    }

    /// Records the response of `bytes` bytes that ends at `end` of its stream.
    pub fn response(&mut self, tag: u32, bytes: u32, end: u64) {
        if let Some(entry) = self.open.remove(&tag).and_then(|index| self.entries.get_mut(index)) {
            entry.response_end = Some(end);
            entry.op.response_bytes = bytes;
        }
    }

    /// The completed operations of connection number `connection`, with the stamps of this side.
    #[must_use]
    pub fn ops(&self, connection: u32) -> Vec<Op> {
        let (requests, responses) = match self.side {
            Side::Client => (&self.sent, &self.received),
            Side::Server => (&self.received, &self.sent),
        };
        self.entries
            .iter()
            .filter_map(|entry| {
                let (request, response) =
                    (requests.stamp(entry.request_end), responses.stamp(entry.response_end?));
                let Op { tag, kind, data_bytes, request_bytes, response_bytes, .. } = entry.op;
                let seen = Op::seen(self.side, request, response);
                Some(Op { connection, tag, kind, data_bytes, request_bytes, response_bytes, ..seen })
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_the_first_stamp_that_covers_its_last_byte() {
        let mut tape = Tape::new(Side::Server, 10);
        tape.request(7, OpKind::Read, 512, 48, 48);
        tape.request(8, OpKind::Read, 512, 48, 96);
        tape.received(96, 1000);
        tape.response(7, 560, 560);
        tape.response(8, 560, 1120);
        tape.sent(560, 2000);
        tape.sent(1120, 3000);
        let seen = tape.ops(5);
        assert_eq!(seen.len(), 2);
        assert_eq!((seen[0].s1, seen[0].s2), (Stamp::at(1000), Stamp::at(2000)));
        assert_eq!((seen[1].s1, seen[1].s2), (Stamp::at(1000), Stamp::at(3000)));
        assert_eq!(seen[1].connection, 5);
    }

    #[test]
    fn operations_without_a_response_are_left_out_and_missing_stamps_marked() {
        let mut tape = Tape::new(Side::Client, 10);
        tape.request(1, OpKind::Write, 512, 560, 560);
        tape.request(2, OpKind::Write, 512, 560, 1120);
        tape.sent(560, 10);
        tape.response(1, 48, 48);
        let seen = tape.ops(0);
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].c1, seen[0].c2), (Stamp::at(10), Stamp::MISSING));
    }

    #[test]
    fn a_full_tape_counts_dropped_entries() {
        let mut tape = Tape::new(Side::Server, 1);
        tape.request(1, OpKind::Read, 0, 48, 48);
        tape.request(2, OpKind::Read, 0, 48, 96);
        assert_eq!(tape.over_limit, 1);
    }
}
