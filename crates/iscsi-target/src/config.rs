//! The configuration of a target.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iscsi::Wishes;
use iscsi::login::target::{Authentication, Moved};
use store::Store;

use policy::SendPolicy;
use socket::options::TcpOptions;

/// A disk: its number, its store and its geometry.
#[derive(Clone)]
pub struct LunConfig {
    /// Logical unit number, 0 to 255.
    pub number: u16,
    /// The store that holds its blocks.
    pub store: Arc<dyn Store>,
    /// Logical block length, bytes.
    pub block_bytes: u32,
    /// Physical block length, bytes: the logical block length times a power of two.
    pub physical_bytes: u32,
    /// Whether its medium can be ejected and loaded.
    pub removable: bool,
}

impl LunConfig {
    /// Returns a non-removable disk with blocks of 512 bytes.
    #[must_use]
    pub fn new(number: u16, store: Arc<dyn Store>) -> Self {
        Self { number, store, block_bytes: 512, physical_bytes: 512, removable: false }
    }
}

/// The access rules: which initiators may log in and what each sees.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// CHAP names and secrets.
    pub authentication: Authentication,
    /// The InitiatorNames that each CHAP user may log in with. A user without an entry may use none.
    pub users: BTreeMap<String, ActsFor>,
    /// Whether discovery sessions must authenticate.
    pub discovery: bool,
    /// The initiators that may use the target, and what each sees. Empty: every initiator that can authenticate.
    pub initiators: Vec<Initiator>,
}

/// The InitiatorNames that a CHAP user may log in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActsFor {
    /// Every name that no other user is bound to.
    Any,
    /// These names only.
    Names(Vec<String>),
}

impl ActsFor {
    fn names(&self, name: &str) -> bool {
        matches!(self, Self::Names(names) if names.iter().any(|n| n.eq_ignore_ascii_case(name)))
    }
}

/// An initiator that may use the target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Initiator {
    /// Its iSCSI name.
    pub name: String,
    /// The numbers of the disks that it sees; `None` for all.
    pub luns: Option<Vec<u16>>,
}

impl Access {
    /// Returns the entry of an initiator.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Initiator> {
        // RFC 7143 4.2.7.2 compares names after normalisation; for the ASCII names accepted here that is case folding.
        self.initiators.iter().find(|initiator| initiator.name.eq_ignore_ascii_case(name))
    }

    /// Returns whether an initiator may use the target. `user` is the authenticated CHAP user; a session without one
    /// is admitted only where no secrets are configured.
    #[must_use]
    pub fn admits(&self, name: &str, user: Option<&str>) -> bool {
        self.lists(name)
            && (self.authentication.initiators.is_empty()
                || user.is_some_and(|user| self.may_act_for(user, name)))
    }

    /// Returns whether the list of initiators contains this name, or is empty.
    #[must_use]
    pub fn lists(&self, name: &str) -> bool {
        self.initiators.is_empty() || self.of(name).is_some()
    }

    /// Returns whether a CHAP user may log in with this InitiatorName. A name that is bound to users is reserved for
    /// them.
    #[must_use]
    pub fn may_act_for(&self, user: &str, name: &str) -> bool {
        match self.users.get(user) {
            Some(ActsFor::Any) => !self.users.values().any(|other| other.names(name)),
            Some(bound) => bound.names(name),
            None => false,
        }
    }

    /// Returns whether an initiator sees the disk with this number. An unlisted initiator sees none.
    #[must_use]
    pub fn shows(&self, name: &str, number: u16) -> bool {
        match self.of(name) {
            Some(initiator) => initiator.luns.as_ref().is_none_or(|luns| luns.contains(&number)),
            None => self.initiators.is_empty(),
        }
    }
}

/// A listening address with its portal group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// The address to listen on; port 0 takes any free port.
    pub listen: SocketAddr,
    /// The portal group: the connections of a session share one, and each group is a SCSI target port of its own.
    pub group: u16,
    /// The address reported to initiators, where it differs from the one they connect to (behind a router).
    pub advertise: Option<SocketAddr>,
    /// Redirects logins to another address.
    pub moved: Option<Moved>,
}

impl Portal {
    /// Returns a portal of group 1.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, group: 1, advertise: None, moved: None }
    }
}

/// The threads that serve connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Threads {
    /// An event loop for each of [`TargetConfig::cpus`], or for each CPU that the process may use where none is given.
    #[default]
    PerCpu,
    /// So many event loops.
    Loops(usize),
    /// One for each connection.
    PerConnection,
}

impl Threads {
    /// The number of event loops, where `pinned` CPUs are given; none with a thread for each connection.
    #[must_use]
    pub fn loops(self, pinned: usize) -> usize {
        match self {
            Self::PerConnection => 0,
            Self::Loops(count) => count,
            Self::PerCpu if pinned > 0 => pinned,
            Self::PerCpu => std::thread::available_parallelism().map_or(1, NonZero::get),
        }
    }
}

/// The configuration of a target.
#[derive(Clone)]
pub struct TargetConfig {
    /// The portals; at least one.
    pub portals: Vec<Portal>,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The disks.
    pub luns: Vec<LunConfig>,
    /// When responses are sent.
    pub send: SendPolicy,
    /// The threads that serve connections.
    pub threads: Threads,
    /// How long a thread polls its sockets before it sleeps; zero sleeps at once. Polling uses a full core.
    pub busy_poll: Duration,
    /// The CPUs that these threads are pinned to, round-robin; empty leaves the choice to the kernel.
    pub cpus: Vec<usize>,
    /// The values to offer in login negotiation.
    pub wishes: Wishes,
    /// Socket options of the connections. The send policy sets Nagle's algorithm.
    pub tcp: TcpOptions,
    /// The access rules; `None` admits every initiator.
    pub access: Option<Access>,
    /// The resource limits.
    pub limits: Limits,
    /// The folder for state that survives a restart: persistent reservations with APTPL and saved mode pages. Without
    /// one nothing is persistent, and the target reports that to initiators.
    pub state: Option<PathBuf>,
    /// Record kernel timestamps of up to this many operations per connection. They become available when the
    /// connection ends (see [`crate::RunningTarget::take_ops`]).
    pub stamp_operations: Option<usize>,
}

impl TargetConfig {
    /// Returns a target with defaults for everything but its portal, name and disks.
    #[must_use]
    pub fn new(portal: SocketAddr, iqn: impl Into<String>, luns: Vec<LunConfig>) -> Self {
        Self {
            portals: vec![Portal::new(portal)],
            iqn: iqn.into(),
            luns,
            send: SendPolicy::default(),
            threads: Threads::default(),
            busy_poll: Duration::ZERO,
            cpus: Vec::new(),
            wishes: Wishes::default(),
            tcp: TcpOptions { nodelay: true, ..TcpOptions::default() },
            access: None,
            limits: Limits::default(),
            state: None,
            stamp_operations: None,
        }
    }
}

/// Bounds on the resources that peers can make the target hold, and on how long it waits for them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once, logins in progress included.
    pub connections: usize,
    /// Most connections at once from one address.
    pub connections_per_address: usize,
    /// Most logins in progress at once. At the limit, the oldest login of the address with the most of them is dropped.
    pub logins: usize,
    /// Most sessions at once, discovery sessions included.
    pub sessions: usize,
    /// Most connections admitted per second over all addresses; others are queued.
    pub accepts_per_second: u32,
    /// Most connections admitted per second from one address.
    pub accepts_per_address: u32,
    /// Bytes that all connections together may hold for commands in flight: gathered data, reads of slow disks,
    /// deferred commands, commands received ahead of ExpCmdSN, and recoverable tasks of lost connections; and in the first half of
    /// it, memory of disks that is lent until responses are sent (beyond that it is copied).
    pub memory_bytes: usize,
    /// Bytes that all connections together may hold to receive PDUs larger than the default buffer.
    pub receive_bytes: usize,
    /// Longest time that the tasks of a lost connection are kept (ErrorRecoveryLevel 2). It caps DefaultTime2Wait plus
    /// DefaultTime2Retain.
    pub retain_time: Duration,
    /// Bytes of recoverable tasks that the lost connections of a session may hold; tasks beyond it are dropped.
    pub lost_bytes: usize,
    /// Most sessions without a connection whose tasks are kept.
    pub lost_sessions: usize,
    /// Commands in flight per session.
    pub window: u32,
    /// Bytes of text keys in one negotiation.
    pub text_bytes: usize,
    /// Bytes of write data gathered before execution, per connection.
    pub gathered_bytes: usize,
    /// Longest time from accept to the full feature phase.
    pub login_time: Duration,
    /// A connection that is silent for this long is sent a NOP-In ping.
    pub ping_after: Duration,
    /// A connection that does not answer a ping within this time is closed.
    pub ping_answer: Duration,
    /// Bytes of commands that may be in flight at the disks, per connection; above it they are executed one at a time.
    pub job_bytes: usize,
    /// Threads for blocking disk operations, over all connections.
    pub disk_threads: usize,
    /// Bytes of abandoned commands that disks have not completed yet, over all connections. Above it, new commands for
    /// blocking disks get BUSY.
    pub abandoned_bytes: usize,
    /// Bytes of sent PDUs that a connection keeps until they are acknowledged (ErrorRecoveryLevel above 0).
    pub replay_bytes: usize,
    /// Unsent bytes per connection above which no response is made and no request is taken.
    pub unsent_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            connections_per_address: 256,
            logins: 256,
            sessions: 1024,
            accepts_per_second: 200,
            accepts_per_address: 100,
            window: 256,
            text_bytes: 64 << 10,
            memory_bytes: 96 << 20,
            receive_bytes: 64 << 20,
            retain_time: Duration::from_secs(60),
            lost_bytes: 2 << 20,
            lost_sessions: 64,
            gathered_bytes: 16 << 20,
            job_bytes: 32 << 20,
            disk_threads: 64,
            abandoned_bytes: 256 << 20,
            replay_bytes: iscsi::replay::KEPT_BYTES_MAX,
            login_time: Duration::from_secs(15),
            ping_after: Duration::from_secs(30),
            ping_answer: Duration::from_secs(30),
            unsent_bytes: 256 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn access(users: &[(&str, ActsFor)], initiators: &[&str]) -> Access {
        let credentials =
            |name: &str| iscsi::login::chap::Credentials { name: name.into(), secret: vec![1; 12] };
        Access {
            authentication: Authentication {
                initiators: users.iter().map(|(user, _)| credentials(user)).collect(),
                own: None,
            },
            users: users.iter().map(|(user, acts)| ((*user).to_owned(), acts.clone())).collect(),
            discovery: true,
            initiators: initiators.iter().map(|n| Initiator { name: (*n).into(), luns: None }).collect(),
        }
    }

    #[test]
    fn bound_names_belong_to_their_user_and_any_excludes_them() {
        let bound = ActsFor::Names(vec!["iqn.a:alice".into()]);
        let access = access(&[("alice", bound), ("ops", ActsFor::Any)], &[]);
        assert!(access.admits("IQN.A:alice", Some("alice")));
        assert!(!access.admits("iqn.b:bob", Some("alice")), "another name");
        assert!(access.admits("iqn.b:bob", Some("ops")));
        assert!(!access.admits("iqn.a:alice", Some("ops")), "a name bound to alice");
        assert!(!access.admits("iqn.a:alice", None), "not authenticated");
        assert!(!access.admits("iqn.a:alice", Some("mallory")), "no such user");
    }

    #[test]
    fn there_is_a_loop_for_each_cpu_unless_another_number_is_given() {
        let here = std::thread::available_parallelism().unwrap().get();
        assert_eq!((Threads::default().loops(0), Threads::default().loops(3)), (here, 3));
        assert_eq!((Threads::Loops(2).loops(3), Threads::PerConnection.loops(3)), (2, 0));
    }

    #[test]
    fn unlisted_initiator_sees_no_disk() {
        let access = access(&[], &["iqn.a:alice"]);
        assert!(access.admits("iqn.a:alice", None) && access.shows("iqn.a:alice", 3));
        assert!(!access.admits("iqn.b:bob", None) && !access.shows("iqn.b:bob", 3));
    }
}
