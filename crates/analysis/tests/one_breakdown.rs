//! A study and an analysis of captures break down the same operations alike, whatever recorded them.

use analysis::{Part, Segments, traffic::Traffic};
use proptest::prelude::*;
use record::{Exchange, Observed, Op, Passage, Side, Stamp};

/// An operation as a simulation records it: all six points, on one clock.
fn op(start: u64, ways: [u64; 5]) -> Op {
    let mut at = start;
    let mut next = |way: u64| {
        at += way;
        Stamp::at(at)
    };
    let [out, request, server, response, back] = ways;
    Op {
        start: Stamp::at(start),
        c1: next(out),
        s1: next(request),
        s2: next(server),
        c2: next(response),
        finish: next(back),
        ..Op::default()
    }
}

/// What a capture point on a side sees of it.
fn seen(side: Side, op: &Op) -> Exchange {
    let (request, response) = match side {
        Side::Client => (op.c1, op.c2),
        Side::Server => (op.s1, op.s2),
    };
    let passage = |stamp: Stamp| Passage { began: stamp, ended: stamp, ..Passage::default() };
    let bare = Op { verb: op.verb, kind: op.kind, ..Op::default() };
    Exchange { op: bare, request: passage(request), response: passage(response), ..Exchange::default() }
}

proptest! {
    #[test]
    fn the_parts_of_a_study_are_those_of_its_captures(
        ways in prop::collection::vec(prop::array::uniform5(1_000_u64..1_000_000), 1..32),
    ) {
        let ops: Vec<Op> = ways.iter().zip(1..).map(|(w, i)| op(i * 10_000_000, *w)).collect();
        let segments = Segments::of(&ops, true);
        let mut traffic = Traffic::default();
        for op in &ops {
            let observed = Observed::joined(&seen(Side::Client, op), &seen(Side::Server, op), true);
            // Two captures show the record without the client's thread.
            let bare = Op { start: Stamp::MISSING, finish: Stamp::MISSING, ..*op };
            prop_assert_eq!(observed.op, bare);
            traffic.add(&observed);
        }
        let stanza = traffic.stanzas(None).pop().unwrap();
        let both = [
            (Some(segments.server), Part::Server),
            (Some(segments.network), Part::Network),
            (segments.request_path, Part::RequestPath),
            (segments.response_path, Part::ResponsePath),
        ];
        for (segment, part) in both {
            let (segment, part) = (segment.unwrap(), stanza.part(part).unwrap());
            prop_assert_eq!(
                (segment.mean_us, segment.p50_us, segment.p99_us),
                (part.mean_us, part.p50_us, part.p99_us)
            );
        }
        let outside = segments.rtt.mean_us - segments.client.mean_us;
        prop_assert!((stanza.mean_us(Part::RoundTrip).unwrap() - outside).abs() < 1e-6);
    }
}
