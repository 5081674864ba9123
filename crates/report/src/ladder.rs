//! A ladder diagram of some operations: the client on the left, the server on the right, time downwards, and an arrow for
//! each segment.

mod draw;
mod time_axis;
mod waits;

pub use time_axis::TimeScale;

use record::Side;
use tcpsim::tcp::Segment;
use tcpsim::{EPOCH_NS, Frame, Observer, SimOp};

/// Most operations that are drawn; bounds the segments too.
const FRAMES_MAX: usize = 400;

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
    pub fn draw(&self, scale: TimeScale) -> Option<String> {
        let start_ns = self.ops.iter().filter_map(|op| op.op.start.ns()).min()?;
        let finish_ns = self.ops.iter().filter_map(|op| op.op.finish.ns()).max()?;
        let all = self.arrows();
        let delayed = waits::delayed_acks(&all);
        let is_within = |arrow: &Arrow| arrow.left >= start_ns && arrow.left <= finish_ns;
        let arrows: Vec<Arrow> = all.into_iter().filter(is_within).collect();
        let waits: Vec<Wait> = self.ops.iter().flat_map(waits::of).chain(delayed).collect();
        let waits = waits.into_iter().filter(|wait| wait.from_ns >= start_ns && wait.to_ns <= finish_ns);
        draw::draw(&draw::Picture {
            ops: &self.ops,
            arrows: &arrows,
            waits: waits.collect(),
            start_ns,
            scale,
        })
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

/// A side's wait with its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Wait {
    /// Where it is drawn; `None` for the wire.
    side: Option<Side>,
    /// Its name.
    name: &'static str,
    /// When it began and ended, nanoseconds since the epoch.
    from_ns: u64,
    /// See `from_ns`.
    to_ns: u64,
}

/// A segment between the two capture points.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    segment: Identity,
    left: u64,
    arrived: Option<u64>,
}

impl Arrow {
    /// Whether a later segment of its sender arrived before it, so that it is lost, and not on its way when the run ended.
    fn is_overtaken(&self, arrows: &[Arrow]) -> bool {
        let own = &self.segment;
        self.arrived.is_none()
            && arrows.iter().any(|other| {
                let theirs = &other.segment;
                theirs.session == own.session
                    && theirs.sender == own.sender
                    && other.left > self.left
                    && other.arrived.is_some()
            })
    }

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
