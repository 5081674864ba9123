//! `roundtrip host explain`.

use std::process::ExitCode;

use anyhow::anyhow;
use host::explain::{all, of};

use crate::Failure;
use crate::print::{print_json, print_line};

/// Explain a finding: what it is, how it comes about, and what to type on other systems, on switches and in programs
#[derive(Debug, clap::Args)]
pub(super) struct ExplainArgs {
    /// Name of the finding, such as half-duplex; without it, lists all
    #[arg(value_name = "FINDING")]
    id: Option<String>,
    /// Print as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub(super) fn run(args: &ExplainArgs) -> Result<ExitCode, Failure> {
    let Some(id) = &args.id else {
        if args.json {
            print_json(all())?;
        } else {
            all().values().for_each(|page| print_line(format_args!("{:34} {}", page.id, page.title)));
        }
        return Ok(ExitCode::SUCCESS);
    };
    let page = of(id).ok_or_else(|| {
        Failure::Usage(anyhow!("there is no finding '{id}': roundtrip host explain lists the names"))
    })?;
    if args.json {
        print_json(page)?;
    } else {
        page.lines().into_iter().for_each(print_line);
    }
    Ok(ExitCode::SUCCESS)
}
