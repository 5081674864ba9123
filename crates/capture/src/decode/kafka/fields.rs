//! Fields of Kafka's messages: numbers, strings, arrays and tagged fields, of which the latter three have a compact form (KIP-482).

/// What is left of a message, as far as it is there.
#[derive(Clone, Copy, Debug)]
pub(super) struct Fields<'a> {
    rest: &'a [u8],
    is_compact: bool,
}

impl<'a> Fields<'a> {
    pub(super) fn new(bytes: &'a [u8], is_compact: bool) -> Self {
        Self { rest: bytes, is_compact }
    }

    /// The same fields, in this form.
    pub(super) fn compact(self, is_compact: bool) -> Self {
        Self { is_compact, ..self }
    }

    pub(super) fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    pub(super) fn i16(&mut self) -> Option<i16> {
        self.take(2)?.first_chunk().map(|bytes| i16::from_be_bytes(*bytes))
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.take(4)?.first_chunk().map(|bytes| u32::from_be_bytes(*bytes))
    }

    pub(super) fn i32(&mut self) -> Option<i32> {
        self.u32().map(u32::cast_signed)
    }

    fn varint(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        for place in 0..5 {
            let byte = *self.take(1)?.first()?;
            value |= u32::from(byte & 0x7f) << (7 * place);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// A count of elements or bytes, or nothing.
    fn count(&mut self, is_short: bool) -> Option<Option<usize>> {
        let count = match (self.is_compact, is_short) {
            (true, _) => i64::from(self.varint()?) - 1,
            (false, true) => self.i16()?.into(),
            (false, false) => self.i32()?.into(),
        };
        Some(usize::try_from(count).ok())
    }

    /// A string, or nothing.
    pub(super) fn string(&mut self) -> Option<Option<&'a [u8]>> {
        match self.count(true)? {
            Some(length) => Some(Some(self.take(length)?)),
            None => Some(None),
        }
    }

    /// The length of bytes, which follow.
    pub(super) fn bytes(&mut self) -> Option<usize> {
        self.count(false).map(Option::unwrap_or_default)
    }

    /// How many elements follow.
    pub(super) fn array(&mut self) -> Option<usize> {
        self.count(false).map(Option::unwrap_or_default)
    }

    /// Skips tagged fields, which only compact messages have.
    pub(super) fn tags(&mut self) -> Option<()> {
        if !self.is_compact {
            return Some(());
        }
        for _ in 0..self.varint()? {
            self.varint()?;
            let length = self.varint()?;
            self.take(usize::try_from(length).ok()?)?;
        }
        Some(())
    }
}
