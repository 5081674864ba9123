//! Hooks of ifupdown, which run when it has brought an interface up (interfaces(5)).

use std::fmt::Write as _;
use std::path::PathBuf;

use super::{Desired, HEADER, Kind, OwnFile, lost};
use crate::apply::link_value::{parse_modes, parse_pause};
use crate::change::{Change, Setting};

/// The modes that a hook switches off where they are not wanted.
const MODES: [&str; 22] = [
    "10baseT/Half",
    "10baseT/Full",
    "100baseT/Half",
    "100baseT/Full",
    "1000baseT/Half",
    "1000baseT/Full",
    "1000baseKX/Full",
    "1000baseX/Full",
    "2500baseT/Full",
    "2500baseX/Full",
    "5000baseT/Full",
    "10000baseT/Full",
    "10000baseKR/Full",
    "10000baseCR/Full",
    "10000baseSR/Full",
    "10000baseLR/Full",
    "25000baseCR/Full",
    "25000baseKR/Full",
    "25000baseSR/Full",
    "40000baseCR4/Full",
    "40000baseSR4/Full",
    "100000baseCR4/Full",
];

/// The path of the hook of an interface.
pub(super) fn path(interface: &str) -> PathBuf {
    // run-parts(8) skips names with a dot.
    PathBuf::from("etc/network/if-up.d").join(format!("roundtrip-{}", interface.replace(['.', '@'], "_")))
}

/// The hook of an interface, whose name is plain.
pub(super) fn hook(interface: &str, changes: &[Change], desired: &mut Desired) {
    let mut content = format!(
        "#!/bin/sh\n{HEADER}# interfaces(5): runs when ifupdown has brought an interface up\n[ \"$IFACE\" = '{interface}' ] || exit 0\n"
    );
    let before = content.len();
    for change in changes {
        match command(change) {
            Ok(command) => {
                let _ = writeln!(content, "{command}");
            }
            Err(why) => desired.lost.push(lost(&change.setting, &why)),
        }
    }
    if content.len() == before {
        return;
    }
    let path = path(interface);
    if desired.files.iter().any(|file| file.path == path) {
        // eth0.1 and eth0_1.
        desired.lost.extend(
            changes.iter().map(|change| lost(&change.setting, "another interface has a hook of this name")),
        );
        return;
    }
    desired.files.push(OwnFile { path, kind: Kind::Script, content });
    desired.notes.push(format!(
        "the hook needs the package ethtool, and holds when ifupdown next brings {interface} up"
    ));
}

/// The command that makes a change.
fn command(change: &Change) -> Result<String, String> {
    let value = &change.value;
    let is_plain = |text: &str| {
        !text.is_empty()
            && text
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/' | ':' | ' '))
    };
    let plain = |text: &str| {
        if is_plain(text) {
            Ok(text.to_owned())
        } else {
            Err(format!("'{text}' has characters that a hook cannot hold"))
        }
    };
    match &change.setting {
        Setting::Mtu { interface } => Ok(format!("ip link set dev {interface} mtu {}", plain(value)?)),
        Setting::Ring { interface, parameter } => {
            Ok(format!("ethtool -G {interface} {} {}", plain(parameter)?, plain(value)?))
        }
        Setting::Coalescing { interface, parameter } => {
            Ok(format!("ethtool -C {interface} {} {}", plain(parameter)?, plain(value)?))
        }
        Setting::Feature { interface, feature } => {
            Ok(format!("ethtool -K {interface} {} {}", plain(feature)?, plain(value)?))
        }
        Setting::Pause { interface } => {
            let pause = parse_pause(value)?;
            let words = [("autoneg", pause.autoneg), ("rx", pause.rx), ("tx", pause.tx)];
            let words: Vec<String> = words
                .iter()
                .filter_map(|(key, value)| Some(format!("{key} {}", if (*value)? { "on" } else { "off" })))
                .collect();
            Ok(format!("ethtool -A {interface} {}", words.join(" ")))
        }
        Setting::EnergyEfficientEthernet { interface } => {
            Ok(format!("ethtool --set-eee {interface} eee {}", plain(value)?))
        }
        Setting::LinkModes { interface } => Ok(format!("ethtool -s {interface} {}", modes(value)?)),
        Setting::Route { route, option } if !value.is_empty() => {
            Ok(format!("ip route change {} {} {}", plain(route)?, plain(option)?, plain(value)?))
        }
        setting => Err(format!("a hook cannot keep the {setting}")),
    }
}

fn modes(value: &str) -> Result<String, String> {
    let change = parse_modes(value)?;
    let mut words = Vec::new();
    words.extend(change.speed_mbps.map(|speed| format!("speed {speed}")));
    words.extend(change.duplex.map(|duplex| format!("duplex {duplex}")));
    words.extend(change.autoneg.map(|autoneg| format!("autoneg {}", if autoneg { "on" } else { "off" })));
    if let Some(wanted) = change.advertise {
        if let Some(mode) = wanted.iter().find(|mode| !MODES.contains(&mode.as_str())) {
            return Err(format!("the hook does not know the mode {mode}"));
        }
        let state = |mode: &&str| if wanted.iter().any(|wanted| wanted == mode) { "on" } else { "off" };
        let list: Vec<String> = MODES.iter().map(|mode| format!("{mode} {}", state(mode))).collect();
        words.push(format!("advertise {}", list.join(" ")));
    }
    Ok(words.join(" "))
}
