//! Counters of TCP that move while they are watched.

use super::super::draft::{Draft as _, finding, time};
use crate::facts::tcp::TcpFacts;
use crate::finding::{Finding, Severity};

/// Fewer retransmissions than this are chance, whatever their share.
const FEW: u64 = 10;

/// Share of retransmitted segments that costs: one in a thousand.
const SHARE: f64 = 1e-3;

/// A lost SYN is sent again after a second (RFC 6298), microseconds.
const SYN_RETRY_US: f64 = 1e6;

/// A backlog of listen(2) below this is worth raising: it was the kernel's default up to 5.3.
const SOMAXCONN: i64 = 4096;

pub(super) fn findings(tcp: &TcpFacts) -> Vec<Finding> {
    let rules = [overflow(tcp), retransmissions(tcp), pruned(tcp), backlog(tcp), pressure(tcp), corking(tcp)];
    rules.into_iter().flatten().collect()
}

/// `12 in 2.0 s`.
fn in_time(tcp: &TcpFacts, count: u64) -> String {
    format!("{count} in {}", time(tcp.watched_ms as f64 * 1e3))
}

fn sum(tcp: &TcpFacts, names: &[&str]) -> u64 {
    names.iter().map(|name| tcp.increment(name)).sum()
}

fn overflow(tcp: &TcpFacts) -> Option<Finding> {
    // ListenDrops counts overflows, too.
    let drops = tcp.increment("ListenOverflows").max(tcp.increment("ListenDrops"));
    let refused = sum(tcp, &["TCPReqQFullDrop"]);
    if drops + refused == 0 {
        return None;
    }
    let measured = format!("connections refused for a full queue: {}", in_time(tcp, drops + refused));
    let why = "A program accepts connections more slowly than they come: a handshake is dropped, and the client tries again after \
               1, 3 and 7 s.";
    let mut draft = finding("accept-queue-full", Severity::Slow, "tcp", measured, why).adds_us(SYN_RETRY_US);
    if tcp.number("net.core.somaxconn").is_some_and(|limit| limit < SOMAXCONN) {
        draft = draft.sysctl("net.core.somaxconn", &SOMAXCONN.to_string());
    }
    let command = "ss -Hltn | awk '$2 >= $3'  # full queues: Recv-Q has reached the backlog of listen(2); raise it in the program";
    Some(draft.command(command.to_owned()))
}

fn retransmissions(tcp: &TcpFacts) -> Option<Finding> {
    // SYNs to hosts that are down are no loss.
    let lost = tcp.increment("RetransSegs").saturating_sub(tcp.increment("TCPSynRetrans"));
    let sent = tcp.increment("OutSegs").max(1);
    if lost < FEW || (lost as f64) < SHARE * sent as f64 {
        return None;
    }
    let needless = tcp.increment("TCPDSACKRecv");
    let timeouts = tcp.increment("TCPTimeouts");
    let percent = 100.0 * lost as f64 / sent as f64;
    let measured = format!(
        "{} of {sent} segments ({percent:.2} %) retransmitted, {timeouts} timeouts, {needless} needless (D-SACK)",
        in_time(tcp, lost)
    );
    if needless * 2 > lost {
        let why = "Most retransmitted segments had arrived: the path reorders packets (several links or queues share a \
                   connection), or acknowledgements come late.";
        let draft = finding("tcp-spurious-retransmissions", Severity::Slow, "tcp", measured, why);
        return Some(draft.command("ss -tino  # connections with 'reord_seen' and 'dsack_dups'".to_owned()));
    }
    let why = "Segments are lost. Each costs a round trip, one at the end of a message 200 ms and more, and the window shrinks.";
    let draft = finding("retransmissions", Severity::Slow, "tcp", measured, why);
    let draft = if timeouts > 0 { draft.adds_us(200_000.0) } else { draft };
    Some(
        draft
            .command("ss -tino  # connections with 'retrans'".to_owned())
            .command("roundtrip analyze --interface IF  # which direction loses them".to_owned()),
    )
}

fn pruned(tcp: &TcpFacts) -> Option<Finding> {
    let names = ["PruneCalled", "RcvPruned", "OfoPruned", "TCPRcvQDrop", "TCPRcvCollapsed"];
    let dropped = sum(tcp, &["RcvPruned", "OfoPruned", "TCPRcvQDrop"]);
    let all = sum(tcp, &names);
    if all == 0 {
        return None;
    }
    let measured =
        format!("receive buffers cleaned up: {}, of which {dropped} dropped data", in_time(tcp, all));
    let why = "A receive buffer was full of packets: the kernel copies them together, and drops some that must be sent again. The \
               program reads too slowly, or its buffer is too small for the sender's window.";
    let severity = if dropped > 0 { Severity::Slow } else { Severity::Note };
    let draft = finding("receive-buffer-full", severity, "tcp", measured, why);
    Some(draft.command("ss -tinm  # connections whose rb (buffer) is reached by r (used)".to_owned()))
}

fn backlog(tcp: &TcpFacts) -> Option<Finding> {
    let dropped = tcp.increment("TCPBacklogDrop");
    let measured = format!("segments dropped while the program held its socket: {}", in_time(tcp, dropped));
    let why = "While a program is inside a call on its socket, packets wait in a backlog that is limited by its buffers; these \
               were dropped and must be sent again.";
    let drop = || finding("socket-backlog-drops", Severity::Slow, "tcp", measured, why);
    let draft = (dropped > 0).then(drop)?;
    Some(draft.command("ss -tinm  # connections with d (drops)".to_owned()))
}

fn pressure(tcp: &TcpFacts) -> Option<Finding> {
    let count = sum(tcp, &["TCPMemoryPressures", "TCPAbortOnMemory"]);
    let limit = tcp.word("net.ipv4.tcp_mem").unwrap_or("unknown");
    let measured =
        format!("TCP ran short of memory: {}; net.ipv4.tcp_mem = {limit} pages", in_time(tcp, count));
    let why = "All sockets together hold more than tcp_mem allows: windows shrink, buffers stop growing, connections are aborted.";
    let short = || finding("tcp-memory-pressure", Severity::Broken, "tcp", measured, why);
    let draft = (count > 0).then(short)?;
    Some(draft.command("ss -s; cat /proc/net/sockstat  # mem is in pages; raise net.ipv4.tcp_mem, or find who leaves data unread".to_owned()))
}

/// A small write waits while an earlier packet is in the card's queue, until its transmission completes.
fn corking(tcp: &TcpFacts) -> Option<Finding> {
    let (held, sent) = (tcp.increment("TCPAutoCorking"), tcp.increment("TCPOrigDataSent"));
    if held < 100 || held * 10 < sent {
        return None;
    }
    let measured = format!(
        "small writes held back by autocorking: {}, {sent} segments of data sent",
        in_time(tcp, held)
    );
    let why = "The kernel gathers small writes while an earlier packet of the connection waits in the card. That saves packets and \
               costs until the card's next transmit interrupt, which coalescing delays.";
    let draft = finding("autocorking-holds", Severity::Note, "tcp", measured, why);
    Some(draft.sysctl("net.ipv4.tcp_autocorking", "0").command(
        "in the program: write a message with one call (writev, sendmsg), or MSG_MORE and TCP_CORK where parts follow".to_owned(),
    ))
}
