//! LLDP frames as data, rules about the neighbour, and frames that arrive on a real interface.

use std::process::{Command, Stdio};
use std::time::Duration;

use host::facts::Facts;
use host::facts::link::LinkFacts;
use host::facts::peer::{Neighbour, PeerFacts};
use host::finding::Finding;
use host::lldp::parse_frame;
use host::read::{Roots, Wanted, peer};
use netlink::ethtool::Duplex;

use super::card::Card;
use super::devices::in_namespace;

const CARD: &str = include_str!("cards/1000base-t.toml");
const NEGOTIATING: &str = include_str!("lldp/cisco-1000-negotiating.hex");
const FORCED: &str = include_str!("lldp/cisco-100-forced.hex");
const HALF: &str = include_str!("lldp/cisco-100-negotiating-half.hex");
const AGGREGATED: &str = include_str!("lldp/juniper-10g-aggregated.hex");
const PLAIN: &str = include_str!("lldp/host-without-8023.hex");

fn bytes(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair: &[u8]| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap();
    digits.chunks(2).map(byte).collect()
}

fn neighbour(text: &str) -> Neighbour {
    parse_frame(&bytes(text)).unwrap()
}

/// Findings about a card beside a neighbour.
fn beside(link: LinkFacts, neighbour: Neighbour) -> Vec<Finding> {
    let peer = PeerFacts::Lldp { interface: link.name().to_owned(), neighbour: Box::new(neighbour) };
    let facts = Facts { links: vec![link], peers: vec![peer], ..Facts::default() };
    host::check::findings(&facts)
}

fn ids(findings: &[Finding]) -> Vec<&str> {
    findings.iter().map(|finding| finding.id.as_str()).collect()
}

fn card() -> LinkFacts {
    Card::parse(CARD).facts()
}

/// The card as its driver reports it without the partner's modes, at another speed.
fn quiet_card(speed: u32, duplex: Duplex) -> LinkFacts {
    let mut facts = card();
    let modes = facts.modes.as_mut().unwrap();
    (modes.speed_mbps, modes.duplex, modes.partner) = (Some(speed), Some(duplex), None);
    facts
}

#[test]
fn a_switch_port_is_read_from_its_frame() {
    let port = neighbour(NEGOTIATING);
    assert_eq!((port.chassis.as_str(), port.port.as_str()), ("70:db:98:a1:b2:00", "Gi1/0/7"));
    assert_eq!((port.ttl_seconds, port.port_vlan, port.max_frame_bytes), (120, Some(10), Some(1522)));
    assert_eq!(port.system_name.as_deref(), Some("switch1.example"));
    assert_eq!(port.port_description.as_deref(), Some("GigabitEthernet1/0/7"));
    assert_eq!(port.system_description.as_deref(), Some("Cisco IOS Software, C2960X Software"));
    assert_eq!(port.is_aggregated, Some(false));
    let mac_phy = port.mac_phy.unwrap();
    assert!(mac_phy.supports_negotiation && mac_phy.negotiates);
    assert_eq!(
        mac_phy.advertised,
        ["10baseT/Half", "10baseT/Full", "100baseT/Half", "100baseT/Full", "1000baseT/Full"]
    );
    let operating = mac_phy.operating.unwrap();
    assert_eq!((mac_phy.mau_type, operating.name.as_str(), operating.speed_mbps), (30, "1000BASE-T", 1000));
    assert_eq!((operating.duplex, operating.is_twisted_pair), (Some(Duplex::Full), true));
}

#[test]
fn an_aggregated_port_and_a_plain_host_are_read_too() {
    let port = neighbour(AGGREGATED);
    assert_eq!(
        (port.port.as_str(), port.is_aggregated, port.max_frame_bytes),
        ("516", Some(true), Some(9216))
    );
    assert!(!port.mac_phy.as_ref().unwrap().negotiates);
    assert_eq!(port.mac_phy.unwrap().operating.unwrap().name, "10GBASE-SR");
    let host = neighbour(PLAIN);
    assert_eq!((host.chassis.as_str(), host.port.as_str()), ("192.0.2.7", "52:54:00:12:34:56"));
    assert_eq!((host.system_name.as_deref(), host.mac_phy), (Some("store2"), None));
}

#[test]
fn a_frame_cut_anywhere_is_no_panic_and_another_type_is_none() {
    for text in [NEGOTIATING, FORCED, HALF, AGGREGATED, PLAIN] {
        let frame = bytes(text);
        for length in 0..frame.len() {
            let _ = parse_frame(&frame[..length]);
        }
        // Without the lifetime, which is mandatory.
        assert_eq!(parse_frame(&frame[..24]), None);
        let mut other = frame.clone();
        other[13] = 0xcd;
        assert_eq!(parse_frame(&other), None);
    }
}

#[test]
fn a_healthy_port_beside_a_healthy_card_has_no_finding() {
    assert_eq!(beside(card(), neighbour(NEGOTIATING)), []);
    let fibre = Card::parse(include_str!("cards/10g-fibre.toml")).facts();
    assert_eq!(beside(fibre, neighbour(AGGREGATED)), []);
    assert_eq!(beside(card(), neighbour(PLAIN)), []);
}

#[test]
fn a_forced_port_beside_a_negotiating_card_is_found() {
    // The driver reports no partner and full duplex, so only the frame tells.
    let findings = beside(quiet_card(100, Duplex::Full), neighbour(FORCED));
    assert_eq!(ids(&findings), ["forced-against-negotiating"]);
    assert_eq!(findings[0].measured, "this side negotiates, port Gi1/0/7 of switch1.example is forced");
    assert!(findings[0].other_end.as_ref().unwrap().contains("Gi1/0/7"));
}

#[test]
fn a_forced_card_beside_a_negotiating_port_is_found_with_the_mismatch_of_duplex() {
    let mut forced = quiet_card(100, Duplex::Full);
    forced.modes.as_mut().unwrap().autoneg = Some(false);
    let findings = beside(forced, neighbour(HALF));
    let mut names = ids(&findings);
    names.sort_unstable();
    assert_eq!(
        names,
        ["duplex-mismatch", "forced-against-negotiating", "forced-link", "speed-below-possible"]
    );
    let of = |id: &str| findings.iter().find(|finding| finding.id == id).unwrap();
    assert_eq!(
        of("duplex-mismatch").measured,
        "full duplex here, half duplex (100BASE-TX) at port Gi1/0/7 of switch1.example"
    );
    assert_eq!(
        of("forced-against-negotiating").changes[0].value,
        "autoneg=on advertise=10baseT/Half,10baseT/Full,100baseT/Half,100baseT/Full,1000baseT/Full"
    );
}

#[test]
fn a_port_that_offers_more_than_the_link_uses_is_found() {
    let findings = beside(quiet_card(100, Duplex::Full), neighbour(NEGOTIATING));
    assert_eq!(ids(&findings), ["speed-below-possible"]);
    assert_eq!(
        findings[0].measured,
        "100 Mb/s; this side supports and port Gi1/0/7 of switch1.example advertises 1000baseT/Full"
    );
    assert_eq!(beside(quiet_card(1000, Duplex::Full), neighbour(NEGOTIATING)), []);
}

#[test]
fn an_mtu_that_the_port_does_not_take_is_found_at_its_exact_limit() {
    let with = |mtu: u32| {
        let mut facts = card();
        facts.link.mtu = mtu;
        beside(facts, neighbour(NEGOTIATING))
    };
    assert_eq!(with(1504), []);
    let findings = with(1505);
    assert_eq!(ids(&findings), ["mtu-mismatch"]);
    assert_eq!(findings[0].measured, "MTU 1505 bytes here, 1504 at port Gi1/0/7 of switch1.example");
    assert_eq!(findings[0].changes[0].value, "1504");
}

#[test]
fn frames_that_arrive_are_heard_on_their_interface() {
    if !testing::require("python3", Command::new("python3").arg("--version").output().is_ok()) {
        return;
    }
    in_namespace(|| {
        // As a neighbour does, it sends again and again; the reader ends with the first frame.
        let script = format!(
            "import socket, time\n\
             s = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)\n\
             s.bind(('b0', 0))\n\
             while True:\n    s.send(bytes.fromhex('{}')); time.sleep(0.01)\n",
            FORCED.replace('\n', "")
        );
        let sender = Command::new("python3").args(["-c", &script]).stdin(Stdio::null()).spawn().unwrap();
        let mut sender = Ended(sender);
        let wanted =
            Wanted { interface: Some("a0".to_owned()), watch: Duration::from_secs(60), ..Wanted::default() };
        let mut unseen = Vec::new();
        let peers = peer::read(&Roots::default(), &wanted, &mut unseen);
        let expected = PeerFacts::Lldp { interface: "a0".to_owned(), neighbour: Box::new(neighbour(FORCED)) };
        assert_eq!((peers, unseen), (vec![expected], Vec::new()));
        assert!(sender.0.try_wait().unwrap().is_none(), "the sender failed");
    });
}

#[test]
fn a_neighbour_that_is_not_heard_is_unseen_with_the_time_to_wait() {
    in_namespace(|| {
        let wanted = Wanted { interface: Some("a0".to_owned()), ..Wanted::default() };
        let mut unseen = Vec::new();
        assert_eq!(peer::read(&Roots::default(), &wanted, &mut unseen), []);
        assert_eq!(unseen[0].what, "the neighbour of a0 by LLDP");
        assert!(unseen[0].why.contains("--watch 31s"));
    });
}

/// A process that ends with the test.
struct Ended(std::process::Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}
