//! Remedies, with the settings of each system.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::VerdictKind;

/// A remedy on one system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Remedy {
    /// The system or platform; "any" for all.
    pub system: String,
    /// The action.
    pub action: String,
}

const NODELAY: &[(&str, &str)] = &[
    (
        "Linux",
        "setsockopt(fd, IPPROTO_TCP, TCP_NODELAY) at the sender; or TCP_QUICKACK after every receive at the receiver",
    ),
    (
        "Windows",
        "setsockopt(s, IPPROTO_TCP, TCP_NODELAY) at the sender; for a receiver that you do not own: TcpAckFrequency=1 under Tcpip\\Parameters\\Interfaces\\{GUID}",
    ),
    (
        "FreeBSD, illumos, macOS",
        "TCP_NODELAY at the sender; net.inet.tcp.delayed_ack=0 (FreeBSD, macOS) or ipadm set-prop -p _deferred_acks_max=0 tcp (illumos) at the receiver",
    ),
    (".NET", "Socket.NoDelay = true; for HttpWebRequest ServicePointManager.UseNagleAlgorithm = false"),
    ("Java", "socket.setTcpNoDelay(true)"),
    ("Go", "TCPConn.SetNoDelay(true), which is Go's default"),
    ("Python", "sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)"),
];

const ONE_WRITE: &[(&str, &str)] = &[
    ("any", "write header and body with one call (writev, sendmsg, a buffered writer that is flushed once)"),
    ("Linux", "or send(header, MSG_MORE) and send the body without it"),
    (
        ".NET",
        "HttpClient; with HttpWebRequest ServicePointManager.Expect100Continue = false and UseNagleAlgorithm = false",
    ),
    ("Java", "wrap the socket's stream in a BufferedOutputStream and flush() once for each message"),
    ("Go", "bufio.Writer around the connection, Flush once for each message"),
    ("Python", "sock.sendall(header + body)"),
];

const CORK: &[(&str, &str)] = &[
    (
        "Linux",
        "send the last piece of a message without MSG_MORE; after TCP_CORK=1 set TCP_CORK=0, or TCP_NODELAY=1, which flushes",
    ),
    ("FreeBSD, macOS", "clear TCP_NOPUSH when the message is complete"),
];

const DELAYED_ACK: &[(&str, &str)] = &[
    ("any", "allow the sender more unacknowledged data: a larger SO_SNDBUF, at least four full segments"),
    (
        "Linux",
        "remove a small SO_SNDBUF; check net.ipv4.tcp_wmem; TCP_QUICKACK after every receive at the receiver",
    ),
    ("Windows", "TcpAckFrequency=1 at the receiver"),
    ("FreeBSD, macOS", "net.inet.tcp.delayed_ack=0 at the receiver"),
];

const SMALL: &[(&str, &str)] = &[
    (
        "any",
        "gather a message before it is sent: writev, or a buffered writer that is flushed once for each message",
    ),
    ("Linux", "or MSG_MORE on all pieces but the last"),
];

const WINDOW: &[(&str, &str)] = &[
    (
        "any",
        "a larger receive buffer: at least bandwidth times round trip; better none set, so that the system tunes it",
    ),
    ("Linux", "remove SO_RCVBUF; net.ipv4.tcp_rmem and net.core.rmem_max"),
    ("Windows", "netsh int tcp set global autotuninglevel=normal"),
    (
        "FreeBSD, illumos, macOS",
        "net.inet.tcp.recvspace and recvbuf_max (FreeBSD, macOS); ipadm set-prop -p recv_buf=1048576 tcp (illumos)",
    ),
];

const BUFFER: &[(&str, &str)] = &[
    (
        "any",
        "a larger send buffer: at least bandwidth times round trip; better none set, so that the system tunes it",
    ),
    (
        "Linux",
        "remove SO_SNDBUF; net.ipv4.tcp_wmem and net.core.wmem_max; net.ipv4.tcp_slow_start_after_idle=0",
    ),
    ("Windows", "SO_SNDBUF, or more overlapped sends at once"),
    (
        "FreeBSD, illumos, macOS",
        "net.inet.tcp.sendspace and sendbuf_max (FreeBSD, macOS); ipadm set-prop -p send_buf=1048576 tcp (illumos)",
    ),
];

const BLACK_HOLE: &[(&str, &str)] = &[
    (
        "any",
        "the same MTU on every host and switch of a network; let routers' ICMP \"fragmentation needed\" and \"packet too big\" pass",
    ),
    (
        "Linux",
        "find it with ping -M do -s SIZE; ip link set IF mtu 1500; net.ipv4.tcp_mtu_probing=1 works around it; a router may clamp: nft ... tcp option maxseg size set rt mtu",
    ),
    (
        "Windows",
        "find it with ping -f -l SIZE; netsh interface ipv4 set subinterface IF mtu=1500; EnablePMTUBHDetect=1",
    ),
    ("FreeBSD, macOS", "ifconfig IF mtu 1500; net.inet.tcp.pmtud_blackhole_detection=1"),
];

const LOSS: &[(&str, &str)] = &[
    (
        "any",
        "look where packets are dropped: cable and optics (error counters), a switch port's queue, a policer",
    ),
    (
        "Linux",
        "ethtool -S IF; tc -s qdisc; nstat -az | grep -i -E 'drop|prune|retrans'; larger rings: ethtool -G IF rx 4096",
    ),
    ("Windows", "Get-NetAdapterStatistics; netstat -s"),
    ("FreeBSD, illumos, macOS", "netstat -i and netstat -s"),
];

const DUPLEX: &[(&str, &str)] = &[
    (
        "any",
        "both ends of the cable to autonegotiation, or both to the same speed and duplex; never one fixed and one automatic",
    ),
    ("Linux", "ethtool IF shows it; ethtool -s IF autoneg on"),
    (
        "Windows",
        "Set-NetAdapterAdvancedProperty -DisplayName 'Speed & Duplex' -DisplayValue 'Auto Negotiation'",
    ),
    (
        "FreeBSD, illumos",
        "ifconfig IF media autoselect (FreeBSD); dladm set-linkprop -p adv_autoneg_cap=1 IF (illumos)",
    ),
];

const TARGET: &[(&str, &str)] = &[
    (
        "any",
        "examine the server beyond its socket: its disks, its cache setting, its CPU; a queue depth above 1 overlaps such waits",
    ),
    ("Linux", "iostat -x 1; pidstat -d -u -p PID 1"),
];

const INITIATOR: &[(&str, &str)] = &[
    ("any", "have more operations in flight: asynchronous I/O, several threads, a larger queue depth"),
    ("Linux", "fio --iodepth, aio or io_uring in the application; node.session.queue_depth of open-iscsi"),
];

const DEPTH: &[(&str, &str)] = &[
    ("any", "a larger queue depth, or several sessions"),
    (
        "Linux",
        "node.session.queue_depth and node.session.cmds_max of open-iscsi; /sys/block/DEV/queue/nr_requests; read-ahead for sequential readers",
    ),
];

const FULL: &[(&str, &str)] = &[("any", "a faster link, a second path, or fewer bytes")];

const CPU: &[(&str, &str)] = &[
    (
        "any",
        "fewer, larger operations; batches of responses in one send; another CPU for interrupts than for the thread",
    ),
    ("Linux", "perf top; /proc/interrupts; rps_cpus; several sessions spread over CPUs"),
];

const NO_RESPONSE: &[(&str, &str)] = &[
    ("server", "check that the service runs, listens on this address and port, and is not blocked"),
    (
        "network",
        "check routes and firewalls in both directions; a capture at the server shows whether requests arrive",
    ),
    (
        "capture",
        "if the service did respond, the capture lacks one direction: capture on all interfaces of the path",
    ),
];
const CAPTURE: &[(&str, &str)] = &[
    (
        "any",
        "capture less: a filter on the port, a snap length of 128 bytes, a larger buffer (tcpdump -B 65536)",
    ),
    ("Linux", "roundtrip capture keeps its ring in memory and reports dropped packets"),
];

/// The remedies of a verdict.
pub(super) fn remedies(kind: VerdictKind) -> Vec<Remedy> {
    let lists: &[&[(&str, &str)]] = match kind {
        VerdictKind::HeaderBodyApart => &[ONE_WRITE, NODELAY],
        VerdictKind::NagleDelayedAck => &[NODELAY],
        VerdictKind::UnfinishedCork => &[CORK],
        VerdictKind::DelayedAck => &[DELAYED_ACK],
        VerdictKind::SmallSegments => &[SMALL],
        VerdictKind::WindowLimited => &[WINDOW],
        VerdictKind::BufferLimited => &[BUFFER],
        VerdictKind::PathMtuBlackHole => &[BLACK_HOLE],
        VerdictKind::Retransmission => &[LOSS],
        VerdictKind::DuplexMismatch => &[DUPLEX],
        VerdictKind::SlowTarget => &[TARGET],
        VerdictKind::SlowInitiator => &[INITIATOR],
        VerdictKind::QueueDepthLow => &[DEPTH],
        VerdictKind::LinkFull => &[FULL],
        VerdictKind::CpuBound => &[CPU],
        VerdictKind::NoResponse => &[NO_RESPONSE],
        VerdictKind::CaptureLoss => &[CAPTURE],
    };
    let all = lists.iter().flat_map(|list| list.iter());
    all.map(|&(system, action)| Remedy { system: system.to_owned(), action: action.to_owned() }).collect()
}
