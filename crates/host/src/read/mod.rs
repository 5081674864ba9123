//! Reads facts from the kernel, /proc and /sys. The only place with I/O besides applying changes.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::facts::{Facts, Unseen};

pub mod cpu;
pub mod initiator;
pub mod link;
pub mod load;
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
    /// The host at the other end of the path, as [`path::Peer`] parses it.
    pub peer: Option<String>,
    /// Whether to run the check on the peer over ssh, too.
    pub ssh: bool,
    /// The load test with the peer; none where it is not asked for, as it fills the path.
    pub load: Option<crate::load::LoadSpec>,
    /// The only process whose sockets to look at.
    pub pid: Option<u32>,
    /// The only TCP port, of either end, whose sockets to look at.
    pub port: Option<u16>,
    /// For how long to watch counters; zero takes one reading, so that nothing is known to move.
    pub watch: Duration,
}

/// Reads everything that is wanted. Areas that watch counters do so at the same time; the path is probed after that, and loaded last.
#[must_use]
pub fn all(roots: &Roots, wanted: &Wanted) -> Facts {
    let mut facts = Facts::default();
    facts.system = system::read(roots, wanted, &mut facts.unseen);
    std::thread::scope(|scope| {
        let links = Area::start(scope, roots, wanted, link::read);
        let peers = Area::start(scope, roots, wanted, peer::read);
        let tcp = Area::start(scope, roots, wanted, tcp::read);
        let cpu = Area::start(scope, roots, wanted, cpu::read);
        let initiators = Area::start(scope, roots, wanted, initiator::read);
        let sockets = Area::start(scope, roots, wanted, socket::read);
        facts.links = links.finish("network interfaces", &mut facts.unseen);
        facts.peers = peers.finish("the other ends", &mut facts.unseen);
        facts.tcp = tcp.finish("TCP settings", &mut facts.unseen);
        facts.cpu = cpu.finish("processors", &mut facts.unseen);
        facts.initiators = initiators.finish("iSCSI initiators", &mut facts.unseen);
        facts.sockets = sockets.finish("sockets", &mut facts.unseen);
    });
    // After the counters were watched: probes that a black hole swallows are retransmitted, which is no fault of the host's traffic.
    std::thread::scope(|scope| {
        let path = Area::start(scope, roots, wanted, path::read);
        facts.path = path.finish("the path", &mut facts.unseen);
    });
    // Last: a load changes round trip times, and moves counters of everything else.
    std::thread::scope(|scope| {
        let load = Area::start(scope, roots, wanted, load::read);
        facts.load = load.finish("the load test", &mut facts.unseen);
    });
    facts
}

/// An area that a thread reads. Threads inherit the network namespace of the one that starts them.
struct Area<'scope, T> {
    thread: std::thread::ScopedJoinHandle<'scope, (T, Vec<Unseen>)>,
}

impl<'scope, T: Default + Send + 'scope> Area<'scope, T> {
    fn start<'env>(
        scope: &'scope std::thread::Scope<'scope, 'env>,
        roots: &'env Roots,
        wanted: &'env Wanted,
        read: impl FnOnce(&Roots, &Wanted, &mut Vec<Unseen>) -> T + Send + 'scope,
    ) -> Self {
        let thread = scope.spawn(move || {
            let mut unseen = Vec::new();
            let facts = read(roots, wanted, &mut unseen);
            (facts, unseen)
        });
        Self { thread }
    }

    /// What was read. A reader that panicked must not take the others' facts with it.
    fn finish(self, what: &str, all: &mut Vec<Unseen>) -> T {
        let (facts, mut unseen) = self.thread.join().unwrap_or_else(|_| {
            let why = "reading it panicked, which is a defect of the program".to_owned();
            (T::default(), vec![Unseen { what: what.to_owned(), why }])
        });
        all.append(&mut unseen);
        facts
    }
}
