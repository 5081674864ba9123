//! Verdicts on the set-up of connections, on their failures and on error answers, beside healthy traffic that is close to them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use analysis::Part;
use analysis::traffic::Traffic;
use analysis::verdict::{CaptureLoss, Case, Evidence, Judgement, Verdict, VerdictKind, judge};
use record::{
    AnswerError, Conduct, ConnectionFacts, Exchange, Greeting, Observed, Op, Opened, Passage, Refusal, Setup,
    Side, Stall, StallKind, StallSet, Stamp, Verb, Word,
};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

/// A capture that is put together connection by connection.
struct Scene {
    evidence: Evidence,
    connections: u32,
    rtt_ns: u64,
}

fn server() -> SocketAddr {
    "10.0.0.2:80".parse().unwrap()
}

impl Scene {
    fn new(rtt_ns: u64) -> Self {
        Self { evidence: Evidence::default(), connections: 0, rtt_ns }
    }

    /// The facts of a connection to the service that began at this time, with a handshake at the client's side.
    fn facts(&mut self, ns: u64, requests: u64) -> ConnectionFacts {
        self.connections += 1;
        let began_ns = SECOND + ns;
        let established = Stamp::at(began_ns + self.rtt_ns);
        let conduct = Conduct { segments: requests, ack_min_ns: self.rtt_ns, ..Conduct::default() };
        ConnectionFacts {
            connection: self.connections,
            client: "10.0.0.1:5000".parse().unwrap(),
            server: server(),
            protocol: "http",
            undecoded: None,
            tls: None,
            packets: 10,
            bytes: 1000,
            began_ns,
            ended_ns: began_ns + self.rtt_ns,
            handshake_ns: Some((self.rtt_ns, 0)),
            ttl: (64, 64),
            exchanges: requests,
            in_flight_ns: 0,
            client_conduct: conduct,
            server_conduct: conduct,
            duplicates: 0,
            has_ended: true,
            both_directions: true,
            setup: Setup {
                syn: Stamp::at(began_ns),
                syns: 1,
                syn_ack: established,
                established,
                ready: established,
                frames: [1, 0, 2],
                ..Setup::default()
            },
        }
    }

    /// A connection with requests of this time each, one after the other.
    fn connection(&mut self, ns: u64, requests: u64, each_ns: u64, change: impl Fn(&mut ConnectionFacts)) {
        let mut facts = self.facts(ns, requests);
        facts.in_flight_ns = u128::from(requests * each_ns);
        facts.ended_ns += requests * each_ns;
        change(&mut facts);
        self.evidence.opened(facts.connection, &opened(facts.server));
        for number in 0..requests {
            let began = facts.setup.ready.ns().unwrap() + number * each_ns;
            self.evidence
                .observed(&Observed::alone(Side::Client, &exchange(facts.connection, began, each_ns)));
        }
        self.evidence.connection(0, &facts);
    }

    /// A connection that was not established.
    fn failed(&mut self, ns: u64, lasted_ns: u64, change: impl Fn(&mut ConnectionFacts)) {
        let mut facts = self.facts(ns, 0);
        facts.setup = Setup { syn: facts.setup.syn, syns: 1, frames: [7, 8, 9], ..Setup::default() };
        (facts.ended_ns, facts.handshake_ns, facts.both_directions) =
            (facts.began_ns + lasted_ns, None, false);
        change(&mut facts);
        self.evidence.empty_connection(0, &facts);
    }

    fn judge(&self) -> Judgement {
        judge(&Case {
            evidence: &self.evidence,
            stanzas: &[],
            link: None,
            cpu_busy: None,
            loss: CaptureLoss::default(),
            inputs: &[0],
        })
    }

    fn kinds(&self) -> Vec<VerdictKind> {
        self.judge().verdicts.iter().map(|verdict| verdict.kind).collect()
    }

    /// The only verdict; the account agrees with it.
    fn verdict(&self, kind: VerdictKind) -> Verdict {
        let judged = self.judge();
        let excess = judged.excess;
        let sum = excess.verdicts_us + excess.minor_us + excess.unexplained_us;
        assert!((sum - excess.excess_us).abs() < 1.0, "{excess:?}");
        assert!(excess.excess_us <= excess.operations_us + 1.0, "{excess:?}");
        assert_eq!(judged.verdicts.iter().map(|v| v.kind).collect::<Vec<_>>(), [kind], "{judged:#?}");
        judged.verdicts[0].clone()
    }
}

fn opened(server: SocketAddr) -> Opened {
    Opened {
        connection: 0,
        client: "10.0.0.1:5000".parse().unwrap(),
        server,
        client_syn: None,
        handshake_ns: None,
        ttl: (Side::Client, 64),
    }
}

fn exchange(connection: u32, began_ns: u64, ns: u64) -> Exchange {
    Exchange {
        op: Op { connection, verb: Verb::Http(Word::new(b"GET")), data_bytes: 300, ..Op::default() },
        ring_depth: 1,
        request: Passage::begin(began_ns, 3),
        response: Passage::begin(began_ns + ns, 4),
        ..Exchange::default()
    }
}

fn near(value: f64, expected: f64) -> bool {
    (value / expected - 1.0).abs() < 0.001
}

fn repeat(facts: &mut ConnectionFacts, wait_ns: u64) {
    let later = |stamp: Stamp| Stamp::at(stamp.ns().unwrap() + wait_ns);
    let setup = &mut facts.setup;
    (setup.syns, setup.waited_ns) = (2, wait_ns);
    (setup.syn_ack, setup.established, setup.ready) =
        (later(setup.syn_ack), later(setup.established), later(setup.ready));
    facts.ended_ns += wait_ns;
}

#[test]
fn a_full_accept_queue_is_found_by_repeated_syns_while_others_are_accepted() {
    let mut scene = Scene::new(MS);
    for number in 0..60 {
        let wait = if number % 4 == 0 { SECOND } else { 0 };
        scene.connection(number * 100 * MS, 5, MS / 2, |facts| {
            if wait > 0 {
                repeat(facts, wait);
            }
        });
    }
    let verdict = scene.verdict(VerdictKind::AcceptBacklog);
    assert_eq!((verdict.operations, verdict.cost_us), (15, 15e6));
    assert!(
        verdict.text.contains("15 of 60 connections had to send a SYN again, 1.00 s on average"),
        "{}",
        verdict.text
    );
    assert!(verdict.text.contains("or something before the service drops SYNs"), "{}", verdict.text);
    // 300 requests of 0.5 ms, 60 handshakes of 1 ms, 15 s of waits.
    let (now, then) = verdict.gain.unwrap().operation_us.unwrap();
    assert!(near(now, (150e3 + 60e3 + 15e6) / 300.0) && near(then, 210e3 / 300.0), "{now} {then}");
    assert_eq!(verdict.frames.numbers, [1, 2]);
}

/// Six of 60 SYNs are sent again, and 4 % of the data. At the clients both can be the path's loss; a SYN that has come to the server was
/// lost by nobody else.
#[test]
fn a_full_accept_queue_is_told_from_loss_where_the_syns_arrive() {
    for (handshake_ns, is_found) in [((10 * MS, 20_000), false), ((20_000, 10 * MS), true)] {
        let mut scene = Scene::new(10 * MS);
        for number in 0..60 {
            scene.connection(number * 100 * MS, 5, MS / 2, |facts| {
                facts.handshake_ns = Some(handshake_ns);
                facts.server_conduct.segments = 5;
                facts.server_conduct.retransmitted = u64::from(number % 5 == 0);
                if number % 10 == 0 {
                    repeat(facts, SECOND);
                }
            });
        }
        assert_eq!(scene.kinds().contains(&VerdictKind::AcceptBacklog), is_found, "{handshake_ns:?}");
    }
}

/// Some requests take longer than others: if they wait for a program that accepts slowly, a longer queue does not mend that.
#[test]
fn the_gain_of_a_longer_accept_queue_is_that_of_no_repeated_syns() {
    let mut scene = Scene::new(MS);
    for number in 0..60 {
        let each_ns = if number % 2 == 0 { MS / 2 } else { 5 * MS };
        scene.connection(number * 100 * MS, 5, each_ns, |facts| {
            if number % 4 == 0 {
                repeat(facts, SECOND);
            }
        });
    }
    let gain = scene.verdict(VerdictKind::AcceptBacklog).gain.unwrap();
    // 150 requests of 0.5 ms and as many of 5 ms, 60 handshakes of 1 ms, 15 s of waits.
    let then_us = (75e3 + 750e3 + 60e3) / 300.0;
    assert!(
        near(gain.operation_us.unwrap().1, then_us)
            && gain.operation_most_us == gain.operation_us.map(|us| us.1)
    );
    assert!(near(gain.throughput_least, (then_us + 50e3) / then_us), "{gain:?}");
    assert!(gain.text.ends_with("; 700 us if the program accepts at once"), "{}", gain.text);
}

#[test]
fn a_dropped_last_ack_is_the_queue_s_and_its_wait_is_claimed() {
    let mut scene = Scene::new(MS);
    for number in 0..20 {
        scene.connection(number * 100 * MS, 5, MS / 2, |facts| facts.setup.first_data_again = 2);
        let mut stalls = StallSet::default();
        stalls.insert(StallKind::AcceptQueue, Side::Client, 600 * MS);
        let held = Exchange { stalls, ..exchange(1, 10 * SECOND + number * SECOND, 601 * MS) };
        scene.evidence.observed(&Observed::alone(Side::Client, &held));
    }
    let verdict = scene.verdict(VerdictKind::AcceptBacklog);
    assert_eq!((verdict.operations, verdict.cost_us), (20, 12e6));
    assert!(verdict.text.ends_with("the accept queue is full"), "{}", verdict.text);
}

#[test]
fn lost_syns_of_a_path_that_loses_data_too_are_no_full_queue() {
    let mut scene = Scene::new(MS);
    for number in 0..60 {
        scene.connection(number * 100 * MS, 5, MS / 2, |facts| {
            facts.client_conduct.retransmitted = u64::from(number % 2 == 0);
            if number % 6 == 0 {
                repeat(facts, SECOND);
            }
        });
    }
    assert!(!scene.kinds().contains(&VerdictKind::AcceptBacklog), "{:?}", scene.kinds());
    // An outage: nobody was accepted while SYNs were repeated.
    let mut scene = Scene::new(MS);
    for number in 0..20 {
        scene.connection(number * 10 * MS, 5, MS / 2, |facts| repeat(facts, 3 * SECOND));
    }
    for number in 0..40 {
        scene.connection(20 * SECOND + number * 10 * MS, 5, MS / 2, |_| ());
    }
    assert_eq!(scene.kinds(), []);
    // Two of a thousand.
    let mut scene = Scene::new(MS);
    for number in 0..1000 {
        scene.connection(number * 10 * MS, 5, MS / 2, |facts| {
            if number < 2 {
                repeat(facts, SECOND);
            }
        });
    }
    assert_eq!(scene.kinds(), []);
}

#[test]
fn a_connection_for_each_request_costs_its_handshake_and_greeting() {
    let mut scene = Scene::new(10 * MS);
    for number in 0..40 {
        scene.connection(number * 30 * MS, 1, 11 * MS, |_| ());
    }
    let verdict = scene.verdict(VerdictKind::ConnectionPerRequest);
    assert_eq!((verdict.operations, verdict.cost_us), (40, 400e3));
    assert!(
        verdict.text.starts_with(
            "40 of 40 connections to 10.0.0.2:80 carried one request; the handshake took 10.0 ms"
        ),
        "{}",
        verdict.text
    );
    assert!(near(verdict.gain.unwrap().throughput_factor, 21.0 / 11.0));
    // With TLS: two exchanges of the greeting, two more round trips.
    let mut scene = Scene::new(10 * MS);
    for number in 0..40 {
        scene.connection(number * 60 * MS, 3, 11 * MS, |facts| {
            let setup = &mut facts.setup;
            setup.ready = Stamp::at(setup.established.ns().unwrap() + 22 * MS);
            setup.greeting = Greeting::Tls;
            (setup.greeting_exchanges, setup.greeting_in_flight_ns) = (2, 22 * MS);
        });
    }
    let verdict = scene.verdict(VerdictKind::ConnectionPerRequest);
    assert_eq!(verdict.cost_us, 40.0 * 32e3);
    assert!(near(verdict.gain.unwrap().throughput_factor, 43.0 / 11.0));
}

#[test]
fn connections_that_are_used_again_or_seldom_or_cheap_are_no_waste() {
    // Most of them carry several requests; the set-up is a small part; twelve health checks in two minutes.
    for (count, every_ms, requests, each_ms) in
        [(40, 100, 4, 11), (40, 300, 1, 200), (40, 3000, 1, 11), (15, 30, 1, 11)]
    {
        let mut scene = Scene::new(10 * MS);
        for number in 0..count {
            scene.connection(number * every_ms * MS, requests, each_ms * MS, |_| ());
        }
        let kinds = scene.kinds();
        assert!(
            !kinds.contains(&VerdictKind::ConnectionPerRequest),
            "{count} {every_ms} {requests} {each_ms}: {kinds:?}"
        );
    }
}

/// Keep-alive gains nothing for clients that come once, and half of the connections for those that come twice.
#[test]
fn a_connection_for_each_of_many_clients_is_no_waste() {
    for (comes, is_wasteful) in [(1, false), (2, false), (5, true)] {
        let mut scene = Scene::new(40 * MS);
        for number in 0..300_u64 {
            let client =
                SocketAddr::from(([10, 1, (number / comes) as u8, ((number / comes) >> 8) as u8], 5000));
            scene.connection(number * 60 * MS, 1, 2 * MS, |facts| facts.client = client);
        }
        let is_named = scene.kinds().contains(&VerdictKind::ConnectionPerRequest);
        assert_eq!(is_named, is_wasteful, "{comes}");
    }
}

#[test]
fn at_the_server_s_side_a_request_takes_the_way_of_its_client_too() {
    let mut scene = Scene::new(10 * MS);
    for number in 0..40 {
        scene.connection(number * 30 * MS, 1, MS, |facts| facts.handshake_ns = Some((0, 10 * MS)));
    }
    let gain = scene.verdict(VerdictKind::ConnectionPerRequest).gain.unwrap();
    assert!(near(gain.throughput_factor, 21.0 / 11.0), "{gain:?}");
    // A log-in of 1 ms at the server, and its way to the client: more than its exchange, which is an operation.
    let mut scene = Scene::new(10 * MS);
    for number in 0..40 {
        scene.connection(number * 40 * MS, 2, MS, |facts| {
            facts.handshake_ns = Some((0, 10 * MS));
            let setup = &mut facts.setup;
            setup.ready = Stamp::at(setup.established.ns().unwrap() + MS);
            setup.greeting = Greeting::PostgreSql;
            (setup.greeting_exchanges, setup.greeting_in_flight_ns) = (1, MS);
        });
    }
    let verdict = scene.verdict(VerdictKind::ConnectionPerRequest);
    assert!(verdict.cost_us == 40.0 * 21e3 && verdict.weight < 1.0, "{verdict:?}");
    assert!(near(verdict.gain.unwrap().throughput_factor, 32.0 / 11.0));
}

#[test]
fn refused_and_unanswered_connections_are_failed_operations() {
    let refuse = |facts: &mut ConnectionFacts| facts.setup.refusal = Some(Refusal::AtSyn);
    let mut scene = Scene::new(MS);
    for number in 0..40 {
        scene.connection(number * 100 * MS, 5, MS / 2, |_| ());
    }
    for number in 0..3 {
        scene.failed(number * SECOND, MS, refuse);
        scene.failed(number * SECOND, 3 * SECOND, |facts| facts.setup.syns = 3);
    }
    scene.failed(0, 2 * MS, |facts| facts.setup.refusal = Some(Refusal::AfterHandshake));
    let verdict = scene.verdict(VerdictKind::FailedConnects);
    assert_eq!((verdict.operations, verdict.cost_us), (7, 9005e3));
    let text = "7 of 47 connections to 10.0.0.2:80 were not established: 3 refused by a reset, 1 reset right after the \
                handshake, 3 never answered; 1.29 s on average";
    assert!(verdict.text.starts_with(text), "{}", verdict.text);
    assert!(near(verdict.share, 7.0 / 207.0) && verdict.frames.numbers == [7, 8, 9], "{verdict:?}");
    // An outage: a single attempt tells all there is.
    let mut scene = Scene::new(MS);
    scene.failed(0, MS, refuse);
    assert_eq!(scene.verdict(VerdictKind::FailedConnects).operations, 1);
}

#[test]
fn accidents_scans_fallbacks_and_attempts_in_flight_are_no_failure() {
    let refuse = |facts: &mut ConnectionFacts| facts.setup.refusal = Some(Refusal::AtSyn);
    let healthy = || {
        let mut scene = Scene::new(MS);
        for number in 0..500 {
            scene.connection(number * 10 * MS, 5, MS / 2, |_| ());
        }
        scene
    };
    // Two refused; four of five hundred not answered.
    let mut scene = healthy();
    (0..2).for_each(|_| scene.failed(0, MS, refuse));
    assert_eq!(scene.kinds(), []);
    let mut scene = healthy();
    (0..4).for_each(|_| scene.failed(0, MS, |facts| facts.setup.syns = 2));
    assert_eq!(scene.kinds(), []);
    // Begun when the capture ended: 500 * 10 ms.
    let mut scene = healthy();
    (0..20).for_each(|_| scene.failed(4900 * MS, 0, |_| ()));
    assert_eq!(scene.kinds(), []);
    // They were begun long before.
    let mut scene = healthy();
    (0..20).for_each(|_| scene.failed(1000 * MS, 0, |_| ()));
    assert_eq!(scene.verdict(VerdictKind::FailedConnects).operations, 20);
    // A scan of the host's ports.
    let mut scene = healthy();
    for port in 1000..1100 {
        scene.failed(0, MS, |facts| {
            facts.server.set_port(port);
            facts.setup.refusal = Some(Refusal::AtSyn);
        });
    }
    assert_eq!(scene.kinds(), []);
    // "localhost" is ::1 first, where nobody listens.
    let mut scene = healthy();
    for number in 0..400 {
        scene.failed(number * MS, MS, |facts| {
            facts.server = "[::1]:80".parse().unwrap();
            facts.setup.refusal = Some(Refusal::AtSyn);
        });
    }
    assert_eq!(scene.kinds(), []);
    // A port check: the client hangs up when it is answered.
    let mut scene = healthy();
    (0..100).for_each(|_| {
        scene.failed(0, MS, |facts| {
            facts.setup.syn_ack = facts.setup.syn;
            facts.both_directions = true;
        });
    });
    assert_eq!(scene.kinds(), []);
}

#[test]
fn resets_count_by_rate() {
    let scene = |resets: u64, connections: u64| {
        let mut scene = Scene::new(MS);
        for number in 0..connections {
            scene.connection(number * 10 * MS, 5, MS / 2, |facts| {
                facts.setup.requests_reset = u32::from(number < resets);
                facts.setup.frames[2] = 50 + number;
            });
        }
        scene
    };
    let verdict = scene(6, 60).verdict(VerdictKind::Resets);
    assert_eq!((verdict.operations, verdict.frames.numbers.len()), (6, 6));
    assert!(
        verdict
            .text
            .starts_with("6 of 306 requests to 10.0.0.2:80 got a reset instead of an answer (1.96 %)"),
        "{}",
        verdict.text
    );
    assert!(near(verdict.share, 6.0 / 306.0));
    assert_eq!(scene(2, 60).kinds(), []);
    // Three of 4003.
    assert_eq!(scene(3, 800).kinds(), []);
}

/// A crashing worker's connections end in order.
#[test]
fn requests_whose_connection_the_server_closes_have_failed() {
    let scene = |closed: u64, resets: u64| {
        let mut scene = Scene::new(MS);
        for number in 0..60 {
            scene.connection(number * 10 * MS, 5, MS / 2, |facts| {
                facts.setup.requests_closed = u32::from(number < closed);
                facts.setup.requests_reset = u32::from(number >= 60 - resets);
                facts.setup.frames[2] = 50 + number;
            });
        }
        scene
    };
    for (closed, resets, text) in [
        (
            6,
            0,
            "6 of 306 requests to 10.0.0.2:80 got no answer, because the server closed the connection (1.96 %)",
        ),
        (
            4,
            2,
            "6 of 306 requests to 10.0.0.2:80 got no answer: 2 a reset, 4 the end of the connection (1.96 %)",
        ),
    ] {
        let verdict = scene(closed, resets).verdict(VerdictKind::Resets);
        assert_eq!((verdict.operations, verdict.frames.numbers.len(), &*verdict.text), (6, 6, text));
    }
    assert_eq!(scene(2, 0).kinds(), []);
}

#[test]
fn error_answers_count_by_rate_and_are_named() {
    let scene = |errors: &[(AnswerError, u64)], all: u64| {
        let mut scene = Scene::new(MS);
        scene.connection(0, 1, MS, |_| ());
        let mut kinds = errors.iter().flat_map(|&(error, count)| (0..count).map(move |_| error));
        for number in 1..all {
            let error = kinds.next();
            let answer = Exchange { error, ..exchange(1, 2 * SECOND + number * 2 * MS, MS) };
            scene.evidence.observed(&Observed::alone(Side::Client, &answer));
        }
        scene
    };
    let (unavailable, bad) = (AnswerError::Http(503), AnswerError::Sense(3));
    let verdict = scene(&[(unavailable, 30), (bad, 2)], 100).verdict(VerdictKind::ErrorAnswers);
    assert_eq!(verdict.operations, 32);
    let text = "32 of 100 answers of 10.0.0.2:80 are errors (32.0 %): 30 times HTTP 503, 2 times CHECK CONDITION, medium error";
    assert_eq!(verdict.text, text);
    assert_eq!(verdict.frames.numbers, [3, 4]);
    assert_eq!(scene(&[(unavailable, 2)], 100).kinds(), []);
    assert_eq!(scene(&[(unavailable, 3)], 4000).kinds(), []);
}

#[test]
fn nagle_between_the_pieces_of_a_stream_gains_on_its_first_piece() {
    let scene = |held_ms: u64, pieces: u32, away_us: u64| {
        let mut scene = Scene::new(MS);
        scene.connection(0, 1, MS, |facts| {
            facts.handshake_ns = Some((MS, away_us * 1000));
            facts.server_conduct.ack_min_ns = away_us * 1000;
        });
        for number in 0..12 {
            let mut stalls = StallSet::default();
            stalls.insert(StallKind::NagleHeaderThenBody, Side::Server, held_ms * MS);
            let mut answer = Exchange { stalls, ..exchange(1, (2 + number) * SECOND, 300 * MS) };
            answer.response.began = Stamp::at((2 + number) * SECOND + MS);
            answer.chunks =
                record::Chunks { count: pieces, gaps_ns: 299 * MS, gap_max_ns: 40 * MS, written: 0 };
            scene.evidence.observed(&Observed::alone(Side::Client, &answer));
            let stall = Stall {
                connection: 1,
                kind: StallKind::NagleHeaderThenBody,
                sender: Side::Server,
                wait_ns: held_ms * MS,
                time_ns: (2 + number) * SECOND,
                frames: [1, 2, 3],
                segment_bytes: 20,
                seq: 0,
            };
            scene.evidence.stall(0, &stall);
        }
        scene
    };
    // At the server's capture point, the way to the client is not in what passes there, and the client waits for it.
    for away in [5, 20_000] {
        let verdicts = scene(40, 20, away).judge().verdicts;
        let verdict = verdicts.into_iter().find(|v| v.kind == VerdictKind::NagleDelayedAck).unwrap();
        let (now, then) = verdict.gain.unwrap().operation_us.unwrap();
        let away_us = away as f64;
        assert!(near(now, 41e3 + away_us) && near(then, 1e3 + away_us), "{now} {then}");
        assert!(
            verdict.text.contains("the first piece of 12 responses, of 20.0 pieces each"),
            "{}",
            verdict.text
        );
    }
    // A header and a body are no stream.
    assert!(scene(40, 2, 5).kinds().contains(&VerdictKind::HeaderBodyApart));
}

#[test]
fn set_up_and_gaps_are_parts_of_a_stanza() {
    let mut traffic = Traffic::default();
    for number in 0..10 {
        let mut answer = exchange(1, (2 + number) * SECOND, 300 * MS);
        answer.setup_ns = (number == 0).then_some(30 * MS);
        if number % 2 == 0 {
            answer.chunks = record::Chunks { count: 11, gaps_ns: 200 * MS, gap_max_ns: 90 * MS, written: 0 };
        } else {
            answer.chunks = record::Chunks { count: 2, gaps_ns: 100 * MS, gap_max_ns: 100 * MS, written: 0 };
        }
        traffic.add(&Observed::alone(Side::Client, &answer));
    }
    let stanza = &traffic.stanzas(None)[0];
    let part = |part| stanza.part(part).map(|figures| (figures.operations, figures.mean_us));
    assert_eq!(part(Part::SetUp), Some((1, 30e3)));
    assert_eq!((part(Part::Gap), part(Part::LongestGap)), (Some((5, 20e3)), Some((5, 90e3))));
    assert_eq!(stanza.chunks, Some(11.0));
}
