//! `roundtrip host set`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Change speed, duplex and negotiation of an interface
#[derive(Debug, clap::Args)]
pub(super) struct SetArgs {}

pub(super) fn run(_args: &SetArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
