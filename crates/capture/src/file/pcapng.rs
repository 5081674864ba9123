//! The block format: sections, interfaces, packets with options.

use super::buffer::Buffer;
use crate::tls::keys::Keys;

use super::{Ending, Found, Interface, PACKET_BYTES_MAX, Stop};

/// Block types (draft-ietf-opsawg-pcapng 4).
const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const OLD_PACKET: u32 = 2;
const SIMPLE_PACKET: u32 = 3;
const STATISTICS: u32 = 5;
const PACKET: u32 = 6;
const SECRETS: u32 = 10;

/// The secrets of a block that are a key log of TLS (draft-ietf-opsawg-pcapng 4.7).
const TLS_KEY_LOG: u32 = 0x544c_534b;

/// Longest block, bytes.
const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Most interfaces of a file.
const INTERFACES_MAX: usize = 4096;
/// Longest name that is kept, bytes.
const NAME_BYTES_MAX: usize = 256;

/// The stamp format of an interface.
#[derive(Clone, Copy, Debug)]
struct Clock {
    /// Units per second.
    per_second: u64,
    /// Seconds to add.
    offset_s: i64,
    snap_bytes: u32,
}

/// The state between blocks.
#[derive(Debug, Default)]
pub(super) struct Pcapng {
    big_endian: bool,
    /// Where this section's interfaces begin among all.
    first: usize,
    /// Sections so far.
    sections: u32,
    clocks: Vec<Clock>,
}

/// Whether the bytes begin a section.
pub(super) fn begins(first: &[u8]) -> bool {
    first.starts_with(&SECTION.to_be_bytes())
        && matches!(first.get(8..12), Some([0x1a, 0x2b, 0x3c, 0x4d] | [0x4d, 0x3c, 0x2b, 0x1a]))
}

impl Pcapng {
    #[inline]
    fn word(&self, bytes: &[u8], at: usize) -> u32 {
        let word = bytes.get(at..).and_then(|b| b.first_chunk::<4>()).copied().unwrap_or_default();
        if self.big_endian { u32::from_be_bytes(word) } else { u32::from_le_bytes(word) }
    }

    #[inline]
    fn half(&self, bytes: &[u8], at: usize) -> u16 {
        let half = bytes.get(at..).and_then(|b| b.first_chunk::<2>()).copied().unwrap_or_default();
        if self.big_endian { u16::from_be_bytes(half) } else { u16::from_le_bytes(half) }
    }

    /// The next packet; processes the blocks before it.
    #[inline]
    pub(super) fn next(
        &mut self,
        buffer: &mut Buffer,
        interfaces: &mut Vec<Interface>,
        keys: &Keys,
    ) -> Result<Found, Stop> {
        loop {
            let offset = buffer.offset();
            let corrupt = |what| Stop::End(Ending::Corrupt { offset, what });
            let truncated = |what| Stop::End(Ending::Truncated { offset, what });
            let head = buffer.peek(12)?;
            if head.len() < 12 {
                let ending = if head.is_empty() { Stop::End(Ending::Complete) } else { truncated("a block") };
                return Err(ending);
            }
            if begins(head) {
                self.big_endian = head[8] == 0x1a;
                self.first = interfaces.len();
                self.sections = self.sections.saturating_add(1);
            }
            let (kind, length) = (self.word(head, 0), self.word(head, 4) as usize);
            if length < 12 || !length.is_multiple_of(4) || length > BLOCK_BYTES_MAX {
                return Err(corrupt("a block of an invalid length"));
            }
            let block = buffer.peek(length)?;
            let Some(block) = block.get(..length) else { return Err(truncated("a block")) };
            if self.word(block, length - 4) as usize != length {
                return Err(corrupt("a block whose two lengths differ"));
            }
            let body = &block[8..length - 4];
            let found = match kind {
                SECTION if !begins(block) => return Err(corrupt("a section without its byte order")),
                PACKET => Some(self.packet(body, length).map_err(corrupt)?),
                OLD_PACKET => Some(self.old_packet(body, length).map_err(corrupt)?),
                SIMPLE_PACKET => Some(self.simple_packet(body, length).map_err(corrupt)?),
                INTERFACE => {
                    self.interface(body, interfaces).map_err(corrupt)?;
                    None
                }
                SECRETS => {
                    self.secrets(body, keys);
                    None
                }
                STATISTICS => {
                    self.statistics(body, interfaces);
                    None
                }
                _ => None,
            };
            if let Some(found) = found {
                return Ok(found);
            }
            buffer.consume(length);
        }
    }

    /// The clock of a packet's interface, and its place among all.
    #[inline]
    fn clock(&self, number: u32) -> Result<(u32, Clock), &'static str> {
        let place = self.first + number as usize;
        let clock = self.clocks.get(place).copied();
        clock.map(|clock| (place as u32, clock)).ok_or("a packet of an undeclared interface")
    }

    #[inline]
    fn packet(&self, body: &[u8], length: usize) -> Result<Found, &'static str> {
        if body.len() < 20 {
            return Err("a packet block that is too short");
        }
        let (interface, clock) = self.clock(self.word(body, 0))?;
        let (high, low) = (self.word(body, 4), self.word(body, 8));
        let (kept, wire_bytes) = (self.word(body, 12) as usize, self.word(body, 16));
        let padded = kept.next_multiple_of(4);
        if kept > PACKET_BYTES_MAX || padded > body.len() - 20 {
            return Err("a packet longer than its block");
        }
        let mut outgoing = None;
        if body.len() > 20 + padded {
            self.options(&body[20 + padded..], |code, value| {
                // epb_flags: the direction in the lowest two bits.
                if code == 2 && value.len() == 4 {
                    outgoing = match self.word(value, 0) & 3 {
                        1 => Some(false),
                        2 => Some(true),
                        _ => None,
                    };
                }
            });
        }
        Ok(Found {
            interface,
            time_ns: clock.ns(high, low)?,
            outgoing,
            before: 28,
            data: kept,
            behind: length - 28 - kept,
            wire_bytes: wire_bytes.max(kept as u32),
        })
    }

    fn old_packet(&self, body: &[u8], length: usize) -> Result<Found, &'static str> {
        if body.len() < 20 {
            return Err("a packet block that is too short");
        }
        let (interface, clock) = self.clock(self.half(body, 0).into())?;
        let (high, low) = (self.word(body, 4), self.word(body, 8));
        let (kept, wire_bytes) = (self.word(body, 12) as usize, self.word(body, 16));
        if kept > PACKET_BYTES_MAX || kept > body.len() - 20 {
            return Err("a packet longer than its block");
        }
        let time_ns = clock.ns(high, low)?;
        let behind = length - 28 - kept;
        let wire_bytes = wire_bytes.max(kept as u32);
        Ok(Found { interface, time_ns, outgoing: None, before: 28, data: kept, behind, wire_bytes })
    }

    fn simple_packet(&self, body: &[u8], length: usize) -> Result<Found, &'static str> {
        let (interface, clock) = self.clock(0)?;
        let wire_bytes = self.word(body, 0);
        let snap = if clock.snap_bytes == 0 { u32::MAX } else { clock.snap_bytes };
        let kept = wire_bytes.min(snap) as usize;
        if kept > PACKET_BYTES_MAX || body.len() < 4 || kept > body.len() - 4 {
            return Err("a packet longer than its block");
        }
        let behind = length - 12 - kept;
        Ok(Found { interface, time_ns: 0, outgoing: None, before: 12, data: kept, behind, wire_bytes })
    }

    fn interface(&mut self, body: &[u8], interfaces: &mut Vec<Interface>) -> Result<(), &'static str> {
        if body.len() < 8 {
            return Err("an interface block that is too short");
        }
        if interfaces.len() >= INTERFACES_MAX {
            return Err("more than 4096 interfaces");
        }
        let link = u32::from(self.half(body, 0));
        let snap_bytes = self.word(body, 4);
        let mut interface =
            Interface { link, snap_bytes, section: self.sections.saturating_sub(1), ..Interface::default() };
        let mut clock = Clock { per_second: 1_000_000, offset_s: 0, snap_bytes };
        let mut impossible = false;
        self.options(&body[8..], |code, value| match (code, value) {
            (2, name) => {
                let name = &name[..name.len().min(NAME_BYTES_MAX)];
                interface.name = Some(String::from_utf8_lossy(name).trim_end_matches('\0').to_owned());
            }
            (8, value) => interface.bits_per_second = self.long(value),
            (9, [unit, ..]) => {
                let power = u32::from(unit & 0x7f);
                let per_second =
                    if unit & 0x80 != 0 { 1_u64.checked_shl(power) } else { 10_u64.checked_pow(power) };
                impossible = per_second.is_none();
                clock.per_second = per_second.unwrap_or(1);
            }
            (14, value) => clock.offset_s = self.long(value).unwrap_or(0).cast_signed(),
            _ => {}
        });
        if impossible {
            return Err("an interface whose stamp resolution is too fine");
        }
        interfaces.push(interface);
        self.clocks.push(clock);
        Ok(())
    }

    fn statistics(&self, body: &[u8], interfaces: &mut [Interface]) {
        let Some(rest) = body.get(12..) else { return };
        let place = self.first + self.word(body, 0) as usize;
        let Some(interface) = interfaces.get_mut(place) else { return };
        let mut drops = None;
        self.options(rest, |code, value| {
            // isb_ifdrop and isb_osdrop.
            if matches!(code, 5 | 7)
                && let Some(count) = self.long(value)
            {
                drops = Some(drops.unwrap_or(0_u64).saturating_add(count));
            }
        });
        // Later blocks also count from the beginning.
        interface.drops = drops.or(interface.drops);
    }

    /// Secrets of connections. What is wrong in them is nothing that the packets need.
    fn secrets(&self, body: &[u8], keys: &Keys) {
        let length = self.word(body, 4) as usize;
        if self.word(body, 0) == TLS_KEY_LOG
            && let Some(log) = body.get(8..).and_then(|rest| rest.get(..length))
        {
            // A limit that is reached leaves those before it.
            let _ = keys.read(log);
        }
    }

    fn long(&self, value: &[u8]) -> Option<u64> {
        let value = value.first_chunk::<8>().copied()?;
        Some(if self.big_endian { u64::from_be_bytes(value) } else { u64::from_le_bytes(value) })
    }

    /// Iterates over a list of options; a malformed option ends it.
    fn options<'a>(&self, mut rest: &'a [u8], mut take: impl FnMut(u16, &'a [u8])) {
        while rest.len() >= 4 {
            let (code, length) = (self.half(rest, 0), usize::from(self.half(rest, 2)));
            if code == 0 {
                return;
            }
            let Some(value) = rest.get(4..4 + length) else { return };
            take(code, value);
            rest = rest.get(4 + length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// The latest time of a packet, nanoseconds since the epoch: in the year 2116, so that times and their sums and differences have
/// room in 64 bits. The other format ends in the year 2106.
const TIME_MAX_NS: u64 = 1 << 62;

impl Clock {
    /// Nanoseconds since the epoch.
    ///
    /// # Errors
    /// For a time beyond [`TIME_MAX_NS`]: the stamp is damaged.
    #[inline]
    fn ns(self, high: u32, low: u32) -> Result<u64, &'static str> {
        let units = u64::from(high) << 32 | u64::from(low);
        let ns = match self.per_second {
            1_000_000_000 => units,
            1_000_000 => units.saturating_mul(1000),
            per_second => {
                let ns = u128::from(units) * 1_000_000_000 / u128::from(per_second.max(1));
                u64::try_from(ns).unwrap_or(u64::MAX)
            }
        };
        let ns = ns.saturating_add_signed(self.offset_s.saturating_mul(1_000_000_000));
        if ns > TIME_MAX_NS { Err("a packet with a time beyond the year 2116") } else { Ok(ns) }
    }
}
