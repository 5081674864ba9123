//! `roundtrip host show`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Speed, duplex, negotiation and modes of an interface
#[derive(Debug, clap::Args)]
pub(super) struct ShowArgs {}

pub(super) fn run(_args: &ShowArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
