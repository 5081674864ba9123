//! Handling of received PDUs: commands are ordered by CmdSN, deferred by task attribute, or executed.

use std::sync::Arc;

use iscsi::opcode::initiator as opcode;
use iscsi::pdu::ScsiCommand;
use iscsi::target::Incoming;
use iscsi::{Frame, status};
use record::OpKind;
use scsi::{Lun, Sense};

use super::{AGAIN_MAX, Closing, Core, SETTLE, Serving, text};
use crate::context::CommandState;
use crate::error::ConnectionEnd;
use crate::execute::DataOut;
use crate::mailbox::Notice;
use crate::ordering::Deferred;

impl Core {
    /// Handles held commands whose CmdSN is now expected, and notifies the session's other connections of theirs.
    #[inline]
    pub(super) fn answer_held(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        if !serving.protocol.sequence().is_waited_for() {
            return Ok(());
        }
        while let Some(held) = serving.protocol.take_held() {
            serving.count_held()?;
            self.answer(serving, &held.frame(), self.incoming.position())?;
            for frame in held.followers() {
                self.answer(serving, &frame, self.incoming.position())?;
            }
        }
        if serving.protocol.sequence().is_waited_for() {
            serving.session.post_to_others(self.id, Notice::Turn);
        }
        Ok(())
    }

    /// Handles one PDU.
    #[inline]
    pub(super) fn answer(
        &mut self,
        serving: &mut Serving,
        frame: &Frame<'_>,
        end_of_frame: u64,
    ) -> Result<(), ConnectionEnd> {
        let code = frame.bhs.opcode();
        if code == opcode::DATA_OUT && !serving.tasks.ordering.is_empty() && self.follow(serving, frame) {
            return Ok(());
        }
        if code == opcode::SCSI_COMMAND {
            // Before the command takes its CmdSN: an abort of the tasks up to that CmdSN must cover this one.
            self.enter(serving, Lun::decode(frame.bhs.lun()));
        }
        let before = self.outgoing.position();
        let out = &mut self.outgoing;
        match serving.protocol.receive(frame, out)? {
            Incoming::Nothing => return serving.count_held(),
            Incoming::Command { command, data } => {
                self.statistics.commands += 1;
                self.counts.command(command.lun, command.cdb[0], command.expected_bytes);
                self.statistics.busy_count.request();
                // ExpStatSN tells how many responses the initiator has not acknowledged: its queue depth.
                self.control.requested(serving.protocol.unacknowledged(command.exp_stat_sn) + 1);
                if let Some(tape) = &mut self.tape {
                    let kind = match (command.read, command.write_data) {
                        (true, false) if scsi::cdb::reads_the_medium(&command.cdb) => OpKind::Read,
                        (false, true) => OpKind::Write,
                        _ => OpKind::Other,
                    };
                    let bytes = frame.total_bytes as u32;
                    tape.request(command.tag, kind, command.expected_bytes, bytes, end_of_frame);
                }
                self.command(serving, &command, data, before);
            }
            Incoming::Data { tag, store_offset, data, lun } => {
                self.sweep_if_aborted(serving, lun);
                let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
                if view.write_data(DataOut { tag, lun, store_offset, data }, &mut context)
                    == CommandState::Over
                {
                    self.over(serving, tag, before);
                }
            }
            Incoming::TaskManagement(request) => self.task_management(serving, &request)?,
            Incoming::Text { request, text } => {
                let (who, peer) = (&serving.session, self.statistics.peer.ip());
                let answer = text::answer(&self.shared, &text, who, serving.session_type, peer, self.local)?;
                serving.protocol.respond_text(&request, answer, out);
            }
            Incoming::Logout { request, session } => {
                let until = self.shared.clock.now() + SETTLE;
                serving.closing = Some(Closing { request, session, until, in_flight: None });
            }
            Incoming::LogoutOther { request, recovery } => self.log_out_other(serving, &request, recovery),
            Incoming::SendAgain(kept) => {
                if serving.tasks.again.len() + kept.len() > AGAIN_MAX {
                    let reason = iscsi::fault::RejectReason::SnackReject;
                    serving.protocol.reject(reason, &frame.bhs, out);
                } else {
                    serving.tasks.again.extend(kept);
                    let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
                    let _ = Arc::clone(view).advance_reads(&mut context);
                    self.is_due = true;
                }
            }
        }
        Ok(())
    }

    /// Enters the logical unit of a command if the connection has not yet, or if its epoch there has ended.
    #[inline]
    pub(super) fn enter(&mut self, serving: &mut Serving, lun: Option<Lun>) {
        let Some(lun) = lun.filter(|&lun| !serving.tasks.open_units.is_open(lun)) else { return };
        self.sweep(serving);
        if !serving.tasks.open_units.is_open(lun)
            && let Some(unit) = serving.view.unit(lun)
        {
            serving.tasks.open_units.open(lun, unit, &serving.session);
        }
    }

    #[inline]
    pub(super) fn sweep_if_aborted(&mut self, serving: &mut Serving, lun: [u8; 8]) {
        if !Lun::decode(lun).is_some_and(|lun| serving.tasks.open_units.is_open(lun)) {
            self.sweep(serving);
        }
    }

    /// Executes a command, or defers it behind others.
    #[inline]
    pub(super) fn command(&mut self, serving: &mut Serving, command: &ScsiCommand, data: &[u8], before: u64) {
        let is_open = Lun::decode(command.lun).is_some_and(|lun| serving.tasks.open_units.is_open(lun));
        if !is_open && serving.session.is_closed() {
            // The session has ended and this connection is about to be dropped: no more responses.
            return;
        }
        if !serving.tasks.ordering.is_free(command) && self.defers(serving, command, data) {
            return;
        }
        if self.execute(serving, command, data) == CommandState::Over {
            self.over(serving, command.tag, before);
        }
    }

    #[inline]
    pub(super) fn execute(
        &mut self,
        serving: &mut Serving,
        command: &ScsiCommand,
        data: &[u8],
    ) -> CommandState {
        let lun = Lun::decode(command.lun);
        if lun.is_some_and(|lun| serving.tasks.open_units.has_predecessor_writes(lun)) {
            // A write of an earlier session of this nexus is still in flight and must not overwrite a newer one.
            serving.protocol.respond_status(command, status::BUSY, &[], 0, 0, &mut self.outgoing);
            return CommandState::Over;
        }
        if let Some(lun) = lun
            && serving.view.unit(lun).is_some()
            && !serving.tasks.open_units.is_open(lun)
        {
            // The session may no longer use the logical unit.
            let sense = Sense::NO_SUCH_LUN.encode();
            let code = status::CHECK_CONDITION;
            serving.protocol.respond_status(command, code, &sense, 0, 0, &mut self.outgoing);
            return CommandState::Over;
        }
        let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
        view.execute(command, data, &mut context)
    }

    /// Defers a command that must wait for others, or refuses it when memory is short; returns false if it may begin.
    #[cold]
    pub(super) fn defers(&mut self, serving: &mut Serving, command: &ScsiCommand, data: &[u8]) -> bool {
        self.release(serving);
        let Serving { tasks, protocol, .. } = serving;
        if !tasks.ordering.must_wait(command, || tasks.is_busy(protocol, command.lun)) {
            tasks.ordering.started(command);
            return false;
        }
        let lun = Lun::decode(command.lun);
        let epoch = lun.and_then(|lun| tasks.open_units.epoch(lun)).map_or(0, |epoch| epoch.number());
        let jobs = &tasks.jobs;
        if tasks.ordering.defer(command, data, epoch, |bytes| jobs.claim(bytes)) {
            protocol.sequence().unfinished(1);
        } else {
            protocol.respond_status(command, status::TASK_SET_FULL, &[], 0, 0, &mut self.outgoing);
        }
        true
    }

    /// Queues Data-Out behind its deferred command; returns whether the command is deferred.
    #[cold]
    pub(super) fn follow(&mut self, serving: &mut Serving, frame: &Frame<'_>) -> bool {
        let (tag, jobs) = (frame.bhs.initiator_task_tag(), &serving.tasks.jobs);
        match serving.tasks.ordering.follow(frame, tag, |bytes| jobs.claim(bytes)) {
            None => false,
            Some(Ok(())) => true,
            Some(Err(Deferred { command, .. })) => {
                serving.protocol.sequence().unfinished(-1);
                let full = status::TASK_SET_FULL;
                serving.protocol.respond_status(&command, full, &[], 0, 0, &mut self.outgoing);
                true
            }
        }
    }

    /// Starts the deferred commands that may begin now.
    pub(super) fn release(&mut self, serving: &mut Serving) {
        // Deferred commands that another session has aborted get no response.
        self.sweep(serving);
        loop {
            let Serving { tasks, protocol, .. } = &mut *serving;
            let mut ordering = std::mem::take(&mut tasks.ordering);
            ordering.prune(|tag| tasks.is_in_progress(protocol, tag));
            let next = ordering.next(|lun| tasks.is_busy(protocol, lun));
            tasks.ordering = ordering;
            let Some(Deferred { command, data, followers, .. }) = next else { return };
            serving.protocol.sequence().unfinished(-1);
            serving.tasks.ordering.started(&command);
            let before = self.outgoing.position();
            if self.execute(serving, &command, &data) == CommandState::Over {
                self.over(serving, command.tag, before);
            }
            for (bhs, data) in followers {
                let frame = Frame { bhs, ahs: &[], data: &data, total_bytes: 0, is_damaged: false };
                let before = self.outgoing.position();
                let incoming = serving.protocol.receive(&frame, &mut self.outgoing);
                if let Ok(Incoming::Data { tag, store_offset, data, lun }) = incoming {
                    let (mut context, view) = serving.context(&self.shared, &mut self.outgoing);
                    if view.write_data(DataOut { tag, lun, store_offset, data }, &mut context)
                        == CommandState::Over
                    {
                        self.over(serving, tag, before);
                    }
                }
            }
        }
    }

    /// Accounts for a finished command, whose response, if any, was appended after position `before`.
    #[inline]
    pub(super) fn over(&mut self, serving: &Serving, tag: u32, before: u64) {
        if let Some(tape) = &mut self.tape {
            let after = self.outgoing.position();
            tape.response(tag, (after - before) as u32, after);
        }
        self.is_due |= self.control.served(self.outgoing.waiting_bytes())
            || (self.control.holds_all() && !serving.has_open_task());
    }
}
