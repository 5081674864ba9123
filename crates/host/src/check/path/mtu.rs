//! Sizes that the path carries.

use super::super::draft::{Draft as _, finding};
use super::super::shell::word;
use crate::facts::Facts;
use crate::facts::path::{HopFacts, PathFacts};
use crate::finding::{Finding, Severity};

/// Jumbo frames begin here: a path MTU below with an interface MTU above is worth a word.
const JUMBO_BYTES: u32 = 4000;

pub(super) fn findings(facts: &Facts, path: &PathFacts) -> Vec<Finding> {
    [black_hole(facts, path), jumbo(path), small_route(path)].into_iter().flatten().collect()
}

/// A size that passes and a larger one that vanishes.
struct Hole {
    passes_bytes: u32,
    lost_bytes: u32,
    by: &'static str,
}

/// Full segments decide where TCP was probed: a router may lower the MSS of handshakes, and then large datagrams alone vanish.
fn hole(path: &PathFacts) -> Option<Hole> {
    if let Some(segments) = &path.segments {
        return Some(Hole {
            passes_bytes: segments.largest_delivered_bytes?,
            lost_bytes: segments.smallest_lost_bytes?,
            by: "TCP segments",
        });
    }
    let datagrams = path.datagrams.as_ref()?;
    Some(Hole {
        passes_bytes: datagrams.largest_answered_bytes?,
        lost_bytes: datagrams.smallest_lost_bytes?,
        by: "datagrams",
    })
}

fn black_hole(facts: &Facts, path: &PathFacts) -> Option<Finding> {
    let hole = hole(path)?;
    let place = place(&path.hops).map(|place| format!(", {place}")).unwrap_or_default();
    let precise = hole.lost_bytes == hole.passes_bytes + 1;
    let vanish = if precise { "larger ones".to_owned() } else { format!("those of {}", hole.lost_bytes) };
    let measured = format!(
        "{} of up to {} bytes arrive, {vanish} vanish without an answer{place}; the interface's MTU is {}",
        hole.by,
        hole.passes_bytes,
        path.interface_mtu_bytes.map_or_else(|| "unknown".to_owned(), |mtu| mtu.to_string()),
    );
    let why = "A link on the path is smaller than the packets, and the ICMP messages that say so do not arrive. Connections open, \
               and stop at the first full segment: small requests work, transfers hang until they time out.";
    let mut draft = finding("mtu-black-hole", Severity::Broken, &subject(path), measured, why);
    let interface = path.interface.as_deref().unwrap_or("IF");
    let mask = if path.address.contains(':') { 128 } else { 32 };
    if facts.tcp.number("net.ipv4.tcp_mtu_probing") == Some(0) {
        draft = draft.sysctl("net.ipv4.tcp_mtu_probing", "1");
    }
    // The gateway is not known here: `ip route get` prints the whole route, to which the lock is added.
    let route = format!(
        "ip route replace $(ip -o route get {} | sed 's/ src .*//; s/^{}/&\\/{mask}/') mtu lock {}  # leaves by {interface}",
        word(&path.address),
        path.address,
        hole.passes_bytes
    );
    let blocked = if mask == 128 {
        "ICMPv6 type 2 (packet too big)"
    } else {
        "ICMP type 3 code 4 (fragmentation needed)"
    };
    Some(draft.command(route).other_end(&format!(
        "let {blocked} pass on the routers and firewalls of the path, or give its links an MTU of {}; the same hole may exist in \
         the direction from the peer: check there, too",
        path.interface_mtu_bytes.unwrap_or(1500)
    )))
}

/// Where packets vanish, as far as hops answered.
fn place(hops: &[HopFacts]) -> Option<String> {
    let at = hops.iter().position(|hop| hop.smallest_lost_bytes.is_some())?;
    let before = hops[..at].iter().rev().find_map(|hop| hop.address.as_deref());
    let after = hops[at].address.as_deref()?;
    Some(before.map_or_else(|| format!("before {after}"), |before| format!("between {before} and {after}")))
}

/// The path carries less than half of the interface's jumbo frames, and says so.
fn jumbo(path: &PathFacts) -> Option<Finding> {
    if hole(path).is_some() {
        return None;
    }
    let (interface, carries) = (path.interface_mtu_bytes?, path_mtu_bytes(path)?);
    if interface < JUMBO_BYTES || carries > interface / 2 {
        return None;
    }
    let announced = path.hops.iter().find(|hop| hop.announced_mtu_bytes.is_some_and(|mtu| mtu < interface));
    let by = announced
        .and_then(|hop| hop.address.as_ref())
        .map(|a| format!(", as {a} announces"))
        .unwrap_or_default();
    let measured = format!("the interface's MTU is {interface}, the path carries {carries}{by}");
    let why = "Frames are jumbo here and small on the path: packets to this peer have the small size, and the first full segment \
               of a connection is lost until the router's message comes, about once in ten minutes.";
    let draft = finding("path-mtu-below-jumbo", Severity::Note, &subject(path), measured, why);
    Some(draft.other_end(&format!(
        "give every link and switch port of the path an MTU of {interface}, or use {carries} at both ends"
    )))
}

/// The route's MTU is smaller than what the path is known to carry.
fn small_route(path: &PathFacts) -> Option<Finding> {
    let (route, answered) = (path.route_mtu_bytes?, path.datagrams.as_ref()?.largest_answered_bytes?);
    if answered <= route || hole(path).is_some() {
        return None;
    }
    let measured = format!("the route's MTU is {route}, the path carries {answered}");
    let why = "The route was given this MTU, or learnt it from a router that no longer needs it: packets are smaller than the path \
               allows.";
    let draft = finding("route-mtu-below-path", Severity::Note, &subject(path), measured, why);
    Some(
        draft
            .command(format!("ip route get {}  # 'mtu' in a line with 'cache expires' was learnt, otherwise it was configured", word(&path.address)))
            .command("ip route flush cache".to_owned()),
    )
}

/// The largest packet that arrives, where that is known.
fn path_mtu_bytes(path: &PathFacts) -> Option<u32> {
    let segments = path.segments.as_ref().and_then(|segments| segments.largest_delivered_bytes);
    let datagrams = path.datagrams.as_ref().and_then(|datagrams| datagrams.largest_answered_bytes);
    segments.max(datagrams)
}

fn subject(path: &PathFacts) -> String {
    format!("path to {}", path.peer)
}
