//! A TCP socket.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A TCP socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketFacts {
    /// Its ends.
    pub ends: Ends,
    /// Its state: `established`, `listen`.
    pub state: SocketState,
    /// Its inode; 0 where no program has a descriptor of it.
    pub inode: u32,
    /// The user who made it.
    pub uid: u32,
    /// The descriptors that hold it, as far as they could be seen.
    pub owners: Vec<Owner>,
    /// The accept queue, of a listening socket.
    pub accept_queue: Option<AcceptQueue>,
    /// Options that only the process's own descriptor shows; `None` where it could not be read.
    pub options: Option<SocketOptions>,
    /// Name of the congestion control.
    pub congestion_control: Option<String>,
    /// Buffers.
    pub buffers: Buffers,
    /// The connection since it began; `None` of a listening socket.
    pub transfer: Option<Transfer>,
    /// What happened while the check watched; `None` where it did not watch this socket.
    pub watched: Option<WatchedTransfer>,
}

/// The ends of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ends {
    /// This end.
    pub local: SocketAddr,
    /// The other end; `None` of a listening socket.
    pub peer: Option<SocketAddr>,
}

impl Default for Ends {
    fn default() -> Self {
        Self { local: SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0), peer: None }
    }
}

impl std::fmt::Display for Ends {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.peer {
            Some(peer) => write!(f, "{} -> {peer}", self.local),
            None => write!(f, "{}", self.local),
        }
    }
}

/// State of a TCP socket.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema,
)]
#[serde(rename_all = "kebab-case")]
pub enum SocketState {
    /// Both ends may send.
    #[default]
    Established,
    /// Waits for connections.
    Listen,
    /// Connects.
    Connecting,
    /// The peer has ended its direction.
    CloseWait,
    /// This end has ended its direction, and data may remain to be sent.
    Closing,
}

/// A descriptor that holds a socket.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Owner {
    /// The process.
    pub pid: u32,
    /// Its descriptor.
    pub fd: i32,
    /// The name of its program, at most 15 bytes.
    pub program: String,
}

/// Connections that wait to be accepted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct AcceptQueue {
    /// How many wait.
    pub length: u32,
    /// The limit: the lower of `listen(backlog)` and net.core.somaxconn.
    pub limit: u32,
}

/// Options of a socket that netlink does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SocketOptions {
    /// Whether Nagle's algorithm is on (TCP_NODELAY is not set).
    pub nagle: bool,
    /// Whether TCP_CORK is set.
    pub corked: bool,
    /// Whether acknowledgements are not delayed at this moment; the kernel changes it by itself.
    pub quick_ack: bool,
    /// TCP_NOTSENT_LOWAT, bytes; `None` for the system's value.
    pub not_sent_low_water: Option<u32>,
    /// Whether the program has set SO_SNDBUF, which ends its autotuning; `None` before Linux 5.14.
    pub send_buffer_locked: Option<bool>,
    /// Whether the program has set SO_RCVBUF.
    pub receive_buffer_locked: Option<bool>,
}

/// Buffers of a socket, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Buffers {
    /// Limit of the send buffer, as getsockopt(SO_SNDBUF) returns it: twice what a program set.
    pub send_bytes: u32,
    /// Limit of the receive buffer, as getsockopt(SO_RCVBUF) returns it.
    pub receive_bytes: u32,
    /// Received and not yet read by the program.
    pub unread_bytes: u32,
    /// Written by the program and not yet acknowledged, sent or not.
    pub queued_bytes: u32,
    /// Of the queued bytes, those not yet sent.
    pub unsent_bytes: u32,
    /// Segments that were dropped for lack of memory or of room in the accept queue, ever.
    pub drops: u32,
}

impl Buffers {
    /// Bytes in flight: sent, not acknowledged.
    #[must_use]
    pub fn unacknowledged_bytes(&self) -> u32 {
        self.queued_bytes.saturating_sub(self.unsent_bytes)
    }
}

/// A connection since it began (TCP_INFO). A figure that the kernel is too old for, or never measured, is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Transfer {
    /// Largest segment that is sent, bytes of data.
    pub mss_bytes: u32,
    /// Smoothed round trip time with the peer's delay of acknowledgements, us.
    pub rtt_us: Option<u32>,
    /// Lowest round trip time, us.
    pub rtt_min_us: Option<u32>,
    /// Round trip time that the receiving side estimates, us.
    pub rtt_receiver_us: Option<u32>,
    /// Congestion window, segments.
    pub congestion_window_segments: u32,
    /// Window that the peer announces, bytes.
    pub peer_window_bytes: Option<u32>,
    /// Whether a closed window of the peer is being probed.
    pub probes_window: bool,
    /// Bytes that the program read in one round trip, at most.
    pub read_per_round_trip_bytes: u32,
    /// Pacing rate, bytes/s; `None` without a limit.
    pub pacing_bytes_per_s: Option<u64>,
    /// Rate at which data was last delivered, bytes/s.
    pub delivery_bytes_per_s: Option<u64>,
    /// Since data was last sent, ms; `None` where none was.
    pub idle_send_ms: Option<u32>,
    /// Since data was last received, ms; `None` where none was.
    pub idle_receive_ms: Option<u32>,
    /// Counters.
    pub counters: Counters,
}

/// Counters of a connection. On a kernel that lacks one, it is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Counters {
    /// Bytes sent, with retransmissions.
    pub bytes_sent: u64,
    /// Bytes received.
    pub bytes_received: u64,
    /// Segments with data sent, with retransmissions.
    pub data_segments_out: u64,
    /// Segments with data received.
    pub data_segments_in: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Bytes sent again.
    pub retransmitted_bytes: u64,
    /// Duplicate segments that the peer reported (D-SACK): retransmissions without a loss.
    pub duplicates_reported: u64,
    /// Time with data that was not acknowledged, us.
    pub busy_us: u64,
    /// Of it, time in which the peer's window held data back, us.
    pub window_limited_us: u64,
    /// Of it, time in which the own send buffer held the program back, us.
    pub send_buffer_limited_us: u64,
}

impl Counters {
    /// What was counted since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let less = u64::saturating_sub;
        Self {
            bytes_sent: less(self.bytes_sent, earlier.bytes_sent),
            bytes_received: less(self.bytes_received, earlier.bytes_received),
            data_segments_out: less(self.data_segments_out, earlier.data_segments_out),
            data_segments_in: less(self.data_segments_in, earlier.data_segments_in),
            retransmitted_segments: less(self.retransmitted_segments, earlier.retransmitted_segments),
            retransmitted_bytes: less(self.retransmitted_bytes, earlier.retransmitted_bytes),
            duplicates_reported: less(self.duplicates_reported, earlier.duplicates_reported),
            busy_us: less(self.busy_us, earlier.busy_us),
            window_limited_us: less(self.window_limited_us, earlier.window_limited_us),
            send_buffer_limited_us: less(self.send_buffer_limited_us, earlier.send_buffer_limited_us),
        }
    }
}

/// A connection while the check watched it, by readings at irregular intervals of about 10 ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct WatchedTransfer {
    /// For how long, us.
    pub duration_us: u64,
    /// Number of readings.
    pub readings: u32,
    /// Readings in which less than a segment waited to be sent behind data in flight, although the windows had room: what Nagle's
    /// algorithm does.
    pub held_behind_data: u32,
    /// Readings in which less than a segment waited to be sent with nothing in flight, although the windows had room: what
    /// TCP_CORK and MSG_MORE do.
    pub held_alone: u32,
    /// Readings in which the peer's window was closed with data waiting.
    pub window_closed: u32,
    /// What was counted meanwhile.
    pub counters: Counters,
}
