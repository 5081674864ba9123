//! Admission of logins by the access rules.

use std::cell::RefCell;
use std::sync::Arc;

use iscsi::login::target::{Authentication, Gate, Joined, LoggedIn, Moved};
use iscsi::login::{SessionType, Status};

use crate::config::{Access, Portal};
use crate::mailbox::Mailbox;
use crate::session::{Session, SessionKey};
use crate::sessions::{NewConnection, Proof};
use crate::shared::Shared;

/// The target's side of a login, for one connection.
pub(crate) struct PortalGate<'a> {
    pub(crate) shared: &'a Shared,
    /// The access rules in force when the request arrived.
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) portal: &'a Portal,
    /// The number of the connection in the target.
    pub(crate) id: u64,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    /// The session that the login has established or joined.
    pub(crate) session: RefCell<Option<Arc<Session>>>,
}

impl PortalGate<'_> {
    fn key(&self, login: &LoggedIn) -> SessionKey {
        let target_name = match login.session_type {
            SessionType::Normal => self.shared.config.iqn.clone(),
            // Discovery sessions must not reinstate each other: the connection number makes each key unique.
            SessionType::Discovery => format!("discovery {}", self.id),
        };
        SessionKey {
            initiator_name: login.initiator_name.to_ascii_lowercase(),
            isid: login.isid,
            target_name,
            portal_group: self.portal.group,
            user: login.user.clone(),
        }
    }
}

impl Gate for PortalGate<'_> {
    fn admit(&self, login: &LoggedIn) -> Result<(), Status> {
        // RFC 7143 4.2.7.2 compares names after normalisation; for the ASCII names accepted here that is case folding.
        if login.session_type == SessionType::Normal
            && !login.target_name.eq_ignore_ascii_case(&self.shared.config.iqn)
        {
            return Err(Status::NOT_FOUND);
        }
        // Every authenticated initiator may discover; SendTargets shows the target only to initiators that may use it.
        let Some(access) = self.access.as_ref().filter(|_| login.session_type == SessionType::Normal) else {
            return Ok(());
        };
        let is_admitted = access.admits(&login.initiator_name, login.user.as_deref());
        if is_admitted { Ok(()) } else { Err(Status::AUTHORIZATION_FAILURE) }
    }

    fn authentication(&self, session_type: SessionType) -> Option<&Authentication> {
        let access = self.access.as_deref()?;
        let asked = session_type == SessionType::Normal || access.discovery;
        // Without secrets there is nothing to authenticate with.
        (asked && !access.authentication.initiators.is_empty()).then_some(&access.authentication)
    }

    fn random(&self, buffer: &mut [u8]) -> Result<(), Status> {
        getrandom::fill(buffer).map_err(|error| {
            tracing::error!("cannot get random bytes for a CHAP challenge: {error}");
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
        let session = self.shared.sessions.find(login, &self.key(login))?;
        Ok(Joined { parameters: session.parameters.clone(), exp_cmd_sn: session.commands.expected() })
    }

    fn new_session(&self, login: &LoggedIn) -> Result<u16, Status> {
        // Checked again on the final values: every session is created or joined here.
        self.admit(login)?;
        let proof = match self.authentication(login.session_type) {
            Some(_) if login.user.is_none() => return Err(Status::AUTHENTICATION_FAILURE),
            Some(_) => Proof::Demanded,
            None => Proof::NotDemanded,
        };
        let new = NewConnection { login, key: self.key(login), proof, id: self.id, mailbox: self.mailbox };
        let established = self.shared.sessions.establish(new, &self.shared.config.limits)?;
        self.shared.sessions_ended(&established.ended);
        let tsih = established.session.tsih;
        self.session.replace(Some(established.session));
        Ok(tsih)
    }
}
