//! Steps of the capturing clock: both hosts' time stamps (RFC 7323) go on while the capture's jump.

use record::{ClockStep, Side};

use super::options::Stamps;
use crate::packet::At;

/// Least step that is told from the ticks and the path, nanoseconds.
const STEP_NS: u64 = 100_000_000;
/// Time after which the length of a sender's tick is known, nanoseconds, and the ticks in it.
const KNOWN_NS: u64 = 200_000_000;
const KNOWN_TICKS: u32 = 20;

/// The longest tick that a sender may have, nanoseconds (RFC 7323 5.4).
const TICK_MAX_NS: f64 = 1e9;

/// The capturing clock, nanoseconds, and a sender's, ticks.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    ns: u64,
    ticks: u32,
}

/// What the time stamps of one sender say about the capturing clock.
#[derive(Clone, Copy, Debug, Default)]
struct Sender {
    first: Option<Reading>,
    last: Reading,
    /// A jump that its own stamps do not have.
    jump: Option<ClockStep>,
}

/// Both senders.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clocks {
    senders: [Sender; 2],
}

impl Clocks {
    /// A packet with time stamps passes. Returns a step of the capturing clock when the stamps of both sides prove it: a host
    /// that was suspended stops its own stamps only.
    #[inline]
    pub(super) fn passed(&mut self, side: Side, at: At, stamps: Stamps) -> Option<ClockStep> {
        let sender = &mut self.senders[side as usize];
        let now = Reading { ns: at.ns, ticks: stamps.value };
        let Some(first) = sender.first else {
            (sender.first, sender.last) = (Some(now), now);
            return None;
        };
        let last = std::mem::replace(&mut sender.last, now);
        // The common case first.
        if at.ns >= last.ns && at.ns - last.ns < STEP_NS {
            return None;
        }
        let by_ns = jump_ns(first, last, now)?;
        sender.jump = Some(ClockStep { before_ns: last.ns, after_ns: at.ns, frame: at.frame, by_ns });
        // The clock has a new beginning.
        sender.first = Some(now);
        let [own, peer] = [side, side.peer()].map(|side| self.senders[side as usize].jump);
        let (own, peer) = (own?, peer?);
        if !own.is_same(&peer) {
            return None;
        }
        self.senders.iter_mut().for_each(|sender| sender.jump = None);
        Some(ClockStep {
            before_ns: own.before_ns.max(peer.before_ns),
            after_ns: own.after_ns.min(peer.after_ns),
            frame: own.frame.min(peer.frame),
            by_ns: own.by_ns,
        })
    }
}

/// How far the capturing clock jumped between two packets of a sender, nanoseconds; `None` if it did not, or if the length of
/// the sender's tick is not known and the jump is not larger than any tick explains.
fn jump_ns(first: Reading, last: Reading, now: Reading) -> Option<i64> {
    let went_ticks = u64::try_from(now.ticks.wrapping_sub(last.ticks).cast_signed()).ok()?;
    let by = now.ns as f64 - last.ns as f64;
    let ticks = last.ticks.wrapping_sub(first.ticks);
    let known_ns = last.ns.saturating_sub(first.ns);
    if known_ns < KNOWN_NS || !(KNOWN_TICKS..=1 << 31).contains(&ticks) {
        let is_back = by <= -(STEP_NS as f64);
        let is_beyond = by >= STEP_NS as f64 + (went_ticks.saturating_add(1) as f64) * TICK_MAX_NS;
        return (is_back || is_beyond).then_some(by as i64);
    }
    let went_ns = went_ticks as f64 * (known_ns as f64 / f64::from(ticks));
    let by_ns = by - went_ns;
    // The length of a tick is known to within a few per cent.
    let is_step = by_ns.abs() >= STEP_NS as f64 + went_ns / 10.0;
    is_step.then_some(by_ns as i64)
}
