//! `roundtrip host undo`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Restore what was changed
#[derive(Debug, clap::Args)]
pub(super) struct UndoArgs {}

pub(super) fn run(_args: &UndoArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
