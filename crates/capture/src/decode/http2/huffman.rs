//! The Huffman code of header fields (RFC 7541 5.2 and appendix B).

use std::ops::RangeInclusive;
use std::sync::LazyLock;

/// Length of each symbol's code, the end of the string last. The code is canonical: codes of one length are in the order of their
/// symbols, so that the lengths tell all.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5, 6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// Longest code.
const LENGTH_MAX: usize = 30;
/// The end of the string, which no string may hold.
const END: u16 = 256;

/// The codes of one length: the first, how many, and the place of their symbols.
#[derive(Clone, Copy, Debug, Default)]
struct OfLength {
    first: u32,
    count: u32,
    at: usize,
}

/// Bits that show most symbols of text at once.
const SHORT: usize = 8;

struct Code {
    lengths: [OfLength; LENGTH_MAX + 1],
    /// Symbols in the order of their codes.
    symbols: Vec<u16>,
    /// The symbol, and the length of its code, that so many bits begin with; a length of 0: a longer code.
    short: [(u8, u8); 1 << SHORT],
}

static CODE: LazyLock<Code> = LazyLock::new(|| {
    let mut symbols: Vec<u16> = (0..=END).collect();
    symbols.sort_by_key(|&symbol| (LENGTHS[usize::from(symbol)], symbol));
    let mut lengths = [OfLength::default(); LENGTH_MAX + 1];
    let (mut code, mut at) = (0_u32, 0);
    for (length, of) in lengths.iter_mut().enumerate() {
        code <<= 1;
        let count = LENGTHS.iter().filter(|&&own| usize::from(own) == length).count();
        *of = OfLength { first: code, count: count as u32, at };
        code += count as u32;
        at += count;
    }
    let mut all = Code { lengths, symbols, short: [(0, 0); 1 << SHORT] };
    for start in 0..1_u32 << SHORT {
        let found = all.symbol(start << (u32::BITS as usize - SHORT), 1..=SHORT);
        if let Some((symbol, length)) = found {
            all.short[start as usize] = (symbol as u8, length as u8);
        }
    }
    all
});

impl Code {
    /// The symbol that these bits begin with, the first one in the highest place, and the length of its code, if that is one of these.
    fn symbol(&self, bits: u32, mut lengths: RangeInclusive<usize>) -> Option<(u16, usize)> {
        lengths.find_map(|length| {
            let of = self.lengths.get(length)?;
            let place = (bits >> (u32::BITS as usize - length)).checked_sub(of.first)?;
            let symbol = self.symbols.get(of.at + place as usize).filter(|_| place < of.count)?;
            Some((*symbol, length))
        })
    }
}

/// The string of these bytes; none if they are no string.
pub(super) fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    let code = &*CODE;
    let mut text = Vec::with_capacity(bytes.len().saturating_mul(8) / 5);
    let mut rest = bytes.iter();
    let (mut held, mut count) = (0_u64, 0_usize);
    loop {
        while count < LENGTH_MAX
            && let Some(&byte) = rest.next()
        {
            (held, count) = (held << 8 | u64::from(byte), count + 8);
        }
        // 32 bits, behind the end ones: that is what the last byte is filled with.
        let bits = match u64::from(u32::BITS).checked_sub(count as u64) {
            Some(missing) => (held << missing | ((1 << missing) - 1)) as u32,
            None => (held >> (count - u32::BITS as usize)) as u32,
        };
        if count < 8 && bits == u32::MAX {
            return Some(text);
        }
        let (symbol, length) = match code.short[(bits >> (u32::BITS as usize - SHORT)) as usize] {
            (_, 0) => code.symbol(bits, SHORT + 1..=LENGTH_MAX)?,
            (symbol, length) => (symbol.into(), length.into()),
        };
        count = count.checked_sub(length)?;
        held &= (1 << count) - 1;
        text.push(u8::try_from(symbol).ok()?);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> Vec<u8> {
        (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap_or(0)).collect()
    }

    #[test]
    fn examples_of_the_specification() {
        // RFC 7541 C.4 and C.6.
        for (bytes, text) in [
            ("f1e3c2e5f23a6ba0ab90f4ff", "www.example.com"),
            ("a8eb10649cbf", "no-cache"),
            ("6402", "302"),
            ("640eff", "307"),
            ("aec3771a4b", "private"),
            ("d07abe941054d444a8200595040b8166e082a62d1bff", "Mon, 21 Oct 2013 20:13:21 GMT"),
            (
                "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
                "foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            ),
        ] {
            assert_eq!(decode(&hex(bytes)).as_deref(), Some(text.as_bytes()), "{text}");
        }
    }

    /// Bit by bit, as the specification tells it.
    fn decoded_slowly(bytes: &[u8]) -> Option<Vec<u8>> {
        let (mut text, mut code, mut length) = (Vec::new(), 0_u32, 0_usize);
        for bit in bytes.iter().flat_map(|&byte| (0..8).rev().map(move |place| byte >> place & 1)) {
            (code, length) = (code << 1 | u32::from(bit), length + 1);
            let of = CODE.lengths.get(length)?;
            if let Some(place) = code.checked_sub(of.first).filter(|&place| place < of.count) {
                text.push(u8::try_from(*CODE.symbols.get(of.at + place as usize)?).ok()?);
                (code, length) = (0, 0);
            }
        }
        (length < 8 && code == (1 << length) - 1).then_some(text)
    }

    #[test]
    fn any_bytes_are_read_as_bit_by_bit() {
        let mut random = 1_u64;
        let mut next = || {
            random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            (random >> 33) as u8
        };
        let (mut strings, mut longest) = (0, 0);
        for round in 0..200_000_u32 {
            // Ones make long codes.
            let ones = (round % 4) as u8;
            let bytes: Vec<u8> =
                (0..next() % 12).map(|_| if next() % 4 < ones { 0xff } else { next() | next() }).collect();
            let read = decode(&bytes);
            assert_eq!(read, decoded_slowly(&bytes), "{bytes:02x?}");
            let symbols = read.iter().flatten();
            longest = longest.max(symbols.map(|&symbol| LENGTHS[usize::from(symbol)]).max().unwrap_or(0));
            strings += usize::from(read.is_some_and(|text| !text.is_empty()));
        }
        assert!(strings > 1000 && longest >= 28, "{strings} strings, codes of {longest} bits");
    }

    #[test]
    fn what_is_no_string() {
        for bytes in ["ffffffff", "f1e3c2e5f23a6ba0ab90f400", "ff", "f1e3c2e5f23a6ba0ab90f4ffff"] {
            assert_eq!(decode(&hex(bytes)), None, "{bytes}");
        }
        assert_eq!(decode(&[]), Some(Vec::new()));
    }
}
