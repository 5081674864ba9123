//! Live capture from one interface: AF_PACKET with a TPACKET_V3 ring.

mod filter;
mod ring;

pub use ring::LiveCapture;

/// What to capture.
#[derive(Clone, Debug)]
pub struct LiveConfig {
    /// Interface name, in the network namespace of the thread that opens the capture.
    pub interface: String,
    /// TCP port, either side.
    pub port: u16,
    /// Size of the ring that the kernel fills, bytes; rounded up to whole blocks.
    pub ring_bytes: usize,
    /// Bytes kept of each packet; 0 keeps no packet at all. See [`LiveConfig::SNAP_NOTHING`].
    pub snap_bytes: u32,
}

impl LiveConfig {
    /// A snap length that keeps every packet whole: more than a super-packet of loopback, which with its
    /// Ethernet header is 65,549 bytes.
    pub const SNAP_NOTHING: u32 = 262_144;
}

/// A captured packet.
#[derive(Clone, Copy, Debug)]
pub struct Packet<'a> {
    /// Nanoseconds since the epoch, stamped by the kernel.
    pub time_ns: u64,
    /// Whether this host sent it.
    pub outgoing: bool,
    /// The kept part of the frame, from the Ethernet header on.
    pub data: &'a [u8],
    /// Its length on the wire, bytes.
    pub wire_bytes: u32,
}

/// Counters of the kernel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LiveStatistics {
    /// Packets that passed the filter, dropped ones included.
    pub packets: u64,
    /// Packets dropped because the ring was full.
    pub drops: u64,
}
