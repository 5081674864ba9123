//! Who is connected, which connections make a session, and what one session has to tell another.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use iscsi::login::Status;
use iscsi::login::target::LoggedIn;
use iscsi::target::Parked;
use iscsi::{CommandSequence, Parameters};
use nix::sys::eventfd::{EfdFlags, EventFd};
use policy::SendPolicy;
use scsi::{Nexus, UnitAttention};

use crate::config::Limits;
use crate::execute::Gathering;
use crate::jobs::Done;

/// Something that a connection learns from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Notice {
    /// A logical unit (or with nothing all of them) was reset by another session: tasks are gone, and a unit
    /// attention is due.
    Reset {
        /// Which logical unit; nothing for all.
        lun: Option<u16>,
    },
    /// Another session cleared this logical unit's task set: tasks of this session are gone.
    Cleared {
        /// Which logical unit.
        lun: u16,
    },
    /// Another connection of this session has aborted the tasks of a logical unit, or with nothing of all.
    Aborted {
        /// Which logical unit; nothing for all.
        lun: Option<u16>,
    },
    /// Another session has changed something of this logical unit.
    Changed {
        /// Which logical unit.
        lun: u16,
        /// What is to be told.
        attention: UnitAttention,
    },
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

/// The letter box of one connection's thread. Looking whether something is in it costs one atomic load.
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
    /// Notices kept at most; a session that does not look is dropped by the last one.
    const LIMIT: usize = 64;

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

    pub(crate) fn post(&self, notice: Notice) {
        let mut notices = lock(&self.notices);
        if notices.contains(&notice) {
            // Told once is told.
        } else if notices.len() < Self::LIMIT {
            notices.push(notice);
        } else if let Some(last) = notices.last_mut() {
            *last = Notice::Drop("too many notices unread");
        }
        self.full.store(true, Ordering::Release);
        // Fails only when the counter is full, and then the thread is awake anyway.
        let _ = self.wake.write(1);
    }

    /// A job is done; there are no more of them than commands under way.
    pub(crate) fn done(&self, done: Done) {
        lock(&self.done).push(done);
        // Who is told already need not be told again.
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
    pub(crate) portal_group: u16,
}

/// One session, shared by the threads of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) tsih: u16,
    key: SessionKey,
    /// What was agreed with its first connection.
    pub(crate) parameters: Parameters,
    pub(crate) commands: Arc<CommandSequence>,
    pub(crate) nexus: Mutex<Nexus>,
    members: Mutex<Members>,
    has_begun: AtomicBool,
}

/// The connections of a session, by CID.
#[derive(Debug, Default)]
struct Members {
    connections: BTreeMap<u16, u64>,
    lost: BTreeMap<u16, Lost>,
}

/// What a lost connection leaves, and until when it is kept.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) parked: Parked,
    pub(crate) gathering: Gathering,
    until: Instant,
}

impl Session {
    /// Whether it begins with this call: true once, for its first connection.
    pub(crate) fn begins(&self) -> bool {
        !self.has_begun.swap(true, Ordering::AcqRel)
    }

    /// What lost connections have left, to go on with.
    pub(crate) fn with_lost<R>(&self, mut take: impl FnMut(&mut Lost) -> Option<R>) -> Option<R> {
        lock(&self.members).lost.values_mut().find_map(&mut take)
    }

    fn has(&self, cid: u16) -> (Option<u64>, bool) {
        let members = lock(&self.members);
        (members.connections.get(&cid).copied(), members.lost.contains_key(&cid))
    }
}

#[derive(Debug)]
struct Connected {
    mailbox: Arc<Mailbox>,
    address: IpAddr,
}

/// All connections and sessions of a target.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    connections: Mutex<HashMap<u64, Connected>>,
    sessions: Mutex<HashMap<u16, Arc<Session>>>,
    next_instance: AtomicU64,
}

/// How long a logout waits for another connection to end.
const LOGOUT_PATIENCE: Duration = Duration::from_secs(2);

/// Waits for what a logout waits for, with patience.
fn wait_until(is_over: impl Fn() -> bool) {
    let deadline = Instant::now() + LOGOUT_PATIENCE;
    while !is_over() && Instant::now() < deadline {
        std::thread::sleep(Duration::from_millis(1));
    }
}

impl Sessions {
    /// Takes a place for a connection.
    ///
    /// # Errors
    /// Which limit is reached.
    pub(crate) fn enter(
        &self,
        id: u64,
        mailbox: &Arc<Mailbox>,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<(), &'static str> {
        let mut connections = lock(&self.connections);
        if connections.len() >= limits.connections {
            return Err("the limit of connections is reached");
        }
        let same = connections.values().filter(|connected| connected.address == address).count();
        if same >= limits.connections_per_address {
            return Err("the limit of connections from one address is reached");
        }
        connections.insert(id, Connected { mailbox: Arc::clone(mailbox), address });
        Ok(())
    }

    /// Gives the place back.
    pub(crate) fn leave(&self, id: u64) {
        lock(&self.connections).remove(&id);
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.connections).len()
    }

    pub(crate) fn sessions(&self) -> usize {
        lock(&self.sessions).len()
    }

    fn post(&self, id: u64, notice: Notice) {
        if let Some(connected) = lock(&self.connections).get(&id) {
            connected.mailbox.post(notice);
        }
    }

    /// The session that a login is to join.
    ///
    /// # Errors
    /// Why it cannot (RFC 7143 6.3.1).
    pub(crate) fn find(&self, login: &LoggedIn, key: &SessionKey) -> Result<Arc<Session>, Status> {
        let sessions = lock(&self.sessions);
        let session = sessions.get(&login.tsih).ok_or(Status::SESSION_DOES_NOT_EXIST)?;
        if session.key.portal_group != key.portal_group {
            return Err(Status::CANNOT_INCLUDE);
        }
        if session.key != *key {
            return Err(Status::SESSION_DOES_NOT_EXIST);
        }
        Ok(Arc::clone(session))
    }

    /// Connection `id` enters its full feature phase: with a new session, which takes the place of an older one
    /// of the same name (RFC 7143 6.3.5), or in the one that it joins, where it takes the place of an older
    /// connection with its CID (6.3.4).
    pub(crate) fn establish(
        &self,
        login: &LoggedIn,
        key: SessionKey,
        id: u64,
        limits: &Limits,
    ) -> Result<Arc<Session>, Status> {
        if login.tsih != 0 {
            let session = self.find(login, &key)?;
            let old = {
                let mut members = lock(&session.members);
                let is_new = !members.connections.contains_key(&login.cid);
                if is_new && members.connections.len() >= session.parameters.max_connections.into() {
                    return Err(Status::TOO_MANY_CONNECTIONS);
                }
                members.connections.insert(login.cid, id)
            };
            if let Some(old) = old {
                self.post(old, Notice::Drop("the connection was reinstated by a new login"));
            }
            return Ok(session);
        }
        let mut sessions = lock(&self.sessions);
        let old = sessions.values().find(|session| session.key == key).map(|session| session.tsih);
        let old = old.and_then(|tsih| sessions.remove(&tsih));
        if sessions.len() >= limits.sessions {
            return Err(Status::OUT_OF_RESOURCES);
        }
        let instance = self.next_instance.fetch_add(1, Ordering::Relaxed) + 1;
        // TSIH 0 is reserved for "new session"; there are fewer sessions than numbers.
        let tsih =
            (instance as u16..=u16::MAX).chain(1..=u16::MAX).find(|n| *n != 0 && !sessions.contains_key(n));
        let Some(tsih) = tsih else { return Err(Status::OUT_OF_RESOURCES) };
        let isid = login.isid.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
        let port = format!("{},i,{isid:#014x}", login.initiator_name);
        let session = Arc::new(Session {
            tsih,
            parameters: login.parameters.clone(),
            commands: Arc::new(CommandSequence::new(login.exp_cmd_sn, limits.window)),
            nexus: Mutex::new(Nexus::new(&port, key.portal_group, instance)),
            members: Mutex::new(Members {
                connections: BTreeMap::from([(login.cid, id)]),
                lost: BTreeMap::new(),
            }),
            has_begun: AtomicBool::new(false),
            key,
        });
        sessions.insert(tsih, Arc::clone(&session));
        drop(sessions);
        let dropped: Vec<u64> = old
            .iter()
            .flat_map(|s| lock(&s.members).connections.values().copied().collect::<Vec<_>>())
            .collect();
        for old in dropped {
            self.post(old, Notice::Drop("the session was reinstated by a new login"));
        }
        Ok(session)
    }

    /// Connection `id` has left its session; with `lost` its tasks are kept for a while. True when the session
    /// ends with it.
    pub(crate) fn part(
        &self,
        session: &Session,
        cid: u16,
        id: u64,
        lost: Option<(Parked, Gathering)>,
    ) -> bool {
        let mut members = lock(&session.members);
        if members.connections.get(&cid) == Some(&id) {
            members.connections.remove(&cid);
        }
        if let Some((parked, gathering)) = lost {
            let p = &session.parameters;
            let kept = Duration::from_secs(u64::from(p.time2wait) + u64::from(p.time2retain));
            members.lost.insert(cid, Lost { parked, gathering, until: Instant::now() + kept });
        }
        let ends = members.connections.is_empty() && members.lost.is_empty();
        drop(members);
        ends && self.forget(session)
    }

    fn forget(&self, session: &Session) -> bool {
        let mut sessions = lock(&self.sessions);
        // A session that took its place must not go with it.
        if sessions.get(&session.tsih).is_some_and(|there| std::ptr::eq(&raw const **there, session)) {
            sessions.remove(&session.tsih);
        }
        true
    }

    /// Forgets what lost connections have left and nobody came for; the sessions that end with that.
    pub(crate) fn expire(&self) -> Vec<Arc<Session>> {
        let now = Instant::now();
        let all: Vec<Arc<Session>> = lock(&self.sessions).values().map(Arc::clone).collect();
        let expires = |session: &Session| {
            let mut members = lock(&session.members);
            let before = members.lost.len();
            members.lost.retain(|_, lost| lost.until > now);
            before > members.lost.len() && members.lost.is_empty() && members.connections.is_empty()
        };
        all.into_iter().filter(|session| expires(session) && self.forget(session)).collect()
    }

    /// Ends another connection of a session, for a logout; whether there was one.
    pub(crate) fn log_out(&self, session: &Session, cid: u16, recovery: bool) -> bool {
        let (alive, is_lost) = session.has(cid);
        let Some(id) = alive else { return is_lost && recovery };
        self.post(id, if recovery { Notice::Park } else { Notice::Drop("logged out by another connection") });
        wait_until(|| session.has(cid).0 != Some(id));
        true
    }

    /// Ends all other connections of a session, for a logout of the session.
    pub(crate) fn log_out_all(&self, session: &Session, id: u64) {
        self.post_to_own(session, id, Notice::Drop("the session was logged out"));
        lock(&session.members).lost.clear();
        let others = || lock(&session.members).connections.values().any(|&other| other != id);
        wait_until(|| !others());
    }

    /// Posts a notice to every connection of other sessions, and another to the other connections of this one.
    pub(crate) fn post_to_others(&self, session: &Session, id: u64, notice: Notice, own: Option<Notice>) {
        let mine: Vec<u64> = lock(&session.members).connections.values().copied().collect();
        for (&other, connected) in &*lock(&self.connections) {
            if !mine.contains(&other) && other != id {
                connected.mailbox.post(notice);
            } else if let Some(own) = own.filter(|_| other != id) {
                connected.mailbox.post(own);
            }
        }
    }

    /// Posts a notice to the other connections of this session.
    pub(crate) fn post_to_own(&self, session: &Session, id: u64, notice: Notice) {
        let mine: Vec<u64> = lock(&session.members).connections.values().copied().collect();
        mine.into_iter().filter(|&other| other != id).for_each(|other| self.post(other, notice));
    }

    /// Posts a notice to every connection.
    pub(crate) fn post_to_all(&self, notice: Notice) {
        for connected in lock(&self.connections).values() {
            connected.mailbox.post(notice);
        }
    }

    /// Posts a notice to the connections of the sessions of initiators that `chosen` names; how many.
    pub(crate) fn post_to_initiators(&self, chosen: impl Fn(&str) -> bool, notice: Notice) -> usize {
        let sessions: Vec<Arc<Session>> = lock(&self.sessions).values().map(Arc::clone).collect();
        let chosen = sessions.iter().filter(|session| chosen(&session.key.initiator_name));
        let ids: Vec<u64> =
            chosen.flat_map(|s| lock(&s.members).connections.values().copied().collect::<Vec<_>>()).collect();
        ids.iter().for_each(|&id| self.post(id, notice));
        ids.len()
    }
}

/// A thread that panicked while it held the lock left nothing half done: every critical section here is a
/// few map operations that cannot fail between each other.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use iscsi::login::SessionType;

    use super::*;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().unwrap())
    }

    fn login(tsih: u16, cid: u16) -> LoggedIn {
        LoggedIn {
            initiator_name: "iqn.i".into(),
            target_name: "iqn.t".into(),
            session_type: SessionType::Normal,
            isid: [1; 6],
            tsih,
            cid,
            parameters: Parameters { max_connections: 2, error_recovery_level: 2, ..Parameters::default() },
            exp_cmd_sn: 1,
            stat_sn: 1,
        }
    }

    fn key() -> SessionKey {
        SessionKey {
            initiator_name: "iqn.i".into(),
            isid: [1; 6],
            target_name: "iqn.t".into(),
            portal_group: 1,
        }
    }

    #[test]
    fn a_second_login_of_a_session_drops_the_first_connection() {
        let sessions = Sessions::default();
        let limits = Limits::default();
        let (old, new) = (mailbox(), mailbox());
        sessions.enter(1, &old, HERE, &limits).unwrap();
        sessions.enter(2, &new, HERE, &limits).unwrap();
        let first = sessions.establish(&login(0, 0), key(), 1, &limits).unwrap();
        let second = sessions.establish(&login(0, 0), key(), 2, &limits).unwrap();
        assert!(first.tsih != 0 && second.tsih != 0 && first.tsih != second.tsih);
        assert!(matches!(old.take()[..], [Notice::Drop(_)]));
        assert!(new.take().is_empty());
        // The old connection's end must not take the new session with it.
        assert!(sessions.part(&first, 0, 1, None));
        sessions.leave(1);
        assert_eq!((sessions.connections(), sessions.sessions()), (1, 1));
    }

    #[test]
    fn connections_join_a_session_up_to_its_limit_and_replace_their_like() {
        let (sessions, limits) = (Sessions::default(), Limits::default());
        let boxes: Vec<_> = (0..4).map(|_| mailbox()).collect();
        for (id, mailbox) in boxes.iter().enumerate() {
            sessions.enter(id as u64, mailbox, HERE, &limits).unwrap();
        }
        let session = sessions.establish(&login(0, 0), key(), 0, &limits).unwrap();
        let join =
            |cid, id, key| sessions.establish(&login(session.tsih, cid), key, id, &limits).map(|s| s.tsih);
        assert_eq!(join(1, 1, key()), Ok(session.tsih));
        assert_eq!(join(2, 2, key()), Err(Status::TOO_MANY_CONNECTIONS));
        assert_eq!(join(1, 3, key()), Ok(session.tsih), "reinstates the connection with its CID");
        assert!(matches!(boxes[1].take()[..], [Notice::Drop(_)]));
        let elsewhere = SessionKey { portal_group: 2, ..key() };
        assert_eq!(join(1, 2, elsewhere), Err(Status::CANNOT_INCLUDE));
        let other = SessionKey { isid: [2; 6], ..key() };
        assert_eq!(join(1, 2, other), Err(Status::SESSION_DOES_NOT_EXIST));
        assert!(!sessions.part(&session, 1, 3, None) && sessions.part(&session, 0, 0, None));
        assert_eq!(join(0, 0, key()), Err(Status::SESSION_DOES_NOT_EXIST));
    }

    #[test]
    fn a_lost_connection_keeps_its_session_until_its_time_is_over() {
        let (sessions, limits) = (Sessions::default(), Limits::default());
        let mut first = login(0, 0);
        (first.parameters.time2wait, first.parameters.time2retain) = (0, 0);
        let session = sessions.establish(&first, key(), 1, &limits).unwrap();
        assert!(!sessions.part(&session, 0, 1, Some((Parked::default(), Gathering::default()))));
        assert_eq!(sessions.sessions(), 1);
        assert_eq!(sessions.expire().len(), 1);
        assert_eq!(sessions.sessions(), 0);
    }

    #[test]
    fn connections_and_sessions_are_limited() {
        let sessions = Sessions::default();
        let limits = Limits { connections: 2, connections_per_address: 1, sessions: 1, ..Limits::default() };
        assert!(sessions.enter(1, &mailbox(), HERE, &limits).is_ok());
        assert!(sessions.enter(2, &mailbox(), HERE, &limits).unwrap_err().contains("one address"));
        let there = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        assert!(sessions.enter(2, &mailbox(), there, &limits).is_ok());
        assert!(sessions.enter(3, &mailbox(), [127, 0, 0, 3].into(), &limits).is_err());
        sessions.leave(1);
        assert!(sessions.enter(3, &mailbox(), HERE, &limits).is_ok());
        assert!(sessions.establish(&login(0, 0), key(), 2, &limits).is_ok());
        let other = SessionKey { isid: [2; 6], ..key() };
        let refused = sessions.establish(&login(0, 0), other, 3, &limits).map(|s| s.tsih);
        assert_eq!(refused, Err(Status::OUT_OF_RESOURCES));
        assert!(
            sessions.establish(&login(0, 0), key(), 3, &limits).is_ok(),
            "reinstatement needs no more room"
        );
    }

    #[test]
    fn a_letter_box_has_a_bottom() {
        let mailbox = mailbox();
        for lun in 0..1000 {
            mailbox.post(Notice::Cleared { lun });
            mailbox.post(Notice::Turn);
        }
        let notices = mailbox.take();
        assert_eq!(notices.len(), Mailbox::LIMIT);
        assert!(matches!(notices.last(), Some(Notice::Drop(_))));
        assert_eq!(notices.iter().filter(|n| **n == Notice::Turn).count(), 1, "told once is told");
    }
}
