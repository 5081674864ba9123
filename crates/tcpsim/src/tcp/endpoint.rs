//! One end of a connection: its state, and the calls that change it.

mod ack;
mod acked;
mod output;

use std::collections::VecDeque;

use self::ack::AckState;
use self::output::Push;
use super::Segment;
use super::congestion::Congestion;
use super::hold::{Clock, Held, Hold};
use super::reassembly::Reassembly;
use crate::Ns;
use crate::profile::Profile;

/// A connection's sizes and limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Largest payload of a segment on the wire, bytes.
    pub mss_bytes: u32,
    /// Segments carry timestamps (RFC 7323).
    pub timestamps: bool,
    /// Segments that are handed to the device as one (TSO, GSO); 1: no offload.
    pub offload_segments: u32,
    /// Bytes that may be written and unacknowledged (SO_SNDBUF).
    pub send_buffer_bytes: u64,
    /// Bytes that may be received and unread (SO_RCVBUF).
    pub receive_buffer_bytes: u64,
    /// First congestion window, segments (RFC 6928).
    pub initial_window: u32,
    /// Bytes of one connection in the device, as the kernel counts them (`tcp_limit_output_bytes`).
    pub device_bytes: u64,
    /// A connection that sent nothing for a retransmission time-out begins with the first congestion window again
    /// (RFC 5681 4.1; Linux `tcp_slow_start_after_idle`).
    pub slow_start_after_idle: bool,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mss_bytes: 8948,
            timestamps: true,
            offload_segments: 1,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 4 << 20,
            initial_window: 10,
            device_bytes: 1 << 20,
            slow_start_after_idle: false,
        }
    }
}

/// The time of a timer that is not running.
const NEVER: Ns = Ns::MAX;

/// A segment that is sent and not acknowledged.
#[derive(Clone, Copy, Debug)]
struct InFlight {
    end: u64,
    sent_at: Ns,
    retransmitted: bool,
}

/// A segment that the device has not sent yet.
#[derive(Clone, Copy, Debug)]
struct InDevice {
    /// When it will have.
    done: Ns,
    /// Memory that the kernel counts for it, bytes.
    counted: u32,
}

/// Whether more data follows a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum More {
    /// It is the last of a message.
    Done,
    /// The writer promises more (MSG_MORE).
    Follows,
}

/// Offsets in the stream that an end sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SentOffsets {
    /// Acknowledged by the peer up to here.
    pub acknowledged: u64,
    /// Sent up to here.
    pub sent: u64,
    /// Written by the application up to here.
    pub written: u64,
}

/// Offsets in the stream that an end receives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReceivedOffsets {
    /// Read by the application up to here.
    pub read: u64,
    /// Received without a gap up to here.
    pub in_order: u64,
}

/// One end of an established connection, as a state machine without a clock and without a wire.
///
/// # Calls
///
/// - [`set_peer_buffer`](Self::set_peer_buffer) only before the first other call. All other calls are allowed in any
///   order.
/// - `now` never decreases from one call to the next. All calls of one connection use one clock; its zero is arbitrary.
/// - Calls with an `out` append the segments that are sent by this call, in order, and never read or clear it. The
///   caller hands each of them to its device, reports that with [`handed_to_device`](Self::handed_to_device), and passes
///   each that is not lost to the peer's [`receive`](Self::receive). Segments may arrive late, out of order or more than
///   once.
/// - After every call the caller asks [`due`](Self::due) again and calls [`fire`](Self::fire) at that time or soon after;
///   a timer that is not fired delays what it would have sent, and nothing else.
/// - A [`write`](Self::write) that takes less than it was given found the send buffer full; [`is_writable`](Self::is_writable)
///   becomes true when the rest may be tried.
///
/// ```
/// use tcpsim::Profile;
/// use tcpsim::tcp::{Endpoint, More, Options};
///
/// let options = Options::default();
/// let mut client = Endpoint::new(Profile::LINUX, options);
/// let mut server = Endpoint::new(Profile::LINUX, options);
///
/// // 48 bytes leave at once: nothing is in flight.
/// let (mut sent, mut now) = (Vec::new(), 0);
/// assert_eq!(client.write(now, 48, More::Done, &mut sent), 48);
/// client.handed_to_device(now, sent[0].bytes);
///
/// // They arrive 10 us later. The first acknowledgements of a connection are not delayed.
/// now += 10_000;
/// let mut replies = Vec::new();
/// server.receive(now, &sent[0], &mut replies);
/// assert_eq!((server.readable(), replies[0].ack), (48, 48));
/// assert_eq!(server.read(1024, &mut replies), 48);
///
/// // The acknowledgement stops the retransmission timer.
/// assert_ne!(client.due(), u64::MAX);
/// client.receive(now, &replies[0], &mut sent);
/// assert_eq!(client.sent().acknowledged, 48);
/// assert_eq!(client.due(), u64::MAX);
/// ```
#[derive(Clone, Debug)]
pub struct Endpoint {
    profile: Profile,
    options: Options,
    /// The stream that is sent: first unacknowledged offset, next to be sent, end of what is written.
    snd_una: u64,
    snd_nxt: u64,
    snd_end: u64,
    /// End of the last small segment that was sent (Linux `snd_sml`).
    small_end: u64,
    nodelay: bool,
    cork: bool,
    /// The next push ignores Nagle's algorithm and cork (Linux `TCP_NAGLE_PUSH`).
    forces_push: bool,
    in_flight: VecDeque<InFlight>,
    /// When data was sent last.
    sent_at: Option<Ns>,
    /// First offset that the peer does not accept.
    peer_edge: u64,
    congestion: Congestion,
    /// What the device has not sent yet, and its counted memory in all, bytes.
    device: VecDeque<InDevice>,
    in_device: u64,
    autocorked: bool,
    hold: Clock,
    rto_at: Ns,
    probe_at: Ns,
    /// The stream that is received: read by the application up to here, next expected offset, and data beyond a gap.
    copied: u64,
    rcv_nxt: u64,
    reassembly: Reassembly,
    ack: AckState,
}

impl Endpoint {
    /// A connection without data so far, whose peer has the same options.
    #[must_use]
    pub fn new(profile: Profile, options: Options) -> Self {
        Self {
            profile,
            options,
            snd_una: 0,
            snd_nxt: 0,
            snd_end: 0,
            small_end: 0,
            nodelay: false,
            cork: false,
            forces_push: false,
            in_flight: VecDeque::new(),
            sent_at: None,
            peer_edge: options.receive_buffer_bytes,
            congestion: Congestion::new(&profile, options.initial_window),
            device: VecDeque::new(),
            in_device: 0,
            autocorked: false,
            hold: Clock::default(),
            rto_at: NEVER,
            probe_at: NEVER,
            copied: 0,
            rcv_nxt: 0,
            reassembly: Reassembly::default(),
            ack: AckState::new(&profile, &options),
        }
    }

    /// Sets the peer's receive buffer: the window that it offers at first. Only before any other call.
    pub fn set_peer_buffer(&mut self, bytes: u64) {
        self.peer_edge = bytes;
    }

    /// The handshake took this long: the first estimate of the round trip (RFC 6298 2.2). Only before any other call;
    /// without it the first time-out is the least one of the profile.
    pub fn set_handshake(&mut self, rtt: Ns) {
        self.congestion.measured(rtt);
    }

    /// How far the stream that this end sends has come.
    #[must_use]
    pub fn sent(&self) -> SentOffsets {
        SentOffsets { acknowledged: self.snd_una, sent: self.snd_nxt, written: self.snd_end }
    }

    /// How far the stream that this end receives has come.
    #[must_use]
    pub fn received(&self) -> ReceivedOffsets {
        ReceivedOffsets { read: self.copied, in_order: self.rcv_nxt }
    }

    /// Bytes that can be read.
    #[must_use]
    #[inline]
    pub fn readable(&self) -> u64 {
        self.rcv_nxt - self.copied
    }

    /// Bytes that a write would take.
    #[must_use]
    #[inline]
    pub fn room(&self) -> u64 {
        self.options.send_buffer_bytes.saturating_sub(self.snd_end - self.snd_una)
    }

    /// Whether a blocked writer is woken: a third of the send buffer is free (Linux `sk_stream_is_writeable`).
    #[must_use]
    pub fn is_writable(&self) -> bool {
        self.room() * 3 >= self.options.send_buffer_bytes
    }

    /// Time in each hold so far, ns.
    #[must_use]
    #[inline]
    pub fn held(&self, now: Ns) -> Held {
        self.hold.at(now)
    }

    /// What holds the first unsent byte back.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.hold.present()
    }

    /// Whether Nagle's algorithm is off (TCP_NODELAY).
    #[must_use]
    #[inline]
    pub fn is_nodelay(&self) -> bool {
        self.nodelay
    }

    /// Whether the connection counts as a conversation: replies are sent within the delay of acknowledgements.
    #[must_use]
    pub fn is_pingpong(&self) -> bool {
        self.ack.is_pingpong(&self.profile)
    }

    /// Writes up to `bytes` and returns how many the send buffer took.
    #[inline]
    pub fn write(&mut self, now: Ns, bytes: u64, more: More, out: &mut Vec<Segment>) -> u64 {
        let taken = bytes.min(self.room());
        if taken == 0 {
            return 0;
        }
        self.snd_end += taken;
        self.forces_push = false;
        if self.autocorks(now) {
            self.autocorked = true;
            self.hold.set(now, Some(Hold::Device));
            return taken;
        }
        self.push(now, Push { corked: more == More::Follows || self.cork, ..self.push_mode() }, out);
        taken
    }

    /// Sets TCP_NODELAY; setting it sends what Nagle's algorithm holds (Linux `__tcp_sock_set_nodelay`).
    pub fn set_nodelay(&mut self, now: Ns, nodelay: bool, out: &mut Vec<Segment>) {
        self.nodelay = nodelay;
        if nodelay {
            self.forces_push = true;
            self.push(now, self.push_mode(), out);
        }
    }

    /// Sets TCP_CORK; clearing it sends what Nagle's algorithm allows.
    pub fn set_cork(&mut self, now: Ns, cork: bool, out: &mut Vec<Segment>) {
        self.cork = cork;
        if !cork {
            self.forces_push |= self.nodelay;
            self.push(now, self.push_mode(), out);
        }
    }

    /// Sends what Nagle's algorithm holds and leaves TCP_NODELAY as it is.
    pub fn flush(&mut self, now: Ns, out: &mut Vec<Segment>) {
        let nodelay = self.nodelay;
        self.set_nodelay(now, true, out);
        self.nodelay = nodelay;
        self.forces_push = false;
    }

    /// Reads up to `bytes` and returns how many there were.
    #[inline]
    pub fn read(&mut self, bytes: u64, out: &mut Vec<Segment>) -> u64 {
        let taken = bytes.min(self.readable());
        self.copied += taken;
        if taken > 0 && self.ack_after_read() {
            self.send_ack(out);
        }
        taken
    }

    /// Takes a segment that arrived from the peer.
    #[inline]
    pub fn receive(&mut self, now: Ns, segment: &Segment, out: &mut Vec<Segment>) {
        if segment.bytes > 0 {
            self.process_data(now, segment);
        }
        self.process_ack(now, segment, out);
        self.push(now, self.push_mode(), out);
        if segment.bytes > 0 {
            self.acknowledge(now, out);
        } else if segment.retransmitted {
            // A window probe is answered (RFC 9293 3.8.6.1).
            self.send_ack(out);
        }
    }

    /// When [`fire`](Self::fire) is to be called next; `Ns::MAX` when no timer is running.
    #[must_use]
    #[inline]
    pub fn due(&self) -> Ns {
        let device = match self.hold.present() {
            Some(Hold::Device) => self.device.front().map_or(NEVER, |segment| segment.done),
            _ => NEVER,
        };
        self.rto_at.min(self.probe_at).min(self.ack.due).min(device)
    }

    /// Runs the timers that ended by `now`; without effect before [`due`](Self::due).
    pub fn fire(&mut self, now: Ns, out: &mut Vec<Segment>) {
        if self.hold.present() == Some(Hold::Device) {
            self.autocorked = false;
            self.push(now, self.push_mode(), out);
        }
        if self.ack.due <= now {
            self.delay_ended(out);
        }
        if self.probe_at <= now {
            self.probe(now, out);
        }
        if self.rto_at <= now {
            self.time_out(now, out);
        }
    }

    /// A segment of `bytes` was handed to the device, which will have sent it at `done`.
    #[inline]
    pub fn handed_to_device(&mut self, done: Ns, bytes: u32) {
        let counted = bytes + output::SKB_BYTES;
        self.device.push_back(InDevice { done, counted });
        self.in_device += u64::from(counted);
    }
}
