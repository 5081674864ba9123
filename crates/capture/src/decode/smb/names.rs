//! Names of commands, and what their messages say of files (MS-SMB2 2.2).

use record::Word;

use super::header::{self, u16_at};
use super::opens::Number;
use super::word;
use crate::decode::Shown;
use crate::http::path::Path;

pub(super) const NEGOTIATE: u16 = 0x00;
pub(super) const TREE_CONNECT: u16 = 0x03;
pub(super) const CREATE: u16 = 0x05;
pub(super) const CLOSE: u16 = 0x06;
const FLUSH: u16 = 0x07;
const READ: u16 = 0x08;
const WRITE: u16 = 0x09;
pub(super) const LOCK: u16 = 0x0a;
const IOCTL: u16 = 0x0b;
pub(super) const CANCEL: u16 = 0x0c;
const QUERY_DIRECTORY: u16 = 0x0e;
pub(super) const CHANGE_NOTIFY: u16 = 0x0f;
const QUERY_INFO: u16 = 0x10;
const SET_INFO: u16 = 0x11;

const COMMANDS: [&str; 20] = [
    "NEGOTIATE",
    "SESSION_SETUP",
    "LOGOFF",
    "TREE_CONNECT",
    "TREE_DISCONNECT",
    "CREATE",
    "CLOSE",
    "FLUSH",
    "READ",
    "WRITE",
    "LOCK",
    "IOCTL",
    "CANCEL",
    "ECHO",
    "QUERY_DIRECTORY",
    "CHANGE_NOTIFY",
    "QUERY_INFO",
    "SET_INFO",
    "OPLOCK_BREAK",
    "NOTIFICATION",
];

/// The name of a command.
pub(super) fn command(number: u16) -> Word {
    word(COMMANDS.get(usize::from(number)).copied().unwrap_or("unknown"))
}

/// Where in a request's body the number of its file is.
fn place_of_file(command: u16) -> Option<usize> {
    match command {
        CLOSE | FLUSH | LOCK | IOCTL | QUERY_DIRECTORY | CHANGE_NOTIFY => Some(8),
        READ | WRITE | SET_INFO => Some(16),
        QUERY_INFO => Some(24),
        _ => None,
    }
}

/// The file that a request is about.
pub(super) fn file_number(command: u16, request: &[u8]) -> Option<Number> {
    let place = header::LENGTH + place_of_file(command)?;
    request.get(place..)?.first_chunk().copied()
}

/// The file that a CREATE has opened.
pub(super) fn created(status: u32, response: &[u8]) -> Option<Number> {
    // Warnings open files, too.
    (status >> 30 != 3).then(|| response.get(header::LENGTH + 64..)?.first_chunk().copied()).flatten()
}

/// A text, with its offset in the message and its length at a place in the body: as much as is there, `/` for each backslash.
fn text(request: &[u8], place: usize) -> String {
    let field = |at: usize| u16_at(request, header::LENGTH + at).map(usize::from);
    let bytes = field(place).zip(field(place + 2)).and_then(|(from, length)| {
        let rest = request.get(from..).filter(|_| from >= header::LENGTH)?;
        rest.get(..length.min(rest.len()))
    });
    let (units, _) = bytes.unwrap_or_default().as_chunks::<2>();
    let units = units.iter().map(|unit| u16::from_le_bytes(*unit));
    let letters = char::decode_utf16(units).map(|letter| letter.unwrap_or(char::REPLACEMENT_CHARACTER));
    letters.map(|letter| if letter == '\\' { '/' } else { letter }).collect()
}

fn shown(path: &str, shown: Shown) -> String {
    if shown.verbatim {
        return Path::verbatim(path.as_bytes()).text().to_owned();
    }
    // Of files, also those of few digits are many.
    let (mut folded, mut is_number) = (String::new(), false);
    for letter in Path::of(path.as_bytes()).text().chars() {
        if !letter.is_ascii_digit() {
            folded.push(letter);
        } else if !is_number {
            folded.push_str(":n");
        }
        is_number = letter.is_ascii_digit();
    }
    folded
}

/// The key of a CREATE: the file's path in its share.
pub(super) fn file(request: &[u8], how: Shown) -> String {
    let name = text(request, 44);
    shown(&format!("/{}", name.trim_start_matches('/')), how)
}

/// The key of a TREE_CONNECT: the share, without its server.
pub(super) fn share(request: &[u8], how: Shown) -> String {
    let path = text(request, 4);
    let share = path.trim_start_matches('/').split('/').nth(1).unwrap_or_default();
    shown(&format!("/{share}"), how)
}
