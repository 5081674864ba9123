//! Rules about a second host, whose check was read.

use host::facts::Facts;
use host::facts::link::LinkFacts;
use host::facts::peer::{CheckedHost, PeerFacts};
use host::finding::Finding;

use super::card::Card;

fn card(mtu: u32, address: &str) -> LinkFacts {
    let mut facts = Card::parse(include_str!("cards/10gbase-t.toml")).facts();
    facts.link.mtu = mtu;
    facts.addresses = vec!["fe80::1/64".to_owned(), address.to_owned()];
    facts
}

fn findings(ours: LinkFacts, theirs: LinkFacts, found_there: Vec<Finding>) -> Vec<Finding> {
    let host = CheckedHost { hostname: "store2".to_owned(), links: vec![theirs], findings: found_there };
    let peer = PeerFacts::Ssh { destination: "root@store2".to_owned(), host: Box::new(host) };
    host::check::findings(&Facts { links: vec![ours], peers: vec![peer], ..Facts::default() })
}

#[test]
fn another_mtu_in_one_network_is_found_and_the_larger_side_changes() {
    let found = findings(card(9000, "10.0.0.1/24"), card(1500, "10.0.0.2/24"), Vec::new());
    assert_eq!((found.len(), found[0].id.as_str()), (1, "mtu-mismatch"));
    assert_eq!(found[0].measured, "MTU 9000 bytes here, 1500 on eth0 of root@store2, in one network");
    assert_eq!(found[0].changes[0].value, "1500");
    let found = findings(card(1500, "10.0.0.1/24"), card(9000, "10.0.0.2/24"), Vec::new());
    assert!(found[0].changes.is_empty());
    assert_eq!(found[0].other_end.as_deref(), Some("on root@store2: ip link set dev eth0 mtu 1500"));
}

#[test]
fn hosts_of_other_networks_or_with_one_mtu_have_no_finding() {
    for (ours, theirs) in [
        (card(9000, "10.0.0.1/24"), card(9000, "10.0.0.2/24")),
        (card(9000, "10.0.0.1/24"), card(1500, "10.0.1.2/24")),
        (card(9000, "10.0.0.1/24"), card(1500, "10.0.0.2/16")),
        (card(9000, "10.0.0.1/32"), card(1500, "10.0.0.1/32")),
        (card(9000, "fd00::1/64"), card(1500, "fd00:0:0:1::1/64")),
    ] {
        assert_eq!(findings(ours, theirs, Vec::new()), []);
    }
    assert_eq!(findings(card(9000, "fd00::1/64"), card(1500, "fd00::2/64"), Vec::new()).len(), 1);
}

#[test]
fn findings_of_the_other_host_are_told_with_its_name_and_are_not_changed_from_here() {
    let hub = Card::parse(include_str!("cards/hub.toml")).facts();
    let there = host::check::findings(&Facts { links: vec![hub], ..Facts::default() });
    assert_eq!(there.len(), 1);
    let found = findings(card(9000, "10.0.0.1/24"), card(9000, "10.0.0.2/24"), there);
    assert_eq!((found[0].id.as_str(), found[0].subject.as_str()), ("half-duplex", "root@store2: eth0"));
    assert!(found[0].changes.is_empty() && found[0].commands.is_empty());
    assert!(
        found[0]
            .other_end
            .as_ref()
            .unwrap()
            .starts_with("on root@store2: ethtool eth0; at its other end: the partner is the limit")
    );
}
