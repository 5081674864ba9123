//! A load test to a peer: what each direction carried alone and both together, what was sent again, and which counters moved.

use std::collections::BTreeMap;

use netlink::ethtool::Duplex;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A load test to a peer: one TCP connection for each run, which fills the path.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadFacts {
    /// The peer as it was named.
    pub peer: String,
    /// Address and port of the server there.
    pub address: String,
    /// How long each run was to send, seconds.
    pub asked_seconds: f64,
    /// This host sends alone; missing where the test ended before.
    pub to_peer: Option<LoadRun>,
    /// The peer sends alone.
    pub from_peer: Option<LoadRun>,
    /// Both send at the same time.
    pub together: Option<LoadRun>,
}

impl LoadFacts {
    /// The runs that took place, with their names.
    pub fn runs(&self) -> impl Iterator<Item = (&'static str, &LoadRun)> {
        let all = [
            ("to the peer alone", &self.to_peer),
            ("from the peer alone", &self.from_peer),
            ("both together", &self.together),
        ];
        all.into_iter().filter_map(|(name, run)| Some((name, run.as_ref()?)))
    }

    /// Whether all three runs took place.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.runs().count() == 3
    }
}

/// One run of a load test.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadRun {
    /// The data that this host sent; missing in a run in which it sent none.
    pub to_peer: Option<StreamFacts>,
    /// The data that the peer sent.
    pub from_peer: Option<StreamFacts>,
    /// This host's interface during the run.
    pub here: Option<LoadedLink>,
    /// The peer's interface during the run, as the peer reports it.
    pub there: Option<LoadedLink>,
    /// This host's processors during the run; missing where they could not be read.
    #[serde(default)]
    pub processors_here: Option<LoadedProcessors>,
    /// The peer's processors, as the peer reports them.
    #[serde(default)]
    pub processors_there: Option<LoadedProcessors>,
}

/// The data of one direction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct StreamFacts {
    /// What arrived.
    #[serde(flatten)]
    pub received: Received,
    /// What the sender's kernel counted; missing where it could not be read.
    pub sender: Option<Sent>,
}

impl StreamFacts {
    /// Share of the segments that were sent again; 0 where the sender's counters could not be read.
    #[must_use]
    pub fn retransmitted_share(&self) -> f64 {
        let share = |sent: Sent| f64::from(sent.retransmitted_segments) / f64::from(sent.segments.max(1));
        self.sender.map_or(0.0, share)
    }
}

/// What a receiver counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Received {
    /// Bytes that arrived within the time of the run.
    pub bytes: u64,
    /// From the first to the last of them, seconds.
    pub seconds: f64,
    /// The rate, bits per second; 0 where the data ended too early to measure one.
    pub bits_per_second: f64,
}

/// The shortest time of data, seconds, that has a rate: half of the shortest run. What is shorter was in the buffers of both ends
/// when the clock began, and its rate is that of copying memory.
pub const MEASURED_SECONDS_MIN: f64 = 0.05;

impl Received {
    /// What arrived, with its rate.
    #[must_use]
    pub fn new(bytes: u64, seconds: f64) -> Self {
        let bits_per_second =
            if seconds >= MEASURED_SECONDS_MIN { bytes as f64 * 8.0 / seconds } else { 0.0 };
        Self { bytes, seconds, bits_per_second }
    }

    /// The rate, bits per second, where it lasted long enough to have one.
    #[must_use]
    pub fn rate(&self) -> Option<f64> {
        Some(self.bits_per_second).filter(|rate| *rate > 0.0)
    }
}

/// How busy a host's processors were during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct LoadedProcessors {
    /// Share of the time in which all processors together were not idle.
    pub busy_share: f64,
    /// Share of its time that the processor with the most spent in softirqs.
    pub softirq_share: f64,
    /// CPU time of the process that tests or serves, divided by the time of the run: 1 is one processor.
    pub process_share: f64,
}

impl LoadedProcessors {
    /// Why the processors may have been the limit: shares above this leave a TCP connection nothing to wait for but a processor.
    const BUSY_SHARE: f64 = 0.9;

    /// In words, where the processors may have been the limit of the run.
    #[must_use]
    pub fn limit(&self) -> Option<String> {
        let percent = |share: f64| share * 100.0;
        if self.busy_share >= Self::BUSY_SHARE {
            Some(format!("all processors {:.0} % busy", percent(self.busy_share)))
        } else if self.softirq_share >= Self::BUSY_SHARE {
            Some(format!("one processor {:.0} % of its time in softirqs", percent(self.softirq_share)))
        } else if self.process_share >= Self::BUSY_SHARE {
            Some(format!("the test itself {:.0} % of a processor", percent(self.process_share)))
        } else {
            None
        }
    }
}

/// What the sender's kernel counted about its connection (TCP_INFO).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Sent {
    /// Segments with data that were sent, with those that were sent again.
    pub segments: u32,
    /// Segments that were sent again.
    pub retransmitted_segments: u32,
    /// The shortest round trip time of the connection, us.
    pub rtt_min_us: u32,
    /// The median of the smoothed round trip time under load, us: readings every 50 ms.
    pub rtt_median_us: u32,
    /// The largest of these readings, us.
    pub rtt_max_us: u32,
}

/// An interface while it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LoadedLink {
    /// Its name.
    pub interface: String,
    /// Its speed, Mb/s, where the driver reports one.
    pub speed_mbps: Option<u32>,
    /// Its duplex, where the driver reports it.
    pub duplex: Option<Duplex>,
    /// How long it was watched, seconds.
    pub seconds: f64,
    /// By how much each counter grew, by the names of `links[].watched.counters`; those that did not are left out.
    pub counters: BTreeMap<String, u64>,
}
