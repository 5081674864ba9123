//! One interface in words.

use host::facts::link::LinkFacts;
use netlink::ethtool::{
    ChannelCounts, Coalescing, Eee, Features, Fec, LinkModes, MasterSlave, Pause, Port, Ring,
};
use output::text::line;
use record::units::{counted, grouped};

/// Width of the names before the values.
const NAME: usize = 11;

/// Speed, duplex, negotiation, modes and settings of an interface, one line each.
#[must_use]
pub fn link(facts: &LinkFacts) -> String {
    let mut rows = vec![("interface", headline(facts))];
    match &facts.modes {
        Some(modes) => rows.extend(mode_rows(modes)),
        None => rows.push(("speed", "the driver reports no speed, duplex and modes".to_owned())),
    }
    rows.push(("MTU", mtu(facts)));
    rows.extend(setting_rows(facts));
    rows.push(("carrier", carrier(facts)));
    rows.push(("errors", errors(facts)));
    let rows: Vec<String> =
        rows.iter().map(|(name, value)| format!("{name:NAME$}  {}", line(value))).collect();
    rows.join("\n")
}

fn headline(facts: &LinkFacts) -> String {
    let mut text = format!("{}: {}", facts.name(), state(facts));
    if let Some(reason) = facts.state.as_ref().and_then(|state| state.reason.as_ref()) {
        text += &format!(" ({reason})");
    }
    if let Some(driver) = &facts.driver {
        text += &format!(", driver {driver}");
    }
    if let Some(master) = &facts.master_name {
        text += &format!(", part of {master}");
    }
    if facts.carries_default_route {
        text += ", carries the default route";
    }
    if facts.carries_caller {
        text += ", carries this SSH session";
    }
    text
}

/// Whether a link carries traffic, in two words at most.
pub(super) fn state(facts: &LinkFacts) -> &'static str {
    if !facts.link.is_up {
        "down"
    } else if facts.has_link() {
        "up"
    } else {
        "no link"
    }
}

/// On, off or unknown.
pub(super) fn switch(is_on: Option<bool>) -> &'static str {
    match is_on {
        Some(true) => "on",
        Some(false) => "off",
        None => "-",
    }
}

fn mode_rows(modes: &LinkModes) -> Vec<(&'static str, String)> {
    let unknown = || "unknown".to_owned();
    let speed = modes.speed_mbps.map_or_else(unknown, |speed| format!("{} Mb/s", grouped(u64::from(speed))));
    let list =
        |modes: &[String], none: &str| if modes.is_empty() { none.to_owned() } else { modes.join(", ") };
    let mut rows = vec![
        ("speed", speed),
        ("duplex", modes.duplex.map_or_else(unknown, |duplex| duplex.to_string())),
        ("negotiation", negotiation(modes)),
        ("supported", list(&modes.supported, "none reported")),
        ("advertised", list(&modes.advertised, "nothing")),
    ];
    rows.push((
        "partner",
        match &modes.partner {
            Some(partner) => list(partner, "advertises nothing: it does not negotiate"),
            None => "not reported".to_owned(),
        },
    ));
    if let Some(port) = modes.port {
        rows.push(("port", port_name(port).to_owned()));
    }
    if let Some(lanes) = modes.lanes {
        rows.push(("lanes", lanes.to_string()));
    }
    if let Some(part) = modes.master_slave {
        rows.push(("clock", clock(part).to_owned()));
    }
    rows
}

fn negotiation(modes: &LinkModes) -> String {
    match modes.autoneg {
        None => "unknown".to_owned(),
        Some(false) => "off: speed and duplex are forced or fixed".to_owned(),
        Some(true) => match modes.best_common() {
            Some(best) => format!("on: the best mode that both sides offer is {best}"),
            None => "on".to_owned(),
        },
    }
}

fn port_name(port: Port) -> &'static str {
    match port {
        Port::TwistedPair => "twisted pair",
        Port::Aui => "AUI",
        Port::Mii => "MII",
        Port::Fibre => "fibre",
        Port::Bnc => "coaxial cable",
        Port::DirectAttach => "direct-attach copper",
        Port::None => "none",
        Port::Other => "other",
    }
}

fn clock(part: MasterSlave) -> &'static str {
    match part {
        MasterSlave::Master | MasterSlave::ForcedMaster => "this side gives it (master)",
        MasterSlave::Slave | MasterSlave::ForcedSlave => "the partner gives it (slave)",
        MasterSlave::Conflict => "conflict: both sides claim the same part",
    }
}

fn mtu(facts: &LinkFacts) -> String {
    let link = &facts.link;
    match (link.min_mtu, link.max_mtu) {
        (Some(min), Some(max)) => format!("{} bytes, of {min} to {max}", link.mtu),
        _ => format!("{} bytes", link.mtu),
    }
}

fn setting_rows(facts: &LinkFacts) -> Vec<(&'static str, String)> {
    let channels = facts.channels.map(|channels| (channels.current, channels.max));
    let rows = [
        ("FEC", facts.fec.as_ref().map(fec)),
        ("pause", facts.pause.map(pause)),
        ("EEE", facts.eee.map(eee)),
        ("rings", facts.rings.map(|rings| format!("rx {}, tx {}", ring(rings.rx), ring(rings.tx)))),
        ("coalescing", facts.coalescing.as_ref().and_then(coalescing)),
        ("channels", channels.map(|(current, max)| channel_counts(current, max))),
        ("offloads", facts.offloads.as_ref().map(offloads)),
    ];
    rows.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

fn fec(fec: &Fec) -> String {
    let active = fec.active.as_deref().unwrap_or("none");
    format!("active {active}, configured {}", fec.configured.join(", "))
}

fn pause(pause: Pause) -> String {
    format!("receive {}, send {}, negotiated {}", switch(pause.rx), switch(pause.tx), switch(pause.autoneg))
}

fn eee(eee: Eee) -> String {
    format!("active {}, offered {}", switch(eee.is_active), switch(eee.is_enabled))
}

fn ring(ring: Option<Ring>) -> String {
    match ring {
        None => "-".to_owned(),
        Some(Ring { current, max: Some(max) }) => format!("{current} of {max}"),
        Some(Ring { current, max: None }) => current.to_string(),
    }
}

fn coalescing(coalescing: &Coalescing) -> Option<String> {
    let value = |parameter: netlink::ethtool::CoalescingParameter, value: u32| {
        if parameter.is_switch() { switch(Some(value > 0)).to_owned() } else { value.to_string() }
    };
    let parts: Vec<String> = coalescing
        .parameters
        .iter()
        .map(|(name, v)| format!("{} {}", name.name(), value(*name, *v)))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

fn channel_counts(current: ChannelCounts, max: ChannelCounts) -> String {
    let kinds = [
        ("combined", current.combined, max.combined),
        ("rx", current.rx, max.rx),
        ("tx", current.tx, max.tx),
        ("other", current.other, max.other),
    ];
    let used = kinds.into_iter().filter_map(|(name, current, max)| Some((name, current?, max)));
    let parts: Vec<String> = used
        .map(|(name, current, max)| match max {
            Some(max) => format!("{name} {current} of {max}"),
            None => format!("{name} {current}"),
        })
        .collect();
    parts.join(", ")
}

fn offloads(offloads: &Features) -> String {
    let names = |is_on: bool| -> Vec<&str> {
        offloads
            .features
            .iter()
            .filter(|(_, state)| state.is_on == is_on)
            .map(|(name, _)| name.as_str())
            .collect()
    };
    let fixed = |name: &str| offloads.features.get(name).is_some_and(|state| !state.is_changeable);
    let off: Vec<String> = names(false)
        .iter()
        .map(|name| if fixed(name) { format!("{name} (fixed)") } else { (*name).to_owned() })
        .collect();
    format!("on {}; off {}", or_none(&names(true).join(", ")), or_none(&off.join(", ")))
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "none" } else { text }
}

fn carrier(facts: &LinkFacts) -> String {
    match facts.link.carrier_changes {
        Some(changes) => format!("changed {}", times(u64::from(changes))),
        None => "changes not counted".to_owned(),
    }
}

fn times(count: u64) -> String {
    counted(count, "time")
}

/// Counters of errors that are not 0.
fn errors(facts: &LinkFacts) -> String {
    let Some(counters) = facts.link.counters else { return "not counted".to_owned() };
    let is_error = |name: &str| name.ends_with("errors") || name.ends_with("dropped") || name == "collisions";
    let counted = counters.all().into_iter().filter(|(name, value)| is_error(name) && *value > 0);
    let parts: Vec<String> = counted.map(|(name, value)| format!("{name} {}", grouped(value))).collect();
    or_none(&parts.join(", ")).to_owned()
}

#[cfg(test)]
mod tests {
    use netlink::ethtool::{Channels, CoalescingParameter, Duplex, FeatureState, LinkState, Rings};
    use netlink::route::{Counters, Link};

    use super::*;

    fn card() -> LinkFacts {
        let mode = |name: &str| vec![name.to_owned()];
        let feature = |is_on, is_changeable| FeatureState { is_on, is_wanted: is_on, is_changeable };
        let features = [
            ("rx-gro", feature(true, true)),
            ("rx-lro", feature(false, true)),
            ("rx-gro-hw", feature(false, false)),
        ];
        LinkFacts {
            link: Link {
                name: "eth0".to_owned(),
                is_up: true,
                mtu: 9000,
                min_mtu: Some(68),
                max_mtu: Some(9710),
                carrier_changes: Some(1),
                counters: Some(Counters { rx_crc_errors: 1234, rx_packets: 7, ..Counters::default() }),
                ..Link::default()
            },
            driver: Some("ixgbe".to_owned()),
            carries_default_route: true,
            state: Some(LinkState { has_link: Some(true), ..LinkState::default() }),
            modes: Some(LinkModes {
                speed_mbps: Some(10_000),
                duplex: Some(Duplex::Full),
                autoneg: Some(true),
                supported: mode("10000baseT/Full"),
                advertised: mode("10000baseT/Full"),
                partner: Some(mode("10000baseT/Full")),
                lanes: Some(4),
                master_slave: Some(MasterSlave::Slave),
                port: Some(Port::TwistedPair),
                ..LinkModes::default()
            }),
            fec: Some(Fec { active: Some("RS".to_owned()), configured: mode("RS"), ..Fec::default() }),
            pause: Some(Pause { rx: Some(true), tx: Some(false), autoneg: None, ..Pause::default() }),
            eee: Some(Eee { is_active: Some(false), is_enabled: Some(true), ..Eee::default() }),
            rings: Some(Rings {
                rx: Some(Ring { current: 512, max: Some(8192) }),
                tx: Some(Ring { current: 64, max: None }),
            }),
            coalescing: Some(
                Coalescing::default()
                    .with(CoalescingParameter::RxUsecs, 3)
                    .with(CoalescingParameter::AdaptiveRx, 1),
            ),
            channels: Some(Channels {
                current: ChannelCounts { combined: Some(8), ..ChannelCounts::default() },
                max: ChannelCounts { combined: Some(63), ..ChannelCounts::default() },
            }),
            offloads: Some(Features {
                features: features.map(|(name, state)| (name.to_owned(), state)).into(),
            }),
            ..LinkFacts::default()
        }
    }

    #[test]
    fn settings_of_a_card_are_told_in_words() {
        let expected = "\
interface    eth0: up, driver ixgbe, carries the default route
speed        10 000 Mb/s
duplex       full
negotiation  on: the best mode that both sides offer is 10000baseT/Full
supported    10000baseT/Full
advertised   10000baseT/Full
partner      10000baseT/Full
port         twisted pair
lanes        4
clock        the partner gives it (slave)
MTU          9000 bytes, of 68 to 9710
FEC          active RS, configured RS
pause        receive on, send off, negotiated -
EEE          active off, offered on
rings        rx 512 of 8192, tx 64
coalescing   rx-usecs 3, adaptive-rx on
channels     combined 8 of 63
offloads     on rx-gro; off rx-gro-hw (fixed), rx-lro
carrier      changed 1 time
errors       rx_crc_errors 1 234";
        assert_eq!(link(&card()), expected);
    }

    #[test]
    fn a_partner_that_offers_nothing_differs_from_one_that_is_not_reported() {
        let mut facts = card();
        facts.modes.as_mut().expect("modes").partner = Some(Vec::new());
        assert!(link(&facts).contains("partner      advertises nothing: it does not negotiate\n"));
        facts.modes.as_mut().expect("modes").partner = None;
        assert!(link(&facts).contains("partner      not reported\n"));
        facts.modes = None;
        assert!(link(&facts).contains("speed        the driver reports no speed, duplex and modes\n"));
        facts.state = Some(LinkState {
            has_link: Some(false),
            reason: Some("no cable".to_owned()),
            ..LinkState::default()
        });
        assert!(link(&facts).starts_with("interface    eth0: no link (no cable), driver ixgbe"));
    }
}
