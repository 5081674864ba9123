//! Options of a session.

use std::time::Duration;

use iscsi::Wishes;
use record::Writes;
use socket::options::TcpOptions;

use crate::initiator::login::Login;

/// Options of a session.
#[derive(Clone, Debug)]
pub struct SessionOptions {
    /// InitiatorName.
    pub initiator_name: String,
    /// Authentication and digests.
    pub login: Login,
    /// The values to offer in the login.
    pub wishes: Wishes,
    /// Socket options.
    pub tcp: TcpOptions,
    /// How PDUs are sent after the login: batched with all pending ones ([`Writes::One`]), or header and data in separate
    /// calls ([`Writes::Apart`], [`Writes::More`]). Other modes are rejected.
    pub writes: Writes,
    /// Longest wait for a connection or a response.
    pub patience: Duration,
    /// Record kernel timestamps of up to this many operations.
    pub stamp_operations: Option<usize>,
    /// How long to poll for a response before sleeping; zero sleeps at once. Polling uses a full core.
    pub busy_poll: Duration,
    /// Distinguishes the sessions of one initiator.
    pub session_number: u16,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self {
            initiator_name: "iqn.2026-11.example.roundtrip:bench".to_owned(),
            login: Login::default(),
            wishes: Wishes::default(),
            tcp: TcpOptions { nodelay: true, ..TcpOptions::default() },
            writes: Writes::One,
            patience: Duration::from_secs(30),
            stamp_operations: None,
            busy_poll: Duration::ZERO,
            session_number: 0,
        }
    }
}

impl SessionOptions {
    /// Returns these options with a login, whose initiator name takes precedence if it has one.
    #[must_use]
    pub fn with_login(self, login: &Login) -> Self {
        let initiator_name = login.initiator_name.clone().unwrap_or(self.initiator_name);
        Self { initiator_name, login: login.clone(), ..self }
    }
}
