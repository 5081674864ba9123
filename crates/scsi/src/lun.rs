//! Logical unit numbers in their eight bytes (SAM-5 4.7).

/// A logical unit number of a single-level hierarchy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(pub u16);

impl Lun {
    /// The largest number that the flat format holds.
    pub const MAX: u16 = 0x3fff;

    /// Reads the field: peripheral device addressing on bus 0, or flat space addressing, one level. Other
    /// forms address nothing here.
    #[must_use]
    #[inline]
    pub fn decode(field: [u8; 8]) -> Option<Self> {
        let [high, low, rest @ ..] = field;
        if rest != [0; 6] {
            return None;
        }
        match high >> 6 {
            0 if high == 0 => Some(Lun(low.into())),
            1 => Some(Lun(u16::from_be_bytes([high & 0x3f, low]))),
            _ => None,
        }
    }

    /// Writes the field: peripheral below 256, flat from there on.
    #[must_use]
    pub fn encode(self) -> [u8; 8] {
        let [high, low] = self.0.to_be_bytes();
        if high == 0 { [0, low, 0, 0, 0, 0, 0, 0] } else { [0x40 | (high & 0x3f), low, 0, 0, 0, 0, 0, 0] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_lun_round_trips_and_other_formats_are_rejected() {
        for n in 0..=Lun::MAX {
            assert_eq!(Lun::decode(Lun(n).encode()), Some(Lun(n)));
        }
        assert_eq!(Lun::decode([0x40, 7, 0, 0, 0, 0, 0, 0]), Some(Lun(7)), "flat form of a small number");
        for field in [
            [0, 1, 0, 1, 0, 0, 0, 0],
            [1, 0, 0, 0, 0, 0, 0, 0],
            [0x80, 0, 0, 0, 0, 0, 0, 0],
            [0xc1, 1, 0, 0, 0, 0, 0, 0],
        ] {
            assert_eq!(Lun::decode(field), None);
        }
    }
}
