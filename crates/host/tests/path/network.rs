//! Probes of a real kernel's path in namespaces.

use std::time::Duration;

use host::facts::path::{PathFacts, RttSource};
use host::facts::{Facts, Unseen};
use host::finding::Severity;
use host::read::{Roots, Wanted};

use crate::lab::{Lab, Namespace, SERVER, SERVER_PORT, SERVER_PORT_6, can_run};
use crate::{changes, ids, only};

/// What a check with `--peer` reads in a namespace.
fn check(client: &Namespace, peer: &str) -> Facts {
    let peer = peer.to_owned();
    client.run(move || {
        let wanted = Wanted { peer: Some(peer), ..Wanted::default() };
        let mut unseen: Vec<Unseen> = Vec::new();
        let path = host::read::path::read(&Roots::default(), &wanted, &mut unseen);
        let tcp = host::read::tcp::read(&Roots::default(), &wanted, &mut unseen);
        Facts { path, tcp, unseen, ..Facts::default() }
    })
}

fn path(facts: &Facts) -> &PathFacts {
    facts.path.as_ref().expect("a path")
}

#[test]
fn a_black_hole_is_named_with_the_size_that_passes() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1280);
    lab.drop("meta l4proto icmp");
    let facts = check(&lab.client, SERVER_PORT);
    let found = only(&facts, "mtu-black-hole");
    assert_eq!(found.severity, Severity::Broken);
    assert!(found.measured.contains("up to 1280 bytes arrive, larger ones vanish"), "{}", found.measured);
    assert!(found.measured.ends_with("the interface's MTU is 1500"), "{}", found.measured);
    let segments = path(&facts).segments.expect("segments");
    assert_eq!((segments.full_bytes, segments.smallest_lost_bytes), (1500, Some(1281)));
    // No router answers, so that none is seen.
    assert_eq!(path(&facts).datagrams.expect("datagrams").largest_answered_bytes, None);
    assert!(facts.unseen.iter().any(|unseen| unseen.what == "path MTU by datagrams"), "{:?}", facts.unseen);
    assert_eq!(changes(&found), ["net.ipv4.tcp_mtu_probing = 1"]);
    // The command that it prints mends the path.
    let lock = found.commands.iter().find(|command| command.contains("mtu lock 1280")).expect("a command");
    lab.client.sh(lock);
    let mended = check(&lab.client, SERVER_PORT);
    assert_eq!(ids(&mended), [""; 0]);
    assert_eq!(path(&mended).segments.and_then(|s| s.largest_delivered_bytes), Some(1280));
    assert_eq!(path(&mended).route_mtu_bytes, Some(1280));
}

#[test]
fn a_black_hole_is_located_where_hops_answer() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1399);
    lab.drop("icmp type destination-unreachable icmp code frag-needed");
    let facts = check(&lab.client, SERVER);
    let found = only(&facts, "mtu-black-hole");
    let expected = "datagrams of up to 1399 bytes arrive, larger ones vanish without an answer, between 10.77.1.1 and 10.77.2.2";
    assert!(found.measured.starts_with(expected), "{}", found.measured);
    let lost: Vec<_> = path(&facts).hops.iter().map(|hop| hop.smallest_lost_bytes).collect();
    assert_eq!(lost, [None, Some(1400)]);
    let rtt = path(&facts).rtt.expect("a round trip time");
    assert!(rtt.by == RttSource::Datagram && rtt.min_us > 0.0 && rtt.samples == 1, "{rtt:?}");
}

#[test]
fn a_smaller_mtu_that_is_announced_is_stated_and_no_finding() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1280);
    let facts = check(&lab.client, SERVER_PORT);
    assert_eq!(ids(&facts), [""; 0], "{facts:#?}");
    let path = path(&facts);
    assert_eq!(path.segments.and_then(|s| s.largest_delivered_bytes), Some(1280));
    let datagrams = path.datagrams.expect("datagrams");
    assert_eq!((datagrams.largest_answered_bytes, datagrams.announced_mtu_bytes), (Some(1280), Some(1280)));
    assert_eq!(datagrams.smallest_lost_bytes, None);
    let hops: Vec<_> =
        path.hops.iter().map(|h| (h.address.as_deref(), h.announced_mtu_bytes, h.is_peer)).collect();
    assert_eq!(hops, [(Some("10.77.1.1"), Some(1280), false), (Some(SERVER), None, true)]);
    assert_eq!((path.interface.as_deref(), path.interface_mtu_bytes), (Some("c0"), Some(1500)));
    assert_eq!(path.route_mtu_bytes, Some(1500));
    // A virtual interface's nominal rate is no bandwidth.
    assert_eq!(path.bits_per_second, None);
    let rtt = path.rtt.expect("a round trip time");
    assert!(rtt.by == RttSource::Handshake && rtt.samples == 7 && rtt.min_us <= rtt.median_us, "{rtt:?}");
    assert!(path.probes > 2 && path.probes < 20, "{}", path.probes);
    // What the kernel learnt is the route's MTU of the next check.
    assert_eq!(check(&lab.client, SERVER_PORT).path.and_then(|path| path.route_mtu_bytes), Some(1280));
}

#[test]
fn jumbo_frames_that_end_at_the_router_are_noted() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(9000, 1500);
    let facts = check(&lab.client, SERVER_PORT);
    let found = only(&facts, "path-mtu-below-jumbo");
    assert_eq!(found.measured, "the interface's MTU is 9000, the path carries 1500, as 10.77.1.1 announces");
    assert_eq!(found.severity, Severity::Note);
}

#[test]
fn a_healthy_path_has_no_finding() {
    if !can_run() {
        return;
    }
    for mtu in [1500, 9000] {
        let lab = Lab::new(mtu, mtu);
        for peer in [SERVER_PORT, SERVER, SERVER_PORT_6] {
            let facts = check(&lab.client, peer);
            assert_eq!(ids(&facts), [""; 0], "{peer}: {facts:#?}");
            let answered = path(&facts).datagrams.and_then(|datagrams| datagrams.largest_answered_bytes);
            assert_eq!(answered, Some(mtu), "{peer}: {facts:#?}");
            assert!(facts.unseen.is_empty(), "{:?}", facts.unseen);
        }
    }
}

#[test]
fn ipv6_black_holes_are_named_too() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1400);
    lab.drop("icmpv6 type packet-too-big");
    let facts = check(&lab.client, SERVER_PORT_6);
    let found = only(&facts, "mtu-black-hole");
    assert!(
        found.measured.starts_with("TCP segments of up to 1400 bytes arrive, larger ones vanish"),
        "{} {:?}",
        found.measured,
        facts.unseen
    );
    assert!(found.measured.contains("between fd77:1::1 and fd77:2::2"), "{}", found.measured);
    assert!(found.other_end.is_some_and(|text| text.contains("ICMPv6 type 2")));
    let lock = found.commands.iter().find(|command| command.contains("mtu lock 1400")).expect("a command");
    lab.client.sh(lock);
    assert_eq!(ids(&check(&lab.client, SERVER_PORT_6)), [""; 0]);
}

#[test]
fn a_lowered_mss_is_no_black_hole_for_tcp() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1280);
    lab.drop("meta l4proto icmp");
    lab.router.sh("nft add rule inet lab through tcp flags syn tcp option maxseg size set 1240");
    let facts = check(&lab.client, SERVER_PORT);
    assert_eq!(ids(&facts), [""; 0], "{facts:#?}");
    assert_eq!(path(&facts).segments.map(|s| (s.full_bytes, s.smallest_lost_bytes)), Some((1280, None)));
}

#[test]
fn a_route_that_is_smaller_than_its_path_is_noted() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1500);
    lab.client.sh("ip route add 10.77.2.0/24 via 10.77.1.1 mtu 1300");
    let found = only(&check(&lab.client, SERVER_PORT), "route-mtu-below-path");
    assert_eq!(found.measured, "the route's MTU is 1300, the path carries 1500");
}

#[test]
fn a_silent_peer_is_said_to_be_unseen() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1500);
    lab.drop("ip daddr 10.77.2.2");
    let facts = check(&lab.client, SERVER_PORT);
    assert_eq!(ids(&facts), [""; 0]);
    let unseen: Vec<&str> = facts.unseen.iter().map(|unseen| unseen.what.as_str()).collect();
    assert_eq!(unseen, ["round trip time to the peer", "path MTU by datagrams"]);
}

#[test]
fn probes_go_to_the_peer_alone() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1280);
    // Whatever the client sends elsewhere is counted; neighbour discovery of IPv6 is the kernel's.
    lab.client.sh("nft add table inet lab
         nft 'add chain inet lab out { type filter hook output priority 0; }'
         nft add rule inet lab out ip daddr 10.77.2.2 counter accept
         nft add rule inet lab out meta l4proto != ipv6-icmp counter");
    let facts = check(&lab.client, SERVER_PORT);
    assert!(path(&facts).probes > 0);
    lab.client.sh("nft list chain inet lab out | grep 'l4proto != ipv6-icmp counter packets 0 '");
    lab.client.sh("! nft list chain inet lab out | grep '10.77.2.2 counter packets 0 '");
}

#[test]
fn names_and_ports_that_are_wrong_are_unseen() {
    let read = |peer: &str| {
        let mut unseen = Vec::new();
        let wanted = Wanted { peer: Some(peer.to_owned()), ..Wanted::default() };
        let path = host::read::path::read(&Roots::default(), &wanted, &mut unseen);
        (path, unseen.into_iter().map(|unseen| unseen.why).collect::<Vec<_>>())
    };
    let (path, why) = read("host:99999");
    assert!(path.is_none() && why[0].contains("'host:99999' is no peer"), "{why:?}");
    assert!(host::read::path::read(&Roots::default(), &Wanted::default(), &mut Vec::new()).is_none());
}

#[test]
fn settings_and_routes_of_the_namespace_are_read() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1500);
    lab.client.sh(
        "echo '4096 8192 16384' > /proc/sys/net/ipv4/tcp_rmem; echo '4096 8192 32768' > /proc/sys/net/ipv4/tcp_wmem
         echo 0 > /proc/sys/net/ipv4/tcp_sack; echo 0 > /proc/sys/net/ipv4/tcp_window_scaling
         echo reno > /proc/sys/net/ipv4/tcp_congestion_control
         ip route add 10.77.3.0/24 via 10.77.1.1 rto_min 1s initcwnd 2 quickack 1 window 9000 metric 7",
    );
    let facts = check(&lab.client, SERVER_PORT);
    assert_eq!(facts.tcp.buffers("net.ipv4.tcp_rmem").map(|sizes| sizes.max_bytes), Some(16_384));
    assert_eq!(facts.tcp.word("net.ipv4.tcp_congestion_control"), Some("reno"));
    let [route] = &facts.tcp.routes[..] else { panic!("{:?}", facts.tcp.routes) };
    assert_eq!(route.route, "10.77.3.0/24 via 10.77.1.1 dev c0 metric 7");
    assert_eq!((route.rto_min_ms, route.initial_window_segments), (Some(1000), Some(2)));
    assert_eq!((route.is_quick_ack, route.window_bytes), (true, Some(9000)));
    let mut found = ids(&facts);
    found.sort();
    let expected = [
        "route-initial-window-small",
        "route-rto-min-high",
        "small-buffers",
        "small-buffers",
        "tcp-sack-off",
        "tcp-window-scaling-off",
    ];
    assert_eq!(found, expected);
    // The rest of the commands is the kernel's to accept.
    for finding in
        host::check::findings(&facts).iter().filter(|finding| !finding.subject.starts_with("route"))
    {
        for command in &finding.commands {
            lab.client.sh(command);
        }
    }
    let mended = check(&lab.client, SERVER_PORT);
    assert_eq!(mended.tcp.number("net.ipv4.tcp_sack"), Some(1));
    assert!(ids(&mended).iter().all(|id| id.starts_with("route-")), "{:?}", ids(&mended));
}

#[test]
fn counters_that_move_are_those_of_the_namespace() {
    if !can_run() {
        return;
    }
    let lab = Lab::new(1500, 1500);
    let facts = lab.client.run(|| {
        let wanted = Wanted { watch: Duration::from_millis(1), ..Wanted::default() };
        Facts { tcp: host::read::tcp::read(&Roots::default(), &wanted, &mut Vec::new()), ..Facts::default() }
    });
    // Nothing moves in a namespace without traffic, whatever the host does.
    assert_eq!((facts.tcp.watched_ms, facts.tcp.moved.len()), (1, 0), "{:?}", facts.tcp.moved);
    assert_eq!(ids(&facts), [""; 0]);
}
