//! `roundtrip host profile`.

use std::process::ExitCode;

use host::profile;

use super::changes::classify;
use crate::Failure;
use crate::print::print_line;

/// Print the profiles
///
/// Without a name, one line for each; with one, its file, in which every value has its reason.
#[derive(Debug, clap::Args)]
pub(super) struct ProfileArgs {
    /// Name of the profile
    name: Option<String>,
}

pub(super) fn run(args: &ProfileArgs) -> Result<ExitCode, Failure> {
    match &args.name {
        Some(name) => {
            profile::profile(name).map_err(classify)?;
            print_line(profile::text(name).unwrap_or_default().trim_end());
        }
        None => {
            for name in profile::names() {
                let profile = profile::profile(name).map_err(classify)?;
                print_line(format_args!("{name}: {}", profile.summary));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}
