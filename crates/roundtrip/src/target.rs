//! `roundtrip target`: serve disks over iSCSI.

use std::io::Write as _;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context as _;
use target::{LunConfig, RunningTarget, SendPolicy, TargetConfig};

use crate::stop::Stop;
use crate::{Failure, args};

/// Serve disks over iSCSI
///
/// Prints one line `ready ADDRESS IQN` on stdout when it listens, and serves until SIGTERM or Ctrl-C.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Example:\n  roundtrip target --portal 127.0.0.1:3260 --lun 0=ram:1G --lun 1=zero:1T\n  \
                        iscsi-ls -s iscsi://127.0.0.1:3260"
)]
pub(crate) struct TargetArgs {
    /// Address and port to listen on; port 0 takes any free one
    #[arg(long, default_value = "127.0.0.1:3260")]
    portal: SocketAddr,
    /// The target's iSCSI name
    #[arg(long, default_value = "iqn.2026-11.example.roundtrip:target")]
    iqn: String,
    /// A disk: NUMBER=STORE, with STORE ram:SIZE or zero:SIZE, options ,bs=512|4k ,pbs=4k ,readonly; repeatable
    #[arg(long = "lun", value_parser = args::lun, required = true, value_name = "N=STORE")]
    luns: Vec<(u16, store::StoreSpec)>,
    /// When responses leave: nodelay (one send each) or nagle (Nagle's algorithm, flushed when idle)
    #[arg(long, default_value = "nodelay")]
    send: SendPolicy,
    /// Who may log in (CHAP names and secrets, initiators' names): a TOML file, see docs/target.md
    #[arg(long, value_name = "FILE.toml")]
    access: Option<std::path::PathBuf>,
    /// TCP congestion control, such as cubic; the system's default otherwise
    #[arg(long)]
    congestion: Option<String>,
    /// Print statistics on stderr this often, such as 1s
    #[arg(long, value_parser = args::time, value_name = "TIME")]
    stats: Option<Duration>,
    /// Print the final statistics as JSON on stdout
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: &TargetArgs) -> Result<ExitCode, Failure> {
    let stop = Stop::on_signals().context("watching for signals").map_err(Failure::Work)?;
    let luns = args
        .luns
        .iter()
        .map(|(number, spec)| LunConfig {
            number: *number,
            store: spec.open(),
            block_bytes: spec.block_bytes,
            physical_bytes: spec.physical_bytes,
        })
        .collect();
    let access = args.access.as_deref().map(crate::access::read).transpose().map_err(Failure::Usage)?;
    let config = TargetConfig {
        access,
        send: args.send,
        congestion: args.congestion.clone(),
        ..TargetConfig::new(args.portal, &args.iqn, luns)
    };
    let target = RunningTarget::start(config).map_err(|e| Failure::Usage(e.into()))?;
    println!("ready {} {}", target.address(), args.iqn);
    std::io::stdout().flush().context("writing to stdout").map_err(Failure::Work)?;
    let mut next = args.stats.map(|every| std::time::Instant::now() + every);
    while !stop.is_raised() {
        std::thread::sleep(Duration::from_millis(50));
        if let (Some(at), Some(every)) = (next, args.stats)
            && std::time::Instant::now() >= at
        {
            eprintln!("{}", report::terminal::connections(&target.statistics()));
            next = Some(at + every);
        }
    }
    let shared = target.statistics_handle();
    target.stop();
    let statistics = shared.statistics();
    if args.json {
        let text =
            serde_json::to_string_pretty(&statistics).context("writing JSON").map_err(Failure::Work)?;
        println!("{text}");
    } else if !statistics.is_empty() {
        eprintln!("{}", report::terminal::connections(&statistics));
    }
    Ok(ExitCode::SUCCESS)
}
