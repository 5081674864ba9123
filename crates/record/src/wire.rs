//! Wire arithmetic: what a message costs on an Ethernet, packet by packet.
//!
//! Two views that agree at the limits: *packed* (messages fill full frames back to back, the paper's
//! lower bound) and *own packets* (each message segmented separately, the last packet partial).

use serde::{Deserialize, Serialize};

/// Bytes of the iSCSI basic header segment (RFC 7143 11.2.1): H in the paper.
pub const ISCSI_HEADER_BYTES: u32 = 48;

/// Ethernet's own bytes around a frame's payload: preamble 8, header 14, CRC 4, gap 12.
pub const ETHERNET_BYTES: u32 = 38;

/// A cable: its rate and the sizes of what every packet carries besides the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wire {
    /// Bits per second, each way.
    pub bits_per_second: u64,
    /// Largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// IP and TCP headers, bytes: 52 for IPv4 with timestamps.
    pub tcpip_bytes: u32,
    /// Link layer and physical bytes per frame: 38 untagged.
    pub mac_bytes: u32,
}

/// The properties that determine a wire's sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    /// Bits per second, each way.
    pub bits_per_second: u64,
    /// Largest IP packet, bytes.
    pub mtu_bytes: u32,
    /// IPv6: a header of 40 bytes instead of 20.
    pub ipv6: bool,
    /// TCP timestamps: 12 bytes in every packet.
    pub timestamps: bool,
    /// An 802.1Q tag: 4 bytes in every frame.
    pub vlan: bool,
}

impl Link {
    /// The paper's: IPv4 with timestamps, untagged.
    #[must_use]
    pub const fn ethernet(bits_per_second: u64, mtu_bytes: u32) -> Self {
        Self { bits_per_second, mtu_bytes, ipv6: false, timestamps: true, vlan: false }
    }

    /// The resulting sizes.
    #[must_use]
    pub fn wire(&self) -> Wire {
        let ip = if self.ipv6 { 40 } else { 20 };
        let tcp = if self.timestamps { 32 } else { 20 };
        Wire {
            bits_per_second: self.bits_per_second,
            mtu_bytes: self.mtu_bytes,
            tcpip_bytes: ip + tcp,
            mac_bytes: ETHERNET_BYTES + if self.vlan { 4 } else { 0 },
        }
    }
}

/// The messages of an iSCSI operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Messages {
    /// Data of one operation, bytes.
    pub block_bytes: u64,
    /// The data goes with the request (immediate data), not with the response.
    pub write: bool,
    /// CRC32C over each header: 4 bytes.
    pub header_digest: bool,
    /// CRC32C over the data: 4 bytes where there is data.
    pub data_digest: bool,
}

impl Messages {
    /// Reads of this size, without digests.
    #[must_use]
    pub const fn read(block_bytes: u64) -> Self {
        Self { block_bytes, write: false, header_digest: false, data_digest: false }
    }

    fn message(&self, data: bool) -> u64 {
        let header = u64::from(ISCSI_HEADER_BYTES) + if self.header_digest { 4 } else { 0 };
        // Data is padded to words (RFC 7143 11.2).
        let body = self.block_bytes.next_multiple_of(4) + if self.data_digest { 4 } else { 0 };
        if data { header + body } else { header }
    }

    /// Bytes of the request.
    #[must_use]
    pub fn request_bytes(&self) -> u64 {
        self.message(self.write)
    }

    /// Bytes of the response.
    #[must_use]
    pub fn response_bytes(&self) -> u64 {
        self.message(!self.write)
    }
}

impl Wire {
    /// IPv4 with TCP timestamps on untagged Ethernet: the paper's wire.
    #[must_use]
    pub const fn ethernet(bits_per_second: u64, mtu_bytes: u32) -> Self {
        Self { bits_per_second, mtu_bytes, tcpip_bytes: 52, mac_bytes: ETHERNET_BYTES }
    }

    /// Largest TCP payload of one packet, bytes (MSS less options).
    #[must_use]
    pub fn payload_bytes(&self) -> u32 {
        self.mtu_bytes.saturating_sub(self.tcpip_bytes).max(1)
    }

    /// Share of the raw rate that full frames leave for TCP payload: (MTU - TCPIP) / (MTU + MAC).
    #[must_use]
    pub fn efficiency(&self) -> f64 {
        f64::from(self.payload_bytes()) / f64::from(self.mtu_bytes + self.mac_bytes)
    }

    /// Time for `bytes` of raw wire, microseconds.
    fn raw_us(&self, bytes: f64) -> f64 {
        bytes * 8e6 / self.bits_per_second as f64
    }

    /// Time of a message whose bytes share full frames with their neighbours, microseconds: the lower bound.
    #[must_use]
    pub fn packed_us(&self, message_bytes: u64) -> f64 {
        self.raw_us(message_bytes as f64 / self.efficiency())
    }

    /// Packets of a message that shares no packet with others.
    #[must_use]
    pub fn own_packets(&self, message_bytes: u64) -> u64 {
        message_bytes.div_ceil(u64::from(self.payload_bytes())).max(1)
    }

    /// Time of a message sent in packets of its own, microseconds.
    #[must_use]
    pub fn own_packets_us(&self, message_bytes: u64) -> f64 {
        let overhead = self.own_packets(message_bytes) * u64::from(self.tcpip_bytes + self.mac_bytes);
        self.raw_us((message_bytes + overhead) as f64)
    }

    /// Time of a message that takes this many packets, microseconds; less than 1 where several messages share one.
    #[must_use]
    pub fn in_packets_us(&self, message_bytes: u64, packets: f64) -> f64 {
        self.raw_us(message_bytes as f64 + packets * f64::from(self.tcpip_bytes + self.mac_bytes))
    }

    /// How many messages of this size fill one packet (not rounded; the paper's "about 16").
    #[must_use]
    pub fn messages_per_packet(&self, message_bytes: u64) -> f64 {
        f64::from(self.payload_bytes()) / message_bytes.max(1) as f64
    }

    /// The most operations per second a direction can carry, messages packed.
    #[must_use]
    pub fn iops_limit(&self, message_bytes: u64) -> f64 {
        1e6 / self.packed_us(message_bytes)
    }

    /// The queue depth below which the round trip can stay under `limit_us` (QD < TI * BW / (IOSIZE + H)).
    #[must_use]
    pub fn queue_depth_within(&self, limit_us: f64, message_bytes: u64) -> f64 {
        limit_us / self.packed_us(message_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GIGABIT: u64 = 1_000_000_000;

    fn close(value: f64, published: f64, digit: f64) {
        assert!((value - published).abs() <= digit / 2.0, "{value} is not {published}");
    }

    #[test]
    fn a_message_s_time_lies_between_packets_of_its_own_and_full_ones() {
        let wire = Wire::ethernet(GIGABIT, 9000);
        let per_packet = 16.0;
        let (own, packed) = (wire.in_packets_us(560, 1.0), wire.in_packets_us(560, 1.0 / per_packet));
        assert!((own - wire.own_packets_us(560)).abs() < 1e-9);
        assert!((packed - wire.packed_us(560)).abs() < 0.01, "{packed} {}", wire.packed_us(560));
        // 1.5 responses in a packet: two thirds of the headers.
        let (bytes, headers) = (560.0 * 8e-3, (own - 560.0 * 8e-3) * 2.0 / 3.0);
        assert!((wire.in_packets_us(560, 1.0 / 1.5) - bytes - headers).abs() < 1e-9);
        assert!((wire.in_packets_us(65_584, 8.0) - wire.own_packets_us(65_584)).abs() < 1e-9);
    }

    #[test]
    fn efficiency_as_published() {
        // "When MTU = 1500 that yields 94.15%"; "When MTU = 9000 that yields 99.00%".
        close(Wire::ethernet(GIGABIT, 1500).efficiency() * 100.0, 94.15, 0.01);
        close(Wire::ethernet(GIGABIT, 9000).efficiency() * 100.0, 99.00, 0.01);
    }

    #[test]
    fn request_and_response_times_as_published() {
        let wire = Wire::ethernet(GIGABIT, 9000);
        // "a lower limit of about 388 nanoseconds to transmit Read Requests"
        close(wire.packed_us(48) * 1000.0, 388.0, 1.0);
        // "W1 = (H + TCPIP + MAC) / BW ... about 1.1 microseconds"; by these formulas 1.104
        close(wire.own_packets_us(48), 1.104, 0.001);
        // "about 5.2 microseconds per OP for the 560-Byte Response; those sum to 6.3"
        close(wire.own_packets_us(560), 5.2, 0.1);
        close(wire.own_packets_us(48) + wire.own_packets_us(560), 6.3, 0.1);
    }

    #[test]
    fn responses_per_packet_as_published() {
        // 512 B at MTU 9000: 15.98, "about 16"
        close(Wire::ethernet(GIGABIT, 9000).messages_per_packet(560), 15.98, 0.01);
    }

    #[test]
    fn a_partial_last_packet_costs_a_whole_header() {
        let wire = Wire::ethernet(GIGABIT, 1500);
        assert_eq!(wire.own_packets(1448), 1);
        assert_eq!(wire.own_packets(1449), 2);
        close(wire.own_packets_us(1449) - wire.own_packets_us(1448), 91.0 * 0.008, 1e-9);
    }

    #[test]
    fn other_headers_cost_their_bytes() {
        let link = Link::ethernet(GIGABIT, 1500);
        assert_eq!(link.wire(), Wire::ethernet(GIGABIT, 1500));
        let six = Link { ipv6: true, ..link }.wire();
        assert_eq!((six.tcpip_bytes, six.payload_bytes()), (72, 1428));
        assert_eq!(Link { timestamps: false, ..link }.wire().payload_bytes(), 1460, "errata: 1460, not 1640");
        assert_eq!(Link { vlan: true, ..link }.wire().mac_bytes, 42);
        // A 4096-byte read with both digests over tagged IPv6 at MTU 1500: 4152 B in three packets.
        let all = Link { ipv6: true, vlan: true, ..link }.wire();
        let messages = Messages { header_digest: true, data_digest: true, ..Messages::read(4096) };
        assert_eq!((messages.request_bytes(), messages.response_bytes()), (52, 4152));
        close(all.own_packets_us(4152), (4152.0 + 3.0 * (72.0 + 42.0)) * 0.008, 1e-9);
        let write = Messages { write: true, ..Messages::read(510) };
        assert_eq!((write.request_bytes(), write.response_bytes()), (560, 48));
    }

    #[test]
    fn bandwidth_bounds_iops_and_queue_depth() {
        let wire = Wire::ethernet(GIGABIT, 9000);
        close(wire.iops_limit(560), 1e9 * wire.efficiency() / 8.0 / 560.0, 1e-6);
        // Staying below 1 ms of round trip with 4096-byte reads.
        close(wire.queue_depth_within(1000.0, 4144), 1000.0 / wire.packed_us(4144), 1e-9);
    }
}
