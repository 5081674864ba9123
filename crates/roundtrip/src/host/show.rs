//! `roundtrip host show`.

use std::process::ExitCode;

use anyhow::anyhow;
use host::read::Roots;
use report::host_text;

use crate::Failure;
use crate::print::{print_json, print_line};

/// Print speed, duplex, negotiation and modes of an interface, of this side and of its partner
///
/// Reads the kernel's ethtool interface and changes nothing. Needs no root.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip host show eth0\n  roundtrip host show eth0 --json")]
pub(super) struct ShowArgs {
    /// The interface
    #[arg(value_name = "IF")]
    interface: String,
    /// Print as JSON, with the keys of `roundtrip host check --json`
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ShowArgs) -> Result<ExitCode, Failure> {
    let mut unseen = Vec::new();
    let facts =
        host::read::link::read_one(&Roots::default(), &args.interface, &mut unseen).map_err(|error| {
            if error.is_missing() || error.is_unusable() {
                Failure::Usage(anyhow!("there is no interface {}: `ip link` lists them", args.interface))
            } else {
                Failure::Work(anyhow!(error).context(format!("cannot read {}", args.interface)))
            }
        })?;
    if args.json {
        print_json(&facts)?;
    } else {
        print_line(host_text::link(&facts));
        for unseen in &unseen {
            print_line(format_args!("not seen: {}: {}", unseen.what, unseen.why));
        }
    }
    Ok(ExitCode::SUCCESS)
}
