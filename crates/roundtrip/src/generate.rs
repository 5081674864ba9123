//! `roundtrip generate`: what a package holds beside the program, made from the command line itself so that it cannot fall behind.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Args, Command, Subcommand};
use clap_complete::Shell;

use crate::Failure;

/// Write manual pages or completions, for packages
#[derive(Debug, Args)]
pub(crate) struct GenerateArgs {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Manual pages (section 1), one for each verb
    Man {
        /// Where they are written; made if it is missing
        folder: PathBuf,
    },
    /// Completions for bash, zsh and fish, under the names by which these find them
    Completions {
        /// Where they are written; made if it is missing
        folder: PathBuf,
    },
}

/// The program's name.
const NAME: &str = "roundtrip";

/// The shells that Linux distributions have folders for.
const SHELLS: [Shell; 3] = [Shell::Bash, Shell::Zsh, Shell::Fish];

pub(crate) fn run(args: &GenerateArgs, command: Command) -> Result<ExitCode, Failure> {
    let written = match &args.what {
        What::Man { folder } => man(folder, command),
        What::Completions { folder } => completions(folder, &command),
    };
    written.map_err(Failure::Work)?;
    Ok(ExitCode::SUCCESS)
}

fn make(folder: &Path) -> anyhow::Result<()> {
    fs::create_dir_all(folder).with_context(|| folder.display().to_string())
}

/// Writes `roundtrip.1`, `roundtrip-target.1`, `roundtrip-ctl-disk.1` and so on.
fn man(folder: &Path, command: Command) -> anyhow::Result<()> {
    make(folder)?;
    // Each command would have a page for `help`, too, which says nothing.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    page(folder, &command)
}

fn page(folder: &Path, command: &Command) -> anyhow::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let file = folder.join(format!("{name}.1"));
    let mut text = Vec::new();
    // Without a date, so that the same source gives the same page.
    let man = clap_mangen::Man::new(command.clone()).title(name.to_uppercase()).source("Roundtrip");
    man.manual("Roundtrip").render(&mut text).context("a manual page")?;
    fs::write(&file, text).with_context(|| file.display().to_string())?;
    command.get_subcommands().filter(|one| !one.is_hide_set()).try_for_each(|one| page(folder, one))
}

fn completions(folder: &Path, command: &Command) -> anyhow::Result<()> {
    make(folder)?;
    // clap completes hidden verbs, too, and cannot remove one.
    let shown = command.get_subcommands().filter(|one| !one.is_hide_set()).cloned();
    let mut command = Command::new(NAME).version(env!("CARGO_PKG_VERSION")).subcommands(shown);
    for shell in SHELLS {
        let written = clap_complete::generate_to(shell, &mut command, NAME, folder);
        written.with_context(|| format!("{}: {shell}", folder.display()))?;
    }
    Ok(())
}
