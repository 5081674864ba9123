//! Compares samples in the documentation with the program's output. A sample is a fenced block after a line
//! `<!-- sample: COMMAND -->`; commands run in one folder, in the order of the document. A line `...` stands for any
//! number of lines. `ROUNDTRIP_WRITE_SAMPLES=1 cargo test -p roundtrip --test samples` writes the samples without such a line anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};

/// A sample of a document.
struct Sample {
    document: PathBuf,
    place: String,
    command: String,
    lines: Vec<String>,
}

fn samples(path: &Path) -> Vec<Sample> {
    let text = std::fs::read_to_string(path).unwrap();
    let mut all = Vec::new();
    let mut lines = text.lines().enumerate();
    while let Some((number, line)) = lines.next() {
        let Some(command) = line.strip_prefix("<!-- sample: ").and_then(|rest| rest.strip_suffix(" -->"))
        else {
            continue;
        };
        let place = format!("{}:{}", path.display(), number + 1);
        assert_eq!(lines.next().map(|(_, line)| line), Some("```"), "{place}: a fenced block follows");
        let block = lines.by_ref().map(|(_, line)| line.trim_end().to_owned());
        let lines = block.take_while(|line| line != "```").collect();
        all.push(Sample { document: path.to_owned(), place, command: command.to_owned(), lines });
    }
    all
}

/// Replaces the lines of a command's sample.
fn rewrite(document: &Path, command: &str, lines: &[String], printed: &[&str]) {
    let text = std::fs::read_to_string(document).unwrap();
    let block = |lines: &[&str]| {
        let lines: String = lines.iter().map(|line| format!("{line}\n")).collect();
        format!("<!-- sample: {command} -->\n```\n{lines}```")
    };
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let rest: Vec<&str> = text.lines().map(str::trim_end).collect();
    let text = format!("{}\n", rest.join("\n"));
    assert!(text.contains(&block(&lines)), "{}: {command}", document.display());
    std::fs::write(document, text.replace(&block(&lines), &block(printed))).unwrap();
}

/// Whether the lines are those of the sample, of which `...` stands for any number.
fn is_like(sample: &[String], printed: &[&str]) -> bool {
    match (sample.split_first(), printed.split_first()) {
        (None, rest) => rest.is_none(),
        (Some((first, rest)), _) if first == "..." => {
            (0..=printed.len()).any(|skipped| is_like(rest, &printed[skipped..]))
        }
        (Some(_), None) => false,
        (Some((first, rest)), Some((line, printed))) => first == line && is_like(rest, printed),
    }
}

#[test]
fn samples_are_what_the_program_prints() {
    let root = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."));
    let mut documents = vec![root.join("README.md")];
    let docs = std::fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    documents.extend(docs.filter(|path| path.extension().is_some_and(|extension| extension == "md")));
    let folder = tempfile::tempdir().unwrap();
    let mut count = 0;
    for sample in documents.iter().flat_map(|path| samples(path)) {
        let Sample { document, place, command, lines } = sample;
        let words: Vec<&str> = command.split_whitespace().collect();
        assert_eq!(words.first(), Some(&"roundtrip"), "{place}");
        let output = common::roundtrip().args(&words[1..]).current_dir(folder.path()).output().unwrap();
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<&str> = printed.lines().map(str::trim_end).collect();
        let stderr = String::from_utf8_lossy(&output.stderr);
        if std::env::var_os("ROUNDTRIP_WRITE_SAMPLES").is_some() && !lines.iter().any(|line| line == "...") {
            rewrite(&document, &command, &lines, &printed);
            continue;
        }
        assert!(is_like(&lines, &printed), "{place}: it prints\n{}\n{stderr}", printed.join("\n"));
        count += 1;
    }
    assert!(count >= 2, "{count} samples");
    let picture = std::fs::read(root.join("docs/two-sends.svg")).unwrap();
    assert_eq!(picture, std::fs::read(folder.path().join("two-sends.svg")).unwrap(), "docs/two-sends.svg");
}

#[test]
fn dots_stand_for_any_number_of_lines() {
    let like = |sample: &str, printed: &str| {
        let sample: Vec<String> = sample.split(',').map(str::to_owned).collect();
        is_like(&sample, &printed.split(',').collect::<Vec<_>>())
    };
    assert!(like("a,...,c", "a,b,b,c") && like("a,...,c", "a,c") && like("...", "a,b") && like("a", "a"));
    assert!(!like("a,...,c", "a,b") && !like("a", "a,b") && !like("a,b", "a") && !like("b", "a"));
}
