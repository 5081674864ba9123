//! One setup against the analysis: what is wrong with it, by simulating it without each cause, and what the analysis says.

use std::collections::BTreeMap;

use analyzer::{Analysis, AnalysisResult, Input, Options};
use capture::file::CaptureFile;
use fastrand::Rng;
use record::wire::Wire;

use crate::cause::Cause;
use crate::draw::healthy;
use crate::frames::{CaptureBytes, Recorder};
use crate::plant::{disguise, plant};
use crate::setup::{Arrivals, MS, Setup};
use crate::world::{Outcome, Run, run};

/// A cause is present from this share on that removing it would gain.
pub const PRESENT: f64 = 0.05;
/// And absent below this one.
pub const ABSENT: f64 = 0.01;
/// A standing queue from this delay on (docs/analyze.md, `bufferbloat`), ns.
const QUEUE: u64 = 5 * MS;
/// A client is slow from this share of the cycle on (docs/analyze.md, `slow_initiator`).
const SLOW_INITIATOR: f64 = 0.75;

/// A link is full from this share of its rate on, and not below the other (docs/analyze.md, `link_full`).
const LINK_FULL: f64 = 0.9;
const LINK_IDLE: f64 = 0.6;
/// A server is slow from this share of the time of a client that is always ready, and saturated where requests wait for each
/// other for this share, each for so long that it is not the pace of a benchmark, ns (docs/analyze.md).
const SLOW_TARGET: f64 = 0.33;
const SATURATED: f64 = 0.5;
const SATURATED_EACH_NS: u64 = MS;

/// Fewest pauses or slow requests that form a pattern.
const STALLS: f64 = 8.0;
/// And fewest ticks.
const TICKS: u64 = 60;
/// Round trips are the cause where they are half of the time.
const ROUND_TRIP_BOUND: f64 = 0.5;

/// The setup of a seed, with what was planted in it; of `only` this cause, if given.
#[must_use]
pub fn drawn(seed: u64, only: Option<Cause>) -> (Setup, Vec<Cause>) {
    let mut rng = Rng::with_seed(seed);
    let mut setup = healthy(&mut rng, seed);
    disguise(&mut rng, &mut setup);
    let number = match rng.u32(0..20) {
        0..6 => 0,
        6..17 => 1,
        _ => 2,
    };
    let mut causes = Vec::new();
    for _ in 0..number {
        let cause = only.unwrap_or_else(|| Cause::ALL[rng.usize(0..Cause::ALL.len())]);
        plant(&mut rng, &mut setup, cause);
        causes.push(cause);
        if only.is_some() {
            break;
        }
    }
    (setup, causes)
}

/// A verdict, as its JSON has it.
#[derive(Clone, Debug)]
pub struct Said {
    /// Its kind.
    pub kind: String,
    /// Its text.
    pub text: String,
    /// The factor on the rate that it predicts: the least, and the most.
    pub factor: Option<(f64, f64)>,
    /// The time that it says was lost, ns.
    pub cost_ns: f64,
}

/// What a cause does to a setup.
#[derive(Clone, Copy, Debug)]
pub struct Truth {
    /// Share that removing it would gain: of the operations' time, of the time between operations, or of the operations.
    pub share: f64,
    /// Factor on the rate when it is removed; none where chance decides it.
    pub factor: Option<f64>,
}

/// A setup that was judged.
#[derive(Debug)]
pub struct Judged {
    /// Its seed.
    pub seed: u64,
    /// The setup.
    pub setup: Setup,
    /// What was planted.
    pub planted: Vec<Cause>,
    /// What each cause does. A cause that is not here costs nothing.
    pub truths: BTreeMap<Cause, Truth>,
    /// The verdicts.
    pub said: Vec<Said>,
    /// Share of the excess that the analysis explained; none if there is none to speak of.
    pub explained: Option<f64>,
    /// The account of the operations' time, for people.
    pub account: String,
}

impl Judged {
    /// Whether a cause is in the setup; none if it is between.
    #[must_use]
    pub fn has(&self, cause: Cause) -> Option<bool> {
        let share = |cause| self.truths.get(&cause).map_or(0.0, |truth: &Truth| truth.share);
        // Nagle's algorithm and the delayed ACK take part in the same wait: it has one name, by what it needs.
        let (nagle, acks) =
            (share(Cause::HeaderBodyApart).max(share(Cause::NagleDelayedAck)), share(Cause::DelayedAck));
        let is_present = share(cause)
            >= match cause {
                Cause::SlowInitiator => SLOW_INITIATOR,
                Cause::LinkFull => LINK_FULL,
                Cause::RoundTripBound => ROUND_TRIP_BOUND,
                Cause::SlowTarget => SLOW_TARGET,
                Cause::Saturated => SATURATED,
                Cause::NoResponse | Cause::CaptureLoss | Cause::ClockStep => ABSENT,
                _ => PRESENT,
            };
        let is_claimed = match cause {
            Cause::HeaderBodyApart | Cause::NagleDelayedAck => acks >= PRESENT,
            // Of small segments: a hold costs more than the packets that it is about.
            Cause::DelayedAck | Cause::SmallSegments => nagle < ABSENT,
            Cause::AckClocked => acks < ABSENT,
            // Low demand is no fault, and takes what the server gives.
            Cause::SlowTarget => self.setup.is_eager(),
            Cause::Saturated => {
                self.setup.service.time_ns >= SATURATED_EACH_NS * u64::from(self.setup.service.workers)
            }
            // What else ends with a request that is given up has a name of its own.
            Cause::NoResponse => self.setup.service.silent > 0.0,
            // Packets show a rate that is not told behind the link only.
            Cause::LinkFull => self.setup.tap.knows_rate,
            // A few events are accidents, not a pattern.
            Cause::RareStalls => self.setup.stalls() >= STALLS,
            // Few ticks show no interval.
            Cause::ServerTimer => {
                self.setup.is_eager() || self.setup.run_ns() >= TICKS * self.setup.service.tick_ns
            }
            // Without a handshake nothing shows how much of a response's time is the network's.
            Cause::RoundTripBound if self.setup.tap.late => false,
            // A client that waits for each response is normal: only where little else happens is it the cause.
            Cause::RoundTripBound | Cause::QueueDepthLow => self.planted.contains(&cause),
            // Where packets overtake each other, the verdict says so; they need not be lost.
            Cause::Retransmission => {
                let path = &self.setup.path;
                path.reorder == 0.0 || path.loss + path.collisions > 0.0
            }
            // So is slow start on a new connection.
            Cause::CongestionWindow => {
                self.setup.load.connection_per_request || self.setup.hosts[1].slow_start_after_idle
            }
            _ => true,
        };
        let absent = if cause == Cause::LinkFull { LINK_IDLE } else { ABSENT };
        match (is_present, share(cause) < absent) {
            (true, _) if is_claimed => Some(true),
            (false, true) => Some(false),
            _ => None,
        }
    }

    /// Whether the analysis names a cause, by this kind or by one that means the same here.
    #[must_use]
    pub fn is_found(&self, cause: Cause) -> bool {
        self.said
            .iter()
            .any(|said| said.kind == cause.name() || self.also_named(cause).contains(&said.kind.as_str()))
    }

    /// Other names of a cause in this setup. Clients that are always ready fall into step with a timer: each response takes as long
    /// as the one before, as from a server that needs that time.
    fn also_named(&self, cause: Cause) -> &'static [&'static str] {
        match cause {
            Cause::ServerTimer if self.setup.is_eager() => &["slow_target"],
            _ => cause.also_named(),
        }
    }

    /// The verdict of a kind, if it is a false alarm.
    #[must_use]
    pub fn false_alarm(&self, cause: Cause) -> Option<&Said> {
        let is_there = |cause: &Cause| {
            let absent = if *cause == Cause::LinkFull { LINK_IDLE } else { ABSENT };
            self.truths.get(cause).is_some_and(|truth| truth.share >= absent)
        };
        if is_there(&cause) || cause.excused_by().iter().any(is_there) {
            return None;
        }
        self.said.iter().find(|said| Cause::named(&said.kind) == Some(cause))
    }

    /// Gain that the verdict of a cause predicts, and the measured one, as factors on the rate; in closed loops only, because
    /// nothing changes the rate of the others. Some remedies have a size, which the verdict cannot know: eight times as many in
    /// flight, ten times the link's rate. They gain as much at most.
    #[must_use]
    pub fn gain(&self, cause: Cause) -> Option<Compared> {
        if !matches!(self.setup.load.arrivals, Arrivals::Closed { .. }) {
            return None;
        }
        let said = self.said.iter().find(|said| said.kind == cause.name())?;
        let (least, most) = said.factor?;
        let size = cause.remedy_size();
        let measured = self.truths.get(&cause)?.factor?;
        Some(Compared { least: least.min(size), most: most.min(size), measured })
    }
}

/// A gain is right if both ends of its interval are within this share of the measured one.
const NEAR: f64 = 0.2;

/// A predicted gain beside the measured one, as factors on the rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Compared {
    /// The least that is predicted.
    pub least: f64,
    /// The most that is predicted.
    pub most: f64,
    /// What removing the cause gained.
    pub measured: f64,
}

impl Compared {
    /// Whether both ends of the prediction are near the measured gain.
    #[must_use]
    pub fn is_right(&self) -> bool {
        [self.least, self.most].iter().all(|end| (end / self.measured - 1.0).abs() <= NEAR)
    }

    /// Whether the measured gain is near the predicted interval, but an end of that is not near the gain: true, but vague.
    #[must_use]
    pub fn is_wide(&self) -> bool {
        let reaches = self.least <= self.measured * (1.0 + NEAR) && self.most >= self.measured * (1.0 - NEAR);
        reaches && !self.is_right()
    }

    /// By what factor the further end of the prediction is off, as a logarithm.
    #[must_use]
    pub fn off(&self) -> f64 {
        [self.least, self.most].iter().map(|end| (end / self.measured).ln().abs()).fold(0.0, f64::max)
    }
}

/// The captures of a setup.
#[must_use]
pub fn captured(setup: &Setup) -> (Run, Vec<CaptureBytes>) {
    let mut recorder = Recorder::new(setup);
    let run = run(setup, Some(&mut recorder));
    (run, recorder.finish(setup))
}

/// What the analysis finds in captures.
///
/// # Panics
/// When it refuses them: they are sound.
#[must_use]
pub fn analysed(setup: &Setup, captures: Vec<CaptureBytes>) -> Option<AnalysisResult> {
    let input = |capture: CaptureBytes| {
        let file = CaptureFile::read("simulated", Box::new(std::io::Cursor::new(capture.pcapng)));
        Input { file: file.expect("a sound file"), place: capture.place }
    };
    let wire = setup.tap.knows_rate.then_some(Wire {
        bits_per_second: setup.path.bits_per_second,
        mtu_bytes: setup.path.mtu,
        tcpip_bytes: 52,
        mac_bytes: 38,
    });
    let options = Options { modes: false, wire, ..Options::default() };
    let inputs = captures.into_iter().map(input).collect();
    Analysis::run(inputs, &options, None, &mut |_| (), &|| false).ok()
}

/// What each cause does to a setup.
fn truths(setup: &Setup, with: &Run) -> BTreeMap<Cause, Truth> {
    let mut truths = BTreeMap::new();
    let path = &setup.path;
    if path.bloat.is_none() && with.queue_ns >= path.rtt_ns.max(QUEUE) {
        // The service fills the queue itself: it is there, and nothing is there that would be removed.
        truths.insert(Cause::Bufferbloat, Truth { share: (PRESENT + ABSENT) / 2.0, factor: None });
    }
    for &cause in Cause::ALL {
        let base = cause.measured_in(setup);
        let without = cause.removed(&base);
        if without == base && cause != Cause::NoResponse {
            continue;
        }
        let share_of = |outcome| Truth { share: with.share(outcome), factor: None };
        let truth = match cause {
            Cause::NoResponse => share_of(Outcome::GivenUp),
            Cause::FailedConnects => share_of(Outcome::Refused),
            Cause::Resets => share_of(Outcome::Reset),
            Cause::ErrorAnswers => share_of(Outcome::Error),
            Cause::CaptureLoss | Cause::ClockStep => Truth { share: 1.0, factor: None },
            _ => {
                let own = (base != *setup).then(|| run(&base, None));
                let (base, without) = (own.as_ref().unwrap_or(with), run(&without, None));
                let factor = without.rate() / base.rate().max(f64::MIN_POSITIVE);
                let share = match cause {
                    Cause::SlowInitiator | Cause::QueueDepthLow => 1.0 - 1.0 / factor.max(f64::MIN_POSITIVE),
                    Cause::LinkFull => with.link_busy,
                    _ => (base.time_ns() - without.time_ns()) / with.time_ns().max(f64::MIN_POSITIVE),
                };
                Truth { share, factor: if own.is_some() { None } else { Some(factor) } }
            }
        };
        truths.insert(cause, truth);
    }
    truths
}

/// Judges the setup of a seed.
#[must_use]
pub fn judged(seed: u64, only: Option<Cause>) -> Judged {
    let (setup, planted) = drawn(seed, only);
    judge(setup, planted)
}

/// Judges a setup.
#[must_use]
pub fn judge(setup: Setup, planted: Vec<Cause>) -> Judged {
    let (with, captures) = captured(&setup);
    let truths = truths(&setup, &with);
    let result = analysed(&setup, captures);
    let mut said = Vec::new();
    let mut explained = None;
    if let Some(result) = &result {
        for verdict in &result.verdicts {
            let kind = serde_json::to_value(verdict.kind).ok();
            said.push(Said {
                kind: kind.and_then(|kind| kind.as_str().map(str::to_owned)).unwrap_or_default(),
                text: verdict.text.clone(),
                factor: verdict.gain.as_ref().map(|gain| (gain.throughput_least, gain.throughput_factor)),
                cost_ns: verdict.cost_us * 1000.0,
            });
        }
        let excess = &result.excess;
        if excess.excess_us > 0.05 * excess.operations_us {
            explained = Some((excess.verdicts_us + excess.minor_us) / excess.excess_us);
        }
    }
    let account = result.map_or_else(String::new, |result| format!("{:?}", result.excess));
    Judged { seed: setup.seed, setup, planted, truths, said, explained, account }
}
