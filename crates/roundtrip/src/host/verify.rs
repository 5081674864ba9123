//! `roundtrip host verify`.

use std::path::Path;
use std::process::ExitCode;

use host::apply::System;
use host::journal::{ChangeSet, Now};
use host::persist::files;
use host::verify::{Verification, left, verify};
use output::text::line;

use super::changes::{StateArgs, classify, desired, finish_overdue, print_unreadable, shown};
use crate::Failure;
use crate::print::{eprint_line, print_json, print_line};

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
    let contents = journal.all().map_err(classify)?;
    // Without the whole journal it is not known what the files should hold.
    let files = if contents.unreadable.is_empty() {
        files::differences(&journal, Path::new("/"), &desired(&contents)).map_err(classify)?
    } else {
        Vec::new()
    };
    let kernel = System::default();
    let sets: Vec<ChangeSet> = contents.sets.into_iter().filter(is_here).collect();
    let settings = verify(&kernel, &sets, &now.boot_id);
    let left = left(&kernel, &sets, &now.boot_id);
    let verification = Verification::new(settings, files, left, contents.unreadable);
    if args.json {
        print_json(&verification)?;
    } else {
        print(&verification);
    }
    Ok(if verification.holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(Verification { settings, files, left, unreadable, .. }: &Verification) {
    for verified in settings {
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
    for left in left {
        let in_force = left.in_force.as_deref().map_or("unreadable".to_owned(), shown);
        print_line(format_args!(
            "{}: {}, but the undo of change set {} was to restore {}: {}",
            line(&left.setting),
            line(in_force),
            left.change_set,
            line(shown(&left.before)),
            line(&left.why)
        ));
    }
    for file in files {
        print_line(format_args!("{}: {}", line(file.path.display()), file.why));
    }
    print_unreadable(unreadable);
    if !unreadable.is_empty() {
        eprint_line("roundtrip: files that keep settings were not compared: the journal is not complete");
    }
    if settings.is_empty() && files.is_empty() && left.is_empty() && unreadable.is_empty() {
        print_line("no change set is in force");
    }
}
