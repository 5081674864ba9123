//! Watches connections: counters that move, and data that is held back, in many readings.
//!
//! The readings are what proves Nagle's algorithm at work: its pauses last until an acknowledgement, up to 40 ms and more, while
//! a segment that is merely on its way out is gone within microseconds.

use std::time::{Duration, Instant};

use netlink::sock_diag::{Diag, TcpInfo, TcpSocket};

use super::convert::counters;
use crate::facts::Unseen;
use crate::facts::socket::{SocketFacts, SocketState, WatchedTransfer};

/// The most connections that are watched.
const WATCHED_MAX: usize = 1_000;
/// The shortest time of watching: several delayed acknowledgements (40 ms).
const WATCH_MIN: Duration = Duration::from_millis(300);
/// The mean time between readings; prolonged where a reading of all connections takes longer.
const INTERVAL: Duration = Duration::from_millis(10);
const READINGS_MAX: u32 = 600;
/// A connection that has sent nothing for so long is idle.
const IDLE_MS: u32 = 10_000;

/// Watches the connections that are not idle, for `duration` or a little more, and adds what was seen to `facts`.
pub(super) fn watch(
    diag: &mut Diag,
    sockets: &[TcpSocket],
    facts: &mut [SocketFacts],
    duration: Duration,
    unseen: &mut Vec<Unseen>,
) {
    let mut active: Vec<usize> = (0..facts.len()).filter(|at| is_active(&facts[*at])).collect();
    if active.is_empty() {
        return;
    }
    if active.len() > WATCHED_MAX {
        // Those that sent most recently are the likeliest to send again.
        active.sort_by_key(|at| facts[*at].transfer.and_then(|transfer| transfer.idle_send_ms));
        unseen.push(Unseen {
            what: format!("what {} active connections do over time", active.len() - WATCHED_MAX),
            why: format!("a check watches {WATCHED_MAX}; name a process (--pid) or a port (--port)"),
        });
        active.truncate(WATCHED_MAX);
    }
    let duration = duration.max(WATCH_MIN);
    let interval = INTERVAL.max(duration / READINGS_MAX);
    let mut watched = vec![WatchedTransfer::default(); active.len()];
    let mut last: Vec<Option<TcpSocket>> = vec![None; active.len()];
    let begun = Instant::now();
    for reading in 0_u32.. {
        for (place, at) in active.iter().enumerate() {
            let Ok(Some(now)) = diag.socket(&sockets[*at]) else { continue };
            note(&mut watched[place], &now);
            last[place] = Some(now);
        }
        if begun.elapsed() >= duration {
            break;
        }
        std::thread::sleep(uneven(interval, reading));
    }
    let duration_us = u64::try_from(begun.elapsed().as_micros()).unwrap_or(u64::MAX);
    for (place, at) in active.into_iter().enumerate() {
        let now = last[place].as_ref().and_then(|socket| socket.info);
        let (Some(now), Some(before)) = (now, sockets[at].info) else { continue };
        let counters = counters(&now).since(&counters(&before));
        facts[at].watched = Some(WatchedTransfer { duration_us, counters, ..watched[place] });
    }
}

fn is_active(facts: &SocketFacts) -> bool {
    let Some(transfer) = &facts.transfer else { return false };
    let can_send = matches!(facts.state, SocketState::Established | SocketState::CloseWait);
    let has_sent_lately = transfer.idle_send_ms.is_some_and(|ms| ms < IDLE_MS);
    can_send && (has_sent_lately || facts.buffers.queued_bytes > 0)
}

/// Notes one reading.
fn note(watched: &mut WatchedTransfer, socket: &TcpSocket) {
    let Some(info) = &socket.info else { return };
    watched.readings += 1;
    let unsent = info.unsent_bytes.unwrap_or(0);
    if unsent == 0 {
        return;
    }
    if socket.is_probing || info.send_window == Some(0) {
        watched.window_closed += 1;
    } else if is_held(socket, info, unsent) {
        let held = if info.unacknowledged_segments > 0 {
            &mut watched.held_behind_data
        } else {
            &mut watched.held_alone
        };
        *held += 1;
    }
}

/// Whether less than a segment waits although both windows have room, and nothing was lost.
fn is_held(socket: &TcpSocket, info: &TcpInfo, unsent: u32) -> bool {
    let has_window = info.send_window.is_none_or(|window| window >= socket.send_queue);
    unsent < info.send_mss
        && info.unacknowledged_segments < info.congestion_window
        && has_window
        && info.congestion_state == 0
        && info.timeouts == 0
}

/// An interval between half and three halves of the mean, so that readings do not fall into step with a periodic program.
fn uneven(mean: Duration, reading: u32) -> Duration {
    // The golden ratio's fractions are spread evenly.
    let part = (f64::from(reading) * 0.618_033_988_75).fract();
    mean.mul_f64(0.5 + part)
}
