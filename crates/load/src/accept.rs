//! Accepting connections within limits.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Bounds on the resources that clients can make a server hold, and on how long it waits for them. A server has one
/// thread per connection, so `connections` bounds its threads too.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Most connections at once.
    pub connections: usize,
    /// Most connections at once from one IPv4 address, or from one IPv6 /64 prefix.
    pub connections_per_address: usize,
    /// A connection without a received byte for this time is closed. A message may take this time plus one second for
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
    /// Returns the longest time that a body of `bytes` bytes may take.
    pub(crate) fn body_time(&self, bytes: usize) -> Duration {
        self.silence.saturating_add(Duration::from_secs((bytes / PROGRESS_BYTES) as u64))
    }
}

/// Stack of a connection's thread, bytes.
const STACK_BYTES: usize = 512 << 10;
/// Pause after a failed accept(2): without free descriptors each further call fails at once and would spin.
const ACCEPT_PAUSE: Duration = Duration::from_millis(10);

/// The open connections: in total and by address.
#[derive(Debug, Default)]
struct Slots {
    count: usize,
    of: HashMap<IpAddr, usize>,
}

/// The slot of a connection, released when dropped.
#[derive(Debug)]
struct Slot {
    slots: Arc<Mutex<Slots>>,
    address: IpAddr,
}

impl Slot {
    fn take(slots: &Arc<Mutex<Slots>>, peer: SocketAddr, limits: &Limits) -> Option<Self> {
        let address = client(peer.ip());
        let mut all = slots.lock().unwrap_or_else(PoisonError::into_inner);
        let own = all.of.get(&address).copied().unwrap_or(0);
        if all.count >= limits.connections || own >= limits.connections_per_address {
            return None;
        }
        all.count += 1;
        all.of.insert(address, own + 1);
        Some(Self { slots: Arc::clone(slots), address })
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = self.slots.lock().unwrap_or_else(PoisonError::into_inner);
        all.count = all.count.saturating_sub(1);
        let left = all.of.get(&self.address).map_or(0, |count| count.saturating_sub(1));
        if left == 0 {
            all.of.remove(&self.address);
        } else {
            all.of.insert(self.address, left);
        }
    }
}

/// Returns the address that limits count by: an IPv6 host commonly has a whole /64, so its prefix counts as one.
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
    let slots = Arc::default();
    while !over.load(Ordering::Relaxed) {
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(ACCEPT_PAUSE);
            continue;
        };
        let Some(slot) = Slot::take(&slots, peer, limits) else {
            refuse(stream);
            continue;
        };
        let serve = Arc::clone(serve);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(move || {
            serve(stream);
            drop(slot);
        });
        // If the thread cannot start, the closure is dropped: that closes the connection and releases its slot.
        let _: io::Result<_> = thread;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_limited_in_total_and_per_address_and_released() {
        let limits = Limits { connections: 3, connections_per_address: 2, ..Limits::default() };
        let slots = Arc::default();
        let take = |peer: &str| Slot::take(&slots, peer.parse().unwrap(), &limits);
        let first = take("10.0.0.1:1");
        let second = take("[::ffff:10.0.0.1]:2");
        assert!(first.is_some() && second.is_some() && take("10.0.0.1:3").is_none());
        let third = take("[2001:db8::1]:1");
        assert!(third.is_some() && take("10.0.0.2:1").is_none(), "three in all");
        drop(first);
        assert!(take("10.0.0.1:4").is_some());
        drop((second, third));
        assert!(slots.lock().unwrap().of.is_empty(), "no address entry is left");
    }

    #[test]
    fn addresses_of_one_ipv6_prefix_share_a_limit() {
        let limits = Limits { connections_per_address: 1, ..Limits::default() };
        let slots = Arc::default();
        let take = |peer: &str| Slot::take(&slots, peer.parse().unwrap(), &limits);
        let first = take("[2001:db8::1]:1");
        assert!(first.is_some() && take("[2001:db8::2]:1").is_none());
        assert!(take("[2001:db8:0:1::1]:1").is_some());
    }
}
