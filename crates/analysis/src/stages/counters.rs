//! Ten counters of operations, from the bytes of calls and packets.

use std::collections::HashMap;

use record::{KernelEvent, KernelEventKind, Side};

use super::{Stage, TraceWindow};

/// Bytes of headers in front of a packet's data, without the link's: IPv4 or IPv6, TCP without and with timestamps.
const HEADERS: [u64; 4] = [40, 52, 60, 72];
/// Bytes of the link's header.
const LINK_HEADER: u64 = 14;

/// The server's thread: the one besides the client's whose bytes are nearest to those of the responses. Other programs on these CPUs
/// may send more.
pub(super) fn server_thread(window: &TraceWindow<'_>) -> Option<i32> {
    let (begin, end) = window.load_ns;
    let mut sent: HashMap<i32, u64> = HashMap::new();
    for event in window.events.iter().filter(|event| (begin..=end).contains(&event.at_ns)) {
        if let KernelEventKind::Sent(bytes) = event.kind
            && event.thread != window.client_thread
            && let Ok(bytes @ 1..) = u64::try_from(bytes)
        {
            *sent.entry(event.thread).or_default() += bytes;
        }
    }
    let expected = window.issued * window.response_bytes;
    sent.into_iter()
        .min_by_key(|(thread, bytes)| (bytes.abs_diff(expected), *thread))
        .map(|(thread, _)| thread)
}

/// Bytes that passed a point.
#[derive(Clone, Copy, Debug)]
struct Passed {
    at_ns: u64,
    cpu: u16,
    bytes: u64,
    /// Time in which captures had the packet, nanoseconds.
    taps_ns: u32,
}

/// Operations that a point counted at one time.
#[derive(Clone, Copy, Debug)]
struct Counted {
    at_ns: u64,
    cpu: u16,
    operations: u64,
    /// As in [`Passed`].
    taps_ns: u32,
}

/// What a point counted.
#[derive(Clone, Debug, Default)]
struct Point {
    counted: Vec<Counted>,
    /// Times of events with data.
    events: Vec<u64>,
}

impl Point {
    /// Counts the operations whose last byte is among these bytes, in their order.
    fn of(all: impl Iterator<Item = Passed>, operation_bytes: u64) -> Self {
        let (mut total, mut point) = (0_u64, Self::default());
        for Passed { at_ns, cpu, bytes, taps_ns } in all {
            let before = total / operation_bytes;
            total += bytes;
            point.events.push(at_ns);
            let operations = total / operation_bytes - before;
            if operations > 0 {
                point.counted.push(Counted { at_ns, cpu, operations, taps_ns });
            }
        }
        point
    }

    fn total(&self) -> u64 {
        self.counted.iter().map(|counted| counted.operations).sum()
    }

    /// The time at which each operation passed.
    fn times(&self) -> Vec<u64> {
        let of = |counted: &Counted| std::iter::repeat_n(counted.at_ns, counted.operations as usize);
        self.counted.iter().flat_map(of).collect()
    }

    fn between(&self, begin: u64, end: u64) -> u64 {
        let inside = self.counted.iter().filter(|counted| (begin..end).contains(&counted.at_ns));
        inside.map(|counted| counted.operations).sum()
    }
}

/// A change of the number of operations in a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Change {
    pub(super) at_ns: u64,
    /// Index of the stage that they leave; the next one is entered.
    pub(super) leaves: usize,
    pub(super) operations: u64,
    /// The CPU that took them out.
    pub(super) cpu: u16,
}

/// The counters at the ends of the ten stages.
#[derive(Clone, Debug)]
pub(super) struct Counts {
    /// The point at which each stage ends, in the order of [`Stage::ALL`].
    ends: [Point; 10],
}

impl Counts {
    pub(super) fn of(window: &TraceWindow<'_>, server_thread: i32) -> Self {
        let (begin, end) = window.load_ns;
        let inside = |event: &&KernelEvent| (begin..=end).contains(&event.at_ns);
        let events: Vec<&KernelEvent> = window.events.iter().filter(inside).collect();
        let (request, response) = (window.request_bytes, window.response_bytes);
        let ends = Stage::ALL.map(|stage| match stage {
            Stage::ClientProgram => sends(&events, window.client_thread, request),
            Stage::ServerProgram => sends(&events, server_thread, response),
            Stage::ServerReceive => receives(&events, server_thread, request),
            Stage::ClientReceive => receives(&events, window.client_thread, response),
            Stage::ClientSend => packets(&events, window, request, &|kind| match kind {
                KernelEventKind::Queued(Side::Client, bytes) => Some(bytes),
                _ => None,
            }),
            Stage::ClientQueue => packets(&events, window, request, &|kind| match kind {
                KernelEventKind::Transmitted { side: Side::Client, bytes, .. } => Some(bytes),
                _ => None,
            }),
            Stage::RequestPath => packets(&events, window, request, &|kind| match kind {
                KernelEventKind::Arrived(Side::Server, bytes) => bytes.checked_add(LINK_HEADER as u32),
                _ => None,
            }),
            Stage::ServerSend => packets(&events, window, response, &|kind| match kind {
                KernelEventKind::Queued(Side::Server, bytes) => Some(bytes),
                _ => None,
            }),
            Stage::ServerQueue => packets(&events, window, response, &|kind| match kind {
                KernelEventKind::Transmitted { side: Side::Server, bytes, .. } => Some(bytes),
                _ => None,
            }),
            Stage::ResponsePath => packets(&events, window, response, &|kind| match kind {
                KernelEventKind::Arrived(Side::Client, bytes) => bytes.checked_add(LINK_HEADER as u32),
                _ => None,
            }),
        });
        Self { ends }
    }

    fn end(&self, stage: Stage) -> &Point {
        &self.ends[stage as usize]
    }

    /// Operations that left a stage from the load's begin to its end.
    pub(super) fn total(&self, stage: Stage) -> u64 {
        self.end(stage).total()
    }

    /// Operations that left a stage in some time.
    pub(super) fn passed(&self, stage: Stage, begin: u64, end: u64) -> u64 {
        self.end(stage).between(begin, end)
    }

    /// The first stage that nothing left in some time.
    pub(super) fn first_without(&self, begin: u64, end: u64) -> Option<Stage> {
        Stage::ALL.into_iter().find(|&stage| self.passed(stage, begin, end) == 0)
    }

    /// Mean time of an operation in each stage, microseconds, over the operations that the client received in some time. The
    /// points keep the order of operations; each follows the one that was received a queue depth before it.
    pub(super) fn mean_us(&self, queue_depth: u32, begin: u64, end: u64) -> [f64; 10] {
        let passed = self.ends.each_ref().map(Point::times);
        let (last, mut sums, mut operations) = (Stage::ClientReceive as usize, [0_i128; 10], 0_u64);
        let depth = queue_depth as usize;
        for number in depth..passed[last].len() {
            let times: Option<Vec<u64>> = passed.iter().map(|point| point.get(number).copied()).collect();
            let Some(times) = times.filter(|times| (begin..end).contains(&times[last])) else { continue };
            operations += 1;
            let mut before = passed[last][number - depth];
            for (sum, time) in sums.iter_mut().zip(times) {
                *sum += i128::from(time) - i128::from(before);
                before = time;
            }
        }
        sums.map(|sum| sum as f64 / 1000.0 / operations.max(1) as f64)
    }

    /// Mean time in which captures had the packet with which an operation left a queue, microseconds.
    pub(super) fn taps_us(&self, queue: Stage, begin: u64, end: u64) -> f64 {
        let point = self.end(queue);
        let inside = point.counted.iter().filter(|counted| (begin..end).contains(&counted.at_ns));
        let sum: u64 = inside.map(|counted| counted.operations * u64::from(counted.taps_ns)).sum();
        sum as f64 / 1000.0 / point.between(begin, end).max(1) as f64
    }

    pub(super) fn responses_per_packet(&self, begin: u64, end: u64) -> f64 {
        let point = self.end(Stage::ServerQueue);
        let packets = point.events.iter().filter(|at| (begin..end).contains(at)).count();
        point.between(begin, end) as f64 / packets.max(1) as f64
    }

    /// Every change of a stage, in the order of time; at equal times in flow order.
    pub(super) fn changes(&self) -> Vec<Change> {
        let of = |(leaves, point): (usize, &Point)| -> Vec<Change> {
            let change = |&Counted { at_ns, cpu, operations, .. }| Change { at_ns, leaves, operations, cpu };
            point.counted.iter().map(change).collect()
        };
        let mut all: Vec<Change> = self.ends.iter().enumerate().flat_map(of).collect();
        all.sort_unstable();
        all
    }
}

/// The bytes of a call or packet, if there are any.
fn passed(event: &KernelEvent, bytes: i64) -> Option<Passed> {
    let bytes = u64::try_from(bytes).ok().filter(|bytes| *bytes > 0)?;
    let taps_ns = match event.kind {
        KernelEventKind::Transmitted { taps_ns, .. } => taps_ns,
        _ => 0,
    };
    Some(Passed { at_ns: event.at_ns, cpu: event.cpu, bytes, taps_ns })
}

/// A thread's send calls, at the times at which they began.
fn sends(events: &[&KernelEvent], thread: i32, operation_bytes: u64) -> Point {
    let mut began = None;
    let own = events.iter().filter(|event| event.thread == thread);
    let calls = own.filter_map(|event| match event.kind {
        KernelEventKind::SendBegan => {
            began = Some(event.at_ns);
            None
        }
        KernelEventKind::Sent(bytes) => {
            let at = began.take()?;
            passed(event, bytes).map(|passed| Passed { at_ns: at, ..passed })
        }
        _ => None,
    });
    Point::of(calls, operation_bytes)
}

/// A thread's receive calls, at the times at which they ended.
fn receives(events: &[&KernelEvent], thread: i32, operation_bytes: u64) -> Point {
    let calls = events.iter().filter(|event| event.thread == thread).filter_map(|event| match event.kind {
        KernelEventKind::Received(bytes) => passed(event, bytes),
        _ => None,
    });
    Point::of(calls, operation_bytes)
}

/// Packets at one place; `bytes_of` returns the bytes of one with the link's header.
fn packets(
    events: &[&KernelEvent],
    window: &TraceWindow<'_>,
    operation_bytes: u64,
    bytes_of: &dyn Fn(KernelEventKind) -> Option<u32>,
) -> Point {
    let all: Vec<Passed> =
        events.iter().filter_map(|event| passed(event, bytes_of(event.kind)?.into())).collect();
    // The headers' size is the one with which the packets carry what was sent.
    let expected = window.issued * operation_bytes;
    let data = |header: u64| all.iter().map(|packet| packet.bytes.saturating_sub(header)).sum::<u64>();
    let header = HEADERS.map(|bytes| bytes + LINK_HEADER);
    let header = header.into_iter().min_by_key(|header| data(*header).abs_diff(expected)).unwrap_or_default();
    let payloads = all.iter().map(|packet| Passed { bytes: packet.bytes.saturating_sub(header), ..*packet });
    Point::of(payloads.filter(|packet| packet.bytes > 0), operation_bytes)
}
