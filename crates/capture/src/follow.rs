//! Cuts a byte stream into iSCSI PDUs without keeping their data.
//!
//! At most one basic header is held. Data segments are skipped by arithmetic, so bytes beyond a snap length
//! do no harm inside a data segment.
//!
//! When a header is missing, the follower searches for the next PDU: PDUs are multiples of four bytes, so a boundary
//! has the same distance from a multiple of four as the ones before. There, 48 bytes are a candidate if
//! every field that the protocol fixes is valid. The candidate's PDU is held back until it is confirmed: by a
//! header that passes the same test right after it, or by ending exactly where a segment ends. A refuted candidate
//! is dropped and the search continues. If the bytes after it are not in the capture, it counts only if it
//! was at the front of a segment, where senders usually begin PDUs. All skipped bytes are counted.

use iscsi::bhs::{BHS_BYTES, Bhs, padding};
use iscsi::opcode::{initiator, target};
use iscsi::pdu::LoginResponse;

use crate::login_text::LoginText;
use crate::packet::At;
pub use iscsi::Digests;

pub use crate::plausible::Flow;
use crate::plausible::{may_be_header, must_be_header};

/// A complete PDU.
#[derive(Clone, Copy, Debug)]
pub struct Pdu {
    /// Its basic header.
    pub bhs: Bhs,
    /// All its bytes on the stream.
    pub bytes: u64,
    /// Offset of its first byte from the first byte seen of the stream.
    pub offset: u64,
    /// The packet that carried its first byte.
    pub began: At,
    /// The packet that carried its last byte.
    pub ended: At,
    /// The sense key of a SCSI response, if it has one and it was captured.
    pub sense_key: Option<u8>,
}

/// Bytes of a SCSI response's data segment up to the sense key.
const SENSE_BYTES: usize = 5;

/// All combinations of digests.
const COMBINATIONS: [Digests; 4] = [
    Digests { header: false, data: false },
    Digests { header: true, data: false },
    Digests { header: false, data: true },
    Digests { header: true, data: true },
];

/// The state of a side's current message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MessageState {
    /// Between messages.
    Nothing,
    /// The header has passed, and nothing after it.
    Header,
    /// In the middle.
    Part,
    /// Unknown in this protocol.
    Unknown,
}

#[derive(Clone, Copy, Debug)]
enum State {
    /// Gathering a header, of which this many bytes have arrived.
    Header(usize),
    /// Skipping the rest of a PDU, of which this many bytes remain.
    Body { bhs: Bhs, left: u64 },
    /// Searching for a header.
    Lost,
}

/// The certainty of the PDU boundaries.
#[derive(Clone, Copy, Debug)]
enum Trust {
    /// The boundaries are known.
    Sure,
    /// The current PDU was found by the search.
    Candidate { in_front: bool },
    /// It has passed and is not yet confirmed.
    Held { pdu: Pdu, in_front: bool },
}

/// Follows one direction of one connection.
#[derive(Debug)]
pub struct Follower {
    flow: Flow,
    digests: Digests,
    state: State,
    trust: Trust,
    header: [u8; BHS_BYTES],
    /// Offset of the next byte.
    at: u64,
    /// Offset of the current PDU's first byte, and when that passed.
    begin: (u64, At),
    /// Where the boundary was lost, if it is lost.
    lost_from: u64,
    /// Whether the digests are a guess, because the login was not seen; a boundary can then determine them.
    digests_are_guessed: bool,
    /// The digests in the target's login responses.
    login: LoginText,
    /// The front of a SCSI response's data segment: behind a length, the sense data. And how many bytes of it have come.
    sense: ([u8; SENSE_BYTES], usize),
    /// Distance of boundaries from multiples of four; unknown before the first boundary.
    phase: Option<u64>,
    skipped_bytes: u64,
    lost: u64,
}

/// Bytes without a boundary after which the remembered distance from multiples of four is discarded.
const PHASE_DOUBTED_BYTES: u64 = 4 << 20;

impl Follower {
    /// A follower at the beginning of a connection, or (`in_the_middle`) somewhere in it.
    #[must_use]
    pub fn new(flow: Flow, in_the_middle: bool, digests: Digests) -> Self {
        Self {
            flow,
            digests,
            state: if in_the_middle { State::Lost } else { State::Header(0) },
            trust: Trust::Sure,
            header: [0; BHS_BYTES],
            at: 0,
            begin: (0, At::default()),
            lost_from: 0,
            digests_are_guessed: in_the_middle,
            login: LoginText::default(),
            sense: ([0; SENSE_BYTES], 0),
            phase: (!in_the_middle).then_some(0),
            skipped_bytes: 0,
            lost: 0,
        }
    }

    /// The digests that a login on this stream has just agreed on.
    pub fn take_agreed(&mut self) -> Option<Digests> {
        self.login.agreed.take()
    }

    /// The PDUs from here on have these digests.
    pub fn set_digests(&mut self, digests: Digests) {
        self.digests = digests;
        self.digests_are_guessed = false;
    }

    /// The state of the current PDU.
    #[must_use]
    pub fn message_state(&self) -> MessageState {
        match self.state {
            State::Header(0) => MessageState::Nothing,
            State::Body { bhs, left } if left == self.rest_of(&bhs) => MessageState::Header,
            State::Header(_) | State::Body { .. } => MessageState::Part,
            State::Lost => MessageState::Unknown,
        }
    }

    /// The task of the current PDU, when its header has passed: opcode and initiator task tag.
    #[must_use]
    pub fn current_task(&self) -> Option<(u8, u32)> {
        match self.state {
            State::Body { bhs, .. } => Some((bhs.opcode(), bhs.initiator_task_tag())),
            _ => None,
        }
    }

    /// Bytes skipped while no boundary was known, including missing ones.
    #[must_use]
    pub fn skipped_bytes(&self) -> u64 {
        match (self.state, self.trust) {
            (State::Header(_) | State::Body { .. }, Trust::Sure) => self.skipped_bytes,
            _ => self.skipped_bytes + (self.at - self.lost_from),
        }
    }

    /// How often the boundary was lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }

    /// Processes the next bytes of the stream, the payload of one segment.
    #[inline]
    pub fn bytes(&mut self, bytes: &[u8], when: At, mut take: impl FnMut(&Pdu)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            match self.state {
                State::Header(have) => {
                    if have == 0 {
                        self.begin = (self.at, when);
                    }
                    let (part, behind) = rest.split_at(rest.len().min(BHS_BYTES - have));
                    self.header[have..have + part.len()].copy_from_slice(part);
                    rest = behind;
                    self.at += part.len() as u64;
                    if have + part.len() < BHS_BYTES {
                        self.state = State::Header(have + part.len());
                        return;
                    }
                    self.header_is_complete(when, &mut take);
                }
                State::Body { bhs, left } => {
                    let count = left.min(rest.len() as u64);
                    let (body, behind) = rest.split_at(count as usize);
                    if bhs.opcode() == target::LOGIN {
                        self.login.bytes(body);
                    } else if bhs.opcode() == target::SCSI_RESPONSE {
                        self.gather_sense(&bhs, left, body);
                    }
                    rest = behind;
                    self.body(bhs, left, count, when, &mut take);
                }
                State::Lost => {
                    let Some((skip, digests)) = self.find(rest) else {
                        self.at += rest.len() as u64;
                        return;
                    };
                    self.digests = digests;
                    let in_front = skip == 0 && rest.len() == bytes.len();
                    rest = &rest[skip..];
                    self.at += skip as u64;
                    self.trust = Trust::Candidate { in_front };
                    self.state = State::Header(0);
                }
            }
        }
        if matches!(self.trust, Trust::Held { .. }) && matches!(self.state, State::Header(0)) {
            // It ends where the segment ends.
            self.confirm(&mut take);
        }
    }

    /// Processes bytes that were on the wire but not captured, or that the capture lost: inside a data segment only
    /// data is lost.
    pub fn missing(&mut self, count: u64, when: At, mut take: impl FnMut(&Pdu)) {
        let mut count = count;
        if let State::Body { bhs, left } = self.state {
            let inside = left.min(count);
            count -= inside;
            self.body(bhs, left, inside, when, &mut take);
        }
        if count == 0 {
            return;
        }
        match self.state {
            // A header was among them.
            State::Header(have) => self.lose(self.at - have as u64, true, &mut take),
            State::Body { .. } | State::Lost => {}
        }
        self.at += count;
    }

    /// Ends the stream.
    pub fn finish(&mut self, mut take: impl FnMut(&Pdu)) {
        if let Trust::Held { .. } = self.trust {
            self.lose(self.at, true, &mut take);
        }
    }

    fn header_is_complete(&mut self, when: At, take: &mut impl FnMut(&Pdu)) {
        let bhs = Bhs(self.header);
        let start = self.at - BHS_BYTES as u64;
        let believed = match self.trust {
            Trust::Sure => may_be_header(self.flow, &bhs),
            // It was checked when it was found.
            Trust::Candidate { .. } => true,
            Trust::Held { .. } => must_be_header(self.flow, &bhs),
        };
        if !believed {
            // The boundary was wrong: treat it as a hole.
            self.lose(start, false, take);
            return;
        }
        if let Trust::Held { .. } = self.trust {
            self.confirm(take);
        }
        let left = self.rest_of(&bhs);
        self.body(bhs, left, 0, when, take);
    }

    /// Keeps the front of the data segment of a SCSI response: `body` begins where `left` bytes of the PDU are left.
    fn gather_sense(&mut self, bhs: &Bhs, left: u64, body: &[u8]) {
        let before = bhs.ahs_bytes() + self.digests.header_bytes();
        let at = (self.rest_of(bhs) - left) as usize;
        let (sense, have) = &mut self.sense;
        for (place, &byte) in (at..).zip(body) {
            if place == before + *have && *have < SENSE_BYTES {
                sense[*have] = byte;
                *have += 1;
            }
        }
    }

    /// The sense key in what was gathered (RFC 7143 11.4.7.2; SPC-4 4.5): fixed and descriptor format have it in other places.
    fn take_sense_key(&mut self) -> Option<u8> {
        if self.sense.1 == 0 {
            return None;
        }
        let (sense, have) = std::mem::take(&mut self.sense);
        match sense {
            [_, _, 0x70 | 0x71, _, key] if have == SENSE_BYTES => Some(key & 0xf),
            [_, _, 0x72 | 0x73, key, _] if have >= SENSE_BYTES - 1 => Some(key & 0xf),
            _ => None,
        }
    }

    /// Processes `count` of the `left` bytes after the basic header.
    #[inline]
    fn body(&mut self, bhs: Bhs, left: u64, count: u64, when: At, take: &mut impl FnMut(&Pdu)) {
        self.at += count;
        if left > count {
            self.state = State::Body { bhs, left: left - count };
            return;
        }
        self.state = State::Header(0);
        if bhs.opcode() == target::LOGIN && self.flow == Flow::Responses {
            let response = LoginResponse::read(&bhs);
            let is_last = response.transit && response.status >> 8 == 0 && bhs.0[1] & 3 == 3;
            self.login.pdu_ended(is_last);
            if let Some(digests) = self.login.agreed {
                self.set_digests(digests);
            }
        }
        let bytes = BHS_BYTES as u64 + self.rest_of(&bhs);
        let (offset, began) = self.begin;
        let sense_key = self.take_sense_key();
        let pdu = Pdu { bhs, bytes, offset, began, ended: when, sense_key };
        match self.trust {
            Trust::Candidate { in_front } => self.trust = Trust::Held { pdu, in_front },
            Trust::Sure | Trust::Held { .. } => take(&pdu),
        }
    }

    /// Delivers the PDU that was held back.
    fn confirm(&mut self, take: &mut impl FnMut(&Pdu)) {
        if let Trust::Held { pdu, .. } = self.trust {
            self.skipped_bytes += pdu.offset - self.lost_from;
            self.phase = Some(pdu.offset & 3);
            self.trust = Trust::Sure;
            take(&pdu);
        }
    }

    /// Marks the boundary as lost at `from`. A PDU that was held back is `possible` unless it was refuted.
    fn lose(&mut self, from: u64, possible: bool, take: &mut impl FnMut(&Pdu)) {
        match self.trust {
            Trust::Sure => {
                self.lost += 1;
                self.lost_from = from;
            }
            Trust::Held { pdu, in_front: true } if possible => {
                self.skipped_bytes += pdu.offset - self.lost_from;
                self.lost += 1;
                self.lost_from = pdu.offset + pdu.bytes;
                take(&pdu);
            }
            Trust::Candidate { .. } | Trust::Held { .. } => {}
        }
        self.trust = Trust::Sure;
        self.state = State::Lost;
    }

    /// Where in `bytes` a PDU may begin, and with which digests.
    fn find(&mut self, bytes: &[u8]) -> Option<(usize, Digests)> {
        if self.at - self.lost_from > PHASE_DOUBTED_BYTES {
            self.phase = None;
        }
        let (first, step) = match self.phase {
            Some(phase) => ((phase.wrapping_sub(self.at) & 3) as usize, 4),
            None => (0, 1),
        };
        let header_at =
            |at: usize| bytes.get(at..).and_then(|b| b.first_chunk::<BHS_BYTES>()).copied().map(Bhs);
        for at in (first..bytes.len()).step_by(step) {
            let Some(bhs) = header_at(at).filter(|bhs| must_be_header(self.flow, bhs)) else { continue };
            // If the next header is here too, or the segment ends with the PDU, the decision is immediate.
            let fits = |digests| {
                let end = at + BHS_BYTES + rest_of(digests, &bhs) as usize;
                match header_at(end) {
                    Some(next) => Some(must_be_header(self.flow, &next)),
                    None => (end == bytes.len()).then_some(true),
                }
            };
            match fits(self.digests) {
                Some(true) => return Some((at, self.digests)),
                as_now => {
                    let others = COMBINATIONS.into_iter().filter(|_| self.digests_are_guessed);
                    if let Some(digests) = others.into_iter().find(|&d| fits(d) == Some(true)) {
                        return Some((at, digests));
                    }
                    if as_now.is_none() {
                        return Some((at, self.digests));
                    }
                }
            }
        }
        None
    }

    /// Bytes of a PDU after its basic header.
    fn rest_of(&self, bhs: &Bhs) -> u64 {
        rest_of(self.digests, bhs)
    }
}

/// Bytes of a PDU after its basic header, with these digests.
fn rest_of(digests: Digests, bhs: &Bhs) -> u64 {
    let data = bhs.data_bytes();
    let has_digests = !matches!(bhs.opcode(), initiator::LOGIN | target::LOGIN);
    let digests = if has_digests { digests } else { Digests::default() };
    (bhs.ahs_bytes() + digests.header_bytes() + data + padding(data) + digests.data_bytes(data)) as u64
}

#[cfg(test)]
mod tests;
