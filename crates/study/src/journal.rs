//! The journal of a study, from which an interrupted one continues: its plan, and one line of JSON for each measured part.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

use output::file;
use serde::Serialize;
use serde::de::DeserializeOwned;
use thiserror::Error;

/// The plan of what is in a folder.
const PLAN: &str = "plan.json";
/// One line for each part that was measured.
const PARTS: &str = "runs.jsonl";
/// The results of a finished study.
const RESULTS: [&str; 2] = ["study.json", "experiment.json"];
/// The page of a finished study.
pub const REPORT: &str = "report.html";

/// Why a journal could not be begun or continued.
#[derive(Debug, Error)]
pub enum JournalError {
    /// The folder cannot be written.
    #[error("cannot write to {path}: {source}")]
    Unwritable {
        /// The folder or file.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// There is no earlier study.
    #[error("no interrupted study to continue: cannot read {path}: {source}")]
    Nothing {
        /// The file that is missing.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The folder holds the results of a finished study.
    #[error("{path} is the result of a finished study: choose another directory, or --force to replace it")]
    Finished {
        /// The result.
        path: PathBuf,
    },
    /// The folder has a file of a name that a study writes, but no study.
    #[error(
        "{path} is not of a study, and would be replaced: choose another directory, or --force to replace it"
    )]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// The folder holds the parts of an interrupted study.
    #[error(
        "{path} has what an interrupted study has measured: --resume continues it, --force discards it, or choose \
         another directory"
    )]
    Unfinished {
        /// The file with the parts.
        path: PathBuf,
    },
    /// The earlier study is not of this plan.
    #[error("{path} is of another plan or place: choose another directory, or leave --resume out")]
    OtherPlan {
        /// The plan's file.
        path: PathBuf,
    },
    /// A line before the last one cannot be read: it was not cut off, but changed.
    #[error("{path}, line {line}: {source}; remove this line to measure its part again")]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Counted from one.
        line: usize,
        /// The error.
        source: serde_json::Error,
    },
}

/// The journal of a study whose parts are `T`.
#[derive(Debug)]
pub struct Journal<T> {
    folder: PathBuf,
    /// The parts that an interrupted study of the same plan has measured.
    pub earlier: Vec<T>,
    /// The last record was incomplete and has been removed.
    pub was_cut: bool,
    parts: File,
}

impl<T: DeserializeOwned> Journal<T> {
    /// Begins the journal of a plan in a folder, which is made where it is missing and holds no other study.
    ///
    /// # Errors
    /// When the folder holds a finished or an interrupted study, or other files of the names that a study writes, or cannot be
    /// written.
    pub fn begin_new(folder: &Path, plan: &str) -> Result<Self, JournalError> {
        // A link is no result of a study, and is replaced.
        let file = |path: &Path| std::fs::symlink_metadata(path).ok().filter(std::fs::Metadata::is_file);
        let mut results = RESULTS.iter().map(|name| folder.join(name));
        if let Some(path) = results.find(|path| file(path).is_some()) {
            return Err(JournalError::Finished { path });
        }
        let path = folder.join(PARTS);
        let parts = file(&path);
        if parts.as_ref().is_some_and(|metadata| metadata.len() > 0) {
            return Err(JournalError::Unfinished { path });
        }
        // A study writes its page after its results, and its plan together with the file of its parts.
        let page = [REPORT, PLAN].into_iter().take(if parts.is_some() { 1 } else { 2 });
        if let Some(path) = page.map(|name| folder.join(name)).find(|path| file(path).is_some()) {
            return Err(JournalError::Foreign { path });
        }
        Self::begin(folder, plan)
    }

    /// Begins the journal of a plan in a folder, in place of any earlier study.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn begin(folder: &Path, plan: &str) -> Result<Self, JournalError> {
        Self::prepare(folder, plan)?;
        let path = folder.join(PARTS);
        let parts = file::create_anew(&path).map_err(|source| JournalError::Unwritable { path, source })?;
        Ok(Self { folder: folder.to_owned(), earlier: Vec::new(), was_cut: false, parts })
    }

    /// Continues the journal that an interrupted study of the same plan has left in a folder.
    ///
    /// # Errors
    /// When there is none, it is of another plan, it is damaged elsewhere than at its end, or the folder cannot be
    /// written.
    pub fn resume(folder: &Path, plan: &str) -> Result<Self, JournalError> {
        let path = folder.join(PLAN);
        let earlier = match std::fs::read_to_string(&path) {
            Ok(earlier) => earlier,
            Err(source) => return Err(JournalError::Nothing { path, source }),
        };
        if earlier != plan {
            return Err(JournalError::OtherPlan { path });
        }
        Self::prepare(folder, plan)?;
        let path = folder.join(PARTS);
        let unwritable = |source| JournalError::Unwritable { path: path.clone(), source };
        let mut parts = file::append(&path).map_err(unwritable)?;
        let mut bytes = Vec::new();
        parts.read_to_end(&mut bytes).map_err(unwritable)?;
        let Lines { parts: earlier, whole_bytes, ends_line } = read(&path, &bytes)?;
        let was_cut = whole_bytes < bytes.len();
        if was_cut {
            parts.set_len(whole_bytes as u64).map_err(unwritable)?;
        }
        if !ends_line {
            parts.write_all(b"\n").map_err(unwritable)?;
        }
        Ok(Self { folder: folder.to_owned(), earlier, was_cut, parts })
    }

    fn prepare(folder: &Path, plan: &str) -> Result<(), JournalError> {
        std::fs::create_dir_all(folder)
            .and_then(|()| file::probe(folder))
            .and_then(|()| file::replace(&folder.join(PLAN), plan))
            .map_err(|source| JournalError::Unwritable { path: folder.to_owned(), source })
    }
}

impl<T> Journal<T> {
    /// Its folder.
    #[must_use]
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// A writer that appends parts as they are measured.
    ///
    /// # Errors
    /// When the process may not open more files.
    pub fn writer(&self) -> io::Result<Writer> {
        self.parts.try_clone().map(Writer)
    }

    /// Writes a result beside it, in place of an older one.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn write(&self, name: &str, text: &str) -> Result<(), JournalError> {
        let path = self.folder.join(name);
        file::replace(&path, text).map_err(|source| JournalError::Unwritable { path, source })
    }
}

/// Appends to a journal.
#[derive(Debug)]
pub struct Writer(File);

impl Writer {
    /// Appends a part.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn append(&mut self, part: &impl Serialize) -> io::Result<()> {
        let mut line = serde_json::to_vec(part)?;
        line.push(b'\n');
        self.0.write_all(&line)
    }
}

/// The contents of a journal's lines.
#[derive(Debug)]
struct Lines<T> {
    parts: Vec<T>,
    /// Bytes up to the end of the last whole record.
    whole_bytes: usize,
    /// They end with a line feed, or are none.
    ends_line: bool,
}

/// Reads all lines. The last one may have been cut off: without its line feed it counts where it is a whole record, and
/// is left out where it is not.
fn read<T: DeserializeOwned>(path: &Path, bytes: &[u8]) -> Result<Lines<T>, JournalError> {
    let mut lines = Lines { parts: Vec::new(), whole_bytes: 0, ends_line: true };
    for (number, line) in (1..).zip(bytes.split_inclusive(|&byte| byte == b'\n')) {
        let ends_line = line.ends_with(b"\n");
        match serde_json::from_slice(line) {
            Ok(part) => lines.parts.push(part),
            Err(_) if !ends_line => break,
            Err(source) => return Err(JournalError::Damaged { path: path.to_owned(), line: number, source }),
        }
        lines.whole_bytes += line.len();
        lines.ends_line = ends_line;
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(count: usize) -> Vec<String> {
        (0..count).map(|n| format!("part {n}: \"ü\"\n")).collect()
    }

    fn write(folder: &Path, plan: &str, parts: &[String]) -> Vec<u8> {
        let journal = Journal::<String>::begin(folder, plan).unwrap();
        let mut writer = journal.writer().unwrap();
        parts.iter().for_each(|part| writer.append(part).unwrap());
        std::fs::read(folder.join(PARTS)).unwrap()
    }

    #[test]
    fn an_earlier_study_is_not_overwritten() {
        let folder = tempfile::tempdir().unwrap();
        let begin = || Journal::<String>::begin_new(folder.path(), "plan");
        begin().unwrap();
        let journal = begin().expect("a journal without parts is no study");
        journal.writer().unwrap().append(&"part").unwrap();
        let old = || std::fs::read(folder.path().join(PARTS)).unwrap();
        let error = refused(&begin);
        assert!(error.contains("--resume continues"), "{error}");
        let kept = old();
        for result in RESULTS {
            std::fs::write(folder.path().join(result), "{}").unwrap();
            let error = refused(&begin);
            assert!(error.contains(result) && error.contains("--force"), "{error}");
            assert_eq!(old(), kept);
            std::fs::remove_file(folder.path().join(result)).unwrap();
        }
    }

    #[test]
    fn files_that_are_not_of_a_study_are_not_overwritten() {
        for name in [REPORT, PLAN] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(name);
            std::fs::write(&path, "mine").unwrap();
            let error = refused(&|| Journal::<String>::begin_new(folder.path(), "plan"));
            assert!(error.contains(name) && error.contains("--force"), "{error}");
            assert_eq!(std::fs::read_to_string(&path).unwrap(), "mine");
            assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing else is made");
            Journal::<String>::begin(folder.path(), "plan").unwrap();
        }
    }

    fn refused(begin: &dyn Fn() -> Result<Journal<String>, JournalError>) -> String {
        begin().expect_err("the folder is in use").to_string()
    }

    #[test]
    fn incomplete_last_line_loses_only_its_part() {
        let folder = tempfile::tempdir().unwrap();
        let (folder, parts) = (folder.path(), texts(3));
        let whole = write(folder, "plan", &parts);
        let last = whole[..whole.len() - 1].iter().rposition(|&byte| byte == b'\n').unwrap() + 1;
        for cut in last..=whole.len() {
            std::fs::write(folder.join(PARTS), &whole[..cut]).unwrap();
            let journal = Journal::<String>::resume(folder, "plan").unwrap();
            let there = if cut + 1 >= whole.len() { 3 } else { 2 };
            assert_eq!(journal.earlier, parts[..there], "cut at {cut} of {}", whole.len());
            assert_eq!(journal.was_cut, cut > last && there == 2);
            // Whatever is measured now is there when it is interrupted again.
            journal.writer().unwrap().append(&"new").unwrap();
            let again = Journal::<String>::resume(folder, "plan").unwrap();
            let expected: Vec<&str> = parts[..there].iter().map(String::as_str).chain(["new"]).collect();
            assert_eq!(again.earlier, expected, "cut at {cut}");
        }
    }

    #[test]
    fn damaged_line_is_reported_by_number() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        for damage in [&b"{\n"[..], b"\n", b"\xff\xfe\n", b"17\n"] {
            let whole = write(folder, "plan", &texts(1));
            std::fs::write(folder.join(PARTS), [&whole, damage, &whole].concat()).unwrap();
            let error = Journal::<String>::resume(folder, "plan").unwrap_err().to_string();
            assert!(error.contains("runs.jsonl, line 2: "), "{error}");
        }
    }

    #[test]
    fn journal_of_another_plan_is_rejected() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let resume = |plan| Journal::<String>::resume(folder, plan).unwrap_err();
        assert!(matches!(resume("plan"), JournalError::Nothing { .. }));
        write(folder, "plan", &texts(1));
        assert!(matches!(resume("another"), JournalError::OtherPlan { .. }));
        assert_eq!(
            Journal::<String>::resume(folder, "plan").unwrap().earlier.len(),
            1,
            "and is left as it was"
        );
    }

    #[test]
    fn links_in_the_folder_are_not_followed() {
        let folder = tempfile::tempdir().unwrap();
        let victim = folder.path().join("victim");
        std::fs::write(&victim, "keep").unwrap();
        let study = folder.path().join("study");
        write(&study, "plan", &texts(1));
        std::fs::remove_file(study.join(PARTS)).unwrap();
        std::os::unix::fs::symlink(&victim, study.join(PARTS)).unwrap();
        assert!(Journal::<String>::resume(&study, "plan").is_err());
        Journal::<String>::begin(&study, "plan").unwrap();
        assert_eq!(std::fs::read_to_string(victim).unwrap(), "keep");
    }
}
