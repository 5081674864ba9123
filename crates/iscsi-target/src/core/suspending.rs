//! The end of a connection whose session goes on in the next process (kept.rs).
//!
//! From the notice on, no request begins: what is received is kept as it is, except data for writes that have begun. The connection is
//! quiet when none of its requests is in progress and everything is sent.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use iscsi::Bhs;
use iscsi::opcode::initiator as opcode;
use iscsi::pdu::DataOut;

use super::{Core, Serving};
use crate::error::ConnectionEnd;
use crate::kept::{KeptSession, RECEIVED_MAX, SeenDisk};
use crate::session::Session;

/// A connection that is about to be kept.
#[derive(Debug, Default)]
pub(super) struct Suspending {
    /// PDUs for the next process.
    received: Vec<u8>,
}

impl Suspending {
    /// Returns the bytes of the PDUs.
    pub(super) fn bytes(&self) -> usize {
        self.received.len()
    }
}

impl Core {
    /// Begins to keep the session; returns whether it can be kept.
    pub(super) fn suspend(&self, serving: &mut Serving) -> bool {
        // A discovery session has no target node.
        let is_kept = serving.session.node.is_some()
            && serving.session.parameters.error_recovery_level == 0
            && !serving.session.is_ending.load(Ordering::Acquire)
            && serving.session.is_alone(self.id)
            && serving.log_out_by.is_none()
            && serving.view.units.iter().flatten().all(|unit| unit.store.outlives_process());
        if !is_kept {
            // With one of its connections gone, another would look like the only one.
            serving.session.is_ending.store(true, Ordering::Release);
        }
        serving.suspending = is_kept.then(Suspending::default);
        is_kept
    }

    /// Keeps a PDU for the next process, unless it is data of a write that has begun; returns whether it is kept.
    #[cold]
    pub(super) fn keeps(serving: &mut Serving, bhs: &Bhs, pdu: &[u8]) -> bool {
        let is_awaited =
            bhs.opcode() == opcode::DATA_OUT && serving.protocol.awaits_data(DataOut::read(bhs).tag);
        let suspending = serving.suspending.as_mut().filter(|_| !is_awaited);
        suspending.map(|suspending| suspending.received.extend_from_slice(pdu)).is_some()
    }

    /// Ends the connection when it is quiet, or when too much has come meanwhile.
    pub(super) fn suspended(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let Some(suspending) = &serving.suspending else { return Ok(()) };
        let is_quiet = !serving.has_open_task()
            && serving.closing.is_none()
            && serving.protocol.is_between_requests()
            && self.outgoing.is_empty();
        if is_quiet {
            return Err(ConnectionEnd::Suspended);
        }
        if suspending.bytes() <= RECEIVED_MAX {
            return Ok(());
        }
        serving.protocol.announce_drop(&mut self.outgoing);
        Err(ConnectionEnd::Stopping)
    }

    /// Takes the session of a quiet connection out of it. It stays among the sessions of the target until all are quiet.
    pub(crate) fn take_kept(&mut self) -> Option<(KeptSession, Arc<Session>)> {
        let serving = self.serving.take()?;
        let Serving { protocol, session, cid, view, suspending, .. } = *serving;
        let mut received = suspending?.received;
        received.extend_from_slice(self.incoming.unread());
        let key = &session.key;
        let kept = KeptSession {
            peer: self.statistics.peer,
            local: self.local?,
            initiator: self.statistics.initiator_name.clone(),
            isid: key.isid,
            target: key.target_name.clone(),
            portal_group: key.portal_group,
            user: key.user.clone(),
            tsih: session.tsih,
            cid,
            parameters: protocol.parameters().clone(),
            exp_cmd_sn: protocol.sequence().expected(),
            window: protocol.sequence().window(),
            stat_sn: protocol.stat_sn(),
            attentions: Vec::new(),
            disks: SeenDisk::all(&view),
            received_bytes: received.len(),
            received,
        };
        Some((kept, session))
    }
}
