//! The keys of a connection that is decrypted, and which of them a record is of.
//!
//! Records carry no number. Behind a hole the next numbers are tried, and the keys that may follow: the tag tells which are right.

use record::Side;

use super::cipher::Epoch;
use super::hello::{ClientHello, ServerHello};
use super::keys::{Keys, Label, Resumed, Secret};
use super::suite::{Suite, suite};

/// Most records that a hole may hide: more is not searched for.
const SKIPPED_MAX: u64 = 4096;
/// Most bytes of records that are tried on one connection and are none: about a tenth of a second.
const TRIED_MAX: u64 = 64 << 20;
/// Bytes of the smallest record beyond its protection: a header and one byte.
const SMALLEST: u64 = 5 + 1;

/// Why a connection is not decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotClear {
    NoSecret,
    Suite(u16),
}

/// One side's keys.
#[derive(Debug, Default)]
struct Half {
    now: Option<Epoch>,
    /// Number of the next record.
    number: u64,
    /// TLS 1.3: the secret behind the handshake. TLS 1.2: the keys behind the change of ciphers.
    next_secret: Option<Secret>,
    pending: Option<Epoch>,
    /// So many records may have passed unseen, and with them a change of keys.
    unseen: Option<u64>,
    is_proved: bool,
}

/// The keys of both sides.
#[derive(Debug)]
pub(super) struct Clear {
    pub(super) suite: Suite,
    halves: [Half; 2],
    /// Of TLS 1.2, for sessions that are resumed.
    master: Option<Secret>,
    tried: u64,
}

/// A record that was decrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Opened {
    /// The type of its content.
    pub(super) kind: u8,
    /// Records before it that were not seen, if their number is known.
    pub(super) skipped: Option<u64>,
}

impl Clear {
    /// The keys behind the hellos.
    pub(super) fn new(keys: &Keys, client: &ClientHello, server: &ServerHello) -> Result<Self, NotClear> {
        let suite = suite(server.suite, server.is_13).ok_or(NotClear::Suite(server.suite))?;
        let mut clear = Self { suite, halves: Default::default(), master: None, tried: 0 };
        clear.agree(keys, client, server).ok_or(NotClear::NoSecret)?;
        Ok(clear)
    }

    /// Takes the secrets of these hellos; further ones renegotiate.
    pub(super) fn agree(&mut self, keys: &Keys, client: &ClientHello, server: &ServerHello) -> Option<()> {
        let find = |label| keys.find(&client.random, label);
        if server.is_13 {
            let labels = [[Label::ClientHandshake, Label::Client], [Label::ServerHandshake, Label::Server]];
            for (half, [handshake, then]) in self.halves.iter_mut().zip(labels) {
                let now = Epoch::tls13(self.suite, &find(handshake)?)?;
                let next_secret = Some(find(then)?);
                *half = Half { now: Some(now), next_secret, ..Half::default() };
            }
            return Some(());
        }
        // A server that goes on with a session repeats its identifier, which a client with a ticket makes up.
        let goes_on = client.session.is_some() && client.session == server.session;
        let resumed = || {
            let ticket = client.ticket.and_then(|ticket| keys.resumed(ticket));
            ticket.or_else(|| keys.resumed(client.session?)).filter(|_| goes_on)
        };
        let (master, suite) = (find(Label::Master).or_else(resumed)?, suite(server.suite, false)?);
        // One that goes on is known, or is a client's own beside a ticket.
        server.session.filter(|_| !goes_on).iter().for_each(|&session| keys.keep(session, &master));
        let randoms = [&client.random, &server.random];
        for (half, side) in self.halves.iter_mut().zip([Side::Client, Side::Server]) {
            half.pending = Some(Epoch::tls12(suite, &master, randoms, side)?);
        }
        self.master = Some(master);
        Some(())
    }

    /// The server has issued a ticket by which the session may be resumed (TLS 1.2).
    pub(super) fn issued(&self, ticket: Resumed, keys: &Keys) {
        self.master.iter().for_each(|master| keys.keep(ticket, master));
    }

    /// Whether the side's records are protected.
    pub(super) fn is_sealed(&self, side: Side) -> bool {
        self.halves[side as usize].now.is_some()
    }

    /// Whether the side may send application data.
    pub(super) fn is_open(&self, side: Side) -> bool {
        let half = &self.halves[side as usize];
        half.now.is_some() && half.next_secret.is_none()
    }

    /// Whether a record of the side was decrypted.
    pub(super) fn is_proved(&self) -> bool {
        self.halves.iter().any(|half| half.is_proved)
    }

    /// The side changes to what was agreed on (TLS 1.2).
    pub(super) fn change_cipher(&mut self, side: Side) {
        let half = &mut self.halves[side as usize];
        if let Some(pending) = half.pending.take() {
            (half.now, half.number) = (Some(pending), 0);
        }
    }

    /// The side's part of the handshake is over (TLS 1.3).
    pub(super) fn finished(&mut self, side: Side) {
        let half = &mut self.halves[side as usize];
        if let Some(secret) = half.next_secret.take() {
            (half.now, half.number) = (Epoch::tls13(self.suite, &secret), 0);
        }
    }

    /// The side changes to its next keys (TLS 1.3).
    pub(super) fn update(&mut self, side: Side) {
        let half = &mut self.halves[side as usize];
        if half.next_secret.is_none() {
            (half.now, half.number) = (half.now.as_ref().and_then(Epoch::updated), 0);
        }
    }

    /// A record of the side cannot be read: what it was is not known.
    pub(super) fn miss_record(&mut self, side: Side) {
        let half = &mut self.halves[side as usize];
        if half.now.is_some() {
            half.number += 1;
        }
        half.unseen = Some(half.unseen.unwrap_or(0));
    }

    /// A record of the side is none of its next ones.
    pub(super) fn miss_record_unknown(&mut self, side: Side) {
        let half = &mut self.halves[side as usize];
        half.unseen = Some(half.unseen.unwrap_or(0) + 1);
    }

    /// Bytes of the side are missing, and the boundaries in them.
    pub(super) fn miss_bytes(&mut self, side: Side, count: u64) {
        let records = (count / (self.suite.overhead() as u64 + SMALLEST)).saturating_add(1);
        let half = &mut self.halves[side as usize];
        half.unseen = Some(half.unseen.unwrap_or(0).saturating_add(records).min(SKIPPED_MAX));
    }

    /// Whether no more may be tried.
    pub(super) fn is_exhausted(&self) -> bool {
        self.tried >= TRIED_MAX
    }

    /// Decrypts a record into `plain`, if it is one of the side's next ones.
    pub(super) fn open(
        &mut self,
        side: Side,
        kind: u8,
        record: &[u8],
        plain: &mut Vec<u8>,
    ) -> Option<Opened> {
        if self.is_exhausted() {
            return None;
        }
        let suite = self.suite;
        let half = &mut self.halves[side as usize];
        let now = half.now.as_ref();
        if let Some(kind) = now.and_then(|now| now.open(half.number, kind, record, plain)) {
            (half.number, half.unseen, half.is_proved) = (half.number + 1, None, true);
            return Some(Opened { kind, skipped: Some(0) });
        }
        self.tried += record.len() as u64;
        let unseen = half.unseen?;
        let mut tried = 0;
        let mut search = |epoch: &Epoch, from: u64, plain: &mut Vec<u8>| {
            (from..=from.saturating_add(unseen)).find_map(|number| {
                if tried >= TRIED_MAX {
                    return None;
                }
                tried += record.len() as u64;
                Some((number, epoch.open(number, kind, record, plain)?))
            })
        };
        let found = now.and_then(|now| {
            let (number, kind) = search(now, half.number + 1, plain)?;
            Some((None, number, kind, Some(number - half.number)))
        });
        let found = found.or_else(|| {
            let next = match (&half.next_secret, half.pending.take()) {
                (_, Some(pending)) => Some(pending),
                (Some(secret), _) => Epoch::tls13(suite, secret),
                (None, None) => now.and_then(Epoch::updated),
            }?;
            match search(&next, 0, plain) {
                Some((number, kind)) => Some((Some(next), number, kind, None)),
                None => {
                    half.pending = Some(next).filter(|_| !suite.is_13);
                    None
                }
            }
        });
        let Some((next, number, kind, skipped)) = found else {
            self.tried += tried;
            return None;
        };
        if next.is_some() {
            (half.now, half.next_secret) = (next, None);
        }
        (half.number, half.unseen, half.is_proved) = (number + 1, None, true);
        Some(Opened { kind, skipped })
    }
}
