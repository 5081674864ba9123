//! The outputs of the rows' commands. Commands run in folders of their own, which have the project's `docs` and `crates`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Mutex;

use crate::common::roundtrip;

/// The programs of a command line, as words.
pub fn programs(command: &str) -> Vec<Vec<String>> {
    command.split(" && ").map(words).collect()
}

/// Words of a command line; single quotes hold a word together.
fn words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), String::new(), false);
    for c in line.chars() {
        match c {
            '\'' => is_quoted = !is_quoted,
            ' ' if !is_quoted => words.push(std::mem::take(&mut word)),
            c => word.push(c),
        }
    }
    words.push(word);
    words.retain(|word| !word.is_empty());
    words
}

/// Runs a command line and returns the last program's stdout.
fn run(command: &str) -> Result<String, String> {
    let folder = tempfile::tempdir().map_err(|e| e.to_string())?;
    for name in ["docs", "crates"] {
        let project = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
        std::os::unix::fs::symlink(project, folder.path().join(name)).map_err(|e| e.to_string())?;
    }
    let mut stdout = String::new();
    let programs = programs(command);
    for (place, words) in programs.iter().enumerate() {
        let output =
            roundtrip().args(&words[1..]).current_dir(folder.path()).output().map_err(|e| e.to_string())?;
        // `analyze` exits with 1 if it has a verdict.
        let is_verdict =
            words[1] == "analyze" && output.status.code() == Some(1) && place + 1 == programs.len();
        if !output.status.success() && !is_verdict {
            return Err(format!("{words:?}: {}", String::from_utf8_lossy(&output.stderr)));
        }
        stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    }
    Ok(stdout)
}

/// The outputs of commands, each run once.
pub fn of(commands: BTreeSet<&str>) -> BTreeMap<String, Result<String, String>> {
    let queue = Mutex::new(commands.into_iter().collect::<Vec<_>>());
    let done = Mutex::new(BTreeMap::new());
    let next = || queue.lock().unwrap().pop();
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                while let Some(command) = next() {
                    let output = run(command);
                    done.lock().unwrap().insert(command.to_owned(), output);
                }
            });
        }
    });
    done.into_inner().unwrap()
}
