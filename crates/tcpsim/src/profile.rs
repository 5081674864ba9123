//! Differences between TCP implementations: when small segments wait, and when acknowledgements are sent.

use serde::{Deserialize, Serialize};

use crate::Ns;

const MS: Ns = 1_000_000;

/// Which unacknowledged segments hold a small one back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NagleForm {
    /// Any (RFC 896; RFC 1122 4.2.3.4).
    Rfc896,
    /// Small ones only (Minshall's form; Linux `tcp_nagle_check`, `tcp_minshall_check`).
    Minshall,
}

/// The rule by which a receiver sends acknowledgements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AckRule {
    /// Linux: when more than an estimated segment size is unacknowledged, a budget of quick ones at the start, and a
    /// delay that follows the traffic (`__tcp_ack_snd_check`, `tcp_event_data_recv`, `tcp_send_delayed_ack`).
    Linux,
    /// At every second segment, or after the delay (RFC 1122 4.2.3.2, RFC 5681 4.2).
    EverySecond,
}

/// The rules of one TCP implementation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Profile {
    /// Its name in setups.
    pub name: &'static str,
    /// Nagle's algorithm.
    pub nagle: NagleForm,
    /// When acknowledgements are due.
    pub ack: AckRule,
    /// The shortest delay of an acknowledgement, and the only one under [`AckRule::EverySecond`].
    pub delay_min_ns: Ns,
    /// The longest delay of an acknowledgement.
    pub delay_max_ns: Ns,
    /// Timers end at multiples of this, at least one tick after their time (Linux `HZ`); 0: without ticks.
    pub tick_ns: Ns,
    /// Acknowledgements sent without delay at the start of a connection (Linux `TCP_MAX_QUICKACKS`).
    pub quick_acks: u32,
    /// Replies within the delay after which a connection counts as a conversation and its quick acknowledgements end
    /// (Linux `tcp_pingpong_thresh`).
    pub pingpong: u32,
    /// The shortest retransmission time-out, and the longest wait of corked data (Linux `TCP_RTO_MIN`, `tcp_probe0_base`).
    pub rto_min_ns: Ns,
    /// Small writes wait while earlier segments are in the device (Linux `tcp_should_autocork`).
    pub autocork: bool,
}

impl Profile {
    /// Linux 6.x at 250 ticks a second: the reference.
    pub const LINUX: Self = Self {
        name: "linux",
        nagle: NagleForm::Minshall,
        ack: AckRule::Linux,
        delay_min_ns: 40 * MS,
        delay_max_ns: 200 * MS,
        tick_ns: 4 * MS,
        quick_acks: 16,
        pingpong: 1,
        rto_min_ns: 200 * MS,
        autocork: true,
    };
    /// Windows: 40 ms since Windows 10 and Server 2016 (`TcpDelAckTicks`; 200 ms before), every second segment
    /// (`TcpAckFrequency`), a least time-out of 300 ms.
    pub const WINDOWS: Self = Self {
        name: "windows",
        nagle: NagleForm::Rfc896,
        ack: AckRule::EverySecond,
        delay_min_ns: 40 * MS,
        delay_max_ns: 40 * MS,
        tick_ns: 0,
        quick_acks: 0,
        pingpong: 0,
        rto_min_ns: 300 * MS,
        autocork: false,
    };
    /// FreeBSD: tcp(4), `net.inet.tcp.delacktime` 40 ms (100 ms before 13), every second segment, `rexmit_min` 30 ms.
    pub const FREEBSD: Self = Self {
        name: "freebsd",
        nagle: NagleForm::Rfc896,
        ack: AckRule::EverySecond,
        delay_min_ns: 40 * MS,
        delay_max_ns: 40 * MS,
        tick_ns: 0,
        quick_acks: 0,
        pingpong: 0,
        rto_min_ns: 30 * MS,
        autocork: false,
    };
    /// macOS: as FreeBSD, with a delay of 100 ms. Its stretching of acknowledgements (`net.inet.tcp.delayed_ack` 3) is
    /// not documented well enough to be here.
    pub const MACOS: Self = Self {
        name: "macos",
        delay_min_ns: 100 * MS,
        delay_max_ns: 100 * MS,
        rto_min_ns: 100 * MS,
        ..Self::FREEBSD
    };

    /// All of them.
    pub const ALL: [Self; 4] = [Self::LINUX, Self::WINDOWS, Self::FREEBSD, Self::MACOS];

    /// The profile of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|profile| profile.name == name)
    }

    /// The time at which a timer set now for `after` ends.
    #[must_use]
    pub(crate) fn timer(&self, now: Ns, after: Ns) -> Ns {
        if self.tick_ns == 0 {
            return now + after;
        }
        // The timer wheel rounds up, and never to the present tick (Linux `calc_index`).
        (now / self.tick_ns + after.div_ceil(self.tick_ns) + 1) * self.tick_ns
    }
}
