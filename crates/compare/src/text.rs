//! A comparison as text: what differs in sentences first, then the figures in 80 columns, or as Markdown.

use std::fmt::Write as _;

use output::text::{COLUMNS, cut, line, wrapped};
use record::units::{counted, grouped};

use crate::comparison::{CHANCE, Change, Comparison, Only, Row};

/// Most rows that are shown unless all are asked for: those with the most time.
const ROWS: usize = 12;

/// Most sentences.
const SENTENCES: usize = 8;

/// A figure with four digits.
fn figure(value: f64) -> String {
    match value.abs() {
        size if size >= 1e9 => format!("{value:.3e}"),
        size if size >= 1000.0 => {
            let sign = if value < 0.0 { "-" } else { "" };
            format!("{sign}{}", grouped(value.abs().round() as u64))
        }
        size if size >= 100.0 => format!("{value:.0}"),
        size if size >= 10.0 => format!("{value:.1}"),
        size if size > 0.0 && size < 0.01 => format!("{value:.4}"),
        _ => format!("{value:.2}"),
    }
}

fn percent(share: Option<f64>) -> String {
    match share {
        Some(share) if share.abs() >= 1e5 => format!("{:+.1e} %", share * 100.0),
        Some(share) if share.abs() >= 10.0 => format!("{:+.0} %", share * 100.0),
        Some(share) => format!("{:+.1} %", share * 100.0),
        None => "new".to_owned(),
    }
}

/// What a row says in one sentence.
fn sentence(row: &Row) -> String {
    let name = &row.name;
    let changed = |name: &str| row.quantity(name).filter(|change| change.differs);
    let told = |change: &Change, unit: &str| {
        format!("{} to {}{unit} ({})", figure(change.before), figure(change.after), percent(change.share()))
    };
    let mut parts = Vec::new();
    if let Some(mean) = changed("mean us") {
        let which = if mean.difference() > 0.0 { "slower" } else { "faster" };
        let mut text = format!("{which}, {} on average", told(mean, " us"));
        if let Some((part, us)) = &row.carried_by {
            let _ = write!(text, "; {} us of it in \"{part}\"", signed(*us));
        }
        parts.push(text);
    } else if let Some(p99) = changed("p99 us") {
        parts.push(format!("p99 {}", told(p99, " us")));
    }
    if let Some(rate) = changed("per second") {
        let mut text = format!("{} a second", told(rate, ""));
        if let (None, Some((part, us))) = (changed("mean us"), &row.carried_by) {
            let _ = write!(text, ", as \"{part}\" took {} us", signed(*us));
        }
        parts.push(text);
    }
    if let Some(failed) = changed("failed") {
        parts.push(format!("{:.2} % to {:.2} % failed", failed.before * 100.0, failed.after * 100.0));
    }
    if !parts.is_empty() {
        return format!("{name}: {}", parts.join("; "));
    }
    let inner = row.parts.iter().chain(&row.quantities).find(|change| change.differs);
    if let Some(part) = inner {
        return format!("{name}: no slower or faster; \"{}\" {}", part.name, told(part, " us"));
    }
    match row.quantity("mean us").and_then(|mean| Some((mean.least?, mean.before))) {
        Some((least, before)) => format!(
            "{name}: no difference beyond noise; one of {} us ({:.1} %) on average would have shown",
            figure(least),
            least / before * 100.0
        ),
        None => format!("{name}: too few operations, or too short, to tell a difference from noise"),
    }
}

fn signed(us: f64) -> String {
    format!("{}{}", if us < 0.0 { "-" } else { "+" }, figure(us.abs()))
}

/// The figures of a row that are worth a line: those that everybody wants, and parts that are not nothing.
fn lines(row: &Row) -> impl Iterator<Item = (&'static str, &Change)> {
    let quantities =
        row.quantities.iter().filter(|change| change.name != "failed" || change.before + change.after > 0.0);
    let parts = row.parts.iter().filter(|part| part.before + part.after >= 0.05);
    quantities.map(|change| ("  ", change)).chain(parts.map(|change| ("    ", change)))
}

/// Operations of one measurement alone, with how many there were.
fn names(only: &[Only]) -> Vec<String> {
    only.iter().map(|one| format!("{} ({})", one.name, counted(one.operations, "operation"))).collect()
}

/// What the comparison says, in sentences.
#[must_use]
pub fn sentences(compared: &Comparison) -> Vec<String> {
    let told: Vec<&Row> = compared.rows.iter().filter(|row| row.differs()).collect();
    let mut out: Vec<String> = told.iter().take(SENTENCES).map(|row| sentence(row)).collect();
    if told.len() > SENTENCES {
        out.push(format!("and {} more differ", told.len() - SENTENCES));
    }
    if told.is_empty() {
        match &compared.rows[..] {
            [] => out.push("Nothing is in both: there is nothing to compare.".to_owned()),
            [row] => out.push(sentence(row)),
            [row, ..] => out.extend(["No difference beyond noise.".to_owned(), sentence(row)]),
        }
    }
    out
}

/// Returns the comparison as text.
#[must_use]
pub fn text(compared: &Comparison, all: bool) -> String {
    let mut out: String = sentences(compared).into_iter().map(|sentence| wrapped(sentence, "  ")).collect();
    for (what, list) in [
        ("New cause: ", &compared.causes_new),
        ("Cause that is gone: ", &compared.causes_gone),
        ("Only before: ", &names(&compared.gone)),
        ("Only after: ", &names(&compared.new)),
    ] {
        for one in list.iter().take(SENTENCES) {
            out.push_str(&wrapped(format_args!("{what}{one}"), "  "));
        }
        if list.len() > SENTENCES {
            let _ = writeln!(out, "  and {} more", list.len() - SENTENCES);
        }
    }
    let shown: Vec<&Row> =
        if all { compared.rows.iter().collect() } else { compared.rows.iter().take(ROWS).collect() };
    if !shown.is_empty() {
        let _ = writeln!(out, "\n{:<30}{:>12}{:>12}{:>11}{:>12}", "", "before", "after", "change", "noise");
    }
    for row in &shown {
        let _ = writeln!(out, "{}", cut(&row.name, COLUMNS));
        row.note.iter().for_each(|note| out.push_str(&wrapped(format_args!("  {note}"), "  ")));
        for (indent, change) in lines(row) {
            let noise = match (change.least, change.before) {
                (Some(least), before) if before != 0.0 => format!("{:.1} %", least / before.abs() * 100.0),
                _ => "-".to_owned(),
            };
            let mark = if change.differs { " *" } else { "" };
            let _ = writeln!(
                out,
                "{:<30}{:>12}{:>12}{:>11}{noise:>12}{mark}",
                format!("{indent}{}", change.name),
                figure(change.before),
                figure(change.after),
                percent(change.share().or((change.after == 0.0).then_some(0.0)))
            );
        }
    }
    if shown.len() < compared.rows.len() {
        let _ = writeln!(out, "and {} more with less time (--all)", compared.rows.len() - shown.len());
    }
    if !shown.is_empty() {
        out.push('\n');
        let chance = CHANCE * 100.0;
        out.push_str(&wrapped(
            format_args!(
                "* more than what varies within the two measurements explains (a chance below {chance:.0} % for all figures \
                 together); what differs from run to run is marked, too"
            ),
            "  ",
        ));
        for (what, source) in [("before: ", &compared.before), ("after:  ", &compared.after)] {
            out.push_str(&wrapped(format_args!("{what}{source}"), "  "));
        }
    }
    out
}

/// Returns the comparison as Markdown, for a pull request.
#[must_use]
pub fn markdown(compared: &Comparison) -> String {
    // In a code span nothing is markup, no link and no mention.
    let cell = |text: &str| format!("`{}`", line(text).to_string().replace('`', "'").replace('|', "\\|"));
    let mut out = String::from("### Before and after\n\n");
    let told: Vec<&Row> = compared.rows.iter().filter(|row| row.differs()).collect();
    for row in told.iter().take(SENTENCES) {
        let _ = writeln!(out, "- {}", cell(&sentence(row)));
    }
    if told.is_empty() {
        out.push_str("No difference beyond noise.\n");
    }
    for (what, list) in [("New cause", &compared.causes_new), ("Cause that is gone", &compared.causes_gone)] {
        for one in list.iter().take(SENTENCES) {
            let _ = writeln!(out, "- {what}: {}", cell(one));
        }
    }
    out.push_str(
        "\n|  | per second | mean us | p50 us | p99 us | carried by |\n|---|---:|---:|---:|---:|---|\n",
    );
    for row in compared.rows.iter().take(ROWS) {
        let _ = write!(out, "| {} |", cell(&row.name));
        for name in ["per second", "mean us", "p50 us", "p99 us"] {
            let text = row.quantity(name).map_or_else(
                || "-".to_owned(),
                |change| {
                    let text = format!("{} → {}", figure(change.before), figure(change.after));
                    if change.differs { format!("**{text} ({})**", percent(change.share())) } else { text }
                },
            );
            let _ = write!(out, " {text} |");
        }
        let carried = row
            .carried_by
            .as_ref()
            .map_or_else(String::new, |(part, us)| format!("{part} {} us", signed(*us)));
        let _ = writeln!(out, " {carried} |");
    }
    let _ = writeln!(
        out,
        "\nBold: more than what varies within the two explains. Before: {}; after: {}.",
        cell(&compared.before),
        cell(&compared.after)
    );
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::comparison::tests::ring;

    #[test]
    fn what_differs_comes_first_and_all_fits_80_columns() {
        let compared = Comparison::of(&ring(1, None, 0.0), &ring(2, Some(3), 15.0));
        let text = text(&compared, false);
        let first = text.split("\n\n").next().unwrap_or_default().replace("\n  ", " ");
        for part in ["10.0.0.1:80 GET: slower, 8", "us of it in \"server\"", "a second"] {
            assert!(first.contains(part), "{part}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        let marked: Vec<&str> = text.lines().filter(|line| line.ends_with(" *")).collect();
        assert!(
            marked.iter().any(|line| line.contains("server"))
                && !marked.iter().any(|line| line.contains("way")),
            "{text}"
        );
    }

    #[test]
    fn equal_runs_say_what_would_have_shown() {
        let text = text(&Comparison::of(&ring(1, None, 0.0), &ring(2, None, 0.0)), false);
        assert!(text.replace("\n  ", " ").contains("no difference beyond noise; one of "), "{text}");
    }

    #[test]
    fn names_from_captures_do_no_harm() {
        let mut profile = crate::Profile::new("<script>|`x`\x1b[2J");
        profile.add("a|b", "<img>\x1b[31m", &crate::profile::Operation::default());
        let compared = Comparison::of(&profile, &profile);
        for text in [text(&compared, true), markdown(&compared)] {
            assert!(!text.contains('\x1b'), "{text}");
        }
        // What lies outside of code spans is ours.
        let markdown = markdown(&compared);
        let outside: String = markdown.split('`').step_by(2).collect();
        assert!(
            !outside.contains("img") && !outside.contains("script") && !outside.contains("a|b"),
            "{markdown}"
        );
        assert!(markdown.contains("a\\|b"), "{markdown}");
    }

    #[test]
    fn figures_have_four_digits() {
        let all = [0.0, 0.001_26, 1.234, 12.34, 123.4, 1234.0, -1_234_567.0].map(figure);
        assert_eq!(all, ["0.00", "0.0013", "1.23", "12.3", "123", "1 234", "-1 234 567"]);
    }
}
