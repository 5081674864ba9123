//! A ladder diagram: the client on the left, the server on the right, time downwards, and an arrow for each segment of
//! some operations.

use plotters::prelude::*;
use record::Side;
use tcpsim::{EPOCH_NS, Frame, Observer, SimOp};

/// Most segments and operations that are drawn.
const FRAMES_MAX: usize = 400;
const WIDTH: u32 = 900;
/// Where the two stand, and the margins.
const COLUMNS: (i32, i32) = (250, 650);
const TOP: i32 = 56;
/// Two moments are so far apart, pixels: at least, at most.
const GAP: (f64, f64) = (9.0, 64.0);

/// Collects what is to be drawn of a simulation, and ends it then.
#[derive(Debug, Default)]
pub struct Ladder {
    first: u64,
    last: u64,
    seen: u64,
    frames: Vec<Frame>,
    ops: Vec<SimOp>,
}

impl Ladder {
    /// Of the operations numbered so, from 0, in the order in which they end.
    #[must_use]
    pub fn new(first: u64, last: u64) -> Self {
        Self { first, last, ..Self::default() }
    }

    /// The operations that were collected.
    #[must_use]
    pub fn ops(&self) -> &[SimOp] {
        &self.ops
    }

    /// Draws what was collected. Nothing when there is nothing, or the drawing fails.
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
        // Proportional where that can be read, else shortened: a delayed acknowledgement is a thousand times a send.
        let steps: Vec<f64> = moments.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e3).collect();
        let mut heights = vec![f64::from(TOP) + 24.0];
        for step in steps {
            let last = *heights.last()?;
            heights.push(last + (step * 6.0).clamp(GAP.0, GAP.1));
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
            for (name, x) in [("client", COLUMNS.0), ("server", COLUMNS.1)] {
                text(name, x - 20, 14, 15, BLACK)?;
                root.draw(&PathElement::new([(x, TOP - 16), (x, bottom)], grey.stroke_width(2))).ok()?;
            }
            text("us", 8, TOP - 16, 12, slate)?;
            for (&moment, &y) in moments.iter().zip(&heights) {
                text(&format!("{:.1}", moment as f64 / 1e3), 8, y as i32 - 6, 11, slate)?;
                root.draw(&PathElement::new([(60, y as i32), (74, y as i32)], grey)).ok()?;
            }
            for arrow in &arrows {
                let (from, to) = match arrow.sender {
                    Side::Client => COLUMNS,
                    Side::Server => (COLUMNS.1, COLUMNS.0),
                };
                let colour = if arrow.bytes == 0 {
                    grey
                } else if arrow.sender == Side::Client {
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

    /// Each segment that left, and when it came.
    fn arrows(&self) -> Vec<Arrow> {
        let mut arrows: Vec<Arrow> = Vec::new();
        for frame in &self.frames {
            let (at, segment) = (EPOCH_NS + frame.at, frame.segment);
            if frame.point == frame.sender {
                arrows.push(Arrow {
                    session: frame.session,
                    sender: frame.sender,
                    seq: segment.seq,
                    bytes: segment.bytes,
                    ack: segment.ack,
                    again: segment.retransmitted,
                    left: at,
                    arrived: None,
                });
                continue;
            }
            let sent = arrows.iter_mut().find(|a| {
                a.arrived.is_none()
                    && (a.session, a.sender, a.seq, a.bytes, a.ack, a.again)
                        == (
                            frame.session,
                            frame.sender,
                            segment.seq,
                            segment.bytes,
                            segment.ack,
                            segment.retransmitted,
                        )
            });
            if let Some(arrow) = sent {
                arrow.arrived = Some(at);
            }
        }
        arrows
    }
}

/// A segment's way.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    session: u32,
    sender: Side,
    seq: u64,
    bytes: u32,
    ack: u64,
    again: bool,
    left: u64,
    arrived: Option<u64>,
}

impl Arrow {
    fn label(&self) -> String {
        let again = if self.again { " again" } else { "" };
        match self.bytes {
            0 => format!("ACK {}{again}", self.ack),
            bytes => {
                format!("{}..{} ({bytes} B), ACK {}{again}", self.seq, self.seq + u64::from(bytes), self.ack)
            }
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
        // Older ones matter only as long as an operation that is to come may have begun with them.
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
