//! The CPUs of the two threads and of the softirqs that receive for them.

use record::CpuSharing;
use serde::{Deserialize, Serialize};

use crate::error::StudyError;
use crate::sides::Sides;

/// CPUs by their numbers. Those that are not given are chosen: different ones for client and server where there are two,
/// and each softirq on its thread's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// The client's thread.
    pub client: Option<usize>,
    /// The server's.
    pub server: Option<usize>,
    /// The client's softirq (CI).
    pub client_softirq: Option<usize>,
    /// The server's softirq (SI).
    pub server_softirq: Option<usize>,
}

impl Placement {
    /// This placement, completed by `other`.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            client: self.client.or(other.client),
            server: self.server.or(other.server),
            client_softirq: self.client_softirq.or(other.client_softirq),
            server_softirq: self.server_softirq.or(other.server_softirq),
        }
    }

    /// Chooses the missing CPUs among `cpus`, those that this process may use.
    pub(crate) fn complete(
        self,
        cpus: &[usize],
        is_remote: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Self, StudyError> {
        let first = cpus.first().copied().unwrap_or(0);
        let all = [self.client, self.server, self.client_softirq, self.server_softirq];
        if let Some(cpu) = all.into_iter().flatten().find(|cpu| !cpus.contains(cpu)) {
            let may: Vec<String> = cpus.iter().map(ToString::to_string).collect();
            return Err(StudyError::Placement { cpu, may: may.join(", ") });
        }
        let client = self
            .client
            .or_else(|| cpus.iter().copied().find(|cpu| Some(*cpu) != self.server))
            .unwrap_or(first);
        let server = self
            .server
            .or_else(|| cpus.iter().copied().find(|cpu| is_remote || *cpu != client))
            .unwrap_or(client);
        let whole = Self {
            client: Some(client),
            server: Some(server),
            client_softirq: self.client_softirq.or(Some(client)),
            server_softirq: self.server_softirq.or(Some(server)),
        };
        if is_remote {
            return Ok(whole);
        }
        if client == server {
            warnings
                .push("client and server share one CPU: they run in turn, unlike two machines".to_owned());
        } else if whole.client_softirq == Some(server) || whole.server_softirq == Some(client) {
            warnings.push(
                "a softirq shares its CPU with the other side's thread: the model assumes that each side is a machine of its own, \
                 so its predictions are too high"
                    .to_owned(),
            );
        }
        Ok(whole)
    }

    /// Whether thread and softirq of a side share a CPU.
    pub(crate) fn sharing(&self) -> Sides<CpuSharing> {
        let of = |thread: Option<usize>, softirq: Option<usize>| {
            if thread == softirq { CpuSharing::Uniprocessor } else { CpuSharing::OwnCpus }
        };
        Sides { client: of(self.client, self.client_softirq), server: of(self.server, self.server_softirq) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn complete(placement: Placement, cpus: &[usize]) -> (Result<Placement, StudyError>, usize) {
        let mut warnings = Vec::new();
        let whole = placement.complete(cpus, false, &mut warnings);
        (whole, warnings.len())
    }

    #[test]
    fn missing_cpus_are_chosen_apart() {
        let of = |client, server, client_softirq, server_softirq| Placement {
            client: Some(client),
            server: Some(server),
            client_softirq: Some(client_softirq),
            server_softirq: Some(server_softirq),
        };
        let nothing = Placement::default();
        assert_eq!(complete(nothing, &[0, 1]).0.unwrap(), of(0, 1, 0, 1));
        assert_eq!(complete(nothing, &[3]).0.unwrap(), of(3, 3, 3, 3));
        assert_eq!(complete(nothing, &[3]).1, 1, "one CPU is a warning");
        let server_first = Placement { server: Some(0), ..nothing };
        assert_eq!(complete(server_first, &[0, 1]).0.unwrap(), of(1, 0, 1, 0));
        let crossed = Placement { client_softirq: Some(1), ..nothing };
        let (whole, words) = complete(crossed, &[0, 1]);
        assert_eq!((whole.unwrap(), words), (of(0, 1, 1, 1), 1));
        let sharing = Sides { client: CpuSharing::OwnCpus, server: CpuSharing::Uniprocessor };
        assert_eq!(whole_sharing(crossed), sharing);
        let error = complete(Placement { client: Some(7), ..nothing }, &[0, 1]).0.unwrap_err().to_string();
        assert!(error.contains("CPU 7") && error.contains("0, 1"), "{error}");
    }

    fn whole_sharing(placement: Placement) -> Sides<CpuSharing> {
        complete(placement, &[0, 1]).0.unwrap().sharing()
    }
}
