//! Who is connected, which connections make a session, and what one session has to tell another.

use std::collections::BTreeMap;
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
use scsi::{Lun, Nexus, UnitAttention};

use crate::admission::network;
use crate::config::Limits;
use crate::disks::{Table, Unit};
use crate::execute::Gathering;
use crate::fence::{Epoch, NexusTasks};
use crate::jobs::Done;
use crate::memory::{Memory, Share};
use crate::reads::Read;

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

/// What makes a session the same session (RFC 7143 4.4.1: I_T nexus with its ISID), and who has proven to own it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SessionKey {
    /// In lower case: names are compared after normalisation.
    pub(crate) initiator_name: String,
    pub(crate) isid: [u8; 6],
    pub(crate) target_name: String,
    pub(crate) portal_group: u16,
    /// The CHAP user that the initiator has proven to be, where it had to.
    pub(crate) user: Option<String>,
}

impl SessionKey {
    /// Whether both are the same I_T nexus, whoever has proven to own it.
    fn is_same_nexus(&self, other: &Self) -> bool {
        let Self { initiator_name, isid, target_name, portal_group, user: _ } = self;
        (initiator_name, isid, target_name, portal_group)
            == (&other.initiator_name, &other.isid, &other.target_name, &other.portal_group)
    }

    /// Whether both are sessions of one initiator, by name and proven user.
    fn is_same_initiator(&self, other: &Self) -> bool {
        self.initiator_name == other.initiator_name && self.user == other.user
    }

    /// The initiator port (SAM: iSCSI name and ISID, RFC 7143 4.4.1).
    fn port(&self) -> String {
        let isid = self.isid.iter().fold(0_u64, |all, &byte| all << 8 | u64::from(byte));
        format!("{},i,{isid:#014x}", self.initiator_name)
    }
}

/// One session, shared by the threads of its connections.
#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) tsih: u16,
    /// Tells it from every other session of the target.
    pub(crate) instance: u64,
    /// [`Nexus::name`].
    pub(crate) nexus_name: String,
    pub(crate) key: SessionKey,
    /// What was agreed with its first connection.
    pub(crate) parameters: Parameters,
    pub(crate) commands: Arc<CommandSequence>,
    pub(crate) nexus: Mutex<Nexus>,
    members: Mutex<Members>,
    has_begun: AtomicBool,
    /// The disks that the initiator sees.
    view: Mutex<Option<Arc<Table>>>,
    /// Changes of the disks that the initiator has not been sent a message of.
    news: Mutex<Vec<(Lun, UnitAttention)>>,
    /// Its tasks by logical unit.
    tasks: Mutex<TasksByLun>,
    /// It may begin no task any more, nor may a connection join it.
    is_closed: AtomicBool,
}

type TasksByLun = BTreeMap<u16, (Arc<Unit>, Arc<NexusTasks>)>;

/// The connections of a session, by CID.
#[derive(Debug, Default)]
struct Members {
    connections: BTreeMap<u16, Member>,
    lost: BTreeMap<u16, Lost>,
}

#[derive(Debug)]
struct Member {
    id: u64,
    mailbox: Arc<Mailbox>,
}

/// What a lost connection leaves to its session (ErrorRecoveryLevel 2).
#[derive(Debug, Default)]
pub(crate) struct Remains {
    pub(crate) parked: Parked,
    pub(crate) gathering: Gathering,
    /// Reads whose answers were not complete, by tag: they begin again.
    pub(crate) reads: BTreeMap<u32, Read>,
}

impl Remains {
    fn is_empty(&self) -> bool {
        self.parked.is_empty() && self.reads.is_empty()
    }

    fn bytes(&self) -> usize {
        self.parked.bytes() + self.gathering.bytes() + self.reads.len() * size_of::<Read>()
    }
}

/// What a lost connection has left, and until when it is kept.
#[derive(Debug)]
struct Lost {
    remains: Remains,
    until: Instant,
    _share: Share,
    bytes: usize,
}

impl Session {
    /// Whether it begins with this call: true once, for its first connection.
    pub(crate) fn begins(&self) -> bool {
        !self.has_begun.swap(true, Ordering::AcqRel)
    }

    /// What lost connections have left, to go on with.
    pub(crate) fn with_lost<R>(&self, mut take: impl FnMut(&mut Remains) -> Option<R>) -> Option<R> {
        lock(&self.members).lost.values_mut().find_map(|lost| take(&mut lost.remains))
    }

    /// The connection with this CID, if it is there; and whether one with it was lost.
    pub(crate) fn has(&self, cid: u16) -> (Option<u64>, bool) {
        let members = lock(&self.members);
        (members.connections.get(&cid).map(|member| member.id), members.lost.contains_key(&cid))
    }

    /// Whether there is no connection but this one.
    pub(crate) fn is_alone(&self, id: u64) -> bool {
        lock(&self.members).connections.values().all(|member| member.id == id)
    }

    /// Posts a notice to all of its connections.
    pub(crate) fn post(&self, notice: Notice) {
        lock(&self.members).connections.values().for_each(|member| member.mailbox.post(notice));
    }

    /// Posts a notice to all of its connections but this one.
    pub(crate) fn post_to_others(&self, id: u64, notice: Notice) {
        let members = lock(&self.members);
        let others = members.connections.values().filter(|member| member.id != id);
        others.for_each(|member| member.mailbox.post(notice));
    }

    /// Ends another connection of it; whether there was one.
    pub(crate) fn end_connection(&self, cid: u16, notice: Notice) -> bool {
        let members = lock(&self.members);
        members.connections.get(&cid).map(|member| member.mailbox.post(notice)).is_some()
    }

    /// Forgets what lost connections have left.
    pub(crate) fn forget_lost(&self) {
        lock(&self.members).lost.clear();
    }

    /// The disks that the initiator sees now.
    pub(crate) fn view(&self) -> Option<Arc<Table>> {
        lock(&self.view).clone()
    }

    /// Whether the initiator sees a logical unit.
    pub(crate) fn sees(&self, lun: Lun) -> bool {
        lock(&self.view).as_ref().is_some_and(|view| view.unit(lun).is_some())
    }

    /// These are the disks that the initiator sees from now on. What changed is established as unit attentions, once
    /// for the session; tasks at what is gone are aborted, and the epochs that may still last are handed out.
    pub(crate) fn set_view(&self, view: &Arc<Table>) -> Vec<Arc<Epoch>> {
        let news = {
            let mut there = lock(&self.view);
            let news = there.as_ref().map(|before| view.news(before)).unwrap_or_default();
            *there = Some(Arc::clone(view));
            news
        };
        let mut nexus = lock(&self.nexus);
        let mut waiting = lock(&self.news);
        for (lun, attention) in news {
            nexus.raise(lun, attention);
            // That the list has changed is told once, at whatever logical unit.
            let is_told =
                waiting.iter().any(|(l, a)| *a == attention && (*l == lun || a.is_about_the_list()));
            if !is_told {
                waiting.push((lun, attention));
            }
        }
        drop((nexus, waiting));
        let mut tasks = lock(&self.tasks);
        let mut ended = Vec::new();
        tasks.retain(|&lun, (unit, tasks)| {
            let stays = view.unit(Lun(lun)).is_some_and(|now| Arc::ptr_eq(now, unit));
            if !stays {
                ended.extend(tasks.close());
            }
            stays
        });
        drop(tasks);
        self.post(Notice::Disks);
        ended
    }

    /// What the initiator is to be sent messages of: handed out once.
    pub(crate) fn take_news(&self) -> Vec<(Lun, UnitAttention)> {
        std::mem::take(&mut *lock(&self.news))
    }

    /// The session's tasks at a logical unit; nothing once it has ended.
    pub(crate) fn tasks_at(self: &Arc<Self>, lun: Lun, unit: &Arc<Unit>) -> Option<Arc<NexusTasks>> {
        let mut tasks = lock(&self.tasks);
        if self.is_closed.load(Ordering::Acquire) || !self.sees(lun) {
            return None;
        }
        if let Some((there, mine)) = tasks.get(&lun.0)
            && Arc::ptr_eq(there, unit)
        {
            return Some(Arc::clone(mine));
        }
        let mine = unit.nexuses.join(self);
        let old = tasks.insert(lun.0, (Arc::clone(unit), Arc::clone(&mine)));
        old.inspect(|(_, old)| drop(old.close()));
        Some(mine)
    }

    /// Whether it has ended: no task begins any more, and its connections are dropped.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Aborts the session's tasks at a logical unit; the epochs that may still last.
    pub(crate) fn abort_tasks(&self, lun: Lun) -> Vec<Arc<Epoch>> {
        let tasks = lock(&self.tasks).get(&lun.0).map(|(_, tasks)| Arc::clone(tasks));
        tasks.map(|tasks| tasks.abort(None)).unwrap_or_default()
    }

    /// Aborts all tasks of the session, and lets none come any more; the epochs that may still last.
    pub(crate) fn close_tasks(&self) -> Vec<Arc<Epoch>> {
        let all = {
            let tasks = lock(&self.tasks);
            self.is_closed.store(true, Ordering::Release);
            tasks.values().map(|(_, tasks)| Arc::clone(tasks)).collect::<Vec<_>>()
        };
        // Also whoever closes it after another is told what still lasts.
        all.iter().flat_map(|tasks| tasks.close()).collect()
    }
}

#[derive(Debug)]
struct Connected {
    mailbox: Arc<Mailbox>,
    address: IpAddr,
    is_logged_in: bool,
}

/// All connections and sessions of a target. Ordered maps, so that a run with the same input is the same run.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    connections: Mutex<BTreeMap<u64, Connected>>,
    sessions: Mutex<BTreeMap<u64, Arc<Session>>>,
    next_instance: AtomicU64,
}

/// A session that a login has begun or joined, and the sessions that ended by it.
#[derive(Debug)]
pub(crate) struct Established {
    pub(crate) session: Arc<Session>,
    pub(crate) ended: Vec<Arc<Session>>,
}

impl Sessions {
    /// Takes a place for a connection. Where all places are taken, a login in progress of the address that has most
    /// of them gives way, unless that is the newcomer's own.
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
        let address = network(address);
        let mut connections = lock(&self.connections);
        let same = connections.values().filter(|connected| connected.address == address).count();
        if same >= limits.connections_per_address {
            return Err("the limit of connections from one address is reached");
        }
        let logins = connections.values().filter(|connected| !connected.is_logged_in).count();
        if logins >= limits.logins || connections.len() >= limits.connections {
            let mut by_address = BTreeMap::new();
            for (&id, connected) in connections.iter().filter(|(_, connected)| !connected.is_logged_in) {
                by_address.entry(connected.address).or_insert((0, id)).0 += 1;
            }
            let own = by_address.get(&address).map_or(0, |&(count, _)| count);
            let most = by_address.into_values().max_by_key(|&(count, _)| count);
            let Some((_, oldest)) = most.filter(|&(count, _)| count > own.max(1)) else {
                return Err("the limit of connections is reached");
            };
            if let Some(gives_way) = connections.remove(&oldest) {
                gives_way.mailbox.post(Notice::Drop("its place was needed by another address"));
            }
        }
        let connected = Connected { mailbox: Arc::clone(mailbox), address, is_logged_in: false };
        connections.insert(id, connected);
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

    /// All sessions, as they are now.
    pub(crate) fn all(&self) -> Vec<Arc<Session>> {
        lock(&self.sessions).values().map(Arc::clone).collect()
    }

    /// The session that a login is to join.
    ///
    /// # Errors
    /// Why it cannot (RFC 7143 6.3.1).
    pub(crate) fn find(&self, login: &LoggedIn, key: &SessionKey) -> Result<Arc<Session>, Status> {
        let sessions = lock(&self.sessions);
        let found = sessions.values().find(|session| session.tsih == login.tsih);
        let session = found.ok_or(Status::SESSION_DOES_NOT_EXIST)?;
        let elsewhere = SessionKey { portal_group: session.key.portal_group, ..key.clone() };
        if session.key.portal_group != key.portal_group && session.key == elsewhere {
            return Err(Status::CANNOT_INCLUDE);
        }
        // That there is a session of another user is nobody's business.
        if session.key != *key {
            return Err(Status::SESSION_DOES_NOT_EXIST);
        }
        Ok(Arc::clone(session))
    }

    /// Connection `id` enters its full feature phase: with a new session, which takes the place of an older one
    /// of the same nexus (RFC 7143 6.3.5), or in the one that it joins, where it takes the place of an older
    /// connection with its CID (6.3.4).
    ///
    /// # Errors
    /// Why it cannot: another user's session is never taken over, as long as users must prove who they are.
    pub(crate) fn establish(
        &self,
        login: &LoggedIn,
        (key, must_prove): (SessionKey, bool),
        (id, mailbox): (u64, &Arc<Mailbox>),
        limits: &Limits,
    ) -> Result<Established, Status> {
        let member = || Member { id, mailbox: Arc::clone(mailbox) };
        if login.tsih != 0 {
            let session = self.find(login, &key)?;
            let old = {
                let mut members = lock(&session.members);
                // Whoever ends the session closes it first, and then drops the members that it finds.
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
        let old = sessions.iter().find(|(_, session)| session.key.is_same_nexus(&key));
        let old = match old {
            Some((_, session)) if must_prove && session.key.user != key.user => {
                return Err(Status::AUTHORIZATION_FAILURE);
            }
            Some((&instance, _)) => sessions.remove(&instance),
            None => None,
        };
        let mut ended: Vec<Arc<Session>> = old.into_iter().collect();
        if sessions.len() >= limits.sessions {
            // A session without connections gives way to one that has.
            match Self::oldest_orphan(&sessions) {
                Some(instance) => ended.extend(sessions.remove(&instance)),
                None => return Err(Status::OUT_OF_RESOURCES),
            }
        }
        let instance = self.next_instance.fetch_add(1, Ordering::Relaxed) + 1;
        // TSIH 0 is reserved for "new session"; there are fewer sessions than numbers.
        let is_free = |n: &u16| *n != 0 && sessions.values().all(|session| session.tsih != *n);
        let tsih = (instance as u16..=u16::MAX).chain(1..=u16::MAX).find(is_free);
        let Some(tsih) = tsih else { return Err(Status::OUT_OF_RESOURCES) };
        let nexus = Nexus::new(&key.port(), key.portal_group, instance).proven(key.user.as_deref());
        let session = Arc::new(Session {
            tsih,
            instance,
            nexus_name: nexus.name().to_owned(),
            parameters: login.parameters.clone(),
            commands: Arc::new(CommandSequence::new(login.exp_cmd_sn, limits.window)),
            nexus: Mutex::new(nexus),
            members: Mutex::new(Members {
                connections: BTreeMap::from([(login.cid, member())]),
                lost: BTreeMap::new(),
            }),
            has_begun: AtomicBool::new(false),
            view: Mutex::new(None),
            news: Mutex::default(),
            tasks: Mutex::default(),
            is_closed: AtomicBool::new(false),
            key,
        });
        // Whoever changes what initiators see finds it from here on.
        sessions.insert(instance, Arc::clone(&session));
        drop(sessions);
        for old in &ended {
            // From here on nothing of it changes a disk, however long its connections take to end.
            drop(old.close_tasks());
            old.post(Notice::Drop("the session was reinstated by a new login"));
        }
        self.is_logged_in(id);
        Ok(Established { session, ended })
    }

    fn is_logged_in(&self, id: u64) {
        if let Some(connected) = lock(&self.connections).get_mut(&id) {
            connected.is_logged_in = true;
        }
    }

    /// The session without connections whose remains are given up first.
    fn oldest_orphan(sessions: &BTreeMap<u64, Arc<Session>>) -> Option<u64> {
        let orphans = sessions.iter().filter_map(|(&instance, session)| {
            let members = lock(&session.members);
            let until = members.lost.values().map(|lost| lost.until).max()?;
            members.connections.is_empty().then_some((until, instance))
        });
        orphans.min().map(|(_, instance)| instance)
    }

    /// Connection `id` has left its session; what it leaves is kept for a while, as far as the limits allow. The
    /// sessions that end with it.
    pub(crate) fn part(
        &self,
        session: &Arc<Session>,
        (cid, id): (u16, u64),
        remains: Option<Remains>,
        (limits, memory, now): (&Limits, &Arc<Memory>, Instant),
    ) -> Vec<Arc<Session>> {
        let mut members = lock(&session.members);
        if members.connections.get(&cid).is_some_and(|member| member.id == id) {
            members.connections.remove(&cid);
        }
        // Sessions with nothing to recover are not kept.
        if let Some(remains) = remains.filter(|remains| !remains.is_empty()) {
            let (p, bytes) = (&session.parameters, remains.bytes());
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
                members.lost.insert(cid, Lost { remains, until, _share: share, bytes });
            }
        }
        let ends = members.connections.is_empty() && members.lost.is_empty();
        let is_orphan = members.connections.is_empty();
        drop(members);
        let mut sessions = lock(&self.sessions);
        if ends {
            sessions.remove(&session.instance);
            return vec![Arc::clone(session)];
        }
        let mut ended = Vec::new();
        if is_orphan {
            let is_orphan = |session: &&Arc<Session>| lock(&session.members).connections.is_empty();
            let orphans = sessions.values().filter(is_orphan).count();
            if orphans > limits.lost_sessions {
                let oldest = Self::oldest_orphan(&sessions);
                ended.extend(oldest.and_then(|instance| sessions.remove(&instance)));
            }
        }
        ended
    }

    /// Forgets what lost connections have left and was not taken up in time; the sessions that end with that.
    pub(crate) fn expire(&self, now: Instant) -> Vec<Arc<Session>> {
        let expires = |session: &Session| {
            let mut members = lock(&session.members);
            let before = members.lost.len();
            members.lost.retain(|_, lost| lost.until > now);
            before > members.lost.len() && members.lost.is_empty() && members.connections.is_empty()
        };
        let ended: Vec<_> = self.all().into_iter().filter(|session| expires(session)).collect();
        let mut sessions = lock(&self.sessions);
        ended.iter().for_each(|session| drop(sessions.remove(&session.instance)));
        ended
    }

    /// Establishes a unit attention at every session that sees the logical unit, and that `tells` chooses.
    pub(crate) fn raise(&self, lun: Lun, attention: UnitAttention, tells: impl Fn(&Session) -> bool) {
        for session in self.all() {
            if tells(&session) && session.sees(lun) {
                lock(&session.nexus).raise(lun, attention);
            }
        }
    }

    /// Ends the sessions of the initiator of this one, by name and proven user, all their connections but `id`.
    pub(crate) fn end_initiator(&self, of: &Session, id: u64, reason: &'static str) -> Vec<Arc<Epoch>> {
        let mut epochs = Vec::new();
        for session in self.all() {
            if session.key.is_same_initiator(&of.key) && session.instance != of.instance {
                epochs.extend(session.close_tasks());
                session.post(Notice::Drop(reason));
            }
        }
        of.post_to_others(id, Notice::Drop(reason));
        epochs
    }

    /// Posts a notice to every connection.
    pub(crate) fn post_to_all(&self, notice: Notice) {
        for connected in lock(&self.connections).values() {
            connected.mailbox.post(notice);
        }
    }

    /// Posts a notice to the connections of the sessions that `chosen` chooses; how many.
    pub(crate) fn post_to_sessions(&self, chosen: impl Fn(&SessionKey) -> bool, notice: Notice) -> usize {
        let all = self.all();
        let chosen = all.iter().filter(|session| chosen(&session.key));
        chosen
            .map(|session| {
                session.post(notice);
                lock(&session.members).connections.len()
            })
            .sum()
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

    #[test]
    fn a_job_that_ends_while_notices_are_taken_still_wakes() {
        let mailbox = mailbox();
        mailbox.post(Notice::Sweep);
        assert!(mailbox.take_done().is_empty());
        mailbox.done(Done::example());
        assert_eq!(mailbox.take().len(), 1);
        assert!(mailbox.has_mail() && mailbox.wake.read().is_ok(), "the bell rings for the job");
        assert_eq!(mailbox.take_done().len(), 1);
        assert!(!mailbox.has_mail());
    }

    fn login(tsih: u16, cid: u16) -> LoggedIn {
        LoggedIn {
            initiator_name: "iqn.i".into(),
            user: None,
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
            self.establish_where(login, (key, true), id)
        }

        fn establish_where(
            &self,
            login: &LoggedIn,
            key: (SessionKey, bool),
            id: u64,
        ) -> Result<Arc<Session>, Status> {
            let established = self.sessions.establish(login, key, (id, &mailbox()), &self.limits);
            established.map(|established| established.session)
        }

        fn part(&self, session: &Arc<Session>, cid: u16, id: u64, remains: Option<Remains>) -> usize {
            let bounds = (&self.limits, &self.memory, self.now);
            self.sessions.part(session, (cid, id), remains, bounds).len()
        }

        fn expire(&self, after: Duration) -> usize {
            self.sessions.expire(self.now + after).len()
        }
    }

    /// What a lost connection leaves that has one read to go on with.
    fn remains() -> Remains {
        Remains { reads: BTreeMap::from([(7, Read::example())]), ..Remains::default() }
    }

    #[test]
    fn a_second_login_of_a_session_drops_the_first_connection() {
        let place = Place::new(Limits::default());
        let (sessions, limits) = (&place.sessions, &place.limits);
        let (old, new) = (mailbox(), mailbox());
        sessions.enter(1, &old, HERE, limits).unwrap();
        sessions.enter(2, &new, HERE, limits).unwrap();
        let establish =
            |id, mailbox| sessions.establish(&login(0, 0), (key(), true), (id, mailbox), limits).unwrap();
        let (first, second) = (establish(1, &old).session, establish(2, &new));
        assert!(Arc::ptr_eq(&second.ended[0], &first));
        let second = second.session;
        assert!(first.tsih != 0 && second.tsih != 0 && first.tsih != second.tsih);
        assert!(matches!(old.take()[..], [Notice::Drop(_)]));
        assert!(new.take().is_empty());
        // The old connection's end must not take the new session with it.
        assert_eq!(place.part(&first, 0, 1, None), 1);
        sessions.leave(1);
        assert_eq!((sessions.connections(), sessions.sessions()), (1, 1));
    }

    #[test]
    fn a_session_of_another_user_is_neither_reinstated_nor_joined() {
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
        // Where nobody is asked for a proof any more, its owner could give none either.
        assert!(place.establish_where(&login(0, 0), (key(), false), 6).is_ok());
    }

    #[test]
    fn connections_join_a_session_up_to_its_limit_and_replace_their_like() {
        let place = Place::new(Limits::default());
        let (sessions, limits) = (&place.sessions, &place.limits);
        let boxes: Vec<_> = (0..4).map(|_| mailbox()).collect();
        let establish = |login: &LoggedIn, key, id: usize| {
            sessions.establish(login, (key, true), (id as u64, &boxes[id]), limits).map(|e| e.session)
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
        assert_eq!((place.part(&session, 1, 3, None), place.part(&session, 0, 0, None)), (0, 1));
        assert_eq!(join(0, 0, key()), Err(Status::SESSION_DOES_NOT_EXIST));
    }

    #[test]
    fn a_lost_connection_keeps_its_session_until_its_time_is_over() {
        let place = Place::new(Limits { retain_time: Duration::from_secs(30), ..Limits::default() });
        let mut first = login(0, 0);
        first.parameters.time2wait = 3600;
        let session = place.establish(&first, key(), 1).unwrap();
        assert_eq!(place.part(&session, 0, 1, Some(remains())), 0);
        assert!(place.sessions.sessions() == 1 && place.memory.used() > 0);
        assert_eq!(place.expire(Duration::from_secs(29)), 0);
        // Whatever the initiator asked for, the configuration bounds it.
        assert_eq!(place.expire(Duration::from_secs(31)), 1);
        drop(session);
        assert_eq!((place.sessions.sessions(), place.memory.used()), (0, 0));
    }

    #[test]
    fn a_session_with_nothing_to_recover_is_not_kept() {
        let place = Place::new(Limits::default());
        let session = place.establish(&login(0, 0), key(), 1).unwrap();
        assert_eq!(place.part(&session, 0, 1, Some(Remains::default())), 1);
        assert_eq!(place.sessions.sessions(), 0);
    }

    #[test]
    fn what_lost_connections_leave_is_bounded_in_number_and_bytes() {
        // One session that loses connection after connection.
        let place = Place::new(Limits::default());
        let session = place.establish(&login(0, 0), key(), 1).unwrap();
        for cid in 1..100 {
            place.establish(&login(session.tsih, cid), key(), 1 + u64::from(cid)).unwrap();
            assert_eq!(place.part(&session, cid, 1 + u64::from(cid), Some(remains())), 0);
        }
        assert_eq!(lock(&session.members).lost.len(), 2, "as many as it may have connections");
        let place = Place::new(Limits { lost_bytes: 10, ..Limits::default() });
        let session = place.establish(&login(0, 0), key(), 1).unwrap();
        assert_eq!(place.part(&session, 0, 1, Some(remains())), 1, "too large to be kept");
        // Many sessions that are left behind.
        let place = Place::new(Limits { lost_sessions: 10, sessions: 12, ..Limits::default() });
        for n in 0..100 {
            let key = SessionKey { isid: [n; 6], ..key() };
            let session = place.establish(&login(0, 0), key, n.into()).unwrap();
            let _ = place.part(&session, 0, n.into(), Some(remains()));
        }
        assert_eq!(place.sessions.sessions(), 10);
        // And neither do they shut out those that come.
        let place = Place::new(Limits { sessions: 2, ..Limits::default() });
        for n in 0..100 {
            let key = SessionKey { isid: [n; 6], ..key() };
            let session = place.establish(&login(0, 0), key, n.into()).unwrap();
            let _ = place.part(&session, 0, n.into(), Some(remains()));
        }
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
        assert!(place.establish(&login(0, 0), key(), 3).is_ok(), "reinstatement needs no more room");
    }

    #[test]
    fn logins_that_never_end_give_way_to_another_address() {
        let limits = Limits { connections: 20, connections_per_address: 20, logins: 10, ..Limits::default() };
        let sessions = Sessions::default();
        let flood: Vec<_> = (0..10).map(|_| mailbox()).collect();
        for (id, mailbox) in (0..).zip(&flood) {
            sessions.enter(id, mailbox, HERE, &limits).unwrap();
        }
        assert!(sessions.enter(10, &mailbox(), HERE, &limits).is_err(), "not to its own");
        let honest = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2));
        assert!(sessions.enter(11, &mailbox(), honest, &limits).is_ok());
        assert!(matches!(flood[0].take()[..], [Notice::Drop(_)]), "the oldest");
        assert!(flood[1..].iter().all(|mailbox| mailbox.take().is_empty()));
        // Who has logged in stays.
        let place = Place { sessions, limits, memory: Memory::new(0), now: Instant::now() };
        place.establish(&login(0, 0), key(), 11).unwrap();
        for id in 12..40 {
            let _ = place.sessions.enter(id, &mailbox(), [127, 0, 1, id as u8].into(), &place.limits);
        }
        assert!(lock(&place.sessions.connections).contains_key(&11));
    }

    #[test]
    fn a_mailbox_cannot_be_filled() {
        let mailbox = mailbox();
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
