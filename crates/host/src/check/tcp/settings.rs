//! Kernel parameters that differ from the kernel's defaults for the worse. A default is no finding.

use super::super::draft::{Draft as _, finding, time, window_rate};
use super::super::path;
use crate::facts::Facts;
use crate::facts::tcp::TcpFacts;
use crate::finding::{Finding, Severity};

/// The largest window without window scaling (RFC 7323), bytes.
const UNSCALED_BYTES: u64 = 65_535;

/// The kernel's default limit of a socket's receive and send buffer where there is enough memory, bytes (Linux 3.15 to 6.16;
/// larger since).
const DEFAULT_RECEIVE_BYTES: u64 = 6 << 20;
const DEFAULT_SEND_BYTES: u64 = 4 << 20;

/// The kernel's default of the buffer with which a socket starts, bytes (tcp_init since Linux 4.20; 87380 for receiving before).
pub(in crate::check) const DEFAULT_RECEIVE_START_BYTES: u64 = 131_072;
const DEFAULT_SEND_START_BYTES: u64 = 16_384;

/// Retransmission waits this long at least (TCP_RTO_MIN), microseconds.
const RTO_MIN_US: i64 = 200_000;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let tcp = &facts.tcp;
    let rtt_us = facts.path.as_ref().and_then(|path| path.rtt).map(|rtt| rtt.min_us).filter(|us| *us > 0.0);
    let lowered = [lowered(facts, &RECEIVE), lowered(facts, &SEND)];
    let rules =
        [scaling(tcp, rtt_us), autotuning(tcp, rtt_us), sack(tcp), timestamps(tcp), rto(tcp), unsent(tcp)];
    rules.into_iter().chain(lowered).flatten().collect()
}

fn is_off(tcp: &TcpFacts, name: &str) -> bool {
    tcp.number(name) == Some(0)
}

fn scaling(tcp: &TcpFacts, rtt_us: Option<f64>) -> Option<Finding> {
    let name = "net.ipv4.tcp_window_scaling";
    let why = "Without window scaling (RFC 7323) a window is at most 65535 bytes, in both directions of every connection: that is \
               all that a round trip time can carry.";
    let off = || finding("tcp-window-scaling-off", Severity::Slow, "tcp", format!("{name} = 0"), why);
    let draft = is_off(tcp, name).then(off)?;
    let draft = match rtt_us {
        Some(us) => draft.carries_at_most(window_rate(UNSCALED_BYTES, us)),
        None => draft,
    };
    Some(draft.sysctl(name, "1"))
}

fn autotuning(tcp: &TcpFacts, rtt_us: Option<f64>) -> Option<Finding> {
    let name = "net.ipv4.tcp_moderate_rcvbuf";
    let fixed = tcp.buffers("net.ipv4.tcp_rmem")?.default_bytes;
    let measured = format!("{name} = 0; receive buffers stay at {fixed} bytes");
    let why = "Receive buffers do not grow with the connection: a window is never larger than the one at its beginning.";
    let off = || finding("receive-autotuning-off", Severity::Slow, "tcp", measured, why);
    let draft = is_off(tcp, name).then(off)?;
    let draft = match rtt_us {
        Some(us) => draft.carries_at_most(window_rate(fixed, us)),
        None => draft,
    };
    Some(draft.sysctl(name, "1"))
}

fn sack(tcp: &TcpFacts) -> Option<Finding> {
    let name = "net.ipv4.tcp_sack";
    let why = "Without selective acknowledgements (RFC 2018) a sender learns of one lost segment in a round trip time; several \
               losses in a window end in a timeout of 200 ms and more.";
    let off = || finding("tcp-sack-off", Severity::Slow, "tcp", format!("{name} = 0"), why);
    Some(is_off(tcp, name).then(off)?.sysctl(name, "1"))
}

fn timestamps(tcp: &TcpFacts) -> Option<Finding> {
    let name = "net.ipv4.tcp_timestamps";
    let why = "Timestamps (RFC 7323) cost 12 bytes in a segment. Without them retransmitted segments yield no round trip time, a \
               spurious retransmission is not recognised, and old segments are not told from new ones when sequence numbers wrap \
               (after 3.4 s at 10 Gb/s).";
    let off = || finding("tcp-timestamps-off", Severity::Note, "tcp", format!("{name} = 0"), why);
    Some(is_off(tcp, name).then(off)?.sysctl(name, "1"))
}

fn rto(tcp: &TcpFacts) -> Option<Finding> {
    let name = "net.ipv4.tcp_rto_min_us";
    let us = tcp.number(name).filter(|us| *us > RTO_MIN_US)?;
    let measured = format!("{name} = {us}: {}", time(us as f64));
    let why = "A lost segment that no later one reveals is retransmitted after this time at the earliest; the kernel's default is \
               200 ms.";
    let draft = finding("rto-min-high", Severity::Slow, "tcp", measured, why);
    Some(draft.adds_us(us as f64).sysctl(name, "200000"))
}

fn unsent(tcp: &TcpFacts) -> Option<Finding> {
    let name = "net.ipv4.tcp_notsent_lowat";
    let bytes = tcp.number(name).filter(|bytes| (0..16_384).contains(bytes))?;
    let measured = format!("{name} = {bytes}");
    let why = "A program that waits until it can write is woken when less than this is unsent: with less than a full burst of \
               segments the connection runs dry between two writes.";
    let draft = finding("notsent-lowat-small", Severity::Note, "tcp", measured, why);
    Some(draft.sysctl(name, "131072"))
}

/// What a kernel gives a buffer by default, bytes.
struct Usual {
    name: &'static str,
    direction: &'static str,
    /// Where a socket starts, whatever the machine's memory.
    start: u64,
    /// The limit of autotuning, where there is enough memory.
    limit: u64,
}

const RECEIVE: Usual = Usual {
    name: "net.ipv4.tcp_rmem",
    direction: "receive",
    start: DEFAULT_RECEIVE_START_BYTES,
    limit: DEFAULT_RECEIVE_BYTES,
};

const SEND: Usual = Usual {
    name: "net.ipv4.tcp_wmem",
    direction: "send",
    start: DEFAULT_SEND_START_BYTES,
    limit: DEFAULT_SEND_BYTES,
};

/// A start or a limit below half of what this kernel would have chosen: someone lowered it. With a path the rule that compares the
/// limit to bandwidth times delay decides about the limit, and its remedy raises the start, too.
fn lowered(facts: &Facts, usual: &Usual) -> Option<Finding> {
    let Usual { name, direction, .. } = *usual;
    let sizes = facts.tcp.buffers(name)?;
    if path::is_below_need(facts, name) {
        return None;
    }
    let limit = low_limit(facts, usual);
    let start = (sizes.default_bytes < usual.start / 2).then_some(sizes.default_bytes);
    let full_us = |bits: f64| time(sizes.max_bytes as f64 * 8e6 / bits);
    let mut measured = Vec::new();
    let mut why = Vec::new();
    if let Some(default) = limit {
        measured.push(format!("{name} allows {} bytes; this kernel's default is {default}", sizes.max_bytes));
        why.push(format!(
            "The {direction} buffer limits what is under way: 1 Gb/s is reached up to a round trip time of {}, 10 Gb/s up to {}. \
             '--peer HOST:PORT' measures the one that counts.",
            full_us(1e9),
            full_us(1e10)
        ));
    }
    if let Some(start) = start {
        measured.push(format!("{name} starts at {start} bytes; the kernel's default is {}", usual.start));
        why.push(format!(
            "Each connection begins with a {direction} buffer of {start} bytes and carries no more in its first round trips, until \
             autotuning has raised it; without autotuning it stays there."
        ));
    }
    if measured.is_empty() {
        return None;
    }
    let draft = finding("small-buffers", Severity::Note, name, measured.join("; "), &why.join(" "));
    let max = limit.unwrap_or(sizes.max_bytes).max(usual.start);
    Some(draft.sysctl(name, &format!("{} {} {max}", sizes.min_bytes, sizes.default_bytes.max(usual.start))))
}

/// The kernel's choice of the limit for this memory, where the one in force is below half of it and no path is known.
fn low_limit(facts: &Facts, usual: &Usual) -> Option<u64> {
    let knows_better =
        facts.path.as_ref().is_some_and(|path| path.rtt.is_some() && path.bits_per_second.is_some());
    // tcp_init: a 128th of the free memory, at least 64 KiB.
    let default = (facts.tcp.memory_bytes? / 128).clamp(65_536, usual.limit);
    let max = facts.tcp.buffers(usual.name)?.max_bytes;
    (!knows_better && max < default / 2).then_some(default)
}
