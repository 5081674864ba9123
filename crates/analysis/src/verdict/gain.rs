//! The gain to expect from a remedy: what the operations of the services concerned would take without the time that they lost.
//!
//! A client that sends its next request when a response has come goes round a *cycle*: the operation, and the client's own time
//! before it. Without the loss the cycle is shorter, and the client has so many more operations. The client's own time stays. A
//! client that does not wait for responses has shorter operations, and as many as before.
//!
//! What remains is never less than the round trip of the network, and a link carries no more than its rate. Where the capture does
//! not show whether a part of the loss remains, the gain is an interval.

use record::{ConnectionFacts, Side, StallKind};

use super::Gain;
use super::case::{Case, Link, duration, lasted_ns, significant};
use crate::ledger::{Class, LOSSES};

/// A gain below this factor is none.
const FACTOR_MIN: f64 = 1.005;
/// A gain beyond this factor is none of two parts of a time.
const FACTOR_MAX: f64 = 1e6;
/// Share of the operations that replace a response, from which on the clients' time before these is that before each: the others
/// are the first of each connection.
const LOOP: f64 = 0.1;
/// Share of the operations that are the first of their connections, from which on each has one of its own.
const ONE_EACH: f64 = 0.5;
/// An interval whose ends differ less than this is one figure.
const SAME: f64 = 1.05;
/// Hosts sleep where waits are at least this share of the time.
const ASLEEP: f64 = 0.9;
/// A host that slept before takes so many times as long for the same work, or more. No constant of nature: docs/analyze.md has what was
/// measured. It ends an interval, and is no estimate.
const SLEEPER: f64 = 2.0;

/// The time of some operations, and the part of it that they lost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Loss {
    pub(super) operations: u64,
    /// As their users see it, with the set-up of their connections, nanoseconds.
    pub(super) time_ns: f64,
    /// Of their loops: with the clients' own time, nanoseconds.
    pub(super) cycle_ns: f64,
    /// Nanoseconds.
    pub(super) lost_ns: f64,
    /// The part of the loss that may remain, nanoseconds.
    pub(super) unsure_ns: f64,
    /// What the network alone takes, nanoseconds.
    least_ns: f64,
    /// Operations at the pace of the fastest one of each class, and the clients' shortest times before them, nanoseconds.
    fastest_ns: f64,
    least_thought_ns: f64,
    /// What the clients' own time may be too long, nanoseconds.
    pub(super) slow_thought_ns: f64,
    /// Whether requests replace responses.
    pub(super) is_loop: bool,
}

impl Loss {
    /// The operations of the services some of whose classes lost time, nanoseconds.
    pub(super) fn of(case: &Case<'_>, lost_ns: impl Fn(&Class) -> u128) -> Self {
        let classes = case.evidence.ledger.classes();
        let concerned = |service: u32| classes.iter().any(|c| c.service() == service && lost_ns(c) > 0);
        let (mut all, mut thoughts, mut setups) = (Self::default(), 0, 0);
        let (mut thought_ns, mut shared_ns, mut seen_ns) = (0.0, 0.0, 0.0);
        for class in classes.iter().filter(|class| concerned(class.service())) {
            let count = class.operations as f64;
            all.operations += class.operations;
            all.lost_ns += lost_ns(class) as f64;
            let (connections, setup_ns) = class.setups();
            setups += connections;
            let own_ns = (class.time_ns() + setup_ns) as f64;
            seen_ns += own_ns;
            shared_ns += class.shared_ns() as f64;
            // Behind the capture point the client's time holds the way to it.
            all.time_ns += own_ns + count * class.away_ns() as f64;
            all.fastest_ns += count * (class.fastest_ns() + class.away_ns()) as f64;
            all.least_thought_ns += count * least_thought_ns(classes, class.service());
            all.least_ns += count * (class.least_network_ns() + class.away_ns()) as f64;
            let (replies, ns) = class.thoughts();
            thoughts += replies;
            thought_ns += ns as f64;
        }
        let share = |count: u64| count as f64 / all.operations.max(1) as f64;
        let think_ns = thought_ns / thoughts.max(1) as f64 * all.operations as f64;
        (all.is_loop, all.cycle_ns) = match (share(thoughts) >= LOOP, share(setups) >= ONE_EACH) {
            (true, _) => (true, seen_ns + (think_ns - shared_ns).max(all.least_thought_ns)),
            // Without a connection that both use, no packet shows what a request follows.
            (false, true) => (true, all.time_ns),
            (false, false) => (false, all.time_ns),
        };
        all
    }

    /// Connections whose exchanges hold any number of requests: what these lose together is the time of their connection.
    pub(super) fn of_connections<'a>(facts: impl Iterator<Item = &'a ConnectionFacts>, lost_ns: u64) -> Self {
        let (mut operations, mut time_ns) = (0, 0.0);
        for facts in facts {
            operations += facts.exchanges;
            time_ns += lasted_ns(facts) as f64;
        }
        let lost_ns = lost_ns as f64;
        Self { operations, time_ns, cycle_ns: time_ns, lost_ns, is_loop: true, ..Self::default() }
    }

    /// A host that sleeps through a wait is slower at what follows than one that works all the time: its processor wakes up, and its
    /// caches are cold. So where waits are most of the time, what remains is between what the operations took besides, and half of
    /// the fastest one; the way of the network stays.
    pub(super) fn awake(mut self, least_ns: f64) -> Self {
        if self.lost_ns < ASLEEP * self.cycle_ns {
            return self;
        }
        let busy_ns = |fastest_ns: f64| fastest_ns / SLEEPER;
        let slower_ns = self.time_ns - self.lost_ns - busy_ns(least_ns).max(self.least_ns);
        self.lost_ns += slower_ns.max(0.0);
        self.unsure_ns += slower_ns.max(0.0);
        if self.is_loop {
            self.slow_thought_ns = (self.cycle_ns - self.time_ns - busy_ns(self.least_thought_ns)).max(0.0);
        }
        self
    }

    /// As [`Loss::awake`], for waits that are no part of the fastest operation's remaining time.
    pub(super) fn awake_again(self) -> Self {
        let fastest_ns = self.fastest_ns;
        self.awake(fastest_ns)
    }

    /// As [`Loss::awake`], for a server's time: what the network and the client take remains, and the server as long as the client.
    pub(super) fn awake_without_server(self) -> Self {
        let least_ns = SLEEPER * self.least_ns + self.least_thought_ns;
        self.awake(least_ns)
    }

    /// The same with the clients' shortest own time before each operation: a response of which the end vanishes behind the capture
    /// point seems to be the client's time.
    pub(super) fn of_prompt_clients(mut self) -> Self {
        self.cycle_ns = self.cycle_ns.min(self.time_ns + self.least_thought_ns);
        self
    }

    /// Adds requests that never got a response, and their time, all of which is lost.
    pub(super) fn with_unanswered(mut self, requests: u64, ns: u128) -> Self {
        self.operations += requests;
        self.time_ns += ns as f64;
        self.cycle_ns += ns as f64;
        self.lost_ns += ns as f64;
        self
    }

    /// What a larger window or buffer leaves of the waits of these senders: the congestion window of each connection grows first, and
    /// doubles in each round trip at best. Its growth may end early (RFC 9406), and cost as much again.
    pub(super) fn but_slow_start<'a>(
        mut self,
        senders: impl Iterator<Item = (&'a ConnectionFacts, Side)>,
    ) -> Self {
        let first =
            |facts: &ConnectionFacts, side| FIRST_SEGMENTS * f64::from(facts.conduct(side).mss_bytes.max(1));
        let remains_ns: f64 = senders.map(|(facts, side)| growth_ns(facts, side, first(facts, side))).sum();
        let remains_ns = remains_ns.min(self.lost_ns / 2.0);
        self.lost_ns -= remains_ns;
        self.unsure_ns = (self.unsure_ns + remains_ns).min(self.lost_ns);
        self
    }

    /// What a larger congestion window leaves of the waits of connections with one message each: no more may leave at first than the
    /// receiver's window holds, and that grows as fast, when data comes. Where the capture does not show it, it may be small.
    pub(super) fn but_window<'a>(
        mut self,
        senders: impl Iterator<Item = (&'a ConnectionFacts, Side)>,
    ) -> Self {
        let (mut remains_ns, mut perhaps_ns) = (0.0, 0.0);
        for (facts, side) in senders {
            match facts.conduct(side).window_first_bytes {
                0 => perhaps_ns += growth_ns(facts, side, FIRST_WINDOW),
                window => remains_ns += growth_ns(facts, side, f64::from(window)),
            }
        }
        self.lost_ns = (self.lost_ns - remains_ns).max(0.0);
        self.unsure_ns = (self.unsure_ns + perhaps_ns).min(self.lost_ns);
        self
    }

    /// The gain, at most `most` times as many operations; none if next to nothing is lost, or more than there is.
    pub(super) fn gain(&self, most: f64) -> Option<Gain> {
        let lost_ns = self.lost_ns.min(self.time_ns - self.least_ns).min(self.cycle_ns - self.least_ns);
        let sure_ns = lost_ns - self.unsure_ns.clamp(0.0, lost_ns.max(0.0));
        if self.operations == 0 || lost_ns <= 0.0 || lost_ns >= self.time_ns {
            return None;
        }
        let each_us = |ns: f64| ns / self.operations as f64 / 1000.0;
        let now_us = each_us(self.time_ns);
        let [then_us, most_us] = [lost_ns, sure_ns].map(|lost_ns| each_us(self.time_ns - lost_ns));
        let factor = |lost_ns: f64| self.cycle_ns / (self.cycle_ns - lost_ns).max(f64::MIN_POSITIVE);
        // Requests that come by themselves come as often as before.
        let most = if self.is_loop { most.max(1.0) } else { 1.0 };
        let limited = |lost_ns| factor(lost_ns).min(most);
        let all_ns = (lost_ns + self.slow_thought_ns).min(self.cycle_ns - self.least_ns.max(1.0));
        if now_us / then_us < FACTOR_MIN {
            return None;
        }
        Some(
            Gain {
                throughput_factor: limited(all_ns),
                throughput_least: limited(sure_ns),
                operation_us: Some((now_us, then_us)),
                operation_most_us: Some(most_us),
                text: String::new(),
            }
            .told(self.is_loop, self.is_loop && factor(all_ns) > most),
        )
    }
}

impl Gain {
    /// The gain from two remedies of the same operations, each of which takes its own part of their time.
    pub(super) fn and(self, other: &Self) -> Option<Self> {
        let left = |one: f64, other: f64| 1.0 / (1.0 / one + 1.0 / other - 1.0).max(f64::MIN_POSITIVE);
        let least = left(self.throughput_least, other.throughput_least);
        let factor = left(self.throughput_factor, other.throughput_factor);
        let ((now_us, then_us), (_, others_us)) = self.operation_us.zip(other.operation_us)?;
        let (most_us, others_most_us) = self.operation_most_us.zip(other.operation_most_us)?;
        let then_us = then_us - (now_us - others_us);
        let most_us = most_us - (now_us - others_most_us);
        // More than there is: their operations are not the same.
        if then_us <= 0.0 || factor > FACTOR_MAX {
            return Some(self);
        }
        let is_loop = factor > FACTOR_MIN;
        let gain = Self {
            throughput_factor: factor,
            throughput_least: least.min(factor),
            operation_us: Some((now_us, then_us)),
            operation_most_us: Some(most_us.max(then_us)),
            text: String::new(),
        };
        Some(gain.told(is_loop, false))
    }

    /// The gain with its sentence; `is_full`: the link then carries no more.
    pub(super) fn told(self, is_loop: bool, is_full: bool) -> Self {
        let Some((now_us, then_us)) = self.operation_us else { return self };
        let most_us = self.operation_most_us.unwrap_or(then_us);
        let after = if most_us > SAME * then_us {
            format!("between {} and {}", duration(then_us), duration(most_us))
        } else {
            duration(then_us)
        };
        let factor = if self.throughput_factor > SAME * self.throughput_least {
            format!("{} to {}", significant(self.throughput_least), significant(self.throughput_factor))
        } else {
            significant(self.throughput_factor)
        };
        let more = match (is_loop, is_full) {
            (_, true) => format!(", and {factor} times as many operations: then the link is full"),
            (true, false) => format!(", and {factor} times as many if each follows a response"),
            (false, false) => "; requests come as often as before".to_owned(),
        };
        Self { text: format!("an operation takes {after} instead of {}{more}", duration(now_us)), ..self }
    }
}

/// A client's shortest own time before an operation of a service, nanoseconds.
fn least_thought_ns(classes: &[Class], service: u32) -> f64 {
    let own = classes.iter().filter(|class| class.service() == service);
    let known = own.filter_map(|class| Some(class.least_thought_ns()?.saturating_sub(class.away_ns())));
    known.min().unwrap_or(0) as f64
}

/// Segments that a new connection sends at first (RFC 6928).
const FIRST_SEGMENTS: f64 = 10.0;
/// The window that systems offer to a new connection at first, bytes.
const FIRST_WINDOW: f64 = 65_536.0;

/// The round trips that a message of a sender needs besides the first, if so many bytes may leave in that and twice as many in each
/// further one, nanoseconds.
fn growth_ns(facts: &ConnectionFacts, side: Side, first_bytes: f64) -> f64 {
    let conduct = facts.conduct(side);
    let message = conduct.bytes as f64 / conduct.messages.max(1) as f64;
    // 1, 3, 7 times the first flight after one, two, three round trips.
    let flights = (message / first_bytes + 1.0).log2().ceil().max(1.0);
    (flights - 1.0) * facts.round_trip_ns() as f64
}

/// Waits whose length a timer decides. One that was not recognised, because it was a little longer or shorter, is as long.
const OF_TIMERS: [StallKind; 7] = [
    StallKind::NagleHeaderThenBody,
    StallKind::NagleWithinMessage,
    StallKind::NagleBetweenMessages,
    StallKind::DelayedAck,
    StallKind::CorkWithinMessage,
    StallKind::CorkedAnswer,
    StallKind::ContinueAwaited,
];

/// What operations of a class without such a wait exceed the others by, where it is as long as these waits and most operations have
/// one, nanoseconds.
fn alike_ns(class: &Class, kinds: &[StallKind]) -> u128 {
    let timed = kinds.iter().copied().filter(|kind| OF_TIMERS.contains(kind));
    let waiters: u64 = timed.map(|kind| class.waiters(kind)).sum();
    if waiters * 2 <= class.operations {
        return 0;
    }
    let mean_ns = u64::try_from(class.waited_ns(kinds) / u128::from(waiters)).unwrap_or(u64::MAX);
    class.exceeds(mean_ns / 2, mean_ns.saturating_mul(2))
}

impl Case<'_> {
    /// The gain from removing waits of these kinds.
    pub(super) fn gain_without(&self, kinds: &[StallKind]) -> Option<Gain> {
        self.loss_of(kinds).gain(self.most())
    }

    /// What waits of these kinds cost.
    pub(super) fn loss_of(&self, kinds: &[StallKind]) -> Loss {
        let mut loss = Loss::of(self, |class| class.waited_ns(kinds));
        let alike: u128 = self.evidence.ledger.classes().iter().map(|class| alike_ns(class, kinds)).sum();
        loss.lost_ns += alike as f64;
        if kinds.iter().any(|kind| OF_TIMERS.contains(kind)) { loss.awake_again() } else { loss }
    }

    /// What lost data costs.
    pub(super) fn loss_of_data(&self) -> Loss {
        Loss::of(self, |class| class.lossy_ns().unwrap_or_else(|| class.waited_ns(&LOSSES))).awake_again()
    }

    /// What an operation's bytes take on the link in both directions on average, nanoseconds; 0 if the rate is unknown.
    pub(super) fn wire_ns(&self) -> f64 {
        let used = self.evidence.services.link();
        let bytes = used.bytes(Side::Client) + used.bytes(Side::Server);
        self.carried_ns(bytes) / self.evidence.operations.max(1) as f64
    }

    /// What so many bytes of messages take on the link, nanoseconds; 0 if its rate is unknown.
    pub(super) fn carried_ns(&self, bytes: u64) -> f64 {
        self.link.map_or(0.0, |link| bytes as f64 * 8e9 / link.bits_per_second / link.efficiency)
    }

    /// How many times as many operations the link carries in packets as they are, if its rate is known.
    pub(super) fn most(&self) -> f64 {
        self.link.map_or(f64::INFINITY, |link| self.most_at(&link, link.passed))
    }

    /// The same in full packets.
    pub(super) fn most_in_full(&self) -> f64 {
        self.link.map_or(f64::INFINITY, |link| self.most_at(&link, [link.efficiency; 2]))
    }

    /// The same where packets leave these shares of the rate.
    fn most_at(&self, link: &Link, shares: [f64; 2]) -> f64 {
        let used = self.evidence.services.link();
        let carried = |side: Side| link.bits_per_second / 8.0 * shares[side as usize];
        let share = |side| used.shares(side, carried(side), 1.0).0;
        1.0 / share(Side::Client).max(share(Side::Server)).max(f64::MIN_POSITIVE)
    }
}
