//! Facts and rules about devices of the kernel, in a network namespace of the test's own.

use std::process::Command;
use std::time::Duration;

use host::facts::link::LinkFacts;
use host::read::{Roots, Wanted, link};
use netlink::ethtool::{Connection, Duplex, LinkModesChange, Switch};

use super::names;

/// Runs a test in a thread with a network namespace of its own that holds a TAP device `tap0` and a veth pair `a0` and `b0`.
pub(crate) fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !testing::require_root("a network namespace") {
        return;
    }
    let inside = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        ip("tuntap add tap0 mode tap");
        ip("link add a0 type veth peer name b0");
        for interface in ["tap0", "a0", "b0"] {
            ip(&format!("link set {interface} up"));
        }
        test();
    });
    inside.join().unwrap();
}

pub(crate) fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

fn read(wanted: &Wanted) -> Vec<LinkFacts> {
    let mut unseen = Vec::new();
    let links = link::read(&Roots::default(), wanted, &mut unseen);
    assert_eq!(unseen, []);
    links
}

fn one(interface: &str) -> LinkFacts {
    let mut unseen = Vec::new();
    let facts = link::read_one(&Roots::default(), interface, &mut unseen).unwrap();
    assert_eq!(unseen, []);
    facts
}

#[test]
fn a_healthy_tap_and_veth_have_no_finding() {
    in_namespace(|| {
        ip("address add 10.1.2.3/24 dev a0");
        ip("address add 10.1.3.3/24 dev tap0");
        ip("route add default via 10.1.2.1");
        let links = read(&Wanted::default());
        let mut found: Vec<&str> = links.iter().map(LinkFacts::name).collect();
        found.sort_unstable();
        // Modules of the kernel may add devices of their own to each namespace.
        for name in ["a0", "b0", "tap0"] {
            assert!(found.contains(&name), "{found:?}");
        }
        for facts in links {
            assert_ne!(facts.name(), "lo");
            let is_default = facts.name() == "a0";
            assert_eq!(facts.carries_default_route, is_default, "{}", facts.name());
            assert_eq!(facts.addresses.iter().any(|address| address == "10.1.2.3/24"), is_default);
            let expected = if facts.name() == "tap0" { "tun" } else { "veth" };
            if ["a0", "b0", "tap0"].contains(&facts.name()) {
                assert_eq!(facts.driver.as_deref(), Some(expected));
            }
            assert_eq!(names(facts), Vec::<String>::new());
        }
    });
}

#[test]
fn half_duplex_planted_on_a_tap_is_found_and_mended_only_on_request() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        let half = LinkModesChange {
            autoneg: Some(false),
            speed_mbps: Some(100),
            duplex: Some(Duplex::Half),
            advertise: None,
        };
        cards.set_link_modes("tap0", &half).unwrap();
        let facts = host::facts::Facts { links: vec![one("tap0")], ..host::facts::Facts::default() };
        let findings = host::check::findings(&facts);
        assert_eq!(findings.len(), 1);
        let finding = &findings[0];
        assert_eq!((finding.id.as_str(), finding.subject.as_str()), ("half-duplex", "tap0"));
        // The device reports no modes that it could offer, so that only forcing is left, which nobody has asked for.
        assert_eq!(
            (finding.changes.as_slice(), finding.commands.as_slice()),
            (&[][..], &["ethtool tap0".to_owned()][..])
        );
        let other_end = finding.other_end.as_ref().unwrap();
        let request = "`roundtrip host set tap0 speed=100 duplex=full autoneg=off --force-speed --apply`";
        assert!(other_end.contains(request) && other_end.contains("collide late"), "{other_end}");
        let full = LinkModesChange { duplex: Some(Duplex::Full), ..half };
        cards.set_link_modes("tap0", &full).unwrap();
        assert_eq!(names(one("tap0")), Vec::<String>::new());
        assert_eq!(one("tap0").modes.unwrap().duplex, Some(Duplex::Full));
    });
}

#[test]
fn offloads_that_were_switched_off_are_found_and_their_commands_mend_them() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        for feature in ["tx-tcp-segmentation", "tx-tcp6-segmentation"] {
            cards.set_feature("a0", feature, Switch::Off).unwrap();
        }
        let facts = host::facts::Facts { links: vec![one("a0")], ..host::facts::Facts::default() };
        let findings = host::check::findings(&facts);
        assert_eq!(
            (findings.len(), findings[0].measured.as_str()),
            (1, "off: tx-tcp-segmentation, tx-tcp6-segmentation")
        );
        for command in &findings[0].commands {
            let words: Vec<&str> = command.split(' ').collect();
            assert!(Command::new(words[0]).args(&words[1..]).status().unwrap().success(), "{command}");
        }
        assert_eq!(names(one("a0")), Vec::<String>::new());
    });
}

#[test]
fn checksums_that_were_switched_off_are_found_mended_and_restored() {
    in_namespace(|| {
        let on = || Connection::open().unwrap().features("a0").unwrap();
        let healthy = on();
        assert!(Command::new("ethtool").args(["-K", "a0", "tx", "off"]).output().unwrap().status.success());
        let planted = on();
        let facts = host::facts::Facts { links: vec![one("a0")], ..host::facts::Facts::default() };
        let findings = host::check::findings(&facts);
        assert_eq!(
            (findings.len(), findings[0].measured.as_str()),
            (1, "off: tx-checksum-ip-generic"),
            "segmentation waits for it"
        );
        let folder = tempfile::tempdir().unwrap();
        let journal = host::journal::Journal::new(folder.path());
        let (lock, now) = (journal.lock().unwrap(), host::journal::Now::read().unwrap());
        let request = host::apply::Request {
            origin: "tune".to_owned(),
            changes: findings[0].changes.clone(),
            persist: false,
            confirm_within: None,
        };
        let kernel = host::apply::System::default();
        let mut set = host::apply::apply(&kernel, &journal, &lock, &now, &request).unwrap();
        assert_eq!(names(one("a0")), Vec::<String>::new());
        assert!(on().is_on("tx-tcp-segmentation") == healthy.is_on("tx-tcp-segmentation"));
        let own = host::undo::Overwrite::Own;
        let report = host::undo::undo(&kernel, &journal, &lock, &now, &mut set, own).unwrap();
        assert!(report.kept.is_empty(), "{report:?}");
        assert_eq!(on(), planted);
    });
}

#[test]
fn a_vxlan_without_peers_drops_the_kernels_multicast_and_has_no_finding() {
    in_namespace(|| {
        let made =
            Command::new("ip").args("link add vx0 type vxlan id 5 dstport 4789".split(' ')).output().unwrap();
        if !testing::require("vxlan in the kernel", made.status.success()) {
            return;
        }
        let before = one("vx0");
        ip("link set vx0 up");
        // Router solicitations and reports of multicast groups, until the kernel has dropped one.
        let dropped = || one("vx0").link.counters.map_or(0, |counters| counters.tx_dropped);
        while dropped() == 0 {
            std::thread::yield_now();
        }
        let after = one("vx0");
        let watched = host::read::link::changes(&before, &after, 1.0);
        assert!(watched.counters["tx_dropped"] > 0);
        assert_eq!(names(LinkFacts { watched: Some(watched), ..after }), Vec::<String>::new());
    });
}

#[test]
fn a_tap_refuses_energy_efficient_ethernet_with_the_kernels_word() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        let error = cards.set_eee("tap0", Switch::Off).unwrap_err();
        // The request reached the driver's group, and was not malformed.
        assert!(error.is_unsupported(), "{error}");
    });
}

#[test]
fn carrier_changes_between_two_readings_are_counted() {
    in_namespace(|| {
        let before = one("a0");
        ip("link set b0 down");
        ip("link set b0 up");
        let after = one("a0");
        let changes = link::changes(&before, &after, 1.0);
        assert_eq!(changes.carrier_changes, 2);
        let flapped = LinkFacts { watched: Some(changes), ..after };
        assert_eq!(names(flapped), ["link-flaps"]);
    });
}

#[test]
fn watching_takes_two_readings_and_the_time_between_them() {
    in_namespace(|| {
        let wanted = Wanted {
            interface: Some("a0".to_owned()),
            watch: Duration::from_millis(20),
            ..Wanted::default()
        };
        let links = read(&wanted);
        assert_eq!(links.len(), 1);
        assert!(links[0].watched.as_ref().unwrap().seconds >= 0.02);
        let without = read(&Wanted { interface: Some("a0".to_owned()), ..Wanted::default() });
        assert_eq!(without[0].watched, None);
    });
}

#[test]
fn an_interface_that_does_not_exist_is_unseen() {
    in_namespace(|| {
        let mut unseen = Vec::new();
        let wanted = Wanted { interface: Some("eth9".to_owned()), ..Wanted::default() };
        assert_eq!(link::read(&Roots::default(), &wanted, &mut unseen), []);
        assert_eq!(unseen[0].what, "interface eth9");
    });
}

#[test]
fn the_driver_of_a_card_is_read_below_sys_only_where_the_number_is_its_own() {
    in_namespace(|| {
        let folder = tempfile::tempdir().unwrap();
        let roots = Roots::below(folder.path());
        let device = roots.sys.join("class/net/a0/device");
        std::fs::create_dir_all(&device).unwrap();
        std::os::unix::fs::symlink("../../../../bus/pci/drivers/ixgbe", device.join("driver")).unwrap();
        let driver = || link::read_one(&roots, "a0", &mut Vec::new()).unwrap().driver;
        let index = one("a0").link.index;
        std::fs::write(roots.sys.join("class/net/a0/ifindex"), format!("{index}\n")).unwrap();
        assert_eq!(driver().as_deref(), Some("ixgbe"));
        std::fs::write(roots.sys.join("class/net/a0/ifindex"), format!("{}\n", index + 1)).unwrap();
        assert_eq!(driver().as_deref(), Some("veth"));
    });
}
