//! Functions, areas and errors of S7.

use record::{Status, Word};

const READ: u8 = 4;
const WRITE: u8 = 5;
/// Bytes of a variable's address, behind its length.
const ADDRESS: usize = 10;

/// A job's name.
pub(super) fn function(function: u8) -> Word {
    let name = match function {
        0 => "CPU_SERVICE",
        READ => "READ_VAR",
        WRITE => "WRITE_VAR",
        0x1a => "REQ_DOWNLOAD",
        0x1b => "DOWNLOAD",
        0x1c => "END_DOWNLOAD",
        0x1d => "START_UPLOAD",
        0x1e => "UPLOAD",
        0x1f => "END_UPLOAD",
        0x28 => "PI_SERVICE",
        0x29 => "PLC_STOP",
        0xf0 => "SETUP",
        other => return Word::new(format!("FUNCTION_{other:02X}").as_bytes()),
    };
    Word::new(name.as_bytes())
}

/// The area of an address, with the block's number where it has one.
fn area(item: &[u8]) -> String {
    // A specification of a variable: its length, its syntax, size, count, block, area.
    let &[0x12, _, syntax, _, _, _, high, low, area, ..] = item else { return String::new() };
    let block = u16::from_be_bytes([high, low]);
    if syntax != 0x10 {
        return "symbol".to_owned();
    }
    match area {
        0x03 => "SYSTEM".to_owned(),
        0x1c | 0x1e => "C".to_owned(),
        0x1d | 0x1f => "T".to_owned(),
        0x80 => "P".to_owned(),
        0x81 => "I".to_owned(),
        0x82 => "Q".to_owned(),
        0x83 => "M".to_owned(),
        0x84 => format!("DB{block}"),
        0x85 => format!("DI{block}"),
        0x86 | 0x87 => "L".to_owned(),
        other => format!("area {other:02X}"),
    }
}

/// The areas that a job reads or writes: the first, and whether there are others.
pub(super) fn areas(function: u8, parameters: &[u8]) -> String {
    if !matches!(function, READ | WRITE) {
        return String::new();
    }
    let mut rest = parameters.get(2..).unwrap_or_default();
    let mut first = area(rest);
    while let [0x12, length, behind @ ..] = rest {
        if usize::from(*length) >= ADDRESS - 2 && area(rest) != first {
            first.push('+');
            break;
        }
        rest = behind.get(usize::from(*length)..).unwrap_or_default();
    }
    first
}

/// The kind of user data, and what names them: the group and the function in it. Kinds are what is told, asked and answered.
fn user_data(parameters: &[u8]) -> Option<(u8, Word)> {
    let &[0, 1, 0x12, _, _, kind, function, ..] = parameters else { return None };
    let name = match (kind & 15, function) {
        (1, _) => "PROGRAMMER",
        (2, _) => "CYCLIC",
        (3, 1) => "BLOCK_LIST",
        (3, 2) => "BLOCKS_OF_TYPE",
        (3, 3) => "BLOCK_INFO",
        (4, 1) => "READ_SZL",
        (4, 2) => "SUBSCRIBE",
        (5, 1) => "PASSWORD",
        (7, 1) => "READ_CLOCK",
        (7, 2) => "SET_CLOCK",
        (group, function) => {
            return Some((kind >> 4, Word::new(format!("USER_{group}/{function}").as_bytes())));
        }
    };
    Some((kind >> 4, Word::new(name.as_bytes())))
}

/// The operation of user data that ask.
pub(super) fn asked(parameters: &[u8]) -> Option<Word> {
    user_data(parameters).filter(|&(kind, _)| kind == 4).map(|(_, name)| name)
}

/// The operation of user data that answer.
pub(super) fn answered(parameters: &[u8]) -> Option<Word> {
    user_data(parameters).filter(|&(kind, _)| kind == 8).map(|(_, name)| name)
}

pub(super) fn status_of_user_data(parameters: &[u8]) -> Status {
    match parameters.get(10..12) {
        Some(&[class, code]) if (class, code) != (0, 0) => error([class, code]),
        _ => Status::Good,
    }
}

/// The status of an error's class and code.
pub(super) fn error([class, code]: [u8; 2]) -> Status {
    let name = match class {
        0x83 => "NO_RESOURCES".to_owned(),
        0x85 => "SUPPLIES".to_owned(),
        _ => format!("ERROR_{class:02X}{code:02X}"),
    };
    Status::Error(Word::new(name.as_bytes()))
}

/// The status that the return codes of items state.
pub(super) fn items(parameters: &[u8], data: &[u8]) -> Status {
    let &[function @ (READ | WRITE), count, ..] = parameters else { return Status::Good };
    let mut rest = data;
    for _ in 0..count {
        let Some(&code) = rest.first() else { break };
        if code != 0xff {
            return item(code);
        }
        let used = if function == WRITE { 1 } else { item_bytes(rest) };
        rest = rest.get(used..).unwrap_or_default();
    }
    Status::Good
}

/// Bytes of an item that was read, which an even number of bytes follows.
fn item_bytes(item: &[u8]) -> usize {
    let &[_, size, high, low, ..] = item else { return item.len().max(1) };
    let length = usize::from(u16::from_be_bytes([high, low]));
    // Some sizes count bits.
    let length = if matches!(size, 3..=5) { length.div_ceil(8) } else { length };
    4 + length + length % 2
}

fn item(code: u8) -> Status {
    let name = match code {
        1 => "HARDWARE_FAULT",
        3 => "ACCESS_DENIED",
        5 => "BAD_ADDRESS",
        6 => "BAD_TYPE",
        7 => "TYPE_MISMATCH",
        10 => "NO_OBJECT",
        other => return Status::Error(Word::new(format!("ITEM_{other:02X}").as_bytes())),
    };
    Status::Error(Word::new(name.as_bytes()))
}
