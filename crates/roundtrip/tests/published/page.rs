//! docs/published.md as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::figure::{Comparison, filled};
use super::rows::{Machine, Row, Source, all};

/// How a row agrees with its source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Agreement {
    /// Every figure to its last published digit.
    Digits,
    /// As near as a rounded figure of the source ("about 63 000").
    Rounded,
    /// Within a published limit.
    Limit,
    /// A figure differs, and the row says why.
    Differs,
    /// A capability or a behaviour without a figure, which a test checks.
    Behaviour,
}

impl Agreement {
    /// Of a row whose comparison has no faults.
    pub fn of(row: &Row, comparison: &Comparison) -> Self {
        if row.differs.is_some() {
            Self::Differs
        } else if row.ours.is_empty() {
            Self::Behaviour
        } else if comparison.is_bound {
            Self::Limit
        } else if comparison.is_rounded {
            Self::Rounded
        } else {
            Self::Digits
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Digits => "to the digit",
            Self::Rounded => "as rounded",
            Self::Limit => "within the limit",
            Self::Differs => "**differs**",
            Self::Behaviour => "",
        }
    }
}

const INTRODUCTION: &str = "# Published and ours

What the paper (Butterfield, 2017) and four notes say, statement by statement, and what Roundtrip says of it: the published figure, ours, a command that shows it, and the test that fails if our side is wrong (`crate path::name`).
Figures of `model`, `simulate`, `analyze` and `wire plan` are computed when this page is written; the commands run in the top folder of the sources, and always give the same; `slow.pcapng`, `a.pcapng` and `b.pcapng` stand for captures of your own. *Measured* figures depend on the machine and are quoted from the document that records them.
*To the digit*: ours, rounded, is the published figure. *As rounded*: the source has a rounded figure (\"about 63 000\"). Where ours differs, or where the source is wrong, the last column says why.

`crates/roundtrip/tests/published.rs`, a part of `make test`, runs the commands and compares the figures. `ROUNDTRIP_WRITE_PUBLISHED=1 cargo test -p roundtrip --test published` writes this page from `crates/roundtrip/tests/published/rows`.
";

fn cell(text: &str) -> String {
    text.replace('|', "\\|")
}

fn ours(row: &Row, comparison: &Comparison, machines: &BTreeMap<String, Machine>) -> String {
    let mut parts = Vec::new();
    if !row.ours.is_empty() {
        parts.push(filled(row.shown.as_ref().unwrap_or(&row.published), &comparison.written));
    }
    parts.extend(row.does.as_ref().map(|text| filled(text, &comparison.others)));
    if let Some(measured) = &row.measured {
        let link = measured.file.trim_start_matches("docs/");
        let letter = &measured.machine;
        assert!(machines.contains_key(letter), "{}: no machine {letter}", row.id);
        parts.push(format!("*measured* ({letter}, [{link}]({link})): {}", measured.result));
    }
    parts.join("; ")
}

fn remark(row: &Row) -> String {
    let why = row.differs.iter().map(|difference| difference.why.clone());
    why.chain(row.remark.clone()).collect::<Vec<_>>().join(" ")
}

/// The document.
pub fn text(
    sources: &[Source],
    comparisons: &BTreeMap<String, Comparison>,
    machines: &BTreeMap<String, Machine>,
) -> String {
    let mut out = INTRODUCTION.to_owned();
    let mut counts: BTreeMap<Agreement, usize> = BTreeMap::new();
    for row in all(sources) {
        *counts.entry(Agreement::of(row, &comparisons[&row.id])).or_default() += 1;
    }
    let count = |agreement| counts.get(&agreement).copied().unwrap_or(0);
    let _ = writeln!(
        out,
        "\n{} rows: {} agree to the digit, {} as rounded, {} are within a published limit, {} differ, {} are capabilities and behaviours that tests check.",
        all(sources).count(),
        count(Agreement::Digits),
        count(Agreement::Rounded),
        count(Agreement::Limit),
        count(Agreement::Differs),
        count(Agreement::Behaviour)
    );
    for (letter, Machine { about, date }) in machines {
        let _ = writeln!(out, "\nMachine {letter}: {about}; {date}.");
    }
    out.push_str("\n## Errors of the sources\n\n");
    for row in all(sources).filter(|row| row.is_erratum) {
        let _ = writeln!(out, "- `{}`: {}", row.id, remark(row));
    }
    for source in sources {
        let _ = writeln!(out, "\n## {}\n\n{}", source.title, source.about);
        for section in &source.sections {
            let _ = writeln!(
                out,
                "\n### {}\n\n| row | statement | published | ours | | command | test | remark |\n|---|---|---|---|---|---|---|---|",
                section.title
            );
            for row in &section.rows {
                let comparison = &comparisons[&row.id];
                let braces = |c: char| matches!(c, '{' | '}');
                let cells = [
                    row.id.clone(),
                    row.statement.clone(),
                    row.published.replace(braces, ""),
                    ours(row, comparison, machines),
                    Agreement::of(row, comparison).text().to_owned(),
                    format!("`{}`", row.command),
                    format!("`{}`", row.test),
                    remark(row),
                ];
                let cells = cells.map(|text| cell(&text));
                let _ = writeln!(out, "| {} |", cells.join(" | "));
            }
        }
    }
    out
}
