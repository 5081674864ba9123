//! Requests and replies of the transmission phase.

use thiserror::Error;

const REQUEST: u32 = 0x2560_9513;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const STRUCTURED_REPLY: u32 = 0x668e_33ef;

/// Bytes of a request before its data.
pub const REQUEST_BYTES: usize = 28;
const SIMPLE_BYTES: usize = 16;
const CHUNK_BYTES: usize = 20;
/// Bytes of the largest header of a reply.
pub const HEAD_BYTES_MAX: usize = CHUNK_BYTES;
/// Longest chunk that is an error or a status: a message of 4096 bytes with its head. Longer ones are not accepted.
pub const SMALL_BYTES_MAX: u32 = 4096 + 32;

/// A command with the flags that it is sent with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    /// Read.
    Read,
    /// Write; the data follows.
    Write {
        /// Answered when it is on stable storage.
        fua: bool,
    },
    /// Ends the connection; nothing is answered.
    Disconnect,
    /// Everything that was answered before goes to stable storage.
    Flush,
    /// Zeros are written.
    WriteZeroes {
        /// The range stays allocated.
        no_hole: bool,
    },
    /// What is allocated is asked for, one extent of it.
    BlockStatus,
}

const FUA: u16 = 1;
const NO_HOLE: u16 = 2;
const REQ_ONE: u16 = 8;

/// Appends a request.
pub fn request(command: Command, cookie: u64, offset: u64, length: u32, out: &mut Vec<u8>) {
    let (flags, code) = match command {
        Command::Read => (0, 0_u16),
        Command::Write { fua } => (if fua { FUA } else { 0 }, 1),
        Command::Disconnect => (0, 2),
        Command::Flush => (0, 3),
        Command::WriteZeroes { no_hole } => (if no_hole { NO_HOLE } else { 0 }, 6),
        Command::BlockStatus => (REQ_ONE, 7),
    };
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&code.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&offset.to_be_bytes());
    bytes[24..].copy_from_slice(&length.to_be_bytes());
    out.extend_from_slice(&bytes);
}

/// The header of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Head {
    /// A simple reply: to a read without an error, its data follow.
    Simple {
        /// The cookie of the request.
        cookie: u64,
        /// An error number; 0 for none.
        error: u32,
    },
    /// A chunk of a structured reply.
    Chunk {
        /// The cookie of the request.
        cookie: u64,
        /// It is the last one of its reply.
        is_last: bool,
        /// What it holds.
        kind: ChunkKind,
        /// Bytes that follow.
        length: u32,
    },
}

/// What a chunk holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkKind {
    /// Nothing.
    None,
    /// An offset, and data.
    Data,
    /// An offset, and a number of zeros.
    Hole,
    /// A context, and extents.
    BlockStatus,
    /// An error with a message.
    Error,
    /// An error with a message and an offset.
    ErrorAt,
}

/// What a server must not send.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Protocol {
    /// Neither a simple nor a structured reply.
    #[error("a reply begins with {0:#010x}, which is no reply")]
    Magic(u32),
    /// A chunk of an unknown kind that is no error.
    #[error("a reply has a chunk of the unknown kind {0}")]
    Kind(u16),
    /// A chunk whose length its kind does not have.
    #[error("a chunk of {length} bytes is not possible here")]
    Length {
        /// Its length.
        length: u32,
    },
    /// A reply to a request that is none.
    #[error("a reply to a request that was not sent ({0:#x})")]
    Cookie(u64),
    /// A reply that does not fit its request.
    #[error("a reply does not fit its request: {0}")]
    Unfit(&'static str),
}

impl Head {
    /// Reads a header and returns its length; `None` if more bytes are needed.
    ///
    /// # Errors
    /// What is no header, or has a length that its kind does not have.
    pub fn read(bytes: &[u8]) -> Result<Option<(Self, usize)>, Protocol> {
        let Some(magic) = u32_at(bytes, 0) else { return Ok(None) };
        match magic {
            SIMPLE_REPLY => {
                let (Some(error), Some(cookie)) = (u32_at(bytes, 4), u64_at(bytes, 8)) else {
                    return Ok(None);
                };
                Ok(Some((Self::Simple { cookie, error }, SIMPLE_BYTES)))
            }
            STRUCTURED_REPLY => {
                let (Some(flags), Some(cookie), Some(length)) =
                    (u32_at(bytes, 4), u64_at(bytes, 8), u32_at(bytes, 16))
                else {
                    return Ok(None);
                };
                let (is_last, code) = (flags >> 16 & 1 != 0, flags as u16);
                let (kind, is_possible) = match code {
                    0 => (ChunkKind::None, length == 0),
                    1 => (ChunkKind::Data, length > 8),
                    2 => (ChunkKind::Hole, length == 12),
                    5 => (ChunkKind::BlockStatus, length >= 12 && (length - 4).is_multiple_of(8)),
                    32_770 => (ChunkKind::ErrorAt, length >= 14),
                    // An error, also of an unknown kind, has bit 15.
                    32_768.. => (ChunkKind::Error, length >= 6),
                    other => return Err(Protocol::Kind(other)),
                };
                let is_small = kind == ChunkKind::Data || length <= SMALL_BYTES_MAX;
                if !is_possible || !is_small {
                    return Err(Protocol::Length { length });
                }
                Ok(Some((Self::Chunk { cookie, is_last, kind, length }, CHUNK_BYTES)))
            }
            other => Err(Protocol::Magic(other)),
        }
    }

    /// The cookie of its request.
    #[must_use]
    pub fn cookie(&self) -> u64 {
        match self {
            Self::Simple { cookie, .. } | Self::Chunk { cookie, .. } => *cookie,
        }
    }
}

/// The first extent of a chunk with the status of blocks: how long it is, whether it is a hole, and whether it reads as zeros.
///
/// # Errors
/// An extent without a length.
pub fn extent(chunk: &[u8]) -> Result<Extent, Protocol> {
    let (length, flags) = (u32_at(chunk, 4), u32_at(chunk, 8));
    match (length, flags) {
        (Some(length @ 1..), Some(flags)) => {
            Ok(Extent { length, is_hole: flags & 1 != 0, is_zero: flags & 2 != 0 })
        }
        _ => Err(Protocol::Unfit("an extent without a length")),
    }
}

/// A run of bytes with one status (`base:allocation`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// How many bytes.
    pub length: u32,
    /// Not allocated.
    pub is_hole: bool,
    /// Reads as zeros.
    pub is_zero: bool,
}

/// The error number and the message of an error chunk.
#[must_use]
pub fn error(chunk: &[u8]) -> (u32, String) {
    let number = u32_at(chunk, 0).filter(|&number| number != 0).unwrap_or(errno::EIO);
    let length = chunk.get(4..6).map_or(0, |bytes| usize::from(bytes[0]) << 8 | usize::from(bytes[1]));
    let behind = chunk.get(6..).unwrap_or_default();
    let text = String::from_utf8_lossy(&behind[..length.min(behind.len())]);
    // What a server says goes into logs.
    (number, text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect())
}

/// Error numbers of the protocol, which are Linux's.
pub mod errno {
    /// Operation not permitted.
    pub const EPERM: u32 = 1;
    /// Input/output error.
    pub const EIO: u32 = 5;
    /// Cannot allocate memory.
    pub const ENOMEM: u32 = 12;
    /// Invalid argument.
    pub const EINVAL: u32 = 22;
    /// No space left on device.
    pub const ENOSPC: u32 = 28;
    /// Value too large.
    pub const EOVERFLOW: u32 = 75;
    /// Operation not supported.
    pub const ENOTSUP: u32 = 95;
    /// The server is in the process of being shut down.
    pub const ESHUTDOWN: u32 = 108;
}

/// The name of an error number.
#[must_use]
pub fn error_name(number: u32) -> &'static str {
    match number {
        errno::EPERM => "operation not permitted",
        errno::EIO => "input/output error",
        errno::ENOMEM => "out of memory",
        errno::EINVAL => "invalid argument",
        errno::ENOSPC => "no space left",
        errno::EOVERFLOW => "value too large",
        errno::ENOTSUP => "not supported",
        errno::ESHUTDOWN => "shutting down",
        _ => "unknown error",
    }
}

pub(crate) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_be_bytes(*bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn golden_bytes_of_a_request() {
        let mut out = vec![9];
        request(Command::Write { fua: true }, 0x0102_0304_0506_0708, 0x1000, 512, &mut out);
        let expected = [
            9, 0x25, 0x60, 0x95, 0x13, 0, 1, 0, 1, 1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 0, 0, 0, 0x10, 0, 0, 0,
            2, 0,
        ];
        assert_eq!(out, expected);
        for (command, flags, code) in [
            (Command::Read, 0, 0),
            (Command::Write { fua: false }, 0, 1),
            (Command::Disconnect, 0, 2),
            (Command::Flush, 0, 3),
            (Command::WriteZeroes { no_hole: false }, 0, 6),
            (Command::WriteZeroes { no_hole: true }, 2, 6),
            (Command::BlockStatus, 8, 7),
        ] {
            let mut out = Vec::new();
            request(command, 0, 0, 0, &mut out);
            assert_eq!((out[5], out[7]), (flags, code), "{command:?}");
        }
    }

    fn chunk(flags: u16, code: u16, length: u32) -> Vec<u8> {
        [
            &STRUCTURED_REPLY.to_be_bytes()[..],
            &flags.to_be_bytes(),
            &code.to_be_bytes(),
            &7_u64.to_be_bytes(),
            &length.to_be_bytes(),
        ]
        .concat()
    }

    #[test]
    fn headers_are_read_when_they_are_complete() {
        let simple = [&SIMPLE_REPLY.to_be_bytes()[..], &5_u32.to_be_bytes(), &9_u64.to_be_bytes()].concat();
        for length in 0..16 {
            assert_eq!(Head::read(&simple[..length]), Ok(None));
        }
        assert_eq!(Head::read(&simple), Ok(Some((Head::Simple { cookie: 9, error: 5 }, 16))));
        let data = chunk(1, 1, 9);
        for length in 0..20 {
            assert_eq!(Head::read(&data[..length]), Ok(None));
        }
        let expected = Head::Chunk { cookie: 7, is_last: true, kind: ChunkKind::Data, length: 9 };
        assert_eq!(Head::read(&data), Ok(Some((expected, 20))));
        assert_eq!(Head::read(&[0; 4]), Err(Protocol::Magic(0)));
    }

    #[test]
    fn a_chunk_has_a_length_that_its_kind_has() {
        for (code, length) in [
            (0, 1),
            (1, 8),
            (2, 11),
            (2, 13),
            (5, 4),
            (5, 13),
            (32_769, 5),
            (32_770, 13),
            (32_769, 1 << 20),
            (5, 1 << 20),
        ] {
            assert_eq!(Head::read(&chunk(0, code, length)), Err(Protocol::Length { length }), "{code}");
        }
        assert_eq!(Head::read(&chunk(0, 3, 0)), Err(Protocol::Kind(3)));
        assert!(matches!(
            Head::read(&chunk(0, 40_000, 6)),
            Ok(Some((Head::Chunk { kind: ChunkKind::Error, .. }, _)))
        ));
    }

    #[test]
    fn errors_and_extents_are_read_as_far_as_they_go() {
        assert_eq!(error(&[0, 0, 0, 28, 0, 3, b'a', b'\n', b'b']), (28, "a b".to_owned()));
        assert_eq!(error(&[0, 0, 0, 0, 0xff, 0xff, b'a']), (errno::EIO, "a".to_owned()), "0 is no error");
        let bytes = [&[0, 0, 0, 1][..], &4096_u32.to_be_bytes(), &3_u32.to_be_bytes()].concat();
        assert_eq!(extent(&bytes), Ok(Extent { length: 4096, is_hole: true, is_zero: true }));
        assert!(extent(&[0; 12]).is_err() && extent(&[]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for start in [&[][..], &SIMPLE_REPLY.to_be_bytes(), &STRUCTURED_REPLY.to_be_bytes()] {
                let _ = Head::read(&[start, &bytes].concat());
            }
            let _ = (error(&bytes), extent(&bytes));
        }
    }
}
