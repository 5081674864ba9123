//! Nagle's algorithm on a connection of small messages.

use super::{Judged, set_command, share, subject};
use crate::facts::socket::{SocketFacts, WatchedTransfer};
use crate::finding::{Cost, Finding, Severity};

/// Fewer readings with data held back may be chance.
const HELD_READINGS_MIN: u32 = 3;
/// Waiting time per exchange below which Nagle's algorithm costs less than it saves, us.
const COST_MIN_US: f64 = 1_000.0;

/// Fires where data waited behind data in flight, in small segments, between requests and responses. Nagle's algorithm that is
/// merely on is no finding: a response of one write never waits.
pub(super) fn judge(socket: &SocketFacts) -> Option<Judged<'_>> {
    let (transfer, options) = (socket.transfer.as_ref()?, socket.options?);
    let watched = socket.watched?;
    let counters = &watched.counters;
    let held_us = held_us(&watched);
    // One message that arrives is taken for one exchange.
    let per_exchange_us = held_us / counters.data_segments_in.max(1) as f64;
    let mean_segment = share(counters.bytes_sent, counters.data_segments_out);
    let is_request_and_response = counters.data_segments_in > 0 && counters.data_segments_out > 0;
    // Full segments are never held: a bulk copy has few others.
    let is_small = mean_segment < 0.75 * f64::from(transfer.mss_bytes);
    let fires = options.nagle
        && !options.corked
        && is_request_and_response
        && is_small
        && watched.held_behind_data >= HELD_READINGS_MIN
        && per_exchange_us >= COST_MIN_US;
    fires.then(|| Judged {
        socket,
        weight: per_exchange_us,
        finding: Finding {
            id: "nagle-on-small-messages".to_owned(),
            severity: Severity::Slow,
            subject: subject(socket),
            measured: format!(
                "Nagle's algorithm is on; data waited behind unacknowledged data in {} of {} readings, {:.1} ms per exchange; \
                 {} segments of {mean_segment:.0} bytes sent for {} received",
                watched.held_behind_data,
                watched.readings,
                per_exchange_us / 1e3,
                counters.data_segments_out,
                counters.data_segments_in,
            ),
            why: "A message is written in several parts: the first leaves at once, the next waits until the peer acknowledges \
                  the first, and the peer delays that acknowledgement by up to 40 ms because it waits for the whole message."
                .to_owned(),
            cost: Some(Cost { us_per_round_trip: Some(per_exchange_us), bits_per_second_at_most: None }),
            commands: set_command(socket, "nodelay=on"),
            changes: Vec::new(),
            other_end: None,
        },
    })
}

/// Time for which data was held back, us.
fn held_us(watched: &WatchedTransfer) -> f64 {
    share(u64::from(watched.held_behind_data), u64::from(watched.readings)) * watched.duration_us as f64
}
