//! The breakdown: one run's round trip as the paper's sixteen terms, separated as far as the measurement allows,
//! summed where it does not.

use model::bound::{Bound, queue_depth_cpu_bound, queue_depth_network_bound};
use model::known_zero::zero_waits;
use record::Side;
use record::split::queue_depth;
use record::stage::{CpuSharing, Place, ServiceTimes, Term, bottleneck, resources};
use serde::{Deserialize, Serialize};

use crate::cost::{CpuCost, PathCost};
use crate::segments::Segments;

/// The inputs of a breakdown.
#[derive(Clone, Debug)]
pub struct StanzaInput<'a> {
    /// Bytes per operation.
    pub block_bytes: u64,
    /// TCP_NODELAY on the server.
    pub nodelay: bool,
    /// Operations in flight.
    pub queue_depth: u32,
    /// Operations per second while the records were made.
    pub iops: f64,
    /// Mean round trip by the client's own count of every operation, microseconds.
    pub rtt_us: f64,
    /// The joined records' segments.
    pub segments: Segments,
    /// CPU work per operation (of the CPU-bound run of this size and policy).
    pub cpu: CpuCost,
    /// The wire; `None` on loopback.
    pub path: Option<PathCost>,
    /// Client thread, softirq and transmit work on one CPU, and the same for the server.
    pub sharing: (CpuSharing, CpuSharing),
    /// The queue depth 1 segments of this size and policy, for the latencies.
    pub depth_one: &'a Segments,
}

/// One term, or a sum of terms that cannot be separated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TermValue {
    /// `SP+SK`.
    pub terms: String,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// Its source.
    pub source: TermSource,
}

/// The source of a term's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TermSource {
    /// The kernel's CPU accounting.
    CpuAccounting,
    /// Wire arithmetic.
    Arithmetic,
    /// The remainder of a measured segment.
    Remainder,
    /// Zero by a known-zero rule of the paper.
    Rule,
}

/// Checks that sums agree with the measurement.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Closure {
    /// Sum of all terms, microseconds.
    pub stages_us: f64,
    /// Relative difference of the sum from RTT.
    pub stages_error: f64,
    /// IOPS * RTT.
    pub queue_depth: f64,
    /// Relative difference of IOPS * RTT from QD.
    pub queue_depth_error: f64,
    /// Both differences are within their limits.
    pub holds: bool,
}

impl Closure {
    /// Limit of the difference between the sum of the stages and RTT.
    pub const STAGES_LIMIT: f64 = 0.01;
    /// Limit of the difference between IOPS * RTT and QD.
    pub const QUEUE_DEPTH_LIMIT: f64 = 0.02;
}

/// The limit of the ring, and the depth at which it is reached.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Limit {
    /// Network bound or CPU bound at depth.
    pub bound: Bound,
    /// The stages of the bottleneck, as `SI+SP+SK`.
    pub bottleneck: String,
    /// TPTmin: its service time, microseconds.
    pub tpt_min_us: f64,
    /// 1 / TPTmin.
    pub iops_max: f64,
    /// Queue depth needed to stay at the limit: [1] or [2].
    pub queue_depth_needed: f64,
    /// RTTmin: all service times on an operation's path, microseconds.
    pub rtt_min_us: f64,
    /// CL, microseconds.
    pub cl_us: f64,
    /// SL, microseconds.
    pub sl_us: f64,
    /// (CT+SR)+(ST+CR), microseconds.
    pub network_latency_us: f64,
}

/// A run's breakdown.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Breakdown {
    /// In flow order.
    pub terms: Vec<TermValue>,
    /// Whether the terms add up.
    pub closure: Closure,
    /// The limit of the ring.
    pub limit: Limit,
}

impl Breakdown {
    /// Breaks down a run's round trip.
    #[must_use]
    pub fn of(input: &StanzaInput<'_>) -> Self {
        let path = input.path.unwrap_or_default();
        let cpu = &input.cpu;
        let limit = limit(input, path);
        let zero = zero_waits(input.queue_depth, input.nodelay, limit.bound);
        let s = &input.segments;
        let mut terms = Vec::new();
        let mut add = |terms_in_sum: &str, mean_us: f64, source| {
            terms.push(TermValue { terms: terms_in_sum.to_owned(), mean_us, source });
        };
        // If a rule sets a wait to zero, the remainder of its segment belongs to the other wait.
        let waits = |first: Term, second: Term| -> String {
            match (zero.contains(&first), zero.contains(&second)) {
                (true, _) => second.name().to_owned(),
                (_, true) => first.name().to_owned(),
                _ => format!("{}+{}", first.name(), second.name()),
            }
        };

        // The client, both directions: C1 - start and finish - C2.
        add("CP+CK", cpu.client_thread_us, TermSource::CpuAccounting);
        add("CI", cpu.client_softirq_us, TermSource::CpuAccounting);
        let client_waits = s.client.mean_us - cpu.client_thread_us - cpu.client_softirq_us;
        add(&waits(Term::Cw, Term::Cq), client_waits, TermSource::Remainder);
        match (s.request_path, s.response_path) {
            (Some(request), Some(response)) => {
                let (w1, w2) = (path.on_path_us(path.w1_us), path.on_path_us(path.w2_us));
                add("W1", w1, TermSource::Arithmetic);
                add("CT+SR", request.mean_us - w1, TermSource::Remainder);
                add("W2", w2, TermSource::Arithmetic);
                add("ST+CR", response.mean_us - w2, TermSource::Remainder);
            }
            _ => {
                let wire = path.on_path_us(path.w1_us + path.w2_us);
                add("W1+W2", wire, TermSource::Arithmetic);
                add("CT+SR+ST+CR", s.network.mean_us - wire, TermSource::Remainder);
            }
        }
        add("SI", cpu.server_softirq_us, TermSource::CpuAccounting);
        add("SP+SK", cpu.server_thread_us, TermSource::CpuAccounting);
        let server_waits = s.server.mean_us - cpu.server_softirq_us - cpu.server_thread_us;
        add(&waits(Term::Sw, Term::Sq), server_waits, TermSource::Remainder);
        for term in zero.iter().filter(|t| matches!(t, Term::Cw | Term::Sw)) {
            add(term.name(), 0.0, TermSource::Rule);
        }

        let stages_us = terms.iter().map(|t| t.mean_us).sum::<f64>();
        let identity = queue_depth(input.iops, input.rtt_us);
        let (stages_error, queue_depth_error) =
            (stages_us / input.rtt_us - 1.0, identity / f64::from(input.queue_depth) - 1.0);
        let closure = Closure {
            stages_us,
            stages_error,
            queue_depth: identity,
            queue_depth_error,
            holds: stages_error.abs() <= Closure::STAGES_LIMIT
                && queue_depth_error.abs() <= Closure::QUEUE_DEPTH_LIMIT,
        };
        Self { terms, closure, limit }
    }
}

/// The limit of the ring of this size and policy.
fn limit(input: &StanzaInput<'_>, path: PathCost) -> Limit {
    let (cpu, one) = (&input.cpu, input.depth_one);
    // Transmit work cannot be separated from the thread's work and is included in it.
    let times = ServiceTimes {
        ck_us: 0.0,
        w1_us: path.w1_us,
        si_us: cpu.server_softirq_us,
        sp_us: cpu.server_thread_us,
        sk_us: 0.0,
        w2_us: path.w2_us,
        ci_us: cpu.client_softirq_us,
        cp_us: cpu.client_thread_us,
    };
    let all = resources(&times, input.sharing.0, input.sharing.1);
    let busiest = bottleneck(&all);
    let (name, tpt_min_us) = busiest.map_or((String::new(), f64::NAN), |r| (r.stages.clone(), r.service_us));
    let bound = match busiest.map(|r| r.place) {
        Some(Place::Wire) => Bound::Network,
        Some(Place::Cpu(Side::Client)) => Bound::ClientCpu,
        Some(Place::Cpu(Side::Server)) | None => Bound::ServerCpu,
    };
    let wire_us = path.on_path_us(path.w1_us + path.w2_us);
    let cl_us = one.client.mean_us - times.client_us();
    let sl_us = one.server.mean_us - times.server_us();
    let network_latency_us = one.network.mean_us - wire_us;
    let rtt_min_us = times.server_us() + times.client_us() + wire_us;
    let queue_depth_needed = match bound {
        Bound::Network => {
            queue_depth_network_bound(cl_us, rtt_min_us + network_latency_us, sl_us, tpt_min_us)
        }
        Bound::ServerCpu => queue_depth_cpu_bound(cl_us, rtt_min_us + network_latency_us, tpt_min_us),
        // The same derivation with the client as the busy stage: CL drops out, SL does not.
        Bound::ClientCpu => (sl_us + rtt_min_us + network_latency_us) / tpt_min_us,
    };
    Limit {
        bound,
        bottleneck: name,
        tpt_min_us,
        iops_max: 1e6 / tpt_min_us,
        queue_depth_needed,
        rtt_min_us,
        cl_us,
        sl_us,
        network_latency_us,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::segments::SegmentFigures;

    fn mean(mean_us: f64) -> SegmentFigures {
        SegmentFigures { mean_us, ..SegmentFigures::default() }
    }

    /// The paper's 512-byte NODELAY run at depth 1.
    fn published() -> Segments {
        Segments {
            operations: 1000,
            rtt: mean(275.7),
            client: mean(32.3),
            server: mean(32.6),
            network: mean(210.8),
            ..Segments::default()
        }
    }

    fn input(segments: &Segments) -> StanzaInput<'_> {
        StanzaInput {
            block_bytes: 512,
            nodelay: true,
            queue_depth: 1,
            iops: 1e6 / 275.7,
            rtt_us: 275.7,
            segments: *segments,
            cpu: CpuCost {
                client_thread_us: 6.0,
                client_softirq_us: 2.6,
                server_thread_us: 11.9,
                server_softirq_us: 4.0,
            },
            path: Some(PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: false }),
            sharing: (CpuSharing::Uniprocessor, CpuSharing::Uniprocessor),
            depth_one: segments,
        }
    }

    #[test]
    fn the_published_run_breaks_down_as_published() {
        let segments = published();
        let b = Breakdown::of(&input(&segments));
        let term = |name| b.terms.iter().find(|t| t.terms == name).map(|t| t.mean_us);
        assert!((term("CQ").unwrap() - 23.7).abs() < 1e-9, "CQ = CL = 23.7");
        assert!((term("SQ").unwrap() - 16.7).abs() < 1e-9, "SQ = SL = 16.7");
        assert!((term("CT+SR+ST+CR").unwrap() - 204.5).abs() < 1e-9);
        assert!(b.closure.holds, "{:?}", b.closure);
        assert!((b.limit.tpt_min_us - 15.9).abs() < 1e-9);
        assert_eq!((b.limit.bound, b.limit.bottleneck.as_str()), (Bound::ServerCpu, "SI+SP+SK"));
    }

    #[test]
    fn reports_sums_that_do_not_close() {
        let segments = published();
        let b = Breakdown::of(&StanzaInput { rtt_us: 290.0, ..input(&segments) });
        assert!(!b.closure.holds);
        let b = Breakdown::of(&StanzaInput { iops: 5000.0, ..input(&segments) });
        assert!(!b.closure.holds && b.closure.queue_depth_error > 0.3);
    }

    #[test]
    fn a_token_bucket_s_time_is_no_part_of_an_unqueued_way() {
        let (request_path, response_path) = (Some(mean(1.5)), Some(mean(2.0)));
        let segments = Segments { network: mean(3.5), request_path, response_path, ..published() };
        let path = Some(PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: true });
        let rtt_us = 32.3 + 32.6 + 3.5;
        let b = Breakdown::of(&StanzaInput { path, rtt_us, iops: 1e6 / rtt_us, ..input(&segments) });
        let term = |name| b.terms.iter().find(|t| t.terms == name).map(|t| t.mean_us).unwrap();
        assert!(term("W2").abs() < 1e-9 && (term("ST+CR") - 2.0).abs() < 1e-9);
        assert!(term("W1").abs() < 1e-9 && (term("CT+SR") - 1.5).abs() < 1e-9);
        assert!(b.closure.holds);
        // The rate still counts.
        let slow = PathCost { w1_us: 1.1, w2_us: 52.0, token_bucket: true };
        let b = Breakdown::of(&StanzaInput { path: Some(slow), ..input(&segments) });
        assert_eq!((b.limit.bound, b.limit.tpt_min_us), (Bound::Network, 52.0));
    }

    #[test]
    fn the_busiest_resource_decides_the_bound() {
        let segments = published();
        let of = |client_thread_us: f64, w2_us: f64| {
            let cpu = CpuCost { client_thread_us, ..input(&segments).cpu };
            let path = Some(PathCost { w1_us: 1.1, w2_us, token_bucket: false });
            let limit = Breakdown::of(&StanzaInput { cpu, path, ..input(&segments) }).limit;
            (limit.bound, limit.bottleneck)
        };
        assert_eq!(of(6.0, 5.2), (Bound::ServerCpu, "SI+SP+SK".to_owned()));
        assert_eq!(of(40.0, 5.2), (Bound::ClientCpu, "CI+CP+CK".to_owned()));
        assert_eq!(of(6.0, 90.0), (Bound::Network, "W2".to_owned()));
    }
}
