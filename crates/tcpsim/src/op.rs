//! What is known of a simulated operation: its record, and where each of its nanoseconds went.

use record::Op;
use serde::Serialize;

use crate::Ns;

/// What happens to a message, from the moment its maker begins with it to the moment its taker does. The request's maker is
/// the client and its taker the server; the response's the other way round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Part {
    /// The maker's thread works on it (SP; of a request the send that issues it).
    Work,
    /// It waits for its maker to send it with others.
    Gather,
    /// The maker's thread is in its send call, and in those for messages before it.
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
    /// It waits for messages before it on the wire.
    WireQueue,
    /// Its segments' bits on the wire (W1, W2).
    Wire,
    /// The wire's length.
    Delay,
    /// It was lost or overtaken, and had to be sent again or waited for.
    Lost,
    /// From the wire until the softirq looks at it (SR, CR), moderation of interrupts among it.
    Interrupt,
    /// Softirq work (SI, CI).
    Softirq,
    /// The taker's thread wakes (SL, CL).
    Start,
    /// The taker is busy with others (SQ, CQ without start).
    Queue,
    /// The client's thread takes the response (CP); of a request nothing.
    Take,
}

impl Part {
    /// How many there are.
    pub const COUNT: usize = 20;

    /// All of them, in the order in which they happen.
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

    /// Its name, in words.
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

/// An operation that is over.
#[derive(Clone, Copy, Debug)]
pub struct SimOp {
    /// The record that measurements have too, complete.
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
