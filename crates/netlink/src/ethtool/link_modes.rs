//! Speed, duplex, negotiation and modes of a link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bitset::{Bitset, Wanted, changing};
use crate::attributes::{Attributes, Builder};
use crate::error::Error;

const AUTONEG: u16 = 2;
const OURS: u16 = 3;
const PARTNER: u16 = 4;
const SPEED: u16 = 5;
const DUPLEX: u16 = 6;
const MASTER_SLAVE_CONFIGURED: u16 = 7;
const MASTER_SLAVE_STATE: u16 = 8;
const LANES: u16 = 9;

const INFO_PORT: u16 = 2;

/// Speed, duplex, negotiation and modes of a link. Modes have the kernel's names: `1000baseT/Full`, `Pause`, `Autoneg`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinkModes {
    /// Speed in Mb/s; none while there is no link or where the driver does not know.
    pub speed_mbps: Option<u32>,
    /// Duplex, where the driver knows it.
    pub duplex: Option<Duplex>,
    /// Whether this side negotiates.
    pub autoneg: Option<bool>,
    /// What this side can do.
    pub supported: Vec<String>,
    /// What this side offers its partner.
    pub advertised: Vec<String>,
    /// What the partner offers; none where the driver does not report it, empty where the partner offers nothing.
    pub partner: Option<Vec<String>>,
    /// Lanes, where the driver reports them.
    pub lanes: Option<u32>,
    /// Which side gives the clock of 1000BASE-T and faster over twisted pair: configuration.
    pub master_slave_configured: Option<MasterSlave>,
    /// Which side gives the clock: state.
    pub master_slave: Option<MasterSlave>,
    /// The connector.
    pub port: Option<Port>,
}

/// Whether both directions can be used at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Duplex {
    /// One at a time.
    Half,
    /// Both.
    Full,
}

impl std::fmt::Display for Duplex {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::Half { "half" } else { "full" })
    }
}

/// A side of a link with a common clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum MasterSlave {
    /// Gives the clock (configuration: if the partner lets it).
    Master,
    /// Takes the clock (configuration: if the partner lets it).
    Slave,
    /// Configured to give the clock.
    ForcedMaster,
    /// Configured to take the clock.
    ForcedSlave,
    /// Both sides claim the same part: there is no link.
    Conflict,
}

/// A connector.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Port {
    /// Twisted pair.
    TwistedPair,
    /// Attachment unit interface.
    Aui,
    /// Media-independent interface.
    Mii,
    /// Optical fibre.
    Fibre,
    /// Coaxial cable.
    Bnc,
    /// Direct attach copper.
    DirectAttach,
    /// None.
    None,
    /// Another one.
    Other,
}

/// Speed and duplex of a mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mode {
    /// Speed, Mb/s.
    pub speed_mbps: u32,
    /// Whether both directions can be used at once. Full sorts above half.
    pub is_full: bool,
}

impl Mode {
    /// Reads a mode's name, such as `1000baseT/Full`. Names without a speed, such as `Pause` or `TP`, are none.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        let (medium, duplex) = name.split_once('/')?;
        let (speed, _) = medium.split_once("base")?;
        let is_full = match duplex {
            "Full" => true,
            "Half" => false,
            _ => return None,
        };
        Some(Self { speed_mbps: speed.parse().ok()?, is_full })
    }
}

impl LinkModes {
    /// The fastest mode that both sides offer; full before half duplex at the same speed. None where the partner's are unknown or
    /// share nothing with ours.
    #[must_use]
    pub fn best_common(&self) -> Option<&str> {
        let partner = self.partner.as_ref()?;
        best(self.advertised.iter().filter(|mode| partner.contains(mode)))
    }

    /// The fastest mode of a list.
    #[must_use]
    pub fn best_supported(&self) -> Option<&str> {
        best(self.supported.iter())
    }

    /// Whether a change to this side's modes exists that the card can follow: it supports negotiation.
    #[must_use]
    pub fn can_negotiate(&self) -> bool {
        self.supported.iter().any(|mode| mode == "Autoneg")
    }
}

/// The fastest of some modes.
fn best<'a>(modes: impl Iterator<Item = &'a String>) -> Option<&'a str> {
    modes
        .filter_map(|name| Some((Mode::parse(name)?, name.as_str())))
        .max_by_key(|(mode, _)| *mode)
        .map(|(_, name)| name)
}

/// A change of link modes; what is none stays.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LinkModesChange {
    /// Whether to negotiate.
    pub autoneg: Option<bool>,
    /// The speed to force, Mb/s; while negotiating, the speed to which the kernel restricts what is advertised.
    pub speed_mbps: Option<u32>,
    /// The duplex to force, or to which to restrict.
    pub duplex: Option<Duplex>,
    /// The modes with a speed to advertise, instead of those advertised now. Others, such as `Pause`, stay as they are.
    pub advertise: Option<Vec<String>>,
}

/// The attributes of a change.
pub(super) fn request(what: &str, now: &LinkModes, change: &LinkModesChange) -> Result<Builder, Error> {
    let mut request = Builder::new();
    if let Some(autoneg) = change.autoneg {
        request = request.u8(AUTONEG, u8::from(autoneg));
    }
    if let Some(advertise) = &change.advertise {
        request = request.nested(OURS, &advertised(what, now, advertise)?);
    }
    if let Some(speed) = change.speed_mbps {
        request = request.u32(SPEED, speed);
    }
    if let Some(duplex) = change.duplex {
        request = request.u8(DUPLEX, u8::from(duplex == Duplex::Full));
    }
    Ok(request)
}

fn advertised(what: &str, now: &LinkModes, wanted: &[String]) -> Result<Builder, Error> {
    let unusable = |why: String| Err(Error::Unusable { what: what.to_owned(), why });
    let has_speed = |mode: &&String| Mode::parse(mode).is_some();
    let supported: Vec<&String> = now.supported.iter().filter(has_speed).collect();
    if wanted.is_empty() {
        return unusable("nothing to advertise: a link needs at least one mode".to_owned());
    }
    for mode in wanted {
        if Mode::parse(mode).is_none() {
            return unusable(format!("{mode} is no link mode such as 1000baseT/Full"));
        }
        // A card that lists nothing may still take any, as TAP devices do.
        if !supported.is_empty() && !supported.contains(&mode) {
            let list: Vec<&str> = supported.iter().map(|mode| mode.as_str()).collect();
            return unusable(format!("{mode} is not supported; the card supports {}", list.join(", ")));
        }
    }
    let mut known: Vec<&String> = supported;
    known.extend(now.advertised.iter().filter(has_speed));
    known.extend(wanted);
    known.sort();
    known.dedup();
    let bits: Vec<Wanted<'_>> =
        known.iter().map(|name| Wanted { name, is_set: wanted.contains(name) }).collect();
    Ok(changing(&bits))
}

/// Link modes in an answer.
pub(super) fn parse(answer: Attributes<'_>, names: &[String]) -> LinkModes {
    let ours = answer.nested(OURS).map(|set| Bitset::parse(set, names)).unwrap_or_default();
    LinkModes {
        // As in ethtool(8), these three numbers stand for unknown.
        speed_mbps: answer.u32(SPEED).filter(|speed| ![0, 0xffff, u32::MAX].contains(speed)),
        duplex: match answer.u8(DUPLEX) {
            Some(0) => Some(Duplex::Half),
            Some(1) => Some(Duplex::Full),
            _ => None,
        },
        autoneg: super::flag(answer, AUTONEG),
        supported: ours.mask,
        advertised: ours.value,
        partner: answer.nested(PARTNER).map(|set| Bitset::parse(set, names).value),
        lanes: answer.u32(LANES).filter(|lanes| *lanes > 0),
        master_slave_configured: match answer.u8(MASTER_SLAVE_CONFIGURED) {
            Some(2) => Some(MasterSlave::Master),
            Some(3) => Some(MasterSlave::Slave),
            Some(4) => Some(MasterSlave::ForcedMaster),
            Some(5) => Some(MasterSlave::ForcedSlave),
            _ => None,
        },
        master_slave: match answer.u8(MASTER_SLAVE_STATE) {
            Some(2) => Some(MasterSlave::Master),
            Some(3) => Some(MasterSlave::Slave),
            Some(4) => Some(MasterSlave::Conflict),
            _ => None,
        },
        port: None,
    }
}

/// The connector in an answer.
pub(super) fn parse_port(answer: Attributes<'_>) -> Option<Port> {
    Some(match answer.u8(INFO_PORT)? {
        0 => Port::TwistedPair,
        1 => Port::Aui,
        2 => Port::Mii,
        3 => Port::Fibre,
        4 => Port::Bnc,
        5 => Port::DirectAttach,
        0xef => Port::None,
        _ => Port::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn speed_and_duplex_come_from_a_modes_name() {
        let mode = |speed_mbps, is_full| Some(Mode { speed_mbps, is_full });
        assert_eq!(Mode::parse("1000baseT/Full"), mode(1000, true));
        assert_eq!(Mode::parse("10baseT1S_P2MP/Half"), mode(10, false));
        assert_eq!(Mode::parse("200000baseLR4_ER4_FR4/Full"), mode(200_000, true));
        for other in ["Pause", "Autoneg", "10000baseR_FEC", "TP", "", "/", "xbase/Full"] {
            assert_eq!(Mode::parse(other), None, "{other}");
        }
    }

    #[test]
    fn the_best_common_mode_is_fast_before_full_and_of_both() {
        let list = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        let mut modes = LinkModes {
            advertised: list("Pause 100baseT/Half 100baseT/Full 1000baseT/Half 10000baseT/Full"),
            ..LinkModes::default()
        };
        assert_eq!(modes.best_common(), None);
        modes.partner = Some(list("Pause 1000baseT/Half 100baseT/Full"));
        assert_eq!(modes.best_common(), Some("1000baseT/Half"));
        modes.partner = Some(list("Pause 100baseT/Half 100baseT/Full"));
        assert_eq!(modes.best_common(), Some("100baseT/Full"));
        modes.partner = Some(list("Pause"));
        assert_eq!(modes.best_common(), None);
    }

    #[test]
    fn a_mode_that_the_card_lacks_is_refused_with_those_that_it_has() {
        let now = LinkModes {
            supported: vec!["TP".to_owned(), "100baseT/Full".to_owned()],
            ..LinkModes::default()
        };
        let change = |modes: &[&str]| LinkModesChange {
            advertise: Some(modes.iter().map(|m| (*m).to_owned()).collect()),
            ..LinkModesChange::default()
        };
        assert!(request("a test", &now, &change(&["100baseT/Full"])).is_ok());
        let error = request("a test", &now, &change(&["1000baseT/Full"])).unwrap_err().to_string();
        assert_eq!(error, "a test: 1000baseT/Full is not supported; the card supports 100baseT/Full");
        assert!(request("a test", &now, &change(&["TP"])).is_err());
        assert!(request("a test", &now, &change(&[])).is_err());
    }
}
