//! A ring with the wire and the messages that its times follow from, so that settings can be changed and outcomes compared.

use serde::Serialize;

use super::exact::Exact;
use super::extras::Extras;
use super::nagle::{self, NagleDelay, backlog_cpu_bound};
use super::{Edge, ModelError, Ring, Role, Stage};
use crate::known::Known;
use record::wire::{Link, Messages};

/// Nagle's algorithm on the server's socket.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Nagle {
    /// Sends per response: 2 for a header and its data apart, without MSG_MORE.
    pub sends: u32,
    /// The client's delayed ACK, microseconds.
    pub ack_delay_us: f64,
}

impl Default for Nagle {
    fn default() -> Self {
        Self { sends: 1, ack_delay_us: 40_000.0 }
    }
}

/// A ring, its wire and its load.
#[derive(Clone, Debug, PartialEq)]
pub struct Setup {
    /// The stages.
    pub ring: Ring,
    /// The wire.
    pub link: Link,
    /// The request and the response of an operation.
    pub messages: Messages,
    /// Nagle's algorithm; `None` with TCP_NODELAY.
    pub nagle: Option<Nagle>,
    /// Queue depth that predictions are made for, of each session.
    pub queue_depth: u32,
    /// Sessions that share every resource.
    pub sessions: u32,
    /// Think time, coalescing, slow operations.
    pub extras: Extras,
}

/// Throughput and round trip of a setup at a queue depth.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Outcome {
    /// Operations per second, all sessions together, with the uncertainty of the calibration.
    pub iops: Known,
    /// Mean round trip, microseconds.
    pub rtt_us: Known,
    /// Least and greatest throughput, over start phases and, with Nagle, over what SN may be.
    pub iops_low: f64,
    /// See `iops_low`.
    pub iops_high: f64,
    /// The stages of the bottleneck.
    pub bottleneck: String,
    /// The details of a single session; `None` for several sessions, which are computed by mean value analysis.
    pub exact: Option<Exact>,
}

/// What Nagle's algorithm needs to stay CPU bound (the paper, [3]).
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct NagleNeeds {
    /// Both limits on SN.
    pub delay: NagleDelay,
    /// The backlog from which the server stays CPU bound.
    pub backlog: f64,
    /// Operations more than NODELAY needs: SN / SP.
    pub more_operations: f64,
    /// Responses that fill a packet.
    pub responses_per_packet: f64,
}

impl Setup {
    /// A ring on a wire, one session with NODELAY at queue depth 1.
    #[must_use]
    pub fn new(ring: Ring, link: Link, messages: Messages) -> Self {
        Self { ring, link, messages, nagle: None, queue_depth: 1, sessions: 1, extras: Extras::default() }
    }

    /// Number of responses that fill a packet.
    #[must_use]
    pub fn responses_per_packet(&self) -> f64 {
        self.link.wire().messages_per_packet(self.messages.response_bytes())
    }

    /// Sets another wire or another size: W1 and W2 follow by arithmetic. CPU work stays as it was: its part that grows
    /// with the size is not known from one run.
    ///
    /// # Errors
    /// When the wire is impossible.
    pub fn rewire(&mut self, link: Link, messages: Messages) -> Result<(), ModelError> {
        let wire = link.wire();
        if link.mtu_bytes > 65_535 || link.mtu_bytes <= wire.tcpip_bytes {
            return Err(ModelError::new(
                "mtu",
                link.mtu_bytes,
                "more than the headers and at most 65535 bytes is possible",
            ));
        }
        if messages.block_bytes == 0 || messages.block_bytes > 1 << 30 {
            return Err(ModelError::new("block-size", messages.block_bytes, "1 byte to 1G is possible"));
        }
        let timed = |s: &Stage| match s.name.as_str() {
            "W1" => Stage { service_us: wire.own_packets_us(messages.request_bytes()), ..s.clone() },
            "W2" => Stage { service_us: wire.own_packets_us(messages.response_bytes()), ..s.clone() },
            _ => s.clone(),
        };
        self.ring = Ring::new(self.ring.stages().iter().map(timed).collect())?;
        (self.link, self.messages) = (link, messages);
        Ok(())
    }

    /// What Nagle's algorithm needs with the server's CPU as the bottleneck; `None` for a ring without server stages.
    #[must_use]
    pub fn nagle_needs(&self) -> Option<NagleNeeds> {
        let stages = self.ring.stages();
        let sp: f64 = stages.iter().filter(|s| s.role() == Role::Server).map(|s| s.service_us).sum();
        if sp <= 0.0 {
            return None;
        }
        // The paper's CL. Its four-stage wire contains the interrupt latencies; here they are start latencies too.
        let others = stages.iter().filter(|s| s.role() != Role::Server);
        let cl = others.map(|s| s.start_latency_us).sum();
        let (rtt_min, full) = (self.ring.rtt_min_us(), self.responses_per_packet());
        let delay = NagleDelay::limits(sp, cl, rtt_min, full);
        let sn = delay.sn_max_us();
        Some(NagleNeeds {
            delay,
            backlog: backlog_cpu_bound(cl, rtt_min, sn, sp),
            more_operations: sn / sp,
            responses_per_packet: full,
        })
    }

    /// The rings that bound the behaviour: one with NODELAY, two with Nagle (SN at its least and its greatest).
    fn rings(&self, ring: &Ring, queue_depth: u32) -> Result<Vec<Ring>, ModelError> {
        let Some(nagle) = self.nagle else { return Ok(vec![ring.clone()]) };
        let full = self.responses_per_packet();
        // At most all responses in flight share a packet.
        let together = f64::from(queue_depth).min(full).floor().max(1.0);
        let response = self.messages.response_bytes();
        let w2 = self.link.wire().own_packets_us(response * together as u64) / together;
        let with = |sn: f64| {
            let mut stages = Vec::new();
            for stage in ring.stages() {
                if stage.name == "W2" {
                    if sn > 0.0 {
                        stages.push(Stage::own(nagle::STAGE, 0.0, sn));
                    }
                    stages.push(Stage { service_us: stage.service_us.min(w2), ..stage.clone() });
                } else {
                    stages.push(stage.clone());
                }
            }
            Ring::new(stages)
        };
        if nagle.sends > 1 && f64::from(queue_depth) < full {
            // Only the delayed ACK releases the data that follows the header.
            return Ok(vec![with(nagle.ack_delay_us)?]);
        }
        let packed = with(0.0)?;
        let cpu_bound = packed.bottleneck().role() == Role::Server;
        match self.nagle_needs().filter(|_| queue_depth > 1 && cpu_bound) {
            Some(needs) => Ok(vec![packed, with(needs.delay.sn_max_us())?]),
            None => Ok(vec![packed]),
        }
    }

    /// Throughput and round trip at a queue depth.
    ///
    /// # Errors
    /// When the queue depth or the number of sessions is not possible.
    pub fn outcome(&self, queue_depth: u32) -> Result<Outcome, ModelError> {
        let found = self.throughput(&self.ring, queue_depth)?;
        let (mut iops_within, mut rtt_within) = (0.0, 0.0);
        if self.ring.is_uncertain() {
            let [slow, fast] =
                [Edge::Slow, Edge::Fast].map(|edge| self.throughput(&self.ring.at_edge(edge), queue_depth));
            let (slow, fast) = (slow?, fast?);
            iops_within = (fast.iops - slow.iops) / 2.0;
            rtt_within = (slow.rtt_us - fast.rtt_us) / 2.0;
        }
        let rings = self.rings(&self.ring, queue_depth)?;
        Ok(Outcome {
            iops: Known::within(found.iops, iops_within),
            rtt_us: Known::within(found.rtt_us, rtt_within),
            iops_low: found.low,
            iops_high: found.high,
            bottleneck: rings.first().map_or_else(String::new, |r| r.bottleneck().stages),
            exact: found.exact,
        })
    }

    fn throughput(&self, ring: &Ring, queue_depth: u32) -> Result<Found, ModelError> {
        let rings = self.rings(ring, queue_depth)?;
        if self.sessions != 1 {
            let shared =
                rings.iter().map(|r| r.shared(self.sessions, queue_depth)).collect::<Result<Vec<_>, _>>()?;
            let (low, high) = span(shared.iter().map(|s| s.iops));
            let (iops, rtt_us) = shared.first().map_or((0.0, 0.0), |s| (s.iops, s.rtt_us));
            return Ok(Found { iops, rtt_us, low, high, exact: None });
        }
        let all = rings.iter().map(|r| r.exact(queue_depth, &self.extras)).collect::<Result<Vec<_>, _>>()?;
        let (low, high) = span(all.iter().flat_map(|e| [e.iops_low, e.iops_high]));
        let exact = all.into_iter().next();
        let (iops, rtt_us) = exact.as_ref().map_or((0.0, 0.0), |e| (e.iops, e.rtt_us));
        Ok(Found { iops, rtt_us, low, high, exact })
    }
}

/// Throughput and round trip of a ring with given times.
struct Found {
    iops: f64,
    rtt_us: f64,
    low: f64,
    high: f64,
    exact: Option<Exact>,
}

fn span(values: impl Iterator<Item = f64>) -> (f64, f64) {
    values.fold((f64::INFINITY, 0.0), |(low, high): (f64, f64), v| (low.min(v), high.max(v)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn published() -> Setup {
        Preset::named("seed-512").unwrap().setup().unwrap()
    }

    #[test]
    fn two_sends_under_nagle_wait_for_the_delayed_ack() {
        // "at most 25 * QD" below one packet of responses; above it the packet fills.
        let two = Setup { nagle: Some(Nagle { sends: 2, ..Nagle::default() }), ..published() };
        for depth in [1, 4, 15] {
            let iops = two.outcome(depth).unwrap().iops.value;
            assert!(iops <= 25.0 * f64::from(depth) && iops > 24.0 * f64::from(depth), "{depth}: {iops}");
        }
        assert!(two.outcome(16).unwrap().iops.value > 40_000.0);
    }

    #[test]
    fn nagle_costs_in_the_middle_and_nothing_at_the_ends() {
        let nagle = Setup { nagle: Some(Nagle::default()), ..published() };
        let (with, without) = (|d| nagle.outcome(d).unwrap(), |d| published().outcome(d).unwrap());
        assert_eq!(with(1).iops, without(1).iops, "SN = 0 at queue depth 1");
        assert!(with(8).iops_low < without(8).iops_low);
        let needs = nagle.nagle_needs().unwrap();
        assert!((needs.responses_per_packet - 15.98).abs() < 0.005);
        assert!(needs.more_operations <= needs.responses_per_packet);
        assert!(with(64).iops_high >= 0.999 * without(64).iops_high);
    }

    #[test]
    fn uncertain_times_give_uncertain_outcomes() {
        let mut setup = published();
        let stages = setup.ring.stages().iter().cloned().map(|s| s.known_within(0.3, 1.0));
        setup.ring = Ring::new(stages.collect()).unwrap();
        let outcome = setup.outcome(128).unwrap();
        // 15.9 +- 0.3 us: two per cent.
        assert!((outcome.iops.relative() - 0.3 / 15.9).abs() < 1e-3, "{:?}", outcome.iops);
        assert_eq!(published().outcome(128).unwrap().iops.plus_minus, 0.0);
    }

    #[test]
    fn several_sessions_share_the_limit() {
        let setup = Setup { sessions: 4, ..published() };
        let outcome = setup.outcome(32).unwrap();
        assert!((outcome.iops.value / published().ring.iops_max() - 1.0).abs() < 0.05, "{outcome:?}");
        assert!(Setup { sessions: 0, ..published() }.outcome(1).is_err());
    }
}
