//! Delayed responses: they wait for aborted tasks or connections to end, without blocking the connection.

use std::sync::{Arc, Weak};
use std::time::Instant;

use iscsi::pdu::{LogoutRequest, ScsiCommand, TaskManagementRequest};
use iscsi::task_management::Response;

use crate::fence::Epoch;
use crate::jobs::Claim;
use crate::session::Session;

/// Most delayed responses of a connection; further requests that need one are refused.
pub(crate) const WAITING_MAX: usize = 64;

/// A delayed response.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Aborted epochs whose tasks may still change a disk.
    pub(crate) epochs: Vec<Arc<Epoch>>,
    /// Single aborted jobs that may still change a disk.
    pub(crate) claims: Vec<Weak<Claim>>,
    /// The deadline, after which the request fails.
    pub(crate) until: Instant,
    pub(crate) then: Then,
}

/// The request that is answered.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// A task management function.
    TaskManagement {
        request: TaskManagementRequest,
        response: Response,
        /// The reason to end the connection after the response, if any.
        ends: Option<&'static str>,
    },
    /// A command that aborts others.
    Command { command: ScsiCommand, r2ts: u32, status: u8, moved_bytes: u64 },
    /// A logout of another connection; the response waits until that has left the session.
    OtherLogout { request: LogoutRequest, id: u64 },
}

impl Waiting {
    /// Returns the command that it answers, if it is one.
    pub(crate) fn command(&self) -> Option<&ScsiCommand> {
        if let Then::Command { command, .. } = &self.then { Some(command) } else { None }
    }

    /// Returns whether everything that it waits for has ended.
    pub(crate) fn is_over(&self, session: &Session) -> bool {
        let is_gone = match &self.then {
            Then::OtherLogout { request, id } => session.has(request.cid).0 != Some(*id),
            Then::TaskManagement { .. } | Then::Command { .. } => true,
        };
        is_gone && !self.has_in_flight()
    }

    /// Returns whether aborted tasks may still change a disk.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.epochs.iter().any(|epoch| !epoch.is_over())
            || self.claims.iter().any(|claim| claim.strong_count() > 0)
    }
}
