//! Silences in which no request can be in flight.

/// Times of the longest answer for which both sides are silent where no request is in flight.
const SILENT: u64 = 8;

/// Answers that show how long one may take.
const SEEN: u8 = 16;

/// How long answers take, and when something was last sent, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Silence {
    longest_ns: u64,
    /// Answers, up to as many as show it.
    answers: u8,
    last_ns: u64,
    /// Something has been sent since that is missing.
    is_unknown: bool,
}

impl Silence {
    /// An answer took this time.
    pub(crate) fn answered(&mut self, ns: u64) {
        self.longest_ns = self.longest_ns.max(ns);
        self.answers = self.answers.saturating_add(1);
    }

    /// Something is missing.
    pub(crate) fn missing(&mut self) {
        self.is_unknown = true;
    }

    /// Something is sent. Whether it follows a silence.
    pub(crate) fn sent(&mut self, at_ns: u64) -> bool {
        let silent_ns = at_ns.saturating_sub(self.last_ns);
        self.last_ns = self.last_ns.max(at_ns);
        let is_known = !std::mem::take(&mut self.is_unknown);
        is_known && self.answers >= SEEN && silent_ns > self.longest_ns.saturating_mul(SILENT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silence_is_much_longer_than_any_answer_took() {
        let mut silence = Silence::default();
        (0..SEEN).for_each(|n| silence.answered(if n == 3 { 1000 } else { 10 }));
        assert!(!silence.sent(0) && !silence.sent(8000) && silence.sent(16_001));
        // What is missing may have been sent meanwhile.
        silence.missing();
        assert!(!silence.sent(100_000) && silence.sent(200_000));
        // A clock that is set back shows none, nor does the way back.
        assert!(!silence.sent(50) && !silence.sent(200_010));
        // A few answers do not show how long one may take.
        let mut young = Silence::default();
        (1..SEEN).for_each(|_| young.answered(10));
        assert!(!young.sent(0) && !young.sent(1_000_000));
    }
}
