//! Buffers that a program has fixed, so that the kernel cannot adapt them to the path.

use super::{Judged, is_active, period, set_command, share, subject};
use crate::facts::socket::SocketFacts;
use crate::finding::{Cost, Finding, Severity};

/// Share of the busy time from which the send buffer is the limit.
const SHARE_MIN: f64 = 0.2;
/// Busy time below which a connection's share says nothing, us.
const BUSY_MIN_US: u64 = 50_000;

/// A send buffer that the program has fixed, and that held the program back.
pub(super) fn judge_send(socket: &SocketFacts) -> Option<Judged<'_>> {
    let options = socket.options?;
    if options.send_buffer_locked != Some(true) || !is_active(socket) {
        return None;
    }
    let transfer = socket.transfer.as_ref()?;
    let (counters, when) = period(socket)?;
    let limited = share(counters.send_buffer_limited_us, counters.busy_us);
    if limited < SHARE_MIN || counters.busy_us < BUSY_MIN_US {
        return None;
    }
    // Half of the buffer holds data, the rest the kernel's records.
    let payload = socket.buffers.send_bytes / 2;
    Some(Judged {
        socket,
        weight: limited,
        finding: Finding {
            id: "send-buffer-limited".to_owned(),
            severity: Severity::Slow,
            subject: subject(socket),
            measured: format!(
                "held back by its own send buffer for {:.0} % of its busy time {when}; SO_SNDBUF is fixed at {payload} bytes",
                limited * 100.0
            ),
            why: "A connection carries at most one send buffer per round trip. The program has set SO_SNDBUF, which ends the \
                  kernel's autotuning."
                .to_owned(),
            cost: Some(Cost { us_per_round_trip: None, bits_per_second_at_most: limit(payload, transfer.rtt_min_us) }),
            commands: set_command(socket, &format!("sndbuf={}", larger(payload))),
            changes: Vec::new(),
            other_end: None,
        },
    })
}

/// A receive buffer that the program has fixed, and that the peer fills in each round trip.
pub(super) fn judge_receive(socket: &SocketFacts) -> Option<Judged<'_>> {
    let (transfer, options) = (socket.transfer.as_ref()?, socket.options?);
    let is_receiving = transfer.idle_receive_ms.is_some_and(|ms| ms < super::IDLE_MS);
    // Unread data means that the program is the limit, not the buffer.
    let payload = socket.buffers.receive_bytes / 2;
    let is_filled = u64::from(transfer.read_per_round_trip_bytes) * 4 >= u64::from(payload) * 3;
    let is_bulk = socket.watched.map_or(transfer.counters.bytes_received, |w| w.counters.bytes_received)
        > 4 * u64::from(payload);
    let reads = socket.buffers.unread_bytes < payload / 2;
    if options.receive_buffer_locked != Some(true) || !is_receiving || !is_filled || !is_bulk || !reads {
        return None;
    }
    let rtt_us = transfer.rtt_receiver_us.or(transfer.rtt_min_us);
    let at_most = limit(payload, rtt_us);
    Some(Judged {
        socket,
        weight: at_most.map_or(0.0, |rate| 1.0 / rate),
        finding: Finding {
            id: "receive-buffer-limited".to_owned(),
            severity: Severity::Slow,
            subject: subject(socket),
            measured: format!(
                "SO_RCVBUF is fixed at {payload} bytes, and the program reads up to {} bytes per round trip",
                transfer.read_per_round_trip_bytes
            ),
            why: "The peer may send at most one window per round trip. The program has set SO_RCVBUF, which ends the kernel's \
                  autotuning of the window."
                .to_owned(),
            cost: Some(Cost { us_per_round_trip: None, bits_per_second_at_most: at_most }),
            commands: set_command(socket, &format!("rcvbuf={}", larger(payload))),
            changes: Vec::new(),
            other_end: None,
        },
    })
}

/// The rate at which `bytes` per round trip flow, bit/s.
pub(super) fn limit(bytes: u32, rtt_us: Option<u32>) -> Option<f64> {
    rtt_us.filter(|us| *us > 0).map(|us| f64::from(bytes) * 8e6 / f64::from(us))
}

/// A size to try: what the kernel's autotuning would reach by default, or more.
fn larger(payload: u32) -> u32 {
    payload.saturating_mul(4).max(4 << 20)
}
