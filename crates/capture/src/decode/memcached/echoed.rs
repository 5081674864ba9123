//! What an answer to a meta command repeats of it, if it was asked to: the key (`k`) and a word of the client's (`O`). They show which of
//! several quiet commands was answered.

use std::hash::{DefaultHasher, Hash, Hasher};

use super::words;

/// Hashes of what is repeated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Echoed {
    key: Option<u64>,
    opaque: Option<u64>,
}

fn hash(word: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    word.hash(&mut hasher);
    hasher.finish()
}

impl Echoed {
    /// What a meta command asks for.
    pub(super) fn asked(line: &[u8]) -> Self {
        let key = words(line).nth(1).unwrap_or_default();
        words(line).skip(2).fold(Self::default(), |echoed, flag| match flag {
            b"k" => Self { key: Some(hash(key)), ..echoed },
            [b'O', opaque @ ..] => Self { opaque: Some(hash(opaque)), ..echoed },
            _ => echoed,
        })
    }

    /// What the answer of a meta command has: flags behind its word, and the length of a value.
    pub(super) fn answered(line: &[u8]) -> Self {
        let flags = match words(line).next() {
            Some(b"VA") => 2,
            Some(b"HD" | b"NF" | b"NS" | b"EX") => 1,
            _ => return Self::default(),
        };
        words(line).skip(flags).fold(Self::default(), |echoed, flag| match flag {
            [b'k', key @ ..] => Self { key: Some(hash(key)), ..echoed },
            [b'O', opaque @ ..] => Self { opaque: Some(hash(opaque)), ..echoed },
            _ => echoed,
        })
    }

    pub(super) fn is_nothing(self) -> bool {
        self == Self::default()
    }

    /// Whether an answer that repeats this may be the one to what was asked.
    pub(super) fn answers_with(self, answer: Self) -> bool {
        let fits = |asked: Option<u64>, answered: Option<u64>| answered.is_none() || asked == answered;
        fits(self.key, answer.key) && fits(self.opaque, answer.opaque)
    }
}
