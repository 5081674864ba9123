//! Accepting connections within limits.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bounds on what clients can make a server hold or wait for. A server has one thread for each connection, so `connections`
/// bounds its threads, too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// Most connections at once from one IPv4 address, or from one IPv6 /64 prefix.
    pub connections_per_address: usize,
    /// A connection without a received byte for so long is closed. A message may take this long and another second for
    /// each [`PROGRESS_BYTES`] of its body.
    pub silence: Duration,
    /// Longest time from the first to the last byte of a request's head.
    pub head_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 2048,
            connections_per_address: 1024,
            silence: Duration::from_secs(60),
            head_time: Duration::from_secs(10),
        }
    }
}

/// Least progress of a body in a second, beyond [`Limits::silence`].
pub const PROGRESS_BYTES: usize = 16 << 10;

impl Limits {
    /// Returns the longest time that a body of so many bytes may take.
    pub(crate) fn body_time(&self, bytes: usize) -> Duration {
        self.silence.saturating_add(Duration::from_secs((bytes / PROGRESS_BYTES) as u64))
    }
}

/// Stack of a connection's thread, bytes.
const STACK_BYTES: usize = 512 << 10;
/// Pause after a failed accept(2): out of descriptors, every further one fails at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// Connections that are open, in all and by address.
#[derive(Debug, Default)]
struct Places {
    count: usize,
    of: HashMap<IpAddr, usize>,
}

/// The place of one connection, given back when dropped.
#[derive(Debug)]
struct Place {
    places: Arc<Mutex<Places>>,
    address: IpAddr,
}

impl Place {
    fn take(places: &Arc<Mutex<Places>>, peer: SocketAddr, limits: &Limits) -> Option<Self> {
        let address = client(peer.ip());
        let mut all = places.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.of.get(&address).copied().unwrap_or(0);
        if all.count >= limits.connections || own >= limits.connections_per_address {
            return None;
        }
        all.count += 1;
        all.of.insert(address, own + 1);
        Some(Self { places: Arc::clone(places), address })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut all = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        all.count = all.count.saturating_sub(1);
        let left = all.of.get(&self.address).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            all.of.remove(&self.address);
        } else {
            all.of.insert(self.address, left);
        }
    }
}

/// Whose limit an address counts towards: an IPv6 host commonly has a whole /64.
fn client(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() & !u128::from(u64::MAX)).into(),
        address => address,
    }
}

/// Serves connections until `over` is set, each on a thread of its own. A connection beyond the limits is handed to
/// `refuse`, which must not block.
pub(crate) fn accept_all(
    listener: &TcpListener,
    limits: &Limits,
    over: &AtomicBool,
    serve: &Arc<impl Fn(TcpStream) + Send + Sync + 'static>,
    refuse: impl Fn(TcpStream),
) {
    let places = Arc::default();
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(place) = Place::take(&places, peer, limits) else {
            refuse(stream);
            continue;
        };
        let serve = Arc::clone(serve);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            serve(stream);
            drop(place);
        });
        // Without a thread the connection is closed, and its place is free again.
        let _: io::Result<_> = thread;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_in_total_and_per_address_and_released() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
        let places = Arc::default();
        let take = |peer: &str| Place::take(&places, peer.parse().unwrap(), &limits);
        let first = take("10.0.0.1:1");
        let second = take("[::ffff:10.0.0.1]:2");
        assert!(first.is_some() && second.is_some() && take("10.0.0.1:3").is_none());
        let third = take("[2001:db8::1]:1");
        assert!(third.is_some() && take("10.0.0.2:1").is_none(), "three in all");
        drop(first);
        assert!(take("10.0.0.1:4").is_some());
        drop((second, third));
        assert!(places.lock().unwrap().of.is_empty(), "no address is kept");
    }

    #[test]
    fn addresses_of_one_ipv6_prefix_share_a_limit() {
        let limits = Limits { connections_per_address: 1, ..Limits::default() };
        let places = Arc::default();
        let take = |peer: &str| Place::take(&places, peer.parse().unwrap(), &limits);
        let first = take("[2001:db8::1]:1");
        assert!(first.is_some() && take("[2001:db8::2]:1").is_none());
        assert!(take("[2001:db8:0:1::1]:1").is_some());
    }
}
