//! Options of running programs' sockets: planned, recorded, set and restored.
//!
//! A socket lives as long as its program, so there is nothing to keep after a reboot. The record is written before the change, and
//! names the socket so that another one cannot be mistaken for it: by boot, process, start time of the process, descriptor, inode
//! and the kernel's cookie.

use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use nix::fcntl::{Flock, FlockArg};
use serde::{Deserialize, Serialize};
use socket::foreign::{ForeignSocket, OptionName, OptionValue, Process, Wish};
use thiserror::Error;

use crate::facts::socket::SocketFacts;

/// The record's name in the state folder.
const RECORD: &str = "sockets.json";

/// Why an option of a running program's socket was not changed, or not restored.
#[derive(Debug, Error)]
pub enum LiveError {
    /// The socket's process cannot be reached.
    #[error("{socket}: {source}{}", hint(source))]
    Socket {
        /// Which socket.
        socket: String,
        /// Why.
        source: io::Error,
    },
    /// The descriptor or the pid means something else by now.
    #[error("{socket}: {what}; nothing was changed")]
    Reused {
        /// Which socket.
        socket: String,
        /// What differs.
        what: &'static str,
    },
    /// The kernel rejected a value.
    #[error("{socket}: {option}={value}: {source}")]
    Rejected {
        /// Which socket.
        socket: String,
        /// The option.
        option: OptionName,
        /// The value.
        value: String,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The record cannot be read or written.
    #[error("{path}: {source}; choose another folder with --state")]
    Record {
        /// The file.
        path: String,
        /// Why.
        source: io::Error,
    },
}

fn hint(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::PermissionDenied => "; only root and the user of the process may reach its sockets",
        _ => "",
    }
}

/// One socket of a process, as a check or a record names it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SocketName {
    /// The process.
    pub pid: u32,
    /// The name of its program.
    pub program: String,
    /// The descriptor.
    pub fd: i32,
    /// Its ends, for people.
    pub ends: String,
    /// Its inode.
    pub inode: u64,
}

impl std::fmt::Display for SocketName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} ({}, pid {}, fd {})", self.ends, self.program, self.pid, self.fd)
    }
}

impl SocketName {
    /// A socket by one of its holders: by the descriptor `fd`, or by the first. Its options are the same for all. `None` where none
    /// was seen.
    #[must_use]
    pub fn of(facts: &SocketFacts, fd: Option<i32>) -> Option<Self> {
        let owner = facts.owners.iter().find(|owner| fd.is_none_or(|fd| owner.fd == fd))?;
        Some(Self {
            pid: owner.pid,
            program: owner.program.clone(),
            fd: owner.fd,
            ends: facts.ends.to_string(),
            inode: u64::from(facts.inode),
        })
    }

    fn open(&self) -> Result<(Process, ForeignSocket), LiveError> {
        let failed = |source| LiveError::Socket { socket: self.to_string(), source };
        let process = Process::open(self.pid).map_err(failed)?;
        let socket = process.socket(self.fd).map_err(failed)?;
        if socket.inode() != self.inode {
            return Err(LiveError::Reused {
                socket: self.to_string(),
                what: "the descriptor means another socket",
            });
        }
        Ok((process, socket))
    }
}

/// A change that is planned.
#[derive(Clone, Debug, Serialize)]
pub struct Planned {
    /// The socket.
    pub socket: SocketName,
    /// The option.
    pub option: OptionName,
    /// Its value now.
    pub before: OptionValue,
    /// The value that was asked for.
    pub wanted: String,
}

/// A change that was made, as the record holds it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The boot in which it was made: `/proc/sys/kernel/random/boot_id`.
    pub boot: String,
    /// The socket.
    pub socket: SocketName,
    /// When its process started, clock ticks since boot.
    pub start_ticks: u64,
    /// The kernel's cookie of the socket.
    pub cookie: u64,
    /// The option.
    pub option: OptionName,
    /// Its value before.
    pub before: OptionValue,
    /// Its value afterwards, as the kernel returns it; `None` while the change is made.
    pub after: Option<OptionValue>,
}

/// Reads what the options of a socket are now; changes nothing.
///
/// # Errors
/// When the socket cannot be reached.
pub fn plan(socket: &SocketName, wishes: &[Wish]) -> Result<Vec<Planned>, LiveError> {
    let (_process, live) = socket.open()?;
    let planned = wishes.iter().map(|wish| {
        let before = live.value(wish.option);
        let before = before.map_err(|source| LiveError::Socket { socket: socket.to_string(), source })?;
        Ok(Planned { socket: socket.clone(), option: wish.option, before, wanted: wish.value.clone() })
    });
    planned.collect()
}

/// The record of changes, locked against other processes of this program.
pub struct SocketRecord {
    path: std::path::PathBuf,
    changes: Vec<Changed>,
    _lock: Flock<std::fs::File>,
}

impl SocketRecord {
    /// Opens the record in a state folder, which is created if it is missing.
    ///
    /// # Errors
    /// When the folder cannot be created, or the record cannot be read.
    pub fn open(state: &Path) -> Result<Self, LiveError> {
        let path = state.join(RECORD);
        let failed = |source| LiveError::Record { path: path.display().to_string(), source };
        std::fs::DirBuilder::new().recursive(true).mode(0o700).create(state).map_err(failed)?;
        let lock = std::fs::File::options()
            .create(true)
            .truncate(false)
            .write(true)
            .open(state.join("sockets.lock"))
            .map_err(failed)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| failed(error.into()))?;
        let changes = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|error| failed(error.into()))?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            Err(error) => return Err(failed(error)),
        };
        Ok(Self { path, changes, _lock: lock })
    }

    /// The changes, the oldest first.
    #[must_use]
    pub fn changes(&self) -> &[Changed] {
        &self.changes
    }

    /// Makes a planned change; its record is on disk before.
    ///
    /// # Errors
    /// When the socket is another one by now, the record cannot be written, or the kernel rejects the value. Then nothing has
    /// changed.
    pub fn apply(&mut self, planned: &Planned) -> Result<Changed, LiveError> {
        let socket = &planned.socket;
        let (process, live) = socket.open()?;
        let failed = |source| LiveError::Socket { socket: socket.to_string(), source };
        let change = Changed {
            boot: boot().map_err(failed)?,
            socket: socket.clone(),
            start_ticks: process.start_ticks(),
            cookie: live.cookie().map_err(failed)?,
            option: planned.option,
            before: live.value(planned.option).map_err(failed)?,
            after: None,
        };
        self.changes.push(change.clone());
        self.save()?;
        let wish = Wish { option: planned.option, value: planned.wanted.clone() };
        if let Err(source) = live.set(&wish) {
            self.changes.pop();
            self.save()?;
            let (socket, option, value) = (socket.to_string(), planned.option, planned.wanted.clone());
            return Err(LiveError::Rejected { socket, option, value, source });
        }
        let after = live.value(planned.option).map_err(failed)?;
        let done = Changed { after: Some(after), ..change };
        if let Some(last) = self.changes.last_mut() {
            *last = done.clone();
        }
        self.save()?;
        Ok(done)
    }

    /// Restores the value before the latest change, and forgets the change. `None` when there is none.
    ///
    /// # Errors
    /// When the socket is gone or another one by now, which also forgets the change, or it cannot be reached.
    pub fn undo_latest(&mut self) -> Option<Result<Changed, LiveError>> {
        let change = self.changes.last()?.clone();
        let outcome = restore(&change);
        let may_succeed_later = matches!(&outcome, Err(LiveError::Socket { source, .. })
            if source.kind() == io::ErrorKind::PermissionDenied);
        if may_succeed_later {
            return Some(outcome.map(|()| change));
        }
        self.changes.pop();
        Some(self.save().and(outcome).map(|()| change))
    }

    /// Writes the record, and waits until it is on disk.
    fn save(&self) -> Result<(), LiveError> {
        let write = || {
            let mut draft = output::Draft::in_own_folder(&self.path)?;
            draft.write_all(&serde_json::to_vec_pretty(&self.changes)?)?;
            draft.flush()?;
            draft.handle()?.sync_all()?;
            draft.commit()?;
            self.path.parent().map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
        };
        write()
            .map_err(|source: io::Error| LiveError::Record { path: self.path.display().to_string(), source })
    }
}

fn restore(change: &Changed) -> Result<(), LiveError> {
    let socket = &change.socket;
    let failed = |source| LiveError::Socket { socket: socket.to_string(), source };
    let reused = |what| LiveError::Reused { socket: socket.to_string(), what };
    if boot().map_err(failed)? != change.boot {
        return Err(reused("the host has restarted since, and the program with it"));
    }
    let process = Process::open(socket.pid).map_err(failed)?;
    if process.start_ticks() != change.start_ticks {
        return Err(reused("the pid belongs to another process"));
    }
    let live = process.socket(socket.fd).map_err(failed)?;
    if live.inode() != socket.inode || live.cookie().map_err(failed)? != change.cookie {
        return Err(reused("the descriptor means another socket"));
    }
    live.restore(change.option, &change.before).map_err(|source| LiveError::Rejected {
        socket: socket.to_string(),
        option: change.option,
        value: change.before.to_string(),
        source,
    })
}

fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
