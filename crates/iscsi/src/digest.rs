//! Digests: CRC32C over headers and over data (RFC 7143 13.1, 11.2.3, 11.2.4).

/// Which digests a connection has negotiated: four bytes behind the headers, four behind the data with its
/// padding. They never apply to login PDUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Digests {
    /// HeaderDigest is CRC32C.
    pub header: bool,
    /// DataDigest is CRC32C.
    pub data: bool,
}

/// Bytes of a digest.
pub const DIGEST_BYTES: usize = 4;

impl Digests {
    /// Bytes behind the headers.
    #[must_use]
    #[inline]
    pub fn header_bytes(self) -> usize {
        if self.header { DIGEST_BYTES } else { 0 }
    }

    /// Bytes behind a data segment; an empty one has none.
    #[must_use]
    #[inline]
    pub fn data_bytes(self, data: usize) -> usize {
        if self.data && data > 0 { DIGEST_BYTES } else { 0 }
    }
}

/// The digest of consecutive pieces, in wire format.
#[must_use]
#[inline]
pub fn digest(pieces: &[&[u8]]) -> [u8; DIGEST_BYTES] {
    pieces.iter().fold(0, |crc, piece| crc32c::crc32c_append(crc, piece)).to_le_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The examples of RFC 3720 B.4, which RFC 7143 keeps.
    #[test]
    fn the_published_examples() {
        assert_eq!(digest(&[&[0; 32]]), [0xaa, 0x36, 0x91, 0x8a]);
        assert_eq!(digest(&[&[0xff; 32]]), [0x43, 0xab, 0xa8, 0x62]);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(digest(&[&rising[..7], &rising[7..]]), [0x4e, 0x79, 0xdd, 0x46]);
    }
}
