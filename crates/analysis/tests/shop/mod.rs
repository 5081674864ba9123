//! Services whose servers and clients a test describes: who waits for whom.

#![allow(unreachable_pub, dead_code, clippy::unwrap_used, reason = "a module of several tests")]

use std::net::SocketAddr;

use analysis::service::ServiceRow;
use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, Judgement, Link, Verdict, VerdictKind, judge};
use record::{
    Conduct, ConnectionFacts, Exchange, Key, Observed, Op, OpKind, Opened, Passage, Side, Stamp, Verb, Word,
};

pub const US: u64 = 1000;
pub const MS: u64 = 1_000_000;
pub const SECOND: u64 = 1_000_000_000;

/// An operation of a test, ns.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    pub connection: u32,
    pub began: u64,
    /// The first byte of the response, and its last.
    pub first: u64,
    pub ended: u64,
    pub thought: Option<u64>,
    pub bytes: u32,
}

fn observed(made: &Made, number: u64, side: Side, change: impl Fn(&Made, &mut Exchange)) -> Observed {
    let passage = |began: u64, ended: u64, frame: u64| Passage {
        began: Stamp::at(SECOND + began),
        ended: Stamp::at(SECOND + ended),
        first_frame: frame,
        last_frame: frame + u64::from(ended > began),
    };
    let op = Op {
        connection: made.connection,
        verb: Verb::Http(Word::new(b"GET")),
        kind: OpKind::Read,
        data_bytes: made.bytes,
        request_bytes: 100,
        response_bytes: made.bytes + 200,
        ..Op::default()
    };
    let mut detail = Exchange {
        op,
        ring_depth: 1,
        request: passage(made.began, made.began, 4 * number + 1),
        response: passage(made.first, made.ended, 4 * number + 2),
        thought_ns: made.thought,
        ..Exchange::default()
    };
    change(made, &mut detail);
    Observed::alone(side, &detail)
}

pub struct World {
    pub evidence: Evidence,
    pub traffic: Traffic,
    pub link: Option<Link>,
}

/// Clients have ten connections each; one server. Seen by the clients.
pub fn world(all: Vec<Made>) -> World {
    world_of(all, Side::Client, |_| Key::NONE)
}

/// The same, as one side sees it, with the keys of requests.
pub fn world_of(all: Vec<Made>, side: Side, key: impl Fn(&Made) -> Key) -> World {
    world_with(all, side, |made, exchange| exchange.key = key(made))
}

/// The same, with changes of the exchanges.
pub fn world_with(mut all: Vec<Made>, side: Side, change: impl Fn(&Made, &mut Exchange)) -> World {
    all.sort_by_key(|made| made.ended);
    let (mut evidence, mut traffic) = (Evidence::default(), Traffic::default());
    let server: SocketAddr = "10.0.0.2:80".parse().unwrap();
    let mut connections: Vec<u32> = all.iter().map(|made| made.connection).collect();
    connections.sort_unstable();
    connections.dedup();
    for connection in connections {
        let client = SocketAddr::from(([10, 0, 1, (connection / 10) as u8], 5000 + connection as u16));
        let opened = Opened {
            connection,
            client,
            server,
            client_syn: None,
            handshake_ns: None,
            ttl: (Side::Client, 64),
        };
        evidence.opened(connection, &opened);
    }
    for (made, number) in all.iter().zip(0..) {
        let observed = observed(made, number, side, &change);
        traffic.add(&observed);
        evidence.observed(&observed);
    }
    World { evidence, traffic, link: None }
}

/// As the server sees what its clients saw over this round trip, ns.
pub fn at_server(mut all: Vec<Made>, network: u64) -> World {
    for made in &mut all {
        made.began += network / 2;
        (made.first, made.ended) = (made.first - network / 2, made.ended - network / 2);
        made.thought = made.thought.map(|thought| thought + network);
    }
    let connections = all.iter().map(|made| made.connection).max().map_or(0, |most| most + 1);
    let ended_ns = SECOND + all.iter().map(|made| made.ended).max().unwrap_or(0);
    let exchanges = all.len() as u64 / u64::from(connections.max(1));
    let mut world = world_of(all, Side::Server, |_| Key::NONE);
    for connection in 0..connections {
        let facts = ConnectionFacts {
            setup: record::Setup::default(),
            connection,
            client: SocketAddr::from(([10, 0, 1, (connection / 10) as u8], 5000 + connection as u16)),
            server: "10.0.0.2:80".parse().unwrap(),
            protocol: "http",
            undecoded: None,
            tls: None,
            packets: 4 * exchanges,
            bytes: 1500 * exchanges,
            began_ns: SECOND,
            ended_ns,
            handshake_ns: Some((20 * US, network)),
            ttl: (64, 64),
            exchanges,
            in_flight_ns: 0,
            client_conduct: Conduct::default(),
            server_conduct: Conduct::default(),
            duplicates: 0,
            has_ended: false,
            both_directions: true,
        };
        world.evidence.connection(0, &facts);
    }
    world
}

impl World {
    pub fn judge(&self) -> Judgement {
        let wire_us = |request: f64, response: f64| (request + response) * 0.008;
        let stanzas = self.traffic.stanzas(self.link.is_some().then_some(&wire_us));
        judge(&Case {
            evidence: &self.evidence,
            stanzas: &stanzas,
            link: self.link,
            cpu_busy: None,
            loss: CaptureLoss::default(),
            inputs: &[0],
        })
    }

    #[track_caller]
    pub fn only(&self, kind: VerdictKind) -> Verdict {
        let judged = self.judge();
        let kinds: Vec<_> = judged.verdicts.iter().map(|v| v.kind).collect();
        assert_eq!(kinds, [kind], "{judged:#?}");
        let excess = judged.excess;
        let sum: f64 = judged.verdicts.iter().chain(&judged.minor).map(|v| v.cost_us).sum();
        assert!((sum + excess.unexplained_us - excess.excess_us).abs() < 1.0, "{excess:?}");
        judged.verdicts[0].clone()
    }

    #[track_caller]
    pub fn nothing(&self) {
        let judged = self.judge();
        assert!(judged.verdicts.is_empty(), "{judged:#?}");
    }

    pub fn row(&self) -> ServiceRow {
        let rows = self.evidence.services.rows();
        assert_eq!(rows.len(), 1);
        rows[0].clone()
    }
}

/// How a server serves, and its clients ask.
pub struct Shop {
    pub connections: u32,
    /// Requests of each connection.
    pub requests: u32,
    /// The server's workers: a request waits until one is free. Many: latencies overlap.
    pub workers: usize,
    /// The network's round trip, ns.
    pub network: u64,
    /// When each connection begins, ns.
    pub starts: fn(u32, &mut fastrand::Rng) -> u64,
    /// The server's time for one request.
    pub service: fn(&mut fastrand::Rng) -> u64,
    /// The client's time between a response and the next request.
    pub think: fn(&mut fastrand::Rng) -> u64,
}

impl Shop {
    /// A closed loop on each connection, served in the order of arrival.
    pub fn run(&self, seed: u64) -> Vec<Made> {
        let mut random = fastrand::Rng::with_seed(seed);
        let mut next: Vec<(u64, u32, Option<u64>)> =
            (0..self.connections).map(|c| ((self.starts)(c, &mut random), c, None)).collect();
        let mut left = vec![self.requests; self.connections as usize];
        let mut free = vec![0_u64; self.workers];
        let mut all = Vec::new();
        loop {
            next.sort_unstable_by_key(|of| std::cmp::Reverse(of.0));
            let Some((began, connection, thought)) = next.pop() else { return all };
            free.sort_unstable();
            let start = free[0].max(began + self.network / 2);
            free[0] = start + (self.service)(&mut random);
            let ended = free[0] + self.network / 2;
            all.push(Made { connection, began, first: ended, ended, thought, bytes: 1000 });
            left[connection as usize] -= 1;
            if left[connection as usize] > 0 {
                let think = (self.think)(&mut random);
                next.push((ended + think, connection, Some(think)));
            }
        }
    }
}

/// An even number around a mean, by a share to both sides.
pub fn about(mean: u64, share: f64, random: &mut fastrand::Rng) -> u64 {
    (mean as f64 * (1.0 + share * (2.0 * random.f64() - 1.0))) as u64
}

pub fn exponential(mean: u64, random: &mut fastrand::Rng) -> u64 {
    (-(1.0 - random.f64()).ln() * mean as f64) as u64
}

/// The issue's: 20 connections with a request each, and a lock that each holds for 2 ms.
pub const LOCK: Shop = Shop {
    connections: 20,
    requests: 50,
    workers: 1,
    network: 50 * US,
    starts: |c, _| u64::from(c) * 20 * US,
    service: |random| about(2100 * US, 0.03, random),
    think: |random| about(50 * US, 0.5, random),
};

/// As many connections, whose requests take 43 ms each, whatever the others do.
pub const SLEEP: Shop = Shop { workers: 1000, service: |random| about(43 * MS, 0.003, random), ..LOCK };
