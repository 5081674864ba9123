//! `roundtrip host undo`.

use std::process::ExitCode;

use anyhow::anyhow;
use host::apply::System;
use host::journal::{ChangeSet, Journal, Lock, Now, SetState};
use host::undo::{self, Overwrite};
use output::text::line;

use super::changes::{StateArgs, classify, finish_overdue, keep, print_kept, print_report, print_unreadable};
use crate::Failure;
use crate::print::{eprint_line, print_line};

/// Restore what was changed
///
/// Without a number, the last change set. Settings that another program has changed since are left alone and named.
#[derive(Debug, clap::Args)]
pub(super) struct UndoArgs {
    /// Number of the change set
    id: Option<u64>,
    /// Restore all change sets, the last one first
    #[arg(long, conflicts_with_all = ["id", "list"])]
    all: bool,
    /// Print the change sets, and change nothing
    #[arg(long, conflicts_with_all = ["id", "force"])]
    list: bool,
    /// Also restore settings and remove files that were changed since
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(args: &UndoArgs) -> Result<ExitCode, Failure> {
    finish_overdue(&args.state.state);
    let journal = args.state.journal();
    if args.list {
        return list(&journal);
    }
    let overwrite = if args.force { Overwrite::All } else { Overwrite::Own };
    let lock = journal.lock().map_err(classify)?;
    let ids = match args.id {
        Some(id) => vec![id],
        None => active(&journal, if args.all { usize::MAX } else { 1 })?,
    };
    let mut is_complete = true;
    for id in &ids {
        is_complete &= one(&journal, &lock, *id, overwrite)?;
    }
    // Files that no change set wants any more, also those that an earlier undo has left.
    let kept = keep(&journal, &lock, overwrite).map_err(classify)?;
    drop(lock);
    is_complete &= !print_kept(&kept);
    if ids.is_empty() && kept.is_empty() {
        print_line("nothing to undo");
    }
    if is_complete {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::Work(anyhow!("not everything was restored")))
    }
}

/// The last change sets that an undo has something to do for, the last one first.
fn active(journal: &Journal, most: usize) -> Result<Vec<u64>, Failure> {
    let sets = journal.all().map_err(classify)?.sets;
    Ok(sets.iter().rev().filter(|set| set.is_active()).map(|set| set.id).take(most).collect())
}

fn list(journal: &Journal) -> Result<ExitCode, Failure> {
    let contents = journal.all().map_err(classify)?;
    contents.sets.iter().for_each(print_set);
    print_unreadable(&contents.unreadable);
    Ok(if contents.unreadable.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn one(journal: &Journal, lock: &Lock, id: u64, overwrite: Overwrite) -> Result<bool, Failure> {
    let mut set = journal.load(id).map_err(classify)?;
    if !set.is_active() {
        print_line(format_args!("change set {id} was undone before"));
        return Ok(true);
    }
    let now = Now::read().map_err(classify)?;
    let report =
        undo::undo(&System::default(), journal, lock, &now, &mut set, overwrite).map_err(classify)?;
    print_line(format_args!("change set {id} ({}):", line(&set.origin)));
    let is_complete = print_report(&report);
    for kept in &report.kept {
        for other in later_sets(journal, &set, &kept.setting) {
            eprint_line(format_args!(
                "roundtrip: change set {other} has changed the {} too; undo it first",
                line(&kept.setting)
            ));
        }
    }
    Ok(is_complete)
}

fn later_sets(journal: &Journal, set: &ChangeSet, setting: &host::change::Setting) -> Vec<u64> {
    let ids = journal.ids().unwrap_or_default().into_iter().filter(|id| *id > set.id);
    let sets = ids.filter_map(|id| journal.load(id).ok());
    let changes_it =
        |other: &ChangeSet| other.is_active() && other.steps.iter().any(|step| step.setting == *setting);
    sets.filter(changes_it).map(|other| other.id).collect()
}

fn print_set(set: &ChangeSet) {
    let state = match set.state {
        SetState::Applying => "interrupted",
        SetState::AwaitingConfirmation => "waits for confirmation",
        SetState::Applied => "in force",
        SetState::Undone if set.is_partly_undone() => "partly undone",
        SetState::Undone => "undone",
    };
    print_line(format_args!("{}: {} ({state})", set.id, line(&set.origin)));
    for step in &set.steps {
        let values = (super::changes::shown(&step.before), super::changes::shown(&step.asked));
        let left = step.left.as_ref().map(|why| format!(" (not restored: {why})")).unwrap_or_default();
        print_line(format_args!(
            "  {}: {} -> {}{}",
            line(&step.setting),
            line(values.0),
            line(values.1),
            line(left)
        ));
    }
}
