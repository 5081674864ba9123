//! Rules about a load test: counters that moved under load, loss without a queue, and two directions that share one rate.

use std::collections::BTreeMap;

use netlink::route::Link;

use super::draft::{Draft as _, finding, rate, time};
use super::link::under_load;
use crate::facts::link::{LinkFacts, Watched};
use crate::facts::load::{LoadFacts, LoadRun, LoadedLink, MEASURED_SECONDS_MIN, StreamFacts};
use crate::facts::{Facts, Unseen};
use crate::finding::{Finding, Severity};

/// The fastest half-duplex Ethernet (IEEE 802.3), with some room: what both directions share above it is a processor or a bus.
const HALF_DUPLEX_BITS_MAX: f64 = 1.05e9;

/// Both together below this share of the sum of each alone: the directions are not independent.
const TOGETHER_SHARE_MAX: f64 = 0.7;

/// Each direction alone is within this factor of the other: a path of two speeds, such as ADSL, loses some of the faster direction
/// to the acknowledgements that the slower one delays.
const SYMMETRIC_FACTOR: f64 = 2.0;

/// Share of the segments, and their number, from which retransmissions cost time.
const LOST_SHARE: f64 = 0.01;
const LOST_SEGMENTS: u32 = 10;

/// A median round trip time under load of more than this many of the shortest ones, and this much above it, is that of a queue. A
/// full queue loses segments, which is how TCP finds the rate, and no fault.
const QUEUE_FACTOR: f64 = 2.0;
const QUEUE_US: f64 = 2000.0;

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let Some(load) = &facts.load else { return Vec::new() };
    let mut all = link_errors(load);
    all.extend(shared_rate(load));
    all.extend(load.runs().flat_map(|(run, measured)| lost(load, run, measured)));
    all
}

/// The rules about counters that move, for the interfaces of both ends: over all runs, so that each fault is told once.
fn link_errors(load: &LoadFacts) -> Vec<Finding> {
    let sum = |of: fn(&LoadRun) -> Option<&LoadedLink>| {
        let links: Vec<&LoadedLink> = load.runs().filter_map(|(_, run)| of(run)).collect();
        let first = *links.first()?;
        let mut counters = BTreeMap::<String, u64>::new();
        for (name, grown) in links.iter().flat_map(|link| &link.counters) {
            let place = counters.entry(name.clone()).or_default();
            *place = place.saturating_add(*grown);
        }
        let watched =
            Watched { seconds: links.iter().map(|link| link.seconds).sum(), carrier_changes: 0, counters };
        let link =
            Link { name: first.interface.clone(), is_up: true, has_carrier: Some(true), ..Link::default() };
        Some(LinkFacts { link, watched: Some(watched), ..LinkFacts::default() })
    };
    let here = sum(|run| run.here.as_ref()).map(|link| under_load(&link)).unwrap_or_default();
    let there = sum(|run| run.there.as_ref()).map(|link| under_load(&link)).unwrap_or_default();
    let here = here.into_iter().map(loaded);
    let there = there.into_iter().map(|found| super::peer::of_other_host(&loaded(found), &load.peer));
    here.chain(there).collect()
}

fn loaded(found: Finding) -> Finding {
    Finding { measured: format!("{}, under load", found.measured), ..found }
}

/// What both directions carried, where together it is little more than one of them alone.
struct Shared<'load> {
    to_alone: f64,
    from_alone: f64,
    together: &'load LoadRun,
    to: &'load StreamFacts,
    from: &'load StreamFacts,
    sum: f64,
}

impl<'load> Shared<'load> {
    fn of(load: &'load LoadFacts) -> Option<Self> {
        let to_alone = load.to_peer.as_ref()?.to_peer.as_ref()?.received.rate()?;
        let from_alone = load.from_peer.as_ref()?.from_peer.as_ref()?.received.rate()?;
        let together = load.together.as_ref()?;
        let (to, from) = (together.to_peer.as_ref()?, together.from_peer.as_ref()?);
        let sum = to.received.rate()? + from.received.rate()?;
        let (slower, faster) = (to_alone.min(from_alone), to_alone.max(from_alone));
        let is_shared =
            sum < TOGETHER_SHARE_MAX * (to_alone + from_alone) && slower * SYMMETRIC_FACTOR >= faster;
        (is_shared && faster <= HALF_DUPLEX_BITS_MAX).then_some(Self {
            to_alone,
            from_alone,
            together,
            to,
            from,
            sum,
        })
    }

    /// Why the rates say nothing about the path: a processor that was busy is shared by both directions, as a half-duplex link is,
    /// and it drops what it cannot take. A counter of a shared medium that moved is evidence all the same.
    fn doubt(&self) -> Option<String> {
        let run = self.together;
        let ends = [("here", run.processors_here), ("there", run.processors_there)];
        let busy: Vec<String> = ends
            .iter()
            .filter_map(|(place, processors)| Some(format!("{place}, {}", processors.as_ref()?.limit()?)))
            .collect();
        (!busy.is_empty() && moved(run).is_empty()).then(|| busy.join("; "))
    }
}

/// What a load test leaves open: what, and why.
pub(crate) fn undecided(load: &LoadFacts) -> Vec<Unseen> {
    let mut all = Vec::new();
    let doubted = Shared::of(load).and_then(|shared| Some((shared.doubt()?, shared)));
    if let Some((busy, shared)) = doubted {
        all.push(Unseen {
            what: format!("whether the directions to and from {} share a link", load.peer),
            why: format!(
                "cannot tell: the processors were busy ({busy}); alone {} and {}, together {} + {}. Repeat the test while they are idle",
                rate(shared.to_alone),
                rate(shared.from_alone),
                rate(shared.to.received.bits_per_second),
                rate(shared.from.received.bits_per_second),
            ),
        });
    }
    let streams = load.runs().flat_map(|(_, run)| [run.to_peer, run.from_peer]).flatten();
    let short =
        streams.filter(|stream| stream.received.rate().is_none()).map(|stream| stream.received.seconds);
    if let Some(longest) = short.reduce(f64::max) {
        all.push(Unseen {
            what: format!("the rate of the load test with {}", load.peer),
            why: format!(
                "too short to measure: data took {} where {} are the least; raise --load-bytes or --load-time",
                time(longest * 1e6),
                time(MEASURED_SECONDS_MIN * 1e6)
            ),
        });
    }
    all
}

/// Both directions together carry little more than one of them alone.
fn shared_rate(load: &LoadFacts) -> Option<Finding> {
    let shared = Shared::of(load).filter(|shared| shared.doubt().is_none())?;
    let Shared { to_alone, from_alone, together, to, from, sum } = shared;
    let lost = is_lossy(to) || is_lossy(from);
    let mut measured = format!(
        "to {peer} alone {}, from it alone {}; both together {} + {}",
        rate(to_alone),
        rate(from_alone),
        rate(to.received.bits_per_second),
        rate(from.received.bits_per_second),
        peer = load.peer
    );
    if lost {
        measured += &format!(
            "; {} and {} segments sent again ({:.1} % and {:.1} %)",
            retransmitted(to),
            retransmitted(from),
            to.retransmitted_share() * 100.0,
            from.retransmitted_share() * 100.0
        );
    }
    measured += &moved(together);
    let (id, severity, why) = if lost {
        (
            "half-duplex-suspected",
            Severity::Broken,
            "The two directions take each other's capacity and lose segments as they do: a link of the path is half duplex, or its \
             two ends disagree about the duplex. A shaper that both directions share looks the same.",
        )
    } else {
        (
            "directions-share-rate",
            Severity::Slow,
            "The two directions take each other's capacity without loss: a half-duplex link or a wireless one, a shaper or a \
             processor that both directions share.",
        )
    };
    let interface = together.here.as_ref().map(|link| link.interface.as_str());
    let mut found = finding(id, severity, &load.peer, measured, why)
        .carries_at_most(sum)
        .other_end("read speed and duplex of every port on the path; let both ends of each link negotiate");
    if let Some(interface) = interface {
        found = found
            .command(format!("roundtrip host show {interface}"))
            .command(format!("ethtool -S {interface}"));
    }
    Some(found)
}

/// Counters that a shared medium moves.
fn moved(run: &LoadRun) -> String {
    let of = |link: &Option<LoadedLink>, place: &str| -> Vec<String> {
        let is_told =
            |name: &str| name.contains("collision") || name.contains("crc") || name.contains("window_errors");
        let counters = link.iter().flat_map(|link| &link.counters).filter(|(name, _)| is_told(name));
        counters.map(|(name, grown)| format!("{name} {place} {grown}")).collect()
    };
    let all = [of(&run.here, "here"), of(&run.there, "there")].concat();
    if all.is_empty() { String::new() } else { format!("; counters that moved: {}", all.join(", ")) }
}

fn retransmitted(stream: &StreamFacts) -> u32 {
    stream.sender.map_or(0, |sent| sent.retransmitted_segments)
}

fn is_lossy(stream: &StreamFacts) -> bool {
    retransmitted(stream) >= LOST_SEGMENTS && stream.retransmitted_share() >= LOST_SHARE
}

/// Segments that are lost in a run of one direction although no queue has built up.
fn lost(load: &LoadFacts, name: &str, run: &LoadRun) -> Option<Finding> {
    let (stream, way) = match (&run.to_peer, &run.from_peer) {
        (Some(stream), None) => (stream, "to"),
        (None, Some(stream)) => (stream, "from"),
        // Acknowledgements wait behind the data of the other direction: loss is judged where a direction is alone.
        _ => return None,
    };
    let sent = stream.sender?;
    let (least, median) = (f64::from(sent.rtt_min_us), f64::from(sent.rtt_median_us));
    let has_queue = median > least * QUEUE_FACTOR && median > least + QUEUE_US;
    if !is_lossy(stream) || has_queue {
        return None;
    }
    let measured = format!(
        "{name}: {} of {} segments sent again ({:.1} %){}; round trip {} under load, {} at least",
        sent.retransmitted_segments,
        sent.segments,
        stream.retransmitted_share() * 100.0,
        stream.received.rate().map(|bits| format!(" at {}", rate(bits))).unwrap_or_default(),
        time(median),
        time(least)
    );
    let why = "Segments are lost although no queue has built up, so not for want of room in a long one: damaged frames, a policer, or \
               a buffer of a few frames. Each loss halves the rate.";
    let subject = format!("load {way} {}", load.peer);
    let found = finding("retransmissions", Severity::Slow, &subject, measured, why);
    Some(
        found
            .command("roundtrip host check --watch 10s".to_owned())
            .other_end("compare the error and drop counters of both ends and of the ports between"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::facts::load::{LoadedProcessors, Received};

    fn run(to: Option<f64>, from: Option<f64>) -> LoadRun {
        let stream = |megabits: f64| StreamFacts {
            received: Received::new((megabits * 1e6 / 8.0) as u64, 1.0),
            sender: None,
        };
        LoadRun { to_peer: to.map(stream), from_peer: from.map(stream), ..LoadRun::default() }
    }

    fn load(together: LoadRun) -> LoadFacts {
        LoadFacts {
            peer: "store2".to_owned(),
            to_peer: Some(run(Some(200.0), None)),
            from_peer: Some(run(None, Some(210.0))),
            together: Some(together),
            ..LoadFacts::default()
        }
    }

    #[test]
    fn directions_that_share_a_busy_processor_are_left_open_and_not_a_finding() {
        let idle = load(run(Some(101.0), Some(104.0)));
        assert!(shared_rate(&idle).is_some() && undecided(&idle).is_empty());
        let busy = LoadedProcessors { busy_share: 0.97, ..LoadedProcessors::default() };
        let together = LoadRun { processors_there: Some(busy), ..run(Some(101.0), Some(104.0)) };
        let busy = load(together.clone());
        assert!(shared_rate(&busy).is_none());
        let [open] = undecided(&busy).try_into().unwrap_or_else(|all| panic!("{all:?}"));
        assert_eq!(open.what, "whether the directions to and from store2 share a link");
        assert_eq!(
            open.why,
            "cannot tell: the processors were busy (there, all processors 97 % busy); alone 200.00 Mb/s and 210.00 Mb/s, together \
             101.00 Mb/s + 104.00 Mb/s. Repeat the test while they are idle"
        );
        // Directions that are independent are, whoever was busy.
        let independent =
            LoadRun { processors_there: together.processors_there, ..run(Some(199.0), Some(200.0)) };
        assert!(undecided(&load(independent)).is_empty());
    }

    #[test]
    fn a_run_that_is_too_short_is_named_with_its_time() {
        let short = StreamFacts { received: Received::new(1 << 20, 0.000_08), sender: None };
        let together = LoadRun { to_peer: Some(short), ..run(None, Some(100.0)) };
        let load = load(together);
        assert!(shared_rate(&load).is_none());
        let [open] = undecided(&load).try_into().unwrap_or_else(|all| panic!("{all:?}"));
        assert_eq!(
            (open.what.as_str(), open.why.as_str()),
            (
                "the rate of the load test with store2",
                "too short to measure: data took 80.0 us where 50.0 ms are the least; raise --load-bytes or --load-time"
            )
        );
    }
}
