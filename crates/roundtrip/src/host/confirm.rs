//! `roundtrip host confirm`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Keep a change that would roll back
#[derive(Debug, clap::Args)]
pub(super) struct ConfirmArgs {}

pub(super) fn run(_args: &ConfirmArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
