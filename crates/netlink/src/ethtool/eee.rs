//! Energy-efficient Ethernet: the transmitter sleeps while nothing is to be sent, and wakes with a delay.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::{Attributes, Builder};

const ACTIVE: u16 = 4;
const ENABLED: u16 = 5;
const SLEEPS: u16 = 6;
const TIMER: u16 = 7;

/// Energy-efficient Ethernet (IEEE 802.3 clause 78).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Eee {
    /// Whether both sides agreed on it.
    pub is_active: Option<bool>,
    /// Whether this side offers it.
    pub is_enabled: Option<bool>,
    /// Whether this side's transmitter sleeps.
    pub sends_idle: Option<bool>,
    /// How long the transmitter waits before it sleeps, microseconds.
    pub idle_timer_us: Option<u32>,
}

/// The attributes of a change; what they do not name stays.
pub(super) fn request(is_enabled: bool) -> Builder {
    Builder::new().u8(ENABLED, u8::from(is_enabled))
}

pub(super) fn parse(answer: Attributes<'_>) -> Eee {
    Eee {
        is_active: super::flag(answer, ACTIVE),
        is_enabled: super::flag(answer, ENABLED),
        sends_idle: super::flag(answer, SLEEPS),
        idle_timer_us: answer.u32(TIMER),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_names_the_switch_alone() {
        // ETHTOOL_A_EEE_ENABLED is 5: a header of four bytes, the value, padding.
        let expected = [[5, 0].as_slice(), &[5, 0], &[1, 0, 0, 0]].concat();
        assert_eq!(request(true).finish(), expected);
        assert_eq!(parse(Attributes::new(&request(false).finish())).is_enabled, Some(false));
    }

    #[test]
    fn the_timer_is_read_in_microseconds() {
        let bytes = Builder::new().u8(ACTIVE, 1).u8(ENABLED, 1).u8(SLEEPS, 0).u32(TIMER, 17).finish();
        let expected = Eee {
            is_active: Some(true),
            is_enabled: Some(true),
            sends_idle: Some(false),
            idle_timer_us: Some(17),
        };
        assert_eq!(parse(Attributes::new(&bytes)), expected);
    }
}
