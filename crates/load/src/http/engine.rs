//! The event-driven client: one thread that keeps many connections busy.
//!
//! A run has four stages. In the warm-up every connection is made and completes a few requests, because the kernel does not
//! delay the first acknowledgements of a connection. In the ramp and in the measured time requests start, one after the
//! other on each connection (closed loop) or at scheduled times (open loop); those of the ramp are in no figure. Then the
//! requests in flight end.

use std::collections::VecDeque;
use std::io;
use std::time::{Duration, Instant};

use nix::sys::epoll::{EpollEvent, EpollFlags, EpollTimeout};
use nix::sys::timer::{Expiration, TimerSetTimeFlags};
use nix::sys::timerfd::{ClockId, TimerFd, TimerFlags};
use record::Outcome;
use socket::clock;

use super::connection::{Connection, Flight, Phase, Progress, Shared};
use super::failure::{Failed, HttpFailure};
use super::records::{RecordSpec, Records};
use super::response::Response;
use super::tally::Tally;
use crate::failure::FailureClass;
use crate::pace::Pace;
use crate::ring_of_messages::WARM_UP;
use crate::series::{Live, Series};

/// Requests of each connection, at least, unless one fails: a short run of a slow server is not empty.
const ATTEMPTS_MIN: u32 = 10;
/// The first and the longest wait before connecting again, after a connection on which nothing was answered.
const BACKOFF_MIN: Duration = Duration::from_millis(1);
const BACKOFF_MAX: Duration = Duration::from_secs(1);
/// Events of one wait.
const EVENTS: usize = 256;
/// Bytes of one receive.
const RECEIVE_BYTES: usize = 128 << 10;
/// The token of the timer of scheduled requests.
const TIMER: u64 = u64::MAX;

/// What a thread does.
pub(super) struct Job<'a> {
    pub(super) shared: Shared<'a>,
    pub(super) connections: usize,
    /// Responses have no body: the method is HEAD.
    pub(super) is_bodyless: bool,
    /// A request may be repeated when its outcome is unknown.
    pub(super) is_idempotent: bool,
    /// Bodies of requests count as transferred, not those of responses.
    pub(super) is_write: bool,
    /// The records of operations.
    pub(super) record: RecordSpec,
    /// Shows how far the run is.
    pub(super) live: Live,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    WarmUp,
    Ramp,
    Measured,
    Draining,
}

pub(super) struct Engine<'a> {
    job: Job<'a>,
    timer: TimerFd,
    connections: Vec<Connection>,
    buffer: Box<[u8]>,
    tally: Tally,
    stage: Stage,
    /// Open loop: the schedule, the time that was taken from it, and the connections without a request.
    pace: Option<&'a Pace>,
    due: Option<Instant>,
    free: VecDeque<usize>,
    /// Closed loop: connections whose next request starts when all received responses have been processed. The sends
    /// would delay the processing of responses that are already there, and count in their latency.
    starting: VecDeque<usize>,
    in_flight: usize,
    /// Connections that have not done what the stage demands of each.
    lacking: usize,
    /// The begin of the measured time (in the ramp: when it is due) and its end.
    begun: Instant,
    end: Instant,
    /// When a deadline may have passed.
    next_check: Instant,
    /// Successful requests of each connection.
    completed: Vec<u64>,
    cpu_before_ns: u64,
    has_response: bool,
    records: Records,
}

impl<'a> Engine<'a> {
    /// Makes all connections and completes the warm-up.
    ///
    /// # Errors
    /// When the system refuses the means of waiting.
    pub(super) fn warmed_up(job: Job<'a>) -> io::Result<Self> {
        let timer =
            TimerFd::new(ClockId::CLOCK_MONOTONIC, TimerFlags::TFD_NONBLOCK | TimerFlags::TFD_CLOEXEC)?;
        // Edge-triggered: an expiry is reported once, without a read.
        let once = EpollFlags::EPOLLIN | EpollFlags::EPOLLET;
        job.shared.epoll.add(&timer, EpollEvent::new(once, TIMER))?;
        let (now, count) = (Instant::now(), job.connections);
        let mut engine = Self {
            timer,
            connections: (0..count).map(|index| Connection::new(index, job.is_bodyless)).collect(),
            buffer: vec![0; RECEIVE_BYTES].into(),
            tally: Tally::default(),
            stage: Stage::WarmUp,
            pace: None,
            due: None,
            free: VecDeque::new(),
            starting: VecDeque::new(),
            in_flight: 0,
            lacking: count,
            begun: now,
            end: now,
            next_check: now,
            completed: vec![0; count],
            cpu_before_ns: 0,
            has_response: false,
            records: Records::new(job.record),
            job,
        };
        (0..count).for_each(|index| engine.start(index, None));
        while engine.lacking > 0 {
            engine.turn()?;
        }
        Ok(engine)
    }

    /// Returns whether the server has answered anything, and otherwise why not.
    pub(super) fn reached(&self) -> Result<(), Option<Failed>> {
        if self.has_response { Ok(()) } else { Err(self.tally.first_failure.clone()) }
    }

    /// Runs the load, closed or with a schedule, for `ramp` and then `runtime`, and returns its figures.
    ///
    /// # Errors
    /// When waiting for events fails.
    pub(super) fn run(
        mut self,
        ramp: Duration,
        runtime: Duration,
        pace: Option<&'a Pace>,
    ) -> io::Result<Tally> {
        let Tally { set_ups, handshakes, .. } = std::mem::take(&mut self.tally);
        let series = Series::published(self.job.live.clone());
        self.tally = Tally { set_ups, handshakes, series, ..Tally::default() };
        self.pace = pace;
        let now = Instant::now();
        self.begun = now + ramp;
        self.end = pace.map_or(self.begun + runtime, Pace::end);
        self.next_check = now;
        self.stage = Stage::Ramp;
        self.advance(now);
        for index in 0..self.connections.len() {
            // A connection that could not be made in the warm-up waits.
            if !matches!(self.connections[index].phase, Phase::Waiting { .. }) {
                self.next(index);
            }
        }
        self.start_waiting();
        self.dispatch()?;
        while self.stage != Stage::Draining || self.in_flight > 0 {
            self.turn()?;
            self.dispatch()?;
        }
        self.tally.slowest = self.completed.iter().copied().min().unwrap_or(0);
        (self.tally.ops, self.tally.ops_over_limit) = self.records.take();
        Ok(self.tally)
    }

    /// Waits for events, and processes them and deadlines that have passed.
    fn turn(&mut self) -> io::Result<()> {
        let mut events = [EpollEvent::empty(); EVENTS];
        let left = self.next_check.saturating_duration_since(Instant::now());
        // Rounded up: a wait that ends early would be repeated until the time has come.
        let millis = left.as_nanos().div_ceil(1_000_000).min(60_000) as u16;
        let count = match self.job.shared.epoll.wait(&mut events, EpollTimeout::from(millis)) {
            Ok(count) => count,
            Err(nix::errno::Errno::EINTR) => 0,
            Err(error) => return Err(error.into()),
        };
        for event in &events[..count] {
            self.process(event);
        }
        self.start_waiting();
        let now = Instant::now();
        if now >= self.next_check {
            self.check(now);
            self.start_waiting();
        }
        Ok(())
    }

    #[inline]
    fn process(&mut self, event: &EpollEvent) {
        // The timer only ends the wait.
        if event.data() == TIMER {
            return;
        }
        let index = Connection::index(event.data());
        let Some(connection) = self.connections.get_mut(index).filter(|c| c.is_mine(event.data())) else {
            return;
        };
        match connection.progress(&self.job.shared, event.events(), &mut self.buffer) {
            Ok(Progress::Pending) => {}
            Ok(Progress::Ready(set_up)) => {
                self.tally.set_up(&set_up);
                connection.send(&self.job.shared);
            }
            Ok(Progress::Response(response, at)) => self.answered(index, response, at),
            Err(failed) => self.failed(index, failed),
        }
    }

    /// Processes deadlines, the end of waits and the end of the measured time.
    fn check(&mut self, now: Instant) {
        for index in 0..self.connections.len() {
            let connection = &mut self.connections[index];
            if connection.deadline(self.job.shared.patience).is_none_or(|deadline| deadline > now) {
                continue;
            }
            let waited = format_args!("no answer within {:?}", self.job.shared.patience).to_string();
            match connection.phase {
                Phase::Closed => {}
                Phase::Waiting { .. } => {
                    connection.phase = Phase::Closed;
                    if self.stage != Stage::WarmUp {
                        self.next(index);
                    }
                }
                Phase::Connecting { .. } => {
                    let server = self.job.shared.server;
                    self.failed(
                        index,
                        Failed::new(HttpFailure::CannotConnect, format_args!("{server}: {waited}")),
                    );
                }
                Phase::Handshaking { .. } => self.failed(index, Failed::new(HttpFailure::Handshake, waited)),
                Phase::Open => self.failed(index, Failed::timeout(self.job.shared.patience)),
            }
        }
        self.advance(now);
        let patience = self.job.shared.patience;
        let earliest = self.connections.iter().filter_map(|connection| connection.deadline(patience)).min();
        // Later requests have later deadlines.
        self.next_check = earliest.unwrap_or(now + patience);
        let change = match self.stage {
            Stage::Ramp => Some(self.begun),
            Stage::Measured => Some(self.end).filter(|end| *end > now),
            Stage::WarmUp | Stage::Draining => None,
        };
        self.next_check = change.map_or(self.next_check, |change| self.next_check.min(change));
    }

    /// Starts a request, on a new connection if there is none.
    #[inline]
    fn start(&mut self, index: usize, due: Option<Instant>) {
        let connection = &mut self.connections[index];
        connection.flight = Some(Flight::new(due));
        self.in_flight += 1;
        match connection.phase {
            Phase::Open => connection.send(&self.job.shared),
            _ => self.connect(index),
        }
    }

    fn connect(&mut self, index: usize) {
        if let Err(failed) = self.connections[index].connect(&self.job.shared) {
            self.failed(index, failed);
        }
    }

    #[inline]
    fn answered(&mut self, index: usize, response: Response, at: Instant) {
        let connection = &mut self.connections[index];
        connection.backoff = Duration::ZERO;
        self.has_response = true;
        let Some(flight) = connection.flight.take() else { return };
        self.in_flight -= 1;
        let begun = flight.begun.unwrap_or(at);
        let bytes = if self.job.is_write { self.job.shared.body.len() as u64 } else { response.body_bytes };
        let is_good = (200..300).contains(&response.status);
        if self.stage != Stage::WarmUp {
            let outcome = if is_good { Outcome::Good } else { Outcome::Failed };
            self.records.add(connection.port, &flight, bytes, outcome, Some(at));
        }
        if !is_good {
            connection.has_failed = true;
            self.count_failure(Failed::status(response.status), Some(begun), at);
        } else if self.stage == Stage::Measured {
            let latency_ns = at.saturating_duration_since(begun).as_nanos() as u64;
            self.tally.latency.record(latency_ns);
            self.completed[index] += 1;
            self.tally.bytes += bytes;
            self.tally.series.succeed(at.saturating_duration_since(self.begun), bytes, latency_ns);
        }
        self.ended(index, at);
    }

    /// Processes the failure of a connection and of its request.
    fn failed(&mut self, index: usize, failed: Failed) {
        let connection = &mut self.connections[index];
        let is_proven = connection.is_proven;
        connection.close();
        let Some(flight) = connection.flight.take() else { return };
        // A server may close a connection that it has kept open, while a request is on its way (RFC 9112 9.3.1).
        let is_unanswered =
            matches!(failed.class, FailureClass::Http(HttpFailure::ClosedBefore | HttpFailure::Reset));
        if is_unanswered && is_proven && self.job.is_idempotent && !flight.is_retry {
            connection.flight = Some(flight.again());
            self.tally.retries += 1;
            return self.connect(index);
        }
        self.in_flight -= 1;
        let now = Instant::now();
        if self.stage != Stage::WarmUp {
            self.records.add(connection.port, &flight, 0, Outcome::Failed, None);
        }
        connection.has_failed = true;
        if !is_proven {
            connection.backoff = (connection.backoff * 2).clamp(BACKOFF_MIN, BACKOFF_MAX);
            let until = now + connection.backoff;
            connection.phase = Phase::Waiting { until };
            self.next_check = self.next_check.min(until);
        }
        self.count_failure(failed, flight.begun, now);
        self.ended(index, now);
    }

    fn count_failure(&mut self, failed: Failed, begun: Option<Instant>, at: Instant) {
        match self.stage {
            // Only why a run has no result.
            Stage::WarmUp => _ = self.tally.first_failure.get_or_insert(failed),
            Stage::Ramp | Stage::Draining => self.tally.fail_unmeasured(failed),
            Stage::Measured => {
                self.tally.fail(failed, begun.map(|begun| at.saturating_duration_since(begun)));
                self.tally.series.fail(at.saturating_duration_since(self.begun), 0);
            }
        }
    }

    /// Counts the end of a request, and starts the next one if there is one.
    #[inline]
    fn ended(&mut self, index: usize, now: Instant) {
        let connection = &mut self.connections[index];
        connection.attempts += 1;
        let wanted = if self.stage == Stage::WarmUp { WARM_UP } else { ATTEMPTS_MIN };
        let is_enough = connection.attempts >= wanted || connection.has_failed;
        if self.lacking > 0 && is_enough && !connection.is_counted {
            connection.is_counted = true;
            self.lacking -= 1;
        }
        if self.stage == Stage::WarmUp && is_enough {
            return;
        }
        self.advance(now);
        if !matches!(self.connections[index].phase, Phase::Waiting { .. }) {
            self.next(index);
        }
    }

    /// Begins the measured time when the ramp is over, and ends it when it is over and every connection has done enough.
    #[inline]
    fn advance(&mut self, now: Instant) {
        match self.stage {
            Stage::Ramp if now >= self.begun => self.begin_measured(now),
            Stage::Measured if now >= self.end && self.lacking == 0 => {
                self.stage = Stage::Draining;
                self.tally.measured = now - self.begun;
                self.tally.cpu_ns = clock::thread_cpu_ns() - self.cpu_before_ns;
            }
            _ => {}
        }
    }

    fn begin_measured(&mut self, now: Instant) {
        // A schedule has its own end.
        if self.pace.is_none() {
            self.end += now - self.begun;
        }
        self.begun = now;
        self.lacking = if self.pace.is_some() { 0 } else { self.connections.len() };
        for connection in &mut self.connections {
            (connection.attempts, connection.has_failed, connection.is_counted) = (0, false, false);
        }
        (self.stage, self.cpu_before_ns) = (Stage::Measured, clock::thread_cpu_ns());
    }

    /// Gives a connection without a request the next one.
    #[inline]
    fn next(&mut self, index: usize) {
        match (self.stage, self.pace) {
            (Stage::Draining, _) => {}
            (Stage::Ramp | Stage::Measured, Some(_)) => self.free.push_back(index),
            _ => self.starting.push_back(index),
        }
    }

    /// Starts the requests that `next` has noted.
    #[inline]
    fn start_waiting(&mut self) {
        // A connection that fails at once waits before its next request, so this ends.
        while let Some(index) = self.starting.pop_front() {
            if self.stage != Stage::Draining {
                self.start(index, None);
            }
        }
    }

    /// Open loop: starts the requests that are due, and sets the timer for the next one.
    fn dispatch(&mut self) -> io::Result<()> {
        let is_loading = matches!(self.stage, Stage::Ramp | Stage::Measured);
        let Some(pace) = self.pace.filter(|_| is_loading) else { return Ok(()) };
        while let Some(&index) = self.free.front() {
            let (now, due) = (Instant::now(), *self.due.get_or_insert_with(|| pace.take()));
            if due > now {
                let left = nix::sys::time::TimeSpec::from_duration(due - now);
                self.timer.set(Expiration::OneShot(left), TimerSetTimeFlags::empty())?;
                return Ok(());
            }
            if !pace.begin(now) {
                self.advance(now);
                return Ok(());
            }
            self.due = None;
            self.free.pop_front();
            self.start(index, Some(due));
        }
        Ok(())
    }
}
