//! CPU and wire time of an operation.

use serde::{Deserialize, Serialize};

use crate::stages::SideWork;

/// CPU work of one operation, microseconds, from the kernel's accounting.
///
/// On Linux the transmit work (CK, SK) runs inside the thread's own send call, so it is part of the thread's
/// share and cannot be separated from it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CpuCost {
    /// CP + CK: the client thread with its transmit work.
    pub client_thread_us: f64,
    /// CI: softirq on the client's CPU.
    pub client_softirq_us: f64,
    /// SP + SK: the server thread with its transmit work.
    pub server_thread_us: f64,
    /// SI: softirq on the server's CPU.
    pub server_softirq_us: f64,
}

impl CpuCost {
    /// A share of each cost.
    #[must_use]
    pub fn scaled(self, factor: f64) -> Self {
        Self {
            client_thread_us: self.client_thread_us * factor,
            client_softirq_us: self.client_softirq_us * factor,
            server_thread_us: self.server_thread_us * factor,
            server_softirq_us: self.server_softirq_us * factor,
        }
    }

    /// The same work of each side, divided into thread and softirq by the events of a run like this one: the accounts' own division
    /// is sampled by the timer, and counts a softirq that only hands a side's packets to the other CPU, within its send call, as
    /// one in which packets arrive.
    #[must_use]
    pub fn divided(self, client: SideWork, server: SideWork) -> Self {
        let thread = |thread: f64, softirq: f64, work: SideWork| {
            work.thread_share().map_or(thread, |share| (thread + softirq) * share)
        };
        let client_thread_us = thread(self.client_thread_us, self.client_softirq_us, client);
        let server_thread_us = thread(self.server_thread_us, self.server_softirq_us, server);
        Self {
            client_thread_us,
            client_softirq_us: self.client_thread_us + self.client_softirq_us - client_thread_us,
            server_thread_us,
            server_softirq_us: self.server_thread_us + self.server_softirq_us - server_thread_us,
        }
    }

    /// Each side's work of whichever run needed less of it: more is work for wake-ups, by a side that waited for the other one or for
    /// the wire.
    #[must_use]
    pub fn least(self, other: Self) -> Self {
        let sum = |cost: &Self| {
            (cost.client_thread_us + cost.client_softirq_us, cost.server_thread_us + cost.server_softirq_us)
        };
        let ((client, server), (other_client, other_server)) = (sum(&self), sum(&other));
        let of_client = if other_client < client { other } else { self };
        let of_server = if other_server < server { other } else { self };
        Self {
            client_thread_us: of_client.client_thread_us,
            client_softirq_us: of_client.client_softirq_us,
            server_thread_us: of_server.server_thread_us,
            server_softirq_us: of_server.server_softirq_us,
        }
    }
}

/// Wire time of one operation, microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PathCost {
    /// W1 by arithmetic.
    pub w1_us: f64,
    /// W2 by arithmetic.
    pub w2_us: f64,
    /// A token bucket before the capture points enforces the rate: it spaces frames, which then cross in
    /// no time, so W is a service time (it limits the rate) but no part of an operation's path.
    pub token_bucket: bool,
}

impl PathCost {
    /// The part of a wire time that is on an operation's path, microseconds.
    pub(crate) fn on_path_us(&self, wire_us: f64) -> f64 {
        if self.token_bucket { 0.0 } else { wire_us }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn softirqs_of_send_calls_count_as_the_thread_s() {
        let accounts = CpuCost {
            client_thread_us: 2.0,
            client_softirq_us: 8.0,
            server_thread_us: 6.0,
            server_softirq_us: 6.0,
        };
        let client = SideWork {
            thread_us: 2.0,
            receive_softirq_us: 2.0,
            transmit_softirq_us: 4.0,
            ..SideWork::default()
        };
        let divided = accounts.divided(client, SideWork::default());
        assert_eq!((divided.client_thread_us, divided.client_softirq_us), (7.5, 2.5));
        assert_eq!((divided.server_thread_us, divided.server_softirq_us), (6.0, 6.0), "no events, no change");
    }

    /// A side that waits sleeps between operations, and its work includes the wake-ups.
    #[test]
    fn each_side_s_service_is_of_the_run_in_which_it_needed_less() {
        let of = |client_us: f64, server_us: f64| CpuCost {
            client_thread_us: client_us,
            client_softirq_us: client_us / 2.0,
            server_thread_us: server_us,
            server_softirq_us: server_us / 4.0,
        };
        assert_eq!(of(7.0, 5.0).least(of(4.0, 8.0)), of(4.0, 5.0));
        assert_eq!(of(4.0, 8.0).least(of(7.0, 5.0)), of(4.0, 5.0));
        assert_eq!(of(4.0, 5.0).least(of(7.0, 8.0)), of(4.0, 5.0));
    }
}
