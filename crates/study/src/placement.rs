//! Which CPU does what: the two threads, and the softirqs that receive for them.

use record::CpuSharing;
use serde::{Deserialize, Serialize};

use crate::error::StudyError;

/// CPUs by their numbers; what is not said is chosen: client and server apart where there are two, and each softirq with
/// its thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Placement {
    /// The client's thread.
    pub client: Option<usize>,
    /// The server's.
    pub server: Option<usize>,
    /// What receives for the client (CI).
    pub client_softirq: Option<usize>,
    /// What receives for the server (SI).
    pub server_softirq: Option<usize>,
}

impl Placement {
    /// What is said here, and what is said there where it is not.
    pub(crate) fn or(self, other: Self) -> Self {
        Self {
            client: self.client.or(other.client),
            server: self.server.or(other.server),
            client_softirq: self.client_softirq.or(other.client_softirq),
            server_softirq: self.server_softirq.or(other.server_softirq),
        }
    }

    /// Chooses what was not said among the CPUs that this process may use.
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
            warnings.push(
                "client and server have one CPU: they take turns on it, which no two machines do".to_owned(),
            );
        } else if whole.client_softirq == Some(server) || whole.server_softirq == Some(client) {
            warnings.push(
                "a softirq has its CPU together with the other side's thread: the model takes both sides for machines of their \
                 own, and its predictions for slower than they look"
                    .to_owned(),
            );
        }
        Ok(whole)
    }

    /// Which stages of the client and of the server have one CPU.
    pub(crate) fn sharing(&self) -> (CpuSharing, CpuSharing) {
        let of = |thread: Option<usize>, softirq: Option<usize>| {
            if thread == softirq { CpuSharing::Uniprocessor } else { CpuSharing::OwnCpus }
        };
        (of(self.client, self.client_softirq), of(self.server, self.server_softirq))
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
    fn what_is_not_said_is_apart_where_it_can_be() {
        let of = |client, server, client_softirq, server_softirq| Placement {
            client: Some(client),
            server: Some(server),
            client_softirq: Some(client_softirq),
            server_softirq: Some(server_softirq),
        };
        let nothing = Placement::default();
        assert_eq!(complete(nothing, &[0, 1]).0.unwrap(), of(0, 1, 0, 1));
        assert_eq!(complete(nothing, &[3]).0.unwrap(), of(3, 3, 3, 3));
        assert_eq!(complete(nothing, &[3]).1, 1, "one CPU is worth a word");
        let server_first = Placement { server: Some(0), ..nothing };
        assert_eq!(complete(server_first, &[0, 1]).0.unwrap(), of(1, 0, 1, 0));
        let crossed = Placement { client_softirq: Some(1), ..nothing };
        let (whole, words) = complete(crossed, &[0, 1]);
        assert_eq!((whole.unwrap(), words), (of(0, 1, 1, 1), 1));
        assert_eq!(whole_sharing(crossed), (CpuSharing::OwnCpus, CpuSharing::Uniprocessor));
        let said = complete(Placement { client: Some(7), ..nothing }, &[0, 1]).0.unwrap_err().to_string();
        assert!(said.contains("CPU 7") && said.contains("0, 1"), "{said}");
    }

    fn whole_sharing(placement: Placement) -> (CpuSharing, CpuSharing) {
        complete(placement, &[0, 1]).0.unwrap().sharing()
    }
}
