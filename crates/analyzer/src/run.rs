//! A run: passes the frames of every input to their capture points, and the points' observations to `analysis`.

use std::net::SocketAddr;

use analysis::service::{SLOWEST, Services};
use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, judge};
use capture::file::{CaptureFile, FileError};
use capture::{
    At, Contents, Counted, Counters, FrameCounters, Link, Observer, Selection, StreamHole, Vantage,
};
use record::wire::Wire;
use record::{ClockStep, ConnectionFacts, Exchange, Key, Observed, Opened, Side, Spacing, Stall, TimeOrder};
use thiserror::Error;

use crate::holes::{Holes, Missed};
use crate::notes::notes;
use crate::result::{AnalysisResult, ModeRow};
use crate::rows::{connections, drops, input};
use analysis::clocks::ClockSums;
use analysis::pairing::{Pairing, Point};
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
}

/// The names that belong to an operation.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its server.
    pub service: Option<SocketAddr>,
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

/// The senders of a capture point's spacings.
const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// A running analysis.
#[derive(Debug)]
pub struct Analysis<'a> {
    options: Options,
    points: Vec<Vantage>,
    /// Captures so far: sections of inputs.
    captures: u32,
    state: State<'a>,
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
            ops(observed, &Named { service, key: services.name_of(observed.detail.key) });
        }
    }
}

/// The observer of one capture point, which adds to the shared state.
struct PointObserver<'b, 'a> {
    vantage: u32,
    state: &'b mut State<'a>,
}

impl PointObserver<'_, '_> {
    /// Calls a method of the pairing that delivers joined exchanges.
    #[inline]
    fn pair<R>(&mut self, call: impl FnOnce(&mut Pairing, &mut Sums<'_>) -> R) -> R {
        call(&mut self.state.pairing, &mut self.state.sums)
    }
}

impl Observer for PointObserver<'_, '_> {
    #[inline]
    fn exchange(&mut self, exchange: &Exchange) {
        let vantage = self.vantage;
        self.pair(|pairing, sums| pairing.exchange(vantage, exchange, |o| sums.observed(o)));
    }

    fn named(&mut self, key: Key, name: &str) {
        self.state.sums.evidence.services.named(key, name);
    }

    fn hole(&mut self, hole: StreamHole) {
        let State { pairing, sums, inputs } = &mut self.state;
        sums.counters.holes += 1;
        sums.counters.hole_bytes += hole.missing.bytes;
        let connection = pairing.connection(self.vantage, hole.connection);
        sums.holes.add(inputs[self.vantage as usize], hole, connection);
    }

    fn unanswered(&mut self, exchange: &Exchange) {
        if let Some(connection) = self.state.pairing.connection(self.vantage, exchange.op.connection) {
            self.state.sums.evidence.unanswered(self.vantage, connection, exchange);
        }
    }

    fn stall(&mut self, stall: &Stall) {
        let connection = self.state.pairing.connection(self.vantage, stall.connection);
        let connection = connection.unwrap_or(u32::MAX);
        self.state.sums.evidence.stall(self.vantage, &Stall { connection, ..*stall });
    }

    fn clock_step(&mut self, step: &ClockStep) {
        self.state.sums.evidence.clock_step(self.vantage, step);
    }

    fn opened(&mut self, opened: &Opened) {
        self.state.pairing.opened(self.vantage, opened);
        if let Some(connection) = self.state.pairing.connection(self.vantage, opened.connection) {
            self.state.sums.evidence.opened(connection, opened);
        }
    }

    fn connection(&mut self, facts: &ConnectionFacts) {
        let (vantage, local) = (self.vantage, facts.connection);
        if let Some(connection) = self.state.pairing.connection(vantage, local) {
            self.state.sums.evidence.connection(vantage, &ConnectionFacts { connection, ..*facts });
        } else {
            self.state.sums.evidence.empty_connection(vantage, facts);
        }
        self.pair(|pairing, sums| pairing.closed(vantage, local, |o| sums.observed(o)));
    }

    fn counted(&mut self, counted: &Counted) {
        self.state.sums.counters.add(counted);
    }
}

/// An input and its capture points.
pub(crate) struct Reading {
    pub(crate) file: CaptureFile,
    place: Option<Side>,
    /// Capture points by interface, and by the interface's number in cooked captures.
    points: Vec<((u32, Option<u32>), usize, Link)>,
    recent: usize,
    /// Its current section, the number of that among all captures, and the stretch of time that it is in.
    section: Option<u32>,
    capture: u32,
    stretch: u32,
    /// Frames of unsupported link layers.
    pub(crate) unsupported: u64,
    pub(crate) unsupported_link: u32,
    is_over: bool,
}

impl<'a> Analysis<'a> {
    /// Reads the inputs to their ends, or until `stop` returns true. Passes every exchange to `ops`, and at intervals
    /// the number of bytes read from the inputs, as stored, to `progress`.
    ///
    /// # Errors
    /// When an input cannot be read. The result has a note for each damaged or truncated input.
    pub fn run(
        inputs: Vec<Input>,
        options: Options,
        ops: Option<&'a mut TakeOps<'a>>,
        progress: &mut dyn FnMut(u64),
        stop: &dyn Fn() -> bool,
    ) -> Result<AnalysisResult, AnalysisError> {
        let several = inputs.len() > 1;
        let keys = options.selection.keys.clone();
        let slowest = options.slowest.unwrap_or(SLOWEST);
        // What a file has of secrets is for all of them.
        let reading = |Input { file, place }| Reading {
            file: file.with_keys(keys.clone()),
            place,
            points: Vec::new(),
            recent: 0,
            section: None,
            capture: 0,
            stretch: 0,
            unsupported: 0,
            unsupported_link: 0,
            is_over: false,
        };
        let mut readings: Vec<Reading> = inputs.into_iter().map(reading).collect();
        let modes = options.modes;
        let mut analysis = Self {
            options,
            points: Vec::new(),
            captures: 0,
            state: State {
                pairing: Pairing::new(several),
                sums: Sums {
                    traffic: Traffic::default(),
                    samples: Samples::new(modes),
                    evidence: Evidence::of(Services::keeping(slowest)),
                    clocks: ClockSums::default(),
                    counters: Counters::default(),
                    holes: Holes::default(),
                    backwards: (0, 0),
                    ops,
                },
                inputs: Vec::new(),
            },
        };
        // Read the input with fewer queued exchanges next, so that the two sides of a connection meet soon.
        while let Some(next) = (0..readings.len())
            .filter(|&i| !readings[i].is_over)
            .min_by_key(|&i| (analysis.state.pairing.waiting(i as u32), readings[i].file.frames()))
        {
            for _ in 0..FRAMES_AT_ONCE {
                if !analysis.step(&mut readings[next], next as u32)? {
                    readings[next].is_over = true;
                    break;
                }
            }
            progress(readings.iter().map(|reading| reading.file.bytes_read()).sum());
            if stop() {
                break;
            }
        }
        Ok(analysis.finish(&readings))
    }

    /// Processes the next frame of an input; false at its end.
    #[inline]
    fn step(&mut self, reading: &mut Reading, input: u32) -> Result<bool, FileError> {
        let Some(frame) = reading.file.next_frame()? else { return Ok(false) };
        let at = At { ns: frame.time_ns, frame: frame.number };
        // The common case first: the point of the last frame, on a plain link.
        if let Some(&((interface, None), point, link)) = reading.points.get(reading.recent)
            && interface == frame.interface
            && link != Link::Cooked2
        {
            let mut observer = PointObserver { vantage: point as u32, state: &mut self.state };
            self.points[point].frame(link, at, frame.data, frame.wire_bytes, &mut observer);
            return Ok(true);
        }
        let (interface, data, wire_bytes) = (frame.interface, frame.data, frame.wire_bytes);
        // The frame borrows the file, so the interface's data is copied first.
        let found = reading.points.iter().find(|((i, _), _, _)| *i == interface).map(|p| p.2);
        let segment = found.map(|link| (link, link.decode(data, wire_bytes)));
        match segment {
            Some((Link::Cooked2, Ok((segment, seen)))) => {
                let key = (interface, seen.interface);
                let known = reading.points.iter().position(|(k, _, _)| *k == key);
                let place = match known {
                    Some(place) => place,
                    None if reading.points.len() < POINTS_MAX => {
                        // The interface is known, so its section has begun.
                        let of = (reading.capture, reading.stretch, reading.place);
                        let point = self.add_point(input, of);
                        reading.points.push((key, point, Link::Cooked2));
                        reading.points.len() - 1
                    }
                    None => return Ok(true),
                };
                let point = reading.points[place].1;
                let mut observer = PointObserver { vantage: point as u32, state: &mut self.state };
                self.points[point].segment(&segment, at, wire_bytes, &mut observer);
            }
            Some((Link::Cooked2, Err(reason))) => {
                if let Some(&(_, point, _)) = reading.points.iter().find(|((i, _), _, _)| *i == interface) {
                    self.points[point].not_tcp(reason, Link::Cooked2, data);
                }
            }
            Some((link, _)) => {
                let place = reading.points.iter().position(|((i, _), _, _)| *i == interface).unwrap_or(0);
                reading.recent = place;
                let point = reading.points[place].1;
                let mut observer = PointObserver { vantage: point as u32, state: &mut self.state };
                self.points[point].frame(link, at, data, wire_bytes, &mut observer);
            }
            None => {
                // A new interface: create its capture point, then process the frame.
                let held = data.to_vec();
                let number = reading.file.interfaces().get(interface as usize).map_or(u32::MAX, |i| i.link);
                let Some(link) = Link::by_number(number).filter(|_| reading.points.len() < POINTS_MAX) else {
                    reading.unsupported += 1;
                    reading.unsupported_link = number;
                    return Ok(true);
                };
                self.begin_section(reading, interface, at.ns);
                let point = self.add_point(input, (reading.capture, reading.stretch, reading.place));
                let mut key = (interface, None);
                if let (Link::Cooked2, Ok((_, seen))) = (link, link.decode(&held, wire_bytes)) {
                    key.1 = seen.interface;
                }
                reading.points.push((key, point, link));
                reading.recent = reading.points.len() - 1;
                let mut observer = PointObserver { vantage: point as u32, state: &mut self.state };
                self.points[point].frame(link, at, &held, wire_bytes, &mut observer);
            }
        }
        Ok(true)
    }

    /// Begins the section of an interface, unless it has begun: a capture with an end of its own. Packets after the last one of
    /// the sections before are not those that these saw.
    fn begin_section(&mut self, reading: &mut Reading, interface: u32, now_ns: u64) {
        let section = reading.file.interfaces().get(interface as usize).map(|interface| interface.section);
        if reading.section == section {
            return;
        }
        let before_ns = reading.points.iter().map(|(_, point, _)| self.points[*point].newest_ns()).max();
        reading.stretch += u32::from(before_ns.is_some_and(|before_ns| before_ns <= now_ns));
        (reading.section, reading.capture) = (section, self.captures);
        self.captures += 1;
    }

    fn add_point(&mut self, input: u32, (capture, stretch, place): (u32, u32, Option<Side>)) -> usize {
        self.points.push(Vantage::new(self.options.selection.clone()));
        self.state.inputs.push(input);
        self.state.pairing.add_point(Point { input, place, stretch });
        self.state.sums.evidence.add_point(capture);
        self.points.len() - 1
    }

    fn finish(mut self, readings: &[Reading]) -> AnalysisResult {
        let mut frames = FrameCounters::default();
        let mut contents = Contents::default();
        let passed = self.options.wire.map(|wire| crate::link::efficiency(&wire, &self.points));
        let points_with_packets = self.points.iter().filter(|point| point.counters.packets > 0).count();
        for (vantage, point) in self.points.drain(..).enumerate() {
            contents.add(&point.contents);
            self.state.sums.evidence.spacings.extend(point.spacings.iter().map(Spacing::regular).zip(SIDES));
            let mut observer = PointObserver { vantage: vantage as u32, state: &mut self.state };
            add(&mut frames, &point.finish(&mut observer));
        }
        let mut last = PointObserver { vantage: 0, state: &mut self.state };
        last.pair(|pairing, sums| pairing.finish(|o| sums.observed(o)));
        let State { pairing, sums, inputs } = self.state;
        let Sums { traffic, samples, mut evidence, clocks, mut counters, holes, backwards, .. } = sums;
        evidence.set_places(pairing.sides());
        evidence.settle();
        counters.count_frames(&frames);
        let wire_us = |request: f64, response: f64| {
            self.options.wire.map_or(0.0, |wire| {
                wire.own_packets_us(request.round() as u64) + wire.own_packets_us(response.round() as u64)
            })
        };
        let stanzas = traffic.stanzas(self.options.wire.is_some().then_some(&wire_us));
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
            link: self.options.wire.map(|wire| analysis::verdict::Link {
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
            if points_with_packets > 1 { evidence.passed() } else { (frames.packets, frames.bytes) };
        let mut result = AnalysisResult {
            inputs: readings.iter().map(|reading| input(&reading.file)).collect(),
            packets,
            bytes,
            operations,
            operations_both_sides: pairing.matched,
            operations_one_side: pairing.unmatched,
            responses_coming: judged.coming.responses,
            operations_backwards: backwards.0,
            paths_backwards: backwards.1,
            frames,
            contents,
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

/// Frames of one input in a row.
const FRAMES_AT_ONCE: usize = 512;
/// Most capture points of an input.
const POINTS_MAX: usize = 256;

fn add(sum: &mut FrameCounters, more: &FrameCounters) {
    sum.frames += more.frames;
    sum.packets += more.packets;
    sum.bytes += more.bytes;
    sum.other += more.other;
    sum.fragments += more.fragments;
    sum.truncated += more.truncated;
    sum.too_big += more.too_big;
    sum.cut += more.cut;
    sum.super_packets += more.super_packets;
    sum.evicted += more.evicted;
    sum.backwards += more.backwards;
    sum.strays += more.strays;
}
