//! Reads the path to a peer: packets of chosen sizes to the peer, and to no other host. Their number and the time are bounded.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs as _, UdpSocket};
use std::time::Duration;

use super::text::{number, text};
use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::path::{PathFacts, RttFacts, RttSource};

mod datagram;
mod peer;
mod rtt;
mod search;
mod segment;
mod walk;

pub use peer::{Peer, PeerError};

/// For at most this long is the path probed with datagrams, and again with segments.
const PATIENCE: Duration = Duration::from_secs(25);

/// Probes the path to the peer that `wanted` names; `None` without a peer, or where it has no address.
pub fn read(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Option<PathFacts> {
    let name = wanted.peer.as_ref()?;
    let mut miss = |what: &str, why: String| unseen.push(Unseen { what: what.to_owned(), why });
    let peer = match name.parse::<Peer>() {
        Ok(peer) => peer,
        Err(error) => {
            miss("the path to the peer", error.to_string());
            return None;
        }
    };
    let address = match resolve(&peer) {
        Ok(address) => address,
        Err(why) => {
            miss("the path to the peer", format!("{}: {why}", peer.host));
            return None;
        }
    };
    let mut facts = PathFacts {
        peer: name.clone(),
        address: address.ip().to_string(),
        port: peer.port,
        ..PathFacts::default()
    };
    match outgoing(address) {
        Ok(route_mtu_bytes) => {
            facts.route_mtu_bytes = route_mtu_bytes;
            if let Err(error) = describe(&mut facts, roots, address) {
                miss("the interface towards the peer", error.to_string());
            }
        }
        Err(error) => {
            miss("the path to the peer", format!("no route to {}: {error}", address.ip()));
            return Some(facts);
        }
    }
    probe(roots, address, &mut facts, &mut miss);
    Some(facts)
}

fn probe(roots: &Roots, address: SocketAddr, facts: &mut PathFacts, miss: &mut impl FnMut(&str, String)) {
    if facts.port.is_some() {
        match rtt::handshakes(address) {
            Ok(rtt) => facts.rtt = Some(rtt),
            Err(error) => {
                miss("round trip time to the peer", format!("no TCP connection to {address}: {error}"));
            }
        }
        if facts.rtt.is_some_and(|rtt| rtt.by == RttSource::Handshake) {
            let timestamps = text(&roots.proc.join("sys/net/ipv4/tcp_timestamps")).as_deref() != Some("0");
            let rtt = facts.rtt.map_or(0.0, |rtt| rtt.min_us);
            match segment::Prober::new(address, timestamps, rtt, PATIENCE).measure() {
                Ok((segments, probes)) => {
                    facts.segments = segments;
                    facts.probes += probes;
                }
                Err(error) => miss("path MTU by TCP", format!("{address}: {error}")),
            }
        }
    }
    match datagram::Prober::new(address, PATIENCE) {
        Ok(mut prober) => probe_datagrams(&mut prober, facts, miss),
        Err(error) => miss("path MTU by datagrams", error.to_string()),
    }
}

fn probe_datagrams(
    prober: &mut datagram::Prober,
    facts: &mut PathFacts,
    miss: &mut impl FnMut(&str, String),
) {
    let start = facts.interface_mtu_bytes.unwrap_or(1500).min(65_535);
    let walk = walk::walk(prober, start);
    facts.probes += prober.sent();
    if walk.datagrams.largest_answered_bytes.is_none() {
        let why = "the peer does not answer datagrams to closed ports; a firewall may drop them, or the ICMP answers";
        miss("path MTU by datagrams", why.to_owned());
    }
    if facts.rtt.is_none() {
        let answer = walk.hops.iter().find(|hop| hop.is_peer).and_then(|hop| hop.rtt_us);
        facts.rtt =
            answer.map(|us| RttFacts { min_us: us, median_us: us, samples: 1, by: RttSource::Datagram });
    }
    facts.hops = walk.hops;
    facts.datagrams = Some(walk.datagrams);
}

/// The MTU that the kernel assumes for the way to an address, without sending anything.
fn outgoing(address: SocketAddr) -> std::io::Result<Option<u32>> {
    let any: IpAddr = if address.is_ipv4() {
        std::net::Ipv4Addr::UNSPECIFIED.into()
    } else {
        std::net::Ipv6Addr::UNSPECIFIED.into()
    };
    let socket = UdpSocket::bind((any, 0))?;
    // Connecting a datagram socket chooses the route; nothing is sent. Port 9 is discard. A link-local address keeps its interface.
    let mut discard = address;
    discard.set_port(9);
    socket.connect(discard)?;
    Ok(mtu_of(&socket, address))
}

/// The MTU that the kernel assumes for a connected socket's route.
fn mtu_of(socket: &impl std::os::fd::AsFd, address: SocketAddr) -> Option<u32> {
    let mtu = if address.is_ipv4() {
        rustix::net::sockopt::ip_mtu(socket)
    } else {
        rustix::net::sockopt::ipv6_mtu(socket)
    };
    mtu.ok().filter(|mtu| *mtu > 0)
}

/// The interface that the route leads to: from the kernel, in the thread's namespace, because /sys may show another one.
fn describe(facts: &mut PathFacts, roots: &Roots, address: SocketAddr) -> Result<(), netlink::Error> {
    let mut kernel = netlink::route::Connection::open()?;
    let index = match address {
        // A link-local address names its interface, and there is no route to it without.
        SocketAddr::V6(scoped) if scoped.scope_id() != 0 => Some(scoped.scope_id()),
        _ => kernel.route_to(address.ip())?.interface,
    };
    let Some(link) = kernel.links()?.into_iter().find(|link| Some(link.index) == index) else {
        return Ok(());
    };
    let folder = roots.sys.join("class/net").join(&link.name);
    // Interfaces without a device state a rate that nothing keeps: 10 Mb/s for TAP, 10 Gb/s for veth.
    let rate = number::<i64>(&folder.join("speed")).and_then(|megabits| u64::try_from(megabits).ok());
    facts.bits_per_second =
        rate.filter(|_| folder.join("device").exists()).and_then(|megabits| megabits.checked_mul(1_000_000));
    facts.interface_mtu_bytes = Some(link.mtu);
    facts.interface = Some(link.name);
    Ok(())
}

/// The first address of a peer, with its port; 0 where none is named.
///
/// # Errors
/// Why it has no address that can be examined.
pub fn resolve(peer: &Peer) -> Result<SocketAddr, String> {
    let mut addresses =
        (peer.host.as_str(), peer.port.unwrap_or(0)).to_socket_addrs().map_err(|error| error.to_string())?;
    let address = addresses.next().ok_or_else(|| "it has no address".to_owned())?;
    // The resolver takes `0` for an address.
    match peer::no_host(address.ip()) {
        Some(why) => Err(format!("{} is {why}", address.ip())),
        None => Ok(address),
    }
}
