//! Receive memory for long PDUs.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::mailbox::{Mailbox, Notice};

/// Longest time that the peer may take to send a PDU while other connections wait for its memory.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A queued connection that does not claim again within this time loses its place.
const ASKS_WITHIN: Duration = Duration::from_millis(200);

/// A budget for PDUs that do not fit the default receive buffer. When it is exhausted, connections queue in order of
/// arrival. While others wait, the connection whose PDU has been incomplete for longest is dropped after [`PATIENCE`]: a
/// peer that announces a PDU and does not send it delays the others for a bounded time. Only time that the target spends
/// waiting for bytes counts.
#[derive(Debug)]
pub(crate) struct Inbound {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    holders: BTreeMap<u64, Holder>,
    /// Queued connections in order of arrival, and when each claimed last.
    waiting: VecDeque<(u64, Instant)>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// Since when the target waits for its PDU; `None` while the target executes for the connection.
    since: Option<Instant>,
    mailbox: Arc<Mailbox>,
}

impl Inbound {
    /// Creates a budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Claims `bytes` for a connection, replacing its previous claim; returns whether they are granted. A refused
    /// connection is queued and must claim again within [`ASKS_WITHIN`].
    pub(crate) fn claim(&self, id: u64, mailbox: &Arc<Mailbox>, bytes: usize, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let others = state.bytes - state.holders.get(&id).map_or(0, |holder| holder.bytes);
        // A single claim is always granted: otherwise a PDU above the limit could never be received.
        let fits = others == 0 || others + bytes <= self.limit;
        // A connection that no longer claims must not block the queue.
        state
            .waiting
            .retain(|&(other, asked)| other == id || now.saturating_duration_since(asked) < ASKS_WITHIN);
        let is_next = state.waiting.front().is_none_or(|&(first, _)| first == id);
        if fits && is_next {
            state.waiting.retain(|&(waiting, _)| waiting != id);
            state.release(id);
            state.bytes += bytes;
            let holder = Holder { bytes, since: Some(now), mailbox: Arc::clone(mailbox) };
            state.holders.insert(id, holder);
            return true;
        }
        match state.waiting.iter_mut().find(|(waiting, _)| *waiting == id) {
            Some((_, asked)) => *asked = now,
            None => state.waiting.push_back((id, now)),
        }
        let slowest =
            state.holders.values().filter_map(|holder| Some((holder.since?, holder))).min_by_key(|it| it.0);
        if !fits
            && let Some((since, slowest)) = slowest
            && now.saturating_duration_since(since) >= PATIENCE
        {
            slowest.mailbox.post(Notice::Drop(
                "the PDU took too long to arrive while other connections waited for memory",
            ));
        }
        false
    }

    /// Returns the claimed bytes.
    pub(crate) fn used(&self) -> usize {
        lock(&self.state).bytes
    }

    /// Sets since when the target waits for a connection's PDU; `None` while it executes for the connection.
    pub(crate) fn set_waiting(&self, id: u64, since: Option<Instant>) {
        if let Some(holder) = lock(&self.state).holders.get_mut(&id) {
            holder.since = since;
        }
    }

    /// Excludes time that the target itself used from the waiting time of a connection.
    pub(crate) fn discount(&self, id: u64, time: Duration) {
        if let Some(holder) = lock(&self.state).holders.get_mut(&id) {
            holder.since = holder.since.map(|since| since + time);
        }
    }

    /// Releases the claim of a connection and removes it from the queue.
    pub(crate) fn release(&self, id: u64) {
        let mut state = lock(&self.state);
        state.release(id);
        state.waiting.retain(|&(waiting, _)| waiting != id);
    }

    /// Returns the claimed bytes.
    #[cfg(test)]
    pub(crate) fn held(&self) -> usize {
        lock(&self.state).bytes
    }
}

impl State {
    fn release(&mut self, id: u64) {
        if let Some(holder) = self.holders.remove(&id) {
            self.bytes -= holder.bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mailbox() -> Arc<Mailbox> {
        Arc::new(Mailbox::new().unwrap())
    }

    #[test]
    fn receive_memory_is_granted_in_order_of_arrival() {
        let (inbound, mailbox, now) = (Inbound::new(100), mailbox(), Instant::now());
        let claim = |id, bytes| inbound.claim(id, &mailbox, bytes, now);
        assert!(claim(1, 60));
        assert!(!claim(2, 60) && !claim(3, 40), "a smaller claim does not overtake the queue");
        assert!(!claim(1, 90), "a larger claim of a holder queues too");
        assert_eq!(inbound.held(), 60);
        inbound.release(1);
        assert!(!claim(3, 40) && claim(2, 60) && claim(3, 40) && claim(3, 30));
        assert_eq!(inbound.held(), 90, "replaces the previous claim");
        for id in [2, 3] {
            inbound.release(id);
        }
        assert_eq!(inbound.held(), 0);
        assert!(claim(4, 1000), "a single claim is granted");
        assert!(!claim(5, 1));
        inbound.release(5);
        inbound.release(4);
        assert!(claim(6, 1), "a released connection is not queued");
    }

    #[test]
    fn slowest_pdu_is_dropped_when_others_wait_for_memory() {
        let (inbound, now) = (Inbound::new(100), Instant::now());
        let (slow, steady, waits) = (mailbox(), mailbox(), mailbox());
        assert!(inbound.claim(1, &slow, 50, now) && inbound.claim(2, &steady, 50, now));
        inbound.set_waiting(2, Some(now + PATIENCE / 2));
        assert!(!inbound.claim(3, &waits, 50, now + PATIENCE / 2));
        assert!(slow.take().is_empty(), "not before PATIENCE");
        assert!(!inbound.claim(3, &waits, 50, now + PATIENCE));
        assert!(matches!(slow.take()[..], [Notice::Drop(_)]) && steady.take().is_empty());
        inbound.release(1);
        assert!(inbound.claim(3, &waits, 50, now + PATIENCE));
    }

    #[test]
    fn abandoned_claim_loses_its_place_in_the_queue() {
        let (inbound, mailbox, now) = (Inbound::new(100), mailbox(), Instant::now());
        let claim = |id, at| inbound.claim(id, &mailbox, 60, at);
        assert!(claim(1, now) && !claim(2, now) && !claim(3, now));
        inbound.release(1);
        assert!(!claim(3, now + ASKS_WITHIN / 2), "2 is first");
        assert!(claim(3, now + ASKS_WITHIN));
    }

    #[test]
    fn target_work_does_not_count_as_peer_delay() {
        let (inbound, now) = (Inbound::new(100), Instant::now());
        let (busy, late) = (mailbox(), now + 2 * PATIENCE);
        let asks = |at| inbound.claim(2, &mailbox(), 50, at);
        assert!(inbound.claim(1, &busy, 100, now));
        inbound.set_waiting(1, None);
        assert!(!asks(late) && busy.take().is_empty(), "its PDU is complete");
        inbound.set_waiting(1, Some(late));
        inbound.discount(1, PATIENCE);
        assert!(!asks(late + PATIENCE) && busy.take().is_empty(), "time of the target");
        assert!(!asks(late + 2 * PATIENCE) && busy.take().len() == 1);
    }
}
