//! The mailbox of a connection: notices and completed jobs from other threads.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use policy::SendPolicy;

use crate::done::Done;
use crate::lock::lock;

/// A notice to a connection. A mailbox holds at most one of each kind, so that no peer can fill it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// Tasks of this session were aborted, possibly by another session: drop those of ended epochs.
    Sweep,
    /// The disks, or their masks, have changed.
    Disks,
    /// ExpCmdSN has advanced on another connection; a held command may be next.
    Turn,
    /// Ask the initiator to log out within this time; then drop the connection.
    LogOut(Duration),
    /// Use this send policy from now on.
    Send(SendPolicy),
    /// End the connection and keep its tasks for reassignment.
    Park,
    /// End the connection for this reason.
    Drop(&'static str),
    /// The target is stopping.
    Stop,
}

/// The mailbox of a connection's thread. Checking for mail costs an atomic load per kind.
#[derive(Debug)]
pub(crate) struct Mailbox {
    full: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    has_done: AtomicBool,
    done: Mutex<Vec<Done>>,
    /// Wakes the thread from its poll of the socket.
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

    /// Posts a notice. It replaces an earlier one of its kind, except that the first [`Notice::Drop`] is kept.
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

    /// Reports a completed job. The command window bounds their number.
    pub(crate) fn done(&self, done: Done) {
        lock(&self.done).push(done);
        if !self.has_done.swap(true, Ordering::AcqRel) {
            let _ = self.wake.write(1);
        }
    }

    /// Returns whether the mailbox has notices or completed jobs.
    #[inline]
    pub(crate) fn has_mail(&self) -> bool {
        self.full.load(Ordering::Acquire) || self.has_done.load(Ordering::Acquire)
    }

    /// Takes the jobs completed since the last call.
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

    /// Takes the notices posted since the last call.
    #[inline]
    pub(crate) fn take(&self) -> Vec<Notice> {
        if !self.full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let _ = self.wake.read();
        if self.has_done.load(Ordering::Acquire) {
            // The read above also consumed the wake-up of a job that completed meanwhile.
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
        assert!(mailbox.has_mail() && mailbox.wake.read().is_ok(), "the completion still wakes the thread");
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
