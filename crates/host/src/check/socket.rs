//! Rules about sockets of running programs.
//!
//! A rule judges what a connection did while the check watched it. What a connection did long ago, or what an option could do,
//! is no finding.

use std::collections::BTreeMap;

use crate::facts::Facts;
use crate::facts::socket::{Counters, SocketFacts, SocketState};
use crate::finding::Finding;

mod accept_queue;
mod buffers;
mod cork;
mod loss;
mod nagle;
mod windows;

/// A connection that was busy for less than this while it was watched is judged by its whole life, us.
const BUSY_ENOUGH_US: u64 = 100_000;
/// A connection that sent nothing for so long is idle, ms.
const IDLE_MS: u32 = 10_000;

/// A finding about one socket.
pub(super) struct Judged<'a> {
    socket: &'a SocketFacts,
    /// How bad it is among those of its kind; the worst is shown.
    weight: f64,
    finding: Finding,
}

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    type Rule = for<'a> fn(&'a SocketFacts) -> Option<Judged<'a>>;
    let rules: [Rule; 8] = [
        nagle::judge,
        cork::judge,
        buffers::judge_send,
        buffers::judge_receive,
        windows::judge_limited,
        windows::judge_closed,
        loss::judge,
        accept_queue::judge,
    ];
    rules.iter().flat_map(|rule| merged(facts.sockets.iter().filter_map(rule))).collect()
}

/// One finding for the sockets of one process and port, so that a server with many connections has one.
fn merged<'a>(all: impl Iterator<Item = Judged<'a>>) -> Vec<Finding> {
    let mut groups: BTreeMap<(Option<u32>, u16), (Judged<'a>, usize)> = BTreeMap::new();
    for judged in all {
        let pid = judged.socket.owners.first().map(|owner| owner.pid);
        match groups.entry((pid, service_port(judged.socket))) {
            std::collections::btree_map::Entry::Vacant(place) => {
                place.insert((judged, 0));
            }
            std::collections::btree_map::Entry::Occupied(mut place) => {
                let (worst, others) = place.get_mut();
                *others += 1;
                if judged.weight > worst.weight {
                    *worst = judged;
                }
            }
        }
    }
    let groups = groups.into_iter();
    groups
        .map(|((_, port), (judged, others))| {
            let mut finding = judged.finding;
            if others > 0 {
                let noun = if others == 1 { "connection" } else { "connections" };
                finding.measured += &format!("; {others} more {noun} of port {port}");
            }
            finding
        })
        .collect()
}

/// The port that names the service: the lower one, as the other is usually chosen by the system.
fn service_port(socket: &SocketFacts) -> u16 {
    let local = socket.ends.local.port();
    socket.ends.peer.map_or(local, |peer| local.min(peer.port()))
}

/// `10.0.0.1:3260 -> 10.0.0.2:51514 (python3, pid 4711, fd 5)`.
fn subject(socket: &SocketFacts) -> String {
    match socket.owners.first() {
        Some(owner) => format!("{} ({}, pid {}, fd {})", socket.ends, owner.program, owner.pid, owner.fd),
        None => socket.ends.to_string(),
    }
}

/// The command that sets options of a socket; none where its process is unknown.
fn set_command(socket: &SocketFacts, options: &str) -> Vec<String> {
    let owner = socket.owners.first();
    owner
        .map(|owner| format!("roundtrip host socket --pid {} --fd {} {options} --apply", owner.pid, owner.fd))
        .into_iter()
        .collect()
}

/// Whether both ends are addresses of one host, as far as the addresses show.
fn is_local(socket: &SocketFacts) -> bool {
    let local = socket.ends.local.ip();
    local.to_canonical().is_loopback() || socket.ends.peer.is_some_and(|peer| peer.ip() == local)
}

/// Whether data can be sent, and was sent not long ago.
fn is_active(socket: &SocketFacts) -> bool {
    let can_send = matches!(socket.state, SocketState::Established | SocketState::CloseWait);
    let idle = socket.transfer.and_then(|transfer| transfer.idle_send_ms);
    can_send && idle.is_some_and(|ms| ms < IDLE_MS)
}

/// What the connection did, and over which time: while it was watched if it was busy then, otherwise since it began.
fn period(socket: &SocketFacts) -> Option<(Counters, &'static str)> {
    let transfer = socket.transfer.as_ref()?;
    let watched = socket.watched.filter(|watched| watched.counters.busy_us >= BUSY_ENOUGH_US);
    Some(match watched {
        Some(watched) => (watched.counters, "while it was watched"),
        None => (transfer.counters, "since the connection began"),
    })
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}
