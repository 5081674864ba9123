//! A full accept queue.

use super::{Judged, subject};
use crate::facts::socket::SocketFacts;
use crate::finding::{Finding, Severity};

/// Fires where the queue is over its limit: the kernel drops the next connections (`sk_acceptq_is_full`).
pub(super) fn judge(socket: &SocketFacts) -> Option<Judged<'_>> {
    let queue = socket.accept_queue.filter(|queue| queue.length > queue.limit)?;
    Some(Judged {
        socket,
        weight: f64::from(queue.length),
        finding: Finding {
            id: "accept-queue-full".to_owned(),
            severity: Severity::Broken,
            subject: subject(socket),
            measured: format!("{} connections wait to be accepted, the limit is {}", queue.length, queue.limit),
            why: "The kernel drops further connections; a client tries again after 1 s, 3 s, 7 s. The program accepts too \
                  slowly, or its limit is too low for its bursts."
                .to_owned(),
            cost: Some(crate::finding::Cost { us_per_round_trip: Some(1e6), bits_per_second_at_most: None }),
            // The limit of a socket that listens is changed by its program alone.
            commands: vec!["sysctl net.core.somaxconn".to_owned(), "nstat -az TcpExtListenOverflows".to_owned()],
            changes: Vec::new(),
            other_end: None,
        },
    })
}
