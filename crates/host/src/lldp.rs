//! LLDP frames (IEEE 802.1AB, IEEE 802.3 clause 79). Pure: bytes in, facts out; never panics.

use netlink::ethtool::Duplex;

use crate::facts::peer::{MacPhy, Neighbour, Operating};

/// The type of the frames.
pub const ETHERTYPE: u16 = 0x88cc;

/// The address that they go to and that no bridge forwards.
pub const GROUP: &str = "01:80:c2:00:00:0e";

const ETHERNET_HEADER: usize = 14;

/// Organizations: IEEE 802.1 and IEEE 802.3.
const IEEE_802_1: [u8; 3] = [0x00, 0x80, 0xc2];
const IEEE_802_3: [u8; 3] = [0x00, 0x12, 0x0f];

/// Subtypes of chassis and port that are hardware addresses.
const CHASSIS_MAC: u8 = 4;
const PORT_MAC: u8 = 3;
/// Subtypes of chassis and port that are network addresses.
const CHASSIS_NETWORK: u8 = 5;
const PORT_NETWORK: u8 = 4;

/// Reads a frame, from its destination address on. None where it is no LLDP frame or lacks one of the three mandatory parts.
#[must_use]
pub fn parse_frame(frame: &[u8]) -> Option<Neighbour> {
    let (header, mut rest) = frame.split_at_checked(ETHERNET_HEADER)?;
    if header[12..] != ETHERTYPE.to_be_bytes() {
        return None;
    }
    let mut neighbour = Neighbour::default();
    let (mut has_chassis, mut has_port, mut has_ttl) = (false, false, false);
    while let Some((kind, value, next)) = split_tlv(rest) {
        rest = next;
        match kind {
            0 => break,
            1 => (neighbour.chassis, has_chassis) = (identifier(value, CHASSIS_MAC, CHASSIS_NETWORK)?, true),
            2 => (neighbour.port, has_port) = (identifier(value, PORT_MAC, PORT_NETWORK)?, true),
            3 => (neighbour.ttl_seconds, has_ttl) = (be16(value, 0)?, true),
            4 => neighbour.port_description = Some(text(value)),
            5 => neighbour.system_name = Some(text(value)),
            6 => neighbour.system_description = Some(text(value)),
            127 => organization(value, &mut neighbour),
            _ => {}
        }
    }
    (has_chassis && has_port && has_ttl).then_some(neighbour)
}

/// Type, value and what follows.
fn split_tlv(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let header = be16(bytes, 0)?;
    let (value, next) = bytes.get(2..)?.split_at_checked(usize::from(header & 0x1ff))?;
    Some(((header >> 9) as u8, value, next))
}

fn organization(value: &[u8], neighbour: &mut Neighbour) {
    let Some((organization, rest)) = value.split_first_chunk::<3>() else { return };
    let Some((subtype, rest)) = rest.split_first() else { return };
    match (*organization, subtype) {
        (IEEE_802_1, 1) => neighbour.port_vlan = be16(rest, 0).filter(|vlan| *vlan != 0),
        (IEEE_802_1, 7) | (IEEE_802_3, 3) => {
            neighbour.is_aggregated = rest.first().map(|status| status & 2 != 0);
        }
        (IEEE_802_3, 1) => neighbour.mac_phy = mac_phy(rest),
        (IEEE_802_3, 4) => neighbour.max_frame_bytes = be16(rest, 0),
        _ => {}
    }
}

fn mac_phy(value: &[u8]) -> Option<MacPhy> {
    let status = *value.first()?;
    let (capability, mau_type) = (be16(value, 1)?, be16(value, 3)?);
    Some(MacPhy {
        supports_negotiation: status & 1 != 0,
        negotiates: status & 2 != 0,
        advertised: advertised(capability),
        mau_type,
        operating: operating(mau_type),
    })
}

/// Modes by their bits (ifMauAutoNegCapAdvertisedBits, RFC 4836; bit 0 is the highest).
fn advertised(capability: u16) -> Vec<String> {
    const MODES: [(u16, &str); 9] = [
        (1 << 14, "10baseT/Half"),
        (1 << 13, "10baseT/Full"),
        (1 << 11, "100baseT/Half"),
        (1 << 10, "100baseT/Full"),
        (1 << 3, "1000baseX/Half"),
        (1 << 2, "1000baseX/Full"),
        (1 << 1, "1000baseT/Half"),
        (1 << 0, "1000baseT/Full"),
        (1 << 7, "Pause"),
    ];
    MODES.iter().filter(|(bit, _)| capability & bit != 0).map(|(_, name)| (*name).to_owned()).collect()
}

/// What an operating type means (IANAifMauTypeListBits).
fn operating(mau_type: u16) -> Option<Operating> {
    use Duplex::{Full, Half};
    let copper = |name: &str, speed_mbps, duplex| Operating {
        name: name.to_owned(),
        speed_mbps,
        duplex: Some(duplex),
        is_twisted_pair: true,
    };
    let other = |name: &str, speed_mbps, duplex| Operating {
        name: name.to_owned(),
        speed_mbps,
        duplex,
        is_twisted_pair: false,
    };
    Some(match mau_type {
        10 => copper("10BASE-T", 10, Half),
        11 => copper("10BASE-T", 10, Full),
        15 => copper("100BASE-TX", 100, Half),
        16 => copper("100BASE-TX", 100, Full),
        17 => other("100BASE-FX", 100, Some(Half)),
        18 => other("100BASE-FX", 100, Some(Full)),
        21 => other("1000BASE-X", 1000, Some(Half)),
        22 => other("1000BASE-X", 1000, Some(Full)),
        23 => other("1000BASE-LX", 1000, Some(Half)),
        24 => other("1000BASE-LX", 1000, Some(Full)),
        25 => other("1000BASE-SX", 1000, Some(Half)),
        26 => other("1000BASE-SX", 1000, Some(Full)),
        27 => other("1000BASE-CX", 1000, Some(Half)),
        28 => other("1000BASE-CX", 1000, Some(Full)),
        29 => copper("1000BASE-T", 1000, Half),
        30 => copper("1000BASE-T", 1000, Full),
        31 => other("10GBASE-X", 10_000, Some(Full)),
        32 => other("10GBASE-LX4", 10_000, Some(Full)),
        33 => other("10GBASE-R", 10_000, Some(Full)),
        34 => other("10GBASE-ER", 10_000, Some(Full)),
        35 => other("10GBASE-LR", 10_000, Some(Full)),
        36 => other("10GBASE-SR", 10_000, Some(Full)),
        41 => other("10GBASE-CX4", 10_000, Some(Full)),
        54 => copper("10GBASE-T", 10_000, Full),
        55 => other("10GBASE-LRM", 10_000, Some(Full)),
        56 => other("1000BASE-KX", 1000, Some(Full)),
        57 => other("10GBASE-KX4", 10_000, Some(Full)),
        58 => other("10GBASE-KR", 10_000, Some(Full)),
        _ => return None,
    })
}

/// A chassis or port: a hardware address, a network address or a text, as its subtype says.
fn identifier(value: &[u8], mac: u8, network: u8) -> Option<String> {
    let (subtype, rest) = value.split_first()?;
    Some(match (*subtype, rest) {
        (subtype, bytes) if subtype == mac => hexadecimal(bytes),
        (subtype, [1, a, b, c, d]) if subtype == network => format!("{a}.{b}.{c}.{d}"),
        (subtype, [2, rest @ ..]) if subtype == network && rest.len() == 16 => {
            let address: [u8; 16] = rest.try_into().ok()?;
            std::net::Ipv6Addr::from(address).to_string()
        }
        _ => text(rest),
    })
}

fn hexadecimal(bytes: &[u8]) -> String {
    let bytes: Vec<String> = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
    bytes.join(":")
}

/// A text; some neighbours end it with a zero byte.
fn text(value: &[u8]) -> String {
    let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
    String::from_utf8_lossy(&value[..end]).into_owned()
}

fn be16(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_be_bytes(*bytes))
}
