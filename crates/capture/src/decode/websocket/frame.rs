//! Frames of WebSocket: their headers (RFC 6455 5.2), and which bytes show that frames go on behind a hole.

use record::Side;

pub(super) const CONTINUATION: u8 = 0;
pub(super) const TEXT: u8 = 1;
const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;

/// Longest payload that is believed: implementations accept megabytes.
const PAYLOAD_MAX: u64 = 4 << 30;
/// Longest payload of a control frame (RFC 6455 5.5).
pub(super) const CONTROL_MAX: u64 = 125;
/// Longest header.
pub(super) const HEADER_MAX: usize = 14;

/// What begins with some bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// More bytes are needed to tell.
    More,
    Header(Header),
    Invalid,
}

/// A frame's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) opcode: u8,
    pub(super) is_final: bool,
    is_compressed: bool,
    mask: Option<[u8; 4]>,
    bytes: usize,
    payload: u64,
}

impl Header {
    /// Reads the header of a frame of the side.
    pub(super) fn read(side: Side, start: &[u8]) -> Read {
        let &[first, second, ref rest @ ..] = start else { return Read::More };
        let (is_final, opcode) = (first & 0x80 > 0, first & 0xf);
        let (is_compressed, is_reserved) = (first & 0x40 > 0, first & 0x30 > 0);
        let is_control = opcode >= CLOSE;
        let is_known = matches!(opcode, CONTINUATION | TEXT | BINARY | CLOSE | PING | PONG);
        // Compression (RFC 7692 6) is stated in the first frame of a message.
        let may_be_compressed = matches!(opcode, TEXT | BINARY);
        // Clients mask what they send, servers do not (RFC 6455 5.1).
        let is_masked = second & 0x80 > 0;
        if !is_known
            || is_reserved
            || is_compressed && !may_be_compressed
            || is_masked != (side == Side::Client)
            || is_control && (!is_final || u64::from(second & 0x7f) > CONTROL_MAX)
        {
            return Read::Invalid;
        }
        // A length has the fewest bytes that hold it.
        let (payload, behind, least) = match second & 0x7f {
            126 => match rest.split_first_chunk() {
                Some((length, rest)) => (u16::from_be_bytes(*length).into(), rest, 126),
                None => return Read::More,
            },
            127 => match rest.split_first_chunk() {
                Some((length, rest)) => (u64::from_be_bytes(*length), rest, 1 << 16),
                None => return Read::More,
            },
            length => (length.into(), rest, 0),
        };
        if !(least..=PAYLOAD_MAX).contains(&payload) {
            return Read::Invalid;
        }
        let (mask, behind) = match behind.split_first_chunk() {
            Some((mask, behind)) if is_masked => (Some(*mask), behind),
            None if is_masked => return Read::More,
            _ => (None, behind),
        };
        let bytes = start.len() - behind.len();
        Read::Header(Self { opcode, is_final, is_compressed, mask, bytes, payload })
    }

    /// Bytes of the frame.
    pub(super) fn length(&self) -> u64 {
        self.bytes as u64 + self.payload
    }

    /// Whether it is a part of a message, rather than a control frame.
    pub(super) fn is_data(&self) -> bool {
        self.opcode < CLOSE
    }

    /// The payload, unmasked, if the frame is all there.
    pub(super) fn payload(&self, frame: &[u8]) -> Option<Vec<u8>> {
        let payload = frame.get(self.bytes..)?.get(..usize::try_from(self.payload).ok()?)?;
        let mask = self.mask.unwrap_or_default();
        Some(payload.iter().zip(mask.iter().cycle()).map(|(byte, mask)| byte ^ mask).collect())
    }

    /// How much the frame shows that it is one, in bits: what data have by chance is halved by each. `segment` begins with it. None
    /// if it is none, or one that data with a pattern look like.
    fn proof(&self, segment: &[u8]) -> Option<u32> {
        let header = segment.get(..self.bytes)?;
        let behind = segment.get(self.bytes..).unwrap_or_default();
        let has_pattern = match self.mask {
            Some([first, ref rest @ ..]) => rest.iter().all(|&byte| byte == first),
            None => behind.starts_with(header),
        };
        let is_odd = self.is_compressed && !self.is_final || self.opcode == CONTINUATION && self.payload == 0;
        if has_pattern || is_odd {
            return None;
        }
        let mut proof = HEADER_BITS;
        if self.opcode == TEXT && self.is_final && !self.is_compressed && behind.len() as u64 >= self.payload
        {
            let text = String::from_utf8(self.payload(segment)?).ok()?;
            if self.mask.is_some() {
                let printable = text.bytes().filter(|byte| (b' '..=b'~').contains(byte)).count();
                proof += (printable as u32).min(TEXT_BITS);
            }
        }
        if behind.len() as u64 == self.payload {
            proof += END_BITS;
        }
        Some(proof)
    }
}

/// What a valid first byte and the right mask bit prove: 13 of 256, and one of two.
const HEADER_BITS: u32 = 5;
/// That the frame ends where its segment does.
const END_BITS: u32 = 7;
/// Most that the text of a masked frame proves; each of its bytes is a printable one by chance three times in eight.
const TEXT_BITS: u32 = 32;
/// A proof.
const ENOUGH_BITS: u32 = 32;

/// Frames that seem to follow each other where no boundary is known.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Chain {
    /// Bytes of the last one that are still to come.
    left: u64,
    proof: u32,
    /// A message has begun that goes on in a continuation, if it is known.
    is_open: Option<bool>,
}

impl Chain {
    /// Whether frames begin at the front of a segment, as it and those before it show.
    pub(super) fn proves(&mut self, side: Side, segment: &[u8]) -> bool {
        self.proves_by(ENOUGH_BITS, side, segment)
    }

    /// As [`Chain::proves`], where a side has sent nothing so far that was seen: its first bytes begin a frame, so that less is enough.
    pub(super) fn proves_first(&mut self, side: Side, segment: &[u8]) -> bool {
        self.proves_by(HEADER_BITS + END_BITS, side, segment)
    }

    fn proves_by(&mut self, enough: u32, side: Side, segment: &[u8]) -> bool {
        let is_boundary = self.left == 0;
        if self.follow(side, segment).is_some() {
            return is_boundary && self.proof >= enough;
        }
        *self = Self::default();
        if self.follow(side, segment).is_none() {
            *self = Self::default();
        }
        self.proof >= enough
    }

    /// Bytes are missing: the rest of a frame, as in a capture that keeps the fronts of packets, or frames.
    pub(super) fn absent(&mut self, count: u64) {
        match self.left.checked_sub(count) {
            Some(left) if self.left > 0 => {
                self.left = left;
                self.proof += if left == 0 { END_BITS } else { 0 };
            }
            _ => *self = Self::default(),
        }
    }

    /// Goes on with a segment. None if no frame follows the last one.
    fn follow(&mut self, side: Side, segment: &[u8]) -> Option<()> {
        let passed = self.left.min(segment.len() as u64);
        self.left -= passed;
        let mut rest = segment.get(passed as usize..)?;
        if passed > 0 && self.left == 0 && rest.is_empty() {
            self.proof += END_BITS;
        }
        while !rest.is_empty() {
            let Read::Header(header) = Header::read(side, rest) else { return None };
            if header.is_data() {
                let begins = header.opcode != CONTINUATION;
                if self.is_open == Some(begins) {
                    return None;
                }
                self.is_open = Some(!header.is_final);
            }
            self.proof = self.proof.saturating_add(header.proof(rest)?);
            let here = header.length().min(rest.len() as u64);
            self.left = header.length() - here;
            rest = rest.get(here as usize..)?;
        }
        Some(())
    }
}
