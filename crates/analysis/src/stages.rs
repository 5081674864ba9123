//! The ring's ten stages by the kernel's own events: independent of capture points, of the client's clock readings and of CPU
//! accounts, so that it can contradict them.
//!
//! Ten points of the ring count operations: four calls of programs, two queues, two devices' transmissions and two arrivals. TCP
//! keeps the order, so an operation has passed a point when the point has counted its last byte. A stage lies between two
//! points; it holds as many operations as entered and did not leave (N), and each stays in it for a time W. In a steady state
//! W = N / rate (Little's law).
//! Counting begins before the load does, when every stage is empty.

mod causes;
mod counters;

pub use causes::{Cause, SideWork};
use record::KernelEvent;
use serde::{Deserialize, Serialize};

use self::causes::Timeline;
use self::counters::Counts;

/// A stage of the ring, in flow order from the client's receive call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// From the client's receive call to the send call of the operation's successor (CP, and the wait behind others: CW).
    ClientProgram,
    /// From the send call to the device's queue (CK, and what TCP holds back: CN).
    ClientSend,
    /// In the device's queue: the shaper.
    ClientQueue,
    /// From the client's device to the server's (CT, W1, SR).
    RequestPath,
    /// From the server's device to its receive call (SI, SQ).
    ServerReceive,
    /// From the receive call to the send call (SP, and the wait behind others: SW).
    ServerProgram,
    /// From the send call to the device's queue (SK, and what TCP holds back: SN).
    ServerSend,
    /// In the device's queue: the shaper.
    ServerQueue,
    /// From the server's device to the client's (ST, W2, CR).
    ResponsePath,
    /// From the client's device to its receive call (CI, CQ).
    ClientReceive,
}

impl Stage {
    /// All of them, in flow order.
    pub const ALL: [Self; 10] = [
        Self::ClientProgram,
        Self::ClientSend,
        Self::ClientQueue,
        Self::RequestPath,
        Self::ServerReceive,
        Self::ServerProgram,
        Self::ServerSend,
        Self::ServerQueue,
        Self::ResponsePath,
        Self::ClientReceive,
    ];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::ClientProgram => "client program",
            Self::ClientSend => "client send",
            Self::ClientQueue => "client queue",
            Self::RequestPath => "request path",
            Self::ServerReceive => "server receive",
            Self::ServerProgram => "server program",
            Self::ServerSend => "server send",
            Self::ServerQueue => "server queue",
            Self::ResponsePath => "response path",
            Self::ClientReceive => "client receive",
        }
    }

    /// The segment between capture points that contains it.
    #[must_use]
    pub fn segment(self) -> Segment {
        match self {
            Self::ClientProgram | Self::ClientSend | Self::ClientQueue | Self::ClientReceive => {
                Segment::Client
            }
            Self::RequestPath => Segment::RequestPath,
            Self::ServerReceive | Self::ServerProgram | Self::ServerSend | Self::ServerQueue => {
                Segment::Server
            }
            Self::ResponsePath => Segment::ResponsePath,
        }
    }
}

/// A segment of the ring between capture points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Segment {
    /// C2 to C1 of the successor: the client, both directions.
    Client,
    /// C1 to S1.
    RequestPath,
    /// S1 to S2.
    Server,
    /// S2 to C2.
    ResponsePath,
}

impl Segment {
    /// All of them, in flow order.
    pub const ALL: [Self; 4] = [Self::Client, Self::RequestPath, Self::Server, Self::ResponsePath];

    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::RequestPath => "request path",
            Self::Server => "server",
            Self::ResponsePath => "response path",
        }
    }
}

/// The CPUs of a side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideCpus {
    /// Of its thread.
    pub thread: u16,
    /// Of its receive softirq.
    pub softirq: u16,
}

/// What was recorded around a load of equal operations on one connection.
#[derive(Clone, Copy, Debug)]
pub struct TraceWindow<'a> {
    /// All events, from before the load's first operation to after its last, in the order of their times.
    pub events: &'a [KernelEvent],
    /// Start of the first operation and finish of the last, nanoseconds since the epoch: nothing is in flight before and after.
    pub load_ns: (u64, u64),
    /// The measured time, nanoseconds since the epoch.
    pub measured_ns: (u64, u64),
    /// Operations that the client issued from first to last.
    pub issued: u64,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Bytes of a request above TCP.
    pub request_bytes: u64,
    /// Bytes of a response above TCP.
    pub response_bytes: u64,
    /// The client's thread.
    pub client_thread: i32,
    /// Threads of the observers themselves.
    pub observers: &'a [i32],
    /// The client's CPUs.
    pub client_cpus: SideCpus,
    /// The server's CPUs.
    pub server_cpus: SideCpus,
    /// Whether interrupts and idle states are among the events.
    pub sees_interrupts: bool,
}

/// A stage in the measured time.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StageTimes {
    /// The stage.
    pub stage: Stage,
    /// N: operations in it, mean over time.
    pub operations: f64,
    /// W: mean time in it of the operations that the client received in the measured time, microseconds.
    pub mean_us: f64,
    /// How often it was seen empty.
    pub times_empty: u64,
    /// Fewest operations in it; negative if more left than entered, so that a counter lacks some.
    pub least: i64,
    /// Its time by cause, microseconds per operation. The sum is N / rate (Little's law): `mean_us`, unless the number of operations in it
    /// changed during the measured time.
    pub causes: Vec<CauseTime>,
}

impl StageTimes {
    /// Time of an operation by one cause, microseconds.
    #[must_use]
    pub fn of(&self, cause: Cause) -> f64 {
        self.causes.iter().filter(|c| c.cause == cause).map(|c| c.mean_us).sum()
    }
}

/// The time that operations spent in a stage while one thing was seen.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct CauseTime {
    /// What was seen.
    pub cause: Cause,
    /// Microseconds per operation.
    pub mean_us: f64,
}

/// Operations that a point counted from the load's first to its last.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PointCount {
    /// The stage that ends at the point.
    pub ends: Stage,
    /// Operations.
    pub operations: u64,
}

/// The ring as the kernel's events show it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Traced {
    /// Operations per second through the server's capture point in the measured time.
    pub iops: f64,
    /// The ten stages.
    pub stages: Vec<StageTimes>,
    /// What each point counted.
    pub counts: Vec<PointCount>,
    /// Messages per packet on the response path: more than 1 where responses share packets.
    pub responses_per_packet: f64,
    /// Mean time in which captures had an operation's request between the client's queue and its driver, microseconds: the capture
    /// point is in there.
    pub client_taps_us: f64,
    /// The same of its response and the server.
    pub server_taps_us: f64,
    /// The client's CPUs.
    pub client: SideWork,
    /// The server's CPUs.
    pub server: SideWork,
    /// Whether interrupts and idle states were seen; otherwise their time is unexplained.
    pub sees_interrupts: bool,
}

/// Why events make no ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TracedError {
    /// No thread but the client's sent anything.
    #[error("no event of the server's thread was recorded")]
    NoServer,
    /// A point counted nothing in the measured time.
    #[error("no operation was counted at the end of the stage '{}'", .0.name())]
    NothingCounted(Stage),
    /// The window is empty, or its sizes are zero.
    #[error("the measured time or the size of a message is zero")]
    Empty,
}

impl Traced {
    /// The stages of a recorded load.
    ///
    /// # Errors
    /// When the events cannot be those of the load.
    pub fn of(window: &TraceWindow<'_>) -> Result<Self, TracedError> {
        let (begin, end) = window.measured_ns;
        if begin >= end || window.request_bytes == 0 || window.response_bytes == 0 {
            return Err(TracedError::Empty);
        }
        let server_thread = counters::server_thread(window).ok_or(TracedError::NoServer)?;
        let counts = Counts::of(window, server_thread);
        if let Some(stage) = counts.first_without(begin, end) {
            return Err(TracedError::NothingCounted(stage));
        }
        let passed = counts.passed(Stage::RequestPath, begin, end);
        let seconds = (end - begin) as f64 / 1e9;
        let found = Timeline::new(window, server_thread).run(&counts.changes());
        let per_operation = 1e-3 / passed as f64;
        let mean_us = counts.mean_us(window.queue_depth, begin, end);
        let stages = Stage::ALL
            .iter()
            .zip(&found.stages)
            .map(|(&stage, sum)| StageTimes {
                stage,
                operations: sum.operation_ns() as f64 / (end - begin) as f64,
                mean_us: mean_us[stage as usize],
                times_empty: sum.times_empty,
                least: sum.least,
                causes: Cause::ALL
                    .iter()
                    .zip(sum.by_cause)
                    .filter(|(_, ns)| *ns != 0)
                    .map(|(&cause, ns)| CauseTime { cause, mean_us: ns as f64 * per_operation })
                    .collect(),
            })
            .collect();
        let counts_of = |stage: Stage| PointCount { ends: stage, operations: counts.total(stage) };
        Ok(Self {
            iops: passed as f64 / seconds,
            stages,
            counts: Stage::ALL.iter().map(|&stage| counts_of(stage)).collect(),
            responses_per_packet: counts.responses_per_packet(begin, end),
            client_taps_us: counts.taps_us(Stage::ClientQueue, begin, end),
            server_taps_us: counts.taps_us(Stage::ServerQueue, begin, end),
            client: found.client.per_operation(passed),
            server: found.server.per_operation(passed),
            sees_interrupts: window.sees_interrupts,
        })
    }

    /// A stage.
    #[must_use]
    pub fn stage(&self, stage: Stage) -> Option<&StageTimes> {
        self.stages.iter().find(|s| s.stage == stage)
    }

    /// Time of an operation in a stage by one cause, microseconds.
    #[must_use]
    pub fn time_us(&self, stage: Stage, cause: Cause) -> f64 {
        self.stage(stage).map_or(0.0, |s| s.of(cause))
    }

    /// Time of an operation in a stage, microseconds.
    #[must_use]
    pub fn mean_us(&self, stage: Stage) -> f64 {
        self.stage(stage).map_or(0.0, |s| s.mean_us)
    }

    /// Time of an operation in a segment, microseconds.
    #[must_use]
    pub fn segment_us(&self, segment: Segment) -> f64 {
        self.stages.iter().filter(|s| s.stage.segment() == segment).map(|s| s.mean_us).sum()
    }

    /// The least and the greatest time that capture points may see in a segment, microseconds: they stamp a packet while it is on its
    /// way from the queue to the driver.
    #[must_use]
    pub fn captured_us(&self, segment: Segment) -> (f64, f64) {
        let time_us = self.segment_us(segment);
        match segment {
            Segment::Client => (time_us, time_us + self.client_taps_us),
            Segment::RequestPath => (time_us - self.client_taps_us, time_us),
            Segment::Server => (time_us, time_us + self.server_taps_us),
            Segment::ResponsePath => (time_us - self.server_taps_us, time_us),
        }
    }

    /// Share of a segment's time in which nothing was seen that explains it, 0 to 1.
    #[must_use]
    pub fn unexplained(&self, segment: Segment) -> f64 {
        let of = |stage: &&StageTimes| stage.stage.segment() == segment;
        let none: f64 = self.stages.iter().filter(of).map(|s| s.of(Cause::Unexplained)).sum();
        let all: f64 = self.stages.iter().filter(of).flat_map(|s| &s.causes).map(|c| c.mean_us).sum();
        none / all.max(f64::MIN_POSITIVE)
    }

    /// Operations in all stages: the queue depth, unless a counter is wrong.
    #[must_use]
    pub fn operations(&self) -> f64 {
        self.stages.iter().map(|s| s.operations).sum()
    }

    /// Time of an operation in all stages, microseconds.
    #[must_use]
    pub fn round_trip_us(&self) -> f64 {
        self.stages.iter().map(|s| s.mean_us).sum()
    }
}

#[cfg(test)]
pub(crate) mod tests;
