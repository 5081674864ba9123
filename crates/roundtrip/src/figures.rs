//! `--figures`: the six quantities of single operations over time, a page for each run, as SVG and PNG.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use record::units::{counted, format_size};
use record::{Observed, Verb};
use report::quantities::{Clocks, Origin, Run, Subject, Timed, page};
use report::scene::{png, svg};

/// Operations of a study's or a simulation's run that are kept for close views (32 bytes each).
pub(crate) const KEPT_OF_A_RUN: usize = 1 << 21;
/// Operations of each of a capture's pages that are kept.
const KEPT_OF_A_PAGE: usize = 1 << 18;
/// Most kinds of operations of a capture that are followed, and most that are drawn.
const KINDS_MAX: usize = 16;
const PAGES_MAX: usize = 8;
/// A kind with less than this share of the operations of the most frequent one is not drawn.
const SHARE_MIN: f64 = 0.01;
/// Most connections that are counted.
const CONNECTIONS_MAX: usize = 4096;

/// Draws a run to `NAME.svg` and `NAME.png` in a folder, which must exist. Writes nothing if there are no operations.
pub(crate) fn write(folder: Folder<'_>, name: &str, subject: &Subject, run: &Run) -> anyhow::Result<()> {
    let Some(scene) = page(subject, run) else { return Ok(()) };
    let file = |ending: &str| folder.path().join(format!("{name}.{ending}"));
    let put = |path: PathBuf, bytes: &[u8]| {
        let written = match folder {
            Folder::Named(_) => output::file::write(&path, bytes),
            Folder::Own(_) => output::file::replace(&path, bytes),
        };
        written.with_context(|| format!("cannot write {}", path.display()))
    };
    put(file("svg"), svg(&scene).as_bytes())?;
    put(file("png"), &png(&scene)?)
}

/// A folder of pictures.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Folder<'a> {
    /// One that the user named: a symbolic link in it is not written through.
    Named(&'a Path),
    /// One within a folder of the program's own: what has a picture's name is replaced.
    Own(&'a Path),
}

impl Folder<'_> {
    fn path(&self) -> &Path {
        match self {
            Self::Named(path) | Self::Own(path) => path,
        }
    }

    /// Creates it if it is missing.
    pub(crate) fn create(self) -> anyhow::Result<()> {
        let created = match self {
            Self::Named(path) => std::fs::create_dir_all(path),
            Self::Own(path) => output::file::folder(path),
        };
        created.with_context(|| format!("cannot create {}", self.path().display()))
    }
}

/// What the operations of a page have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Kind {
    verb: Verb,
    /// Exact for SCSI; otherwise rounded down to a power of two.
    bytes: u32,
    /// The sides that saw them.
    client: bool,
    server: bool,
}

/// The operations of one kind.
struct Operations {
    run: Run,
    connections: std::collections::BTreeSet<u32>,
    clocks: Clocks,
}

/// The operations of a capture, by kind.
#[derive(Default)]
pub(crate) struct Captured {
    kinds: BTreeMap<Kind, Operations>,
    /// Operations that only one of two capture points saw, and those of further kinds.
    partial: u64,
    others: u64,
}

impl Captured {
    /// Adds an operation.
    pub(crate) fn add(&mut self, observed: &Observed) {
        let op = &observed.op;
        let Some(timed) = Timed::observed(observed).filter(|_| !observed.is_partial) else {
            self.partial += 1;
            return;
        };
        let bytes = match op.verb {
            Verb::Scsi(_) => op.data_bytes,
            _ => op.data_bytes.checked_ilog2().map_or(0, |log| 1 << log),
        };
        let kind = Kind { verb: op.verb, bytes, client: op.c1.is_known(), server: op.s1.is_known() };
        if self.kinds.len() >= KINDS_MAX && !self.kinds.contains_key(&kind) {
            self.others += 1;
            return;
        }
        let operations = self.kinds.entry(kind).or_insert_with(|| Operations {
            run: Run::new(KEPT_OF_A_PAGE),
            connections: std::collections::BTreeSet::new(),
            clocks: Clocks::Apart,
        });
        operations.run.add(&timed);
        if observed.shared_clock {
            operations.clocks = Clocks::Shared;
        }
        if operations.connections.len() < CONNECTIONS_MAX {
            operations.connections.insert(op.connection);
        }
    }

    /// Draws the most frequent kinds, the most frequent first.
    pub(crate) fn write(self, folder: &Path, source: &str) -> anyhow::Result<()> {
        let mut kinds: Vec<(Kind, Operations)> = self.kinds.into_iter().collect();
        kinds.sort_by_key(|(_, operations)| std::cmp::Reverse(operations.run.operations()));
        let most = kinds.first().map_or(0, |(_, operations)| operations.run.operations());
        let is_drawn = |nth: usize, own: &Operations| {
            nth < PAGES_MAX && own.run.operations() as f64 >= SHARE_MIN * most as f64
        };
        let left_out: u64 = kinds
            .iter()
            .enumerate()
            .filter(|(nth, (_, own))| !is_drawn(*nth, own))
            .map(|(_, (_, own))| own.run.operations())
            .sum();
        let folder = Folder::Named(folder);
        folder.create()?;
        for (nth, (kind, own)) in kinds.iter().enumerate().filter(|(nth, (_, own))| is_drawn(*nth, own)) {
            let seen = match (kind.client, kind.server) {
                (true, true) => "both sides",
                (true, false) => "the client's side",
                _ => "the server's side",
            };
            let mut notes = vec![format!(
                "from {source}, {seen}, {}",
                counted(own.connections.len() as u64, "connection")
            )];
            for (count, why) in [
                (self.partial, "that only one of two capture points saw"),
                (self.others + left_out, "of other kinds"),
            ] {
                if count > 0 {
                    notes.push(format!("not on this page: {} {why}", counted(count, "operation")));
                }
            }
            let subject = Subject {
                title: format!("{} {}", kind.verb.name(), format_size(kind.bytes.into())),
                notes,
                origin: Origin::Capture { client: kind.client, server: kind.server },
                clocks: own.clocks,
            };
            let name =
                format!("{}-{}-{}", nth + 1, file_name(&kind.verb.name()), format_size(kind.bytes.into()));
            write(folder, &name, &subject, &own.run)?;
        }
        Ok(())
    }
}

/// A name of a capture as a part of a file's name.
fn file_name(text: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' };
    text.chars().map(plain).take(40).collect::<String>().trim_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test ends at the first surprise")]

    use record::{Exchange, Op, Passage, Side, Stamp};

    use super::*;

    fn observed(side: Side, at_ns: u64) -> Observed {
        let exchange = Exchange {
            op: Op { verb: Verb::Scsi(0x28), data_bytes: 512, connection: 7, ..Op::default() },
            request: Passage { ended: Stamp::at(1_000_000_000 + at_ns), ..Passage::default() },
            response: Passage { ended: Stamp::at(1_000_000_000 + at_ns + 50_000), ..Passage::default() },
            ..Exchange::default()
        };
        Observed::alone(side, &exchange)
    }

    /// What is there is drawn, what is missing is said, and what is left out is counted.
    #[test]
    fn a_capture_of_one_side_says_what_is_missing_and_left_out() {
        let folder = tempfile::tempdir().unwrap();
        for (side, drawn, missing) in [
            (
                Side::Client,
                "outside the client C2-C1, median 50.0 us",
                "inside the server: needs a capture of the server",
            ),
            (
                Side::Server,
                "inside the server S2-S1, median 50.0 us",
                "outside the client: needs a capture of the client",
            ),
        ] {
            let mut captured = Captured::default();
            (0..1000).for_each(|n| captured.add(&observed(side, n * 100_000)));
            captured.add(&Observed { is_partial: true, ..observed(side, 5) });
            let other = observed(side, 7);
            captured.add(&Observed { op: Op { verb: Verb::Nop, ..other.op }, ..other });
            let out = folder.path().join(side.name());
            captured.write(&out, "<one>.pcapng").unwrap();
            let names: Vec<_> = std::fs::read_dir(&out).unwrap().map(|e| e.unwrap().file_name()).collect();
            assert_eq!(names.len(), 2, "SVG and PNG of one kind: {names:?}");
            let svg = std::fs::read_to_string(out.join("1-read-10-512.svg")).unwrap();
            for expected in [
                drawn,
                missing,
                "from &lt;one&gt;.pcapng",
                "1 connection<",
                "not on this page: 1 operation that only one of two capture points saw",
                "not on this page: 1 operation of other kinds",
                "data-panel=\"Whole run\" data-operations=\"1000\"",
            ] {
                assert!(svg.contains(expected), "{expected}: {svg}");
            }
        }
    }

    /// Kinds are followed up to a limit: no capture makes the memory grow without bound.
    #[test]
    fn many_kinds_of_operations_cost_no_more_than_some() {
        let mut captured = Captured::default();
        for bytes in 0..1000 {
            let one = observed(Side::Client, u64::from(bytes));
            captured.add(&Observed { op: Op { data_bytes: bytes, connection: bytes, ..one.op }, ..one });
        }
        assert_eq!((captured.kinds.len(), captured.others), (KINDS_MAX, 1000 - KINDS_MAX as u64));
        let folder = tempfile::tempdir().unwrap();
        captured.write(folder.path(), "a").unwrap();
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 2 * PAGES_MAX);
    }

    #[test]
    fn names_of_a_capture_stay_in_the_folder() {
        assert_eq!(file_name("../../etc/passwd\u{0}\u{202e}"), "etc-passwd");
        assert_eq!(file_name("READ(10)"), "read-10");
        assert_eq!(file_name(&"x".repeat(500)).len(), 40);
    }
}
