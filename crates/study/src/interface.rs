//! Interfaces of this host.

use std::net::{IpAddr, UdpSocket};

use capture::{LiveCapture, LiveConfig};
use serde::{Deserialize, Serialize};

/// An interface of this host.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its MTU, bytes.
    pub mtu_bytes: u32,
    /// The speed that its driver reports, bits per second.
    pub bits_per_second: Option<u64>,
    /// This process may capture on it.
    pub may_capture: bool,
}

impl Interface {
    /// The interface that packets to an address are sent from. Sends none.
    ///
    /// # Errors
    /// When there is no route.
    pub fn towards(address: IpAddr) -> std::io::Result<Self> {
        let any: IpAddr = if address.is_ipv4() {
            std::net::Ipv4Addr::UNSPECIFIED.into()
        } else {
            std::net::Ipv6Addr::UNSPECIFIED.into()
        };
        let socket = UdpSocket::bind((any, 0))?;
        // Connecting a datagram socket only chooses its own address.
        socket.connect((address, 9))?;
        Self::with(socket.local_addr()?.ip())
    }

    /// The interface that has an address.
    ///
    /// # Errors
    /// When none has it.
    pub fn with(address: IpAddr) -> std::io::Result<Self> {
        let found = nix::ifaddrs::getifaddrs()?
            .find(|known| {
                known.address.and_then(|of| of.as_sockaddr_in().map(|v4| IpAddr::from(v4.ip())))
                    == Some(address)
                    || known.address.and_then(|of| of.as_sockaddr_in6().map(|v6| IpAddr::from(v6.ip())))
                        == Some(address)
            })
            .ok_or_else(|| std::io::Error::other(format!("no interface of this host has {address}")))?;
        let name = found.interface_name;
        let read =
            |what: &str| std::fs::read_to_string(format!("/sys/class/net/{name}/{what}")).unwrap_or_default();
        let mtu_bytes = read("mtu").trim().parse().unwrap_or(1500);
        // -1 when the driver knows no speed.
        let megabits: Option<i64> = read("speed").trim().parse().ok();
        let probe = LiveConfig { interface: name.clone(), port: 1, ring_bytes: 0, snap_bytes: 0 };
        Ok(Self {
            mtu_bytes,
            bits_per_second: megabits.and_then(|of| u64::try_from(of).ok()).map(|of| of * 1_000_000),
            may_capture: LiveCapture::open(&probe).is_ok(),
            name,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interface_towards_this_host_is_loopback() {
        let found = Interface::towards([127, 0, 0, 1].into()).unwrap();
        assert_eq!((&*found.name, found.mtu_bytes), ("lo", 65_536));
        assert!(Interface::with([192, 0, 2, 77].into()).is_err());
    }
}
