//! What holds written bytes back, and for how long.

use serde::{Deserialize, Serialize};

use crate::Ns;

/// The reason for which the first unsent byte is not sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    /// A small segment waits for the acknowledgement of an earlier one.
    Nagle,
    /// The application has announced more data: MSG_MORE, TCP_CORK.
    Cork,
    /// The congestion window is full.
    Congestion,
    /// The receiver's window is full.
    Window,
    /// Earlier segments are still in the device (autocorking, TCP small queues).
    Device,
}

/// Number of holds.
pub const HOLDS: usize = 5;

/// Time in each hold, ns, since the connection began.
pub type Held = [Ns; HOLDS];

/// The present hold, and the time in each so far.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Clock {
    held: Held,
    now: Option<(Hold, Ns)>,
}

impl Clock {
    /// Sets the hold from now on.
    #[inline]
    pub(super) fn set(&mut self, now: Ns, hold: Option<Hold>) {
        self.held = self.at(now);
        self.now = hold.map(|hold| (hold, now));
    }

    /// Time in each hold, including the present one.
    #[inline]
    pub(super) fn at(&self, now: Ns) -> Held {
        let mut held = self.held;
        if let Some((hold, since)) = self.now {
            held[hold as usize] += now - since;
        }
        held
    }

    pub(super) fn present(&self) -> Option<Hold> {
        self.now.map(|(hold, _)| hold)
    }
}
