//! Evidence of one closed ring, whose times and waits a test gives.

#![allow(unreachable_pub, dead_code, reason = "a module of several tests")]

use analysis::verdict::{CaptureLoss, Case, Evidence, Verdict, VerdictKind, judge};
use record::{
    Conduct, ConnectionFacts, Exchange, Observed, Op, OpKind, Passage, Side, Stall, StallKind, Stamp, Verb,
};

pub const MS: u64 = 1_000_000;

/// A closed ring of one connection: operations of this time, and the client's time before each, nanoseconds.
pub struct Ring {
    pub count: u64,
    pub took_ns: u64,
    pub thought_ns: u64,
    pub depth: u32,
    pub wait: Option<(StallKind, u64)>,
    /// Its beginning is not in the capture.
    pub is_late: bool,
}

pub const RING: Ring =
    Ring { count: 200, took_ns: 21 * MS, thought_ns: MS / 10, depth: 1, wait: None, is_late: false };

impl Ring {
    pub fn evidence(&self, conduct: Conduct, round_trip_ns: u64) -> Evidence {
        self.seen(Side::Client, conduct, (20_000, round_trip_ns))
    }

    /// The evidence of a capture point that seems to be this side's, with its round trips to the server and to the client.
    pub fn seen(&self, side: Side, conduct: Conduct, handshake_ns: (u64, u64)) -> Evidence {
        let mut evidence = Evidence::default();
        self.operations(side, &mut evidence);
        self.connection(&mut evidence, 0, conduct, handshake_ns);
        evidence
    }

    /// Adds the operations.
    pub fn operations(&self, side: Side, evidence: &mut Evidence) {
        let cycle_ns = self.took_ns + self.thought_ns;
        for turn in 0..self.count {
            let began = 1000 * MS + turn * cycle_ns;
            let passage =
                |ns| Passage { began: Stamp::at(ns), ended: Stamp::at(ns), first_frame: 1, last_frame: 2 };
            let op = Op { verb: Verb::Turn, kind: OpKind::Read, data_bytes: 100, ..Op::default() };
            let mut exchange = Exchange {
                op,
                ring_depth: self.depth,
                request: passage(began),
                response: passage(began + self.took_ns),
                thought_ns: (turn > 0).then_some(self.thought_ns),
                ..Exchange::default()
            };
            if let Some((kind, wait_ns)) = self.wait {
                exchange.stalls.insert(kind, Side::Server, wait_ns);
            }
            evidence.observed(&Observed::alone(side, &exchange));
        }
    }

    /// Adds a connection with as many operations.
    pub fn connection(
        &self,
        evidence: &mut Evidence,
        connection: u32,
        conduct: Conduct,
        handshake_ns: (u64, u64),
    ) {
        let cycle_ns = self.took_ns + self.thought_ns;
        evidence.connection(
            0,
            &ConnectionFacts {
                setup: record::Setup::default(),
                connection,
                client: "10.0.0.1:5000".parse().unwrap(),
                server: "10.0.0.2:80".parse().unwrap(),
                protocol: "turns",
                undecoded: None,
                tls: None,
                packets: 1000,
                bytes: 100_000,
                began_ns: 1000 * MS,
                ended_ns: 1000 * MS + self.count * cycle_ns,
                handshake_ns: (!self.is_late).then_some(handshake_ns),
                ttl: (64, 64),
                exchanges: self.count,
                in_flight_ns: 0,
                client_conduct: Conduct::default(),
                server_conduct: conduct,
                duplicates: 0,
                has_ended: false,
                both_directions: true,
            },
        );
    }
}

/// Adds waits of the server's data that end at these times.
pub fn stalls(evidence: &mut Evidence, kind: StallKind, wait_ns: u64, ends_ns: impl Iterator<Item = u64>) {
    for time_ns in ends_ns {
        evidence.stall(
            0,
            &Stall {
                connection: 0,
                kind,
                sender: Side::Server,
                wait_ns,
                time_ns,
                frames: [1, 2, 3],
                segment_bytes: 100,
                seq: 0,
            },
        );
    }
}

pub fn found(evidence: &Evidence, kind: VerdictKind) -> Option<Verdict> {
    let case = Case {
        evidence,
        stanzas: &[],
        link: None,
        cpu_busy: None,
        loss: CaptureLoss::default(),
        inputs: &[0],
    };
    judge(&case).verdicts.into_iter().find(|verdict| verdict.kind == kind)
}
