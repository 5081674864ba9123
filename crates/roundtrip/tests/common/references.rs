//! References to tests in documents: `crate path::test`, with the path in the crate's folder.

use std::path::{Path, PathBuf};

/// The folder of the crates.
pub fn crates() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// Whether a source has a test of this name: a function with the attribute `#[test]`.
pub fn has_test(source: &str, name: &str) -> bool {
    let lines: Vec<&str> = source.lines().map(str::trim).collect();
    let begin = format!("fn {name}(");
    let is_of_function = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    lines
        .iter()
        .enumerate()
        .filter(|(_, line)| line.starts_with(&begin))
        .any(|(at, _)| lines[..at].iter().rev().take_while(is_of_function).any(|line| *line == "#[test]"))
}

/// What is wrong with a reference `crate path::test`, if anything is.
pub fn fault(reference: &str) -> Option<String> {
    let Some((name, rest)) = reference.split_once(' ') else {
        return Some(format!("'{reference}' is not of the form 'crate path::test'"));
    };
    let Some((path, test)) = rest.rsplit_once("::") else {
        return Some(format!("'{reference}' has no test"));
    };
    let file = crates().join(name).join(path);
    match std::fs::read_to_string(&file) {
        Err(error) => Some(format!("'{reference}': {}: {error}", file.display())),
        Ok(source) if !has_test(&source, test) => Some(format!("'{reference}': the file has no such test")),
        Ok(_) => None,
    }
}
