//! A request on its way to an NBD server: in pieces, as long as the server takes them.

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::mpsc::SyncSender;

use nbd::Export;
use nbd::wire::Command;

use crate::{Done, Ended, Request, StoreError};

/// Longest range of a request without data, bytes: its field has 32 bits.
const RANGE_BYTES_MAX: u64 = 1 << 30;

/// What is asked for.
pub(super) enum Ask {
    /// A request of the store.
    Request(Request, Done),
    /// Whether a byte is allocated, and for how many from it on the same holds.
    Map { offset: u64, length: u64, reply: SyncSender<Result<(bool, u64), StoreError>> },
    /// A read that was cancelled, and whose data is still to come.
    Cancelled(Piece),
}

/// The piece that is next, or on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Piece {
    pub(super) command: Command,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// Tells that a request has ended. A panic there must not end the connection, which others use.
fn call(done: Done, ended: Ended) {
    if std::panic::catch_unwind(AssertUnwindSafe(|| done(ended))).is_err() {
        tracing::error!("the completion of a disk request panicked");
    }
}

/// A request on its way.
pub(super) struct Flight {
    /// Its number, by which it is cancelled.
    pub(super) id: u64,
    pub(super) ask: Ask,
    /// Bytes of the pieces that are done.
    pub(super) done_bytes: u64,
    /// A flush follows a stable write of a server that has no such write.
    pub(super) is_flushing: bool,
    /// The ranges of the piece that have come: where each begins, and how long it is.
    pub(super) covered: BTreeMap<u32, u32>,
    /// Parts of the reply that have come.
    pub(super) chunks: u32,
    /// What the reply has said so far.
    pub(super) error: Option<(u32, String)>,
    /// What is allocated, as the reply says.
    pub(super) mapped: Option<(bool, u64)>,
    /// A piece was handed to a connection, so that the server may carry it out.
    pub(super) was_sent: bool,
}

impl Flight {
    pub(super) fn new(id: u64, ask: Ask) -> Self {
        Self {
            id,
            ask,
            done_bytes: 0,
            is_flushing: false,
            covered: BTreeMap::new(),
            chunks: 0,
            error: None,
            mapped: None,
            was_sent: false,
        }
    }

    /// The piece that is next, or on its way.
    pub(super) fn piece(&self, export: &Export) -> Piece {
        const FLUSH: Piece = Piece { command: Command::Flush, offset: 0, length: 0 };
        let (request, done) = match &self.ask {
            Ask::Request(request, _) => (request, self.done_bytes),
            Ask::Map { offset, length, .. } => {
                let length = (*length).min(RANGE_BYTES_MAX) as u32;
                return Piece { command: Command::BlockStatus, offset: *offset, length };
            }
            Ask::Cancelled(piece) => return *piece,
        };
        let (offset, length) = request.place();
        let (at, left) = (offset + done, length.saturating_sub(done));
        let data = left.min(export.most_bytes.into()) as u32;
        let range = left.min(RANGE_BYTES_MAX) as u32;
        match request {
            _ if self.is_flushing => FLUSH,
            Request::Read { .. } => Piece { command: Command::Read, offset: at, length: data },
            Request::Write { is_stable, .. } => {
                let command = Command::Write { fua: *is_stable && export.has_fua() };
                Piece { command, offset: at, length: data }
            }
            Request::Discard { .. } => {
                Piece { command: Command::WriteZeroes { no_hole: false }, offset: at, length: range }
            }
            Request::Zero { .. } => {
                Piece { command: Command::WriteZeroes { no_hole: true }, offset: at, length: range }
            }
            Request::Flush | Request::CompareAndWrite { .. } => FLUSH,
        }
    }

    /// The data of the piece that is next, for a write.
    pub(super) fn data(&self, export: &Export) -> Option<&[u8]> {
        let Ask::Request(Request::Write { data, .. }, _) = &self.ask else { return None };
        let piece = self.piece(export);
        let from = self.done_bytes as usize;
        matches!(piece.command, Command::Write { .. }).then(|| &data[from..from + piece.length as usize])
    }

    /// The memory for a part of the piece that is read, `from` its beginning on; `None` for a read that was cancelled.
    pub(super) fn memory(&mut self, from: u32, length: u32) -> Option<&mut [u8]> {
        let Ask::Request(Request::Read { buffer, .. }, _) = &mut self.ask else { return None };
        let at = self.done_bytes as usize + from as usize;
        buffer.get_mut(at..at + length as usize)
    }

    /// A range of the piece has come. Returns whether none of it has come before.
    pub(super) fn cover(&mut self, at: u32, length: u32) -> bool {
        let behind = at + length;
        let before = self.covered.range(..behind).next_back().map(|(&at, &length)| (at, at + length));
        match before {
            Some((_, end)) if end > at => false,
            // In order, as nearly every server sends them, it stays one range.
            Some((start, end)) if end == at => {
                self.covered.insert(start, behind - start);
                true
            }
            _ => {
                self.covered.insert(at, length);
                true
            }
        }
    }

    /// Whether all of a piece has come.
    pub(super) fn is_covered(&self, length: u32) -> bool {
        self.covered.values().sum::<u32>() == length
    }

    /// The piece has ended. Returns whether another one follows.
    pub(super) fn advance(&mut self, export: &Export) -> bool {
        let Ask::Request(request, _) = &self.ask else { return false };
        if self.is_flushing || self.error.is_some() {
            return false;
        }
        let needs_flush = matches!(request, Request::Write { is_stable: true, .. })
            && export.has_flush()
            && !export.has_fua();
        let whole = request.place().1;
        self.done_bytes += u64::from(self.piece(export).length);
        self.rewind();
        if self.done_bytes < whole {
            return true;
        }
        self.is_flushing = needs_flush;
        needs_flush
    }

    /// The connection is lost: the piece is sent again.
    pub(super) fn rewind(&mut self) {
        self.covered.clear();
        self.chunks = 0;
        self.error = None;
        self.mapped = None;
    }

    /// Ends it.
    pub(super) fn end(self, outcome: Result<(), StoreError>) {
        match self.ask {
            Ask::Request(request, done) => call(done, Ended::new(outcome, request)),
            Ask::Map { length, reply, .. } => {
                // Nobody waits any more when the store is closed.
                let _ = reply.send(outcome.map(|()| self.mapped.unwrap_or((true, length))));
            }
            Ask::Cancelled(_) => {}
        }
    }

    /// Ends a request that was cancelled; what follows for it is dropped.
    pub(super) fn cancel(&mut self, export: &Export) {
        let piece = self.piece(export);
        match std::mem::replace(&mut self.ask, Ask::Cancelled(piece)) {
            Ask::Request(request, done) => call(done, Ended::new(Err(StoreError::Cancelled), request)),
            other => self.ask = other,
        }
    }
}
