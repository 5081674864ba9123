//! Bytes of one segment.

use crate::http::Mark;
use crate::packet::At;

/// Bytes of a record that came in one segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Piece {
    pub(super) bytes: u32,
    pub(super) at: At,
    /// Numbers of the packet.
    pub(super) mark: Mark,
    /// Sequence number of the first byte.
    pub(super) seq: u32,
}

/// Cuts the content of a record into the parts that came in its pieces: `before` bytes of the record are none of it. The last byte is the
/// last piece's, because nobody can read a record before it is complete.
pub(super) fn shares(
    pieces: &[Piece],
    before: usize,
    content: usize,
) -> impl Iterator<Item = (usize, Piece)> {
    let (mut passed, mut taken) = (0, 0);
    let last = pieces.len().saturating_sub(1);
    pieces.iter().enumerate().filter_map(move |(place, &piece)| {
        passed += piece.bytes as usize;
        let end = if place == last {
            content
        } else {
            passed.saturating_sub(before).min(content.saturating_sub(1))
        };
        let count = end.saturating_sub(taken);
        taken += count;
        (count > 0).then_some((count, piece))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shared(pieces: &[u32], before: usize, content: usize) -> Vec<(usize, u64)> {
        let piece = |(place, &bytes): (usize, &u32)| Piece {
            bytes,
            at: At { ns: place as u64, frame: 0 },
            mark: Mark::default(),
            seq: 0,
        };
        let pieces: Vec<Piece> = pieces.iter().enumerate().map(piece).collect();
        shares(&pieces, before, content).map(|(count, piece)| (count, piece.at.ns)).collect()
    }

    #[test]
    fn content_has_the_times_of_its_segments() {
        assert_eq!(shared(&[38], 5, 16), [(16, 0)]);
        // The nonce, two parts of the content, and the tag alone in the last segment.
        assert_eq!(shared(&[8, 10, 10, 6, 10], 8, 20), [(10, 1), (9, 2), (1, 4)]);
        assert_eq!(shared(&[30, 20, 10], 8, 36), [(22, 0), (13, 1), (1, 2)]);
        assert_eq!(shared(&[9, 9], 0, 1), [(1, 1)]);
        assert_eq!(shared(&[9, 9], 0, 0), []);
    }
}
