//! Least privilege for a process that serves a network: another user, no capabilities, files by Landlock, system calls
//! by seccomp.
//!
//! A process enters the sandbox in two steps, because it opens devices and binds ports with privileges that it should
//! not keep:
//!
//! 1. [`Plan::prepare`], before the process starts a thread or opens a file for its work. Sets `no_new_privs`, limits
//!    the capabilities to those that opening and binding need, and confines files and TCP ports by Landlock. These are
//!    properties of a thread that its threads inherit, so the process must have one thread only at this point.
//! 2. [`Prepared::lock`], when files are open and ports are bound. Changes the user, drops the remaining capabilities
//!    and installs the seccomp filter. The C library changes the user of every thread, and the kernel installs the
//!    filter on every thread, so threads that were started in between are covered.

#![forbid(unsafe_code)]

mod account;
mod calls;
mod capabilities;
mod files;
pub mod open_files;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use thiserror::Error;

pub use account::Account;
pub use files::{DiskAccess, Place};

use capabilities::Needs;
use files::{Confined, Files};

/// The kernel restrictions to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Neither Landlock nor seccomp, and capabilities are kept. `no_new_privs` is still set and the user still changed.
    Off,
    /// All that the kernel supports.
    #[default]
    On,
    /// All; an error if the kernel lacks one.
    Require,
}

impl std::str::FromStr for Mode {
    type Err = SandboxError;

    fn from_str(text: &str) -> Result<Self, SandboxError> {
        match text {
            "off" => Ok(Self::Off),
            "on" => Ok(Self::On),
            "require" => Ok(Self::Require),
            _ => Err(SandboxError::Mode(text.to_owned())),
        }
    }
}

/// An error of entering the sandbox.
#[derive(Debug, Error)]
pub enum SandboxError {
    /// The text is not a mode.
    #[error("'{0}' is unknown; use on, require or off")]
    Mode(String),
    /// The user cannot be changed without root.
    #[error("--user: only root can change the user; start the target as root, or leave --user out")]
    NotRoot,
    /// The text is not a user that exists.
    #[error("--user {text}: {reason}")]
    Account {
        /// As given.
        text: String,
        /// The reason.
        reason: String,
    },
    /// A system call failed.
    #[error("{what}: {source}")]
    Io {
        /// The operation and its object.
        what: String,
        /// Why.
        source: io::Error,
    },
    /// The user was changed, but the process could change back.
    #[error("the process could regain root after changing to user {0}; refusing to run")]
    Regained(Account),
    /// The state folder cannot be written after the change of the user.
    #[error("state folder {path}: user {user} cannot write it; make {user} its owner (chown)", path = .path.display())]
    State {
        /// The folder.
        path: PathBuf,
        /// The user.
        user: Account,
    },
    /// A required restriction is unavailable.
    #[error("--sandbox require: {what} is not available: {reason}")]
    Unavailable {
        /// Landlock or seccomp.
        what: &'static str,
        /// Why.
        reason: String,
    },
    /// A disk outside the sandbox.
    #[error("{path}: outside the folders that the sandbox allows ({allowed}); start the target with --disks {folder}", path = .path.display(), folder = .path.parent().unwrap_or(.path).display())]
    Outside {
        /// The disk.
        path: PathBuf,
        /// The allowed folders.
        allowed: String,
    },
    /// A server that was none when the target started.
    #[error(
        "the sandbox allows no connection to this server, as no disk needed it when the target started; restart the target"
    )]
    Server,
    /// A disk that was opened for reading only when the target started.
    #[error("{path}: the sandbox allows reading only; add ,readonly, or restart the target", path = .0.display())]
    ReadOnly(PathBuf),
}

/// The resources that a process needs after it has started.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    /// The restrictions to use.
    pub mode: Mode,
    /// The user to run as.
    pub user: Option<Account>,
    /// Disks that exist or are created, and folders for disks that are opened later.
    pub disks: Vec<Place>,
    /// The folder for state that survives a restart; created if it is missing, and then owned by `user`.
    pub state: Option<PathBuf>,
    /// Files that are read again while the process runs. Their folders can be read, because editors replace files.
    pub configuration: Vec<PathBuf>,
    /// TCP ports to bind; 0 for any free one.
    pub ports: Vec<u16>,
    /// Servers that are connected to while the process runs.
    pub servers: Servers,
    /// What the process needs that cannot be confined: then only user, capabilities and `no_new_privs` are.
    pub unconfined: Option<&'static str>,
    /// Sockets need options that are reserved to CAP_NET_ADMIN.
    pub tunes_network: bool,
}

/// Servers that a process connects to.
#[derive(Clone, Debug, Default)]
pub struct Servers {
    /// TCP ports.
    pub ports: Vec<u16>,
    /// There are Unix sockets among them.
    pub has_unix: bool,
}

impl Servers {
    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ports.is_empty() && !self.has_unix
    }
}

impl Plan {
    /// Enters the first step: `no_new_privs`, capabilities and Landlock. Creates the state folder and disks of given
    /// size that are missing, since Landlock needs them to exist.
    ///
    /// # Errors
    /// When the user cannot be changed, a folder does not exist, or a required restriction is not available.
    pub fn prepare(self) -> Result<Prepared, SandboxError> {
        if self.user.is_some() && !nix::unistd::geteuid().is_root() {
            return Err(SandboxError::NotRoot);
        }
        if self.mode != Mode::Off || self.user.is_some() {
            self.create_state()?;
        }
        rustix::thread::set_no_new_privs(true).map_err(|error| failed("no_new_privs", error.into()))?;
        if self.mode == Mode::Off {
            return Ok(Prepared { files: None, plan: self });
        }
        if let Some(reason) = self.unconfined {
            if self.mode == Mode::Require {
                let reason = reason.to_owned();
                return Err(SandboxError::Unavailable { what: "Landlock and seccomp", reason });
            }
            tracing::warn!("sandbox: neither Landlock nor seccomp: {reason}");
        }
        // Existing threads would stay outside the sandbox.
        if let Ok(threads) = std::fs::read_dir("/proc/self/task").map(Iterator::count)
            && threads > 1
        {
            tracing::warn!(
                "sandbox: {threads} threads run before it; Landlock confines only the calling one"
            );
        }
        let needs = Needs {
            change_user: self.user.is_some(),
            low_port: self.ports.iter().any(|port| (1..1024).contains(port)),
            tune_network: self.tunes_network,
        };
        capabilities::limit_bounding(needs.for_start());
        capabilities::limit(needs.for_start())?;
        let files = if self.unconfined.is_some() { None } else { files::confine(&self)? };
        Ok(Prepared { files, plan: self })
    }

    /// Whether files may be opened while the process runs.
    fn opens_later(&self) -> bool {
        !self.configuration.is_empty() || self.state.is_some()
    }

    fn create_state(&self) -> Result<(), SandboxError> {
        let Some(path) = self.state.as_deref().filter(|path| !path.exists()) else { return Ok(()) };
        let what = || format!("state folder {}", path.display());
        std::fs::create_dir_all(path).map_err(|error| failed(what(), error))?;
        if let Some(user) = &self.user {
            nix::unistd::chown(path, Some(user.uid), Some(user.gid))
                .map_err(|error| failed(what(), error.into()))?;
        }
        Ok(())
    }
}

/// A process after the first step, which can open files and bind ports.
#[must_use = "the process keeps its user and all system calls until `lock`"]
#[derive(Debug)]
pub struct Prepared {
    plan: Plan,
    files: Option<Confined>,
}

impl Prepared {
    /// Enters the second step: user, capabilities and seccomp, for all threads.
    ///
    /// # Errors
    /// When the user cannot be changed or cannot write the state folder, or a required restriction is not available.
    pub fn lock(self) -> Result<Sandbox, SandboxError> {
        let Self { plan, files } = self;
        if let Some(user) = &plan.user {
            user.become_for_good()?;
            if let Some(path) = &plan.state
                && !files::can_write(path)
            {
                return Err(SandboxError::State { path: path.clone(), user: user.clone() });
            }
            for path in plan.configuration.iter().filter(|path| !files::can_read(path)) {
                tracing::warn!("{}: user {user} cannot read it; SIGHUP will fail", path.display());
            }
        }
        let (mut calls, mut capabilities) = (None, String::new());
        if plan.mode != Mode::Off {
            // Root can reopen its own files; those of other users need the capability.
            let keeps = plan.user.is_none() && plan.opens_later();
            capabilities::limit(if keeps { Needs::for_reloads() } else { capabilities::none() })?;
            // The filter prevents this test.
            capabilities = capabilities::describe();
            let has_files = plan.disks.iter().any(Place::is_disk);
            let ring = match (plan.configuration.is_empty(), has_files) {
                (false, _) => calls::Ring::New,
                (true, true) => calls::Ring::Existing,
                (true, false) => calls::Ring::None,
            };
            if plan.unconfined.is_none() {
                calls = match calls::restrict(ring, &plan.servers) {
                    Ok(count) => Some(count),
                    Err(reason) if plan.mode == Mode::Require => {
                        return Err(SandboxError::Unavailable { what: "seccomp", reason });
                    }
                    Err(reason) => {
                        tracing::warn!("sandbox: seccomp is not available: {reason}");
                        None
                    }
                };
            }
        }
        let servers = plan.servers;
        Ok(Sandbox { mode: plan.mode, user: plan.user, capabilities, files, calls, servers })
    }
}

/// The sandbox in force. Displays its components.
#[derive(Debug)]
pub struct Sandbox {
    mode: Mode,
    user: Option<Account>,
    capabilities: String,
    files: Option<Confined>,
    servers: Servers,
    /// Number of allowed system calls.
    calls: Option<usize>,
}

impl Sandbox {
    /// Checks whether a server may be connected to now: on this TCP port, or on a Unix socket.
    ///
    /// # Errors
    /// When the sandbox was made without it.
    pub fn check_server(&self, port: Option<u16>) -> Result<(), SandboxError> {
        let is_allowed = match port {
            // Without system calls to connect there is no use in a port.
            Some(port) => self.servers.ports.contains(&port),
            None => self.servers.has_unix,
        };
        if is_allowed || self.mode == Mode::Off { Ok(()) } else { Err(SandboxError::Server) }
    }

    /// Checks whether what cannot be confined may begin now.
    ///
    /// # Errors
    /// When Landlock or seccomp are in force.
    pub fn check_unconfined(&self) -> Result<(), SandboxError> {
        if self.files.is_none() && self.calls.is_none() { Ok(()) } else { Err(SandboxError::Server) }
    }

    /// Checks whether a disk may be opened now, to give a better reason than the kernel's error.
    ///
    /// # Errors
    /// When the disk is outside the sandbox.
    pub fn check_disk(&self, path: &Path, writes: bool) -> Result<(), SandboxError> {
        self.files.as_ref().map_or(Ok(()), |confined| confined.files.check(path, writes))
    }

    /// The parts of the sandbox that may cause a permission error.
    #[must_use]
    pub fn explain_denial(&self) -> Option<String> {
        let user = self.user.as_ref().map(|user| format!("the target runs as user {user}"));
        let files = self.files.as_ref().map(|_| {
            "the sandbox allows only folders and disks that were named at the start; a replaced file is another one"
                .to_owned()
        });
        let causes: Vec<String> = user.into_iter().chain(files).collect();
        (!causes.is_empty()).then(|| causes.join("; "))
    }
}

impl fmt::Display for Sandbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.user {
            Some(user) => write!(f, "user {user}, ")?,
            None => write!(f, "user unchanged (uid {}), ", nix::unistd::geteuid())?,
        }
        write!(f, "no_new_privs")?;
        if self.mode == Mode::Off {
            return write!(f, ", otherwise off");
        }
        write!(f, ", capabilities {}", self.capabilities)?;
        match &self.files {
            Some(confined) => write!(f, ", Landlock ABI {} ({} paths)", confined.abi, confined.paths)?,
            None => write!(f, ", no Landlock")?,
        }
        match self.calls {
            Some(count) => write!(f, ", seccomp ({count} calls allowed)"),
            None => write!(f, ", no seccomp"),
        }
    }
}

fn failed(what: impl Into<String>, source: io::Error) -> SandboxError {
    SandboxError::Io { what: what.into(), source }
}

impl Files {
    fn check(&self, path: &Path, writes: bool) -> Result<(), SandboxError> {
        match self.allows(path) {
            Some(place) if writes && !place.writes => Err(SandboxError::ReadOnly(path.to_owned())),
            Some(_) => Ok(()),
            None => Err(SandboxError::Outside { path: path.to_owned(), allowed: self.to_string() }),
        }
    }
}
