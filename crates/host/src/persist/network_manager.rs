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
        // It has all of them but these.
        Setting::Coalescing { parameter, .. } if parameter.starts_with("cqe-mode") => None,
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

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(setting: Setting, value: &str) -> Option<Vec<(String, String)>> {
        let change = Change { setting, value: value.to_owned() };
        let list = properties("u", &change)?.into_iter().map(|change| match change.setting {
            Setting::Connection { property, .. } => (property, change.value),
            other => panic!("{other}"),
        });
        Some(list.collect())
    }

    /// Names and values that `nmcli --offline connection modify` of version 1.42.4 takes.
    #[test]
    fn properties_are_those_of_network_manager() {
        let eth0 = || "eth0".to_owned();
        let one = |name: &str, value: &str| Some(vec![(name.to_owned(), value.to_owned())]);
        let modes = |value: &str| kept(Setting::LinkModes { interface: eth0() }, value);
        let list = "802-3-ethernet.auto-negotiate,802-3-ethernet.speed,802-3-ethernet.duplex";
        assert_eq!(modes("autoneg=off speed=100 duplex=full"), one(list, "no,100,full"));
        assert_eq!(modes("autoneg=on advertise=1000baseT/Full"), one(list, "yes,1000,full"));
        // It can offer one mode only, and over twisted pair only.
        assert_eq!(modes("autoneg=on advertise=1000baseT/Full,100baseT/Full"), None);
        assert_eq!(modes("autoneg=on advertise=10000baseKR/Full"), None);
        assert_eq!(modes("autoneg=on"), None);
        assert_eq!(kept(Setting::Mtu { interface: eth0() }, "9000"), one("802-3-ethernet.mtu", "9000"));
        let coalescing = |parameter: &str, value: &str| {
            kept(Setting::Coalescing { interface: eth0(), parameter: parameter.to_owned() }, value)
        };
        assert_eq!(coalescing("adaptive-rx", "on"), one("ethtool.coalesce-adaptive-rx", "1"));
        assert_eq!(coalescing("rx-usecs", "8"), one("ethtool.coalesce-rx-usecs", "8"));
        assert_eq!(coalescing("cqe-mode-rx", "on"), None);
        let ring = Setting::Ring { interface: eth0(), parameter: "rx".to_owned() };
        assert_eq!(kept(ring, "1024"), one("ethtool.ring-rx", "1024"));
        let pause = kept(Setting::Pause { interface: eth0() }, "autoneg=off rx=on tx=off").unwrap();
        let values: Vec<&str> = pause.iter().map(|(_, value)| value.as_str()).collect();
        assert_eq!((pause[1].0.as_str(), values), ("ethtool.pause-rx", vec!["no", "yes", "no"]));
        assert_eq!(kept(Setting::Sysctl { name: "a.b".to_owned() }, "1"), None);
    }
}
