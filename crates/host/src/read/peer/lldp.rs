//! Listens for LLDP frames. They are sent every 30 s unless configured otherwise, and never answered: there is no way to ask.

use std::collections::BTreeMap;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::process::Command;
use std::time::{Duration, Instant};

use netlink::route::{self, Link};
use nix::poll::{PollFd, PollFlags, PollTimeout};
use nix::sys::socket::LinkAddr;
use rustix::net::{AddressFamily, Protocol, SocketFlags, SocketType};

use crate::facts::Unseen;
use crate::facts::peer::{Neighbour, PeerFacts};
use crate::lldp::{ETHERTYPE, GROUP, parse_frame};
use crate::read::Wanted;

/// The longest frame that is read, bytes; longer ones are cut.
const FRAME: usize = 2048;

/// Neighbours that are remembered, so that a flood of frames needs no memory without bound.
const MOST: usize = 256;

/// Listens until each link has announced its neighbour, at most for the time of `wanted.watch`.
pub(super) fn listen(wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Vec<PeerFacts> {
    let links = match route::Connection::open().and_then(|mut tables| tables.links()) {
        Ok(links) => links,
        Err(error) => {
            unseen.push(Unseen { what: "neighbours by LLDP".to_owned(), why: error.to_string() });
            return Vec::new();
        }
    };
    let expected: Vec<&Link> = links.iter().filter(|link| is_expected(link, wanted)).collect();
    if expected.is_empty() {
        return Vec::new();
    }
    let heard = match open() {
        Ok(socket) => hear(&socket, &expected, wanted.watch),
        Err(error) => {
            let why = format!("cannot listen for frames: {error}; root or CAP_NET_RAW may");
            unseen.push(Unseen { what: "neighbours by LLDP".to_owned(), why });
            return Vec::new();
        }
    };
    for link in expected.iter().filter(|link| !heard.contains_key(&(link.index))) {
        unseen.push(Unseen {
            what: format!("the neighbour of {} by LLDP", link.name),
            why: format!(
                "no frame within {:.0} s; neighbours that announce themselves do so every 30 s: --watch 31s",
                wanted.watch.as_secs_f64()
            ),
        });
    }
    let name = |index| expected.iter().find(|link| link.index == index).map(|link| link.name.clone());
    heard
        .into_iter()
        .filter_map(|(index, neighbour)| {
            Some(PeerFacts::Lldp { interface: name(index)?, neighbour: Box::new(neighbour) })
        })
        .collect()
}

/// Whether a neighbour may announce itself on a link: cards with a link, or the one that is wanted.
fn is_expected(link: &Link, wanted: &Wanted) -> bool {
    let is_named = wanted.interface.as_ref().map(|interface| link.name == *interface);
    is_named.unwrap_or(link.kind.is_none() && link.is_ethernet && !link.is_loopback)
        && link.is_up
        && link.has_carrier == Some(true)
}

/// A socket that receives LLDP frames of all interfaces.
fn open() -> io::Result<OwnedFd> {
    let protocol = Protocol::from_raw(
        std::num::NonZeroU32::new(u32::from(ETHERTYPE.to_be())).ok_or(io::ErrorKind::InvalidInput)?,
    );
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(rustix::net::socket_with(AddressFamily::PACKET, SocketType::RAW, flags, Some(protocol))?)
}

fn hear(socket: &OwnedFd, expected: &[&Link], watch: Duration) -> BTreeMap<u32, Neighbour> {
    let _joined: Vec<Joined> = expected.iter().filter_map(|link| Joined::join(&link.name)).collect();
    let deadline = Instant::now() + watch;
    let mut heard = BTreeMap::new();
    let mut frame = vec![0; FRAME];
    while heard.len() < expected.len().min(MOST) && wait(socket, deadline) {
        let received = nix::sys::socket::recvfrom::<LinkAddr>(socket.as_raw_fd(), &mut frame);
        let Ok((length, Some(sender))) = received else { continue };
        let Ok(index) = u32::try_from(sender.ifindex()) else { continue };
        // A lifetime of 0 is a neighbour's goodbye.
        let neighbour =
            frame.get(..length).and_then(parse_frame).filter(|neighbour| neighbour.ttl_seconds > 0);
        if let Some(neighbour) = neighbour.filter(|_| expected.iter().any(|link| link.index == index)) {
            heard.insert(index, neighbour);
        }
    }
    heard
}

/// Whether a frame came before the deadline.
fn wait(socket: &OwnedFd, deadline: Instant) -> bool {
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        // Frames that keep arriving must not keep the check.
        if left.is_zero() {
            return false;
        }
        let wait = PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX);
        match nix::poll::poll(&mut [PollFd::new(socket.as_fd(), PollFlags::POLLIN)], wait) {
            Err(nix::errno::Errno::EINTR) => {}
            outcome => return outcome.is_ok_and(|ready| ready > 0),
        }
    }
}

/// Membership of an interface in the group that LLDP frames go to: a card passes no others up. `ip` does it, as it needs a system
/// call that no safe crate wraps. The kernel counts memberships, so leaving takes away no other program's.
struct Joined {
    interface: String,
}

impl Joined {
    fn join(interface: &str) -> Option<Self> {
        group("add", interface).then(|| Self { interface: interface.to_owned() })
    }
}

impl Drop for Joined {
    fn drop(&mut self) {
        group("del", &self.interface);
    }
}

fn group(action: &str, interface: &str) -> bool {
    let output = Command::new("ip").args(["maddress", action, GROUP, "dev", interface]).output();
    output.is_ok_and(|output| output.status.success())
}
