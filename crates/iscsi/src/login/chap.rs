//! CHAP (RFC 1994, RFC 7143 12.1.3): proof of a shared secret for one challenge.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest, Sha256};
use sha3::Sha3_256;
use subtle::ConstantTimeEq;

/// How a response is made of a challenge (RFC 7143 12.1.4, IANA "PPP Authentication Algorithms").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// MD5, which every peer has.
    Md5,
    /// SHA1.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA3-256.
    Sha3,
}

impl Algorithm {
    /// By its number in CHAP_A.
    #[must_use]
    pub fn by_number(text: &str) -> Option<Self> {
        match text {
            "5" => Some(Algorithm::Md5),
            "6" => Some(Algorithm::Sha1),
            "7" => Some(Algorithm::Sha256),
            "8" => Some(Algorithm::Sha3),
            _ => None,
        }
    }

    /// Its number in CHAP_A.
    #[must_use]
    pub fn number(self) -> u8 {
        match self {
            Algorithm::Md5 => 5,
            Algorithm::Sha1 => 6,
            Algorithm::Sha256 => 7,
            Algorithm::Sha3 => 8,
        }
    }

    /// The response to a challenge: the digest of identifier, secret and challenge.
    #[must_use]
    pub fn response(self, identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
        fn digest<D: Digest>(identifier: u8, secret: &[u8], challenge: &[u8]) -> Vec<u8> {
            D::new()
                .chain_update([identifier])
                .chain_update(secret)
                .chain_update(challenge)
                .finalize()
                .to_vec()
        }
        match self {
            Algorithm::Md5 => digest::<Md5>(identifier, secret, challenge),
            Algorithm::Sha1 => digest::<Sha1>(identifier, secret, challenge),
            Algorithm::Sha256 => digest::<Sha256>(identifier, secret, challenge),
            Algorithm::Sha3 => digest::<Sha3_256>(identifier, secret, challenge),
        }
    }
}

/// A user that a target knows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Known {
    /// Its name and secret.
    pub credentials: Credentials,
    /// What the target answers it with, where it asks for mutual authentication.
    pub own: Option<Credentials>,
}

/// A name and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct Credentials {
    /// CHAP_N.
    pub name: String,
    /// The secret.
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Secrets do not go to logs.
        f.debug_struct("Credentials").field("name", &self.name).finish_non_exhaustive()
    }
}

/// Longest binary value, bytes (RFC 7143 12.1.3).
const BINARY_MAX: usize = 1024;

/// Reads a binary value: 0x and hexadecimal digits, or 0b and base64 (RFC 7143 6.1).
#[must_use]
pub fn decode(text: &str) -> Option<Vec<u8>> {
    let bytes = if let Some(hex) = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        if hex.is_empty() || !hex.is_ascii() {
            return None;
        }
        // An odd number of digits has a leading zero.
        let padded = if hex.len().is_multiple_of(2) { hex.to_owned() } else { format!("0{hex}") };
        let pairs = padded.as_bytes().chunks_exact(2);
        pairs
            .map(|pair| std::str::from_utf8(pair).ok().and_then(|p| u8::from_str_radix(p, 16).ok()))
            .collect::<Option<Vec<u8>>>()?
    } else {
        STANDARD.decode(text.strip_prefix("0b").or_else(|| text.strip_prefix("0B"))?).ok()?
    };
    (!bytes.is_empty() && bytes.len() <= BINARY_MAX).then_some(bytes)
}

/// Writes a binary value in hexadecimal.
#[must_use]
pub fn encode(bytes: &[u8]) -> String {
    bytes.iter().fold("0x".to_owned(), |mut text, byte| {
        text.push_str(&format!("{byte:02x}"));
        text
    })
}

/// The keys that an initiator sends in the last exchange.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) name: Option<String>,
    pub(crate) response: Option<Vec<u8>>,
    /// Identifier and challenge, for mutual authentication.
    pub(crate) identifier: Option<u8>,
    pub(crate) challenge: Option<Vec<u8>>,
}

/// A challenge without a response yet.
#[derive(Clone, Debug)]
pub(crate) struct Challenge {
    pub(crate) algorithm: Algorithm,
    pub(crate) identifier: u8,
    pub(crate) bytes: Vec<u8>,
}

/// The result of a valid claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proven {
    /// The user that owns the secret: the authenticated identity, independent of the initiator's name.
    pub(crate) user: Credentials,
    /// CHAP_N and CHAP_R of the target's own response, if one was requested.
    pub(crate) answer: Option<(String, Vec<u8>)>,
}

impl Challenge {
    /// Verifies a claim. Returns the authenticated user, or `None` if the claim is invalid.
    pub(crate) fn judge(&self, claim: &Claim, known: &[Known]) -> Option<Proven> {
        let (name, response) = (claim.name.as_deref()?, claim.response.as_deref()?);
        // An unknown name takes as long as a wrong secret. Several targets may know one name with a secret each.
        let nobody = Credentials { name: String::new(), secret: b"nobody's secret".to_vec() };
        let nobody = Known { credentials: nobody, own: None };
        let mut candidates: Vec<&Known> =
            known.iter().filter(|known| known.credentials.name == name).collect();
        if candidates.is_empty() {
            candidates.push(&nobody);
        }
        let mut user = None;
        for candidate in candidates {
            let expected =
                self.algorithm.response(self.identifier, &candidate.credentials.secret, &self.bytes);
            if bool::from(expected.as_slice().ct_eq(response)) {
                user = Some(candidate);
            }
        }
        let user = user.filter(|user| !std::ptr::eq(*user, &raw const nobody))?;
        let own = user.own.as_ref();
        let user = &user.credentials;
        let proven = |answer| Some(Proven { user: user.clone(), answer });
        match (claim.identifier, &claim.challenge) {
            (None, None) => proven(None),
            (Some(identifier), Some(challenge)) => {
                // Our own challenge sent back, to have us answer it (RFC 7143 12.1.3).
                if *challenge == self.bytes {
                    return None;
                }
                let own = own?;
                // Both directions with one secret would let a reflected answer pass.
                if own.secret == user.secret {
                    return None;
                }
                proven(Some((own.name.clone(), self.algorithm.response(identifier, &own.secret, challenge))))
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn responses_are_digests_of_identifier_secret_and_challenge() {
        // md5("\x01" "secret" "challenge") and its like, by other tools.
        let hex = |a: Algorithm| encode(&a.response(1, b"secret", b"challenge"));
        assert_eq!(hex(Algorithm::Md5).len(), 2 + 32);
        assert_eq!(hex(Algorithm::Sha1).len(), 2 + 40);
        assert_eq!(hex(Algorithm::Sha256).len(), 2 + 64);
        assert_ne!(hex(Algorithm::Sha256), hex(Algorithm::Sha3));
        let abc = Algorithm::Sha256.response(b'a', b"b", b"c");
        assert_eq!(
            encode(&abc),
            "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            "FIPS 180-2"
        );
        let abc = Algorithm::Md5.response(b'a', b"b", b"c");
        assert_eq!(encode(&abc), "0x900150983cd24fb0d6963f7d28e17f72", "RFC 1321");
    }

    #[test]
    fn both_binary_forms_are_read() {
        assert_eq!(decode("0x0aFf"), Some(vec![10, 255]));
        assert_eq!(decode("0XaFf"), Some(vec![10, 255]));
        assert_eq!(decode("0bCv8="), Some(vec![10, 255]));
        for bad in
            ["", "0x", "0xzz", "0b", "0b*", "cafe", "0x\u{e9}\u{e9}", &format!("0x{}", "00".repeat(1025))]
        {
            assert_eq!(decode(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_response_is_valid_only_for_its_secret_and_challenge() {
        let user = |name: &str, secret: &str| Credentials { name: name.into(), secret: secret.into() };
        let with = |own: Option<Credentials>| [Known { credentials: user("alice", "wonderland-12"), own }];
        let known = with(Some(user("target", "looking-glass")));
        let challenge = Challenge { algorithm: Algorithm::Sha256, identifier: 7, bytes: vec![9; 16] };
        let answer =
            |secret: &str| Some(challenge.algorithm.response(7, secret.as_bytes(), &challenge.bytes));
        let claim = |name: &str, secret: &str| Claim {
            name: Some(name.into()),
            response: answer(secret),
            ..Claim::default()
        };
        let judge = |claim: &Claim| challenge.judge(claim, &known);
        let proven = |answer| Some(Proven { user: known[0].credentials.clone(), answer });
        assert_eq!(judge(&claim("alice", "wonderland-12")), proven(None));
        assert_eq!(judge(&claim("alice", "wonderland-13")), None);
        assert_eq!(judge(&claim("bob", "wonderland-12")), None);
        assert_eq!(judge(&claim("bob", "nobody's secret")), None, "nobody's secret opens nothing");
        let mutual = |bytes: Vec<u8>| Claim {
            identifier: Some(3),
            challenge: Some(bytes),
            ..claim("alice", "wonderland-12")
        };
        let ours = challenge.algorithm.response(3, b"looking-glass", &[1, 2]);
        assert_eq!(judge(&mutual(vec![1, 2])), proven(Some(("target".into(), ours))));
        assert_eq!(judge(&mutual(vec![9; 16])), None, "reflected");
        assert_eq!(challenge.judge(&mutual(vec![1]), &with(None)), None, "we have no secret to prove");
        let same = with(Some(user("target", "wonderland-12")));
        assert_eq!(challenge.judge(&mutual(vec![1]), &same), None, "one secret both ways");
        // Of namesakes, the one whose secret it is, with what the target answers it.
        let two = [with(None)[0].clone(), Known { credentials: user("alice", "another secret"), own: None }];
        let judged = challenge.judge(&claim("alice", "another secret"), &two).map(|proven| proven.user);
        assert_eq!(judged, Some(two[1].credentials.clone()));
    }

    proptest! {
        #[test]
        fn binary_values_round_trip_and_no_text_panics(bytes in prop::collection::vec(any::<u8>(), 1..200), text in ".{0,60}") {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
            let _ = (decode(&text), decode(&format!("0x{text}")), decode(&format!("0b{text}")));
        }
    }
}
