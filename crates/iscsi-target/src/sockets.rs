//! The sockets of the connections that are served: which of them their initiators have closed.
//!
//! An initiator that closes a connection and logs in again expects that the end of its old nexus is behind it: that a
//! prevented removal, a reservation (RESERVE(6)) and its tasks are gone. The thread of the old connection may not have run
//! since. So a login is answered when every connection that was closed before it has ended.

use std::collections::BTreeMap;
use std::io;
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use nix::sys::epoll::{Epoll, EpollCreateFlags, EpollEvent, EpollFlags, EpollTimeout};

use crate::lock::lock;

/// Closed connections that are taken from the kernel at once.
const CLOSED_AT_ONCE: usize = 64;

/// The sockets by the numbers of their connections.
#[derive(Debug)]
pub(crate) struct Sockets {
    /// Watches all of them for their end alone, so that the answer costs what has been closed, not what is open.
    closed: Epoll,
    served: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
}

impl Sockets {
    pub(crate) fn new() -> io::Result<Self> {
        Ok(Self { closed: Epoll::new(EpollCreateFlags::EPOLL_CLOEXEC)?, served: Mutex::default() })
    }

    /// A login has succeeded, and is about to be answered.
    pub(crate) fn begin(&self, connection: u64, socket: &Arc<TcpStream>) {
        let mut served = lock(&self.served);
        // Level-triggered: it is reported until it is removed. EPOLLHUP and EPOLLERR are always.
        let watched = self.closed.add(socket, EpollEvent::new(EpollFlags::EPOLLRDHUP, connection));
        if let Err(error) = watched {
            tracing::warn!("cannot watch a connection for its end: {error}; a login may not wait for that");
        }
        served.insert(connection, Arc::clone(socket));
    }

    /// Nothing of the connection affects others any more.
    pub(crate) fn end(&self, connection: u64) {
        if let Some(socket) = lock(&self.served).remove(&connection) {
            // Otherwise it was not watched.
            let _ = self.closed.delete(&socket);
        }
    }

    /// The served connections that their peers have closed or reset.
    pub(crate) fn closed(&self) -> Vec<u64> {
        let served = lock(&self.served);
        let mut events = vec![EpollEvent::empty(); CLOSED_AT_ONCE];
        loop {
            // Without an answer, none is known to be closed.
            let count = self.closed.wait(&mut events, EpollTimeout::ZERO).unwrap_or(0);
            if count < events.len() || count > served.len() {
                return events.iter().take(count).map(EpollEvent::data).collect();
            }
            events.resize(served.len() + 1, EpollEvent::empty());
        }
    }

    /// Whether one of these connections has not ended.
    pub(crate) fn are_served(&self, connections: &[u64]) -> bool {
        let served = lock(&self.served);
        connections.iter().any(|connection| served.contains_key(connection))
    }
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
        let sockets = Sockets::new().unwrap();
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

    #[test]
    fn all_closed_connections_are_known_however_many() {
        for count in [CLOSED_AT_ONCE - 1, CLOSED_AT_ONCE, CLOSED_AT_ONCE + 1, 3 * CLOSED_AT_ONCE] {
            let sockets = Sockets::new().unwrap();
            let mut pairs: Vec<_> = (0..count).map(|_| pair()).collect();
            (0..).zip(&pairs).for_each(|(id, (_, target))| sockets.begin(id, target));
            // All but one.
            let open = pairs.remove(count / 2);
            pairs.iter_mut().for_each(|(initiator, target)| {
                initiator.shutdown(std::net::Shutdown::Write).unwrap();
                assert_eq!(target.peek(&mut [0]).unwrap(), 0);
            });
            for _ in 0..2 {
                let mut closed = sockets.closed();
                closed.sort_unstable();
                let expected: Vec<u64> = (0..count as u64).filter(|&id| id != count as u64 / 2).collect();
                assert_eq!(closed, expected);
            }
            drop(open);
        }
    }
}
