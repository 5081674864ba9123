//! Established sessions that outlive their process: what the next one needs to go on with their connections.
//!
//! [`RunningTarget::suspend`](crate::RunningTarget::suspend) takes the sessions out of a target when none of their requests is in
//! progress; the sockets stay open, and [`BoundTarget::start_with`](crate::BoundTarget::start_with) continues them, in another process
//! if the sockets and what [`Kept::write`] writes are passed there. Their initiators see a pause and nothing else.
//!
//! A session is kept when that is certainly safe: one connection, ErrorRecoveryLevel 0, disks whose data outlives the process.
//! It goes on when its initiator may still log in and sees the same disks. Others end, and their initiators log in again.

use std::collections::BTreeMap;
use std::io::Write;
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;

use iscsi::Parameters;
use scsi::{Carried, Disk, Lun, UnitAttention};
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::lock::lock;
use crate::memory::Share;
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

/// A disk as an initiator knows it, and the data behind it. What only an upgrade changes (the revision) is not part of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SeenDisk {
    lun: u16,
    store: Option<String>,
    serial: String,
    naa: Option<Vec<u8>>,
    vendor: String,
    product: String,
    t10: Option<String>,
    blocks: u64,
    block_bytes: u32,
    physical_exponent: u8,
    granularity_bytes: Option<u32>,
    #[serde(default)]
    step_bytes: Option<u32>,
    #[serde(default)]
    best_bytes: Option<u32>,
    read_only: bool,
    removable: bool,
    is_rotational: bool,
    write_cache: bool,
}

/// The state of a disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptDisk {
    pub(crate) store: String,
    pub(crate) serial: String,
    pub(crate) state: Carried,
}

#[derive(Deserialize)]
struct Head {
    version: u32,
}

#[derive(Serialize)]
struct Written<'a> {
    version: u32,
    sessions: Vec<&'a KeptSession>,
    disks: &'a [KeptDisk],
}

#[derive(Deserialize)]
struct Read {
    sessions: Vec<KeptSession>,
    disks: Vec<KeptDisk>,
}

impl SeenDisk {
    /// Whether its data outlived the process.
    pub(crate) fn lasts(&self) -> bool {
        self.store.is_some()
    }

    /// The disks of a view.
    pub(crate) fn all(view: &Table) -> Vec<Self> {
        let of = |(&lun, disk): (&Lun, &Disk)| {
            let identity = disk.identity.clone();
            Self {
                lun: lun.0,
                store: view.unit(lun).and_then(|unit| unit.store.lasting_name()),
                serial: identity.serial,
                naa: identity.naa,
                vendor: identity.vendor,
                product: identity.product,
                t10: identity.t10,
                blocks: disk.blocks,
                block_bytes: disk.block_bytes,
                physical_exponent: disk.physical_exponent,
                granularity_bytes: disk.provisioning.map(|thin| thin.granularity_bytes),
                step_bytes: disk.step_bytes,
                best_bytes: disk.best_bytes,
                read_only: disk.read_only,
                removable: disk.removable,
                is_rotational: disk.is_rotational,
                write_cache: disk.write_cache,
            }
        };
        view.luns.0.iter().map(of).collect()
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
    /// The number of its connection.
    pub(crate) id: u64,
    pub(crate) socket: TcpStream,
    /// The share of the memory budget that the received bytes have.
    pub(crate) _share: Share,
}

impl Quiet {
    /// Returns what goes on, once no other session can do anything to it any more; `None` when one of them has ended it by a reset, or
    /// another connection has joined it or taken the place of its own.
    pub(crate) fn finish(self) -> Option<(KeptSession, TcpStream)> {
        let Self { mut kept, session, id, socket, .. } = self;
        if session.is_closed() || session.is_ending() || session.has(kept.cid).0 != Some(id) {
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

    /// Writes the state of the sessions without their sockets: a line of JSON, and the bytes that were received.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write(&self, to: &mut impl Write) -> std::io::Result<()> {
        let sessions = self.sessions.iter().map(|(session, _)| session).collect();
        serde_json::to_writer(&mut *to, &Written { version: VERSION, sessions, disks: &self.disks })?;
        to.write_all(b"\n")?;
        self.sessions.iter().try_for_each(|(session, _)| to.write_all(&session.received))
    }

    /// Returns the sessions of a text whose sockets are there; without their sockets they have ended.
    ///
    /// # Errors
    /// When the text is not of this version's [`Kept::write`].
    pub fn new(text: &[u8], sockets: Vec<TcpStream>) -> Result<Self, KeptError> {
        let line = text.iter().position(|&byte| byte == b'\n').ok_or(KeptError::Short)?;
        let (json, mut received) = (&text[..line], &text[line + 1..]);
        let Head { version } = serde_json::from_slice(json)?;
        if version != VERSION {
            return Err(KeptError::Version(version));
        }
        let Read { sessions, disks } = serde_json::from_slice(json)?;
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
