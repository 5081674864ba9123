//! Whether bytes are a chain of PostgreSQL's messages.

use record::Side;

use super::{MESSAGE_MAX, u32_at};
use crate::decode::Length;

/// The length of a message by its head, if its type and length are possible.
pub(super) fn length(side: Side, start: &[u8]) -> Length {
    let Some(&kind) = start.first() else { return Length::More };
    if !is_kind(side, kind) {
        return Length::Invalid;
    }
    let Some(length) = u32_at(start, 1) else { return Length::More };
    let length = u64::from(length);
    let is_possible = match (side, kind) {
        (Side::Client, b'S' | b'H' | b'c' | b'X')
        | (Side::Server, b'1' | b'2' | b'3' | b'n' | b's' | b'I' | b'c') => length == 4,
        (Side::Server, b'Z') => length == 5,
        (Side::Client, b'P') => length >= 8,
        (Side::Client, b'B') => length >= 12,
        (Side::Client, b'E') => length >= 9,
        (Side::Client, b'D' | b'C') | (Side::Server, b't' | b'T' | b'D' | b'C') => length >= 6,
        (Side::Client, b'Q') | (Side::Server, b'E' | b'N') => length >= 5,
        _ => length >= 4,
    };
    if is_possible && length < MESSAGE_MAX { Length::Is(length + 1) } else { Length::Invalid }
}

fn is_kind(side: Side, kind: u8) -> bool {
    match side {
        Side::Client => b"BCDEFHPQSXcdfp".contains(&kind),
        Side::Server => b"123ACDEGHIKNRSTVWZcdnstv".contains(&kind),
    }
}

/// Whether these bytes, at the front of a segment, begin a message. Only a chain of messages up to the end of the segment is proof, with
/// at least one whose inside is as it must be.
pub(super) fn is_plausible(side: Side, bytes: &[u8]) -> bool {
    let (mut rest, mut proofs, mut is_first) = (bytes, 0, true);
    while !rest.is_empty() {
        let Length::Is(length) = length(side, rest) else {
            // A head is cut.
            return proofs > 0 && rest.len() < 5 && is_kind(side, rest[0]);
        };
        let whole = usize::try_from(length).ok().and_then(|length| rest.get(..length));
        let body = whole.unwrap_or(rest).get(5..).unwrap_or_default();
        match inside(side, rest[0], body, whole.is_some()) {
            Inside::Wrong => return false,
            Inside::Proof => proofs += 1,
            Inside::Possible if is_first && proofs == 0 && !matches!(rest[0], b'1' | b'2' | b'3' | b'C') => {
                return false;
            }
            Inside::Possible => {}
        }
        is_first = false;
        let Some(whole) = whole else { break };
        rest = &rest[whole.len()..];
    }
    proofs > 0
}

#[derive(Debug, PartialEq, Eq)]
enum Inside {
    Wrong,
    Possible,
    /// Other data does not look so.
    Proof,
}

fn proof_if(is: bool) -> Inside {
    if is { Inside::Proof } else { Inside::Wrong }
}

/// Whether the inside of a message is as it must be, as far as it is there.
fn inside(side: Side, kind: u8, body: &[u8], is_whole: bool) -> Inside {
    match (side, kind) {
        (Side::Client, b'Q') => query(body, is_whole),
        (Side::Client, b'P') if is_whole => parse(body),
        (Side::Client, b'B') if is_whole => proof_if(bind(body).is_some()),
        (Side::Client, b'E') if is_whole => {
            let named = body.len().checked_sub(5).and_then(|end| Some((body.get(..end)?, body.get(end)?)));
            match named {
                Some((name, 0)) if is_text(name) => Inside::Possible,
                _ => Inside::Wrong,
            }
        }
        (Side::Client, b'D' | b'C') if is_whole => {
            let is = matches!(body, [b'S' | b'P', name @ .., 0] if is_text(name));
            if is { Inside::Possible } else { Inside::Wrong }
        }
        (Side::Server, b'Z') if is_whole => proof_if(matches!(body, b"I" | b"T" | b"E")),
        (Side::Server, b'D') if is_whole => proof_if(row(body).is_some()),
        (Side::Server, b'C') if is_whole => tag(body),
        (Side::Server, b'T') if is_whole => proof_if(description(body).is_some()),
        (Side::Server, b'G' | b'H') if is_whole => proof_if(matches!(body, [0 | 1, high, low, rest @ ..]
                if rest.len() == 2 * usize::from(u16::from_be_bytes([*high, *low])))),
        (Side::Server, b'E' | b'N') if is_whole => proof_if(
            matches!(body, [b'S', .., 0, 0]) && super::field(body, b'C').is_some_and(|code| code.len() == 5),
        ),
        (Side::Server, b'S') if is_whole => {
            let (name, rest) = super::text(body);
            if !name.is_empty() && is_text(name) && rest.ends_with(&[0]) {
                Inside::Possible
            } else {
                Inside::Wrong
            }
        }
        _ => Inside::Possible,
    }
}

fn is_text(bytes: &[u8]) -> bool {
    bytes.iter().all(|&b| b >= b' ' || matches!(b, b'\t' | b'\n' | b'\r'))
}

/// SQL that begins with a keyword.
fn query(body: &[u8], is_whole: bool) -> Inside {
    let sql = match body.strip_suffix(&[0]) {
        Some(sql) if is_whole => sql,
        None if !is_whole => body,
        _ => return Inside::Wrong,
    };
    let sql = sql.trim_ascii_start();
    let word = sql.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let ends = sql.get(word).is_none_or(|b| b" ;\n\r\t(".contains(b));
    let is_comment = sql.starts_with(b"/*") || sql.starts_with(b"--");
    proof_if(is_text(sql) && (is_comment || (2..=12).contains(&word) && ends))
}

fn parse(body: &[u8]) -> Inside {
    let (name, rest) = super::text(body);
    let (sql, types) = super::text(rest);
    let count = types.first_chunk::<2>().map(|count| usize::from(u16::from_be_bytes(*count)));
    let is = count.is_some_and(|count| types.len() == 2 + 4 * count);
    if !is || !is_text(name) {
        return Inside::Wrong;
    }
    // An empty statement is one, too.
    if sql.is_empty() { Inside::Possible } else { proof_if(is_text(sql)) }
}

fn count_at(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (count, rest) = bytes.split_first_chunk::<2>()?;
    Some((usize::from(u16::from_be_bytes(*count)), rest))
}

/// Values, each with its length, or -1 without any.
fn values(count: usize, mut rest: &[u8]) -> Option<&[u8]> {
    for _ in 0..count {
        let (length, behind) = rest.split_first_chunk::<4>()?;
        let length = match u32::from_be_bytes(*length) {
            u32::MAX => 0,
            length => usize::try_from(length).ok()?,
        };
        rest = behind.get(length..)?;
    }
    Some(rest)
}

fn bind(body: &[u8]) -> Option<()> {
    let (portal, rest) = super::text(body);
    let (statement, rest) = super::text(rest);
    let (formats, rest) = count_at(rest)?;
    let (count, rest) = count_at(rest.get(2 * formats..)?)?;
    let (results, rest) = count_at(values(count, rest)?)?;
    let is = rest.len() == 2 * results && (formats <= 1 || formats == count);
    (is && is_text(portal) && is_text(statement)).then_some(())
}

/// Columns, each with its name and 18 bytes.
fn description(body: &[u8]) -> Option<()> {
    let (count, mut rest) = count_at(body)?;
    for _ in 0..count {
        let (name, behind) = super::text(rest);
        rest = behind.get(18..).filter(|_| is_text(name))?;
    }
    (count <= 1664 && rest.is_empty()).then_some(())
}

fn row(body: &[u8]) -> Option<()> {
    let (count, rest) = count_at(body)?;
    let rest = values(count, rest)?;
    (count > 0 && count <= 1664 && rest.is_empty()).then_some(())
}

/// The tag of a command: words in capital letters and numbers.
fn tag(body: &[u8]) -> Inside {
    let is = matches!(body, [b'A'..=b'Z', .., 0])
        && body.len() < 64
        && body[..body.len() - 1].iter().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit() || *b == b' ');
    proof_if(is)
}
