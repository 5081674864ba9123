//! Names of LDAP's entries as far as they may be shown, of extensions and of results.

use record::{Status, Word};

use super::CONTROLS;
use super::ber::{self, Ber};
use crate::decode::Shown;

/// The tag of an extension's number.
pub(super) const EXTENSION: u8 = 0x80;
/// The extended operation behind which TLS begins.
pub(super) const START_TLS: &str = "StartTLS";
/// Longest name that is shown as it is.
const SHOWN_MAX: usize = 96;
/// Longest value that is a word.
const WORD_MAX: usize = 24;
/// Parts of a name that are shown.
const PARTS: usize = 4;
/// Longest number of an extension that is shown.
const OID_MAX: usize = 40;
/// Most controls that are read.
const CONTROLS_MAX: usize = 16;

/// Whether these are the digits of an object identifier.
pub(super) fn is_oid(name: &[u8]) -> bool {
    let is_of_oid = |b: &u8| b.is_ascii_digit() || *b == b'.';
    name.len() >= 3 && name.len() <= 128 && name.iter().all(is_of_oid) && name.contains(&b'.')
}

/// An extended operation, and its number if it is no known one.
pub(super) fn extension(oid: &[u8]) -> (&'static str, String) {
    let name = match oid {
        b"1.3.6.1.4.1.1466.20037" => START_TLS,
        b"1.3.6.1.4.1.4203.1.11.1" => "PasswordModify",
        b"1.3.6.1.4.1.4203.1.11.3" => "WhoAmI",
        b"1.3.6.1.1.8" => "Cancel",
        b"1.3.6.1.1.21.1" => "StartTxn",
        b"1.3.6.1.1.21.3" => "EndTxn",
        b"1.3.6.1.4.1.1466.101.119.1" => "Refresh",
        _ => {
            let shown = oid.get(..oid.len().min(OID_MAX)).filter(|oid| is_oid(oid)).unwrap_or_default();
            return ("Extended", shown.escape_ascii().to_string());
        }
    };
    (name, String::new())
}

/// A mechanism of SASL (RFC 4422 3.1).
pub(super) fn mechanism(name: &[u8]) -> String {
    let is_of_name = |b: &u8| b.is_ascii_uppercase() || b.is_ascii_digit() || matches!(b, b'-' | b'_');
    let is_sound = name.len() <= 20 && name.iter().all(is_of_name);
    if is_sound { name.escape_ascii().to_string() } else { "*".to_owned() }
}

/// What a search looks at, behind its key.
pub(super) fn scope(number: Option<u32>) -> &'static str {
    match number {
        Some(0) => " base",
        Some(1) => " one",
        Some(2) => " sub",
        Some(3) => " children",
        _ => "",
    }
}

/// Whether a search goes on for changes: refresh and persist (RFC 4533 2.2), a persistent search, notifications of Active Directory.
pub(super) fn awaits_event(mut behind: Ber<'_>) -> bool {
    let Some(mut controls) = behind.open(CONTROLS) else { return false };
    for _ in 0..CONTROLS_MAX {
        let Some(mut control) = controls.open(ber::SEQUENCE) else { return false };
        match control.text().unwrap_or_default() {
            b"2.16.840.1.113730.3.4.3" | b"1.2.840.113556.1.4.528" => return true,
            b"1.3.6.1.4.1.4203.1.9.1.1" => {
                let value = match control.next() {
                    Some((ber::BOOLEAN, _)) => control.text(),
                    Some((ber::STRING, value)) => Some(value.0),
                    _ => None,
                };
                let mode = Ber(value.unwrap_or_default()).open(ber::SEQUENCE);
                return mode.and_then(|mut mode| mode.number(ber::ENUMERATED)) == Some(3);
            }
            _ => {}
        }
    }
    false
}

/// A name without its escaped separators, from the left: what is before the next comma.
fn parts(name: &[u8]) -> Vec<&[u8]> {
    let (mut parts, mut from, mut is_escaped) = (Vec::new(), 0, false);
    for (at, &byte) in name.iter().enumerate() {
        if is_escaped {
            is_escaped = false;
        } else if byte == b'\\' {
            is_escaped = true;
        } else if byte == b',' {
            parts.push(name.get(from..at).unwrap_or_default());
            from = at + 1;
        }
    }
    parts.push(name.get(from..).unwrap_or_default());
    parts
}

/// What the name of an entry (RFC 4514) is for: its last four parts, with `*` for what precedes them. Values are folded, except
/// words of the parts of which a tree is made (`dc`, `o`, `ou`, `c`): `uid=alice,ou=people,dc=example,dc=com` is
/// `uid=*,ou=people,dc=example,dc=com`. No name is `root`.
pub(super) fn key(name: &[u8], shown: Shown) -> String {
    if name.is_empty() {
        return "root".to_owned();
    }
    if shown.verbatim {
        return name.get(..name.len().min(SHOWN_MAX)).unwrap_or_default().escape_ascii().to_string();
    }
    let parts = parts(name);
    let hidden = parts.len().saturating_sub(PARTS);
    let mut shown: Vec<String> = parts.iter().skip(hidden).map(|part| folded(part)).collect();
    if hidden > 0 {
        shown.insert(0, "*".to_owned());
    }
    shown.join(",")
}

fn folded(part: &[u8]) -> String {
    let trimmed = part.trim_ascii();
    let Some(place) = trimmed.iter().position(|&b| b == b'=') else { return "*".to_owned() };
    let (attribute, value) = trimmed.split_at(place);
    let attribute = attribute.trim_ascii();
    let value = value.get(1..).unwrap_or_default().trim_ascii();
    let is_word = |word: &[u8]| {
        let is_of_word = |b: &u8| b.is_ascii_alphabetic() || matches!(b, b'-' | b' ');
        (1..=WORD_MAX).contains(&word.len()) && word.iter().all(is_of_word)
    };
    if !is_word(attribute) {
        return "*".to_owned();
    }
    let attribute = attribute.to_ascii_lowercase();
    let is_of_tree = matches!(&attribute[..], b"dc" | b"o" | b"ou" | b"c");
    let value = if is_of_tree && is_word(value) { value.to_ascii_lowercase() } else { b"*".to_vec() };
    [&attribute[..], b"=", &value].concat().escape_ascii().to_string()
}

/// The status of a result code (RFC 4511 4.1.9, RFC 3909, RFC 4533), shortened to fifteen letters.
pub(super) fn status(code: u32) -> Status {
    let answer = |name: &str| Status::Answer(Word::new(name.as_bytes()));
    let name = match code {
        0 => return Status::Good,
        5 => return answer("compareFalse"),
        6 => return answer("compareTrue"),
        10 => return answer("referral"),
        14 => return answer("saslInProgress"),
        1 => "operationsError",
        2 => "protocolError",
        3 => "timeLimit",
        4 => "sizeLimit",
        7 => "authMethod",
        8 => "strongerAuth",
        11 => "adminLimit",
        12 => "criticalExt",
        13 => "confidentiality",
        16 => "noSuchAttribute",
        17 => "undefinedType",
        18 => "badMatching",
        19 => "constraint",
        20 => "valueExists",
        21 => "invalidSyntax",
        32 => "noSuchObject",
        33 => "aliasProblem",
        34 => "invalidDNSyntax",
        36 => "aliasDeref",
        48 => "badAuth",
        49 => "invalidCreds",
        50 => "accessRights",
        51 => "busy",
        52 => "unavailable",
        53 => "unwilling",
        54 => "loopDetect",
        64 => "namingViolation",
        65 => "objectClass",
        66 => "notOnNonLeaf",
        67 => "notOnRDN",
        68 => "entryExists",
        69 => "classMods",
        71 => "multipleDSAs",
        80 => "other",
        118 => "canceled",
        119 => "noSuchOperation",
        120 => "tooLate",
        121 => "cannotCancel",
        122 => "assertionFailed",
        4096 => "refreshRequired",
        other => return Status::Error(Word::new(format!("result{other}").as_bytes())),
    };
    Status::Error(Word::new(name.as_bytes()))
}
