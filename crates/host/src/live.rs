//! Options of running programs' sockets: planned, recorded, set and restored.
//!
//! A socket lives as long as its program, so there is nothing to keep after a reboot. The record is written before the change, and
//! names the socket so that another one cannot be mistaken for it: by boot, process, start time of the process, descriptor, inode
//! and the kernel's cookie.

use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;

use nix::fcntl::{Flock, FlockArg, OFlag};
use serde::{Deserialize, Serialize};
use socket::foreign::{ForeignSocket, OptionName, OptionValue, Process, Wish};
use thiserror::Error;

use crate::facts::socket::SocketFacts;
use crate::undo::Overwrite;

/// The record's name in the state folder.
const RECORD: &str = "sockets.json";

/// The largest record, bytes.
const RECORD_LIMIT: u64 = 64 << 20;

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
    /// The program, or another one, has set the option since.
    #[error(
        "{socket}: {option} was changed since, from {expected} to {in_force}, and was left; --force restores {before}"
    )]
    ChangedSince {
        /// Which socket.
        socket: String,
        /// The option.
        option: OptionName,
        /// The value that the change had put in force.
        expected: OptionValue,
        /// The value in force.
        in_force: OptionValue,
        /// The value from before the change.
        before: OptionValue,
    },
    /// One of several changes failed, and those before it were taken back or not.
    #[error("{cause}; {outcome}")]
    Incomplete {
        /// Why.
        cause: Box<LiveError>,
        /// What became of the changes before it.
        outcome: String,
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

impl LiveError {
    /// Whether the socket does not exist any more, as its program has closed it.
    #[must_use]
    pub fn is_gone(&self) -> bool {
        let gone = [libc::ESRCH, libc::EBADF, libc::ENOENT];
        match self {
            Self::Reused { .. } => true,
            Self::Socket { source, .. } => {
                // Its descriptor may be that of a file by now.
                let is_other = ::socket::foreign::NotASocket::is_reason_of(source);
                is_other || source.raw_os_error().is_some_and(|error| gone.contains(&error))
            }
            Self::Rejected { .. }
            | Self::ChangedSince { .. }
            | Self::Incomplete { .. }
            | Self::Record { .. } => false,
        }
    }
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

/// Changes that were made together.
#[derive(Debug, Default)]
pub struct Applied {
    /// The changes that were made.
    pub changed: Vec<Changed>,
    /// Sockets that were closed since the changes were planned.
    pub gone: Vec<LiveError>,
}

/// What an undo of all changes did.
#[derive(Debug, Default)]
pub struct Undone {
    /// The changes whose values from before are in force again, each with the value that was in force until then as `after`.
    pub restored: Vec<Changed>,
    /// Why others were left.
    pub failures: Vec<LiveError>,
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
            // A FIFO in its place would wait for a reader.
            .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
            .open(state.join("sockets.lock"))
            .map_err(failed)?;
        let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, error)| failed(error.into()))?;
        let changes = match crate::journal::read_regular(&path, RECORD_LIMIT) {
            Ok(bytes) if bytes.len() as u64 > RECORD_LIMIT => {
                let text = format!("it is larger than {RECORD_LIMIT} bytes; move it elsewhere");
                return Err(failed(io::Error::new(io::ErrorKind::InvalidData, text)));
            }
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

    /// Makes planned changes, all or none: when one fails, those before it are restored, the latest first. Sockets that were closed
    /// meanwhile are left out.
    ///
    /// # Errors
    /// When a change failed, with what became of those before it.
    pub fn apply_all(&mut self, planned: &[Planned]) -> Result<Applied, LiveError> {
        let recorded = self.changes.len();
        let mut applied = Applied::default();
        for change in planned {
            match self.apply(change) {
                Ok(change) => applied.changed.push(change),
                Err(error) if error.is_gone() => applied.gone.push(error),
                Err(cause) => return Err(self.take_back(recorded, cause)),
            }
        }
        Ok(applied)
    }

    /// Restores the changes after the first ones of the record.
    fn take_back(&mut self, first: usize, cause: LiveError) -> LiveError {
        let mut restored = 0;
        let mut lost = Vec::new();
        while self.changes.len() > first {
            let left = self.changes.len();
            match self.undo_latest() {
                Some(Ok(_)) => restored += 1,
                Some(Err(error)) => lost.push(error.to_string()),
                None => {}
            }
            if self.changes.len() == left {
                break;
            }
        }
        let mut outcome = match restored {
            0 => "nothing else was changed".to_owned(),
            1 => "the change before it was taken back".to_owned(),
            many => format!("the {many} changes before it were taken back"),
        };
        if !lost.is_empty() {
            outcome = format!("{outcome}; not restored: {}", lost.join("; "));
        }
        LiveError::Incomplete { cause: Box::new(cause), outcome }
    }

    /// Restores the value before the latest change, and forgets the change. `None` when there is none.
    ///
    /// # Errors
    /// When the socket is gone or another one by now, which also forgets the change; when it cannot be reached, or the option was
    /// changed since.
    pub fn undo_latest(&mut self) -> Option<Result<Changed, LiveError>> {
        let latest = self.changes.len().checked_sub(1)?;
        Some(self.undo_at(latest, Overwrite::Own))
    }

    /// Restores the values before all changes, the latest first. An option that was changed since stays in the record, with all that
    /// was changed about it before; so does a socket that this user cannot reach.
    pub fn undo_all(&mut self, overwrite: Overwrite) -> Undone {
        let mut undone = Undone::default();
        for index in (0..self.changes.len()).rev() {
            let change = &self.changes[index];
            let is_same = |later: &Changed| {
                (&later.boot, later.cookie, later.option) == (&change.boot, change.cookie, change.option)
            };
            // Its value is that of a later change that was left, so that this one has nothing to restore yet.
            if self.changes[index + 1..].iter().any(is_same) {
                continue;
            }
            match self.undo_at(index, overwrite) {
                Ok(restored) => undone.restored.push(restored),
                Err(error) => undone.failures.push(error),
            }
        }
        undone
    }

    /// Restores the value before a change. Returns the change with the value that was in force.
    fn undo_at(&mut self, index: usize, overwrite: Overwrite) -> Result<Changed, LiveError> {
        let change = self.changes[index].clone();
        let outcome = restore(&change, overwrite);
        let may_succeed_later = match &outcome {
            Err(LiveError::Socket { source, .. }) => source.kind() == io::ErrorKind::PermissionDenied,
            Err(LiveError::ChangedSince { .. }) => true,
            _ => false,
        };
        if !may_succeed_later {
            self.changes.remove(index);
            self.save()?;
        }
        outcome.map(|in_force| Changed { after: Some(in_force), ..change })
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

/// Restores a value, unless another one than that of the change is in force. Returns the value that was in force.
fn restore(change: &Changed, overwrite: Overwrite) -> Result<OptionValue, LiveError> {
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
    let in_force = live.value(change.option).map_err(failed)?;
    // The kernel itself leaves quickack again, which is nobody's change.
    let expected = change.after.as_ref().filter(|_| change.option != OptionName::Quickack);
    if let Some(expected) = expected.filter(|expected| **expected != in_force && change.before != in_force)
        && overwrite != Overwrite::All
    {
        return Err(LiveError::ChangedSince {
            socket: socket.to_string(),
            option: change.option,
            expected: expected.clone(),
            in_force,
            before: change.before.clone(),
        });
    }
    let restored = live.restore(change.option, &change.before);
    restored.map(|()| in_force).map_err(|source| LiveError::Rejected {
        socket: socket.to_string(),
        option: change.option,
        value: change.before.to_string(),
        source,
    })
}

fn boot() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}
