//! The path of a request without what differs from one to the next: numbers, identifiers, the query. It names what the requests
//! are for, and holds little of what is secret in them.

use std::hash::{BuildHasher as _, Hasher as _};

use record::Key;

/// Longest folded path; the rest is cut.
const PATH_MAX: usize = 96;
/// The mark of a cut.
const CUT: &[u8] = b"...";
/// A part of letters alone that is longer than this, and of both cases, is no word.
const WORD_MAX: usize = 31;
/// Fewest hexadecimal digits of an identifier.
const HEX_MIN: usize = 8;
/// Most digits behind a letter that belong to a word, such as v2, oauth2 or ipv4.
const WORD_DIGITS_MAX: usize = 2;

/// A folded path.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Path {
    bytes: [u8; PATH_MAX],
    length: usize,
}

impl Path {
    /// A request's target as it is; what is not printable is `?`.
    pub(crate) fn verbatim(target: &[u8]) -> Self {
        let mut path = Self { bytes: [0; PATH_MAX], length: 0 };
        for byte in target.iter().take(PATH_MAX) {
            path.push(if byte.is_ascii_graphic() { std::slice::from_ref(byte) } else { b"?" });
        }
        if target.len() > PATH_MAX || target.is_empty() {
            path.push(CUT);
        }
        path
    }

    /// The path of a request's target (RFC 9112 3.2): `:n` stands for numbers, and `:id` for other identifiers.
    pub(crate) fn of(target: &[u8]) -> Self {
        let mut path = Self { bytes: [0; PATH_MAX], length: 0 };
        let end = target.iter().position(|b| matches!(b, b'?' | b'#')).unwrap_or(target.len());
        let target = &target[..end];
        // The absolute form begins with a scheme and a host.
        let target = match target.windows(3).position(|part| part == b"://") {
            Some(at) => {
                let rest = &target[at + 3..];
                rest.iter().position(|&b| b == b'/').map_or(&b"/"[..], |at| &rest[at..])
            }
            None => target,
        };
        if !target.starts_with(b"/") {
            // The asterisk, or the host of a tunnel.
            path.push(if target == b"*" { b"*" } else { b":host" });
            return path;
        }
        for (place, segment) in target[1..].split(|&b| b == b'/').enumerate() {
            if place == 0 || path.length < PATH_MAX {
                path.push(b"/");
            }
            // Parameters of a segment, such as a session, are no part of its name.
            path.segment(segment.split(|&b| b == b';').next().unwrap_or_default());
        }
        path
    }

    /// A name of other protocols whose parts are divided by `/`, folded like a path.
    pub(crate) fn of_name(name: &[u8]) -> Self {
        let mut path = Self { bytes: [0; PATH_MAX], length: 0 };
        for (place, segment) in name.split(|&b| b == b'/').enumerate() {
            if place > 0 && path.length < PATH_MAX {
                path.push(b"/");
            }
            path.segment(segment);
        }
        path
    }

    fn segment(&mut self, segment: &[u8]) {
        if is_identifier(segment) {
            return self.push(b":id");
        }
        let mut rest = segment;
        let mut is_behind_letter = false;
        while let Some(&first) = rest.first() {
            let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
            let is_word = is_behind_letter && digits <= WORD_DIGITS_MAX;
            let length = digits.max(1);
            self.push(if digits > 0 && !is_word { b":n" } else { &rest[..length] });
            is_behind_letter = first.is_ascii_alphabetic();
            rest = &rest[length..];
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        let room = &mut self.bytes[self.length..];
        if bytes.len() <= room.len() {
            room[..bytes.len()].copy_from_slice(bytes);
            self.length += bytes.len();
        } else {
            self.bytes[PATH_MAX - CUT.len()..].copy_from_slice(CUT);
            self.length = PATH_MAX;
        }
    }

    /// Its text: ASCII without control characters.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.length]).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> Key {
        let mut hasher = foldhash::fast::FixedState::default().build_hasher();
        hasher.write(&self.bytes[..self.length]);
        Key::new(hasher.finish())
    }
}

/// Whether a segment of a path names one thing among many: a UUID, a hash, a token, an address.
fn is_identifier(segment: &[u8]) -> bool {
    // Escaped bytes are those of names and addresses, not of an interface.
    if segment.iter().any(|b| !b.is_ascii_graphic() || matches!(b, b'@' | b'=' | b'%')) {
        return true;
    }
    let has_digit = segment.iter().any(u8::is_ascii_digit);
    let hex = segment.iter().filter(|b| b.is_ascii_hexdigit()).count();
    if has_digit && hex >= HEX_MIN && segment.iter().all(|&b| b.is_ascii_hexdigit() || b == b'-') {
        // Numbers and dates are of `:n`.
        return segment.iter().any(u8::is_ascii_alphabetic);
    }
    let mut parts = segment.split(|b| !b.is_ascii_alphanumeric());
    parts.any(|part| {
        let has = |is: fn(&u8) -> bool| part.iter().any(is);
        let is_mixed = has(u8::is_ascii_uppercase) && has(u8::is_ascii_lowercase);
        // Digits stand at the end of words, as in oauth2, and within tokens.
        let after_digits = part.iter().skip_while(|b| !b.is_ascii_digit()).skip_while(|b| b.is_ascii_digit());
        let digits_within = after_digits.count() > 0 && has(u8::is_ascii_alphabetic);
        digits_within || (part.len() > WORD_MAX && is_mixed)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn names_of_other_protocols_keep_what_is_no_part_of_a_path() {
        for (name, folded) in [
            ("sensors/17/temperature", "sensors/:n/temperature"),
            ("$SYS/broker/#", "$SYS/broker/#"),
            ("/a//b?", "/a//b?"),
            ("orders.17.created", "orders.:n.created"),
            ("amq.gen-JzTY20BRgKO-HjmUJj0wLg", ":id"),
            ("", ""),
        ] {
            assert_eq!(Path::of_name(name.as_bytes()).text(), folded);
        }
        assert_eq!(Path::of_name("a/".repeat(80).as_bytes()).text().len(), PATH_MAX);
    }

    #[test]
    fn numbers_and_identifiers_are_folded_and_words_are_not() {
        for (target, folded) in [
            ("/", "/"),
            ("/users/17", "/users/:n"),
            ("/users/17/", "/users/:n/"),
            ("/api/v2/orders/000123/items/4", "/api/v2/orders/:n/items/:n"),
            ("/s3/oauth2/ipv4", "/s3/oauth2/ipv4"),
            ("/key000000012", "/key:n"),
            ("/photos/1234.jpg", "/photos/:n.jpg"),
            ("/2026-11-23/page-7.html", "/:n-:n-:n/page-:n.html"),
            ("/o/123e4567-e89b-12d3-a456-426614174000", "/o/:id"),
            ("/blob/d41d8cd98f00b204e9800998ecf8427e", "/blob/:id"),
            ("/t/aGVsbG8gd29ybGQgaGVsbG8gd29ybGQ", "/t/:id"),
            ("/t/aGVsbGhlbGxvaGVsbGhlbGxvaGVsbGhlbGxv", "/t/:id"),
            ("/reset/hunter2secret", "/reset/:id"),
            ("/email/bob%40example.com", "/email/:id"),
            ("/%2e%2e/etc", "/:id/etc"),
            ("/api/getOrdersByCustomerIdentifier", "/api/getOrdersByCustomerIdentifier"),
            ("/api/listAllOutstandingInvoices2024", "/api/listAllOutstandingInvoices:n"),
            ("/api/v1beta/a", "/api/:id/a"),
            ("/internationalization-preferences/feedback", "/internationalization-preferences/feedback"),
            ("/mail/joe@example.org", "/mail/:id"),
            ("/a?token=secret&n=1", "/a"),
            ("/a;jsessionid=1A2B/b#c", "/a/b"),
            ("http://user:secret@example.org:8080/a/9", "/a/:n"),
            ("http://example.org", "/"),
            ("*", "*"),
            ("example.org:443", ":host"),
            ("", ":host"),
        ] {
            assert_eq!(Path::of(target.as_bytes()).text(), folded, "{target}");
        }
    }

    #[test]
    fn long_paths_are_cut() {
        let long = "/ab".repeat(100);
        let path = Path::of(long.as_bytes());
        assert_eq!((path.text().len(), path.text().ends_with("...")), (PATH_MAX, true));
        assert_eq!(path.key(), Path::of(format!("{long}/more").as_bytes()).key());
    }

    #[test]
    fn targets_are_shown_as_they_are_if_asked_for() {
        let shown = |target: &[u8]| Path::verbatim(target).text().to_owned();
        assert_eq!(shown(b"/users/17?token=a%20b"), "/users/17?token=a%20b");
        assert_eq!(shown(b"/\x1b[2J\xff"), "/?[2J?");
        assert_eq!(shown(b""), "...");
        assert!(shown(&[b'a'; 200]).ends_with("a...") && shown(&[b'a'; 200]).len() == PATH_MAX);
    }

    #[test]
    fn keys_are_those_of_the_text() {
        assert_eq!(Path::of(b"/a/1?b").key(), Path::of(b"/a/22").key());
        assert_ne!(Path::of(b"/a/1").key(), Path::of(b"/b/1").key());
        assert_ne!(Path::of(b"/").key(), Key::NONE);
    }

    proptest! {
        #[test]
        fn any_target_has_a_short_plain_text(target in proptest::collection::vec(any::<u8>(), 0..400)) {
            let path = Path::of(&target);
            prop_assert!(!path.text().is_empty() && path.text().len() <= PATH_MAX);
            prop_assert!(path.text().bytes().all(|b| b.is_ascii_graphic()));
        }
    }
}
