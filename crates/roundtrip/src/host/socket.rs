//! `roundtrip host socket`.

use std::path::PathBuf;
use std::process::ExitCode;

use ::socket::foreign::{OptionName, OptionValue, Wish};
use anyhow::anyhow;
use host::facts::Unseen;
use host::facts::socket::SocketFacts;
use host::live::{Changed, LiveError, Planned, SocketName, SocketRecord, Undone, plan};
use host::read::{Roots, Wanted, socket};
use host::undo::Overwrite;
use output::text::line;
use report::socket_text::socket_lines;
use serde_json::{Value, json};

use crate::Failure;
use crate::print::{eprint_line, print_json, print_line};

/// Show TCP sockets of running programs, and change their options
///
/// Without settings, lists sockets: options, buffers, queues, rates, round trip times. With settings, shows what would change;
/// --apply changes it, --undo restores it. Options of other programs' sockets need root or the program's user.
#[derive(Debug, clap::Args)]
#[command(after_help = "Settings:\n  \
    nodelay=on|off        TCP_NODELAY: off enables Nagle's algorithm\n  \
    cork=on|off           TCP_CORK: off sends what waits\n  \
    quickack=on|off       TCP_QUICKACK; not permanent: the kernel leaves it again by itself\n  \
    sndbuf=SIZE           SO_SNDBUF; ends autotuning until --undo\n  \
    rcvbuf=SIZE           SO_RCVBUF; the window scale of the handshake remains\n  \
    notsent-lowat=SIZE    TCP_NOTSENT_LOWAT; 0 for the system's value\n  \
    congestion=NAME       TCP_CONGESTION\n\n\
    Examples:\n  roundtrip host socket --port 3260\n  \
    roundtrip host socket --pid 4711 --fd 7 nodelay=on --apply\n  \
    roundtrip host socket --undo")]
pub(super) struct SocketArgs {
    /// Settings, such as nodelay=on
    #[arg(value_name = "OPTION=VALUE", value_parser = wish, conflicts_with = "undo")]
    settings: Vec<Wish>,
    /// Process whose sockets to look at, in its own network namespace
    #[arg(long)]
    pid: Option<u32>,
    /// Descriptor of the socket in that process
    #[arg(long, requires = "pid")]
    fd: Option<i32>,
    /// TCP port, of either end
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Make the changes; without it they are only shown
    #[arg(long, requires = "settings")]
    apply: bool,
    /// Restore what --apply changed, the latest change first
    #[arg(long, conflicts_with_all = ["pid", "port"])]
    undo: bool,
    /// Also restore options that the program has changed since
    #[arg(long, requires = "undo")]
    force: bool,
    /// Directory with the record of changes
    #[arg(long, value_name = "DIR", default_value = "/var/lib/roundtrip/host")]
    state: PathBuf,
    /// Print as JSON on stdout
    #[arg(long)]
    json: bool,
}

fn wish(text: &str) -> Result<Wish, String> {
    text.parse()
}

pub(super) fn run(args: &SocketArgs) -> Result<ExitCode, Failure> {
    if args.undo {
        return undo(args);
    }
    let wanted = Wanted { pid: args.pid, port: args.port, ..Wanted::default() };
    if !args.settings.is_empty() && args.pid.is_none() && args.port.is_none() {
        let text = "settings need the sockets to change: name a process (--pid), a port (--port), or both";
        return Err(Failure::Usage(anyhow!(text)));
    }
    if let Some(pid) = args.pid {
        super::check::existing(pid)?;
    }
    let mut unseen = Vec::new();
    let mut sockets = socket::list(&Roots::default(), &wanted, &mut unseen);
    if let Some(fd) = args.fd {
        sockets.retain(|socket| socket.owners.iter().any(|owner| owner.fd == fd));
        if sockets.is_empty() {
            show_unseen(&unseen);
            let pid = args.pid.unwrap_or_default();
            return Err(Failure::Usage(anyhow!(
                "--fd: no TCP socket of a visible process matches at descriptor {fd} of process {pid}; \
                 roundtrip host socket --pid {pid} lists them"
            )));
        }
    }
    if args.settings.is_empty() {
        return list(args, &sockets, &unseen);
    }
    change(args, &sockets, &unseen)
}

/// What `--json` prints without settings. Serialized as it is: a tree of values of 100 000 sockets takes ten times the memory.
#[derive(serde::Serialize)]
struct Listing<'a> {
    sockets: &'a [SocketFacts],
    unseen: &'a [Unseen],
}

fn list(args: &SocketArgs, sockets: &[SocketFacts], unseen: &[Unseen]) -> Result<ExitCode, Failure> {
    if args.json {
        print_json(&Listing { sockets, unseen })?;
        return Ok(ExitCode::SUCCESS);
    }
    for socket in sockets {
        // One write for each socket.
        let text: Vec<String> = socket_lines(socket).iter().map(|text| line(text).to_string()).collect();
        print_line(text.join("\n"));
    }
    print_line(record::units::counted(sockets.len() as u64, "TCP socket"));
    show_unseen(unseen);
    Ok(ExitCode::SUCCESS)
}

fn show_unseen(unseen: &[Unseen]) {
    for Unseen { what, why } in unseen {
        eprint_line(line(format_args!("not seen: {what}: {why}")));
    }
}

/// Shows the changes, or makes them.
fn change(args: &SocketArgs, sockets: &[SocketFacts], unseen: &[Unseen]) -> Result<ExitCode, Failure> {
    let names: Vec<SocketName> =
        sockets.iter().filter_map(|socket| SocketName::of(socket, args.fd)).collect();
    if names.is_empty() {
        show_unseen(unseen);
        let text = "no TCP socket of a visible process matches; roundtrip host socket lists them";
        return Err(Failure::Usage(anyhow!(text)));
    }
    let mut failures = Vec::new();
    let mut planned = Vec::new();
    for name in &names {
        match plan(name, &args.settings) {
            Ok(changes) => planned.extend(changes),
            Err(error) => failures.push(error),
        }
    }
    if !args.apply {
        show_plan(args, &planned)?;
        return Ok(ended(&failures));
    }
    let mut record = SocketRecord::open(&args.state).map_err(|error| Failure::Work(error.into()))?;
    let mut changed = Vec::new();
    // All or none: a socket that cannot be changed now keeps the others as they are. One that was closed does not.
    if failures.iter().all(LiveError::is_gone) {
        match record.apply_all(&planned) {
            Ok(applied) => {
                changed = applied.changed;
                failures.extend(applied.gone);
            }
            Err(error) => failures.push(error),
        }
    } else {
        eprint_line("roundtrip: nothing was changed: the options are set at all sockets or at none");
    }
    show_changed(args, "changed", &changed, &failures)?;
    Ok(ended(&failures))
}

fn show_plan(args: &SocketArgs, planned: &[Planned]) -> Result<(), Failure> {
    if args.json {
        let rows: Vec<Value> = planned
            .iter()
            .map(|change| {
                json!({
                    "socket": change.socket,
                    "option": change.option.name(),
                    "before": change.before.to_string(),
                    "wanted": change.wanted,
                })
            })
            .collect();
        return print_json(&json!({ "planned": rows }));
    }
    for Planned { socket, option, before, wanted } in planned {
        print_line(line(format_args!("would set {option}={wanted}, now {before}: {socket}")));
    }
    remark_on(planned.iter().map(|change| change.option));
    print_line("nothing was changed; --apply makes the changes");
    Ok(())
}

fn show_changed(
    args: &SocketArgs,
    word: &str,
    changed: &[Changed],
    failures: &[LiveError],
) -> Result<(), Failure> {
    if args.json {
        let rows: Vec<Value> = changed.iter().map(row).collect();
        let failures: Vec<String> = failures.iter().map(ToString::to_string).collect();
        return print_json(&json!({ word: rows, "failed": failures }));
    }
    for change in changed {
        let now = if word == "restored" { Some(&change.before) } else { change.after.as_ref() };
        let was = if word == "restored" { change.after.as_ref() } else { Some(&change.before) };
        let text =
            |value: Option<&OptionValue>| value.map_or_else(|| "unknown".to_owned(), ToString::to_string);
        print_line(line(format_args!(
            "{word} {}: {}, was {}: {}",
            change.option,
            text(now),
            text(was),
            change.socket
        )));
    }
    if word == "changed" {
        remark_on(changed.iter().map(|change| change.option));
    }
    Ok(())
}

fn row(change: &Changed) -> Value {
    json!({
        "socket": change.socket,
        "option": change.option.name(),
        "before": change.before.to_string(),
        "after": change.after.as_ref().map(ToString::to_string),
    })
}

/// What a setting does not do.
fn remark_on(options: impl Iterator<Item = OptionName>) {
    let options: std::collections::BTreeSet<OptionName> = options.collect();
    let remarks = [
        (
            OptionName::Quickack,
            "quickack is not permanent: the kernel delays acknowledgements again once the connection looks interactive",
        ),
        (OptionName::Sndbuf, "sndbuf ends autotuning of the send buffer; the kernel doubles the size"),
        (
            OptionName::Rcvbuf,
            "rcvbuf ends autotuning of the window; the kernel doubles the size, and the window scale of the handshake remains",
        ),
        (OptionName::Congestion, "congestion: a connection that began under bbr stays paced"),
    ];
    for (_, remark) in remarks.iter().filter(|(option, _)| options.contains(option)) {
        print_line(format_args!("note: {remark}"));
    }
}

fn undo(args: &SocketArgs) -> Result<ExitCode, Failure> {
    let mut record = SocketRecord::open(&args.state).map_err(|error| Failure::Work(error.into()))?;
    let overwrite = if args.force { Overwrite::All } else { Overwrite::Own };
    let Undone { restored, failures } = record.undo_all(overwrite);
    show_changed(args, "restored", &restored, &failures)?;
    if !args.json && restored.is_empty() && failures.is_empty() {
        print_line("nothing to restore");
    }
    Ok(ended(&failures))
}

fn ended(failures: &[LiveError]) -> ExitCode {
    for error in failures {
        eprint_line(line(format_args!("roundtrip: {error}")));
    }
    if failures.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
