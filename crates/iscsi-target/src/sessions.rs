//! The connections and sessions of a target.

mod connections;
mod registry;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use iscsi::CommandSequence;
use iscsi::login::Status;
use iscsi::login::target::LoggedIn;
use scsi::{Disk, Lun, Nexus, UnitAttention};

use self::connections::Connections;
use self::registry::Registry;
use crate::admission::network;
use crate::config::Limits;
use crate::effects::{Attentions, Recipient};
use crate::fence::Epoch;
use crate::kept::KeptSession;
use crate::lock::lock;
use crate::mailbox::{Mailbox, Notice};
use crate::memory::Memory;
use crate::node::Node;
use crate::session::{Lost, Member, Members, RecoverableTasks, Session, SessionKey};

/// All connections and sessions of a target.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    connections: Mutex<Connections>,
    sessions: Mutex<Registry>,
    next_instance: AtomicU64,
}

/// Whether initiators must authenticate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Proof {
    /// By CHAP: a session belongs to the user that established it.
    Demanded,
    /// The InitiatorName suffices.
    NotDemanded,
}

/// A connection whose login has succeeded.
#[derive(Debug)]
pub(crate) struct NewConnection<'a> {
    /// The result of the login.
    pub(crate) login: &'a LoggedIn,
    /// The identity of the session to establish or join.
    pub(crate) key: SessionKey,
    pub(crate) proof: Proof,
    /// The number of the connection in the target.
    pub(crate) id: u64,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    /// The initiator's address.
    pub(crate) address: IpAddr,
    /// The target node; `None` for a discovery session.
    pub(crate) node: Option<&'a Arc<Node>>,
    /// The session of the process before that it goes on with.
    pub(crate) going_on: Option<&'a KeptSession>,
}

/// A connection that has ended.
#[derive(Debug)]
pub(crate) struct EndedConnection {
    /// Its CID in its session.
    pub(crate) cid: u16,
    /// Its number in the target.
    pub(crate) id: u64,
    /// The tasks to keep for reassignment.
    pub(crate) recoverable: Option<RecoverableTasks>,
}

/// A session that a login has established or joined, and the sessions that it ended.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) session: Arc<Session>,
    pub(crate) ended: Vec<Arc<Session>>,
}

impl Attentions for Sessions {
    fn raise(&self, disk: &Disk, attention: UnitAttention, is_for: &dyn Fn(Recipient<'_>) -> bool) {
        for session in self.all() {
            let recipient = Recipient { instance: session.instance, nexus_name: &session.nexus_name };
            if is_for(recipient)
                && let Some(lun) = session.number_of(disk)
            {
                lock(&session.nexus).raise(lun, attention);
            }
        }
    }
}

impl Sessions {
    /// Reserves a slot for a connection. When all slots are taken, the oldest login in progress of the address with the
    /// most of them is dropped, unless the new connection comes from that address.
    ///
    /// # Errors
    /// The limit that is reached.
    pub(crate) fn enter(
        &self,
        id: u64,
        mailbox: &Arc<Mailbox>,
        address: IpAddr,
        limits: &Limits,
    ) -> Result<(), &'static str> {
        let evicted = lock(&self.connections).enter(id, mailbox, network(address), limits)?;
        if let Some(evicted) = evicted {
            evicted.post(Notice::Drop(
                "evicted at a connection limit: its address has the most logins in progress",
            ));
        }
        Ok(())
    }

    /// Releases the slot of a connection.
    pub(crate) fn leave(&self, id: u64) {
        lock(&self.connections).leave(id);
    }

    pub(crate) fn connections(&self) -> usize {
        lock(&self.connections).len()
    }

    /// Returns the number of logins in progress.
    pub(crate) fn logins(&self) -> usize {
        lock(&self.connections).logins()
    }

    pub(crate) fn sessions(&self) -> usize {
        lock(&self.sessions).len()
    }

    /// Returns all sessions.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).values().map(Arc::clone).collect()
    }

    /// Finds the session that a login asks to join.
    ///
    /// # Errors
    /// The login status when it cannot join (RFC 7143 6.3.1).
    pub(crate) fn find(&self, login: &LoggedIn, key: &SessionKey) -> Result<Arc<Session>, Status> {
        let sessions = lock(&self.sessions);
        let session = sessions.with_tsih(login.tsih).ok_or(Status::SESSION_DOES_NOT_EXIST)?;
        let elsewhere = SessionKey { portal_group: session.key.portal_group, ..key.clone() };
        if session.key.portal_group != key.portal_group && session.key == elsewhere {
            return Err(Status::CANNOT_INCLUDE);
        }
        // Does not disclose that another user has a session with this TSIH.
        if session.key != *key {
            return Err(Status::SESSION_DOES_NOT_EXIST);
        }
        Ok(Arc::clone(session))
    }

    /// Enters a connection into the full feature phase: in a new session, which reinstates an older one of the same
    /// nexus (RFC 7143 6.3.5), or in an existing session, where it reinstates an older connection with its CID (6.3.4).
    ///
    /// # Errors
    /// The login status. While authentication is required, a session of another user is never reinstated.
    pub(crate) fn establish(&self, new: NewConnection<'_>, limits: &Limits) -> Result<Established, Status> {
        let NewConnection { login, key, proof, id, mailbox, address, node, going_on } = new;
        let member = || Member { id, mailbox: Arc::clone(mailbox), address };
        if login.tsih != 0 && going_on.is_none() {
            let session = self.find(login, &key)?;
            let old = {
                let mut members = lock(&session.members);
                // The end of a session sets `is_closed` before it drops the members: a connection must not join in between.
                if session.is_closed.load(Ordering::Acquire) {
                    return Err(Status::SESSION_DOES_NOT_EXIST);
                }
                let is_new = !members.connections.contains_key(&login.cid);
                if is_new && members.connections.len() >= session.parameters.max_connections.into() {
                    return Err(Status::TOO_MANY_CONNECTIONS);
                }
                members.connections.insert(login.cid, member())
            };
            if let Some(old) = old {
                old.mailbox.post(Notice::Drop("the connection was reinstated by a new login"));
            }
            self.is_logged_in(id);
            return Ok(Established { session, ended: Vec::new() });
        }
        let mut sessions = lock(&self.sessions);
        let old = match sessions.of_nexus(&key) {
            Some(session) if proof == Proof::Demanded && session.key.user != key.user => {
                return Err(Status::AUTHORIZATION_FAILURE);
            }
            Some(session) => Some(session.instance),
            None => None,
        };
        let old = old.and_then(|instance| sessions.remove(instance));
        let mut ended: Vec<Arc<Session>> = old.into_iter().collect();
        if sessions.len() >= limits.sessions {
            // A session without connections is evicted for a new one.
            match Self::oldest_orphan(&sessions) {
                Some(instance) => ended.extend(sessions.remove(instance)),
                None => return Err(Status::OUT_OF_RESOURCES),
            }
        }
        let instance = self.next_instance.fetch_add(1, Ordering::Relaxed) + 1;
        // A session that goes on from the process before has its TSIH.
        let tsih = match going_on {
            Some(kept) => (!sessions.has_tsih(kept.tsih)).then_some(kept.tsih),
            None => sessions.free_tsih(instance),
        };
        let Some(tsih) = tsih else { return Err(Status::OUT_OF_RESOURCES) };
        let mut nexus = Nexus::new(&key.port(), key.portal_group, instance).proven(key.user.as_deref());
        let attentions = going_on.map(|kept| &kept.attentions[..]).unwrap_or_default();
        attentions.iter().for_each(|&(lun, attention)| nexus.raise(Lun(lun), attention));
        let window = going_on.map_or(0, |kept| kept.window).max(limits.window);
        let session = Arc::new(Session {
            tsih,
            instance,
            nexus_name: nexus.name().to_owned(),
            parameters: login.parameters.clone(),
            commands: Arc::new(CommandSequence::new(login.exp_cmd_sn, window)),
            nexus: Mutex::new(nexus),
            members: Mutex::new(Members {
                connections: BTreeMap::from([(login.cid, member())]),
                lost: BTreeMap::new(),
            }),
            has_begun: AtomicBool::new(going_on.is_some()),
            view: Mutex::new(None),
            pending_events: Mutex::default(),
            tasks: Mutex::default(),
            is_closed: AtomicBool::new(false),
            is_ending: AtomicBool::new(false),
            node: node.cloned(),
            proven: login.proven.clone(),
            key,
        });
        // From here on, changes of disks and masks reach the session.
        sessions.insert(Arc::clone(&session));
        drop(sessions);
        for old in &ended {
            // From here on its tasks cannot change a disk, however long its connections take to end.
            drop(old.close_tasks());
            old.post(Notice::Drop("the session was reinstated by a new login"));
        }
        self.is_logged_in(id);
        Ok(Established { session, ended })
    }

    fn is_logged_in(&self, id: u64) {
        lock(&self.connections).logged_in(id);
    }

    /// Returns the session without connections whose tasks expire first.
    fn oldest_orphan(sessions: &Registry) -> Option<u64> {
        let orphans = sessions.values().filter_map(|session| {
            let members = lock(&session.members);
            let until = members.lost.values().map(|lost| lost.until).max()?;
            members.connections.is_empty().then_some((until, session.instance))
        });
        orphans.min().map(|(_, instance)| instance)
    }

    /// Removes a connection from its session, and keeps its recoverable tasks within the limits. Returns the sessions
    /// that end with it.
    pub(crate) fn remove_connection(
        &self,
        session: &Arc<Session>,
        gone: EndedConnection,
        limits: &Limits,
        memory: &Arc<Memory>,
        now: Instant,
    ) -> Vec<Arc<Session>> {
        let EndedConnection { cid, id, recoverable } = gone;
        let mut members = lock(&session.members);
        if members.connections.get(&cid).is_some_and(|member| member.id == id) {
            members.connections.remove(&cid);
        }
        // A session without recoverable tasks is not kept.
        if let Some(recoverable) = recoverable.filter(|recoverable| !recoverable.is_empty()) {
            let (p, bytes) = (&session.parameters, recoverable.bytes());
            let seconds = u64::from(p.time2wait) + u64::from(p.time2retain);
            let until = now + Duration::from_secs(seconds).min(limits.retain_time);
            while members.lost.len() >= usize::from(p.max_connections) {
                let oldest = members.lost.iter().min_by_key(|(_, lost)| lost.until).map(|(&cid, _)| cid);
                if oldest.and_then(|cid| members.lost.remove(&cid)).is_none() {
                    break;
                }
            }
            let all: usize = members.lost.values().map(|lost| lost.bytes).sum();
            let share = (all + bytes <= limits.lost_bytes).then(|| memory.claim(bytes)).flatten();
            if let Some(share) = share {
                members.lost.insert(cid, Lost { recoverable, until, _share: share, bytes });
            }
        }
        let ends = members.connections.is_empty() && members.lost.is_empty();
        let is_orphan = members.connections.is_empty();
        drop(members);
        let mut sessions = lock(&self.sessions);
        if ends {
            sessions.remove(session.instance);
            return vec![Arc::clone(session)];
        }
        let mut ended = Vec::new();
        if is_orphan {
            let is_orphan = |session: &&Arc<Session>| lock(&session.members).connections.is_empty();
            let orphans = sessions.values().filter(is_orphan).count();
            if orphans > limits.lost_sessions {
                let oldest = Self::oldest_orphan(&sessions);
                ended.extend(oldest.and_then(|instance| sessions.remove(instance)));
            }
        }
        ended
    }

    /// Drops tasks of lost connections that were not reassigned in time; returns the sessions that end with that.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Arc<Session>> {
        let expires = |session: &Session| {
            let mut members = lock(&session.members);
            let before = members.lost.len();
            members.lost.retain(|_, lost| lost.until > now);
            before > members.lost.len() && members.lost.is_empty() && members.connections.is_empty()
        };
        let ended: Vec<_> = self.all().into_iter().filter(|session| expires(session)).collect();
        let mut sessions = lock(&self.sessions);
        ended.iter().for_each(|session| drop(sessions.remove(session.instance)));
        ended
    }

    /// Removes all sessions, and returns them.
    pub(crate) fn remove_all(&self) -> Vec<Arc<Session>> {
        let mut sessions = lock(&self.sessions);
        let all: Vec<u64> = sessions.values().map(|session| session.instance).collect();
        all.into_iter().filter_map(|instance| sessions.remove(instance)).collect()
    }

    /// Removes the sessions that have neither connections nor tasks to recover, and returns them.
    pub(crate) fn remove_empty(&self) -> Vec<Arc<Session>> {
        let mut sessions = lock(&self.sessions);
        let is_empty = |session: &&Arc<Session>| {
            let members = lock(&session.members);
            members.connections.is_empty() && members.lost.is_empty()
        };
        let empty: Vec<_> = sessions.values().filter(is_empty).map(Arc::clone).collect();
        empty.iter().filter_map(|session| sessions.remove(session.instance)).collect()
    }

    /// Ends the sessions with the same target of the initiator of `of`, by name and user, and all their connections except `id`.
    pub(crate) fn end_initiator(&self, of: &Session, id: u64, reason: &'static str) -> Vec<Arc<Epoch>> {
        let mut epochs = Vec::new();
        for session in self.all() {
            let is_here = session.key.target_name == of.key.target_name;
            if is_here && session.key.is_same_initiator(&of.key) && session.instance != of.instance {
                epochs.extend(session.close_tasks());
                session.post(Notice::Drop(reason));
            }
        }
        of.post_to_others(id, Notice::Drop(reason));
        epochs
    }

    /// Posts a notice to every connection.
    pub(crate) fn post_to_all(&self, notice: Notice) {
        for mailbox in lock(&self.connections).mailboxes() {
            mailbox.post(notice);
        }
    }

    /// Posts a notice to the connections that `chosen` selects by session and address; returns how many.
    pub(crate) fn post_to_chosen(&self, chosen: impl Fn(&Session, IpAddr) -> bool, notice: Notice) -> usize {
        let mut asked = 0;
        for session in self.all() {
            let members = lock(&session.members);
            for member in members.connections.values().filter(|member| chosen(&session, member.address)) {
                member.mailbox.post(notice);
                asked += 1;
            }
        }
        asked
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use iscsi::Parameters;
    use iscsi::login::SessionType;

    use super::*;
    use crate::read::Read;

    const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().unwrap())
    }

    fn login(tsih: u16, cid: u16) -> LoggedIn {
        LoggedIn {
            initiator_name: "iqn.i".into(),
            user: None,
            proven: None,
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
            user: None,
        }
    }

    struct Place {
        sessions: Sessions,
        limits: Limits,
        memory: Arc<Memory>,
        now: Instant,
    }

    impl Place {
        fn new(limits: Limits) -> Self {
            let memory = Memory::new(1 << 20);
            Self { sessions: Sessions::default(), limits, memory, now: Instant::now() }
        }

        fn establish(&self, login: &LoggedIn, key: SessionKey, id: u64) -> Result<Arc<Session>, Status> {
            self.establish_where(login, key, Proof::Demanded, id)
        }

        fn establish_where(
            &self,
            login: &LoggedIn,
            key: SessionKey,
            proof: Proof,
            id: u64,
        ) -> Result<Arc<Session>, Status> {
            let new = NewConnection {
                login,
                key,
                proof,
                id,
                mailbox: &mailbox(),
                address: HERE,
                node: None,
                going_on: None,
            };
            let established = self.sessions.establish(new, &self.limits);
            established.map(|established| established.session)
        }

        fn remove_connection(
            &self,
            session: &Arc<Session>,
            cid: u16,
            id: u64,
            recoverable: Option<RecoverableTasks>,
        ) -> usize {
            let gone = EndedConnection { cid, id, recoverable };
            self.sessions.remove_connection(session, gone, &self.limits, &self.memory, self.now).len()
        }

        fn expire(&self, after: Duration) -> usize {
            self.sessions.expire(self.now + after).len()
        }
    }

    /// Returns the tasks of a lost connection with one read in progress.
    fn recoverable() -> RecoverableTasks {
        RecoverableTasks { reads: BTreeMap::from([(7, Read::example())]), ..RecoverableTasks::default() }
    }

    #[test]
    fn session_reinstatement_drops_the_old_connection() {
        let place = Place::new(Limits::default());
        let (sessions, limits) = (&place.sessions, &place.limits);
        let (old, new) = (mailbox(), mailbox());
        sessions.enter(1, &old, HERE, limits).unwrap();
        sessions.enter(2, &new, HERE, limits).unwrap();
        let establish = |id, mailbox| {
            let login = &login(0, 0);
            let new = NewConnection {
                login,
                key: key(),
                proof: Proof::Demanded,
                id,
                mailbox,
                address: HERE,
                node: None,
                going_on: None,
            };
            sessions.establish(new, limits).unwrap()
        };
        let (first, second) = (establish(1, &old).session, establish(2, &new));
        assert!(Arc::ptr_eq(&second.ended[0], &first));
        let second = second.session;
        assert!(first.tsih != 0 && second.tsih != 0 && first.tsih != second.tsih);
        assert!(matches!(old.take()[..], [Notice::Drop(_)]));
        assert!(new.take().is_empty());
        // The old connection's end must not take the new session with it.
        assert_eq!(place.remove_connection(&first, 0, 1, None), 1);
        sessions.leave(1);
        assert_eq!((sessions.connections(), sessions.sessions()), (1, 1));
    }

    #[test]
    fn session_of_another_user_can_be_neither_reinstated_nor_joined() {
        let place = Place::new(Limits::default());
        let of = |user: &str| SessionKey { user: Some(user.into()), ..key() };
        let alice = place.establish(&login(0, 0), of("alice"), 1).unwrap();
        let bob = place.establish(&login(0, 0), of("bob"), 2).map(|s| s.tsih);
        assert_eq!(bob, Err(Status::AUTHORIZATION_FAILURE));
        let joins = place.establish(&login(alice.tsih, 1), of("bob"), 3).map(|s| s.tsih);
        assert_eq!(joins, Err(Status::SESSION_DOES_NOT_EXIST));
        assert_eq!(
            place.establish(&login(0, 0), key(), 4).map(|s| s.tsih),
            Err(Status::AUTHORIZATION_FAILURE)
        );
        assert!(place.establish(&login(0, 0), of("alice"), 5).is_ok());
        // Without authentication the owner could not be distinguished.
        assert!(place.establish_where(&login(0, 0), key(), Proof::NotDemanded, 6).is_ok());
    }

    #[test]
    fn connections_join_up_to_the_session_limit_and_reinstate_their_cid() {
        let place = Place::new(Limits::default());
        let (sessions, limits) = (&place.sessions, &place.limits);
        let boxes: Vec<_> = (0..4).map(|_| mailbox()).collect();
        let establish = |login: &LoggedIn, key, id: usize| {
            let (id, mailbox) = (id as u64, &boxes[id]);
            let new = NewConnection {
                login,
                key,
                proof: Proof::Demanded,
                id,
                mailbox,
                address: HERE,
                node: None,
                going_on: None,
            };
            sessions.establish(new, limits).map(|e| e.session)
        };
        let session = establish(&login(0, 0), key(), 0).unwrap();
        let join = |cid, id, key| establish(&login(session.tsih, cid), key, id).map(|s| s.tsih);
        assert_eq!(join(1, 1, key()), Ok(session.tsih));
        assert_eq!(join(2, 2, key()), Err(Status::TOO_MANY_CONNECTIONS));
        assert_eq!(join(1, 3, key()), Ok(session.tsih), "reinstates the connection with its CID");
        assert!(matches!(boxes[1].take()[..], [Notice::Drop(_)]));
        let elsewhere = SessionKey { portal_group: 2, ..key() };
        assert_eq!(join(1, 2, elsewhere), Err(Status::CANNOT_INCLUDE));
        let other = SessionKey { isid: [2; 6], ..key() };
        assert_eq!(join(1, 2, other), Err(Status::SESSION_DOES_NOT_EXIST));
        assert_eq!(
            (place.remove_connection(&session, 1, 3, None), place.remove_connection(&session, 0, 0, None)),
            (0, 1)
        );
        assert_eq!(join(0, 0, key()), Err(Status::SESSION_DOES_NOT_EXIST));
    }

    #[test]
    fn lost_connection_keeps_its_session_until_the_retain_time_expires() {
        let place = Place::new(Limits { retain_time: Duration::from_secs(30), ..Limits::default() });
        let mut first = login(0, 0);
        first.parameters.time2wait = 3600;
        let session = place.establish(&first, key(), 1).unwrap();
        assert_eq!(place.remove_connection(&session, 0, 1, Some(recoverable())), 0);
        assert!(place.sessions.sessions() == 1 && place.memory.used() > 0);
        assert_eq!(place.expire(Duration::from_secs(29)), 0);
        // The configuration caps what the initiator negotiated.
        assert_eq!(place.expire(Duration::from_secs(31)), 1);
        drop(session);
        assert_eq!((place.sessions.sessions(), place.memory.used()), (0, 0));
    }

    #[test]
    fn session_without_recoverable_tasks_is_not_kept() {
        let place = Place::new(Limits::default());
        let session = place.establish(&login(0, 0), key(), 1).unwrap();
        assert_eq!(place.remove_connection(&session, 0, 1, Some(RecoverableTasks::default())), 1);
        assert_eq!(place.sessions.sessions(), 0);
    }

    #[test]
    fn recoverable_tasks_are_bounded_in_number_and_bytes() {
        // A session that loses connection after connection.
        let place = Place::new(Limits::default());
        let session = place.establish(&login(0, 0), key(), 1).unwrap();
        for cid in 1..100 {
            place.establish(&login(session.tsih, cid), key(), 1 + u64::from(cid)).unwrap();
            assert_eq!(place.remove_connection(&session, cid, 1 + u64::from(cid), Some(recoverable())), 0);
        }
        assert_eq!(lock(&session.members).lost.len(), 2, "as many as it may have connections");
        let place = Place::new(Limits { lost_bytes: 10, ..Limits::default() });
        let session = place.establish(&login(0, 0), key(), 1).unwrap();
        assert_eq!(place.remove_connection(&session, 0, 1, Some(recoverable())), 1, "above lost_bytes");
        // Many lost sessions.
        let place = Place::new(Limits { lost_sessions: 10, sessions: 12, ..Limits::default() });
        for n in 0..100 {
            let key = SessionKey { isid: [n; 6], ..key() };
            let session = place.establish(&login(0, 0), key, n.into()).unwrap();
            let _ = place.remove_connection(&session, 0, n.into(), Some(recoverable()));
        }
        assert_eq!(place.sessions.sessions(), 10);
        // Lost sessions do not block new ones.
        let place = Place::new(Limits { sessions: 2, ..Limits::default() });
        for n in 0..100 {
            let key = SessionKey { isid: [n; 6], ..key() };
            let session = place.establish(&login(0, 0), key, n.into()).unwrap();
            let _ = place.remove_connection(&session, 0, n.into(), Some(recoverable()));
        }
    }

    /// TSIH 0 asks for a new session.
    #[test]
    fn identifying_handles_are_neither_zero_nor_taken() {
        let place = Place::new(Limits::default());
        place.sessions.next_instance.store(65_534, Ordering::Relaxed);
        let handle = |n: u8| {
            let key = SessionKey { isid: [n; 6], ..key() };
            place.establish(&login(0, 0), key, n.into()).unwrap().tsih
        };
        // Instances 65,535 and 65,536, and one whose handle the second of them has taken.
        assert_eq!([1, 2, 3].map(handle), [65_535, 1, 2]);
    }

    #[test]
    fn connections_and_sessions_are_limited() {
        let limits = Limits { connections: 2, connections_per_address: 1, sessions: 1, ..Limits::default() };
        let place = Place::new(limits);
        let (sessions, limits) = (&place.sessions, &place.limits);
        assert!(sessions.enter(1, &mailbox(), HERE, limits).is_ok());
        assert!(sessions.enter(2, &mailbox(), HERE, limits).unwrap_err().contains("one address"));
        let there = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        assert!(sessions.enter(2, &mailbox(), there, limits).is_ok());
        assert!(sessions.enter(3, &mailbox(), [127, 0, 0, 3].into(), limits).is_err());
        sessions.leave(1);
        assert!(sessions.enter(3, &mailbox(), HERE, limits).is_ok());
        assert!(place.establish(&login(0, 0), key(), 2).is_ok());
        let other = SessionKey { isid: [2; 6], ..key() };
        assert_eq!(place.establish(&login(0, 0), other, 3).map(|s| s.tsih), Err(Status::OUT_OF_RESOURCES));
        assert!(place.establish(&login(0, 0), key(), 3).is_ok(), "reinstatement needs no further slot");
    }

    #[test]
    fn unfinished_logins_are_evicted_for_another_address() {
        let limits = Limits { connections: 20, connections_per_address: 20, logins: 10, ..Limits::default() };
        let sessions = Sessions::default();
        let flood: Vec<_> = (0..10).map(|_| mailbox()).collect();
        for (id, mailbox) in (0..).zip(&flood) {
            sessions.enter(id, mailbox, HERE, &limits).unwrap();
        }
        assert!(sessions.enter(10, &mailbox(), HERE, &limits).is_err(), "not for the same address");
        let honest = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        assert!(sessions.enter(11, &mailbox(), honest, &limits).is_ok());
        assert!(matches!(flood[0].take()[..], [Notice::Drop(_)]), "the oldest");
        assert!(flood[1..].iter().all(|mailbox| mailbox.take().is_empty()));
        // A connection in full feature phase is not evicted.
        let place = Place { sessions, limits, memory: Memory::new(0), now: Instant::now() };
        let steady = mailbox();
        place.sessions.leave(11);
        place.sessions.enter(11, &steady, honest, &place.limits).unwrap();
        place.establish(&login(0, 0), key(), 11).unwrap();
        for id in 12..40 {
            let _ = place.sessions.enter(id, &mailbox(), [127, 0, 1, id as u8].into(), &place.limits);
        }
        assert!(lock(&place.sessions.connections).mailboxes().any(|mailbox| Arc::ptr_eq(mailbox, &steady)));
    }
}
