//! `roundtrip host confirm`.

use std::process::ExitCode;

use anyhow::anyhow;
use host::journal::{Now, SetState};
use host::rollback;
use host::undo::Overwrite;

use super::changes::{StateArgs, classify, finish_overdue, keep, print_kept, print_unreadable};
use crate::Failure;
use crate::print::print_line;

/// Keep a change that would roll back
#[derive(Debug, clap::Args)]
pub(super) struct ConfirmArgs {
    /// Number of the change set; by default the one that waits
    id: Option<u64>,
    #[command(flatten)]
    state: StateArgs,
}

pub(super) fn run(args: &ConfirmArgs) -> Result<ExitCode, Failure> {
    // What is overdue is not confirmed any more.
    finish_overdue(&args.state.state);
    let journal = args.state.journal();
    let lock = journal.lock().map_err(classify)?;
    let id = match args.id {
        Some(id) => id,
        None => {
            let contents = journal.all().map_err(classify)?;
            print_unreadable(&contents.unreadable);
            let mut waiting = contents.sets.iter().filter(|set| set.state == SetState::AwaitingConfirmation);
            match (waiting.next(), waiting.next()) {
                (Some(set), None) => set.id,
                (None, _) => return Err(Failure::Usage(anyhow!("no change set waits for a confirmation"))),
                _ => return Err(Failure::Usage(anyhow!("several change sets wait; name one"))),
            }
        }
    };
    let set = rollback::confirm(&journal, &lock, &Now::read().map_err(classify)?, id).map_err(classify)?;
    // An unconfirmed change writes no file, so that a reboot ends it.
    let kept =
        if set.persist { Some(keep(&journal, &lock, Overwrite::Own).map_err(classify)?) } else { None };
    drop(lock);
    print_line(format_args!("change set {id} stays"));
    if kept.as_ref().is_some_and(print_kept) {
        return Err(Failure::Work(anyhow!("not everything will hold after a reboot")));
    }
    Ok(ExitCode::SUCCESS)
}
