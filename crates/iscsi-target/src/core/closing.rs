//! Ending tasks, sessions and the connection.

use std::sync::{Arc, Weak};

use iscsi::login::SessionType;
use iscsi::pdu::{LogoutRequest, ScsiCommand};
use iscsi::status;
use iscsi::target::LogoutOutcome;
use scsi::Lun;

use super::{Buffered, Core, Ending, SETTLE, Serving};
use crate::error::ConnectionEnd;
use crate::jobs::Claim;
use crate::lock::lock;
use crate::mailbox::Notice;
use crate::sense::ABORT_TIMED_OUT;
use crate::session::RecoverableTasks;
use crate::sessions::EndedConnection;
use crate::waiting::{Then, WAITING_MAX, Waiting};

impl Core {
    /// Drops the tasks of ended epochs. They can no longer change a disk; this frees their resources, cancels their disk
    /// operations, and establishes the unit attention that is due for them.
    pub(super) fn sweep(&mut self, serving: &mut Serving) {
        for swept in serving.tasks.open_units.sweep() {
            let (lun, epoch) = (swept.lun, swept.epoch.number());
            let (dropped, _) = Self::abort(serving, |task| task.epoch == epoch && task.lun == Some(lun));
            if dropped > 0
                && let Some(attention) = swept.epoch.take_attention()
            {
                lock(&serving.session.nexus).raise(lun, attention);
            }
        }
    }

    /// Drops tasks without a response. Returns how many, and the claims of jobs that may still change a disk.
    pub(super) fn abort(serving: &mut Serving, aborts: impl Fn(&Task) -> bool) -> (usize, Vec<Weak<Claim>>) {
        let Serving { protocol, tasks, .. } = serving;
        let of = |command: &ScsiCommand, epoch| {
            aborts(&Task { tag: command.tag, lun: Lun::decode(command.lun), epoch })
        };
        let mut dropped = protocol.abort(|task| of(&task.command, task.order.epoch));
        tasks.gathering.prune(protocol);
        let (jobs, claims) = tasks.jobs.abort(|job| of(&job.command, job.epoch.number()));
        dropped += jobs;
        let before = tasks.reads.len();
        tasks.reads.retain(|_, read| !of(&read.command, read.epoch));
        let reads = before - tasks.reads.len();
        let deferred = tasks.ordering.abort(|deferred| of(&deferred.command, deferred.epoch));
        protocol.sequence().unfinished(-((reads + deferred) as i32));
        (dropped + reads + deferred, claims)
    }

    /// Sends delayed responses whose aborted tasks have ended, and fails those that are past their deadline.
    #[cold]
    pub(super) fn finish_waiting(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let (now, out) = (self.shared.clock.now(), &mut self.outgoing);
        let Serving { protocol, session, tasks, view, .. } = serving;
        let (mut ended, waiting): (Vec<Waiting>, Vec<Waiting>) = std::mem::take(&mut tasks.waiting)
            .into_iter()
            .partition(|waiting| waiting.is_over(session) || waiting.until <= now);
        tasks.waiting = waiting;
        let mut end = None;
        for waiting in &mut ended {
            let is_over = waiting.is_over(session);
            match &waiting.then {
                Then::TaskManagement { request, response, ends } => {
                    let failed = iscsi::task_management::Response::Rejected;
                    let response = if is_over { *response } else { failed };
                    protocol.respond_task_management(request, response, out);
                    end = end.or(*ends);
                }
                Then::Command { command, r2ts, status, moved_bytes } => {
                    protocol.sequence().unfinished(-1);
                    if is_over {
                        protocol.respond_status(command, *status, &[], *moved_bytes, *r2ts, out);
                    } else {
                        let sense = view.luns.encode(command.lun, &ABORT_TIMED_OUT);
                        protocol.respond_status(command, status::CHECK_CONDITION, &sense, 0, *r2ts, out);
                    }
                }
                Then::OtherLogout { request, .. } => {
                    let outcome = if is_over { LogoutOutcome::Done } else { LogoutOutcome::CleanupFailed };
                    protocol.respond_logout(request, outcome, out);
                }
            }
            if !is_over {
                let peer = self.statistics.peer;
                tracing::warn!(%peer, "task management, reservation or logout failed: commands in flight did not end in time");
            }
        }
        self.has_answered |= !ended.is_empty();
        end.map_or(Ok(()), |reason| Err(ConnectionEnd::Dropped(reason)))
    }

    /// Advances a logout: commands in flight end, then the tasks are closed, then the Logout Response is sent.
    #[cold]
    pub(super) fn close(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let now = self.shared.clock.now();
        let Some(mut closing) = serving.closing.take() else { return Ok(()) };
        let is_late = now >= closing.until;
        if closing.in_flight.is_none() && (serving.tasks.is_idle(&serving.protocol) || is_late) {
            let (_, claims) = Self::abort(serving, |_| true);
            let is_last = closing.session || serving.session.is_alone(self.id);
            let epochs = if is_last { serving.session.close_tasks() } else { Vec::new() };
            if closing.session {
                serving.session.forget_lost();
                serving.session.post_to_others(self.id, Notice::Drop("the session was logged out"));
            }
            closing.in_flight = Some((epochs, claims));
        }
        let is_over = closing.in_flight.as_ref().is_some_and(|(epochs, claims)| {
            (!closing.session || serving.session.is_alone(self.id))
                && epochs.iter().all(|epoch| epoch.is_over())
                && claims.iter().all(|claim| claim.strong_count() == 0)
        });
        if !is_over && !is_late {
            serving.closing = Some(closing);
            return Ok(());
        }
        let outcome = if is_over { LogoutOutcome::Done } else { LogoutOutcome::CleanupFailed };
        serving.protocol.respond_logout(&closing.request, outcome, &mut self.outgoing);
        Err(ConnectionEnd::LoggedOut)
    }

    /// Closes another connection of the session, or parks it for recovery so that its tasks can be reassigned here.
    pub(super) fn log_out_other(&mut self, serving: &mut Serving, request: &LogoutRequest, recovery: bool) {
        let (alive, is_lost) = serving.session.has(request.cid);
        let Some(id) = alive else {
            let is_done = is_lost && recovery;
            let outcome = if is_done { LogoutOutcome::Done } else { LogoutOutcome::NoSuchConnection };
            serving.protocol.respond_logout(request, outcome, &mut self.outgoing);
            return;
        };
        if serving.tasks.waiting.len() >= WAITING_MAX {
            serving.protocol.respond_logout(request, LogoutOutcome::CleanupFailed, &mut self.outgoing);
            return;
        }
        let reason = Notice::Drop("logged out by another connection");
        serving.session.end_connection(request.cid, if recovery { Notice::Park } else { reason });
        let then = Then::OtherLogout { request: *request, id };
        let until = self.shared.clock.now() + 2 * SETTLE;
        serving.tasks.waiting.push(Waiting { epochs: Vec::new(), claims: Vec::new(), until, then });
    }

    /// Ends the connection: no further frame is taken.
    pub(crate) fn end(&mut self, end: &ConnectionEnd) {
        self.publish_counts();
        self.login = None;
        let Some(serving) = &mut self.serving else { return };
        // At ErrorRecoveryLevel 2 the tasks of a lost connection are kept for reassignment.
        let is_lost = matches!(
            end,
            ConnectionEnd::Closed
                | ConnectionEnd::Socket(_)
                | ConnectionEnd::Silent(_)
                | ConnectionEnd::Fault(_)
                | ConnectionEnd::Recovered
        );
        let keeps = is_lost
            && serving.session_type == SessionType::Normal
            && serving.session.parameters.error_recovery_level == 2;
        self.ending = Some(Ending { keeps, until: self.shared.clock.now() + SETTLE });
    }

    /// Tries to complete the end of the connection, and returns whether it has. Writes that a disk has begun end before
    /// the tasks pass to the session.
    pub(crate) fn is_ended(&mut self) -> bool {
        if self.inbound != Buffered::Usual {
            self.shared.inbound.release(self.id);
            self.inbound = Buffered::Usual;
        }
        let Some(mut serving) = self.serving.take() else { return true };
        let Some((mut keeps, until)) = self.ending.as_ref().map(|ending| (ending.keeps, ending.until)) else {
            self.serving = Some(serving);
            return false;
        };
        if keeps {
            self.finish_jobs(&mut serving);
            // After a reinstatement or a stop nothing is recovered.
            let gives_up = |notice: &Notice| matches!(notice, Notice::Drop(_) | Notice::Stop);
            keeps = !self.mailbox.take().iter().any(gives_up);
            self.sweep(&mut serving);
            if keeps && serving.tasks.jobs.any(|c| c.write_data) && self.shared.clock.now() < until {
                self.serving = Some(serving);
                return false;
            }
        }
        let Serving { protocol, tasks, session, cid, recorded, .. } = &mut *serving;
        let commands = tasks.waiting.iter().filter(|waiting| waiting.command().is_some()).count();
        let deferred = tasks.ordering.abort(|_| true);
        protocol.sequence().unfinished(-((tasks.reads.len() + deferred + commands) as i32));
        let recoverable = keeps.then(|| {
            // Responses made since the last flush must be available for retransmission too.
            Serving::record_pending_of(protocol, recorded, &self.outgoing);
            let reads = std::mem::take(&mut tasks.reads).into_values();
            let reads = reads.map(|read| (read.command.tag, read.parked())).collect();
            RecoverableTasks {
                parked: protocol.park(),
                gathering: std::mem::take(&mut tasks.gathering),
                reads,
            }
        });
        let (session, cid) = (Arc::clone(session), *cid);
        // Drops its tasks and frees their command window slots before the session continues without it.
        drop(serving);
        self.shared.connection_ended(&session, EndedConnection { cid, id: self.id, recoverable });
        true
    }
}

/// The properties of a task that select it for an abort.
pub(super) struct Task {
    pub(super) tag: u32,
    pub(super) lun: Option<Lun>,
    pub(super) epoch: u64,
}
