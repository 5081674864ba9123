//! Who may log in.

use std::cell::Cell;

use iscsi::login::target::{Authentication, Gate, LoggedIn};
use iscsi::login::{SessionType, Status};

use crate::config::Access;
use crate::sessions::{SessionKey, Sessions};

/// The target's side of a login, for one connection.
pub(crate) struct PortalGate<'a> {
    pub(crate) iqn: &'a str,
    pub(crate) access: Option<&'a Access>,
    pub(crate) portal_group_tag: u16,
    pub(crate) sessions: &'a Sessions,
    pub(crate) connection: u64,
    pub(crate) established: Cell<bool>,
}

impl Gate for PortalGate<'_> {
    fn admit(&self, target_name: &str, initiator_name: &str) -> Result<(), Status> {
        // iSCSI names are compared after normalisation; ASCII case is all there is to ours.
        if !target_name.eq_ignore_ascii_case(self.iqn) {
            return Err(Status::NOT_FOUND);
        }
        let is_allowed = self.access.is_none_or(|access| {
            access.initiators.is_empty()
                || access.initiators.iter().any(|name| name.eq_ignore_ascii_case(initiator_name))
        });
        if is_allowed { Ok(()) } else { Err(Status::AUTHORIZATION_FAILURE) }
    }

    fn authentication(&self, session_type: SessionType) -> Option<&Authentication> {
        let access = self.access?;
        let asked = session_type == SessionType::Normal || access.discovery;
        asked.then_some(&access.authentication)
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), Status> {
        getrandom::fill(buffer).map_err(|error| {
            tracing::error!("no randomness for a challenge: {error}");
            Status::OUT_OF_RESOURCES
        })
    }

    fn portal_group_tag(&self) -> u16 {
        self.portal_group_tag
    }

    fn new_session(&self, login: &LoggedIn) -> Result<u16, Status> {
        self.established.set(true);
        let target_name = match login.session_type {
            SessionType::Normal => self.iqn.to_owned(),
            // Discovery sessions do not reinstate each other: every one is told apart by its connection.
            SessionType::Discovery => format!("discovery {}", self.connection),
        };
        let key = SessionKey { initiator_name: login.initiator_name.clone(), isid: login.isid, target_name };
        Ok(self.sessions.establish(key, self.connection))
    }
}
