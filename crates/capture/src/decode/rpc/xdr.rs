//! Reads XDR (RFC 4506): numbers of four bytes, and bytes that are filled up to four.

/// Bytes that are still to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Xdr<'a>(&'a [u8]);

impl<'a> Xdr<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// How many are left.
    pub(super) fn left(&self) -> usize {
        self.0.len()
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        let (number, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(u32::from_be_bytes(*number))
    }

    /// Bytes with their length before them, at most so many.
    pub(super) fn opaque(&mut self, most: u32) -> Option<&'a [u8]> {
        let length = self.u32().filter(|&length| length <= most)? as usize;
        let bytes = self.0.get(..length)?;
        self.0 = self.0.get(length.checked_next_multiple_of(4)?..)?;
        Some(bytes)
    }

    pub(super) fn skip(&mut self, count: usize) -> Option<()> {
        self.0 = self.0.get(count..)?;
        Some(())
    }

    /// The same without its first bytes.
    pub(super) fn skipped(mut self, count: usize) -> Option<Self> {
        self.skip(count)?;
        Some(self)
    }
}
