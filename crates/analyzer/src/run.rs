//! A run: passes the frames of every input to their capture points, and the points' observations to `analysis`.

use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, judge};
use capture::file::{CaptureFile, FileError};
use capture::{
    At, Contents, Counted, Counters, FrameCounters, Link, Observer, Selection, StreamHole, Vantage,
};
use record::wire::Wire;
use record::{ConnectionFacts, Exchange, Observed, Opened, Side, Stall};
use thiserror::Error;

use crate::result::{AnalysisResult, ConnectionRow, HoleRow, InputRow, ModeRow};
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
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Options {
    /// The connections to analyse.
    pub selection: Selection,
    /// The wire between the sides, if known.
    pub wire: Option<Wire>,
    /// Search the operations for modes and patterns.
    pub modes: bool,
}

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

/// Most holes that are listed.
const HOLES_MAX: usize = 1000;
/// Most connections that are listed.
const CONNECTIONS_LISTED: usize = 100;

/// A running analysis.
#[derive(Debug)]
pub struct Analysis<'a> {
    options: Options,
    points: Vec<Vantage>,
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
    holes: Vec<(u32, StreamHole, Option<u32>)>,
    ops: Option<&'a mut dyn FnMut(&Observed)>,
}

impl std::fmt::Debug for State<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("pairing", &self.pairing).finish_non_exhaustive()
    }
}

impl Sums<'_> {
    #[inline]
    fn observed(&mut self, observed: &Observed) {
        let place = self.traffic.add(observed);
        self.evidence.observed(observed);
        self.samples.add(place, observed);
        let op = &observed.op;
        if !observed.shared_clock
            && let (Some(c1), Some(s1), Some(s2), Some(c2)) = (op.c1.ns(), op.s1.ns(), op.s2.ns(), op.c2.ns())
        {
            self.clocks.add(c1, s1, s2, c2);
        }
        if let Some(ops) = &mut self.ops {
            ops(observed);
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

    fn hole(&mut self, hole: StreamHole) {
        let State { pairing, sums, inputs } = &mut self.state;
        sums.counters.holes += 1;
        sums.counters.hole_bytes += hole.missing.bytes;
        if sums.holes.len() < HOLES_MAX {
            let connection = pairing.connection(self.vantage, hole.connection);
            sums.holes.push((inputs[self.vantage as usize], hole, connection));
        }
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
struct Reading {
    file: CaptureFile,
    place: Option<Side>,
    /// Capture points by interface, and by the interface's number in cooked captures.
    points: Vec<((u32, Option<u32>), usize, Link)>,
    recent: usize,
    /// Frames of unsupported link layers.
    unsupported: u64,
    unsupported_link: u32,
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
        ops: Option<&'a mut dyn FnMut(&Observed)>,
        progress: &mut dyn FnMut(u64),
        stop: &dyn Fn() -> bool,
    ) -> Result<AnalysisResult, AnalysisError> {
        let several = inputs.len() > 1;
        let reading = |Input { file, place }| Reading {
            file,
            place,
            points: Vec::new(),
            recent: 0,
            unsupported: 0,
            unsupported_link: 0,
            is_over: false,
        };
        let mut readings: Vec<Reading> = inputs.into_iter().map(reading).collect();
        let mut analysis = Self {
            options,
            points: Vec::new(),
            state: State {
                pairing: Pairing::new(several),
                sums: Sums {
                    traffic: Traffic::default(),
                    samples: Samples::new(options.modes),
                    evidence: Evidence::default(),
                    clocks: ClockSums::default(),
                    counters: Counters::default(),
                    holes: Vec::new(),
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
                        let point = self.add_point(Point { input, place: reading.place });
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
                let point = self.add_point(Point { input, place: reading.place });
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

    fn add_point(&mut self, point: Point) -> usize {
        self.points.push(Vantage::new(self.options.selection));
        self.state.inputs.push(point.input);
        self.state.pairing.add_point(point);
        self.points.len() - 1
    }

    fn finish(mut self, readings: &[Reading]) -> AnalysisResult {
        let mut frames = FrameCounters::default();
        let mut contents = Contents::default();
        let points_with_packets = self.points.iter().filter(|point| point.counters.packets > 0).count();
        for (vantage, point) in self.points.drain(..).enumerate() {
            contents.add(&point.contents);
            let mut observer = PointObserver { vantage: vantage as u32, state: &mut self.state };
            add(&mut frames, &point.finish(&mut observer));
        }
        let mut last = PointObserver { vantage: 0, state: &mut self.state };
        last.pair(|pairing, sums| pairing.finish(|o| sums.observed(o)));
        let State { pairing, sums, inputs } = self.state;
        let Sums { traffic, samples, mut evidence, clocks, mut counters, holes, .. } = sums;
        evidence.set_places(pairing.sides());
        counters.count_frames(&frames);
        let wire_us = |request: f64, response: f64| {
            self.options.wire.map_or(0.0, |wire| {
                wire.own_packets_us(request.round() as u64) + wire.own_packets_us(response.round() as u64)
            })
        };
        let stanzas = traffic.stanzas(self.options.wire.is_some().then_some(&wire_us));
        let operations = evidence.operations;
        let mean_bytes = (frames.bytes as f64 / operations.max(1) as f64).max(1.0);
        let drops: u64 = readings.iter().filter_map(drops).sum();
        let loss = CaptureLoss {
            holes: counters.holes,
            hole_bytes: counters.hole_bytes,
            operations: ((counters.hole_bytes as f64 / mean_bytes).ceil() as u64).max(counters.unmatched),
            drops,
        };
        let judged = judge(&Case {
            evidence: &evidence,
            stanzas: &stanzas,
            link: self.options.wire.map(|wire| analysis::verdict::Link {
                bits_per_second: wire.bits_per_second as f64,
                efficiency: wire.efficiency(),
            }),
            cpu_busy: None,
            loss,
            inputs: &inputs,
        });
        let modes = samples
            .findings()
            .into_iter()
            .filter_map(|(place, finding)| {
                let stanza = stanzas.get(place)?;
                Some(ModeRow {
                    connection: stanza.connection,
                    service: stanza
                        .connection
                        .and_then(|c| evidence.ledger.service(c))
                        .map(|s| s.to_string()),
                    operation: stanza.operation.clone(),
                    direction: stanza.kind,
                    stanza_operations: stanza.operations,
                    block_size_bytes: stanza.block_size_bytes,
                    finding,
                })
            })
            .collect();
        let (connections, not_listed) = connections(&evidence);
        // A capture with one point has no packet twice.
        let (packets, bytes) =
            if points_with_packets > 1 { evidence.passed() } else { (frames.packets, frames.bytes) };
        let mut result = AnalysisResult {
            inputs: readings.iter().map(input_row).collect(),
            packets,
            bytes,
            operations,
            operations_both_sides: pairing.matched,
            operations_one_side: pairing.unmatched,
            frames,
            contents,
            streams: counters,
            connections,
            connections_not_listed: not_listed,
            holes: holes
                .into_iter()
                .map(|(input, hole, connection)| HoleRow {
                    input,
                    connection,
                    flow: hole.flow,
                    missing: hole.missing,
                    operations: hole.missing.bytes as f64 / mean_bytes,
                })
                .collect(),
            stanzas,
            modes,
            verdicts: judged.verdicts,
            minor: judged.minor,
            excess: judged.excess,
            clocks: if pairing.matched > 0 { clocks.clocks() } else { None },
            notes: Vec::new(),
        };
        result.stanzas.sort_by_key(|s| std::cmp::Reverse(s.operations));
        result.notes = notes(&result, readings, &evidence, pairing.crowded);
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
}

fn drops(reading: &Reading) -> Option<u64> {
    reading.file.interfaces().iter().filter_map(|i| i.drops).reduce(u64::saturating_add)
}

fn input_row(reading: &Reading) -> InputRow {
    InputRow {
        name: reading.file.name().to_owned(),
        frames: reading.file.frames(),
        interfaces: reading.file.interfaces().iter().filter_map(|i| i.name.clone()).collect(),
        drops: drops(reading),
        complaint: reading.file.complaint(),
    }
}

/// The connections with the most exchanges, and how many are not listed.
fn connections(evidence: &Evidence) -> (Vec<ConnectionRow>, u64) {
    let us = |ns: u64| ns as f64 / 1000.0;
    let mut rows: Vec<ConnectionRow> = evidence
        .connections()
        .map(|(_, facts)| {
            let lasted_ns = facts.ended_ns.saturating_sub(facts.began_ns);
            let (client, server) = (&facts.client_conduct, &facts.server_conduct);
            ConnectionRow {
                connection: facts.connection,
                client: facts.client.to_string(),
                server: facts.server.to_string(),
                protocol: facts.protocol.to_owned(),
                operations: facts.exchanges,
                seconds: lasted_ns as f64 / 1e9,
                packets: facts.packets,
                bytes: facts.bytes,
                in_flight: facts.in_flight_ns as f64 / lasted_ns.max(1) as f64,
                handshake_us: facts.handshake_ns.map(|(there, here)| us(there + here)),
                ack_min_us: (us(client.ack_min_ns), us(server.ack_min_ns)),
                retransmitted: (client.retransmitted, server.retransmitted),
                mss_bytes: (client.mss_bytes, server.mss_bytes),
            }
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.operations), row.connection));
    let not_listed = rows.len().saturating_sub(CONNECTIONS_LISTED) as u64 + evidence.connections_not_kept;
    rows.truncate(CONNECTIONS_LISTED);
    (rows, not_listed)
}

/// Limitations of the capture that affect the result.
fn notes(result: &AnalysisResult, readings: &[Reading], evidence: &Evidence, crowded: u64) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note_if = |condition: bool, text: String| {
        if condition {
            notes.push(text);
        }
    };
    for reading in readings {
        if let Some(complaint) = reading.file.complaint() {
            note_if(true, complaint);
        }
        let (name, unsupported, link) = (reading.file.name(), reading.unsupported, reading.unsupported_link);
        note_if(
            unsupported > 0,
            format!(
                "{name}: {unsupported} frames of link type {link} were skipped; supported are {}",
                Link::NAMES
            ),
        );
    }
    let f = &result.frames;
    note_if(result.packets == 0, "the capture has no TCP packet of the selected connections".to_owned());
    note_if(
        f.super_packets > 0,
        format!(
            "{} packets are larger than any Ethernet frame: segmentation offload made them, and the wire carried \
             others; switch it off while measuring (ethtool -K IF tso off gso off gro off)",
            f.super_packets
        ),
    );
    note_if(f.fragments > 0, format!("{} fragments of IP packets were skipped", f.fragments));
    note_if(f.truncated > 0, format!("{} frames are shorter than their headers", f.truncated));
    note_if(f.too_big > 0, format!("{} ICMP messages report a packet too big for the path", f.too_big));
    note_if(
        f.backwards > 0,
        format!(
            "{} frames are older than the ones before them: the clock was set, or the file was merged",
            f.backwards
        ),
    );
    note_if(
        f.evicted > 0,
        format!("{} connections were dropped: more than 4096 were open at once", f.evicted),
    );
    note_if(
        crowded > 0,
        format!("{crowded} connections were seen at more than two capture points; two were used"),
    );
    let s = &result.streams;
    note_if(
        s.boundaries_lost > 0,
        format!(
            "{} times a message boundary was lost (a hole, or a header that was not captured); {} bytes were \
             skipped until the next",
            s.boundaries_lost, s.skipped_bytes
        ),
    );
    note_if(s.unmatched > 0, format!("{} responses have no request in the capture", s.unmatched));
    let unanswered = evidence.requests_unanswered();
    note_if(unanswered > 0, format!("{unanswered} requests have no response in the capture"));
    let (mut duplicates, mut one_way) = (0, 0);
    for (_, facts) in evidence.connections() {
        duplicates += facts.duplicates;
        one_way += u64::from(!facts.both_directions && facts.packets > 10);
    }
    note_if(
        duplicates > 0,
        format!(
            "{duplicates} packets are in the capture twice (a capture on several interfaces at once); the copies were skipped"
        ),
    );
    note_if(one_way > 0, format!("{one_way} connections have only one direction in the capture"));
    notes
}
