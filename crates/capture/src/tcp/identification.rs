//! The identification of a sender's IPv4 packets: it shows which packets passed before a capture point and which were lost.
//!
//! Linux counts the packets of each connection, those that are sent again included (`inet_id`). Senders that send zeros, or
//! one counter for all connections, are recognised by steps that are no counting.

/// Where a packet stands among those of its sender.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It follows the one before.
    Next,
    /// Packets between the one before and this one did not pass.
    Skipped,
    /// It was sent before one that has passed: it was overtaken.
    Overtaken,
    /// The sender does not count.
    Unknown,
}

/// The packets of one sender on one connection.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Identification {
    next: Option<u16>,
    /// Packets in all, and those that followed the one before.
    all: u32,
    exact: u32,
    /// Packets that were missing before the last one.
    missing: u16,
}

/// Packets from which on the share of exact steps is meaningful.
const PACKETS_MIN: u32 = 16;

impl Identification {
    /// Whether the sender counts its packets.
    pub(super) fn counts(&self) -> bool {
        // Three quarters: a path that loses more carries no conversation.
        self.all >= PACKETS_MIN && u64::from(self.exact) * 4 >= u64::from(self.all) * 3
    }

    /// Packets that were missing before the last one.
    pub(super) fn missing(&self) -> u16 {
        self.missing
    }

    /// A frame passed that stands for this many packets (segmentation offload).
    #[inline]
    pub(super) fn passed(&mut self, identification: u16, packets: u16) -> Order {
        let after = identification.wrapping_add(packets);
        self.missing = 0;
        // The common case first: nobody asks whether the sender counts when nothing is missing.
        if self.next == Some(identification) {
            self.next = Some(after);
            (self.all, self.exact) = (self.all.saturating_add(1), self.exact.saturating_add(1));
            return Order::Next;
        }
        let Some(next) = self.next.replace(after) else { return Order::Unknown };
        let step = identification.wrapping_sub(next).cast_signed();
        self.all = self.all.saturating_add(1);
        if step < 0 {
            self.next = Some(next);
        }
        self.missing = u16::try_from(step).unwrap_or(0);
        match step {
            _ if !self.counts() => Order::Unknown,
            0.. => Order::Skipped,
            _ => Order::Overtaken,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_senders_that_count_show_lost_packets() {
        let mut counting = Identification::default();
        for number in 0..20 {
            let order = counting.passed(65_530_u16.wrapping_add(number), 1);
            assert_eq!(order, if number == 0 { Order::Unknown } else { Order::Next }, "{number}");
        }
        let last = 65_530_u16.wrapping_add(19);
        assert_eq!(counting.passed(last.wrapping_add(3), 4), Order::Skipped);
        assert_eq!(counting.passed(last.wrapping_add(2), 1), Order::Overtaken);
        assert_eq!(counting.passed(last.wrapping_add(7), 1), Order::Next, "four packets in one frame");
        let (mut zeros, mut shared) = (Identification::default(), Identification::default());
        for number in 0..200 {
            assert_eq!(zeros.passed(0, 1), Order::Unknown);
            assert_eq!(shared.passed(number * 7, 1), Order::Unknown);
        }
    }
}
