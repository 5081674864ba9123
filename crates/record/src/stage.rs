//! The stages of the ring, by the paper's names.
//!
//! A term's first letter is the side: C client (initiator), S server (target), W wire. Service terms say how
//! long a stage works on one operation, start latencies how long an idle stage takes to begin, waits how
//! long an operation stands in a stage's queue.

use crate::op::Side;
use serde::{Deserialize, Serialize};

/// One of the sixteen terms whose sum is the round trip (the paper, "Revised Identities"), in flow order
/// from the start line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Term {
    /// Wait in the client's transmit buffer; includes CN, the client's Nagle delay.
    Cw,
    /// Client transmit work, up to capture point C1.
    Ck,
    /// Client transmit latency: from C1 until the wire begins.
    Ct,
    /// The request on the wire.
    W1,
    /// Server receive latency (interrupt), up to capture point S1.
    Sr,
    /// Server receive softirq work.
    Si,
    /// Wait in the server's receive buffer; includes SL, the scheduling latency.
    Sq,
    /// Server thread work.
    Sp,
    /// Wait in the server's transmit buffer; includes SN, the server's Nagle delay.
    Sw,
    /// Server transmit work, up to capture point S2.
    Sk,
    /// Server transmit latency: from S2 until the wire begins.
    St,
    /// The response on the wire.
    W2,
    /// Client receive latency (interrupt), up to capture point C2.
    Cr,
    /// Client receive softirq work.
    Ci,
    /// Wait in the client's receive buffer; includes CL, the scheduling latency.
    Cq,
    /// Client thread work.
    Cp,
}

impl Term {
    /// All sixteen, in flow order.
    pub const ALL: [Term; 16] = [
        Term::Cw,
        Term::Ck,
        Term::Ct,
        Term::W1,
        Term::Sr,
        Term::Si,
        Term::Sq,
        Term::Sp,
        Term::Sw,
        Term::Sk,
        Term::St,
        Term::W2,
        Term::Cr,
        Term::Ci,
        Term::Cq,
        Term::Cp,
    ];

    /// The paper's name: `CW`, `CK`, ...
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Term::Cw => "CW",
            Term::Ck => "CK",
            Term::Ct => "CT",
            Term::W1 => "W1",
            Term::Sr => "SR",
            Term::Si => "SI",
            Term::Sq => "SQ",
            Term::Sp => "SP",
            Term::Sw => "SW",
            Term::Sk => "SK",
            Term::St => "ST",
            Term::W2 => "W2",
            Term::Cr => "CR",
            Term::Ci => "CI",
            Term::Cq => "CQ",
            Term::Cp => "CP",
        }
    }

    /// What the term means, in a few words.
    #[must_use]
    pub fn meaning(self) -> &'static str {
        match self {
            Term::Cw => "waits in the client's transmit buffer",
            Term::Ck => "client transmit work",
            Term::Ct => "client transmit latency",
            Term::W1 => "request on the wire",
            Term::Sr => "server receive latency",
            Term::Si => "server receive softirq",
            Term::Sq => "waits for the server thread",
            Term::Sp => "server thread work",
            Term::Sw => "waits in the server's transmit buffer",
            Term::Sk => "server transmit work",
            Term::St => "server transmit latency",
            Term::W2 => "response on the wire",
            Term::Cr => "client receive latency",
            Term::Ci => "client receive softirq",
            Term::Cq => "waits for the client thread",
            Term::Cp => "client thread work",
        }
    }

    /// Whether the term is a service time: it then counts towards RTTmin.
    #[must_use]
    pub fn is_service(self) -> bool {
        matches!(self, Term::Ck | Term::W1 | Term::Si | Term::Sp | Term::Sk | Term::W2 | Term::Ci | Term::Cp)
    }
}

/// The eight service times of the ring, microseconds per operation.
#[derive(Clone, Copy, Debug, PartialEq, Default, Serialize, Deserialize)]
pub struct ServiceTimes {
    /// Client transmit work.
    pub ck_us: f64,
    /// Request on the wire.
    pub w1_us: f64,
    /// Server receive softirq.
    pub si_us: f64,
    /// Server thread.
    pub sp_us: f64,
    /// Server transmit work.
    pub sk_us: f64,
    /// Response on the wire.
    pub w2_us: f64,
    /// Client receive softirq.
    pub ci_us: f64,
    /// Client thread.
    pub cp_us: f64,
}

impl ServiceTimes {
    /// All server CPU work of one operation: SI + SP + SK.
    #[must_use]
    pub fn server_us(&self) -> f64 {
        self.si_us + self.sp_us + self.sk_us
    }

    /// All client CPU work of one operation: CI + CP + CK.
    #[must_use]
    pub fn client_us(&self) -> f64 {
        self.ci_us + self.cp_us + self.ck_us
    }

    /// RTTmin: the round trip when nothing ever waits (the paper, "Revised Identities").
    #[must_use]
    pub fn rtt_min_us(&self) -> f64 {
        self.w1_us + self.w2_us + self.server_us() + self.client_us()
    }
}

/// Which stages share a CPU on each side; decides TPTmin (the paper's three published cases, generalised
/// to both sides).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuSharing {
    /// Every stage on its own CPU.
    #[default]
    OwnCpus,
    /// The thread shares its CPU with the receive softirq: SI+SP is one stage.
    ThreadWithSoftirq,
    /// Thread, receive softirq and transmit work all on one CPU: SI+SP+SK is one stage.
    Uniprocessor,
}

/// A stage, or several stages on one resource, that could limit the ring.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Resource {
    /// The stages on it, as `SI+SP`.
    pub stages: String,
    /// Service time per operation, microseconds.
    pub service_us: f64,
    /// What it is.
    pub place: Place,
}

/// What serves stages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Place {
    /// A direction of the wire.
    Wire,
    /// A CPU of this side.
    Cpu(Side),
}

/// The resources of the ring under a CPU placement, in flow order.
#[must_use]
pub fn resources(times: &ServiceTimes, client: CpuSharing, server: CpuSharing) -> Vec<Resource> {
    let wire =
        |stages: &str, service_us| Resource { stages: stages.to_owned(), service_us, place: Place::Wire };
    let side = |side, sharing, [i, p, k]: [&str; 3], i_us: f64, p_us: f64, k_us: f64| {
        let cpu = |stages: &str, service_us| Resource {
            stages: stages.to_owned(),
            service_us,
            place: Place::Cpu(side),
        };
        match sharing {
            CpuSharing::OwnCpus => vec![cpu(i, i_us), cpu(p, p_us), cpu(k, k_us)],
            CpuSharing::ThreadWithSoftirq => vec![cpu(&format!("{i}+{p}"), i_us + p_us), cpu(k, k_us)],
            CpuSharing::Uniprocessor => vec![cpu(&format!("{i}+{p}+{k}"), i_us + p_us + k_us)],
        }
    };
    let mut all = vec![wire("W1", times.w1_us)];
    all.extend(side(Side::Server, server, ["SI", "SP", "SK"], times.si_us, times.sp_us, times.sk_us));
    all.push(wire("W2", times.w2_us));
    all.extend(side(Side::Client, client, ["CI", "CP", "CK"], times.ci_us, times.cp_us, times.ck_us));
    all
}

/// The resource that limits the ring: the one with the longest service time, the first of equals. TPTmin is
/// its `service_us`.
#[must_use]
pub fn bottleneck(resources: &[Resource]) -> Option<&Resource> {
    resources.iter().reduce(|best, r| if r.service_us > best.service_us { r } else { best })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's CPU-bound 512-byte figures are not all printed; these keep its proportions.
    const TIMES: ServiceTimes = ServiceTimes {
        ck_us: 1.0,
        w1_us: 1.1,
        si_us: 4.0,
        sp_us: 9.0,
        sk_us: 2.9,
        w2_us: 5.2,
        ci_us: 2.0,
        cp_us: 5.6,
    };

    #[test]
    fn tpt_min_follows_the_three_published_placements() {
        let tpt_min = |sharing| {
            bottleneck(&resources(&TIMES, CpuSharing::OwnCpus, sharing))
                .map(|r| (r.stages.clone(), r.service_us))
        };
        assert_eq!(tpt_min(CpuSharing::OwnCpus), Some(("SP".into(), 9.0)));
        assert_eq!(tpt_min(CpuSharing::ThreadWithSoftirq), Some(("SI+SP".into(), 13.0)));
        assert_eq!(tpt_min(CpuSharing::Uniprocessor), Some(("SI+SP+SK".into(), 15.9)));
    }

    #[test]
    fn rtt_min_is_the_sum_of_the_eight_service_times() {
        assert!((TIMES.rtt_min_us() - 30.8).abs() < 1e-9);
        assert_eq!(Term::ALL.iter().filter(|t| t.is_service()).count(), 8);
    }

    #[test]
    fn an_empty_ring_has_no_bottleneck() {
        assert_eq!(bottleneck(&[]), None);
    }
}
