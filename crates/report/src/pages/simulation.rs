//! Simulated runs.

use std::collections::BTreeMap;

use page::{Axis, Cell, Chart, Column, Line, Part, Report, Ring, Row, Stage, Table, Unit, Where};
use record::latency::LatencyFigures;
use serde::Deserialize;

use crate::study_text::size;
use crate::terminal::thousands;

/// What `simulate --json` writes.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SimulatedRuns {
    /// The runs.
    pub runs: Vec<SimulatedRun>,
    /// The swept values of each, empty where there are none.
    #[serde(default)]
    pub swept: Vec<String>,
}

/// A run.
#[derive(Clone, Debug, Default, Deserialize)]
pub struct SimulatedRun {
    /// Requests in flight.
    pub queue_depth: u32,
    /// Bytes of an operation's data.
    pub block_size_bytes: u64,
    /// The server's send policy.
    pub policy: String,
    /// Operations that ended.
    pub operations: u64,
    /// Those a second.
    pub iops: f64,
    /// Their times.
    pub rtt_us: LatencyFigures,
    /// Means of the request's stages, microseconds.
    #[serde(default)]
    pub request_us: BTreeMap<String, f64>,
    /// Means of the response's stages, microseconds.
    #[serde(default)]
    pub response_us: BTreeMap<String, f64>,
    /// Time that an operation waits by the rules of TCP, by rule, microseconds.
    #[serde(default)]
    pub stalls_us: BTreeMap<String, f64>,
}

/// Rings that are shown.
const RINGS: usize = 6;

/// The report.
pub(super) fn report(all: &SimulatedRuns, unit: Unit) -> Report {
    let mut report = Report {
        heading: "A simulated ring".to_owned(),
        answer: all.answers(unit),
        place: vec!["Simulated: no packet was sent, and the same seed gives the same figures.".to_owned()],
        terms: terms(),
        ..Report::default()
    };
    let done = all.runs.iter().enumerate().filter(|(_, run)| run.operations > 0);
    let mut rings =
        done.take(RINGS).map(|(index, run)| Part::Ring(ring(index, run, &all.swept(index), unit)));
    let mut parts: Vec<Part> = rings.next().into_iter().collect();
    let others: Vec<Part> = rings.collect();
    if !others.is_empty() {
        parts.push(Part::fold(format!("{} more runs", others.len()), others));
    }
    report.add("Where does the time go?", parts);
    curves(all, unit, &mut report);
    report.add("The figures", vec![Part::Table(table(all, unit))]);
    report
}

impl SimulatedRuns {
    /// What the runs say: of the one with the most operations a second.
    #[must_use]
    pub fn answers(&self, unit: Unit) -> Vec<String> {
        let done = self.runs.iter().enumerate().filter(|(_, run)| run.operations > 0);
        let Some((index, most)) = done.max_by(|a, b| a.1.iops.total_cmp(&b.1.iops)) else {
            return vec!["No operation ended in the simulated time.".to_owned()];
        };
        let mut out = vec![format!(
            "{} with {} at queue depth {}{}: {} a second, half of them within {} {}.",
            size(most.block_size_bytes),
            most.policy,
            most.queue_depth,
            self.swept(index),
            super::rate(most.iops),
            unit.text(most.rtt_us.p50),
            unit.sign()
        )];
        out.extend(most.longest(unit));
        out
    }
}

impl SimulatedRuns {
    /// The swept values of a run, behind its name.
    fn swept(&self, index: usize) -> String {
        let label = self.swept.get(index).filter(|label| !label.is_empty());
        label.map_or_else(String::new, |label| format!(", {label}"))
    }
}

impl SimulatedRun {
    /// The stage with the most time.
    fn longest(&self, unit: Unit) -> Option<String> {
        let request = self.request_us.iter().map(|(name, us)| ("request", name, *us));
        let response = self.response_us.iter().map(|(name, us)| ("response", name, *us));
        let (way, name, us) = request.chain(response).max_by(|a, b| a.2.total_cmp(&b.2))?;
        let share = us / self.rtt_us.mean * 100.0;
        let (text, sign) = (unit.text(us), unit.sign());
        Some(format!(
            "The longest stage there is the {way}'s {name}: {text} {sign}, {share:.0} % of the mean."
        ))
    }
}

/// The stages in the order in which they are passed.
const STAGES: [(&str, Where); 20] = [
    ("work", Where::Client),
    ("gather", Where::Client),
    ("send", Where::Client),
    ("buffer", Where::Client),
    ("nagle", Where::Client),
    ("cork", Where::Client),
    ("congestion", Where::Client),
    ("window", Where::Client),
    ("device", Where::Client),
    ("transmit", Where::Client),
    ("wire_start", Where::Wire),
    ("wire_queue", Where::Wire),
    ("wire", Where::Wire),
    ("delay", Where::Wire),
    ("lost", Where::Wire),
    ("interrupt", Where::Server),
    ("softirq", Where::Server),
    ("start", Where::Server),
    ("queue", Where::Server),
    ("take", Where::Server),
];

fn ring(index: usize, run: &SimulatedRun, swept: &str, unit: Unit) -> Ring {
    let of = |way: &BTreeMap<String, f64>, key: &str, turned: bool| -> Vec<Stage> {
        let known = STAGES.iter().filter_map(|(name, place)| Some((*name, *place, *way.get(*name)?)));
        known
            .map(|(name, place, us)| Stage {
                name: name.replace('_', " "),
                place: match (place, turned) {
                    (Where::Client, true) => Where::Server,
                    (Where::Server, true) => Where::Client,
                    (place, _) => place,
                },
                us,
                at: Some(format!("/runs/{index}/{key}/{name}")),
                is_limit: false,
                remark: None,
            })
            .collect()
    };
    Ring {
        title: format!(
            "{} with {}, queue depth {}{swept}",
            size(run.block_size_bytes),
            run.policy,
            run.queue_depth
        ),
        middle: vec![
            format!("round trip {} {}", unit.text(run.rtt_us.mean), unit.sign()),
            format!("{} a second", super::rate(run.iops)),
        ],
        there: of(&run.request_us, "request_us", false),
        back: of(&run.response_us, "response_us", true),
    }
}

fn curves(all: &SimulatedRuns, unit: Unit, report: &mut Report) {
    let mut depths: Vec<u32> = all.runs.iter().map(|run| run.queue_depth).collect();
    depths.sort_unstable();
    depths.dedup();
    if depths.len() < 2 {
        return;
    }
    let chart = |title: &str, label: String, of: &dyn Fn(&SimulatedRun) -> f64| {
        let mut groups: BTreeMap<String, Vec<(f64, f64)>> = BTreeMap::new();
        for (index, run) in all.runs.iter().enumerate() {
            let swept = all.swept.get(index).filter(|label| !label.is_empty() && !label.contains("iodepth"));
            let swept = swept.map_or_else(String::new, |label| format!(", {label}"));
            let name = format!("{} {}{swept}", record::units::format_size(run.block_size_bytes), run.policy);
            groups.entry(name).or_default().push((f64::from(run.queue_depth), of(run)));
        }
        let lines = groups.into_iter().map(|(name, mut points)| {
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            Line::new(name, points)
        });
        Part::Chart(Chart {
            title: title.to_owned(),
            x: Axis { label: "queue depth".to_owned(), is_logarithmic: true },
            y: Axis { label, is_logarithmic: false },
            lines: lines.collect(),
            heat: None,
        })
    };
    report.add(
        "What does queue depth give, and what does it cost?",
        vec![
            chart("Operations a second", "operations a second".to_owned(), &|run| run.iops),
            chart("Mean time", format!("round trip, {}", unit.sign()), &|run| unit.value(run.rtt_us.mean)),
        ],
    );
}

fn table(all: &SimulatedRuns, unit: Unit) -> Table {
    let is_swept = all.swept.iter().any(|label| !label.is_empty());
    let rows = all.runs.iter().enumerate().map(|(index, run)| {
        let at = |key: &str| format!("/runs/{index}/{key}");
        let time = |us: f64, key: &str| Cell::at(unit.text(us), at(&format!("rtt_us/{key}")));
        let stalls: Vec<String> = run
            .stalls_us
            .iter()
            .map(|(name, us)| format!("{name} {} {}", unit.text(*us), unit.sign()))
            .collect();
        let mut cells: Vec<Cell> = vec![
            run.policy.as_str().into(),
            record::units::format_size(run.block_size_bytes).into(),
            Cell::at(run.queue_depth.to_string(), at("queue_depth")),
            Cell::at(thousands(run.iops), at("iops")),
            time(run.rtt_us.mean, "mean"),
            time(run.rtt_us.p50, "p50"),
            time(run.rtt_us.p99, "p99"),
            time(run.rtt_us.max, "max"),
            if stalls.is_empty() { "-".to_owned() } else { stalls.join(", ") }.into(),
        ];
        if is_swept {
            cells.insert(0, all.swept.get(index).map_or("", String::as_str).into());
        }
        Row { cells, ..Row::default() }
    });
    let mut columns = vec![Column::text("policy")];
    columns.extend(["block", "QD", "IOPS", "mean", "p50", "p99", "max"].map(Column::number));
    columns.push(Column::text("held back by"));
    if is_swept {
        columns.insert(0, Column::text("swept"));
    }
    Table { caption: format!("Each run; times in {}", unit.sign()), columns, rows: rows.collect() }
}

fn terms() -> Vec<(String, String)> {
    let own = [
        ("work", "the sender's thread works on it"),
        ("gather", "waits to be sent with other messages"),
        ("send", "the sender's thread is in the send call, for it or for earlier messages"),
        ("buffer", "the socket's send buffer is full"),
        ("nagle", "held by Nagle's algorithm"),
        ("cork", "held by MSG_MORE or TCP_CORK"),
        ("congestion", "held by the congestion window"),
        ("window", "held by the receiver's window"),
        ("device", "held by autocorking or TCP small queues"),
        ("transmit", "the kernel's work to send"),
        ("wire start", "until the device begins to send it"),
        ("wire queue", "waits for earlier messages on the wire"),
        ("wire", "its bits are sent on the wire"),
        ("delay", "travels on the wire"),
        ("lost", "was lost or overtaken: until what was missing arrived"),
        ("interrupt", "from its arrival until the receiving CPU begins with it"),
        ("softirq", "the kernel's work to receive it"),
        ("start", "the receiver's thread wakes up"),
        ("queue", "the receiver's thread works on other messages"),
        ("take", "the client's thread takes the response"),
    ];
    let mut terms: Vec<(String, String)> =
        own.map(|(name, meaning)| (name.to_owned(), meaning.to_owned())).into();
    terms.extend(super::terms::percentiles());
    terms
}
