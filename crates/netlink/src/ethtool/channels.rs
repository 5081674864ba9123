//! Queues of a card, each with its interrupt.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;

const RX_MAX: u16 = 2;
const TX_MAX: u16 = 3;
const OTHER_MAX: u16 = 4;
const COMBINED_MAX: u16 = 5;
const RX: u16 = 6;
const TX: u16 = 7;
const OTHER: u16 = 8;
const COMBINED: u16 = 9;

/// Queues of a card, each with its interrupt.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Channels {
    /// In use.
    pub current: ChannelCounts,
    /// As many as the card has.
    pub max: ChannelCounts,
}

/// Numbers of queues; a kind that the driver does not report is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct ChannelCounts {
    /// That only receive.
    pub rx: Option<u32>,
    /// That only send.
    pub tx: Option<u32>,
    /// For other purposes, such as link interrupts.
    pub other: Option<u32>,
    /// That receive and send.
    pub combined: Option<u32>,
}

pub(super) fn parse(answer: Attributes<'_>) -> Channels {
    let counts = |rx, tx, other, combined| ChannelCounts {
        rx: answer.u32(rx),
        tx: answer.u32(tx),
        other: answer.u32(other),
        combined: answer.u32(combined),
    };
    Channels {
        current: counts(RX, TX, OTHER, COMBINED),
        max: counts(RX_MAX, TX_MAX, OTHER_MAX, COMBINED_MAX),
    }
}
