//! Rules about the link itself: whether there is one, at which speed and duplex, and what the two sides agreed on.

use netlink::ethtool::{Duplex, LinkModes, Mode, Port};

use super::partner::{Partner, is_unanswered};
use super::{finding, remedy, within};
use crate::check::shell::word;
use crate::facts::Facts;
use crate::facts::link::LinkFacts;
use crate::finding::{Cost, Finding, Severity};

const BITS_PER_MEGABIT: f64 = 1e6;

/// Carrier losses per day that a link has without a fault, as at restarts of the switch.
const LOSSES_PER_DAY: f64 = 4.0;

/// Carrier losses below which their rate means nothing.
const FEW_LOSSES: u32 = 10;

const SECONDS_PER_DAY: f64 = 86_400.0;

/// An interface that something depends on has no link.
pub(super) fn no_link(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    if !link.link.is_up || link.has_link() || !link.is_in_use() || !link.is_physical() {
        return None;
    }
    let reason = link.state.as_ref().and_then(|state| state.reason.clone());
    // A rule of its own says more about FEC.
    if is_fec_reason(reason.as_deref()) {
        return None;
    }
    let measured = match &reason {
        Some(reason) => format!("up, but without a link: {reason}"),
        None => "up, but without a link".to_owned(),
    };
    let why = "No packet passes. What uses this interface waits or takes another way.";
    let mut found = finding("no-link", Severity::Broken, link, measured, why);
    found.commands =
        vec![format!("ethtool {}", word(link.name())), format!("ethtool --cable-test {}", word(link.name()))];
    found.other_end =
        Some("check that the port is enabled and that both sides support a common speed and FEC".to_owned());
    Some(found)
}

/// The two sides do not agree on forward error correction.
pub(super) fn fec_mismatch(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let reason = link.state.as_ref().and_then(|state| state.reason.as_deref());
    if link.has_link() || !is_fec_reason(reason) {
        return None;
    }
    let configured = link.fec.as_ref().map(|fec| fec.configured.join(", ")).unwrap_or_default();
    let measured = format!("no link: {}; FEC configured here: {}", reason?, or_unknown(&configured));
    let why = "With forward error correction on one side alone, or of another kind, the receiver finds no blocks and there is no \
               link. 25 Gb/s and faster links over copper need it.";
    let mut found = finding("fec-mismatch", Severity::Broken, link, measured, why);
    found.commands = vec![format!("ethtool --set-fec {} encoding rs", word(link.name()))];
    found.other_end =
        Some("set the same FEC on the port, RS for 25GBASE-CR beyond 3 m, or auto on both".to_owned());
    Some(found)
}

fn is_fec_reason(reason: Option<&str>) -> bool {
    reason.is_some_and(|reason| reason.contains("FEC"))
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "unknown" } else { text }
}

/// The link carries one direction at a time.
pub(super) fn half_duplex(link: &LinkFacts, facts: &Facts) -> Option<Finding> {
    let modes = link.modes.as_ref()?;
    if modes.duplex != Some(Duplex::Half) || !may_carry(link) {
        return None;
    }
    let measured = format!("{}, half duplex", speed(modes));
    let why = "Sending waits while receiving. If the other side uses full duplex it does not wait: its frames collide late, are lost, \
               and TCP repeats them after 200 ms or more.";
    let mut found = finding("half-duplex", Severity::Broken, link, measured, why);
    found.cost = modes.speed_mbps.map(|speed| Cost {
        us_per_round_trip: None,
        bits_per_second_at_most: Some(f64::from(speed) * BITS_PER_MEGABIT),
    });
    Some(remedy::to_full_duplex(link, modes, &Partner::of(link, facts)).of(found))
}

/// This side negotiates and its partner does not answer.
pub(super) fn partner_not_negotiating(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let modes = link.modes.as_ref()?;
    if modes.autoneg != Some(true) || !link.has_link() || !modes.can_negotiate() {
        return None;
    }
    if !is_unanswered(modes) {
        return None;
    }
    let measured = format!(
        "this side negotiates, its partner advertises nothing; {}, {} duplex",
        speed(modes),
        modes.duplex.map_or("unknown".to_owned(), |duplex| duplex.to_string())
    );
    let why = "The speed of a partner that does not negotiate can be detected, its duplex cannot: the standard prescribes half duplex \
               here. The partner is most likely forced to full duplex, so that frames collide late and are lost.";
    let mut found = finding("forced-against-negotiating", Severity::Broken, link, measured, why);
    found.commands = vec![format!("ethtool {}", word(link.name()))];
    found.other_end = Some(remedy::at_other_end(link, modes));
    Some(found)
}

/// This side does not negotiate although it could, over twisted pair.
pub(super) fn forced_link(link: &LinkFacts, facts: &Facts) -> Option<Finding> {
    let modes = link.modes.as_ref()?;
    let is_forced = modes.autoneg == Some(false) && modes.can_negotiate() && is_twisted_pair(modes);
    if !is_forced || !link.has_link() {
        return None;
    }
    let duplex = modes.duplex.map_or("unknown".to_owned(), |duplex| duplex.to_string());
    let measured = format!("forced to {}, {duplex} duplex", speed(modes));
    let why = "A partner that negotiates cannot detect the duplex of a forced side and falls back to half duplex at 10 and 100 Mb/s. \
               1000BASE-T and faster need negotiation. Restrict what is advertised instead of forcing.";
    let found = finding("forced-link", Severity::Slow, link, measured, why);
    Some(remedy::to_negotiation(link, modes, &Partner::of(link, facts)).of(found))
}

/// Whether the medium is twisted pair, where negotiation decides about duplex; fibre and direct-attach cables work without it.
pub(in crate::check) fn is_twisted_pair(modes: &LinkModes) -> bool {
    let copper = |mode: &String| Mode::parse(mode).is_some() && mode.contains("baseT/");
    modes.port == Some(Port::TwistedPair) && modes.supported.iter().any(copper)
}

/// The link is slower than both sides could make it.
pub(super) fn slow_link(link: &LinkFacts, _: &Facts) -> Option<Finding> {
    let modes = link.modes.as_ref()?;
    let partner = modes.partner.as_ref()?;
    let could = LinkModes { advertised: modes.supported.clone(), ..modes.clone() };
    let best = could.best_common()?.to_owned();
    let best_mode = Mode::parse(&best)?;
    if !link.has_link() || modes.speed_mbps? >= best_mode.speed_mbps {
        return None;
    }
    debug_assert!(partner.contains(&best), "the best common mode is one of the partner's");
    let is_offered = modes.advertised.contains(&best);
    let why = if is_offered {
        "Both sides offer a faster mode and the link came up slower: the usual cause is a cable with a broken pair or a bad plug, \
         which gigabit and faster links need all four pairs of."
    } else {
        "Both sides can do more, but this side does not offer it, so the link is slower."
    };
    let measured = format!("{}; both sides can do {best}", speed(modes));
    let mut found = finding("speed-below-possible", Severity::Slow, link, measured, why);
    found.cost = Some(Cost {
        us_per_round_trip: None,
        bits_per_second_at_most: modes.speed_mbps.map(|speed| f64::from(speed) * BITS_PER_MEGABIT),
    });
    if is_offered {
        found.commands = vec![format!("ethtool --cable-test {}", word(link.name()))];
        found.other_end = Some("replace the cable, then try another port".to_owned());
        return Some(found);
    }
    Some(remedy::to_faster(link, modes).of(found))
}

/// The carrier comes and goes.
pub(super) fn flapping(link: &LinkFacts, facts: &Facts) -> Option<Finding> {
    let watched = link.watched.as_ref().map_or(0, |watched| watched.carrier_changes);
    let losses = link.link.carrier_down_count.unwrap_or_default();
    let days = facts.system.uptime_seconds.map(|seconds| (seconds as f64 / SECONDS_PER_DAY).max(1.0));
    let is_often = losses >= FEW_LOSSES && days.is_some_and(|days| f64::from(losses) / days > LOSSES_PER_DAY);
    if watched == 0 && !(is_often && link.is_physical()) {
        return None;
    }
    let measured = if watched > 0 {
        format!("the carrier came or went {watched} times{}", within(link))
    } else {
        format!("the carrier went {losses} times in {:.1} days", days.unwrap_or_default())
    };
    let why = "Each loss of the carrier stops traffic for seconds: negotiation takes 1 to 4 s, and a switch port without edge \
               configuration then waits for its spanning tree up to 30 s. TCP doubles its time-out meanwhile.";
    let severity = if watched > 0 { Severity::Broken } else { Severity::Slow };
    let mut found = finding("link-flaps", severity, link, measured, why);
    found.commands = vec![
        format!("journalctl -k --grep {}", word(link.name())),
        format!("ethtool --cable-test {}", word(link.name())),
    ];
    found.other_end = Some("read the port's log and counters; replace the cable or the module".to_owned());
    Some(found)
}

/// Whether traffic can pass, or could once something is attached: a TAP device has no carrier until a process opens it.
fn may_carry(link: &LinkFacts) -> bool {
    link.has_link() || !link.is_physical()
}

fn speed(modes: &LinkModes) -> String {
    modes.speed_mbps.map_or("unknown speed".to_owned(), |speed| format!("{speed} Mb/s"))
}
