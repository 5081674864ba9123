//! Requests without a response: each counts once, whatever the number of capture points, and their share is that of all
//! requests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::net::SocketAddr;

use analysis::verdict::{CaptureLoss, Case, Evidence, Verdict, VerdictKind, judge};
use record::{Conduct, ConnectionFacts, Exchange, Observed, Op, Opened, Passage, Side, Verb};

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
    }
}

/// `answered` operations, and requests without a response at each capture point.
fn verdict(answered: u64, unanswered: &[u64]) -> Verdict {
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
    let judged = judge(&Case {
        evidence: &evidence,
        stanzas: &[],
        link: None,
        cpu_busy: None,
        loss: CaptureLoss::default(),
        inputs: &inputs,
    });
    judged.verdicts.into_iter().find(|verdict| verdict.kind == VerdictKind::NoResponse).unwrap()
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
