//! `roundtrip host check`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Find what a host does to a round trip
#[derive(Debug, clap::Args)]
pub(super) struct CheckArgs {}

pub(super) fn run(_args: &CheckArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
