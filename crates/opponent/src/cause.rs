//! The causes of slowness: their names, how each is removed from a setup, and when a verdict names one.

use tcpsim::Profile;
use tcpsim::profile::AckRule;

use crate::setup::{BUFFER_LARGE, Host, MS, Protocol, Setup, US, Writes};

/// Defines the causes from a list of their names and the kinds of their verdicts in JSON.
macro_rules! causes {
    ($($cause:ident $kind:literal,)*) => {
        /// A cause, named as its verdict.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[allow(missing_docs, reason = "the verdicts of docs/analyze.md")]
        pub enum Cause {
            $($cause,)*
        }

        impl Cause {
            /// All of them.
            pub const ALL: &[Cause] = &[$(Cause::$cause,)*];

            /// The kind of its verdict in JSON.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Cause::$cause => $kind,)*
                }
            }
        }
    };
}

causes! {
    HeaderBodyApart "header_body_apart",
    NagleDelayedAck "nagle_delayed_ack",
    AckClocked "ack_clocked",
    UnfinishedCork "unfinished_cork",
    DelayedAck "delayed_ack",
    SmallSegments "small_segments",
    WindowLimited "window_limited",
    BufferLimited "buffer_limited",
    CongestionWindow "congestion_window",
    SlowStartAfterIdle "slow_start_after_idle",
    RoundTripBound "round_trip_bound",
    PathMtuBlackHole "path_mtu_black_hole",
    Retransmission "retransmission",
    DuplexMismatch "duplex_mismatch",
    Bufferbloat "bufferbloat",
    SlowTarget "slow_target",
    Saturated "saturated",
    RareStalls "rare_stalls",
    ServerTimer "server_timer",
    SlowInitiator "slow_initiator",
    QueueDepthLow "queue_depth_low",
    LinkFull "link_full",
    NoResponse "no_response",
    FailedConnects "failed_connects",
    AcceptBacklog "accept_backlog",
    ConnectionPerRequest "connection_per_request",
    Resets "resets",
    ErrorAnswers "error_answers",
    CaptureLoss "capture_loss",
    ClockStep "clock_step",
}

/// A server's time that counts as normal (docs/analyze.md, `slow_target`).
const SERVER_NORMAL: u64 = MS;

/// Without `queue_depth_low` so many times as many requests are in flight, and without `link_full` the link is so many times as
/// fast.
const DEEPER: u32 = 8;
const FASTER: u32 = 10;

impl Cause {
    /// The cause that a verdict of this kind names.
    #[must_use]
    pub fn named(kind: &str) -> Option<Self> {
        match kind {
            "cpu_bound" => Some(Self::Saturated),
            kind => Self::ALL.iter().copied().find(|cause| cause.name() == kind),
        }
    }

    /// Other kinds that name it as well: the same wait seen from its other end, or the wider of two names.
    #[must_use]
    pub fn also_named(self) -> &'static [&'static str] {
        match self {
            Self::HeaderBodyApart => &["nagle_delayed_ack"],
            Self::NagleDelayedAck => &["header_body_apart", "ack_clocked", "delayed_ack"],
            Self::DelayedAck => {
                &["nagle_delayed_ack", "header_body_apart", "buffer_limited", "window_limited"]
            }
            // An acknowledgement releases the end of an answer before the timer does.
            Self::UnfinishedCork => &["delayed_ack", "nagle_delayed_ack", "ack_clocked"],
            Self::BufferLimited | Self::WindowLimited => &["delayed_ack"],
            Self::CongestionWindow => &["slow_start_after_idle"],
            Self::SlowStartAfterIdle => &["congestion_window"],
            Self::RareStalls => &["slow_target"],
            Self::SlowTarget => &["saturated", "cpu_bound"],
            Self::Saturated => &["cpu_bound"],
            Self::QueueDepthLow => &["round_trip_bound"],
            Self::RoundTripBound => &["queue_depth_low"],
            _ => &[],
        }
    }

    /// Causes that make a verdict of this one no false alarm, because they are the same to the one who repairs it.
    #[must_use]
    pub fn excused_by(self) -> &'static [Self] {
        match self {
            Self::HeaderBodyApart => &[Self::NagleDelayedAck, Self::AckClocked],
            Self::NagleDelayedAck => &[Self::HeaderBodyApart, Self::AckClocked],
            Self::BufferLimited => &[Self::CongestionWindow, Self::SlowStartAfterIdle],
            Self::CongestionWindow => &[Self::SlowStartAfterIdle],
            Self::SlowTarget => &[Self::Saturated, Self::RareStalls, Self::ServerTimer],
            Self::Retransmission => &[Self::DuplexMismatch, Self::PathMtuBlackHole, Self::AcceptBacklog],
            Self::NoResponse => {
                &[Self::FailedConnects, Self::AcceptBacklog, Self::PathMtuBlackHole, Self::Resets]
            }
            Self::Resets => &[Self::NoResponse, Self::PathMtuBlackHole, Self::FailedConnects],
            Self::FailedConnects => &[Self::AcceptBacklog],
            Self::AcceptBacklog => &[Self::FailedConnects, Self::Retransmission],
            Self::RareStalls => &[Self::Bufferbloat],
            Self::QueueDepthLow => &[Self::RoundTripBound],
            _ => &[],
        }
    }

    /// The setup in whose company the cause is measured: `ack_clocked` is what Nagle's algorithm costs when no acknowledgement
    /// is delayed.
    #[must_use]
    pub fn measured_in(self, setup: &Setup) -> Setup {
        match self {
            Self::AckClocked => Self::DelayedAck.removed(setup),
            Self::Retransmission | Self::DuplexMismatch => *setup,
            // A window that is large from the beginning must not overflow the queue, which would cost other time.
            Self::CongestionWindow => Self::Retransmission.removed(setup),
            // What a refused or repeated connection request costs, and a small congestion window, have names of their own.
            Self::ConnectionPerRequest if setup.load.connection_per_request => {
                let others =
                    [Self::AcceptBacklog, Self::FailedConnects, Self::CongestionWindow, Self::Retransmission];
                others.into_iter().fold(*setup, |setup, other| other.removed(&setup))
            }
            // Chance would lose other packets: where packets are lost, both runs are without loss.
            _ if setup.path.loss > 0.0 || setup.path.collisions > 0.0 => Self::Retransmission.removed(setup),
            _ => *setup,
        }
    }

    /// How much more a remedy that has a size provides, and so the most that it can gain.
    #[must_use]
    pub fn remedy_size(self) -> f64 {
        match self {
            Self::QueueDepthLow => f64::from(DEEPER),
            Self::LinkFull => f64::from(FASTER),
            _ => f64::INFINITY,
        }
    }

    /// The setup without the cause; the same setup if it does not have it.
    #[must_use]
    pub fn removed(self, setup: &Setup) -> Setup {
        let mut s = *setup;
        let is_eager = setup.is_eager();
        match self {
            Self::HeaderBodyApart if !setup.hosts.iter().any(splits) => {}
            Self::NagleDelayedAck if setup.hosts.iter().any(splits) => {}
            Self::HeaderBodyApart | Self::NagleDelayedAck | Self::AckClocked => {
                s.hosts.iter_mut().for_each(|host| host.nodelay = true);
            }
            Self::UnfinishedCork => rewrite(&mut s, |writes| writes == Writes::Corked),
            Self::DelayedAck => s.hosts.iter_mut().for_each(|host| host.tcp = without_delays(host.tcp)),
            Self::SmallSegments => rewrite(&mut s, |writes| matches!(writes, Writes::Pieces { .. })),
            Self::WindowLimited => s.hosts.iter_mut().for_each(|host| host.receive_buffer = BUFFER_LARGE),
            Self::BufferLimited => s.hosts.iter_mut().for_each(|host| host.send_buffer = BUFFER_LARGE),
            Self::CongestionWindow => s.hosts.iter_mut().for_each(|host| {
                (host.initial_window, host.slow_start_after_idle) = (10_000, false);
            }),
            Self::SlowStartAfterIdle => {
                s.hosts.iter_mut().for_each(|host| host.slow_start_after_idle = false);
            }
            Self::RoundTripBound if is_eager && s.load.depth == 1 => {
                s.path.rtt_ns = s.path.rtt_ns.min(100 * US);
            }
            Self::PathMtuBlackHole => s.path.black_hole = None,
            // A sender takes a packet that was overtaken for lost, and sends it again.
            Self::Retransmission => {
                (s.path.loss, s.path.collisions, s.path.reorder, s.path.queue_bytes) =
                    (0.0, 0.0, 0.0, u64::MAX);
            }
            Self::DuplexMismatch => s.path.collisions = 0.0,
            Self::Bufferbloat => s.path.bloat = None,
            Self::SlowTarget => s.service.time_ns = s.service.time_ns.min(SERVER_NORMAL),
            Self::Saturated => s.service.workers = 0,
            Self::RareStalls => (s.service.pauses, s.service.rare) = (None, None),
            Self::ServerTimer => s.service.tick_ns = 0,
            Self::SlowInitiator => s.load.work_ns = 0,
            Self::QueueDepthLow if is_eager && s.tap.knows_rate && s.protocol == Protocol::Iscsi => {
                s.load.depth *= DEEPER;
            }
            Self::QueueDepthLow if is_eager && s.tap.knows_rate => s.load.connections *= DEEPER,
            Self::LinkFull => s.path.bits_per_second *= u64::from(FASTER),
            Self::NoResponse => s.service.silent = 0.0,
            Self::FailedConnects => s.service.refused = 0.0,
            Self::AcceptBacklog => s.service.dropped_syns = 0.0,
            Self::ConnectionPerRequest => s.load.connection_per_request = false,
            Self::Resets => s.service.resets = 0.0,
            Self::ErrorAnswers => s.service.errors = 0.0,
            Self::CaptureLoss => s.tap.holes = 0.0,
            Self::ClockStep => s.tap.step_ns = 0,
            Self::RoundTripBound | Self::QueueDepthLow => {}
        }
        s
    }
}

/// Whether a host's TCP can hold a body whose header it has sent.
fn splits(host: &Host) -> bool {
    host.writes == Writes::HeaderThenBody && !host.nodelay
}

/// Writes messages in one call where they were written otherwise.
fn rewrite(setup: &mut Setup, is_such: impl Fn(Writes) -> bool) {
    for host in setup.hosts.iter_mut().filter(|host| is_such(host.writes)) {
        host.writes = Writes::Whole;
    }
}

/// The same TCP with every acknowledgement sent at once.
fn without_delays(tcp: Profile) -> Profile {
    Profile { delay_min_ns: 0, delay_max_ns: 0, ack: AckRule::EverySecond, tick_ns: 0, ..tcp }
}
