//! The words of the ring: terms, stalls, how a message is written.

use std::net::SocketAddr;

use record::stage::{Place, bottleneck, resources};
use record::{Conduct, ConnectionFacts, CpuSharing, ServiceTimes, Side, StallKind, StallSet, Term, Writes};

#[test]
fn a_term_says_whose_it_is() {
    // The paper: the first letter is the side, C client, S server, W wire.
    for term in Term::ALL {
        let (name, meaning) = (term.name(), term.meaning());
        let side = match name.as_bytes() {
            [b'C', _] => "client",
            [b'S', _] => "server",
            [b'W', _] => "wire",
            _ => panic!("{term:?} has the name {name}"),
        };
        assert!(meaning.contains(side), "{name}: {meaning}");
        assert_eq!(name, format!("{term:?}").to_uppercase());
        assert_eq!(Term::ALL.iter().filter(|other| other.meaning() == meaning).count(), 1, "{meaning}");
    }
}

#[test]
fn service_times_are_work_and_wires_not_waits_and_latencies() {
    let service = Term::ALL.into_iter().filter(|term| term.is_service()).map(Term::name);
    assert_eq!(service.collect::<Vec<_>>(), ["CK", "W1", "SI", "SP", "SK", "W2", "CI", "CP"]);
}

#[test]
fn resources_are_in_flow_order_and_merge_shared_cpus() {
    let times = ServiceTimes {
        ck_us: 1.0,
        w1_us: 2.0,
        si_us: 4.0,
        sp_us: 8.0,
        sk_us: 16.0,
        w2_us: 32.0,
        ci_us: 64.0,
        cp_us: 128.0,
    };
    let of = |client, server| {
        let all = resources(&times, client, server);
        all.into_iter().map(|r| (r.stages, r.service_us, r.place == Place::Wire)).collect::<Vec<_>>()
    };
    let expected = |list: &[(&str, f64, bool)]| {
        list.iter().map(|&(stages, us, wire)| (stages.to_owned(), us, wire)).collect::<Vec<_>>()
    };
    assert_eq!(
        of(CpuSharing::ThreadWithSoftirq, CpuSharing::OwnCpus),
        expected(&[
            ("W1", 2.0, true),
            ("SI", 4.0, false),
            ("SP", 8.0, false),
            ("SK", 16.0, false),
            ("W2", 32.0, true),
            ("CI+CP", 192.0, false),
            ("CK", 1.0, false),
        ])
    );
    assert_eq!(
        of(CpuSharing::Uniprocessor, CpuSharing::Uniprocessor),
        expected(&[
            ("W1", 2.0, true),
            ("SI+SP+SK", 28.0, false),
            ("W2", 32.0, true),
            ("CI+CP+CK", 193.0, false),
        ])
    );
}

#[test]
fn of_equal_resources_the_first_in_flow_order_limits() {
    // W1 and SP take the same time: the result must always name the same one.
    let times = ServiceTimes { w1_us: 5.0, sp_us: 5.0, ..ServiceTimes::default() };
    let all = resources(&times, CpuSharing::OwnCpus, CpuSharing::OwnCpus);
    assert_eq!(bottleneck(&all).map(|r| r.stages.as_str()), Some("W1"));
}

#[test]
fn a_stall_put_in_twice_is_in() {
    let mut set = StallSet::default();
    for kind in StallKind::ALL {
        set.insert(kind, Side::Server, 1);
        set.insert(kind, Side::Server, 1);
        assert!(set.contains(kind) && !set.is_empty(), "{kind:?}");
    }
    assert_eq!(StallSet::joined(&StallSet::default(), &set), set);
    assert!(StallKind::ALL.into_iter().all(|kind| set.contains(kind)), "none pushes another out");
}

#[test]
fn each_way_of_writing_has_the_name_it_is_stored_under() {
    let names = Writes::ALL.map(Writes::name);
    assert_eq!(names, ["one", "apart", "more", "more-unfinished", "cork", "cork-unfinished"]);
    for writes in Writes::ALL {
        let stored = toml::Value::try_from(writes).expect("a name");
        assert_eq!(stored.as_str(), Some(writes.name()));
    }
}

fn facts(client_ack_ns: u64, server_ack_ns: u64, handshake_ns: Option<(u64, u64)>) -> ConnectionFacts {
    let address = SocketAddr::from(([192, 0, 2, 1], 3260));
    ConnectionFacts {
        connection: 1,
        client: address,
        server: address,
        protocol: "iSCSI",
        undecoded: None,
        tls: None,
        packets: 0,
        bytes: 0,
        began_ns: 0,
        ended_ns: 0,
        handshake_ns,
        ttl: (64, 64),
        exchanges: 0,
        in_flight_ns: 0,
        client_conduct: Conduct { ack_min_ns: client_ack_ns, ..Conduct::default() },
        server_conduct: Conduct { ack_min_ns: server_ack_ns, ..Conduct::default() },
        duplicates: 0,
        has_ended: false,
        both_directions: true,
        setup: record::Setup::default(),
    }
}

#[test]
fn the_way_and_back_is_of_both_sides_of_the_capture_point() {
    // From a capture point in the middle, the ACKs of each side measure one part of the path.
    assert_eq!(facts(300, 40, None).round_trip_ns(), 340);
    let shaken = facts(300, 40, Some((7, 8)));
    assert_eq!(shaken.round_trip_ns(), 15, "an acknowledgement can ride on an answer and so be late");
    assert_eq!(facts(0, 0, Some((500, 60))).round_trip_ns(), 560, "before any data is acknowledged");
    assert_eq!(facts(0, 0, None).round_trip_ns(), 0, "unknown");
    assert_eq!(facts(300, 0, None).round_trip_ns(), 0, "half of it is not the round trip");
    assert_eq!(facts(u64::MAX, 1, None).round_trip_ns(), u64::MAX, "stamps from a file may be anything");
}

#[test]
fn each_side_has_its_own_conduct() {
    let facts = facts(300, 40, None);
    assert_eq!(facts.conduct(Side::Client).ack_min_ns, 300);
    assert_eq!(facts.conduct(Side::Server).ack_min_ns, 40);
}
