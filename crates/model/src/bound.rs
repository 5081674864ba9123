//! Network bound or CPU bound, and the queue depth needed to stay so: the paper's [1] and [2].

use serde::{Deserialize, Serialize};

/// The resource that limits the ring at depth.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// The response direction of the wire is the longest stage (W2 > SP).
    Network,
    /// The server's CPU is the longest stage (SP > W2).
    ServerCpu,
    /// The client's CPU is the longest stage: outside the paper's assumption CP < SP.
    ClientCpu,
}

impl Bound {
    /// The name that reports print.
    #[must_use]
    pub fn text(self) -> &'static str {
        match self {
            Bound::Network => "network bound",
            Bound::ServerCpu => "CPU bound (server)",
            Bound::ClientCpu => "CPU bound (client)",
        }
    }
}

/// [1]: the queue depth from which the ring stays network bound, QD >= (CL + RTTmin + SL) / W2.
/// All times in microseconds.
#[must_use]
pub fn queue_depth_network_bound(cl_us: f64, rtt_min_us: f64, sl_us: f64, w2_us: f64) -> f64 {
    (cl_us + rtt_min_us + sl_us) / w2_us
}

/// [2]: the queue depth from which the ring stays CPU bound, QD >= (CL + RTTmin) / SP.
/// All times in microseconds.
#[must_use]
pub fn queue_depth_cpu_bound(cl_us: f64, rtt_min_us: f64, sp_us: f64) -> f64 {
    (cl_us + rtt_min_us) / sp_us
}

/// The one formula behind [1] and [2]: the knee is (sum of all service times + all start latencies except
/// the bottleneck's own, which a busy stage does not pay) / the bottleneck's service time.
#[must_use]
pub fn knee(rtt_min_us: f64, other_latencies_us: f64, bottleneck_us: f64) -> f64 {
    (rtt_min_us + other_latencies_us) / bottleneck_us
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_published_bounds_are_the_one_formula() {
        let (cl, rtt_min, sl, w2, sp) = (23.7, 47.6, 16.7, 5.2, 15.9);
        // Network bound: the bottleneck is the wire, so both CL and SL are other stages' latencies.
        assert_eq!(queue_depth_network_bound(cl, rtt_min, sl, w2), knee(rtt_min, cl + sl, w2));
        // CPU bound: SL belongs to the bottleneck itself and drops out.
        assert_eq!(queue_depth_cpu_bound(cl, rtt_min, sp), knee(rtt_min, cl, sp));
    }

    #[test]
    fn the_bounds_are_the_fixed_points_of_their_derivations() {
        // "W2 * (QD - 1) >= CL + RTTmin - W2 + SL" holds with equality at [1].
        let (cl, rtt_min, sl, w2, sp) = (23.7, 47.6, 16.7, 17.0, 21.0);
        let qd = queue_depth_network_bound(cl, rtt_min, sl, w2);
        assert!((w2 * (qd - 1.0) - (cl + rtt_min - w2 + sl)).abs() < 1e-9);
        // "SP * (QD - 1) >= CL + RTTmin - SP" holds with equality at [2].
        let qd = queue_depth_cpu_bound(cl, rtt_min, sp);
        assert!((sp * (qd - 1.0) - (cl + rtt_min - sp)).abs() < 1e-9);
    }
}
