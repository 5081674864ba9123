//! Configuration files of other iSCSI targets, written as a configuration file of this target.
//!
//! [`targetcli`] reads LIO's `saveconfig.json`, [`tgt`] the `targets.conf` of tgt, and [`ctl`] FreeBSD's `ctl.conf`. Each
//! returns a complete file and notes. Whatever has no equivalent, or one of another meaning, has a note. Rules that cannot
//! be expressed admit nobody: an imported target is never easier to reach than the file says of the original.
//!
//! Disks keep the names by which hosts know them, so that mounts and multipath maps survive the change of target.
//!
//! ```
//! let imported = import::tgt("<target iqn.2024-01.org.example:a>\nbacking-store /srv/a\n</target>")?;
//! assert!(imported.toml.contains("file:/srv/a"));
//! for note in &imported.notes {
//!     println!("{}: {}", note.place, note.text);
//! }
//! # Ok::<(), import::ImportError>(())
//! ```

#![forbid(unsafe_code)]

mod ctl;
mod disks;
mod notes;
mod portals;
mod rules;
mod targetcli;
mod tgt;
mod written;

use thiserror::Error;

pub use notes::Note;

/// Largest file that is read, bytes.
pub const FILE_BYTES_MAX: usize = 1 << 20;

/// Most blocks within each other. A file has two: a target and a disk.
const DEPTH_MAX: usize = 8;

/// What was read from another target's file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The configuration file.
    pub toml: String,
    /// What was not mapped, or was mapped with a change of meaning.
    pub notes: Vec<Note>,
}

/// A file that cannot be imported.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum ImportError {
    /// It is too large.
    #[error("the file has {0} bytes; at most {FILE_BYTES_MAX} are read: divide it")]
    Size(usize),
    /// It is not JSON.
    #[error(
        "line {line}, column {column}: not JSON: {what}; save the configuration again (targetcli saveconfig)"
    )]
    Json {
        /// The line.
        line: usize,
        /// The column.
        column: usize,
        /// The error.
        what: String,
    },
    /// It is JSON, but not of this kind.
    #[error("not a saveconfig.json: {0}")]
    Kind(String),
    /// It breaks the syntax of its kind.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong, and what to do.
        what: String,
    },
    /// The result would not be a valid file.
    #[error("the imported file would be refused: {0}; divide the file and import the parts")]
    Refused(String),
}

/// Imports LIO's `saveconfig.json`, as targetcli writes it.
///
/// # Errors
/// When the text is not such a file.
pub fn targetcli(text: &str) -> Result<Imported, ImportError> {
    checked_size(text)?;
    targetcli::import(text)
}

/// Imports tgt's `targets.conf`, or what `tgt-admin --dump` prints.
///
/// # Errors
/// When the text is not such a file.
pub fn tgt(text: &str) -> Result<Imported, ImportError> {
    checked_size(text)?;
    tgt::import(text)
}

/// Imports FreeBSD's `ctl.conf`, in its traditional syntax.
///
/// # Errors
/// When the text is not such a file.
pub fn ctl(text: &str) -> Result<Imported, ImportError> {
    checked_size(text)?;
    ctl::import(text)
}

fn checked_size(text: &str) -> Result<(), ImportError> {
    if text.len() > FILE_BYTES_MAX { Err(ImportError::Size(text.len())) } else { Ok(()) }
}
