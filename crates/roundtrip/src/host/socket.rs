//! `roundtrip host socket`.

use std::process::ExitCode;

use anyhow::anyhow;

use crate::Failure;

/// Change options of a running process's socket
#[derive(Debug, clap::Args)]
pub(super) struct SocketArgs {}

pub(super) fn run(_args: &SocketArgs) -> Result<ExitCode, Failure> {
    Err(Failure::Work(anyhow!("not there yet")))
}
