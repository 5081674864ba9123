//! Requests to the kernel about a TAP device in a network namespace of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::process::Command;

use netlink::ethtool::{
    Coalescing, CoalescingParameter, Connection, Duplex, LinkModesChange, PauseChange, RingChange, Switch,
};
use netlink::route;

/// Runs a test in a thread with a network namespace of its own that holds a TAP device `tap0`, a veth pair `a0` and `b0`, and nothing
/// else. Both end with the thread.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !testing::require_root("a network namespace") {
        return;
    }
    let inside = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        ip("tuntap add tap0 mode tap");
        ip("link add a0 type veth peer name b0");
        test();
    });
    inside.join().unwrap();
}

fn ip(arguments: &str) {
    let status = Command::new("ip").args(arguments.split(' ')).status().unwrap();
    assert!(status.success(), "ip {arguments}");
}

#[test]
fn speed_duplex_and_negotiation_are_set_and_read_back() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        let before = cards.link_modes("tap0").unwrap();
        assert_eq!(
            (before.speed_mbps, before.duplex, before.autoneg),
            (Some(10_000), Some(Duplex::Full), Some(false))
        );
        let half = LinkModesChange {
            autoneg: Some(false),
            speed_mbps: Some(100),
            duplex: Some(Duplex::Half),
            advertise: None,
        };
        cards.set_link_modes("tap0", &half).unwrap();
        let after = cards.link_modes("tap0").unwrap();
        assert_eq!(
            (after.speed_mbps, after.duplex, after.autoneg),
            (Some(100), Some(Duplex::Half), Some(false))
        );
        // ethtool(8) sees the same.
        let text = Command::new("ethtool").arg("tap0").output().unwrap().stdout;
        let text = String::from_utf8(text).unwrap();
        assert!(text.contains("Speed: 100Mb/s") && text.contains("Duplex: Half"), "{text}");
    });
}

#[test]
fn advertised_modes_are_set_and_others_than_modes_stay() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        let status =
            Command::new("ethtool").args(["-s", "tap0", "advertise", "Pause", "on"]).status().unwrap();
        assert!(status.success());
        assert_eq!(cards.link_modes("tap0").unwrap().advertised, ["Pause"]);
        let advertise = |modes: &[&str]| LinkModesChange {
            autoneg: Some(true),
            advertise: Some(modes.iter().map(|mode| (*mode).to_owned()).collect()),
            ..LinkModesChange::default()
        };
        cards.set_link_modes("tap0", &advertise(&["100baseT/Full", "1000baseT/Full"])).unwrap();
        let modes = cards.link_modes("tap0").unwrap();
        assert_eq!(
            modes.advertised,
            ["100baseT/Full", "1000baseT/Full", "Pause"].map(str::to_owned).to_vec()
        );
        assert_eq!(modes.autoneg, Some(true));
        cards.set_link_modes("tap0", &advertise(&["1000baseT/Full"])).unwrap();
        assert_eq!(
            cards.link_modes("tap0").unwrap().advertised,
            ["1000baseT/Full", "Pause"].map(str::to_owned).to_vec()
        );
        let error = cards.set_link_modes("tap0", &advertise(&["1001baseT/Full"])).unwrap_err().to_string();
        assert!(error.contains("tap0") && error.contains("the kernel says: "), "{error}");
    });
}

#[test]
fn a_veth_refuses_a_speed_and_the_error_names_it() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        let modes = cards.link_modes("a0").unwrap();
        assert_eq!((modes.speed_mbps, modes.duplex), (Some(10_000), Some(Duplex::Full)));
        let change = LinkModesChange { speed_mbps: Some(100), ..LinkModesChange::default() };
        let error = cards.set_link_modes("a0", &change).unwrap_err();
        assert!(error.is_unsupported(), "{error}");
        assert!(error.to_string().starts_with("setting link modes of a0: "), "{error}");
        let error = cards.link_modes("nothing").unwrap_err();
        assert!(error.is_missing() && error.to_string().contains("nothing"), "{error}");
        let error = cards.link_modes("a-name-that-is-too-long").unwrap_err();
        assert!(matches!(error, netlink::Error::Unusable { .. }), "{error}");
    });
}

#[test]
fn features_are_switched_and_fixed_ones_are_refused() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        assert_eq!(cards.features("a0").unwrap().is_on("tx-tcp-segmentation"), Some(true));
        cards.set_feature("a0", "tx-tcp-segmentation", Switch::Off).unwrap();
        let features = cards.features("a0").unwrap();
        assert_eq!(features.is_on("tx-tcp-segmentation"), Some(false));
        assert_eq!(features.is_on("tx-tcp6-segmentation"), Some(true), "its neighbour stays");
        cards.set_feature("a0", "tx-tcp-segmentation", Switch::On).unwrap();
        assert_eq!(cards.features("a0").unwrap().is_on("tx-tcp-segmentation"), Some(true));
        assert!(!cards.features("a0").unwrap().features["rx-gro-hw"].is_changeable);
        for (feature, state) in [("rx-gro-hw", Switch::On), ("no-such-feature", Switch::On)] {
            let error = cards.set_feature("a0", feature, state).unwrap_err().to_string();
            assert!(error.contains("a0") && error.contains(feature), "{error}");
        }
    });
}

#[test]
fn coalescing_and_channels_of_a_tap_and_a_veth_are_read() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        let before = cards.coalescing("tap0").unwrap();
        assert_eq!(before.get(CoalescingParameter::RxFrames), Some(0), "{before:?}");
        let change = Coalescing::default().with(CoalescingParameter::RxFrames, 16);
        cards.set_coalescing("tap0", &change).unwrap();
        assert_eq!(cards.coalescing("tap0").unwrap().get(CoalescingParameter::RxFrames), Some(16));
        let change = Coalescing::default().with(CoalescingParameter::RxUsecs, 8);
        let error = cards.set_coalescing("tap0", &change).unwrap_err().to_string();
        assert!(
            error.contains("tap0") && error.contains("cannot modify an unsupported parameter"),
            "{error}"
        );
        let channels = cards.channels("a0").unwrap();
        assert_eq!(channels.current.rx, Some(1), "{channels:?}");
    });
}

#[test]
fn groups_that_a_driver_lacks_are_unsupported() {
    in_namespace(|| {
        let mut cards = Connection::open().unwrap();
        assert!(cards.rings("tap0").unwrap_err().is_unsupported());
        let change = RingChange { rx: Some(64), tx: None };
        assert!(cards.set_rings("tap0", &change).unwrap_err().is_unsupported());
        assert!(cards.pause("tap0").unwrap_err().is_unsupported());
        let change = PauseChange { rx: Some(false), ..PauseChange::default() };
        assert!(cards.set_pause("tap0", &change).unwrap_err().is_unsupported());
        assert!(cards.fec("tap0").unwrap_err().is_unsupported());
        assert!(cards.eee("tap0").unwrap_err().is_unsupported());
        assert_eq!(cards.statistics("tap0").unwrap().counters(), []);
    });
}

#[test]
fn mtu_is_set_and_refused_beyond_the_drivers_limit() {
    in_namespace(|| {
        let mut links = route::Connection::open().unwrap();
        let tap = links.link("tap0").unwrap();
        assert_eq!(
            (tap.mtu, tap.kind.as_deref(), tap.is_up, tap.is_ethernet),
            (1500, Some("tun"), false, true)
        );
        links.set_mtu("tap0", 9000).unwrap();
        assert_eq!(links.link("tap0").unwrap().mtu, 9000);
        let beyond = tap.max_mtu.unwrap() + 1;
        let error = links.set_mtu("tap0", beyond).unwrap_err().to_string();
        assert!(error.contains("tap0") && error.contains("the kernel says: "), "{error}");
        assert_eq!(links.link("tap0").unwrap().mtu, 9000);
        assert!(links.link("nothing").unwrap_err().is_missing());
    });
}

#[test]
fn links_addresses_and_routes_are_those_of_ip() {
    in_namespace(|| {
        ip("link set a0 up");
        ip("link set b0 up");
        ip("address add 10.1.2.3/24 dev a0");
        ip("route add default via 10.1.2.1 dev a0 quickack 1 rto_min 10ms advmss 1400 mtu 1450");
        ip("route add 10.9.0.0/16 via 10.1.2.9 initcwnd 20");
        let mut tables = route::Connection::open().unwrap();
        let links = tables.links().unwrap();
        let names: Vec<&str> = links.iter().map(|link| link.name.as_str()).collect();
        for name in ["lo", "tap0", "a0", "b0"] {
            assert!(names.contains(&name), "{names:?}");
        }
        let a0 = links.iter().find(|link| link.name == "a0").unwrap();
        let b0 = links.iter().find(|link| link.name == "b0").unwrap();
        assert_eq!((a0.lower, a0.has_carrier, a0.is_up), (Some(b0.index), Some(true), true));
        assert!(a0.carrier_changes.unwrap() >= 2 && a0.counters.is_some());
        let addresses = tables.addresses().unwrap();
        let ours = addresses.iter().find(|address| address.address.to_string() == "10.1.2.3").unwrap();
        assert_eq!((ours.interface, ours.prefix_length), (a0.index, 24));
        let routes = tables.routes().unwrap();
        let default = routes.iter().find(|route| route.is_default()).unwrap();
        assert_eq!(
            (default.to_string().as_str(), default.interface),
            ("default via 10.1.2.1", Some(a0.index))
        );
        let options = &default.metrics;
        assert_eq!(
            (options.quickack, options.rto_min_ms, options.advmss, options.mtu),
            (Some(true), Some(10), Some(1400), Some(1450))
        );
        let to = tables.route_to("10.9.1.1".parse().unwrap()).unwrap();
        assert_eq!(
            (to.gateway.map(|g| g.to_string()).as_deref(), to.interface),
            (Some("10.1.2.9"), Some(a0.index))
        );
        assert!(tables.route_to("fd00::1".parse().unwrap()).is_err());
    });
}
