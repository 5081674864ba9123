//! `auto`: the best manner of sending is found out by trying. Whether batches help depends on both ends, the wire and
//! the depth, none of which a server knows; what it can measure is how many requests it serves in a time. So the
//! manner in use is compared with another one now and then, in turns of a few milliseconds, and the better one stays.
//! docs/send-policy.md has what else was tried.

use crate::manner::{Hold, Manner};

/// What it chooses among.
const ARMS: [Manner; 5] = [
    Manner::CHUNK,
    Manner::NODELAY,
    Manner::BATCH,
    Manner { hold: Hold::Count(4), nagle: false },
    Manner::NAGLE,
];
/// Requests after which the time is asked for.
const ASK_EVERY: u32 = 16;
/// A turn takes at least this long, ns, and serves at least so many requests.
const TURN_NS: u64 = 4_000_000;
const TURN_REQUESTS: u32 = 48;
/// Where fewer requests come, there is nothing to win, ns for a turn.
const LULL_NS: u64 = 100_000_000;
/// How long a manner is left alone, ns: at first, and at most.
const REST_NS: u64 = 10_000_000;
const REST_NS_MAX: u64 = 1_500_000_000;
/// Pairs of turns of a trial.
const PAIRS: usize = 3;
/// A manner is clearly worse below the first, better above the second; above the third it is as good, and better
/// when it takes fewer sends.
const WORSE: f64 = 0.97;
const BETTER: f64 = 1.02;
const AS_GOOD: f64 = 0.995;

/// The state of the search.
#[derive(Clone, Debug)]
pub struct Auto {
    /// The manner that is best so far.
    best: usize,
    /// The next one to be compared with it.
    next: usize,
    trial: Option<Trial>,
    turn: Turn,
    /// When the next trial may begin, ns.
    rests_until_ns: u64,
    rest_ns: u64,
    unasked: u32,
    /// Requests between idle moments when the best was chosen.
    depth: f64,
}

/// What happened since a turn began.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    began_ns: Option<u64>,
    requests: u32,
    sends: u32,
    idles: u32,
}

#[derive(Clone, Debug)]
struct Trial {
    challenger: usize,
    /// The challenger's turn, or the best's.
    is_challengers: bool,
    challengers: Measured,
    ratios: Vec<f64>,
    sends: [f64; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    requests_per_ns: f64,
    sends_per_request: f64,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            best: 0,
            next: 1,
            trial: None,
            turn: Turn::default(),
            rests_until_ns: 0,
            rest_ns: REST_NS,
            unasked: 0,
            depth: 0.0,
        }
    }
}

impl Auto {
    /// How to send now.
    #[must_use]
    pub fn manner(&self) -> Manner {
        match &self.trial {
            Some(trial) if trial.is_challengers => ARMS[trial.challenger],
            _ => ARMS[self.best],
        }
    }

    /// A request was served.
    #[inline]
    pub fn served(&mut self) {
        self.turn.requests += 1;
        self.unasked += 1;
    }

    /// What waited was sent.
    #[inline]
    pub fn sent(&mut self) {
        self.turn.sends += 1;
    }

    /// The thread went idle.
    #[inline]
    pub fn idle(&mut self) {
        self.turn.idles += 1;
    }

    /// Whether it is time to look at the clock.
    #[must_use]
    #[inline]
    pub fn wants_time(&self) -> bool {
        self.unasked >= ASK_EVERY
    }

    /// It is `now_ns`.
    pub fn clock(&mut self, now_ns: u64) {
        self.unasked = 0;
        let Some(began_ns) = self.turn.began_ns else {
            self.turn = Turn { began_ns: Some(now_ns), ..Turn::default() };
            return;
        };
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        if elapsed_ns < TURN_NS || self.turn.requests < TURN_REQUESTS {
            if elapsed_ns > LULL_NS {
                // What took so long says nothing about sending.
                self.trial = None;
                self.turn = Turn { began_ns: Some(now_ns), ..Turn::default() };
            }
            return;
        }
        let turn = std::mem::replace(&mut self.turn, Turn { began_ns: Some(now_ns), ..Turn::default() });
        let measured = Measured {
            requests_per_ns: f64::from(turn.requests) / elapsed_ns as f64,
            sends_per_request: f64::from(turn.sends) / f64::from(turn.requests),
        };
        let depth = f64::from(turn.requests) / f64::from(turn.idles.max(1));
        match self.trial.take() {
            Some(trial) => self.go_on(trial, measured, depth, now_ns),
            None => self.rest(depth, now_ns),
        }
    }

    /// Nothing is on trial.
    fn rest(&mut self, depth: f64, now_ns: u64) {
        if depth > 2.0 * self.depth || depth < 0.5 * self.depth {
            // Another load: what was found out may not hold.
            self.depth = depth;
            self.rest_ns = REST_NS;
            self.rests_until_ns = self.rests_until_ns.min(now_ns);
        }
        // One request at a time is sent at once in every manner.
        if now_ns < self.rests_until_ns || depth < 1.1 {
            return;
        }
        let challenger = self.next;
        let challengers = Measured::default();
        self.trial = Some(Trial {
            challenger,
            is_challengers: true,
            challengers,
            ratios: Vec::with_capacity(PAIRS),
            sends: [0.0; 2],
        });
    }

    /// A turn of a trial has ended.
    fn go_on(&mut self, mut trial: Trial, measured: Measured, depth: f64, now_ns: u64) {
        if trial.is_challengers {
            trial.challengers = measured;
            trial.is_challengers = false;
            self.trial = Some(trial);
            return;
        }
        trial.ratios.push(trial.challengers.requests_per_ns / measured.requests_per_ns);
        trial.sends[0] += trial.challengers.sends_per_request;
        trial.sends[1] += measured.sends_per_request;
        let ratios = &mut trial.ratios;
        ratios.sort_by(f64::total_cmp);
        let (worst, median) = (ratios[0], ratios[ratios.len() / 2]);
        let is_hopeless = match ratios.len() {
            1 => worst < 0.9,
            _ => median < WORSE,
        };
        let is_over = ratios.len() == PAIRS;
        if !is_over && !is_hopeless {
            trial.is_challengers = true;
            self.trial = Some(trial);
            return;
        }
        let takes_less = trial.sends[0] < 0.8 * trial.sends[1];
        let wins = is_over && (median > BETTER || (takes_less && median > AS_GOOD));
        if wins {
            self.best = trial.challenger;
            self.rest_ns = REST_NS;
            self.depth = depth;
        }
        self.next = (trial.challenger + 1) % ARMS.len();
        if self.next == self.best {
            self.next = (self.next + 1) % ARMS.len();
            // All were tried and none was better.
            if !wins {
                self.rest_ns = (self.rest_ns * 4).min(REST_NS_MAX);
            }
        }
        self.rests_until_ns = now_ns + self.rest_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose throughput depends on the manner alone, with noise; what share of the best possible is got in
    /// two seconds after the first 200 ms.
    fn share_of_best(thousands_per_s: [f64; 5], noise: f64, seed: u64) -> f64 {
        let (mut auto, mut random) = (Auto::default(), fastrand::Rng::with_seed(seed));
        let (mut now_ns, mut served) = (0.0_f64, 0_u64);
        while now_ns < 2.2e9 {
            let arm = ARMS.iter().position(|&arm| arm == auto.manner()).unwrap();
            let ns = 1e6 / thousands_per_s[arm] * (1.0 + noise * (random.f64() - 0.5));
            for _ in 0..8 {
                auto.served();
                now_ns += ns;
                served += u64::from(now_ns > 2e8);
            }
            auto.sent();
            auto.idle();
            if auto.wants_time() {
                auto.clock(now_ns as u64);
            }
        }
        let best = thousands_per_s.iter().fold(0.0_f64, |a, &b| a.max(b));
        served as f64 / (2.0 * best * 1e3)
    }

    #[test]
    fn the_best_manner_is_found_and_kept() {
        for seed in 0..20 {
            for rates in [
                [100.0, 100.0, 100.0, 100.0, 100.0],
                [60.0, 40.0, 90.0, 50.0, 70.0],
                [70.0, 120.0, 40.0, 90.0, 60.0],
                [170.0, 150.0, 170.0, 160.0, 184.0],
                [20.0, 16.0, 13.0, 16.0, 15.0],
            ] {
                let share = share_of_best(rates, 0.2, seed);
                assert!(share > 0.96, "{rates:?}: {share}");
            }
        }
    }

    #[test]
    fn another_load_is_noticed() {
        let mut auto = Auto::default();
        let mut now_ns = 0.0;
        let mut run = |auto: &mut Auto, until_ns: f64, depth: u32, thousands_per_s: [f64; 5]| {
            while now_ns < until_ns {
                let arm = ARMS.iter().position(|&arm| arm == auto.manner()).unwrap();
                for _ in 0..depth {
                    auto.served();
                    now_ns += 1e6 / thousands_per_s[arm];
                }
                auto.sent();
                auto.idle();
                if auto.wants_time() {
                    auto.clock(now_ns as u64);
                }
            }
        };
        run(&mut auto, 5e9, 32, [50.0, 40.0, 90.0, 50.0, 60.0]);
        assert_eq!(auto.best, 2);
        run(&mut auto, 5.5e9, 3, [50.0, 90.0, 30.0, 60.0, 60.0]);
        assert_eq!(auto.best, 1, "within half a second");
    }

    #[test]
    fn one_request_at_a_time_is_left_alone() {
        let mut auto = Auto::default();
        for n in 0..100_000_u64 {
            auto.served();
            auto.sent();
            auto.idle();
            auto.clock(n * 50_000);
            assert_eq!(auto.manner(), Manner::CHUNK);
        }
    }
}
