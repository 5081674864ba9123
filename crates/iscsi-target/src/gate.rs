//! Admission of logins by the access rules.

use std::cell::{OnceCell, RefCell};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iscsi::login::chap::Known;
use iscsi::login::target::{Authentication, Gate, Joined, LoggedIn, Moved};
use iscsi::login::{SessionType, Status};

use crate::config::{Access, Portal, User};
use crate::kept::{KeptSession, SeenDisk};
use crate::mailbox::Mailbox;
use crate::node::Node;
use crate::session::{Session, SessionKey};
use crate::sessions::{NewConnection, Proof};
use crate::shared::Shared;

/// A target node and the access rules in force when the request arrived.
type Ruled = (Arc<Node>, Option<Arc<Access>>);

/// The target's side of a login, for one connection.
pub(crate) struct PortalGate<'a> {
    shared: &'a Shared,
    nodes: Vec<Ruled>,
    portal: &'a Portal,
    /// The number of the connection in the target.
    id: u64,
    peer: IpAddr,
    mailbox: &'a Arc<Mailbox>,
    authentication: OnceCell<Option<Authentication>>,
    /// The session that the login has established or joined.
    pub(crate) session: RefCell<Option<Arc<Session>>>,
}

impl<'a> PortalGate<'a> {
    pub(crate) fn new(
        shared: &'a Shared,
        portal: &'a Portal,
        id: u64,
        peer: IpAddr,
        mailbox: &'a Arc<Mailbox>,
    ) -> Self {
        let reached = |node: &&Arc<Node>| node.groups.contains(&portal.group);
        let all = shared.nodes.all();
        let nodes = all.iter().filter(reached).map(|node| (Arc::clone(node), node.access())).collect();
        let (authentication, session) = (OnceCell::new(), RefCell::new(None));
        Self { shared, nodes, portal, id, peer, mailbox, authentication, session }
    }

    /// Returns the target that a login means, unless it is for discovery or there is none.
    fn node(&self, login: &LoggedIn) -> Option<&Ruled> {
        let is_normal = login.session_type == SessionType::Normal;
        self.nodes.iter().find(|(node, _)| is_normal && node.has_name(&login.target_name))
    }

    fn key(&self, login: &LoggedIn) -> SessionKey {
        let target_name = match self.node(login) {
            Some((node, _)) => node.iqn.clone(),
            // Discovery sessions must not reinstate each other: the connection number makes each key unique.
            None => format!("discovery {}", self.id),
        };
        SessionKey {
            initiator_name: login.initiator_name.to_ascii_lowercase(),
            isid: login.isid,
            target_name,
            portal_group: self.portal.group,
            user: login.user.clone(),
        }
    }

    /// Returns what an initiator must authenticate with. For an unknown target that is what any target demands: before it has
    /// authenticated, an initiator cannot tell an unknown target from one with users.
    fn demanded(&self, login: &LoggedIn) -> Option<Authentication> {
        let name = &login.initiator_name;
        if let Some((_, access)) = self.node(login) {
            return Some(of(access.as_deref().filter(|access| !access.users.is_empty())?, name));
        }
        let is_discovery = login.session_type == SessionType::Discovery;
        let mut all = Authentication::default();
        let mut demands = false;
        for (_, access) in &self.nodes {
            match access.as_deref().filter(|access| !access.users.is_empty()) {
                Some(access) if access.discovery || !is_discovery => {
                    all.initiators.extend(of(access, name).initiators);
                    demands = true;
                }
                // A discovery session without authentication finds it; a login to an unknown target gains nothing by it.
                _ => all.is_optional = is_discovery,
            }
        }
        demands.then_some(all)
    }
}

/// Returns the users that an initiator may be, each with what the target answers it.
fn of(access: &Access, name: &str) -> Authentication {
    let known = |user: &User| Known {
        credentials: user.credentials.clone(),
        own: user.own.clone().or_else(|| access.own.clone()),
    };
    Authentication { initiators: access.users_for(name).map(known).collect(), is_optional: false }
}

impl Gate for PortalGate<'_> {
    fn admit(&self, login: &LoggedIn) -> Result<(), Status> {
        if self.shared.draining.load(Ordering::Relaxed) {
            return Err(Status::SERVICE_UNAVAILABLE);
        }
        // Every authenticated initiator may discover; SendTargets shows a target only to initiators that may use it.
        if login.session_type == SessionType::Discovery {
            return Ok(());
        }
        let (_, access) = self.node(login).ok_or(Status::NOT_FOUND)?;
        let is_admitted = access
            .as_ref()
            .is_none_or(|access| access.admits(&login.initiator_name, self.peer, login.user.as_deref()));
        if is_admitted { Ok(()) } else { Err(Status::AUTHORIZATION_FAILURE) }
    }

    fn authentication(&self, login: &LoggedIn) -> Option<&Authentication> {
        self.authentication.get_or_init(|| self.demanded(login)).as_ref()
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
        self.enter(login, None)
    }
}

impl PortalGate<'_> {
    /// Creates or joins a session, or goes on with one of the process before; returns its TSIH.
    fn enter(&self, login: &LoggedIn, going_on: Option<&KeptSession>) -> Result<u16, Status> {
        // Checked again on the final values: every session is created or joined here.
        self.admit(login)?;
        let proof = match self.authentication(login) {
            Some(asked) if login.user.is_none() && !asked.is_optional => {
                return Err(Status::AUTHENTICATION_FAILURE);
            }
            Some(_) => Proof::Demanded,
            None => Proof::NotDemanded,
        };
        let new = NewConnection {
            login,
            key: self.key(login),
            proof,
            id: self.id,
            mailbox: self.mailbox,
            address: self.peer,
            node: self.node(login).map(|(node, _)| node),
            going_on,
        };
        let established = self.shared.sessions.establish(new, &self.shared.config.limits)?;
        self.shared.sessions_ended(&established.ended);
        let tsih = established.session.tsih;
        self.session.replace(Some(established.session));
        Ok(tsih)
    }

    /// Goes on with a session of the process before, as far as its initiator could log in under the current rules.
    ///
    /// # Errors
    /// Why not.
    pub(crate) fn go_on(&self, kept: &KeptSession) -> Result<(LoggedIn, Arc<Session>), String> {
        let login = LoggedIn {
            initiator_name: kept.initiator.clone(),
            user: kept.user.clone(),
            // Of use to discovery sessions alone.
            proven: None,
            target_name: kept.target.clone(),
            session_type: SessionType::Normal,
            isid: kept.isid,
            tsih: kept.tsih,
            cid: kept.cid,
            parameters: kept.parameters.clone(),
            exp_cmd_sn: kept.exp_cmd_sn,
            stat_sn: kept.stat_sn,
        };
        let (node, access) = self.node(&login).ok_or("its target is not served at its portal group")?;
        // An initiator that would see other disks, or the same ones otherwise, looks at them anew.
        let view = node.disks.table().view(access.as_deref(), &kept.initiator);
        let lasts = kept.disks.iter().all(SeenDisk::lasts);
        if !lasts || SeenDisk::all(&view) != kept.disks {
            return Err("its initiator would see other disks".to_owned());
        }
        self.enter(&login, Some(kept)).map_err(|status| format!("a login would be refused: {status}"))?;
        let session = self.session.take().ok_or("no session was established")?;
        Ok((login, session))
    }
}
