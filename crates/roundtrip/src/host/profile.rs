//! `roundtrip host profile`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Print the profiles
#[derive(Debug, clap::Args)]
pub(super) struct ProfileArgs {}

pub(super) fn run(_args: &ProfileArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
