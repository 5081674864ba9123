//! Bugs that a test plants, to see that the simulation finds them. In the built program there are none.

/// A bug of one class each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// A task changes the disk although it was aborted.
    WritesAfterAbort,
    /// An ORDERED command that should wait is dropped.
    DropsDeferred,
    /// The session that changed something learns of it too.
    NotifiesOriginator,
    /// Answers are made whether there is room for them or not.
    IgnoresSendLimit,
    /// A session takes the place of an older one whose writes still land.
    ForgetsPredecessor,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Whether this bug is planted on this thread.
#[cfg(test)]
pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Whether this bug is planted on this thread.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}

/// Plants a bug on this thread, or takes it away.
#[cfg(test)]
pub(crate) fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
