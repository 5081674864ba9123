//! One direction of the cable, and the packets on it.

use record::Side;

use crate::Ns;
use crate::setup::Cable;
use crate::tcp::Segment;

/// A segment on its way, with the moments of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) segment: Segment,
    pub(super) session: u32,
    pub(super) receiver: Side,
    /// The device could begin with it, were there nothing before it.
    pub(super) ready: Ns,
    /// Its first and last bit entered the wire.
    pub(super) began: Ns,
    pub(super) ended: Ns,
    /// It came out.
    pub(super) arrived: Ns,
    /// The softirq looked at it (the capture point of the receiver).
    pub(super) seen: Ns,
}

/// One direction: bits one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    cable: Cable,
    mss: u32,
    free_at: Ns,
}

/// What becomes of a segment: when the device is done with it, and the packet unless it is dropped before the wire.
pub(super) struct Sent {
    pub(super) done: Ns,
    pub(super) packet: Option<Packet>,
}

impl Direction {
    pub(super) fn new(cable: Cable, mss: u32) -> Self {
        Self { cable, mss, free_at: 0 }
    }

    /// Time of a segment's bits, with what each packet of it carries besides.
    #[inline]
    fn bits_ns(&self, bytes: u32) -> Ns {
        if self.cable.bandwidth == 0 {
            return 0;
        }
        let wire = record::Wire::ethernet(self.cable.bandwidth, self.cable.mtu);
        let packets = u64::from(bytes.div_ceil(self.mss).max(1));
        let raw = u64::from(bytes) + packets * u64::from(wire.tcpip_bytes + wire.mac_bytes);
        // Rounded up: a wire is never faster than it is.
        (raw * 8 * 1_000_000_000).div_ceil(self.cable.bandwidth)
    }

    /// A segment is handed to the device; an idle one needs `start` to begin. `chance` is asked for numbers from 0
    /// to 1.
    pub(super) fn send(
        &mut self,
        (receiver, session, segment): (Side, u32, Segment),
        handed: Ns,
        start: Ns,
        chance: impl FnMut() -> f64,
    ) -> Sent {
        let bits = self.bits_ns(segment.bytes);
        if self.cable.burst > 0 && self.cable.bandwidth > 0 {
            return self.send_by_bucket((receiver, session, segment), handed + start, bits, chance);
        }
        let ready = if self.free_at <= handed { handed + start } else { handed };
        let began = ready.max(self.free_at);
        let queued_bytes = (began - handed) as u128 * u128::from(self.cable.bandwidth) / 8_000_000_000;
        if self.cable.queue > 0 && queued_bytes > u128::from(self.cable.queue) {
            return Sent { done: handed, packet: None };
        }
        let ended = began + bits;
        self.free_at = ended;
        self.cross((receiver, session, segment), [ready, began, ended], chance)
    }

    /// Through a token bucket: at once as long as there are tokens, then one after another.
    fn send_by_bucket(
        &mut self,
        what: (Side, u32, Segment),
        ready: Ns,
        bits: Ns,
        chance: impl FnMut() -> f64,
    ) -> Sent {
        let burst = self.cable.burst * 8_000_000_000 / self.cable.bandwidth;
        // When the bucket would be full again (a virtual clock).
        self.free_at = self.free_at.max(ready) + bits;
        let began = ready.max(self.free_at.saturating_sub(burst.max(bits)));
        self.cross(what, [ready, began, began], chance)
    }

    /// Over the cable, where it may be lost or overtaken.
    fn cross(
        &self,
        (receiver, session, segment): (Side, u32, Segment),
        [ready, began, ended]: [Ns; 3],
        mut chance: impl FnMut() -> f64,
    ) -> Sent {
        if self.cable.loss > 0.0 && chance() < self.cable.loss {
            return Sent { done: ended, packet: None };
        }
        let mut arrived = ended + self.cable.delay;
        if self.cable.reorder > 0.0 && chance() < self.cable.reorder {
            arrived += (self.cable.reorder_delay as f64 * chance()) as Ns;
        }
        let packet = Packet { segment, session, receiver, ready, began, ended, arrived, seen: arrived };
        Sent { done: ended, packet: Some(packet) }
    }
}

/// Packets under way, by number.
#[derive(Debug, Default)]
pub(super) struct Packets {
    all: Vec<Packet>,
    free: Vec<u32>,
}

impl Packets {
    #[inline]
    pub(super) fn keep(&mut self, packet: Packet) -> u32 {
        match self.free.pop() {
            Some(number) => {
                self.all[number as usize] = packet;
                number
            }
            None => {
                self.all.push(packet);
                self.all.len() as u32 - 1
            }
        }
    }

    #[inline]
    pub(super) fn get(&mut self, number: u32) -> &mut Packet {
        &mut self.all[number as usize]
    }

    #[inline]
    pub(super) fn take(&mut self, number: u32) -> Packet {
        self.free.push(number);
        self.all[number as usize]
    }
}
