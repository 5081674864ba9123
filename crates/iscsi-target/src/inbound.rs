//! Memory for long PDUs on their way in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::lock::lock;
use crate::mailbox::{Mailbox, Notice};

/// A PDU may take this long to come while others wait for its memory.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// A connection that waits asks again within this time, or loses its place.
const ASKS_WITHIN: Duration = Duration::from_millis(200);

/// A budget for the receive buffers of PDUs that do not fit in the usual one. A connection that finds nothing left waits
/// in order of arrival. The connection whose PDU has been coming for longest gives way when it takes longer than
/// [`PATIENCE`]: a peer that announces a PDU and does not send it delays the others for a bounded time. Only the time in
/// which the target waits for bytes counts.
#[derive(Debug)]
pub(crate) struct Inbound {
    limit: usize,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    holders: BTreeMap<u64, Holder>,
    /// Connections that wait, the first one first, and when each asked last.
    waiting: VecDeque<(u64, Instant)>,
}

#[derive(Debug)]
struct Holder {
    bytes: usize,
    /// Since when its PDU is coming; nothing while the target works for the connection.
    since: Option<Instant>,
    mailbox: Arc<Mailbox>,
}

impl Inbound {
    /// A budget of `limit` bytes.
    pub(crate) fn new(limit: usize) -> Self {
        Self { limit, state: Mutex::default() }
    }

    /// Claims `bytes` for a connection, in place of what it has; whether it got them. A connection that did not asks
    /// again soon.
    pub(crate) fn claim(&self, (id, mailbox): (u64, &Arc<Mailbox>), bytes: usize, now: Instant) -> bool {
        let mut state = lock(&self.state);
        let others = state.bytes - state.holders.get(&id).map_or(0, |holder| holder.bytes);
        // One alone passes, however long its PDU is.
        let fits = others == 0 || others + bytes <= self.limit;
        // One that does not ask any more keeps nobody waiting.
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

    /// The target waits for bytes of a connection's PDU from `since` on; nothing: it works for the connection.
    pub(crate) fn set_waiting(&self, id: u64, since: Option<Instant>) {
        if let Some(holder) = lock(&self.state).holders.get_mut(&id) {
            holder.since = since;
        }
    }

    /// Time that the target itself took, and that does not count.
    pub(crate) fn discount(&self, id: u64, time: Duration) {
        if let Some(holder) = lock(&self.state).holders.get_mut(&id) {
            holder.since = holder.since.map(|since| since + time);
        }
    }

    /// A connection holds nothing any more, and waits for nothing.
    pub(crate) fn release(&self, id: u64) {
        let mut state = lock(&self.state);
        state.release(id);
        state.waiting.retain(|&(waiting, _)| waiting != id);
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
    fn receive_memory_is_granted_in_order_of_arrival() {
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
    fn slowest_pdu_is_dropped_when_others_wait_for_memory() {
        let (inbound, now) = (Inbound::new(100), Instant::now());
        let (slow, steady, waits) = (mailbox(), mailbox(), mailbox());
        assert!(inbound.claim((1, &slow), 50, now) && inbound.claim((2, &steady), 50, now));
        inbound.set_waiting(2, Some(now + PATIENCE / 2));
        assert!(!inbound.claim((3, &waits), 50, now + PATIENCE / 2));
        assert!(slow.take().is_empty(), "not at once");
        assert!(!inbound.claim((3, &waits), 50, now + PATIENCE));
        assert!(matches!(slow.take()[..], [Notice::Drop(_)]) && steady.take().is_empty());
        inbound.release(1);
        assert!(inbound.claim((3, &waits), 50, now + PATIENCE));
    }

    #[test]
    fn abandoned_claim_loses_its_place_in_the_queue() {
        let (inbound, mailbox, now) = (Inbound::new(100), mailbox(), Instant::now());
        let claim = |id, at| inbound.claim((id, &mailbox), 60, at);
        assert!(claim(1, now) && !claim(2, now) && !claim(3, now));
        inbound.release(1);
        assert!(!claim(3, now + ASKS_WITHIN / 2), "2 is first");
        assert!(claim(3, now + ASKS_WITHIN));
    }

    #[test]
    fn target_work_does_not_count_as_peer_delay() {
        let (inbound, now) = (Inbound::new(100), Instant::now());
        let (busy, late) = (mailbox(), now + 2 * PATIENCE);
        let asks = |at| inbound.claim((2, &mailbox()), 50, at);
        assert!(inbound.claim((1, &busy), 100, now));
        inbound.set_waiting(1, None);
        assert!(!asks(late) && busy.take().is_empty(), "all of its PDU has come");
        inbound.set_waiting(1, Some(late));
        inbound.discount(1, PATIENCE);
        assert!(!asks(late + PATIENCE) && busy.take().is_empty(), "the target did something else");
        assert!(!asks(late + 2 * PATIENCE) && busy.take().len() == 1);
    }
}
