//! `roundtrip host tune`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Mend what a check found
#[derive(Debug, clap::Args)]
pub(super) struct TuneArgs {}

pub(super) fn run(_args: &TuneArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
