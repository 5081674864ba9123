//! Where the time of a connection's commands goes inside the target, from samples: one turn in about 32 is measured, so that the
//! rest pays nothing for it. Operations that a disk ends later are all timed: each of them takes far longer than reading a clock.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// Fewest turns between two that are measured; up to [`MORE`] more at random, since turns may alternate between kinds. Half a dozen
/// looks at the clock and one for each command then cost less than a hundredth of the turns, even of those with one short command.
const LEAST: u32 = 16;
const MORE: u32 = 32;
/// Turns for each one that is measured, on average.
pub(crate) const EACH: u64 = (LEAST + MORE / 2) as u64;

/// Time that was spent in one stage.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// How often it was measured.
    pub count: u64,
    /// All that was measured, nanoseconds.
    pub sum_ns: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
}

impl Stage {
    #[inline]
    fn add(&mut self, time: Duration) {
        let ns = time.as_nanos() as u64;
        self.count += 1;
        self.sum_ns += ns;
        self.max_ns = self.max_ns.max(ns);
    }

    /// The mean, microseconds; 0 if nothing was measured.
    #[must_use]
    pub fn mean_us(&self) -> f64 {
        if self.count == 0 { 0.0 } else { self.sum_ns as f64 / self.count as f64 / 1e3 }
    }
}

/// The stages of a connection's commands, in their order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stages {
    /// From the thread's look at its sockets until the connection's turn: those before it have theirs. For each measured turn.
    pub turn: Stage,
    /// A receive call that returned data. For each one in a measured turn.
    pub receive: Stage,
    /// From its reception until the thread begins with a PDU: those that came with it are handled before. For each PDU.
    pub queue: Stage,
    /// Handling a PDU: the protocol, the command, and the disk's work if the thread does it (disks in memory). For each PDU.
    pub execute: Stage,
    /// An operation that a disk ends later, or a thread of its pool does, until the connection has its result. For each operation.
    pub store: Stage,
    /// From a response until all that was complete has been handed to the kernel: what the send policy holds back, and the send. For
    /// each PDU of a measured turn that was answered at once.
    pub transmit: Stage,
}

impl Stages {
    /// Adds the stages of another connection.
    pub fn add(&mut self, other: &Self) {
        let Self { turn, receive, queue, execute, store, transmit } = self;
        let all = [turn, receive, queue, execute, store, transmit];
        for (stage, (_, more)) in all.into_iter().zip(other.named()) {
            stage.count += more.count;
            stage.sum_ns += more.sum_ns;
            stage.max_ns = stage.max_ns.max(more.max_ns);
        }
    }

    /// Names and stages, in their order.
    #[must_use]
    pub fn named(&self) -> [(&'static str, Stage); 6] {
        let Self { turn, receive, queue, execute, store, transmit } = *self;
        [
            ("turn", turn),
            ("receive", receive),
            ("queue", queue),
            ("execute", execute),
            ("store", store),
            ("transmit", transmit),
        ]
    }
}

/// Measures the stages.
#[derive(Debug, Default)]
pub(crate) struct Sampler {
    pub(crate) stages: Stages,
    /// Turns until one is measured, and the state of a generator of random numbers.
    turns: u32,
    random: u32,
    /// In a measured turn: when its last step ended, and its last reception.
    last: Option<(Instant, Instant)>,
    /// Since when PDUs that have been received wait for another turn.
    cut: Option<Instant>,
    unsent: Option<Unsent>,
}

/// Measured responses that have not been sent: how many, when the first was made, how long after it the others, summed, and the
/// position behind the last one in what is sent.
#[derive(Clone, Copy, Debug)]
struct Unsent {
    count: u32,
    first: Instant,
    later: Duration,
    end: u64,
}

impl Sampler {
    /// A turn begins; the thread has looked at its sockets at `woken`.
    #[inline]
    pub(crate) fn begin_turn(&mut self, woken: Instant) {
        self.last = None;
        if self.turns > 0 {
            self.turns -= 1;
        } else {
            // Numerical Recipes' linear congruential generator: its high bits are random enough.
            self.random = self.random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            self.turns = LEAST - 1 + (self.random >> 16) % (MORE + 1);
            let now = Instant::now();
            self.stages.turn.add(now.saturating_duration_since(woken));
            self.last = Some((now, self.cut.unwrap_or(now)));
        }
    }

    /// A turn ends before all PDUs are handled that had been received by this time.
    #[inline]
    pub(crate) fn cut(&mut self, received: Option<Instant>) {
        if self.cut.is_none() {
            self.cut = received;
        }
    }

    /// Something else was done, which no stage has.
    #[inline]
    pub(crate) fn stepped(&mut self) {
        if let Some((last, _)) = &mut self.last {
            *last = Instant::now();
        }
    }

    /// A reception has ended that began where the last step had, with data or without. The PDUs before have been handled.
    #[inline]
    pub(crate) fn received(&mut self, has_data: bool) {
        self.cut = None;
        if let Some((last, received)) = &mut self.last {
            let now = Instant::now();
            if has_data {
                self.stages.receive.add(now - *last);
                *received = now;
            }
            *last = now;
        }
    }

    /// A PDU was handled since the last step; its answer, if there is one, ends at this position of what is sent. Returns how long that
    /// took since its reception, if it was measured and answered.
    #[inline]
    pub(crate) fn handled(&mut self, answer: Option<u64>) -> Option<Duration> {
        let mut took = None;
        if let Some((last, received)) = &mut self.last {
            let now = Instant::now();
            self.stages.queue.add(last.saturating_duration_since(*received));
            self.stages.execute.add(now - *last);
            *last = now;
            if let Some(end) = answer {
                took = Some(now.saturating_duration_since(*received));
                let new = Unsent { count: 0, first: now, later: Duration::ZERO, end };
                let unsent = self.unsent.get_or_insert(new);
                unsent.count += 1;
                unsent.later += now - unsent.first;
                unsent.end = end;
            }
        }
        took
    }

    /// What is sent has been handed to the kernel up to a position.
    #[inline]
    pub(crate) fn sent(&mut self, until: u64) {
        if let Some(unsent) = self.unsent.take_if(|unsent| unsent.end <= until) {
            let longest = unsent.first.elapsed();
            let sum = (longest * unsent.count).saturating_sub(unsent.later);
            let transmit = &mut self.stages.transmit;
            transmit.count += u64::from(unsent.count);
            transmit.sum_ns += sum.as_nanos() as u64;
            transmit.max_ns = transmit.max_ns.max(longest.as_nanos() as u64);
        }
        self.stepped();
    }

    /// An operation that had begun at `begun` has ended.
    #[inline]
    pub(crate) fn stored(&mut self, begun: Instant, now: Instant) {
        self.stages.store.add(now.saturating_duration_since(begun));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn us(stage: Stage) -> (u64, u64, u64) {
        (stage.count, stage.sum_ns / 1000, stage.max_ns / 1000)
    }

    #[test]
    fn one_turn_in_many_is_measured() {
        let mut sampler = Sampler::default();
        let measured = 1000;
        for _ in 0..measured * (LEAST + MORE / 2) {
            sampler.begin_turn(Instant::now());
            sampler.received(true);
            (1..=3).for_each(|end| assert!(sampler.handled(Some(end)).is_none_or(|took| took < MS * 1000)));
            sampler.sent(3);
            sampler.received(false);
        }
        let counts = sampler.stages.named().map(|(_, stage)| stage.count);
        let [turns, ..] = counts;
        assert!(turns.abs_diff(measured.into()) < 50, "{turns}");
        assert_eq!(counts, [turns, turns, 3 * turns, 3 * turns, 0, 3 * turns]);
    }

    /// A command that takes longer than a turn may is followed by a turn with nothing in it.
    #[test]
    fn turns_of_every_kind_are_measured() {
        for kinds in 2..=64 {
            let (mut sampler, mut measured) = (Sampler::default(), vec![0; kinds]);
            for turn in 0..100_000 {
                sampler.begin_turn(Instant::now());
                measured[turn % kinds] += u32::from(sampler.last.is_some());
            }
            let mean = 100_000 / 32 / kinds as u32;
            assert!(measured.iter().all(|&count| count > mean / 3), "{kinds}: {measured:?}");
        }
    }

    #[test]
    fn each_stage_has_its_own_time() {
        let mut sampler = Sampler::default();
        sampler.begin_turn(Instant::now() - 7 * MS);
        std::thread::sleep(MS);
        sampler.stepped();
        std::thread::sleep(2 * MS);
        sampler.received(true);
        for end in 1..=2 {
            std::thread::sleep(4 * MS);
            sampler.handled(Some(end));
        }
        std::thread::sleep(3 * MS);
        sampler.sent(2);
        let Stages { turn, receive, queue, execute, transmit, .. } = sampler.stages;
        // A machine that is busy makes each longer, none shorter.
        let least = |stage: Stage, count, sum_ms: u64, max_ms: u64| {
            let (n, sum, max) = us(stage);
            assert!(n == count && sum >= sum_ms * 1000 && max >= max_ms * 1000, "{stage:?}");
        };
        least(turn, 1, 7, 7);
        least(receive, 1, 2, 2);
        least(queue, 2, 4, 4); // 0, and behind the first
        least(execute, 2, 8, 4);
        least(transmit, 2, 7 + 3, 7); // behind the second PDU, and behind itself
        assert_eq!(turn.mean_us(), turn.sum_ns as f64 / 1e3);
        assert_eq!(Stage::default().mean_us(), 0.0);
    }

    /// A response that had no room is sent in a later turn, which is not measured otherwise; what is made behind it does not count.
    #[test]
    fn a_response_that_is_sent_later_counts_from_where_it_was_made() {
        let mut sampler = Sampler::default();
        sampler.begin_turn(Instant::now());
        sampler.handled(Some(560));
        sampler.handled(None);
        sampler.sent(559);
        assert_eq!(sampler.stages.transmit.count, 0, "a byte is missing");
        sampler.begin_turn(Instant::now());
        std::thread::sleep(5 * MS);
        sampler.handled(Some(99_999));
        sampler.sent(560);
        let (count, sum, _) = us(sampler.stages.transmit);
        assert!(count == 1 && sum >= 5000, "{:?}", sampler.stages);
        std::thread::sleep(5 * MS);
        sampler.sent(99_999);
        assert_eq!(us(sampler.stages.transmit), (count, sum, sum), "there is no other");
        assert_eq!(sampler.stages.execute.count, 2);
    }

    /// PDUs that were received in one turn and handled in a later one have waited since.
    #[test]
    fn what_a_cut_turn_leaves_waits_in_the_queue() {
        let mut sampler = Sampler::default();
        sampler.begin_turn(Instant::now());
        sampler.turns = 1;
        sampler.received(true);
        let received = Some(Instant::now());
        std::thread::sleep(5 * MS);
        sampler.cut(received);
        // One turn between is not measured.
        sampler.begin_turn(Instant::now());
        sampler.cut(Some(Instant::now()));
        std::thread::sleep(5 * MS);
        sampler.begin_turn(Instant::now());
        sampler.handled(None);
        let (count, sum, _) = us(sampler.stages.queue);
        assert!(count == 1 && sum >= 10_000, "{:?}", sampler.stages);
        sampler.received(false);
        assert_eq!(sampler.cut, None, "all has been handled");
    }
}
