//! SMB 2 and 3 (MS-SMB2) over TCP: requests and responses, paired by their message numbers.
//!
//! A frame holds one message or a chain of them, each of which is a request or a response of its own. A response that only says that
//! the request is pending is none. A cancel has no answer, and what the server sends of its own (a broken oplock) is no answer.
//! Notifications of changes wait for events, and so do locks whose response is pending. The key is the file's name as it was opened,
//! with numbers and identifiers folded as in paths of HTTP; requests by file number have that of their CREATE. The status is that of NT.
//!
//! What is encrypted cannot be read: the rest of the connection is followed as turns. Of compressed messages the header is read where it
//! stands before what is compressed. SMB 1 is followed as turns behind its negotiation, unless that agrees on SMB 2.

mod header;
mod names;
mod opens;
mod status;

use std::sync::Arc;

use record::{Side, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use header::{Header, Kind};
use opens::Opens;

/// SMB, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "smb", begins, new: |shown| Box::new(Smb { shown, ..Smb::default() }) };

/// The port of sessions over NetBIOS.
const NETBIOS_PORT: u16 = 139;
/// Bytes that are kept of a message: a header, and a CREATE with the name that is shown.
const KEPT: usize = 1024;
/// The number of what the server sends of its own.
const OF_SERVER: u64 = u64::MAX;

/// A connection.
#[derive(Debug, Default)]
struct Smb {
    shown: Shown,
    /// Bytes of each side's frame behind the messages of its chain so far.
    left: [u64; 2],
    /// The file that the chain at hand is about.
    chained: Chained,
    opens: Opens,
    /// What follows cannot be read, and is called so.
    ended: Option<&'static str>,
}

/// What earlier requests of a chain are about.
#[derive(Debug, Default)]
struct Chained {
    key: Option<Arc<str>>,
    /// The CREATE that opens it.
    create: Option<u64>,
}

/// Whether the bytes begin frames of the side, as far as they are there.
fn are_frames(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_proved = false;
    while rest.len() >= header::FRAME + header::LENGTH {
        let Some(length) = header::frame(rest) else { return false };
        let message = rest.get(header::FRAME..).unwrap_or_default();
        let message = message.get(..length).unwrap_or(message);
        match Header::read(message) {
            Some(header) if header.is_sound(side, message, length) => is_proved = true,
            _ => return false,
        }
        rest = rest.get(header::FRAME + length..).unwrap_or_default();
    }
    is_proved
}

fn begins(start: &Start<'_>) -> bool {
    let message = start.bytes.get(header::FRAME..).unwrap_or_default();
    let negotiates = || {
        start.side == Side::Client
            && header::frame(start.bytes) == Some(message.len())
            && header::negotiates_from_smb_1(message)
    };
    let opens_session = || {
        start.is_at(NETBIOS_PORT)
            && start.side == Side::Client
            && start.is_first
            && start.bytes.starts_with(&[header::SESSION_REQUEST, 0, 0, 68, 32])
    };
    are_frames(start.side, start.bytes) || negotiates() || opens_session()
}

impl Decoder for Smb {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        let left = self.left[side as usize];
        let (prefix, length) = match (left, header::frame(start)) {
            (0, Some(length)) => (header::FRAME, length as u64),
            (0, None) if start.len() < header::FRAME => return Length::More,
            (0, None) => return header::session(start).map_or(Length::Invalid, Length::Is),
            (left, _) => (0, left),
        };
        let message = start.get(prefix..).unwrap_or_default();
        let whole = Length::Is(prefix as u64 + length);
        match header::kind(message) {
            None if message.len() < header::MAGIC => Length::More,
            Some(Kind::Encrypted | Kind::Compressed) => whole,
            Some(Kind::Smb1) if message.len() < header::SMB_1 => Length::More,
            Some(Kind::Smb1) if header::is_negotiation(message) => whole,
            // SMB 1 behind the negotiation is another protocol.
            Some(Kind::Smb1) | None => Length::Invalid,
            Some(Kind::Smb2) if message.len() < header::LENGTH => Length::More,
            Some(Kind::Smb2) => match Header::read(message) {
                Some(header) if header.is_of(side) && header.fits(length) => {
                    let own = if header.next == 0 { length } else { u64::from(header.next) };
                    Length::Is(prefix as u64 + own)
                }
                _ => Length::Invalid,
            },
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let left = &mut self.left[message.side as usize];
        let is_first = *left == 0;
        let mut bytes = message.bytes;
        if is_first {
            let Some(length) = header::frame(bytes) else { return };
            *left = header::FRAME as u64 + length as u64;
            bytes = bytes.get(header::FRAME..).unwrap_or_default();
        }
        *left = left.saturating_sub(message.length);
        match header::kind(bytes) {
            Some(Kind::Smb2) => self.passes(message.side, is_first, bytes, requests),
            Some(Kind::Encrypted) => self.ended = Some("encrypted SMB"),
            Some(Kind::Compressed) => match header::before_compressed(bytes) {
                Some(bytes) => self.passes(message.side, is_first, bytes, requests),
                // It may be the answer to any of them.
                None if message.side == Side::Server => requests.excuse_all(),
                None => {}
            },
            Some(Kind::Smb1) => self.negotiates(message.side, bytes, requests),
            None => {}
        }
    }

    fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    fn encrypted(&self) -> Option<&'static str> {
        self.ended
    }

    fn kept(&self) -> usize {
        KEPT
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_frames(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        self.left[side as usize] = 0;
        match side {
            Side::Client => requests.lost_numbered_requests(),
            Side::Server => {
                self.opens.forget_creates();
                requests.lost_numbered_answers(|_| false);
            }
        }
    }
}

impl Smb {
    /// A message of SMB 2.
    fn passes(&mut self, side: Side, is_first: bool, bytes: &[u8], requests: &mut Requests) {
        let Some(header) = Header::read(bytes).filter(|header| header.is_of(side)) else { return };
        match side {
            Side::Client => {
                if is_first {
                    self.chained = Chained::default();
                }
                self.request(&header, bytes, requests);
            }
            Side::Server if header.id != OF_SERVER => self.response(&header, bytes, requests),
            Side::Server => {}
        }
    }

    /// A negotiation of SMB 1, which may lead to SMB 2.
    fn negotiates(&mut self, side: Side, bytes: &[u8], requests: &mut Requests) {
        let of = Of::Id(0);
        if side == Side::Client {
            requests.ask(of, &Asked::only(names::command(names::NEGOTIATE)));
            requests.asked(of);
        } else {
            requests.answer(of);
            requests.answered(of, status::of(header::status_of_smb_1(bytes)));
            self.ended = Some("SMB");
        }
    }

    fn request(&mut self, header: &Header, bytes: &[u8], requests: &mut Requests) {
        if header.command == names::CANCEL {
            return;
        }
        let key = self.key(header, bytes);
        let of = Of::Id(header.id);
        let operation = names::command(header.command);
        requests.ask(of, &Asked { operation, key: key.as_deref().unwrap_or_default(), stream: 0 });
        requests.asked(of);
        if header.command == names::CHANGE_NOTIFY {
            requests.awaits_event(of, true);
            // It is in flight as long as nothing changes.
            requests.excuse(of);
        }
    }

    /// What a request is about.
    fn key(&mut self, header: &Header, bytes: &[u8]) -> Option<Arc<str>> {
        match header.command {
            names::TREE_CONNECT => Some(names::share(bytes, self.shown).into()),
            names::CREATE => {
                let key = self.opens.shared(names::file(bytes, self.shown));
                self.opens.create(header.id, Arc::clone(&key));
                self.chained = Chained { key: Some(Arc::clone(&key)), create: Some(header.id) };
                Some(key)
            }
            command => {
                let file = names::file_number(command, bytes)?;
                let is_chained = header.is_related && file == opens::CHAINED;
                if !is_chained {
                    let key = self.opens.key(&file);
                    self.chained = Chained { key, create: None };
                }
                if command == names::CLOSE {
                    match self.chained.create.filter(|_| is_chained) {
                        Some(create) => self.opens.forget_create(create),
                        None => self.opens.close(&file),
                    }
                }
                self.chained.key.clone()
            }
        }
    }

    fn response(&mut self, header: &Header, bytes: &[u8], requests: &mut Requests) {
        let of = Of::Id(header.id);
        if header.status == status::PENDING {
            if requests.operation(of) == Some(names::command(names::LOCK)) {
                // Others hold the lock.
                requests.awaits_event(of, true);
            }
            return;
        }
        if header.command == names::CREATE {
            self.opens.created(header.id, names::created(header.status, bytes));
        }
        requests.answer(of);
        requests.answered(of, status::of(header.status));
    }
}

/// A name of the protocol's.
fn word(text: &str) -> Word {
    Word::new(text.as_bytes())
}

#[cfg(test)]
mod tests;
