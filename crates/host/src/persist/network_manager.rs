//! Properties of NetworkManager's connections (nm-settings-nmcli(5) of version 1.42).

use netlink::ethtool::{Duplex, Mode};

use crate::apply::link_value::{parse_modes, parse_pause};
use crate::change::{Change, Setting};

/// The properties that keep a change; none where there is no such property, or it cannot say so much.
pub(super) fn properties(uuid: &str, change: &Change) -> Option<Vec<Change>> {
    let property = |name: String, value: String| Change {
        setting: Setting::Connection { uuid: uuid.to_owned(), property: name },
        value,
    };
    let one = |name: &str, value: &str| Some(vec![property(name.to_owned(), value.to_owned())]);
    let value = change.value.as_str();
    match &change.setting {
        Setting::Mtu { .. } => one("802-3-ethernet.mtu", value),
        Setting::Ring { parameter, .. } => one(&format!("ethtool.ring-{parameter}"), value),
        Setting::Coalescing { parameter, .. } => {
            let value = match value {
                "on" => "1",
                "off" => "0",
                number => number,
            };
            one(&format!("ethtool.coalesce-{parameter}"), value)
        }
        Setting::Pause { .. } => {
            let pause = parse_pause(value).ok()?;
            let keys = [("autoneg", pause.autoneg), ("rx", pause.rx), ("tx", pause.tx)];
            let list = keys.into_iter().filter_map(|(key, value)| {
                Some(property(format!("ethtool.pause-{key}"), if value? { "yes" } else { "no" }.to_owned()))
            });
            Some(list.collect())
        }
        Setting::LinkModes { .. } => {
            let modes = parse_modes(value).ok()?;
            let (speed, duplex) = match modes.advertise.as_deref() {
                // With negotiation, speed and duplex are the only mode that it offers, and only over twisted pair.
                Some([only]) if only.contains("baseT/") => {
                    let mode = Mode::parse(only)?;
                    (mode.speed_mbps, if mode.is_full { Duplex::Full } else { Duplex::Half })
                }
                Some(_) => return None,
                None => (modes.speed_mbps?, modes.duplex?),
            };
            let autoneg = if modes.autoneg == Some(false) { "no" } else { "yes" };
            // NetworkManager accepts a speed only together with a duplex.
            let list = "802-3-ethernet.auto-negotiate,802-3-ethernet.speed,802-3-ethernet.duplex";
            one(list, &format!("{autoneg},{speed},{duplex}"))
        }
        _ => None,
    }
}
