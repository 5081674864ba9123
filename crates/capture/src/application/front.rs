//! The first turn of a connection whose protocol is unknown, kept until the other side answers: where a later segment of it, or the
//! answer, shows the protocol, what came before is decoded, too.

use record::{Side, Stall};

use super::ProtocolState;
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
    side: Side,
    /// The pace before the turn.
    pace: Pace,
    bytes: Vec<u8>,
    pieces: Vec<Piece>,
}

impl Front {
    /// The turn of a side.
    pub(super) fn new(side: Side, pace: Pace) -> Self {
        Self { side, pace, bytes: Vec::new(), pieces: Vec::new() }
    }

    /// Whose turn it is.
    pub(super) fn side(&self) -> Side {
        self.side
    }

    /// Its bytes so far.
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

    /// Follows the turn as one of the protocol that has shown itself.
    pub(super) fn replay(self, protocol: &mut ProtocolState, observer: &mut impl Observer) {
        let (side, mut rest) = (self.side, &self.bytes[..]);
        match protocol {
            ProtocolState::Decoded(frames) => *frames.pace_mut() = self.pace,
            ProtocolState::Http(http) => *http.pace_mut() = self.pace,
            ProtocolState::Tls(tls) => *tls.pace_mut() = self.pace,
            _ => return,
        }
        for piece in &self.pieces {
            match (piece, &mut *protocol) {
                (Piece::Bytes(count, mark, at), protocol) => {
                    let (bytes, behind) = rest.split_at(*count.min(&rest.len()));
                    match protocol {
                        ProtocolState::Decoded(frames) => {
                            frames.packet(side, *mark);
                            frames.bytes(side, bytes, *at, observer);
                        }
                        ProtocolState::Http(http) => {
                            http.packet(side, *mark);
                            http.bytes(side, bytes, *at, observer);
                        }
                        ProtocolState::Tls(tls) => {
                            tls.packet(side, *mark);
                            tls.bytes(side, bytes, *at, observer);
                        }
                        _ => {}
                    }
                    rest = behind;
                }
                (Piece::Stall(stall), ProtocolState::Decoded(frames)) => {
                    frames.stalled(stall);
                    frames.pace_mut().released(stall);
                }
                (Piece::Stall(stall), ProtocolState::Http(http)) => {
                    http.stalled(stall);
                    http.pace_mut().released(stall);
                }
                (Piece::Stall(_), _) => {}
            }
        }
    }
}
