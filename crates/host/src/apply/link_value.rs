//! The values of link modes and flow control as text, which the journal keeps.

use netlink::ethtool::{Duplex, LinkModes, LinkModesChange, Mode, Pause, PauseChange, Switch};

/// `autoneg=on advertise=1000baseT/Full`, or `autoneg=off speed=100 duplex=full`.
pub(crate) fn modes(modes: &LinkModes) -> String {
    let advertised: Vec<&str> =
        modes.advertised.iter().map(String::as_str).filter(|mode| Mode::parse(mode).is_some()).collect();
    let mut words = Vec::new();
    if let Some(autoneg) = modes.autoneg {
        words.push(format!("autoneg={}", Switch::from(autoneg)));
    }
    if modes.autoneg == Some(true) && !advertised.is_empty() {
        // Speed and duplex are then a result of the negotiation, and no setting.
        words.push(format!("advertise={}", advertised.join(",")));
    } else {
        words.extend(modes.speed_mbps.map(|speed| format!("speed={speed}")));
        words.extend(modes.duplex.map(|duplex| format!("duplex={duplex}")));
    }
    words.join(" ")
}

/// The change that a text of [`modes`] asks for.
pub(crate) fn parse_modes(text: &str) -> Result<LinkModesChange, String> {
    let mut change = LinkModesChange::default();
    for (key, value) in pairs(text)? {
        let is_new = match key {
            "autoneg" => change.autoneg.replace(switch(value)?).is_none(),
            "speed" => {
                let speed = value.parse().ok().filter(|speed| *speed > 0);
                let speed: u32 = speed.ok_or_else(|| format!("speed={value}: Mb/s, such as 100 or 1000"))?;
                change.speed_mbps.replace(speed).is_none()
            }
            "duplex" => change.duplex.replace(duplex(value)?).is_none(),
            "advertise" => {
                let modes: Vec<String> = value.split(',').map(str::to_owned).collect();
                if let Some(mode) = modes.iter().find(|mode| Mode::parse(mode).is_none()) {
                    return Err(format!("'{mode}' is not a mode such as 1000baseT/Full"));
                }
                change.advertise.replace(modes).is_none()
            }
            _ => {
                return Err(format!("'{key}' is unknown; the keys are autoneg, advertise, speed and duplex"));
            }
        };
        if !is_new {
            return Err(format!("'{key}' is given twice"));
        }
    }
    Ok(change)
}

/// `autoneg=on rx=off tx=off`.
pub(crate) fn pause(pause: Pause) -> String {
    let words = [("autoneg", pause.autoneg), ("rx", pause.rx), ("tx", pause.tx)];
    let words: Vec<String> = words
        .into_iter()
        .filter_map(|(key, value)| Some(format!("{key}={}", Switch::from(value?))))
        .collect();
    words.join(" ")
}

/// The change that a text of [`pause`] asks for.
pub(crate) fn parse_pause(text: &str) -> Result<PauseChange, String> {
    let mut change = PauseChange::default();
    for (key, value) in pairs(text)? {
        let place = match key {
            "autoneg" => &mut change.autoneg,
            "rx" => &mut change.rx,
            "tx" => &mut change.tx,
            _ => return Err(format!("'{key}' is unknown; the keys are autoneg, rx and tx")),
        };
        if place.replace(switch(value)?).is_some() {
            return Err(format!("'{key}' is given twice"));
        }
    }
    Ok(change)
}

/// `on` or `off`.
pub(crate) fn switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err(format!("'{text}' is neither on nor off")),
    }
}

pub(crate) fn duplex(text: &str) -> Result<Duplex, String> {
    match text {
        "full" => Ok(Duplex::Full),
        "half" => Ok(Duplex::Half),
        _ => Err(format!("'{text}' is neither full nor half")),
    }
}

fn pairs(text: &str) -> Result<Vec<(&str, &str)>, String> {
    let pair =
        |word| str::split_once(word, '=').ok_or_else(|| format!("'{word}' is not of the form key=value"));
    text.split_whitespace().map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_can_be_written() {
        let list = |modes: &[&str]| modes.iter().map(|&mode| mode.to_owned()).collect::<Vec<_>>();
        let negotiating = LinkModes {
            speed_mbps: Some(1000),
            duplex: Some(Duplex::Full),
            autoneg: Some(true),
            advertised: list(&["100baseT/Full", "1000baseT/Full", "Autoneg", "TP", "Pause"]),
            ..LinkModes::default()
        };
        assert_eq!(modes(&negotiating), "autoneg=on advertise=100baseT/Full,1000baseT/Full");
        let forced = LinkModes { autoneg: Some(false), speed_mbps: Some(100), ..negotiating.clone() };
        assert_eq!(modes(&forced), "autoneg=off speed=100 duplex=full");
        let down = LinkModes { autoneg: Some(false), speed_mbps: None, duplex: None, ..LinkModes::default() };
        assert_eq!(modes(&down), "autoneg=off");
        let tap = LinkModes { advertised: Vec::new(), ..negotiating.clone() };
        assert_eq!(modes(&tap), "autoneg=on speed=1000 duplex=full");
        for read in [&negotiating, &forced, &down, &tap] {
            let change = parse_modes(&modes(read)).unwrap();
            assert_eq!(change.autoneg, read.autoneg);
            let has_advertised = read.autoneg == Some(true) && !read.advertised.is_empty();
            assert_eq!(change.advertise.is_some(), has_advertised);
            assert_eq!(change.speed_mbps, if has_advertised { None } else { read.speed_mbps });
        }
        assert_eq!(
            parse_modes("autoneg=on advertise=a").unwrap_err(),
            "'a' is not a mode such as 1000baseT/Full"
        );
    }

    #[test]
    fn wrong_values_are_named() {
        for (text, word) in [
            ("speed=fast", "Mb/s"),
            ("speed=0", "Mb/s"),
            ("duplex=both", "neither full nor half"),
            ("autoneg=1", "neither on nor off"),
            ("mdix=on", "unknown"),
            ("speed", "key=value"),
            ("speed=10 speed=100", "twice"),
        ] {
            assert!(parse_modes(text).unwrap_err().contains(word), "{text}");
        }
        for text in ["rx=1", "speed=1", "rx=on rx=on", "rx"] {
            assert!(parse_pause(text).is_err(), "{text}");
        }
        let change = parse_pause("autoneg=off rx=on tx=off").unwrap();
        assert_eq!((change.autoneg, change.rx, change.tx), (Some(false), Some(true), Some(false)));
        assert_eq!(
            pause(Pause { autoneg: None, rx: Some(true), tx: Some(false), ..Pause::default() }),
            "rx=on tx=off"
        );
    }
}
