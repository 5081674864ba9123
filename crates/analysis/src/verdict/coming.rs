//! Responses that were still coming when the capture ended: event streams, long downloads. They are no operations yet.

use record::Exchange;
use record::units::counted;

use super::case::duration;

/// What is known of a response that has begun: the time to its first byte, and the gaps between its pieces, nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Begun {
    first_ns: u64,
    /// Number, sum and longest.
    gaps: (u32, u64, u64),
}

impl Begun {
    /// The response of a request without an end, if it has begun.
    pub(super) fn of(exchange: &Exchange) -> Option<Self> {
        let asked =
            if exchange.request.ended.is_known() { exchange.request.ended } else { exchange.request.began };
        let first_ns = exchange.response.began.since(asked).and_then(|ns| u64::try_from(ns).ok())?;
        let chunks = exchange.chunks;
        let gaps = match chunks.is_stream() {
            true => (chunks.count - 1, chunks.gaps_ns, chunks.gap_max_ns),
            false => (0, 0, 0),
        };
        Some(Self { first_ns, gaps })
    }
}

/// All of them.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Coming {
    /// Their number.
    pub responses: u64,
    first_ns: u128,
    gaps: u64,
    gaps_ns: u128,
    gap_max_ns: u64,
}

impl Coming {
    pub(super) fn add(&mut self, begun: &Begun) {
        let (gaps, gaps_ns, gap_max_ns) = begun.gaps;
        self.responses += 1;
        self.first_ns += u128::from(begun.first_ns);
        self.gaps += u64::from(gaps);
        self.gaps_ns += u128::from(gaps_ns);
        self.gap_max_ns = self.gap_max_ns.max(gap_max_ns);
    }

    /// A sentence on them; `None` if there is none.
    #[must_use]
    pub fn text(&self) -> Option<String> {
        if self.responses == 0 {
            return None;
        }
        let us = |ns: u128, count: u64| ns as f64 / count.max(1) as f64 / 1000.0;
        let gaps = match self.gaps {
            0 => String::new(),
            gaps => format!(
                ", and {} between pieces, at most {}",
                duration(us(self.gaps_ns, gaps)),
                duration(us(self.gap_max_ns.into(), 1))
            ),
        };
        Some(format!(
            "{} {} still coming when the capture ended, and no operation yet: the first byte took {} on average{gaps}",
            counted(self.responses, "response"),
            if self.responses == 1 { "was" } else { "were" },
            duration(us(self.first_ns, self.responses)),
        ))
    }
}
