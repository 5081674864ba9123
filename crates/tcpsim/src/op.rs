//! A simulated operation: its record, and where each of its nanoseconds went.

use record::Op;
use serde::Serialize;

use crate::Ns;

/// A part of a message's time, from the begin of its sender's work on it to the begin of its receiver's. The client sends
/// requests and receives responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The sender's thread works on it (SP; for a request the send that issues it).
    Work,
    /// It waits to be sent with other messages.
    Gather,
    /// The sender's thread is in the send call, for it or for earlier messages.
    Send,
    /// The socket's send buffer is full.
    Buffer,
    /// Nagle's algorithm.
    Nagle,
    /// MSG_MORE, TCP_CORK.
    Cork,
    /// The congestion window.
    Congestion,
    /// The receiver's window.
    Window,
    /// Autocorking, TCP small queues.
    Device,
    /// Transmit work up to the capture point (CK, SK).
    Transmit,
    /// From the capture point until the device begins (CT, ST).
    WireStart,
    /// It waits for earlier messages on the wire.
    WireQueue,
    /// Its segments' bits on the wire (W1, W2).
    Wire,
    /// Propagation on the wire.
    Delay,
    /// It was lost or overtaken: time until the retransmission or the missing segment arrived.
    Lost,
    /// From the wire until the softirq takes it (SR, CR), including interrupt moderation.
    Interrupt,
    /// Softirq work (SI, CI).
    Softirq,
    /// The receiver's thread wakes up (SL, CL).
    Start,
    /// The receiver's thread works on other messages (SQ, CQ without start).
    Queue,
    /// The client's thread takes the response (CP); always 0 for a request.
    Take,
}

impl Part {
    /// Number of parts.
    pub const COUNT: usize = 20;

    /// All parts, in order of time.
    pub const ALL: [Part; Part::COUNT] = [
        Part::Work,
        Part::Gather,
        Part::Send,
        Part::Buffer,
        Part::Nagle,
        Part::Cork,
        Part::Congestion,
        Part::Window,
        Part::Device,
        Part::Transmit,
        Part::WireStart,
        Part::WireQueue,
        Part::Wire,
        Part::Delay,
        Part::Lost,
        Part::Interrupt,
        Part::Softirq,
        Part::Start,
        Part::Queue,
        Part::Take,
    ];

    /// The name that results use.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Part::Work => "work",
            Part::Gather => "gather",
            Part::Send => "send",
            Part::Buffer => "buffer",
            Part::Nagle => "nagle",
            Part::Cork => "cork",
            Part::Congestion => "congestion",
            Part::Window => "window",
            Part::Device => "device",
            Part::Transmit => "transmit",
            Part::WireStart => "wire_start",
            Part::WireQueue => "wire_queue",
            Part::Wire => "wire",
            Part::Delay => "delay",
            Part::Lost => "lost",
            Part::Interrupt => "interrupt",
            Part::Softirq => "softirq",
            Part::Start => "start",
            Part::Queue => "queue",
            Part::Take => "take",
        }
    }
}

/// Time in each part, ns.
pub type Parts = [Ns; Part::COUNT];

/// A completed operation.
#[derive(Clone, Copy, Debug)]
pub struct SimOp {
    /// The record, as of a measurement, with every stamp.
    pub op: Op,
    /// Where the request's time went: from the start to the moment at which the server's thread took it.
    pub request: Parts,
    /// Where the response's went: from there to the finish.
    pub response: Parts,
}

impl SimOp {
    /// The sum of all parts, which is the round trip.
    #[must_use]
    pub fn sum_ns(&self) -> Ns {
        self.request.iter().chain(&self.response).sum()
    }
}
