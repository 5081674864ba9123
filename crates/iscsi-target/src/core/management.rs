//! Task management (RFC 7143 11.5, SAM-5 7). A function that aborts tasks completes when none of them can change a disk
//! any more: their epochs end at once, and the response waits for tasks that are changing a disk at that moment. When
//! that takes longer than [`SETTLE`], the function is rejected and never reported as complete.
//!
//! The scope of a reset is its sender's view: TARGET WARM RESET resets the logical units in it, TARGET COLD RESET also
//! ends the sessions of the same initiator. No function resets a disk that is masked from the initiator
//! (docs/security.md).

use std::sync::{Arc, Weak};

use iscsi::opcode::initiator as opcode;
use iscsi::pdu::TaskManagementRequest;
use iscsi::replay::{Kept, KeptData};
use iscsi::target::Adopted;
use iscsi::task_management::{Function, Response};
use scsi::{Lun, UnitAttention};

use super::{Core, SETTLE, Serving};
use crate::effects::Attentions;
use crate::error::ConnectionEnd;
use crate::fence::Epoch;
use crate::jobs::Claim;
use crate::lock::lock;
use crate::waiting::{Then, WAITING_MAX, Waiting};

impl Core {
    /// Executes a task management function.
    #[cold]
    pub(super) fn task_management(
        &mut self,
        serving: &mut Serving,
        request: &TaskManagementRequest,
    ) -> Result<(), ConnectionEnd> {
        debug_assert!(request.write().opcode() == opcode::TASK_MANAGEMENT);
        if serving.session.is_closed() {
            // A session that has ended aborts nothing; its connections are about to be dropped.
            return Ok(());
        }
        if serving.tasks.waiting.len() >= WAITING_MAX {
            serving.protocol.respond_task_management(request, Response::Rejected, &mut self.outgoing);
            return Ok(());
        }
        // Completed jobs are answered first: they can no longer be aborted.
        self.finish_jobs(serving);
        let lun = Lun::decode(request.lun).filter(|lun| serving.view.luns.0.contains_key(lun));
        let (mut epochs, mut claims, mut ends) = (Vec::new(), Vec::new(), None);
        let response = match (request.function(), lun) {
            (Function::AbortTask, _) => {
                let (found, begun) = abort_one(serving, request.referenced_tag);
                claims = begun;
                if found { Response::Complete } else { Response::NoSuchTask }
            }
            (Function::TaskReassign, _) => self.reassign(serving, request),
            (Function::ClearAca | Function::Unknown(_), _) => Response::NotSupported,
            (Function::AbortTaskSet | Function::ClearTaskSet | Function::LogicalUnitReset, None) => {
                Response::NoSuchLun
            }
            (Function::AbortTaskSet, Some(lun)) => {
                epochs = serving.session.abort_tasks(lun);
                Response::Complete
            }
            (Function::ClearTaskSet, Some(lun)) => {
                let own = serving.session.instance;
                let cleared = |instance| (instance != own).then_some(UnitAttention::CommandsCleared);
                if let Some(unit) = serving.view.unit(lun) {
                    epochs = unit.nexuses.abort(|_| true, cleared);
                }
                Response::Complete
            }
            (Function::LogicalUnitReset, Some(lun)) => {
                epochs = self.reset(serving, lun);
                Response::Complete
            }
            (Function::TargetWarmReset | Function::TargetColdReset, _) => {
                let luns: Vec<Lun> = serving.view.luns.0.keys().copied().collect();
                epochs = luns.into_iter().flat_map(|lun| self.reset(serving, lun)).collect();
                if request.function() == Function::TargetColdReset {
                    let reason = "cold reset by this initiator";
                    let (sessions, session) = (&self.shared.sessions, &serving.session);
                    epochs.extend(session.close_tasks());
                    epochs.extend(sessions.end_initiator(session, self.id, reason));
                    ends = Some(reason);
                }
                Response::Complete
            }
        };
        self.sweep(serving);
        let then = Then::TaskManagement { request: *request, response, ends };
        let until = self.shared.clock.now() + SETTLE;
        serving.tasks.waiting.push(Waiting { epochs, claims, until, then });
        self.finish_waiting(serving)
    }

    /// Resets a logical unit; returns the epochs that have not ended yet.
    fn reset(&self, serving: &Serving, lun: Lun) -> Vec<Arc<Epoch>> {
        let Some(unit) = serving.view.unit(lun) else { return Vec::new() };
        let epochs = unit.nexuses.abort(|_| true, |_| None);
        serving.view.luns.reset(Some(lun));
        if let Some(disk) = serving.view.luns.0.get(&lun) {
            self.shared.sessions.raise(disk, UnitAttention::Reset, &|_| true);
        }
        epochs
    }

    /// TASK REASSIGN: continues a task of a lost connection on this one, unless it was aborted.
    fn reassign(&mut self, serving: &mut Serving, request: &TaskManagementRequest) -> Response {
        if serving.protocol.parameters().error_recovery_level < 2 {
            return Response::ReassignNotSupported;
        }
        self.enter(serving, Lun::decode(request.lun));
        let Serving { session, protocol, tasks, view, .. } = serving;
        let (tag, out) = (request.referenced_tag, &mut self.outgoing);
        // Data is read from the medium again, which a reservation of another session may forbid by now.
        let luns = &view.luns;
        let may_send = |kept: &[Kept]| {
            kept.iter().all(|kept| match kept.data {
                KeptData::Copy(_) => true,
                KeptData::Medium { lun, .. } => {
                    Lun::decode(lun).is_some_and(|lun| luns.may_read(lun, &lock(&session.nexus)))
                }
            })
        };
        let response = session.with_lost(|recoverable| {
            let lanes = &tasks.open_units;
            let is_aborted = |lun, epoch| !Lun::decode(lun).is_some_and(|lun| lanes.is_current(lun, epoch));
            recoverable
                .parked
                .abort(|task| task.command.tag == tag && is_aborted(task.command.lun, task.order.epoch));
            if let Some(read) = recoverable.reads.remove(&tag) {
                if is_aborted(read.command.lun, read.epoch) {
                    return None;
                }
                let origin = read.origin();
                let Some(mut read) = read.restart(protocol, request.exp_data_sn) else {
                    return Some(Response::ReassignNotSupported);
                };
                protocol.reads_from(tag, origin);
                read.count(protocol);
                tasks.reads.insert(tasks.next_read, read);
                tasks.next_read += 1;
                return Some(Response::Complete);
            }
            match protocol.adopt(&mut recoverable.parked, tag, request.exp_data_sn, out) {
                Adopted::Refused(Response::NoSuchTask) => None,
                Adopted::Refused(response) => Some(response),
                Adopted::Write => {
                    tasks.gathering.adopt(&mut recoverable.gathering, tag);
                    Some(Response::Complete)
                }
                Adopted::Finished(kept) if !may_send(&kept) => Some(Response::ReassignNotSupported),
                Adopted::Finished(kept) => {
                    for mut kept in kept {
                        if protocol.reassigned(&mut kept, request.exp_data_sn).is_some() {
                            tasks.again.push_back(kept);
                        }
                    }
                    Some(Response::Complete)
                }
            }
        });
        response.unwrap_or(Response::NoSuchTask)
    }
}

/// Aborts the task with a tag. Returns whether it existed, and the claims of jobs that may still change a disk.
fn abort_one(serving: &mut Serving, tag: u32) -> (bool, Vec<Weak<Claim>>) {
    let (tasks, claims) = Core::abort(serving, |task| task.tag == tag);
    let before = serving.tasks.waiting.len();
    serving.tasks.waiting.retain(|waiting| waiting.command().is_none_or(|command| command.tag != tag));
    let waiting = before - serving.tasks.waiting.len();
    serving.protocol.sequence().unfinished(-(waiting as i32));
    (tasks + waiting > 0, claims)
}
