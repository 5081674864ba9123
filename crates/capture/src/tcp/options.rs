//! The options of segments: those of a SYN (RFC 9293 3.2), time stamps (RFC 7323) and selective acknowledgements (RFC 2018,
//! RFC 2883).

/// What a side offers in its SYN.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Offer {
    /// Largest segment it accepts, bytes.
    mss: Option<u16>,
    /// How its windows are scaled: by two to this power.
    pub(super) scale: Option<u8>,
    /// Whether it sends time stamps.
    timestamps: bool,
}

/// Bytes that a time stamp takes of every segment (RFC 7323 appendix A).
const TIMESTAMP_BYTES: u16 = 12;

impl Offer {
    /// Reads the options of a SYN.
    pub(super) fn read(mut options: &[u8]) -> Self {
        let mut offer = Self::default();
        while let Some((&kind, rest)) = options.split_first() {
            match (kind, rest) {
                (0, _) => break,
                (1, _) => {
                    options = rest;
                    continue;
                }
                (2, [4, high, low, ..]) => offer.mss = Some(u16::from_be_bytes([*high, *low])),
                (3, [3, scale, ..]) => offer.scale = Some((*scale).min(14)),
                (8, [10, ..]) => offer.timestamps = true,
                _ => {}
            }
            let Some(&length) = rest.first() else { break };
            options = options.get(usize::from(length).max(2)..).unwrap_or_default();
        }
        offer
    }

    /// Payload of the largest segment that may be sent to the side that offers this, bytes; `both` sides'
    /// offers decide whether time stamps take some of it.
    pub(super) fn full_segment(self, both: Option<(Offer, Offer)>) -> Option<u32> {
        let stamps = both.is_none_or(|(a, b)| a.timestamps && b.timestamps) && self.timestamps;
        self.mss.map(|mss| u32::from(mss.saturating_sub(if stamps { TIMESTAMP_BYTES } else { 0 })))
    }
}

/// The time stamps of a segment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stamps {
    /// Its sender's clock, ticks.
    pub(super) value: u32,
    /// The newest value that its sender has received.
    pub(super) echo: u32,
}

impl Stamps {
    /// Reads the time stamps of a segment that is no SYN.
    #[inline]
    pub(super) fn read(options: &[u8]) -> Option<Self> {
        // As nearly all stacks write them (RFC 7323 appendix A).
        if let [1, 1, 8, 10, rest @ ..] = options {
            return Self::of(rest);
        }
        find(options, 8).and_then(Self::of)
    }

    #[inline]
    fn of(rest: &[u8]) -> Option<Self> {
        let (value, rest) = rest.split_first_chunk()?;
        let echo = rest.first_chunk()?;
        Some(Self { value: u32::from_be_bytes(*value), echo: u32::from_be_bytes(*echo) })
    }
}

/// What a selective acknowledgement says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sack {
    /// Data has arrived behind a gap.
    Gap,
    /// Data has arrived twice (RFC 2883).
    Duplicate,
}

impl Sack {
    /// Reads the selective acknowledgement of a segment that acknowledges everything before `ack`.
    #[inline]
    pub(super) fn read(options: &[u8], ack: u32) -> Option<Self> {
        // Time stamps and the smallest selective acknowledgement take more.
        if options.len() <= 12 && matches!(options, [] | [1, 1, 8, 10, ..]) {
            return None;
        }
        let blocks = find(options, 5)?;
        let block = |at: usize| {
            let (from, to) = blocks.get(at * 8..at * 8 + 8)?.split_first_chunk::<4>()?;
            Some((u32::from_be_bytes(*from), u32::from_be_bytes(*to.first_chunk()?)))
        };
        let (from, to) = block(0)?;
        let before = |a: u32, b: u32| a.wrapping_sub(b).cast_signed() < 0;
        let is_old = before(from, ack) && !before(ack, to);
        let is_within = block(1).is_some_and(|(outer, end)| !before(from, outer) && !before(end, to));
        Some(if is_old || is_within { Self::Duplicate } else { Self::Gap })
    }
}

/// The content of the first option of a kind.
fn find(mut options: &[u8], wanted: u8) -> Option<&[u8]> {
    while let Some((&kind, rest)) = options.split_first() {
        match kind {
            0 => return None,
            1 => options = rest,
            _ => {
                let length = usize::from(*rest.first()?).max(2);
                if kind == wanted {
                    return options.get(2..length);
                }
                options = options.get(length..)?;
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sack(blocks: &[(u32, u32)]) -> Vec<u8> {
        let mut options = vec![1, 1, 8, 10, 0, 0, 0, 7, 0, 0, 0, 9, 1, 1, 5, (2 + blocks.len() * 8) as u8];
        for (from, to) in blocks {
            options.extend(from.to_be_bytes());
            options.extend(to.to_be_bytes());
        }
        options
    }

    #[test]
    fn duplicate_selective_acknowledgements_are_told_from_gaps() {
        let gap = sack(&[(2000, 3000)]);
        assert_eq!(Sack::read(&gap, 1000), Some(Sack::Gap));
        assert_eq!(Stamps::read(&gap), Some(Stamps { value: 7, echo: 9 }));
        // Below the acknowledgement, and within a second block; across the end of the number space.
        assert_eq!(Sack::read(&sack(&[(500, 1000)]), 1000), Some(Sack::Duplicate));
        assert_eq!(Sack::read(&sack(&[(2000, 2500), (1500, 3000)]), 1000), Some(Sack::Duplicate));
        assert_eq!(Sack::read(&sack(&[(2000, 2500), (3500, 4000)]), 1000), Some(Sack::Gap));
        assert_eq!(Sack::read(&sack(&[(u32::MAX - 9, 5)]), 5), Some(Sack::Duplicate));
        assert_eq!(Sack::read(&sack(&[(10, 20)]), u32::MAX), Some(Sack::Gap));
        for options in [&[][..], &gap[..12], &[5], &[5, 0], &[8, 10, 1]] {
            assert_eq!(Sack::read(options, 0), None);
        }
        for cut in 0..gap.len() {
            let _ = (Sack::read(&gap[..cut], 1000), Stamps::read(&gap[..cut]));
        }
        // In another order, and cut off.
        assert_eq!(Stamps::read(&[8, 10, 0, 0, 0, 1, 0, 0, 0, 2]), Some(Stamps { value: 1, echo: 2 }));
        assert_eq!(Stamps::read(&[1, 1, 8, 10, 0, 0, 0, 1, 0, 0]), None);
    }

    #[test]
    fn the_options_of_a_linux_syn_are_read() {
        let syn = [2, 4, 0x05, 0xb4, 4, 2, 8, 10, 0, 0, 0, 1, 0, 0, 0, 0, 1, 3, 3, 7];
        let offer = Offer::read(&syn);
        assert_eq!(offer, Offer { mss: Some(1460), scale: Some(7), timestamps: true });
        assert_eq!(offer.full_segment(Some((offer, offer))), Some(1448));
        assert_eq!(offer.full_segment(Some((offer, Offer::default()))), Some(1460));
        for cut in 0..syn.len() {
            let _ = Offer::read(&syn[..cut]);
        }
        assert_eq!(Offer::read(&[9, 0, 0, 0]), Offer::default());
    }
}
