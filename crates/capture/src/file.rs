//! Capture files: pcap and pcapng, plain or compressed, from a file or standard input.
//!
//! A file is read once, from front to back, through one buffer; memory does not grow with its length. Truncated or
//! damaged data ends the reading: the frames before it are valid, and [`CaptureFile::ending`] returns where
//! and why it ended.
//!
//! Source: the specifications of the pcap and pcapng formats (draft-ietf-opsawg-pcap, draft-ietf-opsawg-pcapng).

mod ahead;
mod buffer;
mod kind;
mod pcap;
mod pcapng;
mod writer;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use thiserror::Error;

use crate::tls::keys::Keys;
use ahead::Ahead;
use buffer::Buffer;
pub use writer::{InterfaceDescription, PcapngWriter};

/// Largest packet that a file may hold, bytes: the largest snap length in use.
pub const PACKET_BYTES_MAX: usize = 262_144;

/// A frame of a capture file.
#[derive(Clone, Copy, Debug)]
pub struct Frame<'a> {
    /// Its number in the file, from 1, as Wireshark counts.
    pub number: u64,
    /// Its interface, as a place in [`CaptureFile::interfaces`].
    pub interface: u32,
    /// Nanoseconds since the epoch.
    pub time_ns: u64,
    /// Whether the capturing host sent it, if the file states it.
    pub outgoing: Option<bool>,
    /// The captured bytes.
    pub data: &'a [u8],
    /// Its length on the wire, bytes.
    pub wire_bytes: u32,
}

/// A capture interface of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name, if the file has one.
    pub name: Option<String>,
    /// Its LINKTYPE number.
    pub link: u32,
    /// Bytes kept of each packet at most; 0: all.
    pub snap_bytes: u32,
    /// Its rate, bits per second, if the file has it.
    pub bits_per_second: Option<u64>,
    /// Packets that the capturing system dropped, where it counted.
    pub drops: Option<u64>,
    /// Its section, from 0: a file that is several files in a row has one for each, and each is a capture of its own.
    pub section: u32,
}

/// The end of the reading of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// All bytes were read.
    Complete,
    /// The file is truncated.
    Truncated {
        /// Offset of the truncated item, bytes (of the uncompressed content).
        offset: u64,
        /// The truncated item.
        what: &'static str,
    },
    /// The file is invalid.
    Corrupt {
        /// Offset of the invalid item, bytes (of the uncompressed content).
        offset: u64,
        /// The invalid item.
        what: &'static str,
    },
}

/// A capture file cannot be read.
#[derive(Debug, Error)]
pub enum FileError {
    /// A system call failed.
    #[error("{name}: {source}")]
    Io {
        /// The file.
        name: String,
        /// The reason.
        source: io::Error,
    },
    /// The file is not a capture.
    #[error(
        "{name} is not a capture: it is {kind}; supported are pcap and pcapng, plain or compressed with gzip or zstd"
    )]
    NoCapture {
        /// The file.
        name: String,
        /// What it probably is.
        kind: String,
    },
}

/// The parser state of a format.
#[derive(Debug)]
enum Format {
    Pcap(pcap::Pcap),
    Pcapng(pcapng::Pcapng),
}

/// The reason why a parser has no further frame.
#[derive(Debug)]
pub(crate) enum Stop {
    Io(io::Error),
    End(Ending),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        // Decompressors report damaged input with these error kinds.
        match error.kind() {
            io::ErrorKind::UnexpectedEof => {
                Stop::End(Ending::Truncated { offset: 0, what: "the compressed data" })
            }
            io::ErrorKind::InvalidData | io::ErrorKind::InvalidInput | io::ErrorKind::Other => {
                Stop::End(Ending::Corrupt { offset: 0, what: "the compressed data is damaged or cut off" })
            }
            _ => Stop::Io(error),
        }
    }
}

/// The position of a frame in the buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Found {
    interface: u32,
    time_ns: u64,
    outgoing: Option<bool>,
    /// Bytes to skip before the data, bytes of the data, and bytes to skip after it.
    before: usize,
    data: usize,
    behind: usize,
    wire_bytes: u32,
}

/// An open capture file.
#[derive(Debug)]
pub struct CaptureFile {
    name: String,
    buffer: Buffer,
    format: Format,
    interfaces: Vec<Interface>,
    frames: u64,
    ending: Option<Ending>,
    read: Arc<AtomicU64>,
    keys: Keys,
}

/// A reader that counts its bytes.
struct Counted {
    input: Box<dyn Read + Send>,
    read: Arc<AtomicU64>,
}

impl Read for Counted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(buffer)?;
        self.read.fetch_add(read as u64, Ordering::Relaxed);
        Ok(read)
    }
}

impl CaptureFile {
    /// Opens a file; `-` is standard input.
    ///
    /// # Errors
    /// When it cannot be read, or is not a capture.
    pub fn open(path: &Path) -> Result<Self, FileError> {
        let name = path.display().to_string();
        if name == "-" {
            return Self::read("standard input", Box::new(io::stdin()));
        }
        let file = File::open(path).map_err(|source| FileError::Io { name: name.clone(), source })?;
        Self::read(&name, Box::new(file))
    }

    /// Reads a capture from any reader.
    ///
    /// # Errors
    /// As [`CaptureFile::open`].
    pub fn read(name: &str, input: Box<dyn Read + Send>) -> Result<Self, FileError> {
        let failed = |source| FileError::Io { name: name.to_owned(), source };
        let read = Arc::new(AtomicU64::new(0));
        let mut buffer = Buffer::new(Box::new(Counted { input, read: Arc::clone(&read) }));
        let mut layers = Vec::new();
        for _ in 0..2 {
            let first = buffer.peek(4).map_err(failed)?;
            buffer = match first {
                [0x1f, 0x8b, ..] => {
                    layers.push("gzip");
                    let decoder = flate2::read::MultiGzDecoder::new(buffer.into_reader());
                    Buffer::new(Box::new(Ahead::new(Box::new(decoder)).map_err(failed)?))
                }
                [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
                    layers.push("zstd");
                    let decoder = zstd(buffer.into_reader()).map_err(failed)?;
                    Buffer::new(Box::new(Ahead::new(Box::new(decoder)).map_err(failed)?))
                }
                _ => break,
            };
        }
        let no_capture = |buffer: &mut Buffer| {
            let kind = match buffer.peek(kind::LOOKED_AT) {
                Ok(first) => kind::guess(first, &layers),
                Err(_) => format!("damaged {} data", layers.join(" in ")),
            };
            FileError::NoCapture { name: name.to_owned(), kind }
        };
        let mut interfaces = Vec::new();
        let first = match buffer.peek(24) {
            Ok(first) => first,
            Err(error) if matches!(Stop::from(io::Error::from(error.kind())), Stop::Io(_)) => {
                return Err(failed(error));
            }
            Err(_) => return Err(no_capture(&mut buffer)),
        };
        let format = if pcapng::begins(first) {
            Format::Pcapng(pcapng::Pcapng::default())
        } else if let Some((pcap, interface)) = pcap::begin(first) {
            buffer.consume(pcap::HEADER_BYTES);
            interfaces.push(interface);
            Format::Pcap(pcap)
        } else {
            return Err(no_capture(&mut buffer));
        };
        let keys = Keys::default();
        Ok(Self { name: name.to_owned(), buffer, format, interfaces, frames: 0, ending: None, read, keys })
    }

    /// The same file; the secrets that it holds are added to these.
    #[must_use]
    pub fn with_keys(self, keys: Keys) -> Self {
        Self { keys, ..self }
    }

    /// The next frame; `None` at the end of the reading.
    ///
    /// # Errors
    /// When a read fails.
    #[inline]
    pub fn next_frame(&mut self) -> Result<Option<Frame<'_>>, FileError> {
        if self.ending.is_some() {
            return Ok(None);
        }
        let found = match &mut self.format {
            Format::Pcap(pcap) => pcap.next(&mut self.buffer),
            Format::Pcapng(pcapng) => pcapng.next(&mut self.buffer, &mut self.interfaces, &self.keys),
        };
        let found = match found {
            Ok(found) => found,
            Err(Stop::Io(source)) => return Err(FileError::Io { name: self.name.clone(), source }),
            Err(Stop::End(mut ending)) => {
                if let Ending::Truncated { offset, .. } | Ending::Corrupt { offset, .. } = &mut ending
                    && *offset == 0
                {
                    *offset = self.buffer.offset();
                }
                self.ending = Some(ending);
                return Ok(None);
            }
        };
        self.frames += 1;
        let data = self.buffer.hand_out(found.before, found.data, found.behind);
        Ok(Some(Frame {
            number: self.frames,
            interface: found.interface,
            time_ns: found.time_ns,
            outgoing: found.outgoing,
            data,
            wire_bytes: found.wire_bytes,
        }))
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The interfaces found so far.
    #[must_use]
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// Frames so far.
    #[must_use]
    pub fn frames(&self) -> u64 {
        self.frames
    }

    /// Bytes so far, uncompressed.
    #[must_use]
    pub fn offset(&self) -> u64 {
        self.buffer.offset()
    }

    /// Bytes read from the file so far, as stored: compressed ones where it is compressed.
    #[must_use]
    pub fn bytes_read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// How the reading ended, if it has.
    #[must_use]
    pub fn ending(&self) -> Option<&Ending> {
        self.ending.as_ref()
    }

    /// A message about an incomplete reading; `None` if it was complete.
    #[must_use]
    pub fn complaint(&self) -> Option<String> {
        let (name, frames) = (&self.name, self.frames);
        match self.ending.as_ref()? {
            Ending::Complete => None,
            Ending::Truncated { offset, what } => Some(format!(
                "{name} ends in the middle of {what} at byte {offset}: the {frames} frames before it were used"
            )),
            Ending::Corrupt { offset, what } => Some(format!(
                "{name} is damaged at byte {offset}, {what}: the {frames} frames before it were used, nothing \
                 behind it"
            )),
        }
    }
}

/// Largest window of a zstd frame, as a power of two: 128 MiB, what `zstd --long` decodes without asking.
const ZSTD_WINDOW_LOG: u32 = 27;

/// Decompresses zstd: frames one after the other, skippable ones skipped.
fn zstd(input: Box<dyn Read + Send>) -> io::Result<impl Read + Send> {
    let mut decoder = zstd::stream::read::Decoder::new(input)?;
    decoder.window_log_max(ZSTD_WINDOW_LOG)?;
    Ok(decoder)
}

#[cfg(test)]
mod tests;
