//! One iSCSI connection: its PDUs, and the exchanges that they form.

mod unseen;

use std::collections::HashMap;

use foldhash::fast::RandomState;
use iscsi::bhs::NO_TAG;
use iscsi::opcode::{initiator, target};
use iscsi::pdu::{DataIn, DataOut, ScsiCommand, ScsiResponse, TaskManagementRequest, TaskManagementResponse};
use record::{AnswerError, Exchange, Op, OpKind, Outcome, Passage, Side, Stall, Stamp, Verb};

use crate::chain::Chain;
use crate::follow::{Digests, Flow, Follower, MessageState, Pdu};
use crate::in_flight::{Pace, delay, is_of_all, slow_data};
use crate::iscsi::unseen::Unseen;
use crate::observer::{Counted, Observer};
use crate::packet::At;

/// An iSCSI connection as a capture point sees it.
#[derive(Debug)]
pub(crate) struct Iscsi {
    requests: Follower,
    responses: Follower,
    tasks: Tasks,
}

impl Iscsi {
    pub(crate) fn new(connection: u32, in_the_middle: bool, digests: Digests) -> Self {
        Self {
            requests: Follower::new(Flow::Requests, in_the_middle, digests),
            responses: Follower::new(Flow::Responses, in_the_middle, digests),
            tasks: Tasks { connection, ..Tasks::default() },
        }
    }

    /// The same, collecting the proof that it is iSCSI.
    pub(crate) fn proving(mut self) -> Self {
        self.tasks.chain = Some(Box::default());
        self
    }

    /// Ends the collection.
    pub(crate) fn proved(&mut self) {
        self.tasks.chain = None;
    }

    /// Relations found between PDUs, while they are collected.
    pub(crate) fn links(&self) -> u32 {
        self.tasks.chain.as_ref().map_or(0, |chain| chain.links())
    }

    /// Sequence number of the first byte of the target's stream.
    pub(crate) fn responses_begin_at(&mut self, seq: u32) {
        self.tasks.responses_from = seq;
    }

    #[inline]
    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At, observer: &mut impl Observer) {
        let Self { requests, responses, tasks } = self;
        match side {
            Side::Client => requests.bytes(bytes, at, |pdu| tasks.request(pdu, observer)),
            Side::Server => {
                responses.bytes(bytes, at, |pdu| tasks.response(pdu, observer));
                if let Some(digests) = responses.take_agreed() {
                    requests.set_digests(digests);
                }
            }
        }
    }

    pub(crate) fn missing(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        let Self { requests, responses, tasks } = self;
        match side {
            Side::Client => requests.missing(count, at, |pdu| tasks.request(pdu, observer)),
            Side::Server => responses.missing(count, at, |pdu| tasks.response(pdu, observer)),
        }
    }

    pub(crate) fn finish(&mut self, observer: &mut impl Observer) -> Counted {
        let Self { requests, responses, tasks } = self;
        requests.finish(|pdu| tasks.request(pdu, observer));
        responses.finish(|pdu| tasks.response(pdu, observer));
        // What was skipped may hold the responses of requests that passed before it ended.
        let skipped_until_ns = match responses.message_state() {
            MessageState::Unknown => u64::MAX,
            _ => tasks.unseen.skipped_until_ns,
        };
        let before = tasks.in_flight.len();
        tasks.in_flight.retain(|_, exchange| exchange.request.ended.ns() > Some(skipped_until_ns));
        tasks.abandoned += (before - tasks.in_flight.len()) as u64;
        tasks.in_flight.values().for_each(|exchange| observer.unanswered(exchange));
        Counted {
            boundaries_lost: requests.lost() + responses.lost(),
            skipped_bytes: requests.skipped_bytes() + responses.skipped_bytes(),
            unmatched: tasks.unmatched,
            abandoned: tasks.abandoned,
            unanswered: tasks.in_flight.len() as u64,
            ..Counted::default()
        }
    }

    #[inline]
    pub(crate) fn message_state(&self, side: Side) -> MessageState {
        match side {
            Side::Client => self.requests.message_state(),
            Side::Server => self.responses.message_state(),
        }
    }

    #[inline]
    pub(crate) fn pace(&self) -> &Pace {
        &self.tasks.pace
    }

    pub(crate) fn pace_mut(&mut self) -> &mut Pace {
        &mut self.tasks.pace
    }

    /// Adds a stall to the exchanges that it delayed.
    pub(crate) fn stalled(&mut self, stall: &Stall) {
        let tasks = &mut self.tasks;
        let is_retransmitted_request = stall.sender == Side::Client && !tasks.in_flight.is_empty();
        if is_of_all(stall) && (stall.sender == Side::Server || is_retransmitted_request) {
            tasks.in_flight.values_mut().for_each(|exchange| delay(exchange, stall));
            return;
        }
        let current = match stall.sender {
            Side::Server => self.responses.current_task(),
            Side::Client => self.requests.current_task().filter(|(opcode, _)| *opcode == initiator::DATA_OUT),
        };
        match current.and_then(|(_, tag)| tasks.in_flight.get_mut(&tag)) {
            Some(exchange) => delay(exchange, stall),
            None if stall.sender == Side::Client => tasks.pace.stalled(stall),
            None => {}
        }
    }
}

/// Tasks of one connection, in flight and ended.
#[derive(Debug, Default)]
struct Tasks {
    connection: u32,
    in_flight: HashMap<u32, Exchange, RandomState>,
    pace: Pace,
    /// Sequence number of the first byte of the target's stream.
    responses_from: u32,
    /// Responses whose request was not seen.
    unmatched: u64,
    /// Abandoned requests: too many in flight, their tag reused, aborted, or answered by a response that was not seen.
    abandoned: u64,
    unseen: Unseen,
    /// The proof that it is iSCSI, while there is none.
    chain: Option<Box<Chain>>,
}

/// Sense keys of a failure (SPC-4 4.5.6): not ready, medium and hardware error, data protect, aborted command, volume overflow.
/// The others tell of an event (recovered error, unit attention) or of the request (illegal request, miscompare).
const FAILURES: [u8; 6] = [0x2, 0x3, 0x4, 0x7, 0xb, 0xd];

/// Most exchanges in flight on one connection.
const IN_FLIGHT_MAX: usize = 65_536;

impl Tasks {
    /// Processes a PDU of the initiator.
    #[inline]
    fn request(&mut self, pdu: &Pdu, observer: &mut impl Observer) {
        self.pace.message(Side::Client);
        if let Some(chain) = &mut self.chain {
            chain.request(pdu);
        }
        let unseen = self.unseen.before_request(pdu);
        if unseen > 0 {
            self.requests_unseen(unseen, pdu);
        }
        let tag = pdu.bhs.initiator_task_tag();
        match pdu.bhs.opcode() {
            initiator::SCSI_COMMAND => {
                let command = ScsiCommand::read(&pdu.bhs);
                let kind = match (command.read, command.write_data) {
                    (true, false) if scsi::cdb::reads_the_medium(&command.cdb) => OpKind::Read,
                    (false, true) => OpKind::Write,
                    _ => OpKind::Other,
                };
                self.begin(pdu, kind, Verb::Scsi(command.cdb[0]), command.expected_bytes);
            }
            initiator::TASK_MANAGEMENT => {
                let request = TaskManagementRequest::read(&pdu.bhs);
                // An aborted task gets no response.
                if self.in_flight.remove(&request.referenced_tag).is_some() {
                    self.abandoned += 1;
                    self.pace.forget(1, pdu.ended);
                }
                self.begin(pdu, OpKind::Other, Verb::TaskManagement(request.function_byte & 0x7f), 0);
            }
            initiator::NOP_OUT if tag != NO_TAG => self.begin(pdu, OpKind::Other, Verb::Nop, 0),
            // Data phases belong to the operation: the request has passed with its command.
            initiator::DATA_OUT => self.data_out(pdu, tag, observer),
            _ => {}
        }
    }

    fn begin(&mut self, pdu: &Pdu, kind: OpKind, verb: Verb, data_bytes: u32) {
        if self.in_flight.len() >= IN_FLIGHT_MAX || !self.pace.room.has_place(self.in_flight.len()) {
            self.abandoned += self.in_flight.len() as u64;
            self.pace.forget(self.in_flight.len(), pdu.ended);
            self.in_flight.clear();
        }
        let op = Op {
            connection: self.connection,
            tag: pdu.bhs.initiator_task_tag(),
            verb,
            kind,
            data_bytes,
            request_bytes: pdu.bytes as u32,
            ..Op::default()
        };
        let mut exchange = Exchange { op, request: passage(pdu), ..Exchange::default() };
        self.pace.begin(&mut exchange, pdu.began, pdu.ended);
        self.unseen.began(Some(exchange.op.tag), pdu.began.frame);
        if self.in_flight.insert(exchange.op.tag, exchange).is_some() {
            self.abandoned += 1;
            self.pace.forget(1, pdu.ended);
        }
    }

    fn data_out(&mut self, pdu: &Pdu, tag: u32, observer: &mut impl Observer) {
        let Some(exchange) = self.in_flight.get_mut(&tag) else { return };
        exchange.op.request_bytes = exchange.op.request_bytes.saturating_add(pdu.bytes as u32);
        let asked = exchange.asked_for_data;
        if !exchange.data_ended.is_known()
            && let Some(stall) = slow_data(exchange, pdu.began.ns, pdu.began.frame, pdu.bytes as u32)
        {
            delay(exchange, &stall);
            observer.stall(&stall);
        }
        if asked.is_known() || DataOut::read(&pdu.bhs).is_final {
            exchange.data_ended = Stamp::at(pdu.ended.ns);
        }
    }

    /// Processes a PDU of the target.
    #[inline]
    fn response(&mut self, pdu: &Pdu, observer: &mut impl Observer) {
        self.pace.message(Side::Server);
        if let Some(chain) = &mut self.chain {
            chain.response(pdu);
        }
        let unseen = self.unseen.before_response(pdu);
        self.answered(pdu, observer);
        if unseen > 0 {
            self.responses_unseen(unseen, pdu);
        }
    }

    /// Counts requests that passed unseen as in flight.
    #[cold]
    fn requests_unseen(&mut self, count: u32, pdu: &Pdu) {
        self.order();
        for _ in 0..count {
            self.unseen.began(None, pdu.began.frame);
            self.pace.began_unseen(pdu.began);
        }
    }

    /// Ends requests whose responses passed unseen: the oldest, because targets answer about in order.
    #[cold]
    fn responses_unseen(&mut self, count: u32, pdu: &Pdu) {
        self.order();
        let Self { unseen, in_flight, .. } = self;
        for _ in 0..count {
            let is_in_flight = |tag, frame| {
                in_flight.get(&tag).is_some_and(|exchange: &Exchange| exchange.request.first_frame == frame)
            };
            let Some(oldest) = unseen.oldest(is_in_flight) else { return };
            if let Some(tag) = oldest {
                in_flight.remove(&tag);
                self.abandoned += 1;
            }
            self.pace.ended_unseen(pdu.began);
        }
    }

    fn order(&mut self) {
        let in_flight = self.in_flight.iter().map(|(&tag, e)| (tag, e.request.first_frame));
        self.unseen.begin_order(in_flight);
    }

    #[inline]
    fn answered(&mut self, pdu: &Pdu, observer: &mut impl Observer) {
        let tag = pdu.bhs.initiator_task_tag();
        let outcome = |good: bool| Some(if good { Outcome::Good } else { Outcome::Failed });
        let ended = match pdu.bhs.opcode() {
            target::SCSI_RESPONSE => {
                let response = ScsiResponse::read(&pdu.bhs);
                outcome(response.response == 0 && response.status == 0)
            }
            target::DATA_IN => {
                let data = DataIn::read(&pdu.bhs);
                if data.has_status { outcome(data.status == 0) } else { None }
            }
            target::TASK_MANAGEMENT => outcome(TaskManagementResponse::read(&pdu.bhs).response == 0),
            target::NOP_IN if tag != NO_TAG => outcome(true),
            target::R2T => {
                if let Some(exchange) = self.in_flight.get_mut(&tag)
                    && !exchange.asked_for_data.is_known()
                {
                    exchange.asked_for_data = Stamp::at(pdu.ended.ns);
                }
                None
            }
            _ => return,
        };
        let Some(outcome) = ended else {
            if let Some(exchange) = self.in_flight.get_mut(&tag) {
                answer(exchange, pdu);
            }
            return;
        };
        let Some(mut exchange) = self.in_flight.remove(&tag) else {
            self.unmatched += 1;
            if self.unseen.answered() {
                self.pace.ended_unseen(pdu.ended);
            }
            return;
        };
        answer(&mut exchange, pdu);
        exchange.op.outcome = outcome;
        exchange.error = pdu.sense_key.filter(|key| FAILURES.contains(key)).map(AnswerError::Sense);
        exchange.response_end_seq = self.responses_from.wrapping_add((pdu.offset + pdu.bytes) as u32);
        self.pace.end(pdu.ended);
        observer.exchange(&exchange);
    }
}

/// Adds a part of the response to an exchange.
#[inline]
fn answer(exchange: &mut Exchange, pdu: &Pdu) {
    exchange.op.response_bytes = exchange.op.response_bytes.saturating_add(pdu.bytes as u32);
    let all = passage(pdu);
    if !exchange.response.began.is_known() {
        exchange.response = all;
    }
    (exchange.response.ended, exchange.response.last_frame) = (all.ended, all.last_frame);
}

fn passage(pdu: &Pdu) -> Passage {
    Passage {
        began: Stamp::at(pdu.began.ns),
        ended: Stamp::at(pdu.ended.ns),
        first_frame: pdu.began.frame,
        last_frame: pdu.ended.frame,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::seen::Seen;
    use crate::record::Record;

    fn pdu(bhs: iscsi::Bhs, bytes: u64, ns: u64) -> Pdu {
        let at = At { ns, frame: ns };
        Pdu { bhs, bytes, offset: 0, began: at, ended: at, sense_key: None }
    }

    #[test]
    fn a_read_in_two_segments_is_one_operation() {
        let (mut tasks, mut record) =
            (Tasks { connection: 7, ..Tasks::default() }, Record::new(record::Side::Client, 10));
        let mut command = ScsiCommand {
            read: true,
            is_final: true,
            tag: 3,
            expected_bytes: 1024,
            ..ScsiCommand::default()
        };
        command.cdb[0] = 0x28;
        tasks.request(&pdu(command.write(), 48, 10), &mut record);
        let first = DataIn { tag: 3, ..DataIn::default() };
        tasks.response(&pdu(first.write(), 560, 20), &mut record);
        assert!(record.ops.is_empty());
        let last = DataIn { tag: 3, has_status: true, ..DataIn::default() };
        tasks.response(&pdu(last.write(), 560, 30), &mut record);
        let seen = record.ops[0];
        assert_eq!((seen.connection, seen.kind, seen.response_bytes), (7, OpKind::Read, 1120));
        assert_eq!((seen.c1, seen.c2), (Stamp::at(10), Stamp::at(30)));
    }

    #[test]
    fn counts_responses_without_requests_and_reused_tags() {
        let (mut tasks, mut record) = (Tasks::default(), Record::new(record::Side::Client, 10));
        let response = ScsiResponse { tag: 3, ..ScsiResponse::default() }.write();
        tasks.response(&pdu(response, 48, 1), &mut record);
        assert_eq!(tasks.unmatched, 1);
        let command = ScsiCommand { tag: 3, write_data: true, ..ScsiCommand::default() }.write();
        tasks.request(&pdu(command, 48, 2), &mut record);
        tasks.request(&pdu(command, 48, 3), &mut record);
        assert_eq!((tasks.abandoned, tasks.pace.depth()), (1, 1));
    }

    #[test]
    fn requests_whose_responses_may_be_in_what_was_skipped_are_not_unanswered() {
        for (skipped, unanswered) in [(false, [3, 5].as_slice()), (true, &[5])] {
            let mut iscsi = Iscsi::new(1, false, Digests::default());
            let mut seen = Seen::default();
            let mut say = |iscsi: &mut Iscsi, side, bhs: iscsi::Bhs, ns| {
                iscsi.bytes(side, &bhs.0, At { ns, frame: ns }, &mut seen);
            };
            let command = |tag| ScsiCommand { tag, read: true, ..ScsiCommand::default() }.write();
            let response = |tag| ScsiResponse { tag, ..ScsiResponse::default() }.write();
            say(&mut iscsi, Side::Client, command(3), 10);
            say(&mut iscsi, Side::Client, command(4), 20);
            if skipped {
                // The numbers of status do not tell how many PDUs these bytes were.
                iscsi.missing(Side::Server, 480, At { ns: 25, frame: 25 }, &mut Seen::default());
            }
            say(&mut iscsi, Side::Server, response(4), 30);
            say(&mut iscsi, Side::Server, response(40), 31);
            say(&mut iscsi, Side::Client, command(5), 40);
            let counted = iscsi.finish(&mut seen);
            let mut left: Vec<u32> = seen.unanswered.iter().map(|exchange| exchange.op.tag).collect();
            left.sort_unstable();
            let counts = (counted.unanswered, counted.abandoned);
            assert_eq!((left.as_slice(), counts), (unanswered, (unanswered.len() as u64, skipped.into())));
        }
    }
}
