//! Established sessions that outlive their process: what the next one needs to go on with their connections.
//!
//! [`RunningTarget::suspend`](crate::RunningTarget::suspend) takes the sessions out of a target when none of their requests is in
//! progress; the sockets stay open, and [`BoundTarget::start_with`](crate::BoundTarget::start_with) continues them, in another process
//! if the sockets and the [`Kept::text`] are passed there. Their initiators see a pause and nothing else.
//!
//! A session is kept when that is safe without doubt: one connection, ErrorRecoveryLevel 0, disks whose data outlives the process.
//! It goes on when its initiator may still log in and sees the same disks. Others end, and their initiators log in again.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use iscsi::Parameters;
use scsi::{Carried, Disk, UnitAttention};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::lock::lock;
use crate::session::Session;
use crate::table::Table;

/// The version of the format. Another one is not read: the sessions end, and their initiators log in again.
const VERSION: u32 = 1;

/// Most bytes of received PDUs that are kept for a connection: more than a window of commands with unsolicited data as a rule.
pub(crate) const RECEIVED_MAX: usize = 32 << 20;

/// Why kept sessions cannot go on.
#[derive(Debug, Error)]
pub enum KeptError {
    /// The text is no state of sessions.
    #[error("the state of the kept sessions cannot be read: {0}")]
    Text(#[from] serde_json::Error),
    /// The process before has another format.
    #[error("the state of the kept sessions has format {0}, and this version reads format {VERSION}")]
    Version(u32),
    /// Received bytes are missing.
    #[error("the state of the kept sessions is cut off")]
    Short,
}

/// Sessions and the state of disks, on their way to the next process.
#[derive(Debug, Default)]
pub struct Kept {
    pub(crate) sessions: Vec<(KeptSession, TcpStream)>,
    pub(crate) disks: Vec<KeptDisk>,
}

/// A session with its connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptSession {
    /// The addresses of the connection, by which its socket is found.
    pub(crate) peer: SocketAddr,
    pub(crate) local: SocketAddr,
    pub(crate) initiator: String,
    pub(crate) isid: [u8; 6],
    pub(crate) target: String,
    pub(crate) portal_group: u16,
    /// The authenticated CHAP user. Its secret is not kept.
    pub(crate) user: Option<String>,
    pub(crate) tsih: u16,
    pub(crate) cid: u16,
    pub(crate) parameters: Parameters,
    pub(crate) exp_cmd_sn: u32,
    /// The commands that the initiator may send.
    pub(crate) window: u32,
    pub(crate) stat_sn: u32,
    /// The unit attentions that have not been reported.
    pub(crate) attentions: Vec<(u16, UnitAttention)>,
    pub(crate) disks: Vec<SeenDisk>,
    /// Bytes that were received and not acted upon; they follow the text.
    pub(crate) received_bytes: usize,
    #[serde(skip)]
    pub(crate) received: Vec<u8>,
}

/// What an initiator knows of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenDisk {
    lun: u16,
    serial: String,
    naa: Option<Vec<u8>>,
    blocks: u64,
    block_bytes: u32,
    read_only: bool,
}

/// The state of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptDisk {
    pub(crate) serial: String,
    pub(crate) state: Carried,
}

#[derive(Serialize, Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize, Deserialize)]
struct Body {
    version: u32,
    sessions: Vec<KeptSession>,
    disks: Vec<KeptDisk>,
}

impl SeenDisk {
    fn of(lun: u16, disk: &Disk) -> Self {
        Self {
            lun,
            serial: disk.identity.serial.clone(),
            naa: disk.identity.naa.clone(),
            blocks: disk.blocks,
            block_bytes: disk.block_bytes,
            read_only: disk.read_only,
        }
    }

    /// The disks of a view.
    pub(crate) fn all(view: &Table) -> Vec<Self> {
        view.luns.0.iter().map(|(lun, disk)| Self::of(lun.0, disk)).collect()
    }
}

/// Whether a disk has state that ends with the process.
fn loses_state(disk: &Disk) -> bool {
    disk.shared.reservations.is_reserved_by_session()
        || !disk.shared.loading.is_initial()
        || !disk.ports.is_initial()
}

/// A session whose connection is quiet, while others of the target may not be.
#[derive(Debug)]
pub(crate) struct Quiet {
    pub(crate) kept: KeptSession,
    pub(crate) session: Arc<Session>,
    pub(crate) socket: TcpStream,
}

impl Quiet {
    /// Returns what goes on, once no other session can do anything to it any more; `None` when one of them has ended it, by a reset.
    pub(crate) fn finish(self) -> Option<(KeptSession, TcpStream)> {
        let Self { mut kept, session, socket } = self;
        if session.is_closed() {
            return None;
        }
        let view = session.view()?;
        let mut nexus = lock(&session.nexus);
        for (&lun, _) in view.luns.0.iter().filter(|(_, disk)| loses_state(disk)) {
            nexus.raise(lun, UnitAttention::PowerOn);
        }
        kept.attentions = nexus.pending().map(|(lun, attention)| (lun.0, attention)).collect();
        drop(nexus);
        Some((kept, socket))
    }
}

impl Kept {
    /// Returns the number of sessions.
    #[must_use]
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Returns the sockets of the connections.
    pub fn sockets(&self) -> impl Iterator<Item = &TcpStream> {
        self.sessions.iter().map(|(_, socket)| socket)
    }

    /// Returns the state of the sessions without their sockets: a line of JSON, and the bytes that were received.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn text(&self) -> Result<Vec<u8>, KeptError> {
        let sessions: Vec<KeptSession> = self.sessions.iter().map(|(session, _)| session.clone()).collect();
        let mut text = serde_json::to_vec(&Body { version: VERSION, sessions, disks: self.disks.clone() })?;
        text.push(b'\n');
        self.sessions.iter().for_each(|(session, _)| text.extend_from_slice(&session.received));
        Ok(text)
    }

    /// Returns the sessions of a text whose sockets are there; without their sockets they have ended.
    ///
    /// # Errors
    /// When the text is not of this version's [`Kept::text`].
    pub fn new(text: &[u8], sockets: Vec<TcpStream>) -> Result<Self, KeptError> {
        let line = text.iter().position(|&byte| byte == b'\n').ok_or(KeptError::Short)?;
        let (json, mut received) = (&text[..line], &text[line + 1..]);
        let Head { version } = serde_json::from_slice(json)?;
        if version != VERSION {
            return Err(KeptError::Version(version));
        }
        let Body { sessions, disks, .. } = serde_json::from_slice(json)?;
        let addresses = |socket: &TcpStream| Some((socket.peer_addr().ok()?, socket.local_addr().ok()?));
        // One that its initiator has reset has no addresses any more.
        let mut sockets: BTreeMap<_, _> =
            sockets.into_iter().filter_map(|socket| Some((addresses(&socket)?, socket))).collect();
        let mut kept = Self { sessions: Vec::new(), disks };
        for mut session in sessions {
            let (own, rest) = received.split_at_checked(session.received_bytes).ok_or(KeptError::Short)?;
            (session.received, received) = (own.to_vec(), rest);
            if let Some(socket) = sockets.remove(&(session.peer, session.local)) {
                kept.sessions.push((session, socket));
            }
        }
        Ok(kept)
    }
}
