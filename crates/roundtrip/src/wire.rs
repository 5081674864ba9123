//! `roundtrip wire`: two persistent namespaces and the cable between them.

use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use anyhow::anyhow;
use clap::Subcommand;
use serde_json::json;
use testbed::{NamedWire, Nic, STATE_FOLDER, WireError, WireRecord, nat_plan};

use crate::print::{eprint_line, print_json, print_line};
use crate::{Failure, args};

/// Set up a wire between two network namespaces: a shaped veth pair, or two network cards and the cable between them
///
/// Both ends share one clock, and all their traffic crosses the wire. Interfaces that carry a default route or your login
/// are never changed. A wire stays until it is taken down.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip wire up --rate 1gbit --mtu 9000\n  \
                        roundtrip wire exec server -- roundtrip target --portal 10.99.0.2:3260 --lun 0=ram:1G\n  \
                        roundtrip wire exec client -- roundtrip bench iscsi://10.99.0.2:3260/iqn.2026-11.example.roundtrip:target/0\n  \
                        roundtrip wire show\n  roundtrip study --plan copy --wire wire -o out/copy\n  roundtrip wire down\n  \
                        roundtrip wire up --nic eth4,eth5\n  roundtrip wire plan --nat eth4 eth5")]
pub(crate) struct WireArgs {
    /// Directory with the records of wires
    #[arg(long, value_name = "DIR", default_value = STATE_FOLDER, global = true)]
    state: PathBuf,
    /// Print as JSON on stdout (up, down, show and plan)
    #[arg(long, global = true)]
    json: bool,
    #[command(subcommand)]
    verb: WireVerb,
}

#[derive(Debug, Subcommand)]
enum WireVerb {
    /// Set up a wire
    Up(UpArgs),
    /// Take a wire down, and restore the namespace and the settings of its cards
    Down {
        /// Name of the wire
        #[arg(long, default_value = "wire", conflicts_with = "all")]
        name: String,
        /// Take down all recorded wires, including those left by a crash
        #[arg(long)]
        all: bool,
    },
    /// Show the wires and the settings of their ends, and verify that packets cross them
    Show,
    /// Run a command on one side of a wire
    Exec {
        /// Side to run it on
        #[arg(value_parser = ["client", "server"])]
        side: String,
        /// Name of the wire
        #[arg(long, default_value = "wire")]
        name: String,
        /// The command, after --
        #[arg(last = true, required = true)]
        command: Vec<String>,
    },
    /// Print commands that have the same effect without namespaces, and commands that undo it; runs nothing
    Plan {
        /// Two cards of this host joined by a cable; translation of nonexistent addresses forces traffic over the cable
        #[arg(long, num_args = 2, value_names = ["CLIENT", "SERVER"], required = true)]
        nat: Vec<String>,
    },
}

#[derive(Debug, clap::Args)]
struct UpArgs {
    /// Name of the wire
    #[arg(long, default_value = "wire")]
    name: String,
    /// Rate of each direction, such as 1gbit; by default unlimited
    #[arg(long, value_parser = args::rate)]
    rate: Option<u64>,
    /// MTU of both ends
    #[arg(long, default_value_t = 9000)]
    mtu: u32,
    /// Two network cards joined by a cable, the client's and the server's, instead of a veth pair
    #[arg(long, value_delimiter = ',', num_args = 1, value_name = "CLIENT,SERVER")]
    nic: Vec<String>,
    /// CPU that receives for the client: RPS, XPS and, for a card, its interrupts. By default each connection of a veth pair has
    /// one, so that its segments do not overtake each other
    #[arg(long)]
    client_cpu: Option<usize>,
    /// CPU that receives for the server
    #[arg(long)]
    server_cpu: Option<usize>,
    /// Size of the queue before the wire in each direction; packets beyond it are dropped
    #[arg(long, value_parser = args::size, value_name = "SIZE", default_value = "16M")]
    queue: u64,
    /// Congestion control of connections in both namespaces, such as cubic; by default the system's
    #[arg(long)]
    congestion: Option<String>,
    /// Leave offloads on: faster, but captures show segments larger than the MTU
    #[arg(long)]
    offloads: bool,
}

/// Classifies an error as one of usage or of the work.
fn classify(error: WireError) -> Failure {
    match error {
        WireError::Config { .. } | WireError::NoWire { .. } | WireError::Nic { .. } => {
            Failure::Usage(error.into())
        }
        _ => Failure::Work(error.into()),
    }
}

pub(crate) fn run(args: &WireArgs) -> Result<ExitCode, Failure> {
    match &args.verb {
        WireVerb::Up(up) => make(args, up),
        WireVerb::Down { name, all } => down(args, name, *all),
        WireVerb::Show => show(args),
        WireVerb::Exec { side, name, command } => exec(args, side, name, command),
        WireVerb::Plan { nat } => {
            let plan = nat_plan(&nat[0], &nat[1]);
            if args.json {
                print_json(
                    &json!({ "connect_to": plan.connect_to, "commands": plan.commands, "undo": plan.undo }),
                )?;
                return Ok(ExitCode::SUCCESS);
            }
            print_line(format_args!(
                "# as root; a client then connects to {}\n{}",
                plan.connect_to,
                plan.commands.join("\n")
            ));
            print_line(format_args!("\n# undo\n{}", plan.undo.join("\n")));
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn make(args: &WireArgs, up: &UpArgs) -> Result<ExitCode, Failure> {
    let cpus = std::thread::available_parallelism().map_or(1, usize::from);
    if let Some(cpu) = [up.client_cpu, up.server_cpu].into_iter().flatten().find(|cpu| *cpu >= cpus) {
        return Err(Failure::Usage(anyhow!("CPU {cpu}: this machine has 0 to {}", cpus - 1)));
    }
    let nics = match &up.nic[..] {
        [] => None,
        [client, server] if client != server => {
            Some([Nic::look(client).map_err(classify)?, Nic::look(server).map_err(classify)?])
        }
        _ => return Err(Failure::Usage(anyhow!("--nic takes two different cards: --nic eth4,eth5"))),
    };
    let record = WireRecord {
        name: up.name.clone(),
        bits_per_second: up.rate,
        mtu_bytes: up.mtu,
        cpus: [up.client_cpu, up.server_cpu],
        queue_bytes: u32::try_from(up.queue).unwrap_or(u32::MAX),
        congestion: up.congestion.clone(),
        offloads: up.offloads,
        nics,
    };
    let wire = NamedWire::up(&args.state, record).map_err(classify)?;
    let cable = wire.cable().map_err(classify)?;
    let [client, server] = wire.namespaces();
    if args.json {
        print_json(&json!({
            "name": wire.record.name,
            "client": { "namespace": client, "address": cable.client.address },
            "server": { "namespace": server, "address": cable.server.address },
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    print_line(format_args!(
        "{}: client {} in {client}, server {} in {server}",
        wire.record.name, cable.client.address, cable.server.address
    ));
    Ok(ExitCode::SUCCESS)
}

fn down(args: &WireArgs, name: &str, all: bool) -> Result<ExitCode, Failure> {
    let names = if all { NamedWire::all(&args.state) } else { vec![name.to_owned()] };
    let (mut failure, mut all_down) = (None, Vec::new());
    for name in names {
        let done = NamedWire::find(&args.state, &name).and_then(|wire| wire.down());
        match done {
            Ok(()) if args.json => all_down.push(name),
            Ok(()) => print_line(format_args!("{name} is down")),
            Err(error) => {
                eprint_line(format_args!("roundtrip: {name}: {error}"));
                failure = failure.or(Some(classify(error)));
            }
        }
    }
    if args.json {
        print_json(&json!({ "down": all_down }))?;
    }
    failure.map_or(Ok(ExitCode::SUCCESS), Err)
}

fn show(args: &WireArgs) -> Result<ExitCode, Failure> {
    let (mut all, mut holds) = (Vec::new(), true);
    for name in NamedWire::all(&args.state) {
        let wire = NamedWire::find(&args.state, &name).map_err(classify)?;
        let crossing = wire.prove().map_err(classify)?;
        let ends = wire.state().map_err(classify)?;
        holds &= crossing.holds();
        all.push(report::terminal::Wire { record: wire.record, ends, crossing });
    }
    if args.json {
        let wires: Vec<_> = all
            .iter()
            .map(|wire| json!({ "wire": wire.record, "ends": wire.ends, "crossing": wire.crossing, "crosses": wire.crossing.holds() }))
            .collect();
        print_json(&json!({ "wires": wires }))?;
    } else if all.is_empty() {
        print_line("no wire is up");
    } else {
        print_line(report::terminal::wires(&all));
    }
    Ok(if holds { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn exec(args: &WireArgs, side: &str, name: &str, command: &[String]) -> Result<ExitCode, Failure> {
    let wire = NamedWire::find(&args.state, name).map_err(classify)?;
    let [client, server] = wire.namespaces();
    let namespace = if side == "client" { client } else { server };
    // iproute2 also mounts the namespace's /sys and its /etc.
    let error = Command::new("ip").args(["netns", "exec", &namespace]).args(command).exec();
    Err(Failure::Work(anyhow!("cannot run ip netns exec {namespace}: {error}")))
}
