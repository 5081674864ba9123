//! The request of an operation, and its outcome.

use serde::{Deserialize, Serialize};

use crate::word::Word;

/// The request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Verb {
    /// A SCSI command, by its operation code (SPC-4 annex D).
    Scsi(u8),
    /// An HTTP request, by its method.
    Http(Word),
    /// A command of another protocol, by its name.
    Command(Word),
    /// All data in one direction before data in the other.
    #[default]
    Turn,
    /// A task management function (RFC 7143 11.5.1).
    TaskManagement(u8),
    /// A ping: NOP-Out and NOP-In.
    Nop,
}

impl Verb {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Verb::Scsi(code) => match scsi_name(code) {
                Some(name) => name.to_owned(),
                None => format!("command {code:#04x}"),
            },
            Verb::Http(name) | Verb::Command(name) => name.to_string(),
            Verb::Turn => "turn".to_owned(),
            Verb::TaskManagement(function) => format!("task management {function}"),
            Verb::Nop => "ping".to_owned(),
        }
    }
}

/// Names of operation codes (SPC-4 annex D, SBC-3).
fn scsi_name(code: u8) -> Option<&'static str> {
    Some(match code {
        0x00 => "test unit ready",
        0x03 => "request sense",
        0x08 => "read(6)",
        0x0a => "write(6)",
        0x12 => "inquiry",
        0x15 | 0x55 => "mode select",
        0x1a | 0x5a => "mode sense",
        0x25 => "read capacity(10)",
        0x28 => "read(10)",
        0x2a => "write(10)",
        0x2e | 0x8e => "write and verify",
        0x2f | 0x8f => "verify",
        0x35 | 0x91 => "synchronize cache",
        0x41 | 0x93 => "write same",
        0x42 => "unmap",
        0x5e => "persistent reserve in",
        0x5f => "persistent reserve out",
        0x83 => "extended copy",
        0x88 => "read(16)",
        0x89 => "compare and write",
        0x8a => "write(16)",
        0x9e => "service action in",
        0xa0 => "report luns",
        0xa3 => "maintenance in",
        0xa8 => "read(12)",
        0xaa => "write(12)",
        _ => return None,
    })
}

/// How an operation ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// As asked.
    #[default]
    Good,
    /// With an error status.
    Failed,
}
