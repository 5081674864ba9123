//! Operations and their stages as a trace for Perfetto (ui.perfetto.dev): a track for each stage of each connection, and as many lanes of
//! it as operations are in flight.
//!
//! Perfetto's native format: packets of `perfetto.protos.Trace` (github.com/google/perfetto, protos/perfetto/trace), of which only what is
//! needed is written. Its JSON format keeps times as a double of microseconds, so it loses nanoseconds of times since 1970.

use std::collections::BTreeMap;
use std::io::{self, Write};

use record::{Observed, Op, Outcome, Stamp};

use crate::ops::Names;

/// Most tracks; operations of others are left out, and counted.
const TRACKS_MAX: usize = 1 << 18;

/// Most lanes of a track.
const LANES_MAX: usize = 1024;

/// The identity of the writer, without which Perfetto drops events.
const SEQUENCE: u64 = 1;

/// A message in Protocol Buffers' wire format.
#[derive(Clone, Debug, Default)]
struct Message(Vec<u8>);

impl Message {
    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.0.push(value as u8 | 0x80);
            value >>= 7;
        }
        self.0.push(value as u8);
    }

    /// A field of an integer.
    fn int(mut self, field: u64, value: u64) -> Self {
        self.varint(field << 3);
        self.varint(value);
        self
    }

    /// A field of bytes: a text or another message.
    fn bytes(mut self, field: u64, value: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(value.len() as u64);
        self.0.extend_from_slice(value);
        self
    }
}

/// A track: of a connection (stage 0), or of a stage of one.
#[derive(Debug, Default)]
struct Track {
    /// Each lane's identity, and when its last slice ended.
    lanes: Vec<(u64, u64)>,
}

/// A trace that grows.
#[derive(Debug)]
pub(crate) struct Trace<W> {
    to: W,
    /// By connection and stage.
    tracks: BTreeMap<(u32, usize), Track>,
    connections: BTreeMap<u32, u64>,
    /// Identities that were given.
    given: u64,
    left_out: u64,
    /// When the last slice ended.
    latest: u64,
}

/// The stages, in the order of their tracks; the first one is the operation.
const STAGES: [&str; 11] = [
    "operation",
    "client before sending",
    "held by TCP",
    "request",
    "request path",
    "server",
    "until the first byte",
    "response path",
    "response",
    "repaired by a retransmission",
    "client after receiving",
];

impl<W: Write> Trace<W> {
    pub(crate) fn new(to: W) -> Self {
        Self { to, tracks: BTreeMap::new(), connections: BTreeMap::new(), given: 0, left_out: 0, latest: 0 }
    }

    /// Adds an operation.
    pub(crate) fn write(
        &mut self,
        op: &Op,
        observed: Option<&Observed>,
        named: &Names<'_>,
    ) -> io::Result<()> {
        let slices = slices(op, observed);
        let Some(&Some((_, begin, end))) = slices.first() else { return Ok(()) };
        if self.tracks.len() >= TRACKS_MAX && !self.tracks.contains_key(&(op.connection, 0)) {
            self.left_out += 1;
            return Ok(());
        }
        let mut name = op.verb.name();
        if !named.key.is_empty() {
            name = format!("{name} {}", named.key);
        }
        self.slice(op.connection, 0, begin, end, &name, &annotations(op, observed), named)?;
        for (stage, begin, end) in slices.into_iter().skip(1).flatten() {
            self.slice(op.connection, stage, begin, end, STAGES[stage], &[], named)?;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "a slice is that much")]
    fn slice(
        &mut self,
        connection: u32,
        stage: usize,
        begin: u64,
        end: u64,
        name: &str,
        annotations: &[Message],
        named: &Names<'_>,
    ) -> io::Result<()> {
        let Some(track) = self.lane(connection, stage, begin, end, named)? else {
            self.left_out += 1;
            return Ok(());
        };
        self.latest = self.latest.max(end);
        let name = output::text::lines(name).to_string();
        let mut event = Message::default().int(9, 1).int(11, track).bytes(23, name.as_bytes());
        for annotation in annotations {
            event = event.bytes(4, &annotation.0);
        }
        self.packet(Message::default().int(8, begin).bytes(11, &event.0))?;
        // With its name, an end that is not that of this slice is an error instead of a guess.
        let event = Message::default().int(9, 2).int(11, track).bytes(23, name.as_bytes());
        self.packet(Message::default().int(8, end).bytes(11, &event.0))
    }

    /// The lane of a track in which nothing is at this time, made if there is none: slices of one lane may not overlap.
    fn lane(
        &mut self,
        connection: u32,
        stage: usize,
        begin: u64,
        end: u64,
        named: &Names<'_>,
    ) -> io::Result<Option<u64>> {
        let track = self.tracks.entry((connection, stage)).or_default();
        if let Some((identity, busy_until)) = track.lanes.iter_mut().find(|(_, until)| *until <= begin) {
            *busy_until = end;
            return Ok(Some(*identity));
        }
        let number = track.lanes.len();
        if number >= LANES_MAX {
            return Ok(None);
        }
        let parent = self.connection(connection, named)?;
        let identity = self.identity();
        let name = match number {
            0 => STAGES[stage].to_owned(),
            number => format!("{} ({})", STAGES[stage], number + 1),
        };
        self.track(identity, &name, Some(parent), (stage * LANES_MAX + number) as u64)?;
        if let Some(track) = self.tracks.get_mut(&(connection, stage)) {
            track.lanes.push((identity, end));
        }
        Ok(Some(identity))
    }

    /// The track of a connection, to which those of its stages belong.
    fn connection(&mut self, connection: u32, named: &Names<'_>) -> io::Result<u64> {
        if let Some(identity) = self.connections.get(&connection) {
            return Ok(*identity);
        }
        let identity = self.identity();
        self.connections.insert(connection, identity);
        let name = match (named.client, named.service) {
            (Some(client), Some(service)) => format!("connection {connection}: {client} to {service}"),
            (None, Some(service)) => format!("connection {connection}: to {service}"),
            _ => format!("connection {connection}"),
        };
        self.track(identity, &name, None, u64::from(connection))?;
        Ok(identity)
    }

    fn identity(&mut self) -> u64 {
        self.given += 1;
        self.given
    }

    fn track(&mut self, identity: u64, name: &str, parent: Option<u64>, rank: u64) -> io::Result<()> {
        // Its tracks are in the order of their ranks (child_ordering EXPLICIT).
        let mut track =
            Message::default().int(1, identity).bytes(2, name.as_bytes()).int(11, 3).int(12, rank);
        if let Some(parent) = parent {
            track = track.int(5, parent);
        }
        self.packet(Message::default().bytes(60, &track.0))
    }

    fn packet(&mut self, body: Message) -> io::Result<()> {
        let body = body.int(10, SEQUENCE);
        self.to.write_all(&Message::default().bytes(1, &body.0).0)
    }

    /// Completes the trace, which says what it left out.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if self.left_out > 0 {
            let name = format!(
                "{} slices are left out: too many connections or operations in flight",
                self.left_out
            );
            let identity = self.identity();
            self.track(identity, &name, None, u64::MAX >> 1)?;
            // A track without an event is not shown.
            let event = Message::default().int(9, 3).int(11, identity).bytes(23, name.as_bytes());
            self.packet(Message::default().int(8, self.latest).bytes(11, &event.0))?;
        }
        self.to.flush()
    }
}

/// What else is known of an operation.
fn annotations(op: &Op, observed: Option<&Observed>) -> Vec<Message> {
    let number = |name: &str, value: u64| Message::default().bytes(10, name.as_bytes()).int(3, value);
    let text =
        |name: &str, value: &str| Message::default().bytes(10, name.as_bytes()).bytes(6, value.as_bytes());
    let mut all =
        vec![number("data_bytes", op.data_bytes.into()), number("queue_depth", op.queue_depth.into())];
    if op.outcome == Outcome::Failed {
        all.push(text("outcome", "failed"));
    }
    if let Some(Observed { detail, .. }) = observed {
        let status = detail.status.text();
        if !status.is_empty() {
            all.push(text("status", &output::text::lines(status).to_string()));
        }
        all.push(number("request_frame", detail.request.first_frame));
        all.push(number("response_frame", detail.response.last_frame));
        all.push(number("whole_ns", observed.map_or(0, Observed::whole_ns)));
    }
    all
}

/// The operation and its stages: which, from when until when. What is not known, or ends before it begins, is left out.
fn slices(op: &Op, observed: Option<&Observed>) -> Vec<Option<(usize, u64, u64)>> {
    let between = |stage: usize, from: Stamp, to: Stamp| {
        let (from, to) = (from.ns()?, to.ns()?);
        (from <= to).then_some((stage, from, to))
    };
    let either = |a: Stamp, b: Stamp| if a.is_known() { a } else { b };
    let Some(Observed { detail, shared_clock, .. }) = observed else {
        let begin = either(op.start, either(op.c1, op.s1));
        let end = either(op.finish, either(op.c2, op.s2));
        return vec![
            between(0, begin, end),
            between(1, op.start, op.c1),
            between(4, op.c1, op.s1),
            between(5, op.s1, op.s2),
            between(7, op.s2, op.c2),
            between(10, op.c2, op.finish),
        ];
    };
    let (request, response) = (detail.request, detail.response);
    // As its user sees it: with what TCP held before, and what was repaired behind.
    let later = |stamp: Stamp, ns: u64| stamp.ns().map_or(stamp, |at| Stamp::at(at.saturating_add(ns)));
    let begin =
        request.began.ns().map_or(request.began, |at| Stamp::at(at.saturating_sub(detail.held_ns).max(1)));
    let end = later(response.ended, detail.repaired_ns);
    let mut all = vec![between(0, begin, end), between(3, request.began, request.ended)];
    if detail.held_ns > 0 {
        all.push(between(2, begin, request.began));
    }
    if detail.repaired_ns > 0 {
        all.push(between(9, response.ended, end));
    }
    if op.c1.is_known() && op.s1.is_known() && *shared_clock {
        all.extend([between(4, op.c1, op.s1), between(5, op.s1, op.s2), between(7, op.s2, op.c2)]);
    } else {
        all.extend([between(6, request.ended, response.began), between(8, response.began, response.ended)]);
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fields of a message: number, and its integer or its bytes.
    fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, Vec<u8>)> {
        fn varint(bytes: &mut &[u8]) -> u64 {
            let mut value = 0;
            for shift in (0..).step_by(7) {
                let (first, rest) = bytes.split_first().unwrap();
                *bytes = rest;
                value |= u64::from(first & 0x7f) << shift;
                if first & 0x80 == 0 {
                    break;
                }
            }
            value
        }
        let mut all = Vec::new();
        while !bytes.is_empty() {
            let key = varint(&mut bytes);
            let value = varint(&mut bytes);
            if key & 7 == 2 {
                let (own, rest) = bytes.split_at(value as usize);
                all.push((key >> 3, 0, own.to_vec()));
                bytes = rest;
            } else {
                all.push((key >> 3, value, Vec::new()));
            }
        }
        all
    }

    fn op(connection: u32, at: u64) -> Op {
        Op {
            connection,
            start: Stamp::at(at),
            c1: Stamp::at(at + 10),
            s1: Stamp::at(at + 20),
            s2: Stamp::at(at + 50),
            c2: Stamp::at(at + 60),
            finish: Stamp::at(at + 75),
            ..Op::default()
        }
    }

    /// Its track, begin (1) or end (2), and its time.
    type Event = (u64, u64, u64);

    /// Events of the trace, and the tracks' names.
    fn read(bytes: &[u8]) -> (Vec<Event>, BTreeMap<u64, String>) {
        let (mut events, mut names) = (Vec::new(), BTreeMap::new());
        for (field, _, packet) in fields(bytes) {
            assert_eq!(field, 1);
            let packet = fields(&packet);
            assert!(packet.iter().any(|(field, value, _)| (*field, *value) == (10, SEQUENCE)));
            let number = |of: &[(u64, u64, Vec<u8>)], wanted| {
                of.iter().find(|(field, ..)| *field == wanted).map(|f| f.1)
            };
            if let Some((.., event)) = packet.iter().find(|(field, ..)| *field == 11) {
                let event = fields(event);
                events.push((
                    number(&event, 11).unwrap(),
                    number(&event, 9).unwrap(),
                    number(&packet, 8).unwrap(),
                ));
            }
            if let Some((.., track)) = packet.iter().find(|(field, ..)| *field == 60) {
                let track = fields(track);
                let name = track.iter().find(|(field, ..)| *field == 2).unwrap();
                names.insert(number(&track, 1).unwrap(), String::from_utf8(name.2.clone()).unwrap());
            }
        }
        (events, names)
    }

    #[test]
    fn slices_of_a_lane_follow_one_another_and_stages_add_up() {
        let mut bytes = Vec::new();
        let mut trace = Trace::new(&mut bytes);
        // Three in flight at a time: each 75 long, every 30.
        let at = 1_700_000_000_000_000_000;
        for number in 0..50 {
            trace.write(&op(7, at + number * 30), None, &Names::default()).unwrap();
        }
        trace.finish().unwrap();
        let (events, names) = read(&bytes);
        assert_eq!(events.len(), 50 * 2 * 6);
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (track, kind, ns) in events {
            let name = names[&track].split(" (").next().unwrap().to_owned();
            if kind == 1 {
                assert_eq!(open.insert(track, ns), None, "a slice begins in another one of {name}");
            } else {
                *sums.entry(name).or_default() += ns - open.remove(&track).unwrap();
            }
        }
        assert!(open.is_empty());
        let whole = sums.remove("operation").unwrap();
        assert_eq!((whole, sums.values().sum()), (50 * 75, 50 * 75_u64), "{sums:?}");
        let lanes = names.values().filter(|name| name.starts_with("operation")).count();
        assert_eq!(lanes, 3, "{names:?}");
        assert!(names.values().any(|name| name == "connection 7"));
    }

    #[test]
    fn tracks_are_bounded_and_what_is_left_out_is_told() {
        let mut bytes = Vec::new();
        let mut trace = Trace::new(&mut bytes);
        for number in 0..LANES_MAX as u64 + 10 {
            let one = Op { start: Stamp::at(1000), finish: Stamp::at(5000 + number), ..Op::default() };
            trace.write(&one, None, &Names::default()).unwrap();
        }
        trace.finish().unwrap();
        let (events, names) = read(&bytes);
        assert_eq!(events.len(), 2 * LANES_MAX + 1, "and an event of the track that says so");
        assert!(
            names.values().any(|name| name.starts_with("10 slices are left out")),
            "{:?}",
            names.values().last()
        );
    }

    #[test]
    fn what_ends_before_it_begins_or_is_not_known_has_no_slice() {
        let mut bytes = Vec::new();
        let mut trace = Trace::new(&mut bytes);
        trace
            .write(&Op { s1: Stamp::at(105), c1: Stamp::at(109), ..op(1, 100) }, None, &Names::default())
            .unwrap();
        trace.write(&Op::default(), None, &Names::default()).unwrap();
        trace.finish().unwrap();
        let (events, _) = read(&bytes);
        // Without the request's path, which would go backwards.
        assert_eq!(events.len(), 2 * 5);
    }
}
