//! Terms that are known to be equal to something else (the paper, "Sometimes a component is known to be
//! equal to something else").

use serde::Serialize;

use crate::bound::Bound;
use record::stage::Term;

/// When a rule holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Condition {
    /// The server's socket has TCP_NODELAY.
    Nodelay,
    /// One operation in the ring.
    DepthOne,
    /// The response direction of the wire is the bottleneck.
    NetworkBound,
    /// The server's CPU is the bottleneck.
    CpuBound,
}

/// One equality.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rule {
    /// When it holds.
    pub condition: Condition,
    /// As the paper writes it.
    pub equality: &'static str,
    /// Why.
    pub reason: &'static str,
}

/// The paper's table.
pub const RULES: [Rule; 10] = [
    Rule { condition: Condition::Nodelay, equality: "SN = 0", reason: "Nagle's algorithm is off" },
    Rule {
        condition: Condition::DepthOne,
        equality: "CW = CN = 0",
        reason: "the client received its ACK with the response that triggered the request",
    },
    Rule {
        condition: Condition::DepthOne,
        equality: "SW = SN = 0",
        reason: "the server received its ACK with the request that triggered the response",
    },
    Rule { condition: Condition::DepthOne, equality: "CQ = CL", reason: "no operations queued ahead" },
    Rule { condition: Condition::DepthOne, equality: "SQ = SL", reason: "no operations queued ahead" },
    Rule {
        condition: Condition::NetworkBound,
        equality: "SN = 0",
        reason: "there are always responses to fill partial packets with",
    },
    Rule {
        condition: Condition::NetworkBound,
        equality: "ST = CR = 0",
        reason: "the response path is always busy",
    },
    Rule { condition: Condition::CpuBound, equality: "SL = 0", reason: "the server thread never sleeps" },
    Rule {
        condition: Condition::CpuBound,
        equality: "CQ = CL",
        reason: "responses arrive one at a time; the client is faster than the server",
    },
    Rule {
        condition: Condition::CpuBound,
        equality: "SW = SN",
        reason: "the transmit buffer is always empty when a response is written",
    },
];

/// The rules that apply to a run.
pub fn rules(queue_depth: u32, nodelay: bool, bound: Bound) -> impl Iterator<Item = Rule> {
    RULES.into_iter().filter(move |rule| match rule.condition {
        Condition::Nodelay => nodelay,
        Condition::DepthOne => queue_depth == 1,
        // At depth 1 nothing is ever kept busy.
        Condition::NetworkBound => queue_depth > 1 && bound == Bound::Network,
        Condition::CpuBound => queue_depth > 1 && bound == Bound::ServerCpu,
    })
}

/// The waits of a run that are zero by the rules, so that the remaining ones are known separately.
#[must_use]
pub fn zero_waits(queue_depth: u32, nodelay: bool, bound: Bound) -> Vec<Term> {
    let mut zero = Vec::new();
    if queue_depth == 1 {
        zero.extend([Term::Cw, Term::Sw]);
    } else if bound == Bound::ServerCpu && nodelay {
        // SW = SN, and SN = 0.
        zero.push(Term::Sw);
    } else if bound == Bound::Network {
        zero.extend([Term::St, Term::Cr]);
    }
    zero
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_apply_to_their_runs() {
        let names = |qd, nodelay, bound| rules(qd, nodelay, bound).map(|r| r.equality).collect::<Vec<_>>();
        assert_eq!(
            names(1, true, Bound::ServerCpu),
            ["SN = 0", "CW = CN = 0", "SW = SN = 0", "CQ = CL", "SQ = SL"]
        );
        assert_eq!(names(128, false, Bound::Network), ["SN = 0", "ST = CR = 0"]);
        assert_eq!(names(128, true, Bound::ServerCpu), ["SN = 0", "SL = 0", "CQ = CL", "SW = SN"]);
    }

    #[test]
    fn zero_waits_leave_one_wait_of_a_pair() {
        assert_eq!(zero_waits(1, false, Bound::Network), [Term::Cw, Term::Sw]);
        assert_eq!(zero_waits(64, true, Bound::ServerCpu), [Term::Sw]);
        assert_eq!(zero_waits(64, false, Bound::ServerCpu), [], "SW = SN is not zero with Nagle");
    }
}
