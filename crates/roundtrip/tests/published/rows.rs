//! The rows of docs/published.md, from the files in the folder `rows`.

use std::path::Path;

use serde::Deserialize;

/// A file: one source.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    /// Heading of the source.
    pub title: String,
    /// The source in one sentence; only in its first file.
    #[serde(default)]
    pub about: String,
    /// Its sections, in its order.
    #[serde(rename = "section")]
    pub sections: Vec<Section>,
}

/// A part of a source with a table of its own.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Section {
    /// Heading of the part.
    pub title: String,
    /// Its rows.
    #[serde(rename = "row")]
    pub rows: Vec<Row>,
}

/// One capability or statement of a source.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Row {
    /// Name, unique in all files.
    pub id: String,
    /// The capability or statement, in few words.
    pub statement: String,
    /// What was published; `{63 000}` marks a figure that `ours` is compared with.
    pub published: String,
    /// A command that shows it: programs joined by `&&`.
    pub command: String,
    /// One value for each marked figure, from the output of the command.
    #[serde(default)]
    pub ours: Vec<Value>,
    /// Text with `{}` for each value; by default the text of `published`.
    pub shown: Option<String>,
    /// Texts that the output of the command must have.
    #[serde(default)]
    pub prints: Vec<String>,
    /// A measurement that a document records.
    pub measured: Option<Measured>,
    /// What the program does, if no figure is compared, or in addition to the figures; `{}` for each of `values`.
    pub does: Option<String>,
    /// Values in `does` that have no published figure.
    #[serde(default)]
    pub values: Vec<Value>,
    /// Why our figures differ from the published ones.
    pub differs: Option<Difference>,
    /// The test that fails if our side of the row is wrong: `crate path::name`.
    pub test: String,
    /// An error of the source, or a difference in meaning.
    pub remark: Option<String>,
    /// The source contradicts itself; the page lists such rows first.
    #[serde(default)]
    pub is_erratum: bool,
    /// Work that will change the row; not printed.
    pub pending: Option<String>,
}

/// How a value is computed.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged, deny_unknown_fields)]
pub enum Value {
    /// An expression; the figure must agree to its last digit.
    Exact(String),
    /// An expression with another comparison.
    Compared {
        /// The expression.
        of: String,
        /// How far it may be from the figure.
        within: Option<f64>,
        /// The figure is a limit of the value.
        bound: Option<Bound>,
        /// Decimals to print; by default those of the figure.
        decimals: Option<usize>,
    },
}

/// A figure that is a limit.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The value must not be below the figure.
    AtLeast,
    /// The value must not be above the figure.
    AtMost,
}

/// A measurement of a real ring: it depends on the machine, so it is quoted and not repeated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Measured {
    /// Name of the machine, in `machines.toml`.
    pub machine: String,
    /// Document that records it.
    pub file: String,
    /// Texts of one line of the document: a label, and the figures.
    pub line: Vec<String>,
    /// The result in few words.
    pub result: String,
}

/// Why figures differ, and by how much at most.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Difference {
    /// Greatest difference of any figure, in its own unit.
    pub by: f64,
    /// The reason.
    pub why: String,
}

/// A machine on which figures were measured.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Processor and kernel.
    pub about: String,
    /// Date of the measurement.
    pub date: String,
}

fn folder() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/published")
}

/// The sources in the order of their files' names.
pub fn sources() -> Vec<Source> {
    let entries = std::fs::read_dir(folder().join("rows")).unwrap();
    let mut paths: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    let mut sources: Vec<Source> = Vec::new();
    for path in paths {
        let text = std::fs::read_to_string(&path).unwrap();
        let source: Source = toml::from_str(&text).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        match sources.last_mut() {
            // A long source has several files.
            Some(last) if last.title == source.title => last.sections.extend(source.sections),
            _ => sources.push(source),
        }
    }
    sources
}

/// The machines by their names.
pub fn machines() -> std::collections::BTreeMap<String, Machine> {
    toml::from_str(&std::fs::read_to_string(folder().join("machines.toml")).unwrap()).unwrap()
}

/// All rows of all sources.
pub fn all(sources: &[Source]) -> impl Iterator<Item = &Row> {
    sources.iter().flat_map(|source| &source.sections).flat_map(|section| &section.rows)
}
