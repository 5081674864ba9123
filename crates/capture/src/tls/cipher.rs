//! The protection of one side's records between two changes of its keys (RFC 8446 5.2, 7.3; RFC 5246 6.3; RFC 5288; RFC 7905).

use std::fmt;

use record::Side;
use ring::aead::{Aad, LessSafeKey, Nonce, UnboundKey};
use ring::{hkdf, hmac};

use super::keys::Secret;
use super::suite::Suite;

/// Bytes of a nonce.
const NONCE: usize = 12;
/// Longest key of a suite, and with the parts of the nonces the longest block of keys of TLS 1.2.
const KEY_MAX: usize = 32;
const BLOCK_MAX: usize = 2 * (KEY_MAX + NONCE);

/// A key, its nonces, and the secret that they come from.
pub(super) struct Epoch {
    key: LessSafeKey,
    iv: [u8; NONCE],
    pub(super) suite: Suite,
    /// TLS 1.3: the next keys follow from it.
    secret: Option<Secret>,
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Epoch").field("suite", &self.suite).finish_non_exhaustive()
    }
}

/// Length of what is derived, bytes.
struct Bytes(usize);

impl hkdf::KeyType for Bytes {
    fn len(&self) -> usize {
        self.0
    }
}

/// HKDF-Expand-Label without a context (RFC 8446 7.1).
fn expand(suite: Suite, secret: &Secret, label: &str, out: &mut [u8]) -> Option<()> {
    let prk = hkdf::Prk::new_less_safe(suite.hash.hkdf(), secret.bytes());
    let length = u16::try_from(out.len()).ok()?.to_be_bytes();
    let label_bytes = [u8::try_from("tls13 ".len() + label.len()).ok()?];
    let info = [&length[..], &label_bytes, b"tls13 ", label.as_bytes(), &[0]];
    prk.expand(&info, Bytes(out.len())).ok()?.fill(out).ok()
}

/// The pseudorandom function of TLS 1.2 (RFC 5246 5).
fn prf(suite: Suite, secret: &Secret, seeds: [&[u8]; 3], out: &mut [u8]) {
    let key = hmac::Key::new(suite.hash.hmac(), secret.bytes());
    let sign = |first: &[u8]| {
        let mut context = hmac::Context::with_key(&key);
        context.update(first);
        seeds.iter().for_each(|seed| context.update(seed));
        context.sign()
    };
    let mut a = sign(&[]);
    for part in out.chunks_mut(suite.hash.bytes()) {
        let block = sign(a.as_ref());
        part.copy_from_slice(block.as_ref().get(..part.len()).unwrap_or_default());
        a = hmac::sign(&key, a.as_ref());
    }
}

impl Epoch {
    fn new(suite: Suite, key: &[u8], iv: [u8; NONCE], secret: Option<Secret>) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(suite.aead, key).ok()?);
        Some(Self { key, iv, suite, secret })
    }

    /// The keys of a traffic secret of TLS 1.3. None for a secret of another hash.
    pub(super) fn tls13(suite: Suite, secret: &Secret) -> Option<Self> {
        if secret.bytes().len() != suite.hash.bytes() {
            return None;
        }
        let (mut key, mut iv) = ([0; KEY_MAX], [0; NONCE]);
        let key = key.get_mut(..suite.aead.key_len())?;
        expand(suite, secret, "key", key)?;
        expand(suite, secret, "iv", &mut iv)?;
        Self::new(suite, key, iv, Some(secret.clone()))
    }

    /// The keys that follow these (RFC 8446 7.2).
    pub(super) fn updated(&self) -> Option<Self> {
        let mut next = [0; Secret::BYTES_MAX];
        let next = next.get_mut(..self.suite.hash.bytes())?;
        expand(self.suite, self.secret.as_ref()?, "traffic upd", next)?;
        Self::tls13(self.suite, &Secret::new(next)?)
    }

    /// The keys of TLS 1.2 with which a side protects its records, from the master secret.
    pub(super) fn tls12(
        suite: Suite,
        master: &Secret,
        [client, server]: [&[u8; 32]; 2],
        side: Side,
    ) -> Option<Self> {
        let mut block = [0; BLOCK_MAX];
        let fixed = NONCE - suite.explicit_bytes();
        let key_bytes = suite.aead.key_len();
        prf(suite, master, [b"key expansion", server, client], &mut block);
        let place = usize::from(side == Side::Server);
        let key = block.get(place * key_bytes..)?.get(..key_bytes)?;
        let own = block.get(2 * key_bytes + place * fixed..)?.get(..fixed)?;
        let mut iv = [0; NONCE];
        iv.get_mut(..fixed)?.copy_from_slice(own);
        Self::new(suite, key, iv, None)
    }

    /// Decrypts the record with this number into `plain`: its content type and its content. False, and `plain` is of no use, if it
    /// is not this record.
    pub(super) fn open(&self, number: u64, kind: u8, record: &[u8], plain: &mut Vec<u8>) -> Option<u8> {
        let tag = self.suite.aead.tag_len();
        let (explicit, sealed) = record.split_at_checked(self.suite.explicit_bytes())?;
        let content = sealed.len().checked_sub(tag)?;
        let mut nonce = self.iv;
        let behind = if explicit.is_empty() {
            nonce.get_mut(NONCE - 8..)?.iter_mut().zip(number.to_be_bytes()).for_each(|(n, s)| *n ^= s);
            u16::try_from(sealed.len()).ok()?
        } else {
            nonce.get_mut(NONCE - 8..)?.copy_from_slice(explicit);
            u16::try_from(content).ok()?
        };
        let [high, low] = if self.suite.is_13 { behind } else { u16::try_from(content).ok()? }.to_be_bytes();
        let mut with = [0; 13];
        let head = [kind, 3, 3, high, low];
        let with = if self.suite.is_13 {
            with.get_mut(..5)?.copy_from_slice(&head);
            with.get(..5)?
        } else {
            with.get_mut(..8)?.copy_from_slice(&number.to_be_bytes());
            with.get_mut(8..)?.copy_from_slice(&head);
            &with[..]
        };
        plain.clear();
        plain.extend_from_slice(sealed);
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.open_in_place(nonce, Aad::from(with), plain).ok()?;
        plain.truncate(content);
        if !self.suite.is_13 {
            return Some(kind);
        }
        // The type is behind the content and before the padding.
        let end = plain.iter().rposition(|&b| b != 0)?;
        let kind = *plain.get(end)?;
        plain.truncate(end);
        Some(kind)
    }
}

#[cfg(test)]
impl Epoch {
    /// The record with this number, as its sender protects it.
    pub(super) fn seal(&self, number: u64, kind: u8, content: &[u8], padding: usize) -> Vec<u8> {
        let mut sealed = content.to_vec();
        let mut nonce = self.iv;
        let explicit = self.suite.explicit_bytes();
        if explicit > 0 {
            nonce[4..].copy_from_slice(&(number + 77).to_be_bytes());
        } else {
            nonce[4..].iter_mut().zip(number.to_be_bytes()).for_each(|(n, s)| *n ^= s);
        }
        let head = |kind: u8, length: usize| [kind, 3, 3, (length >> 8) as u8, length as u8];
        let (kind, with) = if self.suite.is_13 {
            sealed.push(kind);
            sealed.resize(sealed.len() + padding, 0);
            (23, head(23, sealed.len() + 16).to_vec())
        } else {
            (kind, [&number.to_be_bytes()[..], &head(kind, content.len())].concat())
        };
        let own = nonce[4..].to_vec();
        let nonce = Nonce::assume_unique_for_key(nonce);
        self.key.seal_in_place_append_tag(nonce, Aad::from(with), &mut sealed).unwrap();
        [&head(kind, explicit + sealed.len())[..], &own[..explicit], &sealed].concat()
    }
}
