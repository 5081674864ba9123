//! docs/published.md: what the paper and the notes say beside what this program says. Every computed figure is computed again and
//! compared to the published digits. `ROUNDTRIP_WRITE_PUBLISHED=1 cargo test -p roundtrip --test published` writes the page.
//! With `ROUNDTRIP_PUBLISHED_COMPLETE` set, rows that are marked `pending` fail.

#![allow(clippy::unwrap_used, unreachable_pub, missing_docs, reason = "a test fails by panicking")]

mod common;
#[path = "published/figure.rs"]
mod figure;
#[path = "published/outputs.rs"]
mod outputs;
#[path = "published/page.rs"]
mod page;
#[path = "published/rows.rs"]
mod rows;

use std::collections::{BTreeMap, BTreeSet};

use common::references::{crates, fault};
use common::roundtrip;
use figure::{Comparison, compare, evaluate, marked, written};
use rows::{Row, Value, all, machines, sources};

/// A row needs the output of its command.
fn is_computed(row: &Row) -> bool {
    !(row.ours.is_empty() && row.values.is_empty() && row.prints.is_empty())
}

/// Compares a row with the output of its command; outputs that are absent are not needed.
fn judge(row: &Row, output: Option<&Result<String, String>>) -> Comparison {
    let output = match output {
        None => return Comparison::default(),
        Some(Err(error)) => return Comparison { faults: vec![error.clone()], ..Comparison::default() },
        Some(Ok(output)) => output,
    };
    let mut comparison = compare(row, output);
    let absent = row.prints.iter().filter(|text| !output.contains(*text));
    comparison.faults.extend(absent.map(|text| format!("the output has no '{text}'")));
    comparison
}

#[test]
fn ours_agree_with_the_published_figures_and_the_page_is_the_generated_one() {
    let sources = sources();
    let commands = all(&sources).filter(|row| is_computed(row)).map(|row| row.command.as_str());
    let outputs = outputs::of(commands.collect());
    let mut comparisons = BTreeMap::new();
    let mut faults = Vec::new();
    for row in all(&sources) {
        let output = if is_computed(row) { outputs.get(&row.command) } else { None };
        let comparison = judge(row, output);
        faults.extend(comparison.faults.iter().map(|fault| format!("{}: {fault} ({})", row.id, row.command)));
        if faults.is_empty() && !row.ours.is_empty() {
            notices_an_edited_figure(row, output.unwrap().as_ref().unwrap());
        }
        comparisons.insert(row.id.clone(), comparison);
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    let text = page::text(&sources, &comparisons, &machines());
    let path = crates().join("../docs/published.md");
    if std::env::var_os("ROUNDTRIP_WRITE_PUBLISHED").is_some() {
        std::fs::write(&path, &text).unwrap();
    }
    let page = std::fs::read_to_string(&path).unwrap();
    let differing = page.lines().zip(text.lines()).find(|(page, text)| page != text);
    assert!(
        page == text,
        "docs/published.md is not the generated page: ROUNDTRIP_WRITE_PUBLISHED=1 writes it. First difference: {differing:#?}"
    );
}

/// A published figure that is changed beyond its digits is a fault, in every row that agrees.
fn notices_an_edited_figure(row: &Row, output: &str) {
    if row.differs.is_some() {
        return;
    }
    let figures = marked(&row.published).unwrap();
    for (place, (figure, value)) in figures.iter().zip(&row.ours).enumerate() {
        let (within, bound) = match value {
            Value::Exact(_) => (figure.half_digit(), None),
            Value::Compared { within, bound, .. } => (within.unwrap_or(figure.half_digit()), *bound),
        };
        if bound.is_some() {
            continue;
        }
        let edited: Vec<String> = figures
            .iter()
            .enumerate()
            .map(|(at, other)| {
                let by = if at == place { 2.5 * within } else { 0.0 };
                format!("{:.*}", other.decimals + 3, other.value + by)
            })
            .collect();
        let published =
            figure::filled(&row.published, &edited.iter().map(|f| format!("{{{f}}}")).collect::<Vec<_>>());
        // More decimals would make the comparison of the others stricter.
        let ours = row.ours.iter().zip(&figures).map(|(value, figure)| match value {
            Value::Exact(of) => Value::Compared {
                of: of.clone(),
                within: Some(figure.half_digit()),
                bound: None,
                decimals: None,
            },
            other => other.clone(),
        });
        let changed = Row { published, ours: ours.collect(), ..row.clone() };
        let faults = compare(&changed, output).faults;
        assert_eq!(faults.len(), 1, "{}: figure {place} was edited: {faults:?}", row.id);
    }
}

/// What is wrong with the texts of a row.
fn faults_of(row: &Row) -> Vec<String> {
    let mut faults = Vec::new();
    let texts = [("statement", &row.statement), ("published", &row.published), ("command", &row.command)];
    faults.extend(
        texts.iter().filter(|(_, text)| text.trim().is_empty()).map(|(what, _)| format!("{what} is empty")),
    );
    let places = row.does.as_ref().map_or(0, |text| text.matches("{}").count());
    if places != row.values.len() {
        faults.push(format!("`does` has {places} places for {} values", row.values.len()));
    }
    faults.extend(marked(&row.published).err());
    let says_nothing = row.ours.is_empty() && row.measured.is_none() && row.does.is_none();
    if says_nothing {
        faults.push("says nothing of ours".to_owned());
    }
    if row.is_erratum && row.remark.is_none() && row.differs.is_none() {
        faults.push("does not say what the error is".to_owned());
    }
    let words = [&row.does, &row.shown, &row.remark].map(|text| text.clone().unwrap_or_default());
    let words = words.join(" ").to_lowercase();
    let forbidden = ["missing", "todo", "not yet", "pending", "not implemented"];
    faults.extend(forbidden.iter().filter(|word| words.contains(*word)).map(|word| format!("says '{word}'")));
    if let Some(measured) = &row.measured {
        let text = std::fs::read_to_string(crates().join("..").join(&measured.file)).unwrap_or_default();
        if !text.lines().any(|line| measured.line.iter().all(|part| line.contains(part))) {
            faults.push(format!("{} has no line with {:?}", measured.file, measured.line));
        }
    }
    faults
}

#[test]
fn every_row_is_whole() {
    let sources = sources();
    let mut ids = BTreeSet::new();
    let mut faults = Vec::new();
    for row in all(&sources) {
        if !ids.insert(&row.id) {
            faults.push(format!("{}: two rows have this name", row.id));
        }
        faults.extend(faults_of(row).iter().map(|fault| format!("{}: {fault}", row.id)));
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
    assert!(ids.len() >= 166, "{} rows", ids.len());
}

#[test]
fn incomplete_rows_are_detected() {
    let measured = |line: &str| {
        format!(
            "measured = {{ machine = \"A\", file = \"docs/experiments.md\", line = [\"{line}\"], result = \"\" }}"
        )
    };
    let faults = |published: &str, rest: &str| {
        let text =
            format!("id=\"\"\nstatement=\"s\"\npublished=\"{published}\"\ncommand=\"c\"\ntest=\"\"\n{rest}");
        faults_of(&toml::from_str(&text).unwrap()).len()
    };
    for whole in
        ["does = \"x\"", "ours = [\"1\"]", &measured("# The laboratory"), "does = \"{}\"\nvalues = [\"1\"]"]
    {
        assert_eq!(faults("{1}", whole), 0, "{whole}");
    }
    for wrong in [
        "",
        "does = \"missing\"",
        "does = \"not yet\"",
        "does = \"{}\"",
        &measured("no such line"),
        "remark = \"r\"",
        "does = \"x\"\nis-erratum = true",
    ] {
        assert_eq!(faults("1", wrong), 1, "{wrong}");
    }
    assert_eq!(faults("{1", "does = \"x\""), 1);
    assert_eq!(faults("", "does = \"x\""), 1);
}

#[test]
fn every_row_has_a_test_that_exists() {
    let faults: Vec<String> =
        all(&sources()).filter_map(|row| Some(format!("{}: {}", row.id, fault(&row.test)?))).collect();
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Options that a program's help does not have.
fn unknown_options(words: &[String]) -> Vec<String> {
    let verbs = words[1..].iter().take_while(|word| word.chars().all(|c| c.is_ascii_lowercase()));
    let verbs = verbs.take(if ["wire", "host"].contains(&words[1].as_str()) { 2 } else { 1 });
    let output = roundtrip().args(verbs).arg("--help").output().unwrap();
    let help = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{words:?}: no such verb");
    let has =
        |option: &str| help.split(|c: char| !(c.is_alphanumeric() || c == '-')).any(|word| word == option);
    let own = words.iter().skip(1).take_while(|word| *word != "--");
    own.filter(|word| word.starts_with('-') && word.len() > 1 && !has(word)).cloned().collect()
}

#[test]
fn every_command_is_one_of_the_program() {
    let sources = sources();
    let commands: BTreeSet<&str> = all(&sources).map(|row| row.command.as_str()).collect();
    let mut faults = Vec::new();
    for command in commands {
        for words in outputs::programs(command) {
            if words[0] != "roundtrip" || words.len() < 2 {
                faults.push(format!("'{command}' does not begin with roundtrip and a verb"));
                continue;
            }
            let unknown = unknown_options(&words);
            if !unknown.is_empty() {
                faults.push(format!("'{command}': no options {unknown:?}"));
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

#[test]
fn pending_rows_are_listed() {
    let sources = sources();
    let pending: Vec<String> =
        all(&sources).filter_map(|row| Some(format!("{}: {}", row.id, row.pending.as_ref()?))).collect();
    println!("{} pending rows\n{}", pending.len(), pending.join("\n"));
    assert!(
        pending.is_empty() || std::env::var_os("ROUNDTRIP_PUBLISHED_COMPLETE").is_none(),
        "pending:\n{}",
        pending.join("\n")
    );
}

#[test]
fn expressions_are_evaluated_from_left_to_right() {
    let output = "{\"a\": 6, \"b\": [1, 2.5], \"c\": \"x\"}";
    for (expression, value) in
        [("/a", 6.0), ("/a + /b/1 * 2", 17.0), ("1e6 / /a / 4", 1e6 / 24.0), ("/b", 2.0), ("/d? - /a", -6.0)]
    {
        assert_eq!(evaluate(expression, output), Ok(value), "{expression}");
    }
    for wrong in ["/d", "/c", "/a +", "/a ^ 2", "", "/a / 0", "x"] {
        assert!(evaluate(wrong, output).is_err(), "{wrong}");
    }
    let text = "SN up to 227.2 us (238.2 us), at most 62 893 IOPS, from 16.3 on; QD 1, QD 2";
    assert_eq!(evaluate("\"at most {} IOPS\"", text), Ok(62_893.0));
    assert_eq!(evaluate("\"up to {} us\"", text), Ok(227.2));
    for wrong in ["\"below {} us\"", "\"QD {}\"", "\"up to\""] {
        assert!(evaluate(wrong, text).is_err(), "{wrong}");
    }
}

#[test]
fn figures_are_compared_to_their_last_digit() {
    let row = |published: &str, value: &str, by: Option<f64>| {
        let differs = by.map_or(String::new(), |by| format!("differs = {{ by = {by}, why = \"\" }}"));
        let text = format!(
            "id=\"\"\nstatement=\"\"\npublished=\"{published}\"\ncommand=\"\"\ntest=\"\"\nours=[{value}]\n{differs}"
        );
        compare(&toml::from_str(&text).unwrap(), "{\"x\": 62893.1}").faults.len()
    };
    assert_eq!(row("{62 893}", "\"/x\"", None), 0);
    assert_eq!(row("{62 893.1}", "\"/x\"", None), 0);
    assert_eq!(row("{62 893.0}", "\"/x\"", None), 1);
    assert_eq!(row("{63 000}", "\"/x\"", None), 1);
    assert_eq!(row("{63 000}", "{ of = \"/x\", within = 500 }", None), 0);
    assert_eq!(row("{63 000}", "{ of = \"/x\", bound = \"at-most\" }", None), 0);
    assert_eq!(row("{63 000}", "{ of = \"/x\", bound = \"at-least\" }", None), 1);
    assert_eq!(row("{63 000}", "\"/x\"", Some(107.0)), 0, "a known difference");
    assert_eq!(row("{63 000}", "\"/x\"", Some(106.0)), 1, "more than the known difference");
    assert_eq!(row("{62 893}", "\"/x\"", Some(106.0)), 1, "a difference that is none");
    assert_eq!(row("{1} and {2}", "\"/x\"", None), 1, "as many values as figures");
    assert_eq!((written(62_893.08, 0), written(-0.01, 1)), ("62 893".to_owned(), "0.0".to_owned()));
}
