//! Several sessions on shared resources: exact mean value analysis of a closed queueing network.
//!
//! It is exact for exponential service times (a product-form network). Real service times are nearly constant, so below
//! saturation it is pessimistic: it has queues that a deterministic ring does not. At saturation both agree: 1 / TPTmin.
//! Start latencies count as delay without a resource, which is true while a resource is mostly idle; a busy one does not
//! pay them.

use serde::Serialize;

use super::{ModelError, Ring, check_queue_depth};

/// Most operations in flight, all sessions together.
pub const POPULATION_MAX: u32 = 65_536;

/// The result of the analysis.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Shared {
    /// Sessions.
    pub sessions: u32,
    /// Operations in flight of each.
    pub queue_depth: u32,
    /// Operations per second, all sessions together.
    pub iops: f64,
    /// Mean round trip, microseconds.
    pub rtt_us: f64,
    /// Mean operations waiting at or in each resource, in the order of [`Ring::loads`].
    pub queued: Vec<f64>,
}

impl Ring {
    /// `sessions` rings of this kind that share all resources, `queue_depth` operations each.
    ///
    /// # Errors
    /// When there are no sessions, or too many operations.
    pub fn shared(&self, sessions: u32, queue_depth: u32) -> Result<Shared, ModelError> {
        self.shared_with_delay(sessions, queue_depth, 0.0)
    }

    /// The same with a time that operations spend outside the stages, microseconds.
    pub(super) fn shared_with_delay(
        &self,
        sessions: u32,
        queue_depth: u32,
        outside_us: f64,
    ) -> Result<Shared, ModelError> {
        check_queue_depth(queue_depth)?;
        let population =
            sessions.checked_mul(queue_depth).filter(|&n| n > 0 && n <= POPULATION_MAX).ok_or_else(|| {
                ModelError::new(
                    "sessions",
                    sessions,
                    "1 or more, and at most 65536 operations in flight in all",
                )
            })?;
        let demands: Vec<f64> = self.loads().iter().map(|l| l.service_us).collect();
        // Latencies delay an operation without occupying anything.
        let delay_us = self.latencies_us() + outside_us;
        let mut queued = vec![0.0; demands.len()];
        let (mut per_us, mut rtt_us) = (0.0, 0.0);
        for n in 1..=population {
            // An arriving operation finds the queues of a network with one operation less.
            let residence: Vec<f64> = demands.iter().zip(&queued).map(|(d, q)| d * (1.0 + q)).collect();
            rtt_us = residence.iter().sum::<f64>() + delay_us;
            per_us = f64::from(n) / rtt_us;
            for (q, r) in queued.iter_mut().zip(&residence) {
                *q = per_us * r;
            }
        }
        Ok(Shared { sessions, queue_depth, iops: per_us * 1e6, rtt_us, queued })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::Stage;

    fn ring(times: &[(f64, f64)]) -> Ring {
        Ring::new(times.iter().enumerate().map(|(i, &(p, l))| Stage::own(&format!("s{i}"), p, l)).collect())
            .unwrap()
    }

    #[test]
    fn balanced_network_has_the_textbook_throughput() {
        // Two equal stations, n customers: X = n / (D (n + 1)).
        let shared = ring(&[(10.0, 0.0), (10.0, 0.0)]).shared(1, 4).unwrap();
        assert!((shared.iops - 1e6 * 4.0 / (10.0 * 5.0)).abs() < 1e-6);
        assert!((shared.queued.iter().sum::<f64>() - 4.0).abs() < 1e-9, "Little: all four are somewhere");
    }

    #[test]
    fn only_the_number_of_operations_in_flight_counts() {
        let r = ring(&[(5.0, 20.0), (10.0, 3.0), (2.0, 0.0)]);
        assert!((r.shared(4, 8).unwrap().iops - r.shared(1, 32).unwrap().iops).abs() < 1e-9);
        assert!(r.shared(0, 1).is_err() && r.shared(65_536, 2).is_err() && r.shared(1, 0).is_err());
    }

    proptest! {
        #[test]
        fn throughput_never_exceeds_the_limit(times in prop::collection::vec((0.1_f64..50.0, 0.0_f64..100.0), 1..9), n in 1_u32..200) {
            let r = ring(&times);
            let shared = r.shared(1, n).unwrap();
            prop_assert!(shared.iops <= r.band(n).unwrap().high * (1.0 + 1e-9));
            prop_assert!((shared.iops * shared.rtt_us / 1e6 / f64::from(n) - 1.0).abs() < 1e-9, "QD = IOPS * RTT");
            let many = r.shared(1, 20_000).unwrap();
            prop_assert!(many.iops >= 0.98 * r.iops_max(), "saturates at 1 / TPTmin");
        }
    }
}
