//! The configuration of a target.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use iscsi::Wishes;
use iscsi::login::chap::Credentials;
use iscsi::login::target::Moved;
use store::Store;

use policy::SendPolicy;
use socket::options::TcpOptions;

/// The names by which hosts identify a disk; `None`: made from the target's name and the disk's number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DiskNames {
    /// Unit serial number: up to 64 letters, digits, and `.`, `_`, `:`, `-`.
    pub serial: Option<String>,
    /// NAA designator, 8 or 16 bytes.
    pub naa: Option<Vec<u8>>,
    /// Vendor specific identifier of the T10 vendor ID designator, up to 128 printable ASCII characters.
    pub t10: Option<String>,
    /// T10 vendor identification, up to 8 printable ASCII characters.
    pub vendor: Option<String>,
    /// Product identification, up to 16 characters.
    pub product: Option<String>,
    /// Product revision level, up to 4 characters.
    pub revision: Option<String>,
}

impl DiskNames {
    /// Checks lengths and characters.
    ///
    /// # Errors
    /// Names what is too long or has other characters.
    pub fn check(&self) -> Result<(), String> {
        let is_plain = |text: &str| text.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        let texts = [
            ("t10", &self.t10, 128),
            ("vendor", &self.vendor, 8),
            ("product", &self.product, 16),
            ("revision", &self.revision, 4),
        ];
        for (name, text, most) in texts {
            if text.as_ref().is_some_and(|text| text.is_empty() || text.len() > most || !is_plain(text)) {
                return Err(format!("{name}: use 1 to {most} printable ASCII characters"));
            }
        }
        // It names the file of the disk's durable state, too.
        let is_serial = |text: &str| {
            text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte))
                && (1..=64).contains(&text.len())
        };
        if self.serial.as_ref().is_some_and(|serial| !is_serial(serial)) {
            return Err("serial: use 1 to 64 letters, digits and any of . _ : -".to_owned());
        }
        // NAA 2h, 3h and 5h have 8 bytes, 6h has 16 (SPC-4 7.8.6.6).
        let is_naa = |naa: &[u8]| {
            let format = naa.first().map(|byte| byte >> 4);
            matches!((naa.len(), format), (8, Some(2 | 3 | 5)) | (16, Some(6)))
        };
        match &self.naa {
            Some(naa) if !is_naa(naa) => {
                Err("naa: use 16 hexadecimal digits that begin with 2, 3 or 5, or 32 that begin with 6"
                    .to_owned())
            }
            _ => Ok(()),
        }
    }
}

/// A target node: a name with disks and access rules (RFC 7143 4.1).
#[derive(Clone)]
pub struct NodeConfig {
    /// Its iSCSI name.
    pub iqn: String,
    /// Its disks.
    pub luns: Vec<LunConfig>,
    /// The access rules; `None` admits every initiator.
    pub access: Option<Access>,
    /// The portal groups through which it is reached; `None` for all.
    pub groups: Option<Vec<u16>>,
}

impl NodeConfig {
    /// Returns a node that every initiator may use through every portal.
    #[must_use]
    pub fn new(iqn: impl Into<String>, luns: Vec<LunConfig>) -> Self {
        Self { iqn: iqn.into(), luns, access: None, groups: None }
    }
}

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
    /// The names by which hosts identify it.
    pub names: DiskNames,
}

impl LunConfig {
    /// Returns a non-removable disk with blocks of 512 bytes.
    #[must_use]
    pub fn new(number: u16, store: Arc<dyn Store>) -> Self {
        Self {
            number,
            store,
            block_bytes: 512,
            physical_bytes: 512,
            removable: false,
            names: DiskNames::default(),
        }
    }
}

/// The access rules: which initiators may log in and what each sees.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// The CHAP users; empty: initiators need not authenticate.
    pub users: Vec<User>,
    /// The target's own credentials, for mutual authentication.
    pub own: Option<Credentials>,
    /// Whether discovery sessions must authenticate.
    pub discovery: bool,
    /// The initiators that may use the target, and what each sees. Empty: every initiator that can authenticate.
    pub initiators: Vec<Initiator>,
    /// The addresses from which initiators may use the target. Empty: any.
    pub addresses: Vec<IpNet>,
    /// No initiator may use the target, whatever else is said.
    pub is_closed: bool,
}

/// A CHAP user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    /// Its name and secret. Users with the same name act for different initiators.
    pub credentials: Credentials,
    /// The InitiatorNames that it may log in with.
    pub acts_for: ActsFor,
    /// What the target answers it with in mutual authentication, where that differs from [`Access::own`].
    pub own: Option<Credentials>,
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
    /// The disks that it sees; `None` for all.
    pub luns: Option<Vec<Shown>>,
    /// It may not write.
    pub read_only: bool,
}

impl Initiator {
    /// Returns an initiator that sees all disks.
    #[must_use]
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), luns: None, read_only: false }
    }
}

/// A disk as an initiator sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shown {
    /// The number that the initiator sees.
    pub number: u16,
    /// The number of the disk.
    pub disk: u16,
    /// The initiator may not write to it.
    pub read_only: bool,
}

impl Shown {
    /// Returns a disk that is shown as it is.
    #[must_use]
    pub fn same(number: u16) -> Self {
        Self { number, disk: number, read_only: false }
    }
}

impl Access {
    /// Returns the entry of an initiator.
    #[must_use]
    pub fn of(&self, name: &str) -> Option<&Initiator> {
        // RFC 7143 4.2.7.2 compares names after normalisation; for the ASCII names accepted here that is case folding.
        self.initiators.iter().find(|initiator| initiator.name.eq_ignore_ascii_case(name))
    }

    /// Returns whether an initiator at an address may use the target. `user` is the authenticated CHAP user; a session without one
    /// is admitted only where no secrets are configured.
    #[must_use]
    pub fn admits(&self, name: &str, address: IpAddr, user: Option<&str>) -> bool {
        self.is_reached_from(address)
            && self.lists(name)
            && (self.users.is_empty() || user.is_some_and(|user| self.may_act_for(user, name)))
    }

    /// Returns whether initiators at this address may use the target.
    #[must_use]
    pub fn is_reached_from(&self, address: IpAddr) -> bool {
        // An IPv4 address as an IPv6 socket sees it is an IPv4 address.
        let address = address.to_canonical();
        !self.is_closed
            && (self.addresses.is_empty() || self.addresses.iter().any(|network| network.contains(&address)))
    }

    /// Returns the users that the initiator with this name authenticates as. Of several users with one name it can be only
    /// those that may log in with the InitiatorName, where there are any.
    pub fn users_for<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a User> {
        let acts = |user: &User| self.acts_for(user, name);
        self.users.iter().filter(move |user| {
            let namesakes =
                || self.users.iter().filter(|other| other.credentials.name == user.credentials.name);
            acts(user) || !namesakes().any(acts)
        })
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
        self.users.iter().any(|known| known.credentials.name == user && self.acts_for(known, name))
    }

    fn acts_for(&self, user: &User, name: &str) -> bool {
        match &user.acts_for {
            ActsFor::Any => !self.users.iter().any(|other| other.acts_for.names(name)),
            bound => bound.names(name),
        }
    }

    /// Returns how an initiator sees the disk with this number, if it does. An unlisted initiator sees none.
    #[must_use]
    pub fn shows(&self, name: &str, disk: u16) -> Option<Shown> {
        let Some(initiator) = self.of(name) else {
            return self.initiators.is_empty().then_some(Shown::same(disk));
        };
        let shown = match &initiator.luns {
            None => Shown::same(disk),
            Some(luns) => *luns.iter().find(|shown| shown.disk == disk)?,
        };
        Some(Shown { read_only: shown.read_only || initiator.read_only, ..shown })
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
    /// The target nodes.
    pub nodes: Vec<NodeConfig>,
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
            nodes: vec![NodeConfig::new(iqn, luns)],
            send: SendPolicy::default(),
            threads: Threads::default(),
            busy_poll: Duration::ZERO,
            cpus: Vec::new(),
            wishes: Wishes::default(),
            tcp: TcpOptions { nodelay: true, ..TcpOptions::default() },
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
            accepts_per_second: 2000,
            accepts_per_address: 1000,
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
        let user = |(name, acts_for): &(&str, ActsFor)| User {
            credentials: Credentials { name: (*name).into(), secret: vec![1; 12] },
            acts_for: acts_for.clone(),
            own: None,
        };
        Access {
            users: users.iter().map(user).collect(),
            discovery: true,
            initiators: initiators.iter().map(|name| Initiator::new(*name)).collect(),
            ..Access::default()
        }
    }

    const HERE: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);

    #[test]
    fn bound_names_belong_to_their_user_and_any_excludes_them() {
        let bound = ActsFor::Names(vec!["iqn.a:alice".into()]);
        let access = access(&[("alice", bound), ("ops", ActsFor::Any)], &[]);
        assert!(access.admits("IQN.A:alice", HERE, Some("alice")));
        assert!(!access.admits("iqn.b:bob", HERE, Some("alice")), "another name");
        assert!(access.admits("iqn.b:bob", HERE, Some("ops")));
        assert!(!access.admits("iqn.a:alice", HERE, Some("ops")), "a name bound to alice");
        assert!(!access.admits("iqn.a:alice", HERE, None), "not authenticated");
        assert!(!access.admits("iqn.a:alice", HERE, Some("mallory")), "no such user");
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
        assert!(
            access.admits("iqn.a:alice", HERE, None)
                && access.shows("iqn.a:alice", 3) == Some(Shown::same(3))
        );
        assert!(!access.admits("iqn.b:bob", HERE, None) && access.shows("iqn.b:bob", 3).is_none());
    }
}
