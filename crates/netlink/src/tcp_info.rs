//! TCP_INFO (include/uapi/linux/tcp.h, `struct tcp_info`), of any kernel's length.

use super::{u32_at, u64_at};

/// Length of the part that every kernel since 2.6 has.
const OLDEST_BYTES: usize = 104;

/// What the kernel knows about a connection. A field that the kernel is too old for is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// State of the congestion control: 0 open, 1 disorder, 2 CWR, 3 recovery, 4 loss.
    pub congestion_state: u8,
    /// Timeouts since the last acknowledgement.
    pub timeouts: u8,
    /// Probes of a closed window, or of a silent peer, without an answer.
    pub probes: u8,
    /// Shift of the windows that the peer announces; `None` without window scaling.
    pub send_window_shift: Option<u8>,
    /// Whether the delivery rate was limited by the program, not by the network.
    pub is_delivery_limited_by_program: bool,
    /// Retransmission timeout, us.
    pub rto_us: u32,
    /// Delay of the next delayed acknowledgement, us.
    pub ack_timeout_us: u32,
    /// Largest segment that is sent, bytes.
    pub send_mss: u32,
    /// Estimate of the peer's segments, bytes.
    pub receive_mss: u32,
    /// Segments in flight.
    pub unacknowledged_segments: u32,
    /// Since data was last sent, ms.
    pub since_data_sent_ms: u32,
    /// Since data was last received, ms.
    pub since_data_received_ms: u32,
    /// Path MTU, bytes.
    pub path_mtu: u32,
    /// Smoothed round trip time, us; 0 where none was measured.
    pub rtt_us: u32,
    /// Its mean deviation, us.
    pub rtt_deviation_us: u32,
    /// Congestion window, segments.
    pub congestion_window: u32,
    /// Round trip time that the receiver estimates, us; 0 where it did not.
    pub receive_rtt_us: u32,
    /// Bytes that the program read in one round trip, at most.
    pub receive_space: u32,
    /// Segments sent again, ever.
    pub retransmitted_segments: u32,
    /// Pacing rate, bytes/s; `None` without a limit.
    pub pacing_rate: Option<u64>,
    /// Bytes received, ever.
    pub bytes_received: Option<u64>,
    /// Bytes that wait to be sent for the first time.
    pub unsent_bytes: Option<u32>,
    /// Lowest round trip time, us; `None` where none was measured.
    pub rtt_min_us: Option<u32>,
    /// Segments with data received, ever.
    pub data_segments_in: Option<u32>,
    /// Segments with data sent, ever, with retransmissions.
    pub data_segments_out: Option<u32>,
    /// Delivery rate, bytes/s; 0 where none was measured.
    pub delivery_rate: Option<u64>,
    /// Time with data that was not acknowledged, us.
    pub busy_us: Option<u64>,
    /// Of it, time in which the peer's window held data back, us.
    pub window_limited_us: Option<u64>,
    /// Of it, time in which the send buffer held the program back, us.
    pub send_buffer_limited_us: Option<u64>,
    /// Bytes sent, ever, with retransmissions.
    pub bytes_sent: Option<u64>,
    /// Bytes sent again, ever.
    pub bytes_retransmitted: Option<u64>,
    /// Duplicate segments that the peer reported (D-SACK).
    pub duplicates_reported: Option<u32>,
    /// Segments that arrived out of order, ever.
    pub out_of_order_in: Option<u32>,
    /// Window that the peer announces, bytes.
    pub send_window: Option<u32>,
}

impl TcpInfo {
    /// Parses the structure; `None` when it is shorter than any kernel's.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() < OLDEST_BYTES {
            return None;
        }
        let word = |at| u32_at(bytes, at);
        let long = |at| u64_at(bytes, at);
        let has_window_scaling = bytes[5] & 4 != 0;
        Some(Self {
            congestion_state: bytes[1],
            timeouts: bytes[2],
            probes: bytes[3],
            // The first of two bit fields of 4 bits: the lower half on little-endian machines.
            send_window_shift: has_window_scaling
                .then(|| if cfg!(target_endian = "little") { bytes[6] & 15 } else { bytes[6] >> 4 }),
            is_delivery_limited_by_program: bytes[7] & if cfg!(target_endian = "little") { 1 } else { 128 }
                != 0,
            rto_us: word(8)?,
            ack_timeout_us: word(12)?,
            send_mss: word(16)?,
            receive_mss: word(20)?,
            unacknowledged_segments: word(24)?,
            since_data_sent_ms: word(44)?,
            since_data_received_ms: word(52)?,
            path_mtu: word(60)?,
            rtt_us: word(68)?,
            rtt_deviation_us: word(72)?,
            congestion_window: word(80)?,
            receive_rtt_us: word(92)?,
            receive_space: word(96)?,
            retransmitted_segments: word(100)?,
            pacing_rate: long(104).filter(|rate| *rate != u64::MAX),
            bytes_received: long(128),
            unsent_bytes: word(144),
            rtt_min_us: word(148).filter(|us| *us != u32::MAX),
            data_segments_in: word(152),
            data_segments_out: word(156),
            delivery_rate: long(160),
            busy_us: long(168),
            window_limited_us: long(176),
            send_buffer_limited_us: long(184),
            bytes_sent: long(200),
            bytes_retransmitted: long(208),
            duplicates_reported: word(216),
            out_of_order_in: word(224),
            send_window: word(228),
        })
    }
}
