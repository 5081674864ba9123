//! Speed, duplex, negotiation and MTU of an interface as a user asks for them, the changes that follow, and the pitfalls.

use netlink::ethtool::{Duplex, LinkModes, Mode, Port};

use crate::apply::link_value;
use crate::apply::mtu::SMALLEST_BYTES as SMALLEST_MTU_BYTES;
use crate::change::{Change, Setting};
use crate::error::ChangeError;

/// From this speed on twisted pair, Mb/s, the standard requires negotiation: it decides which side gives the clock (IEEE 802.3,
/// 28D.5 and 40.5.1).
const NEGOTIATED_FROM_MBPS: u32 = 1000;

/// What a user asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Speed, Mb/s.
    pub speed_mbps: Option<u32>,
    /// Duplex.
    pub duplex: Option<Duplex>,
    /// Whether to negotiate.
    pub autoneg: Option<bool>,
    /// Modes to advertise.
    pub advertise: Option<Vec<String>>,
    /// MTU, bytes.
    pub mtu_bytes: Option<u32>,
}

/// Whether a speed may be forced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forcing {
    /// The user has not asked for it.
    NotAllowed,
    /// The user has asked for it.
    Allowed,
}

/// Changes, and what to know about them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// What can go wrong at this end.
    pub pitfalls: Vec<String>,
    /// What the other end must do.
    pub other_end: Vec<String>,
}

impl Wanted {
    /// Reads words such as `speed=100`.
    ///
    /// # Errors
    /// When a key is unknown or given twice, or a value is not one of its key.
    pub fn parse(words: &[String]) -> Result<Self, ChangeError> {
        let mut wanted = Self::default();
        let (mut modes, wrong) = (Vec::new(), |why: String| ChangeError::Refused(why));
        for word in words {
            match word.split_once('=') {
                Some(("mtu", value)) => {
                    let mtu = value.parse().ok().filter(|mtu| (SMALLEST_MTU_BYTES..=65_536).contains(mtu));
                    let mtu: u32 = mtu.ok_or_else(|| {
                        wrong(format!(
                            "mtu={value}: bytes, from {SMALLEST_MTU_BYTES} to 65536; below, the kernel removes all IPv6 addresses, and \
                             undo could not restore them"
                        ))
                    })?;
                    if wanted.mtu_bytes.replace(mtu).is_some() {
                        return Err(wrong("'mtu' is given twice".to_owned()));
                    }
                }
                Some(("speed" | "duplex" | "autoneg" | "advertise", _)) => modes.push(word.as_str()),
                _ => {
                    return Err(wrong(format!(
                        "'{word}' is unknown; use speed=MB/S, duplex=full|half, autoneg=on|off, advertise=MODE,... or mtu=BYTES"
                    )));
                }
            }
        }
        let change = link_value::parse_modes(&modes.join(" ")).map_err(wrong)?;
        (wanted.speed_mbps, wanted.duplex) = (change.speed_mbps, change.duplex);
        (wanted.autoneg, wanted.advertise) = (change.autoneg, change.advertise);
        if wanted == Self::default() {
            return Err(wrong("nothing to set; for example speed=100 duplex=full".to_owned()));
        }
        Ok(wanted)
    }

    fn has_modes(&self) -> bool {
        self.speed_mbps.is_some()
            || self.duplex.is_some()
            || self.autoneg.is_some()
            || self.advertise.is_some()
    }

    fn fits(&self, name: &str) -> bool {
        Mode::parse(name).is_some_and(|mode| {
            self.speed_mbps.is_none_or(|speed| speed == mode.speed_mbps)
                && self.duplex.is_none_or(|duplex| (duplex == Duplex::Full) == mode.is_full)
        })
    }
}

/// The changes of an interface with these modes.
///
/// # Errors
/// When the card cannot do what is asked for, or it would break the link.
pub fn plan(
    interface: &str,
    now: &LinkModes,
    wanted: &Wanted,
    forcing: Forcing,
) -> Result<Plan, ChangeError> {
    let mut plan = Plan::default();
    if forcing == Forcing::Allowed && wanted.autoneg != Some(false) {
        let why =
            "--force-speed goes with autoneg=off; without it, speed and duplex restrict what is advertised";
        return Err(ChangeError::Refused(why.to_owned()));
    }
    if wanted.has_modes() {
        let value = if wanted.autoneg == Some(false) {
            forced(interface, now, wanted, forcing, &mut plan)?
        } else {
            negotiated(now, wanted, &mut plan)?
        };
        plan.changes.push(Change { setting: Setting::LinkModes { interface: interface.to_owned() }, value });
    }
    if let Some(mtu) = wanted.mtu_bytes {
        let setting = Setting::Mtu { interface: interface.to_owned() };
        plan.changes.push(Change { setting, value: mtu.to_string() });
        plan.other_end.push(format!(
            "every host and switch port of this network must take packets of {mtu} bytes: on Linux `ip link set dev IF mtu {mtu}`; a \
             smaller one drops them without a message"
        ));
    }
    Ok(plan)
}

fn negotiated(now: &LinkModes, wanted: &Wanted, plan: &mut Plan) -> Result<String, ChangeError> {
    if wanted.advertise.is_some() && (wanted.speed_mbps.is_some() || wanted.duplex.is_some()) {
        let why = "advertise= names speed and duplex already; leave speed= and duplex= out";
        return Err(ChangeError::Refused(why.to_owned()));
    }
    let supported: Vec<String> =
        now.supported.iter().filter(|mode| Mode::parse(mode).is_some()).cloned().collect();
    if supported.is_empty() && wanted.advertise.is_none() {
        if wanted.speed_mbps.is_some() || wanted.duplex.is_some() {
            let why = "the driver reports no modes that could be advertised; name them with advertise=, or force the speed with \
                       autoneg=off --force-speed";
            return Err(ChangeError::Refused(why.to_owned()));
        }
        return Ok("autoneg=on".to_owned());
    }
    let modes = match &wanted.advertise {
        Some(modes) => modes.clone(),
        None => supported.iter().filter(|mode| wanted.fits(mode)).cloned().collect(),
    };
    if let Some(mode) = modes.iter().find(|mode| !supported.is_empty() && !supported.contains(mode)) {
        return Err(ChangeError::Refused(format!(
            "the card does not support {mode}; it supports {}",
            supported.join(", ")
        )));
    }
    if modes.is_empty() {
        let why = format!("the card supports no such mode; it supports {}", supported.join(", "));
        return Err(ChangeError::Refused(why));
    }
    let list = modes.join(",");
    if modes.iter().all(|mode| Mode::parse(mode).is_some_and(|mode| !mode.is_full)) {
        plan.pitfalls
            .push("half duplex: each side waits while the other sends, and collisions cost time".to_owned());
    }
    plan.other_end.push(format!(
        "the other end must negotiate (autonegotiation on) and offer at least one of {}; if it offers none of them, there is no link",
        modes.join(", ")
    ));
    Ok(format!("autoneg=on advertise={list}"))
}

fn forced(
    interface: &str,
    now: &LinkModes,
    wanted: &Wanted,
    forcing: Forcing,
    plan: &mut Plan,
) -> Result<String, ChangeError> {
    let refuse = |why: String| Err(ChangeError::Refused(why));
    if wanted.advertise.is_some() {
        return refuse("autoneg=off advertises nothing; leave advertise= or autoneg=off out".to_owned());
    }
    let (Some(speed), Some(duplex)) = (wanted.speed_mbps, wanted.duplex) else {
        return refuse("autoneg=off needs both speed= and duplex=: nothing is left to find them".to_owned());
    };
    if speed >= NEGOTIATED_FROM_MBPS && is_twisted_pair(now, speed) {
        return refuse(format!(
            "{speed} Mb/s over twisted pair needs autonegotiation, which decides which side gives the clock; use speed={speed} \
             duplex={duplex} without autoneg=off, which offers the other end only this mode"
        ));
    }
    let with_speed: Vec<&String> = now.supported.iter().filter(|mode| Mode::parse(mode).is_some()).collect();
    if !with_speed.is_empty() && !with_speed.iter().any(|mode| wanted.fits(mode)) {
        let list: Vec<&str> = with_speed.iter().map(|mode| mode.as_str()).collect();
        return refuse(format!(
            "the card supports no {speed} Mb/s {duplex} duplex; it supports {}",
            list.join(", ")
        ));
    }
    if forcing == Forcing::NotAllowed {
        return refuse(format!(
            "autoneg=off forces {interface}, and a negotiating partner then falls back to half duplex; leave autoneg=off out to offer \
             only this mode, or add --force-speed if the other end is forced too"
        ));
    }
    if duplex == Duplex::Full {
        plan.pitfalls.push(
            "a partner that negotiates finds no negotiation and takes half duplex (IEEE 802.3, 28.2.3.1): late collisions there, CRC \
             errors here, and little throughput in one direction"
                .to_owned(),
        );
    } else {
        plan.pitfalls
            .push("half duplex: each side waits while the other sends, and collisions cost time".to_owned());
    }
    plan.other_end.push(format!(
        "the other end must be forced to the same, in the same minute: {speed} Mb/s, {duplex} duplex, autonegotiation off; on Linux \
         `ethtool -s IF speed {speed} duplex {duplex} autoneg off`"
    ));
    Ok(format!("autoneg=off speed={speed} duplex={duplex}"))
}

/// Whether a speed would go over twisted pair. Unknown counts as such: forcing it breaks the link, negotiating does not.
fn is_twisted_pair(now: &LinkModes, speed_mbps: u32) -> bool {
    let mut media = now
        .supported
        .iter()
        .filter_map(|name| {
            let is_this = Mode::parse(name).is_some_and(|mode| mode.speed_mbps == speed_mbps);
            is_this.then(|| {
                name.split("base").nth(1).and_then(|rest| rest.split('/').next()).unwrap_or_default()
            })
        })
        .peekable();
    if media.peek().is_some() {
        return media.any(|medium| medium == "T");
    }
    !matches!(now.port, Some(Port::Fibre | Port::DirectAttach))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        text.split_whitespace().map(str::to_owned).collect()
    }

    fn card(supported: &str, port: Port) -> LinkModes {
        LinkModes {
            autoneg: Some(true),
            supported: words(supported),
            advertised: words(supported),
            port: Some(port),
            ..LinkModes::default()
        }
    }

    fn copper() -> LinkModes {
        let modes =
            "10baseT/Half 10baseT/Full 100baseT/Half 100baseT/Full 1000baseT/Full Autoneg TP MII Pause";
        card(modes, Port::TwistedPair)
    }

    fn asked(card: &LinkModes, text: &str, forcing: Forcing) -> Result<Plan, String> {
        let wanted = Wanted::parse(&words(text)).map_err(|error| error.to_string())?;
        plan("eth0", card, &wanted, forcing).map_err(|error| error.to_string())
    }

    #[test]
    fn speed_and_duplex_restrict_what_is_advertised() {
        for (text, value) in [
            ("speed=100 duplex=full", "autoneg=on advertise=100baseT/Full"),
            ("speed=100", "autoneg=on advertise=100baseT/Half,100baseT/Full"),
            ("duplex=full", "autoneg=on advertise=10baseT/Full,100baseT/Full,1000baseT/Full"),
            (
                "autoneg=on",
                "autoneg=on advertise=10baseT/Half,10baseT/Full,100baseT/Half,100baseT/Full,1000baseT/Full",
            ),
            ("advertise=1000baseT/Full,100baseT/Full", "autoneg=on advertise=1000baseT/Full,100baseT/Full"),
        ] {
            let plan = asked(&copper(), text, Forcing::NotAllowed).unwrap();
            assert_eq!(plan.changes.len(), 1);
            assert_eq!(plan.changes[0].value, value, "{text}");
            assert!(plan.other_end[0].contains("must negotiate"), "{:?}", plan.other_end);
        }
        let half = asked(&copper(), "speed=100 duplex=half", Forcing::NotAllowed).unwrap();
        assert!(half.pitfalls[0].contains("half duplex"));
    }

    #[test]
    fn forcing_needs_a_request_and_names_both_ends() {
        let text = "speed=100 duplex=full autoneg=off";
        let error = asked(&copper(), text, Forcing::NotAllowed).unwrap_err();
        assert!(error.contains("--force-speed") && error.contains("half duplex"), "{error}");
        let plan = asked(&copper(), text, Forcing::Allowed).unwrap();
        assert_eq!(plan.changes[0].value, "autoneg=off speed=100 duplex=full");
        assert!(plan.pitfalls[0].contains("half duplex") && plan.pitfalls[0].contains("late collisions"));
        assert!(plan.other_end[0].contains("speed 100 duplex full autoneg off"), "{:?}", plan.other_end);
    }

    #[test]
    fn gigabit_over_twisted_pair_is_never_forced() {
        for speed in [1000, 2500, 10_000] {
            let modes = format!("100baseT/Full {speed}baseT/Full");
            let text = format!("speed={speed} duplex=full autoneg=off");
            let error = asked(&card(&modes, Port::TwistedPair), &text, Forcing::Allowed).unwrap_err();
            assert!(error.contains("needs autonegotiation"), "{error}");
        }
        // A TAP device and others that report no modes.
        let error =
            asked(&card("", Port::TwistedPair), "speed=1000 duplex=full autoneg=off", Forcing::Allowed)
                .unwrap_err();
        assert!(error.contains("needs autonegotiation"), "{error}");
        assert!(
            asked(&LinkModes::default(), "speed=1000 duplex=full autoneg=off", Forcing::Allowed).is_err()
        );
    }

    #[test]
    fn fibre_without_negotiation_may_be_forced() {
        let fibre = card("1000baseX/Full 10000baseSR/Full FIBRE", Port::Fibre);
        let plan = asked(&fibre, "speed=10000 duplex=full autoneg=off", Forcing::Allowed).unwrap();
        assert_eq!(plan.changes[0].value, "autoneg=off speed=10000 duplex=full");
        assert!(
            asked(&fibre, "speed=25000 duplex=full autoneg=off", Forcing::Allowed)
                .unwrap_err()
                .contains("supports no")
        );
    }

    #[test]
    fn impossible_requests_are_refused() {
        for (text, forcing, word) in [
            ("speed=2500", Forcing::NotAllowed, "no such mode"),
            ("advertise=2500baseT/Full", Forcing::NotAllowed, "does not support 2500baseT/Full"),
            ("advertise=100baseT/Full speed=100", Forcing::NotAllowed, "names speed"),
            ("advertise=100baseT/Full autoneg=off", Forcing::Allowed, "advertises nothing"),
            ("autoneg=off", Forcing::Allowed, "needs both"),
            ("speed=100 autoneg=off", Forcing::Allowed, "needs both"),
            ("speed=100", Forcing::Allowed, "goes with autoneg=off"),
            ("", Forcing::NotAllowed, "nothing to set"),
            ("speed", Forcing::NotAllowed, "unknown"),
            ("mdix=on", Forcing::NotAllowed, "unknown"),
            ("mtu=1279", Forcing::NotAllowed, "IPv6"),
            ("mtu=x", Forcing::NotAllowed, "1280 to"),
            ("mtu=1500 mtu=1500", Forcing::NotAllowed, "twice"),
            ("speed=1 speed=1", Forcing::NotAllowed, "twice"),
        ] {
            let error = asked(&copper(), text, forcing).unwrap_err();
            assert!(error.contains(word), "{text}: {error}");
        }
        let error = asked(&card("", Port::Other), "speed=100", Forcing::NotAllowed).unwrap_err();
        assert!(error.contains("no modes"), "{error}");
        assert_eq!(
            asked(&card("", Port::Other), "autoneg=on", Forcing::NotAllowed).unwrap().changes[0].value,
            "autoneg=on"
        );
    }

    #[test]
    fn an_mtu_concerns_every_host_of_the_network() {
        let plan = asked(&copper(), "mtu=9000", Forcing::NotAllowed).unwrap();
        assert_eq!(plan.changes[0].value, "9000");
        assert!(plan.other_end[0].contains("9000 bytes"));
    }
}
