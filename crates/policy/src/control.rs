//! What a connection asks its policy: send now, or wait for more?

use serde::{Deserialize, Serialize};

use crate::adaptive::AdaptiveState;
use crate::auto::Auto;
use crate::send_mode::{Hold, SendMode};
use crate::send_policy::SendPolicy;

/// Responses leave when so many bytes of them wait, whatever the policy.
pub const FULL_BYTES: usize = 256 << 10;

/// A policy at work for one connection.
#[derive(Clone, Debug)]
pub struct SendControl {
    policy: SendPolicy,
    state: State,
    mode: SendMode,
    /// Responses that wait.
    held: u32,
    depth: Depth,
    shares: Shares,
}

#[derive(Clone, Debug)]
enum State {
    Fixed,
    Adaptive(AdaptiveState),
    Auto(Box<Auto>),
}

/// Responses by the mode they were sent in.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shares {
    /// Each by itself, Nagle off.
    pub nodelay: u64,
    /// Each by itself, Nagle on.
    pub nagle: u64,
    /// Together with others, where there were others.
    pub batch: u64,
}

impl Shares {
    /// Percent of all in a mode's count; 0 of nothing.
    #[must_use]
    pub fn percent(&self, count: u64) -> f64 {
        let all = self.nodelay + self.nagle + self.batch;
        if all == 0 { 0.0 } else { count as f64 * 100.0 / all as f64 }
    }
}

/// The most requests that a peer had under way of late.
#[derive(Clone, Copy, Debug, Default)]
struct Depth {
    /// Of the requests before the last [`Depth::SPAN`], and since.
    before: u32,
    since: u32,
    requests: u32,
}

impl Depth {
    /// Requests after which what was before is forgotten.
    const SPAN: u32 = 256;

    #[inline]
    fn note(&mut self, under_way: u32) {
        self.since = self.since.max(under_way);
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
    /// Begins with a policy.
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
            SendPolicy::Auto => {
                let auto = Auto::default();
                let mode = auto.mode();
                (State::Auto(Box::new(auto)), mode)
            }
        };
        Self { policy, state, mode, held: 0, depth: Depth::default(), shares: Shares::default() }
    }

    /// The policy.
    #[must_use]
    pub fn policy(&self) -> SendPolicy {
        self.policy
    }

    /// How it sends now. Where `nagle` differs from what the socket has, the socket is to be told.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> SendMode {
        self.mode
    }

    /// How responses were sent so far.
    #[must_use]
    pub fn shares(&self) -> Shares {
        self.shares
    }

    /// A request came whose peer had `under_way` requests unanswered when it sent it, this one among them.
    #[inline]
    pub fn requested(&mut self, under_way: u32) {
        self.depth.note(under_way);
    }

    /// A request was answered, and `waiting_bytes` of responses wait; whether they are to be sent now.
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
            State::Auto(auto) => auto.served(),
        }
        match self.mode.hold {
            Hold::None => true,
            Hold::Part(of) => self.held >= self.depth.most().div_ceil(of) || waiting_bytes >= FULL_BYTES,
            Hold::Drain => waiting_bytes >= FULL_BYTES,
        }
    }

    /// What waited has been sent.
    #[inline]
    pub fn sent(&mut self) {
        if self.held > 0
            && let State::Auto(auto) = &mut self.state
        {
            auto.sent();
        }
        self.held = 0;
    }

    /// What a receive brought is used up; whether what waits is to be sent before the next one.
    #[must_use]
    #[inline]
    pub fn chunk_ended(&self) -> bool {
        self.mode.hold != Hold::Drain
    }

    /// Nothing more can be received, and what waited was sent; whether what Nagle holds back is to be flushed.
    #[inline]
    pub fn idle(&mut self) -> bool {
        match &mut self.state {
            State::Fixed => self.mode.nagle,
            State::Adaptive(state) => {
                let flushes = state.idle();
                self.mode.nagle = state.is_nagle();
                flushes
            }
            State::Auto(auto) => {
                auto.idle();
                self.mode.nagle
            }
        }
    }

    /// Whether [`SendControl::clock`] should be told the time, at a moment when nothing waits.
    #[must_use]
    #[inline]
    pub fn wants_time(&self) -> bool {
        matches!(&self.state, State::Auto(auto) if auto.wants_time())
    }

    /// It is `now_ns` on any clock that only goes forward; the mode may change.
    pub fn clock(&mut self, now_ns: u64) {
        if let State::Auto(auto) = &mut self.state {
            auto.clock(now_ns, self.depth.most());
            self.mode = auto.mode();
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
    fn each_policy_sends_as_it_is_named() {
        let cycles: &[&[u32]] = &[&[2, 1], &[3]];
        assert_eq!(run(SendPolicy::Nodelay, cycles), (vec![1; 6], 0));
        assert_eq!(run(SendPolicy::Nagle, cycles), (vec![1; 6], 2));
        assert_eq!(run(SendPolicy::Batch, cycles), (vec![3, 3], 0));
        assert_eq!(run(SendPolicy::Adaptive(crate::Adaptive::DEFAULT), cycles), (vec![1; 6], 0));
        let (sends, _) = run(SendPolicy::Batch, &[&[1000]]);
        assert_eq!(sends, [469, 469, 62], "a full batch leaves");
    }

    #[test]
    fn a_part_is_of_what_the_peer_has_under_way() {
        let mut depth = Depth::default();
        (0..600).for_each(|_| depth.note(32));
        assert_eq!(depth.most(), 32);
        (0..600).for_each(|_| depth.note(8));
        assert_eq!(depth.most(), 8, "a load that is gone is forgotten");
    }

    #[test]
    fn shares_tell_the_mode() {
        let mut control = SendControl::new(SendPolicy::Batch);
        control.served(1);
        assert_eq!(control.shares(), Shares { batch: 1, ..Shares::default() });
        assert_eq!(control.shares().percent(1), 100.0);
        assert_eq!(Shares::default().percent(0), 0.0);
    }
}
