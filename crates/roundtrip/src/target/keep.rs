//! Sessions over a restart: the file descriptor store of a service manager (sd_notify(3), FDSTORE=1) holds their sockets and a file in
//! memory with their state between two processes.

use std::fs::File;
use std::io::{Read as _, Seek as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use anyhow::Context as _;
use iscsi_target::{Kept, RunningTarget};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::notify::Notify;

/// The names of the descriptors in the store.
const SESSION: &str = "roundtrip-session";
const STATE: &str = "roundtrip-state";

/// Time for sessions to become quiet. Those that are wait for the others.
const PATIENCE: Duration = Duration::from_secs(1);

/// Time for the manager to take what it is given.
const TAKES: Duration = Duration::from_secs(2);

/// Largest state that is read.
const STATE_BYTES_MAX: u64 = 2 << 30;

/// What the service manager passes to the process.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    pub(super) listeners: Vec<TcpListener>,
    pub(super) stored: Stored,
}

/// What its store has of the process before. It stays there until the sessions go on, for the case that this process does not get so far.
#[derive(Debug, Default)]
pub(super) struct Stored {
    kept: Kept,
    states: Vec<File>,
    is_there: bool,
}

/// The descriptors that the service manager passes.
pub(super) fn passed() -> listenfd::ListenFd {
    let passed = listenfd::ListenFd::from_env();
    // Nothing else could be opened beside many sessions.
    sandbox::open_files::provide(passed.len());
    passed
}

/// Takes the listening sockets of socket activation, and reads the sessions of the process before.
pub(super) fn inherited(mut passed: listenfd::ListenFd) -> anyhow::Result<Inherited> {
    let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
    let names: Vec<&str> = names.split(':').collect();
    let (mut listeners, mut stored) = (Vec::new(), Stored::default());
    let (mut sockets, mut states) = (Vec::new(), Vec::new());
    for index in 0..passed.len() {
        match names.get(index) {
            // That it listens is not checked there, nor needed here.
            Some(&SESSION) => {
                stored.is_there = true;
                let socket = passed.take_tcp_listener(index).ok().flatten();
                sockets.extend(socket.map(|socket| TcpStream::from(OwnedFd::from(socket))));
            }
            Some(&STATE) => {
                stored.is_there = true;
                states.extend(passed.take_raw_fd(index).ok().flatten());
            }
            _ => {
                let listener = passed
                    .take_tcp_listener(index)
                    .context("a socket of the service manager does not listen for TCP")?;
                listeners.extend(listener);
            }
        }
    }
    for state in states {
        let mut text = Vec::new();
        match state_of(state, &mut text) {
            Ok(file) => stored.states.push(file),
            Err(error) => {
                tracing::warn!("cannot read the state of the kept sessions: {error}");
                continue;
            }
        }
        if !text.is_empty() {
            match Kept::new(&text, std::mem::take(&mut sockets)) {
                Ok(kept) => stored.kept = kept,
                Err(error) => tracing::warn!("{error}; their initiators log in again"),
            }
        }
    }
    Ok(Inherited { listeners, stored })
}

/// Reads a state. The descriptor itself stays open, as it cannot be closed by its number without `unsafe`.
fn state_of(descriptor: std::os::fd::RawFd, text: &mut Vec<u8>) -> std::io::Result<File> {
    let path = format!("/proc/self/fd/{descriptor}");
    let mut file = File::options().read(true).write(true).open(path)?;
    (&mut file).take(STATE_BYTES_MAX).read_to_end(text)?;
    Ok(file)
}

impl Stored {
    /// Makes the sessions those of this process alone: sessions go on once, also where the store keeps the state. A signal that ended the
    /// process from here on would end them, too, if it were not handled.
    pub(super) fn take(self, notify: &Notify) -> Kept {
        if !self.is_there {
            return Kept::default();
        }
        // One that is not empty would be read again, behind what the initiators have done since.
        let emptied: std::io::Result<()> = self.states.iter().try_for_each(|state| state.set_len(0));
        notify.forget(SESSION);
        notify.forget(STATE);
        if let Err(error) = emptied {
            tracing::warn!(
                "cannot empty the state of the kept sessions: {error}; their initiators log in again"
            );
            return Kept::default();
        }
        self.kept
    }
}

/// The means to keep sessions, made before the sandbox closes, which allows none of this.
#[derive(Debug)]
pub(super) struct Keeper {
    state: File,
    /// Ends when the manager has taken all.
    taken: (OwnedFd, Option<OwnedFd>),
}

impl Keeper {
    pub(super) fn new() -> std::io::Result<Self> {
        let state = rustix::fs::memfd_create(STATE, rustix::fs::MemfdFlags::CLOEXEC)?.into();
        let (end, start) = pipe_with(PipeFlags::CLOEXEC)?;
        Ok(Self { state, taken: (end, Some(start)) })
    }

    /// Ends the target, and gives its sessions to the service manager.
    pub(super) fn keep(mut self, target: RunningTarget, notify: &Notify) {
        let kept = target.suspend(PATIENCE);
        let sessions = kept.sessions();
        match self.give(&kept, notify) {
            Ok(()) => tracing::info!(target: "audit", sessions, "sessions kept for the next process"),
            Err(error) => {
                // Without it, the next process closes what sockets the manager may have; the initiators need not wait for that.
                let _ = self.state.set_len(0);
                kept.sockets().for_each(|socket| drop(socket.shutdown(std::net::Shutdown::Both)));
                tracing::error!(sessions, "cannot keep sessions: {error:#}; their initiators log in again");
            }
        }
    }

    fn give(&mut self, kept: &Kept, notify: &Notify) -> anyhow::Result<()> {
        if kept.sessions() == 0 {
            return Ok(());
        }
        let mut file = std::io::BufWriter::new(&self.state);
        kept.write(&mut file).and_then(|()| file.flush()).context("writing their state")?;
        drop(file);
        (&self.state).rewind()?;
        // First: a store that is full drops what comes last.
        notify.store(STATE, &[self.state.as_fd()]).context("giving their state to the service manager")?;
        let sockets: Vec<_> = kept.sockets().map(std::os::fd::AsFd::as_fd).collect();
        for part in sockets.chunks(Notify::DESCRIPTORS_MAX) {
            notify.store(SESSION, part).context("giving their sockets to the service manager")?;
        }
        let (end, start) = &mut self.taken;
        if let Some(start) = start.take() {
            notify.barrier(start.as_fd()).context("BARRIER=1")?;
        }
        let mut fds = [PollFd::new(&*end, PollFlags::IN)];
        let count = poll(&mut fds, Some(&Timespec::try_from(TAKES)?))?;
        anyhow::ensure!(count > 0, "the service manager has not taken them within {TAKES:?}");
        Ok(())
    }
}
