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
    /// Random, half reads and half writes.
    RandRw,
}

impl Pattern {
    const NAMES: [(&'static str, Pattern); 5] = [
        ("read", Pattern::Read),
        ("write", Pattern::Write),
        ("randread", Pattern::RandRead),
        ("randwrite", Pattern::RandWrite),
        ("randrw", Pattern::RandRw),
    ];

    /// Returns whether any operation writes.
    #[must_use]
    pub fn writes(self) -> bool {
        !matches!(self, Pattern::Read | Pattern::RandRead)
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
