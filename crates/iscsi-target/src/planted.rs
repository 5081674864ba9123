//! Bugs that a test plants to check that the simulation finds them. Outside tests, [`is_planted`] is constant false.

/// A bug, one of each class that the simulation must detect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bug {
    /// An aborted task changes the disk.
    WritesAfterAbort,
    /// A command that must wait for an ORDERED command is dropped.
    DropsDeferred,
    /// A unit attention is established for the session that made the change.
    NotifiesOriginator,
    /// Responses are made beyond the limit of unsent bytes.
    IgnoresSendLimit,
    /// A session is served while writes of the session that it reinstated may still land.
    ForgetsPredecessor,
}

#[cfg(test)]
thread_local! {
    static PLANTED: std::cell::Cell<Option<Bug>> = const { std::cell::Cell::new(None) };
}

/// Returns whether this bug is planted on this thread.
#[cfg(test)]
pub(crate) fn is_planted(bug: Bug) -> bool {
    PLANTED.get() == Some(bug)
}

/// Returns whether this bug is planted on this thread.
#[cfg(not(test))]
#[inline(always)]
pub(crate) const fn is_planted(_: Bug) -> bool {
    false
}

/// Plants a bug on this thread, or removes it.
#[cfg(test)]
pub(crate) fn plant(bug: Option<Bug>) {
    PLANTED.set(bug);
}
