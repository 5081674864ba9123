//! Ring sizes.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Builder};

const RX_MAX: u16 = 2;
const TX_MAX: u16 = 5;
const RX: u16 = 6;
const TX: u16 = 9;

/// Rings of descriptors between the driver and the card.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Rings {
    /// Of received frames.
    pub rx: Option<Ring>,
    /// Of frames to send.
    pub tx: Option<Ring>,
}

/// A ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Ring {
    /// Its size, descriptors.
    pub current: u32,
    /// The largest size that the driver takes, where it says.
    pub max: Option<u32>,
}

/// A change of ring sizes, descriptors; what is none stays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingChange {
    /// Of received frames.
    pub rx: Option<u32>,
    /// Of frames to send.
    pub tx: Option<u32>,
}

impl RingChange {
    pub(super) fn attributes(self) -> Builder {
        let request = self.rx.map_or(Builder::new(), |size| Builder::new().u32(RX, size));
        match self.tx {
            Some(size) => request.u32(TX, size),
            None => request,
        }
    }
}

pub(super) fn parse(answer: Attributes<'_>) -> Rings {
    let ring = |current, max| Some(Ring { current: answer.u32(current)?, max: answer.u32(max) });
    Rings { rx: ring(RX, RX_MAX), tx: ring(TX, TX_MAX) }
}
