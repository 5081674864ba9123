//! The load loops of a session: closed, or open with a fixed rate.

mod open_loop;
mod verification;

use std::collections::HashSet;
use std::sync::OnceLock;

use iscsi::TransmitBuffer;
use iscsi::initiator::{Completion, Event, InitiatorConnection, Request};
use record::{Op, Stamp, Verb};
use socket::clock;

use super::slot::{Slot, Transfer, fill};
use super::spec::{region, sizes};
use super::tally::{Finished, Tally};
use super::{BenchSpec, Phase};
use crate::failure::FailureClass;
use crate::initiator::commands::describe_sense;
use crate::initiator::error::{InitiatorError, commands};
use crate::initiator::session::{Capacity, Session};
use crate::initiator::verify::Ledger;
use crate::initiator::workload::{Workload, WorkloadSpec};
use crate::pattern::Submit;
use crate::result::Operation;

/// An operation this much older than twice the mean round trip is stuck, nanoseconds.
const CALM_MARGIN_NS: u128 = 100_000;

/// Longest delay of the begin and the end of the measured time for stuck operations, nanoseconds.
const CALM_PATIENCE_NS: u64 = 1_000_000_000;

/// The results of a session.
pub(super) struct Outcome {
    pub(super) tally: Tally,
    pub(super) first_error: Option<String>,
    pub(super) verified: u64,
    pub(super) mismatched: u64,
    pub(super) window_ns: (u64, u64),
    pub(super) cpu_ns: u64,
    pub(super) ops: Vec<Op>,
    pub(super) ops_over_limit: u64,
    pub(super) behind: u64,
    pub(super) seen: Vec<Op>,
    pub(super) thread: i32,
}

/// The action after an operation ends.
enum Next<'a> {
    /// Issue the next operation at once (closed loop).
    Successors,
    /// Free its slot (open loop).
    Free(&'a mut Vec<u32>),
    Nothing,
}

/// The state of a session's loop.
pub(super) struct Loop<'a> {
    spec: &'a BenchSpec,
    workload: Workload,
    connection: u32,
    lun: [u8; 8],
    block_bytes: u32,
    slots: Vec<Slot>,
    ledger: Option<Ledger>,
    busy_lbas: HashSet<u64>,
    now: fn() -> u64,
    tally: Tally,
    first_error: Option<String>,
    verified: u64,
    mismatched: u64,
    /// Completed operations, ramp included, and the sum of their round trips.
    ended: u64,
    ended_ns: u128,
    window_ns: (u64, u64),
    /// When the ramp ends; later failures are measured, even if the measured time still waits for operations that are stuck.
    ramp_end_ns: u64,
    cpu_ns: (u64, u64),
    ops: Vec<Op>,
    ops_over_limit: u64,
    /// Operations of an open loop that had not been issued at its end.
    behind: u64,
}

impl<'a> Loop<'a> {
    pub(super) fn new(
        spec: &'a BenchSpec,
        number: u32,
        connection: u32,
        lun: [u8; 8],
        capacity: Capacity,
    ) -> Result<Self, InitiatorError> {
        let block_bytes = capacity.block_bytes;
        let sizes = sizes(spec, block_bytes)?;
        let region_blocks = region(spec, capacity)?;
        let seed = spec.seed.wrapping_add(u64::from(number));
        let blocks_max = sizes.iter().map(|share| share.blocks).max().unwrap_or(1);
        let workload = Workload::new(WorkloadSpec {
            pattern: spec.pattern,
            read_percent: spec.read_percent,
            sizes,
            distribution: spec.distribution,
            first: 0,
            region_blocks,
            seed,
        });
        let workload = workload.ok_or_else(|| {
            InitiatorError::Spec(format!(
                "one operation of {} B does not fit {} B of disk",
                spec.block_bytes_max(),
                region_blocks * u64::from(block_bytes)
            ))
        })?;
        let depth_fits = !spec.verify || region_blocks / u64::from(blocks_max) > u64::from(spec.queue_depth);
        if !depth_fits {
            return Err(InitiatorError::Spec(
                "verification needs more blocks than operations in flight".to_owned(),
            ));
        }
        Ok(Self {
            spec,
            workload,
            connection,
            lun,
            block_bytes,
            slots: vec![Slot::FREE; spec.queue_depth as usize],
            ledger: spec.verify.then(|| Ledger::new(seed)),
            busy_lbas: HashSet::new(),
            // The kernel timestamps packets in real time, and records are joined with packets.
            now: if spec.record_ops > 0 { clock::realtime_ns } else { clock::monotonic_ns },
            tally: Tally::published(spec.live.clone()),
            first_error: None,
            verified: 0,
            mismatched: 0,
            ended: 0,
            ended_ns: 0,
            window_ns: (0, 0),
            ramp_end_ns: u64::MAX,
            cpu_ns: (0, 0),
            ops: Vec::new(),
            ops_over_limit: 0,
            behind: 0,
        })
    }

    pub(super) fn run(
        &mut self,
        session: &mut Session,
        start: &OnceLock<u64>,
        observe: Option<&(dyn Fn(Phase) + Sync)>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), InitiatorError> {
        if let Some(rate) = self.spec.rate {
            return self.run_open(session, observe, stop, rate / f64::from(self.spec.sessions));
        }
        // All sessions are measured in the same time, whenever their threads run.
        let begin_at = *start.get_or_init(self.now) + self.spec.ramp.as_nanos() as u64;
        self.ramp_end_ns = begin_at;
        let mut end_at = begin_at + self.spec.runtime.as_nanos() as u64;
        let (mut begun, mut has_waited) = (false, false);
        for slot in 0..self.spec.queue_depth {
            self.issue(slot, (self.now)(), session)?;
        }
        session.flush()?;
        loop {
            let now = (self.now)();
            if !begun && now >= begin_at && (self.is_calm(now) || now >= begin_at + CALM_PATIENCE_NS) {
                begun = true;
                if let Some(observe) = observe {
                    observe(Phase::Begin);
                }
                self.window_ns.0 = (self.now)();
                if has_waited || self.spec.sessions == 1 {
                    end_at = self.window_ns.0 + self.spec.runtime.as_nanos() as u64;
                }
                self.cpu_ns.0 = clock::thread_cpu_ns();
            }
            has_waited |= !begun && now >= begin_at;
            let over = now >= end_at && (self.is_calm(now) || now >= end_at + CALM_PATIENCE_NS);
            if begun && (over || stop()) {
                break;
            }
            session.receive()?;
            self.drain(session, Next::Successors, begun)?;
        }
        self.end(session, observe)
    }

    /// Ends the measured time, and waits for the operations in flight.
    fn end(
        &mut self,
        session: &mut Session,
        observe: Option<&(dyn Fn(Phase) + Sync)>,
    ) -> Result<(), InitiatorError> {
        (self.window_ns.1, self.cpu_ns.1) = ((self.now)(), clock::thread_cpu_ns());
        if let Some(observe) = observe {
            observe(Phase::End);
        }
        while session.connection.in_flight() > 0 {
            session.receive()?;
            self.drain(session, Next::Nothing, false)?;
        }
        Ok(())
    }

    /// Returns whether no operation in flight is stuck. The measured time begins and ends only then: an operation that is
    /// stuck at its end (on a retransmission timeout, say) would be missing in the mean round trip but not in the
    /// throughput, and QD = IOPS * RTT would not hold.
    fn is_calm(&self, now: u64) -> bool {
        let oldest = self.slots.iter().map(|slot| slot.start_ns).min().unwrap_or(now);
        let mean = self.ended_ns / u128::from(self.ended.max(1));
        u128::from(now.saturating_sub(oldest)) <= 2 * mean + CALM_MARGIN_NS
    }

    /// Handles all received events.
    fn drain(
        &mut self,
        session: &mut Session,
        mut next: Next<'_>,
        counted: bool,
    ) -> Result<(), InitiatorError> {
        loop {
            let step = session.next_event(|event, pdu_bytes, connection, outgoing| {
                self.event(&event, pdu_bytes, connection, outgoing, counted)
            })?;
            match step {
                None => break,
                Some(Step::Rejected(reason)) => return Err(session.rejected(reason)),
                Some(Step::Finished { slot, at_ns }) => match &mut next {
                    Next::Nothing => {}
                    Next::Free(free) => free.push(slot),
                    Next::Successors => {
                        self.issue(slot, at_ns, session)?;
                        if self.spec.submit == Submit::Each {
                            session.flush()?;
                        }
                    }
                },
                Some(Step::Nothing) => {}
            }
        }
        session.flush()
    }

    fn event(
        &mut self,
        event: &Event<'_>,
        pdu_bytes: u32,
        connection: &mut InitiatorConnection,
        outgoing: &mut TransmitBuffer,
        counted: bool,
    ) -> Step {
        match *event {
            Event::Data { user, buffer_offset, data, ref end } => {
                self.received(user, pdu_bytes);
                self.check_data(user, buffer_offset, data);
                end.as_ref().map_or(Step::Nothing, |end| self.finish(end, counted))
            }
            Event::End(ref end) => {
                self.received(end.user, pdu_bytes);
                self.finish(end, counted)
            }
            Event::Wanted { user, ref r2t } => {
                self.received(user, pdu_bytes);
                if let Some(slot) = self.slots.get_mut(user as usize) {
                    let (ledger, block, before) =
                        (self.ledger.as_ref(), self.block_bytes, outgoing.position());
                    connection.send_data(r2t, outgoing, |at, piece| fill(ledger, slot, block, at, piece));
                    slot.request_bytes += (outgoing.position() - before) as u32;
                }
                Step::Nothing
            }
            Event::Rejected(reason) => Step::Rejected(reason),
            _ => Step::Nothing,
        }
    }

    /// Counts the bytes of a PDU that belongs to an operation.
    #[inline]
    fn received(&mut self, slot: u32, pdu_bytes: u32) {
        if let Some(slot) = self.slots.get_mut(slot as usize) {
            slot.response_bytes = slot.response_bytes.saturating_add(pdu_bytes);
        }
    }

    fn finish(&mut self, end: &Completion<'_>, counted: bool) -> Step {
        let at_ns = (self.now)();
        let Some(slot) = self.slots.get_mut(end.user as usize) else { return Step::Nothing };
        slot.is_in_flight = false;
        let slot = *slot;
        let transfer = Transfer::of(&slot, end, self.block_bytes);
        if transfer.failure.is_some() {
            self.first_error.get_or_insert_with(|| {
                format!(
                    "{} of LBA {}: status {:#04x}, sense {}, {} of {} B",
                    slot.name(),
                    slot.lba,
                    end.status,
                    describe_sense(end.sense),
                    transfer.bytes,
                    slot.data_bytes(self.block_bytes)
                )
            });
        }
        if let Some(ledger) = &mut self.ledger {
            self.busy_lbas.remove(&slot.lba);
            if slot.operation == Operation::Write && transfer.failure.is_none() {
                (slot.lba..slot.lba + u64::from(slot.blocks)).for_each(|lba| ledger.wrote(lba));
            }
            if slot.operation == Operation::Read && transfer.failure.is_none() {
                self.verified += u64::from(slot.blocks);
                self.mismatched += u64::from(slot.damaged);
            }
        }
        let round_trip_ns = at_ns.saturating_sub(slot.start_ns);
        self.ended += 1;
        self.ended_ns += u128::from(round_trip_ns);
        self.tally.add(&Finished {
            operation: slot.operation,
            round_trip_ns,
            bytes: if transfer.counts() { transfer.application_bytes } else { 0 },
            failure: transfer.failure,
            at_ns: counted.then(|| at_ns.saturating_sub(self.window_ns.0)),
        });
        self.record(&slot, end.tag, Stamp::at(at_ns), transfer.failure.is_some());
        Step::Finished { slot: end.user, at_ns }
    }

    /// Keeps the record of an operation, if records are requested.
    fn record(&mut self, slot: &Slot, tag: u32, finish: Stamp, has_failed: bool) {
        if self.ops.len() < self.spec.record_ops {
            self.ops.push(Op {
                connection: self.connection,
                tag,
                verb: Verb::Scsi(slot.cdb()[0]),
                kind: slot.kind(),
                outcome: if has_failed { record::Outcome::Failed } else { record::Outcome::Good },
                queue_depth: self.spec.queue_depth,
                data_bytes: slot.data_bytes(self.block_bytes),
                request_bytes: slot.request_bytes,
                response_bytes: slot.response_bytes,
                start: Stamp::at(slot.start_ns),
                finish,
                ..Op::default()
            });
        } else if self.spec.record_ops > 0 {
            self.ops_over_limit += 1;
        }
    }

    /// Counts the operations in flight as failed, because the session is lost, and ends the measured time.
    pub(super) fn lose(&mut self, class: FailureClass, error: &InitiatorError) {
        let now = (self.now)();
        self.first_error.get_or_insert_with(|| error.to_string());
        let lost: Vec<Slot> = self.slots.iter().copied().filter(|slot| slot.is_in_flight).collect();
        if self.window_ns.0 == 0 && now >= self.ramp_end_ns {
            (self.window_ns.0, self.cpu_ns.0) = (self.ramp_end_ns, clock::thread_cpu_ns());
        }
        let is_measured = self.window_ns.0 > 0 && self.window_ns.1 == 0;
        let at_ns = is_measured.then(|| now.saturating_sub(self.window_ns.0));
        for slot in &lost {
            self.tally.lose(Some(slot.operation), class, at_ns);
            self.record(slot, 0, Stamp::MISSING, true);
        }
        if lost.is_empty() {
            self.tally.lose(None, class, at_ns);
        }
        if self.window_ns.0 == 0 {
            (self.window_ns.0, self.cpu_ns.0) = (now, clock::thread_cpu_ns());
        }
        if self.window_ns.1 == 0 {
            (self.window_ns.1, self.cpu_ns.1) = (now, clock::thread_cpu_ns());
        }
    }

    fn issue(&mut self, slot: u32, start_ns: u64, session: &mut Session) -> Result<(), InitiatorError> {
        let mut access = self.workload.next_access();
        while self.ledger.is_some() && self.busy_lbas.contains(&access.lba) {
            // With two operations in flight on a block the expected content would be ambiguous.
            access = self.workload.next_access();
        }
        let mut record = Slot {
            start_ns,
            operation: access.operation,
            lba: access.lba,
            blocks: access.blocks,
            is_in_flight: true,
            ..Slot::FREE
        };
        if let Some(ledger) = &mut self.ledger {
            self.busy_lbas.insert(access.lba);
            if access.operation == Operation::Write {
                for block in 0..u64::from(access.blocks) {
                    record.generation = ledger.writing(access.lba + block);
                }
            }
        }
        let (ledger, block) = (self.ledger.as_ref(), self.block_bytes);
        let request = Request { lun: self.lun, cdb: record.cdb(), data: record.data(block), user: slot };
        let issued =
            session.issue(&request, record.kind(), |at, piece| fill(ledger, &record, block, at, piece));
        record.request_bytes = issued.map_err(|in_flight| {
            InitiatorError::Spec(format!(
                "the target's command window allows only {}; use a lower queue depth",
                commands(in_flight)
            ))
        })?;
        self.slots[slot as usize] = record;
        Ok(())
    }

    pub(super) fn outcome(self, seen: Vec<Op>) -> Outcome {
        Outcome {
            tally: self.tally,
            first_error: self.first_error,
            verified: self.verified,
            mismatched: self.mismatched,
            window_ns: self.window_ns,
            cpu_ns: self.cpu_ns.1.saturating_sub(self.cpu_ns.0),
            ops: self.ops,
            ops_over_limit: self.ops_over_limit,
            behind: self.behind,
            seen,
            thread: socket::cpu::thread_id(),
        }
    }
}

/// An event as the loop handles it.
enum Step {
    Nothing,
    Finished { slot: u32, at_ns: u64 },
    Rejected(u8),
}
