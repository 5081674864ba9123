//! Reads facts from the kernel, /proc and /sys. The only place with I/O besides applying changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

pub mod cpu;
pub mod initiator;
pub mod link;
pub mod path;
pub mod peer;
pub mod socket;
pub mod system;
pub mod tcp;
mod text;

/// Where the trees are that readers read, so that a test can give them a tree of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// `/proc`.
    pub proc: PathBuf,
    /// `/sys`.
    pub sys: PathBuf,
    /// `/etc`.
    pub etc: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys"), etc: PathBuf::from("/etc") }
    }
}

impl Roots {
    /// A machine's trees below `folder`: `folder/proc`, `folder/sys` and `folder/etc`.
    #[must_use]
    pub fn below(folder: &Path) -> Self {
        Self { proc: folder.join("proc"), sys: folder.join("sys"), etc: folder.join("etc") }
    }
}

/// What a check is to look at. The default is everything on this host, and no other host.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// The only interface to look at; all where none is named.
    pub interface: Option<String>,
    /// The host at the other end of the path: a name or an address.
    pub peer: Option<String>,
    /// The only process whose sockets to look at.
    pub pid: Option<u32>,
    /// The only TCP port, of either end, whose sockets to look at.
    pub port: Option<u16>,
    /// For how long to watch counters; zero takes one reading, so that nothing is known to move.
    pub watch: Duration,
}
