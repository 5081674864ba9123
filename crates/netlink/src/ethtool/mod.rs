//! Network cards over ethtool netlink: what each can do, does, and is to do.
//!
//! [`Connection`] has one method for each group of settings; a driver that lacks a group answers [`Error::is_unsupported`]. Parsing
//! is in [`parse`], apart from it.

mod bitset;
mod channels;
mod coalescing;
mod eee;
mod features;
mod fec;
mod link_modes;
mod link_state;
pub mod parse;
mod pause;
mod rings;
mod statistics;
mod strings;

pub use channels::{ChannelCounts, Channels};
pub use coalescing::{Coalescing, CoalescingParameter};
pub use eee::Eee;
pub use features::{FeatureState, Features};
pub use fec::Fec;
pub use link_modes::{Duplex, LinkModes, LinkModesChange, MasterSlave, Mode, Port};
pub use link_state::LinkState;
pub use pause::{Pause, PauseChange};
pub use rings::{Ring, RingChange, Rings};
pub use statistics::Statistics;

use crate::attributes::{Attributes, Builder};
use crate::error::Error;
use crate::generic::{Family, attributes};
use crate::name;
use strings::{StringSet, Strings};

/// A request's command.
#[derive(Clone, Copy, Debug)]
#[repr(u8)]
enum Command {
    GetStrings = 1,
    GetLinkInfo = 2,
    GetLinkModes = 4,
    SetLinkModes = 5,
    GetLinkState = 6,
    GetFeatures = 11,
    SetFeatures = 12,
    GetRings = 15,
    SetRings = 16,
    GetChannels = 17,
    GetCoalescing = 19,
    SetCoalescing = 20,
    GetPause = 21,
    SetPause = 22,
    GetEee = 23,
    SetEee = 24,
    GetFec = 29,
    GetStatistics = 32,
}

/// The attribute with the header in requests and answers, but for statistics.
const HEADER: u16 = 1;
const STATISTICS_HEADER: u16 = 2;
const DEVICE_NAME: u16 = 2;
const FLAGS: u16 = 3;

/// Flags of a request: bitsets as words instead of lists, and counters.
const COMPACT_BITSETS: u32 = 1;
const WITH_STATISTICS: u32 = 4;

/// A connection to the kernel's ethtool family, in the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Connection {
    family: Family,
    strings: Strings,
}

impl Connection {
    /// Opens a connection.
    ///
    /// # Errors
    /// When the socket cannot be opened, or the kernel has no ethtool netlink (before 5.6).
    pub fn open() -> Result<Self, Error> {
        Ok(Self { family: Family::open("ethtool", 1)?, strings: Strings::default() })
    }

    /// Speed, duplex, negotiation and modes.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn link_modes(&mut self, interface: &str) -> Result<LinkModes, Error> {
        let names = self.strings(StringSet::LinkModes)?;
        let modes = self.get("link modes", Command::GetLinkModes, interface)?;
        let mut modes = parse::link_modes(&modes, &names);
        // The connector is in a group of its own, which a driver without it refuses.
        match self.get("link information", Command::GetLinkInfo, interface) {
            Ok(answer) => modes.port = parse::port(&answer),
            Err(error) if error.is_unsupported() => {}
            Err(error) => return Err(error),
        }
        Ok(modes)
    }

    /// Changes speed, duplex, negotiation and advertised modes.
    ///
    /// # Errors
    /// As [`Error`]; a mode that the card does not support is [`Error::Unusable`].
    pub fn set_link_modes(&mut self, interface: &str, change: &LinkModesChange) -> Result<(), Error> {
        let what = format!("setting link modes of {interface}");
        let now = self.link_modes(interface)?;
        let attributes = link_modes::request(&what, &now, change)?;
        self.set(&what, Command::SetLinkModes, interface, attributes)
    }

    /// Whether there is a link; if not, why, where the driver knows.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn link_state(&mut self, interface: &str) -> Result<LinkState, Error> {
        Ok(parse::link_state(&self.get("link state", Command::GetLinkState, interface)?))
    }

    /// Ring sizes.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn rings(&mut self, interface: &str) -> Result<Rings, Error> {
        Ok(parse::rings(&self.get("rings", Command::GetRings, interface)?))
    }

    /// Changes ring sizes. The driver stops the interface for a moment.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn set_rings(&mut self, interface: &str, change: &RingChange) -> Result<(), Error> {
        let what = format!("setting rings of {interface}");
        self.set(&what, Command::SetRings, interface, change.attributes())
    }

    /// Interrupt coalescing.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn coalescing(&mut self, interface: &str) -> Result<Coalescing, Error> {
        Ok(parse::coalescing(&self.get("coalescing", Command::GetCoalescing, interface)?))
    }

    /// Changes the parameters of interrupt coalescing that `change` names.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn set_coalescing(&mut self, interface: &str, change: &Coalescing) -> Result<(), Error> {
        let what = format!("setting coalescing of {interface}");
        self.set(&what, Command::SetCoalescing, interface, change.attributes())
    }

    /// Offloads and other features, by the kernel's names.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn features(&mut self, interface: &str) -> Result<Features, Error> {
        let names = self.strings(StringSet::Features)?;
        Ok(parse::features(&self.get("features", Command::GetFeatures, interface)?, &names))
    }

    /// Switches a feature on or off.
    ///
    /// # Errors
    /// As [`Error`]; [`Error::Ignored`] when the kernel accepts the request and leaves the feature as it was, as it does with a feature
    /// that the driver fixes or that depends on another one.
    pub fn set_feature(&mut self, interface: &str, feature: &str, state: Switch) -> Result<(), Error> {
        let what = format!("setting {feature} of {interface} {state}");
        self.set(&what, Command::SetFeatures, interface, features::request(feature, state))?;
        let is_on = self.features(interface)?.is_on(feature);
        if is_on == Some(state == Switch::On) {
            return Ok(());
        }
        let outcome =
            format!("{feature} is {}", is_on.map_or("unknown".to_owned(), |on| Switch::from(on).to_string()));
        Err(Error::Ignored { what, outcome })
    }

    /// Flow control with PAUSE frames (IEEE 802.3 annex 31B).
    ///
    /// # Errors
    /// As [`Error`].
    pub fn pause(&mut self, interface: &str) -> Result<Pause, Error> {
        Ok(parse::pause(&self.get("flow control", Command::GetPause, interface)?))
    }

    /// Changes flow control.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn set_pause(&mut self, interface: &str, change: &PauseChange) -> Result<(), Error> {
        let what = format!("setting flow control of {interface}");
        self.set(&what, Command::SetPause, interface, change.attributes())
    }

    /// Queues.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn channels(&mut self, interface: &str) -> Result<Channels, Error> {
        Ok(parse::channels(&self.get("channels", Command::GetChannels, interface)?))
    }

    /// Forward error correction.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn fec(&mut self, interface: &str) -> Result<Fec, Error> {
        let names = self.strings(StringSet::LinkModes)?;
        Ok(parse::fec(&self.get("FEC", Command::GetFec, interface)?, &names))
    }

    /// Energy-efficient Ethernet (IEEE 802.3 clause 78).
    ///
    /// # Errors
    /// As [`Error`].
    pub fn eee(&mut self, interface: &str) -> Result<Eee, Error> {
        Ok(parse::eee(&self.get("EEE", Command::GetEee, interface)?))
    }

    /// Switches energy-efficient Ethernet on or off; its modes and timers stay. The link goes down and negotiates again.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn set_eee(&mut self, interface: &str, state: Switch) -> Result<(), Error> {
        let what = format!("setting EEE of {interface} {state}");
        self.set(&what, Command::SetEee, interface, eee::request(state == Switch::On))
    }

    /// The counters that IEEE 802.3 and RMON define, where the driver has them.
    ///
    /// # Errors
    /// As [`Error`].
    pub fn statistics(&mut self, interface: &str) -> Result<Statistics, Error> {
        let what = format!("reading statistics of {interface}");
        let header = header(&what, interface, COMPACT_BITSETS)?;
        let attributes = Builder::new().nested(STATISTICS_HEADER, &header);
        let attributes = statistics::groups(attributes);
        Ok(parse::statistics(&self.answer(&what, Command::GetStatistics, attributes)?))
    }

    fn get(&mut self, group: &str, command: Command, interface: &str) -> Result<Vec<u8>, Error> {
        let what = format!("reading {group} of {interface}");
        let header = header(&what, interface, COMPACT_BITSETS | WITH_STATISTICS)?;
        match self.answer(&what, command, Builder::new().nested(HEADER, &header)) {
            // Groups without counters refuse the flag on kernels that check flags.
            Err(error) if error.errno() == Some(nix::errno::Errno::EINVAL as i32) => {}
            outcome => return outcome,
        }
        let header = self::header(&what, interface, COMPACT_BITSETS)?;
        self.answer(&what, command, Builder::new().nested(HEADER, &header))
    }

    /// The attributes of the answer, as bytes.
    fn answer(&mut self, what: &str, command: Command, request: Builder) -> Result<Vec<u8>, Error> {
        let parts = self.family.request(what, command as u8, request)?;
        let part = parts
            .first()
            .ok_or_else(|| Error::Malformed { what: what.to_owned(), why: "it has no content".to_owned() })?;
        Ok(attributes(part).bytes().to_vec())
    }

    fn set(&mut self, what: &str, command: Command, interface: &str, request: Builder) -> Result<(), Error> {
        let header = header(what, interface, 0)?;
        let request = request.nested(HEADER, &header);
        self.family.request(what, command as u8, request).map(drop)
    }

    /// A set of names, which the kernel is asked for once.
    fn strings(&mut self, set: StringSet) -> Result<Vec<String>, Error> {
        if let Some(known) = self.strings.get(set) {
            return Ok(known);
        }
        let what = format!("reading the names of {set}");
        let answer = self.answer(&what, Command::GetStrings, strings::request(set))?;
        Ok(self.strings.learn(set, parse::strings(&answer, set as u32)))
    }
}

fn header(what: &str, interface: &str, flags: u32) -> Result<Builder, Error> {
    name::check(what, interface)?;
    let header = Builder::new().text(DEVICE_NAME, interface);
    Ok(if flags == 0 { header } else { header.u32(FLAGS, flags) })
}

/// Whether something is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Switch {
    /// On.
    On,
    /// Off.
    Off,
}

impl From<bool> for Switch {
    fn from(is_on: bool) -> Self {
        if is_on { Self::On } else { Self::Off }
    }
}

impl std::fmt::Display for Switch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(if *self == Self::On { "on" } else { "off" })
    }
}

/// A yes or no of an attribute; kernels use one byte.
fn flag(attributes: Attributes<'_>, kind: u16) -> Option<bool> {
    attributes.u8(kind).map(|value| value != 0)
}
