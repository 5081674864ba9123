//! `roundtrip host check`.

use std::process::ExitCode;
use std::time::Duration;

use host::explain;
use host::read::{Roots, Wanted};
use host::report::Checked;
use report::host_text;

use crate::print::{eprint_line, print_json, print_line};
use crate::{Failure, args};

/// Find what this host does to a round trip: links, the other end, the path, TCP, sockets, processors
///
/// Changes nothing. Without root, some things cannot be seen; the result lists them. With --peer, measures the path to that
/// host, and runs the same check there over ssh, where ssh connects without a password and roundtrip is installed.
/// Exit code 1 when something is found, 0 when nothing is.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip host check\n  \
                        roundtrip host check --interface eth0 --watch 31s    # long enough to hear the switch by LLDP\n  \
                        roundtrip host check --peer store2 --port 3260 --explain\n  \
                        roundtrip host check --explain half-duplex\n  \
                        roundtrip host check --prometheus > /var/lib/node_exporter/roundtrip.prom")]
pub(super) struct CheckArgs {
    /// Host at the other end of the path: a name or an address
    #[arg(long, value_name = "HOST")]
    peer: Option<String>,
    /// Only this interface
    #[arg(long, value_name = "IF")]
    interface: Option<String>,
    /// Only sockets of this process
    #[arg(long)]
    pid: Option<u32>,
    /// Only sockets with this TCP port at either end
    #[arg(long)]
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

pub(super) fn run(args: &CheckArgs) -> Result<ExitCode, Failure> {
    if args.watch > LONGEST {
        return Err(Failure::Usage(anyhow::anyhow!("--watch takes at most one day")));
    }
    if let Some(Some(name)) = &args.explain {
        return print_explanation(name);
    }
    let checked = check(args);
    if let Some(interface) = args.interface.as_ref().filter(|_| checked.facts.links.is_empty()) {
        return Err(Failure::Usage(anyhow::anyhow!(
            "there is no interface {interface}: `ip link` lists them"
        )));
    }
    if args.json {
        print_json(&checked)?;
    } else if args.prometheus {
        print_line(host_text::prometheus(&checked).trim_end());
    } else {
        print_text(args, &checked);
    }
    Ok(if checked.findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn check(args: &CheckArgs) -> Checked {
    let wanted = Wanted {
        interface: args.interface.clone(),
        peer: args.peer.clone(),
        pid: args.pid,
        port: args.port,
        watch: args.watch,
    };
    if !args.watch.is_zero() && !args.json && !args.prometheus {
        eprint_line(format_args!("watching for {:.1} s", args.watch.as_secs_f64()));
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
        return Err(Failure::Usage(anyhow::anyhow!(
            "there is no finding {name}; there are {}",
            known.join(", ")
        )));
    };
    page.lines().into_iter().for_each(print_line);
    Ok(ExitCode::SUCCESS)
}
