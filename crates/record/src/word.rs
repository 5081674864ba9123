//! A short word of a protocol, such as a command.

use serde::{Deserialize, Serialize};

/// Most bytes of a word.
const WORD_MAX: usize = 15;

/// A command, an operation or an error's name, of printable ASCII characters and at most 15 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Word([u8; WORD_MAX]);

impl Word {
    /// The word of these bytes: up to the first that is not printable, and cut where it is too long.
    #[must_use]
    pub const fn new(text: &[u8]) -> Self {
        let mut bytes = [0; WORD_MAX];
        let mut at = 0;
        while at < text.len() && at < WORD_MAX && text[at].is_ascii_graphic() {
            bytes[at] = text[at];
            at += 1;
        }
        Self(bytes)
    }

    /// The same in capital letters: names of commands are often written in either case.
    #[must_use]
    pub fn upper(text: &[u8]) -> Self {
        let mut word = Self::new(text);
        word.0.make_ascii_uppercase();
        word
    }

    /// Its text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|&b| b == 0).unwrap_or(WORD_MAX);
        self.0.get(..end).and_then(|text| std::str::from_utf8(text).ok()).unwrap_or_default()
    }
}

impl std::fmt::Display for Word {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_is_short_and_printable() {
        assert_eq!(Word::new(b"GET").as_str(), "GET");
        assert_eq!(Word::upper(b"hGetAll").as_str(), "HGETALL");
        assert_eq!(Word::new(b"a\x1b[2J").as_str(), "a");
        assert_eq!(Word::new("\u{fc}ber".as_bytes()).as_str(), "");
        assert_eq!(Word::new(&[b'x'; 40]).as_str().len(), WORD_MAX);
        assert_eq!(format!("{:>4}", Word::new(b"ok")), "  ok");
    }
}
