//! Passes the frames of the inputs to their capture points.

use analysis::pairing::Point;
use capture::file::{CaptureFile, FileError};
use capture::{At, Contents, FrameCounters, Link, Selection, Vantage};
use record::wire::Wire;
use record::{Regular, Side, Spacing};

use crate::events::{EVENTS_AT_ONCE, Event, Outbox};
use crate::run::{Input, Options};

/// Frames of one input in a row.
const FRAMES_AT_ONCE: usize = 512;
/// Frames of this time in a row, where operations are to be told promptly: nanoseconds.
const PROMPT_NS: u64 = 20_000_000;
/// Most capture points of an input.
const POINTS_MAX: usize = 256;
/// The senders of a capture point's spacings.
const SIDES: [Side; 2] = [Side::Client, Side::Server];

/// An input and its capture points.
pub(crate) struct Reading {
    pub(crate) file: CaptureFile,
    place: Option<Side>,
    /// Capture points by interface, and by the interface's number in cooked captures.
    points: Vec<((u32, Option<u32>), usize, Link)>,
    recent: usize,
    /// When its first frame passed, nanoseconds.
    first_ns: Option<u64>,
    /// When its last frame passed, nanoseconds, and whether that has no bytes.
    last: (u64, bool),
    /// Its current section, the number of that among all captures, and the stretch of time that it is in.
    section: Option<u32>,
    capture: u32,
    stretch: u32,
    /// A section begins before the end of those before it.
    pub(crate) overlaps: bool,
    /// Frames of unsupported link layers.
    pub(crate) unsupported: u64,
    pub(crate) unsupported_link: u32,
    pub(crate) is_over: bool,
}

impl Reading {
    /// When its first and its last frame passed, nanoseconds since the epoch.
    pub(crate) fn span_ns(&self) -> Option<(u64, u64)> {
        self.first_ns.map(|first| (first, self.last.0.max(first)))
    }

    fn new(input: Input, selection: &Selection) -> Self {
        Self {
            // What a file has of secrets is for all of them.
            file: input.file.with_keys(selection.keys.clone()),
            place: input.place,
            points: Vec::new(),
            recent: 0,
            first_ns: None,
            last: (0, false),
            section: None,
            capture: 0,
            stretch: 0,
            overlaps: false,
            unsupported: 0,
            unsupported_link: 0,
            is_over: false,
        }
    }
}

/// The inputs, and the capture points of all of them.
pub(crate) struct Reader {
    pub(crate) readings: Vec<Reading>,
    points: Points,
    wire: Option<Wire>,
    prompt: bool,
}

/// The capture points of all inputs.
struct Points {
    selection: Selection,
    all: Vec<Vantage>,
    /// Captures so far: sections of inputs.
    captures: u32,
}

/// What is known when all has been read.
pub(crate) struct Read {
    pub(crate) readings: Vec<Reading>,
    pub(crate) frames: FrameCounters,
    pub(crate) contents: Contents,
    /// By capture point and sender.
    pub(crate) spacings: Vec<(Option<Regular>, Side)>,
    /// The share of the link's rate that is left for the messages of each side.
    pub(crate) passed: Option<[f64; 2]>,
    pub(crate) points_with_packets: usize,
}

impl Reader {
    pub(crate) fn new(inputs: Vec<Input>, options: &Options) -> Self {
        let selection = options.selection.clone();
        let readings = inputs.into_iter().map(|input| Reading::new(input, &selection)).collect();
        let points = Points { selection, all: Vec::new(), captures: 0 };
        Self { readings, points, wire: options.wire, prompt: options.prompt }
    }

    /// The bytes read from the inputs, as stored.
    pub(crate) fn bytes_read(&self) -> u64 {
        self.readings.iter().map(|reading| reading.file.bytes_read()).sum()
    }

    /// Processes the next frames of an input, and delivers what they show.
    ///
    /// # Errors
    /// When the input cannot be read.
    pub(crate) fn advance(&mut self, input: usize, outbox: &mut Outbox<'_>) -> Result<(), FileError> {
        let Some(reading) = self.readings.get_mut(input) else { return Ok(()) };
        let enough = outbox.count + EVENTS_AT_ONCE as u64;
        let mut until_ns = None;
        for _ in 0..FRAMES_AT_ONCE {
            // Frames may hold thousands of requests, which wait for the view of another input.
            if outbox.count >= enough {
                break;
            }
            if !self.points.step(reading, input as u32, outbox)? {
                reading.is_over = true;
                break;
            }
            if self.prompt {
                let (at_ns, is_empty) = reading.last;
                if is_empty || at_ns >= *until_ns.get_or_insert(at_ns.saturating_add(PROMPT_NS)) {
                    break;
                }
            }
        }
        outbox.flush();
        Ok(())
    }

    /// Ends the capture points, and delivers what that shows.
    pub(crate) fn finish(self, outbox: &mut Outbox<'_>) -> Read {
        let mut read = Read {
            passed: self.wire.map(|wire| crate::link::efficiency(&wire, &self.points.all)),
            points_with_packets: self.points.all.iter().filter(|point| point.counters.packets > 0).count(),
            readings: self.readings,
            frames: FrameCounters::default(),
            contents: Contents::default(),
            spacings: Vec::new(),
        };
        for (vantage, point) in self.points.all.into_iter().enumerate() {
            read.contents.add(&point.contents);
            read.spacings.extend(point.spacings.iter().map(Spacing::regular).zip(SIDES));
            add(&mut read.frames, &point.finish(&mut outbox.observer(vantage as u32)));
        }
        outbox.flush();
        read
    }
}

impl Points {
    /// Processes the next frame of an input; false at its end.
    #[inline]
    fn step(
        &mut self,
        reading: &mut Reading,
        input: u32,
        outbox: &mut Outbox<'_>,
    ) -> Result<bool, FileError> {
        let Some(frame) = reading.file.next_frame()? else { return Ok(false) };
        let at = At { ns: frame.time_ns, frame: frame.number };
        reading.last = (frame.time_ns, frame.data.is_empty());
        reading.first_ns.get_or_insert(frame.time_ns);
        // The common case first: the point of the last frame, on a plain link.
        if let Some(&((interface, None), point, link)) = reading.points.get(reading.recent)
            && interface == frame.interface
            && link != Link::Cooked2
        {
            self.all[point].frame(link, at, frame.data, frame.wire_bytes, &mut outbox.observer(point as u32));
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
                        let point = self.add_point(input, of, true, outbox);
                        reading.points.push((key, point, Link::Cooked2));
                        reading.points.len() - 1
                    }
                    None => return Ok(true),
                };
                let point = reading.points[place].1;
                self.all[point].segment(&segment, at, wire_bytes, &mut outbox.observer(point as u32));
            }
            Some((Link::Cooked2, Err(reason))) => {
                if let Some(&(_, point, _)) = reading.points.iter().find(|((i, _), _, _)| *i == interface) {
                    self.all[point].not_tcp(reason, Link::Cooked2, data);
                }
            }
            Some((link, _)) => {
                let place = reading.points.iter().position(|((i, _), _, _)| *i == interface).unwrap_or(0);
                reading.recent = place;
                let point = reading.points[place].1;
                self.all[point].frame(link, at, data, wire_bytes, &mut outbox.observer(point as u32));
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
                let of = (reading.capture, reading.stretch, reading.place);
                // A file names its interfaces before their frames, which it may have one interface after the other.
                let interfaces = reading.file.interfaces().iter();
                let in_section = interfaces.filter(|interface| Some(interface.section) == reading.section);
                let may_have_others = in_section.count() > 1;
                let point = self.add_point(input, of, may_have_others, outbox);
                let mut key = (interface, None);
                if let (Link::Cooked2, Ok((_, seen))) = (link, link.decode(&held, wire_bytes)) {
                    key.1 = seen.interface;
                }
                reading.points.push((key, point, link));
                reading.recent = reading.points.len() - 1;
                self.all[point].frame(link, at, &held, wire_bytes, &mut outbox.observer(point as u32));
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
        let before_ns = reading.points.iter().map(|(_, point, _)| self.all[*point].newest_ns()).max();
        reading.stretch += u32::from(before_ns.is_some_and(|before_ns| before_ns <= now_ns));
        reading.overlaps |= before_ns.is_some_and(|before_ns| before_ns > now_ns);
        (reading.section, reading.capture) = (section, self.captures);
        self.captures += 1;
    }

    fn add_point(
        &mut self,
        input: u32,
        (capture, stretch, place): (u32, u32, Option<Side>),
        may_have_others: bool,
        outbox: &mut Outbox<'_>,
    ) -> usize {
        self.all.push(Vantage::new(self.selection.clone()));
        let point = Point { input, place, stretch };
        outbox.push(Event::Point { point, capture, may_have_others });
        self.all.len() - 1
    }
}

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
