//! The sockets of the connections that are served: which of them their initiators have closed.
//!
//! An initiator that closes a connection and logs in again expects that the end of its old nexus is behind it: that a
//! prevented removal, a reservation (RESERVE(6)) and its tasks are gone. The thread of the old connection may not have run
//! since. So a login is answered when every connection that was closed before it has ended.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Mutex};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::lock::lock;

/// The peer will send nothing more. `PollFlags` has no name for it.
const CLOSED_FOR_SENDING: PollFlags = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);

/// The sockets by the numbers of their connections.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    served: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
}

impl Sockets {
    /// A login has succeeded, and is about to be answered.
    pub(crate) fn begin(&self, connection: u64, socket: &Arc<TcpStream>) {
        lock(&self.served).insert(connection, Arc::clone(socket));
    }

    /// Nothing of the connection affects others any more.
    pub(crate) fn end(&self, connection: u64) {
        lock(&self.served).remove(&connection);
    }

    /// The served connections that their peers have closed or reset.
    pub(crate) fn closed(&self) -> Vec<u64> {
        closed(&lock(&self.served))
    }

    /// Whether one of these connections has not ended.
    pub(crate) fn are_served(&self, connections: &[u64]) -> bool {
        let served = lock(&self.served);
        connections.iter().any(|connection| served.contains_key(connection))
    }
}

/// The connections that their peers have closed or reset.
fn closed(served: &BTreeMap<u64, Arc<TcpStream>>) -> Vec<u64> {
    let mut fds: Vec<PollFd<'_>> =
        served.values().map(|socket| PollFd::new(socket.as_fd(), CLOSED_FOR_SENDING)).collect();
    // Without an answer, none is known to be closed.
    if poll(&mut fds, PollTimeout::ZERO).is_err() {
        return Vec::new();
    }
    // No flags at all are those that it cannot name: POLLRDHUP is among them.
    let is_closed = |fd: &PollFd<'_>| {
        fd.revents().is_none_or(|events| events.intersects(PollFlags::POLLHUP | PollFlags::POLLERR))
    };
    served.keys().zip(&fds).filter(|(_, fd)| is_closed(fd)).map(|(&id, _)| id).collect()
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn pair() -> (TcpStream, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let initiator = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (initiator, Arc::new(listener.accept().unwrap().0))
    }

    #[test]
    fn closed_connections_are_known_until_they_have_ended() {
        let sockets = Sockets::default();
        let (first, second) = (pair(), pair());
        sockets.begin(1, &first.1);
        sockets.begin(2, &second.1);
        assert!(sockets.closed().is_empty());
        drop(first.0);
        // The FIN has come when the socket has no more to read.
        assert_eq!(first.1.peek(&mut [0]).unwrap(), 0);
        assert_eq!(sockets.closed(), [1]);
        assert!(sockets.are_served(&[1]) && !sockets.are_served(&[]));
        sockets.end(1);
        assert!(!sockets.are_served(&[1]) && sockets.are_served(&[1, 2]));
        assert!(sockets.closed().is_empty());
    }
}
