//! A ring's times under the paper's names.
//!
//! Service times are sums over stages: SI+SP+SK, and its parts where the ring has them apart. Start latencies belong to
//! the stage that pays them: that of the wire or of a receive interrupt is the network's (CT+SR, ST+CR), that of a thread
//! is its scheduling latency (SL, CL).

use serde::Serialize;

use super::{Ring, Role, Stage};
use crate::known::Known;

/// A term of the paper and its time.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct TermTime {
    /// Its name, such as `SL` or `CT+SR`.
    pub term: &'static str,
    /// Its time, microseconds.
    pub us: Known,
}

/// The network's latency in both directions.
pub const NETWORK: &str = "(CT+SR)+(ST+CR)";

fn sum(parts: impl Iterator<Item = Known>) -> Option<Known> {
    parts.reduce(|a, b| a + b)
}

fn service(stage: &Stage) -> Known {
    Known::within(stage.service_us, stage.service_within_us)
}

fn latency(stage: &Stage) -> Known {
    Known::within(stage.start_latency_us, stage.latency_within_us)
}

/// Whether the stage is a receive softirq by itself.
fn is_softirq(stage: &Stage) -> bool {
    matches!(stage.name.as_str(), "SI" | "CI")
}

impl Ring {
    /// The terms that the ring determines, in the order of the paper. Stages of other names have none.
    #[must_use]
    pub fn terms(&self) -> Vec<TermTime> {
        let stages = self.stages();
        let of_side = |role: Role| stages.iter().filter(move |stage| stage.role() == role);
        let named = |name: &'static str| stages.iter().find(move |stage| stage.name == name);
        let path = |wire: &'static str, softirq: &'static str| {
            sum(named(wire).into_iter().chain(named(softirq)).map(latency))
        };
        let wake = |role: Role| sum(of_side(role).filter(|stage| !is_softirq(stage)).map(latency));
        let (request, response) = (path("W1", "SI"), path("W2", "CI"));
        let single = |name: &'static str| named(name).map(service);
        let softirq_and_thread =
            named("SK").and(sum(named("SI").into_iter().chain(named("SP")).map(service)));
        [
            ("W1", single("W1")),
            ("SI", single("SI")),
            ("SP", single("SP")),
            ("SI+SP", softirq_and_thread),
            ("SK", single("SK")),
            ("SP+SK", single("SP+SK")),
            ("SI+SP+SK", sum(of_side(Role::Server).map(service))),
            ("W2", single("W2")),
            ("CI", single("CI")),
            ("CP", single("CP")),
            ("CK", single("CK")),
            ("CP+CK", single("CP+CK")),
            ("CI+CP+CK", sum(of_side(Role::Client).map(service))),
            ("SL", wake(Role::Server)),
            ("CL", wake(Role::Client)),
            ("CT+SR", request),
            ("ST+CR", response),
            (NETWORK, request.zip(response).map(|(a, b)| a + b)),
        ]
        .into_iter()
        .filter_map(|(term, us)| us.map(|us| TermTime { term, us }))
        .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::preset::Preset;

    fn of(ring: &Ring, name: &str) -> Option<String> {
        ring.terms().iter().find(|t| t.term == name).map(|t| format!("{:.1}", t.us.value))
    }

    #[test]
    fn the_published_run_has_its_published_terms() {
        let ring = Preset::named("seed-512").unwrap().setup().unwrap().ring;
        for (term, published) in [
            ("SL", "16.7"),
            ("CL", "23.7"),
            (NETWORK, "204.5"),
            ("SI+SP+SK", "15.9"),
            ("CI+CP+CK", "8.6"),
            ("W1", "1.1"),
            ("W2", "5.2"),
        ] {
            assert_eq!(of(&ring, term).as_deref(), Some(published), "{term}");
        }
        assert_eq!(of(&ring, "SK"), None, "published as a sum only");
    }

    #[test]
    fn a_receive_interrupt_s_latency_is_the_network_s() {
        let ring = Ring::new(vec![
            Stage::own("W1", 1.0, 2.0),
            Stage::own("SI", 3.0, 10.0),
            Stage::own("SP", 5.0, 20.0),
            Stage::own("SK", 2.0, 0.0),
            Stage::own("W2", 4.0, 3.0),
            Stage::own("CI", 1.0, 30.0),
            Stage::own("CP", 2.0, 40.0),
        ])
        .unwrap();
        for (term, us) in [
            ("CT+SR", "12.0"),
            ("ST+CR", "33.0"),
            (NETWORK, "45.0"),
            ("SL", "20.0"),
            ("CL", "40.0"),
            ("SI+SP", "8.0"),
            ("SI+SP+SK", "10.0"),
        ] {
            assert_eq!(of(&ring, term).as_deref(), Some(us), "{term}");
        }
    }
}
