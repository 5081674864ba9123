//! Reads facts about TCP sockets: sock_diag(7), and options that it lacks from a duplicate of the process's descriptor.
//!
//! The kernel does not report TCP_NODELAY and TCP_CORK by netlink: neither TCP_INFO nor INET_DIAG_SOCKOPT has them (Linux 6.18).

use std::io;
use std::path::Path;
use std::time::Duration;

use netlink::sock_diag::{Diag, TcpSocket};
use nix::sched::{CloneFlags, setns};

use crate::facts::Unseen;
use crate::facts::socket::SocketFacts;
use crate::read::{Roots, Wanted};

mod convert;
mod options;
mod owners;
mod watch;

/// The most sockets that a check looks at.
pub const SOCKETS_MAX: usize = 100_000;

/// Reads the TCP sockets of the process's network namespace, or of the namespace of the process that is wanted, and watches those
/// that are active for [`Wanted::watch`], at least for 0.3 s. Never fails: what could not be read is added to `unseen`.
pub fn read(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Vec<SocketFacts> {
    read_anywhere(roots, wanted, Some(wanted.watch), unseen)
}

/// As [`read`], as the sockets are now: watches none.
pub fn list(roots: &Roots, wanted: &Wanted, unseen: &mut Vec<Unseen>) -> Vec<SocketFacts> {
    read_anywhere(roots, wanted, None, unseen)
}

fn read_anywhere(
    roots: &Roots,
    wanted: &Wanted,
    watch: Option<Duration>,
    unseen: &mut Vec<Unseen>,
) -> Vec<SocketFacts> {
    let read = |unseen: &mut Vec<Unseen>| read_here(roots, wanted, watch, unseen);
    match namespace_of(&roots.proc, wanted.pid) {
        None => read(unseen),
        Some(path) => read_in(&path, &read, unseen),
    }
}

/// The network namespace of a process, if it is not this one.
fn namespace_of(proc: &Path, pid: Option<u32>) -> Option<std::path::PathBuf> {
    let path = proc.join(pid?.to_string()).join("ns/net");
    let own = std::fs::read_link(proc.join("self/ns/net")).ok()?;
    (std::fs::read_link(&path).ok()? != own).then_some(path)
}

/// Reads in another network namespace, on a thread of its own, so that this one stays in its own.
fn read_in(
    namespace: &Path,
    read: &(dyn Fn(&mut Vec<Unseen>) -> Vec<SocketFacts> + Sync),
    unseen: &mut Vec<Unseen>,
) -> Vec<SocketFacts> {
    let enter = || setns(std::fs::File::open(namespace)?, CloneFlags::CLONE_NEWNET).map_err(io::Error::from);
    let read = std::thread::scope(|scope| {
        let reading = scope.spawn(|| {
            enter()?;
            let mut unseen = Vec::new();
            let sockets = read(&mut unseen);
            Ok::<_, io::Error>((sockets, unseen))
        });
        reading.join().unwrap_or_else(|_| Err(io::Error::other("the reading thread panicked")))
    });
    match read {
        Ok((sockets, more)) => {
            unseen.extend(more);
            sockets
        }
        Err(error) => {
            unseen.push(Unseen {
                what: format!("TCP sockets in the network namespace {}", namespace.display()),
                why: format!("cannot enter it: {error}; root can"),
            });
            Vec::new()
        }
    }
}

fn read_here(
    roots: &Roots,
    wanted: &Wanted,
    watch: Option<Duration>,
    unseen: &mut Vec<Unseen>,
) -> Vec<SocketFacts> {
    let failed = |error: io::Error| Unseen {
        what: "TCP sockets".to_owned(),
        why: format!("the kernel does not list them (sock_diag): {error}"),
    };
    let mut diag = match Diag::open() {
        Ok(diag) => diag,
        Err(error) => {
            unseen.push(failed(error));
            return Vec::new();
        }
    };
    // With one process, only its own sockets: their inodes are known first.
    let of_process = wanted.pid.map(|pid| owners::of_process(&roots.proc, pid, unseen));
    let mut kept = Vec::new();
    let mut beyond = 0_u64;
    let listed = diag.each_tcp(&mut |socket| {
        let is_wanted = convert::state(socket.state).is_some()
            && of_process.as_ref().is_none_or(|owners| owners.holds(socket.inode))
            && wanted.port.is_none_or(|port| has_port(&socket, port));
        if is_wanted && kept.len() < SOCKETS_MAX {
            kept.push(socket);
        } else if is_wanted {
            beyond += 1;
        }
    });
    if let Err(error) = listed {
        unseen.push(failed(error));
    }
    if beyond > 0 {
        unseen.push(Unseen {
            what: format!("{beyond} of {} TCP sockets", beyond + kept.len() as u64),
            why: format!("a check looks at {SOCKETS_MAX}; name a process (--pid) or a port (--port)"),
        });
    }
    let owners = of_process.unwrap_or_else(|| owners::of_all(&roots.proc, &kept, unseen));
    let mut facts: Vec<SocketFacts> = kept.iter().map(|socket| convert::facts(socket, &owners)).collect();
    options::read(&mut facts, &kept, unseen);
    if let Some(duration) = watch {
        watch::watch(&mut diag, &kept, &mut facts, duration, unseen);
    }
    facts
}

fn has_port(socket: &TcpSocket, port: u16) -> bool {
    socket.id.source_port == port || socket.id.destination_port == port
}
