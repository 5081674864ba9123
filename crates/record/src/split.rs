//! The parts of a round trip between its capture points (the paper: server, client and network time).
//!
//! Only stamps of one side are subtracted, unless the caller states that both sides share a clock.

use serde::{Deserialize, Serialize};

use crate::op::Op;

/// The parts of one operation's round trip, nanoseconds; a part whose stamps are missing is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Split {
    /// RTT: finish - start.
    pub rtt_ns: Option<i64>,
    /// RTT - (C2 - C1): both client parts.
    pub client_ns: Option<i64>,
    /// C1 - start: the client's transmit path. Same side, one clock.
    pub client_out_ns: Option<i64>,
    /// finish - C2: the client's receive path. Same side, one clock.
    pub client_in_ns: Option<i64>,
    /// C2 - C1: everything outside the client.
    pub outside_ns: Option<i64>,
    /// S2 - S1.
    pub server_ns: Option<i64>,
    /// (C2 - C1) - (S2 - S1): both directions of the network together.
    pub network_ns: Option<i64>,
    /// S1 - C1, only where both sides share a clock.
    pub request_path_ns: Option<i64>,
    /// C2 - S2, only where both sides share a clock.
    pub response_path_ns: Option<i64>,
}

impl Split {
    /// Splits an operation. `shared_clock` says that client and server stamps come from one clock.
    #[must_use]
    pub fn of(op: &Op, shared_clock: bool) -> Self {
        let less = |all: Option<i64>, part: Option<i64>| Some(all? - part?);
        let (rtt_ns, outside_ns, server_ns) =
            (op.finish.since(op.start), op.c2.since(op.c1), op.s2.since(op.s1));
        Self {
            rtt_ns,
            client_ns: less(rtt_ns, outside_ns),
            client_out_ns: op.c1.since(op.start),
            client_in_ns: op.finish.since(op.c2),
            outside_ns,
            server_ns,
            network_ns: less(outside_ns, server_ns),
            request_path_ns: op.s1.since(op.c1).filter(|_| shared_clock),
            response_path_ns: op.c2.since(op.s2).filter(|_| shared_clock),
        }
    }
}

/// Start latencies at queue depth 1, where every wait is a start latency (the paper, "To further break down
/// RTT"); microseconds, means.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct StartLatencies {
    /// CL: from the response in the client's receive buffer until the client thread runs.
    pub cl_us: f64,
    /// SL: from the request in the server's receive buffer until the server thread runs.
    pub sl_us: f64,
    /// (CT + SR) + (ST + CR): transmit and receive latencies of both directions.
    pub network_us: f64,
}

impl StartLatencies {
    /// From the QD 1 run's mean splits and the service times of the CPU-bound run, all microseconds.
    #[must_use]
    pub fn at_depth_one(
        client_us: f64,
        server_us: f64,
        network_us: f64,
        times: &crate::stage::ServiceTimes,
    ) -> Self {
        Self {
            cl_us: client_us - times.client_us(),
            sl_us: server_us - times.server_us(),
            network_us: network_us - (times.w1_us + times.w2_us),
        }
    }

    /// Sum of all start latencies; equals RTT - RTTmin at QD 1.
    #[must_use]
    pub fn sum_us(&self) -> f64 {
        self.cl_us + self.sl_us + self.network_us
    }
}

/// TPT, the mean time between completions, microseconds: 1 / IOPS.
#[must_use]
pub fn tpt_us(iops: f64) -> f64 {
    1e6 / iops
}

/// QD by the identity IOPS * RTT.
#[must_use]
pub fn queue_depth(iops: f64, rtt_us: f64) -> f64 {
    iops * rtt_us / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::op::Stamp;
    use crate::stage::ServiceTimes;

    #[test]
    fn the_published_512_byte_run_splits_as_published() {
        // RTT 275.7, C2-C1 243.4, S2-S1 32.6 us; the two clocks are far apart.
        let client = 1_000_000_000_u64;
        let server = 77_000_000_000_u64;
        let op = Op {
            start: Stamp::at(client),
            c1: Stamp::at(client + 8_000),
            s1: Stamp::at(server),
            s2: Stamp::at(server + 32_600),
            c2: Stamp::at(client + 8_000 + 243_400),
            finish: Stamp::at(client + 275_700),
            ..Op::default()
        };
        let split = Split::of(&op, false);
        assert_eq!(split.client_ns, Some(32_300));
        assert_eq!(split.server_ns, Some(32_600));
        assert_eq!(split.network_ns, Some(210_800));
        assert_eq!(split.rtt_ns, Some(32_300 + 32_600 + 210_800));
        assert_eq!(split.request_path_ns, None, "clocks of two sides must not be subtracted");
        let unseen = Split::of(&Op { c2: Stamp::MISSING, ..op }, true);
        assert_eq!((unseen.outside_ns, unseen.client_ns, unseen.network_ns), (None, None, None));
        assert_eq!((unseen.rtt_ns, unseen.server_ns), (split.rtt_ns, split.server_ns));
    }

    #[test]
    fn the_published_latencies_follow_from_the_split() {
        // CL 23.7, SL 16.7, (CT+SR)+(ST+CR) 204.5 with W1+W2 6.3; hence CI+CP+CK 8.6 and SI+SP+SK 15.9.
        let times =
            ServiceTimes { w1_us: 1.1, w2_us: 5.2, sp_us: 15.9, cp_us: 8.6, ..ServiceTimes::default() };
        let latencies = StartLatencies::at_depth_one(32.3, 32.6, 210.8, &times);
        assert!((latencies.cl_us - 23.7).abs() < 1e-9);
        assert!((latencies.sl_us - 16.7).abs() < 1e-9);
        assert!((latencies.network_us - 204.5).abs() < 1e-9);
        // "sum of all start latencies at QD 1 = RTT - RTTmin"
        assert!((latencies.sum_us() - (275.7 - times.rtt_min_us())).abs() < 1e-9);
    }

    #[test]
    fn throughput_time_is_not_the_round_trip() {
        // "peak about 63,000 IOPS (TPT 15.9 us)"
        assert!((tpt_us(63_000.0) - 15.9).abs() < 0.05);
        assert!((queue_depth(63_000.0, 128.0 * tpt_us(63_000.0)) - 128.0).abs() < 1e-9);
    }
}
