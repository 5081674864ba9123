//! The end of a connection whose session goes on in the next process (kept.rs).
//!
//! From the notice on, no request begins: what is received is kept as it is, except data for writes that have begun. The connection is
//! quiet when none of its requests is in progress and everything is sent.

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use iscsi::Bhs;
use iscsi::opcode::initiator as opcode;
use iscsi::pdu::DataOut;

use super::{Core, Serving};
use crate::error::ConnectionEnd;
use crate::kept::{KeptSession, Quiet, RECEIVED_MAX, SeenDisk};
use crate::unit::Unit;

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
    /// Begins to keep the session.
    ///
    /// # Errors
    /// When it cannot be kept.
    pub(super) fn suspend(&mut self, serving: &mut Serving) -> Result<(), ConnectionEnd> {
        let session = &serving.session;
        let lasts = |unit: &Arc<Unit>| unit.store.lasting_name().is_some();
        let reason = if session.node.is_none() {
            Some("it is for discovery")
        } else if session.parameters.error_recovery_level > 0 {
            Some("its ErrorRecoveryLevel is above 0")
        } else if session.is_ending() || !session.is_alone(self.id) {
            Some("it has several connections")
        } else if serving.log_out_by.is_some() {
            Some("its initiator was asked to log out")
        } else if !serving.view.units.iter().flatten().all(lasts) {
            Some("the data of a disk end with the process, or may be lost already")
        } else {
            None
        };
        let Some(reason) = reason else {
            serving.suspending = Some(Suspending::default());
            return Ok(());
        };
        // With one of its connections gone, another would look like the only one.
        session.is_ending.store(true, Ordering::Release);
        Err(self.not_kept(serving, reason))
    }

    /// Ends a session with the process.
    fn not_kept(&mut self, serving: &mut Serving, reason: &str) -> ConnectionEnd {
        let (initiator, target_name) = (&self.statistics.initiator_name, &self.statistics.target);
        tracing::info!(target: "audit", peer = %self.statistics.peer, initiator, target_name, reason, "session not kept for the next process");
        serving.protocol.announce_drop(&mut self.outgoing);
        ConnectionEnd::Stopping
    }

    /// The target stops.
    pub(super) fn stopped(&mut self, serving: &mut Serving) -> ConnectionEnd {
        if serving.suspending.is_some() {
            return self.not_kept(serving, "a command or an exchange of it was not done in time");
        }
        serving.protocol.announce_drop(&mut self.outgoing);
        ConnectionEnd::Stopping
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
        Err(self.not_kept(serving, "too much has come while a command was not done"))
    }

    /// Takes the session of a quiet connection out of it. It stays among the sessions of the target until all are quiet.
    pub(crate) fn take_kept(&mut self, socket: TcpStream) -> Option<Quiet> {
        let serving = self.serving.take()?;
        let Serving { protocol, session, cid, view, suspending, held, .. } = *serving;
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
        Some(Quiet { kept, session, id: self.id, socket, _share: held })
    }
}
