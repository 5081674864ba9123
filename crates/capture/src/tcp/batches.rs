//! Batches of requests that a program writes one by one while Nagle's algorithm is on: the first leaves alone, and its answer
//! brings the acknowledgement that releases the others together. So single requests and batches of the same kind take turns, and
//! a batch leaves sooner behind the answer than a program reads one.
//!
//! Nothing is known about the requests but their sizes: a batch is a multiple of the single one, in its request and in its
//! answer.

/// A turn: what one side sent, what came back, and how long after the answer before it the turn began.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    bytes: u64,
    answer: u64,
    after_ns: u64,
}

/// The last turns of a side.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Batches {
    /// The newest first.
    turns: [Turn; 3],
    /// What both sides had sent when the present turn began, and how long after the answer before it that was.
    own: u64,
    peer: u64,
    after_ns: u64,
    /// Batches so far, and how many more of them than not left sooner behind their answer than the single request before.
    all: i32,
    sooner: i32,
    /// Turns since the last one.
    since: u32,
}

/// A program needs longer to read an answer and to write than its host needs to release what it holds, by this at the least,
/// nanoseconds.
const PROGRAM_NS: u64 = 10_000;

impl Turn {
    /// Of how many requests like `single` it is a batch.
    fn multiple_of(&self, single: &Turn) -> Option<u64> {
        let times = |whole: u64, part: u64| (whole + part / 2).checked_div(part).unwrap_or(0);
        let is_near = |whole: u64, part: u64, n: u64| whole.abs_diff(n * part) * 8 <= n * part;
        let n = times(self.bytes, single.bytes);
        let fits = is_near(self.bytes, single.bytes, n) && is_near(self.answer, single.answer, n);
        (n >= 1 && fits).then_some(n)
    }
}

impl Batches {
    /// A turn begins, so long after the answer to the one before; `own` and `peer` are the bytes that both sides have sent.
    /// Returns whether it is a batch that was held.
    pub(super) fn begins(&mut self, own: u64, peer: u64, after_ns: u64) -> bool {
        let ended = Turn { bytes: own - self.own, answer: peer - self.peer, after_ns: self.after_ns };
        self.turns = [ended, self.turns[0], self.turns[1]];
        (self.own, self.peer, self.after_ns) = (own, peer, after_ns);
        let [single, batch, single_before] = &self.turns;
        let is_alike = single.bytes > 0
            && single.multiple_of(single_before) == Some(1)
            && batch.multiple_of(single).is_some_and(|n| n >= 2);
        self.since = self.since.saturating_add(1);
        if !is_alike {
            return false;
        }
        let is_sooner = single.after_ns >= after_ns.saturating_add(PROGRAM_NS);
        let is_next = std::mem::take(&mut self.since) == 2 || self.all == 0;
        self.all = self.all.saturating_add(1);
        self.sooner = self.sooner.saturating_add(if is_sooner && is_next { 1 } else { -1 });
        // Three standard deviations of what chance would do.
        self.sooner > 0 && self.sooner.saturating_mul(self.sooner) >= self.all.saturating_mul(9)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of a side: bytes, the answer's, and how long after the answer before, microseconds. Returns how many were held.
    fn held(turns: impl IntoIterator<Item = (u64, u64, u64)>) -> usize {
        let (mut batches, mut own, mut peer) = (Batches::default(), 0, 0);
        let begins = |(bytes, answer, after_us): (u64, u64, u64)| {
            let is_held = batches.begins(own, peer, after_us * 1000);
            (own, peer) = (own + bytes, peer + answer);
            is_held
        };
        turns.into_iter().map(begins).filter(|is_held| *is_held).count()
    }

    fn pairs(single: (u64, u64, u64), batch: (u64, u64, u64)) -> Vec<(u64, u64, u64)> {
        [single, batch].repeat(50)
    }

    #[test]
    fn a_batch_behind_the_answer_to_one_of_its_kind_was_held() {
        assert!(held(pairs((22, 108, 130), (154, 756, 11))) >= 40);
        // Their keys differ in length.
        let keys = (0..100_u64).map(|n| match n % 2 {
            0 => (40 + n % 3, 900 + n % 7, 150 + n % 31),
            _ => (3 * 41, 3 * 903, 15 + n % 13),
        });
        assert!(held(keys) >= 38);
        // Seen from afar, where the path's jitter is larger than the program's time.
        let jitter = |n: u64| 20_000 + n * 7919 % 101;
        let far = |n: u64| if n.is_multiple_of(2) { (9, 124, jitter(n) + 60) } else { (27, 372, jitter(n)) };
        assert!(held((0..200).map(far)) >= 50);
    }

    #[test]
    fn programs_that_send_one_request_and_then_another_hold_nothing() {
        // At the program's own pace.
        assert_eq!(held(pairs((22, 108, 130), (154, 756, 125))), 0);
        assert_eq!(held(pairs((22, 108, 15), (154, 756, 11))), 0);
        let jitter = |n: u64| 100 + n * 7919 % 101;
        assert_eq!(
            held((0..400_u64).map(|n| if n.is_multiple_of(2) {
                (22, 108, jitter(n))
            } else {
                (154, 756, jitter(n))
            })),
            0
        );
        // A lookup, and what it leads to.
        assert_eq!(held(pairs((22, 108, 130), (154, 108, 11))), 0);
        assert_eq!(held(pairs((22, 108, 130), (40, 9000, 11))), 0);
        // Always the same, and of random sizes.
        assert_eq!(held(pairs((22, 108, 130), (22, 108, 11))), 0);
        let mut rng = 7_u64;
        let mut random = |below: u64| {
            rng = rng.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (rng >> 33) % below
        };
        let turns: Vec<_> =
            (0..10_000).map(|_| (20 + 20 * random(4), 100 + 100 * random(4), 10 + random(200))).collect();
        assert_eq!(held(turns), 0);
    }
}
