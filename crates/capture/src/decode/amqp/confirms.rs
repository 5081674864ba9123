//! Publisher confirms: messages that a channel publishes are numbered from one, and the broker acknowledges these numbers (tags), one or
//! all up to one.
//!
//! Behind a hole of the client the tag of the next message is not known. A client that always waited for the acknowledgement of
//! one message before the next shows it: the next one is behind the last that was acknowledged. So does one that was silent for long
//! behind the last acknowledgement, if two such moments agree.

use record::Status;

use super::super::{Of, Requests};

/// Silence behind an acknowledgement in which a broker would have acknowledged what was in flight, nanoseconds.
const SILENCE_NS: u64 = 1_000_000_000;
/// Bits of a tag in the number of a request.
const TAG_BITS: u32 = 47;
/// Most messages between the oldest in flight and the newest.
const SPAN_MAX: u64 = 1 << 16;
/// Most messages in flight on a connection.
const IN_FLIGHT_MAX: usize = 4000;

/// The messages in flight on a connection.
pub(super) struct Flight<'a> {
    pub(super) requests: &'a mut Requests,
    pub(super) count: &'a mut usize,
    /// The message that is on its way: what acknowledges it shows that a part of it was not seen.
    pub(super) incomplete: Option<Of>,
}

impl Flight<'_> {
    fn answer(&mut self, of: Of, status: Status) {
        if self.incomplete == Some(of) {
            self.forget(of);
        } else if self.requests.is_open(of) {
            self.requests.answer(of);
            self.requests.answered(of, status);
            *self.count = self.count.saturating_sub(1);
        }
    }

    pub(super) fn forget(&mut self, of: Of) {
        if self.requests.is_open(of) {
            self.requests.forget(of);
            *self.count = self.count.saturating_sub(1);
        }
    }
}

/// Whether messages are acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mode {
    /// Whether, and with which tags, is not known.
    #[default]
    Unknown,
    Off,
    On,
}

/// A channel's messages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Confirms {
    mode: Mode,
    /// The tags of the oldest that may be in flight, and of the one behind the newest.
    oldest: u64,
    next: u64,
    /// Those before it may have been acknowledged in a hole.
    doubtful: u64,
    /// As far as it was seen, each was acknowledged before the next one left.
    has_waited: bool,
    /// Those that were published since the tags are not known.
    unknown: u64,
    /// The highest tag that was acknowledged since the last hole.
    highest: u64,
    /// When one was acknowledged behind the last message.
    acknowledged_ns: Option<u64>,
    /// What the tag of a message is more than its number among the unknown, at the last moment that showed it.
    surplus: Option<i64>,
}

fn of(channel: u16, tag: u64) -> Of {
    Of::Id(u64::from(channel) << TAG_BITS | tag & ((1 << TAG_BITS) - 1))
}

impl Confirms {
    /// Those of a channel that is opened now.
    pub(super) fn opened() -> Self {
        Self { mode: Mode::Off, ..Self::default() }
    }

    /// Confirm.Select was sent. Where the channel's begin was not seen, it is the first, unless messages were acknowledged before.
    pub(super) fn select(&mut self) {
        let is_first = self.mode == Mode::Unknown && self.highest == 0 && self.unknown == 0;
        if self.mode == Mode::Off || is_first {
            *self = Self { mode: Mode::On, oldest: 1, next: 1, has_waited: true, ..Self::default() };
        }
    }

    /// A message is published: which request it is, if it will be acknowledged with a tag that is known.
    pub(super) fn publish(&mut self, channel: u16, flight: &mut Flight<'_>) -> Option<Of> {
        let is_unknown = self.mode == Mode::Unknown;
        if self.mode == Mode::Off {
            return None;
        }
        if is_unknown && !self.finds(channel, flight) {
            self.unknown += 1;
            return None;
        }
        self.has_waited &= is_unknown || self.oldest == self.next;
        self.forget(channel, self.next.saturating_sub(SPAN_MAX), flight);
        self.next += 1;
        if *flight.count >= IN_FLIGHT_MAX {
            flight.requests.counted.abandoned += 1;
            return None;
        }
        *flight.count += 1;
        Some(of(channel, self.next - 1))
    }

    /// Whether the tag of the message at hand shows.
    fn finds(&mut self, channel: u16, flight: &mut Flight<'_>) -> bool {
        let is_behind_unseen = flight.requests.is_behind_unseen();
        let Some(at_ns) = self.acknowledged_ns.take().filter(|_| !is_behind_unseen) else { return false };
        let tag = self.highest;
        if !self.has_waited {
            let is_silent = flight.requests.times()[0].ns.saturating_sub(at_ns) >= SILENCE_NS;
            let surplus = tag.wrapping_sub(self.unknown).cast_signed();
            if !is_silent || self.surplus.replace(surplus) != Some(surplus) {
                return false;
            }
        }
        self.forget(channel, self.next, flight);
        (self.mode, self.oldest, self.next) = (Mode::On, tag + 1, tag + 1);
        true
    }

    /// The broker acknowledges a tag, or all up to it.
    pub(super) fn acknowledged(
        &mut self,
        channel: u16,
        (tag, is_multiple): (u64, bool),
        status: Status,
        flight: &mut Flight<'_>,
    ) {
        if self.mode == Mode::Off || tag >= 1 << TAG_BITS {
            return;
        }
        let tag = if tag == 0 && is_multiple { self.next.saturating_sub(1) } else { tag };
        self.highest = self.highest.max(tag);
        self.acknowledged_ns = Some(flight.requests.now().ns);
        let at_hand = of(channel, tag);
        let has_come = !flight.requests.is_open(at_hand) || flight.requests.is_received(at_hand);
        if !has_come || self.mode == Mode::On && tag >= self.next {
            // It is of a message that was not seen, or had not come: the tags are others.
            self.forget(channel, self.next, flight);
            self.lose();
            self.has_waited = false;
            return;
        }
        // In a hole these were acknowledged one by one, or with those before them.
        let before = if is_multiple { self.doubtful.min(tag) } else { self.doubtful };
        if is_multiple || tag >= self.doubtful {
            self.forget(channel, before, flight);
        }
        if is_multiple {
            (self.oldest..tag.min(self.next)).for_each(|tag| flight.answer(of(channel, tag), status));
        }
        flight.answer(at_hand, status);
        while self.oldest < self.next && !flight.requests.is_open(of(channel, self.oldest)) {
            self.oldest += 1;
        }
    }

    /// Drops the messages in flight before a tag.
    fn forget(&mut self, channel: u16, before: u64, flight: &mut Flight<'_>) {
        let before = before.min(self.next);
        (self.oldest..before).for_each(|tag| flight.forget(of(channel, tag)));
        self.oldest = self.oldest.max(before);
    }

    /// All messages in flight end with a status, or without one.
    pub(super) fn end(&mut self, channel: u16, status: Option<Status>, flight: &mut Flight<'_>) {
        if let Some(status) = status {
            // Those that may have been acknowledged in a hole had their own status.
            self.forget(channel, self.doubtful, flight);
            (self.oldest..self.next).for_each(|tag| flight.answer(of(channel, tag), status));
        }
        self.forget(channel, self.next, flight);
    }

    /// The client's bytes are missing: how many messages are in them is not known, or whether Confirm.Select is.
    pub(super) fn lost_messages(&mut self) {
        self.lose();
    }

    /// The tags of further messages are not known. Those of the ones in flight are.
    fn lose(&mut self) {
        (self.mode, self.unknown, self.surplus) = (Mode::Unknown, 0, None);
    }

    /// The server's bytes are missing: what is in flight may have been acknowledged in them.
    pub(super) fn lost_acknowledgements(&mut self) {
        self.doubtful = self.next;
        self.acknowledged_ns = None;
    }
}
