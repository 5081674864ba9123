//! Round trips from the capture point to both hosts: what acknowledgements and echoes of time stamps show.
//!
//! A capture point lies somewhere between the hosts. An acknowledgement that passes it needs the round trip to the data's
//! sender until it can release data that passes the point, and an acknowledgement of data that passes it needs the round trip
//! to the receiver. So each rule compares its times with these two.

use record::Side;
use record::stall::shortest;

use super::Tcp;
use super::options::Stamps;
use crate::packet::At;

/// Shortest delay of a delayed acknowledgement that is in use, halved, nanoseconds: 40 ms (Linux, Windows, FreeBSD).
pub(crate) const LATE_NS: u64 = 20_000_000;
/// The capture point is at a host if the other one is so many times as far.
const BESIDE: u64 = 8;
/// How long a host takes to react to a packet, beyond the path's time, nanoseconds: an interrupt, a softirq and a thread on a
/// busy processor.
pub(super) const PROMPT_NS: u64 = 1_000_000;
/// From this round trip on there is a network between the hosts, nanoseconds: within a building it is less.
pub(super) const NETWORK_NS: u64 = 1_000_000;

/// A sender's time stamp whose echo is awaited.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Echo {
    /// The last time stamp value, and whether there was one.
    last: Option<u32>,
    awaited: Option<(u32, u64)>,
}

/// The round trips from a capture point to a sender of data and to its receiver, nanoseconds; 0: unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Path {
    pub(super) to_sender_ns: u64,
    pub(super) to_receiver_ns: u64,
}

impl Path {
    /// The round trip between both hosts, nanoseconds; 0 where a part of it is unknown.
    pub(super) fn round_trip_ns(self) -> u64 {
        match (self.to_sender_ns, self.to_receiver_ns) {
            (0, _) | (_, 0) => 0,
            (sender, receiver) => sender.saturating_add(receiver),
        }
    }

    /// Whether packets can vanish between their sender and the capture point: it is not at the sender's host, whose own reaction
    /// is all that its round trip holds.
    pub(super) fn leaves_room_before(self) -> bool {
        self.to_sender_ns.saturating_mul(BESIDE) >= self.to_receiver_ns
    }

    /// Whether an acknowledgement that comes so long after the data was delayed on purpose: by more than half of the shortest
    /// timer, and by more than the round trip varies (a quarter, RFC 6298's first estimate is a half).
    pub(super) fn is_late(self, waited_ns: u64) -> bool {
        let late_ns = LATE_NS.max(self.to_receiver_ns / 4);
        self.to_receiver_ns > 0 && waited_ns >= self.to_receiver_ns.saturating_add(late_ns)
    }

    /// Whether data that passes so long after an acknowledgement can have been released by it: not sooner than half of the
    /// round trip to the sender, which allows for a capture's stamps, and not later than that round trip, what it varies, and
    /// the sender's reaction. What was `waited` for is longer than that variation, else the coincidence says nothing.
    pub(super) fn is_released(self, since_ack_ns: u64, waited_ns: u64) -> bool {
        let varies_ns = self.to_sender_ns.min(waited_ns) / 4;
        let most_ns = self.to_sender_ns.saturating_add(varies_ns).saturating_add(PROMPT_NS);
        (self.to_sender_ns / 2..=most_ns).contains(&since_ack_ns)
    }

    /// The time in which a sender reacts to an acknowledgement, as the capture point sees it, nanoseconds.
    pub(super) fn reaction_ns(self) -> u64 {
        (self.to_sender_ns / 4 * 5).saturating_add(PROMPT_NS)
    }
}

impl Tcp {
    /// The path of data from a sender.
    #[inline]
    pub(super) fn path(&self, sender: Side) -> Path {
        Path { to_sender_ns: self.path_ns(sender), to_receiver_ns: self.path_ns(sender.peer()) }
    }

    /// The shortest round trip from here to a side's host, nanoseconds; 0: unknown. As
    /// [`record::ConnectionFacts::path_ns`].
    fn path_ns(&self, side: Side) -> u64 {
        let there = match (side, self.handshake_ns) {
            (Side::Server, Some((there, _))) => there,
            (Side::Client, Some((_, here))) => here,
            (_, None) => 0,
        };
        let conduct = &self.halves[side.peer() as usize].conduct;
        shortest([there, conduct.ack_min_ns, conduct.echo_min_ns])
    }

    /// Processes the time stamp of a packet of `side`, and the stamp that it echoes (RFC 7323).
    #[inline]
    pub(super) fn stamped(&mut self, side: Side, at: At, stamps: Stamps) {
        let Stamps { value, echo } = stamps;
        let half = &mut self.halves[side as usize];
        half.waited_ns = half.transit.passed(at.ns, stamps);
        let own = &mut half.echo;
        if own.last != Some(value) {
            own.last = Some(value);
            own.awaited.get_or_insert((value, at.ns));
        }
        let peer = &mut self.halves[side.peer() as usize];
        if let Some((awaited, ns)) = peer.echo.awaited
            && super::distance(echo, awaited) >= 0
        {
            peer.echo.awaited = None;
            let shortest = &mut peer.conduct.echo_min_ns;
            // A clock that was set back says nothing.
            if at.ns > ns && (*shortest == 0 || at.ns - ns < *shortest) {
                *shortest = at.ns - ns;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn late_and_released_are_relative_to_the_path() {
        const MS: u64 = 1_000_000;
        let lan = Path { to_sender_ns: MS / 10, to_receiver_ns: MS / 10 };
        assert!(lan.is_late(21 * MS) && !lan.is_late(19 * MS));
        let far = Path { to_sender_ns: MS / 10, to_receiver_ns: 220 * MS };
        assert!(!far.is_late(220 * MS) && !far.is_late(260 * MS) && far.is_late(420 * MS));
        let unknown = Path { to_sender_ns: 0, to_receiver_ns: 0 };
        assert!(!unknown.is_late(500 * MS) && unknown.round_trip_ns() == 0);
        // The sender is 220 ms away: what passes 100 ms after an acknowledgement had left before it came.
        let behind = Path { to_sender_ns: 220 * MS, to_receiver_ns: MS / 10 };
        assert!(!behind.is_released(100 * MS, 40 * MS) && behind.is_released(221 * MS, 40 * MS));
        assert!(!behind.is_released(240 * MS, 40 * MS), "the wait is no longer than the variation");
        assert!(lan.is_released(MS, 40 * MS) && !lan.is_released(3 * MS, 40 * MS));
    }
}
