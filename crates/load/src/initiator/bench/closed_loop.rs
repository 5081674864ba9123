//! The load loops of a session: closed, or open with a fixed rate.

use std::collections::HashSet;

use iscsi::TransmitBuffer;
use iscsi::initiator::{Completion, Direction, Event, InitiatorConnection, Request};
use record::{Op, OpKind, Stamp, Verb};
use socket::clock;

use super::{BenchSpec, Phase};
use crate::initiator::commands::{self, describe_sense};
use crate::initiator::error::InitiatorError;
use crate::initiator::session::{Capacity, Session};
use crate::initiator::verify::{Ledger, Mismatch};
use crate::initiator::workload::Workload;
use crate::pattern::Submit;
use record::latency::Latency;

/// An operation this much older than twice the mean round trip is stuck, nanoseconds.
const CALM_MARGIN_NS: u128 = 100_000;

/// Longest delay of the begin and the end of the measured time for stuck operations, nanoseconds.
const CALM_PATIENCE_NS: u64 = 1_000_000_000;

/// Most data of a verification read, bytes.
const READ_BACK_BYTES: u32 = 256 << 10;

/// The results of a session.
pub(super) struct Outcome {
    pub(super) latency: Latency,
    pub(super) operations: u64,
    pub(super) errors: u64,
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

/// An operation in flight.
#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    start_ns: u64,
    lba: u64,
    generation: u32,
    write: bool,
    damaged: bool,
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
    blocks: u32,
    slots: Vec<Slot>,
    ledger: Option<Ledger>,
    busy_lbas: HashSet<u64>,
    now: fn() -> u64,
    latency: Latency,
    operations: u64,
    errors: u64,
    first_error: Option<String>,
    verified: u64,
    mismatched: u64,
    /// Completed operations, ramp included, and the sum of their round trips.
    ended: u64,
    ended_ns: u128,
    window_ns: (u64, u64),
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
        if block_bytes == 0 || !spec.block_bytes.is_multiple_of(block_bytes.into()) {
            return Err(InitiatorError::Spec(format!(
                "block size {} B is not a multiple of the disk's logical block of {block_bytes} B",
                spec.block_bytes
            )));
        }
        let blocks = (spec.block_bytes / u64::from(block_bytes)) as u32;
        let disk = capacity.blocks;
        let region = spec.size_bytes.map_or(disk, |bytes| bytes / u64::from(block_bytes)).min(disk);
        let seed = spec.seed.wrapping_add(u64::from(number));
        let workload = Workload::new(spec.pattern, blocks, 0, region, seed).ok_or_else(|| {
            InitiatorError::Spec(format!(
                "one operation of {} B does not fit {} B of disk",
                spec.block_bytes,
                region * u64::from(block_bytes)
            ))
        })?;
        let depth_fits = !spec.verify || region / u64::from(blocks) > u64::from(spec.queue_depth);
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
            blocks,
            slots: vec![Slot::default(); spec.queue_depth as usize],
            ledger: spec.verify.then(|| Ledger::new(seed)),
            busy_lbas: HashSet::new(),
            // The kernel timestamps packets in real time, and records are joined with packets.
            now: if spec.record_ops > 0 { clock::realtime_ns } else { clock::monotonic_ns },
            latency: Latency::new(),
            operations: 0,
            errors: 0,
            first_error: None,
            verified: 0,
            mismatched: 0,
            ended: 0,
            ended_ns: 0,
            window_ns: (0, 0),
            cpu_ns: (0, 0),
            ops: Vec::new(),
            ops_over_limit: 0,
            behind: 0,
        })
    }

    pub(super) fn run(
        &mut self,
        session: &mut Session,
        observe: Option<&(dyn Fn(Phase) + Sync)>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), InitiatorError> {
        if let Some(rate) = self.spec.rate {
            return self.run_open(session, observe, stop, rate / f64::from(self.spec.sessions));
        }
        let begin_at = (self.now)() + self.spec.ramp.as_nanos() as u64;
        let mut end_at = begin_at + self.spec.runtime.as_nanos() as u64;
        let mut begun = false;
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
                end_at = self.window_ns.0 + self.spec.runtime.as_nanos() as u64;
                self.cpu_ns.0 = clock::thread_cpu_ns();
            }
            let over = now >= end_at && (self.is_calm(now) || now >= end_at + CALM_PATIENCE_NS);
            if begun && (over || stop()) {
                break;
            }
            session.receive()?;
            self.drain(session, Next::Successors, begun)?;
        }
        self.window_ns.1 = (self.now)();
        self.cpu_ns.1 = clock::thread_cpu_ns();
        if let Some(observe) = observe {
            observe(Phase::End);
        }
        while session.connection.in_flight() > 0 {
            session.receive()?;
            self.drain(session, Next::Nothing, false)?;
        }
        Ok(())
    }

    /// Runs an open loop of `rate` operations a second. An operation that finds no free slot at its scheduled time is issued
    /// later, and its round trip counts from the scheduled time.
    fn run_open(
        &mut self,
        session: &mut Session,
        observe: Option<&(dyn Fn(Phase) + Sync)>,
        stop: &(dyn Fn() -> bool + Sync),
        rate: f64,
    ) -> Result<(), InitiatorError> {
        let start = (self.now)();
        let begin_at = start + self.spec.ramp.as_nanos() as u64;
        let end_at = begin_at + self.spec.runtime.as_nanos() as u64;
        let due = |number: u64| start + (number as f64 * 1e9 / rate) as u64;
        let mut free: Vec<u32> = (0..self.spec.queue_depth).rev().collect();
        let (mut next, mut begun) = (0_u64, false);
        loop {
            let now = (self.now)();
            if !begun && now >= begin_at {
                begun = true;
                if let Some(observe) = observe {
                    observe(Phase::Begin);
                }
                (self.window_ns.0, self.cpu_ns.0) = ((self.now)(), clock::thread_cpu_ns());
            }
            while due(next) <= now
                && let Some(slot) = free.pop()
            {
                self.issue(slot, due(next), session)?;
                next += 1;
                if self.spec.submit == Submit::Each {
                    session.flush()?;
                }
            }
            session.flush()?;
            if begun && (now >= end_at || stop()) {
                // Operations that were due but found no free slot.
                let should = ((now - start) as f64 * rate / 1e9) as u64;
                self.behind = should.saturating_sub(next);
                break;
            }
            let until = if free.is_empty() { end_at.max(begin_at) } else { due(next) };
            if session.wait(std::time::Duration::from_nanos(until.saturating_sub((self.now)())))? {
                session.receive()?;
            }
            self.drain(session, Next::Free(&mut free), begun)?;
        }
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
            let step = session.next_event(|event, connection, outgoing| {
                self.event(&event, connection, outgoing, counted)
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
        connection: &mut InitiatorConnection,
        outgoing: &mut TransmitBuffer,
        counted: bool,
    ) -> Step {
        match *event {
            Event::Data { user, buffer_offset, data, ref end } => {
                self.check_data(user, buffer_offset, data);
                end.as_ref().map_or(Step::Nothing, |end| self.finish(end, counted))
            }
            Event::End(ref end) => self.finish(end, counted),
            Event::Wanted { user, ref r2t } => {
                if let Some(slot) = self.slots.get(user as usize).copied() {
                    let (ledger, block) = (self.ledger.as_ref(), self.block_bytes);
                    connection.send_data(r2t, outgoing, |at, piece| fill(ledger, &slot, block, at, piece));
                }
                Step::Nothing
            }
            Event::Rejected(reason) => Step::Rejected(reason),
            _ => Step::Nothing,
        }
    }

    fn finish(&mut self, end: &Completion<'_>, counted: bool) -> Step {
        let at_ns = (self.now)();
        let Some(slot) = self.slots.get(end.user as usize).copied() else { return Step::Nothing };
        let expected = if slot.write { 0 } else { self.blocks * self.block_bytes };
        let has_failed = end.status != iscsi::status::GOOD || end.received_bytes != expected;
        if has_failed {
            self.errors += 1;
            self.first_error.get_or_insert_with(|| {
                format!(
                    "{} of LBA {}: status {:#04x}, sense {}, {} of {expected} B",
                    if slot.write { "write" } else { "read" },
                    slot.lba,
                    end.status,
                    describe_sense(end.sense),
                    end.received_bytes
                )
            });
        }
        if self.ledger.is_some() {
            self.busy_lbas.remove(&slot.lba);
            if !slot.write {
                self.verified += u64::from(self.blocks);
                self.mismatched += u64::from(slot.damaged);
            }
        }
        let round_trip_ns = at_ns.saturating_sub(slot.start_ns);
        self.ended += 1;
        self.ended_ns += u128::from(round_trip_ns);
        if counted {
            self.operations += 1;
            self.latency.record(round_trip_ns);
        }
        if self.ops.len() < self.spec.record_ops {
            self.ops.push(Op {
                connection: self.connection,
                tag: end.tag,
                verb: Verb::Scsi(commands::read_write(slot.write, slot.lba, self.blocks)[0]),
                kind: if slot.write { OpKind::Write } else { OpKind::Read },
                outcome: if has_failed { record::Outcome::Failed } else { record::Outcome::Good },
                queue_depth: self.spec.queue_depth,
                data_bytes: self.blocks * self.block_bytes,
                start: Stamp::at(slot.start_ns),
                finish: Stamp::at(at_ns),
                ..Op::default()
            });
        } else if self.spec.record_ops > 0 {
            self.ops_over_limit += 1;
        }
        Step::Finished { slot: end.user, at_ns }
    }

    fn issue(&mut self, slot: u32, start_ns: u64, session: &mut Session) -> Result<(), InitiatorError> {
        let mut access = self.workload.next_access();
        while self.ledger.is_some() && self.busy_lbas.contains(&access.lba) {
            // With two operations in flight on a block the expected content would be ambiguous.
            access = self.workload.next_access();
        }
        let mut record =
            Slot { start_ns, lba: access.lba, generation: 0, write: access.write, damaged: false };
        if let Some(ledger) = &mut self.ledger {
            self.busy_lbas.insert(access.lba);
            if access.write {
                for block in 0..u64::from(self.blocks) {
                    record.generation = ledger.writing(access.lba + block);
                }
            }
        }
        self.slots[slot as usize] = record;
        let bytes = self.blocks * self.block_bytes;
        let request = Request {
            lun: self.lun,
            cdb: commands::read_write(access.write, access.lba, self.blocks),
            data: if access.write { Direction::Out(bytes) } else { Direction::In(bytes) },
            user: slot,
        };
        let (ledger, block) = (self.ledger.as_ref(), self.block_bytes);
        let kind = if access.write { OpKind::Write } else { OpKind::Read };
        session.issue(&request, kind, |at, piece| fill(ledger, &record, block, at, piece)).map_err(
            |in_flight| {
                InitiatorError::Spec(format!(
                    "the target's command window allows only {in_flight} commands; use a lower queue depth"
                ))
            },
        )
    }

    /// Verifies the whole blocks of a piece of read data. Blocks that straddle pieces are skipped; that happens only when
    /// the segment length is not a multiple of the block.
    fn check_data(&mut self, slot: u32, at: u32, data: &[u8]) {
        let Some(ledger) = &self.ledger else { return };
        let Some(record) = self.slots.get_mut(slot as usize) else { return };
        let block = self.block_bytes as usize;
        if !(at as usize).is_multiple_of(block) {
            return;
        }
        let first = record.lba + u64::from(at / self.block_bytes);
        for (index, content) in data.chunks_exact(block).enumerate() {
            if let Err(mismatch) = ledger.judge(content, first + index as u64) {
                record.damaged = true;
                self.first_error.get_or_insert_with(|| format!("LBA {}: {mismatch:?}", first + index as u64));
            }
        }
    }

    /// Reads back all written blocks, adjacent blocks in one read.
    pub(super) fn read_back(&mut self, session: &mut Session) -> Result<(), InitiatorError> {
        let Some(ledger) = &self.ledger else { return Ok(()) };
        let written = ledger.written();
        let most = (READ_BACK_BYTES / self.block_bytes.max(1)).max(1) as usize;
        for run in written.chunk_by(|a, b| a + 1 == *b).flat_map(|run| run.chunks(most)) {
            let blocks = run.len() as u32;
            let cdb = commands::read_write(false, run[0], blocks);
            let reply = session.command(cdb, Direction::In(blocks * self.block_bytes))?;
            let mut contents = reply.data.chunks_exact(self.block_bytes as usize);
            for &lba in run {
                self.verified += 1;
                let judged = match contents.next() {
                    Some(content) if reply.status == iscsi::status::GOOD => ledger.judge(content, lba),
                    _ => Err(Mismatch::Lost),
                };
                if let Err(mismatch) = judged {
                    self.mismatched += 1;
                    self.first_error.get_or_insert_with(|| format!("LBA {lba} read back: {mismatch:?}"));
                }
            }
        }
        Ok(())
    }

    pub(super) fn outcome(self, seen: Vec<Op>) -> Outcome {
        Outcome {
            latency: self.latency,
            operations: self.operations,
            errors: self.errors,
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

/// Fills in the bytes of a write from `at` on: verified blocks, or zeros.
fn fill(ledger: Option<&Ledger>, slot: &Slot, block_bytes: u32, at: u32, piece: &mut [u8]) {
    let Some(ledger) = ledger else {
        piece.fill(0);
        return;
    };
    let block = block_bytes as usize;
    let mut content = vec![0; block];
    let mut done = 0;
    while done < piece.len() {
        let position = at as usize + done;
        let (index, within) = (position / block, position % block);
        ledger.fill(&mut content, slot.lba + index as u64, slot.generation);
        let count = (block - within).min(piece.len() - done);
        piece[done..done + count].copy_from_slice(&content[within..within + count]);
        done += count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_a_write_equal_its_blocks() {
        let mut ledger = Ledger::new(3);
        let generation = ledger.writing(10);
        ledger.writing(11);
        let slot = Slot { lba: 10, generation, write: true, ..Slot::default() };
        let mut whole = vec![0; 1024];
        fill(Some(&ledger), &slot, 512, 0, &mut whole);
        let mut pieces = vec![0; 1024];
        for at in (0..1024).step_by(100) {
            let end = (at + 100).min(1024);
            fill(Some(&ledger), &slot, 512, at as u32, &mut pieces[at..end]);
        }
        assert_eq!(whole, pieces);
        assert_eq!(ledger.judge(&whole[512..], 11), Ok(()));
    }
}
