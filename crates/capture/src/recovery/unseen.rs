//! Requests in flight behind a hole in the requests.

/// Behind a hole in the requests: those in flight, at least, seen or not.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Unseen(Option<i64>);

impl Unseen {
    /// So many are in flight, some of them perhaps in a hole.
    pub(crate) fn missing(&mut self, in_flight: usize) {
        self.0 = self.0.max(Some(in_flight as i64));
    }

    pub(crate) fn asked(&mut self) {
        self.0 = self.0.map(|in_flight| in_flight + 1);
    }

    pub(crate) fn answered(&mut self) {
        self.0 = self.0.map(|in_flight| in_flight - 1);
    }

    /// Nothing is known: answers are missing, or all have come.
    pub(crate) fn forget(&mut self) {
        self.0 = None;
    }

    /// Whether some are in flight.
    pub(crate) fn are_any(self) -> bool {
        self.0.is_some_and(|in_flight| in_flight > 0)
    }

    /// Whether the client asks before all answers have come, which shows that it does not wait for them: it has received more of the server
    /// than when it asked before, and some are in flight. Where it has received answers in a hole that has not shown itself, nothing
    /// is known.
    pub(crate) fn is_asked_before_all_answers(&mut self, has_received_unseen: bool) -> bool {
        let asks = self.are_any() && !has_received_unseen;
        if !asks {
            self.forget();
        }
        asks
    }

    /// How many are, which are not known any more.
    pub(crate) fn take(&mut self) -> usize {
        self.0.take().and_then(|in_flight| usize::try_from(in_flight).ok()).unwrap_or(0)
    }
}
