//! Would a remedy cut the link? Each change of link modes is applied to a model of negotiation, with partners of every kind.

use std::process::Command;

use host::change::Setting;
use host::facts::Facts;
use host::facts::link::LinkFacts;
use host::facts::peer::{MacPhy, Neighbour, PeerFacts};
use host::finding::Finding;
use netlink::ethtool::{Duplex, LinkModes, Mode, Port};

use super::card::Card;

const COPPER: &[&str] =
    &["10baseT/Half", "10baseT/Full", "100baseT/Half", "100baseT/Full", "1000baseT/Full", "Autoneg", "TP"];

/// What the other side does.
#[derive(Clone, Copy, Debug)]
enum Other {
    /// It negotiates, and the driver reports what it offers.
    Offers(&'static [&'static str]),
    /// It negotiates; only its frames of LLDP say so.
    Announces(&'static [&'static str]),
    /// It is forced, and the driver reports an empty list.
    Silent(u32, Duplex),
    /// It is forced and says so by LLDP.
    ForcedAnnounced(u32, Duplex),
    /// It is forced, or negotiates, and nothing tells which.
    Hidden(u32, Duplex),
    HiddenOffers(&'static [&'static str]),
}

const FULL_AND_HALF: &[&str] =
    &["10baseT/Half", "10baseT/Full", "100baseT/Half", "100baseT/Full", "1000baseT/Full"];
const HALF_ALONE: &[&str] = &["10baseT/Half", "100baseT/Half"];
const FAST_ALONE: &[&str] = &["1000baseT/Full"];

fn others() -> Vec<Other> {
    let mut all: Vec<Other> = [FULL_AND_HALF, HALF_ALONE, FAST_ALONE, &["100baseT/Half", "10baseT/Full"]]
        .into_iter()
        .flat_map(|modes| [Other::Offers(modes), Other::Announces(modes), Other::HiddenOffers(modes)])
        .collect();
    for speed in [10, 100, 1000] {
        for duplex in [Duplex::Half, Duplex::Full] {
            all.extend([
                Other::Silent(speed, duplex),
                Other::ForcedAnnounced(speed, duplex),
                Other::Hidden(speed, duplex),
            ]);
        }
    }
    all
}

/// This side: what it supports, whether it negotiates, what it offers.
#[derive(Clone, Debug)]
struct Side {
    supported: Vec<String>,
    forced: Option<Mode>,
    offers: Vec<String>,
}

fn strings(modes: &[&str]) -> Vec<String> {
    modes.iter().map(|mode| (*mode).to_owned()).collect()
}

fn sides() -> Vec<Side> {
    let supported = [strings(COPPER), strings(&["100baseT/Half", "100baseT/Full", "TP"]), Vec::new()];
    let mode = |speed_mbps, is_full| Mode { speed_mbps, is_full };
    let forced =
        [(10, false), (100, false), (100, true), (1000, true)].map(|(speed, full)| mode(speed, full));
    let mut all = Vec::new();
    for supported in supported {
        let side = |forced: Option<Mode>, offers: &[&str]| Side {
            supported: supported.clone(),
            forced,
            offers: strings(offers),
        };
        all.extend(forced.iter().map(|mode| side(Some(*mode), &[])));
        for offers in [COPPER, &["100baseT/Half"], &["100baseT/Full"], HALF_ALONE] {
            all.push(side(None, offers));
        }
    }
    all
}

/// Speed and duplex of this side; none without a link. Negotiation takes the fastest mode in common (IEEE 802.3, 28B.3); beside a forced
/// partner it finds the speed, up to 100 Mb/s, and takes half duplex (28.2.3.1), if it offers that speed at all.
fn result(forced: Option<Mode>, offers: &[String], other: Other) -> Option<Mode> {
    let parsed = |modes: &[String]| modes.iter().filter_map(|mode| Mode::parse(mode)).collect::<Vec<Mode>>();
    let ours = parsed(offers);
    match (forced, other) {
        (None, Other::Offers(theirs) | Other::Announces(theirs) | Other::HiddenOffers(theirs)) => {
            let theirs = parsed(&strings(theirs));
            ours.into_iter().filter(|mode| theirs.contains(mode)).max()
        }
        (None, Other::Silent(speed, _) | Other::ForcedAnnounced(speed, _) | Other::Hidden(speed, _)) => {
            let detects = speed <= 100 && ours.iter().any(|mode| mode.speed_mbps == speed);
            detects.then_some(Mode { speed_mbps: speed, is_full: false })
        }
        (Some(mode), Other::Offers(theirs) | Other::Announces(theirs) | Other::HiddenOffers(theirs)) => {
            let detects = |their: Mode| mode.speed_mbps <= 100 && their.speed_mbps == mode.speed_mbps;
            parsed(&strings(theirs)).into_iter().any(detects).then_some(mode)
        }
        (
            Some(mode),
            Other::Silent(speed, _) | Other::ForcedAnnounced(speed, _) | Other::Hidden(speed, _),
        ) => (mode.speed_mbps == speed).then_some(mode),
    }
}

/// The other side's duplex beside this side.
fn their_duplex(ours_forced: bool, mode: Mode, other: Other) -> bool {
    match other {
        Other::Offers(_) | Other::Announces(_) | Other::HiddenOffers(_) => mode.is_full && !ours_forced,
        Other::Silent(_, duplex) | Other::ForcedAnnounced(_, duplex) | Other::Hidden(_, duplex) => {
            duplex == Duplex::Full
        }
    }
}

fn facts(side: &Side, other: Other, mode: Mode) -> Facts {
    let mut link = Card::parse(include_str!("cards/1000base-t.toml")).facts();
    link.watched = None;
    let partner = match other {
        Other::Offers(modes) if side.forced.is_none() => {
            Some(strings(modes).into_iter().chain(["Autoneg".to_owned()]).collect())
        }
        Other::Silent(..) if side.forced.is_none() => Some(Vec::new()),
        _ => None,
    };
    link.modes = Some(LinkModes {
        speed_mbps: Some(mode.speed_mbps),
        duplex: Some(if mode.is_full { Duplex::Full } else { Duplex::Half }),
        autoneg: Some(side.forced.is_none()),
        supported: side.supported.clone(),
        advertised: side.offers.clone(),
        partner,
        port: Some(Port::TwistedPair),
        ..LinkModes::default()
    });
    let mac_phy = match other {
        Other::Announces(modes) => {
            Some(MacPhy { negotiates: true, advertised: strings(modes), ..MacPhy::default() })
        }
        Other::ForcedAnnounced(..) => Some(MacPhy::default()),
        _ => None,
    };
    let neighbour = Box::new(Neighbour { mac_phy, ..Neighbour::default() });
    let peers = vec![PeerFacts::Lldp { interface: link.name().to_owned(), neighbour }];
    Facts { links: vec![link], peers, ..Facts::default() }
}

#[test]
fn no_change_of_any_finding_cuts_or_slows_a_link_whatever_the_partner_is() {
    let (mut links, mut changes) = (0, 0);
    for side in sides() {
        for other in others() {
            let Some(before) = result(side.forced, &side.offers, other) else { continue };
            links += 1;
            let facts = facts(&side, other, before);
            for finding in host::check::findings(&facts) {
                for change in &finding.changes {
                    let Setting::LinkModes { .. } = change.setting else { continue };
                    changes += 1;
                    let about = format!("{side:?} {other:?} {before:?}: {} {}", finding.id, change.value);
                    assert!(change.value.starts_with("autoneg=on"), "no change forces: {about}");
                    let offers = change
                        .value
                        .split_once("advertise=")
                        .map_or_else(Vec::new, |(_, modes)| modes.split(',').map(str::to_owned).collect());
                    if offers.is_empty() {
                        // The driver keeps no list, so that it offers all that it has.
                        assert!(side.supported.is_empty(), "{about}");
                        continue;
                    }
                    let after =
                        result(None, &offers, other).unwrap_or_else(|| panic!("it cuts the link: {about}"));
                    assert!(after.speed_mbps >= before.speed_mbps, "it is slower: {about}");
                    let was_matched = before.is_full == their_duplex(side.forced.is_some(), before, other);
                    let is_matched = after.is_full == their_duplex(false, after, other);
                    assert!(is_matched || !was_matched, "it makes a mismatch: {about}");
                    assert!(after.is_full || !before.is_full || !was_matched, "it ends full duplex: {about}");
                }
            }
        }
    }
    assert!(links > 100 && changes > 20, "{links} links, {changes} changes");
}

fn of(side: &Side, other: Other, id: &str) -> Finding {
    let mode = result(side.forced, &side.offers, other).expect("a link");
    let all = host::check::findings(&facts(side, other, mode));
    all.into_iter().find(|found| found.id == id).unwrap_or_else(|| panic!("no {id}: {side:?} {other:?}"))
}

#[test]
fn each_partner_has_its_remedy_for_half_duplex() {
    let restricted = Side { supported: strings(COPPER), forced: None, offers: strings(&["100baseT/Half"]) };
    let all = Side { offers: strings(COPPER), ..restricted.clone() };
    let none = Side {
        supported: Vec::new(),
        forced: Some(Mode { speed_mbps: 100, is_full: false }),
        offers: Vec::new(),
    };
    let offer = "autoneg=on advertise=10baseT/Half,10baseT/Full,100baseT/Half,100baseT/Full,1000baseT/Full";
    let force = "--force-speed --apply`; while one side alone is forced";
    for (side, other, change, word) in [
        (&restricted, Other::Offers(FULL_AND_HALF), Some(offer), ""),
        (&restricted, Other::Announces(FULL_AND_HALF), Some(offer), ""),
        (&restricted, Other::HiddenOffers(FULL_AND_HALF), Some(offer), "let the port negotiate"),
        (
            &all,
            Other::Offers(HALF_ALONE),
            None,
            "the partner is the limit: the best that both sides have is 100baseT/Half",
        ),
        (&all, Other::Announces(HALF_ALONE), None, "the partner is the limit"),
        (&all, Other::Silent(100, Duplex::Full), None, force),
        (&all, Other::ForcedAnnounced(100, Duplex::Full), None, force),
        (&all, Other::Hidden(100, Duplex::Full), None, force),
        (&none, Other::Hidden(100, Duplex::Half), None, force),
    ] {
        let found = of(side, other, "half-duplex");
        let values: Vec<&str> = found.changes.iter().map(|change| change.value.as_str()).collect();
        assert_eq!(values, Vec::from_iter(change), "{side:?} {other:?}");
        assert!(found.other_end.unwrap_or_default().contains(word), "{side:?} {other:?}");
    }
}

#[test]
fn a_forced_side_negotiates_only_beside_a_partner_that_does() {
    let forced = Side {
        supported: strings(COPPER),
        forced: Some(Mode { speed_mbps: 100, is_full: true }),
        offers: Vec::new(),
    };
    let changes = |other| of(&forced, other, "forced-link").changes.len();
    assert_eq!(changes(Other::Announces(FULL_AND_HALF)), 1);
    assert_eq!(changes(Other::ForcedAnnounced(100, Duplex::Full)), 0);
    assert_eq!(changes(Other::Hidden(100, Duplex::Full)), 0);
    let told = of(&forced, Other::Hidden(100, Duplex::Full), "forced-link").other_end.unwrap();
    assert!(told.contains("may be forced") && told.contains("no link at 1000 Mb/s"), "{told}");
    let half = Side { forced: Some(Mode { speed_mbps: 100, is_full: false }), ..forced };
    assert_eq!(
        of(&half, Other::Hidden(100, Duplex::Full), "forced-link").changes.len(),
        1,
        "it gets no worse"
    );
}

#[test]
fn late_collisions_at_a_hub_are_its_cables() {
    let side = Side { supported: strings(COPPER), forced: None, offers: strings(COPPER) };
    let told = |other| {
        let mode = result(side.forced, &side.offers, other).unwrap();
        let mut facts = facts(&side, other, mode);
        facts.links[0].link.counters.get_or_insert_default().tx_window_errors = 7;
        let all = host::check::findings(&facts);
        all.into_iter().find(|found| found.id == "duplex-mismatch").unwrap().other_end.unwrap()
    };
    assert!(told(Other::Offers(HALF_ALONE)).contains("chain of hubs"));
    assert!(told(Other::Silent(100, Duplex::Full)).contains("let the port negotiate"));
}

/// The words that a program gets from a line of a shell.
fn words(line: &str) -> Vec<String> {
    let output = Command::new("sh").args(["-c", &format!("printf '%s\\0' {line}")]).output().unwrap();
    String::from_utf8(output.stdout).unwrap().split_terminator('\0').map(str::to_owned).collect()
}

#[test]
fn commands_quote_odd_names_of_interfaces() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/link/cards");
    let mut seen = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|kind| kind != "toml") {
            continue;
        }
        let plain: LinkFacts = Card::parse(&std::fs::read_to_string(&path).unwrap()).facts();
        let commands = |name: &str| {
            let mut link = plain.clone();
            name.clone_into(&mut link.link.name);
            let all = host::check::findings(&Facts { links: vec![link], ..Facts::default() });
            all.into_iter().flat_map(|found| found.commands).collect::<Vec<String>>()
        };
        for name in ["a b", "$(x)", "a;b", "`x`", "'", "a>b", "#"] {
            for (odd, usual) in commands(name).iter().zip(commands("eth0")) {
                let expected: Vec<String> = words(&usual)
                    .into_iter()
                    .map(|word| if word == "eth0" { name.to_owned() } else { word })
                    .collect();
                assert_eq!(words(odd), expected, "{odd}");
                seen += 1;
            }
        }
    }
    assert!(seen > 100, "{seen}");
}
