//! The mailbox of a connection: notices and completed jobs from other threads.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use nix::sys::eventfd::{EfdFlags, EventFd};
use policy::SendPolicy;

use crate::done::Done;
use crate::doorbell::Doorbell;
use crate::event_loop::Newcomer;
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
    /// Publish what was counted.
    Publish,
    /// The process ends, and the session goes on in the next one if it is quiet before [`Notice::Stop`] comes.
    Suspend,
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
    wake: Wake,
}

/// How the thread of a connection is woken.
#[derive(Debug)]
enum Wake {
    /// From its poll of the socket and this descriptor.
    Descriptor(EventFd),
    /// It serves several connections, of which this one has the number. Locked only to ring, and when the connection moves.
    Loop(Mutex<Arc<Doorbell<Newcomer>>>, u64),
}

impl Wake {
    fn wake(&self) {
        match self {
            // Fails only when the counter is full, and then the thread is awake anyway.
            Self::Descriptor(wake) => {
                let _ = wake.write(1);
            }
            Self::Loop(bell, id) => lock(bell).mail(*id),
        }
    }

    /// The thread has taken the mail.
    fn is_over(&self) {
        if let Self::Descriptor(wake) = self {
            let _ = wake.read();
        }
    }
}

impl Mailbox {
    /// The mailbox of a thread of its own.
    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self::with(Wake::Descriptor(wake)))
    }

    /// The mailbox of a connection that an event loop serves.
    pub(crate) fn of_loop(bell: Arc<Doorbell<Newcomer>>, id: u64) -> Self {
        Self::with(Wake::Loop(Mutex::new(bell), id))
    }

    fn with(wake: Wake) -> Self {
        Self {
            full: AtomicBool::new(false),
            notices: Mutex::default(),
            has_done: AtomicBool::new(false),
            done: Mutex::default(),
            wake,
        }
    }

    /// The descriptor that mail makes readable, if its thread has no other connection.
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match &self.wake {
            Wake::Descriptor(wake) => Some(wake.as_fd()),
            Wake::Loop(..) => None,
        }
    }

    /// Another event loop serves the connection from its next turn on. Mail that rang at the old one before is found in that turn:
    /// who posts puts the mail in first, and asks then where to ring.
    pub(crate) fn move_to(&self, bell: &Arc<Doorbell<Newcomer>>) {
        if let Wake::Loop(own, _) = &self.wake {
            *lock(own) = Arc::clone(bell);
        }
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
        self.wake.wake();
    }

    /// Reports a completed job. The command window bounds their number.
    pub(crate) fn done(&self, done: Done) {
        lock(&self.done).push(done);
        if !self.has_done.swap(true, Ordering::AcqRel) {
            self.wake.wake();
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
        self.wake.is_over();
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
        self.wake.is_over();
        if self.has_done.load(Ordering::Acquire) {
            // The wake-up of a job that completed meanwhile was taken, too.
            self.wake.wake();
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
        let Wake::Descriptor(wake) = &mailbox.wake else { panic!("{mailbox:?}") };
        assert!(mailbox.has_mail() && wake.read().is_ok(), "the completion still wakes the thread");
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
