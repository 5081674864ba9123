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

    /// How many are, which are not known any more.
    pub(crate) fn take(&mut self) -> usize {
        self.0.take().and_then(|in_flight| usize::try_from(in_flight).ok()).unwrap_or(0)
    }
}
