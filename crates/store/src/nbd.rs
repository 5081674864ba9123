//! `nbd:`, a disk of an NBD server: QEMU's disk images, and everything that nbdkit serves.

mod flight;
mod input;
mod line;
mod link;
mod output;
mod slots;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::time::Duration;

use ::nbd::{Address, Export};
use parking_lot::Mutex;

use crate::operation::Operation;
use crate::request::{Done, Ended, Ticket, wait_for};
use crate::{Geometry, Limits, Request, Store, StoreError, check_range};

use flight::Ask;
use line::{Line, Remote};
use link::Server;

/// How long requests are kept while there is no connection, by default: shorter than the 30 s that initiators wait.
pub const HOLD_DEFAULT: Duration = Duration::from_secs(20);
/// Most connections to one export.
pub const CONNECTIONS_MAX: u32 = 16;

/// How an export is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NbdOptions {
    /// Connections, where the server allows several; at least one.
    pub connections: u32,
    /// How long requests are kept while there is no connection.
    pub hold: Duration,
}

/// Servers that were found before the process was confined, by the text of their address.
static FOUND: Mutex<BTreeMap<String, Arc<Server>>> = Mutex::new(BTreeMap::new());

/// Finds a server's address and reads its certificates, for all that open it later.
///
/// # Errors
/// When the name has no address, or a certificate cannot be read.
pub(crate) fn look_up(address: &Address) -> Result<(), StoreError> {
    let name = address.to_string();
    match Server::new(address) {
        Ok(server) => {
            FOUND.lock().insert(name, Arc::new(server));
            Ok(())
        }
        Err(error) => Err(StoreError::Io { name, error: error.to_string() }),
    }
}

impl Default for NbdOptions {
    fn default() -> Self {
        Self { connections: 1, hold: HOLD_DEFAULT }
    }
}

/// An export of an NBD server. All requests are asynchronous: they are sent in the order in which they begin, and any number is on its way.
///
/// A connection that is lost is made again, and what was not answered is sent again. That is safe while the server ends the old
/// connection's requests with the connection, which it does when it is killed or started again; the protocol cannot demand it.
/// What was acknowledged and not flushed is in the server's cache, as with any disk that has one.
pub struct NbdStore {
    remote: Arc<Remote>,
    lines: Vec<Line>,
    next: AtomicUsize,
}

impl fmt::Debug for NbdStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("NbdStore").field(&self.remote.name).finish()
    }
}

impl NbdStore {
    /// Connects to a server and opens an export.
    ///
    /// # Errors
    /// When there is no connection, the server refuses the export, or it cannot be a disk.
    pub fn open(address: &Address, how: NbdOptions) -> Result<Self, StoreError> {
        let name = address.to_string();
        let failed = |error: String| StoreError::Io { name: name.clone(), error };
        let known = FOUND.lock().get(&name).cloned();
        let server = known.map_or_else(|| Server::new(address).map(Arc::new), Ok);
        let server = server.map_err(|error| failed(error.to_string()))?;
        let (link, export) =
            server.connect(link::NEGOTIATE_TIME).map_err(|error| failed(error.to_string()))?;
        if export.least_bytes > 4096 {
            let error =
                format!("requests must be multiples of {} B; at most 4096 is possible", export.least_bytes);
            return Err(failed(error));
        }
        let count = if export.has_many_connections() { how.connections.clamp(1, CONNECTIONS_MAX) } else { 1 };
        if count < how.connections {
            tracing::warn!("{name}: the server allows one connection, so the disk uses one");
        }
        let remote = Arc::new(Remote { name: name.clone(), server, export, hold: how.hold });
        let links = std::iter::once(Some(link)).chain(std::iter::repeat_with(|| None)).take(count as usize);
        let lines = links.map(|link| Line::new(&remote, link)).collect::<Result<_, _>>();
        let lines = lines.map_err(|error| failed(error.to_string()))?;
        Ok(Self { remote, lines, next: AtomicUsize::new(0) })
    }

    fn export(&self) -> &Export {
        &self.remote.export
    }

    /// The connection for the next request.
    fn line(&self) -> &Line {
        match &self.lines[..] {
            [one] => one,
            many => &many[self.next.fetch_add(1, Ordering::Relaxed) % many.len()],
        }
    }

    fn ask(&self, request: Request) -> Result<Option<crate::Buffer>, StoreError> {
        let ended = wait_for(self, request);
        ended.outcome.map(|()| ended.buffer)
    }

    fn write(&self, offset: u64, data: &[u8], is_stable: bool) -> Result<(), StoreError> {
        let mut memory = self.try_buffer(data.len())?;
        memory.copy_from_slice(data);
        self.ask(Request::Write { offset, data: memory, is_stable }).map(drop)
    }
}

impl Store for NbdStore {
    fn kind(&self) -> &'static str {
        "nbd"
    }

    fn size_bytes(&self) -> u64 {
        // A rest that is no whole block cannot be asked for.
        let size = self.export().size_bytes;
        size - size % u64::from(self.export().least_bytes)
    }

    fn is_read_only(&self) -> bool {
        self.export().is_read_only()
    }

    fn has_volatile_cache(&self) -> bool {
        self.export().has_flush()
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> Result<(), StoreError> {
        if let Some(data) = self.ask(Request::Read { offset, buffer: self.try_buffer(buffer.len())? })? {
            buffer.copy_from_slice(&data);
        }
        Ok(())
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write(offset, data, false)
    }

    fn write_stable_at(&self, offset: u64, data: &[u8]) -> Result<(), StoreError> {
        self.write(offset, data, true)
    }

    fn flush(&self) -> Result<(), StoreError> {
        self.ask(Request::Flush).map(drop)
    }

    fn discard(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        if !self.export().has_write_zeroes() {
            return crate::write_zeros(self, offset, length);
        }
        self.ask(Request::Discard { offset, length }).map(drop)
    }

    fn zero(&self, offset: u64, length: u64) -> Result<(), StoreError> {
        if !self.export().has_write_zeroes() {
            return crate::write_zeros(self, offset, length);
        }
        self.ask(Request::Zero { offset, length }).map(drop)
    }

    fn may_wait(&self, _: Operation) -> bool {
        true
    }

    fn takes(&self, request: &Request) -> bool {
        match request {
            Request::Read { .. } | Request::Write { .. } | Request::Flush => true,
            Request::Discard { .. } | Request::Zero { .. } => self.export().has_write_zeroes(),
            Request::CompareAndWrite { .. } => false,
        }
    }

    fn begin(&self, request: Request, done: Done) -> Ticket {
        if !self.takes(&request) {
            done(request.carry_out(self));
            return Ticket::default();
        }
        let (offset, length) = request.place();
        let refused = check_range(offset, length as usize, self.size_bytes());
        let is_nothing = length == 0 && !matches!(request, Request::Flush);
        let has_no_cache = matches!(request, Request::Flush) && !self.export().has_flush();
        let refused = match refused {
            Ok(()) if self.is_read_only() && request.writes() => Err(StoreError::ReadOnly),
            refused => refused,
        };
        if refused.is_err() || is_nothing || has_no_cache {
            done(Ended::new(refused, request));
            return Ticket::default();
        }
        let line = self.line();
        let id = line.submit(Ask::Request(request, done));
        Ticket::new(line.canceller(id))
    }

    fn geometry(&self) -> Option<Geometry> {
        let export = self.export();
        let logical_bytes = export.least_bytes.max(512);
        let physical_bytes = if export.best_bytes >= 4096 { 4096 } else { logical_bytes };
        Some(Geometry { logical_bytes, physical_bytes, is_rotational: export.is_rotational() })
    }

    fn limits(&self) -> Limits {
        let export = self.export();
        Limits {
            granularity_bytes: export.has_write_zeroes().then_some(export.best_bytes.max(export.least_bytes)),
            best_bytes: (export.best_bytes > 4096).then_some(export.best_bytes),
            ..Limits::default()
        }
    }

    fn is_mapped(&self, offset: u64) -> (bool, u64) {
        let length = self.size_bytes().saturating_sub(offset);
        if !self.export().has_status || length == 0 {
            return (true, length);
        }
        let (reply, answer) = sync_channel(1);
        self.line().submit(Ask::Map { offset, length, reply });
        // What is not known counts as data.
        match answer.recv() {
            Ok(Ok((is_mapped, run))) => (is_mapped, run.min(length)),
            _ => (true, length),
        }
    }
}

#[cfg(test)]
mod tests;
