//! Whether there is a link and why not.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::attributes::Attributes;

const LINK: u16 = 2;
const SQI: u16 = 3;
const SQI_MAX: u16 = 4;
const REASON: u16 = 5;
const DETAIL: u16 = 6;
const DOWN_COUNT: u16 = 7;

/// Whether there is a link and why not.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkState {
    /// Whether there is a link.
    pub has_link: Option<bool>,
    /// Quality of the signal, from 0 to `signal_quality_max`.
    pub signal_quality: Option<u32>,
    /// The best quality that the transceiver reports.
    pub signal_quality_max: Option<u32>,
    /// Why there is no link, where the driver knows: `no cable`.
    pub reason: Option<String>,
    /// How often the transceiver lost the link, counted by the hardware.
    pub down_count: Option<u32>,
}

pub(super) fn parse(answer: Attributes<'_>) -> LinkState {
    LinkState {
        has_link: super::flag(answer, LINK),
        signal_quality: answer.u32(SQI),
        signal_quality_max: answer.u32(SQI_MAX),
        reason: answer.u8(REASON).map(|reason| text(reason, answer.u8(DETAIL))),
        down_count: answer.u32(DOWN_COUNT),
    }
}

/// A reason in words, with its detail where the driver gives one (ETHTOOL_LINK_EXT_STATE and ETHTOOL_LINK_EXT_SUBSTATE).
fn text(reason: u8, detail: Option<u8>) -> String {
    let name = match reason {
        0 => "negotiation failed",
        1 => "link training failed",
        2 => "the two sides do not match in their physical coding",
        3 => "bad signal",
        4 => "no cable",
        5 => "cable fault",
        6 => "the cable's or module's EEPROM cannot be read",
        7 => "calibration failed",
        8 => "the cable or module needs more power than the card gives",
        9 => "the module is too hot",
        10 => "the module is not ready",
        _ => return format!("reason {reason} of the driver"),
    };
    match detail.and_then(|detail| detail_text(reason, detail)) {
        Some(detail) => format!("{name}: {detail}"),
        None => name.to_owned(),
    }
}

fn detail_text(reason: u8, detail: u8) -> Option<&'static str> {
    Some(match (reason, detail) {
        (0, 1) => "no partner detected",
        (0, 2) => "the partner acknowledged nothing",
        (0, 3) => "the exchange of next pages failed",
        (0, 4) => "no partner detected in the forced mode",
        (0, 5) => "FEC of the two sides does not match",
        (0, 6) => "the two sides have no mode in common",
        (1, 1) => "no frame lock",
        (1, 2) => "the link inhibit timer expired",
        (1, 3) => "the partner's receiver is not ready",
        (1, 4) => "fault at the other end",
        (2, 1) => "no block lock",
        (2, 2) => "no lock on alignment markers",
        (2, 3) => "lanes are not aligned",
        (2, 4) => "no lock of Base-R FEC",
        (2, 5) => "no lock of RS FEC",
        (3, 1) => "many errors on the wire",
        (3, 2) => "the system attempted an unsupported rate",
        (3, 3) => "the reference clock was lost",
        (3, 4) => "no signal",
        (5, 1) => "unsupported cable",
        (5, 2) => "the cable test failed",
        (10, 1) => "its management interface (CMIS) is not ready",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::attributes::Builder;

    #[test]
    fn a_missing_cable_and_unknown_reasons_are_named() {
        let state = |bytes: Builder| parse(Attributes::new(&bytes.finish()));
        let unplugged = state(Builder::new().u8(LINK, 0).u8(REASON, 4));
        assert_eq!((unplugged.has_link, unplugged.reason.as_deref()), (Some(false), Some("no cable")));
        let mismatch = state(Builder::new().u8(LINK, 0).u8(REASON, 0).u8(DETAIL, 6));
        assert_eq!(
            mismatch.reason.as_deref(),
            Some("negotiation failed: the two sides have no mode in common")
        );
        assert_eq!(state(Builder::new().u8(REASON, 99)).reason.as_deref(), Some("reason 99 of the driver"));
        assert_eq!(state(Builder::new().u8(LINK, 1)).reason, None);
    }
}
