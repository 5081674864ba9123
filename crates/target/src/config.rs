//! What a target is told to be.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use iscsi::Wishes;
use iscsi::login::target::Authentication;
use store::Store;

use crate::policy::SendPolicy;

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
}

/// Who may log in.
#[derive(Clone, Debug, Default)]
pub struct Access {
    /// Names and secrets for CHAP.
    pub authentication: Authentication,
    /// Discovery sessions must authenticate too.
    pub discovery: bool,
    /// The initiators' names that may use the target; all that can authenticate when empty.
    pub initiators: Vec<String>,
}

/// Everything a target needs to start.
#[derive(Clone)]
pub struct TargetConfig {
    /// Where to listen; port 0 takes any free one.
    pub portal: SocketAddr,
    /// The target's iSCSI name.
    pub iqn: String,
    /// The disks.
    pub luns: Vec<LunConfig>,
    /// When responses leave.
    pub send: SendPolicy,
    /// What to wish for in negotiations.
    pub wishes: Wishes,
    /// TCP congestion control of the connections; nothing keeps the system's default.
    pub congestion: Option<String>,
    /// Who may log in; everybody when nothing is said.
    pub access: Option<Access>,
    /// The bounds.
    pub limits: Limits,
    /// Keep kernel stamps of up to this many operations per connection; they are handed over when a
    /// connection ends (see [`crate::RunningTarget::take_sightings`]).
    pub stamp_operations: Option<usize>,
}

impl TargetConfig {
    /// A target with defaults for everything but its place, name and disks.
    #[must_use]
    pub fn new(portal: SocketAddr, iqn: impl Into<String>, luns: Vec<LunConfig>) -> Self {
        Self {
            portal,
            iqn: iqn.into(),
            luns,
            send: SendPolicy::default(),
            wishes: Wishes::default(),
            congestion: None,
            access: None,
            limits: Limits::default(),
            stamp_operations: None,
        }
    }
}

/// Bounds on what peers can make the target hold or wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once, logins in progress included.
    pub connections: usize,
    /// Commands in flight per session.
    pub window: u32,
    /// Longest time from accept to the full feature phase.
    pub login_time: Duration,
    /// A connection silent for this long is asked for a sign of life.
    pub ping_after: Duration,
    /// A connection that gives none for this long after is closed.
    pub ping_answer: Duration,
    /// Unsent bytes per connection above which no further request is taken.
    pub unsent_bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 1024,
            window: 256,
            login_time: Duration::from_secs(15),
            ping_after: Duration::from_secs(30),
            ping_answer: Duration::from_secs(30),
            unsent_bytes: 4 << 20,
        }
    }
}
