//! The cases of corpus/cases, as far as this test needs them, and what was measured when their captures were made.

use std::path::Path;

use serde::Deserialize;
use toml::{Table, Value};

/// Which of the two measured figures a predicted gain is compared with.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq)]
#[serde(rename_all = "lowercase")]
pub enum Measure {
    /// Operations per second: the clients wait for answers.
    #[default]
    Rate,
    /// Mean time of an operation: the clients' rate is given.
    Mean,
    /// Mean time until the first byte of an answer.
    First,
}

/// One capture, or two of the same traffic, with what must be said of it.
#[derive(Debug)]
pub struct Case {
    pub name: String,
    pub healthy: bool,
    /// Kinds of verdicts, one of which names the cause.
    pub expect: Vec<String>,
    /// Kinds that are true as well.
    pub also: Vec<String>,
    /// Arguments of `analyze` besides the file.
    pub arguments: Vec<String>,
    pub measure: Measure,
    /// Whether a second capture has the same traffic without the cause.
    pub is_mended: bool,
    /// Arguments of `analyze` for that capture.
    pub arguments_mended: Vec<String>,
    /// Kinds that are true of that capture, too.
    pub still: Vec<String>,
    /// Whether so few operations have the cause that the medians of both runs are of operations without it: they tell by what else
    /// the runs differ.
    pub is_rare: bool,
    /// How much more the mended run has of what the remedy provides (requests in flight, rate of the link): it gains no more.
    pub size: f64,
    has_both_sides: bool,
}

impl Case {
    /// The option that a file needs, if any, and its name.
    pub fn files(&self, mended: bool) -> Vec<(Option<&'static str>, String)> {
        let name = format!("{}{}", self.name, if mended { ".mended" } else { "" });
        if self.has_both_sides {
            let sides = [("--client", "client"), ("--server", "server")];
            return sides.map(|(option, side)| (Some(option), format!("{name}.{side}.pcapng.zst"))).into();
        }
        vec![(None, format!("{name}.pcapng.zst"))]
    }
}

/// What the client itself measured in a run.
#[derive(Debug, Deserialize)]
pub struct Figures {
    rate: f64,
    mean_us: f64,
    p50_us: f64,
    first_us: f64,
}

/// What the client itself measured, from the file beside a capture.
#[derive(Debug, Deserialize)]
pub struct Measured {
    client: Option<Figures>,
    mended: Option<Figures>,
}

impl Measured {
    pub fn read(captures: &Path, case: &Case) -> Self {
        let path = captures.join(format!("{}.toml", case.name));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        toml::from_str(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// How much better the mended run was, by the case's measure; without what the runs differ by besides, too, where that is known.
    pub fn gains(&self, case: &Case) -> Vec<f64> {
        let (Some(before), Some(after)) = (&self.client, &self.mended) else { return Vec::new() };
        let gain = match case.measure {
            Measure::Rate => after.rate / before.rate,
            Measure::Mean => before.mean_us / after.mean_us,
            Measure::First => before.first_us / after.first_us,
        };
        let other = case.is_rare.then(|| gain * after.p50_us / before.p50_us);
        std::iter::once(gain).chain(other).collect()
    }
}

/// Text with `{key}` replaced by the family's values; a text that is one key becomes the value itself, as in make.py.
fn fill(value: &Value, names: &Table) -> Value {
    match value {
        Value::String(text) => {
            let whole = text.strip_prefix('{').and_then(|text| text.strip_suffix('}'));
            if let Some(value) = whole.and_then(|key| names.get(key)) {
                return value.clone();
            }
            let mut text = text.clone();
            for (key, value) in names {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                text = text.replace(&format!("{{{key}}}"), &shown);
            }
            Value::String(text)
        }
        other => other.clone(),
    }
}

/// A text or a list of texts.
fn texts(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(text)) => vec![text.clone()],
        Some(Value::Array(all)) => all.iter().map(|text| text.as_str().unwrap().to_owned()).collect(),
        _ => Vec::new(),
    }
}

fn expand(raw: &Table) -> Vec<Case> {
    let members: Vec<Table> = match raw.get("each") {
        Some(Value::Array(each)) => each.iter().map(|one| one.as_table().unwrap().clone()).collect(),
        _ => vec![Table::new()],
    };
    members.iter().map(|names| of(raw, names)).collect()
}

fn of(raw: &Table, names: &Table) -> Case {
    let get = |key: &str| raw.get(key).map(|value| fill(value, names));
    let mended = |key: &str| raw.get("mended").and_then(|all| all.get(key)).map(|value| fill(value, names));
    Case {
        name: get("name").unwrap().as_str().unwrap().to_owned(),
        healthy: get("healthy").is_some(),
        expect: texts(get("expect").as_ref()),
        also: texts(get("also").as_ref()),
        arguments: texts(get("arguments").as_ref()),
        measure: get("measure").map(|value| value.try_into().unwrap()).unwrap_or_default(),
        is_mended: get("mended").is_some(),
        arguments_mended: texts(mended("arguments").as_ref().or(get("arguments").as_ref())),
        still: texts(get("still").as_ref()),
        is_rare: get("rare").is_some(),
        size: get("size").map_or(f64::INFINITY, |value| value.as_integer().unwrap() as f64),
        has_both_sides: get("capture").is_some_and(|value| value.as_str() == Some("both")),
    }
}

/// All cases, sorted by their names.
pub fn all(corpus: &Path) -> Vec<Case> {
    let mut cases = Vec::new();
    for entry in std::fs::read_dir(corpus.join("cases")).unwrap() {
        let path = entry.unwrap().path();
        let content: Table = toml::from_str(&std::fs::read_to_string(&path).unwrap())
            .unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let raw = content["case"].as_array().unwrap();
        cases.extend(raw.iter().flat_map(|raw| expand(raw.as_table().unwrap())));
    }
    cases.sort_by(|a: &Case, b| a.name.cmp(&b.name));
    cases
}
