//! `roundtrip host verify`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Compare what is in force with what was asked for
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {}

pub(super) fn run(_args: &VerifyArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
