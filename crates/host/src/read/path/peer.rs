//! The peer as a user names it.

use std::net::Ipv6Addr;
use std::str::FromStr;

use nix::sys::socket::SockaddrStorage;
use thiserror::Error;

/// A host, and its TCP port where one is named: `array`, `10.0.0.2:3260`, `fd00::2`, `[fd00::2]:3260`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// A name or an address, without brackets.
    pub host: String,
    /// The TCP port.
    pub port: Option<u16>,
}

/// The text names no peer.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("'{0}' is no peer; write HOST, HOST:PORT or [IPV6]:PORT, with a port from 1 to 65535")]
pub struct PeerError(String);

impl FromStr for Peer {
    type Err = PeerError;

    fn from_str(text: &str) -> Result<Self, PeerError> {
        let error = || PeerError(text.to_owned());
        let port = |port: &str| match port.parse() {
            Ok(0) | Err(_) => Err(error()),
            Ok(port) => Ok(Some(port)),
        };
        if text.parse::<Ipv6Addr>().is_ok() {
            return Ok(Self { host: text.to_owned(), port: None });
        }
        let (host, port) = match text.strip_prefix('[') {
            Some(rest) => {
                let (host, rest) = rest.split_once(']').ok_or_else(error)?;
                host.parse::<Ipv6Addr>().map_err(|_| error())?;
                (
                    host,
                    rest.strip_prefix(':')
                        .map_or_else(|| if rest.is_empty() { Ok(None) } else { Err(error()) }, port)?,
                )
            }
            None => match text.split_once(':') {
                Some((host, rest)) => (host, port(rest)?),
                None => (text, None),
            },
        };
        if host.is_empty() || host.chars().any(|c| c.is_whitespace() || c.is_control() || c == '/') {
            return Err(error());
        }
        Ok(Self { host: host.to_owned(), port })
    }
}

/// The port in a socket address.
pub(super) fn port_of(address: &SockaddrStorage) -> Option<u16> {
    let four = address.as_sockaddr_in().map(nix::sys::socket::SockaddrIn::port);
    four.or_else(|| address.as_sockaddr_in6().map(nix::sys::socket::SockaddrIn6::port))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_addresses_are_parsed_with_and_without_a_port() {
        let peer = |host: &str, port| Ok(Peer { host: host.to_owned(), port });
        assert_eq!("array".parse(), peer("array", None));
        assert_eq!("array:3260".parse(), peer("array", Some(3260)));
        assert_eq!("10.0.0.2:1".parse(), peer("10.0.0.2", Some(1)));
        assert_eq!("fd00::2".parse(), peer("fd00::2", None));
        assert_eq!("[fd00::2]".parse(), peer("fd00::2", None));
        assert_eq!("[fd00::2]:80".parse(), peer("fd00::2", Some(80)));
        for wrong in
            ["", ":80", "a:0", "a:70000", "a:b", "[a]:80", "[::1", "[::1]80", "a b", "a:1:2", "http://a"]
        {
            assert!(wrong.parse::<Peer>().is_err(), "{wrong}");
        }
    }
}
