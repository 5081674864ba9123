//! Requests and responses that passed and were not seen: beyond a snap length, or lost by the capture.
//!
//! The target numbers its responses and the initiator its commands (RFC 7143 4.2.2). A number that was skipped where bytes of
//! the stream were skipped is one PDU that was not seen. So the number in flight stays right, and a request whose response was
//! not seen does not stay in flight.

use std::collections::VecDeque;

use iscsi::bhs::{BHS_BYTES, NO_TAG};
use iscsi::opcode::{initiator, target};

use crate::follow::Pdu;

/// The numbers that are due in one direction.
#[derive(Debug, Default)]
struct Numbers {
    due: Option<u32>,
    /// Offset behind the last PDU seen.
    behind: u64,
}

/// Whether a PDU takes its number, or shows the next one that will be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Use {
    Takes,
    Shows,
}

impl Numbers {
    /// PDUs with a number that were not seen before this one.
    #[inline]
    fn skipped(&mut self, pdu: &Pdu, number: Option<(u32, Use)>) -> u32 {
        let missing_bytes = pdu.offset.saturating_sub(self.behind);
        self.behind = pdu.offset + pdu.bytes;
        let Some((number, kind)) = number else { return 0 };
        let due = self.due.replace(number.wrapping_add(u32::from(kind == Use::Takes)));
        let skipped = due.map_or(0, |due| number.wrapping_sub(due));
        // Numbers can also be skipped on this connection because another one of the session took them.
        if u64::from(skipped) <= missing_bytes / BHS_BYTES as u64 { skipped } else { 0 }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Unseen {
    commands: Numbers,
    statuses: Numbers,
    /// Requests in flight that were not seen.
    pub(super) requests: u32,
    /// Responses since the last request seen whose requests were not seen: these are among those that the next one shows.
    answered: u32,
    /// When the first PDU passed behind the last bytes of the responses that were skipped, nanoseconds since the epoch.
    pub(super) skipped_until_ns: u64,
    /// All requests in flight, oldest first: tag, and offset of the request; no tag: not seen. Kept since something was
    /// skipped for the first time.
    order: Option<VecDeque<(Option<u32>, u64)>>,
}

/// Most requests that are ordered, and that are taken to be in flight unseen.
const REQUESTS_MAX: usize = 65_536;

fn word(pdu: &Pdu, at: usize) -> u32 {
    pdu.bhs.0.get(at..).and_then(|b| b.first_chunk()).map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

impl Unseen {
    /// Notes a response whose request was not seen; true if that request was counted as in flight, which it no longer is.
    pub(super) fn answered(&mut self) -> bool {
        match self.requests.checked_sub(1) {
            Some(left) => {
                self.requests = left;
                true
            }
            None => {
                self.answered = self.answered.saturating_add(1);
                false
            }
        }
    }

    /// Requests that passed unseen and unanswered before this PDU of the initiator.
    #[inline]
    pub(super) fn before_request(&mut self, pdu: &Pdu) -> u32 {
        let has_number = matches!(
            pdu.bhs.opcode(),
            initiator::SCSI_COMMAND
                | initiator::NOP_OUT
                | initiator::TASK_MANAGEMENT
                | initiator::TEXT
                | initiator::LOGOUT
        );
        let kind = if pdu.bhs.immediate() { Use::Shows } else { Use::Takes };
        let skipped = self.commands.skipped(pdu, has_number.then(|| (word(pdu, 24), kind)));
        let answered = if has_number { std::mem::take(&mut self.answered) } else { 0 };
        skipped.saturating_sub(answered).min(REQUESTS_MAX as u32 - self.requests.min(REQUESTS_MAX as u32))
    }

    /// Responses that passed unseen before this PDU of the target.
    #[inline]
    pub(super) fn before_response(&mut self, pdu: &Pdu) -> u32 {
        if pdu.offset > self.statuses.behind {
            self.skipped_until_ns = pdu.began.ns;
        }
        let kind = match pdu.bhs.opcode() {
            target::DATA_IN if pdu.bhs.0[1] & 1 == 0 => None,
            target::LOGIN => None,
            target::R2T => Some(Use::Shows),
            target::NOP_IN if pdu.bhs.initiator_task_tag() == NO_TAG => Some(Use::Shows),
            _ => Some(Use::Takes),
        };
        self.statuses.skipped(pdu, kind.map(|kind| (word(pdu, 24), kind)))
    }

    /// Begins to order the requests, with those that are in flight now: tag and offset.
    pub(super) fn begin_order(&mut self, in_flight: impl Iterator<Item = (u32, u64)>) {
        if self.order.is_none() {
            let mut all: Vec<_> = in_flight.map(|(tag, frame)| (Some(tag), frame)).collect();
            all.sort_unstable_by_key(|&(_, frame)| frame);
            self.order = Some(all.into());
        }
    }

    /// Adds a request; `frame` identifies it among those with its tag.
    #[inline]
    pub(super) fn began(&mut self, tag: Option<u32>, frame: u64) {
        self.requests += u32::from(tag.is_none());
        if let Some(order) = &mut self.order {
            if order.len() >= REQUESTS_MAX {
                order.pop_front();
            }
            order.push_back((tag, frame));
        }
    }

    /// Takes the oldest request in flight: its tag, or `None` for one that was not seen. `is_in_flight` tells by tag and
    /// frame.
    pub(super) fn oldest(&mut self, is_in_flight: impl Fn(u32, u64) -> bool) -> Option<Option<u32>> {
        let order = self.order.as_mut()?;
        while let Some((tag, frame)) = order.pop_front() {
            match tag {
                Some(tag) if is_in_flight(tag, frame) => return Some(Some(tag)),
                None if self.requests > 0 => {
                    self.requests -= 1;
                    return Some(None);
                }
                _ => {}
            }
        }
        None
    }
}
