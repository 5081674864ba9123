//! The runs of `bench`.

use load::RunResult;
use output::text::line;
use page::{Axis, Cell, Chart, Column, Line, Mark, Part, Report, Row, Table, Unit};

use crate::bench_text::sentences;
use crate::terminal::{block, failures, thousands};

/// The report.
pub(super) fn report(url: &str, runs: &[RunResult], unit: Unit) -> Report {
    let mut report = Report {
        heading: format!("Load on {}", line(url)),
        answer: sentences(runs),
        terms: super::terms::percentiles(),
        ..Report::default()
    };
    if let Some(first) = runs.first() {
        let sessions = record::units::counted(u64::from(first.sessions), "session");
        report.place.push(format!("{sessions}; {:.1} s for each run", first.seconds));
    }
    let has_depths = runs.iter().any(|run| run.queue_depth != runs[0].queue_depth);
    if has_depths {
        report.add(
            "What does queue depth give, and what does it cost?",
            vec![
                Part::Chart(by_depth(runs, "Operations a second", "operations a second", |run| {
                    Some(run.iops)
                })),
                Part::Chart(by_depth(
                    runs,
                    "Time of half of the operations",
                    &format!("p50, {}", unit.sign()),
                    |run| Some(unit.value(run.latency_us.p50)).filter(|value| *value > 0.0),
                )),
            ],
        );
    }
    let rates: Vec<&RunResult> = runs.iter().filter(|run| run.rate.is_some()).collect();
    if rates.len() > 1 {
        let chart = |title: &str, label: String, of: &dyn Fn(&RunResult) -> f64| {
            let mut points: Vec<(f64, f64)> =
                rates.iter().map(|run| (run.rate.unwrap_or(0.0), of(run))).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Part::Chart(Chart {
                title: title.to_owned(),
                x: Axis {
                    label: "operations a second that were asked for".to_owned(),
                    is_logarithmic: false,
                },
                y: Axis { label, is_logarithmic: false },
                lines: vec![Line::new("runs", points)],
                heat: None,
            })
        };
        report.add(
            "Which rate does it keep, and what does that cost?",
            vec![
                chart("Operations a second", "operations a second".to_owned(), &|run| run.iops),
                chart("99 % of them within", format!("p99, {}", unit.sign()), &|run| {
                    unit.value(run.latency_us.p99)
                }),
            ],
        );
    }
    distribution(runs, unit, &mut report);
    over_time(runs, unit, &mut report);
    report.add("The figures", vec![Part::Table(table(runs, unit))]);
    let troubles: Vec<String> = runs
        .iter()
        .map(failures)
        .filter(|text| !text.is_empty())
        .flat_map(|text| text.lines().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    report.add("What failed?", super::notes(&troubles));
    report
}

/// What a run is called among the others.
fn called(run: &RunResult) -> String {
    let rate = run.rate.map_or_else(String::new, |rate| format!(", {} a second", thousands(rate)));
    format!("{} {}, QD {}{rate}", run.rw.name(), block(run), run.queue_depth)
}

fn by_depth(runs: &[RunResult], title: &str, label: &str, of: impl Fn(&RunResult) -> Option<f64>) -> Chart {
    let mut lines: Vec<Line> = Vec::new();
    for run in runs {
        let rate = run.rate.map_or_else(String::new, |rate| format!(", {} a second", thousands(rate)));
        let name = format!("{} {}{rate}", run.rw.name(), block(run));
        let Some(value) = of(run) else { continue };
        let at = match lines.iter().position(|line| line.name == name) {
            Some(at) => at,
            None => {
                lines.push(Line { name, ..Line::default() });
                lines.len() - 1
            }
        };
        lines[at].x.push(f64::from(run.queue_depth));
        lines[at].y.push(Some(value));
    }
    lines.iter_mut().for_each(ascending);
    Chart {
        title: title.to_owned(),
        x: Axis { label: "queue depth".to_owned(), is_logarithmic: true },
        y: Axis { label: label.to_owned(), is_logarithmic: false },
        lines,
        heat: None,
    }
}

/// Depths as they were asked for need not ascend.
fn ascending(line: &mut Line) {
    let mut points: Vec<(f64, Option<f64>)> = line.x.iter().copied().zip(line.y.iter().copied()).collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    (line.x, line.y) = points.into_iter().unzip();
}

fn distribution(runs: &[RunResult], unit: Unit, report: &mut Report) {
    let of = |run: &RunResult| {
        let all: u64 = run.histogram.iter().map(|bin| bin.count).sum();
        let mut below = 0;
        let points = run.histogram.iter().map(|bin| {
            below += bin.count;
            (unit.value(bin.up_to_ns as f64 / 1e3), below as f64 / all.max(1) as f64 * 100.0)
        });
        Line::new(called(run), points.collect::<Vec<_>>())
    };
    let chart = Chart {
        title: "How are the times distributed?".to_owned(),
        x: Axis { label: format!("time, {}", unit.sign()), is_logarithmic: true },
        y: Axis { label: "operations that took no longer, %".to_owned(), is_logarithmic: false },
        lines: runs.iter().filter(|run| !run.histogram.is_empty()).take(8).map(of).collect(),
        heat: None,
    };
    if !chart.is_empty() {
        report.add("How are the times distributed?", vec![Part::Chart(chart)]);
    }
}

/// The seconds that are whole: a run may end within one.
fn whole(run: &RunResult) -> impl Iterator<Item = &load::Second> {
    run.series.iter().filter(|second| f64::from(second.at_seconds) + 1.0 <= run.seconds + 0.01)
}

fn over_time(runs: &[RunResult], unit: Unit, report: &mut Report) {
    let chart = |title: &str, label: String, of: &dyn Fn(&load::Second) -> f64| {
        let line = |run: &RunResult| {
            let points = whole(run).map(|second| (f64::from(second.at_seconds), of(second)));
            Line::new(called(run), points.collect::<Vec<_>>())
        };
        Chart {
            title: title.to_owned(),
            x: Axis { label: "time since the beginning, s".to_owned(), is_logarithmic: false },
            y: Axis { label, is_logarithmic: false },
            lines: runs.iter().filter(|run| whole(run).count() > 1).take(8).map(line).collect(),
            heat: None,
        }
    };
    let rate =
        chart("Operations in each second", "operations".to_owned(), &|second| second.operations as f64);
    if rate.is_empty() {
        return;
    }
    let mean =
        chart("Their mean time", format!("time, {}", unit.sign()), &|second| unit.value(second.mean_us));
    report.add("What happened over time?", vec![Part::Chart(rate), Part::Chart(mean)]);
}

fn table(runs: &[RunResult], unit: Unit) -> Table {
    let rows = runs.iter().enumerate().map(|(index, run)| {
        let at = |key: &str| format!("/runs/{index}/{key}");
        let time = |us: f64, key: &str| Cell::at(unit.text(us), at(&format!("latency_us/{key}")));
        let l = &run.latency_us;
        let errors = Cell::at(run.errors.to_string(), at("errors"));
        Row::from_iter([
            run.rw.name().into(),
            Cell::from(block(run)),
            Cell::at(run.queue_depth.to_string(), at("queue_depth")),
            run.rate.map_or_else(Cell::default, |rate| Cell::at(thousands(rate), at("rate"))),
            Cell::at(thousands(run.iops), at("iops")),
            Cell::from(format!("{:.1}", run.bytes_per_second / 1e6)),
            time(l.mean, "mean"),
            time(l.p50, "p50"),
            time(l.p99, "p99"),
            time(l.p999, "p999"),
            time(l.max, "max"),
            if run.errors > 0 { errors.marked(Mark::Bad) } else { errors },
        ])
    });
    let number = ["QD", "asked for", "IOPS", "MB/s", "mean", "p50", "p99", "p99.9", "max", "errors"]
        .map(Column::number);
    let mut columns = vec![Column::text("rw"), Column::number("block")];
    columns.extend(number);
    Table { caption: format!("Each run; times in {}", unit.sign()), columns, rows: rows.collect() }
        .without_empty()
}
