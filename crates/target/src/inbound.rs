//! Memory for long PDUs on their way in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::sessions::{Mailbox, Notice, lock};

/// A PDU may take this long to come while others wait for its memory.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A budget for the receive buffers of PDUs that do not fit in the usual one. Who finds nothing left waits in order,
/// and the connection whose PDU has been coming for longest gives way when it takes longer than [`PATIENCE`]: whoever
/// announces a PDU and does not send it keeps others from theirs for a bounded time.
#[derive(Debug)]
pub(crate) struct Inbound {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    holders: BTreeMap<u64, Holder>,
    /// Connections that wait, the first one first.
    waiting: VecDeque<u64>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// When it began to hold them, or its last PDU came.
    since: Instant,
    mailbox: Arc<Mailbox>,
}

impl Inbound {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Claims `bytes` for a connection, in place of what it has; whether it got them. Who did not asks again.
    pub(crate) fn claim(&self, (id, mailbox): (u64, &Arc<Mailbox>), bytes: usize, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let others = state.bytes - state.holders.get(&id).map_or(0, |holder| holder.bytes);
        // One alone passes, however long its PDU is.
        let fits = others == 0 || others + bytes <= self.limit;
        let is_next = state.waiting.front().is_none_or(|&first| first == id);
        if fits && is_next {
            state.waiting.retain(|&waiting| waiting != id);
            state.release(id);
            state.bytes += bytes;
            state.holders.insert(id, Holder { bytes, since: now, mailbox: Arc::clone(mailbox) });
            return true;
        }
        if !state.waiting.contains(&id) {
            state.waiting.push_back(id);
        }
        if !fits
            && let Some(slowest) = state.holders.values().min_by_key(|holder| holder.since)
            && now.saturating_duration_since(slowest.since) >= PATIENCE
        {
            slowest.mailbox.post(Notice::Drop("its PDU took too long while others waited for its memory"));
        }
        false
    }

    /// A PDU of a connection has come whole; it keeps what it holds.
    pub(crate) fn came(&self, id: u64, now: Instant) {
        if let Some(holder) = lock(&self.state).holders.get_mut(&id) {
            holder.since = now;
        }
    }

    /// A connection holds nothing any more, and waits for nothing.
    pub(crate) fn release(&self, id: u64) {
        let mut state = lock(&self.state);
        state.release(id);
        state.waiting.retain(|&waiting| waiting != id);
    }

    /// Bytes that are held now.
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
    fn who_comes_first_is_served_first() {
        let (inbound, mailbox, now) = (Inbound::new(100), mailbox(), Instant::now());
        let claim = |id, bytes| inbound.claim((id, &mailbox), bytes, now);
        assert!(claim(1, 60));
        assert!(!claim(2, 60) && !claim(3, 40), "whoever waits is not overtaken by a smaller one");
        assert!(!claim(1, 90), "whoever asks for more waits as well");
        assert_eq!(inbound.held(), 60);
        inbound.release(1);
        assert!(!claim(3, 40) && claim(2, 60) && claim(3, 40) && claim(3, 30));
        assert_eq!(inbound.held(), 90, "in place of what it has");
        for id in [2, 3] {
            inbound.release(id);
        }
        assert_eq!(inbound.held(), 0);
        assert!(claim(4, 1000), "one alone passes");
        assert!(!claim(5, 1));
        inbound.release(5);
        inbound.release(4);
        assert!(claim(6, 1), "who left does not wait any more");
    }

    #[test]
    fn the_slowest_gives_way_to_those_that_wait() {
        let (inbound, now) = (Inbound::new(100), Instant::now());
        let (slow, steady, waits) = (mailbox(), mailbox(), mailbox());
        assert!(inbound.claim((1, &slow), 50, now) && inbound.claim((2, &steady), 50, now));
        inbound.came(2, now + PATIENCE / 2);
        assert!(!inbound.claim((3, &waits), 50, now + PATIENCE / 2));
        assert!(slow.take().is_empty(), "not at once");
        assert!(!inbound.claim((3, &waits), 50, now + PATIENCE));
        assert!(matches!(slow.take()[..], [Notice::Drop(_)]) && steady.take().is_empty());
        inbound.release(1);
        assert!(inbound.claim((3, &waits), 50, now + PATIENCE));
    }
}
