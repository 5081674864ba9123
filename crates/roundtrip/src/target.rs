//! `roundtrip target`: serves disks over iSCSI.

mod confine;
mod keep;
mod notify;
mod operate;

use std::io::Write as _;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use iscsi_target::{BoundTarget, ConnectionStatistics, Portal, SendPolicy, TargetConfig, Threads};
use serde_json::json;
use target_config::{DiskSpec, NodeFile, OpenDisks, Served, TargetFile, served};

use self::notify::Notify;
use self::operate::Operator;
pub(crate) use self::operate::default_socket;
use crate::print::{print_json_line, print_line};
use crate::stop::Stop;
use crate::{Failure, args, log};

/// Serve disks over iSCSI
///
/// Prints one line `ready ADDRESS IQN` on stdout for each portal and target when it listens, and serves until SIGTERM or
/// Ctrl-C. With --config, SIGHUP reloads disks, access rules and the send policy. SIGUSR1 switches the debug log on and off.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  roundtrip target --portal 127.0.0.1:3260 --lun 0=ram:1G --lun 1=zero:1T\n  \
                        roundtrip target --config target.toml\n  iscsi-ls -s iscsi://127.0.0.1:3260"
)]
pub(crate) struct TargetArgs {
    /// Address and port to listen on (port 0: any free port), with ,group=N for another portal group than 1;
    /// repeatable [default: 127.0.0.1:3260]
    #[arg(long = "portal", value_parser = args::portal, value_name = "ADDRESS:PORT[,group=N]")]
    portals: Vec<Portal>,
    /// The target's iSCSI name [default: iqn.2026-11.example.roundtrip:target]
    #[arg(long)]
    iqn: Option<String>,
    /// A disk: NUMBER=STORE, with STORE ram:SIZE, zero:SIZE, file:PATH[,size=SIZE], dev:PATH, nbd://HOST/EXPORT or rbd:POOL/IMAGE, options
    /// ,bs=512|4k ,pbs=4k ,readonly ,removable ,direct ,shared=yes, and layers (docs/target.md); repeatable
    #[arg(long = "lun", value_parser = target_config::lun, value_name = "N=STORE")]
    luns: Vec<(u16, DiskSpec)>,
    /// TOML file with portals, disks, access and limits (docs/target.md); other options take precedence or add to it [default
    /// without --lun: /etc/roundtrip/target.toml]
    #[arg(long, value_name = "FILE.toml")]
    config: Option<std::path::PathBuf>,
    /// Check this configuration file, print what it serves, and exit
    #[arg(long, value_name = "FILE.toml", exclusive = true)]
    check: Option<std::path::PathBuf>,
    /// Send policy for responses: auto (selects the best mode by measuring), nodelay (one send each), nagle (Nagle's
    /// algorithm, flushed when idle), nagle-unflushed, adaptive[:THRESHOLD:MARGIN] (Nagle while a session is busy) or batch
    /// (one send for all pending responses); docs/send-policy.md [default: auto]
    #[arg(long)]
    send: Option<SendPolicy>,
    /// Event loops that serve the connections; 0: a thread for each connection [default: one loop for each CPU that the
    /// target may use, or for each of --cpus]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(0..=1024))]
    threads: Option<u16>,
    /// Poll for this time, such as 50us, before a thread sleeps; costs a core for each thread that serves connections
    #[arg(long, value_parser = args::time, value_name = "TIME", default_value = "0s")]
    busy_poll: Duration,
    /// Pin the threads that serve connections to these CPUs in turn, such as 0,2
    #[arg(long, value_delimiter = ',', value_name = "CPU")]
    cpus: Vec<usize>,
    /// TOML file with access rules: CHAP names and secrets, initiator names, and the disks that each initiator sees
    /// (docs/target.md)
    #[arg(long, value_name = "FILE.toml")]
    access: Option<std::path::PathBuf>,
    /// Folder for state that initiators ask to keep over a restart (persistent reservations, mode pages)
    #[arg(long, value_name = "FOLDER")]
    state: Option<std::path::PathBuf>,
    /// Limit on the target's resources or waiting times, such as sessions=64 (docs/target.md); repeatable
    #[arg(long = "limit", value_name = "NAME=VALUE")]
    limits: Vec<String>,
    /// Print statistics at this interval, such as 1s: tables on stderr, or with --json a line of JSON on stdout for the
    /// connections
    #[arg(long, value_parser = args::time, value_name = "TIME")]
    stats: Option<Duration>,
    /// Print the final statistics as JSON on stdout
    #[arg(long)]
    json: bool,
    /// Listen for control on this Unix socket (roundtrip ctl, docs/control.md)
    #[arg(long, value_name = "PATH")]
    control: Option<std::path::PathBuf>,
    /// Group that may connect to the control socket, beside its owner
    #[arg(long, value_name = "GROUP", requires = "control")]
    control_group: Option<String>,
    /// Serve metrics for Prometheus at http://ADDRESS:PORT/metrics; repeatable
    #[arg(long, value_name = "ADDRESS:PORT")]
    metrics: Vec<std::net::SocketAddr>,
    /// Keep established sessions over a restart by a service manager: its file descriptor store holds their sockets, and the next
    /// process goes on with them (docs/packaging.md)
    #[arg(long)]
    keep_sessions: bool,
    /// Form of the log on stderr
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub(crate) log_format: log::Format,
    #[command(flatten)]
    tcp: args::TcpArgs,
    #[command(flatten)]
    privileges: confine::SandboxArgs,
}

/// How often the main thread looks at signals.
const TICK: Duration = Duration::from_millis(20);

/// Most requests that wait for the main thread.
const ASKS_WAITING: usize = 64;

/// Time for initiators that may no longer log in to log out.
const LOG_OUT_PATIENCE: Duration = Duration::from_secs(5);

/// Checks that the target may run on the CPUs of `--cpus`: their threads would run anywhere.
fn check_cpus(cpus: &[usize]) -> anyhow::Result<()> {
    let allowed = socket::cpu::allowed().context("cannot find out which CPUs the target may use")?;
    let Some(cpu) = cpus.iter().find(|cpu| !allowed.contains(cpu)) else { return Ok(()) };
    let allowed: Vec<String> = allowed.iter().map(usize::to_string).collect();
    anyhow::bail!("--cpus: CPU {cpu}: the target may use {}", allowed.join(", "))
}

/// Reads the configuration file and applies the command line to it.
fn read(args: &TargetArgs) -> anyhow::Result<TargetFile> {
    let mut file = args.config.as_deref().map(target_config::file::read).transpose()?.unwrap_or_default();
    file.state = args.state.clone().or(file.state);
    if file.nodes.is_empty() {
        file.nodes.push(NodeFile::default());
    }
    // The command line speaks of the first target.
    let node = &mut file.nodes[0];
    node.iqn = args.iqn.clone().or_else(|| node.iqn.take());
    node.luns.extend(args.luns.iter().cloned());
    file.portals.extend(args.portals.iter().cloned());
    if let Some(path) = &args.access {
        let (access, rules) = target_config::access::read(path)?;
        (file.nodes[0].access, file.nodes[0].rules) = (Some(access), Some(rules));
    }
    for limit in &args.limits {
        let (name, value) = limit.split_once('=').with_context(|| format!("'{limit}': write NAME=VALUE"))?;
        file.limits.push((name.to_owned(), value.to_owned()));
    }
    file.check_masks()?;
    Ok(file)
}

/// Binds the sockets for control and metrics.
fn sockets(args: &TargetArgs) -> anyhow::Result<control::server::Sockets> {
    let control =
        args.control.as_deref().map(|path| operate::bind(path, args.control_group.as_deref())).transpose()?;
    let metrics = args.metrics.iter().map(|address| {
        let listener =
            std::net::TcpListener::bind(address).with_context(|| format!("--metrics {address}"))?;
        // With port 0 nobody knows it otherwise.
        if address.port() == 0 {
            eprintln!("metrics at http://{}/metrics", listener.local_addr()?);
        }
        Ok(listener)
    });
    Ok(control::server::Sockets { control, metrics: metrics.collect::<anyhow::Result<_>>()? })
}

/// The configuration file that is read where nothing says what to serve.
const DEFAULT_CONFIG: &str = "/etc/roundtrip/target.toml";

/// Checks a configuration file, and prints what it serves.
fn check(path: &std::path::Path) -> anyhow::Result<()> {
    let file = target_config::file::read(path)?;
    file.check_masks()?;
    print_line(format_args!("{}: valid", path.display()));
    for line in target_config::diff::differences(&TargetFile::default(), &file) {
        print_line(format_args!("{line}"));
    }
    Ok(())
}

pub(crate) fn run(args: TargetArgs) -> Result<ExitCode, Failure> {
    if let Some(path) = &args.check {
        check(path).map_err(Failure::Usage)?;
        return Ok(ExitCode::SUCCESS);
    }
    if args.luns.is_empty() && args.config.is_none() {
        let config = std::path::PathBuf::from(DEFAULT_CONFIG);
        if !config.exists() {
            let what = format!(
                "nothing to serve: give disks with --lun, a file with --config, or write {DEFAULT_CONFIG}"
            );
            return Err(Failure::Usage(anyhow::anyhow!(what)));
        }
        return serve(&TargetArgs { config: Some(config), ..args });
    }
    serve(&args)
}

/// Serves until a signal or a drain ends it.
fn serve(args: &TargetArgs) -> Result<ExitCode, Failure> {
    let passed = keep::passed();
    let signals = || -> std::io::Result<_> {
        let (stop, hangup) = match args.config {
            None => (Stop::on_signals()?, Arc::default()),
            Some(_) => Stop::and_hangup()?,
        };
        Ok((stop, hangup, Stop::user_signal()?))
    };
    let (stop, hangup, user_signal): (Stop, Arc<AtomicBool>, Arc<AtomicBool>) =
        signals().context("cannot install signal handlers").map_err(Failure::Work)?;
    let keep::Inherited { listeners: inherited, stored } = keep::inherited(passed).map_err(Failure::Usage)?;
    let mut notify = Notify::connect().context("NOTIFY_SOCKET").map_err(Failure::Work)?;
    check_cpus(&args.cpus).map_err(Failure::Usage)?;
    let file = read(args).map_err(Failure::Usage)?;
    let mut disks = OpenDisks::default();
    let mut config = TargetConfig {
        nodes: Vec::new(),
        send: args.send.or(file.send).unwrap_or_default(),
        threads: match args.threads {
            None => Threads::PerCpu,
            Some(0) => Threads::PerConnection,
            Some(loops) => Threads::Loops(loops.into()),
        },
        busy_poll: args.busy_poll,
        cpus: args.cpus.clone(),
        tcp: args.tcp.options(true),
        state: file.state.clone(),
        ..TargetConfig::new((std::net::Ipv4Addr::LOCALHOST, 3260).into(), "", Vec::new())
    };
    if !file.portals.is_empty() {
        config.portals.clone_from(&file.portals);
    } else if !inherited.is_empty() {
        let addresses =
            inherited.iter().map(std::net::TcpListener::local_addr).collect::<Result<Vec<_>, _>>();
        let addresses = addresses.context("a socket of the service manager").map_err(Failure::Usage)?;
        config.portals = addresses.into_iter().map(Portal::new).collect();
    }
    for (name, value) in &file.limits {
        target_config::limits::set(&mut config, name, value).map_err(Failure::Usage)?;
    }
    sandbox::open_files::provide(config.limits.connections);
    let usage = |error: anyhow::Error| Failure::Usage(error);
    // Inside the sandbox other processes are not visible.
    let declared = file.disks();
    for (key, spec) in &declared {
        spec.store.check_unused().with_context(|| key.to_string()).map_err(usage)?;
        spec.store.look_up().with_context(|| key.to_string()).map_err(usage)?;
    }
    // Files and devices are opened and ports bound between the two halves of the sandbox.
    let reread = args.config.iter().flat_map(|config| [Some(config), args.access.as_ref()]);
    let plan = args.privileges.plan(&config, &declared, reread.flatten().cloned().collect());
    // The sandbox allows none of these.
    let sockets = sockets(args).map_err(usage)?;
    let keeper = args.keep_sessions.then(keep::Keeper::new).transpose();
    let keeper = keeper.context("--keep-sessions").map_err(Failure::Work)?.filter(|_| notify.is_connected());
    if args.keep_sessions && keeper.is_none() {
        tracing::warn!(
            "--keep-sessions: no service manager has started the target; its sessions end with it"
        );
    }
    let process = control::metrics::Process::open().context("cannot read /proc").map_err(Failure::Work)?;
    let prepared = plan.prepare().map_err(|e| usage(e.into()))?;
    config.nodes = served::nodes(&file, &disks.open(&declared).map_err(usage)?);
    let names: Vec<(String, Option<Vec<u16>>)> =
        config.nodes.iter().map(|node| (node.iqn.clone(), node.groups.clone())).collect();
    let groups: Vec<u16> = config.portals.iter().map(|portal| portal.group).collect();
    let mut served = Served::new(file, disks);
    let bound = BoundTarget::bind_with(config, inherited).map_err(|e| usage(e.into()))?;

    let sandbox = prepared.lock().map_err(|e| usage(e.into()))?;
    tracing::info!("sandbox: {sandbox}");
    let target = bound.start_with(stored.take(&notify)).map_err(|e| usage(e.into()))?;
    for (address, group) in target.addresses().iter().zip(&groups) {
        let reached =
            |reached: &Option<Vec<u16>>| reached.as_ref().is_none_or(|groups| groups.contains(group));
        for (iqn, _) in names.iter().filter(|(_, groups)| reached(groups)) {
            if args.json {
                print_json_line(&json!({ "ready": address, "iqn": iqn }))?;
            } else {
                print_line(format_args!("ready {address} {iqn}"));
            }
        }
    }
    std::io::stdout().flush().context("writing to stdout").map_err(Failure::Work)?;
    let status = format!("serving {} targets at {} portals", names.len(), groups.len());
    notify.ready(&status);
    let (asks, asked) = std::sync::mpsc::sync_channel(ASKS_WAITING);
    let is_asked = sockets.control.is_some() || !sockets.metrics.is_empty();
    // Without a socket, the channel stays open all the same.
    let _asks = asks.clone();
    if is_asked {
        let started = control::server::start(sockets, asks, log::events());
        started.context("cannot start the control thread").map_err(Failure::Work)?;
    }
    let started = std::time::Instant::now();
    let mut operator = Operator {
        args,
        target: &target,
        served: &mut served,
        sandbox: &sandbox,
        process,
        started,
        drains_until: None,
    };
    let mut next = args.stats.map(|every| std::time::Instant::now() + every);
    while !stop.is_raised() {
        if let Ok(asked) = asked.recv_timeout(TICK) {
            let request = asked.request.clone();
            asked.answer(operator.carry_out(request));
        }
        log::sum_up(false);
        notify.alive();
        if operator
            .drains_until
            .is_some_and(|until| target.sessions() == 0 || std::time::Instant::now() >= until)
        {
            tracing::info!(target: "audit", sessions = target.sessions(), "drained");
            break;
        }
        if let Err(error) = operator.served.follow_sizes(&target, LOG_OUT_PATIENCE) {
            tracing::error!("{error:#}; the disk is served with its old size");
        }
        if hangup.swap(false, Ordering::Relaxed) {
            notify.reloading();
            // An invalid file has no effect on the running target.
            match operator.reload() {
                Ok(()) => tracing::info!("reloaded the configuration of disks and access"),
                Err(error) => tracing::error!("reload failed: {error:#}; keeping the old configuration"),
            }
            notify.ready(&status);
        }
        if user_signal.swap(false, Ordering::Relaxed) {
            log::toggle_debug();
        }
        if let (Some(at), Some(every)) = (next, args.stats)
            && std::time::Instant::now() >= at
        {
            let statistics = target.statistics();
            if args.json {
                print_json_line(&json!({ "now": statistics }))?;
            } else {
                print_connections(&statistics);
            }
            print_disk_statistics(&operator.served.disks);
            next = Some(at + every);
        }
    }
    notify.stopping();
    log::sum_up(true);
    let shared = target.statistics_handle();
    match keeper.filter(|_| !target.is_draining()) {
        Some(keeper) => keeper.keep(target, &notify),
        None => target.stop(),
    }
    let statistics = shared.statistics();
    if args.json {
        print_json_line(&json!({ "connections": statistics }))?;
    } else if !statistics.is_empty() {
        print_connections(&statistics);
    }
    print_disk_statistics(&served.disks);
    Ok(ExitCode::SUCCESS)
}

/// Prints the statistics of connections, and where their time goes.
fn print_connections(all: &[ConnectionStatistics]) {
    eprintln!("{}\n{}", report::terminal::connections(all), report::terminal::stages(all));
}

/// Prints the statistics of the disks that count their operations.
fn print_disk_statistics(disks: &OpenDisks) {
    let passed = disks.statistics();
    if !passed.is_empty() {
        eprintln!("{}", report::terminal::disks(&passed));
    }
}
