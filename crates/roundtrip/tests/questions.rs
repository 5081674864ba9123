//! The questions of docs/questions.md, asked by DuckDB of what `--ops` writes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::roundtrip;

fn here(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(path)
}

/// Python with DuckDB (`scripts/setup.sh test`).
fn python() -> Option<PathBuf> {
    let path = here("../../target/duckdb/bin/python");
    let is_there = Command::new(&path)
        .args(["-c", "import duckdb"])
        .output()
        .is_ok_and(|output| output.status.success());
    testing::require("DuckDB for Python (scripts/setup.sh test)", is_there).then_some(path)
}

/// Operations with and without losses, of one side and of both, with and without failures: every query runs, and the figures are those
/// of the analysis.
#[test]
fn each_question_has_its_answer_and_the_figures_of_the_analysis() {
    let Some(python) = python() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let simulated = "simulate --iodepth 4 --operations 3000 --set jitter=0.2 --pcapng both.pcapng";
    assert!(roundtrip().current_dir(at).args(simulated.split(' ')).output().unwrap().status.success());
    let corpus = here("../../corpus/captures");
    let names = [
        "nginx-loss-1-percent",
        "redis-loss-1-percent",
        "go-errors-10-percent",
        "redis-pipelined-16",
        "go-hang-2-percent",
        "nginx-black-hole",
        "memcached-ack-clocked-20ms",
        "postgres-loss-2-percent",
    ];
    let mut captures: Vec<PathBuf> =
        names.iter().map(|name| corpus.join(format!("{name}.pcapng.zst"))).collect();
    captures.push(at.join("both.pcapng"));
    for capture in captures {
        let output = roundtrip()
            .current_dir(at)
            .arg("analyze")
            .arg(&capture)
            .args(["--json", "--ops", "ops.parquet"])
            .output()
            .unwrap();
        assert!(
            output.status.code().is_some_and(|code| code < 2),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        std::fs::write(at.join("analysis.json"), &output.stdout).unwrap();
        let checked = Command::new(&python)
            .arg(here("tests/questions/check.py"))
            .arg(here("../../docs/questions.md"))
            .args([at.join("ops.parquet"), at.join("analysis.json")])
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&checked.stdout);
        let error = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{}: {said}{error}", capture.display());
    }
}
