//! Rules about the two ends of a link: what the neighbour announces by LLDP, and what another host's check read, beside what this
//! host has.

use std::net::IpAddr;

use netlink::ethtool::{LinkModes, Mode};

use super::link::{Partner, finding, is_twisted_pair, to_negotiation};
use crate::change::{Change, Setting};
use crate::check::shell::word;
use crate::facts::Facts;
use crate::facts::link::LinkFacts;
use crate::facts::peer::{CheckedHost, MacPhy, Neighbour, PeerFacts};
use crate::finding::{Finding, Severity};

/// Bytes of a frame beside the packet: header and CRC.
const FRAME_OVERHEAD: u32 = 18;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    facts.peers.iter().flat_map(|peer| of_peer(peer, facts)).collect()
}

fn of_peer(peer: &PeerFacts, facts: &Facts) -> Vec<Finding> {
    match peer {
        PeerFacts::Lldp { interface, neighbour } => {
            let link = facts.links.iter().find(|link| link.name() == interface);
            link.map(|link| beside_neighbour(link, neighbour)).unwrap_or_default()
        }
        PeerFacts::Ssh { destination, host } => {
            let mut all = mtu_differs(facts, destination, host);
            all.extend(host.findings.iter().map(|found| of_other_host(found, destination)));
            all
        }
    }
}

/// A link beside what its neighbour announces.
fn beside_neighbour(link: &LinkFacts, neighbour: &Neighbour) -> Vec<Finding> {
    let port = port_name(neighbour);
    let mut all = Vec::new();
    if let (Some(modes), Some(mac_phy)) = (&link.modes, &neighbour.mac_phy) {
        all.extend(negotiation_mismatch(link, modes, mac_phy, &port));
        all.extend(duplex_mismatch(link, modes, mac_phy, &port));
        all.extend(slow_link(link, modes, mac_phy, &port));
    }
    all.extend(mtu_exceeds(link, neighbour, &port));
    all
}

/// How a person finds the port: `port Gi1/0/7 of switch1`.
fn port_name(neighbour: &Neighbour) -> String {
    let system = neighbour.system_name.as_deref().unwrap_or(&neighbour.chassis);
    format!("port {} of {system}", neighbour.port)
}

/// One side negotiates and the other does not.
fn negotiation_mismatch(
    link: &LinkFacts,
    modes: &LinkModes,
    mac_phy: &MacPhy,
    port: &str,
) -> Option<Finding> {
    let ours = modes.autoneg?;
    let is_copper = mac_phy
        .operating
        .as_ref()
        .map_or_else(|| is_twisted_pair(modes), |operating| operating.is_twisted_pair);
    if ours == mac_phy.negotiates || !is_copper || !link.has_link() {
        return None;
    }
    let measured = if ours {
        format!("this side negotiates, {port} is forced")
    } else {
        format!("this side is forced, {port} negotiates")
    };
    let why = "The side that negotiates gets no answer and must assume half duplex, while the forced side is usually set to full: \
               frames collide late and are lost. 1000BASE-T and faster need negotiation on both sides.";
    let mut found = finding("forced-against-negotiating", Severity::Broken, link, measured, why);
    if !ours {
        return Some(to_negotiation(link, modes, &Partner::of_port(mac_phy)).of(found));
    }
    found.other_end = Some(format!("let {port} negotiate (Cisco: `speed auto`, `duplex auto`)"));
    Some(found)
}

/// The two sides use another duplex.
fn duplex_mismatch(link: &LinkFacts, modes: &LinkModes, mac_phy: &MacPhy, port: &str) -> Option<Finding> {
    let (ours, operating) = (modes.duplex?, mac_phy.operating.as_ref()?);
    let theirs = operating.duplex?;
    if ours == theirs || !link.has_link() {
        return None;
    }
    let measured = format!("{ours} duplex here, {theirs} duplex ({}) at {port}", operating.name);
    let why = "The half-duplex side waits until the medium is free and breaks off when the other sends; the full-duplex side does \
               neither. Under load frames collide late and are lost, and TCP repeats them after 200 ms or more.";
    let mut found = finding("duplex-mismatch", Severity::Broken, link, measured, why);
    // Negotiating helps where the port does; a side that negotiates already, and gets no answer, can do nothing.
    let is_mended_here = modes.autoneg == Some(false) && mac_phy.negotiates;
    let command = if is_mended_here {
        format!("ethtool -s {} autoneg on", word(link.name()))
    } else {
        format!("ethtool {}", word(link.name()))
    };
    found.commands = vec![command];
    found.other_end = Some(format!(
        "let {port} negotiate; only at 10 and 100 Mb/s, and if it cannot, force both sides to the same speed and full duplex in the same \
         minute"
    ));
    Some(found)
}

/// The neighbour offers a faster mode than the one in use, which this side has, too. Where the driver reports the partner's modes
/// itself, the rule about the link says so.
fn slow_link(link: &LinkFacts, modes: &LinkModes, mac_phy: &MacPhy, port: &str) -> Option<Finding> {
    if modes.partner.is_some() || !mac_phy.negotiates || !link.has_link() {
        return None;
    }
    let could = LinkModes {
        advertised: modes.supported.clone(),
        partner: Some(mac_phy.advertised.clone()),
        ..modes.clone()
    };
    let best = could.best_common()?.to_owned();
    let speed = modes.speed_mbps?;
    if speed >= Mode::parse(&best)?.speed_mbps {
        return None;
    }
    let measured = format!("{speed} Mb/s; this side supports and {port} advertises {best}");
    let why = "Both sides can do more: this side does not offer it, or the cable has a broken pair, as gigabit and faster links need \
               all four pairs.";
    let mut found = finding("speed-below-possible", Severity::Slow, link, measured, why);
    found.commands = vec![
        format!("ethtool -s {} autoneg on", word(link.name())),
        format!("ethtool --cable-test {}", word(link.name())),
    ];
    Some(found)
}

/// This host sends longer frames than the neighbour takes.
fn mtu_exceeds(link: &LinkFacts, neighbour: &Neighbour, port: &str) -> Option<Finding> {
    let longest = u32::from(neighbour.max_frame_bytes.filter(|bytes| *bytes > 0)?);
    let theirs = longest.checked_sub(FRAME_OVERHEAD)?;
    if link.link.mtu <= theirs {
        return None;
    }
    let measured = format!("MTU {} bytes here, {theirs} at {port}", link.link.mtu);
    let why = "The port drops frames longer than it takes without a message to the sender. Small packets pass and large ones do not: \
               connections open and then hang.";
    let mut found = finding("mtu-mismatch", Severity::Broken, link, measured, why);
    found.commands = vec![format!("ip link set dev {} mtu {theirs}", word(link.name()))];
    let setting = Setting::Mtu { interface: link.name().to_owned() };
    found.changes = vec![Change { setting, value: theirs.to_string() }];
    found.other_end =
        Some(format!("or raise the MTU of {port} and of every port on the way to {}", link.link.mtu));
    Some(found)
}

/// Two hosts of one network have another MTU.
fn mtu_differs(facts: &Facts, destination: &str, host: &CheckedHost) -> Vec<Finding> {
    let pairs = facts.links.iter().filter_map(|ours| {
        let theirs = host.links.iter().find(|theirs| share_network(ours, theirs))?;
        (ours.link.mtu != theirs.link.mtu).then_some((ours, theirs))
    });
    let found = |(ours, theirs): (&LinkFacts, &LinkFacts)| {
        let smaller = ours.link.mtu.min(theirs.link.mtu);
        let measured = format!(
            "MTU {} bytes here, {} on {} of {destination}, in one network",
            ours.link.mtu,
            theirs.link.mtu,
            theirs.name()
        );
        let why = "Hosts of one network must have one MTU: TCP takes the smaller one, but UDP and the larger side's other packets are \
                   dropped by the smaller side's card without a message.";
        let mut found = finding("mtu-mismatch", Severity::Slow, ours, measured, why);
        if ours.link.mtu > smaller {
            found.commands = vec![format!("ip link set dev {} mtu {smaller}", word(ours.name()))];
            let setting = Setting::Mtu { interface: ours.name().to_owned() };
            found.changes = vec![Change { setting, value: smaller.to_string() }];
        } else {
            found.other_end =
                Some(format!("on {destination}: ip link set dev {} mtu {smaller}", word(theirs.name())));
        }
        found
    };
    pairs.map(found).collect()
}

fn share_network(ours: &LinkFacts, theirs: &LinkFacts) -> bool {
    let networks = |link: &LinkFacts| -> Vec<(IpAddr, u8)> {
        link.addresses.iter().filter_map(|address| network(address)).collect()
    };
    let theirs = networks(theirs);
    networks(ours).iter().any(|network| theirs.contains(network))
}

/// The network of an address such as `10.0.0.1/24`; none for link-local addresses, which every link has, and for single hosts.
fn network(address: &str) -> Option<(IpAddr, u8)> {
    let (address, length) = address.split_once('/')?;
    let (address, length): (IpAddr, u8) = (address.parse().ok()?, length.parse().ok()?);
    let mask = |bits: u32, whole: u32| u128::MAX.checked_shl(whole - bits.min(whole)).unwrap_or_default();
    match address {
        IpAddr::V4(v4) if !v4.is_link_local() && length < 32 => {
            let masked = u128::from(v4.to_bits()) & mask(u32::from(length), 32);
            Some((std::net::Ipv4Addr::from_bits(masked as u32).into(), length))
        }
        IpAddr::V6(v6) if !v6.is_unicast_link_local() && length < 128 => {
            let masked = v6.to_bits() & mask(u32::from(length), 128);
            Some((std::net::Ipv6Addr::from_bits(masked).into(), length))
        }
        _ => None,
    }
}

/// A finding of another host, as one of this check. It is mended there.
pub(super) fn of_other_host(found: &Finding, destination: &str) -> Finding {
    Finding {
        subject: format!("{destination}: {}", found.subject),
        changes: Vec::new(),
        commands: Vec::new(),
        other_end: Some(format!("on {destination}: {}", there(found))),
        ..found.clone()
    }
}

fn there(found: &Finding) -> String {
    let mut all = found.commands.clone();
    all.extend(found.other_end.iter().map(|other| format!("at its other end: {other}")));
    if all.is_empty() { "see `roundtrip host check` there".to_owned() } else { all.join("; ") }
}
