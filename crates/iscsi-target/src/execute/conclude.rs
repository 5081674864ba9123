//! Execution of plans that need no more data: media actions, copies, changes of mode pages and reservations.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use iscsi::pdu::ScsiCommand;
use iscsi::status;
use scsi::{Action, Disk, Effects, Lun, Plan, Segment, Sense};
use store::Request;

use super::is_long;
use crate::context::{CommandState, Context, Transfer, no_lun};
use crate::done::Outcome;
use crate::effects::Recipient;
use crate::fence::Epoch;
use crate::jobs::{Job, Room};
use crate::lock::lock;
use crate::medium;
use crate::medium::Place;
use crate::planted::{Bug, is_planted};
use crate::sense::write_sense;
use crate::session::Session;
use crate::table::Table;
use crate::unit::Unit;
use crate::waiting::{Then, Waiting};

/// Longest time that PREEMPT AND ABORT waits for writes in flight before it fails.
const PREEMPT_TIME: Duration = Duration::from_secs(30);

/// The epochs of a copy's destinations, by LUN.
type CopyEpochs = BTreeMap<u16, Arc<Epoch>>;

/// The result of a change of reservations.
struct Reserved {
    lun: Lun,
    status: u8,
    effects: Effects,
}

impl Table {
    /// Executes a plan that needs no more data: here, or as a job when its disk may block or there is much to do.
    pub(super) fn conclude_or_begin(
        self: &Arc<Self>,
        command: &ScsiCommand,
        plan: Plan,
        transfer: Transfer,
        context: &mut Context<'_>,
    ) -> CommandState {
        let Transfer { r2ts, moved_bytes } = transfer;
        if let Plan::Reserved { lun, status, effects } = plan {
            return self.reserved(command, transfer, Reserved { lun, status, effects }, context);
        }
        let Some(copies) = self.copy_epochs(&plan, context) else { return CommandState::Over };
        let target = match &plan {
            Plan::Medium { lun, .. } | Plan::Changed { lun, .. } | Plan::Copy { lun, .. } => Some(*lun),
            _ => None,
        };
        let unit = target.and_then(|lun| Some((lun, self.unit(lun)?)));
        let plan = match (self.as_request(plan), unit) {
            (Ok(request), Some((lun, unit))) => {
                return self.begin_request(command, (lun, unit), request, transfer, context);
            }
            (Ok(_), None) => return no_lun(command, context),
            (Err(plan), _) => plan,
        };
        if (self.is_slow(&plan) || is_long(&plan))
            && let Some((lun, unit)) = unit
            && let Some(job) = context.job(command, lun, true)
        {
            let jobs = &context.tasks.jobs;
            let Some(share) = jobs.room(moved_bytes).or_else(|| jobs.spare()) else {
                context.connection.respond_status(command, status::BUSY, &[], 0, r2ts, context.out);
                return CommandState::Over;
            };
            let (table, session, lun) = (Arc::clone(self), Arc::clone(context.session), command.lun);
            let job = Job { r2ts, ..job };
            context.tasks.jobs.begin(job, Room { unit, share: Some(share), bytes: moved_bytes }, move || {
                let (status, sense) = table.conclude(lun, plan, &session, &copies);
                Outcome::Status(status, sense, moved_bytes)
            });
            return CommandState::Pending;
        }
        let epoch = target.and_then(|lun| context.tasks.open_units.epoch(lun));
        let _working = match &epoch {
            Some(epoch) => match Epoch::enter(&**epoch) {
                Some(working) => Some(working),
                None => return CommandState::Over,
            },
            None => None,
        };
        let (status, sense) = self.conclude(command.lun, plan, context.session, &copies);
        context.connection.respond_status(command, status, &sense, moved_bytes, r2ts, context.out);
        CommandState::Over
    }

    /// Turns a plan into one request that its store takes without a waiting thread; otherwise returns the plan.
    fn as_request(&self, plan: Plan) -> Result<Request, Plan> {
        let Plan::Medium { lun, action } = plan else { return Err(plan) };
        let (Some(disk), Some(store)) = (self.luns.0.get(&lun), self.store(lun)) else {
            return Err(Plan::Medium { lun, action });
        };
        let request = match &action {
            // A flush that follows is a second request.
            _ if disk.is_write_through() => None,
            Action::CompareAndWrite { offset_bytes, expected, data, fua: false }
                if store.limits().step_bytes.is_some() =>
            {
                let memory = store.try_buffer(data.len()).ok();
                memory.map(|mut memory| {
                    memory.copy_from_slice(data);
                    let (offset, expected) = (*offset_bytes, expected.clone());
                    Request::CompareAndWrite { offset, expected, data: memory }
                })
            }
            Action::Unmap { ranges } => match &ranges[..] {
                [range] => Some(Request::Discard { offset: range.offset_bytes, length: range.length_bytes }),
                _ => None,
            },
            Action::Fill { offset_bytes, length_bytes, block } if block.iter().all(|&byte| byte == 0) => {
                Some(Request::Zero { offset: *offset_bytes, length: *length_bytes })
            }
            _ => None,
        };
        request.filter(|request| store.takes(request)).ok_or(Plan::Medium { lun, action })
    }

    /// Begins a request that its store takes, and that answers the command.
    fn begin_request(
        self: &Arc<Self>,
        command: &ScsiCommand,
        (lun, unit): (Lun, &Arc<Unit>),
        request: Request,
        Transfer { r2ts, moved_bytes }: Transfer,
        context: &mut Context<'_>,
    ) -> CommandState {
        // Its session may no longer use the unit.
        let Some(job) = context.job(command, lun, true) else { return CommandState::Over };
        let jobs = &context.tasks.jobs;
        let Some(share) = jobs.room(moved_bytes).or_else(|| jobs.spare()) else {
            context.connection.respond_status(command, status::BUSY, &[], 0, r2ts, context.out);
            return CommandState::Over;
        };
        let (table, lun) = (Arc::clone(self), command.lun);
        let room = Room { unit, share: Some(share), bytes: moved_bytes };
        context.tasks.jobs.submit(Job { r2ts, ..job }, room, request, move |ended| {
            table.ended(lun, ended.outcome, moved_bytes)
        });
        CommandState::Pending
    }

    /// Completes a change of reservations: establishes unit attentions, and aborts tasks before it sends the response.
    fn reserved(
        &self,
        command: &ScsiCommand,
        transfer: Transfer,
        reserved: Reserved,
        context: &mut Context<'_>,
    ) -> CommandState {
        let Transfer { r2ts, moved_bytes } = transfer;
        let Reserved { lun, status, effects } = reserved;
        if let Some(disk) = self.luns.0.get(&lun) {
            for (port, attention) in &effects.attentions {
                let is_named =
                    |recipient: Recipient<'_>| scsi::reservations::names(port, recipient.nexus_name);
                self.effects.raise(disk, *attention, is_named);
            }
        }
        let aborts = |nexus: &str| effects.aborted.iter().any(|port| scsi::reservations::names(port, nexus));
        let epochs = match self.unit(lun) {
            Some(unit) if !effects.aborted.is_empty() => unit.nexuses.abort(aborts, |_| None),
            _ => Vec::new(),
        };
        if epochs.is_empty() {
            context.connection.respond_status(command, status, &[], moved_bytes, r2ts, context.out);
            return CommandState::Over;
        }
        let then = Then::Command { command: *command, r2ts, status, moved_bytes };
        let until = context.clock.now() + PREEMPT_TIME;
        context.connection.sequence().unfinished(1);
        context.tasks.waiting.push(Waiting { epochs, claims: Vec::new(), until, then });
        CommandState::Pending
    }

    /// Returns the epochs of the logical units that a copy writes to, so that an abort at one of them stops the copy
    /// there; `None` when the session may no longer use one of them.
    fn copy_epochs(&self, plan: &Plan, context: &mut Context<'_>) -> Option<CopyEpochs> {
        let mut epochs = CopyEpochs::new();
        let Plan::Copy { segments, .. } = plan else { return Some(epochs) };
        for lun in segments.iter().map(|segment| segment.to.lun) {
            if !context.tasks.open_units.is_open(lun) {
                let unit = self.unit(lun)?;
                context.tasks.open_units.open(lun, unit, context.session);
            }
            epochs.insert(lun.0, context.tasks.open_units.epoch(lun)?);
        }
        Some(epochs)
    }

    /// Executes a plan that needs no more data; returns status and sense.
    fn conclude(
        &self,
        lun_field: [u8; 8],
        plan: Plan,
        session: &Session,
        copies: &CopyEpochs,
    ) -> (u8, Vec<u8>) {
        let outcome = match plan {
            Plan::Medium { lun, action } => match self.unit(lun) {
                Some(unit) => medium::act(&*unit.store, &unit.atomic_lock, action)
                    .and_then(|()| self.through(lun))
                    .map(|()| status::GOOD),
                None => Err(Sense::NO_SUCH_LUN),
            },
            Plan::Status(status) => Ok(status),
            Plan::Changed { lun, attention } => {
                // SPC: every other session is notified, the one that made the change is not.
                let is_other = |recipient: Recipient<'_>| {
                    recipient.instance != session.instance || is_planted(Bug::NotifiesOriginator)
                };
                if let Some(disk) = self.luns.0.get(&lun) {
                    self.effects.raise(disk, attention, is_other);
                }
                Ok(status::GOOD)
            }
            Plan::Copy { lun, segments, list_identifier } => {
                let (copied, outcome) = self.copy(&segments, copies);
                if let (Some(disk), Some(identifier)) = (self.luns.0.get(&lun), list_identifier) {
                    record_copy(disk, session, identifier, &segments[..copied], outcome.is_ok());
                }
                outcome.map(|()| status::GOOD)
            }
            Plan::Check(sense) => Err(sense),
            _ => Err(Sense::INVALID_FIELD),
        };
        match outcome {
            Ok(status) => (status, Vec::new()),
            Err(sense) => (status::CHECK_CONDITION, self.luns.encode(lun_field, &sense)),
        }
    }

    /// Flushes the disk when its write cache is disabled (WCE is 0).
    fn through(&self, lun: Lun) -> Result<(), Sense> {
        match (self.luns.0.get(&lun), self.store(lun)) {
            (Some(disk), Some(store)) if disk.is_write_through() => {
                store.flush().map_err(|error| write_sense(&error))
            }
            _ => Ok(()),
        }
    }

    /// Copies segments in order; returns how many were copied, and the error that stopped the copy.
    fn copy(&self, segments: &[Segment], copies: &CopyEpochs) -> (usize, Result<(), Sense>) {
        for (index, segment) in segments.iter().enumerate() {
            let (from, to) = (segment.from, segment.to);
            let (Some(a), Some(b), Some(epoch)) =
                (self.unit(from.lun), self.unit(to.lun), copies.get(&to.lun.0))
            else {
                return (index, Err(Sense::COPY_ABORTED));
            };
            let source =
                Place { store: &*a.store, atomic_lock: &a.atomic_lock, offset_bytes: from.offset_bytes };
            let destination =
                Place { store: &*b.store, atomic_lock: &b.atomic_lock, offset_bytes: to.offset_bytes };
            let enter = || Epoch::enter(&**epoch);
            let copied = medium::copy(source, destination, segment.length_bytes, enter)
                .and_then(|()| self.through(to.lun));
            if let Err(sense) = copied {
                return (index, Err(sense));
            }
        }
        (segments.len(), Ok(()))
    }
}

fn record_copy(disk: &Disk, session: &Session, identifier: u8, copied: &[Segment], is_whole: bool) {
    disk.shared.copies.ended(&lock(&session.nexus), identifier, copied, is_whole);
}
