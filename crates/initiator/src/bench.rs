//! The closed loop: exactly QD operations in the ring, each completion issues its successor.

use std::collections::HashSet;
use std::sync::{Barrier, Mutex, PoisonError};
use std::time::Duration;

use iscsi::TransmitBuffer;
use iscsi::initiator::{Completion, Direction, Event, InitiatorConnection, Request};
use ring::{Lap, OpKind, Sighting, Stamp};
use serde::{Deserialize, Serialize};
use socket::clock;

use crate::commands::{self, describe_sense};
use crate::error::InitiatorError;
use crate::latency::{Latency, LatencyFigures};
use crate::session::{Capacity, Session, SessionOptions};
use crate::url::IscsiUrl;
use crate::verify::{Ledger, Mismatch};
use crate::workload::{Pattern, Workload};

/// Deepest queue of one session.
pub const QUEUE_DEPTH_MAX: u32 = 1024;

/// Largest block size, bytes.
pub const BLOCK_BYTES_MAX: u64 = 16 << 20;

/// Most data of one read of what was written, bytes.
const READ_BACK_BYTES: u32 = 256 << 10;

/// When successor requests leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Submit {
    /// Each in a send of its own, at once: what the model assumes.
    #[default]
    Each,
    /// All that one receive made possible in one send.
    Batch,
}

/// One run.
#[derive(Clone, Debug)]
pub struct BenchSpec {
    /// Access pattern.
    pub pattern: Pattern,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Operations in flight per session.
    pub queue_depth: u32,
    /// Sessions, each on a connection and a thread of its own.
    pub sessions: u32,
    /// How long to measure.
    pub runtime: Duration,
    /// How long to run before that, so that the first exchanges (quick ACKs, cold caches) do not count.
    pub ramp: Duration,
    /// When successors leave.
    pub submit: Submit,
    /// Check what is read, and read back what was written.
    pub verify: bool,
    /// Use only this many bytes of the disk; nothing uses all of it.
    pub size_bytes: Option<u64>,
    /// For the random patterns, and the mark of verified blocks.
    pub seed: u64,
    /// Keep a record of every operation, at most this many per session.
    pub record_laps: usize,
    /// Keep both sides of the session on this CPU.
    pub cpu: Option<usize>,
}

impl Default for BenchSpec {
    fn default() -> Self {
        Self {
            pattern: Pattern::RandRead,
            block_bytes: 512,
            queue_depth: 1,
            sessions: 1,
            runtime: Duration::from_secs(5),
            ramp: Duration::from_millis(200),
            submit: Submit::Each,
            verify: false,
            size_bytes: None,
            seed: 1,
            record_laps: 0,
            cpu: None,
        }
    }
}

/// The moments of a run that an observer may want to know; called on the first session's thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// The measured time begins.
    Begin,
    /// It ends.
    End,
}

/// The figures of a run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RunResult {
    /// Access pattern.
    pub rw: Pattern,
    /// Bytes per operation.
    pub block_size_bytes: u64,
    /// Operations in flight, all sessions together.
    pub queue_depth: u32,
    /// Sessions.
    pub sessions: u32,
    /// When successors left.
    pub submit: Submit,
    /// Measured time, seconds.
    pub seconds: f64,
    /// Operations that ended within it.
    pub operations: u64,
    /// Operations per second.
    pub iops: f64,
    /// Application bytes per second.
    pub bytes_per_second: f64,
    /// Operations that ended with another status than GOOD, over the whole run.
    pub errors: u64,
    /// The first error, in words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_error: Option<String>,
    /// Blocks checked; absent when verification was off.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verified_blocks: Option<u64>,
    /// Blocks that were not what they should be.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mismatched_blocks: Option<u64>,
    /// CPU time of the client threads per operation, microseconds.
    pub client_cpu_us: f64,
    /// Round trips, microseconds.
    pub latency_us: LatencyFigures,
}

/// A run with its records.
#[derive(Clone, Debug)]
pub struct Bench {
    /// The figures.
    pub result: RunResult,
    /// Every operation from the first to the last, ramp included, where asked for.
    pub laps: Vec<Lap>,
    /// Operations that were not recorded because the record was full.
    pub laps_over_limit: u64,
    /// When the measured time began and ended, on the clock of the laps.
    pub window: (Stamp, Stamp),
    /// The client's sightings from kernel stamps, where asked for.
    pub sightings: Vec<Sighting>,
    /// Thread numbers of the sessions.
    pub threads: Vec<i32>,
}

impl Bench {
    /// Runs a workload against a disk.
    ///
    /// `observe` is called when the measured time begins and ends. `stop` is asked between completions; true
    /// ends the run early.
    ///
    /// # Errors
    /// When the workload does not fit the disk, or a session fails.
    pub fn run(
        url: &IscsiUrl,
        options: &SessionOptions,
        spec: &BenchSpec,
        observe: &(dyn Fn(Phase) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Self, InitiatorError> {
        check(spec)?;
        let barrier = Barrier::new(spec.sessions as usize);
        let outcomes = Mutex::new(Vec::new());
        std::thread::scope(|scope| {
            for number in 0..spec.sessions {
                let (barrier, outcomes) = (&barrier, &outcomes);
                scope.spawn(move || {
                    let outcome = run_session(url, options, spec, number, barrier, observe, stop);
                    outcomes.lock().unwrap_or_else(PoisonError::into_inner).push((number, outcome));
                });
            }
        });
        let mut outcomes = outcomes.into_inner().unwrap_or_else(PoisonError::into_inner);
        outcomes.sort_by_key(|(number, _)| *number);
        let outcomes = outcomes.into_iter().map(|(_, o)| o).collect::<Result<Vec<_>, _>>()?;
        Ok(merge(spec, outcomes))
    }
}

fn check(spec: &BenchSpec) -> Result<(), InitiatorError> {
    let wrong = |text: String| Err(InitiatorError::Spec(text));
    if spec.queue_depth == 0 || spec.queue_depth > QUEUE_DEPTH_MAX {
        return wrong(format!("queue depth {}: 1 to {QUEUE_DEPTH_MAX} are possible", spec.queue_depth));
    }
    if spec.sessions == 0 || spec.sessions > 1024 {
        return wrong(format!("{} sessions: 1 to 1024 are possible", spec.sessions));
    }
    if spec.block_bytes == 0 || spec.block_bytes > BLOCK_BYTES_MAX {
        return wrong(format!("block size {} B: 1 logical block to 16M are possible", spec.block_bytes));
    }
    if spec.runtime.is_zero() {
        return wrong("a run needs a runtime above zero, such as 5s".to_owned());
    }
    if spec.verify && spec.pattern.writes() && spec.sessions > 1 {
        return wrong("verified writes need one session: sessions do not know what others write".to_owned());
    }
    Ok(())
}

/// What one session brings home.
struct Outcome {
    latency: Latency,
    operations: u64,
    errors: u64,
    first_error: Option<String>,
    verified: u64,
    mismatched: u64,
    window_ns: (u64, u64),
    cpu_ns: u64,
    laps: Vec<Lap>,
    laps_over_limit: u64,
    sightings: Vec<Sighting>,
    thread: i32,
}

fn merge(spec: &BenchSpec, outcomes: Vec<Outcome>) -> Bench {
    let mut latency = Latency::new();
    let (mut operations, mut errors, mut verified, mut mismatched, mut cpu_ns) = (0, 0, 0, 0, 0);
    let (mut laps, mut sightings, mut laps_over_limit, mut first_error) = (Vec::new(), Vec::new(), 0, None);
    let (mut iops, mut window_ns, mut threads) = (0.0, (u64::MAX, 0), Vec::new());
    for o in outcomes {
        latency.add(&o.latency);
        operations += o.operations;
        errors += o.errors;
        verified += o.verified;
        mismatched += o.mismatched;
        cpu_ns += o.cpu_ns;
        let seconds = (o.window_ns.1 - o.window_ns.0) as f64 / 1e9;
        iops += o.operations as f64 / seconds.max(1e-9);
        window_ns = (window_ns.0.min(o.window_ns.0), window_ns.1.max(o.window_ns.1));
        first_error = first_error.or(o.first_error);
        laps_over_limit += o.laps_over_limit;
        laps.extend(o.laps);
        sightings.extend(o.sightings);
        threads.push(o.thread);
    }
    let result = RunResult {
        rw: spec.pattern,
        block_size_bytes: spec.block_bytes,
        queue_depth: spec.queue_depth * spec.sessions,
        sessions: spec.sessions,
        submit: spec.submit,
        seconds: (window_ns.1 - window_ns.0) as f64 / 1e9,
        operations,
        iops,
        bytes_per_second: iops * spec.block_bytes as f64,
        errors,
        first_error,
        verified_blocks: spec.verify.then_some(verified),
        mismatched_blocks: spec.verify.then_some(mismatched),
        client_cpu_us: cpu_ns as f64 / 1000.0 / operations.max(1) as f64,
        latency_us: latency.figures(),
    };
    Bench {
        result,
        laps,
        laps_over_limit,
        window: (Stamp::at(window_ns.0), Stamp::at(window_ns.1)),
        sightings,
        threads,
    }
}

fn run_session(
    url: &IscsiUrl,
    options: &SessionOptions,
    spec: &BenchSpec,
    number: u32,
    barrier: &Barrier,
    observe: &(dyn Fn(Phase) + Sync),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Outcome, InitiatorError> {
    let opened = (|| {
        if let Some(cpu) = spec.cpu {
            socket::cpu::pin(cpu).map_err(|e| InitiatorError::Spec(format!("CPU {cpu}: {e}")))?;
        }
        let options = SessionOptions { session_number: number as u16, ..options.clone() };
        let mut session = Session::open(url, &options)?;
        let capacity = session.capacity()?;
        let looped = Loop::new(spec, number, session.port.into(), session.lun, capacity)?;
        Ok((session, looped))
    })();
    // Every session comes to the barrier, also one that failed, or the others would wait for ever.
    barrier.wait();
    let (mut session, mut looped) = opened?;
    looped.run(&mut session, if number == 0 { Some(observe) } else { None }, stop)?;
    if spec.verify {
        looped.read_back(&mut session)?;
    }
    let sightings = session.close()?;
    Ok(looped.outcome(sightings))
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

/// The state of one session's closed loop.
struct Loop<'a> {
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
    window_ns: (u64, u64),
    cpu_ns: (u64, u64),
    laps: Vec<Lap>,
    laps_over_limit: u64,
}

impl<'a> Loop<'a> {
    fn new(
        spec: &'a BenchSpec,
        number: u32,
        connection: u32,
        lun: [u8; 8],
        capacity: Capacity,
    ) -> Result<Self, InitiatorError> {
        let block_bytes = capacity.block_bytes;
        if block_bytes == 0 || !spec.block_bytes.is_multiple_of(block_bytes.into()) {
            return Err(InitiatorError::Spec(format!(
                "block size {} B is no multiple of the disk's logical block of {block_bytes} B",
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
            // Records are joined with packets, which the kernel stamps in real time.
            now: if spec.record_laps > 0 { clock::realtime_ns } else { clock::monotonic_ns },
            latency: Latency::new(),
            operations: 0,
            errors: 0,
            first_error: None,
            verified: 0,
            mismatched: 0,
            window_ns: (0, 0),
            cpu_ns: (0, 0),
            laps: Vec::new(),
            laps_over_limit: 0,
        })
    }

    fn run(
        &mut self,
        session: &mut Session,
        observe: Option<&(dyn Fn(Phase) + Sync)>,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<(), InitiatorError> {
        let begin_at = (self.now)() + self.spec.ramp.as_nanos() as u64;
        let mut end_at = begin_at + self.spec.runtime.as_nanos() as u64;
        let mut begun = false;
        for slot in 0..self.spec.queue_depth {
            self.issue(slot, (self.now)(), session)?;
        }
        session.flush()?;
        loop {
            let now = (self.now)();
            if !begun && now >= begin_at {
                begun = true;
                if let Some(observe) = observe {
                    observe(Phase::Begin);
                }
                self.window_ns.0 = (self.now)();
                end_at = self.window_ns.0 + self.spec.runtime.as_nanos() as u64;
                self.cpu_ns.0 = clock::thread_cpu_ns();
            }
            if begun && (now >= end_at || stop()) {
                break;
            }
            session.receive()?;
            self.drain(session, true, begun)?;
        }
        self.window_ns.1 = (self.now)();
        self.cpu_ns.1 = clock::thread_cpu_ns();
        if let Some(observe) = observe {
            observe(Phase::End);
        }
        while session.connection.in_flight() > 0 {
            session.receive()?;
            self.drain(session, false, false)?;
        }
        Ok(())
    }

    /// Takes all events that have come; with `go_on` each completion issues its successor.
    fn drain(&mut self, session: &mut Session, go_on: bool, counted: bool) -> Result<(), InitiatorError> {
        loop {
            let step = session.next_event(|event, connection, outgoing| {
                self.event(&event, connection, outgoing, counted)
            })?;
            match step {
                None => break,
                Some(Step::Rejected(reason)) => return Err(session.rejected(reason)),
                Some(Step::Finished { slot, at_ns }) if go_on => {
                    self.issue(slot, at_ns, session)?;
                    if self.spec.submit == Submit::Each {
                        session.flush()?;
                    }
                }
                Some(Step::Nothing | Step::Finished { .. }) => {}
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
        if end.status != iscsi::status::GOOD || end.received_bytes != expected {
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
        if counted {
            self.operations += 1;
            self.latency.record(at_ns.saturating_sub(slot.start_ns));
        }
        if self.laps.len() < self.spec.record_laps {
            self.laps.push(Lap {
                connection: self.connection,
                tag: end.tag,
                kind: if slot.write { OpKind::Write } else { OpKind::Read },
                data_bytes: self.blocks * self.block_bytes,
                start: Stamp::at(slot.start_ns),
                finish: Stamp::at(at_ns),
            });
        } else if self.spec.record_laps > 0 {
            self.laps_over_limit += 1;
        }
        Step::Finished { slot: end.user, at_ns }
    }

    fn issue(&mut self, slot: u32, start_ns: u64, session: &mut Session) -> Result<(), InitiatorError> {
        let mut access = self.workload.next_access();
        while self.ledger.is_some() && self.busy_lbas.contains(&access.lba) {
            // Two operations on one block at a time would leave open which of them the last one was.
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
                    "the target takes no more than {in_flight} commands at once; use a lower queue depth"
                ))
            },
        )
    }

    /// Judges the whole blocks of a piece of read data; a block that straddles pieces is left out of
    /// judgement only where segments are no multiple of it.
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

    /// Reads everything that was written once more, neighbours together.
    fn read_back(&mut self, session: &mut Session) -> Result<(), InitiatorError> {
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

    fn outcome(self, sightings: Vec<Sighting>) -> Outcome {
        Outcome {
            latency: self.latency,
            operations: self.operations,
            errors: self.errors,
            first_error: self.first_error,
            verified: self.verified,
            mismatched: self.mismatched,
            window_ns: self.window_ns,
            cpu_ns: self.cpu_ns.1.saturating_sub(self.cpu_ns.0),
            laps: self.laps,
            laps_over_limit: self.laps_over_limit,
            sightings,
            thread: socket::cpu::thread_id(),
        }
    }
}

/// What an event means for the loop.
enum Step {
    Nothing,
    Finished { slot: u32, at_ns: u64 },
    Rejected(u8),
}

/// The bytes of a write from `at` on: verified blocks, or zeros.
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
    fn a_run_that_cannot_be_is_refused_with_what_is_possible() {
        let spec = BenchSpec::default();
        let text = |spec: &BenchSpec| check(spec).unwrap_err().to_string();
        assert!(text(&BenchSpec { queue_depth: 0, ..spec.clone() }).contains("1 to 1024"));
        assert!(text(&BenchSpec { block_bytes: 0, ..spec.clone() }).contains("16M"));
        assert!(text(&BenchSpec { runtime: Duration::ZERO, ..spec.clone() }).contains("5s"));
        let verified = BenchSpec { verify: true, sessions: 2, pattern: Pattern::RandWrite, ..spec };
        assert!(text(&verified).contains("one session"));
    }

    #[test]
    fn a_write_s_pieces_are_the_bytes_of_its_blocks() {
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
