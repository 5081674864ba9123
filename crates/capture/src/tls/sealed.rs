//! Records that are decrypted, and the search for them behind a hole.

use record::{Encryption, Side};

use super::clear::Opened;
use super::cutter::{ALERT, APPLICATION_DATA, HANDSHAKE, HEADER, Header};
use super::opaque::Opaque;
use super::piece::{Piece, shares};
use super::sender::{Place, split};
use super::{REFUSED_MAX, State, Tls};
use crate::observer::Observer;
use crate::packet::At;
use crate::stream::Absent;

impl Tls {
    /// A protected record is complete.
    pub(super) fn decrypt(
        &mut self,
        side: Side,
        kind: u8,
        record: &[u8],
        pieces: &[Piece],
        observer: &mut impl Observer,
    ) {
        let State::Clear(clear) = &mut self.state else { return };
        let mut plain = std::mem::take(&mut self.plain);
        match clear.open(side, kind, record, &mut plain) {
            Some(Opened { kind, .. }) => {
                self.refused = 0;
                self.opened(side, kind, &plain, pieces, observer);
            }
            None => self.refuse(side, pieces, observer),
        }
        self.plain = plain;
    }

    /// A record is none that the secrets open.
    fn refuse(&mut self, side: Side, pieces: &[Piece], observer: &mut impl Observer) {
        let State::Clear(clear) = &mut self.state else { return };
        let is_in_handshake = clear.suite.is_13 && !clear.is_open(side);
        if side == Side::Client && is_in_handshake && self.has_early_data {
            return;
        }
        self.refused += 1;
        clear.miss_record_unknown(side);
        let at = pieces.last().map(|piece| piece.at).unwrap_or_default();
        if clear.is_proved() && self.refused < REFUSED_MAX {
            return;
        }
        self.abandon(at, observer);
    }

    /// The secrets are of no use.
    fn abandon(&mut self, at: At, observer: &mut impl Observer) {
        let State::Clear(clear) = &self.state else { return };
        let hash_bytes = clear.suite.is_13.then(|| clear.suite.hash.bytes());
        let is_early = !self.has_begun && !clear.is_open(Side::Client);
        let opaque = if is_early { Opaque::new(hash_bytes) } else { Opaque::without_handshake() };
        self.give_up(Encryption::WrongSecret, opaque, at, observer);
    }

    /// A record has been decrypted.
    fn opened(&mut self, side: Side, kind: u8, plain: &[u8], pieces: &[Piece], observer: &mut impl Observer) {
        let (Some(first), Some(last)) = (pieces.first(), pieces.last()) else { return };
        let (begin, end) = (first.seq.wrapping_sub(HEADER as u32), last.seq.wrapping_add(last.bytes));
        if kind != APPLICATION_DATA {
            if side == Side::Server {
                self.inner.passed_behind(begin, end);
            }
            return match kind {
                ALERT => self.alert(plain, last.at, observer),
                HANDSHAKE => self.plain(side, kind, plain, last.at, observer),
                _ => {}
            };
        }
        let before = match &self.state {
            State::Clear(clear) => clear.suite.explicit_bytes(),
            _ => 0,
        };
        self.begin_inner();
        self.sides[side as usize].has_data = true;
        // The next record's content follows this one's in the numbers of TCP.
        self.inner.position(side, end.wrapping_sub(plain.len() as u32), begin);
        // What begins with the record begins in its first packet.
        self.inner.packet(side, first.mark.seq, first.mark.ack);
        self.inner.front(side, plain, first.at, observer);
        let mut rest = plain;
        for (count, piece) in shares(pieces, before, plain.len()) {
            let (own, behind) = rest.split_at(count.min(rest.len()));
            rest = behind;
            self.inner.packet(side, piece.mark.seq, piece.mark.ack);
            self.inner.bytes(side, own, piece.at, observer);
        }
    }

    /// What is in the records begins.
    pub(super) fn begin_inner(&mut self) {
        if !std::mem::replace(&mut self.has_begun, true) {
            self.inner.speak(self.alpn.and_then(super::Alpn::name), self.agreed.take());
        }
    }

    /// Searches what is kept for the next record behind a hole.
    pub(super) fn search(&mut self, side: Side, observer: &mut impl Observer) {
        loop {
            let State::Clear(clear) = &mut self.state else { return };
            let sender = &mut self.sides[side as usize];
            let smallest = clear.suite.overhead();
            let is_13 = clear.suite.is_13;
            let found = candidate(sender.kept(), |header| {
                usize::from(header.length) >= smallest && (header.kind == APPLICATION_DATA || !is_13)
            });
            let Some((front, header)) = found else {
                let useless = sender.kept().len().saturating_sub(HEADER - 1);
                self.counted.skipped_bytes += useless as u64;
                sender.drop_front(useless);
                return;
            };
            sender.drop_front(front);
            self.counted.skipped_bytes += front as u64;
            let total = HEADER + usize::from(header.length);
            let Some(record) = sender.kept().get(HEADER..total) else { return };
            let Place::Lost { bytes } = sender.place else { return };
            clear.miss_bytes(side, bytes);
            let mut plain = std::mem::take(&mut self.plain);
            let opened = clear.open(side, header.kind, record, &mut plain);
            if let Some(opened) = opened {
                self.found(side, &opened, total, &plain, observer);
                self.plain = plain;
                return;
            }
            self.plain = plain;
            let is_exhausted = clear.is_exhausted();
            sender.drop_front(1);
            self.counted.skipped_bytes += 1;
            if is_exhausted {
                return self.abandon(At::default(), observer);
            }
        }
    }

    /// A record has been found behind a hole: it is processed, and what is kept behind it.
    fn found(
        &mut self,
        side: Side,
        opened: &Opened,
        total: usize,
        plain: &[u8],
        observer: &mut impl Observer,
    ) {
        let (overhead, is_open) = match &self.state {
            State::Clear(clear) => (clear.suite.overhead(), clear.is_open(side)),
            _ => return,
        };
        let sender = &mut self.sides[side as usize];
        let Place::Lost { bytes } = std::mem::take(&mut sender.place) else { return };
        let (kept, mut pieces) = sender.take_kept();
        let mut own = split(&mut pieces, total);
        split(&mut own, HEADER);
        let at = own.first().map(|piece| piece.at).unwrap_or_default();
        match opened.skipped {
            Some(skipped) if is_open => {
                // One byte was told when the boundary was lost.
                let around = skipped.saturating_mul((HEADER + overhead) as u64);
                let content = bytes.saturating_sub(around).saturating_sub(1);
                if content > 0 {
                    self.inner.missing(side, Absent::Lost, content, at, observer);
                }
            }
            // How many records there were with the keys before is not known.
            None if self.has_begun => self.inner.lose(side, at, observer),
            _ => {}
        }
        self.refused = 0;
        self.opened(side, opened.kind, plain, &own, observer);
        let mut rest = kept.get(total..).unwrap_or_default();
        for piece in pieces {
            let (bytes, behind) = rest.split_at(rest.len().min(piece.bytes as usize));
            rest = behind;
            self.sides[side as usize].seq = Some(piece.seq);
            self.part(side, bytes, (piece.at, piece.mark), observer);
        }
    }
}

/// The first place at which a record may begin.
fn candidate(bytes: &[u8], may_be: impl Fn(&Header) -> bool) -> Option<(usize, Header)> {
    bytes.windows(HEADER).enumerate().find_map(|(place, head)| {
        let head: [u8; HEADER] = head.try_into().ok()?;
        let header = Header::of(head).filter(|_| head.get(1..3) == Some(&[3, 3]))?;
        may_be(&header).then_some((place, header))
    })
}
