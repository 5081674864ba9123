//! Network namespaces, without a name or with one.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::sched::{CloneFlags, setns, unshare};

use crate::error::WireError;

/// A network namespace. Without a name it ends with its last holder: this handle, its clones, and the threads inside.
#[derive(Clone, Debug)]
pub struct Namespace {
    handle: Arc<OwnedFd>,
}

impl Namespace {
    /// Makes a namespace.
    ///
    /// # Errors
    /// When the process may not.
    pub fn new() -> Result<Self, WireError> {
        let made = std::thread::spawn(|| {
            // Only this thread enters the namespace; it ends now, and the handle keeps the namespace.
            unshare(CloneFlags::CLONE_NEWNET)?;
            File::open("/proc/thread-self/ns/net")
        })
        .join()
        .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")));
        match made {
            Ok(file) => Ok(Self { handle: Arc::new(file.into()) }),
            Err(error) if error.raw_os_error() == Some(Errno::EPERM as i32) => Err(WireError::NotPermitted),
            Err(source) => Err(WireError::Io { what: "making a network namespace".to_owned(), source }),
        }
    }

    /// The one that `ip netns` knows by that name.
    ///
    /// # Errors
    /// When there is none.
    pub(crate) fn named(name: &str) -> Result<Self, WireError> {
        let file = File::open(std::path::Path::new("/run/netns").join(name))
            .map_err(|source| WireError::Io { what: format!("opening the namespace {name}"), source })?;
        Ok(Self { handle: Arc::new(file.into()) })
    }

    /// Moves the calling thread, and the threads and processes that it will start, into the namespace.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn enter(&self) -> io::Result<()> {
        Ok(setns(&*self.handle, CloneFlags::CLONE_NEWNET)?)
    }

    /// Runs `work` on a thread inside the namespace.
    ///
    /// # Errors
    /// When the thread cannot be moved, or the work fails.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> Result<T, WireError> + Send) -> Result<T, WireError> {
        let inside = || {
            self.enter()
                .map_err(|source| WireError::Io { what: "entering a namespace".to_owned(), source })?;
            work()
        };
        std::thread::scope(|scope| scope.spawn(inside).join()).unwrap_or_else(|_| {
            let source = io::Error::other("the thread panicked");
            Err(WireError::Io { what: "working inside a namespace".to_owned(), source })
        })
    }

    /// A path that names the namespace while this process lives.
    pub(crate) fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.handle.as_raw_fd())
    }
}
