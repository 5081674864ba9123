//! `roundtrip host verify`.

use std::path::Path;
use std::process::ExitCode;

use host::apply::System;
use host::journal::{ChangeSet, Now};
use host::persist::files;
use host::verify::verify;
use output::text::line;
use serde_json::json;

use super::changes::{StateArgs, classify, desired, finish_overdue, shown};
use crate::Failure;
use crate::print::{print_json, print_line};

/// Compare what is in force with what was asked for, as after a reboot; exit code 1 where it differs
#[derive(Debug, clap::Args)]
pub(super) struct VerifyArgs {
    /// Print as JSON on stdout
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(args: &VerifyArgs) -> Result<ExitCode, Failure> {
    finish_overdue(&args.state.state);
    let journal = args.state.journal();
    let now = Now::read().map_err(classify)?;
    let is_here = |set: &ChangeSet| set.boot_id != now.boot_id || set.namespace == now.namespace;
    let sets: Vec<ChangeSet> = journal.all().map_err(classify)?.into_iter().filter(is_here).collect();
    let settings = verify(&System::default(), &sets, &now.boot_id);
    let files =
        files::differences(Path::new("/"), &desired(&journal).map_err(classify)?.files).map_err(classify)?;
    let holds = settings.iter().all(|setting| setting.holds) && files.is_empty();
    let code = if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    if args.json {
        print_json(&json!({ "holds": holds, "settings": settings, "files": files }))?;
        return Ok(code);
    }
    for verified in &settings {
        let in_force = verified.in_force.as_deref().map_or("unreadable".to_owned(), shown);
        let (setting, in_force) = (line(&verified.setting), line(in_force));
        if verified.holds {
            print_line(format_args!(
                "{setting}: {in_force}, as asked for by change set {}",
                verified.change_set
            ));
            continue;
        }
        let why = if verified.was_rebooted && !verified.persist {
            "; it was not to hold after a reboot (--persist)"
        } else {
            ""
        };
        let asked = line(shown(&verified.asked));
        print_line(format_args!(
            "{setting}: {in_force}, but change set {} asked for {asked}{why}",
            verified.change_set
        ));
    }
    for file in &files {
        print_line(format_args!("{}: {}", line(file.path.display()), file.why));
    }
    if settings.is_empty() && files.is_empty() {
        print_line("no change set is in force");
    }
    Ok(code)
}
