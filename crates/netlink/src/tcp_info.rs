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

#[cfg(test)]
mod tests {
    use super::*;

    /// A structure whose words hold their own offsets.
    fn counted(length: usize) -> Vec<u8> {
        (0..length).step_by(4).flat_map(|at| (at as u32).to_ne_bytes()).collect()
    }

    #[test]
    fn each_field_is_read_from_its_place() {
        let info = TcpInfo::parse(&counted(248)).expect("long enough");
        let long =
            |at: u64| if cfg!(target_endian = "little") { at | (at + 4) << 32 } else { at << 32 | (at + 4) };
        let words = [
            (info.rto_us, 8),
            (info.ack_timeout_us, 12),
            (info.send_mss, 16),
            (info.receive_mss, 20),
            (info.unacknowledged_segments, 24),
            (info.since_data_sent_ms, 44),
            (info.since_data_received_ms, 52),
            (info.path_mtu, 60),
            (info.rtt_us, 68),
            (info.rtt_deviation_us, 72),
            (info.congestion_window, 80),
            (info.receive_rtt_us, 92),
            (info.receive_space, 96),
            (info.retransmitted_segments, 100),
        ];
        for (value, at) in words {
            assert_eq!(value, at);
        }
        let later_words = [
            (info.unsent_bytes, 144),
            (info.rtt_min_us, 148),
            (info.data_segments_in, 152),
            (info.data_segments_out, 156),
            (info.duplicates_reported, 216),
            (info.out_of_order_in, 224),
            (info.send_window, 228),
        ];
        for (value, at) in later_words {
            assert_eq!(value, Some(at));
        }
        let longs = [
            (info.pacing_rate, 104),
            (info.bytes_received, 128),
            (info.delivery_rate, 160),
            (info.busy_us, 168),
            (info.window_limited_us, 176),
            (info.send_buffer_limited_us, 184),
            (info.bytes_sent, 200),
            (info.bytes_retransmitted, 208),
        ];
        for (value, at) in longs {
            assert_eq!(value, Some(long(at)));
        }
    }

    #[test]
    fn flags_are_read_from_their_bits() {
        let mut bytes = counted(104);
        bytes[..8].copy_from_slice(&[1, 3, 2, 5, 0, 4, 0x97, 1]);
        let info = TcpInfo::parse(&bytes).expect("long enough");
        assert_eq!((info.congestion_state, info.timeouts, info.probes), (3, 2, 5));
        if cfg!(target_endian = "little") {
            assert_eq!(info.send_window_shift, Some(7));
            assert!(info.is_delivery_limited_by_program);
        }
        bytes[5] = 3;
        assert_eq!(TcpInfo::parse(&bytes).expect("long enough").send_window_shift, None);
    }

    #[test]
    fn a_field_that_the_kernel_lacks_is_none() {
        // Linux 4.18: until bytes_retrans and beyond; Linux 3.2: the oldest part alone.
        let info = TcpInfo::parse(&counted(192)).expect("long enough");
        assert!(
            info.send_buffer_limited_us.is_some() && info.bytes_sent.is_none() && info.send_window.is_none()
        );
        let info = TcpInfo::parse(&counted(104)).expect("long enough");
        assert!(
            info.retransmitted_segments == 100 && info.pacing_rate.is_none() && info.unsent_bytes.is_none()
        );
        assert_eq!(TcpInfo::parse(&counted(100)), None);
    }

    #[test]
    fn a_rate_without_limit_and_a_time_without_measurement_are_none() {
        let mut bytes = counted(248);
        bytes[104..112].fill(0xff);
        bytes[148..152].fill(0xff);
        let info = TcpInfo::parse(&bytes).expect("long enough");
        assert_eq!((info.pacing_rate, info.rtt_min_us), (None, None));
    }
}
