//! Lost packets: the waits for them are charged to the loss, and to nothing else, whichever side the capture was made on. The
//! truth is the simulator's ledger, which the analysis does not see.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod simulated;

use analysis::verdict::{Verdict, VerdictKind};
use analyzer::AnalysisResult;
use record::Side;
use report::analysis_text::Shown;
use simulated::{Run, Seen, ledger_us};
use tcpsim::{Part, SimOp};

fn all(result: &AnalysisResult) -> impl Iterator<Item = &Verdict> {
    result.verdicts.iter().chain(&result.minor)
}

fn cost_us(result: &AnalysisResult, kind: VerdictKind) -> f64 {
    all(result).filter(|verdict| verdict.kind == kind).map(|verdict| verdict.cost_us).sum()
}

/// What a run without loss would not have waited for: lost segments, and all that waited behind them.
const PARTS: [Part; 5] = [Part::Lost, Part::Congestion, Part::Nagle, Part::Cork, Part::Window];

/// The response's part of it, microseconds: what a capture on the server's side must show at least.
fn response_us(ops: &[SimOp]) -> f64 {
    let of = |op: &SimOp| PARTS.iter().map(|&part| op.response[part as usize]).sum::<u64>();
    ops.iter().map(of).sum::<u64>() as f64 / 1000.0
}

/// A setup, and the least share of the truth that must be charged to the loss by a capture with the client's side.
struct Lossy {
    settings: &'static [&'static str],
    least: f64,
    unexplained: f64,
}

const LOSSY: [Lossy; 6] = [
    Lossy { settings: &["queue-depth=8"], least: 0.87, unexplained: 0.05 },
    Lossy { settings: &["queue-depth=1"], least: 0.95, unexplained: 0.04 },
    Lossy { settings: &["queue-depth=4", "wire.loss=0.03"], least: 0.93, unexplained: 0.06 },
    Lossy { settings: &["queue-depth=8", "policy=nagle"], least: 0.85, unexplained: 0.06 },
    Lossy { settings: &["queue-depth=2", "response.data=64k"], least: 0.70, unexplained: 0.24 },
    Lossy {
        settings: &["queue-depth=4", "request.data=4k", "response.data=0"],
        least: 0.70,
        unexplained: 0.12,
    },
];

#[test]
fn waits_for_lost_segments_are_charged_to_the_loss_and_to_nothing_else() {
    let mut wrong = Vec::new();
    for Lossy { settings, least, unexplained } in LOSSY {
        for seed in ["seed=1", "seed=2", "seed=3"] {
            let run = Run::of("lossy", &[settings, &[seed, "operations=2000"]].concat());
            let truth_us = ledger_us(&run.ops, &PARTS);
            for seen in [Seen::Both, Seen::Apart, Seen::From(Side::Client), Seen::From(Side::Server)] {
                let what = format!("{settings:?} {seed} {seen:?}");
                let result = run.analysed(seen);
                let found_us = cost_us(&result, VerdictKind::Retransmission);
                // A server's capture shows when a request arrived, and that it waited before, but not for how long.
                let (floor_us, most_us) = match seen {
                    Seen::From(Side::Server) => (0.85 * response_us(&run.ops), 1.1 * truth_us),
                    _ => (least * truth_us, 1.02 * truth_us),
                };
                if !(floor_us..=most_us).contains(&found_us) {
                    wrong.push(format!("{what}: {found_us} of {truth_us}, at least {floor_us}"));
                }
                if result.excess.unexplained_us > unexplained * truth_us {
                    wrong.push(format!("{what}: {:?} of {truth_us}", result.excess));
                }
                // What is left is stated with its place, which blames nothing.
                let blames = |text: &str| !text.starts_with("the time until the first byte varies");
                let others = all(&result).filter(|verdict| verdict.kind != VerdictKind::Retransmission);
                let others = others.filter(|verdict| blames(&verdict.text));
                for verdict in others.filter(|verdict| verdict.cost_us > 0.01 * truth_us) {
                    wrong.push(format!("{what}: {:?}, {}", verdict.kind, verdict.text));
                }
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// The numbers of a text.
fn numbers(text: &str) -> Vec<f64> {
    text.split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|word| word.trim_matches('.').parse().ok())
        .collect()
}

#[test]
fn segments_sent_again_are_those_that_the_simulated_senders_sent_again() {
    for (settings, mostly_timeouts) in
        [(["queue-depth=1", "response.data=4k"], true), (["queue-depth=2", "response.data=64k"], false)]
    {
        let settings = [&settings[..], &["warm-up=0", "operations=2000"]].concat();
        let run = Run::of("lossy", &settings);
        let truth = run.result.client.sent_again + run.result.server.sent_again;
        for seen in [Seen::Both, Seen::Apart] {
            let result = run.analysed(seen);
            let verdict = all(&result).find(|verdict| verdict.kind == VerdictKind::Retransmission).unwrap();
            let [again, segments, percent, timeouts, ..] = numbers(&verdict.text)[..] else {
                panic!("{}", verdict.text)
            };
            assert!((again - truth as f64).abs() <= 2.0, "{settings:?} {seen:?}: {} {truth}", verdict.text);
            assert!(timeouts <= again && again <= segments, "{}", verdict.text);
            assert!((percent - again / segments * 100.0).abs() < 0.01, "{}", verdict.text);
            assert_eq!(timeouts > 0.5 * again, mostly_timeouts, "{settings:?} {seen:?}: {}", verdict.text);
        }
    }
}

/// Requests that Nagle's algorithm holds before their first byte are on the wire for microseconds, and their user waits 44 ms.
#[test]
fn the_whole_of_held_requests_is_what_their_user_waits() {
    for (settings, overstated) in [
        (&["queue-depth=1"][..], 0.01),
        (&["queue-depth=3"], 0.01),
        (&["queue-depth=8"], 0.01),
        // A client that works for 2 ms before each request: the hold is at most too long by that.
        (&["queue-depth=8", "client.service=2ms"], 16.0 / 44.0),
    ] {
        let run = Run::of("post-linux", &[settings, &["operations=1000"]].concat());
        for seen in [Seen::Both, Seen::From(Side::Client)] {
            let result = run.analysed(seen);
            let ratio = result.excess.operations_us / run.seen_us();
            assert!((0.94..=1.0 + overstated).contains(&ratio), "{settings:?} {seen:?}: {ratio}");
            let whole: f64 = result
                .stanzas
                .iter()
                .filter_map(|stanza| stanza.part(analysis::Part::Whole))
                .map(|part| part.mean_us * part.operations as f64)
                .sum();
            assert!((whole / result.excess.operations_us - 1.0).abs() < 1e-6, "{settings:?} {seen:?}");
        }
    }
}

/// An operation that one of two points missed has no time that is comparable with that of the others.
#[test]
fn operations_that_one_point_missed_are_in_no_part() {
    let run = Run::of("seed-512", &["queue-depth=4", "disturbed=0.0", "operations=2000"]);
    for blind in [Side::Client, Side::Server] {
        let result = run.analysed_without_a_third(blind);
        let left_out: u64 = result.stanzas.iter().map(|stanza| stanza.left_out).sum();
        assert!(left_out > 300 && left_out < result.operations - 300, "{left_out} of {}", result.operations);
        assert_eq!(left_out, result.operations_one_side);
        use analysis::Part::{Network, RoundTrip, Server, Whole};
        for stanza in result.stanzas.iter().filter(|stanza| stanza.left_out < stanza.operations) {
            for part in [Whole, RoundTrip, Server, Network] {
                let seen = stanza.part(part).unwrap().operations;
                assert_eq!(seen, stanza.operations - stanza.left_out, "{part:?}");
            }
            let mean = |part| stanza.mean_us(part).unwrap();
            assert!(mean(Whole) >= mean(RoundTrip) && mean(RoundTrip) >= mean(Server), "{stanza:#?}");
        }
        let text = report::analysis_text::analysis(&result, Shown::default());
        let line = text.lines().find(|line| line.contains("one of two capture points only")).unwrap();
        assert_eq!(numbers(&line.replace(' ', ""))[0], left_out as f64, "{line}");
    }
}

/// Two capture points see each packet twice; the sums at the top count it once, as the connections do.
#[test]
fn packets_of_two_points_count_once() {
    let run = Run::of("seed-512", &["sessions=3", "disturbed=0.0", "operations=500"]);
    let once = run.analysed(Seen::From(Side::Client));
    assert_eq!((once.packets, once.bytes), (once.frames.packets, once.frames.bytes));
    for seen in [Seen::Both, Seen::Apart] {
        let result = run.analysed(seen);
        let sum = |of: fn(&analyzer::ConnectionRow) -> u64| result.connections.iter().map(of).sum::<u64>();
        assert_eq!((result.packets, result.bytes), (sum(|c| c.packets), sum(|c| c.bytes)));
        assert!(result.packets.abs_diff(once.packets) <= 10 && result.frames.packets > 2 * once.packets - 20);
        let text = report::analysis_text::analysis(&result, Shown::default());
        let packets =
            numbers(&text.lines().find(|line| line.contains(" packets of ")).unwrap().replace(' ', ""));
        assert_eq!(packets[0], result.packets as f64, "{text}");
    }
}
