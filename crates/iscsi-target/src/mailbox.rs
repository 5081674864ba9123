//! The mailbox of a connection: what other threads leave for it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use policy::SendPolicy;

use crate::done::Done;
use crate::lock::lock;

/// Something that a connection learns from outside. There is at most one of a kind in a mailbox, so a peer that makes
/// others notify a connection cannot fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Tasks of this session were aborted, by whomever: drop those whose epoch has ended.
    Sweep,
    /// The disks, or who sees them, have changed.
    Disks,
    /// Commands of other connections have come; it may be the turn of one that waits.
    Turn,
    /// The initiator is to be asked to log out within this time; then the connection ends.
    LogOut(Duration),
    /// Responses are sent like this from now on.
    Send(SendPolicy),
    /// The connection must end, and its tasks go on with others.
    Park,
    /// The connection must end, because of this.
    Drop(&'static str),
    /// The target is stopping.
    Stop,
}

/// The mailbox of one connection's thread. Looking whether something is in it costs one atomic load.
#[derive(Debug)]
pub(crate) struct Mailbox {
    full: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    has_done: AtomicBool,
    done: Mutex<Vec<Done>>,
    /// Wakes the thread out of its wait for the socket.
    pub(crate) wake: EventFd,
}

impl Mailbox {
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self {
            full: AtomicBool::new(false),
            notices: Mutex::default(),
            has_done: AtomicBool::new(false),
            done: Mutex::default(),
            wake,
        })
    }

    /// Leaves a notice; of its kind the last one counts, and of the reasons to end the first.
    pub(crate) fn post(&self, notice: Notice) {
        let mut notices = lock(&self.notices);
        let kind = std::mem::discriminant(&notice);
        match notices.iter_mut().find(|there| std::mem::discriminant(&**there) == kind) {
            Some(Notice::Drop(_)) => {}
            Some(there) => *there = notice,
            None => notices.push(notice),
        }
        self.full.store(true, Ordering::Release);
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = self.wake.write(1);
    }

    /// A job is done; there are no more of them than commands in flight.
    pub(crate) fn done(&self, done: Done) {
        lock(&self.done).push(done);
        if !self.has_done.swap(true, Ordering::AcqRel) {
            let _ = self.wake.write(1);
        }
    }

    /// Whether anything is there.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.full.load(Ordering::Acquire) || self.has_done.load(Ordering::Acquire)
    }

    /// The jobs that are done since this was last asked.
    #[inline]
    pub(crate) fn take_done(&self) -> Vec<Done> {
        if !self.has_done.load(Ordering::Acquire) {
            return Vec::new();
        }
        let _ = self.wake.read();
        let mut done = lock(&self.done);
        self.has_done.store(false, Ordering::Release);
        std::mem::take(&mut *done)
    }

    #[inline]
    pub(crate) fn take(&self) -> Vec<Notice> {
        if !self.full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let _ = self.wake.read();
        if self.has_done.load(Ordering::Acquire) {
            // A job that ended meanwhile rang the same bell.
            let _ = self.wake.write(1);
        }
        let mut notices = lock(&self.notices);
        self.full.store(false, Ordering::Release);
        std::mem::take(&mut *notices)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn completion_during_notice_collection_still_wakes_the_thread() {
        let mailbox = Mailbox::new().unwrap();
        mailbox.post(Notice::Sweep);
        assert!(mailbox.take_done().is_empty());
        mailbox.done(Done::example());
        assert_eq!(mailbox.take().len(), 1);
        assert!(mailbox.has_mail() && mailbox.wake.read().is_ok(), "the bell rings for the job");
        assert_eq!(mailbox.take_done().len(), 1);
        assert!(!mailbox.has_mail());
    }

    #[test]
    fn mailbox_size_is_bounded() {
        let mailbox = Mailbox::new().unwrap();
        for n in 0..1000 {
            mailbox.post(Notice::Sweep);
            mailbox.post(Notice::LogOut(Duration::from_secs(n)));
        }
        mailbox.post(Notice::Drop("first"));
        mailbox.post(Notice::Drop("second"));
        let last = Notice::LogOut(Duration::from_secs(999));
        assert_eq!(mailbox.take(), [Notice::Sweep, last, Notice::Drop("first")]);
    }
}
