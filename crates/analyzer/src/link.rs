//! What the packets of a capture leave of a link's rate for messages.

use capture::Vantage;
use record::Side;
use record::wire::{ETHERNET_BYTES, Wire};

/// The header of an Ethernet frame, which a capture has; the rest of [`ETHERNET_BYTES`] it has not. Captures without it show a
/// little less than what passed.
const CAPTURED_BYTES: u32 = 14;

/// Share of a link's rate that is left for the messages of client and server, with the headers of the packets that passed: small
/// packets leave less than full ones. Packets larger than the link's, which segmentation offload makes, leave as much as full ones.
pub(crate) fn efficiency(wire: &Wire, points: &[Vantage]) -> [f64; 2] {
    [Side::Client, Side::Server].map(|side| {
        let passed = points.iter().map(|point| point.spacings[side as usize].passed());
        let Some(most) = passed.max_by_key(|passed| passed.payload_bytes).filter(|p| p.packets > 0) else {
            return wire.efficiency();
        };
        let payload = most.payload_bytes as f64;
        let headers = most.wire_bytes.saturating_sub(most.payload_bytes) as f64 / most.packets as f64;
        let each = headers + f64::from(ETHERNET_BYTES - CAPTURED_BYTES);
        let packets = (most.packets as f64).max(payload / f64::from(wire.payload_bytes()));
        payload / (payload + packets * each)
    })
}
