//! The breakdown: one run's round trip as the paper's sixteen terms, separated as far as the measurement allows,
//! summed where it does not.

use model::bound::{Bound, queue_depth_cpu_bound, queue_depth_network_bound};
use record::Side;
use record::split::queue_depth;
use record::stage::{CpuSharing, Place, ServiceTimes, Term, bottleneck, resources};
use serde::{Deserialize, Serialize};

use crate::cost::{CpuCost, PathCost};
use crate::segments::Segments;
use crate::stages::{Cause, SideWork, Stage, Traced};

/// The inputs of a breakdown.
#[derive(Clone, Debug)]
pub struct StanzaInput<'a> {
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
    /// How the kernel's events divide what accounts and capture points cannot separate.
    pub shares: Option<Shares>,
    /// Where the sides' softirqs run.
    pub softirqs: Softirqs,
}

/// Where the softirqs of both sides run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Softirqs {
    /// Each side's on a CPU of that side: accounts tell them apart.
    #[default]
    Apart,
    /// All on one CPU: accounts do not tell for which side they work, and each is charged with half.
    Common,
}

/// How the kernel's events divide remainders of segments, 0 to 1 each.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Shares {
    /// CQ in CW+CQ.
    pub client_queue: f64,
    /// SQ in SW+SQ.
    pub server_queue: f64,
    /// The interrupt to the server's CPU in CT+SR.
    pub request_interrupt: f64,
    /// The interrupt to the client's CPU in ST+CR.
    pub response_interrupt: f64,
}

impl Shares {
    /// The shares that events show.
    #[must_use]
    pub fn of(traced: &Traced) -> Self {
        let queue_share = |receive: Stage, others: [Stage; 3], work: SideWork| {
            let queue = traced.mean_us(receive) - work.receive_softirq_us;
            let thread = work.thread_us + work.transmit_softirq_us;
            let waits = others.iter().map(|stage| traced.mean_us(*stage)).sum::<f64>() - thread;
            let (queue, waits) = (queue.max(0.0), waits.max(0.0));
            share(queue, queue + waits)
        };
        // The time by cause is of all operations that were in the stage, the mean that of the received ones: with few
        // events the part may be more than the whole.
        let interrupt = |path| share(traced.time_us(path, Cause::Interrupt), traced.mean_us(path));
        Self {
            client_queue: queue_share(
                Stage::ClientReceive,
                [Stage::ClientProgram, Stage::ClientSend, Stage::ClientQueue],
                traced.client,
            ),
            server_queue: queue_share(
                Stage::ServerReceive,
                [Stage::ServerProgram, Stage::ServerSend, Stage::ServerQueue],
                traced.server,
            ),
            request_interrupt: interrupt(Stage::RequestPath),
            response_interrupt: interrupt(Stage::ResponsePath),
        }
    }
}

/// A part's share of a whole, 0 to 1; 0 of nothing.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 0.0 }
}

/// One term, or a sum of terms that cannot be separated.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TermValue {
    /// `SP+SK`.
    pub terms: String,
    /// Mean, microseconds.
    pub mean_us: f64,
    /// How far it may be from the truth, microseconds.
    #[serde(default)]
    pub within_us: f64,
    /// Its source.
    pub source: TermSource,
}

/// How well CPU work per operation is known, relative: the service times come from another run than the segments.
const WORK_WITHIN: f64 = 0.1;
/// How well a segment is known, microseconds: the code between its two stamps and the places that they stand for.
const SEGMENT_WITHIN_US: f64 = 1.3;

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
    /// A share of such a remainder, by the kernel's events.
    Events,
    /// Zero by a known-zero rule of the paper.
    Rule,
}

/// Whether the joined records are all operations that the client counted. It says nothing about the terms: one term of each
/// segment is a remainder, so they sum to the joined round trip for any input ([`crate::closure`] tests them).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Joined {
    /// Sum of all terms, microseconds: the mean round trip of the joined operations.
    pub rtt_us: f64,
    /// Relative difference from the mean round trip of all operations that the client counted.
    pub rtt_error: f64,
    /// IOPS * RTT.
    pub queue_depth: f64,
    /// Relative difference of IOPS * RTT from QD: whether the client counted all completions.
    pub queue_depth_error: f64,
    /// Both differences are within their limits.
    pub holds: bool,
}

impl Joined {
    /// Limit of the difference between the joined operations' round trip and all operations'.
    pub const RTT_LIMIT: f64 = 0.01;
    /// Limit of the difference between IOPS * RTT and QD.
    pub const QUEUE_DEPTH_LIMIT: f64 = 0.02;
}

/// A remainder below zero by more than its uncertainty: the service times in its segment are too large, or the segment is too
/// small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NegativeTerm {
    /// `CW+CQ`.
    pub terms: String,
    /// Its value, microseconds.
    pub mean_us: f64,
    /// Its uncertainty, microseconds.
    pub within_us: f64,
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
    /// Whether they are those of all operations.
    pub joined: Joined,
    /// Remainders that cannot be true.
    pub negative: Vec<NegativeTerm>,
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
        let s = &input.segments;
        let mut terms: Vec<TermValue> = Vec::new();
        let mut add = |name: &str, mean_us: f64, within_us: f64, source| {
            terms.push(TermValue { terms: name.to_owned(), mean_us, within_us, source });
        };
        let work = |us: f64| us * WORK_WITHIN;

        // The client, both directions: C1 - start and finish - C2.
        let (thread, softirq) = (cpu.client_thread_us, cpu.client_softirq_us);
        add("CP+CK", thread, work(thread), TermSource::CpuAccounting);
        add("CI", softirq, work(softirq), TermSource::CpuAccounting);
        // On loopback a side's CPU also executes the other side's softirqs, so softirq work may be in another segment.
        let elsewhere_us = match (input.path, input.softirqs) {
            (Some(_), Softirqs::Apart) => 0.0,
            (Some(_), Softirqs::Common) => (cpu.client_softirq_us + cpu.server_softirq_us) / 2.0,
            (None, _) => cpu.client_softirq_us + cpu.server_softirq_us,
        };
        let queue_share = input.shares.map(|shares| shares.client_queue);
        let client = Waits { waits: Term::Cw, queue: Term::Cq, queue_share, elsewhere_us };
        client.add(input.queue_depth, s.client.mean_us, thread + softirq, &mut add);
        match (s.request_path, s.response_path) {
            (Some(request), Some(response)) => {
                for (way, latency, interrupt, us, wire_us, share) in [
                    (
                        "W1",
                        "CT+SR",
                        "SX",
                        request.mean_us,
                        path.w1_us,
                        input.shares.map(|s| s.request_interrupt),
                    ),
                    (
                        "W2",
                        "ST+CR",
                        "CX",
                        response.mean_us,
                        path.w2_us,
                        input.shares.map(|s| s.response_interrupt),
                    ),
                ] {
                    let wire_us = path.on_path_us(wire_us);
                    add(way, wire_us, 0.0, TermSource::Arithmetic);
                    let rest = us - wire_us;
                    let interrupt_us = rest.max(0.0) * share.unwrap_or(0.0);
                    if share.is_some() {
                        add(interrupt, interrupt_us, SEGMENT_WITHIN_US, TermSource::Events);
                    }
                    add(latency, rest - interrupt_us, SEGMENT_WITHIN_US, TermSource::Remainder);
                }
            }
            _ => {
                let wire = path.on_path_us(path.w1_us + path.w2_us);
                add("W1+W2", wire, 0.0, TermSource::Arithmetic);
                add("CT+SR+ST+CR", s.network.mean_us - wire, 2.0 * SEGMENT_WITHIN_US, TermSource::Remainder);
            }
        }
        let (thread, softirq) = (cpu.server_thread_us, cpu.server_softirq_us);
        add("SI", softirq, work(softirq), TermSource::CpuAccounting);
        add("SP+SK", thread, work(thread), TermSource::CpuAccounting);
        let queue_share = input.shares.map(|shares| shares.server_queue);
        let server = Waits { waits: Term::Sw, queue: Term::Sq, queue_share, elsewhere_us };
        server.add(input.queue_depth, s.server.mean_us, thread + softirq, &mut add);

        let stages_us = terms.iter().map(|t| t.mean_us).sum::<f64>();
        let identity = queue_depth(input.iops, input.rtt_us);
        let (rtt_error, queue_depth_error) =
            (stages_us / input.rtt_us - 1.0, identity / f64::from(input.queue_depth) - 1.0);
        let joined = Joined {
            rtt_us: stages_us,
            rtt_error,
            queue_depth: identity,
            queue_depth_error,
            holds: rtt_error.abs() <= Joined::RTT_LIMIT
                && queue_depth_error.abs() <= Joined::QUEUE_DEPTH_LIMIT,
        };
        let negative = terms
            .iter()
            .filter(|term| term.source == TermSource::Remainder && term.mean_us < -term.within_us)
            .map(|term| NegativeTerm {
                terms: term.terms.clone(),
                mean_us: term.mean_us,
                within_us: term.within_us,
            })
            .collect();
        Self { terms, joined, negative, limit }
    }
}

/// The two waits of a side, whose sum is the remainder of its segment.
struct Waits {
    /// To be sent.
    waits: Term,
    /// For the thread.
    queue: Term,
    /// The second one's share.
    queue_share: Option<f64>,
    /// Work that may be in another segment, microseconds.
    elsewhere_us: f64,
}

impl Waits {
    fn add(
        &self,
        queue_depth: u32,
        segment_us: f64,
        work_us: f64,
        add: &mut dyn FnMut(&str, f64, f64, TermSource),
    ) {
        let sum_us = segment_us - work_us;
        let within_us = work_us * WORK_WITHIN + SEGMENT_WITHIN_US + self.elsewhere_us;
        let (waits, queue) = (self.waits.name(), self.queue.name());
        match self.queue_share {
            // Nothing is ahead of an operation that is alone (the paper's known-zero rules for queue depth 1).
            _ if queue_depth == 1 => {
                add(queue, sum_us, within_us, TermSource::Remainder);
                add(waits, 0.0, 0.0, TermSource::Rule);
            }
            Some(share) if sum_us > 0.0 => {
                add(queue, sum_us * share, within_us, TermSource::Events);
                add(waits, sum_us * (1.0 - share), within_us, TermSource::Events);
            }
            _ => add(&format!("{waits}+{queue}"), sum_us, within_us, TermSource::Remainder),
        }
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
            shares: None,
            softirqs: Softirqs::Apart,
        }
    }

    #[test]
    fn nothing_has_a_share_of_zero() {
        // A run with almost no events printed an interrupt of 1e308 us.
        for (part, whole, expected) in
            [(3.0, 0.0, 0.0), (3.0, -1.0, 0.0), (3.0, 2.0, 1.0), (-1.0, 2.0, 0.0), (1.0, 4.0, 0.25)]
        {
            assert_eq!(share(part, whole), expected, "{part} of {whole}");
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
        assert!(b.joined.holds && b.negative.is_empty(), "{b:?}");
        assert!((b.limit.tpt_min_us - 15.9).abs() < 1e-9);
        assert_eq!((b.limit.bound, b.limit.bottleneck.as_str()), (Bound::ServerCpu, "SI+SP+SK"));
    }

    /// Service times that leave less than nothing for a latency are a contradiction, on a wire and on loopback, where softirq work
    /// may be in another segment.
    #[test]
    fn a_latency_below_zero_is_a_contradiction() {
        let segments = published();
        let of = |client_thread_us: f64, path: Option<PathCost>| {
            let cpu = CpuCost { client_thread_us, ..input(&segments).cpu };
            let b = Breakdown::of(&StanzaInput { cpu, path, ..input(&segments) });
            b.negative.iter().map(|term| (term.terms.clone(), term.mean_us.round())).collect::<Vec<_>>()
        };
        let wire = input(&segments).path;
        assert_eq!(
            of(43.4, wire),
            [("CQ".to_owned(), -14.0)],
            "as it was published nowhere: 32.3 - 43.4 - 2.6"
        );
        assert_eq!(of(43.4, None), [("CQ".to_owned(), -14.0)]);
        // Within the uncertainty of the work and of the stamps; on loopback also within that of 6.6 us of softirqs.
        assert_eq!(of(33.0, wire), []);
        assert_eq!(of(38.0, wire).len(), 1);
        assert_eq!(of(38.0, None), []);
        // Accounts of a common CPU charge half of the softirqs to each side.
        let cpu = CpuCost { client_thread_us: 36.0, ..input(&segments).cpu };
        for (softirqs, count) in [(Softirqs::Apart, 1), (Softirqs::Common, 0)] {
            let b = Breakdown::of(&StanzaInput { cpu, softirqs, ..input(&segments) });
            assert_eq!(b.negative.len(), count, "{softirqs:?}: {b:?}");
        }
    }

    #[test]
    fn operations_that_did_not_join_show_in_the_round_trip() {
        let segments = published();
        let b = Breakdown::of(&StanzaInput { rtt_us: 290.0, ..input(&segments) });
        assert!(!b.joined.holds);
        let b = Breakdown::of(&StanzaInput { iops: 5000.0, ..input(&segments) });
        assert!(!b.joined.holds && b.joined.queue_depth_error > 0.3);
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
        assert!(b.joined.holds);
        // The rate still counts.
        let slow = PathCost { w1_us: 1.1, w2_us: 52.0, token_bucket: true };
        let b = Breakdown::of(&StanzaInput { path: Some(slow), ..input(&segments) });
        assert_eq!((b.limit.bound, b.limit.tpt_min_us), (Bound::Network, 52.0));
    }

    #[test]
    fn events_divide_what_accounts_cannot() {
        let (request_path, response_path) = (Some(mean(20.0)), Some(mean(30.0)));
        let segments = Segments { network: mean(50.0), request_path, response_path, ..published() };
        let shares = Shares {
            client_queue: 0.75,
            server_queue: 0.25,
            request_interrupt: 0.5,
            response_interrupt: 0.8,
        };
        let path = Some(PathCost { w1_us: 1.1, w2_us: 5.2, token_bucket: true });
        let rtt_us = 32.3 + 32.6 + 50.0;
        let whole = StanzaInput {
            queue_depth: 4,
            iops: 4e6 / rtt_us,
            rtt_us,
            path,
            shares: Some(shares),
            ..input(&segments)
        };
        let b = Breakdown::of(&whole);
        let term = |name: &str| b.terms.iter().find(|t| t.terms == name).map(|t| t.mean_us);
        let close =
            |name: &str, wanted: f64| assert!((term(name).unwrap() - wanted).abs() < 1e-9, "{name}: {b:?}");
        close("CQ", 23.7 * 0.75);
        close("CW", 23.7 * 0.25);
        close("SQ", 16.7 * 0.25);
        close("SW", 16.7 * 0.75);
        close("SX", 10.0);
        close("CT+SR", 10.0);
        close("CX", 24.0);
        close("ST+CR", 6.0);
        assert!(b.joined.holds);
        // One name for one thing: without events the sum is printed as a sum at each depth above 1, whatever the bottleneck is.
        for cpu in [whole.cpu, CpuCost { client_thread_us: 30.0, ..whole.cpu }] {
            let b = Breakdown::of(&StanzaInput { shares: None, cpu, ..whole.clone() });
            let names: Vec<&str> = b.terms.iter().map(|t| t.terms.as_str()).collect();
            assert!(names.contains(&"CW+CQ") && names.contains(&"SW+SQ"), "{names:?}");
        }
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
