//! Who may log in.

use std::cell::RefCell;
use std::sync::Arc;

use iscsi::login::target::{Authentication, Gate, Joined, LoggedIn, Moved};
use iscsi::login::{SessionType, Status};

use crate::config::{Access, Limits, Portal};
use crate::sessions::{Session, SessionKey, Sessions};

/// The target's side of a login, for one connection.
pub(crate) struct PortalGate<'a> {
    pub(crate) iqn: &'a str,
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) portal: &'a Portal,
    pub(crate) sessions: &'a Sessions,
    pub(crate) limits: &'a Limits,
    pub(crate) connection: u64,
    /// The session of the login, once it has one.
    pub(crate) session: RefCell<Option<Arc<Session>>>,
}

impl PortalGate<'_> {
    fn key(&self, login: &LoggedIn) -> SessionKey {
        let target_name = match login.session_type {
            SessionType::Normal => self.iqn.to_owned(),
            // Discovery sessions do not reinstate each other: every one is told apart by its connection.
            SessionType::Discovery => format!("discovery {}", self.connection),
        };
        SessionKey {
            initiator_name: login.initiator_name.clone(),
            isid: login.isid,
            target_name,
            portal_group: self.portal.group,
        }
    }
}

impl Gate for PortalGate<'_> {
    fn admit(&self, target_name: &str, initiator_name: &str) -> Result<(), Status> {
        // iSCSI names are compared after normalisation; ASCII case is all there is to ours.
        if !target_name.eq_ignore_ascii_case(self.iqn) {
            return Err(Status::NOT_FOUND);
        }
        let is_allowed = self.access.as_ref().is_none_or(|access| access.lists(initiator_name));
        if is_allowed { Ok(()) } else { Err(Status::AUTHORIZATION_FAILURE) }
    }

    fn authentication(&self, session_type: SessionType) -> Option<&Authentication> {
        let access = self.access.as_deref()?;
        let asked = session_type == SessionType::Normal || access.discovery;
        // An access list without secrets asks nobody for one.
        (asked && !access.authentication.initiators.is_empty()).then_some(&access.authentication)
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), Status> {
        getrandom::fill(buffer).map_err(|error| {
            tracing::error!("no randomness for a challenge: {error}");
            Status::OUT_OF_RESOURCES
        })
    }

    fn portal_group_tag(&self) -> u16 {
        self.portal.group
    }

    fn moved(&self) -> Option<Moved> {
        self.portal.moved.clone()
    }

    fn join(&self, login: &LoggedIn) -> Result<Joined, Status> {
        let session = self.sessions.find(login, &self.key(login))?;
        Ok(Joined { parameters: session.parameters.clone(), exp_cmd_sn: session.commands.expected() })
    }

    fn new_session(&self, login: &LoggedIn) -> Result<u16, Status> {
        let session = self.sessions.establish(login, self.key(login), self.connection, self.limits)?;
        let tsih = session.tsih;
        self.session.replace(Some(session));
        Ok(tsih)
    }
}
