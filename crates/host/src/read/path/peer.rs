//! The peer as a user names it.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use nix::sys::socket::SockaddrStorage;
use thiserror::Error;

/// A host, with its TCP port and the user to log in as where they are named: `array`, `10.0.0.2:3260`, `fd00::2`, `[fd00::2]:3260`,
/// `fe80::1%eth0`, `admin@array`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The user to log in as over ssh.
    pub user: Option<String>,
    /// A name or an address, without brackets.
    pub host: String,
    /// The TCP port of the path's probes. It is not that of ssh.
    pub port: Option<u16>,
}

impl Peer {
    /// What ssh is to connect to: without the port, which is that of another service.
    #[must_use]
    pub fn ssh_destination(&self) -> String {
        self.user.as_ref().map_or_else(|| self.host.clone(), |user| format!("{user}@{}", self.host))
    }
}

/// The text names no peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum PeerError {
    /// It has another form.
    #[error(
        "'{0}' is no peer; write HOST, HOST:PORT, IPV6, [IPV6]:PORT or USER@HOST, with a port from 1 to 65535"
    )]
    Form(String),
    /// It is an address of every link.
    #[error("'{0}' is a link-local address, which every link has; name the interface: {0}%eth0")]
    Scope(String),
    /// It is an address of no host, or of many.
    #[error("'{0}' is not the address of one host: it is {1}; name a host or its own address")]
    NoHost(String, &'static str),
    /// It is longer than names are.
    #[error("the peer's name has {0} bytes, and names of hosts have at most 253")]
    Long(usize),
}

/// The longest name of a host (RFC 1035, 2.3.4, as text).
const NAME_BYTES_MAX: usize = 253;

/// Why an address belongs to no single host; `None` where it may.
pub(super) fn no_host(address: IpAddr) -> Option<&'static str> {
    let address = address.to_canonical();
    if address.is_unspecified() {
        Some("the unspecified address")
    } else if address.is_multicast() {
        Some("a multicast group")
    } else if address == IpAddr::V4(Ipv4Addr::BROADCAST) {
        Some("the broadcast address")
    } else {
        None
    }
}

impl FromStr for Peer {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        let error = || PeerError::Form(text.to_owned());
        let port = |port: &str| match port.parse() {
            // A sign is part of Rust's numbers and not of ports.
            Ok(port @ 1..) if !text.contains('+') => Ok(Some(port)),
            _ => Err(error()),
        };
        let (user, rest) = match text.rsplit_once('@') {
            Some((user, rest)) if is_word(user) => (Some(user.to_owned()), rest),
            Some(_) => return Err(error()),
            None => (None, text),
        };
        let (host, port) = if is_v6(rest) {
            (rest, None)
        } else if let Some(rest) = rest.strip_prefix('[') {
            let (host, rest) = rest.split_once(']').filter(|(host, _)| is_v6(host)).ok_or_else(error)?;
            match rest.strip_prefix(':') {
                Some(number) => (host, port(number)?),
                None if rest.is_empty() => (host, None),
                None => return Err(error()),
            }
        } else {
            match rest.split_once(':') {
                Some((host, number)) => (host, port(number)?),
                None => (rest, None),
            }
        };
        if !is_word(host) {
            return Err(error());
        }
        if host.len() > NAME_BYTES_MAX {
            return Err(PeerError::Long(host.len()));
        }
        let literal = host.split('%').next().unwrap_or(host).parse::<IpAddr>();
        if let Some(why) = literal.ok().and_then(no_host) {
            return Err(PeerError::NoHost(host.to_owned(), why));
        }
        if host.parse::<Ipv6Addr>().is_ok_and(|address| address.is_unicast_link_local()) {
            return Err(PeerError::Scope(host.to_owned()));
        }
        Ok(Self { user, host: host.to_owned(), port })
    }
}

/// Whether a text is an IPv6 address, with or without the interface of a link-local one.
fn is_v6(text: &str) -> bool {
    let (address, scope) = text.split_once('%').unwrap_or((text, "any"));
    address.parse::<Ipv6Addr>().is_ok() && is_word(scope) && !scope.contains([':', ']', '%'])
}

/// Whether a text can be a user, a host or an interface. One that begins with a dash would be an option of ssh.
fn is_word(text: &str) -> bool {
    let is_bad = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == '@';
    !text.is_empty() && !text.starts_with('-') && !text.chars().any(is_bad)
}

/// The port in a socket address.
pub(super) fn port_of(address: &SockaddrStorage) -> Option<u16> {
    let four = address.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::port);
    four.or_else(|| address.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(user: Option<&str>, host: &str, port: Option<u16>) -> Result<Peer, PeerError> {
        Ok(Peer { user: user.map(str::to_owned), host: host.to_owned(), port })
    }

    #[test]
    fn names_and_addresses_are_parsed_with_and_without_a_port() {
        assert_eq!("array".parse(), peer(None, "array", None));
        assert_eq!("array:3260".parse(), peer(None, "array", Some(3260)));
        assert_eq!("10.0.0.2:1".parse(), peer(None, "10.0.0.2", Some(1)));
        assert_eq!("fd00::2".parse(), peer(None, "fd00::2", None));
        assert_eq!("[fd00::2]".parse(), peer(None, "fd00::2", None));
        assert_eq!("[fd00::2]:80".parse(), peer(None, "fd00::2", Some(80)));
        let wrong = [
            "",
            ":80",
            "a:0",
            "a:70000",
            "a:b",
            "a:+80",
            "[a]:80",
            "[::1",
            "[::1]80",
            "a b",
            "a:1:2",
            "http://a",
            "-oa",
            "@a",
            "a@",
            "a@b@c",
            "-l@a",
            "a b@c",
            "a@b:99999",
            "fe80::1%",
            "fe80::1%a b",
            "[fe80::1%a0]:0",
            "\u{1b}[31m",
        ];
        for wrong in wrong {
            assert_eq!(wrong.parse::<Peer>(), Err(PeerError::Form(wrong.to_owned())), "{wrong}");
        }
    }

    #[test]
    fn a_link_local_address_has_its_interface_and_is_refused_without() {
        assert_eq!("fe80::1%a0".parse(), peer(None, "fe80::1%a0", None));
        assert_eq!("[fe80::1%a0]:3260".parse(), peer(None, "fe80::1%a0", Some(3260)));
        for alone in ["fe80::1", "[fe80::1]:80", "root@fe80::1"] {
            let error = alone.parse::<Peer>().unwrap_err();
            assert_eq!(error, PeerError::Scope("fe80::1".to_owned()), "{alone}");
            assert!(error.to_string().ends_with("name the interface: fe80::1%eth0"), "{error}");
        }
    }

    #[test]
    fn an_address_of_no_host_or_of_many_is_refused() {
        for wrong in [
            "0.0.0.0",
            "::",
            "[::]:80",
            "ff02::1",
            "ff02::1%eth0",
            "224.0.0.1",
            "255.255.255.255",
            "::ffff:0.0.0.0",
        ] {
            assert!(matches!(wrong.parse::<Peer>(), Err(PeerError::NoHost(..))), "{wrong}");
        }
        assert_eq!("a".repeat(254).parse::<Peer>(), Err(PeerError::Long(254)));
        assert!("a".repeat(253).parse::<Peer>().is_ok());
    }

    #[test]
    fn ssh_gets_the_user_and_not_the_port_and_the_path_gets_no_user() {
        assert_eq!("root@array:3260".parse(), peer(Some("root"), "array", Some(3260)));
        let destination = |text: &str| text.parse::<Peer>().map(|peer| peer.ssh_destination());
        assert_eq!(destination("root@array:3260"), Ok("root@array".to_owned()));
        assert_eq!(destination("array:3260"), Ok("array".to_owned()));
        assert_eq!(destination("[fe80::1%a0]:22"), Ok("fe80::1%a0".to_owned()));
    }
}
