//! A ladder diagram of some operations: the client on the left, the server on the right, time downwards, and an arrow for
//! each segment.

use plotters::prelude::*;
use record::Side;
use tcpsim::tcp::Segment;
use tcpsim::{EPOCH_NS, Frame, Observer, SimOp};

/// Most operations that are drawn; bounds the segments too.
const FRAMES_MAX: usize = 400;
const WIDTH: u32 = 900;
/// The columns of client and server, and the upper margin, pixels.
const CLIENT_X: i32 = 250;
const SERVER_X: i32 = 650;
const TOP: i32 = 56;
/// Least and greatest distance of two times, pixels.
const GAP_MIN: f64 = 9.0;
const GAP_MAX: f64 = 64.0;

/// Collects the segments of some operations and ends the simulation after them.
#[derive(Debug, Default)]
pub struct Ladder {
    first: u64,
    last: u64,
    seen: u64,
    frames: Vec<Frame>,
    ops: Vec<SimOp>,
}

impl Ladder {
    /// Collects the operations `first` to `last`, counted from 0 in the order in which they complete.
    #[must_use]
    pub fn new(first: u64, last: u64) -> Self {
        Self { first, last, ..Self::default() }
    }

    /// The collected operations.
    #[must_use]
    pub fn ops(&self) -> &[SimOp] {
        &self.ops
    }

    /// Draws the diagram as SVG; `None` when no operations were collected or the drawing fails.
    #[must_use]
    pub fn draw(&self) -> Option<String> {
        let start = self.ops.iter().filter_map(|op| op.op.start.ns()).min()?;
        let finish = self.ops.iter().filter_map(|op| op.op.finish.ns()).max()?;
        let since = |ns: u64| ns.saturating_sub(start);
        let arrows: Vec<Arrow> =
            self.arrows().into_iter().filter(|a| a.left >= start && a.left <= finish).collect();
        let mut moments: Vec<u64> =
            arrows.iter().flat_map(|a| [Some(a.left), a.arrived]).flatten().map(since).collect();
        for op in &self.ops {
            moments.extend([op.op.start, op.op.finish].into_iter().filter_map(record::Stamp::ns).map(since));
        }
        moments.sort_unstable();
        moments.dedup();
        // Proportional within limits: a delayed acknowledgement takes a thousand times as long as a send.
        let steps: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e3).collect();
        let mut heights = vec![f64::from(TOP) + 24.0];
        for step in steps {
            let last = *heights.last()?;
            heights.push(last + (step * 6.0).clamp(GAP_MIN, GAP_MAX));
        }
        let height = |ns: u64| {
            let place = moments.partition_point(|moment| *moment < since(ns)).min(heights.len() - 1);
            heights[place] as i32
        };
        let bottom = *heights.last()? as i32 + 24;
        let mut svg = String::new();
        {
            let root = SVGBackend::with_string(&mut svg, (WIDTH, bottom as u32 + 16)).into_drawing_area();
            root.fill(&WHITE).ok()?;
            let text = |words: &str, x: i32, y: i32, size: u32, colour: RGBColor| {
                let style = ("sans-serif", size).into_font().color(&colour);
                root.draw(&Text::new(words.to_owned(), (x, y), style)).ok()
            };
            let (grey, blue, orange, slate) = (
                RGBColor(148, 163, 184),
                RGBColor(14, 116, 144),
                RGBColor(194, 65, 12),
                RGBColor(51, 65, 85),
            );
            for (name, x) in [("client", CLIENT_X), ("server", SERVER_X)] {
                text(name, x - 20, 14, 15, BLACK)?;
                root.draw(&PathElement::new([(x, TOP - 16), (x, bottom)], grey.stroke_width(2))).ok()?;
            }
            text("us", 8, TOP - 16, 12, slate)?;
            for (&moment, &y) in moments.iter().zip(&heights) {
                text(&format!("{:.1}", moment as f64 / 1e3), 8, y as i32 - 6, 11, slate)?;
                root.draw(&PathElement::new([(60, y as i32), (74, y as i32)], grey)).ok()?;
            }
            for arrow in &arrows {
                let (from, to) = match arrow.segment.sender {
                    Side::Client => (CLIENT_X, SERVER_X),
                    Side::Server => (SERVER_X, CLIENT_X),
                };
                let colour = if arrow.segment.bytes == 0 {
                    grey
                } else if arrow.segment.sender == Side::Client {
                    blue
                } else {
                    orange
                };
                let begin = (from, height(arrow.left));
                let end = match arrow.arrived {
                    Some(at) => (to, height(at)),
                    None => ((from + to) / 2, height(arrow.left) + 12),
                };
                root.draw(&PathElement::new([begin, end], colour.stroke_width(2))).ok()?;
                let back = if to > from { -7 } else { 7 };
                if arrow.arrived.is_some() {
                    let head = [(end.0 + back, end.1 - 4), end, (end.0 + back, end.1 + 4)];
                    root.draw(&PathElement::new(head, colour.stroke_width(2))).ok()?;
                } else {
                    text("lost", end.0 - 8, end.1 - 6, 12, RED)?;
                }
                let middle = ((begin.0 + end.0) / 2, (begin.1 + end.1) / 2);
                text(&arrow.label(), middle.0 - 60, middle.1 - 13, 11, colour)?;
            }
            for op in &self.ops {
                let (Some(start), Some(finish)) = (op.op.start.ns(), op.op.finish.ns()) else { continue };
                let x = 90 + (op.op.tag % 12) as i32 * 10;
                let line = [(x, height(start)), (x, height(finish))];
                root.draw(&PathElement::new(line, slate.stroke_width(3))).ok()?;
                text(&op.op.tag.to_string(), x - 3, height(start) - 14, 11, slate)?;
            }
            root.present().ok()?;
        }
        Some(svg)
    }

    /// Each sent segment with the time of its arrival.
    fn arrows(&self) -> Vec<Arrow> {
        let mut arrows: Vec<Arrow> = Vec::new();
        for frame in &self.frames {
            let (at, segment) = (EPOCH_NS + frame.at, Identity::of(frame));
            if frame.point == frame.sender {
                arrows.push(Arrow { segment, left: at, arrived: None });
                continue;
            }
            let sent = arrows.iter_mut().find(|a| a.arrived.is_none() && a.segment == segment);
            if let Some(arrow) = sent {
                arrow.arrived = Some(at);
            }
        }
        arrows
    }
}

/// The fields by which a segment is the same at both capture points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    session: u32,
    sender: Side,
    seq: u64,
    bytes: u32,
    ack: u64,
    retransmitted: bool,
}

impl Identity {
    fn of(frame: &Frame) -> Self {
        let Segment { seq, bytes, ack, retransmitted, .. } = frame.segment;
        Self { session: frame.session, sender: frame.sender, seq, bytes, ack, retransmitted }
    }
}

/// A segment between the two capture points.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    segment: Identity,
    left: u64,
    arrived: Option<u64>,
}

impl Arrow {
    fn label(&self) -> String {
        let Identity { seq, bytes, ack, retransmitted, .. } = self.segment;
        let again = if retransmitted { " again" } else { "" };
        if bytes == 0 {
            format!("ACK {ack}{again}")
        } else {
            format!("{seq}..{} ({bytes} B), ACK {ack}{again}", seq + u64::from(bytes))
        }
    }
}

impl Observer for Ladder {
    const FRAMES: bool = true;

    fn op(&mut self, op: &SimOp) {
        if (self.first..=self.last).contains(&self.seen) && self.ops.len() < FRAMES_MAX {
            self.ops.push(*op);
        }
        self.seen += 1;
    }

    fn frame(&mut self, frame: &Frame) {
        // Frames before the first operation are kept as long as that operation may have begun with them.
        if self.seen <= self.last + 1 {
            self.frames.push(*frame);
            if self.ops.is_empty() && self.frames.len() > 4 * FRAMES_MAX {
                self.frames.drain(..2 * FRAMES_MAX);
            }
        }
    }

    fn tick(&mut self, _: u64) -> bool {
        self.seen <= self.last && self.frames.len() < 16 * FRAMES_MAX
    }
}
