//! Nagle's algorithm in the model: the transmit delay SN and the backlog that it needs (the paper,
//! "Nagle's Algorithm (Transmission Delay SN > 0)" and [3]).

use serde::Serialize;

/// Name of the stage that holds responses back until a delayed ACK.
pub const STAGE: &str = "SN";
/// Name of the part of the server's work that each packet costs once.
pub const SERVER_TRANSMIT: &str = "SK per packet";
/// The same of the client.
pub const CLIENT_TRANSMIT: &str = "CK per packet";

/// The limits of SN, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NagleDelay {
    /// Until the partial packet is full: SN <= SP * ((MTU - TCPIP) / (IOSIZE + H) - 1).
    pub until_full_us: f64,
    /// When the ACK of the previous packet arrives first: SN <= CL + RTTmin - 2 SP. `None` when it cannot.
    pub until_ack_us: Option<f64>,
}

impl NagleDelay {
    /// The limits of a CPU-bound session.
    ///
    /// `messages_per_packet` is (MTU - TCPIP) / (IOSIZE + H), see [`record::Wire::messages_per_packet`]; times in
    /// microseconds.
    #[must_use]
    pub fn limits(sp_us: f64, cl_us: f64, rtt_min_us: f64, messages_per_packet: f64) -> Self {
        let until_full_us = (sp_us * (messages_per_packet - 1.0)).max(0.0);
        // "SP > (CL + RTTmin) / ((MTU - TCPIP) / (IOSIZE + H) + 1)"
        let ack_comes_first = sp_us > (cl_us + rtt_min_us) / (messages_per_packet + 1.0);
        let until_ack_us = ack_comes_first.then(|| (cl_us + rtt_min_us - 2.0 * sp_us).max(0.0));
        Self { until_full_us, until_ack_us }
    }

    /// The limit that applies.
    #[must_use]
    pub fn sn_max_us(&self) -> f64 {
        self.until_ack_us.map_or(self.until_full_us, |ack| ack.min(self.until_full_us))
    }
}

/// [3]: the backlog in the receive buffer from which a session stays CPU bound with Nagle's algorithm,
/// BACKLOG >= (CL + RTTmin + SN) / SP - 1. All times in microseconds.
#[must_use]
pub fn backlog_cpu_bound(cl_us: f64, rtt_min_us: f64, sn_us: f64, sp_us: f64) -> f64 {
    (cl_us + rtt_min_us + sn_us) / sp_us - 1.0
}

/// The most operations per second of two sends per response under Nagle's algorithm, below one packet of
/// responses: one delayed ACK per round (the paper, "Pathology"): QD / delay.
#[must_use]
pub fn iops_delayed_ack(queue_depth: u32, ack_delay_us: f64) -> f64 {
    f64::from(queue_depth) * 1e6 / ack_delay_us
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bound::queue_depth_cpu_bound;

    #[test]
    fn without_a_delay_the_backlog_is_the_second_bound() {
        // "When SN is zero the inequality [3] reduces to the same as inequality [2]", with BACKLOG = QD - 1.
        let (cl, rtt_min, sp) = (23.7, 30.8, 15.9);
        let backlog = backlog_cpu_bound(cl, rtt_min, 0.0, sp);
        assert!((backlog + 1.0 - queue_depth_cpu_bound(cl, rtt_min, sp)).abs() < 1e-9);
        // "increases by (SN / SP) outstanding operations"
        assert!((backlog_cpu_bound(cl, rtt_min, 31.8, sp) - backlog - 2.0).abs() < 1e-9);
    }

    #[test]
    fn acknowledgement_arrives_first_only_with_a_slow_thread() {
        let slow = NagleDelay::limits(15.9, 23.7, 30.8, 15.98);
        assert!((slow.until_full_us - 15.9 * 14.98).abs() < 1e-9);
        assert_eq!(slow.until_ack_us.map(|us| (us * 10.0).round() / 10.0), Some(22.7));
        assert!((slow.sn_max_us() - 22.7).abs() < 1e-9);
        let fast = NagleDelay::limits(2.0, 23.7, 30.8, 15.98);
        assert_eq!(fast.until_ack_us, None);
        assert!((fast.sn_max_us() - 2.0 * 14.98).abs() < 1e-9);
    }

    #[test]
    fn delayed_acks_limit_throughput_as_published() {
        // "IOPS = 1/(40 ms) = 25"; "two IOPS with the maximum allowable ACK delay of 500 ms"; "1/(200ms) = 5 IOPS"
        assert!((iops_delayed_ack(1, 40_000.0) - 25.0).abs() < 1e-9);
        assert!((iops_delayed_ack(4, 40_000.0) - 100.0).abs() < 1e-9);
        assert!((iops_delayed_ack(1, 500_000.0) - 2.0).abs() < 1e-9);
        assert!((iops_delayed_ack(1, 200_000.0) - 5.0).abs() < 1e-9);
    }
}
