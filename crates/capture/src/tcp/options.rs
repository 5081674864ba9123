//! The options of a SYN (RFC 9293 3.2, RFC 7323).

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

#[cfg(test)]
mod tests {
    use super::*;

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
