//! Whether bytes are commands or answers of MySQL.

use super::greeting::{lenenc, u16_at, u32_at};
use super::{BULK_EXECUTE, EXECUTE, PREPARE, QUERY, command};

/// Keywords with which statements begin.
const KEYWORDS: &[&str] = &[
    "ALTER",
    "ANALYZE",
    "BEGIN",
    "CALL",
    "CHANGE",
    "CHECK",
    "COMMIT",
    "CREATE",
    "DEALLOCATE",
    "DELETE",
    "DESC",
    "DESCRIBE",
    "DO",
    "DROP",
    "EXECUTE",
    "EXPLAIN",
    "FLUSH",
    "GRANT",
    "HANDLER",
    "INSERT",
    "KILL",
    "LOAD",
    "LOCK",
    "OPTIMIZE",
    "PREPARE",
    "PURGE",
    "RELEASE",
    "RENAME",
    "REPLACE",
    "RESET",
    "REVOKE",
    "ROLLBACK",
    "SAVEPOINT",
    "SELECT",
    "SET",
    "SHOW",
    "START",
    "STOP",
    "TABLE",
    "TRUNCATE",
    "UNLOCK",
    "UPDATE",
    "USE",
    "VALUES",
    "WITH",
    "XA",
];

/// Length and sequence number of a packet.
pub(super) fn head(bytes: &[u8]) -> Option<(u64, u8)> {
    let head = u32_at(bytes, 0)?;
    Some((u64::from(head & 0xff_ffff), (head >> 24) as u8))
}

/// A packet's payload as far as it is there, its sequence number, whether it is whole, and what follows.
fn packet(bytes: &[u8]) -> Option<(&[u8], u8, bool, &[u8])> {
    let (length, seq) = head(bytes)?;
    let behind = bytes.get(4..)?;
    match behind.split_at_checked(length as usize) {
        Some((payload, rest)) => Some((payload, seq, true, rest)),
        None => Some((behind, seq, false, &[])),
    }
}

fn is_statement(text: &[u8]) -> bool {
    let text = text.strip_prefix(&[0, 1]).unwrap_or(text).trim_ascii_start();
    let text = text.strip_prefix(b"(").unwrap_or(text);
    let (word, rest) = text.split_at(text.iter().take_while(|b| b.is_ascii_alphabetic()).count());
    let is_keyword = KEYWORDS.iter().any(|keyword| word.eq_ignore_ascii_case(keyword.as_bytes()));
    let ends = rest.first().is_none_or(|b| b" ;\n\r\t(@`*".contains(b));
    is_keyword && ends || text.starts_with(b"/*") && text.len() > 8 || text.starts_with(b"-- ")
}

/// Whether these bytes, at the front of a segment, are commands. The first one is proof: SQL, or what only a prepared statement has.
pub(super) fn is_command(bytes: &[u8]) -> bool {
    let Some((first, 0, is_whole, mut rest)) = packet(bytes) else { return false };
    let is_first = match first.split_first() {
        Some((&(QUERY | PREPARE), sql)) => is_statement(sql),
        Some((&EXECUTE, body)) => {
            // A number, flags, and how often: once.
            is_whole && u32_at(body, 5) == Some(1) && body.get(4).is_some_and(|&flags| flags < 16)
        }
        Some((&BULK_EXECUTE, body)) => is_whole && u16_at(body, 4).is_some_and(|flags| flags & !0xc0 == 0),
        _ => false,
    };
    while is_first && !rest.is_empty() {
        // A head that is cut.
        let Some((payload, seq, _, behind)) = packet(rest) else { return rest.len() < 4 };
        if seq != 0 || payload.first().is_some_and(|&code| command(code).is_none()) {
            return false;
        }
        rest = behind;
    }
    is_first
}

/// Whether a packet with its sequence number 1 answers a command. A number of columns is none without the first one.
fn is_first_answer(payload: &[u8], rest: &[u8]) -> bool {
    let is_ok = |rest: &[u8]| {
        let behind = lenenc(rest).and_then(|(_, rest)| lenenc(rest)).map(|(_, rest)| rest);
        behind.is_some_and(|behind| {
            behind.len() >= 4 && u16_at(behind, 2).is_some_and(|warnings| warnings < 1024)
        })
    };
    match payload.split_first() {
        Some((0, rest)) => is_ok(rest),
        Some((0xfe, rest)) => rest.len() == 4,
        Some((0xff, rest)) => {
            u16_at(rest, 0).is_some_and(|code| (1000..10_000).contains(&code)) && rest.get(2) == Some(&b'#')
        }
        _ => {
            payload.len() <= 4
                && matches!(packet(rest), Some((column, 2, ..)) if column.starts_with(b"\x03def"))
        }
    }
}

/// Whether a packet is a number of columns that do not follow: the client knows them.
fn is_count_alone(payload: &[u8]) -> bool {
    matches!(payload, [1..=250, 0] | [0, 1..=250])
}

/// Whether a packet ends rows.
fn is_end(payload: &[u8]) -> bool {
    payload.first() == Some(&0xfe) && (payload.len() == 5 || (7..100).contains(&payload.len()))
}

/// Whether these bytes, at the front of a segment, are answers: packets in their order from the first one.
pub(super) fn is_answer(bytes: &[u8]) -> bool {
    let (mut rest, mut next, mut is_proven, mut is_counted) = (bytes, 1, false, false);
    while !rest.is_empty() {
        let Some((payload, seq, is_whole, behind)) = packet(rest) else { return is_proven && rest.len() < 4 };
        if seq == 1 && next != 1 || !is_proven && !is_counted {
            is_counted = is_count_alone(payload);
            if seq != 1 || !is_whole || !is_counted && !is_first_answer(payload, behind) {
                return false;
            }
            is_proven |= !is_counted;
        } else if seq != next {
            return false;
        }
        is_proven |= is_counted && is_whole && is_end(payload);
        (rest, next) = (behind, seq.wrapping_add(1));
    }
    is_proven
}
