//! Answers that wait until something else has ended, without holding up the connection.

use std::sync::{Arc, Weak};
use std::time::Instant;

use iscsi::pdu::{LogoutRequest, ScsiCommand, TaskManagementRequest};
use iscsi::task_management::Response;

use crate::fence::Epoch;
use crate::jobs::Claim;
use crate::session::Session;

/// Answers that wait at most, for one connection; what comes beyond is refused.
pub(crate) const WAITING_MAX: usize = 64;

/// An answer that waits.
#[derive(Debug)]
pub(crate) struct Waiting {
    /// Aborted tasks that may still change a disk.
    pub(crate) epochs: Vec<Arc<Epoch>>,
    /// Single aborted tasks that may.
    pub(crate) claims: Vec<Weak<Claim>>,
    /// When it fails.
    pub(crate) until: Instant,
    pub(crate) then: Then,
}

/// What is answered.
#[derive(Clone, Debug)]
pub(crate) enum Then {
    /// A task management function.
    TaskManagement {
        request: TaskManagementRequest,
        response: Response,
        /// The connection ends with it, because of this.
        ends: Option<&'static str>,
    },
    /// A command that aborts others.
    Command { command: ScsiCommand, r2ts: u32, status: u8, moved_bytes: u64 },
    /// A logout of another connection, which must have left the session.
    OtherLogout { request: LogoutRequest, id: u64 },
}

impl Waiting {
    /// The command that it answers.
    pub(crate) fn command(&self) -> Option<&ScsiCommand> {
        if let Then::Command { command, .. } = &self.then { Some(command) } else { None }
    }

    /// Whether what it waits for has ended.
    pub(crate) fn is_over(&self, session: &Session) -> bool {
        let is_gone = match &self.then {
            Then::OtherLogout { request, id } => session.has(request.cid).0 != Some(*id),
            Then::TaskManagement { .. } | Then::Command { .. } => true,
        };
        is_gone && !self.has_in_flight()
    }

    /// Whether tasks that were aborted may still change a disk.
    pub(crate) fn has_in_flight(&self) -> bool {
        self.epochs.iter().any(|epoch| !epoch.is_over())
            || self.claims.iter().any(|claim| claim.strong_count() > 0)
    }
}
