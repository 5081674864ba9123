//! `auto`: the best mode of sending is found out by trying. Whether batches help depends on both ends, the wire and
//! the depth, none of which a server knows; what it can measure is how many requests it serves in a time. So the
//! mode in use is compared with another one now and then, in turns of a few milliseconds, and the better one stays.
//! docs/send-policy.md has what else was tried.

use crate::send_mode::SendMode;

/// The modes to choose from; the first is the initial one.
const ARMS: [SendMode; 6] = [
    SendMode::part(4),
    SendMode::NAGLE,
    SendMode::part(2),
    SendMode::BATCH,
    SendMode::NODELAY,
    SendMode::part(8),
];
/// Requests after which the time is asked for.
const ASK_EVERY: u32 = 16;
/// Shortest turn, ns, and fewest requests of a turn.
const TURN_NS: u64 = 3_000_000;
const TURN_REQUESTS: u32 = 48;
/// A challenger that is this much slower after a part of its turn is sent away at once.
const GLANCE_NS: u64 = 800_000;
const GLANCE_REQUESTS: u32 = 24;
const GLANCE_WORSE: f64 = 0.75;
/// Where fewer requests come, there is nothing to win, ns for a turn.
const LULL_NS: u64 = 100_000_000;
/// How long a mode that was not better is left alone, ns: at first, and at most.
const REST_NS: u64 = 20_000_000;
const REST_NS_MAX: u64 = 3_000_000_000;
/// Queue depth below which no mode is tried unless the server is the bottleneck.
const FEW: u32 = 8;
/// How long a load is looked at before anything is tried with it, ns.
const SETTLE_NS: u64 = 12_000_000;
/// How much of what the best does undisturbed is kept when a turn shows less.
const UNDISTURBED_KEEPS: f64 = 0.8;
/// How much longer it is each time: after a close trial, and after a clear one.
const REST_CLOSE: u64 = 4;
const REST_CLEAR: u64 = 10;
/// Pairs of turns of a trial.
const PAIRS: usize = 3;
/// A mode is clearly worse below the first, better above the second; above the third it is as good, and better
/// when it takes fewer sends.
const WORSE: f64 = 0.97;
const BETTER: f64 = 1.02;
const AS_GOOD: f64 = 0.995;

/// The state of the search.
#[derive(Clone, Debug)]
pub struct Auto {
    /// The mode that is best so far.
    best: usize,
    /// Requests are few, and flow one by one.
    is_flowing: bool,
    /// When each mode may be tried again, and how long it then rests, ns.
    due_ns: [u64; ARMS.len()],
    rest_ns: [u64; ARMS.len()],
    trial: Option<Trial>,
    turn: Turn,
    /// What the best mode does while nothing is tried, requests per ns. A ring can keep the cycle that another
    /// mode brought it into for a while, so what the best does in a trial may be less than it can.
    undisturbed: f64,
    unasked: u32,
    /// Requests between idle moments when the load was last another.
    depth: f64,
}

/// Counts since the beginning of a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    began_ns: Option<u64>,
    requests: u32,
    sends: u32,
    idles: u32,
}

impl Turn {
    fn measured(&self, now_ns: u64) -> Measured {
        let elapsed_ns = now_ns.saturating_sub(self.began_ns.unwrap_or(now_ns)).max(1);
        let requests = f64::from(self.requests.max(1));
        Measured {
            requests_per_ns: requests / elapsed_ns as f64,
            sends_per_request: f64::from(self.sends) / requests,
            requests_per_idle: requests / f64::from(self.idles.max(1)),
        }
    }
}

/// A mode compared with the best one, in turns.
#[derive(Clone, Debug)]
struct Trial {
    challenger: usize,
    /// It is the challenger's turn, or the best's.
    is_challengers: bool,
    /// The measurement of the challenger in its turn.
    challengers: Measured,
    /// Its throughput to the best's, pair by pair.
    ratios: Vec<f64>,
    /// Sends for each request, summed: the challenger's, the best's.
    sends: [f64; 2],
}

#[derive(Clone, Copy, Debug, Default)]
struct Measured {
    requests_per_ns: f64,
    sends_per_request: f64,
    requests_per_idle: f64,
}

impl Default for Auto {
    fn default() -> Self {
        Self {
            best: 0,
            is_flowing: true,
            due_ns: [0; ARMS.len()],
            rest_ns: [REST_NS; ARMS.len()],
            trial: None,
            turn: Turn::default(),
            undisturbed: 0.0,
            unasked: 0,
            depth: 0.0,
        }
    }
}

impl Auto {
    /// Goes on after a time in which nothing was to be found out: what was being measured is void.
    pub fn resume(&mut self) {
        self.trial = None;
        self.turn = Turn::default();
    }

    /// So many requests were served, with so many sends.
    #[inline]
    pub fn count(&mut self, requests: u32, sends: u32) {
        self.turn.requests += requests;
        self.turn.sends += sends;
        self.unasked += requests;
    }

    /// How to send now.
    #[must_use]
    pub fn mode(&self) -> SendMode {
        match &self.trial {
            Some(trial) if trial.is_challengers => ARMS[trial.challenger],
            _ if self.is_flowing => SendMode::NODELAY,
            _ => ARMS[self.best],
        }
    }

    /// The thread went idle.
    #[inline]
    pub fn idle(&mut self) {
        self.turn.idles = self.turn.idles.saturating_add(1);
    }

    /// Whether it is time to look at the clock.
    #[must_use]
    #[inline]
    pub fn wants_time(&self) -> bool {
        self.unasked >= ASK_EVERY
    }

    /// Takes the time `now_ns`, and the peer's recent queue depth.
    pub fn clock(&mut self, now_ns: u64, in_flight: u32) {
        self.unasked = 0;
        let Some(began_ns) = self.turn.began_ns else { return self.begin_turn(now_ns) };
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        let measured = self.turn.measured(now_ns);
        if elapsed_ns < TURN_NS || self.turn.requests < TURN_REQUESTS {
            let can_tell = elapsed_ns >= GLANCE_NS && self.turn.requests >= GLANCE_REQUESTS;
            let is_slow = measured.requests_per_ns < GLANCE_WORSE * self.undisturbed;
            if elapsed_ns > LULL_NS {
                // A cycle this long was not limited by sending.
                self.trial = None;
                self.begin_turn(now_ns);
            } else if let Some(trial) = self.trial.take_if(|t| t.is_challengers && can_tell && is_slow) {
                self.send_away(trial.challenger, REST_CLEAR, now_ns);
                self.begin_turn(now_ns);
            }
            return;
        }
        self.begin_turn(now_ns);
        match self.trial.take() {
            Some(trial) if trial.is_challengers => {
                self.trial = Some(Trial { is_challengers: false, challengers: measured, ..trial });
            }
            Some(trial) => {
                self.judge(trial, measured, now_ns);
            }
            None => {
                self.rest(measured, in_flight, now_ns);
            }
        }
    }

    fn begin_turn(&mut self, now_ns: u64) {
        self.turn = Turn { began_ns: Some(now_ns), ..Turn::default() };
    }

    /// A mode is left alone for a while, and the next time for longer.
    fn send_away(&mut self, challenger: usize, longer: u64, now_ns: u64) {
        let rest_ns = &mut self.rest_ns[challenger];
        self.due_ns[challenger] = now_ns + *rest_ns;
        *rest_ns = (*rest_ns * longer).min(REST_NS_MAX);
    }

    /// A turn without a trial has ended; the next one may be a trial's.
    fn rest(&mut self, measured: Measured, in_flight: u32, now_ns: u64) {
        let depth = measured.requests_per_idle;
        // Up at once, down slowly.
        let keeps = UNDISTURBED_KEEPS * self.undisturbed;
        self.undisturbed =
            measured.requests_per_ns.max(keeps + (1.0 - UNDISTURBED_KEEPS) * measured.requests_per_ns);
        if depth > 2.0 * self.depth || depth < 0.5 * self.depth {
            // Another load: what was found out may not hold.
            self.depth = depth;
            self.due_ns = [now_ns + SETTLE_NS; ARMS.len()];
            self.rest_ns = [REST_NS; ARMS.len()];
            self.undisturbed = measured.requests_per_ns;
        }
        // Few requests move individually round a ring that is not full, as long as nothing makes them wait for each other;
        // then they go round together, and it takes them long to part again. A thread that serves more between idle
        // moments than there are is the bottleneck, and only then it pays to try.
        self.is_flowing = in_flight < FEW && depth <= f64::from(in_flight) * 1.5;
        if self.is_flowing {
            return;
        }
        let others = (0..ARMS.len()).filter(|&arm| arm != self.best);
        let Some(challenger) = others.min_by_key(|&arm| self.due_ns[arm]) else { return };
        if self.due_ns[challenger] <= now_ns {
            let (challengers, ratios) = (Measured::default(), Vec::with_capacity(PAIRS));
            self.trial =
                Some(Trial { challenger, is_challengers: true, challengers, ratios, sends: [0.0; 2] });
        }
    }

    /// A pair of turns has ended.
    fn judge(&mut self, mut trial: Trial, bests: Measured, now_ns: u64) {
        let bests_per_ns = bests.requests_per_ns.max(self.undisturbed);
        trial.ratios.push(trial.challengers.requests_per_ns / bests_per_ns);
        trial.sends[0] += trial.challengers.sends_per_request;
        trial.sends[1] += bests.sends_per_request;
        trial.ratios.sort_by(f64::total_cmp);
        let (worst, median) = (trial.ratios[0], trial.ratios[trial.ratios.len() / 2]);
        let is_hopeless = if trial.ratios.len() == 1 { worst < 0.9 } else { median < WORSE };
        if is_hopeless {
            self.send_away(trial.challenger, REST_CLEAR, now_ns);
        } else if trial.ratios.len() < PAIRS {
            self.trial = Some(Trial { is_challengers: true, ..trial });
        } else {
            let takes_less = trial.sends[0] < 0.8 * trial.sends[1];
            if median > BETTER || (takes_less && median > AS_GOOD) {
                let loser = std::mem::replace(&mut self.best, trial.challenger);
                self.undisturbed = trial.challengers.requests_per_ns;
                self.send_away(loser, REST_CLOSE, now_ns);
            } else {
                self.send_away(trial.challenger, REST_CLOSE, now_ns);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server whose throughput depends on the mode alone, with noise; what share of the best possible is got in
    /// two seconds after the first 200 ms.
    fn share_of_best(thousands_per_s: [f64; 6], noise: f64, seed: u64) -> f64 {
        let (mut auto, mut random) = (Auto::default(), fastrand::Rng::with_seed(seed));
        let (mut now_ns, mut served) = (0.0_f64, 0_u64);
        while now_ns < 2.2e9 {
            let arm = ARMS.iter().position(|&arm| arm == auto.mode()).unwrap();
            let ns = 1e6 / thousands_per_s[arm] * (1.0 + noise * (random.f64() - 0.5));
            for _ in 0..8 {
                auto.count(1, 0);
                now_ns += ns;
                served += u64::from(now_ns > 2e8);
            }
            auto.count(0, 1);
            auto.idle();
            if auto.wants_time() {
                auto.clock(now_ns as u64, 8);
            }
        }
        let best = thousands_per_s.iter().fold(0.0_f64, |a, &b| a.max(b));
        served as f64 / (2.0 * best * 1e3)
    }

    #[test]
    fn the_best_mode_is_found_and_kept() {
        for seed in 0..20 {
            for rates in [
                [100.0, 100.0, 100.0, 100.0, 100.0, 100.0],
                [60.0, 70.0, 80.0, 90.0, 40.0, 50.0],
                [70.0, 60.0, 50.0, 40.0, 120.0, 90.0],
                [170.0, 184.0, 170.0, 170.0, 150.0, 160.0],
                [20.0, 15.0, 13.0, 13.0, 16.0, 16.0],
            ] {
                let share = share_of_best(rates, 0.2, seed);
                assert!(share > 0.96, "{rates:?}: {share}");
            }
        }
    }

    #[test]
    fn a_change_of_load_is_detected() {
        let mut auto = Auto::default();
        let mut now_ns = 0.0;
        let mut run = |auto: &mut Auto, until_ns: f64, depth: u32, thousands_per_s: [f64; 6]| {
            while now_ns < until_ns {
                let arm = ARMS.iter().position(|&arm| arm == auto.mode()).unwrap();
                for _ in 0..depth {
                    auto.count(1, 0);
                    now_ns += 1e6 / thousands_per_s[arm];
                }
                auto.count(0, 1);
                auto.idle();
                if auto.wants_time() {
                    auto.clock(now_ns as u64, 8);
                }
            }
        };
        run(&mut auto, 5e9, 32, [50.0, 60.0, 60.0, 90.0, 40.0, 50.0]);
        assert_eq!(ARMS[auto.best], SendMode::BATCH);
        run(&mut auto, 5.5e9, 3, [50.0, 60.0, 40.0, 30.0, 90.0, 60.0]);
        assert_eq!(ARMS[auto.best], SendMode::NODELAY, "within half a second");
    }

    #[test]
    fn queue_depth_one_is_left_at_nodelay() {
        let mut auto = Auto::default();
        for n in 0..100_000_u64 {
            auto.count(1, 0);
            auto.count(0, 1);
            auto.idle();
            auto.clock(n * 50_000, 1);
            assert_eq!(auto.mode(), SendMode::NODELAY);
        }
    }
}
