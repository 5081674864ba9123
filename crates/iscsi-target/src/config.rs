//! What a target is told to be.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use iscsi::Wishes;
use iscsi::login::target::{Authentication, Moved};
use store::Store;

use policy::SendPolicy;
use socket::options::TcpOptions;

/// One disk: its number and where its blocks are.
#[derive(Clone)]
pub struct LunConfig {
    /// Logical unit number, 0 to 255.
    pub number: u16,
    /// The blocks.
    pub store: Arc<dyn Store>,
    /// Logical block length, bytes.
    pub block_bytes: u32,
    /// Physical block length, bytes: a power of two times the logical one.
    pub physical_bytes: u32,
    /// Its medium can be ejected and loaded.
    pub removable: bool,
}

impl LunConfig {
    /// A fixed disk with blocks of 512 bytes.
    #[must_use]
    pub fn new(number: u16, store: Arc<dyn Store>) -> Self {
        Self { number, store, block_bytes: 512, physical_bytes: 512, removable: false }
    }
}

/// Who may log in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names and secrets for CHAP.
    pub authentication: Authentication,
    /// For which initiators each CHAP user may log in. A user without an entry may log in for none.
    pub users: BTreeMap<String, ActsFor>,
    /// Discovery sessions must authenticate too.
    pub discovery: bool,
    /// The initiators that may use the target, and what each sees; all that can authenticate when empty.
    pub initiators: Vec<Initiator>,
}

/// The InitiatorNames that a CHAP user may log in with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ActsFor {
    /// Any name that no other user is bound to.
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
    /// The numbers of the disks that it sees; all of them when nothing is said.
    pub luns: Option<Vec<u16>>,
}

impl Access {
    /// What is said of an initiator.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Initiator> {
        // iSCSI names are compared after normalisation; ASCII case is all there is to ours.
        self.initiators.iter().find(|initiator| initiator.name.eq_ignore_ascii_case(name))
    }

    /// Whether an initiator may use the target. `user` is the CHAP user that the initiator proved to be; a session
    /// that proved none uses the target only where no secrets are configured.
    #[must_use]
    pub fn admits(&self, name: &str, user: Option<&str>) -> bool {
        self.lists(name)
            && (self.authentication.initiators.is_empty()
                || user.is_some_and(|user| self.may_act_for(user, name)))
    }

    /// Whether the list of initiators, where there is one, has this name.
    #[must_use]
    pub fn lists(&self, name: &str) -> bool {
        self.initiators.is_empty() || self.of(name).is_some()
    }

    /// Whether a CHAP user may log in with this InitiatorName. A name that is bound to users belongs to them alone.
    #[must_use]
    pub fn may_act_for(&self, user: &str, name: &str) -> bool {
        match self.users.get(user) {
            Some(ActsFor::Any) => !self.users.values().any(|other| other.names(name)),
            Some(bound) => bound.names(name),
            None => false,
        }
    }

    /// Whether an initiator sees the disk of this number. One that a list leaves out sees none.
    #[must_use]
    pub fn shows(&self, name: &str, number: u16) -> bool {
        match self.of(name) {
            Some(initiator) => initiator.luns.as_ref().is_none_or(|luns| luns.contains(&number)),
            None => self.initiators.is_empty(),
        }
    }
}

/// A place to listen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Portal {
    /// Where; port 0 takes any free one.
    pub listen: SocketAddr,
    /// The portal group that it belongs to: connections of one session share a group, and each group is a
    /// target port of its own.
    pub group: u16,
    /// The address that initiators are told, where it is not the one they reach (behind a router).
    pub advertise: Option<SocketAddr>,
    /// Logins are sent to another address.
    pub moved: Option<Moved>,
}

impl Portal {
    /// A portal of group 1.
    #[must_use]
    pub fn new(listen: SocketAddr) -> Self {
        Self { listen, group: 1, advertise: None, moved: None }
    }
}

/// Everything a target needs to start.
#[derive(Clone)]
pub struct TargetConfig {
    /// Where to listen; at least one place.
    pub portals: Vec<Portal>,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The disks.
    pub luns: Vec<LunConfig>,
    /// When responses leave.
    pub send: SendPolicy,
    /// How long a connection's thread looks for more before it sleeps; zero sleeps at once. It costs a core.
    pub busy_poll: Duration,
    /// The CPUs that connections' threads are kept on, one after the other; the kernel's choice when empty.
    pub cpus: Vec<usize>,
    /// What to wish for in negotiations.
    pub wishes: Wishes,
    /// Socket options of the connections; whether Nagle's algorithm holds responses is the send policy's.
    pub tcp: TcpOptions,
    /// Who may log in; everybody when nothing is said.
    pub access: Option<Access>,
    /// The bounds.
    pub limits: Limits,
    /// A folder for what initiators ask to be kept over a restart: persistent reservations with APTPL, saved
    /// mode pages. Nothing is kept without one, and initiators are told so.
    pub state: Option<PathBuf>,
    /// Keep kernel stamps of up to this many operations per connection; they are handed over when a
    /// connection ends (see [`crate::RunningTarget::take_ops`]).
    pub stamp_operations: Option<usize>,
}

impl TargetConfig {
    /// A target with defaults for everything but its place, name and disks.
    #[must_use]
    pub fn new(portal: SocketAddr, iqn: impl Into<String>, luns: Vec<LunConfig>) -> Self {
        Self {
            portals: vec![Portal::new(portal)],
            iqn: iqn.into(),
            luns,
            send: SendPolicy::default(),
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

/// Bounds on what peers can make the target hold or wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once, logins in progress included.
    pub connections: usize,
    /// Most connections at once from one address.
    pub connections_per_address: usize,
    /// Most logins in progress at once; beyond it the oldest of the address with most of them gives way.
    pub logins: usize,
    /// Most sessions at once, discovery sessions included.
    pub sessions: usize,
    /// Most connections that are taken in a second, over all addresses; others wait.
    pub accepts_per_second: u32,
    /// Most connections of one address that are taken in a second.
    pub accepts_per_address: u32,
    /// Bytes that all connections together may hold for commands in flight: gathered data, reads of slow disks,
    /// deferred commands, commands ahead of their turn, what lost connections leave.
    pub memory_bytes: usize,
    /// Bytes that all connections together may hold to receive PDUs that are longer than the usual buffer.
    pub receive_bytes: usize,
    /// Longest time that the tasks of a lost connection are kept (ErrorRecoveryLevel 2), whatever an initiator asks
    /// for in DefaultTime2Wait and DefaultTime2Retain.
    pub retain_time: Duration,
    /// Bytes that the lost connections of a session may leave; what is more is not kept.
    pub lost_bytes: usize,
    /// Most sessions without a connection whose tasks are kept.
    pub lost_sessions: usize,
    /// Commands in flight per session.
    pub window: u32,
    /// Bytes of text keys in one exchange.
    pub text_bytes: usize,
    /// Bytes of commands whose data is gathered before anything is done, per connection.
    pub gathered_bytes: usize,
    /// Longest time from accept to the full feature phase.
    pub login_time: Duration,
    /// A connection silent for this long is asked for a sign of life.
    pub ping_after: Duration,
    /// A connection that gives none for this long after is closed.
    pub ping_answer: Duration,
    /// Bytes of commands in flight beside the connection's thread, per connection; above it they are done one
    /// after the other.
    pub job_bytes: usize,
    /// Threads that wait for disks, over all connections.
    pub disk_threads: usize,
    /// Bytes of commands that were given up and that disks have not ended yet, over all connections; above it
    /// such disks are busy for new ones.
    pub abandoned_bytes: usize,
    /// Bytes of what was sent that a connection keeps until it is acknowledged (ErrorRecoveryLevel above 0).
    pub replay_bytes: usize,
    /// Unsent bytes per connection above which nothing more is answered, and no further request is taken.
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
        assert!(!access.admits("iqn.a:alice", Some("ops")), "a name that alice owns");
        assert!(!access.admits("iqn.a:alice", None), "no proof");
        assert!(!access.admits("iqn.a:alice", Some("mallory")), "no such user");
    }

    #[test]
    fn unlisted_initiator_sees_no_disk() {
        let access = access(&[], &["iqn.a:alice"]);
        assert!(access.admits("iqn.a:alice", None) && access.shows("iqn.a:alice", 3));
        assert!(!access.admits("iqn.b:bob", None) && !access.shows("iqn.b:bob", 3));
    }
}
