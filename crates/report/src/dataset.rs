//! Operations of many captures in a folder that other programs read as one table.
//!
//! `operations/day=YYYY-MM-DD/server=ADDRESS_PORT/CAPTURE.parquet` has the operations of a capture by day (UTC) and service, in the form
//! that Hive gave its name, which Spark, DuckDB and others read; `sketches/CAPTURE.profile` the rates and distributions, which can be
//! merged; `results/CAPTURE.json` its result. The result is written last: a capture that has it and a sketch is complete; one whose
//! analysis was ended by force has no result and is analysed anew.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use record::Observed;

use crate::ops::{Names, OpsWriter};

/// Most files of a capture that are open at a time. What has no place goes to the files of others.
const OPEN_MAX: usize = 64;

/// Most of those; the operations of more days are in the first of them.
const OTHERS_MAX: usize = 16;

/// Records that a file keeps in memory.
const GROUP: usize = 4096;

/// The service of what has no file of its own.
const OTHERS: &str = "others";

/// The folders of a dataset.
const OPERATIONS: &str = "operations";
const SKETCHES: &str = "sketches";
const RESULTS: &str = "results";
const LOCKS: &str = "locks";

/// The part of a dataset that is of one capture.
#[derive(Debug)]
pub struct DatasetWriter {
    root: PathBuf,
    name: String,
    files: BTreeMap<(String, String), OpsWriter>,
}

/// Whether a folder is a dataset.
#[must_use]
pub fn is_dataset(folder: &Path) -> bool {
    folder.join(SKETCHES).is_dir() && folder.join(RESULTS).is_dir()
}

/// The sketches of a dataset, in the order of their names: of complete captures.
///
/// # Errors
/// When the folder cannot be read.
pub fn sketches(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(folder.join(RESULTS))? {
        let path = entry?.path();
        if path.extension().is_some_and(|ending| ending == "json")
            && let Some(name) = path.file_stem()
        {
            let mut sketch = folder.join(SKETCHES).join(name).into_os_string();
            sketch.push(".profile");
            names.push(PathBuf::from(sketch));
        }
    }
    names.sort();
    Ok(names)
}

impl DatasetWriter {
    /// Begins the part of the capture of this name, which names no folder.
    #[must_use]
    pub fn new(root: &Path, name: &str) -> Self {
        Self { root: root.to_owned(), name: plain(name), files: BTreeMap::new() }
    }

    /// Removes what an earlier attempt left: its files, and those that had no name yet.
    ///
    /// # Errors
    /// When a file cannot be removed.
    pub fn clear(&self) -> io::Result<()> {
        let own = format!("{}.parquet", self.name);
        let days = self.root.join(OPERATIONS);
        let folders = |of: &Path| -> Vec<PathBuf> {
            let entries = fs::read_dir(of).into_iter().flatten().flatten();
            entries
                .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
                .map(|entry| entry.path())
                .collect()
        };
        let servers = folders(&days).iter().flat_map(|day| folders(day)).collect::<Vec<_>>();
        for folder in servers.iter().chain([&self.root.join(SKETCHES), &self.root.join(RESULTS)]) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                let hidden = name.strip_prefix('.').is_some_and(|rest| rest.starts_with(&self.name));
                if hidden || name == own || name == format!("{}.profile", self.name) {
                    fs::remove_file(entry.path())?;
                }
            }
        }
        Ok(())
    }

    /// Whether this capture is in the dataset.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        let is_there =
            |path: PathBuf| fs::symlink_metadata(path).is_ok_and(|found| found.is_file() && found.len() > 0);
        is_there(self.result()) && is_there(self.sketch())
    }

    /// Where its result is.
    #[must_use]
    pub fn result(&self) -> PathBuf {
        self.root.join(RESULTS).join(format!("{}.json", self.name))
    }

    /// Where its sketch is.
    #[must_use]
    pub fn sketch(&self) -> PathBuf {
        self.root.join(SKETCHES).join(format!("{}.profile", self.name))
    }

    /// What is locked by who writes this part.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join(LOCKS).join(&self.name)
    }

    /// Adds an operation.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&mut self, observed: &Observed, named: &Names<'_>) -> io::Result<()> {
        let day = day(observed.detail.response.ended.ns().unwrap_or(0));
        let service = named.service.map_or_else(|| OTHERS.to_owned(), |service| plain(&service.to_string()));
        let mut key = (day, service);
        if !self.files.contains_key(&key) && self.files.len() >= OPEN_MAX {
            key.1 = OTHERS.to_owned();
        }
        if !self.files.contains_key(&key) && self.files.len() >= OPEN_MAX + OTHERS_MAX {
            let first = self.files.keys().find(|(_, service)| service == OTHERS);
            key = first.cloned().unwrap_or(key);
        }
        if !self.files.contains_key(&key) {
            let folder =
                self.root.join(OPERATIONS).join(format!("day={}", key.0)).join(format!("server={}", key.1));
            fs::create_dir_all(&folder)?;
            let path = folder.join(format!("{}.parquet", self.name));
            self.files.insert(key.clone(), OpsWriter::create(&path)?.in_groups_of(GROUP));
        }
        match self.files.get_mut(&key) {
            Some(file) => file.write_observed(observed, named),
            None => Ok(()),
        }
    }

    /// Completes the part: the operations, the sketch, and last the result.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn finish(mut self, sketch: &[u8], result: &[u8]) -> io::Result<()> {
        let written = self.complete(sketch, result);
        if written.is_err() {
            // What has its name already would count.
            let _ = self.clear();
        }
        written
    }

    fn complete(&mut self, sketch: &[u8], result: &[u8]) -> io::Result<()> {
        let (target, of_sketch) = (self.result(), self.sketch());
        for file in std::mem::take(&mut self.files).into_values() {
            file.finish()?;
        }
        for folder in [SKETCHES, RESULTS] {
            fs::create_dir_all(self.root.join(folder))?;
        }
        output::file::write(&of_sketch, sketch)?;
        output::file::write(&target, result)
    }
}

/// A text as a name of a file or folder: letters, digits, points and lines stay.
fn plain(text: &str) -> String {
    let text: String = text
        .chars()
        .map(|c| if c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_') { c } else { '_' })
        .take(150)
        .collect();
    // Spark and others do not see names that begin so.
    let hidden = text.trim_start_matches(['.', '_']);
    if hidden.is_empty() { "x".to_owned() } else { hidden.to_owned() }
}

/// The day of a time since the epoch, UTC: the civil calendar from days, by eras of 400 years that begin in March.
fn day(ns: u64) -> String {
    let days = ns / 86_400_000_000_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use record::{Exchange, Passage, Side, Stamp};

    use super::*;

    fn observed(ended_ns: u64) -> Observed {
        let passage = |began, ended| Passage { ended: Stamp::at(ended), ..Passage::begin(began, 1) };
        let exchange = Exchange {
            request: passage(ended_ns - 2000, ended_ns - 1000),
            response: passage(ended_ns - 900, ended_ns),
            ..Exchange::default()
        };
        Observed::alone(Side::Client, &exchange)
    }

    #[test]
    fn days_are_those_of_the_calendar() {
        for (seconds, name) in [
            (0_u64, "1970-01-01"),
            (86_399, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (951_868_800, "2000-03-01"),
            (1_709_164_800, "2024-02-29"),
            (1_735_689_599, "2024-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(day(seconds * 1_000_000_000), name);
        }
    }

    #[test]
    fn names_cannot_leave_the_folder() {
        for (text, name) in [
            ("../../etc/passwd", "etc_passwd"),
            ("", "x"),
            ("..", "x"),
            ("[2001:db8::1]:80", "2001_db8__1__80"),
            ("(1) a.pcap", "1__a.pcap"),
            ("a.pcap\u{202e}\n.gz", "a.pcap__.gz"),
        ] {
            assert_eq!(plain(text), name);
        }
        assert!(plain(&"x".repeat(1000)).len() < 200);
    }

    /// Files that are open are bounded; no operation is lost, whatever the services; an incomplete part counts as none.
    #[test]
    fn many_services_have_few_files_and_every_operation() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = DatasetWriter::new(folder.path(), "a.pcap");
        for port in 0..200_u16 {
            let names = Names { service: Some(([192, 0, 2, 1], 1000 + port).into()), ..Names::default() };
            writer.write(&observed(1_000_000_000 + u64::from(port)), &names).unwrap();
        }
        assert_eq!(writer.files.len(), OPEN_MAX + 1);
        assert!(!writer.is_complete() && !is_dataset(folder.path()));
        writer.finish(b"sketch", b"{}").unwrap();
        let again = DatasetWriter::new(folder.path(), "a.pcap");
        assert!(again.is_complete() && is_dataset(folder.path()));
        let sketches = sketches(folder.path()).unwrap();
        assert_eq!(sketches.len(), 1);
        assert_eq!(fs::read(&sketches[0]).unwrap(), b"sketch");
        let mut rows = 0;
        for server in fs::read_dir(folder.path().join("operations/day=1970-01-01")).unwrap() {
            let path = server.unwrap().path().join("a.pcap.parquet");
            let reader =
                parquet::file::reader::SerializedFileReader::new(fs::File::open(path).unwrap()).unwrap();
            rows += parquet::file::reader::FileReader::metadata(&reader).file_metadata().num_rows();
        }
        assert_eq!(rows, 200);
    }

    #[test]
    fn a_part_that_is_given_up_leaves_nothing_that_counts() {
        let folder = tempfile::tempdir().unwrap();
        let mut writer = DatasetWriter::new(folder.path(), "a.pcap");
        writer.write(&observed(1_000_000_000), &Names::default()).unwrap();
        drop(writer);
        let found =
            fs::read_dir(folder.path().join("operations/day=1970-01-01/server=others")).unwrap().count();
        assert_eq!(found, 0, "a file that is not complete has no name");
        assert!(!DatasetWriter::new(folder.path(), "a.pcap").is_complete());
    }
}
