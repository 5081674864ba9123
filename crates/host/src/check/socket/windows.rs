//! The peer's window.

use super::buffers::limit;
use super::{BUSY_ENOUGH_US, Judged, is_local, share, subject};
use crate::facts::socket::SocketFacts;
use crate::finding::{Cost, Finding, Severity};

/// Share of the busy time from which the peer's window is the limit.
const SHARE_MIN: f64 = 0.5;
/// Readings of a closed window from which it is a state, not a moment.
const CLOSED_READINGS_MIN: u32 = 10;

/// A peer whose window held data back for most of the time. Between programs of one host a full window is how a reader that is
/// slower than the writer slows it down, so it is no finding there.
pub(super) fn judge_limited(socket: &SocketFacts) -> Option<Judged<'_>> {
    let (transfer, watched) = (socket.transfer.as_ref()?, socket.watched?);
    let limited = share(watched.counters.window_limited_us, watched.counters.busy_us);
    let is_closed = watched.window_closed == watched.readings;
    if is_local(socket) || is_closed || watched.counters.busy_us < BUSY_ENOUGH_US || limited < SHARE_MIN {
        return None;
    }
    let window = transfer.peer_window_bytes;
    let shown = window.map_or_else(String::new, |bytes| format!("; the window is {bytes} bytes"));
    Some(Judged {
        socket,
        weight: limited,
        finding: Finding {
            id: "peer-window-limited".to_owned(),
            severity: Severity::Note,
            subject: subject(socket),
            measured: format!(
                "held back by the peer's window for {:.0} % of its busy time while it was watched{shown}",
                limited * 100.0
            ),
            why: "A connection carries at most one window of the peer per round trip: the peer's program reads slowly, or its \
                  receive buffer is small."
                .to_owned(),
            cost: Some(Cost {
                us_per_round_trip: None,
                bits_per_second_at_most: window.and_then(|bytes| limit(bytes, transfer.rtt_min_us)),
            }),
            commands: Vec::new(),
            changes: Vec::new(),
            other_end: Some(
                "At the peer: roundtrip host socket --port PORT shows unread bytes (the program is slow) or a locked receive buffer."
                    .to_owned(),
            ),
        },
    })
}

/// A peer whose window stayed closed, with data waiting for it.
pub(super) fn judge_closed(socket: &SocketFacts) -> Option<Judged<'_>> {
    let watched = socket.watched?;
    let is_closed = watched.readings >= CLOSED_READINGS_MIN && watched.window_closed == watched.readings;
    is_closed.then(|| Judged {
        socket,
        weight: f64::from(socket.buffers.unsent_bytes),
        finding: Finding {
            id: "zero-window".to_owned(),
            severity: Severity::Slow,
            subject: subject(socket),
            measured: format!(
                "the peer's window was closed in all {} readings of {:.1} s, with {} bytes waiting",
                watched.readings,
                watched.duration_us as f64 / 1e6,
                socket.buffers.unsent_bytes
            ),
            why: "The peer's program does not read: its receive buffer is full. The connection stands still until it does."
                .to_owned(),
            cost: None,
            commands: Vec::new(),
            changes: Vec::new(),
            other_end: Some("Find out what the program at the peer waits for.".to_owned()),
        },
    })
}
