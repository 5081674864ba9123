//! `roundtrip host set`.

use std::process::ExitCode;

use host::lifeline::Topology;
use host::set::{Forcing, Wanted, plan};
use netlink::ethtool::{Connection, LinkModes};
use output::text::line;

use super::changes::{ApplyArgs, classify, offer};
use crate::Failure;
use crate::print::print_line;

/// Change speed, duplex, negotiation and MTU of an interface
///
/// Speed and duplex restrict what the interface advertises, so that the other end follows. Prints what would change; --apply
/// changes it. Interfaces that carry your connection or the default route need --confirm-within.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip host set eth4 speed=1000 duplex=full\n  \
                        roundtrip host set eth4 advertise=1000baseT/Full,100baseT/Full --apply --persist\n  \
                        roundtrip host set eth4 speed=100 duplex=full autoneg=off --force-speed --apply\n  \
                        roundtrip host set eth0 mtu=9000 --apply --confirm-within 60s")]
pub(super) struct SetArgs {
    /// The interface
    interface: String,
    /// speed=MB/S, duplex=full|half, autoneg=on|off, advertise=MODE,..., mtu=BYTES
    #[arg(required = true, value_name = "KEY=VALUE")]
    words: Vec<String>,
    /// Force speed and duplex (with autoneg=off), because the other end is forced to the same
    #[arg(long)]
    force_speed: bool,
    #[command(flatten)]
    how: ApplyArgs,
}

pub(super) fn run(args: &SetArgs) -> Result<ExitCode, Failure> {
    super::changes::finish_overdue(&args.how.state.state);
    let wanted = Wanted::parse(&args.words).map_err(classify)?;
    let topology = Topology::read().map_err(classify)?;
    if let Some(missing) = topology.missing([args.interface.clone()]) {
        return Err(classify(missing));
    }
    let needs_modes = wanted != Wanted { mtu_bytes: wanted.mtu_bytes, ..Wanted::default() };
    let now = if needs_modes { modes(&args.interface)? } else { LinkModes::default() };
    let forcing = if args.force_speed { Forcing::Allowed } else { Forcing::NotAllowed };
    let plan = plan(&args.interface, &now, &wanted, forcing).map_err(classify)?;
    let origin = format!("set {} {}", args.interface, args.words.join(" "));
    let outcome = offer(&args.how, origin, plan.changes);
    for text in &plan.pitfalls {
        print_line(format_args!("this end: {}", line(text)));
    }
    for text in &plan.other_end {
        print_line(format_args!("other end: {}", line(text)));
    }
    outcome.map(|()| ExitCode::SUCCESS)
}

fn modes(interface: &str) -> Result<LinkModes, Failure> {
    let modes = Connection::open().and_then(|mut kernel| kernel.link_modes(interface));
    modes.map_err(|error| Failure::Work(error.into()))
}
