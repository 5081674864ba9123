//! Netlink attributes: type, length, value. Pure, and lenient to what newer kernels add.

use netlink_packet_core::{NLA_F_NESTED, NlasIterator};

/// A sequence of attributes. What follows a malformed one is not visible.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    bytes: &'a [u8],
}

impl<'a> Attributes<'a> {
    /// The attributes in `bytes`.
    #[must_use]
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes }
    }

    /// The attributes as they came.
    #[must_use]
    pub fn bytes(self) -> &'a [u8] {
        self.bytes
    }

    /// Type and value of each attribute, without the flags of the type.
    pub fn iter(self) -> impl Iterator<Item = (u16, &'a [u8])> {
        let bytes = self.bytes;
        let mut at = 0;
        // The iterator checks the lengths; the values are cut here because its buffers do not outlive it.
        NlasIterator::new(bytes).map_while(Result::ok).filter_map(move |attribute| {
            let length = usize::from(attribute.length());
            let value = bytes.get(at + 4..at + length);
            at += length.next_multiple_of(4);
            Some((attribute.kind(), value?))
        })
    }

    /// The value of the first attribute of a type.
    #[must_use]
    pub fn get(self, kind: u16) -> Option<&'a [u8]> {
        self.iter().find(|(k, _)| *k == kind).map(|(_, value)| value)
    }

    /// The attributes within the first attribute of a type.
    #[must_use]
    pub fn nested(self, kind: u16) -> Option<Attributes<'a>> {
        self.get(kind).map(Attributes::new)
    }

    /// A byte.
    #[must_use]
    pub fn u8(self, kind: u16) -> Option<u8> {
        self.get(kind)?.first().copied()
    }

    /// A number of two bytes in the machine's order.
    #[must_use]
    pub fn u16(self, kind: u16) -> Option<u16> {
        self.get(kind)?.first_chunk().map(|bytes| u16::from_ne_bytes(*bytes))
    }

    /// A number of four bytes in the machine's order.
    #[must_use]
    pub fn u32(self, kind: u16) -> Option<u32> {
        self.get(kind)?.first_chunk().map(|bytes| u32::from_ne_bytes(*bytes))
    }

    /// A number of eight bytes in the machine's order.
    #[must_use]
    pub fn u64(self, kind: u16) -> Option<u64> {
        self.get(kind)?.first_chunk().map(|bytes| u64::from_ne_bytes(*bytes))
    }

    /// A text up to its terminating zero byte; what is not UTF-8 is replaced.
    #[must_use]
    pub fn text(self, kind: u16) -> Option<String> {
        let value = self.get(kind)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }
}

/// Attributes of a request.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    bytes: Vec<u8>,
}

impl Builder {
    /// No attributes.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a value as it is. Values are short: beyond 65531 bytes the length would not fit, and the kernel refuses the request.
    #[must_use]
    pub fn bytes(mut self, kind: u16, value: &[u8]) -> Self {
        let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
        self.bytes.extend(length.to_ne_bytes());
        self.bytes.extend(kind.to_ne_bytes());
        self.bytes.extend(value);
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
        self
    }

    /// Adds an attribute that means something by being there.
    #[must_use]
    pub fn flag(self, kind: u16) -> Self {
        self.bytes(kind, &[])
    }

    /// Adds a byte.
    #[must_use]
    pub fn u8(self, kind: u16, value: u8) -> Self {
        self.bytes(kind, &[value])
    }

    /// Adds a number of four bytes.
    #[must_use]
    pub fn u32(self, kind: u16, value: u32) -> Self {
        self.bytes(kind, &value.to_ne_bytes())
    }

    /// Adds a text with its terminating zero byte.
    #[must_use]
    pub fn text(self, kind: u16, value: &str) -> Self {
        let mut bytes = value.as_bytes().to_vec();
        bytes.push(0);
        self.bytes(kind, &bytes)
    }

    /// Adds attributes within an attribute.
    #[must_use]
    pub fn nested(self, kind: u16, inner: &Builder) -> Self {
        self.bytes(kind | NLA_F_NESTED, &inner.bytes)
    }

    /// The attributes as bytes.
    #[must_use]
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_built_is_read_back() {
        let inner = Builder::new().u8(1, 9).text(2, "eth0");
        let bytes = Builder::new().u32(7, 70_000).nested(3, &inner).flag(4).finish();
        let attributes = Attributes::new(&bytes);
        assert_eq!(attributes.u32(7), Some(70_000));
        assert_eq!(attributes.get(4), Some(&[][..]));
        let inner = attributes.nested(3).unwrap();
        assert_eq!((inner.u8(1), inner.text(2)), (Some(9), Some("eth0".to_owned())));
        assert_eq!(attributes.get(5), None);
    }

    #[test]
    fn a_length_beyond_the_end_ends_the_sequence() {
        let mut bytes = Builder::new().u8(1, 1).finish();
        bytes.extend([200, 0, 2, 0, 1, 2]);
        let attributes = Attributes::new(&bytes);
        assert_eq!(attributes.iter().count(), 1);
        assert_eq!(attributes.u32(1), None, "too short a value is none");
        // A length of less than the header must not repeat for ever.
        assert_eq!(Attributes::new(&[0, 0, 1, 0, 0, 0]).iter().count(), 0);
    }
}
