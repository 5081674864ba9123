//! Cipher suites: which can be decrypted, and what the others are.

use ring::aead::{AES_128_GCM, AES_256_GCM, Algorithm, CHACHA20_POLY1305};
use ring::{hkdf, hmac};

/// The hash of a suite.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Hash {
    Sha256,
    Sha384,
}

impl Hash {
    /// Length of its output, bytes.
    pub(super) fn bytes(self) -> usize {
        match self {
            Hash::Sha256 => 32,
            Hash::Sha384 => 48,
        }
    }

    pub(super) fn hkdf(self) -> hkdf::Algorithm {
        match self {
            Hash::Sha256 => hkdf::HKDF_SHA256,
            Hash::Sha384 => hkdf::HKDF_SHA384,
        }
    }

    pub(super) fn hmac(self) -> hmac::Algorithm {
        match self {
            Hash::Sha256 => hmac::HMAC_SHA256,
            Hash::Sha384 => hmac::HMAC_SHA384,
        }
    }
}

/// How records are protected.
#[derive(Clone, Copy, Debug)]
pub(super) struct Suite {
    pub(super) aead: &'static Algorithm,
    pub(super) hash: Hash,
    pub(super) is_13: bool,
}

impl Suite {
    /// Bytes of the nonce that each record begins with.
    pub(super) fn explicit_bytes(&self) -> usize {
        if self.is_13 || self.aead == &CHACHA20_POLY1305 { 0 } else { 8 }
    }

    /// Bytes of a record behind its header that are none of what it holds.
    pub(super) fn overhead(&self) -> usize {
        self.explicit_bytes() + self.aead.tag_len() + usize::from(self.is_13)
    }
}

/// The suite of a number, if it can be decrypted.
pub(super) fn suite(number: u16, is_13: bool) -> Option<Suite> {
    use Hash::{Sha256, Sha384};
    let (aead, hash) = if is_13 {
        match number {
            0x1301 => (&AES_128_GCM, Sha256),
            0x1302 => (&AES_256_GCM, Sha384),
            0x1303 => (&CHACHA20_POLY1305, Sha256),
            _ => return None,
        }
    } else {
        match number {
            // RFC 5288, 5289, 5487 and 8442.
            0x009c | 0x009e | 0x00a0 | 0x00a2 | 0x00a4 | 0x00a6 | 0x00a8 | 0x00aa | 0x00ac | 0xc02b
            | 0xc02d | 0xc02f | 0xc031 | 0xd001 => (&AES_128_GCM, Sha256),
            0x009d | 0x009f | 0x00a1 | 0x00a3 | 0x00a5 | 0x00a7 | 0x00a9 | 0x00ab | 0x00ad | 0xc02c
            | 0xc02e | 0xc030 | 0xc032 | 0xd002 => (&AES_256_GCM, Sha384),
            // RFC 7905.
            0xcca8..=0xccae => (&CHACHA20_POLY1305, Sha256),
            _ => return None,
        }
    };
    Some(Suite { aead, hash, is_13 })
}

/// Bytes of the hash of a suite of TLS 1.3, also of those that cannot be decrypted.
pub(super) fn hash_bytes_13(number: u16) -> usize {
    if number == 0x1302 { 48 } else { 32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_means_one_thing_in_each_version() {
        assert!(suite(0x1301, false).is_none() && suite(0xc02f, true).is_none());
        assert!(suite(0xc013, false).is_none(), "AES-CBC");
        assert!(suite(0x1304, true).is_none(), "AES-CCM");
        let known = |number| suite(number, false).unwrap();
        assert_eq!((known(0xc030).hash, known(0xc030).overhead()), (Hash::Sha384, 24));
        assert_eq!((known(0xcca9).explicit_bytes(), known(0xcca9).overhead()), (0, 16));
        assert_eq!(suite(0x1303, true).unwrap().overhead(), 17);
    }
}
