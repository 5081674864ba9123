//! The client's first turn of a connection whose protocol is unknown, kept until the server answers: where the answer shows the
//! protocol, the requests before it are decoded, too.

use record::Stall;

use crate::decode::Frames;
use crate::http::Mark;
use crate::in_flight::Pace;
use crate::observer::Observer;
use crate::packet::At;

/// Longest turn that is kept, bytes.
const BYTES_MAX: usize = 2048;
/// Most segments and waits of one.
const PIECES_MAX: usize = 64;

/// What has happened.
#[derive(Debug)]
enum Piece {
    /// So many bytes passed in a packet.
    Bytes(usize, Mark, At),
    Stall(Stall),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Front {
    /// The pace before the turn.
    pace: Pace,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Front {
    pub(super) fn new(pace: Pace) -> Self {
        Self { pace, bytes: Vec::new(), pieces: Vec::new() }
    }

    /// The client's bytes so far.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Keeps a segment. False if there is no room for it.
    pub(super) fn segment(&mut self, bytes: &[u8], mark: Mark, at: At) -> bool {
        let has_room = self.bytes.len() + bytes.len() <= BYTES_MAX && self.pieces.len() < PIECES_MAX;
        if has_room {
            self.bytes.extend_from_slice(bytes);
            self.pieces.push(Piece::Bytes(bytes.len(), mark, at));
        }
        has_room
    }

    /// Keeps a wait.
    pub(super) fn stalled(&mut self, stall: &Stall) {
        if self.pieces.len() < PIECES_MAX {
            self.pieces.push(Piece::Stall(*stall));
        }
    }

    /// Decodes the turn.
    pub(super) fn replay(self, frames: &mut Frames, observer: &mut impl Observer) {
        let mut rest = &self.bytes[..];
        *frames.pace_mut() = self.pace;
        for piece in &self.pieces {
            match piece {
                Piece::Bytes(count, mark, at) => {
                    let (bytes, behind) = rest.split_at(*count.min(&rest.len()));
                    frames.packet(record::Side::Client, *mark);
                    frames.bytes(record::Side::Client, bytes, *at, observer);
                    rest = behind;
                }
                Piece::Stall(stall) => {
                    frames.stalled(stall);
                    frames.pace_mut().released(stall);
                }
            }
        }
    }
}
