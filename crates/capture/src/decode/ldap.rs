//! LDAP (RFC 4511): requests and responses, paired by their message numbers.
//!
//! A search is answered by its entries, its references and the result that ends it. An unbind and an abandon have no answer, and what
//! the client abandons has none either. A search whose controls let it go on for changes (RFC 3928, RFC 4533 and what came before)
//! waits for events. The key is the name of the entry that a request is about, see [`names::key`], and a search's scope; for a bind with
//! SASL it is the mechanism. The status is the result's name. An extended operation has its own name if it is a known one; behind
//! StartTLS the protocol goes on in TLS. Behind a bind with SASL that protects what follows, nothing can be read: the rest of the
//! connection is followed as turns.

mod ber;
mod names;

use record::{Side, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};
use ber::Ber;

/// LDAP, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "ldap", begins, new: |shown| Box::new(Ldap { shown, ..Ldap::default() }) };

/// Bytes that are kept of a message: the names of a request, and the controls behind a filter.
const KEPT: usize = 4096;
/// Longest message: an entry with pictures.
const MESSAGE_MAX: usize = 64 << 20;
/// Longest buffer of SASL's protection (RFC 4422 3.7), which states its length in four bytes.
const SEALED_MAX: u32 = 1 << 24;

/// Tags of the operations (RFC 4511 4.2 to 4.14).
const BIND: u8 = 0x60;
const BOUND: u8 = 0x61;
const UNBIND: u8 = 0x42;
const SEARCH: u8 = 0x63;
const ENTRY_FOUND: u8 = 0x64;
const DONE: u8 = 0x65;
const MODIFY: u8 = 0x66;
const MODIFIED: u8 = 0x67;
const ADD: u8 = 0x68;
const ADDED: u8 = 0x69;
const DELETE: u8 = 0x4a;
const DELETED: u8 = 0x6b;
const RENAME: u8 = 0x6c;
const RENAMED: u8 = 0x6d;
const COMPARE: u8 = 0x6e;
const COMPARED: u8 = 0x6f;
const ABANDON: u8 = 0x50;
const REFERENCE: u8 = 0x73;
const EXTENDED: u8 = 0x77;
const EXTENDED_DONE: u8 = 0x78;
const INTERMEDIATE: u8 = 0x79;
/// What follows an operation.
const CONTROLS: u8 = 0xa0;
/// How a bind proves who binds: a password, or SASL.
const PASSWORD: u8 = 0x80;
const SASL: u8 = 0xa3;

/// A connection.
#[derive(Debug, Default)]
struct Ldap {
    shown: Shown,
    /// The request to begin TLS, and the bind with SASL, whose answers are awaited.
    start_tls: Option<u32>,
    sasl: Option<u32>,
    /// A bind with SASL has succeeded, which may protect what follows.
    may_be_sealed: bool,
    is_sealed: bool,
    has_ended: bool,
}

/// A message: its number, its operation, and what is there of the operation's content and of what follows it.
struct Envelope<'a> {
    id: u32,
    tag: u8,
    content: Ber<'a>,
    controls: Ber<'a>,
}

/// The message that a side sends, of which the first bytes are given.
fn envelope(side: Side, bytes: &[u8]) -> Option<Envelope<'_>> {
    let mut inside = Ber(bytes).open(ber::SEQUENCE)?;
    let id = inside.number(ber::INTEGER)?;
    let (tag, content) = inside.next()?;
    let is_own = match side {
        Side::Client => {
            matches!(
                tag,
                BIND | UNBIND | SEARCH | MODIFY | ADD | DELETE | RENAME | COMPARE | ABANDON | EXTENDED
            )
        }
        Side::Server => matches!(
            tag,
            BOUND
                | ENTRY_FOUND
                | DONE
                | MODIFIED
                | ADDED
                | DELETED
                | RENAMED
                | COMPARED
                | REFERENCE
                | EXTENDED_DONE
                | INTERMEDIATE
        ),
    };
    is_own.then_some(Envelope { id, tag, content, controls: inside })
}

/// Whether the content of an operation begins as it must, as far as it is there; unlike an [`envelope`], what was cut is none.
fn is_sound(envelope: &Envelope<'_>) -> bool {
    let mut content = envelope.content;
    let is = match envelope.tag {
        BIND => {
            let version = content.number(ber::INTEGER);
            content.text().is_some()
                && matches!(version, Some(1..=3))
                && matches!(content.next(), Some((PASSWORD | SASL | 0x89..=0x8b, _)))
        }
        UNBIND => return content.0.is_empty() && envelope.controls.0.is_empty(),
        SEARCH => {
            content.text().is_some()
                && matches!(content.number(ber::ENUMERATED), Some(0..=3))
                && matches!(content.number(ber::ENUMERATED), Some(0..=3))
                && content.number(ber::INTEGER).is_some()
                && content.number(ber::INTEGER).is_some()
                && matches!(content.next(), Some((ber::BOOLEAN, _)))
        }
        ENTRY_FOUND | MODIFY | ADD | COMPARE => {
            content.text().is_some() && matches!(content.next(), Some((ber::SEQUENCE, _)))
        }
        RENAME => {
            content.text().is_some()
                && content.text().is_some()
                && matches!(content.next(), Some((ber::BOOLEAN, _)))
        }
        DELETE => content.0.contains(&b'='),
        ABANDON => return (1..=4).contains(&content.0.len()) && envelope.controls.0.is_empty(),
        EXTENDED | INTERMEDIATE => {
            content.next().is_some_and(|(tag, name)| tag == names::EXTENSION && names::is_oid(name.0))
        }
        REFERENCE => content.text().is_some_and(|text| text.starts_with(b"ldap")),
        // Results.
        _ => {
            content.number(ber::ENUMERATED).is_some_and(|code| code < 1 << 16)
                && content.text().is_some()
                && content.text().is_some()
        }
    };
    is && matches!(envelope.controls.0.first(), None | Some(&CONTROLS))
}

/// Whether the bytes begin messages of the side, as far as they are there.
fn are_messages(side: Side, bytes: &[u8]) -> bool {
    let mut rest = bytes;
    let mut is_proved = false;
    while !rest.is_empty() {
        let Some((ber::SEQUENCE, header, length)) = ber::header(rest) else {
            return is_proved && rest.len() < 6;
        };
        let Some(envelope) = envelope(side, rest) else { return is_proved && rest.len() < 12 };
        if length > MESSAGE_MAX {
            return false;
        }
        let behind = header.checked_add(length).and_then(|end| rest.get(end..));
        let is_short = behind.is_none() && rest.len() < 32;
        if !is_sound(&envelope) {
            return is_proved && is_short;
        }
        // These are so short that others may begin like them.
        is_proved |= !matches!(envelope.tag, UNBIND | ABANDON) || behind.is_some_and(<[u8]>::is_empty);
        rest = behind.unwrap_or_default();
    }
    is_proved
}

fn begins(start: &Start<'_>) -> bool {
    let is_first = matches!(envelope(start.side, start.bytes), Some(Envelope { tag: UNBIND | ABANDON, .. }));
    !is_first && are_messages(start.side, start.bytes)
}

impl Decoder for Ldap {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if self.may_be_sealed && start.first() != Some(&ber::SEQUENCE) {
            let Some(length) = start.first_chunk().map(|length| u32::from_be_bytes(*length)) else {
                return Length::More;
            };
            self.is_sealed = (1..SEALED_MAX).contains(&length);
            return if self.is_sealed { Length::Is(4 + u64::from(length)) } else { Length::Invalid };
        }
        let (tag, header, length) = match ber::header(start) {
            Some(header) => header,
            None if start.len() < 6 && start.first() == Some(&ber::SEQUENCE) => return Length::More,
            None => return Length::Invalid,
        };
        if tag != ber::SEQUENCE || !(5..=MESSAGE_MAX).contains(&length) {
            return Length::Invalid;
        }
        match envelope(side, start) {
            Some(_) => Length::Is((header + length) as u64),
            // The number and the header of the operation.
            None if start.len() < header + 12.min(length) => Length::More,
            None => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        if self.is_sealed {
            self.has_ended = true;
            return;
        }
        let Some(envelope) = envelope(message.side, message.bytes) else { return };
        match message.side {
            Side::Client => self.request(&envelope, requests),
            Side::Server => self.response(&envelope, requests),
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn encrypted(&self) -> Option<&'static str> {
        self.is_sealed.then_some("encrypted LDAP")
    }

    fn secured(&mut self) {
        *self = Self { shown: self.shown, ..Self::default() };
    }

    fn kept(&self) -> usize {
        KEPT
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        are_messages(side, start)
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        match side {
            Side::Client => requests.lost_numbered_requests(),
            Side::Server => {
                (self.start_tls, self.sasl) = (None, None);
                // Extended operations may have intermediate answers.
                let is_one = |operation: &str| {
                    matches!(operation, "Bind" | "Modify" | "Add" | "Delete" | "ModifyDN" | "Compare")
                };
                requests.lost_parts_of_answers(|operation| !is_one(operation));
            }
        }
    }
}

impl Ldap {
    fn request(&mut self, envelope: &Envelope<'_>, requests: &mut Requests) {
        let &Envelope { id, tag, mut content, controls } = envelope;
        let of = Of::Id(id.into());
        let key = |name: Option<&[u8]>| names::key(name.unwrap_or_default(), self.shown);
        let (operation, key) = match tag {
            // Nothing that is in flight is answered any more.
            UNBIND => return requests.excuse_all(),
            ABANDON => {
                if let Some(id) = ber::number(content.0) {
                    requests.forget(Of::Id(id.into()));
                }
                return;
            }
            BIND => {
                content.number(ber::INTEGER);
                let name = content.text();
                match content.next() {
                    Some((SASL, mut credentials)) => {
                        self.sasl = Some(id);
                        ("Bind", names::mechanism(credentials.text().unwrap_or_default()))
                    }
                    _ => ("Bind", key(name)),
                }
            }
            SEARCH => {
                let base = key(content.text());
                ("Search", base + names::scope(content.number(ber::ENUMERATED)))
            }
            MODIFY => ("Modify", key(content.text())),
            ADD => ("Add", key(content.text())),
            DELETE => ("Delete", key(Some(content.0))),
            RENAME => ("ModifyDN", key(content.text())),
            COMPARE => ("Compare", key(content.text())),
            _ => names::extension(content.next().map_or(&[], |(_, name)| name.0)),
        };
        if operation == names::START_TLS {
            self.start_tls = Some(id);
        }
        requests.ask(of, &Asked { operation: Word::new(operation.as_bytes()), key: &key, stream: 0 });
        requests.asked(of);
        if tag == SEARCH && names::awaits_event(controls) {
            requests.awaits_event(of, true);
            // It has no end.
            requests.excuse(of);
        }
    }

    fn response(&mut self, envelope: &Envelope<'_>, requests: &mut Requests) {
        let &Envelope { id, tag, mut content, .. } = envelope;
        if id == 0 {
            // The server says that it disconnects.
            return;
        }
        let of = Of::Id(id.into());
        requests.answer(of);
        if matches!(tag, ENTRY_FOUND | REFERENCE | INTERMEDIATE) {
            return;
        }
        let code = content.number(ber::ENUMERATED);
        if tag == EXTENDED_DONE && self.start_tls == Some(id) {
            self.start_tls = None;
            self.has_ended = code == Some(0);
        }
        if tag == BOUND && self.sasl == Some(id) {
            self.sasl = None;
            self.may_be_sealed = code == Some(0);
        }
        requests.answered(of, code.map_or(Status::Unknown, names::status));
    }
}

#[cfg(test)]
mod tests;
