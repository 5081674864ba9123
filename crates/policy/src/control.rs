//! The send policy of a connection: send now, or wait for more.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::adaptive::AdaptiveState;
use crate::send_mode::{Hold, SendMode};
use crate::send_policy::SendPolicy;
use crate::thread_control::{Counted, ThreadControl};

/// Unsent bytes at which every policy sends.
pub const FULL_BYTES: usize = 256 << 10;

/// The send policy of one connection: decides when responses are sent.
///
/// The owner of the socket reports events in the order in which they happen:
///
/// 1. [`requested`](Self::requested) for each request that arrives,
/// 2. [`served`](Self::served) when its response is complete: true means send everything now,
/// 3. [`chunk_ended`](Self::chunk_ended) when all requests of one receive are served: true means send what is unsent
///    before the next receive; [`holds_all`](Self::holds_all) may be true before,
/// 4. [`sent`](Self::sent) after each send. Under any policy, everything unsent is sent once a receive finds nothing,
/// 5. [`idle`](Self::idle) when nothing more can be received and everything was sent: true means flush what Nagle's
///    algorithm holds back.
///
/// After `served` and `idle`, compare [`mode`](Self::mode)`.nagle` with the socket's option and set the option if they
/// differ. Its thread calls [`begin_turn`](Self::begin_turn) and [`end_turn`](Self::end_turn) around the work of a turn; without,
/// `auto` sends each response at once.
///
/// ```
/// use policy::{SendControl, SendPolicy};
///
/// let mut control = SendControl::new(SendPolicy::Batch);
/// control.requested(3);
/// control.requested(3);
/// assert!(!control.served(512) && !control.served(1024), "held until the receive buffer is empty");
/// assert!(!control.chunk_ended());
/// control.sent();
/// assert!(!control.idle(), "Nagle's algorithm is off");
/// ```
#[derive(Clone, Debug)]
pub struct SendControl {
    policy: SendPolicy,
    state: State,
    mode: SendMode,
    /// Responses that are complete and unsent.
    held: u32,
    depth: Depth,
    shares: Shares,
}

#[derive(Clone, Debug)]
enum State {
    Fixed,
    Adaptive(AdaptiveState),
    Auto(Counted),
}

/// Responses by the mode they were sent in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Shares {
    /// Sent individually, Nagle off.
    pub nodelay: u64,
    /// Sent individually, Nagle on.
    pub nagle: u64,
    /// Sent together with other responses that were complete.
    pub batch: u64,
}

impl Shares {
    /// Adds the responses of another connection.
    pub fn add(&mut self, other: Self) {
        self.nodelay += other.nodelay;
        self.nagle += other.nagle;
        self.batch += other.batch;
    }

    /// A mode's share of all responses in percent; 0 if there are none.
    #[must_use]
    pub fn percent(&self, count: u64) -> f64 {
        let all = self.nodelay + self.nagle + self.batch;
        if all == 0 { 0.0 } else { count as f64 * 100.0 / all as f64 }
    }
}

/// The highest recent queue depth of the peer.
#[derive(Clone, Copy, Debug, Default)]
struct Depth {
    /// The highest in the previous span of [`Depth::SPAN`] requests, and in the current one.
    before: u32,
    since: u32,
    requests: u32,
}

impl Depth {
    /// Requests of a span.
    const SPAN: u32 = 256;

    #[inline]
    fn record(&mut self, in_flight: u32) {
        self.since = self.since.max(in_flight);
        self.requests += 1;
        if self.requests >= Self::SPAN {
            *self = Self { before: self.since, since: 0, requests: 0 };
        }
    }

    #[inline]
    fn most(self) -> u32 {
        self.before.max(self.since)
    }
}

impl SendControl {
    /// A control in the initial state of a policy.
    #[must_use]
    pub fn new(policy: SendPolicy) -> Self {
        let (state, mode) = match policy {
            SendPolicy::Nodelay => (State::Fixed, SendMode::NODELAY),
            SendPolicy::Nagle => (State::Fixed, SendMode::NAGLE),
            SendPolicy::Batch => (State::Fixed, SendMode::BATCH),
            SendPolicy::Adaptive(settings) => {
                let state = AdaptiveState::new(settings);
                (State::Adaptive(state), if state.is_nagle() { SendMode::NAGLE } else { SendMode::NODELAY })
            }
            SendPolicy::Auto => (State::Auto(Counted::default()), SendMode::NODELAY),
        };
        Self { policy, state, mode, held: 0, depth: Depth::default(), shares: Shares::default() }
    }

    /// A turn begins: with `auto` the thread says how to send.
    #[inline]
    pub fn begin_turn(&mut self, thread: &ThreadControl) {
        if let State::Auto(_) = self.state {
            self.mode = thread.mode();
        }
    }

    /// A turn has ended: with `auto` the thread learns what was done.
    #[inline]
    pub fn end_turn(&mut self, thread: &mut ThreadControl) {
        if let State::Auto(counted) = &mut self.state
            && counted.requests + counted.sends > 0
        {
            thread.count(counted, self.depth.most());
        }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> SendPolicy {
        self.policy
    }

    /// The current send mode.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> SendMode {
        self.mode
    }

    /// The responses so far, by send mode.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// Records a request; its peer had `in_flight` unanswered requests when it sent it, this one included.
    #[inline]
    pub fn requested(&mut self, in_flight: u32) {
        self.depth.record(in_flight);
    }

    /// Records a complete response, with `waiting_bytes` of responses unsent. Returns whether to send them now.
    #[inline]
    pub fn served(&mut self, waiting_bytes: usize) -> bool {
        self.held += 1;
        match self.mode {
            SendMode { nagle: true, .. } => self.shares.nagle += 1,
            SendMode { hold: Hold::None, .. } => self.shares.nodelay += 1,
            _ => self.shares.batch += 1,
        }
        match &mut self.state {
            State::Fixed => {}
            State::Adaptive(state) => {
                state.served();
                self.mode.nagle = state.is_nagle();
            }
            State::Auto(counted) => counted.requests += 1,
        }
        match self.mode.hold {
            Hold::None => true,
            Hold::Part(of) => self.held >= self.depth.most().div_ceil(of) || waiting_bytes >= FULL_BYTES,
            Hold::Drain => waiting_bytes >= FULL_BYTES,
        }
    }

    /// Whether what is held back is all that the peer has had in flight of late: nothing more can come before it is sent, unless a
    /// request is at work elsewhere, which only the caller knows. What such a request has in flight is not counted.
    #[must_use]
    #[inline]
    pub fn holds_all(&self) -> bool {
        self.mode.hold == Hold::Drain && self.held >= self.depth.most().max(1)
    }

    /// The connection is served by another thread from its next turn on.
    pub fn moved(&mut self) {
        if let State::Auto(counted) = &mut self.state {
            *counted = Counted::default();
        }
    }

    /// Records that everything unsent was sent.
    #[inline]
    pub fn sent(&mut self) {
        if self.held > 0
            && let State::Auto(counted) = &mut self.state
        {
            counted.sends += 1;
        }
        self.held = 0;
    }

    /// Returns whether to send before the next receive, once the data of the last one is used up.
    #[must_use]
    #[inline]
    pub fn chunk_ended(&self) -> bool {
        self.mode.hold != Hold::Drain
    }

    /// Records the end of a cycle: nothing can be received, and everything was sent. Returns whether to flush what
    /// Nagle's algorithm holds back.
    #[inline]
    pub fn idle(&mut self) -> bool {
        match &mut self.state {
            State::Fixed | State::Auto(_) => self.mode.nagle,
            State::Adaptive(state) => {
                let flushes = state.idle();
                self.mode.nagle = state.is_nagle();
                flushes
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one policy does with requests that come in chunks: how many leave with each send, and how often Nagle is
    /// flushed.
    fn run(policy: SendPolicy, cycles: &[&[u32]]) -> (Vec<u32>, usize) {
        let (mut control, mut sends, mut flushes, mut held) = (SendControl::new(policy), Vec::new(), 0, 0);
        for chunks in cycles {
            for requests in *chunks {
                for _ in 0..*requests {
                    held += 1;
                    if control.served(held as usize * 560) {
                        sends.push(std::mem::take(&mut held));
                        control.sent();
                    }
                }
                if control.chunk_ended() && held > 0 {
                    sends.push(std::mem::take(&mut held));
                    control.sent();
                }
            }
            if held > 0 {
                sends.push(std::mem::take(&mut held));
                control.sent();
            }
            flushes += usize::from(control.idle());
        }
        (sends, flushes)
    }

    #[test]
    fn each_policy_sends_in_its_mode() {
        let cycles: &[&[u32]] = &[&[2, 1], &[3]];
        assert_eq!(run(SendPolicy::Nodelay, cycles), (vec![1; 6], 0));
        assert_eq!(run(SendPolicy::Nagle, cycles), (vec![1; 6], 2));
        assert_eq!(run(SendPolicy::Batch, cycles), (vec![3, 3], 0));
        assert_eq!(run(SendPolicy::Adaptive(crate::Adaptive::DEFAULT), cycles), (vec![1; 6], 0));
        let (sends, _) = run(SendPolicy::Batch, &[&[1000]]);
        assert_eq!(sends, [469, 469, 62], "a full batch leaves");
    }

    #[test]
    fn what_is_held_may_be_all_that_is_in_flight() {
        let mut control = SendControl::new(SendPolicy::Batch);
        (1..=3).for_each(|in_flight| control.requested(in_flight));
        for held in 1..=3 {
            assert!(!control.holds_all() && !control.served(held * 560));
        }
        assert!(control.holds_all(), "nothing more can come before these are sent");
        control.sent();
        control.requested(1);
        assert!(!control.served(560) && !control.holds_all(), "two more may come");
        let mut nodelay = SendControl::new(SendPolicy::Nodelay);
        nodelay.requested(1);
        assert!(nodelay.served(560) && !nodelay.holds_all());
    }

    #[test]
    fn a_part_is_relative_to_the_peers_queue_depth() {
        let mut depth = Depth::default();
        (0..600).for_each(|_| depth.record(32));
        assert_eq!(depth.most(), 32);
        (0..600).for_each(|_| depth.record(8));
        assert_eq!(depth.most(), 8, "a load that is gone is forgotten");
    }

    #[test]
    fn shares_count_responses_by_mode() {
        let mut control = SendControl::new(SendPolicy::Batch);
        control.served(1);
        assert_eq!(control.shares(), Shares { batch: 1, ..Shares::default() });
        assert_eq!(control.shares().percent(1), 100.0);
        assert_eq!(Shares::default().percent(0), 0.0);
    }
}
