//! The distances between packets of one direction at a capture point.
//!
//! Behind a full link packets follow one another at its rate, whatever connections they belong to: the time from a packet to
//! the next is what the link needs for that one. No sender's pace looks so if several connections take turns.

/// Packets with less payload are not examined, bytes: they are the ends of messages, and their times are short.
const PAYLOAD_MIN: u32 = 1000;
/// Buckets of the time for each byte: so many to an octave, from a thousandth of a nanosecond.
const STEPS: u32 = 8;
const OCTAVES: u32 = 40;
/// Fewest packets at the same distance, and fewest that follow one of another connection.
const PACKETS_MIN: u64 = 200;
const TURNS_MIN: u64 = 20;
/// Share of the packets at the same distance, and of those that follow one of another connection: bursts at intervals have only their first ones.
const MOST: f64 = 0.75;

/// The packets at one distance.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Bucket {
    packets: u64,
    /// Those that follow one of another connection.
    turns: u64,
    ns: u64,
    bytes: u64,
}

impl Bucket {
    fn and(self, other: Self) -> Self {
        Self {
            packets: self.packets + other.packets,
            turns: self.turns + other.turns,
            ns: self.ns.saturating_add(other.ns),
            bytes: self.bytes.saturating_add(other.bytes),
        }
    }
}

/// The distances of one direction's packets.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spacing {
    buckets: Vec<Bucket>,
    /// When the first and the last packet passed, nanoseconds since the epoch, and the last one's connection.
    first_ns: u64,
    last_ns: u64,
    connection: u32,
    /// When the last one of another connection passed.
    other_ns: u64,
    passed: Packets,
}

/// All packets with data of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packets {
    /// Their number.
    pub packets: u64,
    /// Their data, bytes.
    pub payload_bytes: u64,
    /// Their bytes with all headers that the capture has.
    pub wire_bytes: u64,
}

/// Packets that follow one another at one rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Regular {
    /// Bits per second on the wire.
    pub bits_per_second: f64,
    /// Share of the time, from the first packet to the last, that such distances fill.
    pub share: f64,
    /// All bytes on the wire.
    pub bytes: u64,
}

impl Spacing {
    /// When the last packet passed that was of another connection than this one, nanoseconds since the epoch; 0: never.
    #[must_use]
    pub fn last_beside_ns(&self, connection: u32) -> u64 {
        if self.connection == connection { self.other_ns } else { self.last_ns }
    }

    /// All packets so far.
    #[must_use]
    pub fn passed(&self) -> Packets {
        self.passed
    }

    /// Adds a packet of a connection with data, which has so many bytes on the wire.
    #[inline]
    pub fn add(&mut self, connection: u32, payload_bytes: u32, wire_bytes: u32, at_ns: u64) {
        let before_ns = std::mem::replace(&mut self.last_ns, at_ns);
        let before = std::mem::replace(&mut self.connection, connection);
        if before != connection {
            self.other_ns = before_ns;
        }
        self.passed.packets += 1;
        self.passed.payload_bytes += u64::from(payload_bytes);
        self.passed.wire_bytes += u64::from(wire_bytes);
        if before_ns == 0 {
            self.first_ns = at_ns;
            return;
        }
        if payload_bytes < PAYLOAD_MIN || at_ns <= before_ns {
            return;
        }
        let ns = at_ns - before_ns;
        let each = (ns.saturating_mul(1000) / u64::from(wire_bytes)).max(1);
        // Eight steps of the logarithm: three bits behind the first one.
        let log = each.ilog2();
        let step = if log >= 3 { (each >> (log - 3)) & 7 } else { (each << (3 - log)) & 7 };
        let place = (log.min(OCTAVES - 1) * STEPS) as usize + step as usize;
        if self.buckets.len() <= place {
            self.buckets.resize(place + 1, Bucket::default());
        }
        let bucket = &mut self.buckets[place];
        bucket.packets += 1;
        bucket.turns += u64::from(before != connection);
        bucket.ns += ns;
        bucket.bytes += u64::from(wire_bytes);
    }

    /// The rate at which packets of several connections follow one another, if most of them do at the same one.
    #[must_use]
    pub fn regular(&self) -> Option<Regular> {
        let neighbours = self.buckets.windows(2).map(|pair| pair[0].and(pair[1]));
        let most = neighbours.max_by_key(|bucket| bucket.ns)?;
        let all = self.buckets.iter().copied().fold(Bucket::default(), Bucket::and);
        let most_of = |own: u64, all: u64| own as f64 >= MOST * all as f64;
        let is_most = most.packets >= PACKETS_MIN && most_of(most.packets, all.packets);
        let is_shared = all.turns >= TURNS_MIN && most_of(most.turns, all.turns);
        let span_ns = self.last_ns.saturating_sub(self.first_ns).max(1);
        (is_most && is_shared).then(|| Regular {
            bits_per_second: most.bytes as f64 * 8e9 / most.ns.max(1) as f64,
            share: most.ns as f64 / span_ns as f64,
            bytes: self.passed.wire_bytes,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: u32 = 1514;

    /// A number below 1 that looks random.
    fn random(seed: &mut u64) -> f64 {
        *seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*seed >> 33) as f64 / (1_u64 << 31) as f64
    }

    /// Full frames of `connections` in random order, each this long behind the one before.
    fn frames(connections: f64, mut gap_ns: impl FnMut(u64, f64) -> f64) -> Spacing {
        let (mut spacing, mut seed, mut now) = (Spacing::default(), 5, 1_000_000_000);
        for i in 0..2000 {
            now += gap_ns(i, random(&mut seed)) as u64;
            spacing.add((random(&mut seed) * connections) as u32, FRAME - 66, FRAME, now);
        }
        spacing
    }

    #[test]
    fn packets_that_follow_one_another_at_a_rate_show_it() {
        // 10 Mb/s, and what stamps are off.
        let regular = frames(8.0, |_, random| 1_211_200.0 + 40e3 * random).regular().unwrap();
        assert!((regular.bits_per_second / 1e7 - 1.0).abs() < 0.03 && regular.share > 0.95, "{regular:?}");
        // The same, and a pause of as much again behind each hundred packets.
        let half = frames(8.0, |i, _| if i % 100 == 0 { 121e6 } else { 1_211_200.0 }).regular().unwrap();
        assert!((half.share - 0.5).abs() < 0.02, "{half:?}");
    }

    #[test]
    fn one_sender_s_pace_chance_and_bursts_show_none() {
        assert_eq!(frames(1.0, |_, _| 1_211_200.0).regular(), None);
        assert_eq!(frames(8.0, |_, random| -1_211_200.0 * (1.0 - random).ln()).regular(), None);
        assert_eq!(frames(8.0, |i, _| if i % 8 == 0 { 11e6 } else { 1e3 }).regular(), None);
        assert_eq!(frames(8.0, |i, _| if i % 2 == 0 { 11e6 } else { 1e3 }).regular(), None);
    }
}
