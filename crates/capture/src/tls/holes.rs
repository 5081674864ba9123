//! What is not in the capture.

use record::{Encryption, Side};

use super::cutter::{APPLICATION_DATA, HEADER};
use super::opaque::Opaque;
use super::sender::Place;
use super::{State, Tls};
use crate::observer::Observer;
use crate::packet::At;
use crate::stream::Absent;

impl Tls {
    /// The boundary of the side's records is lost: `count` bytes have passed without one.
    pub(super) fn lose(&mut self, side: Side, count: u64, at: At, observer: &mut impl Observer) {
        let sender = &mut self.sides[side as usize];
        sender.lose(count);
        self.counted.boundaries_lost += 1;
        self.counted.skipped_bytes += count;
        match &self.state {
            State::Clear(clear) => {
                let is_open = clear.is_open(side);
                if is_open {
                    // How many bytes of them are of the application is known when the next record is.
                    self.begin_inner();
                    self.inner.missing(side, Absent::Lost, 1, at, observer);
                }
            }
            State::Hellos => {
                self.sides[side as usize].place = Place::Raw;
                self.give_up(Encryption::NoHandshake, Opaque::without_handshake(), at, observer);
            }
            State::Opaque(opaque) => {
                self.sides[side as usize].place = Place::Raw;
                if !opaque.is_open() {
                    self.state = State::Opaque(Box::new(Opaque::without_handshake()));
                }
            }
        }
    }

    /// Processes bytes that were on the wire and are not in the capture.
    pub(crate) fn missing(
        &mut self,
        side: Side,
        absent: Absent,
        count: u64,
        at: At,
        observer: &mut impl Observer,
    ) {
        if let State::Opaque(opaque) = &mut self.state {
            opaque.release();
            self.release(observer);
        }
        let sender = &mut self.sides[side as usize];
        sender.advance(count as usize);
        if let Place::Lost { .. } = sender.place {
            return sender.lose(count);
        }
        let headed = sender.cutter.is_between();
        let was_broken = sender.is_broken;
        let (inside, is_end) = sender.cutter.miss(count);
        if inside > 0 {
            sender.is_broken = true;
            let content = usize::from(sender.header.length);
            let kind = sender.header.kind;
            match &self.state {
                State::Clear(clear) if !was_broken && kind == APPLICATION_DATA && clear.is_open(side) => {
                    let content = content.saturating_sub(clear.suite.overhead()) as u64;
                    self.begin_inner();
                    self.inner.missing(side, Absent::Lost, content, at, observer);
                }
                State::Clear(_) => {}
                State::Opaque(opaque) => {
                    if opaque.is_open() && kind == APPLICATION_DATA {
                        self.inner.missing(side, absent, inside, at, observer);
                    }
                }
                State::Hellos => {
                    let opaque = Opaque::without_handshake();
                    self.give_up(Encryption::NoHandshake, opaque, at, observer);
                }
            }
            if is_end {
                self.end(side, at, observer);
            }
        }
        if inside < count {
            let place = self.sides[side as usize].place;
            if place == Place::Records {
                let head = if headed { 0 } else { HEADER as u64 };
                self.lose(side, count - inside + head.min(4), at, observer);
            }
            if let State::Opaque(opaque) = &self.state
                && opaque.is_open()
            {
                self.inner.missing(side, absent, count - inside, at, observer);
            }
        }
    }
}
