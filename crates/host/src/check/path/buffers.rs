//! Buffers and windows against bandwidth times delay.

use super::super::draft::{Draft as _, bandwidth_delay_bytes, finding, rate, time, window_rate};
use super::super::tcp::DEFAULT_RECEIVE_START_BYTES;
use crate::facts::Facts;
use crate::facts::path::{PathFacts, RttFacts};
use crate::finding::{Finding, Severity};

/// The least that a remedy asks for, bytes: the kernel's own default limit is 4 to 6 MiB.
const LEAST_BYTES: u64 = 4 << 20;

/// The largest window that a receiver may announce (RFC 7323), bytes.
const LARGEST_WINDOW_BYTES: u64 = 1 << 30;

pub(super) fn findings(facts: &Facts, path: &PathFacts) -> Vec<Finding> {
    let Some(need) = need(path) else { return Vec::new() };
    [RECEIVE, SEND]
        .iter()
        .filter_map(|rule| buffer(facts, path, &need, rule))
        .chain(reno(facts, path, &need))
        .collect()
}

/// Whether the largest buffer of `tcp_rmem` or `tcp_wmem` is smaller than what fills the path.
pub(in crate::check) fn is_below_need(facts: &Facts, name: &str) -> bool {
    let need = facts.path.as_ref().and_then(need);
    let sizes = facts.tcp.buffers(name);
    need.zip(sizes).is_some_and(|(need, sizes)| (sizes.max_bytes as f64) < need.bytes)
}

fn need(path: &PathFacts) -> Option<Need> {
    let bits_per_second = path.bits_per_second?;
    let rtt = path.rtt.filter(|rtt| rtt.min_us > 0.0)?;
    Some(Need { bits_per_second, rtt, bytes: bandwidth_delay_bytes(bits_per_second, rtt.min_us) })
}

const RECEIVE: Rule = Rule {
    name: "net.ipv4.tcp_rmem",
    id: "receive-buffer-below-bdp",
    does: "receives from",
    limit: "announces no larger window",
};

const SEND: Rule = Rule {
    name: "net.ipv4.tcp_wmem",
    id: "send-buffer-below-bdp",
    does: "sends to",
    limit: "keeps no more bytes unacknowledged",
};

/// What fills the link.
struct Need {
    bits_per_second: u64,
    rtt: RttFacts,
    bytes: f64,
}

struct Rule {
    name: &'static str,
    id: &'static str,
    does: &'static str,
    limit: &'static str,
}

fn buffer(facts: &Facts, path: &PathFacts, need: &Need, rule: &Rule) -> Option<Finding> {
    let sizes = facts.tcp.buffers(rule.name)?;
    // Up to half of a buffer holds the kernel's own bookkeeping, which depends on the driver: the whole is the sure limit.
    if !is_below_need(facts, rule.name) {
        return None;
    }
    let most = window_rate(sizes.max_bytes, need.rtt.min_us);
    let measured = format!(
        "{} allows {} bytes; {} with a round trip of {} needs {:.0}",
        rule.name,
        sizes.max_bytes,
        rate(need.bits_per_second as f64),
        time(need.rtt.min_us),
        need.bytes
    );
    let why = format!(
        "A connection that {} {} {} than this buffer, and so carries at most that in a round trip time: {} instead of {}.",
        rule.does,
        path.peer,
        rule.limit,
        rate(most),
        rate(need.bits_per_second as f64)
    );
    // Twice, for the bookkeeping.
    let wanted = (need.bytes * 2.0) as u64;
    let max = wanted.next_power_of_two().clamp(LEAST_BYTES, 2 * LARGEST_WINDOW_BYTES);
    let value = format!(
        "{} {} {max}",
        sizes.min_bytes,
        sizes.default_bytes.max(DEFAULT_RECEIVE_START_BYTES).min(max)
    );
    let draft = finding(rule.id, Severity::Slow, &format!("path to {}", path.peer), measured, &why);
    Some(draft.carries_at_most(most).sysctl(rule.name, &value).other_end(
        "the other end's buffers limit the same connection: its tcp_rmem what this host sends, its tcp_wmem what this host receives",
    ))
}

/// After a loss, Reno adds a segment to its window each round trip until it is as large as before.
fn reno(facts: &Facts, path: &PathFacts, need: &Need) -> Option<Finding> {
    let algorithm = facts.tcp.word("net.ipv4.tcp_congestion_control")?;
    let better = facts
        .tcp
        .word("net.ipv4.tcp_available_congestion_control")?
        .split(' ')
        .find(|name| *name == "cubic")?;
    let segments = need.bytes / f64::from(path.interface_mtu_bytes.unwrap_or(1500));
    let recovery_us = segments / 2.0 * need.rtt.min_us;
    if algorithm != "reno" || recovery_us < 1e6 {
        return None;
    }
    let measured = format!(
        "reno; a loss at {} and a round trip of {} is made up for after {}",
        rate(need.bits_per_second as f64),
        time(need.rtt.min_us),
        time(recovery_us)
    );
    let why = "Reno halves its window at a loss and adds one segment in a round trip time, which is slow where many segments are \
               under way.";
    let subject = format!("path to {}", path.peer);
    let draft = finding("reno-on-long-path", Severity::Slow, &subject, measured, why);
    Some(draft.sysctl("net.ipv4.tcp_congestion_control", better))
}
