//! One direction of the cable, and the packets on it.

use record::Side;

use crate::Ns;
use crate::setup::Cable;
use crate::tcp::Segment;

/// Smallest payload of an Ethernet frame, bytes.
const FRAME_PAYLOAD_LEAST: u32 = 46;

/// A segment on its way to the receiver, and when it was where.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    pub(super) segment: Segment,
    pub(super) session: u32,
    pub(super) receiver: Side,
    /// Packets that its sender had sent on this connection before.
    pub(super) number: u64,
    /// The device could have begun with it, had nothing been queued.
    pub(super) ready: Ns,
    /// Its first and last bit entered the wire.
    pub(super) began: Ns,
    pub(super) ended: Ns,
    /// It left the wire.
    pub(super) arrived: Ns,
    /// The softirq took it (the capture point of the receiver).
    pub(super) seen: Ns,
}

/// A segment that is handed to the device.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outgoing {
    pub(super) segment: Segment,
    pub(super) session: u32,
    pub(super) receiver: Side,
    /// Packets that its sender has sent on this connection before.
    pub(super) number: u64,
    /// When.
    pub(super) handed: Ns,
    /// Time that an idle device needs to begin.
    pub(super) start: Ns,
}

/// When the bits of a segment are sent.
#[derive(Clone, Copy, Debug)]
struct Transmission {
    ready: Ns,
    began: Ns,
    ended: Ns,
}

/// One direction: segments are sent one after another.
#[derive(Clone, Copy, Debug)]
pub(super) struct Direction {
    cable: Cable,
    mss: u32,
    free_at: Ns,
}

/// When the device is done with a segment, and its packet unless it is lost.
pub(super) struct Sent {
    pub(super) done: Ns,
    pub(super) packet: Option<Packet>,
}

impl Direction {
    pub(super) fn new(cable: Cable, mss: u32) -> Self {
        Self { cable, mss, free_at: 0 }
    }

    /// Time of a segment's bits, with the headers of each of its packets.
    #[inline]
    fn bits_ns(&self, bytes: u32) -> Ns {
        if self.cable.bandwidth == 0 {
            return 0;
        }
        let wire = self.cable.wire();
        let packets = u64::from(bytes.div_ceil(self.mss).max(1));
        let raw = u64::from(bytes) + packets * u64::from(wire.tcpip_bytes + wire.mac_bytes);
        // A frame has at least 46 bytes of payload (IEEE 802.3): an acknowledgement without timestamps is padded.
        let raw = raw.max(u64::from(FRAME_PAYLOAD_LEAST + wire.mac_bytes));
        // Rounded up, so that the wire never exceeds its rate.
        (raw * 8 * 1_000_000_000).div_ceil(self.cable.bandwidth)
    }

    /// Sends a segment. `chance` returns random numbers from 0 to 1; it is called only for loss and reordering.
    pub(super) fn send(&mut self, outgoing: &Outgoing, chance: impl FnMut() -> f64) -> Sent {
        let bits = self.bits_ns(outgoing.segment.bytes);
        if self.cable.burst > 0 && self.cable.bandwidth > 0 {
            return self.send_by_bucket(outgoing, bits, chance);
        }
        let Outgoing { handed, start, .. } = *outgoing;
        let ready = if self.free_at <= handed { handed + start } else { handed };
        let began = ready.max(self.free_at);
        let queued_bytes = (began - handed) as u128 * u128::from(self.cable.bandwidth) / 8_000_000_000;
        if self.cable.queue > 0 && queued_bytes > u128::from(self.cable.queue) {
            return Sent { done: handed, packet: None };
        }
        let ended = began + bits;
        self.free_at = ended;
        self.cross(outgoing, Transmission { ready, began, ended }, chance)
    }

    /// Through a token bucket: without delay while there are tokens, then one after another.
    fn send_by_bucket(&mut self, outgoing: &Outgoing, bits: Ns, chance: impl FnMut() -> f64) -> Sent {
        let ready = outgoing.handed + outgoing.start;
        let burst = self.cable.burst * 8_000_000_000 / self.cable.bandwidth;
        // When the bucket would be full again (a virtual clock).
        self.free_at = self.free_at.max(ready) + bits;
        let began = ready.max(self.free_at.saturating_sub(burst.max(bits)));
        self.cross(outgoing, Transmission { ready, began, ended: began }, chance)
    }

    /// Over the cable, where it may be lost or overtaken.
    fn cross(&self, outgoing: &Outgoing, sent: Transmission, mut chance: impl FnMut() -> f64) -> Sent {
        let Transmission { ready, began, ended } = sent;
        if self.cable.loss > 0.0 && chance() < self.cable.loss {
            return Sent { done: ended, packet: None };
        }
        let mut arrived = ended + self.cable.delay;
        if self.cable.reorder > 0.0 && chance() < self.cable.reorder {
            arrived += (self.cable.reorder_delay as f64 * chance()) as Ns;
        }
        let Outgoing { segment, session, receiver, number, .. } = *outgoing;
        let packet =
            Packet { segment, session, receiver, number, ready, began, ended, arrived, seen: arrived };
        Sent { done: ended, packet: Some(packet) }
    }
}

/// Packets in flight, by number.
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
