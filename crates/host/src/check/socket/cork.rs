//! Data that the program holds back: TCP_CORK, or MSG_MORE without a further write.

use super::{Judged, set_command, share, subject};
use crate::facts::socket::SocketFacts;
use crate::finding::{Cost, Finding, Severity};

const HELD_READINGS_MIN: u32 = 3;

pub(super) fn judge(socket: &SocketFacts) -> Option<Judged<'_>> {
    let watched = socket.watched?;
    if watched.held_alone < HELD_READINGS_MIN {
        return None;
    }
    let is_corked = socket.options.map(|options| options.corked);
    let cause = match is_corked {
        Some(true) => "TCP_CORK is set",
        Some(false) => "TCP_CORK is not set, so the last write had MSG_MORE",
        None => "by TCP_CORK or MSG_MORE",
    };
    let held = share(u64::from(watched.held_alone), u64::from(watched.readings));
    let per_exchange_us = held * watched.duration_us as f64 / watched.counters.data_segments_in.max(1) as f64;
    Some(Judged {
        socket,
        weight: held,
        finding: Finding {
            id: "corked".to_owned(),
            severity: Severity::Slow,
            subject: subject(socket),
            measured: format!(
                "{} bytes unsent with nothing in flight in {} of {} readings; {cause}",
                socket.buffers.unsent_bytes, watched.held_alone, watched.readings
            ),
            why: "The kernel holds a segment that is not full until the program uncorks the socket or writes more, at most for \
                  200 ms."
                .to_owned(),
            cost: Some(Cost { us_per_round_trip: Some(per_exchange_us.min(200_000.0)), bits_per_second_at_most: None }),
            commands: if is_corked == Some(true) { set_command(socket, "cork=off") } else { Vec::new() },
            changes: Vec::new(),
            other_end: None,
        },
    })
}
