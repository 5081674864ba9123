//! How other threads wake the thread of an event loop, and say for which of its connections.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::sys::eventfd::{EfdFlags, EventFd};

use crate::lock::lock;

/// The connections with mail, and new ones. A mailbox rings once until its mail is taken, but for the few notices.
#[derive(Debug)]
pub(crate) struct Doorbell<N> {
    rung: Mutex<Rung<N>>,
    /// The thread looks here before it sleeps, so that it need not be woken.
    is_awake: AtomicBool,
    wake: EventFd,
}

/// What has been rung for.
#[derive(Debug)]
pub(crate) struct Rung<N> {
    /// Numbers of connections with mail.
    pub(crate) mail: Vec<u64>,
    /// New connections.
    pub(crate) new: Vec<N>,
    /// The loop is to end when it has no connection.
    pub(crate) is_stopping: bool,
    /// It has been rung since this was taken.
    has_rung: bool,
}

impl<N> Default for Rung<N> {
    fn default() -> Self {
        Self { mail: Vec::new(), new: Vec::new(), is_stopping: false, has_rung: false }
    }
}

impl<N> Doorbell<N> {
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { rung: Mutex::default(), is_awake: AtomicBool::new(true), wake })
    }

    /// A connection has mail.
    pub(crate) fn mail(&self, connection: u64) {
        self.ring(|rung| {
            if rung.mail.last() != Some(&connection) {
                rung.mail.push(connection);
            }
        });
    }

    /// A connection has been accepted for the loop.
    pub(crate) fn welcome(&self, new: N) {
        self.ring(|rung| rung.new.push(new));
    }

    /// The loop is to end when it has no connection.
    pub(crate) fn stop(&self) {
        self.ring(|rung| rung.is_stopping = true);
    }

    fn ring(&self, change: impl FnOnce(&mut Rung<N>)) {
        {
            let mut rung = lock(&self.rung);
            change(&mut rung);
            rung.has_rung = true;
        }
        if !self.is_awake.swap(true, Ordering::SeqCst) {
            // Fails only when the counter is full, and then the thread is awake anyway.
            let _ = self.wake.write(1);
        }
    }

    /// Whether something has been rung for since it was taken.
    pub(crate) fn has_rung(&self) -> bool {
        lock(&self.rung).has_rung
    }

    /// Takes what has been rung for.
    #[inline]
    pub(crate) fn take(&self) -> Rung<N> {
        let mut rung = lock(&self.rung);
        let is_stopping = rung.is_stopping;
        let taken = std::mem::take(&mut *rung);
        rung.is_stopping = is_stopping;
        Rung { is_stopping, ..taken }
    }

    /// The thread wants to sleep: whether it may, until the descriptor is readable.
    pub(crate) fn may_sleep(&self) -> bool {
        self.is_awake.store(false, Ordering::SeqCst);
        let may = !self.has_rung();
        if !may {
            self.is_awake.store(true, Ordering::SeqCst);
        }
        may
    }

    /// The thread is awake. `is_readable` tells whether the descriptor was: a ring may write it after the thread has woken for
    /// another reason, and it stays readable until it is read.
    pub(crate) fn woke(&self, is_readable: bool) {
        self.is_awake.store(true, Ordering::SeqCst);
        if is_readable {
            let _ = self.wake.read();
        }
    }
}

impl<N> AsFd for Doorbell<N> {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU64;
    use std::time::Duration;

    use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

    use super::*;

    fn is_readable(bell: &Doorbell<()>, wait: Duration) -> bool {
        let mut fds = [PollFd::new(bell.as_fd(), PollFlags::POLLIN)];
        poll(&mut fds, PollTimeout::try_from(wait).unwrap()).unwrap() == 1
    }

    #[test]
    fn a_thread_that_is_awake_is_not_woken_and_one_that_sleeps_is() {
        let bell = Doorbell::<()>::new().unwrap();
        bell.mail(7);
        bell.mail(7);
        assert!(!is_readable(&bell, Duration::ZERO) && !bell.may_sleep());
        assert_eq!(bell.take().mail, [7]);
        assert!(bell.may_sleep());
        bell.mail(8);
        assert!(is_readable(&bell, Duration::ZERO));
        bell.woke(true);
        assert!(!is_readable(&bell, Duration::ZERO));
        assert_eq!(bell.take().mail, [8]);
        // The thread wakes for another reason between the two steps of a ring: the next sleep ends at once, the one behind it not.
        assert!(bell.may_sleep());
        bell.is_awake.store(true, Ordering::SeqCst);
        bell.woke(false);
        bell.wake.write(1).unwrap();
        assert!(bell.may_sleep() && is_readable(&bell, Duration::ZERO));
        bell.woke(true);
        assert!(bell.may_sleep() && !is_readable(&bell, Duration::ZERO));
        bell.woke(false);
        bell.stop();
        assert!(bell.take().is_stopping && bell.take().is_stopping);
    }

    /// No ring is lost between the look and the sleep.
    #[test]
    fn every_ring_is_seen() {
        let bell = Arc::new(Doorbell::<()>::new().unwrap());
        let (rings, seen) = (20_000_u64, AtomicU64::new(0));
        std::thread::scope(|scope| {
            for thread in 0..2 {
                let bell = &bell;
                // Numbers of its own: one that rings twice in a row is taken once.
                scope.spawn(move || (0..rings).for_each(|n| bell.mail(2 * n + thread)));
            }
            while seen.load(Ordering::Relaxed) < 2 * rings {
                let taken = bell.take();
                seen.fetch_add(taken.mail.len() as u64, Ordering::Relaxed);
                if seen.load(Ordering::Relaxed) < 2 * rings && taken.mail.is_empty() && bell.may_sleep() {
                    assert!(is_readable(&bell, Duration::from_secs(10)), "a ring was lost");
                    bell.woke(true);
                }
            }
        });
    }
}
