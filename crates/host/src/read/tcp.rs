//! Reads the system's settings of TCP, and which of its counters move.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use netlink::route::{Link, Route};

use super::text::text;
use super::{Roots, Wanted};
use crate::facts::Unseen;
use crate::facts::tcp::{RouteOptions, TcpFacts};

/// Kernel parameters that a rule judges or that `check --json` shows. Those of one namespace are read in the calling thread's.
const PARAMETERS: [&str; 31] = [
    "net.core.busy_poll",
    "net.core.busy_read",
    "net.core.default_qdisc",
    "net.core.netdev_budget",
    "net.core.netdev_max_backlog",
    "net.core.rmem_default",
    "net.core.rmem_max",
    "net.core.somaxconn",
    "net.core.wmem_default",
    "net.core.wmem_max",
    "net.ipv4.ip_no_pmtu_disc",
    "net.ipv4.tcp_adv_win_scale",
    "net.ipv4.tcp_allowed_congestion_control",
    "net.ipv4.tcp_autocorking",
    "net.ipv4.tcp_available_congestion_control",
    "net.ipv4.tcp_base_mss",
    "net.ipv4.tcp_congestion_control",
    "net.ipv4.tcp_dsack",
    "net.ipv4.tcp_ecn",
    "net.ipv4.tcp_max_syn_backlog",
    "net.ipv4.tcp_mem",
    "net.ipv4.tcp_moderate_rcvbuf",
    "net.ipv4.tcp_mtu_probing",
    "net.ipv4.tcp_notsent_lowat",
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_rto_min_us",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_slow_start_after_idle",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_wmem",
];

/// Parameters that every kernel since 4.9 has in every namespace: their absence is worth a word.
const EXPECTED: [&str; 4] = [
    "net.ipv4.tcp_rmem",
    "net.ipv4.tcp_wmem",
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_congestion_control",
];

/// The table that `ip route` shows.
const MAIN: u32 = 254;

/// Reads the settings, and the counters twice where `wanted` names a time to watch.
pub fn read(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> TcpFacts {
    let before = counters(roots);
    let mut facts = TcpFacts {
        sysctls: sysctls(&roots.proc),
        memory_bytes: memory_bytes(&roots.proc),
        routes: routes(roots, unseen),
        ..TcpFacts::default()
    };
    for name in EXPECTED {
        if !facts.sysctls.contains_key(name) {
            unseen.push(Unseen {
                what: name.to_owned(),
                why: format!("{} cannot be read", parameter_path(&roots.proc, name).display()),
            });
        }
    }
    if before.is_empty() {
        unseen.push(Unseen {
            what: "TCP's counters".to_owned(),
            why: "/proc/net/netstat and /proc/net/snmp cannot be read".to_owned(),
        });
    } else if wanted.watch > Duration::ZERO {
        std::thread::sleep(wanted.watch);
        facts.watched_ms = u64::try_from(wanted.watch.as_millis()).unwrap_or(u64::MAX);
        facts.moved = increments(&before, &counters(roots));
    }
    facts
}

fn parameter_path(proc: &Path, name: &str) -> PathBuf {
    proc.join("sys").join(name.replace('.', "/"))
}

fn sysctls(proc: &Path) -> BTreeMap<String, String> {
    let value = |name: &&str| {
        let value = text(&parameter_path(proc, name))?;
        Some(((*name).to_owned(), value.split_whitespace().collect::<Vec<_>>().join(" ")))
    };
    PARAMETERS.iter().filter_map(value).collect()
}

/// Routes with options, from the kernel; a tree of files has none.
fn routes(roots: &Roots, unseen: &mut Vec<Unseen>) -> Vec<RouteOptions> {
    if roots.proc != Path::new("/proc") {
        return Vec::new();
    }
    let read = || {
        let mut kernel = netlink::route::Connection::open()?;
        Ok::<_, netlink::Error>((kernel.links()?, kernel.routes()?))
    };
    match read() {
        Ok((links, routes)) => routes.into_iter().filter_map(|route| options(route, &links)).collect(),
        Err(error) => {
            unseen.push(Unseen { what: "options of routes".to_owned(), why: error.to_string() });
            Vec::new()
        }
    }
}

/// The options of a route of the main table that has any.
fn options(route: Route, links: &[Link]) -> Option<RouteOptions> {
    let name = links.iter().find(|link| Some(link.index) == route.interface).map(|link| &link.name)?;
    let metric = if route.priority > 0 { format!(" metric {}", route.priority) } else { String::new() };
    let options = RouteOptions {
        route: format!("{route} dev {name}{metric}"),
        mtu_bytes: route.metrics.mtu,
        window_bytes: route.metrics.window,
        rto_min_ms: route.metrics.rto_min_ms,
        initial_window_segments: route.metrics.initcwnd,
        is_quick_ack: route.metrics.quickack == Some(true),
        congestion_control: route.metrics.congestion_control,
    };
    (route.table == MAIN
        && options != RouteOptions { route: options.route.clone(), ..RouteOptions::default() })
    .then_some(options)
}

fn memory_bytes(proc: &Path) -> Option<u64> {
    let meminfo = text(&proc.join("meminfo"))?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.split_whitespace().next()?.parse::<u64>().ok()?.checked_mul(1024)
}

/// Counters of TCP and its extensions, by name.
fn counters(roots: &Roots) -> BTreeMap<String, u64> {
    // /proc/net is that of the process; a thread may be in another namespace.
    let folder = [roots.proc.join("thread-self/net"), roots.proc.join("net")];
    let read = |file: &str| folder.iter().find_map(|folder| text(&folder.join(file)));
    let mut all = BTreeMap::new();
    for file in ["netstat", "snmp"] {
        all.extend(parse_counters(&read(file).unwrap_or_default()));
    }
    all
}

/// The counters of the lines `Tcp:` and `TcpExt:`: one line of names, one of values.
fn parse_counters(text: &str) -> BTreeMap<String, u64> {
    let mut all = BTreeMap::new();
    for prefix in ["Tcp:", "TcpExt:"] {
        let mut lines = text.lines().filter_map(|line| line.strip_prefix(prefix)).map(str::split_whitespace);
        if let (Some(names), Some(values)) = (lines.next(), lines.next()) {
            // MaxConn is -1: no counter.
            let pairs = names.zip(values).filter_map(|(n, v)| Some((n.to_owned(), v.parse().ok()?)));
            all.extend(pairs);
        }
    }
    // Levels, not counters.
    for level in ["CurrEstab", "RtoAlgorithm", "RtoMin", "RtoMax"] {
        all.remove(level);
    }
    all
}

/// By how much each counter moved, without those that did not. A counter that went back was reset: it did not move.
fn increments(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> BTreeMap<String, u64> {
    let moved = |(name, after): (&String, &u64)| {
        let by = after.saturating_sub(*before.get(name)?);
        (by > 0).then(|| (name.clone(), by))
    };
    after.iter().filter_map(moved).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_paired_by_their_place() {
        let text = "TcpExt: ListenOverflows TCPTimeouts\nTcpExt: 3 9\nTcp: MaxConn RetransSegs CurrEstab\nTcp: -1 7 40\n\
                    IpExt: InOctets\nIpExt: 5\n";
        let read = parse_counters(text);
        let expected = [("ListenOverflows", 3), ("RetransSegs", 7), ("TCPTimeouts", 9)];
        assert_eq!(read.iter().map(|(n, v)| (n.as_str(), *v)).collect::<Vec<_>>(), expected);
        assert!(parse_counters("TcpExt: OnlyNames\n").is_empty());
    }

    #[test]
    fn only_counters_that_moved_are_kept() {
        let of = |a, b, c| [("a", a), ("b", b), ("c", c)].map(|(n, v): (&str, u64)| (n.to_owned(), v)).into();
        let moved = increments(&of(1, 5, 9), &of(4, 5, 2));
        assert_eq!(moved, [("a".to_owned(), 3)].into());
    }
}
