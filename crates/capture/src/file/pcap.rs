//! The classic format: one header, then packets of one interface.

use super::buffer::Buffer;
use super::{Ending, Found, Interface, PACKET_BYTES_MAX, Stop};

/// Bytes of the file's header.
pub(super) const HEADER_BYTES: usize = 24;

/// The number formats of a file.
#[derive(Debug)]
pub(super) struct Pcap {
    big_endian: bool,
    /// Nanoseconds of one unit of the stamps' fraction.
    unit_ns: u64,
    /// Bytes of a packet's header.
    packet_header: usize,
}

/// Parses the file's header; `None` if it is not one.
pub(super) fn begin(first: &[u8]) -> Option<(Pcap, Interface)> {
    let header = first.first_chunk::<HEADER_BYTES>()?;
    let magic = [header[0], header[1], header[2], header[3]];
    let (big_endian, unit_ns, packet_header) = match magic {
        [0xa1, 0xb2, 0xc3, 0xd4] => (true, 1000, 16),
        [0xd4, 0xc3, 0xb2, 0xa1] => (false, 1000, 16),
        [0xa1, 0xb2, 0x3c, 0x4d] => (true, 1, 16),
        [0x4d, 0x3c, 0xb2, 0xa1] => (false, 1, 16),
        // The variant of an old Linux libpcap: interface, protocol and packet type after each header.
        [0xa1, 0xb2, 0xcd, 0x34] => (true, 1000, 24),
        [0x34, 0xcd, 0xb2, 0xa1] => (false, 1000, 24),
        _ => return None,
    };
    let pcap = Pcap { big_endian, unit_ns, packet_header };
    // The upper bits of the last field state whether frames carry their checksum.
    let link = pcap.word(header, 20) & 0xffff;
    Some((pcap, Interface { link, snap_bytes: 0, ..Interface::default() }))
}

impl Pcap {
    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..).and_then(|b| b.first_chunk::<4>()).copied().unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    /// The next packet.
    #[inline]
    pub(super) fn next(&mut self, buffer: &mut Buffer) -> Result<Found, Stop> {
        let offset = buffer.offset();
        let truncated = |what| Stop::End(Ending::Truncated { offset, what });
        let header = buffer.peek(self.packet_header)?;
        if header.len() < self.packet_header {
            let ending =
                if header.is_empty() { Stop::End(Ending::Complete) } else { truncated("a packet header") };
            return Err(ending);
        }
        let (seconds, fraction) = (self.word(header, 0), self.word(header, 4));
        let (kept, wire_bytes) = (self.word(header, 8) as usize, self.word(header, 12));
        if kept > PACKET_BYTES_MAX {
            let what = "a packet longer than 256 KiB";
            return Err(Stop::End(Ending::Corrupt { offset, what }));
        }
        if buffer.peek(self.packet_header + kept)?.len() < self.packet_header + kept {
            return Err(truncated("a packet"));
        }
        Ok(Found {
            interface: 0,
            time_ns: u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * self.unit_ns,
            outgoing: None,
            before: self.packet_header,
            data: kept,
            behind: 0,
            wire_bytes: wire_bytes.max(kept as u32),
        })
    }
}
