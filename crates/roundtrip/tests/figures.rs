//! docs/figures.md: each figure has a test that exists, and no figure is missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use common::references::{crates, fault, has_test};
use serde_json::Value;

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// A row of a table of the list.
struct Row {
    /// The heading above the table.
    section: String,
    /// Columns and keys, without backticks.
    figures: Vec<String>,
    /// References as they are written.
    tests: Vec<String>,
}

/// The text between backticks.
fn quoted(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn rows() -> Vec<Row> {
    let text = read(&crates().join("../docs/figures.md"));
    let (mut section, mut rows) = (String::new(), Vec::new());
    for line in text.lines() {
        if let Some(heading) = line.strip_prefix("## ") {
            heading.clone_into(&mut section);
        }
        if !line.starts_with("| ") || line.starts_with("| figure") {
            continue;
        }
        let cells: Vec<&str> = line.trim().trim_matches('|').split(" | ").collect();
        let [figures, unit, meaning, tests] = cells[..] else { panic!("{section}: four columns: {line}") };
        assert!(!unit.trim().is_empty() && !meaning.trim().is_empty(), "{section}: an empty cell: {line}");
        rows.push(Row { section: section.clone(), figures: quoted(figures), tests: quoted(tests) });
    }
    rows
}

#[test]
fn every_figure_has_a_test_that_exists() {
    let rows = rows();
    assert!(rows.len() > 150, "{} rows", rows.len());
    let mut faults = Vec::new();
    for row in &rows {
        if row.figures.is_empty() || row.tests.is_empty() {
            faults.push(format!(
                "{}: a row needs figures and tests in backticks: {:?}",
                row.section, row.figures
            ));
        }
        faults.extend(row.tests.iter().filter_map(|test| fault(test)));
    }
    assert!(faults.is_empty(), "docs/figures.md:\n{}", faults.join("\n"));
}

#[test]
fn references_to_missing_tests_are_detected() {
    assert_eq!(fault("roundtrip tests/figures.rs::references_to_missing_tests_are_detected"), None);
    for wrong in [
        "roundtrip tests/figures.rs::references_to_missing_tests",
        "roundtrip tests/figures.rs::fault",
        "roundtrip tests/no_such_file.rs::figures",
        "roundtrip tests/figures.rs",
        "tests/figures.rs::figures",
    ] {
        assert!(fault(wrong).is_some(), "{wrong}");
    }
    assert!(has_test("proptest! {\n    #[test]\n    // Why.\n    fn of_any(x in 0..2) {", "of_any"));
    assert!(!has_test("#[test]\nfn one() {}\nfn of_any() {}", "of_any"));
}

/// Names in the sections whose headings begin with a word.
fn named(rows: &[Row], section: &str) -> BTreeSet<String> {
    let of_section = rows.iter().filter(|row| row.section.split(' ').next() == Some(section));
    of_section.flat_map(|row| row.figures.iter().cloned()).collect()
}

/// Whether a key is in the list: by its name, by an entry `prefix.*`, or by the keys that it holds.
fn is_listed(names: &BTreeSet<String>, key: &str) -> bool {
    let is_inside = |name: &str, outer: &str| {
        name.strip_prefix(outer).is_some_and(|rest| rest.starts_with('.') || rest.starts_with("[]."))
    };
    let covers = |name: &String| {
        name.strip_suffix(".*").is_some_and(|prefix| prefix == key || is_inside(key, prefix))
            || is_inside(name, key)
    };
    names.contains(key) || names.iter().any(covers)
}

/// Keys with their places (`stanzas[].parts[].mean_us`) that hold no further keys.
fn keys(schema: &Value, root: &Value, at: &str, seen: &[&str], all: &mut BTreeSet<String>) {
    if let Some(reference) = schema.get("$ref").and_then(Value::as_str)
        && !seen.contains(&reference)
    {
        let target = root.pointer(reference.trim_start_matches('#')).unwrap();
        keys(target, root, at, &[seen, &[reference]].concat(), all);
    }
    for keyword in ["anyOf", "oneOf", "allOf", "prefixItems"] {
        for part in schema.get(keyword).and_then(Value::as_array).into_iter().flatten() {
            keys(part, root, at, seen, all);
        }
    }
    if let Some(items) = schema.get("items") {
        keys(items, root, &format!("{at}[]"), seen, all);
    }
    for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
        let place = if at.is_empty() { name.clone() } else { format!("{at}.{name}") };
        let before = all.len();
        keys(property, root, &place, seen, all);
        if all.len() == before {
            all.insert(place);
        }
    }
}

#[track_caller]
fn assert_listed(rows: &[Row], section: &str, source: &str, keys: &BTreeSet<String>) {
    let names = named(rows, section);
    let missing: Vec<&String> = keys.iter().filter(|key| !is_listed(&names, key)).collect();
    assert!(missing.is_empty(), "docs/figures.md, section {section}, lacks keys of {source}: {missing:#?}");
}

#[test]
fn every_key_of_the_schemas_is_listed() {
    let (rows, folder) = (rows(), crates().join("../docs/schema"));
    let mut schemas = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let schema: Value = serde_json::from_str(&read(&path)).unwrap();
        let mut all = BTreeSet::new();
        keys(&schema, &schema, "", &[], &mut all);
        assert!(all.len() > 5, "{}: {all:?}", path.display());
        assert_listed(&rows, path.file_stem().unwrap().to_str().unwrap(), &path.display().to_string(), &all);
        schemas += 1;
    }
    assert!(schemas >= 3, "{schemas} schemas");
}

/// The public fields of a file's structs, without those that JSON leaves out.
fn fields(source: &str) -> BTreeMap<String, Vec<String>> {
    let (mut all, mut current, mut is_skipped) = (BTreeMap::<_, Vec<String>>::new(), None, false);
    for line in source.lines() {
        if line.trim().starts_with("#[serde(skip)]") {
            is_skipped = true;
            continue;
        }
        if let Some(rest) = line.strip_prefix("pub struct ") {
            current = rest.split([' ', '<', '(', ';']).next().map(str::to_owned);
        } else if line.starts_with('}') {
            current = None;
        }
        let field = line.strip_prefix("    pub ").and_then(|rest| rest.split_once(':'));
        if let (Some(name), Some((field, _))) = (&current, field)
            && !is_skipped
        {
            all.entry(name.clone()).or_default().push(field.to_owned());
        }
        is_skipped = false;
    }
    all
}

/// Structs that are printed as JSON without a schema: section, source, struct, and where its keys are.
const STRUCTS: [(&str, &str, &str, &str); 20] = [
    ("bench", "load/src/result.rs", "RunResult", ""),
    ("bench", "load/src/result.rs", "KindResult", "kinds[]."),
    ("bench", "load/src/result.rs", "Second", "series[]."),
    ("bench", "load/src/result.rs", "Connections", "connections."),
    ("bench", "load/src/failure.rs", "Failure", "failures[]."),
    ("bench", "record/src/latency.rs", "LatencyFigures", "latency_us."),
    ("bench", "record/src/latency.rs", "Bin", "histogram[]."),
    ("study", "analysis/src/stanza.rs", "Stanza", ""),
    ("study", "analysis/src/breakdown.rs", "Breakdown", "breakdown."),
    ("study", "analysis/src/breakdown.rs", "TermValue", "breakdown.terms[]."),
    ("study", "analysis/src/breakdown.rs", "Joined", "breakdown.joined."),
    ("study", "analysis/src/breakdown.rs", "Limit", "breakdown.limit."),
    ("study", "analysis/src/closure.rs", "Closure", "closure."),
    ("study", "analysis/src/closure.rs", "Check", "closure.checks[]."),
    ("study", "analysis/src/closure.rs", "Evidence", "evidence."),
    ("study", "analysis/src/predict.rs", "Prediction", "predicted."),
    ("target", "iscsi-target/src/statistics.rs", "ConnectionStatistics", "connections[]."),
    ("wire", "testbed/src/state.rs", "EndState", "wires[].ends[]."),
    ("wire", "testbed/src/crossing.rs", "Crossing", "wires[].crossing."),
    ("wire", "testbed/src/named.rs", "WireRecord", "wires[].wire."),
];

#[test]
fn every_key_of_results_without_a_schema_is_listed() {
    let rows = rows();
    for (section, source, name, place) in STRUCTS {
        let fields = fields(&read(&crates().join(source)));
        let fields = fields.get(name).unwrap_or_else(|| panic!("{source} has no struct {name}"));
        let keys = fields.iter().map(|field| format!("{place}{field}")).collect();
        assert_listed(&rows, section, &format!("{name} in crates/{source}"), &keys);
    }
}

/// The keys of the model's JSON, which is written key by key.
#[test]
fn every_key_of_the_model_is_listed() {
    let source = read(&crates().join("report/src/model_text.rs"));
    let json = source.split("pub fn json").nth(1).unwrap().split("\n}\n").next().unwrap();
    let name =
        |line: &str| line.trim().strip_prefix('"')?.split_once("\": ").map(|(name, _)| name.to_owned());
    let (mut place, mut all) = (String::new(), BTreeSet::new());
    for line in json.lines() {
        let Some(name) = name(line) else {
            if line.trim().starts_with('}') {
                place.clear();
            }
            continue;
        };
        if line.ends_with("json!({") {
            place = format!("{name}[].");
        } else if line.ends_with('{') {
            place = format!("{name}.");
        } else {
            all.insert(format!("{place}{name}"));
        }
    }
    assert!(
        all.contains("curve[].rtt_p99_us") && all.contains("wire.efficiency") && all.len() > 30,
        "{all:?}"
    );
    assert_listed(&rows(), "model", "crates/report/src/model_text.rs", &all);
}

#[test]
fn missing_keys_are_detected() {
    let names: BTreeSet<String> = ["a.b", "c[].*", "d", "e[].f"].map(str::to_owned).into();
    for key in ["a", "a.b", "c[]", "c[].x", "c[].x.y", "d", "e"] {
        assert!(is_listed(&names, key), "{key}");
    }
    for key in ["a.c", "b", "c.x", "d.e", "cc[].x", "e[].g", "e[].f.g"] {
        assert!(!is_listed(&names, key), "{key}");
    }
    let source = "pub struct One {\n    pub first: u64,\n    own: u8,\n    #[serde(skip)]\n    pub no: u8,\n}\npub struct Two<'a> {\n    pub second: &'a str,\n}\n";
    let expected = [("One", "first"), ("Two", "second")].map(|(a, b)| (a.to_owned(), vec![b.to_owned()]));
    assert_eq!(fields(source), BTreeMap::from(expected));
}
