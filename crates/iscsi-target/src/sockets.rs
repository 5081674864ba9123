//! The sockets of the connections that are served: which of them their initiators have closed.
//!
//! An initiator that closes a connection and logs in again expects that the end of its old nexus is behind it: that a
//! prevented removal, a reservation (RESERVE(6)) and its tasks are gone. The thread of the old connection may not have run
//! since. So a login is answered when every connection that was closed before it has ended.

use std::collections::BTreeMap;
use std::net::TcpStream;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use crate::lock::lock;

/// Longest time that a login waits for connections that are closed: their last writes may take a disk long.
const PATIENCE: Duration = Duration::from_secs(1);

/// The peer will send nothing more. `PollFlags` has no name for it.
const CLOSED_FOR_SENDING: PollFlags = PollFlags::from_bits_retain(nix::libc::POLLRDHUP);

/// The sockets by the numbers of their connections.
#[derive(Debug, Default)]
pub(crate) struct Sockets {
    served: Mutex<BTreeMap<u64, Arc<TcpStream>>>,
    one_ended: Condvar,
}

impl Sockets {
    /// A login has succeeded, and is about to be answered.
    pub(crate) fn begin(&self, connection: u64, socket: &Arc<TcpStream>) {
        lock(&self.served).insert(connection, Arc::clone(socket));
    }

    /// Nothing of the connection affects others any more.
    pub(crate) fn end(&self, connection: u64) {
        lock(&self.served).remove(&connection);
        self.one_ended.notify_all();
    }

    /// Waits until the connections that their peers have closed have ended, for a bounded time.
    pub(crate) fn settle(&self) {
        let mut served = lock(&self.served);
        let closed = closed(&served);
        let deadline = Instant::now() + PATIENCE;
        while closed.iter().any(|connection| served.contains_key(connection)) {
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                tracing::warn!("a closed connection has not ended within {PATIENCE:?}; a login goes on");
                return;
            }
            served = match self.one_ended.wait_timeout(served, left) {
                Ok((served, _)) => served,
                Err(poisoned) => poisoned.into_inner().0,
            };
        }
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
    use std::sync::mpsc::{RecvTimeoutError, channel};

    use super::*;

    fn pair() -> (TcpStream, Arc<TcpStream>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let initiator = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (initiator, Arc::new(listener.accept().unwrap().0))
    }

    #[test]
    fn a_login_waits_for_the_end_of_closed_connections_and_of_no_others() {
        let sockets = Sockets::default();
        let (first, second) = (pair(), pair());
        sockets.begin(1, &first.1);
        sockets.begin(2, &second.1);
        sockets.settle();
        drop(first.0);
        // The FIN has come when the socket has no more to read.
        assert_eq!(first.1.peek(&mut [0]).unwrap(), 0);
        assert_eq!(closed(&lock(&sockets.served)), [1]);
        let (settled, is_settled) = channel();
        std::thread::scope(|scope| {
            let login = scope.spawn(|| {
                sockets.settle();
                settled.send(()).unwrap();
            });
            assert_eq!(is_settled.recv_timeout(Duration::from_millis(50)), Err(RecvTimeoutError::Timeout));
            sockets.end(1);
            login.join().unwrap();
        });
        is_settled.try_recv().unwrap();
    }

    #[test]
    fn a_connection_that_does_not_end_delays_a_login_for_a_bounded_time() {
        let sockets = Sockets::default();
        let (initiator, socket) = pair();
        sockets.begin(1, &socket);
        drop(initiator);
        assert_eq!(socket.peek(&mut [0]).unwrap(), 0);
        let begun = Instant::now();
        sockets.settle();
        assert!(begun.elapsed() >= PATIENCE);
    }
}
