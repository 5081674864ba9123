//! Bitsets in ethtool messages: compact in answers, lists of names in requests.

use crate::attributes::{Attributes, Builder};

const NOMASK: u16 = 1;
const SIZE: u16 = 2;
const BITS: u16 = 3;
const VALUE: u16 = 4;
const MASK: u16 = 5;
const BIT: u16 = 1;
const BIT_NAME: u16 = 2;
const BIT_VALUE: u16 = 3;

/// A bitset with the names of its bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Bitset {
    /// The bits that are set.
    pub(super) value: Vec<String>,
    /// The bits that can be set or that the value covers.
    pub(super) mask: Vec<String>,
}

impl Bitset {
    /// Reads a compact bitset. A bit without a name gets its number.
    pub(super) fn parse(attributes: Attributes<'_>, names: &[String]) -> Self {
        let bits = |kind| attributes.get(kind).map(|words| named(words, names)).unwrap_or_default();
        Self { value: bits(VALUE), mask: bits(MASK) }
    }
}

fn named(words: &[u8], names: &[String]) -> Vec<String> {
    let words = words.chunks_exact(4).filter_map(|word| word.first_chunk().map(|w| u32::from_ne_bytes(*w)));
    let bits = words.enumerate().flat_map(|(at, word)| {
        (0..32).filter(move |bit| word & (1 << bit) != 0).map(move |bit| at * 32 + bit)
    });
    bits.map(|bit| names.get(bit).filter(|n| !n.is_empty()).cloned().unwrap_or_else(|| format!("bit{bit}")))
        .collect()
}

/// A bit of a request and what it is to be.
pub(super) struct Wanted<'a> {
    pub(super) name: &'a str,
    pub(super) is_set: bool,
}

/// A bitset that changes the named bits alone.
pub(super) fn changing(bits: &[Wanted<'_>]) -> Builder {
    let list = bits.iter().fold(Builder::new(), |list, bit| {
        let entry = Builder::new().text(BIT_NAME, bit.name);
        list.nested(BIT, &if bit.is_set { entry.flag(BIT_VALUE) } else { entry })
    });
    Builder::new().nested(BITS, &list)
}

/// A bitset of the lowest `size` bits, all set.
pub(super) fn all(size: u32) -> Builder {
    let value = 1u32.checked_shl(size).map_or(u32::MAX, |bit| bit - 1);
    Builder::new().flag(NOMASK).u32(SIZE, size).bytes(VALUE, &value.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_get_their_names_or_numbers() {
        let names = ["a".to_owned(), String::new(), "c".to_owned()];
        let bytes = Builder::new().u32(SIZE, 40).bytes(VALUE, &[0b110, 0, 0, 0, 1, 0, 0, 0]).finish();
        let set = Bitset::parse(Attributes::new(&bytes), &names);
        assert_eq!(set.value, ["bit1", "c", "bit32"]);
        assert_eq!(set.mask, Vec::<String>::new());
    }
}
