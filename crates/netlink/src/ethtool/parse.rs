//! Answers of the ethtool family as values. Pure: each function takes the attributes of an answer, as bytes without headers, and
//! never panics. What is missing or malformed is none.

use super::{Channels, Coalescing, Eee, Features, Fec, LinkModes, LinkState, Pause, Port, Rings, Statistics};
use crate::attributes::Attributes;

/// Names of a string set, at the index of their bit.
#[must_use]
pub fn strings(answer: &[u8], set: u32) -> Vec<String> {
    super::strings::parse(Attributes::new(answer), set)
}

/// Link modes; `names` are those of the link modes.
#[must_use]
pub fn link_modes(answer: &[u8], names: &[String]) -> LinkModes {
    super::link_modes::parse(Attributes::new(answer), names)
}

/// The connector, from the link information.
#[must_use]
pub fn port(answer: &[u8]) -> Option<Port> {
    super::link_modes::parse_port(Attributes::new(answer))
}

/// The link's state.
#[must_use]
pub fn link_state(answer: &[u8]) -> LinkState {
    super::link_state::parse(Attributes::new(answer))
}

/// Ring sizes.
#[must_use]
pub fn rings(answer: &[u8]) -> Rings {
    super::rings::parse(Attributes::new(answer))
}

/// Interrupt coalescing.
#[must_use]
pub fn coalescing(answer: &[u8]) -> Coalescing {
    super::coalescing::parse(Attributes::new(answer))
}

/// Queues.
#[must_use]
pub fn channels(answer: &[u8]) -> Channels {
    super::channels::parse(Attributes::new(answer))
}

/// Features; `names` are those of the features.
#[must_use]
pub fn features(answer: &[u8], names: &[String]) -> Features {
    super::features::parse(Attributes::new(answer), names)
}

/// Flow control.
#[must_use]
pub fn pause(answer: &[u8]) -> Pause {
    super::pause::parse(Attributes::new(answer))
}

/// Forward error correction; `names` are those of the link modes.
#[must_use]
pub fn fec(answer: &[u8], names: &[String]) -> Fec {
    super::fec::parse(Attributes::new(answer), names)
}

/// Energy-efficient Ethernet.
#[must_use]
pub fn eee(answer: &[u8]) -> Eee {
    super::eee::parse(Attributes::new(answer))
}

/// Standard counters.
#[must_use]
pub fn statistics(answer: &[u8]) -> Statistics {
    super::statistics::parse(Attributes::new(answer))
}
