//! The state of one end, and what happens to it: writes, reads, segments, timers.

use std::collections::VecDeque;

use super::Segment;
use super::ack::AckState;
use super::congestion::Congestion;
use super::hold::{Clock, Held, Hold};
use super::output::Push;
use crate::Ns;
use crate::profile::Profile;

/// What a connection is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Largest payload of a segment on the wire, bytes.
    pub mss_bytes: u32,
    /// Segments that are handed to the device as one (TSO, GSO); 1: each by itself.
    pub offload_segments: u32,
    /// Bytes that may be written and not acknowledged (SO_SNDBUF).
    pub send_buffer_bytes: u64,
    /// Bytes that may have come and not been read (SO_RCVBUF).
    pub receive_buffer_bytes: u64,
    /// First congestion window, segments (RFC 6928).
    pub initial_window: u32,
    /// Bytes of one connection in the device, as the kernel counts them (`tcp_limit_output_bytes`).
    pub device_bytes: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            mss_bytes: 8948,
            offload_segments: 1,
            send_buffer_bytes: 4 << 20,
            receive_buffer_bytes: 4 << 20,
            initial_window: 10,
            device_bytes: 1 << 20,
        }
    }
}

/// A time that never comes.
pub(super) const NEVER: Ns = Ns::MAX;

/// A segment that is not acknowledged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flying {
    pub(super) end: u64,
    pub(super) sent_at: Ns,
    pub(super) again: bool,
}

/// One end of a connection that is established.
#[derive(Clone, Debug)]
pub struct Endpoint {
    pub(super) profile: Profile,
    pub(super) options: Options,
    /// Sent: what is acknowledged, sent, and written, in that order.
    pub(super) una: u64,
    pub(super) nxt: u64,
    pub(super) end: u64,
    /// Behind the last small segment that was sent (Linux `snd_sml`).
    pub(super) small_end: u64,
    pub(super) nodelay: bool,
    pub(super) cork: bool,
    /// The next push sends whatever there is (Linux `TCP_NAGLE_PUSH`).
    pub(super) pushes: bool,
    pub(super) flying: VecDeque<Flying>,
    /// First offset that the peer does not accept.
    pub(super) peer_edge: u64,
    pub(super) congestion: Congestion,
    /// What the device has not sent yet: when it will have, and how much the kernel counts for it.
    pub(super) device: VecDeque<(Ns, u32)>,
    pub(super) in_device: u64,
    pub(super) autocorked: bool,
    pub(super) hold: Clock,
    pub(super) rto_at: Ns,
    pub(super) probe_at: Ns,
    /// Received: read by the application, and come in order.
    pub(super) copied: u64,
    pub(super) rcv_nxt: u64,
    pub(super) early: Vec<(u64, u64)>,
    pub(super) ack: AckState,
}

impl Endpoint {
    /// A connection without data so far, whose peer is set alike.
    #[must_use]
    pub fn new(profile: Profile, options: Options) -> Self {
        Self {
            profile,
            options,
            una: 0,
            nxt: 0,
            end: 0,
            small_end: 0,
            nodelay: false,
            cork: false,
            pushes: false,
            flying: VecDeque::new(),
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
            early: Vec::new(),
            ack: AckState::new(&profile, &options),
        }
    }

    /// The peer accepts no more than this at first (its receive buffer).
    pub fn set_peer_buffer(&mut self, bytes: u64) {
        self.peer_edge = bytes;
    }

    /// Offsets of what this end sent: acknowledged, sent, written.
    #[must_use]
    pub fn sent(&self) -> (u64, u64, u64) {
        (self.una, self.nxt, self.end)
    }

    /// Offsets of what came: read by the application, and come in order.
    #[must_use]
    pub fn received(&self) -> (u64, u64) {
        (self.copied, self.rcv_nxt)
    }

    /// Bytes that can be read.
    #[must_use]
    #[inline]
    pub fn readable(&self) -> u64 {
        self.rcv_nxt - self.copied
    }

    /// Bytes that a write takes.
    #[must_use]
    #[inline]
    pub fn room(&self) -> u64 {
        self.options.send_buffer_bytes.saturating_sub(self.end - self.una)
    }

    /// Whether a writer that found no room is told of it: a third is free (Linux `sk_stream_is_writeable`).
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

    /// What keeps the first unsent byte from leaving.
    #[must_use]
    pub fn hold(&self) -> Option<Hold> {
        self.hold.present()
    }

    /// Nagle's algorithm is off.
    #[must_use]
    #[inline]
    pub fn is_nodelay(&self) -> bool {
        self.nodelay
    }

    /// The connection counts as a conversation: replies come within the delay of acknowledgements.
    #[must_use]
    pub fn is_pingpong(&self) -> bool {
        self.ack.is_pingpong(&self.profile)
    }

    /// Writes `bytes`; `more` promises that others follow (MSG_MORE). Returns what was taken.
    #[inline]
    pub fn write(&mut self, now: Ns, bytes: u64, more: bool, out: &mut Vec<Segment>) -> u64 {
        let taken = bytes.min(self.room());
        if taken == 0 {
            return 0;
        }
        self.end += taken;
        self.pushes = false;
        if self.autocorks(now) {
            self.autocorked = true;
            self.hold.set(now, Some(Hold::Device));
            return taken;
        }
        self.push(now, Push { corked: more || self.cork, ..self.push_mode() }, out);
        taken
    }

    /// Nagle's algorithm off or on; off sends what waits (Linux `__tcp_sock_set_nodelay`).
    pub fn set_nodelay(&mut self, now: Ns, nodelay: bool, out: &mut Vec<Segment>) {
        self.nodelay = nodelay;
        if nodelay {
            self.pushes = true;
            self.push(now, self.push_mode(), out);
        }
    }

    /// TCP_CORK on or off; off sends what waits as Nagle allows it.
    pub fn set_cork(&mut self, now: Ns, cork: bool, out: &mut Vec<Segment>) {
        self.cork = cork;
        if !cork {
            self.pushes |= self.nodelay;
            self.push(now, self.push_mode(), out);
        }
    }

    /// What waits leaves, Nagle's algorithm or not.
    pub fn flush(&mut self, now: Ns, out: &mut Vec<Segment>) {
        let nodelay = self.nodelay;
        self.set_nodelay(now, true, out);
        self.nodelay = nodelay;
        self.pushes = false;
    }

    /// The application takes up to `bytes` of what came; how many it got.
    #[inline]
    pub fn read(&mut self, now: Ns, bytes: u64, out: &mut Vec<Segment>) -> u64 {
        let taken = bytes.min(self.readable());
        self.copied += taken;
        if taken > 0 && self.ack_after_read() {
            self.send_ack(now, out);
        }
        taken
    }

    /// A segment came.
    #[inline]
    pub fn receive(&mut self, now: Ns, segment: &Segment, out: &mut Vec<Segment>) {
        if segment.bytes > 0 {
            self.take_data(now, segment);
        }
        self.take_ack(now, segment, out);
        self.push(now, self.push_mode(), out);
        if segment.bytes > 0 {
            self.acknowledge(now, out);
        } else if segment.again {
            // A probe of the window is answered (RFC 9293 3.8.6.1).
            self.send_ack(now, out);
        }
    }

    /// When [`Endpoint::fire`] is to be called next; the greatest number: never.
    #[must_use]
    #[inline]
    pub fn due(&self) -> Ns {
        let device = match self.hold.present() {
            Some(Hold::Device) => self.device.front().map_or(NEVER, |&(done, _)| done),
            _ => NEVER,
        };
        self.rto_at.min(self.probe_at).min(self.ack.due).min(device)
    }

    /// The time that was due has come.
    pub fn fire(&mut self, now: Ns, out: &mut Vec<Segment>) {
        if self.hold.present() == Some(Hold::Device) {
            self.autocorked = false;
            self.push(now, self.push_mode(), out);
        }
        if self.ack.due <= now {
            self.delay_is_over(now, out);
        }
        if self.probe_at <= now {
            self.probe(now, out);
        }
        if self.rto_at <= now {
            self.time_out(now, out);
        }
    }

    /// The device will have sent a segment with `bytes` at `done`.
    #[inline]
    pub fn handed_to_device(&mut self, done: Ns, bytes: u32) {
        let counted = bytes + super::output::SKB_BYTES;
        self.device.push_back((done, counted));
        self.in_device += u64::from(counted);
    }
}
