//! Both ends on a real kernel: veth devices between namespaces, shaped so that the directions are independent or share one rate.

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use host::facts::load::{LoadFacts, StreamFacts};
use host::load::{LoadSpec, client, server};

use crate::ids;
use crate::lab::{Lab, Namespace, can_run};

/// The findings, whatever else keeps this machine busy meanwhile.
fn findings(mut facts: LoadFacts) -> Vec<host::finding::Finding> {
    for run in [&mut facts.to_peer, &mut facts.from_peer, &mut facts.together].into_iter().flatten() {
        (run.processors_here, run.processors_there) = (None, None);
    }
    crate::findings(facts)
}

/// A server of load tests inside.
fn serve(namespace: &Namespace, address: &'static str) -> SocketAddr {
    namespace.run(move || {
        let listener = TcpListener::bind(address).expect("a port");
        let address = listener.local_addr().expect("its address");
        server::start(listener).expect("a thread");
        address
    })
}

fn test(namespace: &Namespace, address: SocketAddr, milliseconds: u64) -> LoadFacts {
    namespace.run(move || {
        let spec =
            LoadSpec { port: address.port(), time: Duration::from_millis(milliseconds), bytes: 1 << 33 };
        let (facts, outcome) = client::test("store2", address, &spec);
        outcome.expect("three runs");
        facts
    })
}

/// Segments that a namespace has sent again, ever: what `nstat -az TcpRetransSegs` shows.
fn retransmitted(namespace: &Namespace) -> u64 {
    namespace.run(|| {
        let text = std::fs::read_to_string("/proc/thread-self/net/snmp").expect("counters");
        let mut rows = text.lines().filter_map(|line| line.strip_prefix("Tcp: "));
        let (names, values) = (rows.next().expect("names"), rows.next().expect("values"));
        let mut pairs = names.split(' ').zip(values.split(' '));
        pairs.find(|(name, _)| *name == "RetransSegs").expect("the counter").1.parse().expect("a number")
    })
}

/// Two hosts with a cable.
fn two() -> (Namespace, Namespace) {
    let (client, server) = (Namespace::new(), Namespace::new());
    client.cable("c0", &server, "s0");
    client.sh("ip addr add 10.78.0.1/24 dev c0; ip link set c0 up");
    server.sh("ip addr add 10.78.0.2/24 dev s0; ip link set s0 up");
    (client, server)
}

/// A client and a server whose packets pass a router, at 20 Mb/s.
fn shaped(shape: &str) -> (Lab, SocketAddr) {
    let lab = Lab::new(1500, 1500);
    for (end, interface) in [(&lab.client, "c0"), (&lab.server, "s0")] {
        // A queue counts packets: one for each segment. The windows fit the long queue, so that it loses none.
        end.sh(&format!(
            "ip link set dev {interface} gso_max_segs 1
             echo 4096 65536 200000 > /proc/sys/net/ipv4/tcp_wmem"
        ));
    }
    lab.router.sh(shape);
    let address = serve(&lab.server, "10.77.2.2:0");
    (lab, address)
}

/// Each direction has a rate of its own, as on a full-duplex link.
const FULL_DUPLEX: &str = "tc qdisc add dev r0 root tbf rate 20mbit burst 16kb limit 1500kb
    tc qdisc add dev r1 root tbf rate 20mbit burst 16kb limit 1500kb";

/// Both directions pass one token bucket, as on a half-duplex link.
fn half_duplex(queue_packets: u32) -> String {
    format!(
        "ip link add ifb0 type ifb; ip link set ifb0 up
         tc qdisc add dev ifb0 root handle 1: htb default 1
         tc class add dev ifb0 parent 1: classid 1:1 htb rate 20mbit burst 3kb cburst 3kb
         tc qdisc add dev ifb0 parent 1:1 pfifo limit {queue_packets}
         for interface in r0 r1; do
           tc qdisc add dev $interface ingress
           tc filter add dev $interface parent ffff: protocol ip u32 match u32 0 0 action mirred egress redirect dev ifb0
         done"
    )
}

fn megabits(stream: Option<StreamFacts>) -> f64 {
    stream.expect("a direction").received.bits_per_second / 1e6
}

fn rates(facts: &LoadFacts) -> [f64; 4] {
    let together = facts.together.as_ref().expect("a run");
    [
        megabits(facts.to_peer.as_ref().expect("a run").to_peer),
        megabits(facts.from_peer.as_ref().expect("a run").from_peer),
        megabits(together.to_peer),
        megabits(together.from_peer),
    ]
}

#[test]
fn a_full_duplex_path_carries_both_directions_at_once_and_has_no_finding() {
    if !can_run() {
        return;
    }
    let (lab, address) = shaped(FULL_DUPLEX);
    let facts = test(&lab.client, address, 1000);
    assert_eq!(ids(&findings(facts.clone())), [""; 0], "{facts:#?}");
    for rate in rates(&facts) {
        assert!((8.0..=25.0).contains(&rate), "{:?}", rates(&facts));
    }
    let together = facts.together.as_ref().expect("a run");
    let (here, there) = (together.here.as_ref().expect("here"), together.there.as_ref().expect("there"));
    assert_eq!((here.interface.as_str(), there.interface.as_str()), ("c0", "s0"));
    assert_eq!((here.speed_mbps, here.seconds >= 1.0, there.seconds >= 1.0), (Some(10_000), true, true));
    // The counters are those of the run: what one end sends, the other receives, but for what a queue still holds.
    let sent = together.to_peer.expect("a direction").sender.expect("counters").segments;
    assert!(here.counters["tx_packets"] >= u64::from(sent), "{here:?}");
    let round_trip = together.to_peer.expect("a direction").sender.expect("counters");
    assert!(round_trip.rtt_min_us > 0 && round_trip.rtt_min_us <= round_trip.rtt_max_us, "{round_trip:?}");
    assert!(round_trip.rtt_median_us <= round_trip.rtt_max_us);
    for (_, run) in facts.runs() {
        for processors in [run.processors_here, run.processors_there] {
            let processors = processors.expect("processors");
            assert!(processors.process_share > 0.0 && processors.busy_share > 0.0, "{processors:?}");
        }
    }
}

#[test]
fn one_bucket_for_both_directions_is_found() {
    if !can_run() {
        return;
    }
    let (lab, address) = shaped(&half_duplex(2000));
    let facts = test(&lab.client, address, 1000);
    let found = findings(facts.clone());
    assert_eq!(ids(&found), ["directions-share-rate (store2)"], "{facts:#?}");
    let [to_alone, _, to, from] = rates(&facts);
    assert!(to + from < to_alone * 1.4, "{:?}", rates(&facts));
}

#[test]
fn one_bucket_that_loses_segments_is_suspected_to_be_half_duplex() {
    if !can_run() {
        return;
    }
    let (lab, address) = shaped(&half_duplex(8));
    let facts = test(&lab.client, address, 1000);
    let found = ids(&findings(facts.clone()));
    assert!(found.contains(&"half-duplex-suspected (store2)".to_owned()), "{found:?} {facts:#?}");
}

#[test]
fn retransmissions_are_those_of_the_kernels_of_both_ends() {
    if !can_run() {
        return;
    }
    let (client, server) = two();
    let address = serve(&server, "10.78.0.2:0");
    for end in [&client, &server] {
        // Data alone: requests, reports and acknowledgements are shorter.
        end.sh("nft add table inet lab
             nft 'add chain inet lab in { type filter hook input priority 0; }'
             nft add rule inet lab in meta length gt 1400 numgen random mod 100 lt 3 drop");
    }
    let before = (retransmitted(&client), retransmitted(&server));
    let facts = test(&client, address, 500);
    let after = (retransmitted(&client), retransmitted(&server));
    let together = facts.together.as_ref().expect("a run");
    let sum = |streams: [Option<StreamFacts>; 2]| -> u64 {
        let of = |stream: Option<StreamFacts>| stream.and_then(|stream| stream.sender).expect("counters");
        streams.into_iter().map(|stream| u64::from(of(stream).retransmitted_segments)).sum()
    };
    let here = sum([facts.to_peer.as_ref().expect("a run").to_peer, together.to_peer]);
    let there = sum([facts.from_peer.as_ref().expect("a run").from_peer, together.from_peer]);
    // The kernels count the requests and reports, too, of which a few are sent again if a busy machine acknowledges them late.
    for (streams, kernel) in [(here, after.0 - before.0), (there, after.1 - before.1)] {
        assert!((streams..=streams + 5).contains(&kernel), "{streams} and {kernel}: {facts:#?}");
    }
    assert!(here > 10 && there > 10, "{here} and {there}");
}

#[test]
fn a_link_local_peer_and_a_server_of_both_families_are_loaded() {
    if !can_run() {
        return;
    }
    let (client, server) = two();
    client.sh("ip addr add fe80::1/64 dev c0 nodad");
    server.sh("ip addr add fe80::2/64 dev s0 nodad");
    let port = serve(&server, "[::]:0").port();
    for host in ["fe80::2%c0", "10.78.0.2"] {
        let facts = client.run(move || {
            use host::read::{Roots, Wanted};
            let spec = LoadSpec { port, time: Duration::from_millis(100), bytes: 1 << 30 };
            let wanted = Wanted { peer: Some(host.to_owned()), load: Some(spec), ..Wanted::default() };
            let mut unseen = Vec::new();
            let path = host::read::path::read(&Roots::default(), &wanted, &mut unseen).expect("a path");
            let load = host::read::load::read(&Roots::default(), &wanted, &mut unseen);
            // A busy machine may leave open whether the directions share a link.
            unseen.retain(|unseen| !unseen.why.contains("the processors were busy"));
            assert!(unseen.is_empty(), "{unseen:?}");
            assert_eq!(
                (path.interface.as_deref(), path.interface_mtu_bytes),
                (Some("c0"), Some(1500)),
                "{host}"
            );
            assert!(path.hops.last().is_some_and(|hop| hop.is_peer), "{path:?}");
            load.expect("a test")
        });
        assert!(facts.is_complete(), "{host}");
        let together = facts.together.expect("a run");
        let names = (together.here.expect("here").interface, together.there.expect("there").interface);
        assert_eq!(names, ("c0".to_owned(), "s0".to_owned()), "{host}");
        let of_there = together.from_peer.expect("a direction").sender.expect("counters of a mapped address");
        assert!(of_there.segments > 0);
    }
}
