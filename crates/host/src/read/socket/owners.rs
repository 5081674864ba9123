//! Which processes hold a socket: the links of /proc/PID/fd.

use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

use netlink::sock_diag::TcpSocket;

use crate::facts::Unseen;
use crate::facts::socket::Owner;

/// The most descriptors of one socket that are listed: a server of many processes inherits one listener.
const OWNERS_MAX: usize = 16;

/// Holders of sockets, by inode.
#[derive(Debug, Default)]
pub(super) struct Owners {
    by_inode: HashMap<u32, Vec<Owner>>,
}

impl Owners {
    pub(super) fn holds(&self, inode: u32) -> bool {
        self.by_inode.contains_key(&inode)
    }

    pub(super) fn of(&self, inode: u32) -> Vec<Owner> {
        self.by_inode.get(&inode).cloned().unwrap_or_default()
    }
}

/// The sockets of one process, of whatever kind.
pub(super) fn of_process(proc: &Path, pid: u32, unseen: &mut Vec<Unseen>) -> Owners {
    let mut owners = Owners::default();
    if let Err(error) = add(&mut owners, proc, pid, None) {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "there is no such process".to_owned(),
            io::ErrorKind::PermissionDenied => "only root and its user may list its descriptors".to_owned(),
            _ => error.to_string(),
        };
        unseen.push(Unseen { what: format!("sockets of process {pid}"), why });
    }
    owners
}

/// The holders of the sockets given.
pub(super) fn of_all(proc: &Path, sockets: &[TcpSocket], unseen: &mut Vec<Unseen>) -> Owners {
    let wanted: HashSet<u32> =
        sockets.iter().map(|socket| socket.inode).filter(|inode| *inode != 0).collect();
    let mut owners = Owners::default();
    if wanted.is_empty() {
        return owners;
    }
    let mut is_refused = false;
    for entry in std::fs::read_dir(proc).into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // A process that has ended meanwhile is not missed.
        let listed = add(&mut owners, proc, pid, Some(&wanted));
        is_refused |= listed.is_err_and(|error| error.kind() == io::ErrorKind::PermissionDenied);
    }
    let without = wanted.iter().filter(|inode| !owners.holds(**inode)).count();
    if without > 0 {
        let why = if is_refused {
            "only root may list the descriptors of other users' processes"
        } else {
            "no process that /proc shows holds them: another PID namespace, or io_uring"
        };
        unseen.push(Unseen {
            what: format!("processes of {}", record::units::counted(without as u64, "TCP socket")),
            why: why.to_owned(),
        });
    }
    owners
}

/// Adds the sockets of a process; all, or those wanted.
fn add(owners: &mut Owners, proc: &Path, pid: u32, wanted: Option<&HashSet<u32>>) -> io::Result<()> {
    let folder = proc.join(pid.to_string());
    let mut program: Option<String> = None;
    for entry in std::fs::read_dir(folder.join("fd"))?.flatten() {
        let Some(inode) = std::fs::read_link(entry.path()).ok().and_then(|link| inode(&link)) else {
            continue;
        };
        let Some(fd) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        if wanted.is_some_and(|wanted| !wanted.contains(&inode)) {
            continue;
        }
        let holders = owners.by_inode.entry(inode).or_default();
        if holders.len() < OWNERS_MAX {
            let name = || std::fs::read_to_string(folder.join("comm")).unwrap_or_default();
            let program = program.get_or_insert_with(|| name().trim_end().to_owned()).clone();
            holders.push(Owner { pid, fd, program });
        }
    }
    Ok(())
}

/// The inode of `socket:[4711]`.
fn inode(link: &Path) -> Option<u32> {
    link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
}
