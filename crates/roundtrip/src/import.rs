//! `roundtrip import`: another target's configuration as a file of this one.

use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context as _;

use crate::Failure;
use crate::print::{eprint_line, print_line};

/// Turn another target's configuration into a file for roundtrip target --config
///
/// Prints the file, and on stderr what could not be mapped or has changed its meaning. Rules that cannot be expressed admit nobody.
/// Disks keep the names by which hosts know them (docs/import.md).
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  roundtrip import targetcli /etc/rtslib-fb-target/saveconfig.json --out target.toml\n  \
                        roundtrip import tgt /etc/tgt/targets.conf\n  roundtrip target --check target.toml"
)]
pub(crate) struct ImportArgs {
    /// The other target
    kind: Kind,
    /// Its configuration file
    file: PathBuf,
    /// Write to this new file, which only its owner may read, instead of stdout
    #[arg(long, value_name = "FILE.toml")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum Kind {
    /// LIO: saveconfig.json of targetcli
    Targetcli,
    /// tgt: targets.conf, or what tgt-admin --dump prints
    Tgt,
    /// FreeBSD: ctl.conf
    Ctl,
}

pub(crate) fn run(args: &ImportArgs) -> Result<ExitCode, Failure> {
    let path = args.file.display();
    let text = target_config::read_text(&args.file).map_err(Failure::Usage)?;
    let imported = match args.kind {
        Kind::Targetcli => ::import::targetcli(&text),
        Kind::Tgt => ::import::tgt(&text),
        Kind::Ctl => ::import::ctl(&text),
    };
    let imported = imported.with_context(|| path.to_string()).map_err(Failure::Usage)?;
    match &args.out {
        // It may hold secrets.
        Some(out) => std::fs::File::options()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(out)
            .and_then(|mut file| file.write_all(imported.toml.as_bytes()))
            .with_context(|| format!("{}: it must be a new file", out.display()))
            .map_err(Failure::Work)?,
        None => imported.toml.lines().for_each(|line| print_line(format_args!("{line}"))),
    }
    for ::import::Note { place, text } in &imported.notes {
        eprint_line(format_args!("{place}: {text}"));
    }
    match imported.notes.len() {
        0 => {}
        1 => eprint_line(format_args!("1 note: read it before the file is used")),
        count => eprint_line(format_args!("{count} notes: read them before the file is used")),
    }
    Ok(ExitCode::SUCCESS)
}
