//! Reads the part of BER (X.690) that LDAP uses (RFC 4511 5.1): definite lengths, tags of one byte.

/// Tags.
pub(super) const BOOLEAN: u8 = 0x01;
pub(super) const INTEGER: u8 = 0x02;
pub(super) const STRING: u8 = 0x04;
pub(super) const ENUMERATED: u8 = 0x0a;
pub(super) const SEQUENCE: u8 = 0x30;

/// Values that are still to be read. The last one may be cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ber<'a>(pub(super) &'a [u8]);

/// The tag of the value at hand, the length of its header, and that of its content.
pub(super) fn header(bytes: &[u8]) -> Option<(u8, usize, usize)> {
    let (&tag, rest) = bytes.split_first()?;
    let (&first, rest) = rest.split_first()?;
    match first {
        0..=0x7f => Some((tag, 2, first.into())),
        0x81..=0x84 => {
            let count = usize::from(first & 0x7f);
            let digits = rest.get(..count)?;
            let length = digits.iter().fold(0_u32, |length, &digit| length << 8 | u32::from(digit));
            Some((tag, 2 + count, usize::try_from(length).ok()?))
        }
        _ => None,
    }
}

/// A number that is not negative.
pub(super) fn number(digits: &[u8]) -> Option<u32> {
    let is_plausible = (1..=4).contains(&digits.len()) && digits.first().is_some_and(|&first| first < 0x80);
    is_plausible.then(|| digits.iter().fold(0, |number, &digit| number << 8 | u32::from(digit)))
}

impl<'a> Ber<'a> {
    /// The next value: its tag, and what is there of its content.
    pub(super) fn next(&mut self) -> Option<(u8, Ber<'a>)> {
        let (tag, header, length) = header(self.0)?;
        let content = self.0.get(header..)?;
        let (content, rest) = content.split_at(length.min(content.len()));
        self.0 = rest;
        Some((tag, Ber(content)))
    }

    /// The content of the next value, if it has this tag.
    pub(super) fn open(&mut self, tag: u8) -> Option<Ber<'a>> {
        self.next().filter(|(own, _)| *own == tag).map(|(_, content)| content)
    }

    pub(super) fn number(&mut self, tag: u8) -> Option<u32> {
        number(self.open(tag)?.0)
    }

    pub(super) fn text(&mut self) -> Option<&'a [u8]> {
        self.open(STRING).map(|content| content.0)
    }
}
