//! The stanzas of captured traffic: the breakdown of exchanges by connection, operation, block size and queue
//! depth.
//!
//! Memory does not grow with the length of a capture: sums, histograms, and a sample of bounded size.

use std::collections::HashMap;

use record::{Observed, OpKind, Outcome, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::parts::{Part, PartFigures, Tally};

/// Most stanzas; the exchanges of further ones are counted together.
pub const STANZAS_MAX: usize = 256;
/// Connection number of the stanza for exchanges beyond the limit.
pub const OTHERS: u32 = u32::MAX;

/// The common properties of the exchanges of a stanza.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Key {
    connection: u32,
    verb: Verb,
    /// Exact for SCSI; otherwise rounded down to a power of two.
    bytes: u32,
    /// The queue depth, rounded up to a power of two.
    depth: u32,
}

impl Key {
    fn of(observed: &Observed) -> Self {
        let op = &observed.op;
        let bytes = match op.verb {
            Verb::Scsi(_) => op.data_bytes,
            _ => op.data_bytes.checked_ilog2().map_or(0, |log| 1 << log),
        };
        let depth = observed.detail.ring_depth.max(1).next_power_of_two();
        Self { connection: op.connection, verb: op.verb, bytes, depth }
    }
}

/// A stanza's breakdown, as reports show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TrafficStanza {
    /// The connection; absent for the stanza of exchanges beyond the limit.
    pub connection: Option<u32>,
    /// The operation's name.
    pub operation: String,
    /// The direction of the data.
    pub kind: OpKind,
    /// Mean data of an exchange, bytes.
    pub block_size_bytes: f64,
    /// Operations in the ring when a request left (in flight, or completed and not yet replaced): least, mean and
    /// most.
    pub queue_depth: (u32, f64, u32),
    /// Exchanges.
    pub operations: u64,
    /// Exchanges that only one of the connection's two capture points saw: they are in no part, because their time is not
    /// comparable with that of the others.
    pub left_out: u64,
    /// Exchanges with an error status.
    pub failed: u64,
    /// From the first exchange to the last, seconds.
    pub seconds: f64,
    /// Exchanges per second.
    pub iops: f64,
    /// Data per second.
    pub bytes_per_second: f64,
    /// Mean number of pieces of the responses that come in three or more; absent if none does.
    pub chunks: Option<f64>,
    /// Figures of the parts.
    pub parts: Vec<PartFigures>,
    /// Calculated time on the wire, both directions, microseconds; absent if the link's rate is unknown.
    pub wire_us: Option<f64>,
    /// Request path + server + response path against the round trip, where both sides were seen.
    pub stages_error: Option<f64>,
    /// IOPS x (round trip + client) against the mean queue depth, where each request took the place of a
    /// response.
    pub queue_depth_error: Option<f64>,
    /// Whether both are within the limits of [`crate::Joined`]; absent for turns that may hold several requests.
    pub closes: Option<bool>,
}

impl TrafficStanza {
    /// The figures of a part.
    #[must_use]
    pub fn part(&self, part: Part) -> Option<&PartFigures> {
        self.parts.iter().find(|p| p.part == part)
    }

    /// The mean of a part, microseconds.
    #[must_use]
    pub fn mean_us(&self, part: Part) -> Option<f64> {
        self.part(part).map(|p| p.mean_us)
    }
}

/// The sums of a stanza.
#[derive(Debug)]
struct Sums {
    kind: OpKind,
    operations: u64,
    left_out: u64,
    failed: u64,
    data_bytes: u64,
    request_bytes: u64,
    response_bytes: u64,
    overlapping: u64,
    chunks: u64,
    depth: (u32, u64, u32),
    first_ns: u64,
    last_ns: u64,
    parts: [Tally; Part::ALL.len()],
}

impl Sums {
    fn new(kind: OpKind) -> Self {
        Self {
            kind,
            operations: 0,
            left_out: 0,
            failed: 0,
            data_bytes: 0,
            request_bytes: 0,
            response_bytes: 0,
            overlapping: 0,
            chunks: 0,
            depth: (u32::MAX, 0, 0),
            first_ns: u64::MAX,
            last_ns: 0,
            parts: Default::default(),
        }
    }

    #[inline]
    fn part(&mut self, part: Part, ns: Option<i64>) {
        if let Some(ns) = ns {
            self.parts[part as usize].add(ns);
        }
    }

    #[inline]
    fn add(&mut self, observed: &Observed) {
        let (op, seen, split) = (&observed.op, &observed.detail, observed.split());
        self.operations += 1;
        self.failed += u64::from(op.outcome == Outcome::Failed);
        self.data_bytes += u64::from(op.data_bytes);
        self.request_bytes += u64::from(op.request_bytes);
        self.response_bytes += u64::from(op.response_bytes);
        self.overlapping += u64::from(seen.overlaps || seen.has_several || seen.is_unread);
        let (least, sum, most) = self.depth;
        self.depth =
            (least.min(seen.ring_depth), sum + u64::from(seen.ring_depth), most.max(seen.ring_depth));
        self.first_ns = self.first_ns.min(seen.request.began.ns().unwrap_or(u64::MAX));
        self.last_ns = self.last_ns.max(seen.response.ended.ns().unwrap_or(0));
        if observed.is_partial {
            self.left_out += 1;
            return;
        }
        self.part(Part::RoundTrip, split.outside_ns);
        self.part(Part::Client, seen.thought_ns.map(u64::cast_signed));
        if seen.request.last_frame != seen.request.first_frame {
            self.part(Part::Sending, seen.request.ended.since(seen.request.began));
        }
        if seen.response.last_frame != seen.response.first_frame {
            self.part(Part::FirstByte, seen.response.began.since(seen.request.ended));
            self.part(Part::Transfer, seen.transfer_ns());
        }
        if seen.asked_for_data.is_known() {
            self.part(Part::DataPhase, seen.data_ended.since(seen.asked_for_data));
        }
        let signed = |ns: u64| i64::try_from(ns).unwrap_or(i64::MAX);
        self.part(Part::SetUp, seen.setup_ns.map(signed));
        if let Some(gap_ns) = seen.chunks.gap_mean_ns() {
            self.chunks += u64::from(seen.chunks.count);
            self.part(Part::Gap, Some(signed(gap_ns)));
            self.part(Part::LongestGap, Some(signed(seen.chunks.gap_max_ns)));
        }
        self.part(Part::Server, split.server_ns);
        self.part(Part::Network, split.network_ns);
        self.part(Part::RequestPath, split.request_path_ns);
        self.part(Part::ResponsePath, split.response_path_ns);
        let whole_ns = observed.whole_ns();
        self.part(Part::Whole, (whole_ns > 0).then(|| whole_ns.try_into().unwrap_or(i64::MAX)));
    }
}

/// All stanzas of some traffic.
#[derive(Debug, Default)]
pub struct Traffic {
    places: HashMap<Key, usize>,
    sums: Vec<(Key, Sums)>,
    recent: Option<(Key, usize)>,
}

/// Bytes of a link's rate, for the arithmetic of the wire.
pub type WireTime<'a> = &'a dyn Fn(f64, f64) -> f64;

impl Traffic {
    /// Adds an operation and returns the number of its stanza.
    #[inline]
    pub fn add(&mut self, observed: &Observed) -> usize {
        let key = Key::of(observed);
        let place = match self.recent {
            Some((recent, place)) if recent == key => place,
            _ => self.place(key, observed.op.kind),
        };
        self.recent = Some((key, place));
        self.sums[place].1.add(observed);
        place
    }

    fn place(&mut self, key: Key, kind: OpKind) -> usize {
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        let key = if self.sums.len() < STANZAS_MAX {
            key
        } else {
            Key { connection: OTHERS, verb: Verb::Turn, bytes: 0, depth: 0 }
        };
        if let Some(&place) = self.places.get(&key) {
            return place;
        }
        self.sums.push((key, Sums::new(kind)));
        self.places.insert(key, self.sums.len() - 1);
        self.sums.len() - 1
    }

    /// The stanzas, by their numbers; `wire_us` returns the time on the wire of a request and a response, given
    /// their bytes above TCP.
    #[must_use]
    pub fn stanzas(&self, wire_us: Option<WireTime<'_>>) -> Vec<TrafficStanza> {
        let own = |(key, sums): &(Key, Sums)| stanza(key, sums, wire_us, self.is_mixed(key, sums));
        self.sums.iter().map(own).collect()
    }

    /// Whether a connection has other operations meanwhile: then the queue depth, which is that of all, is not IOPS x RTT of some.
    fn is_mixed(&self, key: &Key, sums: &Sums) -> bool {
        let others = self.sums.iter().filter(|(other, theirs)| {
            let is_meanwhile = theirs.first_ns <= sums.last_ns && theirs.last_ns >= sums.first_ns;
            other.connection == key.connection && other != key && is_meanwhile
        });
        let operations: u64 = others.map(|(_, theirs)| theirs.operations).sum();
        operations as f64 > MIXED_FROM * sums.operations as f64
    }
}

/// Share of turns that may hold several requests from which on a stanza is none of requests.
const OVERLAPPING_FROM: f64 = 0.01;
/// Other operations of a connection up to this share are those of a load's begin and end.
const MIXED_FROM: f64 = 0.01;

fn stanza(key: &Key, sums: &Sums, wire_us: Option<WireTime<'_>>, is_mixed: bool) -> TrafficStanza {
    let count = sums.operations.max(1) as f64;
    let figures = |part: Part| sums.parts[part as usize].figures(part);
    let parts: Vec<PartFigures> = Part::ALL.into_iter().filter_map(figures).collect();
    let mean = |part: Part| parts.iter().find(|p| p.part == part).map(|p| p.mean_us);
    let seconds = sums.last_ns.saturating_sub(sums.first_ns) as f64 / 1e9;
    let iops = if seconds > 0.0 { count / seconds } else { 0.0 };
    let depth = sums.depth.1 as f64 / count;
    let path = mean(Part::RequestPath).zip(mean(Part::ResponsePath));
    let stages_error = path
        .zip(mean(Part::Server))
        .zip(mean(Part::RoundTrip))
        .map(|(((request, response), server), round_trip)| (request + server + response) / round_trip - 1.0);
    // The ring is closed only if nearly every request replaced a response.
    let is_ring =
        !is_mixed && parts.iter().any(|p| p.part == Part::Client && p.operations as f64 > 0.9 * count);
    let round_trip = mean(Part::RoundTrip).or(mean(Part::Server));
    let queue_depth_error = mean(Part::Client).zip(round_trip).filter(|_| is_ring && count > 100.0).map(
        |(client, round_trip)| {
            let cycle = client + round_trip + mean(Part::Sending).unwrap_or(0.0);
            record::split::queue_depth(iops, cycle) / depth - 1.0
        },
    );
    let within = |error: Option<f64>, limit: f64| error.map(|e| e.abs() <= limit);
    let closes = [
        within(stages_error, crate::Joined::RTT_LIMIT),
        within(queue_depth_error, crate::Joined::QUEUE_DEPTH_LIMIT),
    ];
    TrafficStanza {
        connection: (key.connection != OTHERS).then_some(key.connection),
        operation: if key.connection == OTHERS { "others".to_owned() } else { key.verb.name() },
        kind: sums.kind,
        block_size_bytes: sums.data_bytes as f64 / count,
        queue_depth: (sums.depth.0.min(sums.depth.2), depth, sums.depth.2),
        operations: sums.operations,
        left_out: sums.left_out,
        failed: sums.failed,
        seconds,
        iops,
        bytes_per_second: if seconds > 0.0 { sums.data_bytes as f64 / seconds } else { 0.0 },
        chunks: match sums.parts[Part::Gap as usize].count() {
            0 => None,
            streams => Some(sums.chunks as f64 / streams as f64),
        },
        parts,
        wire_us: wire_us.map(|of| of(sums.request_bytes as f64 / count, sums.response_bytes as f64 / count)),
        stages_error,
        queue_depth_error,
        // What is several requests at times is no operation whose times could be summed.
        closes: if sums.overlapping as f64 > OVERLAPPING_FROM * count {
            None
        } else {
            closes.into_iter().flatten().reduce(|a, b| a && b)
        },
    }
}
