//! Settings of a host and the values that they are to have.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A setting that is to have a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// Its new value, as [`Setting`] describes.
    pub value: String,
}

/// A setting that can be read, written and restored. Its value is a text that reading returns and writing takes, so that the journal
/// needs no knowledge of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Setting {
    /// Speed, duplex, negotiation and advertised modes of an interface, which change together:
    /// `autoneg=on advertise=1000baseT/Full,100baseT/Full`, `autoneg=off speed=100 duplex=full`.
    LinkModes {
        /// The interface.
        interface: String,
    },
    /// MTU of an interface, bytes: `9000`.
    Mtu {
        /// The interface.
        interface: String,
    },
    /// A coalescing parameter of an interface: `rx-usecs`, value `8`; `adaptive-rx`, value `off`.
    Coalescing {
        /// The interface.
        interface: String,
        /// Its name as in ethtool.
        parameter: String,
    },
    /// A ring size of an interface: `rx`, value `1024`.
    Ring {
        /// The interface.
        interface: String,
        /// `rx` or `tx`.
        parameter: String,
    },
    /// An offload of an interface: `tx-tcp-segmentation`, value `on` or `off`.
    Feature {
        /// The interface.
        interface: String,
        /// Its name as in the kernel.
        feature: String,
    },
    /// Flow control of an interface: `autoneg=on rx=off tx=off`.
    Pause {
        /// The interface.
        interface: String,
    },
    /// Energy-efficient Ethernet of an interface: value `on` or `off`. The link goes down and negotiates again.
    EnergyEfficientEthernet {
        /// The interface.
        interface: String,
    },
    /// The processors that an interrupt may go to, a list of `/proc/irq/N/smp_affinity_list`: `2`, `0-3,8`.
    InterruptAffinity {
        /// The interrupt's number, which may be another after a reboot.
        interrupt: u32,
    },
    /// A kernel parameter by its dotted name: `net.ipv4.tcp_rmem`, value `4096 131072 6291456`.
    Sysctl {
        /// Its name.
        name: String,
    },
    /// A file below /sys, such as `class/net/eth0/queues/rx-0/rps_cpus` or a governor.
    Sysfs {
        /// The path below /sys.
        path: String,
    },
    /// An option of a route: `quickack`, value `1`; the empty value is one that is not set.
    Route {
        /// The route as `ip route` prints it, without options: `10.0.0.0/24 dev eth0`.
        route: String,
        /// Its name as in ip-route(8).
        option: String,
    },
    /// A property of a connection of NetworkManager, which holds from its next activation: `802-3-ethernet.mtu`, value `9000`.
    /// Unlike the other settings it is kept in a file, so it survives a reboot.
    Connection {
        /// The connection's UUID.
        uuid: String,
        /// Its name as in nm-settings-nmcli(5), or several that are valid only together, with commas as in the value.
        property: String,
    },
}

impl fmt::Display for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LinkModes { interface } => write!(f, "link modes of {interface}"),
            Self::Mtu { interface } => write!(f, "MTU of {interface}"),
            Self::Coalescing { interface, parameter } => write!(f, "coalescing {parameter} of {interface}"),
            Self::Ring { interface, parameter } => write!(f, "{parameter} ring of {interface}"),
            Self::Feature { interface, feature } => write!(f, "{feature} of {interface}"),
            Self::Pause { interface } => write!(f, "flow control of {interface}"),
            Self::EnergyEfficientEthernet { interface } => {
                write!(f, "energy-efficient Ethernet of {interface}")
            }
            Self::InterruptAffinity { interrupt } => write!(f, "processors of interrupt {interrupt}"),
            Self::Sysctl { name } => f.write_str(name),
            Self::Sysfs { path } => write!(f, "/sys/{path}"),
            Self::Route { route, option } => write!(f, "{option} of the route {route}"),
            Self::Connection { uuid, property } => write!(f, "{property} of the connection {uuid}"),
        }
    }
}

impl Setting {
    /// The interface whose traffic the change can interrupt.
    #[must_use]
    pub fn interface(&self) -> Option<&str> {
        match self {
            Self::LinkModes { interface }
            | Self::Mtu { interface }
            | Self::Coalescing { interface, .. }
            | Self::Ring { interface, .. }
            | Self::Feature { interface, .. }
            | Self::Pause { interface }
            | Self::EnergyEfficientEthernet { interface } => Some(interface),
            Self::InterruptAffinity { .. }
            | Self::Sysctl { .. }
            | Self::Sysfs { .. }
            | Self::Route { .. }
            | Self::Connection { .. } => None,
        }
    }

    /// Every interface whose traffic the change can interrupt, those that files and routes name included.
    #[must_use]
    pub fn interfaces(&self) -> Vec<String> {
        match self {
            // net.ipv4.conf.eth0.rp_filter; `all` and `default` are of none. A slash stands for a dot within a name.
            Self::Sysctl { name } => {
                let parts: Vec<&str> = name.split('.').collect();
                match parts[..] {
                    ["net", _, "conf" | "neigh", interface, ..]
                        if !matches!(interface, "all" | "default") =>
                    {
                        vec![interface.replace('/', ".")]
                    }
                    _ => Vec::new(),
                }
            }
            // class/net/eth0/mtu and devices/.../net/eth0/mtu.
            Self::Sysfs { path } => {
                let parts: Vec<&str> = path.split('/').filter(|part| !matches!(*part, "" | ".")).collect();
                parts.windows(2).filter(|pair| pair[0] == "net").map(|pair| pair[1].to_owned()).collect()
            }
            Self::Route { route, .. } => {
                let words: Vec<&str> = route.split_whitespace().collect();
                words.windows(2).filter(|pair| pair[0] == "dev").map(|pair| pair[1].to_owned()).collect()
            }
            _ => self.interface().map(str::to_owned).into_iter().collect(),
        }
    }

    /// Whether its value is kept in a file, so that it survives a reboot without more.
    #[must_use]
    pub fn survives_reboot(&self) -> bool {
        matches!(self, Self::Connection { .. })
    }

    /// Whether two of its values mean the same: the kernel prints tabs where others type spaces, modes have no order, and a mask of
    /// processors may have leading zeros.
    #[must_use]
    pub fn means_the_same(&self, a: &str, b: &str) -> bool {
        a == b || self.meaning(a) == self.meaning(b)
    }

    fn meaning(&self, value: &str) -> Vec<String> {
        let words = value.split_whitespace();
        match self {
            Self::LinkModes { .. } | Self::Pause { .. } => {
                let mut words: Vec<String> = words.map(in_order).collect();
                words.sort();
                words
            }
            Self::Sysfs { path } if path.ends_with("_cpus") || path.ends_with("smp_affinity") => {
                words.map(|word| word.replace(',', "").trim_start_matches('0').to_ascii_lowercase()).collect()
            }
            _ => words.map(str::to_owned).collect(),
        }
    }
}

/// `advertise=b,a` as `advertise=a,b`.
fn in_order(word: &str) -> String {
    let Some((key, list)) = word.split_once('=') else { return word.to_owned() };
    let mut items: Vec<&str> = list.split(',').collect();
    items.sort_unstable();
    format!("{key}={}", items.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interfaces_that_files_and_routes_name_are_found() {
        let sysfs = |path: &str| Setting::Sysfs { path: path.to_owned() };
        let sysctl = |name: &str| Setting::Sysctl { name: name.to_owned() };
        for (setting, interfaces) in [
            (sysfs("class/net/eth0/mtu"), vec!["eth0"]),
            (sysfs("class//net/./eth0/mtu"), vec!["eth0"]),
            (sysfs("devices/pci0000:00/0000:00:03.0/net/eth0/queues/rx-0/rps_cpus"), vec!["eth0"]),
            (sysfs("devices/system/cpu/cpu0/cpufreq/scaling_governor"), vec![]),
            (sysctl("net.ipv4.conf.eth0.rp_filter"), vec!["eth0"]),
            (sysctl("net.ipv4.conf.eth0/100.rp_filter"), vec!["eth0.100"]),
            (sysctl("net.ipv4.conf.all.rp_filter"), vec![]),
            (sysctl("net.ipv4.tcp_rmem"), vec![]),
            (
                Setting::Route {
                    route: "10.0.0.0/24 via 10.1.0.1 dev eth1".into(),
                    option: "quickack".into(),
                },
                vec!["eth1"],
            ),
            (Setting::Mtu { interface: "eth0".into() }, vec!["eth0"]),
        ] {
            assert_eq!(setting.interfaces(), interfaces, "{setting}");
        }
    }

    #[test]
    fn values_that_mean_the_same_are_recognised() {
        let sysctl = Setting::Sysctl { name: "net.ipv4.tcp_rmem".into() };
        assert!(sysctl.means_the_same("4096\t131072\t6291456", "4096 131072 6291456"));
        assert!(!sysctl.means_the_same("4096 131072", "4096 131072 6291456"));
        assert!(!sysctl.means_the_same("4096 131072", "131072 4096"));
        let modes = Setting::LinkModes { interface: "eth0".into() };
        assert!(modes.means_the_same("advertise=a,b autoneg=on", "autoneg=on advertise=b,a"));
        assert!(!modes.means_the_same("autoneg=on advertise=a", "autoneg=on advertise=a,b"));
        let mask = Setting::Sysfs { path: "class/net/eth0/queues/rx-0/rps_cpus".into() };
        assert!(mask.means_the_same("00000000,0000000f", "F"));
        assert!(!mask.means_the_same("3", "30"));
    }

    #[test]
    fn an_unknown_key_of_a_change_is_an_error() {
        let good = r#"{"setting":{"kind":"mtu","interface":"eth0"},"value":"9000"}"#;
        assert!(serde_json::from_str::<Change>(good).is_ok());
        for bad in [
            r#"{"setting":{"kind":"mtu","interface":"eth0","speed":1},"value":"9000"}"#,
            r#"{"setting":{"kind":"mtu","interface":"eth0"},"value":"9000","more":1}"#,
            r#"{"setting":{"kind":"mtus","interface":"eth0"},"value":"9000"}"#,
        ] {
            assert!(serde_json::from_str::<Change>(bad).is_err(), "{bad}");
        }
    }
}
