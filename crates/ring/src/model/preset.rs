//! The paper's published runs as rings.

use super::{ModelError, Ring, Stage};
use crate::wire::Wire;

/// A published run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Preset {
    /// Its name on the command line.
    pub name: &'static str,
    /// What it is.
    pub about: &'static str,
    /// Bytes per operation.
    pub block_bytes: u64,
    /// Service time of the server's CPU (SI+SP+SK), microseconds.
    server_us: f64,
    /// Service time of the client's CPU (CI+CP+CK), microseconds.
    client_us: f64,
    /// SL, CL and (CT+SR)+(ST+CR), microseconds.
    latencies_us: (f64, f64, f64),
}

/// The runs whose figures the paper prints. The paper's diagrams with the single service times are not in its
/// text: SI+SP+SK and CI+CP+CK follow from S2-S1, RTT, SL and CL at queue depth 1.
pub const PRESETS: [Preset; 2] = [
    Preset {
        name: "seed-512",
        about: "512-byte random reads, NODELAY, 1 Gb/s, MTU 9000, remote initiator",
        block_bytes: 512,
        server_us: 32.6 - 16.7,
        client_us: 32.3 - 23.7,
        latencies_us: (16.7, 23.7, 204.5),
    },
    Preset {
        name: "seed-512-local",
        about: "the same with a local initiator: the server thread takes 13 % longer",
        block_bytes: 512,
        server_us: 1e6 / 56_200.0,
        client_us: 32.3 - 23.7,
        latencies_us: (16.7, 23.7, 204.5),
    },
];

impl Preset {
    /// The preset of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        PRESETS.into_iter().find(|p| p.name == name)
    }

    /// The wire of the paper.
    #[must_use]
    pub fn wire() -> Wire {
        Wire::ethernet(1_000_000_000, 9000)
    }

    /// The run as a ring. Only the sum of both directions' latencies is published: each gets half.
    ///
    /// # Errors
    /// Never for the presets here; the type says so for whoever adds one.
    pub fn ring(&self) -> Result<Ring, ModelError> {
        let wire = Self::wire();
        let (sl, cl, network) = self.latencies_us;
        Ring::new(vec![
            Stage::own("W1", wire.own_packets_us(48), network / 2.0),
            Stage::own("SI+SP+SK", self.server_us, sl),
            Stage::own("W2", wire.own_packets_us(self.block_bytes + 48), network / 2.0),
            Stage::own("CI+CP+CK", self.client_us, cl),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::recursion::Extras;

    #[test]
    fn the_published_512_byte_run_comes_out_of_its_preset() {
        let ring = Preset::named("seed-512").unwrap().ring().unwrap();
        // "peak about 63,000 IOPS (TPT 15.9 us)"
        assert!((ring.iops_max() / 63_000.0 - 1.0).abs() < 0.01, "{}", ring.iops_max());
        assert_eq!(format!("{:.1}", ring.tpt_min_us()), "15.9");
        // "( RTT ) = 275.7 usec" at queue depth 1
        assert_eq!(format!("{:.1}", ring.exact(1, &Extras::default()).unwrap().rtt_us), "275.7");
        // The headline's "no loss below QD 17": the knee without Nagle is there.
        assert!((16.0..18.0).contains(&ring.knee()), "{}", ring.knee());
    }

    #[test]
    fn the_local_run_has_its_published_peak() {
        let ring = Preset::named("seed-512-local").unwrap().ring().unwrap();
        assert!((ring.iops_max() - 56_200.0).abs() < 1.0);
    }
}
