//! The clock: the system's, or one that a test advances.

use std::time::Instant;

/// The time source of the target's core.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clock {
    /// The system's monotonic clock.
    #[default]
    System,
    /// A clock that stands still until it is advanced.
    #[cfg(test)]
    Manual(Manual),
}

/// A clock that is advanced manually.
#[cfg(test)]
#[derive(Clone, Debug)]
pub(crate) struct Manual {
    start: Instant,
    passed_ns: std::sync::Arc<std::sync::atomic::AtomicU64>,
}

impl Clock {
    /// Returns the current time.
    #[inline]
    pub(crate) fn now(&self) -> Instant {
        match self {
            Self::System => Instant::now(),
            #[cfg(test)]
            Self::Manual(manual) => {
                let passed = manual.passed_ns.load(std::sync::atomic::Ordering::Relaxed);
                manual.start + std::time::Duration::from_nanos(passed)
            }
        }
    }
}

#[cfg(test)]
impl Manual {
    pub(crate) fn new() -> Self {
        Self { start: Instant::now(), passed_ns: std::sync::Arc::default() }
    }

    /// Advances the clock.
    pub(crate) fn advance(&self, time: std::time::Duration) {
        let ns = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.passed_ns.fetch_add(ns, std::sync::atomic::Ordering::Relaxed);
    }
}
