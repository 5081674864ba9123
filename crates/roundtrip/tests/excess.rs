//! The time that verdicts report as lost is the time that the simulator's ledger has for the same cause: independent
//! evidence, because the analysis sees packets only and the ledger comes from the simulated causes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use analysis::modes::{Finding, FindingKind};
use analysis::verdict::VerdictKind;
use analyzer::{Analysis, AnalysisResult, Input, ModeRow, Options};
use capture::file::CaptureFile;
use record::Op;
use report::analysis_text::{Detail, Shown};
use report::simulated::Packets;
use tcpsim::preset::Preset;
use tcpsim::{Part, Setup, SimOp, simulate};

/// A simulated run: what the analysis of its packets finds, and its operations with their ledger.
fn run(preset: &str, settings: &[&str]) -> (AnalysisResult, Vec<SimOp>) {
    let source = Preset::named(preset).map_or("", |preset| preset.text);
    let settings: Vec<String> = settings.iter().map(|&setting| setting.to_owned()).collect();
    let setup = Setup { operations: 400, ..Setup::read_with(source, &settings).unwrap() };
    let mut ops = Vec::new();
    let mut keep = |op: &SimOp| ops.push(*op);
    let mut packets = Packets::new(Vec::new(), &setup, Some(&mut keep), &|| false).unwrap();
    simulate(&setup, &mut packets);
    let bytes = packets.finish().unwrap();
    let file = CaptureFile::read(preset, Box::new(std::io::Cursor::new(bytes))).unwrap();
    let options = Options { modes: false, ..Options::default() };
    let inputs = vec![Input { file, place: None }];
    let result = Analysis::run(inputs, &options, None, &mut |_| (), &|| false).unwrap();
    (result, ops)
}

/// The ledger's time in some parts, microseconds.
fn ledger_us(ops: &[SimOp], parts: &[Part]) -> f64 {
    let of = |op: &SimOp| {
        parts.iter().map(|&part| op.request[part as usize] + op.response[part as usize]).sum::<u64>()
    };
    ops.iter().map(of).sum::<u64>() as f64 / 1000.0
}

/// The time of all operations as their user sees it, microseconds.
fn seen_us(ops: &[SimOp]) -> f64 {
    let of = |op: &Op| op.finish.since(op.start).unwrap();
    ops.iter().map(|op| of(&op.op)).sum::<i64>() as f64 / 1000.0
}

#[track_caller]
fn within(what: &str, found: f64, truth: f64, error: f64) {
    assert!((found - truth).abs() <= error * truth.abs(), "{what}: {found} for {truth}");
}

/// The sum over the verdicts and the rest is the excess.
#[track_caller]
fn closes(result: &AnalysisResult) {
    let all = result.excess;
    let sum: f64 = result.verdicts.iter().chain(&result.minor).map(|verdict| verdict.cost_us).sum();
    within("the sum", sum + all.unexplained_us, all.excess_us, 1e-9);
    within("the parts", all.verdicts_us + all.minor_us, sum, 1e-9);
    assert!(all.excess_us <= all.operations_us && all.unexplained_us >= 0.0, "{all:?}");
}

/// A program that writes its body late: the packets do not show how much of the wait for it was the program's.
#[test]
fn a_body_written_late_counts_as_held_from_the_header_on() {
    let (result, ops) = run("post", &[]);
    let (gap_us, count) = (2508.0, ops.len() as f64);
    let verdict = &result.verdicts[0];
    assert_eq!(verdict.kind, VerdictKind::HeaderBodyApart);
    within("held", verdict.cost_us, ledger_us(&ops, &[Part::Nagle]) + gap_us * count, 0.01);
}

/// Waits for which the packets name the cause: Nagle's algorithm and corks, of either side, within 1 %.
#[test]
fn lost_time_is_that_of_the_simulated_cause() {
    for (preset, settings, kind, part) in [
        ("two-sends", &[][..], VerdictKind::HeaderBodyApart, Part::Nagle),
        ("two-sends", &["response.data=4k"], VerdictKind::HeaderBodyApart, Part::Nagle),
        ("windows-client", &[], VerdictKind::HeaderBodyApart, Part::Nagle),
        ("post-linux", &[], VerdictKind::HeaderBodyApart, Part::Nagle),
        ("more-broken", &[], VerdictKind::UnfinishedCork, Part::Cork),
        ("cork-broken", &[], VerdictKind::UnfinishedCork, Part::Cork),
    ] {
        let (result, ops) = run(preset, settings);
        let what = format!("{preset} {settings:?}");
        let verdict = &result.verdicts[0];
        assert_eq!(verdict.kind, kind, "{what}");
        within(&what, verdict.cost_us, ledger_us(&ops, &[part]), 0.01);
        let affected = |op: &&SimOp| op.request[part as usize] + op.response[part as usize] >= 20_000_000;
        let affected = ops.iter().filter(affected).count() as u64;
        assert!(verdict.operations.abs_diff(affected) <= 1, "{what}: {} of {affected}", verdict.operations);
        within(&format!("{what}: all"), result.excess.operations_us, seen_us(&ops), 0.01);
        within(&format!("{what}: excess"), result.excess.excess_us, ledger_us(&ops, &[part]), 0.01);
        closes(&result);
    }
}

/// A server that takes 3 ms: 1 ms of each operation is normal, the rest is lost. The ledger has its work.
#[test]
fn lost_time_of_a_slow_server_is_its_work_beyond_the_allowance() {
    let (result, ops) = run("", &["server.service=3ms", "disturbed=0.0", "queue-depth=1"]);
    let verdict = &result.verdicts[0];
    assert_eq!(verdict.kind, VerdictKind::SlowTarget);
    within("operations", verdict.operations as f64, ops.len() as f64, 0.01);
    let served = ledger_us(&ops, &[Part::Work, Part::Queue]);
    within("lost", verdict.cost_us, served - 1000.0 * ops.len() as f64, 0.05);
    closes(&result);
}

/// Four operations at a time before a server that takes them one after the other: what is lost is their time in its queue.
#[test]
fn lost_time_of_a_saturated_server_is_that_in_its_queue() {
    let (result, ops) = run("", &["server.service=3ms", "disturbed=0.0", "queue-depth=4"]);
    let verdict = &result.verdicts[0];
    assert_eq!(verdict.kind, VerdictKind::Saturated, "{verdict:#?}");
    assert!(verdict.text.contains("one at a time"), "{}", verdict.text);
    let served = ledger_us(&ops, &[Part::Work, Part::Queue]);
    within("lost", verdict.cost_us, served - 3000.0 * ops.len() as f64, 0.05);
    closes(&result);
}

/// Lost segments: what the ledger has for them, and for what waited behind them (tests/lost_packets.rs has more).
#[test]
fn lost_time_of_retransmissions_is_that_of_lost_segments() {
    let (result, ops) = run("lossy", &["queue-depth=1", "disturbed=0.0", "wire.loss=0.03"]);
    let verdict = &result.verdicts[0];
    assert_eq!(verdict.kind, VerdictKind::Retransmission);
    within("lost", verdict.cost_us, ledger_us(&ops, &[Part::Lost, Part::Congestion]), 0.03);
    within("all", result.excess.operations_us, seen_us(&ops), 0.01);
    closes(&result);
}

/// A ring without trouble: nothing is attributed, whatever the depth, and the account closes.
#[test]
fn a_ring_without_trouble_loses_nothing() {
    for settings in [
        &["disturbed=0.0"][..],
        &["disturbed=0.0", "queue-depth=32"],
        &["disturbed=0.0", "response.data=64k"],
    ] {
        let (result, _) = run("seed-512", settings);
        assert!(result.verdicts.is_empty(), "{settings:?}: {:#?}", result.verdicts);
        assert!(result.excess.verdicts_us == 0.0 && result.excess.operations_us > 0.0);
        closes(&result);
    }
}

/// A connection's time and exchanges in flight are those of the simulated operations between its capture points.
#[test]
fn a_connection_has_the_time_and_the_depth_of_its_operations() {
    let (result, ops) = run("seed-512", &["disturbed=0.0", "queue-depth=4", "sessions=1"]);
    let [row] = &result.connections[..] else { panic!("{:#?}", result.connections) };
    let times = |of: fn(&Op) -> Option<i64>| ops.iter().filter_map(move |op| of(&op.op));
    let seen_us = times(|op| op.c2.since(op.c1)).sum::<i64>() as f64 / 1000.0;
    within("in flight", row.in_flight * row.seconds * 1e6, seen_us, 0.01);
    let first = ops.iter().map(|op| op.op.start).min().unwrap();
    let last = ops.iter().map(|op| op.op.finish).max().unwrap();
    within("seconds", row.seconds, last.since(first).unwrap() as f64 / 1e9, 0.05);
    // The capture may see the end of operations that the simulation no longer waits for.
    assert!(row.operations.abs_diff(ops.len() as u64) <= 4, "{row:?}");
    // The simulation captures at both ends: each packet counts once here and in the sums, twice among the frames.
    assert_eq!((row.packets, row.bytes), (result.packets, result.bytes));
    within("frames", result.frames.packets as f64, 2.0 * result.packets as f64, 0.01);
    assert_eq!(row.retransmitted, (0, 0));
    assert!(row.handshake_us.unwrap() > 0.0, "{row:?}");
}

#[test]
fn connections_beyond_the_list_are_counted() {
    let (result, _) = run("seed-512", &["disturbed=0.0", "queue-depth=1", "sessions=120"]);
    assert_eq!((result.connections.len(), result.connections_not_listed), (100, 20));
    let by_connection = Shown { detail: Some(Detail::Connection), ..Shown::default() };
    let text = report::analysis_text::analysis(&result, by_connection);
    assert!(
        text.lines().any(|line| line.trim().starts_with("and ") && line.trim().ends_with(" more")),
        "{text}"
    );
}

/// The numbers of a line that begins with a word, and of the lines that it goes on in, which are indented further.
#[track_caller]
fn numbers(text: &str, label: &str) -> Vec<f64> {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let mut lines = text.lines().skip_while(|line| !line.trim_start().starts_with(label));
    let first = lines.next().unwrap_or_else(|| panic!("{label}: {text}"));
    let line: String =
        std::iter::once(first).chain(lines.take_while(|line| indent(line) > indent(first))).collect();
    line.split(|c: char| !c.is_ascii_digit() && c != '.')
        .filter_map(|word| word.trim_matches('.').parse().ok())
        .collect()
}

/// What has no verdict is not called light, however long it lasts.
#[test]
fn notes_are_noted_and_light_verdicts_have_their_weight() {
    let (mut result, _) = run("two-sends", &[]);
    let verdict = result.verdicts[0].clone();
    let text = |result: &analyzer::AnalysisResult| report::analysis_text::analysis(result, Shown::default());
    result.minor = vec![analysis::verdict::Verdict { weight: 0.0, ..verdict.clone() }];
    assert!(text(&result).contains("- noted, no verdict: ") && !text(&result).contains("- of little weight"));
    result.minor = vec![analysis::verdict::Verdict { weight: 0.013, ..verdict }];
    // Requests that nobody answered are part of the answer.
    let first = |result: &analyzer::AnalysisResult| text(result).split("\n\n").next().unwrap().to_owned();
    assert!(!first(&result).contains("without a response"), "{}", first(&result));
    result.unanswered = result.operations / 2;
    assert!(
        first(&result).contains(" (33.") && first(&result).contains("without a response"),
        "{}",
        first(&result)
    );
    assert!(text(&result).contains("- of little weight (1.3 % of the operations' time): "));
}

/// The report prints the account of the JSON: verdicts and rest are the excess.
#[test]
fn the_report_prints_the_account() {
    let (result, _) = run("two-sends", &[]);
    let by_connection = Shown { detail: Some(Detail::Connection), explain: true, ..Shown::default() };
    let text = report::analysis_text::analysis(&result, by_connection);
    let verdict = &result.verdicts[0];
    let concerns = numbers(&text, "concerns");
    assert_eq!(concerns[0], verdict.operations as f64, "{text}");
    assert!(
        (concerns[1] - verdict.share * 100.0).abs() < 0.06
            && (concerns[2] - verdict.cost_us / 1e6).abs() < 0.0006
    );
    let [all, excess, cost, _, rest] = numbers(&text, "Excess:")[..] else { panic!("{text}") };
    assert!((cost + rest - excess).abs() < 3e-6 && excess <= all, "{text}");
    for (printed, us) in [
        (all, result.excess.operations_us),
        (excess, result.excess.excess_us),
        (rest, result.excess.unexplained_us),
    ] {
        assert!((printed - us / 1e6).abs() < 1e-6, "{printed} {us}");
    }
    let whole = result.stanzas[0].part(analysis::Part::Whole).unwrap();
    assert!(text.contains(&format!("{:.1}", whole.p99_us)), "p99 is that of the whole: {text}");
}

/// A server with many connections has one line of structure, that of the stanza with the most operations.
#[test]
fn structure_is_one_line_for_each_service() {
    let (mut result, _) = run("seed-512", &["disturbed=0.0"]);
    let row = |service: u32, connection: u32| ModeRow {
        connection: Some(connection),
        service: Some(format!("10.0.0.{service}:3260")),
        operation: "read(10)".into(),
        direction: record::OpKind::Read,
        block_size_bytes: 512.0,
        stanza_operations: 1000 + u64::from(connection),
        finding: Finding {
            kind: FindingKind::EveryNth { n: 3, longer_us: 100.0 },
            segment: analysis::Part::Server,
            operations: 1000,
            text: format!("finding {connection}"),
        },
    };
    result.modes = (0..20).flat_map(|connection| [row(1, connection), row(2, 100 + connection)]).collect();
    let text = report::analysis_text::analysis(&result, Shown::default());
    let unwrapped = text.replace("\n  ", " ");
    let lines: Vec<&str> =
        unwrapped.lines().filter(|line| line.contains("finding ") || line.contains("Structure")).collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].contains("10.0.0.1:3260") && lines[0].contains("finding 19 (19 more in other stanzas"),
        "{text}"
    );
    assert!(lines[1].contains("10.0.0.2:3260") && lines[1].contains("finding 119"), "{text}");
}
