//! Options of routes that slow TCP down.

use super::super::draft::{Draft as _, bandwidth_delay_bytes, finding, rate, time, window_rate};
use super::super::shell;
use crate::change::{Change, Setting};
use crate::facts::Facts;
use crate::facts::tcp::{RouteOptions, TcpFacts};
use crate::finding::{Finding, Severity};

/// TCP_RTO_MIN, milliseconds.
const RTO_MIN_MS: u32 = 200;

/// A receiver may delay an acknowledgement this long (TCP_DELACK_MIN), milliseconds.
const DELAYED_ACK_MS: u32 = 40;

/// Segments of the initial window before RFC 3390, which nothing needs today.
const INITIAL_WINDOW: u32 = 4;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let route =
        |route| [slow_rto(route), hasty_rto(&facts.tcp, route), initial_window(route), window(facts, route)];
    facts.tcp.routes.iter().flat_map(route).flatten().collect()
}

fn subject(route: &RouteOptions) -> String {
    format!("route {}", route.route)
}

/// Removes an option, or gives it a value.
fn mend(mut draft: Finding, route: &RouteOptions, option: &str, value: &str) -> Finding {
    let words = if value.is_empty() { String::new() } else { format!(" {option} {value}") };
    let note = if value.is_empty() {
        format!("  # without {option}; keep the other options")
    } else {
        String::new()
    };
    draft.commands.push(format!("ip route change {}{words}{note}", shell::words(&route.route)));
    draft.changes.push(Change {
        setting: Setting::Route { route: route.route.clone(), option: option.to_owned() },
        value: value.to_owned(),
    });
    draft
}

fn slow_rto(route: &RouteOptions) -> Option<Finding> {
    let ms = route.rto_min_ms.filter(|ms| *ms > RTO_MIN_MS)?;
    let why = "A lost segment that no later one reveals is retransmitted after this time at the earliest; the kernel's default is \
               200 ms.";
    let draft =
        finding("route-rto-min-high", Severity::Slow, &subject(route), format!("rto_min {ms} ms"), why);
    Some(mend(draft.adds_us(f64::from(ms) * 1e3), route, "rto_min", ""))
}

/// Below the receiver's delay, acknowledgements that are only late look lost. Said where it happens.
fn hasty_rto(tcp: &TcpFacts, route: &RouteOptions) -> Option<Finding> {
    let ms = route.rto_min_ms.filter(|ms| *ms < DELAYED_ACK_MS)?;
    let spurious = tcp.increment("TCPSpuriousRTOs") + tcp.increment("TCPDSACKRecv");
    if spurious == 0 {
        return None;
    }
    let measured = format!(
        "rto_min {ms} ms; {spurious} spurious retransmissions in {}",
        time(tcp.watched_ms as f64 * 1e3)
    );
    let why = "Receivers may delay an acknowledgement by 40 ms: a retransmission that comes earlier sends what arrived, and \
               shrinks the window.";
    let draft = finding("route-rto-min-low", Severity::Note, &subject(route), measured, why);
    Some(
        mend(draft, route, "rto_min", "40ms")
            .other_end("or acknowledge at once: 'quickack 1' on its route to this host"),
    )
}

fn initial_window(route: &RouteOptions) -> Option<Finding> {
    let segments = route.initial_window_segments.filter(|segments| *segments < INITIAL_WINDOW)?;
    let why = "A connection begins with this many segments and doubles them each round trip; the kernel's default is 10 (RFC 6928).";
    let measured = format!("initcwnd {segments}");
    let draft = finding("route-initial-window-small", Severity::Slow, &subject(route), measured, why);
    Some(mend(draft, route, "initcwnd", ""))
}

/// `window` of the route that leads to the peer.
fn window(facts: &Facts, route: &RouteOptions) -> Option<Finding> {
    let bytes = route.window_bytes.filter(|bytes| *bytes > 0)?;
    let path = facts.path.as_ref()?;
    let leaves_by = format!("dev {}", path.interface.as_deref()?);
    let (bits, rtt) = (path.bits_per_second?, path.rtt.filter(|rtt| rtt.min_us > 0.0)?);
    let need = bandwidth_delay_bytes(bits, rtt.min_us);
    if f64::from(bytes) >= need || !route.route.contains(&leaves_by) {
        return None;
    }
    let most = window_rate(u64::from(bytes), rtt.min_us);
    let measured = format!(
        "window {bytes}; {} with a round trip of {} needs {need:.0} bytes",
        rate(bits as f64),
        time(rtt.min_us)
    );
    let why = "The route limits the receive window, and so what the peer can send in a round trip time.";
    let draft = finding("route-window-small", Severity::Slow, &subject(route), measured, why);
    Some(mend(draft.carries_at_most(most), route, "window", ""))
}
