//! Cuts the two streams of a connection into the messages of its decoder.

use record::{Side, Stall};

use super::{Agreed, Decoder, Length, Message, ProtocolEntry, Requests, Shown, Upgraded};
use crate::follow::MessageState;
use crate::http::Mark;
use crate::http::resume::{begin_seq, distance};
use crate::in_flight::Pace;
use crate::observer::{Counted, Observer};
use crate::packet::At;
use crate::stream::Absent;

/// Messages that are none, with few good ones between them, after which the stream is of another protocol.
const INVALID_MAX: u32 = 3;
/// Good messages between two that are none, after which the first is forgotten.
const FORGIVEN_AFTER: u64 = 64;
/// Good messages and no others, after which other connections to the server are expected to be of the protocol.
const PROVEN_AFTER: u64 = 16;
/// Changes of direction without a message after which the stream is of another protocol: even a long hole hides few.
const TURNS_WITHOUT_MAX: u32 = 16;
/// Most bytes in which a message must show its length.
const START_MAX: usize = 64 << 10;

/// One direction.
#[derive(Debug, Default)]
struct Stream {
    /// The first bytes of the message at hand, if it does not end with its segment.
    kept: Vec<u8>,
    /// Its length, once known, and how much of it has passed.
    length: Option<u64>,
    passed: u64,
    began: At,
    began_seq: u32,
    mark: Mark,
    /// Whether no boundary is known.
    is_lost: bool,
    /// Place of the first byte that is of no known message, if so.
    lost_from: u64,
    /// Bytes of the stream so far.
    offset: u64,
    /// Place of the first byte of the TLS record at hand, and the record's sequence number.
    record: Option<(u64, u32)>,
}

/// A connection of a decoded protocol.
#[derive(Debug)]
pub(crate) struct Frames {
    entry: &'static ProtocolEntry,
    decoder: Box<dyn Decoder>,
    requests: Requests,
    streams: [Stream; 2],
    packets: [Mark; 2],
    responses_from: u32,
    /// Sequence number of the client's first byte, once it has sent some.
    requests_from: Option<u32>,
    invalid: u32,
    /// Messages since the last invalid one.
    valid: u64,
    /// There was no invalid one.
    is_sound: bool,
    /// Changes of direction without a message, and the side that sent last.
    turns_without: u32,
    speaker: Option<Side>,
    counted: Counted,
}

impl Frames {
    /// A connection from its beginning or somewhere in the middle, behind another protocol's messages, which had this pace.
    pub(crate) fn new(
        connection: u32,
        entry: &'static ProtocolEntry,
        shown: Shown,
        pace: Pace,
        in_the_middle: bool,
    ) -> Self {
        let stream = || Stream { is_lost: in_the_middle, ..Stream::default() };
        Self {
            entry,
            decoder: (entry.new)(shown),
            requests: Requests::new(connection, pace, in_the_middle),
            streams: [stream(), stream()],
            packets: [Mark::default(); 2],
            responses_from: 0,
            requests_from: None,
            invalid: 0,
            valid: 0,
            is_sound: true,
            turns_without: 0,
            speaker: None,
            counted: Counted::default(),
        }
    }

    /// A protocol that has agreed on TLS goes on in it.
    pub(crate) fn agreed(connection: u32, agreed: Agreed, pace: Pace) -> Self {
        let Agreed { entry, mut decoder } = agreed;
        decoder.secured();
        Self { decoder, ..Self::new(connection, entry, Shown::default(), pace, false) }
    }

    /// The connection has come to the protocol by an upgrade.
    pub(crate) fn upgraded(&mut self, upgraded: Upgraded, at: At) {
        let end_seq = self.responses_end();
        self.requests.pass([at, at], 0, [end_seq; 2], Mark::default());
        self.decoder.upgraded(upgraded, &mut self.requests);
    }

    /// The client ended the handshake so, and has sent nothing yet.
    pub(crate) fn connected(&mut self, at: At, mark: Mark) {
        self.requests.connected = Some((at, mark));
    }

    pub(crate) fn name(&self) -> &'static str {
        self.entry.name
    }

    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.responses_from = seq.wrapping_sub(self.streams[Side::Server as usize].offset as u32);
    }

    /// The side's next bytes are the first of a TLS record that begins at this sequence number.
    pub(crate) fn record_begins_at(&mut self, side: Side, seq: u32) {
        let stream = &mut self.streams[side as usize];
        stream.record = Some((stream.offset, seq));
    }

    /// The client's next bytes have this sequence number.
    pub(crate) fn requests_begin_at(&mut self, seq: u32) {
        self.requests_from = Some(seq.wrapping_sub(self.streams[Side::Client as usize].offset as u32));
    }

    /// Sequence number behind the server's bytes so far.
    fn responses_end(&self) -> u32 {
        self.responses_from.wrapping_add(self.streams[Side::Server as usize].offset as u32)
    }

    /// The protocol, if enough messages have passed without a contradiction that no other one is likely.
    #[inline]
    pub(crate) fn proven(&self) -> Option<&'static ProtocolEntry> {
        (self.is_sound && self.valid >= PROVEN_AFTER).then_some(self.entry)
    }

    /// A packet with data is about to be processed.
    pub(crate) fn packet(&mut self, side: Side, mark: Mark) {
        self.packets[side as usize] = mark;
        if side == Side::Client {
            self.requests.last_packet = mark;
        }
    }

    /// Whether the stream shows that it is of another protocol.
    pub(crate) fn is_contradicted(&self) -> bool {
        self.invalid >= INVALID_MAX || self.turns_without > TURNS_WITHOUT_MAX
    }

    /// Whether what follows is of another protocol, by agreement.
    pub(crate) fn has_ended(&self) -> bool {
        self.decoder.has_ended()
    }

    /// The protocol's name, if what follows is encrypted by it.
    pub(crate) fn encrypted(&self) -> Option<&'static str> {
        self.decoder.encrypted()
    }

    /// The pace for the protocol that follows, the sequence number behind the server's bytes, and the protocol if it may go on in
    /// what it has agreed on.
    pub(crate) fn into_pace(self) -> (Pace, u32, Option<Agreed>) {
        let seq = self.responses_end();
        let has_ended = self.decoder.has_ended();
        let agreed = Agreed { entry: self.entry, decoder: self.decoder };
        (self.requests.into_pace(), seq, Some(agreed).filter(|_| has_ended))
    }

    /// Bytes come whose front is that of a segment, even if they do not come at once.
    pub(crate) fn front(&mut self, side: Side, bytes: &[u8]) {
        if self.streams[side as usize].is_lost {
            self.resume(side, bytes);
        }
    }

    /// Something of the server has passed that is of no message.
    pub(crate) fn passed_behind(&mut self, from: u32, to: u32) {
        self.requests.passed_between(from, to);
    }

    /// Processes the next bytes of a side, the payload of one segment. Returns those behind the end of the protocol.
    pub(crate) fn bytes<'a>(
        &mut self,
        side: Side,
        bytes: &'a [u8],
        at: At,
        observer: &mut impl Observer,
    ) -> &'a [u8] {
        let (mut rest, asked_before) = (bytes, self.requests.number());
        if side == Side::Client && self.requests_from.is_none() {
            let offset = self.streams[Side::Client as usize].offset as u32;
            self.requests_from = Some(self.packets[Side::Client as usize].seq.wrapping_sub(offset));
        }
        self.note_unseen(side);
        if side == Side::Server {
            self.requests.is_answering(self.packets[side as usize]);
        }
        // In the middle of a message the other side may say what it likes.
        if self.speaker.replace(side) != Some(side) && self.streams.iter().any(|stream| stream.is_lost) {
            self.turns_without += 1;
        }
        if self.streams[side as usize].is_lost && !self.resume(side, rest) {
            self.counted.skipped_bytes += rest.len() as u64;
            self.streams[side as usize].offset += rest.len() as u64;
            self.misses(side, false);
            return &[];
        }
        while !rest.is_empty() && !self.streams[side as usize].is_lost {
            if self.decoder.has_ended() {
                self.requests.deliver(observer);
                return rest;
            }
            let taken = self.next(side, rest, at);
            rest = rest.get(taken..).unwrap_or_default();
        }
        let is_at_hand = self.streams[side as usize].passed > 0;
        if side == Side::Client && !is_at_hand && self.requests.number() == asked_before {
            self.requests.pace.no_request();
        }
        self.streams[side as usize].offset += rest.len() as u64;
        self.counted.skipped_bytes += rest.len() as u64;
        self.requests.deliver(observer);
        &[]
    }

    /// Sequence number of a side's first byte.
    fn first_seq(&self, side: Side) -> u32 {
        match side {
            Side::Client => self.requests_from.unwrap_or_default(),
            Side::Server => self.responses_from,
        }
    }

    /// Notes whether the packet at hand of a side shows that the capture does not have all that the other side has sent before.
    fn note_unseen(&mut self, side: Side) {
        let ends = match side {
            Side::Client => Some(self.responses_end()),
            Side::Server => {
                let offset = self.streams[Side::Client as usize].offset as u32;
                self.requests_from.map(|from| from.wrapping_add(offset))
            }
        };
        let ack = self.packets[side as usize].ack;
        self.requests.is_behind_unseen = ends.is_some_and(|end| distance(ack, end) > 0);
    }

    /// The bytes of a side up to here, with the last ones, tell nothing.
    fn misses(&mut self, side: Side, is_cut: bool) {
        if side == Side::Client {
            let offset = self.streams[Side::Client as usize].offset as u32;
            let end_seq = self.requests_from.map(|from| from.wrapping_add(offset));
            self.requests.misses_requests(end_seq, is_cut);
        }
    }

    fn resume(&mut self, side: Side, bytes: &[u8]) -> bool {
        let resumes = self.decoder.resumes(side, bytes);
        if resumes {
            let Stream { offset, lost_from, record, .. } = self.streams[side as usize];
            self.streams[side as usize] = Stream { offset, record, ..Stream::default() };
            if side == Side::Server {
                self.requests.found_numbered_answers(offset - lost_from);
            }
        }
        resumes
    }

    /// Processes bytes up to the end of a message at most; how many were taken.
    fn next(&mut self, side: Side, bytes: &[u8], at: At) -> usize {
        let mark = self.packets[side as usize];
        let from = self.first_seq(side);
        let stream = &mut self.streams[side as usize];
        if stream.passed == 0 {
            let began_seq = begin_seq(stream.offset, from, stream.record);
            (stream.began, stream.began_seq, stream.mark) = (at, began_seq, mark);
            // Most messages are whole.
            match self.decoder.length(side, bytes) {
                Length::Is(length) if length <= bytes.len() as u64 && length > 0 => {
                    let (whole, _) = bytes.split_at(length as usize);
                    stream.offset += length;
                    let end_seq = from.wrapping_add(stream.offset as u32);
                    self.requests.pass([at, at], length, [began_seq, end_seq], mark);
                    if side == Side::Server {
                        self.requests.note_unasked();
                    }
                    self.decoder.message(&Message { side, bytes: whole, length }, &mut self.requests);
                    self.count_valid();
                    return length as usize;
                }
                Length::Is(length) => stream.length = Some(length.max(1)),
                Length::More => {}
                Length::Invalid => return self.refuse(side, bytes.len()),
            }
        }
        let stream = &mut self.streams[side as usize];
        let kept_max = if stream.length.is_some() { self.decoder.kept() } else { START_MAX };
        let left = stream.length.map_or(u64::MAX, |length| length - stream.passed);
        let count = left.min(bytes.len() as u64) as usize;
        let room = kept_max.saturating_sub(stream.kept.len());
        let before = stream.kept.len();
        stream.kept.extend_from_slice(&bytes[..count.min(room)]);
        if stream.length.is_none() && stream.passed > 0 {
            match self.decoder.length(side, &stream.kept) {
                Length::Is(length) => {
                    // The message may end within these bytes.
                    let own = length.max(1).saturating_sub(stream.passed).min(count as u64) as usize;
                    stream.kept.truncate(before + own);
                    stream.length = Some(length.max(stream.passed + 1));
                    return self.take(side, own.max(1), at);
                }
                Length::More if stream.kept.len() < START_MAX => {}
                _ => return self.refuse(side, bytes.len()),
            }
        }
        self.take(side, count, at)
    }

    /// Counts bytes of the message at hand, and ends it if it is complete.
    fn take(&mut self, side: Side, count: usize, at: At) -> usize {
        let from = self.first_seq(side);
        let stream = &mut self.streams[side as usize];
        stream.passed += count as u64;
        stream.offset += count as u64;
        if let Some(length) = stream.length.filter(|&length| stream.passed >= length) {
            let mut kept = std::mem::take(&mut stream.kept);
            (stream.passed, stream.length) = (0, None);
            let seqs = [stream.began_seq, from.wrapping_add(stream.offset as u32)];
            self.requests.pass([stream.began, at], length, seqs, stream.mark);
            if side == Side::Server {
                self.requests.note_unasked();
            }
            self.decoder.message(&Message { side, bytes: &kept, length }, &mut self.requests);
            self.count_valid();
            kept.clear();
            if kept.capacity() <= START_MAX {
                self.streams[side as usize].kept = kept;
            }
        }
        count
    }

    fn count_valid(&mut self) {
        self.valid += 1;
        self.turns_without = 0;
    }

    /// What comes is no message of the protocol.
    fn refuse(&mut self, side: Side, count: usize) -> usize {
        let is_forgiven = std::mem::take(&mut self.valid) > FORGIVEN_AFTER;
        self.is_sound = false;
        self.invalid = if is_forgiven { 1 } else { self.invalid + 1 };
        self.lose(side);
        self.counted.skipped_bytes += count as u64;
        self.streams[side as usize].offset += count as u64;
        self.misses(side, false);
        count
    }

    /// The boundary of the side's messages is lost.
    pub(crate) fn lose(&mut self, side: Side) {
        let stream = &mut self.streams[side as usize];
        if std::mem::replace(&mut stream.is_lost, true) {
            return;
        }
        stream.lost_from = stream.offset - stream.passed;
        (stream.passed, stream.length) = (0, None);
        stream.kept = Vec::new();
        self.counted.boundaries_lost += 1;
        self.has_hole(side);
    }

    fn has_hole(&mut self, side: Side) {
        self.requests.has_hole(side);
        self.decoder.lost(side, &mut self.requests);
    }

    /// Processes bytes that were on the wire and are not in the capture.
    pub(crate) fn missing(
        &mut self,
        side: Side,
        absent: Absent,
        count: u64,
        at: At,
        observer: &mut impl Observer,
    ) {
        self.requests.silence.missing();
        let stream = &mut self.streams[side as usize];
        let left = stream.length.map_or(0, |length| length - stream.passed);
        let inside = count.min(left);
        if inside > 0 {
            self.take(side, usize::try_from(inside).unwrap_or(usize::MAX), at);
        }
        if inside < count {
            if absent == Absent::Lost && self.streams[side as usize].is_lost {
                // It may hold messages that the hole before has not: the other side may have gone on in between.
                self.has_hole(side);
            }
            self.lose(side);
            self.decoder.absent(side, count - inside);
            self.counted.skipped_bytes += count - inside;
            self.streams[side as usize].offset += count - inside;
            self.misses(side, absent == Absent::Uncaptured);
        }
        self.requests.deliver(observer);
    }

    /// A side has closed its stream.
    pub(crate) fn closed(&mut self, side: Side, observer: &mut impl Observer) {
        self.note_unseen(side);
        self.decoder.closed(side, &mut self.requests);
        self.requests.deliver(observer);
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        self.counted.then(self.requests.finish(observer))
    }

    /// Requests that await a response.
    pub(crate) fn cut_off(&self) -> u32 {
        if self.decoder.needs_answers() { self.requests.cut_off() } else { 0 }
    }

    /// Whether the rest of the side's message was there when its head was written.
    pub(crate) fn has_rest(&self, side: Side) -> bool {
        self.streams[side as usize].length.is_some()
    }

    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        match &self.streams[side as usize] {
            stream if stream.is_lost => MessageState::Unknown,
            stream if stream.passed == 0 => MessageState::Nothing,
            _ => MessageState::Part,
        }
    }

    pub(crate) fn pace(&self) -> &Pace {
        &self.requests.pace
    }

    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        &mut self.requests.pace
    }

    /// Adds a stall to the exchanges that it delayed.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        self.requests.stalled(stall);
    }
}
