//! How many requests in flight are remembered: a few of each connection, and more of those that need them, up to a limit that all
//! connections share. Without it a capture of many connections that nobody answers would fill the memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Requests that every connection may have in flight.
const OWN: usize = 64;
/// Requests by which its room grows.
const BLOCK: usize = 256;
/// What all connections together may have beyond their own, at about half a kilobyte each.
const SHARED: usize = 1 << 17;

/// What connections share: the requests for which there is room.
#[derive(Clone, Debug)]
pub(crate) struct SharedRoom(Arc<AtomicUsize>);

impl Default for SharedRoom {
    fn default() -> Self {
        Self(Arc::new(AtomicUsize::new(SHARED)))
    }
}

impl SharedRoom {
    fn take(&self) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |free| free.checked_sub(BLOCK)).is_ok()
    }
}

/// A connection's room.
#[derive(Debug, Default)]
pub(crate) struct Room {
    shared: SharedRoom,
    blocks: usize,
}

impl Room {
    pub(crate) fn of(shared: SharedRoom) -> Self {
        Self { shared, blocks: 0 }
    }

    /// Whether there is room for one more request beside so many.
    #[inline]
    pub(crate) fn has_place(&mut self, beside: usize) -> bool {
        if beside == 0 && self.blocks > 0 {
            self.give_back();
        }
        while beside >= OWN + self.blocks * BLOCK {
            if !self.shared.take() {
                return false;
            }
            self.blocks += 1;
        }
        true
    }

    fn give_back(&mut self) {
        self.shared.0.fetch_add(std::mem::take(&mut self.blocks) * BLOCK, Ordering::Relaxed);
    }
}

/// A copy has its own requests.
impl Clone for Room {
    fn clone(&self) -> Self {
        Self::of(self.shared.clone())
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        self.give_back();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_share_what_is_beyond_their_own() {
        let shared = SharedRoom::default();
        let mut greedy = Room::of(shared.clone());
        let places = (0..).take_while(|&beside| greedy.has_place(beside)).count();
        assert_eq!(places, OWN + SHARED);
        let mut other = greedy.clone();
        assert!((0..OWN).all(|beside| other.has_place(beside)) && !other.has_place(OWN));
        // What is not needed any more is the others', and so is that of a connection that has ended.
        assert!(greedy.has_place(0) && other.has_place(OWN));
        assert!((0..).take_while(|&beside| greedy.has_place(beside)).count() < places);
        drop(greedy);
        assert!(other.has_place(OWN + SHARED - 1) && !other.has_place(OWN + SHARED));
        drop(other);
        assert_eq!(shared.0.load(Ordering::Relaxed), SHARED);
    }
}
