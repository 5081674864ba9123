//! Documents of MongoDB (BSON), of which the end may be missing.

/// Kinds of values.
const DOUBLE: u8 = 0x01;
const STRING: u8 = 0x02;
const DOCUMENT: u8 = 0x03;
const ARRAY: u8 = 0x04;
const BOOLEAN: u8 = 0x08;
const INT: u8 = 0x10;
const LONG: u8 = 0x12;

/// A document's element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Element<'a> {
    kind: u8,
    pub(super) name: &'a [u8],
    value: &'a [u8],
}

/// The elements of a document, up to the first that is not all there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Elements<'a> {
    rest: &'a [u8],
}

pub(super) fn i32_at(bytes: &[u8], at: usize) -> Option<i32> {
    bytes.get(at..)?.first_chunk().map(|bytes| i32::from_le_bytes(*bytes))
}

/// A string that ends with a zero, and what follows.
pub(super) fn cstring(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = bytes.iter().position(|&b| b == 0)?;
    Some((bytes.get(..end)?, bytes.get(end + 1..)?))
}

/// Bytes of a value, which begins here.
fn size(kind: u8, bytes: &[u8]) -> Option<usize> {
    let length = || usize::try_from(i32_at(bytes, 0)?).ok();
    match kind {
        DOUBLE | 0x09 | 0x11 | LONG => Some(8),
        STRING | 0x0d | 0x0e => length()?.checked_add(4),
        DOCUMENT | ARRAY | 0x0f => length(),
        0x05 => length()?.checked_add(5),
        0x07 => Some(12),
        BOOLEAN => Some(1),
        // Nothing, null, the least and the greatest key.
        0x06 | 0x0a | 0x7f | 0xff => Some(0),
        0x0b => {
            let (_, rest) = cstring(bytes)?;
            Some(bytes.len() - cstring(rest)?.1.len())
        }
        0x0c => length()?.checked_add(4 + 12),
        INT => Some(4),
        0x13 => Some(16),
        _ => None,
    }
}

/// The elements of the document that begins here. None if it is none.
pub(super) fn elements(bytes: &[u8]) -> Option<Elements<'_>> {
    let length = usize::try_from(i32_at(bytes, 0)?).ok().filter(|&length| length >= 5)?;
    Some(Elements { rest: bytes.get(4..length.min(bytes.len()))? })
}

impl<'a> Iterator for Elements<'a> {
    type Item = Element<'a>;

    fn next(&mut self) -> Option<Element<'a>> {
        let (&kind, rest) = self.rest.split_first()?;
        let (name, rest) = cstring(rest)?;
        let (value, rest) = rest.split_at_checked(size(kind, rest)?)?;
        self.rest = rest;
        Some(Element { kind, name, value })
    }
}

impl<'a> Elements<'a> {
    /// The first element with this name.
    pub(super) fn find(mut self, name: &str) -> Option<Element<'a>> {
        Iterator::find(&mut self, |element| element.name == name.as_bytes())
    }
}

impl<'a> Element<'a> {
    pub(super) fn text(&self) -> Option<&'a [u8]> {
        let text = self.value.get(4..).filter(|_| self.kind == STRING)?;
        text.strip_suffix(&[0])
    }

    pub(super) fn document(&self) -> Option<Elements<'a>> {
        elements(self.value).filter(|_| matches!(self.kind, DOCUMENT | ARRAY))
    }

    /// A number of any kind, without what is behind its point.
    pub(super) fn number(&self) -> Option<i64> {
        match (self.kind, self.value) {
            (DOUBLE, value) => value.first_chunk().map(|bytes| f64::from_le_bytes(*bytes) as i64),
            (INT, value) => i32_at(value, 0).map(i64::from),
            (LONG, value) => value.first_chunk().map(|bytes| i64::from_le_bytes(*bytes)),
            (BOOLEAN, &[value]) => Some(i64::from(value)),
            _ => None,
        }
    }
}

/// Whether a document begins so: with a length that fits, and an element whose name is a word.
pub(super) fn is_document(bytes: &[u8], room: u64) -> bool {
    let Some(length) = i32_at(bytes, 0).and_then(|length| u64::try_from(length).ok()) else { return false };
    let rest = bytes.get(4..).unwrap_or_default();
    let Some((&kind, rest)) = rest.split_first() else { return false };
    let is_kind = matches!(kind, 1..=0x13 | 0x7f | 0xff);
    let is_name = |name: &[u8]| !name.is_empty() && name.iter().all(u8::is_ascii_graphic);
    is_kind && (6..=room).contains(&length) && cstring(rest).is_some_and(|(name, _)| is_name(name))
}
