//! A run: passes what the capture points observe to `analysis`.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::mpsc;

use analysis::service::{SLOWEST, Services};
use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, judge};
use capture::file::{CaptureFile, FileError};
use capture::{Counters, Selection};
use record::wire::Wire;
use record::{ConnectionFacts, Observed, Side, Stall, TimeOrder};
use thiserror::Error;

use crate::events::{Event, Outbox};

use crate::holes::{Holes, Missed};
use crate::notes::notes;
use crate::reading::{Read, Reader, Reading};
use crate::result::{AnalysisResult, ModeRow};
use crate::rows::{connections, drops, input};
use analysis::clocks::ClockSums;
use analysis::pairing::Pairing;
use analysis::samples::Samples;

/// A capture to read.
#[derive(Debug)]
pub struct Input {
    /// The open file.
    pub file: CaptureFile,
    /// The side on which it was made, if the user stated it.
    pub place: Option<Side>,
}

/// The options of an analysis.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Options {
    /// The connections to analyse.
    pub selection: Selection,
    /// The wire between the sides, if known.
    pub wire: Option<Wire>,
    /// Search the operations for modes and patterns.
    pub modes: bool,
    /// How many of the slowest operations to keep; `None`: [`analysis::service::SLOWEST`].
    pub slowest: Option<usize>,
    /// Tell operations soon after they were captured, not many at once, which costs time.
    pub prompt: bool,
}

/// The names that belong to an operation.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its server.
    pub service: Option<SocketAddr>,
    /// Its client.
    pub client: Option<IpAddr>,
    /// Its key; empty: it has none.
    pub key: &'a str,
}

/// Takes every operation.
pub type TakeOps<'a> = dyn FnMut(&Observed, &Named<'_>) + 'a;

/// An analysis failed.
#[derive(Debug, Error)]
pub enum AnalysisError {
    /// An input cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// The result cannot be written.
    #[error("writing: {0}")]
    Write(#[from] std::io::Error),
}

/// The state shared by all capture points.
struct State<'a> {
    pairing: Pairing,
    sums: Sums<'a>,
    /// The input of each capture point.
    inputs: Vec<u32>,
}

/// Sums of joined exchanges, stalls and connections.
struct Sums<'a> {
    traffic: Traffic,
    samples: Samples,
    evidence: Evidence,
    clocks: ClockSums,
    counters: Counters,
    holes: Holes,
    /// Operations with a part that ends before it begins, and those with such a path between points.
    backwards: (u64, u64),
    ops: Option<&'a mut TakeOps<'a>>,
}

impl std::fmt::Debug for State<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("pairing", &self.pairing).finish_non_exhaustive()
    }
}

impl Sums<'_> {
    #[inline]
    fn observed(&mut self, observed: &Observed) {
        let own_sides_only;
        let observed = match observed.order() {
            TimeOrder::Forwards => observed,
            TimeOrder::PathBackwards => {
                self.backwards.1 += 1;
                own_sides_only = Observed { shared_clock: false, ..*observed };
                &own_sides_only
            }
            TimeOrder::Backwards => {
                self.backwards.0 += 1;
                return;
            }
        };
        self.traffic.add(observed);
        self.evidence.observed(observed);
        if let Some(kind) = self.evidence.services.recent_kind() {
            self.samples.add(kind, observed);
        }
        let op = &observed.op;
        if !observed.shared_clock
            && let (Some(c1), Some(s1), Some(s2), Some(c2)) = (op.c1.ns(), op.s1.ns(), op.s2.ns(), op.c2.ns())
        {
            self.clocks.add(c1, s1, s2, c2);
        }
        if let Some(ops) = &mut self.ops {
            let services = &mut self.evidence.services;
            let service = services.server(observed.op.connection);
            let client = services.client(observed.op.connection);
            ops(observed, &Named { service, client, key: services.name_of(observed.detail.key) });
        }
    }
}

impl<'a> State<'a> {
    fn new(inputs: usize, options: &Options, ops: Option<&'a mut TakeOps<'a>>) -> Self {
        Self {
            pairing: Pairing::new(inputs > 1),
            sums: Sums {
                traffic: Traffic::default(),
                samples: Samples::new(options.modes),
                evidence: Evidence::of(Services::keeping(options.slowest.unwrap_or(SLOWEST))),
                clocks: ClockSums::default(),
                counters: Counters::default(),
                holes: Holes::default(),
                backwards: (0, 0),
                ops,
            },
            inputs: Vec::new(),
        }
    }

    /// Takes a batch of events.
    fn take(&mut self, events: &mut Vec<Event>) {
        events.drain(..).for_each(|event| self.event(event));
    }

    #[inline]
    fn event(&mut self, event: Event) {
        let Self { pairing, sums, inputs } = self;
        match event {
            Event::Exchange(vantage, exchange) => {
                pairing.exchange(vantage, &exchange, |o| sums.observed(o));
            }
            Event::Point { point, capture, may_have_others } => {
                if may_have_others {
                    pairing.expects_others();
                }
                inputs.push(point.input);
                pairing.add_point(point);
                sums.evidence.add_point(capture);
            }
            Event::Named(key, name) => sums.evidence.services.named(key, &name),
            Event::Hole(vantage, hole) => {
                sums.counters.holes += 1;
                sums.counters.hole_bytes += hole.missing.bytes;
                let connection = pairing.connection(vantage, hole.connection);
                sums.holes.add(inputs.get(vantage as usize).copied().unwrap_or(0), hole, connection);
            }
            Event::Unanswered(vantage, exchange) => {
                if let Some(connection) = pairing.connection(vantage, exchange.op.connection) {
                    sums.evidence.unanswered(vantage, connection, &exchange);
                }
            }
            Event::Stall(vantage, stall) => {
                let connection = pairing.connection(vantage, stall.connection).unwrap_or(u32::MAX);
                sums.evidence.stall(vantage, &Stall { connection, ..stall });
            }
            Event::ClockStep(vantage, step) => sums.evidence.clock_step(vantage, &step),
            Event::Opened(vantage, opened) => {
                pairing.opened(vantage, &opened);
                if let Some(connection) = pairing.connection(vantage, opened.connection) {
                    sums.evidence.opened(connection, &opened);
                }
            }
            Event::Connection(vantage, facts) => {
                let local = facts.connection;
                match pairing.connection(vantage, local) {
                    Some(connection) => {
                        sums.evidence.connection(vantage, &ConnectionFacts { connection, ..*facts });
                    }
                    None => sums.evidence.empty_connection(vantage, &facts),
                }
                pairing.closed(vantage, local, |o| sums.observed(o));
            }
            Event::Counted(counted) => sums.counters.add(&counted),
        }
    }
}

/// An analysis of captures.
#[derive(Debug)]
pub struct Analysis;

impl Analysis {
    /// Reads the inputs to their ends, or until `stop` returns true. Passes every exchange to `ops`, and at intervals
    /// the number of bytes read from the inputs, as stored, to `progress`.
    ///
    /// # Errors
    /// When an input cannot be read. The result has a note for each damaged or truncated input.
    pub fn run<'a>(
        inputs: Vec<Input>,
        options: &Options,
        ops: Option<&'a mut TakeOps<'a>>,
        progress: &mut dyn FnMut(u64),
        stop: &dyn Fn() -> bool,
    ) -> Result<AnalysisResult, AnalysisError> {
        let mut state = State::new(inputs.len(), options, ops);
        let reader = Reader::new(inputs, options);
        let has_processors = std::thread::available_parallelism().is_ok_and(|count| count.get() > 1);
        let read = if reader.readings.len() == 1 && has_processors {
            beside(reader, &mut state, progress, stop)?
        } else {
            in_turn(reader, &mut state, progress, stop)?
        };
        Ok(state.finish(&read, options.wire))
    }
}

/// Reads the inputs, and takes what they show, in turn: the one with fewer queued exchanges next, so that the two sides of a connection
/// meet soon.
fn in_turn(
    mut reader: Reader,
    state: &mut State<'_>,
    progress: &mut dyn FnMut(u64),
    stop: &dyn Fn() -> bool,
) -> Result<Read, AnalysisError> {
    let next = |reader: &Reader, state: &State<'_>| {
        let open = reader.readings.iter().enumerate().filter(|(_, reading)| !reading.is_over);
        let queued = |i: usize| state.pairing.waiting(i as u32);
        open.min_by_key(|(i, reading)| (queued(*i), reading.file.frames())).map(|(i, _)| i)
    };
    while let Some(input) = next(&reader, state) {
        reader.advance(input, &mut Outbox::new(&mut |events| state.take(events)))?;
        progress(reader.bytes_read());
        if stop() {
            break;
        }
    }
    Ok(reader.finish(&mut Outbox::new(&mut |events| state.take(events))))
}

/// Batches of events on their way between the threads.
const BATCHES: usize = 8;

/// Reads one input on a thread of its own, and takes what it shows here: each needs about as long as the other.
fn beside(
    mut reader: Reader,
    state: &mut State<'_>,
    progress: &mut dyn FnMut(u64),
    stop: &dyn Fn() -> bool,
) -> Result<Read, AnalysisError> {
    let (is_stopped, bytes_read) = (&AtomicBool::new(false), &AtomicU64::new(0));
    let (sender, receiver) = mpsc::sync_channel::<Vec<Event>>(BATCHES);
    let (empty_sender, empty) = mpsc::channel::<Vec<Event>>();
    std::thread::scope(|scope| {
        let reading = scope.spawn(move || {
            let mut deliver = |events: &mut Vec<Event>| {
                // Also without events: the receiver shows the progress, and asks whether to stop. It ends only with this thread.
                let full = std::mem::replace(events, empty.try_recv().unwrap_or_default());
                let _ = sender.send(full);
            };
            let mut outbox = Outbox::new(&mut deliver);
            while !reader.readings.iter().all(|reading| reading.is_over) && !is_stopped.load(Relaxed) {
                reader.advance(0, &mut outbox)?;
                bytes_read.store(reader.bytes_read(), Relaxed);
            }
            Ok(reader.finish(&mut outbox))
        });
        for mut events in receiver {
            state.take(&mut events);
            let _ = empty_sender.send(events);
            progress(bytes_read.load(Relaxed));
            if stop() {
                is_stopped.store(true, Relaxed);
            }
        }
        reading.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

impl State<'_> {
    fn finish(self, read: &Read, wire: Option<Wire>) -> AnalysisResult {
        let Read { readings, frames, contents, spacings, passed, points_with_packets } = read;
        let Self { mut pairing, mut sums, inputs } = self;
        pairing.finish(|o| sums.observed(o));
        let Sums { traffic, samples, mut evidence, clocks, mut counters, holes, backwards, .. } = sums;
        evidence.spacings.clone_from(spacings);
        evidence.set_places(pairing.sides());
        evidence.settle();
        counters.count_frames(frames);
        let wire_us = |request: f64, response: f64| {
            wire.map_or(0.0, |wire| {
                wire.own_packets_us(request.round() as u64) + wire.own_packets_us(response.round() as u64)
            })
        };
        let stanzas = traffic.stanzas(wire.is_some().then_some(&wire_us));
        let operations = evidence.operations;
        let Missed { operations: missed, unknown_holes } = holes.missed(&evidence);
        let drops: u64 = readings.iter().filter_map(|reading| drops(&reading.file)).sum();
        let (lost_holes, lost_bytes) = holes.lost();
        let loss = CaptureLoss {
            holes: lost_holes,
            hole_bytes: lost_bytes,
            operations: (missed.ceil() as u64).max(counters.unmatched),
            unknown_holes,
            drops,
        };
        let judged = judge(&Case {
            evidence: &evidence,
            stanzas: &stanzas,
            link: wire.map(|wire| analysis::verdict::Link {
                bits_per_second: wire.bits_per_second as f64,
                efficiency: wire.efficiency(),
                passed: passed.unwrap_or([wire.efficiency(); 2]),
            }),
            cpu_busy: None,
            loss,
            inputs: &inputs,
        });
        let modes = samples
            .findings()
            .into_iter()
            .filter_map(|(place, finding)| {
                let kind = evidence.services.kind(place)?;
                Some(ModeRow {
                    connection: kind.connection,
                    service: kind.service,
                    operation: kind.operation,
                    direction: kind.direction,
                    stanza_operations: kind.operations,
                    block_size_bytes: kind.block_size_bytes,
                    finding,
                })
            })
            .collect();
        let (connections, not_listed) = connections(&evidence);
        // A capture with one point has no packet twice.
        let (packets, bytes) =
            if *points_with_packets > 1 { evidence.passed() } else { (frames.packets, frames.bytes) };
        let spans = || readings.iter().filter_map(Reading::span_ns);
        let begin_ns = spans().map(|(first, _)| first).min();
        let mut result = AnalysisResult {
            unanswered: evidence.requests_unanswered().saturating_sub(judged.coming.responses),
            span_ns: begin_ns.zip(spans().map(|(_, last)| last).max()).unwrap_or_default(),
            inputs: readings.iter().map(|reading| input(&reading.file)).collect(),
            packets,
            bytes,
            operations,
            operations_both_sides: pairing.matched,
            operations_one_side: pairing.unmatched,
            responses_coming: judged.coming.responses,
            operations_backwards: backwards.0,
            paths_backwards: backwards.1,
            frames: *frames,
            contents: contents.clone(),
            streams: counters,
            connections,
            connections_not_listed: not_listed,
            holes: holes.rows(&evidence),
            services: evidence.services.rows(),
            slowest: evidence.services.slowest(),
            stanzas,
            // Times of several inputs come from several clocks.
            proxies: if readings.len() == 1 { evidence.legs.legs() } else { Vec::new() },
            modes,
            verdicts: judged.verdicts,
            minor: judged.minor,
            excess: judged.excess,
            clocks: if pairing.matched > 0 { clocks.clocks() } else { None },
            notes: Vec::new(),
        };
        result.stanzas.sort_by_key(|s| std::cmp::Reverse(s.operations));
        result.notes = notes(&result, readings, &evidence, pairing.crowded);
        result.notes.extend(crate::tls::notes(&evidence));
        result.notes.extend(crate::protocols::notes(&result.services));
        result.notes.extend(judged.coming.text());
        result
    }
}
