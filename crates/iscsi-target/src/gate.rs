//! Who may log in.

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
    /// Who may log in, as it was when the request came.
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) portal: &'a Portal,
    /// The connection's number in the target.
    pub(crate) id: u64,
    pub(crate) mailbox: &'a Arc<Mailbox>,
    /// The session of the login, once it has one.
    pub(crate) session: RefCell<Option<Arc<Session>>>,
}

impl PortalGate<'_> {
    fn key(&self, login: &LoggedIn) -> SessionKey {
        let target_name = match login.session_type {
            SessionType::Normal => self.shared.config.iqn.clone(),
            // Discovery sessions do not reinstate each other: every one is told apart by its connection.
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
        // iSCSI names are compared after normalisation; ASCII case is all there is to ours.
        if login.session_type == SessionType::Normal
            && !login.target_name.eq_ignore_ascii_case(&self.shared.config.iqn)
        {
            return Err(Status::NOT_FOUND);
        }
        // Discovery is for everybody who proves what there is to prove; it shows the target to those who may use it.
        let Some(access) = self.access.as_ref().filter(|_| login.session_type == SessionType::Normal) else {
            return Ok(());
        };
        let is_admitted = access.admits(&login.initiator_name, login.user.as_deref());
        if is_admitted { Ok(()) } else { Err(Status::AUTHORIZATION_FAILURE) }
    }

    fn authentication(&self, session_type: SessionType) -> Option<&Authentication> {
        let access = self.access.as_deref()?;
        let asked = session_type == SessionType::Normal || access.discovery;
        // An access list without secrets asks nobody for one.
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
        // Whatever was decided on the way: this is the session that is entered, and the one place that lets it in.
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
