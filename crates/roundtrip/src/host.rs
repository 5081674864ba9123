//! `roundtrip host`: what a host does to a round trip, found, explained, changed and undone.

mod changes;
mod check;
mod confirm;
mod explain;
mod guard;
mod profile;
mod serve;
mod set;
mod show;
mod socket;
mod told;
mod tune;
mod undo;
mod verify;

use std::process::ExitCode;

use clap::Subcommand;

use crate::Failure;

/// Find, explain, mend and undo what this host does to a round trip: links, path, TCP, sockets, processors
#[derive(Debug, clap::Args)]
pub(crate) struct HostArgs {
    #[command(subcommand)]
    verb: HostVerb,
}

#[derive(Debug, Subcommand)]
enum HostVerb {
    Check(check::CheckArgs),
    Serve(serve::ServeArgs),
    Explain(explain::ExplainArgs),
    Show(show::ShowArgs),
    Set(set::SetArgs),
    Tune(tune::TuneArgs),
    Confirm(confirm::ConfirmArgs),
    Undo(undo::UndoArgs),
    Verify(verify::VerifyArgs),
    Socket(socket::SocketArgs),
    Profile(profile::ProfileArgs),
    #[command(hide = true)]
    Guard(guard::GuardArgs),
}

pub(crate) fn run(args: &HostArgs) -> Result<ExitCode, Failure> {
    // The verbs that change a host take the folder of the journal themselves.
    if matches!(args.verb, HostVerb::Check(_) | HostVerb::Show(_) | HostVerb::Socket(_)) {
        changes::finish_overdue(std::path::Path::new(::host::journal::STATE_FOLDER));
    }
    match &args.verb {
        HostVerb::Check(args) => check::run(args),
        HostVerb::Serve(args) => serve::run(args),
        HostVerb::Explain(args) => explain::run(args),
        HostVerb::Show(args) => show::run(args),
        HostVerb::Set(args) => set::run(args),
        HostVerb::Tune(args) => tune::run(args),
        HostVerb::Confirm(args) => confirm::run(args),
        HostVerb::Undo(args) => undo::run(args),
        HostVerb::Verify(args) => verify::run(args),
        HostVerb::Socket(args) => socket::run(args),
        HostVerb::Profile(args) => profile::run(args),
        HostVerb::Guard(args) => guard::run(args),
    }
}
