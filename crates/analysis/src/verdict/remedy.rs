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

const FLOW_CONTROL: &[(&str, &str)] = &[
    (
        "receiver",
        "larger windows of HTTP/2, of the stream and of the connection: at least bandwidth times round trip",
    ),
    ("nginx", "as the receiver of uploads: a larger http2_body_preread_size"),
    ("Envoy", "initial_stream_window_size, initial_connection_window_size"),
    ("Go", "http2.Server: MaxUploadBufferPerStream, MaxUploadBufferPerConnection"),
    (
        "gRPC",
        "InitialWindowSize and InitialConnWindowSize (Go), flowControlWindow (Java), grpc.http2.lookahead_bytes (C++, Python)",
    ),
    ("curl, nghttp2", "nghttp2_session_set_local_window_size; h2load and nghttpd: -w and -W"),
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
        "examine the server beyond its socket: its disks, its cache setting, its CPU; if requests do not wait for each other there (a lock, one worker), a larger queue depth overlaps such waits",
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

const SATURATED: &[(&str, &str)] = &[
    (
        "any",
        "make the service do several at once (more workers, a shorter critical section) or less for each; a larger queue depth or more clients only lengthens the queue",
    ),
    (
        "Linux",
        "perf top -p PID for a CPU, iostat -x 1 for a disk, and the lock that threads wait for: strace -c -f -e futex -p PID",
    ),
];

const RARE: &[(&str, &str)] = &[
    (
        "any",
        "if others are answered meanwhile, these requests differ: a cache miss, a larger query, a locked record (--slowest 20 shows their keys)",
    ),
    (
        "server",
        "if all wait, look for what runs at the times shown: garbage collection, checkpoints, log rotation, cron jobs, CPU throttling by a cgroup",
    ),
    ("Linux", "perf sched timehist; cat /sys/fs/cgroup/*/cpu.stat (nr_throttled)"),
    ("Java", "-Xlog:gc,safepoint"),
    ("Go", "GODEBUG=gctrace=1"),
    ("PostgreSQL", "log_checkpoints = on; checkpoint_completion_target = 0.9"),
];

const CONNECTS: &[(&str, &str)] = &[
    ("server", "check that the service listens on this address and port: ss -ltn"),
    (
        "network",
        "a reset comes from the host or a firewall that rejects; silence comes from a firewall that drops, or a wrong route",
    ),
];

const BACKLOG: &[(&str, &str)] = &[
    (
        "any",
        "accept connections sooner (a thread of its own for accept) and keep connections open; a longer backlog in listen()",
    ),
    (
        "Linux",
        "nstat -az TcpExtListenOverflows TcpExtListenDrops; ss -ltn shows the queue and its limit; net.core.somaxconn and the argument of listen()",
    ),
    ("Java", "new ServerSocket(port, backlog): 50 by default"),
    ("Python", "socketserver: request_queue_size is 5 by default"),
    ("nginx", "listen ... backlog=4096"),
];

const KEEP_ALIVE: &[(&str, &str)] = &[
    ("any", "keep connections open and use them again: HTTP keep-alive, a connection pool"),
    ("Go", "read the response's body to its end and close it; Transport.MaxIdleConnsPerHost is 2 by default"),
    ("Python", "requests.Session instead of requests.get"),
    ("Node", "new http.Agent({ keepAlive: true }), the default from Node 19 on"),
    ("nginx", "keepalive in the upstream block, proxy_http_version 1.1 and an empty Connection header"),
];

const RESETS: &[(&str, &str)] = &[
    (
        "any",
        "compare the idle time-outs of the client, of proxies and of the server: who closes first loses requests; the server's log names crashes",
    ),
    ("server", "do not close a socket with unread data in it: that sends a reset"),
];

const ERRORS: &[(&str, &str)] =
    &[("server", "the service's log names the reason; the frames show the requests")];

const CWND: &[(&str, &str)] = &[
    (
        "any",
        "keep connections open so that their window grows; a congestion control for long paths (bbr, cubic); fewer lost packets",
    ),
    (
        "Linux",
        "net.ipv4.tcp_congestion_control; ip route change ... initcwnd 30; net.ipv4.tcp_slow_start_after_idle=0",
    ),
];

const AFTER_IDLE: &[(&str, &str)] = &[
    ("any", "keep connections busy, or let their window survive idle time"),
    ("Linux", "net.ipv4.tcp_slow_start_after_idle=0 at the sender"),
    ("FreeBSD", "a larger net.inet.tcp.initcwnd_segments"),
];

const CHATTY: &[(&str, &str)] = &[
    (
        "any",
        "fewer round trips: one statement instead of many, pipelining, batches, a cache, or several requests at once; or move the client nearer to the server",
    ),
    ("SQL", "a join or WHERE ... IN instead of a query for each row; multi-row INSERT or COPY"),
    ("Redis", "pipelines, MGET, or a Lua script"),
];

const TIMER: &[(&str, &str)] = &[(
    "server",
    "wake up by the event instead of polling: condition variables, epoll, LISTEN/NOTIFY; or a shorter interval",
)];

const BLOAT: &[(&str, &str)] = &[
    (
        "any",
        "limit the queue before the bottleneck: a smaller queue or an active one (fq_codel, cake) at the router, or shape a little below the link's rate",
    ),
    (
        "Linux",
        "tc -s qdisc shows the backlog; tc qdisc replace dev IF root fq_codel; bbr at the sender keeps the queue short",
    ),
];

const CLOCK: &[(&str, &str)] = &[(
    "capture",
    "slew the clock instead of stepping it (chronyd without makestep, ntpd -x) while you capture, or capture again",
)];

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
const CONTINUE: &[(&str, &str)] = &[
    (
        "server",
        "answer a request with `Expect: 100-continue` with 100 Continue before reading its body, or with a final status; proxies have to pass it on",
    ),
    ("curl, libcurl", "-H 'Expect:'; CURLOPT_EXPECT_100_TIMEOUT_MS is 1000 by default"),
    (
        ".NET",
        "HttpRequestHeaders.ExpectContinue = false; SocketsHttpHandler.Expect100ContinueTimeout is 1 s by default",
    ),
    ("Go", "no Expect header, or a shorter Transport.ExpectContinueTimeout"),
    ("Python", "http.server sends it for protocol_version = 'HTTP/1.1' only"),
];

const CAPTURE: &[(&str, &str)] = &[
    (
        "any",
        "capture less: a filter on the port, a snap length of 128 bytes, a larger buffer (tcpdump -B 65536)",
    ),
    ("Linux", "roundtrip capture keeps its ring in memory and reports dropped packets"),
];

/// The remedies of a verdict.
#[must_use]
pub fn remedies(kind: VerdictKind) -> Vec<Remedy> {
    let lists: &[&[(&str, &str)]] = match kind {
        VerdictKind::HeaderBodyApart => &[ONE_WRITE, NODELAY],
        VerdictKind::NagleDelayedAck | VerdictKind::AckClocked => &[NODELAY],
        VerdictKind::UnfinishedCork => &[CORK],
        VerdictKind::DelayedAck => &[DELAYED_ACK],
        VerdictKind::SmallSegments => &[SMALL],
        VerdictKind::WindowLimited => &[WINDOW],
        VerdictKind::FlowControlWindow => &[FLOW_CONTROL],
        VerdictKind::BufferLimited => &[BUFFER],
        VerdictKind::PathMtuBlackHole => &[BLACK_HOLE],
        VerdictKind::Retransmission => &[LOSS],
        VerdictKind::DuplexMismatch => &[DUPLEX],
        VerdictKind::SlowTarget => &[TARGET],
        VerdictKind::SlowInitiator => &[INITIATOR],
        VerdictKind::QueueDepthLow => &[DEPTH],
        VerdictKind::LinkFull => &[FULL],
        VerdictKind::CpuBound => &[CPU],
        VerdictKind::Saturated => &[SATURATED],
        VerdictKind::RareStalls => &[RARE],
        VerdictKind::FailedConnects => &[CONNECTS],
        VerdictKind::AcceptBacklog => &[BACKLOG],
        VerdictKind::ConnectionPerRequest => &[KEEP_ALIVE],
        VerdictKind::Resets => &[RESETS],
        VerdictKind::ErrorAnswers => &[ERRORS],
        VerdictKind::CongestionWindow => &[CWND],
        VerdictKind::SlowStartAfterIdle => &[AFTER_IDLE],
        VerdictKind::RoundTripBound => &[CHATTY],
        VerdictKind::ServerTimer => &[TIMER],
        VerdictKind::Bufferbloat => &[BLOAT],
        VerdictKind::ClockStep => &[CLOCK],
        VerdictKind::NoResponse => &[NO_RESPONSE],
        VerdictKind::ContinueUnanswered => &[CONTINUE],
        VerdictKind::CaptureLoss => &[CAPTURE],
    };
    let all = lists.iter().flat_map(|list| list.iter());
    all.map(|&(system, action)| Remedy { system: system.to_owned(), action: action.to_owned() }).collect()
}
