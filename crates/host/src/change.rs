//! Settings of a host and the values that they are to have.

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A setting that is to have a value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Change {
    /// The setting.
    pub setting: Setting,
    /// Its new value, as [`Setting`] describes.
    pub value: String,
}

/// A setting that can be read, written and restored. Its value is a text that reading returns and writing takes, so that the journal
/// needs no knowledge of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "kind", rename_all = "kebab-case")]
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
            Self::Sysctl { name } => f.write_str(name),
            Self::Sysfs { path } => write!(f, "/sys/{path}"),
            Self::Route { route, option } => write!(f, "{option} of the route {route}"),
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
            | Self::Pause { interface } => Some(interface),
            Self::Sysctl { .. } | Self::Sysfs { .. } | Self::Route { .. } => None,
        }
    }
}
