//! `roundtrip study-client`: the client's side of a study on another host; not called by people.

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
        let own = std::env::current_exe().context("looking for this program").map_err(Failure::Work)?;
        // It runs on without its file; nothing is left of it then, however it ends.
        std::fs::remove_file(&own)
            .with_context(|| format!("removing {}", own.display()))
            .map_err(Failure::Work)?;
        if let Some(folder) = own.parent() {
            // Only when it is empty, as the folder that was made for it is.
            let _ = std::fs::remove_dir(folder);
        }
    }
    study::remote::serve().map_err(|error| Failure::Work(error.into()))?;
    Ok(ExitCode::SUCCESS)
}
