//! The sums of a run, from which its figures are made.

use policy::BusyCount;
use policy::control::Shares;
use record::Side;
use record::latency::Latency;

use crate::Ns;
use crate::op::{Part, SimOp};
use crate::result::{Ending, RunResult, SideResult};
use crate::setup::Setup;
use crate::tcp::Segment;

/// Sums of one side.
#[derive(Clone, Copy, Debug, Default)]
struct SideSums {
    thread_ns: Ns,
    softirq_ns: Ns,
    transmit_ns: Ns,
    segments: u64,
    acks: u64,
    retransmitted: u64,
}

/// The counts of one session's policy.
#[derive(Debug)]
pub(super) struct SessionCounts {
    pub(super) busy: BusyCount,
    pub(super) shares: Shares,
}

/// Sums of the measured time.
#[derive(Debug)]
pub(super) struct Tally {
    warm_up: u64,
    wanted: u64,
    done: u64,
    pub(super) is_over: bool,
    begun: Option<Ns>,
    measured: u64,
    data_bytes: u64,
    latency: Latency,
    request: [u128; Part::COUNT],
    response: [u128; Part::COUNT],
    sides: [SideSums; 2],
}

impl Tally {
    pub(super) fn new(setup: &Setup) -> Self {
        Self {
            warm_up: setup.warm_up.max(1),
            wanted: setup.operations,
            done: 0,
            is_over: false,
            begun: None,
            measured: 0,
            data_bytes: 0,
            latency: Latency::new(),
            request: [0; Part::COUNT],
            response: [0; Part::COUNT],
            sides: [SideSums::default(); 2],
        }
    }

    /// Counts a completed operation; returns true when the measured time begins with it.
    pub(super) fn completed(&mut self, now: Ns, op: &SimOp) -> bool {
        self.done += 1;
        if self.begun.is_none() {
            if self.done < self.warm_up {
                return false;
            }
            self.begun = Some(now);
            self.sides = [SideSums::default(); 2];
            return true;
        }
        self.measured += 1;
        self.data_bytes += u64::from(op.op.data_bytes);
        self.latency.record(op.sum_ns());
        for (sums, parts) in [(&mut self.request, &op.request), (&mut self.response, &op.response)] {
            for (sum, part) in sums.iter_mut().zip(parts) {
                *sum += u128::from(*part);
            }
        }
        self.is_over = self.measured >= self.wanted;
        false
    }

    #[inline]
    pub(super) fn softirq(&mut self, side: Side, cost: Ns) {
        self.sides[side as usize].softirq_ns += cost;
    }

    #[inline]
    pub(super) fn thread(&mut self, side: Side, cost: Ns) {
        self.sides[side as usize].thread_ns += cost;
    }

    #[inline]
    pub(super) fn transmitted(&mut self, side: Side, segment: &Segment, work: Ns) {
        let sums = &mut self.sides[side as usize];
        sums.transmit_ns += work;
        sums.segments += 1;
        sums.acks += u64::from(segment.bytes == 0);
        sums.retransmitted += u64::from(segment.retransmitted);
    }

    pub(super) fn result(
        self,
        setup: &Setup,
        now: Ns,
        ended_by: Ending,
        sessions: &[SessionCounts],
    ) -> RunResult {
        let span_ns = now - self.begun.unwrap_or(now);
        let operations = self.measured;
        let each = |sum: f64| if operations == 0 { 0.0 } else { sum / operations as f64 };
        let seconds = span_ns as f64 / 1e9;
        let iops = if span_ns == 0 { 0.0 } else { operations as f64 / seconds };
        let mut busy = BusyCount::default();
        let mut shares = Shares::default();
        for SessionCounts { busy: count, shares: modes } in sessions {
            busy.add(count);
            shares.nodelay += modes.nodelay;
            shares.nagle += modes.nagle;
            shares.batch += modes.batch;
        }
        let parts = |sums: &[u128; Part::COUNT]| {
            Part::ALL
                .into_iter()
                .filter(|part| sums[*part as usize] > 0)
                .map(|part| (part.name(), each(sums[part as usize] as f64) / 1e3))
                .collect()
        };
        let side = |sums: SideSums| SideResult {
            thread_us: each(sums.thread_ns as f64) / 1e3,
            softirq_us: each(sums.softirq_ns as f64) / 1e3,
            transmit_us: each(sums.transmit_ns as f64) / 1e3,
            segments: each(sums.segments as f64),
            acks: each(sums.acks as f64),
            sent_again: sums.retransmitted,
        };
        let stall = |part: Part| {
            let place = part as usize;
            each((self.request[place] + self.response[place]) as f64) / 1e3
        };
        RunResult {
            queue_depth: setup.queue_depth,
            sessions: setup.sessions,
            block_size_bytes: (0..setup.sessions.min(2))
                .map(|session| setup.data_of(session))
                .max()
                .unwrap_or(0),
            mtu_bytes: setup.wire.mtu,
            policy: setup.policy,
            client_nagle: setup.load.nagle,
            operations,
            requested_operations: setup.operations,
            is_complete: self.is_over,
            ended_by,
            time_limit_seconds: setup.time_limit as f64 / 1e9,
            seconds,
            iops,
            bytes_per_second: iops * each(self.data_bytes as f64),
            rtt_us: self.latency.figures(),
            busy_count_share: (1..busy.ended.len())
                .filter(|&n| busy.ended[n] > 0)
                .map(|n| (n as u32, busy.share(n)))
                .collect(),
            avg_busy: busy.avg_busy(),
            shares,
            stalls_us: [
                Part::Nagle,
                Part::Cork,
                Part::Congestion,
                Part::Window,
                Part::Device,
                Part::Buffer,
                Part::Lost,
            ]
            .into_iter()
            .map(|part| (part.name(), stall(part)))
            .filter(|(_, us)| *us > 0.0)
            .collect(),
            request_us: parts(&self.request),
            response_us: parts(&self.response),
            client: side(self.sides[0]),
            server: side(self.sides[1]),
        }
    }
}
