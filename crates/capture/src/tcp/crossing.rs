//! Whether a side's packets are lost while the other direction of the link is sending, and not otherwise: the half-duplex end of
//! a cable whose other end is in full duplex sees a collision then, and takes the packet for lost.
//!
//! Behind the loss, the numbers of a sender that counts its packets show which are missing. Beside the sender a repetition would
//! not tell, because what was lost may be the acknowledgement.

use record::{Conduct, Passed};

use super::identification::{Identification, Order};
use super::path::{NETWORK_NS, Path};

/// Another connection is sending if data of it passed so recently: a packet of 1500 bytes takes 1.2 ms at 10 Mb/s.
const BUSY_NS: u64 = 2 * NETWORK_NS;
/// And it is quiet after so long.
const QUIET_NS: u64 = 8 * NETWORK_NS;
/// More missing packets in a row are a gap of the capture, or another count.
const MISSING_MAX: u16 = 16;

/// What the other direction did when a packet left.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Opposite {
    /// Unknown, or between the two.
    #[default]
    Unknown,
    Quiet,
    Busy,
}

/// The last packets of a side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Crossing {
    last: Opposite,
    /// Where the last missing packets were counted.
    missing: Option<Opposite>,
}

impl Opposite {
    /// While data is on its way to the sender of a packet that does not acknowledge it, or data of other connections has passed
    /// so long ago, nanoseconds.
    pub(super) fn of(has_more: bool, others_ns: u64, path: Path) -> Self {
        let round_trip_ns = path.round_trip_ns();
        if round_trip_ns == 0 {
            Self::Unknown
        } else if has_more || others_ns <= BUSY_NS.max(round_trip_ns) {
            Self::Busy
        } else if others_ns > QUIET_NS.max(round_trip_ns.saturating_mul(4)) {
            Self::Quiet
        } else {
            Self::Unknown
        }
    }

    fn count(self, counts: &mut [Passed; 2]) -> Option<&mut Passed> {
        match self {
            Self::Unknown => None,
            Self::Quiet => Some(&mut counts[0]),
            Self::Busy => Some(&mut counts[1]),
        }
    }
}

impl Crossing {
    /// A packet passes. Only between two that left under the same conditions it is known where missing ones belong.
    #[inline]
    pub(super) fn passed(
        &mut self,
        opposite: Opposite,
        order: Order,
        packets: &Identification,
        conduct: &mut Conduct,
    ) {
        let before = std::mem::replace(&mut self.last, opposite);
        if !packets.counts() {
            return;
        }
        let missing = packets.missing();
        let counts = &mut conduct.crossing;
        match order {
            Order::Overtaken => {
                if let Some(Passed { lost, .. }) = self.missing.take().and_then(|of| of.count(counts)) {
                    *lost = lost.saturating_sub(1);
                }
            }
            Order::Next | Order::Skipped if before == opposite && missing <= MISSING_MAX => {
                if let Some(Passed { sent, lost }) = opposite.count(counts) {
                    *sent += 1 + u64::from(missing);
                    *lost += u64::from(missing);
                    self.missing = (missing > 0).then_some(opposite);
                }
            }
            Order::Next | Order::Skipped | Order::Unknown => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// Packets of a sender that counts: each says what the other direction did, and how many before it were lost. Returns what
    /// was sent and lost while it was quiet, and while it was busy.
    fn counted(packets: impl IntoIterator<Item = (Opposite, u16)>) -> [Passed; 2] {
        let (mut crossing, mut identification) = (Crossing::default(), Identification::default());
        let mut conduct = Conduct::default();
        let mut number = 0;
        for (opposite, lost) in packets {
            number += 1 + lost;
            let order = identification.passed(number, 1);
            crossing.passed(opposite, order, &identification, &mut conduct);
        }
        conduct.crossing
    }

    #[test]
    fn missing_packets_belong_to_the_conditions_on_both_sides_of_them() {
        use Opposite::{Busy, Quiet};
        // Twenty that make the count known, then a response: three acknowledgements, of which one is lost, and the next request.
        let known = || std::iter::repeat_n((Quiet, 0), 20);
        let turn = [(Busy, 0), (Busy, 1), (Quiet, 0), (Quiet, 0)];
        let [quiet, busy] = counted(known().chain(turn.repeat(30)));
        assert_eq!((busy, quiet.lost), (Passed { sent: 60, lost: 30 }, 0));
        // Between two conditions nobody knows when the missing one left.
        let turn = [(Busy, 0), (Busy, 0), (Quiet, 1), (Quiet, 0)];
        let [quiet, busy] = counted(known().chain(turn.repeat(30)));
        assert_eq!((busy.lost, quiet.lost), (0, 0));
    }

    #[test]
    fn a_packet_that_was_overtaken_is_not_lost() {
        let (mut crossing, mut identification) = (Crossing::default(), Identification::default());
        let mut conduct = Conduct::default();
        for number in (0..40_u16).chain([41, 40, 42]) {
            let order = identification.passed(number, 1);
            crossing.passed(Opposite::Busy, order, &identification, &mut conduct);
        }
        assert_eq!(conduct.crossing[1].lost, 0);
    }

    #[test]
    fn the_other_direction_is_quiet_when_all_of_it_has_arrived_and_others_have_sent_nothing() {
        let path = Path { to_sender_ns: MS, to_receiver_ns: 1000 };
        assert_eq!(Opposite::of(true, 100 * MS, path), Opposite::Busy);
        assert_eq!(Opposite::of(false, 100 * MS, path), Opposite::Quiet);
        assert_eq!(Opposite::of(false, MS, path), Opposite::Busy);
        assert_eq!(Opposite::of(false, 4 * MS, path), Opposite::Unknown);
        let unknown = Path { to_sender_ns: 0, to_receiver_ns: 0 };
        assert_eq!(Opposite::of(true, 100 * MS, unknown), Opposite::Unknown);
    }
}
