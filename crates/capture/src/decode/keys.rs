//! Keys, as far as they may be shown.

use record::Word;

use super::Shown;
use crate::http::path::Path;

/// Longest key, or prefix of one, that is shown.
pub(super) const KEY_MAX: usize = 64;
/// Longest prefix that is a word.
const WORD_MAX: usize = 24;

/// An operation whose word is none of the protocol's: it may be a secret that was sent in the place of a command.
pub(super) const UNKNOWN: Word = Word::new(b"unknown");

/// The prefix of a key, which tells what it is for: `user:17:cart` is `user:*`. What follows may be secret.
pub(super) fn folded(key: &[u8], shown: Shown) -> String {
    let mut folded = String::new();
    fold_into(&mut folded, key, shown);
    folded
}

/// As [`folded`], into a text that is used again and again.
pub(super) fn fold_into(folded: &mut String, key: &[u8], shown: Shown) {
    folded.clear();
    if shown.verbatim {
        folded.extend(key.iter().take(KEY_MAX).flat_map(|byte| byte.escape_ascii()).map(char::from));
        return;
    }
    let end = key.iter().position(|b| !b.is_ascii_alphabetic()).unwrap_or(key.len());
    let (word, rest) = key.split_at(end);
    if word.len() > WORD_MAX {
        folded.push('*');
        return;
    }
    folded.extend(word.iter().map(|&b| char::from(b)));
    if let Some(&next) = rest.first() {
        if next.is_ascii_punctuation() {
            folded.push(char::from(next));
        }
        folded.push('*');
    }
}

/// A name of a topic or a queue, whose parts tell what it is for: `sensors/17/state` is `sensors/:n/state`.
pub(super) fn folded_path(name: &[u8], shown: Shown) -> String {
    if shown.verbatim {
        return name.get(..name.len().min(KEY_MAX)).unwrap_or_default().escape_ascii().to_string();
    }
    Path::of_name(name).text().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_without_their_secrets() {
        for (key, shown) in [
            ("user:17:cart", "user:*"),
            ("mylist", "mylist"),
            ("key000012", "key*"),
            ("12", "*"),
            ("{tag}:x", "{*"),
            ("sess\u{fc}", "sess*"),
            ("", ""),
        ] {
            assert_eq!(folded(key.as_bytes(), Shown::default()), shown, "{key}");
        }
    }
}
