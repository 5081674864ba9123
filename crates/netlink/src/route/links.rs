//! Links: read attribute by attribute, so that one that is odd, such as an alias that is not UTF-8, does not hide the link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Builder};
use crate::error::Error;
use crate::name;

/// Bytes of the header: family, padding, hardware type, index, flags, changed flags.
const HEADER: usize = 16;

const ADDRESS: u16 = 1;
const NAME: u16 = 3;
const MTU: u16 = 4;
const LOWER: u16 = 5;
const QDISC: u16 = 6;
const MASTER: u16 = 10;
const QUEUE_LENGTH: u16 = 13;
const OPERATIONAL_STATE: u16 = 16;
const INFO: u16 = 18;
const COUNTERS: u16 = 23;
const CARRIER: u16 = 33;
const CARRIER_CHANGES: u16 = 35;
const LOWER_NAMESPACE: u16 = 37;
const CARRIER_UP: u16 = 47;
const CARRIER_DOWN: u16 = 48;
const MIN_MTU: u16 = 50;
const MAX_MTU: u16 = 51;
const INFO_KIND: u16 = 1;
const INFO_SLAVE_KIND: u16 = 4;

const IS_UP: u32 = 1;
const IS_LOOPBACK: u32 = 1 << 3;
const IS_RUNNING: u32 = 1 << 6;

/// ARPHRD_ETHER and ARPHRD_LOOPBACK.
const ETHERNET: u16 = 1;

/// A link.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Link {
    /// Its number.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Its hardware address, as hexadecimal bytes with colons.
    pub address: Option<String>,
    /// Whether it is administratively up.
    pub is_up: bool,
    /// Whether its driver reports that it can send.
    pub is_running: bool,
    /// Whether it is the loopback.
    pub is_loopback: bool,
    /// Whether its frames are those of Ethernet.
    pub is_ethernet: bool,
    /// What keeps it from sending or does not (RFC 2863).
    pub operational_state: Option<OperationalState>,
    /// Whether there is a carrier.
    pub has_carrier: Option<bool>,
    /// How often the carrier came or went.
    pub carrier_changes: Option<u32>,
    /// How often the carrier came.
    pub carrier_up_count: Option<u32>,
    /// How often the carrier went.
    pub carrier_down_count: Option<u32>,
    /// The largest packet, bytes.
    pub mtu: u32,
    /// The smallest MTU that the driver takes, bytes.
    pub min_mtu: Option<u32>,
    /// The largest MTU that the driver takes, bytes; none where it has no limit.
    pub max_mtu: Option<u32>,
    /// Index of the bridge, bond or other link that it is a part of.
    pub master: Option<u32>,
    /// Index of the link below it, or its other end.
    pub lower: Option<u32>,
    /// Whether `lower` is an index of another network namespace.
    pub is_lower_elsewhere: bool,
    /// Its kind, where it is virtual: `veth`, `bond`, `tun`.
    pub kind: Option<String>,
    /// The kind of its master: `bond`, `bridge`.
    pub master_kind: Option<String>,
    /// Its queueing discipline: `mq`, `fq_codel`.
    pub queueing_discipline: Option<String>,
    /// The longest queue of the discipline, packets.
    pub queue_length: Option<u32>,
    /// Its counters.
    pub counters: Option<Counters>,
}

/// What keeps a link from sending or does not (RFC 2863).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum OperationalState {
    /// The driver does not say.
    Unknown,
    /// A part of it is missing.
    NotPresent,
    /// Down.
    Down,
    /// The link below it is down.
    LowerLayerDown,
    /// Under test.
    Testing,
    /// Waits for something, such as authentication.
    Dormant,
    /// Up.
    Up,
}

impl OperationalState {
    fn parse(state: u8) -> Option<Self> {
        use OperationalState::{Dormant, Down, LowerLayerDown, NotPresent, Testing, Unknown, Up};
        [Unknown, NotPresent, Down, LowerLayerDown, Testing, Dormant, Up].get(usize::from(state)).copied()
    }
}

/// The counters, in the order of rtnl_link_stats64.
macro_rules! counters {
    ($($field:ident $doc:literal;)*) => {
        /// Counters of a link since it was made.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
        #[serde(default)]
        pub struct Counters {
            $(#[doc = $doc] pub $field: u64,)*
        }

        impl Counters {
            /// Each counter with its name.
            #[must_use]
            pub fn all(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($field), self.$field)),*]
            }

            /// Counters that an older kernel lacks are 0.
            fn parse(bytes: &[u8]) -> Self {
                let words = bytes.chunks_exact(8).filter_map(|b| b.first_chunk().map(|b| u64::from_ne_bytes(*b)));
                let mut words = words.chain(std::iter::repeat(0));
                Self { $($field: words.next().unwrap_or_default()),* }
            }
        }
    };
}

counters! {
    rx_packets "Packets received.";
    tx_packets "Packets sent.";
    rx_bytes "Bytes received.";
    tx_bytes "Bytes sent.";
    rx_errors "Frames received with an error.";
    tx_errors "Frames not sent because of an error.";
    rx_dropped "Packets received and dropped, for want of memory or because no protocol takes them.";
    tx_dropped "Packets dropped before they were sent.";
    multicast "Multicast packets received.";
    collisions "Collisions while sending.";
    rx_length_errors "Frames with an invalid length.";
    rx_over_errors "Frames that the card had no room for.";
    rx_crc_errors "Frames with a wrong CRC.";
    rx_frame_errors "Frames of no whole number of bytes.";
    rx_fifo_errors "Frames lost in the card's FIFO.";
    rx_missed_errors "Frames lost because the host gave the card no buffers in time.";
    tx_aborted_errors "Frames given up, as after too many collisions.";
    tx_carrier_errors "Frames sent without carrier, as with a bad cable.";
    tx_fifo_errors "Frames lost because the card's FIFO ran empty.";
    tx_heartbeat_errors "Signal quality errors of old transceivers.";
    tx_window_errors "Late collisions.";
    rx_compressed "Compressed packets received.";
    tx_compressed "Compressed packets sent.";
    rx_nohandler "Packets dropped on an inactive link, such as the second one of a bond.";
    rx_otherhost_dropped "Packets for other hosts.";
}

/// A request for all links.
pub(super) fn all() -> Vec<u8> {
    vec![0; HEADER]
}

/// A request for one link.
pub(super) fn named(what: &str, interface: &str) -> Result<Vec<u8>, Error> {
    name::check(what, interface)?;
    Ok(request(Builder::new().text(NAME, interface)))
}

/// A request to change the MTU.
pub(super) fn with_mtu(what: &str, interface: &str, mtu: u32) -> Result<Vec<u8>, Error> {
    name::check(what, interface)?;
    Ok(request(Builder::new().text(NAME, interface).u32(MTU, mtu)))
}

fn request(attributes: Builder) -> Vec<u8> {
    let mut bytes = all();
    bytes.extend(attributes.finish());
    bytes
}

/// A link in an answer; none where the bytes are too short for one or it has no name.
#[must_use]
pub fn parse_link(payload: &[u8]) -> Option<Link> {
    let (header, attributes) = payload.split_first_chunk::<HEADER>()?;
    let attributes = Attributes::new(attributes);
    let hardware = u16::from_ne_bytes([header[2], header[3]]);
    let index = u32::from_ne_bytes([header[4], header[5], header[6], header[7]]);
    let flags = u32::from_ne_bytes([header[8], header[9], header[10], header[11]]);
    let info = attributes.nested(INFO);
    Some(Link {
        index,
        name: attributes.text(NAME)?,
        address: attributes.get(ADDRESS).map(hardware_address),
        is_up: flags & IS_UP != 0,
        is_running: flags & IS_RUNNING != 0,
        is_loopback: flags & IS_LOOPBACK != 0,
        is_ethernet: hardware == ETHERNET,
        operational_state: attributes.u8(OPERATIONAL_STATE).and_then(OperationalState::parse),
        has_carrier: attributes.u8(CARRIER).map(|carrier| carrier != 0),
        carrier_changes: attributes.u32(CARRIER_CHANGES),
        carrier_up_count: attributes.u32(CARRIER_UP),
        carrier_down_count: attributes.u32(CARRIER_DOWN),
        mtu: attributes.u32(MTU).unwrap_or_default(),
        min_mtu: attributes.u32(MIN_MTU).filter(|mtu| *mtu > 0),
        max_mtu: attributes.u32(MAX_MTU).filter(|mtu| *mtu > 0),
        master: attributes.u32(MASTER),
        lower: attributes.u32(LOWER).filter(|lower| *lower != 0 && *lower != index),
        is_lower_elsewhere: attributes.get(LOWER_NAMESPACE).is_some(),
        kind: info.and_then(|info| info.text(INFO_KIND)),
        master_kind: info.and_then(|info| info.text(INFO_SLAVE_KIND)),
        queueing_discipline: attributes.text(QDISC),
        queue_length: attributes.u32(QUEUE_LENGTH),
        counters: attributes.get(COUNTERS).map(Counters::parse),
    })
}

fn hardware_address(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_alias_that_is_not_utf8_does_not_hide_its_link() {
        let attributes = Builder::new()
            .text(NAME, "eth0")
            .u32(MTU, 9000)
            .bytes(20, &[0xff, 0xfe, 0])
            .u32(CARRIER_CHANGES, 3)
            .bytes(COUNTERS, &[1, 0, 0, 0, 0, 0, 0, 0]);
        let link = parse_link(&request(attributes)).unwrap();
        assert_eq!((link.name.as_str(), link.mtu, link.carrier_changes), ("eth0", 9000, Some(3)));
        let counters = link.counters.unwrap();
        assert_eq!((counters.rx_packets, counters.rx_otherhost_dropped), (1, 0));
        assert_eq!(parse_link(&[0; 15]), None);
    }
}
