//! A connection that may be iSCSI: it is followed as iSCSI and as turns at once, and neither is delivered until the
//! PDUs have formed a chain or have failed to.
//!
//! So a wrong guess costs nothing: its operations were never delivered, and those of the turns are complete. What is held
//! is exchanges, not bytes, and few of them.

use record::{Exchange, Side, Stall};

use crate::follow::Digests;
use crate::http::Mark;
use crate::iscsi::Iscsi;
use crate::observer::{Counted, Observer, StreamHole};
use crate::packet::At;
use crate::stream::Absent;
use crate::turns::Turns;

/// How much the port says: iSCSI's own needs less proof.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Port {
    /// 3260.
    Iscsi,
    /// Any other.
    Other,
}

/// What the trial has shown so far.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Not enough.
    Open,
    /// The PDUs form a chain.
    Iscsi,
    /// They do not.
    Turns,
}

/// The events of a follower, until it is known whether its guess is right.
#[derive(Debug, Default)]
struct Held {
    exchanges: Vec<Exchange>,
    stalls: Vec<Stall>,
}

impl Observer for Held {
    fn exchange(&mut self, exchange: &Exchange) {
        self.exchanges.push(*exchange);
    }
    fn hole(&mut self, _: StreamHole) {}
    fn stall(&mut self, stall: &Stall) {
        self.stalls.push(*stall);
    }
    fn counted(&mut self, _: &Counted) {}
}

impl Held {
    fn deliver(self, observer: &mut impl Observer) {
        self.stalls.iter().for_each(|stall| observer.stall(stall));
        self.exchanges.iter().for_each(|exchange| observer.exchange(exchange));
    }
}

/// Both guesses.
#[derive(Debug)]
pub(crate) struct Trial {
    port: Port,
    segments: u32,
    pub(crate) iscsi: Box<Iscsi>,
    pub(crate) turns: Box<Turns>,
    held: [Held; 2],
}

/// Turns after which a connection without a chain is none of iSCSI: each begins with a request, and requests are at the front
/// of segments, so that a chain would have been seen in the first few.
const TURNS_MAX: usize = 16;
/// Exchanges of iSCSI that are held; a chain has formed long before.
const EXCHANGES_MAX: usize = 64;
/// Segments after which a connection without a chain is none of iSCSI: two PDUs of 256 KiB in segments of an Ethernet frame.
const SEGMENTS_MAX: u32 = 360;

impl Trial {
    /// Begins a trial; the turns may have been followed before.
    pub(crate) fn new(port: Port, iscsi: Iscsi, turns: Box<Turns>) -> Self {
        Self { port, segments: 0, iscsi: Box::new(iscsi.proving()), turns, held: Default::default() }
    }

    /// An iSCSI connection of unknown digests.
    pub(crate) fn iscsi(connection: u32, in_the_middle: bool) -> Iscsi {
        Iscsi::new(connection, in_the_middle, Digests::default())
    }

    pub(crate) fn bytes(&mut self, side: Side, bytes: &[u8], at: At) {
        self.segments += 1;
        let [iscsi, turns] = &mut self.held;
        self.iscsi.bytes(side, bytes, at, iscsi);
        self.turns.pass(side, bytes, at, turns);
    }

    pub(crate) fn missing(&mut self, side: Side, absent: Absent, count: u64, packet: Mark, at: At) {
        let [iscsi, turns] = &mut self.held;
        self.iscsi.missing(side, count, at, iscsi);
        self.turns.missing((side, absent), count, packet, at, turns);
    }

    pub(crate) fn stalled(&mut self, stall: &Stall) {
        self.iscsi.stalled(stall);
        self.turns.stalled(stall);
    }

    /// What has been shown.
    pub(crate) fn finding(&self) -> Finding {
        let enough = match self.port {
            Port::Iscsi => 2,
            Port::Other => 3,
        };
        let [iscsi, turns] = &self.held;
        if self.iscsi.links() >= enough {
            Finding::Iscsi
        } else if turns.exchanges.len() >= TURNS_MAX
            || iscsi.exchanges.len() + iscsi.stalls.len() >= EXCHANGES_MAX
            || self.segments >= SEGMENTS_MAX
        {
            Finding::Turns
        } else {
            Finding::Open
        }
    }

    /// What is to be believed when nothing more comes: on iSCSI's port a single link suffices.
    pub(crate) fn last_finding(&self) -> Finding {
        if self.port == Port::Iscsi && self.iscsi.links() > 0 { Finding::Iscsi } else { Finding::Turns }
    }

    /// Ends the trial in favour of iSCSI.
    pub(crate) fn into_iscsi(self, observer: &mut impl Observer) -> Box<Iscsi> {
        let Self { mut iscsi, turns, held: [kept, dropped], .. } = self;
        let earlier = turns.pace().ended - dropped.exchanges.len() as u64;
        iscsi.pace_mut().ended += earlier;
        iscsi.proved();
        kept.deliver(observer);
        iscsi
    }

    /// Ends the trial in favour of turns.
    pub(crate) fn into_turns(self, observer: &mut impl Observer) -> Box<Turns> {
        let Self { turns, held: [_, kept], .. } = self;
        kept.deliver(observer);
        turns
    }

    /// Ends the trial in favour of another protocol, of whose messages the turns were parts. The turns that were followed
    /// before the trial remain counted.
    pub(crate) fn into_neither(self) -> Box<Turns> {
        let Self { mut turns, held: [_, dropped], .. } = self;
        turns.pace_mut().ended -= dropped.exchanges.len() as u64;
        turns
    }
}
