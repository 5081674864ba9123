//! Operations over time: how their times are distributed, and when.

use compare::profile::Series;
use compare::{OTHERS, Profile};
use page::{Axis, Chart, Column, Heat, HeatCell, Line, Part, Report, Row, Table, Unit};

use crate::terminal::thousands;

/// Services whose operations have charts of their own.
const SERIES_SHOWN: usize = 4;

/// Columns of a heat map, and points of a line.
const COLUMNS: u64 = 160;

/// Rows of a heat map.
const ROWS: usize = 44;

/// Points of a distribution.
const POINTS: usize = 240;

/// The report of what was kept.
pub(super) fn report(profile: &Profile, unit: Unit) -> Report {
    let operations = profile.operations();
    let mut report = Report {
        heading: format!("{}: operations over time", profile.source),
        place: vec![format!("{:.3} s; {} operations", profile.seconds(), thousands(operations as f64))],
        terms: super::terms::percentiles(),
        ..Report::default()
    };
    for cause in &profile.causes {
        report.answer.push(format!("{}: {}", cause.name, cause.text));
    }
    if report.answer.is_empty() {
        report.answer.push("Nothing was found that made these operations slow.".to_owned());
    }
    charts(&[("", profile)], &mut report, unit);
    report.add("The services", vec![Part::Table(table(profile, unit))]);
    report
}

/// The medians of the series, microseconds.
pub(super) fn medians_us(profile: &Profile) -> Vec<f64> {
    profile.series.iter().filter_map(|series| series.quantile(0.5)).map(|ns| ns as f64 / 1e3).collect()
}

/// What a series is called.
fn name(series: &Series) -> String {
    if series.service == OTHERS {
        return "others".to_owned();
    }
    format!("{} at {}", series.operation, series.service)
}

fn table(profile: &Profile, unit: Unit) -> Table {
    let us = |ns: Option<u64>| ns.map_or_else(|| "-".to_owned(), |ns| unit.text(ns as f64 / 1e3));
    let rows = by_time(profile).into_iter().map(|series| {
        [
            series.service.clone(),
            series.operation.clone(),
            thousands(series.operations() as f64),
            us(series.quantile(0.5)),
            us(series.quantile(0.99)),
        ]
        .into_iter()
        .collect::<Row>()
    });
    Table {
        caption: format!("Each kind of operation; times in {}", unit.sign()),
        columns: vec![
            Column::text("service"),
            Column::text("operation"),
            Column::number("operations"),
            Column::number("p50"),
            Column::number("p99"),
        ],
        rows: rows.collect(),
    }
}

/// The series, the one with the most time first.
fn by_time(profile: &Profile) -> Vec<&Series> {
    let mut all: Vec<&Series> = profile.series.iter().collect();
    all.sort_by(|a, b| b.total_ns().total_cmp(&a.total_ns()));
    all
}

/// Adds the charts of one profile, or of two, each with what its names begin with.
pub(super) fn charts(profiles: &[(&str, &Profile)], report: &mut Report, unit: Unit) {
    let labelled = |label: &str, of: String| if label.is_empty() { of } else { format!("{label}: {of}") };
    let mut distribution = Chart {
        title: "How are the times distributed?".to_owned(),
        x: Axis { label: format!("time, {}", unit.sign()), is_logarithmic: true },
        y: Axis { label: "operations that took no longer, %".to_owned(), is_logarithmic: false },
        ..Chart::default()
    };
    let mut rates = Chart {
        title: "How many operations ended when?".to_owned(),
        x: Axis { label: "time since the beginning, s".to_owned(), is_logarithmic: false },
        y: Axis { label: "operations a second".to_owned(), is_logarithmic: false },
        ..Chart::default()
    };
    let mut heats = Vec::new();
    for (label, profile) in profiles {
        for series in by_time(profile).into_iter().take(SERIES_SHOWN) {
            let called = labelled(label, name(series));
            distribution.lines.push(Line::new(called.clone(), cumulative(series, unit)));
            rates.lines.push(Line::new(called.clone(), over_time(profile, series)));
            if let Some(heat) = heat(profile, series, unit) {
                heats.push(Part::Chart(Chart {
                    title: format!("When did which times occur? {called}"),
                    x: rates.x.clone(),
                    y: Axis { label: format!("time, {}", unit.sign()), is_logarithmic: true },
                    lines: percentiles(profile, series, unit),
                    heat: Some(heat),
                }));
            }
        }
    }
    if !distribution.is_empty() {
        report.add("How are the times distributed?", vec![Part::Chart(distribution)]);
    }
    let mut parts = vec![Part::Chart(rates)];
    parts.extend(heats);
    report.add("What happened over time?", parts);
}

/// The share of operations that took no longer, by time.
fn cumulative(series: &Series, unit: Unit) -> Vec<(f64, f64)> {
    let times = series.times();
    let all: u64 = times.values().sum();
    let step = times.len().div_ceil(POINTS).max(1);
    let mut below = 0;
    let mut points = Vec::new();
    for (index, (ns, count)) in times.iter().enumerate() {
        below += count;
        if index % step == 0 || below == all {
            points.push((unit.value(*ns as f64 / 1e3), below as f64 / all.max(1) as f64 * 100.0));
        }
    }
    points
}

/// How many blocks are put together.
fn together(profile: &Profile) -> u64 {
    profile.blocks.div_ceil(COLUMNS).max(1)
}

/// The rate over time; where nothing ended it is zero. The last block, which ends with the measurement, is left out.
fn over_time(profile: &Profile, series: &Series) -> Vec<(f64, f64)> {
    let step = together(profile);
    let block = profile.block_ns as f64 / 1e9;
    let groups = profile.whole_blocks() / step;
    (0..groups)
        .map(|group| {
            let numbers = group * step..(group + 1) * step;
            let count: u64 = series.blocks.range(numbers).map(|(_, block)| block.operations).sum();
            let at = (group as f64 + 0.5) * step as f64 * block;
            (at, count as f64 / (step as f64 * block))
        })
        .collect()
}

/// The ends of `rows` rows from the least to the greatest time, each as much longer than the one before, nanoseconds.
fn row_ends(least: f64, greatest: f64) -> Vec<f64> {
    let (low, high) = (least * 0.95, greatest * 1.05);
    (0..=ROWS).map(|row| low * (high / low).powf(row as f64 / ROWS as f64)).collect()
}

/// The counts by time of the measurement and time of the operations, where the profile has both.
fn heat(profile: &Profile, series: &Series, unit: Unit) -> Option<Heat> {
    let times = || series.blocks.values().flat_map(|block| block.times.keys());
    let (least, greatest) = (*times().min()? as f64, *times().max()? as f64);
    let ends = row_ends(least, greatest);
    let step = together(profile);
    let mut counts = std::collections::BTreeMap::<(usize, usize), u64>::new();
    for (number, block) in &series.blocks {
        for (ns, count) in &block.times {
            let row = ends.partition_point(|end| *end <= *ns as f64).saturating_sub(1).min(ROWS - 1);
            *counts.entry(((number / step) as usize, row)).or_default() += count;
        }
    }
    let block = profile.block_ns as f64 / 1e9;
    let columns = profile.blocks.div_ceil(step);
    Some(Heat {
        x: (0..=columns).map(|column| (column * step) as f64 * block).collect(),
        y: ends.iter().map(|ns| unit.value(ns / 1e3)).collect(),
        cells: counts.into_iter().map(|((column, row), count)| HeatCell(column, row, count)).collect(),
        of: "operations".to_owned(),
    })
}

/// Percentiles over time.
fn percentiles(profile: &Profile, series: &Series, unit: Unit) -> Vec<Line> {
    let step = together(profile);
    let block = profile.block_ns as f64 / 1e9;
    let (groups, _) = series.groups(profile.blocks, profile.blocks / step);
    [("p50", 0.5), ("p99", 0.99)]
        .into_iter()
        .map(|(name, share)| {
            let points = groups.iter().enumerate().filter_map(|(number, group)| {
                let ns = group.quantile(share)?;
                Some(((number as f64 + 0.5) * step as f64 * block, unit.value(ns as f64 / 1e3)))
            });
            Line::new(name, points)
        })
        .collect()
}
