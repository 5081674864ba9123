//! The chunked transfer coding (RFC 9112 7.1), decoded without keeping any of it.

use super::response::Malformed;

/// Longest line with the size of a chunk, bytes.
const SIZE_LINE_MAX: usize = 4 << 10;
/// Most bytes of trailer fields.
const TRAILERS_MAX: usize = 16 << 10;

/// The next expected element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Expect {
    Size { digits: u8 },
    Extension,
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    Trailer { is_empty: bool },
    TrailerLineFeed { is_last: bool },
}

/// A chunked body that is being received.
#[derive(Clone, Debug)]
pub(super) struct Chunked {
    expect: Expect,
    /// Bytes of the current chunk that are missing, or its size as far as it was read.
    left: u64,
    /// Bytes of the current size line, or of all trailer fields.
    line_bytes: usize,
    /// Bytes of data received.
    pub(super) data_bytes: u64,
}

/// What a piece of a body brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fed {
    /// Bytes that belong to the body.
    pub(super) used: usize,
    /// Whether the body is complete.
    pub(super) is_complete: bool,
}

impl Chunked {
    pub(super) fn new() -> Self {
        Self { expect: Expect::Size { digits: 0 }, left: 0, line_bytes: 0, data_bytes: 0 }
    }

    /// Processes the next bytes, up to the end of the body.
    pub(super) fn feed(&mut self, bytes: &[u8]) -> Result<Fed, Malformed> {
        let mut used = 0;
        while let Some(&byte) = bytes.get(used) {
            if self.expect == Expect::Data {
                let here = usize::try_from(self.left).unwrap_or(usize::MAX).min(bytes.len() - used);
                used += here;
                self.left -= here as u64;
                self.data_bytes += here as u64;
                if self.left == 0 {
                    self.expect = Expect::DataReturn;
                }
                continue;
            }
            used += 1;
            if self.step(byte)? {
                return Ok(Fed { used, is_complete: true });
            }
        }
        Ok(Fed { used, is_complete: false })
    }

    /// Processes a byte outside of data; returns whether it was the last one of the body.
    fn step(&mut self, byte: u8) -> Result<bool, Malformed> {
        self.expect = match (self.expect, byte) {
            (Expect::Size { digits }, _) if byte.is_ascii_hexdigit() => {
                // Sixteen digits would fit, but no such number of bytes can be counted to its end.
                if digits == 15 {
                    return Err(Malformed::Chunk);
                }
                let digit = (byte as char).to_digit(16).unwrap_or(0);
                self.left = (self.left << 4) | u64::from(digit);
                Expect::Size { digits: digits + 1 }
            }
            (Expect::Size { digits: 1.. } | Expect::Extension, b'\r') => Expect::SizeLineFeed,
            (Expect::Size { digits: 1.. }, b';' | b' ' | b'\t') => {
                self.counted(SIZE_LINE_MAX, Expect::Extension)?
            }
            (Expect::Extension, _) if byte != b'\n' => self.counted(SIZE_LINE_MAX, Expect::Extension)?,
            (Expect::SizeLineFeed, b'\n') => {
                self.line_bytes = 0;
                if self.left == 0 { Expect::Trailer { is_empty: true } } else { Expect::Data }
            }
            (Expect::DataReturn, b'\r') => Expect::DataLineFeed,
            (Expect::DataLineFeed, b'\n') => Expect::Size { digits: 0 },
            (Expect::Trailer { is_empty }, b'\r') => Expect::TrailerLineFeed { is_last: is_empty },
            (Expect::Trailer { .. }, _) if byte != b'\n' => {
                self.counted(TRAILERS_MAX, Expect::Trailer { is_empty: false })?
            }
            (Expect::TrailerLineFeed { is_last: true }, b'\n') => return Ok(true),
            (Expect::TrailerLineFeed { is_last: false }, b'\n') => Expect::Trailer { is_empty: true },
            _ => return Err(Malformed::Chunk),
        };
        Ok(false)
    }

    /// Counts a byte that is not data, and returns what is expected next.
    fn counted(&mut self, most: usize, next: Expect) -> Result<Expect, Malformed> {
        self.line_bytes += 1;
        if self.line_bytes > most { Err(Malformed::ChunkLine) } else { Ok(next) }
    }
}
