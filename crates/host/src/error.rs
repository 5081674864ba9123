//! Why a host could not be changed or restored.

use std::io;
use std::path::PathBuf;

use thiserror::Error;

/// Why a host could not be changed or restored.
#[derive(Debug, Error)]
pub enum ChangeError {
    /// A file could not be read or written.
    #[error("{doing} {path}: {source}")]
    Io {
        /// What was tried: `reading`.
        doing: &'static str,
        /// The file or folder.
        path: PathBuf,
        /// The kernel's reason.
        source: io::Error,
    },
    /// The name of a file below /proc/sys or /sys leads elsewhere or is not a name.
    #[error("'{path}' is not a file below {root}: {why}")]
    Outside {
        /// The name as it was given.
        path: String,
        /// The folder that it must not leave.
        root: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// A setting could not be read.
    #[error("cannot read the {setting}: {why}")]
    Read {
        /// The setting.
        setting: String,
        /// The kernel's or driver's reason.
        why: String,
    },
    /// A setting could not be written.
    #[error("cannot set the {setting} to '{value}': {why}")]
    Write {
        /// The setting.
        setting: String,
        /// The value that was asked for.
        value: String,
        /// The kernel's or driver's reason.
        why: String,
    },
    /// A value does not fit its setting.
    #[error("'{value}' is not a value of the {setting}: {why}")]
    Value {
        /// The setting.
        setting: String,
        /// The value.
        value: String,
        /// What is wrong, and what would be right.
        why: String,
    },
    /// A change is refused because it could do harm.
    #[error("{0}")]
    Refused(String),
    /// A change failed, and those before it were taken back or not.
    #[error("{cause}; {outcome}")]
    Incomplete {
        /// Why.
        cause: Box<ChangeError>,
        /// What became of the changes before it.
        outcome: String,
    },
    /// A journal cannot be used.
    #[error("the journal {path} cannot be used: {why}")]
    Journal {
        /// The file.
        path: PathBuf,
        /// What is wrong, and what to do.
        why: String,
    },
    /// There is no such change set.
    #[error("there is no change set {id} in {folder}{known}")]
    NoSet {
        /// The number that was asked for.
        id: u64,
        /// The folder of the journal.
        folder: PathBuf,
        /// The numbers that exist.
        known: String,
    },
    /// A profile cannot be used.
    #[error("the profile {name} cannot be used: {why}")]
    Profile {
        /// Its name or file.
        name: String,
        /// What is wrong, with its line.
        why: String,
    },
}

impl ChangeError {
    /// An error of a file, for `map_err`.
    pub(crate) fn io(doing: &'static str, path: impl Into<PathBuf>) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::Io { doing, path, source }
    }
}
