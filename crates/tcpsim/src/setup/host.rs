//! A side of the ring: its costs, its TCP and its timers.

use record::Writes;
use serde::Deserialize;

use super::values::{profile, size, some_time, time};
use crate::Ns;
use crate::profile::{AckRule, Profile};
use crate::tcp::Options;

/// Longest delay of an acknowledgement (RFC 1122 4.2.3.2: less than 0.5 s).
const ACK_DELAY_MAX: Ns = 500_000_000;
/// The minimum of a retransmission time-out by RFC 6298 2.4, and the minimums that a setup may have.
const RTO_MIN_RFC: Ns = 1_000_000_000;
const RTO_MIN_RANGE: std::ops::RangeInclusive<Ns> = 1_000_000..=60_000_000_000;

/// A side and its costs.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Host {
    /// The thread's work for one operation (SP, CP), without its calls.
    #[serde(deserialize_with = "time")]
    pub service: Ns,
    /// The same for each KiB of data.
    #[serde(deserialize_with = "time")]
    pub service_per_kib: Ns,
    /// One send call, without the segments it transmits.
    #[serde(deserialize_with = "time")]
    pub send: Ns,
    /// One receive call.
    #[serde(deserialize_with = "time")]
    pub receive: Ns,
    /// From the arrival of data until a sleeping thread runs (SL, CL).
    #[serde(deserialize_with = "time")]
    pub start: Ns,
    /// The softirq's work for a segment with data (SI, CI).
    #[serde(deserialize_with = "time")]
    pub softirq: Ns,
    /// The same for one without.
    #[serde(deserialize_with = "time")]
    pub softirq_ack: Ns,
    /// Transmitting a segment (SK, CK).
    #[serde(deserialize_with = "time")]
    pub transmit: Ns,
    /// From the interrupt until the softirq runs (SR, CR).
    #[serde(deserialize_with = "time")]
    pub interrupt: Ns,
    /// Additional time when the CPU was idle (C-states; a virtual CPU that was descheduled).
    #[serde(deserialize_with = "time")]
    pub idle_exit: Ns,
    /// Work of the CPU for each interrupt, before its first segment.
    #[serde(deserialize_with = "time")]
    pub interrupt_work: Ns,
    /// Least time between two interrupts (interrupt moderation).
    #[serde(deserialize_with = "time")]
    pub interrupt_gap: Ns,
    /// Delay of an interrupt after its first segment (rx-usecs) ...
    #[serde(deserialize_with = "time")]
    pub interrupt_delay: Ns,
    /// ... unless this many have arrived (rx-frames); 0: the delay alone counts.
    pub interrupt_frames: u32,
    /// From handing a segment to an idle device until its first bit is on the wire (CT, ST).
    #[serde(deserialize_with = "time")]
    pub wire_start: Ns,
    /// Transmit work has a processor of its own instead of the sender's.
    pub transmits_apart: bool,
    /// First CPU that threads run on.
    pub thread_cpu: usize,
    /// Softirqs run on this CPU.
    pub softirq_cpu: usize,
    /// Number of CPUs, from the first on, that the sessions' threads are spread over.
    pub thread_cpus: usize,
    /// One thread for each of these CPUs serves all of its sessions, a turn each (as the target's event loops), instead of a
    /// thread for each session: it is woken once for all of them.
    pub event_loop: bool,
    /// One wait for events of such a thread, which begins each of its rounds.
    #[serde(deserialize_with = "time")]
    pub wait: Ns,
    /// Most bytes of one receive call.
    #[serde(deserialize_with = "size")]
    pub receive_bytes: u64,
    /// The pattern in which messages are written.
    pub pattern: Writes,
    /// The thread's time between the write of a message's header and that of its data, where these are two.
    #[serde(deserialize_with = "time")]
    pub write_gap: Ns,
    /// Its TCP.
    #[serde(deserialize_with = "profile")]
    pub tcp: Profile,
    /// The shortest delay of an acknowledgement (CA), instead of its TCP's own.
    #[serde(deserialize_with = "some_time")]
    pub ack_delay: Option<Ns>,
    /// The longest, instead of its TCP's own; only Linux has two.
    #[serde(deserialize_with = "some_time")]
    pub ack_delay_max: Option<Ns>,
    /// The shortest retransmission time-out, instead of its TCP's own.
    #[serde(deserialize_with = "some_time")]
    pub rto_min: Option<Ns>,
    /// SO_SNDBUF.
    #[serde(deserialize_with = "size")]
    pub send_buffer: u64,
    /// SO_RCVBUF.
    #[serde(deserialize_with = "size")]
    pub receive_buffer: u64,
    /// Segments that are handed to the device as one (TSO); 1: no offload.
    pub offload_segments: u32,
    /// First congestion window.
    pub initial_window: u32,
}

impl Default for Host {
    fn default() -> Self {
        let options = Options::default();
        Self {
            service: 1_000,
            service_per_kib: 0,
            send: 0,
            receive: 0,
            start: 20_000,
            softirq: 1_000,
            softirq_ack: 500,
            transmit: 1_000,
            interrupt: 5_000,
            idle_exit: 0,
            interrupt_work: 0,
            interrupt_gap: 0,
            interrupt_delay: 0,
            interrupt_frames: 0,
            wire_start: 0,
            transmits_apart: false,
            thread_cpu: 0,
            softirq_cpu: 1,
            thread_cpus: 1,
            event_loop: false,
            wait: 0,
            receive_bytes: 256 << 10,
            pattern: Writes::One,
            write_gap: 0,
            tcp: Profile::LINUX,
            ack_delay: None,
            ack_delay_max: None,
            rto_min: None,
            send_buffer: options.send_buffer_bytes,
            receive_buffer: options.receive_buffer_bytes,
            offload_segments: 1,
            initial_window: 10,
        }
    }
}

impl Host {
    /// Number of its CPUs.
    pub(crate) fn cpus(&self) -> usize {
        (self.thread_cpu + self.thread_cpus).max(self.softirq_cpu + 1)
    }

    /// The rules of its TCP, with the delays of acknowledgements that are set here.
    #[must_use]
    pub fn profile(&self) -> Profile {
        let delay_min_ns = self.ack_delay.unwrap_or(self.tcp.delay_min_ns);
        let delay_max_ns = self.ack_delay_max.unwrap_or(self.tcp.delay_max_ns.max(delay_min_ns));
        Profile { delay_min_ns, delay_max_ns, ..self.tcp }
    }

    /// The rules of its TCP towards a peer. A sender whose time-out the peer's delayed acknowledgements would exceed waits a second:
    /// RFC 6298 2.4 has that minimum because of them.
    #[must_use]
    pub fn profile_towards(&self, peer: &Self) -> Profile {
        let own = self.profile();
        let is_exceeded = peer.profile().delay_max_ns > own.rto_min_ns;
        let rto_min_ns = self.rto_min.unwrap_or(if is_exceeded { RTO_MIN_RFC } else { own.rto_min_ns });
        Profile { rto_min_ns, ..own }
    }

    /// Why its timers are impossible.
    pub(super) fn timer_error(&self) -> Option<String> {
        let Profile { delay_min_ns, delay_max_ns, .. } = self.profile();
        let ms = |ns: Ns| ns as f64 / 1e6;
        if self.rto_min.is_some_and(|ns| !RTO_MIN_RANGE.contains(&ns)) {
            return Some("rto-min is 1 ms to 60 s".to_owned());
        }
        if delay_min_ns.max(delay_max_ns) > ACK_DELAY_MAX {
            return Some(format!(
                "ack-delay and ack-delay-max are at most {} ms (RFC 1122 4.2.3.2)",
                ms(ACK_DELAY_MAX)
            ));
        }
        if self.ack_delay_max.is_some() && self.tcp.ack != AckRule::Linux {
            return Some(format!("ack-delay-max: {} has one delay; use ack-delay", self.tcp.name));
        }
        (delay_max_ns < delay_min_ns).then(|| {
            format!("ack-delay-max of {} ms is below ack-delay, {} ms", ms(delay_max_ns), ms(delay_min_ns))
        })
    }
}
