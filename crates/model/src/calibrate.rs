//! Stages' times from two runs, as the paper does it: service times from the CPU accounts of a saturated run,
//! latencies from the capture points of a run at queue depth 1.
//!
//! ```text
//! service = CPU share of the thread or softirq / IOPS                 (saturated)
//! CL = RTT - (C2 - C1) - (CI + CP + CK)                               (queue depth 1)
//! SL = (S2 - S1) - (SI + SP + SK)
//! (CT + SR) + (ST + CR) = (C2 - C1) - (S2 - S1) - (W1 + W2)
//! ```

use serde::Serialize;

use super::{ModelError, Ring, Stage};
use crate::known::Known;
use crate::terms::{NETWORK, TermTime};

/// CPU work of one side per operation, microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct SideWork {
    /// SI or CI.
    pub softirq: Known,
    /// SP or CP.
    pub thread: Known,
    /// SK or CK; nothing where it is part of the thread's time, as on Linux, where send() does it.
    pub transmit: Option<Known>,
}

impl SideWork {
    /// The sum.
    #[must_use]
    pub fn sum(&self) -> Known {
        self.softirq + self.thread + self.transmit.unwrap_or_default()
    }
}

/// The saturated run.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct Saturated {
    /// The server's work.
    pub server: SideWork,
    /// The client's.
    pub client: SideWork,
}

/// The run at queue depth 1, means in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize)]
pub struct DepthOne {
    /// RTT.
    pub rtt: Known,
    /// C2 - C1.
    pub outside_client: Known,
    /// S2 - S1.
    pub server: Known,
    /// S1 - C1, where both sides share a clock; otherwise both directions are taken as alike.
    pub request_path: Option<Known>,
}

/// The wire's times.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct WireTimes {
    /// W1, microseconds.
    pub w1_us: f64,
    /// W2, microseconds.
    pub w2_us: f64,
    /// A token bucket keeps the rate: the times are a spacing and not part of an undisturbed round trip.
    pub paced: bool,
}

/// Which stages share a CPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize)]
pub enum Placement {
    /// Softirq, thread and transmit work of a side share a CPU, and the softirq preempts the thread.
    #[default]
    Interrupts,
    /// The same, with the transmit work on a CPU of its own: the paper's pinned thread, SI+SP and SK.
    TransmitApart,
    /// A side's work is one stage: the paper's uniprocessor, and loopback, where softirq work is done in send().
    OneStage,
    /// Each stage has a CPU of its own.
    OwnCpus,
}

/// The result of a calibration.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Calibrated {
    /// The ring, its times with their uncertainties.
    pub ring: Ring,
    /// The terms by the paper's names.
    pub terms: Vec<TermTime>,
}

/// The names of a side's stages, single and merged.
#[derive(Clone, Copy)]
struct StageNames {
    softirq: &'static str,
    thread: &'static str,
    transmit: &'static str,
    thread_and_transmit: &'static str,
    all: &'static str,
}

const SERVER_STAGES: StageNames =
    StageNames { softirq: "SI", thread: "SP", transmit: "SK", thread_and_transmit: "SP+SK", all: "SI+SP+SK" };

const CLIENT_STAGES: StageNames =
    StageNames { softirq: "CI", thread: "CP", transmit: "CK", thread_and_transmit: "CP+CK", all: "CI+CP+CK" };

/// The ring that two runs are of.
///
/// # Errors
/// When a latency is below zero by more than its uncertainty, so that the two runs are not of one system; or when no
/// stage takes any time.
pub fn calibrate(
    saturated: &Saturated,
    depth_one: &DepthOne,
    wire: &WireTimes,
    placement: Placement,
) -> Result<Calibrated, ModelError> {
    let (server, client) = (saturated.server, saturated.client);
    let on_path_us = |us: f64| Known::exactly(if wire.paced { 0.0 } else { us });
    let (w1, w2) = (on_path_us(wire.w1_us), on_path_us(wire.w2_us));
    let both_ways = depth_one.outside_client - depth_one.server;
    // Without a common clock each direction gets half of the latency.
    let request = depth_one.request_path.unwrap_or((both_ways - w1 - w2) * 0.5 + w1);
    let response = Known::within(both_ways.value - request.value, request.plus_minus);
    let client_segment = depth_one.rtt - depth_one.outside_client;
    // Work before a side's first capture point (raising and entering the interrupt) is part of the path: a segment
    // shorter than the side's work shows that, and the difference is taken from the path.
    let Latencies { path: ct_sr, wake: sl } =
        share("SL", request - w1, depth_one.server - server.sum(), wire.w1_us)?;
    let Latencies { path: st_cr, wake: cl } =
        share("CL", response - w2, client_segment - client.sum(), wire.w2_us)?;
    let stage = |name: &str, service: Known, latency: Known| {
        Stage::own(name, service.value, latency.value.max(0.0))
            .known_within(service.plus_minus, latency.plus_minus)
    };
    let zero = Known::default();
    // The network's latency is the wire's, as in the paper's four-stage ring: a busy CPU does not hide it. A token bucket
    // has none: behind one (a veth pair) the latency is the wake-up of the receiver's CPU, and a busy one does not pay it.
    let (of_w1, of_si) = if wire.paced { (zero, ct_sr) } else { (ct_sr, zero) };
    let (of_w2, of_ci) = if wire.paced { (zero, st_cr) } else { (st_cr, zero) };
    let side = |names: StageNames, work: SideWork, path: Known, wake: Known, cpu: &str| match placement {
        Placement::OneStage => vec![stage(names.all, work.sum(), path + wake).on(cpu)],
        Placement::OwnCpus => {
            let mut stages =
                vec![stage(names.softirq, work.softirq, path), stage(names.thread, work.thread, wake)];
            stages.extend(work.transmit.map(|t| stage(names.transmit, t, zero)));
            stages
        }
        Placement::Interrupts | Placement::TransmitApart => {
            let softirq = Stage { interrupt: true, ..stage(names.softirq, work.softirq, path).on(cpu) };
            // Without a figure of its own the transmit work is part of the thread's, as on Linux.
            let thread = if work.transmit.is_some() { names.thread } else { names.thread_and_transmit };
            let mut stages = vec![softirq, stage(thread, work.thread, wake).on(cpu)];
            // On the thread's CPU the call that sends preempts it, as an interrupt does.
            let is_shared = placement == Placement::Interrupts;
            stages.extend(work.transmit.map(|us| {
                let transmit = stage(names.transmit, us, zero);
                if is_shared { Stage { interrupt: true, ..transmit.on(cpu) } } else { transmit }
            }));
            stages
        }
    };
    let of_wire = |name: &str, us: f64, latency: Known| {
        if wire.paced { Stage::pacer(name, us) } else { stage(name, Known::exactly(us), latency) }
    };
    let mut stages = vec![of_wire("W1", wire.w1_us, of_w1)];
    stages.extend(side(SERVER_STAGES, server, of_si, sl, "server CPU"));
    stages.push(of_wire("W2", wire.w2_us, of_w2));
    stages.extend(side(CLIENT_STAGES, client, of_ci, cl, "client CPU"));
    let ring = Ring::new(stages)?;
    let is_known = |term: &str| match term {
        // Only a common clock tells the directions apart.
        "CT+SR" | "ST+CR" => depth_one.request_path.is_some(),
        _ => true,
    };
    let terms = ring.terms().into_iter().filter(|t| is_known(t.term)).map(|t| match t.term {
        // From the measurements: the ring may have them in one sum.
        "SL" => TermTime { us: sl, ..t },
        "CL" => TermTime { us: cl, ..t },
        "CT+SR" => TermTime { us: ct_sr, ..t },
        "ST+CR" => TermTime { us: st_cr, ..t },
        NETWORK => TermTime { us: ct_sr + st_cr, ..t },
        _ => t,
    });
    let terms = terms.collect();
    Ok(Calibrated { ring, terms })
}

/// The two latencies between a side's capture point and its thread.
struct Latencies {
    /// Wire and interrupt.
    path: Known,
    /// The thread's wake-up.
    wake: Known,
}

/// Separates a path's latency from the wake-up after it. A wake-up below zero is taken from the path: work before the
/// capture point, or work on a message's first packets while its last ones still arrive, which cannot be more
/// than the message's time on the wire.
fn share(name: &'static str, path: Known, wake: Known, overlap_us: f64) -> Result<Latencies, ModelError> {
    let (path, wake) =
        if wake.value < 0.0 { (path + wake, Known::within(0.0, wake.plus_minus)) } else { (path, wake) };
    // Three times the uncertainty: sampled CPU accounting is no more precise.
    if path.value < -(3.0 * path.plus_minus + overlap_us) {
        return Err(ModelError::new(
            name,
            format!("{path} us"),
            "a latency cannot be below zero: the service times are longer than the queue depth 1 run had time for, so the \
             two runs are not of one system",
        ));
    }
    Ok(Latencies { path: Known::within(path.value.max(0.0), path.plus_minus), wake })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extras::Extras;

    /// The published pair of runs, at its published precision; the single CPU shares are not printed.
    fn published() -> (Saturated, DepthOne, WireTimes) {
        let time = |text| Known::parse_time_us(text).unwrap();
        let server = SideWork { thread: time("15.9us"), ..SideWork::default() };
        let client = SideWork { thread: time("8.6us"), ..SideWork::default() };
        let depth_one = DepthOne {
            rtt: time("275.7us"),
            outside_client: time("243.4us"),
            server: time("32.6us"),
            request_path: None,
        };
        (Saturated { server, client }, depth_one, WireTimes { w1_us: 1.104, w2_us: 5.2, paced: false })
    }

    #[test]
    fn published_runs_give_the_published_latencies_to_their_digits() {
        let (saturated, depth_one, wire) = published();
        let calibrated = calibrate(&saturated, &depth_one, &wire, Placement::OneStage).unwrap();
        let term = |name| calibrated.terms.iter().find(|t| t.term == name).unwrap().us;
        // "RTT - (C2 - C1) - (CI + CP + CK) = 275.7 - 243.4 - 8.6 = 23.7"; "32.6 - 15.9 = 16.7"
        assert_eq!(term("CL").to_string(), "23.70±0.09");
        assert_eq!(term("SL").to_string(), "16.70±0.07");
        assert!((term("(CT+SR)+(ST+CR)").value - 204.5).abs() < 0.01, "{}", term("(CT+SR)+(ST+CR)"));
        let exact = calibrated.ring.exact(1, &Extras::default()).unwrap();
        assert!((exact.rtt_us - 275.7).abs() < 1e-6);
    }

    #[test]
    fn shares_of_a_cpu_become_times() {
        // "CPU fraction of the thread or softirq / IOPS": 52 % at 63,000 IOPS.
        let share = Known::parse_number("52%").unwrap();
        let per_operation = share / Known::parse_number("63000+-500").unwrap() * 1e6;
        assert_eq!(per_operation.to_string(), "8.3±0.1");
    }

    #[test]
    fn every_placement_has_the_same_undisturbed_round_trip() {
        let (saturated, depth_one, wire) = published();
        for placement in [Placement::Interrupts, Placement::OneStage, Placement::OwnCpus] {
            let ring = calibrate(&saturated, &depth_one, &wire, placement).unwrap().ring;
            assert!((ring.rtt_alone_us() - 275.7).abs() < 1e-6, "{placement:?}");
        }
    }

    #[test]
    fn runs_of_two_systems_are_rejected() {
        let (mut saturated, depth_one, wire) = published();
        saturated.server.thread = Known::within(400.0, 1.0);
        let error = calibrate(&saturated, &depth_one, &wire, Placement::OneStage).unwrap_err().to_string();
        assert!(error.contains("SL") && error.contains("not of one system"), "{error}");
    }
}
