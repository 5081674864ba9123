//! What mends speed and duplex of a link without cutting it. A remedy only lets this side negotiate and offer everything that it
//! supports: whatever the partner offered before is then still common to both. It never forces: beside a partner that negotiates that
//! yields half duplex there, and none at all at 1000BASE-T and faster. Where only the other end can act, the remedy says what to do
//! there.

use netlink::ethtool::{Duplex, LinkModes, Mode, Port};

use super::partner::Partner;
use crate::change::{Change, Setting};
use crate::check::shell::word;
use crate::facts::link::LinkFacts;
use crate::finding::Finding;

/// The fastest speed over twisted pair that works without negotiation, Mb/s (IEEE 802.3, 28D.5 and 40.5.1).
const FORCED_UP_TO_MBPS: u32 = 100;

/// What to do at either end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(in crate::check) struct Remedy {
    commands: Vec<String>,
    changes: Vec<Change>,
    other_end: Option<String>,
}

impl Remedy {
    /// Gives a finding this remedy.
    pub(in crate::check) fn of(self, mut found: Finding) -> Finding {
        (found.commands, found.changes) = (self.commands, self.changes);
        found.other_end = self.other_end;
        found
    }

    fn look(link: &LinkFacts, other_end: String) -> Self {
        let commands = vec![format!("ethtool {}", word(link.name()))];
        Self { commands, changes: Vec::new(), other_end: Some(other_end) }
    }

    /// A change of this side alone.
    fn offer(link: &LinkFacts, modes: &LinkModes) -> Self {
        let value = everything(modes);
        let change = Change {
            setting: Setting::LinkModes { interface: link.name().to_owned() },
            value: value.clone(),
        };
        Self { commands: vec![command(link, &value)], changes: vec![change], other_end: None }
    }
}

/// Mends half duplex.
pub(in crate::check) fn to_full_duplex(link: &LinkFacts, modes: &LinkModes, partner: &Partner) -> Remedy {
    let can_offer = can_negotiate(modes);
    match partner {
        Partner::Offers(_) if can_offer => match partner.best_common(modes) {
            Some(best) if Mode::parse(&best).is_some_and(|mode| mode.is_full) => Remedy::offer(link, modes),
            best => Remedy::look(link, partner_is_the_limit(best.as_deref())),
        },
        // What it offers now is part of everything, so that the link stays whatever the partner is.
        Partner::Negotiates | Partner::Unknown if can_offer && !offers_full_duplex(modes) => Remedy {
            other_end: Some("let the port negotiate and offer full duplex, too".to_owned()),
            ..Remedy::offer(link, modes)
        },
        _ => Remedy::look(link, format!("{}{}", let_it_negotiate(), forced_form(link, modes))),
    }
}

/// Lets a forced side negotiate.
pub(in crate::check) fn to_negotiation(link: &LinkFacts, modes: &LinkModes, partner: &Partner) -> Remedy {
    let is_slow_half = modes.duplex == Some(Duplex::Half)
        && modes.speed_mbps.is_some_and(|speed| speed <= FORCED_UP_TO_MBPS);
    let is_safe = match partner {
        Partner::Offers(_) => partner.best_common(modes).is_some() || with_speed(modes).is_empty(),
        Partner::Negotiates => true,
        // The worst outcome of negotiating beside a forced partner is the half duplex that is in force now.
        Partner::Unknown => is_slow_half,
        Partner::Forced => false,
    };
    let offer = Remedy::offer(link, modes);
    if is_safe {
        return offer;
    }
    let other_end = match partner {
        Partner::Offers(_) => {
            "let the port offer a mode that this side supports; there is none now, so that negotiating would cut the link".to_owned()
        }
        _ => format!(
            "let both sides negotiate in the same minute: first the port (Cisco: `speed auto`, `duplex auto`), then this side. 'tune' \
             does not change this side alone: beside a port that {} forced it would fall back to half duplex at 10 and 100 Mb/s and \
             find no link at 1000 Mb/s and more over twisted pair",
            if *partner == Partner::Forced { "is" } else { "may be" }
        ),
    };
    Remedy { changes: Vec::new(), other_end: Some(other_end), ..offer }
}

/// Offers a faster mode that both sides have.
pub(in crate::check) fn to_faster(link: &LinkFacts, modes: &LinkModes) -> Remedy {
    if !can_negotiate(modes) {
        return Remedy::look(
            link,
            "this side does not negotiate: set the same faster mode at both ends".to_owned(),
        );
    }
    let pitfall = "none; but 1000BASE-T and faster need all four pairs of the cable: if the link does not come back within 10 s, the \
                   cable has fewer (`roundtrip host undo` takes the change back)";
    Remedy { other_end: Some(pitfall.to_owned()), ..Remedy::offer(link, modes) }
}

/// What a partner that does not negotiate must do, and how to force both sides where it cannot.
pub(in crate::check) fn at_other_end(link: &LinkFacts, modes: &LinkModes) -> String {
    format!("{}{}", let_it_negotiate(), forced_form(link, modes))
}

/// What to do about collisions that come late.
pub(in crate::check) fn late_collisions(link: &LinkFacts, partner: &Partner) -> String {
    match &link.modes {
        Some(modes) if partner.is_half_alone(modes) => {
            "the partner offers half duplex alone, as a hub does: there the cable or the chain of hubs is too long; use a switch".to_owned()
        }
        Some(modes) => at_other_end(link, modes),
        None => let_it_negotiate(),
    }
}

fn let_it_negotiate() -> String {
    "let the port negotiate and offer full duplex (Cisco: `speed auto`, `duplex auto`): a negotiating side falls back to half duplex beside \
     a forced one"
        .to_owned()
}

fn partner_is_the_limit(best: Option<&str>) -> String {
    let best = best.map_or("they have no mode in common".to_owned(), |best| {
        format!("the best that both sides have is {best}")
    });
    format!(
        "the partner is the limit: {best}. No change on this side mends that: use a switch instead of a hub, or let the port offer full \
         duplex"
    )
}

/// How to force both sides, with what can go wrong; empty where forcing yields no link.
fn forced_form(link: &LinkFacts, modes: &LinkModes) -> String {
    let is_optical = matches!(modes.port, Some(Port::Fibre | Port::DirectAttach));
    let Some(speed) = modes.speed_mbps.filter(|speed| *speed <= FORCED_UP_TO_MBPS || is_optical) else {
        return String::new();
    };
    format!(
        ". Only if it cannot negotiate, force both sides alike in the same minute, the port to {speed} Mb/s and full duplex and this side \
         with `roundtrip host set {} speed={speed} duplex=full autoneg=off --force-speed --apply`; while one side alone is forced, the \
         other uses half duplex and frames collide late",
        word(link.name())
    )
}

/// Whether the card can offer modes.
fn can_negotiate(modes: &LinkModes) -> bool {
    modes.can_negotiate() && !with_speed(modes).is_empty()
}

/// Whether this side negotiates and offers full duplex at the link's speed or above already.
fn offers_full_duplex(modes: &LinkModes) -> bool {
    let is_full = |mode: Mode| mode.is_full && modes.speed_mbps.is_none_or(|speed| mode.speed_mbps >= speed);
    modes.autoneg == Some(true) && modes.advertised.iter().any(|mode| Mode::parse(mode).is_some_and(is_full))
}

fn with_speed(modes: &LinkModes) -> Vec<&str> {
    modes.supported.iter().filter(|mode| Mode::parse(mode).is_some()).map(String::as_str).collect()
}

/// The value of link modes that offers everything, as [`Setting::LinkModes`] has it.
fn everything(modes: &LinkModes) -> String {
    let all = with_speed(modes);
    if all.is_empty() { "autoneg=on".to_owned() } else { format!("autoneg=on advertise={}", all.join(",")) }
}

/// The command of a value of link modes for ethtool(8), which takes a mode's name with `on` behind it.
fn command(link: &LinkFacts, value: &str) -> String {
    let words = value.split(' ').filter_map(|word| word.split_once('='));
    let words = words.map(|(name, value)| match name {
        "advertise" => {
            let modes: Vec<String> = value.split(',').map(|mode| format!("{} on", word(mode))).collect();
            format!("advertise {}", modes.join(" "))
        }
        _ => format!("{name} {value}"),
    });
    let words: Vec<String> = words.collect();
    format!("ethtool -s {} {}", word(link.name()), words.join(" "))
}
