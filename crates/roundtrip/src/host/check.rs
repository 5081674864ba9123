//! `roundtrip host check`.

use std::process::ExitCode;
use std::time::Duration;

use anyhow::anyhow;
use host::explain;
use host::facts::load::LoadFacts;
use host::facts::peer::PeerFacts;
use host::load::LoadSpec;
use host::read::path::{Peer, resolve};
use host::read::{Roots, Wanted};
use host::report::Checked;
use report::host_text;

use crate::print::{eprint_line, print_json, print_line};
use crate::{Failure, args};

/// Find what this host does to a round trip: links, the other end, the path, TCP, sockets, processors
///
/// Changes nothing. Without root, some things cannot be seen; the result lists them. With --peer, measures the path to that
/// host; with --ssh, also runs the same check there, where ssh connects without a password and roundtrip is installed. With
/// --load, FILLS THE LINK to the peer with data, three times --load-time, where `roundtrip host serve` runs.
/// Exit code 1 when something is found or the load test failed, 0 when nothing is found, 2 when the arguments cannot be used.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip host check\n  \
                        roundtrip host check --interface eth0 --watch 31s    # long enough to hear the switch by LLDP\n  \
                        roundtrip host check --peer store2 --port 3260 --explain\n  \
                        roundtrip host check --peer admin@store2:3260 --ssh      # the path to port 3260, and the check there\n  \
                        roundtrip host check --peer 10.0.0.2 --load              # both directions; fills the link for 15 s\n  \
                        roundtrip host check --explain half-duplex\n  \
                        roundtrip host check --prometheus > /var/lib/node_exporter/roundtrip.prom")]
pub(super) struct CheckArgs {
    /// Host at the other end of the path: HOST, HOST:PORT, [IPV6]:PORT or fe80::1%eth0; the port is that of the path's probes. With
    /// a user (USER@HOST), also --ssh
    #[arg(long, value_name = "HOST")]
    peer: Option<String>,
    /// Also run the check on the peer, over ssh, without asking for a password
    #[arg(long, requires = "peer")]
    ssh: bool,
    /// Fill the path to the peer, each direction alone and then both at once, and count errors, retransmissions and round trip times
    /// at both ends; needs `roundtrip host serve` there. Disturbs all other traffic on the path
    #[arg(long, requires = "peer")]
    load: bool,
    /// Time of each of the three runs of --load, 100ms to 60s
    #[arg(long, value_name = "TIME", value_parser = load_time, default_value = "5s", requires = "load")]
    load_time: Duration,
    /// Port of `roundtrip host serve` on the peer
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..), default_value_t = host::load::PORT, requires = "load")]
    load_port: u16,
    /// The most data of each direction in each run of --load
    #[arg(long, value_name = "SIZE", value_parser = load_bytes, default_value = "128G", requires = "load")]
    load_bytes: u64,
    /// Only this interface
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Only sockets of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Only sockets with this TCP port at either end
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// How long to watch counters and to listen for LLDP; 0s for one reading
    #[arg(long, value_name = "TIME", value_parser = args::time, default_value = "2s")]
    watch: Duration,
    /// Explain each finding, with what to type on other systems, on switches and in programs; with a finding's name, print that
    /// explanation and check nothing
    #[arg(long, value_name = "FINDING", num_args = 0..=1, conflicts_with_all = ["json", "prometheus"])]
    explain: Option<Option<String>>,
    /// Print what was read and found as JSON
    #[arg(long)]
    json: bool,
    /// Print findings and counters in the text format of Prometheus
    #[arg(long, conflicts_with = "json")]
    prometheus: bool,
}

/// Longest time to watch: a day.
const LONGEST: Duration = Duration::from_secs(86_400);

/// The time of a run of the load test.
fn load_time(text: &str) -> Result<Duration, String> {
    let time = args::time(text)?;
    let is_possible = (host::load::TIME_MIN..=host::load::TIME_MAX).contains(&time);
    if is_possible { Ok(time) } else { Err("100ms to 60s are possible".to_owned()) }
}

/// The most bytes of a direction.
fn load_bytes(text: &str) -> Result<u64, String> {
    let bytes = args::size(text)?;
    if (1..=host::load::BYTES_MAX).contains(&bytes) {
        Ok(bytes)
    } else {
        Err("1 to 128G are possible".to_owned())
    }
}

/// Refuses a process that does not exist.
pub(super) fn existing(pid: u32) -> Result<(), Failure> {
    if std::path::Path::new("/proc").join(pid.to_string()).exists() {
        return Ok(());
    }
    Err(Failure::Usage(anyhow!("--pid: there is no process {pid}: `ps -e` lists them")))
}

/// Refuses what names nothing that can be checked, before anything is read.
fn usable(args: &CheckArgs) -> Result<Option<Peer>, Failure> {
    let peer = args.peer.as_deref().map(str::parse::<Peer>).transpose();
    let peer = peer.map_err(|error| Failure::Usage(anyhow!("--peer: {error}")))?;
    // A name that only ssh knows has no address here, and its host is asked all the same.
    if let Some(peer) = peer.as_ref().filter(|peer| !args.ssh && peer.user.is_none()) {
        resolve(peer)
            .map_err(|why| Failure::Usage(anyhow!("--peer: cannot examine '{}': {why}", peer.host)))?;
    }
    if let Some(pid) = args.pid {
        existing(pid)?;
    }
    if let Some(interface) = &args.interface {
        let found = netlink::route::Connection::open().and_then(|mut tables| tables.link(interface));
        if found.is_err_and(|error| error.is_missing() || error.is_unusable()) {
            return Err(Failure::Usage(anyhow!("there is no interface '{interface}': `ip link` lists them")));
        }
    }
    Ok(peer)
}

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    if args.watch > LONGEST {
        return Err(Failure::Usage(anyhow!("--watch takes at most one day")));
    }
    if let Some(Some(name)) = &args.explain {
        return print_explanation(name);
    }
    let peer = usable(args)?;
    let checked = check(args, peer.as_ref());
    if args.json {
        print_json(&checked)?;
    } else if args.prometheus {
        print_line(host_text::prometheus(&checked).trim_end());
    } else {
        print_text(args, &checked);
    }
    let has_peer = args.peer.is_none() || has_examined_peer(&checked);
    if !has_peer {
        eprint_line("roundtrip: nothing answered on the way to the peer: it was not examined");
    }
    let has_loaded = !args.load || checked.facts.load.as_ref().is_some_and(LoadFacts::is_complete);
    Ok(if checked.findings.is_empty() && has_loaded && has_peer {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Whether anything is known about the peer that was named: the path has answered, its own check ran over ssh, or a load test did.
fn has_examined_peer(Checked { facts, .. }: &Checked) -> bool {
    facts.path.as_ref().is_some_and(host::facts::path::PathFacts::has_answer)
        || facts.peers.iter().any(|peer| matches!(peer, PeerFacts::Ssh { .. }))
        || facts.load.is_some()
}

fn check(args: &CheckArgs, peer: Option<&Peer>) -> Checked {
    let wanted = Wanted {
        interface: args.interface.clone(),
        peer: args.peer.clone(),
        // A user has no other use.
        ssh: args.ssh || peer.is_some_and(|peer| peer.user.is_some()),
        load: args.load.then_some(LoadSpec {
            port: args.load_port,
            time: args.load_time,
            bytes: args.load_bytes,
        }),
        pid: args.pid,
        port: args.port,
        watch: args.watch,
    };
    if !args.watch.is_zero() && !args.json && !args.prometheus {
        eprint_line(format_args!("watching for {:.1} s", args.watch.as_secs_f64()));
    }
    if args.load {
        let seconds = 3.0 * args.load_time.as_secs_f64();
        eprint_line(format_args!("then filling the path to the peer for up to {seconds:.1} s"));
    }
    let facts = host::read::all(&Roots::default(), &wanted);
    let findings = host::check::findings(&facts);
    Checked { facts, findings }
}

fn print_text(args: &CheckArgs, checked: &Checked) {
    print_line(host_text::check(checked));
    if args.explain.is_some() {
        let names: Vec<&str> = checked.findings.iter().map(|finding| finding.id.as_str()).collect();
        let mut seen = Vec::new();
        for name in names {
            if seen.contains(&name) {
                continue;
            }
            seen.push(name);
            if let Some(page) = explain::of(name) {
                print_line("");
                page.lines().into_iter().for_each(print_line);
            }
        }
    }
}

fn print_explanation(name: &str) -> Result<ExitCode, Failure> {
    let Some(page) = explain::of(name) else {
        let known: Vec<&str> = explain::all().keys().map(String::as_str).collect();
        return Err(Failure::Usage(anyhow!("there is no finding {name}; there are {}", known.join(", "))));
    };
    page.lines().into_iter().for_each(print_line);
    Ok(ExitCode::SUCCESS)
}
