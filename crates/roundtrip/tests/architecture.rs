//! ARCHITECTURE.md's map of the crates against their manifests.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

const MAP: &str = include_str!("../../../ARCHITECTURE.md");

/// The crates of the workspace, and which of each other they depend on, tests left out.
fn manifests() -> BTreeMap<String, BTreeSet<String>> {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/..");
    let mut all = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path().join("Cargo.toml");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let manifest: toml::Table = text.parse().unwrap();
        let name = manifest["package"]["name"].as_str().unwrap().to_owned();
        let dependencies = manifest.get("dependencies").and_then(toml::Value::as_table);
        let names = dependencies.map(|table| table.keys().cloned().collect()).unwrap_or_default();
        all.insert(name, names);
    }
    let own: BTreeSet<String> = all.keys().cloned().collect();
    all.values_mut().for_each(|names: &mut BTreeSet<String>| names.retain(|name| own.contains(name)));
    all
}

/// The rows of the table: each crate, and what I/O it does.
fn rows() -> BTreeMap<String, String> {
    let table =
        MAP.split("## The crates").nth(1).unwrap().split("Dependencies point one way").next().unwrap();
    let rows = table.lines().filter(|line| line.starts_with("| `"));
    rows.map(|line| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        (cells[0].trim_matches('`').to_owned(), cells.last().unwrap().trim_end_matches(" |").to_owned())
    })
    .collect()
}

/// The groups of the sentence about dependencies, the leftmost first.
fn groups() -> Vec<BTreeSet<String>> {
    let sentence = MAP.split("Dependencies point one way:").nth(1).unwrap().split(". ").next().unwrap();
    let crates = |group: &str| group.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    sentence.split('→').map(crates).collect()
}

#[test]
fn the_map_names_every_crate_and_dependencies_point_one_way() {
    let (manifests, rows, groups) = (manifests(), rows(), groups());
    let names = |all: &mut dyn Iterator<Item = &String>| all.cloned().collect::<BTreeSet<String>>();
    let all = names(&mut manifests.keys());
    assert_eq!(names(&mut rows.keys()), all, "the table");
    assert_eq!(names(&mut groups.iter().flatten()), all, "the sentence about dependencies");
    let place = |name: &String| groups.iter().position(|group| group.contains(name)).unwrap();
    for (name, dependencies) in &manifests {
        for other in dependencies {
            assert!(place(other) >= place(name), "{name} depends on {other}, which stands further left");
        }
    }
}

#[test]
fn crates_without_io_depend_on_none_that_has_it() {
    let (manifests, rows) = (manifests(), rows());
    let is_pure = |name: &String| rows[name] == "none";
    assert!(manifests.keys().filter(|name| is_pure(name)).count() >= 8);
    for (name, dependencies) in manifests.iter().filter(|(name, _)| is_pure(name)) {
        let others: Vec<&String> = dependencies.iter().filter(|other| !is_pure(other)).collect();
        assert!(others.is_empty(), "{name} does no I/O, but depends on {others:?}");
    }
}

#[test]
fn analysis_depends_on_records_and_the_model_alone() {
    let expected: BTreeSet<String> = ["model", "record"].map(str::to_owned).into();
    assert_eq!(manifests()["analysis"], expected);
}
