//! Flow control with PAUSE frames.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Builder};

const AUTONEG: u16 = 2;
const RX: u16 = 3;
const TX: u16 = 4;
const COUNTERS: u16 = 5;
const SENT: u16 = 2;
const RECEIVED: u16 = 3;

/// Flow control with PAUSE frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Pause {
    /// Whether it is negotiated with the link.
    pub autoneg: Option<bool>,
    /// Whether received PAUSE frames stop this side.
    pub rx: Option<bool>,
    /// Whether this side sends PAUSE frames.
    pub tx: Option<bool>,
    /// PAUSE frames received, where the driver counts them.
    pub received_frames: Option<u64>,
    /// PAUSE frames sent, where the driver counts them.
    pub sent_frames: Option<u64>,
}

/// A change of flow control; what is none stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PauseChange {
    /// Whether to negotiate it with the link.
    pub autoneg: Option<bool>,
    /// Whether received PAUSE frames are to stop this side.
    pub rx: Option<bool>,
    /// Whether this side is to send PAUSE frames.
    pub tx: Option<bool>,
}

impl PauseChange {
    pub(super) fn attributes(self) -> Builder {
        let values = [(AUTONEG, self.autoneg), (RX, self.rx), (TX, self.tx)];
        let given = values.into_iter().filter_map(|(kind, value)| Some((kind, value?)));
        given.fold(Builder::new(), |request, (kind, value)| request.u8(kind, u8::from(value)))
    }
}

pub(super) fn parse(answer: Attributes<'_>) -> Pause {
    let counters = answer.nested(COUNTERS);
    Pause {
        autoneg: super::flag(answer, AUTONEG),
        rx: super::flag(answer, RX),
        tx: super::flag(answer, TX),
        received_frames: counters.and_then(|counters| counters.u64(RECEIVED)),
        sent_frames: counters.and_then(|counters| counters.u64(SENT)),
    }
}
