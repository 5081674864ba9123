//! The runs of `bench` in 80 columns, the answer first.

use std::fmt::Write as _;

use load::{KindResult, RunResult};
use output::text::{COLUMNS, wrapped};
use record::latency::LatencyFigures;
use record::units::counted;

use crate::terminal::{block, kind_name, thousands};

/// The runs: a sentence for the one, or for those that matter among several, and a table.
#[must_use]
pub fn runs(runs: &[RunResult]) -> String {
    let mut out: String = sentences(runs).into_iter().map(|sentence| wrapped(sentence, "  ")).collect();
    let _ = write!(
        out,
        "\n{:<12}{:>6}{:>5}{:>9}{:>8}{:>8}{:>8}{:>9}{:>9}{:>6}\n{}",
        "rw",
        "block",
        "QD",
        "IOPS",
        "MB/s",
        "p50 us",
        "p99",
        "p99.9",
        "max",
        "errs",
        "─".repeat(COLUMNS)
    );
    for run in runs {
        // A split of sizes is told above.
        let size = Some(block(run)).filter(|size| size.len() <= 6).unwrap_or_else(|| "mixed".to_owned());
        let depth = run.queue_depth.to_string();
        row(
            run.rw.name(),
            &size,
            &depth,
            (run.iops, run.bytes_per_second),
            &run.latency_us,
            run.errors,
            &mut out,
        );
        let kinds: &[KindResult] = if run.kinds.len() > 1 { &run.kinds } else { &[] };
        for kind in kinds {
            let rates = (kind.iops, kind.bytes_per_second);
            row(kind_name(kind.kind), "", "", rates, &kind.latency_us, kind.errors, &mut out);
        }
    }
    out
}

fn row(
    name: &str,
    size: &str,
    depth: &str,
    (iops, bytes_per_second): (f64, f64),
    latency: &LatencyFigures,
    errors: u64,
    out: &mut String,
) {
    let megabytes = bytes_per_second / 1e6;
    let megabytes = if megabytes < 9_999.95 { format!("{megabytes:.1}") } else { format!("{megabytes:.0}") };
    let [p50, p99, p999, max] = [latency.p50, latency.p99, latency.p999, latency.max].map(short);
    let errors = if errors < 100_000 { errors.to_string() } else { format!("{}k", errors / 1000) };
    let _ = write!(
        out,
        "\n{name:<12}{size:>6}{depth:>5}{:>9}{megabytes:>8}{p50:>8}{p99:>8}{p999:>9}{max:>9}{errors:>6}",
        thousands(iops)
    );
}

/// Microseconds in at most seven characters.
fn short(us: f64) -> String {
    match us {
        us if us < 999.95 => format!("{us:.1}"),
        us if us < 999_999.5 => thousands(us),
        us if us < 99_999_999.5 => format!("{:.1} s", us / 1e6),
        us => format!("{:.0} s", us / 1e6),
    }
}

/// What the runs say: of the one with the most operations a second, and of the quickest.
pub(crate) fn sentences(runs: &[RunResult]) -> Vec<String> {
    let done: Vec<&RunResult> = runs.iter().filter(|run| run.operations > 0).collect();
    let most = done.iter().max_by(|a, b| a.iops.total_cmp(&b.iops));
    let Some(most) = most else {
        return vec!["No operation succeeded in the measured time.".to_owned()];
    };
    let quickest = done.iter().min_by(|a, b| a.latency_us.p50.total_cmp(&b.latency_us.p50));
    let mut out = vec![sentence(most)];
    if let Some(quickest) = quickest.filter(|quickest| !std::ptr::eq(**quickest, *most)) {
        out.push(format!("Quickest: {}", sentence(quickest)));
    }
    out
}

fn sentence(run: &RunResult) -> String {
    let l = &run.latency_us;
    let mut text = format!(
        "{} {} at queue depth {}: {} a second, {:.1} MB/s; half of them within {} us, 99 % within {} us",
        run.rw.name(),
        block(run),
        run.queue_depth,
        thousands(run.iops),
        run.bytes_per_second / 1e6,
        short(l.p50),
        short(l.p99),
    );
    if let Some(rate) = run.rate {
        let behind = run.behind.filter(|behind| *behind > 0);
        let behind = behind.map_or_else(String::new, |behind| {
            format!(", of which {} had not begun", thousands(behind as f64))
        });
        let _ = write!(text, "; {} a second were asked for{behind}", thousands(rate));
    }
    if run.errors > 0 {
        let _ = write!(text, "; {} failed", counted(run.errors, "operation"));
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(depth: u32, iops: f64, p50: f64) -> RunResult {
        RunResult {
            queue_depth: depth,
            iops,
            bytes_per_second: iops * 4096.0,
            block_size_bytes: 4096,
            operations: 10,
            latency_us: LatencyFigures {
                p50,
                p99: p50 * 3.0,
                p999: 1234.5,
                max: 2.5e6,
                ..LatencyFigures::default()
            },
            ..RunResult::default()
        }
    }

    #[test]
    fn the_answer_is_first_and_lines_fit() {
        let mut slow = run(128, 161_385.0, 700.0);
        (slow.errors, slow.rate, slow.behind) = (7, Some(200_000.0), Some(15));
        let text = runs(&[run(1, 13_039.0, 76.4), slow]);
        let first = text.split("\n\n").next().unwrap().replace("\n  ", " ");
        for part in [
            "4k at queue depth 128: 161 385 a second",
            "half of them within 700.0 us",
            "200 000 a second were asked for, of which 15 had not begun; 7 operations failed.",
            "Quickest: ",
            "queue depth 1: 13 039 a second",
        ] {
            assert!(first.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let row = text.lines().last().unwrap();
        for part in ["161 385", "2 100", "1 235", "2.5 s"] {
            assert!(row.contains(part), "{part}: {row}");
        }
    }

    #[test]
    fn huge_figures_stay_in_their_columns() {
        let mut huge = run(65_536, 99_999_999.0, 5e7);
        (huge.errors, huge.bytes_per_second) = (12_345_678, 1e12);
        let text = runs(&[huge]);
        assert!(text.lines().all(|line| line.chars().count() <= 84), "{text}");
        let columns = text.lines().last().unwrap().split("  ").filter(|part| !part.trim().is_empty());
        assert!(columns.count() >= 6, "{text}");
    }

    #[test]
    fn nothing_done_is_said() {
        let none = RunResult { errors: 3, ..RunResult::default() };
        assert!(runs(&[none]).starts_with("No operation succeeded"));
    }
}
