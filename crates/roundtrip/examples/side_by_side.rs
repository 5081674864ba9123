//! Targets side by side: the raw TCP floor, tgt, any target given as a URL, and Roundtrip with each send policy, under
//! the same load, interleaved, server and client on a CPU each. Prints medians, ratios and the server's CPU time for
//! each operation, as a table and as JSON. `make bench` runs it; docs/performance.md holds its results.
//! scripts/between.sh puts a veth or a shaped wire between the two sides.

#![allow(clippy::unwrap_used, reason = "a program for measurements: what goes wrong ends it")]

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use clap::Parser;
use serde_json::{Value, json};

const IQN: &str = "iqn.2026-11.example.roundtrip:bench";

#[derive(Parser)]
struct Args {
    /// read, write, randread or randwrite
    #[arg(long, default_value = "randread")]
    rw: String,
    /// Block sizes, bytes
    #[arg(long, value_delimiter = ',', default_value = "512,4096")]
    bs: Vec<usize>,
    /// Queue depths
    #[arg(long, value_delimiter = ',', default_value = "1,8,32,128")]
    iodepth: Vec<usize>,
    /// How the client sends: batch, each or iscsi-perf
    #[arg(long, default_value = "batch")]
    client: String,
    /// Policies of the target
    #[arg(long, value_delimiter = ',', default_value = "auto,nodelay,nagle,adaptive,batch")]
    send: Vec<String>,
    /// Its disk
    #[arg(long, default_value = "ram:256M")]
    disk: String,
    /// Leave out: floor, tgt
    #[arg(long, value_delimiter = ',')]
    without: Vec<String>,
    /// Other targets: NAME=URL
    #[arg(long)]
    other: Vec<String>,
    /// How the floor waits and sends: threads, poll, uring, reactor, or memory: a reactor whose data comes from and goes to random
    /// places in 128 MiB, as that of a disk does
    #[arg(long, value_delimiter = ',', default_value = "threads")]
    engines: Vec<String>,
    /// Sessions of the client
    #[arg(long, value_delimiter = ',', default_value = "1")]
    sessions: Vec<usize>,
    /// Targets and floor look for more before they sleep
    #[arg(long)]
    spin: bool,
    /// Length of a run, ms
    #[arg(long, default_value_t = 400)]
    ms: u64,
    /// Runs of each
    #[arg(long, default_value_t = 5)]
    repeats: usize,
    /// Where the figures go
    #[arg(long)]
    json: Option<PathBuf>,
}

/// A measured server; ended when dropped.
struct Server {
    name: String,
    child: Option<Child>,
    /// Its address, or its URL.
    place: String,
    is_floor: bool,
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// A program of this build.
fn built(name: &str) -> PathBuf {
    // This is target/release/examples/side_by_side.
    let examples = std::env::current_exe().unwrap().parent().unwrap().to_owned();
    if name == "roundtrip" { examples.parent().unwrap().join(name) } else { examples.join(name) }
}

/// A command on one CPU: 0 is the server's and 1 the client's, each on its side of a wire where there is one.
fn on_cpu(cpu: usize, program: &Path) -> Command {
    let through = std::env::var(["SERVER_RUN", "CLIENT_RUN"][cpu]).unwrap_or_default();
    let mut words = through.split_whitespace().chain(["taskset", "-c"]);
    let mut command = Command::new(words.next().unwrap());
    command.args(words).arg(cpu.to_string()).arg(program);
    command
}

/// Where servers listen.
fn address() -> String {
    std::env::var("ADDRESS").unwrap_or_else(|_| "127.0.0.1".into())
}

/// Starts a server; `word` is the position of the address in the first line that it prints.
fn start(name: &str, mut command: Command, word: usize, is_floor: bool) -> Server {
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
    let address = line.split_whitespace().nth(word).unwrap_or_else(|| panic!("{name} did not start: {line}"));
    let place = if is_floor { address.to_owned() } else { format!("iscsi://{address}/{IQN}/0") };
    Server { name: name.to_owned(), child: Some(child), place, is_floor }
}

/// tgt with a file, or with its null store of that size.
fn tgt(image: &Path, is_null: bool) -> Server {
    let address = address();
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let control = (port % 100 + 7000).to_string();
    let child = on_cpu(0, Path::new("tgtd"))
        .args(["-f", "-C", &control, "--iscsi", &format!("portal={address}:{port}")])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let server = Server {
        name: "tgt".into(),
        child: Some(child),
        place: format!("iscsi://{address}:{port}/{IQN}/1"),
        is_floor: false,
    };
    let admin = |arguments: &[&str]| {
        let mut command = Command::new("tgtadm");
        command.args(["-C", &control, "--lld", "iscsi"]).args(arguments);
        command.stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap().success()
    };
    for _ in 0..100 {
        if admin(&["--mode", "target", "--op", "new", "--tid", "1", "-T", IQN]) {
            break;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    let store = if is_null { "null" } else { "rdwr" };
    let image = image.to_str().unwrap();
    let unit = ["--mode", "logicalunit", "--op", "new", "--tid", "1", "--lun", "1", "-b", image, "-E", store];
    assert!(admin(&unit));
    assert!(admin(&["--mode", "target", "--op", "bind", "--tid", "1", "-I", "ALL"]));
    server
}

/// CPU time of a process, us.
fn cpu_us(pid: u32) -> f64 {
    // All threads, including ended ones: the clock of the process, in ticks of 10 ms.
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    let ticks: f64 = fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap();
    ticks * 1e4
}

/// The result of one run.
struct Run {
    /// Operations a second.
    iops: f64,
    /// Median and 99th percentile, us, if the client reports them.
    p50: f64,
    p99: f64,
    /// Operations of the slowest session to those of the mean one.
    slowest: f64,
}

impl Run {
    fn of(iops: f64) -> Self {
        Self { iops, p50: 0.0, p99: 0.0, slowest: 1.0 }
    }
}

/// Length of a run, ms: long beside what is under way at its begin and end, and beside the time until each of the client's threads,
/// one for each session, has run on its CPU.
fn length_ms(args: &Args, (block, depth, sessions): (usize, usize, usize)) -> u64 {
    // Bytes that one CPU moves in a millisecond, at most.
    const BYTES: usize = 3_000_000;
    args.ms.max((10 * depth * sessions * block / BYTES) as u64).max(4 * sessions as u64)
}

fn run(server: &Server, args: &Args, load: (usize, usize, usize)) -> Run {
    let ((block, depth, sessions), ms) = (load, length_ms(args, load));
    let writes = args.rw.contains("write");
    if server.is_floor {
        let (request, response) = if writes { (48 + block, 48) } else { (48, 48 + block) };
        let mut command = on_cpu(1, &built("floor"));
        command.args(["client", &server.place, "--request", &request.to_string()]);
        command.args(["--response", &response.to_string(), "--depth", &depth.to_string()]);
        command.args(["--ms", &ms.to_string(), "--connections", &sessions.to_string()]);
        if args.client == "batch" {
            command.arg("--batch");
        }
        if args.spin {
            command.arg("--spin");
        }
        let output = command.output().unwrap();
        return Run::of(String::from_utf8(output.stdout).unwrap().trim().parse().unwrap());
    }
    if args.client == "iscsi-perf" {
        let seconds = seconds(server, args, ms);
        let mut command = on_cpu(1, Path::new("iscsi-perf"));
        command.args([
            "-m",
            &depth.to_string(),
            "-b",
            &(block / 512).to_string(),
            "-t",
            &seconds.to_string(),
            "-r",
        ]);
        let output = command.arg(&server.place).output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        // The last of its running averages.
        let iops = text.rmatches("iops average ").next().and(text.rsplit("iops average ").next());
        let iops = iops.and_then(|rest| rest.split_whitespace().next()).and_then(|n| n.parse().ok());
        return Run::of(iops.unwrap_or_else(|| panic!("iscsi-perf said {text}")));
    }
    let mut command = on_cpu(1, &built("roundtrip"));
    command.args(["bench", &server.place, "--rw", &args.rw, "--bs", &block.to_string()]);
    command.args(["--iodepth", &depth.to_string(), "--sessions", &sessions.to_string(), "--json"]);
    command.args(["--runtime", &format!("{ms}ms"), "--ramp", &format!("{}ms", ms / 4), "--size", "128M"]);
    if args.client == "batch" {
        command.arg("--batch");
    }
    if args.spin {
        command.args(["--busy-poll", "1s"]);
    }
    let output = command.output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}: {}", server.name, String::from_utf8_lossy(&output.stderr)));
    let run = &result["runs"][0];
    assert_eq!(run["errors"], 0, "{}", server.name);
    let us = |name: &str| run["latency_us"][name].as_f64().unwrap();
    let iops = run["iops"].as_f64().unwrap();
    let slowest = run["slowest_session_iops"].as_f64().unwrap() * sessions as f64 / iops;
    Run { iops, p50: us("p50"), p99: us("p99"), slowest }
}

/// How long a run loads its server.
fn seconds(server: &Server, args: &Args, ms: u64) -> f64 {
    let wanted = ms as f64 / 1e3;
    match (server.is_floor, args.client.as_str()) {
        (true, _) => 1.2 * wanted,
        // It accepts whole seconds only.
        (false, "iscsi-perf") => wanted.max(1.0).ceil(),
        // With the time before the measured one.
        (false, _) => 1.25 * wanted,
    }
}

fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn main() {
    let args = Args::parse();
    let folder = tempfile_in_memory();
    let mut servers = Vec::new();
    if !args.without.iter().any(|name| name == "floor") {
        for engine in &args.engines {
            for batches in [false, true] {
                let mut command = on_cpu(0, &built("floor"));
                let (program, memory) =
                    if engine == "memory" { ("reactor", "128") } else { (&**engine, "0") };
                command.args(["server", "--listen", &format!("{}:0", address())]);
                command.args(["--engine", program, "--memory", memory]);
                if batches {
                    command.arg("--batch");
                }
                if args.spin {
                    command.arg("--spin");
                }
                let sends = if batches { "batch" } else { "each" };
                let name = if engine == "threads" {
                    format!("floor, {sends}")
                } else {
                    format!("{engine}, {sends}")
                };
                servers.push(start(&name, command, 0, true));
            }
        }
    }
    if !args.without.iter().any(|name| name == "tgt") {
        let image = folder.join("disk");
        std::fs::write(&image, vec![1; 256 << 20]).unwrap();
        servers.push(tgt(&image, !args.disk.starts_with("ram")));
    }
    for policy in args.send.iter().filter(|policy| !policy.is_empty()) {
        let mut command = on_cpu(0, &built("roundtrip"));
        command.args(["target", "--portal", &format!("{}:0", address()), "--iqn", IQN, "--send", policy]);
        command.args(["--lun", &format!("0={}", args.disk)]);
        // All sessions come from one address, and all at once.
        for limit in [
            "connections_per_address=1024",
            "logins=1024",
            "accepts_per_address=10000",
            "accepts_per_second=10000",
        ] {
            command.args(["--limit", limit]);
        }
        if args.spin {
            command.args(["--busy-poll", "1s"]);
        }
        let server = start(policy, command, 1, false);
        if args.disk.starts_with("ram") {
            // Memory that was never written is none.
            let fill =
                ["--rw", "write", "--bs", "1M", "--iodepth", "4", "--runtime", "700ms", "--size", "128M"];
            assert!(
                on_cpu(1, &built("roundtrip"))
                    .args(["bench", &server.place])
                    .args(fill)
                    .output()
                    .unwrap()
                    .status
                    .success()
            );
        }
        servers.push(server);
    }
    for other in &args.other {
        let (name, place) = other.split_once('=').expect("NAME=URL");
        servers.push(Server { name: name.into(), child: None, place: place.into(), is_floor: false });
    }
    let mut points = Vec::new();
    for &block in &args.bs {
        for (&depth, &sessions) in
            args.iodepth.iter().flat_map(|depth| args.sessions.iter().map(move |n| (depth, n)))
        {
            let mut all: Vec<[Vec<f64>; 5]> = servers.iter().map(|_| Default::default()).collect();
            for _ in 0..args.repeats {
                for (server, figures) in servers.iter().zip(&mut all) {
                    let pid = server.child.as_ref().map(Child::id);
                    let before = pid.map_or(0.0, cpu_us);
                    let Run { iops, p50, p99, slowest } = run(server, &args, (block, depth, sessions));
                    let used = pid.map_or(0.0, cpu_us) - before;
                    let seconds = seconds(server, &args, length_ms(&args, (block, depth, sessions)));
                    for (figure, value) in
                        figures.iter_mut().zip([iops, used / (iops * seconds), p50, p99, slowest])
                    {
                        figure.push(value);
                    }
                }
            }
            let medians: Vec<[f64; 5]> =
                all.iter_mut().map(|f| [0, 1, 2, 3, 4].map(|i| median(&mut f[i]))).collect();
            println!(
                "{} {block} B, QD {depth} x {sessions}, client {}{}",
                args.rw,
                args.client,
                if args.spin { ", spinning" } else { "" }
            );
            let of = |name: &str| servers.iter().position(|s| s.name.ends_with(name)).map(|i| medians[i][0]);
            for (server, [iops, cpu, p50, p99, slowest]) in servers.iter().zip(&medians) {
                let ratio = |to: Option<f64>| to.map_or("-".into(), |to| format!("{:.2}", iops / to));
                println!(
                    "  {:<13} {:>9.0} IOPS {:>7.2} us CPU  p50 {:>7.1}  p99 {:>7.1}  slowest {:>4.2}  to tgt {:>6}  to floor {:>5}",
                    server.name,
                    iops,
                    cpu,
                    p50,
                    p99,
                    slowest,
                    ratio(of("tgt")),
                    ratio(of(", batch"))
                );
                points.push(json!({
                    "rw": args.rw, "block_bytes": block, "queue_depth": depth, "client": args.client, "sessions": sessions,
                    "spins": args.spin, "server": server.name, "iops": iops, "server_cpu_us": cpu, "p50_us": p50, "p99_us": p99, "slowest_session": slowest,
                }));
            }
        }
    }
    if let Some(path) = &args.json {
        let kernel = nix::sys::utsname::uname().unwrap().release().to_string_lossy().into_owned();
        let text = json!({ "kernel": kernel, "disk": args.disk, "repeats": args.repeats, "run_ms": args.ms, "points": points });
        std::fs::write(path, serde_json::to_string_pretty(&text).unwrap()).unwrap();
    }
    let _ = std::fs::remove_dir_all(folder);
}

/// A folder in memory.
fn tempfile_in_memory() -> PathBuf {
    let folder = PathBuf::from(format!("/dev/shm/roundtrip-bench-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    folder
}
