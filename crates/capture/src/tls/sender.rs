//! One side's stream of records.

use super::cutter::{APPLICATION_DATA, Cutter, HEADER, Header};
use super::messages::Messages;
use super::opaque::Sink;
use super::piece::Piece;
use crate::http::Mark;
use crate::packet::At;

/// Most bytes that are kept: a record and what a segment has behind it.
const KEPT_MAX: usize = 1 << 20;
/// Capacity that is kept for the next record.
const CAPACITY: usize = 32 << 10;

/// Where in its records a stream is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Place {
    #[default]
    Records,
    /// The boundary is searched for, behind so many bytes.
    Lost { bytes: u64 },
    /// The boundary is not known, and everything is taken for data.
    Raw,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Sender {
    pub(super) cutter: Cutter,
    pub(super) place: Place,
    /// The record at hand, and where its bytes go; `None`: they are kept.
    pub(super) header: Header,
    pub(super) sink: Option<Sink>,
    /// Bytes of it are missing.
    pub(super) is_broken: bool,
    kept: Vec<u8>,
    pieces: Vec<Piece>,
    pub(super) messages: Messages,
    /// Sequence number of the next byte, and the numbers of the packet at hand.
    pub(super) seq: Option<u32>,
    pub(super) mark: Mark,
    /// When the first bytes of the record that was taken last passed.
    pub(super) began: Option<At>,
    pub(super) has_spoken: bool,
    /// It has announced that it protects what follows.
    pub(super) has_changed: bool,
    /// Application data has passed.
    pub(super) has_data: bool,
}

impl Sender {
    pub(super) fn advance(&mut self, count: usize) {
        self.seq = self.seq.map(|seq| seq.wrapping_add(count as u32));
    }

    /// A record begins.
    pub(super) fn begin(&mut self, header: Header, sink: Option<Sink>) {
        (self.header, self.sink, self.is_broken) = (header, sink, false);
    }

    /// A stream without a boundary has one again where a segment is filled by records.
    pub(super) fn find_front(&mut self, segment: &[u8]) {
        if self.place == Place::Raw && fills(segment) {
            (self.place, self.cutter) = (Place::Records, Cutter::default());
        }
    }

    /// Keeps bytes of the record at hand, unless it cannot be read anyway.
    pub(super) fn keep(&mut self, bytes: &[u8], piece: Piece) {
        if !self.is_broken && self.kept.len() + bytes.len() <= KEPT_MAX {
            self.kept.extend_from_slice(bytes);
            self.pieces.push(piece);
        }
    }

    pub(super) fn kept(&self) -> &[u8] {
        &self.kept
    }

    pub(super) fn drop_kept(&mut self) {
        self.kept.clear();
        self.pieces.clear();
    }

    /// Drops bytes from the front of what is kept.
    pub(super) fn drop_front(&mut self, count: usize) {
        self.kept.drain(..count.min(self.kept.len()));
        split(&mut self.pieces, count);
        if let Place::Lost { bytes } = &mut self.place {
            *bytes += count as u64;
        }
    }

    /// Takes what is kept, and its pieces.
    pub(super) fn take_kept(&mut self) -> (Vec<u8>, Vec<Piece>) {
        self.began = self.pieces.first().map(|piece| piece.at);
        (std::mem::take(&mut self.kept), std::mem::take(&mut self.pieces))
    }

    /// Gives memory back that was taken.
    pub(super) fn give_back(&mut self, mut record: Vec<u8>, mut pieces: Vec<Piece>) {
        if self.kept.is_empty() && record.capacity() <= CAPACITY {
            record.clear();
            pieces.clear();
            (self.kept, self.pieces) = (record, pieces);
        }
    }

    /// The boundary is lost, or still is: what is kept belongs to what is missing.
    pub(super) fn lose(&mut self, count: u64) {
        let before = if let Place::Lost { bytes } = self.place { bytes } else { 0 };
        let kept = if before > 0 { self.kept.len() as u64 } else { 0 };
        self.drop_kept();
        self.place = Place::Lost { bytes: before + kept + count };
        (self.cutter, self.is_broken, self.sink) = (Cutter::default(), false, None);
        self.messages.lose();
    }

    /// Nothing is decrypted any more.
    pub(super) fn give_up(&mut self) {
        self.drop_kept();
        self.sink = Some(Sink::Skip);
        if self.place != Place::Records {
            self.place = Place::Raw;
        }
    }
}

impl Default for Header {
    fn default() -> Self {
        Self { kind: APPLICATION_DATA, length: 0 }
    }
}

/// Takes bytes off the front of pieces.
pub(super) fn split(pieces: &mut Vec<Piece>, count: usize) -> Vec<Piece> {
    let mut left = count as u32;
    let mut taken = Vec::new();
    while let Some(first) = pieces.first_mut().filter(|_| left > 0) {
        if first.bytes > left {
            taken.push(Piece { bytes: left, ..*first });
            (first.bytes, first.seq) = (first.bytes - left, first.seq.wrapping_add(left));
            break;
        }
        left -= first.bytes;
        taken.push(pieces.remove(0));
    }
    taken
}

/// Whether a segment holds whole records and nothing else.
fn fills(segment: &[u8]) -> bool {
    let mut rest = segment;
    while let Some((head, behind)) = rest.split_first_chunk::<HEADER>() {
        let header = Header::of(*head).filter(|_| head.get(1..3) == Some(&[3, 3]));
        let Some(header) = header else { return false };
        let Some(next) = behind.get(usize::from(header.length)..) else { return false };
        rest = next;
    }
    rest.is_empty() && !segment.is_empty()
}
