//! The order of accesses and of submissions.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The access pattern, named as in fio.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Pattern {
    /// Sequential reads.
    Read,
    /// Sequential writes.
    Write,
    /// Random reads.
    #[default]
    RandRead,
    /// Random writes.
    RandWrite,
    /// Sequential reads and writes.
    Rw,
    /// Random reads and writes.
    RandRw,
    /// Sequential UNMAP.
    Trim,
    /// Random UNMAP.
    RandTrim,
    /// Sequential WRITE SAME of a zero block.
    WriteZeroes,
    /// Random WRITE SAME of a zero block.
    RandWriteZeroes,
}

impl Pattern {
    const NAMES: [(&'static str, Pattern); 10] = [
        ("read", Pattern::Read),
        ("write", Pattern::Write),
        ("randread", Pattern::RandRead),
        ("randwrite", Pattern::RandWrite),
        ("rw", Pattern::Rw),
        ("randrw", Pattern::RandRw),
        ("trim", Pattern::Trim),
        ("randtrim", Pattern::RandTrim),
        ("writezeroes", Pattern::WriteZeroes),
        ("randwritezeroes", Pattern::RandWriteZeroes),
    ];

    /// Returns whether any operation changes the disk.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Pattern::Read | Pattern::RandRead)
    }

    /// Returns whether reads and writes are mixed.
    #[must_use]
    pub fn is_mixed(self) -> bool {
        matches!(self, Pattern::Rw | Pattern::RandRw)
    }

    /// Returns whether addresses are random.
    #[must_use]
    pub fn is_random(self) -> bool {
        match self {
            Pattern::RandRead
            | Pattern::RandWrite
            | Pattern::RandRw
            | Pattern::RandTrim
            | Pattern::RandWriteZeroes => true,
            Pattern::Read | Pattern::Write | Pattern::Rw | Pattern::Trim | Pattern::WriteZeroes => false,
        }
    }

    /// Returns whether operations clear blocks instead of transferring their data.
    #[must_use]
    pub fn clears(self) -> bool {
        matches!(self, Pattern::Trim | Pattern::RandTrim | Pattern::WriteZeroes | Pattern::RandWriteZeroes)
    }

    /// Returns the name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.iter().find(|(_, p)| *p == self).map_or("", |(name, _)| name)
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::NAMES.iter().find(|(name, _)| *name == text).map(|(_, p)| *p).ok_or_else(|| {
            format!("'{text}' is not an access pattern; use {}", Self::NAMES.map(|(name, _)| name).join(", "))
        })
    }
}

/// When successor requests are sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Submit {
    /// Each at once in a separate send, as the model assumes.
    #[default]
    Each,
    /// All successors of one receive in one send.
    Batch,
}
