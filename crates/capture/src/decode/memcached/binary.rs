//! memcached's binary protocol. An answer carries its request's opcode; that of a quiet one comes only if there is something to say.

use record::{Side, Status, Word};

use crate::decode::{Length, Of, Requests};

/// Bytes of a header.
const HEADER: usize = 24;
/// First bytes of requests and of answers.
const MAGIC: [u8; 2] = [0x80, 0x81];
/// Longest message: a value of 1 GiB with its key.
const BODY_MAX: u32 = (1 << 30) + (1 << 16);
/// Longest key.
const KEY_MAX: usize = 250;

/// The operations' names by their opcodes. Those of SASL follow at 0x20.
const NAMES: [&str; 0x25] = [
    "get",
    "set",
    "add",
    "replace",
    "delete",
    "incr",
    "decr",
    "quit",
    "flush",
    "getq",
    "noop",
    "version",
    "getk",
    "getkq",
    "append",
    "prepend",
    "stat",
    "setq",
    "addq",
    "replaceq",
    "deleteq",
    "incrq",
    "decrq",
    "quitq",
    "flushq",
    "appendq",
    "prependq",
    "verbosity",
    "touch",
    "gat",
    "gatq",
    "hello",
    "sasl_list",
    "sasl_auth",
    "sasl_step",
    "gatk",
    "gatkq",
];

/// What a request asks for.
pub(super) struct Request<'a> {
    pub(super) operation: Word,
    pub(super) key: &'a [u8],
    /// It is answered only with a value.
    pub(super) is_optional: bool,
    /// It is answered only if it fails.
    pub(super) is_silent: bool,
}

/// A header's fields.
struct Header {
    opcode: u8,
    extras: usize,
    key: usize,
    status: u16,
    body: u32,
}

/// The header that a message of the side begins with.
fn header(side: Side, bytes: &[u8]) -> Option<Header> {
    let &[magic, opcode, k0, k1, extras, kind, s0, s1, b0, b1, b2, b3, ..] = bytes else { return None };
    let header = Header {
        opcode,
        extras: usize::from(extras),
        key: usize::from(u16::from_be_bytes([k0, k1])),
        status: u16::from_be_bytes([s0, s1]),
        body: u32::from_be_bytes([b0, b1, b2, b3]),
    };
    let is_whole = header.body <= BODY_MAX && (header.extras + header.key) as u64 <= u64::from(header.body);
    (magic == MAGIC[side as usize] && kind == 0 && header.key <= KEY_MAX && is_whole).then_some(header)
}

/// Whether a message of the side begins with these bytes: its lengths are those of its operation.
pub(super) fn begins(side: Side, bytes: &[u8]) -> bool {
    let Some(header) = header(side, bytes).filter(|_| bytes.len() >= HEADER) else { return false };
    let Some(name) = NAMES.get(usize::from(header.opcode)) else { return false };
    let (extras, has_key) = match name.trim_end_matches('q') {
        "set" | "add" | "replace" => (8, true),
        "incr" | "decr" => (20, true),
        "get" | "getk" | "delete" | "append" | "prepend" => (0, true),
        "touch" | "gat" | "gatk" => (4, true),
        "noop" | "version" | "quit" | "sasl_list" => (0, false),
        _ => return false,
    };
    match side {
        Side::Client => {
            let has_value =
                matches!(name.trim_end_matches('q'), "set" | "add" | "replace" | "append" | "prepend");
            let rest = header.body as usize - header.extras - header.key;
            header.extras == extras && (header.key > 0) == has_key && (has_value || rest == 0)
        }
        // An answer has the flags of the value, or nothing.
        Side::Server => {
            header.status <= 0x86 && matches!(header.extras, 0 | 4) && (has_key || header.key == 0)
        }
    }
}

/// How long the message is.
pub(super) fn length(side: Side, start: &[u8]) -> Length {
    match header(side, start) {
        Some(header) => Length::Is(HEADER as u64 + u64::from(header.body)),
        None if start.len() < HEADER / 2 && start.first() == MAGIC.get(side as usize) => Length::More,
        None => Length::Invalid,
    }
}

fn name(opcode: u8) -> Word {
    match NAMES.get(usize::from(opcode)) {
        Some(name) => Word::new(name.as_bytes()),
        None => Word::new(format!("0x{opcode:02x}").as_bytes()),
    }
}

/// What a request asks for.
pub(super) fn asked(bytes: &[u8]) -> Option<Request<'_>> {
    let header = header(Side::Client, bytes)?;
    let key = bytes.get(HEADER + header.extras..).unwrap_or_default();
    Some(Request {
        operation: name(header.opcode),
        key: key.get(..header.key.min(key.len())).unwrap_or_default(),
        is_optional: matches!(header.opcode, 0x09 | 0x0d | 0x1e | 0x24),
        is_silent: matches!(header.opcode, 0x11..=0x1a),
    })
}

/// Processes an answer.
pub(super) fn answer(bytes: &[u8], requests: &mut Requests) {
    let Some(header) = header(Side::Server, bytes) else { return };
    let operation = name(header.opcode);
    // Statistics come one by one; the last has no name.
    let is_part = operation.as_str() == "stat" && header.key > 0 && header.status == 0;
    if !requests.skip_to(|command, _| command == operation.as_str()) {
        if !is_part {
            requests.answered_none();
        }
        return;
    }
    requests.answer(Of::Order);
    if !is_part {
        requests.answered(Of::Order, status(&header));
    }
}

/// The status of an answer. Misses are none, as in the text protocol.
fn status(header: &Header) -> Status {
    let is_retrieval = matches!(header.opcode, 0x00 | 0x09 | 0x0c | 0x0d | 0x1d | 0x1e | 0x23 | 0x24);
    let name = match header.status {
        // 0x21: a log-in goes on.
        0 | 0x21 => return Status::Good,
        1 if is_retrieval => return Status::Good,
        1 => "NOT_FOUND",
        2 => "EXISTS",
        3 => "TOO_LARGE",
        5 => "NOT_STORED",
        0x82 => "OOM",
        0x85 => "BUSY",
        0x84 | 0x86 => "SERVER_ERROR",
        other => return Status::Code(u32::from(other)),
    };
    Status::Error(Word::new(name.as_bytes()))
}
