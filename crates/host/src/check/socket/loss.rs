//! Segments that were sent again.

use super::{Judged, is_active, period, share, subject};
use crate::facts::socket::SocketFacts;
use crate::finding::{Finding, Severity};

/// Share of the segments from which retransmissions cost time.
const SHARE_MIN: f64 = 0.01;
const SEGMENTS_MIN: u64 = 10;

pub(super) fn judge(socket: &SocketFacts) -> Option<Judged<'_>> {
    let (counters, when) = period(socket)?;
    let (again, all) = (counters.retransmitted_segments, counters.data_segments_out);
    let part = share(again, all);
    if !is_active(socket) || again < SEGMENTS_MIN || part < SHARE_MIN {
        return None;
    }
    let needless = counters.duplicates_reported.min(again);
    let is_needless = needless * 2 > again;
    let why = if is_needless {
        "The peer had most of these segments already: acknowledgements or segments overtake each other or are late. Each \
         halves the congestion window."
    } else {
        "Segments are lost: each loss costs a round trip or a timeout of at least 200 ms, and halves the congestion window."
    };
    Some(Judged {
        socket,
        weight: part,
        finding: Finding {
            id: "retransmissions".to_owned(),
            severity: Severity::Slow,
            subject: subject(socket),
            measured: format!(
                "{again} of {all} segments sent again {when} ({:.1} %), {needless} of them without a loss",
                part * 100.0
            ),
            why: why.to_owned(),
            cost: None,
            commands: vec!["roundtrip host check --watch 10s".to_owned()],
            changes: Vec::new(),
            other_end: Some(
                "Compare the error counters of both ends' links and of the switch ports between.".to_owned(),
            ),
        },
    })
}
