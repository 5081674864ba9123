//! How `auto` searches: what it tries, for how long, and what it makes of it. A server whose speed depends on the mode
//! alone serves one request after another; the search sees no other clock than the one it is told.

use policy::SendMode;
use policy::auto::Auto;

const PART_4: SendMode = SendMode::part(4);
const MS: u64 = 1_000_000;

/// A server that serves 16 requests between two idle moments, a request in ten microseconds, with one send for each.
struct Server {
    auto: Auto,
    now_ns: u64,
    /// Requests between idle moments.
    cycle: u32,
    /// Requests that the peer has under way.
    under_way: u32,
    /// Which mode was in use, from when, and until when.
    turns: Vec<(SendMode, u64, u64)>,
}

impl Server {
    fn new() -> Self {
        Self { auto: Auto::default(), now_ns: 0, cycle: 16, under_way: 32, turns: vec![] }
    }

    /// Serves until a moment. A request takes `ns` in a mode, and a cycle takes `sends`.
    fn run(&mut self, until_ns: u64, ns: impl Fn(SendMode) -> u64, sends: impl Fn(SendMode) -> u32) {
        while self.now_ns < until_ns {
            let (mode, began_ns) = (self.auto.mode(), self.now_ns);
            for _ in 0..self.cycle {
                self.auto.count(1, 0);
                self.now_ns += ns(mode);
            }
            (0..sends(mode)).for_each(|_| self.auto.count(0, 1));
            self.auto.idle();
            if self.auto.wants_time() {
                self.auto.clock(self.now_ns, self.under_way);
            }
            match self.turns.last_mut() {
                Some((last, _, end)) if *last == mode => *end = self.now_ns,
                _ => self.turns.push((mode, began_ns, self.now_ns)),
            }
        }
    }

    /// One send for each request, at this speed.
    fn run_at(&mut self, until_ns: u64, ns: impl Fn(SendMode) -> u64) {
        let cycle = self.cycle;
        self.run(until_ns, ns, |_| cycle);
    }

    /// The turns of a mode: when each began, and how long it took.
    fn turns_of(&self, mode: SendMode) -> Vec<(u64, u64)> {
        let turns = self.turns.iter().filter(|(m, _, _)| *m == mode);
        turns.map(|&(_, began, ended)| (began, ended - began)).collect()
    }

    /// How many turns each trial of a mode took: those within 20 ms of each other are one trial.
    fn trials_of(&self, mode: SendMode) -> Vec<usize> {
        let mut trials: Vec<usize> = vec![];
        let mut last: Option<u64> = None;
        for (began, _) in self.turns_of(mode) {
            match trials.last_mut() {
                Some(count) if last.is_some_and(|last| began - last < 20 * MS) => *count += 1,
                _ => trials.push(1),
            }
            last = Some(began);
        }
        trials
    }
}

/// Ten microseconds in each mode but one.
fn but(mode: SendMode, ns: u64) -> impl Fn(SendMode) -> u64 {
    move |m| if m == mode { ns } else { 10_000 }
}

#[test]
fn the_time_is_asked_for_once_in_sixteen_requests() {
    // Reading a clock for each request would cost what the search is to win.
    let mut auto = Auto::default();
    for n in 1..=15 {
        auto.count(1, 0);
        assert!(!auto.wants_time(), "{n}");
    }
    auto.count(1, 0);
    assert!(auto.wants_time());
    auto.clock(1, 32);
    assert!(!auto.wants_time(), "it has just been told");
}

#[test]
fn responses_flow_one_by_one_until_the_load_is_known() {
    let mut server = Server::new();
    server.run_at(30 * MS, |_| 10_000);
    // The first turn begins with the first look at the clock (160 us) and takes three milliseconds: 3.2 ms. Then the
    // load is looked at for twelve milliseconds before anything is tried with it.
    let (mode, _, ended) = server.turns[0];
    assert_eq!((mode, ended), (SendMode::NODELAY, 160_000 * 20));
    let (mode, began, ended) = server.turns[1];
    assert_eq!(mode, PART_4);
    assert!((12 * MS..16 * MS).contains(&(ended - began)), "{began} to {ended}");
    assert_eq!(server.turns[2].0, SendMode::NAGLE, "the next in order");
}

#[test]
fn a_turn_takes_three_milliseconds_and_48_requests() {
    let mut fast = Server::new();
    fast.run_at(60 * MS, |_| 10_000);
    // Looks at the clock are 160 us apart.
    assert!(fast.turns_of(SendMode::NAGLE).iter().all(|&(_, took)| took == 160_000 * 19), "the time");
    let mut slow = Server::new();
    slow.run_at(200 * MS, |_| 500_000);
    // 48 requests in looks that are 16 apart are three looks, 8 ms each.
    assert!(slow.turns_of(SendMode::NAGLE).iter().all(|&(_, took)| took == 24 * MS), "the requests");
}

#[test]
fn a_mode_that_is_much_slower_is_sent_away_at_a_glance() {
    // At half the speed, after 0.8 ms and 24 requests, and not only after a whole turn.
    let mut server = Server::new();
    server.run_at(60 * MS, but(SendMode::NAGLE, 20_000));
    assert_eq!(server.turns_of(SendMode::NAGLE)[0].1, 320_000 * 3);
    // At 80 % it has its turn.
    let mut server = Server::new();
    server.run_at(60 * MS, but(SendMode::NAGLE, 12_500));
    assert_eq!(server.turns_of(SendMode::NAGLE)[0].1, 200_000 * 15);
    // 24 requests it has in any case: two looks, when one takes 1.6 ms.
    let mut server = Server::new();
    server.run_at(200 * MS, |mode| if mode == SendMode::NAGLE { 100_000 } else { 50_000 });
    assert_eq!(server.turns_of(SendMode::NAGLE)[0].1, 1_600_000 * 2);
}

#[test]
fn the_worse_it_is_the_fewer_turns_it_gets() {
    // The first pair shows what is hopeless (below 0.9), the second what is worse (below 0.97), the third the rest.
    for (ns, pairs) in [(11_900, 1), (10_600, 2), (10_100, 3)] {
        let mut server = Server::new();
        server.run_at(60 * MS, but(SendMode::NAGLE, ns));
        assert_eq!(server.trials_of(SendMode::NAGLE)[0], pairs, "{ns}");
    }
}

#[test]
fn worse_modes_rest_ten_times_longer_each_time_and_close_ones_four_times() {
    for (ns, longer) in [(11_900, 10), (10_100, 4)] {
        let mut server = Server::new();
        // All others are hopeless, so that their trials take no time to speak of.
        server.run_at(9000 * MS, |mode| match mode {
            PART_4 | SendMode::NODELAY => 10_000,
            SendMode::NAGLE => ns,
            _ => 40_000,
        });
        let begins: Vec<u64> = server.turns_of(SendMode::NAGLE).iter().map(|&(began, _)| began).collect();
        let ends: Vec<u64> = server.turns_of(SendMode::NAGLE).iter().map(|&(b, took)| b + took).collect();
        // Between trials: from the end of a turn to the next one that is not part of the same trial.
        let rests: Vec<u64> = ends
            .iter()
            .zip(&begins[1..])
            .map(|(end, next)| next - end)
            .filter(|&rest| rest > 15 * MS)
            .collect();
        let mut expected = 20 * MS;
        for rest in &rests {
            // A turn or two may pass before it is noticed, and others may be tried first.
            assert!((expected..expected + 60 * MS).contains(rest), "{ns}: {rests:?}");
            expected = (expected * longer).min(3000 * MS);
        }
        assert_eq!(expected, 3000 * MS, "{rests:?}");
    }
}

#[test]
fn two_percent_are_better_and_one_is_noise() {
    let mut server = Server::new();
    server.run_at(500 * MS, but(SendMode::BATCH, 9_700));
    assert_eq!(server.auto.mode(), SendMode::BATCH);
    let mut server = Server::new();
    server.run_at(500 * MS, but(SendMode::BATCH, 9_900));
    assert_eq!(server.auto.mode(), PART_4);
}

#[test]
fn as_fast_with_fewer_sends_is_better() {
    // Sends cost the client and the network what throughput does not show.
    let run = |ns: u64, sends: u32| {
        let mut server = Server::new();
        server.run(
            500 * MS,
            but(SendMode::BATCH, ns),
            |mode| if mode == SendMode::BATCH { sends } else { 10 },
        );
        server.auto.mode()
    };
    assert_eq!(run(10_000, 2), SendMode::BATCH, "a fifth of them");
    assert_eq!(run(10_000, 7), SendMode::BATCH, "seven tenths");
    assert_eq!(run(10_000, 9), PART_4, "nine tenths are no reason");
    assert_eq!(run(10_000, 40), PART_4, "nor are more");
    assert_eq!(run(10_150, 2), PART_4, "but it has to be as fast");
}

#[test]
fn few_requests_flow_unless_the_server_is_the_bottleneck() {
    // Below eight requests under way each response leaves at once, as long as the thread serves no more between two
    // idle moments than half as many again.
    for (under_way, cycle, flows) in
        [(7, 7, true), (7, 10, true), (7, 11, false), (8, 8, false), (2, 3, true), (2, 4, false)]
    {
        let mut server = Server { under_way, cycle, ..Server::new() };
        server.run_at(200 * MS, |_| 10_000);
        let only_nodelay = server.turns.len() == 1 && server.turns[0].0 == SendMode::NODELAY;
        assert_eq!(only_nodelay, flows, "{under_way} under way, {cycle} in a cycle");
    }
}

#[test]
fn another_depth_is_another_load() {
    // What was found out is forgotten when the requests between idle moments more than double or fall below half:
    // everything is tried again after the load was looked at, though it was to rest for seconds.
    for (cycle, forgets) in [(32, false), (33, true), (8, false), (7, true)] {
        let mut server = Server::new();
        server.run_at(5000 * MS, but(SendMode::NAGLE, 11_900));
        server.turns.clear();
        server.cycle = cycle;
        server.run_at(5060 * MS, but(SendMode::NAGLE, 11_900));
        let turns = server.turns_of(SendMode::NAGLE);
        assert_eq!(!turns.is_empty(), forgets, "{cycle}: {turns:?}");
        if let Some((began, _)) = turns.first() {
            assert!((5012 * MS..5025 * MS).contains(began), "{cycle}: not before it was looked at: {began}");
        }
    }
}

#[test]
fn a_pause_says_nothing_about_the_mode() {
    // A tenth of a second without requests, when a challenger's turn has only begun, ends the trial and nothing else: it
    // did not cause the pause, and may be tried again at once.
    let mut server = Server::new();
    while server.auto.mode() != SendMode::NAGLE {
        server.run_at(server.now_ns + 160_000, |_| 10_000);
    }
    server.run_at(server.now_ns + 160_000, |_| 10_000);
    let paused = server.now_ns;
    server.now_ns += 101 * MS;
    server.run_at(paused + 101 * MS + 160_000, |_| 10_000);
    assert_eq!(server.auto.mode(), PART_4);
    server.turns.clear();
    server.run_at(paused + 120 * MS, |_| 10_000);
    let (began, _) = server.turns_of(SendMode::NAGLE)[0];
    assert!(began < paused + 110 * MS, "{began}");
}

#[test]
fn the_best_mode_is_judged_by_its_undisturbed_rate() {
    // A ring can keep the cycle that a challenger brought it into: for a while after its turn the best does less than it
    // can, in the trial and in the turn after it. That makes no challenger better, nor the next one.
    let mut server = Server::new();
    while server.now_ns < 1000 * MS {
        let step = server.now_ns + 160_000;
        let disturbing = [SendMode::NAGLE, SendMode::part(2)];
        let disturbed = server.turns.iter().rev().find(|(mode, _, _)| disturbing.contains(mode));
        let until = disturbed.map_or(0, |&(_, _, ended)| ended + 12 * MS);
        let best = if server.now_ns < until { 11_500 } else { 10_000 };
        server.run_at(step, |mode| match mode {
            PART_4 => best,
            SendMode::NODELAY if server_is_new(step) => 10_000,
            mode if disturbing.contains(&mode) => 10_600,
            _ => 40_000,
        });
    }
    let last = server.turns.last().map(|(mode, _, _)| *mode);
    let of_best: u64 = server.turns_of(PART_4).iter().map(|(_, took)| took).sum();
    assert!(last == Some(PART_4) && of_best > 800 * MS, "{last:?}, {of_best}");
}

/// Before the load is known, responses flow one by one, at full speed.
fn server_is_new(now_ns: u64) -> bool {
    now_ns < 10 * MS
}
