//! Requests without a response: each counts once, whatever the number of capture points, and their share is that of all
//! requests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use analysis::verdict::{CaptureLoss, Case, Evidence, Judgement, Verdict, VerdictKind, judge};
use record::{Conduct, ConnectionFacts, Exchange, Observed, Op, Opened, Passage, Side, Stamp, Verb};

const SECOND: u64 = 1_000_000_000;

fn exchange(number: u64) -> Exchange {
    let began_ns = SECOND + number * 1_000_000;
    Exchange {
        op: Op { verb: Verb::Scsi(0x28), data_bytes: 4096, ..Op::default() },
        ring_depth: 1,
        request: Passage::begin(began_ns, 2 * number + 1),
        response: Passage::begin(began_ns + 100_000, 2 * number + 2),
        ..Exchange::default()
    }
}

fn facts(packets: u64) -> ConnectionFacts {
    let client: SocketAddr = "10.0.0.1:5000".parse().unwrap();
    let server: SocketAddr = "10.0.0.2:3260".parse().unwrap();
    ConnectionFacts {
        connection: 0,
        client,
        server,
        protocol: "iscsi",
        undecoded: None,
        tls: None,
        packets,
        bytes: 100 * packets,
        began_ns: SECOND,
        ended_ns: 100 * SECOND,
        handshake_ns: None,
        ttl: (64, 64),
        exchanges: 10,
        in_flight_ns: 0,
        client_conduct: Conduct::default(),
        server_conduct: Conduct::default(),
        duplicates: 0,
        has_ended: false,
        both_directions: true,
        setup: record::Setup::default(),
    }
}

fn begun() -> Evidence {
    let mut evidence = Evidence::default();
    let opened = Opened {
        connection: 0,
        client: facts(0).client,
        server: facts(0).server,
        client_syn: None,
        handshake_ns: None,
        ttl: (Side::Client, 64),
    };
    evidence.opened(0, &opened);
    evidence
}

fn judged(evidence: &Evidence, inputs: &[u32]) -> Judgement {
    let loss = CaptureLoss::default();
    judge(&Case { evidence, stanzas: &[], link: None, cpu_busy: None, loss, inputs })
}

/// `answered` operations, and requests without a response at each capture point.
fn verdict(answered: u64, unanswered: &[u64]) -> Verdict {
    let mut evidence = begun();
    for number in 0..answered {
        evidence.observed(&Observed::alone(Side::Client, &exchange(number)));
    }
    for (vantage, &count) in (0..).zip(unanswered) {
        for number in 0..count {
            evidence.unanswered(vantage, 0, &exchange(answered + number));
        }
        // The last point saw most packets, whatever it saw of the requests.
        evidence.connection(vantage, &facts(1000 + u64::from(vantage)));
    }
    let inputs: Vec<u32> = (0..unanswered.len() as u32).collect();
    of(&judged(&evidence, &inputs).verdicts).unwrap()
}

fn of(verdicts: &[Verdict]) -> Option<Verdict> {
    verdicts.iter().find(|verdict| verdict.kind == VerdictKind::NoResponse).cloned()
}

/// One connection with answered operations of one duration, and one request without a response at its end.
#[derive(Clone, Copy)]
struct Last {
    verb: Verb,
    answered: u64,
    answered_ns: u64,
    /// From a response to the next request.
    pause_ns: u64,
    /// How long the client needed to send the last request.
    sending_ns: u64,
    /// From then to the connection's last packet.
    waited_ns: u64,
    has_ended: bool,
    both_directions: bool,
    retransmitted: u64,
    /// From the last packet of the connection to that of the capture.
    later_ns: u64,
    /// From the last bytes of a response that has begun to the last packet of the connection.
    heard_before_ns: Option<u64>,
}

const HUNG: Last = Last {
    verb: Verb::Scsi(0x28),
    answered: 30,
    answered_ns: 1_000_000,
    pause_ns: 1_000_000,
    sending_ns: 0,
    waited_ns: 5 * SECOND,
    has_ended: false,
    both_directions: true,
    retransmitted: 0,
    later_ns: 0,
    heard_before_ns: None,
};

/// The verdict, and the note, on such a connection.
fn fate(last: Last) -> (Option<Verdict>, Option<Verdict>) {
    let mut evidence = begun();
    let of_time = |began_ns: u64, ns: Option<u64>| {
        let op = Op { verb: last.verb, data_bytes: 4096, ..Op::default() };
        let response = ns.map_or(Passage::default(), |ns| Passage::begin(began_ns + ns, 2));
        Exchange { op, ring_depth: 1, request: Passage::begin(began_ns, 1), response, ..Exchange::default() }
    };
    for number in 0..last.answered {
        let exchange = of_time(SECOND + number * (last.answered_ns + last.pause_ns), Some(last.answered_ns));
        evidence.observed(&Observed::alone(Side::Client, &exchange));
    }
    let began_ns = SECOND + last.answered * (last.answered_ns + last.pause_ns);
    let mut request = of_time(began_ns, None);
    request.request.ended = Stamp::at(began_ns + last.sending_ns);
    if let Some(before_ns) = last.heard_before_ns {
        let until_ns = began_ns + last.sending_ns + last.waited_ns;
        request.response =
            Passage { ended: Stamp::at(until_ns - before_ns), ..Passage::begin(began_ns + 1, 2) };
    }
    evidence.unanswered(0, 0, &request);
    let mut own = facts(1000);
    own.exchanges = last.answered;
    own.ended_ns = began_ns + last.sending_ns + last.waited_ns;
    (own.has_ended, own.both_directions) = (last.has_ended, last.both_directions);
    own.client_conduct.retransmitted = last.retransmitted;
    evidence.connection(0, &own);
    let other = ConnectionFacts { connection: 1, ended_ns: own.ended_ns + last.later_ns, ..facts(10) };
    evidence.connection(0, &other);
    let judgement = judged(&evidence, &[0]);
    (of(&judgement.verdicts), of(&judgement.minor))
}

#[test]
fn a_request_that_is_overdue_has_a_verdict() {
    let slow = Last { answered_ns: 2 * SECOND, ..HUNG };
    let unacknowledged = Last { both_directions: false, retransmitted: 3, answered: 0, ..HUNG };
    let turn = Last { verb: Verb::Turn, ..HUNG };
    for last in [HUNG, slow, Last { answered: 0, ..HUNG }, unacknowledged, turn] {
        let (verdict, note) = fate(last);
        let verdict = verdict.unwrap();
        assert!(note.is_none());
        assert!(verdict.text.starts_with("1 request never"), "{}", verdict.text);
        assert!((verdict.cost_us - 5e6).abs() < 1.0, "{}", verdict.cost_us);
    }
}

#[test]
fn a_request_that_was_in_flight_at_the_end_has_none() {
    let just = Last { waited_ns: SECOND / 2, ..HUNG };
    // Others of the service took longer than that.
    let long = Last { answered_ns: 3 * SECOND, ..HUNG };
    let alone = Last { answered: 0, ..just };
    // One direction was not captured: its responses were not either.
    let one_sided = Last { both_directions: false, answered: 0, ..HUNG };
    for last in [just, long, alone, one_sided] {
        assert_eq!(fate(last), (None, None));
    }
    let given_up = Last { has_ended: true, ..long };
    assert!(fate(given_up).0.is_some(), "its client has waited long enough");
}

#[test]
fn a_response_that_is_still_coming_is_one() {
    // Events, a long download: its first byte came at once, and its last one half a second before the end.
    let streaming = Last { heard_before_ns: Some(SECOND / 2), ..HUNG };
    assert_eq!(fate(streaming), (None, None));
    // A download of limited rate pauses.
    let pausing = Last { heard_before_ns: Some(4 * SECOND), ..HUNG };
    assert_eq!(fate(pausing), (None, None));
    let stuck = Last { heard_before_ns: Some(14 * SECOND), waited_ns: 15 * SECOND, ..HUNG };
    let verdict = fate(stuck).0.unwrap();
    assert!((verdict.cost_us - 14e6).abs() < 1.0, "it waits for the rest: {}", verdict.cost_us);
}

#[test]
fn messages_that_may_need_no_response_are_a_note_at_most() {
    let turn = Last { verb: Verb::Turn, ..HUNG };
    let farewell = Last { has_ended: true, ..turn };
    // A log, line by line: it is one message, as nobody answers.
    let log = Last { answered: 0, sending_ns: 60 * SECOND, ..turn };
    // Its answers came after seconds before: a chat.
    let chat = Last { answered_ns: SECOND, ..turn };
    // Half a minute passed between its messages.
    let idle = Last { pause_ns: 30 * SECOND, ..turn };
    for last in [farewell, log] {
        assert_eq!(fate(last), (None, None));
    }
    for last in [chat, idle, Last { answered: 0, ..turn }, Last { answered: 19, ..turn }] {
        let (verdict, note) = fate(last);
        assert_eq!(verdict, None);
        let text = note.unwrap().text;
        assert!(text.contains("10.0.0.2:3260") && text.contains("whether it needs one"), "{text}");
    }
}

#[test]
fn a_wait_ends_when_tcp_gives_up() {
    let years = Last { later_ns: 100_000_000 * SECOND, ..HUNG };
    let verdict = fate(years).0.unwrap();
    assert!((verdict.cost_us - 905e6).abs() < 1.0, "{}", verdict.cost_us);
    let minute = fate(Last { later_ns: 60 * SECOND, ..HUNG }).0.unwrap();
    assert!((minute.cost_us - 65e6).abs() < 1.0, "{}", minute.cost_us);
}

#[test]
fn a_request_that_two_points_saw_counts_once() {
    // A request that was lost on the path passed the client's point only.
    for (unanswered, count) in
        [(&[20][..], 20), (&[20, 20], 20), (&[20, 15], 20), (&[15, 20], 20), (&[7, 0], 7)]
    {
        let verdict = verdict(80, unanswered);
        assert_eq!(verdict.operations, count, "{unanswered:?}");
        assert!(verdict.text.starts_with(&format!("{count} requests never")), "{}", verdict.text);
    }
}

#[test]
fn the_share_is_that_of_all_requests() {
    for (answered, unanswered, share) in [(80, 20, 0.2), (10, 90, 0.9), (0, 5, 1.0)] {
        let verdict = verdict(answered, &[unanswered, unanswered]);
        assert!((verdict.share - share).abs() < 1e-9, "{answered} {unanswered}: {}", verdict.share);
    }
}
