//! Rules on cards as data.

use host::change::{Change, Setting};
use host::facts::Facts;
use host::facts::link::LinkFacts;
use host::finding::{Finding, Severity};
use netlink::ethtool::{Duplex, MasterSlave, Port};

use super::card::Card;
use super::{names, sorted};

/// All cards by the name of their file.
fn all() -> Vec<(String, Card)> {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/link/cards");
    let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let cards = files.filter(|path| path.extension().is_some_and(|kind| kind == "toml"));
    cards
        .map(|path| {
            let name = path.file_stem().unwrap().to_string_lossy().into_owned();
            (name, Card::parse(&std::fs::read_to_string(path).unwrap()))
        })
        .collect()
}

fn card(name: &str) -> LinkFacts {
    all().into_iter().find(|(file, _)| file == name).unwrap().1.facts()
}

fn found(name: &str, id: &str) -> Finding {
    let facts = Facts { links: vec![card(name)], ..Facts::default() };
    let mut findings = host::check::findings(&facts).into_iter();
    findings.find(|finding| finding.id == id).unwrap_or_else(|| panic!("{name} has no {id}"))
}

#[test]
fn each_card_yields_the_findings_that_its_file_names_and_no_other() {
    let cards = all();
    assert!(cards.len() >= 19);
    for (file, card) in cards {
        assert_eq!(names(card.facts()), sorted(card.findings.clone()), "{file}");
    }
}

#[test]
fn every_finding_has_an_explanation() {
    for (file, card) in all() {
        for id in card.findings {
            assert!(host::explain::of(&id).is_some(), "{id} of {file}");
        }
    }
}

#[test]
fn answers_of_a_25g_card_are_parsed_in_full() {
    let facts = card("25g-dac");
    let modes = facts.modes.unwrap();
    assert_eq!(
        (modes.speed_mbps, modes.duplex, modes.autoneg),
        (Some(25_000), Some(Duplex::Full), Some(true))
    );
    assert_eq!((modes.port, modes.lanes), (Some(Port::DirectAttach), Some(1)));
    assert_eq!(modes.supported.len(), 11);
    assert_eq!(modes.partner.as_ref().unwrap().len(), 4);
    assert_eq!(modes.best_common(), Some("25000baseKR/Full"));
    let fec = facts.fec.unwrap();
    assert_eq!((fec.active.as_deref(), fec.configured.as_slice()), (Some("RS"), &["RS".to_owned()][..]));
    assert_eq!((fec.corrected_blocks, fec.uncorrectable_blocks), (Some(1183), Some(0)));
    assert_eq!(facts.rings.unwrap().rx.unwrap().max, Some(8192));
    let watched = facts.watched.unwrap();
    assert_eq!(
        watched.counters.into_iter().collect::<Vec<_>>(),
        [("fec_corrected_blocks".to_owned(), 3), ("rx_packets".to_owned(), 4_203_340),]
    );
    let copper = card("10gbase-t");
    assert_eq!(copper.modes.unwrap().master_slave, Some(MasterSlave::Slave));
    assert_eq!(copper.state.unwrap().signal_quality, Some(7));
}

#[test]
fn half_duplex_at_a_hub_is_left_to_the_partner() {
    let finding = found("hub", "half-duplex");
    assert_eq!((finding.severity, finding.measured.as_str()), (Severity::Broken, "100 Mb/s, half duplex"));
    assert_eq!(finding.cost.unwrap().bits_per_second_at_most, Some(100e6));
    assert_eq!((finding.changes, finding.commands), (vec![], vec!["ethtool eth0".to_owned()]));
    let other_end = finding.other_end.unwrap();
    assert!(
        other_end.starts_with(
            "the partner is the limit: the best that both sides have is 100baseT/Half. No change on this side"
        ),
        "{other_end}"
    );
}

#[test]
fn late_collisions_are_a_duplex_mismatch_with_their_number() {
    let finding = found("forced-partner", "duplex-mismatch");
    assert_eq!(finding.measured, "41 late collisions within 2.0 s");
    let mut before = card("forced-partner");
    before.watched = None;
    // Without a second reading the total counts, while the link is half duplex.
    assert!(names(before).contains(&"duplex-mismatch".to_owned()));
    let mut full = card("forced-partner");
    full.watched = None;
    full.modes.as_mut().unwrap().duplex = Some(Duplex::Full);
    assert!(!names(full).contains(&"duplex-mismatch".to_owned()));
}

#[test]
fn a_slow_link_names_the_faster_mode_and_what_to_do() {
    let cable = found("downshift", "speed-below-possible");
    assert_eq!(cable.measured, "100 Mb/s; both sides can do 1000baseT/Full");
    assert_eq!(
        (cable.commands.as_slice(), cable.changes.len()),
        (&["ethtool --cable-test eth0".to_owned()][..], 0)
    );
    assert_eq!(cable.cost.unwrap().bits_per_second_at_most, Some(100e6));
    let configured = found("restricted", "speed-below-possible");
    assert_eq!(
        configured.changes[0].value,
        "autoneg=on advertise=10baseT/Half,10baseT/Full,100baseT/Half,100baseT/Full,1000baseT/Full"
    );
}

#[test]
fn coalescing_costs_its_hold_and_no_more_than_one_frame_waits_for_none() {
    let finding = found("overruns", "coalescing");
    assert_eq!(finding.measured, "received frames wait up to 50 us; not adaptive");
    assert_eq!(finding.cost.unwrap().us_per_round_trip, Some(50.0));
    let each = |name, value| {
        let mut facts = card("overruns");
        let parameter = netlink::ethtool::CoalescingParameter::from_name(name).unwrap();
        facts.coalescing = facts.coalescing.map(|all| all.with(parameter, value));
        names(facts).contains(&"coalescing".to_owned())
    };
    assert!(each("rx-usecs", 20) && !each("rx-usecs", 19));
    assert!(each("rx-frames", 2) && !each("rx-frames", 1));
    assert!(!each("adaptive-rx", 1));
}

#[test]
fn lost_frames_are_told_with_the_ring_and_its_largest_size() {
    let finding = found("overruns", "ring-overruns");
    assert_eq!(
        finding.measured,
        "8812 frames lost within 2.0 s; the receive ring has 512 of 8192 descriptors"
    );
    assert_eq!(finding.changes[0].value, "8192");
    assert_eq!(finding.commands, ["ethtool -G eth0 rx 8192"]);
    let mut full = card("overruns");
    full.rings.as_mut().unwrap().rx.as_mut().unwrap().current = 8192;
    let facts = Facts { links: vec![full], ..Facts::default() };
    let findings = host::check::findings(&facts);
    let finding = findings.iter().find(|finding| finding.id == "ring-overruns").unwrap();
    assert!(finding.measured.ends_with("has its full 8192 descriptors") && finding.changes.is_empty());
}

#[test]
fn totals_count_when_they_are_many_beside_the_packets() {
    let with = |crc: u64, received: u64| {
        let mut facts = card("10g-fibre");
        let counters = facts.link.counters.as_mut().unwrap();
        (counters.rx_crc_errors, counters.rx_packets) = (crc, received);
        names(facts)
    };
    assert_eq!(with(99, 1000), Vec::<String>::new(), "few");
    assert_eq!(with(100, 10_000_000), Vec::<String>::new(), "a small share");
    assert_eq!(with(101, 10_000_000), ["link-errors"]);
    assert_eq!(with(100, 1_000_000), ["link-errors"]);
}

#[test]
fn errors_that_move_are_told_with_their_number() {
    let facts = Facts { links: vec![card("forced-mismatched")], ..Facts::default() };
    let measured: Vec<String> = host::check::findings(&facts)
        .into_iter()
        .filter(|f| f.id == "link-errors")
        .map(|f| f.measured)
        .collect();
    assert_eq!(measured, ["388 CRC errors within 2.0 s", "17 alignment errors within 2.0 s"]);
    assert_eq!(found("fec-uncorrectable", "link-errors").measured, "9 uncorrectable FEC blocks within 2.0 s");
    assert_eq!(found("paused", "pause-frames").measured, "4403 PAUSE frames received within 2.0 s");
}

#[test]
fn drops_below_a_hundredth_are_frames_that_nobody_takes() {
    let with = |dropped: u64, received: u64| {
        let mut facts = card("1000base-t");
        let watched = facts.watched.as_mut().unwrap();
        watched.counters.insert("rx_dropped".to_owned(), dropped);
        watched.counters.insert("rx_packets".to_owned(), received);
        names(facts)
    };
    assert_eq!(with(9, 100), Vec::<String>::new());
    assert_eq!(with(10, 1001), Vec::<String>::new());
    assert_eq!(with(10, 1000), ["receive-drops"]);
    let mut carrier = card("1000base-t");
    carrier.watched.as_mut().unwrap().counters.insert("tx_carrier_errors".to_owned(), 1);
    assert_eq!(names(carrier), ["link-errors"]);
}

#[test]
fn packets_dropped_before_sending_are_a_finding_from_ten_and_one_in_a_thousand() {
    let with = |kind: Option<&str>, dropped: u64, sent: u64| {
        let mut facts = card("1000base-t");
        facts.link.kind = kind.map(str::to_owned);
        let counters = &mut facts.watched.as_mut().unwrap().counters;
        counters.insert("tx_dropped".to_owned(), dropped);
        counters.insert("tx_packets".to_owned(), sent);
        let found = host::check::findings(&host::facts::Facts {
            links: vec![facts],
            ..host::facts::Facts::default()
        });
        found.into_iter().find(|found| found.id == "transmit-drops").map(|found| found.measured)
    };
    assert_eq!(with(None, 1, 1_000_000), None, "a busy interface");
    assert_eq!(with(None, 9, 0), None);
    assert_eq!(with(None, 10, 9_991), None);
    let measured = with(None, 10, 9_990).unwrap();
    assert!(measured.starts_with("10 of 10000 packets dropped before sending within "), "{measured}");
    assert!(with(Some("veth"), 10, 0).is_some(), "it sends nothing at all");
    assert_eq!(with(Some("vxlan"), 500, 0), None, "a tunnel has no queue");
}

#[test]
fn flapping_over_days_is_more_than_restarts_of_a_switch() {
    let with = |losses: u32, days: u64| {
        let mut facts = Facts { links: vec![card("1000base-t")], ..Facts::default() };
        facts.links[0].link.carrier_down_count = Some(losses);
        facts.system.uptime_seconds = Some(days * 86_400);
        host::check::findings(&facts).into_iter().map(|finding| finding.measured).collect::<Vec<_>>()
    };
    assert_eq!(with(9, 1), Vec::<String>::new());
    assert_eq!(with(40, 10), Vec::<String>::new());
    assert_eq!(with(41, 10), ["the carrier went 41 times in 10.0 days"]);
    assert_eq!(found("flaps", "link-flaps").measured, "the carrier came or went 2 times within 2.0 s");
}

#[test]
fn a_sleeping_transmitter_costs_its_wake_up_twice() {
    let finding = found("eee", "energy-efficient-ethernet");
    assert_eq!(finding.cost.unwrap().us_per_round_trip, Some(33.0));
    let setting = Setting::EnergyEfficientEthernet { interface: "eth0".to_owned() };
    assert_eq!(finding.changes, [Change { setting, value: "off".to_owned() }]);
    assert_eq!(finding.commands, ["ethtool --set-eee eth0 eee off"]);
}

#[test]
fn a_link_without_cable_is_a_finding_where_something_depends_on_it() {
    assert_eq!(found("no-cable", "no-link").measured, "up, but without a link: no cable");
    let mut unused = card("no-cable");
    unused.addresses = vec!["fe80::1/64".to_owned()];
    assert_eq!(names(unused), Vec::<String>::new());
    let mut down = card("no-cable");
    down.link.is_up = false;
    assert_eq!(names(down), Vec::<String>::new());
}

#[test]
fn fec_of_the_two_sides_is_named_instead_of_a_missing_link() {
    let finding = found("fec-mismatch", "fec-mismatch");
    assert_eq!(
        finding.measured,
        "no link: negotiation failed: FEC of the two sides does not match; FEC configured here: BASER"
    );
}

#[test]
fn facts_survive_their_json() {
    for (file, card) in all() {
        let facts = card.facts();
        let text = serde_json::to_string(&facts).unwrap();
        assert_eq!(serde_json::from_str::<LinkFacts>(&text).unwrap(), facts, "{file}");
    }
}
