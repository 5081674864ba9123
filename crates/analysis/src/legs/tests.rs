#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use record::{Exchange, Op, Passage, Side};

use super::*;

const MS: u64 = 1_000_000;

fn opened(client: &str, server: &str) -> Opened {
    Opened {
        connection: 0,
        client: client.parse().unwrap(),
        server: server.parse().unwrap(),
        client_syn: None,
        handshake_ns: None,
        ttl: (Side::Client, 64),
    }
}

/// A proxy at 10.0.0.2:80 with its upstream at 10.0.0.3:8080, with these operations, from and to in microseconds.
fn legs(outer: &[(u64, u64)], inner: &[(u64, u64)]) -> Vec<Leg> {
    let mut legs = Legs::default();
    legs.opened(&opened("10.0.0.1:5000", "10.0.0.2:80"));
    assert!(legs.is_empty());
    legs.opened(&opened("10.0.0.2:6000", "10.0.0.3:8080"));
    for (server, operations) in [("10.0.0.2:80", outer), ("10.0.0.3:8080", inner)] {
        for &(from, to) in operations {
            let exchange = Exchange {
                op: Op::default(),
                request: Passage::begin(1000 * MS + from * 1000, 1),
                response: Passage::begin(1000 * MS + to * 1000, 2),
                ..Exchange::default()
            };
            legs.add(server.parse().unwrap(), &Observed::alone(Side::Client, &exchange));
        }
    }
    legs.legs()
}

/// From when to when operations lasted, microseconds.
type Times = Vec<(u64, u64)>;

/// Operations of the proxy at irregular times, each with one of the upstream inside.
fn proxied(every_us: u64, outer_us: u64, inner_us: u64) -> (Times, Times) {
    let begins = (0..200_u64).map(|i| i * every_us + i * i * 37 % (every_us / 4));
    let outer: Vec<_> = begins.map(|at| (at, at + outer_us)).collect();
    let inner = outer.iter().map(|(at, _)| (at + 100, at + 100 + inner_us)).collect();
    (outer, inner)
}

#[test]
fn a_proxy_s_time_is_shared_with_its_upstream() {
    for every_us in [20_000, 1100] {
        let (outer, inner) = proxied(every_us, 1000, 800);
        let [leg] = &legs(&outer, &inner)[..] else { panic!("not linked at {every_us}") };
        assert_eq!((leg.proxy.as_str(), leg.upstream.as_str()), ("10.0.0.2:80", "10.0.0.3:8080"));
        assert_eq!(leg.operations, 200);
        assert!((leg.upstream_share - 0.8).abs() < 1e-9 && (leg.proxy_us - 1000.0).abs() < 1e-9, "{leg:?}");
        assert!((leg.upstream_us - 800.0).abs() < 1e-9);
    }
}

#[test]
fn services_that_are_busy_at_the_same_time_are_no_proxy() {
    let (outer, inner) = proxied(20_000, 1000, 800);
    // The other service's operations come at times of their own.
    let apart: Vec<_> = inner.iter().map(|(from, to)| (from * 7 / 5 + 5000, to * 7 / 5 + 5000)).collect();
    assert_eq!(legs(&outer, &apart), []);
    // One that is always busy with long operations contains any.
    let always: Vec<_> = (0..200).map(|i| (i * 20_000, i * 20_000 + 300_000)).collect();
    assert_eq!(legs(&always, &inner), []);
    // Longer than what contains it.
    let (outer, inner) = proxied(20_000, 1000, 1000);
    assert_eq!(legs(&outer, &inner), []);
    assert_eq!(legs(&outer[..10], &inner[..10]), []);
}

#[test]
fn what_a_cache_answers_has_no_upstream() {
    let (outer, inner) = proxied(20_000, 1000, 800);
    let half: Vec<_> = inner.iter().step_by(2).copied().collect();
    let [leg] = &legs(&outer, &half)[..] else { panic!("not linked") };
    assert_eq!((leg.operations, (leg.upstream_share - 0.8).abs() < 1e-9), (100, true));
}
