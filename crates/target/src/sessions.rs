//! Who is connected, and what one session has to tell another.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use nix::sys::eventfd::{EfdFlags, EventFd};
use scsi::UnitAttention;

/// Something that a session learns from outside its own connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A logical unit (or with nothing all of them) was reset by another session: tasks are gone, and a unit
    /// attention is due.
    Reset {
        /// Which logical unit; nothing for all.
        lun: Option<u64>,
    },
    /// Another session cleared this logical unit's task set: tasks of this session are gone.
    Cleared {
        /// Which logical unit.
        lun: u64,
    },
    /// Another session has changed something of this logical unit.
    Changed {
        /// Which logical unit.
        lun: u16,
        /// What is to be told.
        attention: UnitAttention,
    },
    /// The connection must end, because of this.
    Drop(&'static str),
    /// The target is stopping.
    Stop,
}

/// The letter box of one connection's thread. Looking whether something is in it costs one atomic load.
#[derive(Debug)]
pub(crate) struct Mailbox {
    full: AtomicBool,
    notices: Mutex<Vec<Notice>>,
    /// Wakes the thread out of its wait for the socket.
    pub(crate) wake: EventFd,
}

impl Mailbox {
    /// Notices kept at most; a session that does not look is dropped by the last one.
    const LIMIT: usize = 64;

    pub(crate) fn new() -> std::io::Result<Self> {
        let wake = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC)?;
        Ok(Self { full: AtomicBool::new(false), notices: Mutex::default(), wake })
    }

    pub(crate) fn post(&self, notice: Notice) {
        let mut notices = lock(&self.notices);
        if notices.len() < Self::LIMIT {
            notices.push(notice);
        } else if let Some(last) = notices.last_mut() {
            *last = Notice::Drop("too many notices unread");
        }
        self.full.store(true, Ordering::Release);
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = self.wake.write(1);
    }

    pub(crate) fn take(&self) -> Vec<Notice> {
        if !self.full.load(Ordering::Acquire) {
            return Vec::new();
        }
        let _ = self.wake.read();
        let mut notices = lock(&self.notices);
        self.full.store(false, Ordering::Release);
        std::mem::take(&mut *notices)
    }
}

/// What makes a session the same session (RFC 7143 4.4.1: I_T nexus with its ISID).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct SessionKey {
    pub(crate) initiator_name: String,
    pub(crate) isid: [u8; 6],
    pub(crate) target_name: String,
}

/// All connections of a target.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    connections: Mutex<HashMap<u64, Arc<Mailbox>>>,
    sessions: Mutex<HashMap<SessionKey, u64>>,
    next_tsih: AtomicU16,
}

impl Sessions {
    /// Takes a place for a connection, or none when there are `limit` already.
    pub(crate) fn enter(&self, id: u64, mailbox: &Arc<Mailbox>, limit: usize) -> bool {
        let mut connections = lock(&self.connections);
        if connections.len() >= limit {
            return false;
        }
        connections.insert(id, Arc::clone(mailbox));
        true
    }

    /// Gives the place back.
    pub(crate) fn leave(&self, id: u64) {
        lock(&self.connections).remove(&id);
        lock(&self.sessions).retain(|_, connection| *connection != id);
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.connections).len()
    }

    /// A session begins on connection `id`. A session of the same name that exists is reinstated: its
    /// connection is dropped (RFC 7143 6.3.5).
    pub(crate) fn establish(&self, key: SessionKey, id: u64) -> u16 {
        let old = lock(&self.sessions).insert(key, id);
        if let Some(mailbox) = old.and_then(|old| lock(&self.connections).get(&old).cloned()) {
            mailbox.post(Notice::Drop("the session was reinstated by a new login"));
        }
        // TSIH 0 is reserved for "new session".
        loop {
            let tsih = self.next_tsih.fetch_add(1, Ordering::Relaxed);
            if tsih != 0 {
                return tsih;
            }
        }
    }

    /// Posts a notice to every connection but `except`.
    pub(crate) fn post_to_others(&self, except: u64, notice: Notice) {
        for (_, mailbox) in lock(&self.connections).iter().filter(|&(&id, _)| id != except) {
            mailbox.post(notice);
        }
    }

    /// Posts a notice to every connection.
    pub(crate) fn post_to_all(&self, notice: Notice) {
        for mailbox in lock(&self.connections).values() {
            mailbox.post(notice);
        }
    }
}

/// A thread that panicked while it held the lock left nothing half done: every critical section here is a
/// single map operation.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().unwrap())
    }

    #[test]
    fn a_second_login_of_a_session_drops_the_first_connection() {
        let sessions = Sessions::default();
        let (old, new) = (mailbox(), mailbox());
        assert!(sessions.enter(1, &old, 10) && sessions.enter(2, &new, 10));
        let key = SessionKey { initiator_name: "iqn.i".into(), isid: [1; 6], target_name: "iqn.t".into() };
        let first = sessions.establish(key.clone(), 1);
        let second = sessions.establish(key, 2);
        assert!(first != 0 && second != 0 && first != second);
        assert!(matches!(old.take()[..], [Notice::Drop(_)]));
        assert!(new.take().is_empty());
        // The old connection's end must not take the new session with it.
        sessions.leave(1);
        assert_eq!(sessions.connections(), 1);
        assert_eq!(lock(&sessions.sessions).len(), 1);
    }

    #[test]
    fn connections_are_limited() {
        let sessions = Sessions::default();
        assert!(sessions.enter(1, &mailbox(), 1));
        assert!(!sessions.enter(2, &mailbox(), 1));
        sessions.leave(1);
        assert!(sessions.enter(2, &mailbox(), 1));
    }

    #[test]
    fn a_letter_box_has_a_bottom() {
        let mailbox = mailbox();
        for _ in 0..1000 {
            mailbox.post(Notice::Reset { lun: None });
        }
        let notices = mailbox.take();
        assert_eq!(notices.len(), Mailbox::LIMIT);
        assert!(matches!(notices.last(), Some(Notice::Drop(_))));
    }
}
