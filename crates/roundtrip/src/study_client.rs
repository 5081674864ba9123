//! `roundtrip study-client`: the client's side of a study on another host; started by `study`, not by users.

use std::process::ExitCode;

use anyhow::Context as _;

use crate::Failure;

/// Run the client's side of a study that communicates over standard input and output
#[derive(Debug, clap::Args)]
pub(crate) struct StudyClientArgs {
    /// First remove this program's file and its folder, which the study copied here
    #[arg(long)]
    remove: bool,
}

pub(crate) fn run(args: &StudyClientArgs) -> Result<ExitCode, Failure> {
    if args.remove {
        let own =
            std::env::current_exe().context("cannot find this program's file").map_err(Failure::Work)?;
        // The process continues without its file, so no file remains, however the process ends.
        std::fs::remove_file(&own)
            .with_context(|| format!("removing {}", own.display()))
            .map_err(Failure::Work)?;
        if let Some(folder) = own.parent() {
            // Only if it is empty, as the folder that the study created is.
            let _ = std::fs::remove_dir(folder);
        }
    }
    study::remote::serve().map_err(|error| Failure::Work(error.into()))?;
    Ok(ExitCode::SUCCESS)
}
