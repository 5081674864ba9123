//! Admission of accepted connections: rate limits with one queue per address, so that a flood from one address delays
//! only itself.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv6Addr};
use std::time::{Duration, Instant};

/// Most tracked addresses. At the limit, idle addresses with a full token bucket are dropped; then new addresses are
/// refused.
const ADDRESSES_MAX: usize = 4096;

/// A token bucket: a steady rate and a burst.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    /// When the next token is due. A burst may run ahead of it by [`Rate::burst`].
    due: Instant,
}

impl Bucket {
    fn wait(&self, rate: Rate, now: Instant) -> Duration {
        self.due.saturating_duration_since(now + rate.burst)
    }

    fn take(&mut self, rate: Rate, now: Instant) {
        self.due = self.due.max(now) + rate.every;
    }
}

#[derive(Clone, Copy, Debug)]
struct Rate {
    every: Duration,
    burst: Duration,
}

impl Rate {
    fn new(per_second: u32) -> Self {
        Self { every: Duration::from_secs(1) / per_second.max(1), burst: Duration::from_millis(500) }
    }
}

#[derive(Debug)]
struct Address<T> {
    bucket: Bucket,
    waiting: VecDeque<T>,
}

/// Most queued connections; later ones are closed. A host opens all its sessions at once when it comes back, and so do all hosts behind
/// a switch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// A part of all, so that a flood from some addresses leaves room for the others.
    of_address: usize,
    all: usize,
}

impl Room {
    /// The room beside so many connections that may be served.
    pub(crate) fn beside(connections: usize) -> Self {
        let all = connections.saturating_mul(4).max(512);
        Self { of_address: all / 16, all }
    }
}

/// The queued connections by address. Reads no clock: callers pass the time.
#[derive(Debug)]
pub(crate) struct Admission<T> {
    all: Bucket,
    all_rate: Rate,
    address_rate: Rate,
    addresses: BTreeMap<IpAddr, Address<T>>,
    /// Addresses with queued connections, in round-robin order.
    turns: VecDeque<IpAddr>,
    waiting: usize,
    room: Room,
}

impl<T> Admission<T> {
    /// Admits at most `per_second` connections a second over all addresses and `per_address` from one, with a burst of
    /// half a second's worth.
    pub(crate) fn new(per_second: u32, per_address: u32, room: Room, now: Instant) -> Self {
        Self {
            all: Bucket { due: now },
            all_rate: Rate::new(per_second),
            address_rate: Rate::new(per_address),
            addresses: BTreeMap::new(),
            turns: VecDeque::new(),
            waiting: 0,
            room,
        }
    }

    /// Queues a connection of an address. When the queue of the address is full, connections that `is_closed` reports as
    /// closed by the peer are removed first.
    ///
    /// # Errors
    /// Returns the connection when a queue is full; the caller closes it.
    pub(crate) fn enqueue(
        &mut self,
        address: IpAddr,
        what: T,
        now: Instant,
        is_closed: impl Fn(&T) -> bool,
    ) -> Result<(), T> {
        let network = network(address);
        if let Some(there) = self.addresses.get_mut(&network)
            && there.waiting.len() >= self.room.of_address
        {
            let before = there.waiting.len();
            there.waiting.retain(|what| !is_closed(what));
            self.waiting -= before - there.waiting.len();
            if there.waiting.is_empty() {
                self.turns.retain(|turn| *turn != network);
            }
        }
        if self.waiting >= self.room.all {
            return Err(what);
        }
        if self.addresses.len() >= ADDRESSES_MAX && !self.addresses.contains_key(&network) {
            self.addresses.retain(|_, there| there.bucket.due > now || !there.waiting.is_empty());
            if self.addresses.len() >= ADDRESSES_MAX {
                return Err(what);
            }
        }
        let new = || Address { bucket: Bucket { due: now }, waiting: VecDeque::new() };
        let there = self.addresses.entry(network).or_insert_with(new);
        if there.waiting.len() >= self.room.of_address {
            return Err(what);
        }
        if there.waiting.is_empty() {
            self.turns.push_back(network);
        }
        there.waiting.push_back(what);
        self.waiting += 1;
        Ok(())
    }

    /// Returns the oldest connection of the next address whose bucket has a token. Connections that `is_closed` reports
    /// as closed by the peer are removed and cost no token.
    pub(crate) fn next(&mut self, now: Instant, is_closed: impl Fn(&T) -> bool) -> Option<T> {
        if !self.all.wait(self.all_rate, now).is_zero() {
            return None;
        }
        for _ in 0..self.turns.len() {
            let network = self.turns.pop_front()?;
            let Some(there) = self.addresses.get_mut(&network) else { continue };
            if !there.bucket.wait(self.address_rate, now).is_zero() {
                self.turns.push_back(network);
                continue;
            }
            let before = there.waiting.len();
            while there.waiting.front().is_some_and(&is_closed) {
                there.waiting.pop_front();
            }
            self.waiting -= before - there.waiting.len();
            let Some(what) = there.waiting.pop_front() else { continue };
            if !there.waiting.is_empty() {
                self.turns.push_back(network);
            }
            there.bucket.take(self.address_rate, now);
            self.all.take(self.all_rate, now);
            self.waiting -= 1;
            return Some(what);
        }
        None
    }

    /// Returns the time until [`Self::next`] can return a connection; `None` when the queues are empty.
    pub(crate) fn wait(&self, now: Instant) -> Option<Duration> {
        let addresses = self.turns.iter().filter_map(|network| self.addresses.get(network));
        let first = addresses.map(|there| there.bucket.wait(self.address_rate, now)).min()?;
        Some(first.max(self.all.wait(self.all_rate, now)))
    }
}

/// Returns the address that limits count by: a host commonly has a whole IPv6 /64, so its prefix counts as one.
pub(crate) fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => {
            let prefix = u128::from(v6) & !u128::from(u64::MAX);
            IpAddr::V6(Ipv6Addr::from(prefix))
        }
        v4 @ IpAddr::V4(_) => v4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room { of_address: 32, all: 512 };

    fn address(last: u8) -> IpAddr {
        [127, 0, 0, last].into()
    }

    #[test]
    fn flood_from_one_address_does_not_delay_another_address() {
        let mut now = Instant::now();
        let mut admission = Admission::new(100, 20, ROOM, now);
        let (mut flood, mut refused) = (0, 0);
        for round in 0..100 {
            for n in 0..50 {
                refused += u32::from(admission.enqueue(address(1), (1, n), now, |_| false).is_err());
            }
            assert!(admission.enqueue(address(2), (2, round), now, |_| false).is_ok());
            let mut taken = Vec::new();
            while let Some(what) = admission.next(now, |_| false) {
                taken.push(what);
            }
            // The second address asks for one in 100 ms and is admitted in the same round.
            assert!(taken.contains(&(2, round)), "round {round}: {taken:?}");
            flood += taken.iter().filter(|(who, _)| *who == 1).count();
            now += Duration::from_millis(100);
        }
        // 20 in a second for 10 seconds, and the burst of half a second.
        assert!((190..=215).contains(&flood), "{flood} admitted from the flooding address");
        assert!(refused > 4000, "{refused}");
    }

    #[test]
    fn queued_connections_are_released_at_the_announced_time() {
        let now = Instant::now();
        let mut admission = Admission::new(1000, 10, ROOM, now);
        for n in 0..8 {
            admission.enqueue(address(1), n, now, |_| false).unwrap();
        }
        let at_once = std::iter::from_fn(|| admission.next(now, |_| false)).count();
        assert_eq!(at_once, 6, "a burst of half a second, and one due token");
        let wait = admission.wait(now).unwrap();
        assert!(admission.next(now + wait - Duration::from_millis(1), |_| false).is_none());
        assert_eq!(admission.next(now + wait, |_| false), Some(6));
    }

    #[test]
    fn closed_connections_neither_occupy_the_queue_nor_use_a_turn() {
        let mut now = Instant::now();
        let mut admission = Admission::new(1000, 10, ROOM, now);
        for round in 0..50 {
            // A flood that closes each connection at once, and a well-behaved peer behind the same address.
            for n in 0..200 {
                let _ = admission.enqueue(address(1), (false, n), now, |(is_alive, _)| !is_alive);
            }
            assert!(admission.enqueue(address(1), (true, round), now, |(is_alive, _)| !is_alive).is_ok());
            assert_eq!(admission.next(now, |(is_alive, _)| !is_alive), Some((true, round)));
            assert_eq!(admission.next(now, |(is_alive, _)| !is_alive), None);
            now += Duration::from_millis(100);
        }
        assert_eq!((admission.waiting, admission.turns.len()), (0, 0));
    }

    #[test]
    fn addresses_and_queues_are_bounded() {
        let now = Instant::now();
        let mut admission = Admission::new(1, 1, ROOM, now);
        for n in 0..100_000_u32 {
            let _ = admission.enqueue(IpAddr::V4(n.into()), n, now, |_| false);
            let _ = admission.next(now, |_| false);
        }
        assert!(admission.waiting <= ROOM.all && admission.addresses.len() <= ADDRESSES_MAX);
        assert!(admission.turns.len() <= admission.waiting);
    }

    #[test]
    fn ipv6_prefix_counts_as_one_address() {
        let [a, b]: [IpAddr; 2] = ["2001:db8::1", "2001:db8::ffff:1"].map(|text| text.parse().unwrap());
        assert_eq!(network(a), network(b));
        assert_ne!(network(a), network("2001:db8:0:1::1".parse().unwrap()));
        assert_eq!(network("::ffff:127.0.0.1".parse().unwrap()), address(1));
    }
}
