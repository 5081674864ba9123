//! Options that netlink does not report, from duplicates of the processes' descriptors.

use std::collections::BTreeMap;
use std::io;

use netlink::sock_diag::TcpSocket;
use socket::foreign::Process;

use crate::facts::Unseen;
use crate::facts::socket::{SocketFacts, SocketOptions};

/// Reads the options of each socket that has a holder. A process is opened once, and a descriptor is open for the few
/// microseconds of its reading.
pub(super) fn read(facts: &mut [SocketFacts], sockets: &[TcpSocket], unseen: &mut Vec<Unseen>) {
    let mut by_process: BTreeMap<u32, Vec<usize>> = BTreeMap::new();
    for (at, socket) in facts.iter().enumerate() {
        if let Some(owner) = socket.owners.first() {
            by_process.entry(owner.pid).or_default().push(at);
        }
    }
    let mut refused: Vec<u32> = Vec::new();
    let mut failed = 0_u64;
    let mut reason = None;
    for (pid, indexes) in by_process {
        let outcome = Process::open(pid).and_then(|process| {
            for at in indexes {
                match one(&process, &facts[at], &sockets[at]) {
                    Ok(options) => facts[at].options = options,
                    Err(error) if is_refusal(&error) => return Err(error),
                    // It has closed the socket, or ended.
                    Err(error) if is_gone(&error) => {}
                    Err(error) => {
                        failed += 1;
                        reason = Some(error.to_string());
                    }
                }
            }
            Ok(())
        });
        match outcome {
            Err(error) if is_refusal(&error) => refused.push(pid),
            Err(error) if !is_gone(&error) => {
                failed += 1;
                reason = Some(error.to_string());
            }
            _ => {}
        }
    }
    report(&refused, failed, reason, unseen);
}

fn report(refused: &[u32], failed: u64, reason: Option<String>, unseen: &mut Vec<Unseen>) {
    let what = |whose: &str| format!("Nagle state, cork and buffer locks of sockets of {whose}");
    if let Some(first) = refused.first() {
        unseen.push(Unseen {
            what: what(&match refused.len() {
                1 => format!("process {first}"),
                others => format!("process {first} and {} others", others - 1),
            }),
            why: "netlink does not report them, and only root and a process's own user may duplicate its descriptors"
                .to_owned(),
        });
    }
    if let Some(reason) = reason {
        unseen.push(Unseen { what: what(&format!("{failed} processes or descriptors")), why: reason });
    }
}

/// The options of a socket; `None` when its descriptor means another socket by now.
fn one(process: &Process, facts: &SocketFacts, socket: &TcpSocket) -> io::Result<Option<SocketOptions>> {
    let Some(owner) = facts.owners.first() else { return Ok(None) };
    let live = process.socket(owner.fd)?;
    // A kernel without SO_COOKIE for TCP does not exist, but a filter may forbid it.
    let is_same = live.inode() == u64::from(facts.inode)
        && live.cookie().map_or(true, |cookie| cookie.to_ne_bytes() == socket.id.cookie);
    if !is_same {
        return Ok(None);
    }
    let options = live.options()?;
    Ok(Some(SocketOptions {
        nagle: !options.nodelay,
        corked: options.cork,
        quick_ack: options.quick_ack,
        not_sent_low_water: options.not_sent_low_water,
        send_buffer_locked: options.is_send_buffer_locked,
        receive_buffer_locked: options.is_receive_buffer_locked,
    }))
}

fn is_refusal(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::PermissionDenied
}

fn is_gone(error: &io::Error) -> bool {
    const ESRCH: i32 = 3;
    const EBADF: i32 = 9;
    error.kind() == io::ErrorKind::NotFound || matches!(error.raw_os_error(), Some(ESRCH | EBADF))
}
