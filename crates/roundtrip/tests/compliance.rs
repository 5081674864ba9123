//! The files, tests and commands that docs/compliance.md and docs/durability.md name exist, and no command is missing.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use scsi::{Disk, Identity, Lun, Luns, Nexus, Plan, Provisioning};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The text between backticks in a line.
fn quoted(line: &str) -> impl Iterator<Item = &str> {
    line.split('`').skip(1).step_by(2)
}

/// The names of all functions in the sources and tests of all crates.
fn functions(folder: &Path, all: &mut BTreeSet<String>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            functions(&path, all);
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = std::fs::read_to_string(&path).unwrap();
            let names = text.split("fn ").skip(1).filter_map(|rest| rest.split(['(', '<']).next());
            all.extend(names.map(str::to_owned));
        }
    }
}

#[test]
fn every_file_and_test_that_is_named_exists() {
    let read = |name: &str| std::fs::read_to_string(root().join("docs").join(name)).unwrap();
    let text = read("compliance.md") + &read("durability.md") + &read("security.md");
    let mut all = BTreeSet::new();
    functions(&root().join("crates"), &mut all);
    let (mut files, mut tests) = (0, 0);
    for word in text.lines().flat_map(quoted) {
        if word.ends_with(".rs") {
            let path = word.strip_prefix("crates/").unwrap_or(word);
            assert!(root().join("crates").join(path).is_file(), "there is no {word}");
            files += 1;
        } else if word.contains('_')
            && word.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_')
        {
            assert!(all.contains(word), "there is no test {word}");
            tests += 1;
        }
    }
    assert!(files > 40 && tests > 60, "{files} files and {tests} tests are named");
}

/// Every command of a thin, removable disk, as it reports them.
fn reported() -> BTreeSet<String> {
    let disk = Disk {
        identity: Identity {
            vendor: "v".into(),
            product: "p".into(),
            revision: "1".into(),
            serial: "s".into(),
            target_name: "iqn.t".into(),
            naa: None,
            t10: None,
        },
        block_bytes: 512,
        blocks: 2048,
        read_only: false,
        is_restricted: false,
        removable: true,
        is_rotational: false,
        is_durable: true,
        write_cache: false,
        provisioning: Some(Provisioning { granularity_bytes: 4096 }),
        step_bytes: None,
        best_bytes: None,
        physical_exponent: 0,
        ports: std::sync::Arc::default(),
        shared: std::sync::Arc::default(),
    };
    let luns = Luns(BTreeMap::from([(Lun(0), disk)]));
    let (mut cdb, mut out) = ([0; 16], Vec::new());
    (cdb[0], cdb[1], cdb[7]) = (0xa3, 0x0c, 255);
    assert_eq!(luns.plan([0; 8], &cdb, &mut Nexus::default(), &mut out), Plan::Data);
    let name =
        |d: &[u8]| if d[5] & 1 != 0 { format!("{:02X}/{:02X}", d[0], d[3]) } else { format!("{:02X}", d[0]) };
    out[4..].chunks_exact(8).map(name).collect()
}

#[test]
fn every_command_is_in_the_table_and_every_one_in_the_table_is_a_command() {
    let text = std::fs::read_to_string(root().join("docs/compliance.md")).unwrap();
    let rows = text.lines().skip_while(|line| !line.starts_with("| command | codes")).skip(2);
    let rows = rows.take_while(|line| line.starts_with('|'));
    let codes: Vec<String> = rows
        .flat_map(|row| {
            row.split('|').nth(2).unwrap().split_whitespace().map(str::to_owned).collect::<Vec<_>>()
        })
        .collect();
    let listed: BTreeSet<String> = codes.iter().cloned().collect();
    assert_eq!(listed.len(), codes.len(), "a command is listed twice");
    assert_eq!(listed, reported());
}
