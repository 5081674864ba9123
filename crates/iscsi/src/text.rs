//! Text keys: `Key=Value` pairs, each ended by a zero byte (RFC 7143 6.1).

use thiserror::Error;

/// Longest key name (RFC 7143 6.1), bytes.
pub const KEY_BYTES_MAX: usize = 63;
/// Longest value that this implementation takes, bytes; the RFC asks for 255 unless a key says otherwise,
/// and binary values of CHAP need up to 1,024 hex digits.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Most keys in one exchange.
pub const KEYS_MAX: usize = 128;

/// Text that cannot be read as keys.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum TextError {
    /// Keys and values are ASCII (iSCSI names UTF-8).
    #[error("not UTF-8")]
    NotUtf8,
    /// A pair without `=`.
    #[error("'{0}' has no '='")]
    NoEquals(String),
    /// A key that is empty or longer than 63 bytes.
    #[error("key of {0} bytes; 1 to {KEY_BYTES_MAX} are allowed")]
    KeyLength(usize),
    /// A value over the limit.
    #[error("value of {0} has {1} bytes; {VALUE_BYTES_MAX} are allowed")]
    ValueLength(String, usize),
    /// More keys than the limit.
    #[error("more than {KEYS_MAX} keys in one exchange")]
    TooManyKeys,
    /// More text than the limit, over all PDUs of one exchange.
    #[error("{0} bytes of text in one exchange; {1} are allowed")]
    TooLong(usize, usize),
}

/// The pairs of one text segment, in order.
///
/// # Errors
/// When the text is not a list of pairs within the limits.
pub fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let mut pairs = Vec::new();
    for pair in text.split(|&b| b == 0).filter(|pair| !pair.is_empty()) {
        let pair = std::str::from_utf8(pair).map_err(|_| TextError::NotUtf8)?;
        let (key, value) =
            pair.split_once('=').ok_or_else(|| TextError::NoEquals(pair.chars().take(64).collect()))?;
        if key.is_empty() || key.len() > KEY_BYTES_MAX {
            return Err(TextError::KeyLength(key.len()));
        }
        if value.len() > VALUE_BYTES_MAX {
            return Err(TextError::ValueLength(key.to_owned(), value.len()));
        }
        if pairs.len() == KEYS_MAX {
            return Err(TextError::TooManyKeys);
        }
        pairs.push((key, value));
    }
    Ok(pairs)
}

/// Appends one pair.
pub fn push(out: &mut Vec<u8>, key: &str, value: impl std::fmt::Display) {
    use std::io::Write as _;
    // Writing to a vector cannot fail.
    let _ = write!(out, "{key}={value}");
    out.push(0);
}

/// A text exchange that may be spread over several PDUs by the C bit (RFC 7143 6.2), gathered within a
/// limit.
#[derive(Clone, Debug)]
pub struct Gathered {
    bytes: Vec<u8>,
    limit: usize,
}

impl Default for Gathered {
    fn default() -> Self {
        Self::new(Self::LIMIT)
    }
}

impl Gathered {
    /// Default limit of the text of one exchange, bytes.
    pub const LIMIT: usize = 64 * 1024;

    /// An exchange of at most `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { bytes: Vec::new(), limit }
    }

    /// Whether no segment has come.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds one segment.
    ///
    /// # Errors
    /// When the exchange grows over the limit.
    pub fn add(&mut self, segment: &[u8]) -> Result<(), TextError> {
        let total = self.bytes.len() + segment.len();
        if total > self.limit {
            return Err(TextError::TooLong(total, self.limit));
        }
        self.bytes.extend_from_slice(segment);
        Ok(())
    }

    /// Takes the whole text, ready for the next exchange.
    pub fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn parses_pairs_in_order_and_ignores_padding() {
        assert_eq!(parse(b"A=1\0B=x=y\0\0\0").unwrap(), [("A", "1"), ("B", "x=y")]);
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn rejects_text_that_is_not_a_pair() {
        assert!(matches!(parse(b"A\0"), Err(TextError::NoEquals(_))));
        assert!(matches!(parse(b"=1\0"), Err(TextError::KeyLength(0))));
        assert!(matches!(parse(b"A=\xff\0"), Err(TextError::NotUtf8)));
        let many = b"A=1\0".repeat(KEYS_MAX + 1);
        assert_eq!(parse(&many), Err(TextError::TooManyKeys));
    }

    #[test]
    fn limits_the_text_of_an_exchange() {
        let mut gathered = Gathered::default();
        let segment = [b'x'; 8192];
        let taken = (0..).take_while(|_| gathered.add(&segment).is_ok()).count();
        assert_eq!(taken, Gathered::LIMIT / 8192);
    }

    proptest! {
        #[test]
        fn pushed_pairs_round_trip(keys in prop::collection::vec(("[A-Za-z]{1,63}", "[ -~]{0,200}"), 0..20)) {
            let mut text = Vec::new();
            for (k, v) in &keys { push(&mut text, k, v); }
            let parsed = parse(&text).unwrap();
            prop_assert_eq!(parsed, keys.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_can_panic(bytes in prop::collection::vec(any::<u8>(), 0..500)) {
            let _ = parse(&bytes);
        }
    }
}
