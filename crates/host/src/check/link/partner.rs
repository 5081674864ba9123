//! What is known of the other side of a link: decides which remedies are safe.

use netlink::ethtool::{Duplex, LinkModes, Mode};

use super::is_twisted_pair;
use crate::facts::Facts;
use crate::facts::link::LinkFacts;
use crate::facts::peer::{MacPhy, PeerFacts};

/// The other side of a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::check) enum Partner {
    /// It negotiates and offers these modes, which are those with a speed.
    Offers(Vec<String>),
    /// It negotiates; its modes are unknown.
    Negotiates,
    /// It does not negotiate: its speed and duplex are forced.
    Forced,
    /// Neither the driver nor a frame of LLDP says anything.
    Unknown,
}

impl Partner {
    /// The partner of a link: what the driver reports, else what the port announces, else what the result of the negotiation tells.
    pub(in crate::check) fn of(link: &LinkFacts, facts: &Facts) -> Self {
        let Some(modes) = &link.modes else { return Self::Unknown };
        let reported = modes.partner.as_deref().unwrap_or_default();
        let offered: Vec<String> =
            reported.iter().filter(|mode| Mode::parse(mode).is_some()).cloned().collect();
        if !offered.is_empty() {
            return Self::Offers(offered);
        }
        if reported.iter().any(|mode| mode == "Autoneg") {
            return Self::Negotiates;
        }
        if let Some(port) = port_of(link, facts) {
            return Self::of_port(port);
        }
        let is_forced = modes.autoneg == Some(true) && link.has_link() && is_unanswered(modes);
        if is_forced { Self::Forced } else { Self::Unknown }
    }

    /// A port that announces itself by LLDP. Its frame has no bits for modes faster than 1000BASE-T.
    pub(in crate::check) fn of_port(port: &MacPhy) -> Self {
        match (port.negotiates, port.advertised.is_empty()) {
            (true, false) => Self::Offers(port.advertised.clone()),
            (true, true) => Self::Negotiates,
            (false, _) => Self::Forced,
        }
    }

    /// The fastest mode that the card supports and the partner offers; full before half duplex at the same speed, as negotiation
    /// chooses. None where the partner's modes are unknown or share nothing with the card's.
    pub(in crate::check) fn best_common(&self, modes: &LinkModes) -> Option<String> {
        let Self::Offers(theirs) = self else { return None };
        let could = LinkModes {
            advertised: modes.supported.clone(),
            partner: Some(theirs.clone()),
            ..LinkModes::default()
        };
        could.best_common().map(str::to_owned)
    }

    /// Whether half duplex is the best that the two sides have in common.
    pub(in crate::check) fn is_half_alone(&self, modes: &LinkModes) -> bool {
        let best = self.best_common(modes).and_then(|best| Mode::parse(&best));
        best.is_some_and(|best| !best.is_full)
    }
}

/// What the port announces at the other end of an interface.
fn port_of<'a>(link: &LinkFacts, facts: &'a Facts) -> Option<&'a MacPhy> {
    facts.peers.iter().find_map(|peer| match peer {
        PeerFacts::Lldp { interface, neighbour } if interface == link.name() => neighbour.mac_phy.as_ref(),
        _ => None,
    })
}

/// Whether this side's negotiation was not answered.
pub(super) fn is_unanswered(modes: &LinkModes) -> bool {
    is_silent(modes) || is_parallel_detection(modes)
}

/// Whether the driver reports the partner and found it silent. Some drivers report no more of a partner than that it negotiates or
/// its flow control; and only at 10 and 100 Mb/s over twisted pair can a link come up beside a silent partner.
fn is_silent(modes: &LinkModes) -> bool {
    let says = |mode: &String| mode == "Autoneg" || Mode::parse(mode).is_some();
    is_twisted_pair(modes)
        && modes.speed_mbps.is_some_and(|speed| speed <= 100)
        && modes.partner.as_ref().is_some_and(|partner| !partner.iter().any(says))
}

/// Whether speed and duplex are those of IEEE 802.3 28.2.3.1, parallel detection: half duplex although this side offers full, with
/// nothing known of the partner.
fn is_parallel_detection(modes: &LinkModes) -> bool {
    let offers_full = |speed: u32| {
        let full = Mode { speed_mbps: speed, is_full: true };
        modes.advertised.iter().any(|mode| Mode::parse(mode) == Some(full))
    };
    modes.partner.is_none()
        && modes.duplex == Some(Duplex::Half)
        && modes.speed_mbps.is_some_and(|speed| speed <= 100 && offers_full(speed))
}
