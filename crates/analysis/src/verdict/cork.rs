//! Data that a timer released: corks that were never lifted.
//!
//! What leaves 200 ms late may also be an answer that took so long, or an event that comes each 200 ms. A timer of the kernel ends at its
//! ticks, whenever it was set; a program's own pause ends a while after it began, whatever the ticks are. So the evidence is one of
//! these:
//!
//! - The waits differ by a good part of a tick, and end at ticks all the same.
//! - In a closed loop each wait begins behind the end of the one before, and all are alike. Then the ends of a program's pauses drift:
//!   what one is off, those behind it are off, too. Those of a timer stay at its ticks. Waits that each begin at the very end of the
//!   one before, or that come at a round interval, are the program's events.

use std::f64::consts::TAU;
use std::net::IpAddr;

use record::{Side, StallKind, Ticks};

use super::VerdictKind;
use super::case::Case;
use super::evidence::{Evidence, Stalls};
use super::found::Found;
use super::tcp::{mean_wait, stalled};

/// Stalls that a timer may have ended.
pub(crate) const KINDS: [StallKind; 2] = [StallKind::CorkWithinMessage, StallKind::CorkedAnswer];

/// The part of the pauses of a timer's length that a timer ended, at least.
const MOST: f64 = 0.8;
/// Largest spread of waits that the ticks of one timer can explain, nanoseconds.
pub(super) const TIMER_SPREAD_NS: u64 = 12_000_000;
/// Fewest waits that differ: eight random phases are as concentrated as those of a timer once in ten thousand times.
const DIFFERENT_MIN: usize = 8;
/// And this part of a tick is between the tenth and nine tenths of them, at least. Ends at ticks leave differences of half a tick.
const DIFFERENT: f64 = 0.6;
/// Fewest waits of a closed loop: so many steps of a drift lead away from a tick.
const LOOP_MIN: usize = 16;
/// The mean square of successive differences, as a part of the variance: 2 for ends that each have their own deviation, and below 1
/// for those that inherit it.
const INDEPENDENT: f64 = 1.2;
/// A client sends its next request so soon in a closed loop, beyond two round trips, nanoseconds.
const SOON_NS: f64 = 2e6;
/// Most clients that are told apart.
const CLIENTS_MAX: usize = 64;
/// Intervals that programs set, nanoseconds, and how near to one the mean distance is.
const ROUND_NS: f64 = 50e6;
const NEAR_NS: f64 = 7e5;

/// A wait that ended.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wait {
    pub(super) connection: u32,
    /// The connection or the client whose loop it may be of.
    pub(super) loop_of: u32,
    pub(super) ended_ns: u64,
    pub(super) wait_ns: u64,
}

/// How far times are from the mean phase of a tick, ns.
fn deviations(waits: &[Wait], tick_ns: f64) -> Vec<f64> {
    let angle = |wait: &Wait| (wait.ended_ns as f64 % tick_ns) / tick_ns * TAU;
    let (sine, cosine) =
        waits.iter().map(angle).fold((0.0, 0.0), |sum, a| (sum.0 + a.sin(), sum.1 + a.cos()));
    let mean = sine.atan2(cosine);
    let near = |angle: f64| (angle - mean + TAU / 2.0).rem_euclid(TAU) - TAU / 2.0;
    waits.iter().map(|wait| near(angle(wait)) / TAU * tick_ns).collect()
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(0.0)
}

/// Whether a kernel's timer ended the waits; `trip_ns` is the round trip to the client.
fn are_of_timer(waits: &[Wait], trip_ns: u64) -> bool {
    let mut waits = waits.to_vec();
    waits.sort_unstable_by_key(|wait| (wait.loop_of, wait.ended_ns));
    let mut lengths: Vec<u64> = waits.iter().map(|wait| wait.wait_ns).collect();
    lengths.sort_unstable();
    let at = |share: f64| {
        let place = (lengths.len().saturating_sub(1) as f64 * share).round() as usize;
        lengths.get(place).map_or(0.0, |&ns| ns as f64)
    };
    let ends = waits.iter().fold(Ticks::default(), |mut ends, wait| {
        ends.add(wait.ended_ns);
        ends
    });
    ends.aligned_ns().any(|tick_ns| {
        let tick_ns = tick_ns as f64;
        let differ = at(0.9) - at(0.1) >= DIFFERENT * tick_ns;
        waits.len() >= DIFFERENT_MIN && differ || stay(&waits, tick_ns, trip_ns)
    })
}

/// Whether the ends of waits in a closed loop stay at ticks.
fn stay(waits: &[Wait], tick_ns: f64, trip_ns: u64) -> bool {
    let off = deviations(waits, tick_ns);
    let pairs: Vec<(&[Wait], f64)> = (waits.windows(2))
        .zip(off.windows(2))
        .filter(|(pair, _)| pair[0].loop_of == pair[1].loop_of)
        .map(|(pair, off)| (pair, off[1] - off[0]))
        .collect();
    if pairs.len() + 1 < LOOP_MIN {
        return false;
    }
    let distance = |pair: &[Wait]| pair[1].ended_ns.saturating_sub(pair[0].ended_ns) as f64;
    let apart_ns = median(pairs.iter().map(|(pair, _)| distance(pair)).collect());
    let between_ns = median(pairs.iter().map(|(pair, _)| distance(pair) - pair[1].wait_ns as f64).collect());
    let is_loop = between_ns > 0.0 && between_ns <= SOON_NS + 2.0 * trip_ns as f64;
    let is_round = (apart_ns - (apart_ns / ROUND_NS).round() * ROUND_NS).abs() <= NEAR_NS;
    let successive = pairs.iter().map(|(_, step)| step * step).sum::<f64>() / pairs.len() as f64;
    let variance = off.iter().map(|off| off * off).sum::<f64>() / off.len() as f64;
    is_loop && !is_round && successive >= INDEPENDENT * variance
}

impl Evidence {
    /// The stalls of a kind that a timer ended, as far as they show it.
    fn of_timer(&self, kind: StallKind) -> Vec<(Side, u32, &Stalls)> {
        let mut seen = self.stalls(kind);
        seen.retain(|(side, _, stalls)| {
            let spread_ns = stalls.wait_at_ns(0.9).saturating_sub(stalls.wait_at_ns(0.1));
            let trips = stalls.connections.iter().filter_map(|&connection| self.near(connection, *side));
            let trip_ns = trips.map(|(_, facts)| facts.round_trip_ns()).max().unwrap_or(0);
            spread_ns <= TIMER_SPREAD_NS
                && self.are_most(*side, stalls)
                && (are_of_timer(&stalls.kept(), trip_ns) || are_of_timer(&self.by_client(stalls), trip_ns))
        });
        seen
    }

    /// The waits by client: where each request has a connection of its own, the loop is the client's.
    fn by_client(&self, stalls: &Stalls) -> Vec<Wait> {
        let mut clients: Vec<IpAddr> = Vec::new();
        let mut place = |client: IpAddr| {
            let known = clients.iter().position(|&of| of == client);
            let place = known.unwrap_or(clients.len());
            if place == clients.len() && place < CLIENTS_MAX {
                clients.push(client);
            }
            place as u32
        };
        let mut waits = stalls.kept();
        for wait in &mut waits {
            let client = self.near(wait.connection, Side::Client).map(|(_, facts)| facts.client.ip());
            wait.loop_of = client.map_or(wait.loop_of, &mut place);
        }
        waits
    }

    /// Whether most pauses of that length on the connections of stalls are such stalls, so that these are no choice of those that end at
    /// ticks by chance.
    fn are_most(&self, side: Side, stalls: &Stalls) -> bool {
        let all = stalls.connections.iter().filter_map(|&connection| self.near(connection, side));
        let pauses: u64 = all.map(|(_, facts)| facts.conduct(side).timer_pauses).sum();
        let own = KINDS.into_iter().flat_map(|kind| self.stalls(kind)).filter(|(of, ..)| *of == side);
        let found: u64 = own.map(|(.., stalls)| stalls.count).sum();
        found as f64 >= MOST * pauses as f64
    }

    /// Waits that only look like those of a timer are the server's own time. To be called when all evidence is there.
    pub fn settle(&mut self) {
        let doubtful = KINDS.map(|kind| self.of_timer(kind).is_empty().then_some(kind));
        for kind in doubtful.into_iter().flatten() {
            self.ledger.without(kind);
        }
    }
}

/// The verdict on data that was sent by a timer.
pub(super) fn judge(case: &Case<'_>, found: &mut Found) {
    for kind in KINDS {
        let seen = case.evidence.of_timer(kind);
        stalled(case, found, VerdictKind::UnfinishedCork, kind, &seen, |side, stalls| {
            format!(
                "{} times data of the {} left {} late, released by a timer and not by a received segment: \
                 MSG_MORE or TCP_CORK was set and not lifted",
                stalls.count,
                side.name(),
                mean_wait(stalls)
            )
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;
    const COUNT: u64 = 40;

    /// Waits of one connection: a request some time after the end before, and what ends the wait for its answer.
    fn waits(
        seed: u64,
        think: impl Fn(&mut fastrand::Rng) -> u64,
        end: impl Fn(&mut fastrand::Rng, u64) -> u64,
    ) -> Vec<Wait> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut now = 1_700_000_000_000_000_000 + random.u64(..MS * 100);
        let one = |_| {
            let from = now + think(&mut random);
            now = end(&mut random, from);
            Wait { connection: 0, loop_of: 0, ended_ns: now, wait_ns: now - from }
        };
        (0..COUNT).map(one).collect()
    }

    fn prompt(random: &mut fastrand::Rng) -> u64 {
        100_000 + random.u64(..100_000)
    }

    fn seldom(random: &mut fastrand::Rng) -> u64 {
        5 * MS + random.u64(..300 * MS)
    }

    #[test]
    fn timers_end_at_ticks_whenever_they_were_set() {
        for tick in [MS, 4 * MS, 8 * MS, 10 * MS] {
            for seed in 0..20 {
                let timer = |random: &mut fastrand::Rng, from: u64| {
                    (from + 200 * MS + MS / 2).next_multiple_of(tick) + random.u64(5_000..40_000)
                };
                assert!(are_of_timer(&waits(seed, seldom, timer), 200_000), "{tick} {seed}");
                assert!(are_of_timer(&waits(seed, prompt, timer), 200_000), "{tick} {seed}");
            }
        }
    }

    #[test]
    fn a_program_s_own_pauses_of_200_to_210_ms_are_no_timer_s() {
        let mut alarms = 0;
        for seed in 0..400 {
            let pause = 200_050_000 + seed * 25_000;
            for jitter in [1_000, 30_000, 150_000, 2 * MS, 8 * MS] {
                let own = |random: &mut fastrand::Rng, from: u64| from + pause + random.u64(..jitter);
                alarms += u32::from(are_of_timer(&waits(seed, prompt, own), 200_000));
                alarms += u32::from(are_of_timer(&waits(seed, seldom, own), 200_000));
                let scheduled: Vec<Wait> = (0..COUNT)
                    .map(|i| {
                        let mut random = fastrand::Rng::with_seed(seed + i * 1000);
                        let from = (1_700_000_000_000 + i * 250) * MS + random.u64(..20_000);
                        let ended_ns = from + pause + random.u64(..jitter);
                        Wait { connection: 0, loop_of: 0, ended_ns, wait_ns: ended_ns - from }
                    })
                    .collect();
                alarms += u32::from(are_of_timer(&scheduled, 200_000));
            }
        }
        assert!(alarms <= 12, "{alarms} of 6000");
    }

    #[test]
    fn events_each_200_ms_are_no_timer_s() {
        for interval in [200 * MS, 200_300_000, 205 * MS] {
            for seed in 0..20 {
                let event = |random: &mut fastrand::Rng, from: u64| {
                    (from / interval + 1) * interval + random.u64(..200_000)
                };
                // Pieces of one answer: each wait begins at the end of the one before.
                assert!(!are_of_timer(&waits(seed, |_| 0, event), 200_000), "{interval} {seed}");
                if interval != 205 * MS {
                    assert!(!are_of_timer(&waits(seed, prompt, event), 200_000), "{interval} {seed}");
                }
            }
        }
    }
}
