//! The drawing of a ladder diagram.

use plotters::backend::SVGBackend;
use plotters::prelude::*;
use record::Side;
use tcpsim::SimOp;

use crate::quantities::time;

use super::time_axis::{TimeAxis, TimeScale};
use super::{Arrow, Wait};

/// With and without a column for waits on the wire.
const WIDTH: u32 = 980;
const WIDTH_OF_ALL: u32 = 1120;
/// Place of that column, pixels from the server's.
const WIRE: i32 = 200;
/// The columns of client and server, and the upper margin, pixels.
const CLIENT_X: i32 = 360;
const SERVER_X: i32 = 760;
const TOP: i32 = 76;
/// Height of a line of text, pixels.
const LINE: i32 = 12;
/// Shorter waits are not drawn, pixels.
const WAIT_MIN: i32 = 7;
/// Columns of waits at a side: of operations in flight together.
const LANES: usize = 4;
/// How far a label of an arrow may be moved to where there is room, lines.
const MOVED_MAX: i32 = 8;

const GREY: RGBColor = RGBColor(120, 134, 156);
const REQUEST: RGBColor = RGBColor(14, 116, 144);
const RESPONSE: RGBColor = RGBColor(194, 65, 12);
const SLATE: RGBColor = RGBColor(51, 65, 85);
const WAIT: RGBColor = RGBColor(134, 25, 143);

/// What is drawn.
pub(super) struct Picture<'a> {
    pub(super) ops: &'a [SimOp],
    pub(super) arrows: &'a [Arrow],
    pub(super) waits: Vec<Wait>,
    /// The begin of the first operation, nanoseconds since the epoch.
    pub(super) start_ns: u64,
    pub(super) scale: TimeScale,
}

type Area<'a> = DrawingArea<SVGBackend<'a>, plotters::coord::Shift>;

/// The pen: where things are, and what of the columns is taken.
struct Pen<'a, 'b> {
    root: &'a Area<'b>,
    axis: TimeAxis,
    start_ns: u64,
}

/// Draws the diagram; `None` if the drawing fails.
pub(super) fn draw(picture: &Picture<'_>) -> Option<String> {
    let mut moments: Vec<u64> =
        picture.arrows.iter().flat_map(|a| [Some(a.left), a.arrived]).flatten().collect();
    let ends = picture.ops.iter().flat_map(|op| [op.op.start, op.op.finish]);
    moments.extend(ends.filter_map(record::Stamp::ns));
    let axis = TimeAxis::new(moments, picture.scale, f64::from(TOP) + 24.0);
    let bottom = axis.bottom() as i32 + 24;
    let is_drawn = |wait: &Wait| axis.place(wait.to_ns) as i32 - axis.place(wait.from_ns) as i32 >= WAIT_MIN;
    let has_wire = picture.waits.iter().any(|wait| wait.side.is_none() && is_drawn(wait));
    let width = if has_wire { WIDTH_OF_ALL } else { WIDTH };
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (width, bottom as u32 + 16)).into_drawing_area();
        root.fill(&WHITE).ok()?;
        let pen = Pen { root: &root, axis, start_ns: picture.start_ns };
        pen.head(picture, bottom)?;
        if has_wire {
            pen.text("on the wire", SERVER_X + WIRE, TOP - 40, 13, BLACK)?;
        }
        pen.times()?;
        pen.arrows(picture)?;
        pen.ops(picture.ops)?;
        pen.waits(&picture.waits)?;
        root.present().ok()?;
    }
    Some(svg)
}

impl Pen<'_, '_> {
    fn text(&self, words: &str, x: i32, y: i32, size: u32, colour: RGBColor) -> Option<()> {
        let style = ("sans-serif", size).into_font().color(&colour);
        self.root.draw(&Text::new(words.to_owned(), (x, y), style)).ok()
    }

    fn line(&self, points: Vec<(i32, i32)>, colour: RGBColor, width: u32) -> Option<()> {
        self.root.draw(&PathElement::new(points, colour.stroke_width(width))).ok()
    }

    fn y(&self, at_ns: u64) -> i32 {
        self.axis.place(at_ns) as i32
    }

    fn head(&self, picture: &Picture<'_>, bottom: i32) -> Option<()> {
        for (name, x) in [("client", CLIENT_X), ("server", SERVER_X)] {
            self.text(name, x - 20, TOP - 40, 15, BLACK)?;
            self.line(vec![(x, TOP - 16), (x, bottom)], GREY, 2)?;
        }
        let places = self.axis.places();
        let (first, last) = (places.first()?, places.last()?);
        let us_per_pixel = (last.0 - first.0) as f64 / 1e3 / (last.1 - first.1).max(1.0);
        let scale = match picture.scale {
            TimeScale::Events => {
                "Time axis by event, not to scale: each event has a place of its own".to_owned()
            }
            TimeScale::Time => {
                format!("Time axis to scale: 100 pixels are {}", time(us_per_pixel * 100.0))
            }
        };
        let shortest = match picture.scale {
            TimeScale::Events => String::new(),
            TimeScale::Time => {
                format!("; waits shorter than {} are not drawn", time(us_per_pixel * f64::from(WAIT_MIN)))
            }
        };
        self.text(
            &format!("{scale}{shortest}. Waits are named beside the time that they take."),
            8,
            8,
            13,
            SLATE,
        )?;
        self.text("us", 8, TOP - 16, 12, SLATE)
    }

    /// The times of events, as far as there is room for them.
    fn times(&self) -> Option<()> {
        let mut free = i32::MIN;
        for &(moment, place) in self.axis.places() {
            let y = place as i32;
            self.line(vec![(60, y), (74, y)], GREY, 1)?;
            if y >= free {
                let us = moment.saturating_sub(self.start_ns) as f64 / 1e3;
                self.text(&format!("{us:.1}"), 8, y - 6, 11, SLATE)?;
                free = y + 10;
            }
        }
        Some(())
    }

    fn arrows(&self, picture: &Picture<'_>) -> Option<()> {
        let mut labels: Vec<(String, i32, i32, RGBColor)> = Vec::new();
        for arrow in picture.arrows {
            let (from, to) = match arrow.segment.sender {
                Side::Client => (CLIENT_X, SERVER_X),
                Side::Server => (SERVER_X, CLIENT_X),
            };
            let colour = match (arrow.segment.bytes, arrow.segment.sender) {
                (0, _) => GREY,
                (_, Side::Client) => REQUEST,
                (_, Side::Server) => RESPONSE,
            };
            let begin = (from, self.y(arrow.left));
            let end = match arrow.arrived {
                Some(at) => (to, self.y(at)),
                None => (i32::midpoint(from, to), self.y(arrow.left) + 12),
            };
            self.line(vec![begin, end], colour, 2)?;
            let back = if to > from { -7 } else { 7 };
            if arrow.arrived.is_some() {
                self.line(vec![(end.0 + back, end.1 - 4), end, (end.0 + back, end.1 + 4)], colour, 2)?;
            } else if arrow.is_overtaken(picture.arrows) {
                self.text("lost", end.0 - 8, end.1 - 6, 12, RED)?;
            }
            let middle = (i32::midpoint(begin.0, end.0), i32::midpoint(begin.1, end.1));
            labels.push((arrow.label(), middle.0 - 60, middle.1 - 13, colour));
        }
        let mut taken: Vec<i32> = Vec::new();
        for (words, x, wanted, colour) in labels {
            let y = match picture.scale {
                TimeScale::Events => wanted,
                TimeScale::Time => room(&taken, wanted),
            };
            taken.push(y);
            let paper = [(x - 2, y - 1), (x + 5 * words.chars().count() as i32, y + 11)];
            self.root.draw(&Rectangle::new(paper, WHITE.filled())).ok()?;
            self.text(&words, x, y, 11, colour)?;
        }
        Some(())
    }

    fn ops(&self, ops: &[SimOp]) -> Option<()> {
        for op in ops {
            let (Some(start), Some(finish)) = (op.op.start.ns(), op.op.finish.ns()) else { continue };
            let x = 84 + (op.op.tag % 8) as i32 * 9;
            self.line(vec![(x, self.y(start)), (x, self.y(finish))], SLATE, 3)?;
            self.text(&op.op.tag.to_string(), x - 3, self.y(start) - 14, 11, SLATE)?;
        }
        Some(())
    }

    /// The waits, the longest first: their labels have the room that they need.
    fn waits(&self, waits: &[Wait]) -> Option<()> {
        let mut order: Vec<&Wait> = waits.iter().collect();
        order.sort_by_key(|wait| std::cmp::Reverse(wait.to_ns - wait.from_ns));
        let mut lanes: Vec<(Option<Side>, usize, i32, i32)> = Vec::new();
        let mut labels: Vec<(Option<Side>, i32)> = Vec::new();
        for wait in order {
            let (from, to) = (self.y(wait.from_ns), self.y(wait.to_ns));
            if to - from < WAIT_MIN {
                continue;
            }
            let is_free = |lane: &usize| {
                !lanes.iter().any(|(side, own, top, low)| {
                    *side == wait.side && own == lane && *top < to && from < *low
                })
            };
            let Some(lane) = (0..LANES).find(is_free) else { continue };
            lanes.push((wait.side, lane, from, to));
            let offset = 8 + lane as i32 * 6;
            let words = format!("{} {}", wait.name, time((wait.to_ns - wait.from_ns) as f64 / 1e3));
            let edge = 12 + LANES as i32 * 6;
            let (x, words_x) = match wait.side {
                Some(Side::Client) => (CLIENT_X - offset, CLIENT_X - edge - 6 * words.chars().count() as i32),
                Some(Side::Server) => (SERVER_X + offset, SERVER_X + edge),
                None => (SERVER_X + WIRE + offset, SERVER_X + WIRE + edge),
            };
            self.line(vec![(x, from + 1), (x, to - 1)], WAIT, 3)?;
            let middle = i32::midpoint(from, to) - 6;
            let is_free =
                |y: i32| !labels.iter().any(|(side, other)| *side == wait.side && (other - y).abs() < LINE);
            // Anywhere beside the wait.
            let places = (0..).map(|n| n * 3).take_while(|n| *n <= (to - from) / 2);
            let place = places.flat_map(|n| [middle - n, middle + n]).find(|y| is_free(*y));
            if let Some(y) = place {
                labels.push((wait.side, y));
                self.text(&words, words_x, y, 11, WAIT)?;
            }
        }
        Some(())
    }
}

/// The nearest place below `wanted` that no other label takes, pixels.
fn room(taken: &[i32], wanted: i32) -> i32 {
    let is_free = |y: &i32| !taken.iter().any(|other| (other - y).abs() < LINE);
    (0..MOVED_MAX * LINE).map(|n| wanted + n).find(is_free).unwrap_or(wanted)
}
