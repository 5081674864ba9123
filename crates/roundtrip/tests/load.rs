//! Roundtrip's initiator against its target: every pattern, size and depth, with verified data.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::sync::Arc;
use std::time::Duration;

use common::{IQN, Served, Target, bench, records, roundtrip};
use iscsi_target::{LunConfig, RunningTarget, SendPolicy, TargetConfig};
use load::initiator::{Bench, BenchSpec, SessionOptions};

#[test]
fn written_data_reads_back_with_every_size_and_policy() {
    for policy in ["nodelay", "nagle"] {
        let target = Target::start(&["--lun", "0=ram:64M", "--send", policy]);
        let result = bench(
            &target.url(0),
            &[
                "--rw",
                "randrw",
                "--verify",
                "--bs",
                "512,4k,256k,1M",
                "--iodepth",
                "1,7",
                "--runtime",
                "200ms",
                "--size",
                "16M",
            ],
        );
        for run in result["runs"].as_array().unwrap() {
            assert_eq!(run["errors"], 0, "{run}");
            assert_eq!(run["mismatched_blocks"], 0, "{run}");
            assert!(run["verified_blocks"].as_u64().unwrap() > 0, "{run}");
        }
        assert_eq!(result["runs"].as_array().unwrap().len(), 8);
    }
}

#[test]
fn verification_finds_lost_data() {
    // A zero disk discards writes, which verification must detect.
    let target = Target::start(&["--lun", "0=zero:16M"]);
    let output = roundtrip()
        .args(["bench", &target.url(0), "--rw", "randwrite", "--verify", "--runtime", "100ms", "--json"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let result: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(result["runs"][0]["mismatched_blocks"].as_u64().unwrap() > 0, "{result}");
}

#[test]
fn queue_depth_is_iops_times_round_trip() {
    let target = Target::start(&["--lun", "0=zero:1T"]);
    for (depth, submit) in [("1", None), ("16", None), ("64", Some("--batch"))] {
        let mut arguments = vec!["--bs", "4k", "--iodepth", depth, "--runtime", "500ms"];
        arguments.extend(submit);
        let result = bench(&target.url(0), &arguments);
        let run = &result["runs"][0];
        let product = run["iops"].as_f64().unwrap() * run["latency_us"]["mean"].as_f64().unwrap() / 1e6;
        let depth: f64 = depth.parse().unwrap();
        assert!((product / depth - 1.0).abs() < 0.02, "{product} is not {depth}");
    }
}

#[test]
fn sessions_run_side_by_side() {
    let target = Target::start(&["--lun", "0=ram:64M"]);
    let result = bench(
        &target.url(0),
        &["--sessions", "20", "--iodepth", "4", "--rw", "randrw", "--runtime", "300ms"],
    );
    assert_eq!((&result["runs"][0]["errors"], &result["runs"][0]["queue_depth"]), (&0.into(), &80.into()));
    let statistics = target.stop();
    assert!(statistics.matches("iqn.2026-11.example.roundtrip:bench").count() >= 20, "{statistics}");
}

#[test]
fn every_command_belongs_to_one_busy_cycle() {
    for send in SendPolicy::ALL {
        let lun = LunConfig::new(0, Arc::new(store::Zero::new(1 << 30)));
        let config =
            TargetConfig { send, ..TargetConfig::new("127.0.0.1:0".parse().unwrap(), IQN, vec![lun]) };
        let target = RunningTarget::start(config).unwrap();
        let url = format!("iscsi://{}/{IQN}/0", target.address()).parse().unwrap();
        let spec = BenchSpec { runtime: Duration::from_millis(300), ..BenchSpec::default() };
        let bench = Bench::run(&url, &SessionOptions::default(), &spec, &|_| (), &|| false).unwrap();
        assert!(target.wait_until_idle(Duration::from_secs(5)));
        let statistics = target.statistics();
        let [connection] = &statistics[..] else { panic!("{statistics:?}") };
        let count = &connection.busy_count;
        assert!(connection.commands > bench.result.operations && !connection.open);
        assert_eq!(count.served, connection.commands, "every command belongs to a cycle");
        // The requests per cycle depend on the scheduler; the total does not.
        assert_eq!((count.busy, count.ended.iter().sum::<u64>()), (0, count.idles), "{send}");
        assert!(count.share(1) > 0.0 && count.avg_busy() >= 1.0, "{send}: {count:?}");
    }
}

#[test]
fn every_operation_can_be_written_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("ops.csv");
    let target = Target::start(&["--lun", "0=zero:1T"]);
    let result = bench(
        &target.url(0),
        &["--iodepth", "4", "--runtime", "100ms", "--ramp", "0ms", "--ops", file.to_str().unwrap()],
    );
    let all = records(&file);
    let measured = result["runs"][0]["operations"].as_u64().unwrap() as usize;
    assert!(all.len() > measured, "the drain is recorded too");
    for op in all {
        let [start, finish] = ["start_ns", "finish_ns"].map(|name| op[name].parse::<u64>().unwrap());
        assert!(finish > start && finish - start < 10_000_000_000, "{op:?}");
    }
}

/// Latencies of an open loop count from the time at which an operation is due: a disk that is too slow shows a growing
/// queue, whereas a closed loop would send fewer operations.
#[test]
fn open_loop_keeps_its_rate_and_shows_a_queue() {
    let target = Target::start(&["--lun", "0=ram:16M,iops=1000", "--lun", "1=ram:16M"]);
    let fixed = ["--bs", "512", "--iodepth", "16", "--runtime", "1s", "--ramp", "200ms"];
    let run = |lun: u16, rate: &str| {
        let result = bench(&target.url(lun), &[&fixed[..], &["--rate", rate]].concat());
        result["runs"][0].clone()
    };
    let kept = run(1, "500");
    let iops = kept["iops"].as_f64().unwrap();
    assert!((475.0..525.0).contains(&iops) && kept["behind"] == 0, "{kept:#}");
    let overrun = run(0, "3000");
    assert!(overrun["iops"].as_f64().unwrap() < 1200.0, "{overrun:#}");
    assert!(overrun["behind"].as_u64().unwrap() > 1000, "{overrun:#}");
    // A thousand of three thousand a second are served: the last operations wait for most of a second.
    assert!(overrun["latency_us"]["p99"].as_f64().unwrap() > 300_000.0, "{overrun:#}");
}

/// A ramp is a sequence of runs, each with its requested rate.
#[test]
fn a_ramp_of_rates_shows_where_a_disk_is_too_slow() {
    let target = Target::start(&["--lun", "0=ram:16M,iops=1000"]);
    let fixed = ["--bs", "512", "--iodepth", "16", "--runtime", "600ms", "--rate", "250..4000/3"];
    let result = bench(&target.url(0), &fixed);
    let runs = result["runs"].as_array().unwrap();
    let asked: Vec<f64> = runs.iter().map(|run| run["rate"].as_f64().unwrap().round()).collect();
    assert_eq!(asked, [250.0, 1000.0, 4000.0]);
    assert!(runs[2]["behind"].as_u64().unwrap() > 500, "{result:#}");
    assert!(runs[2]["iops"].as_f64().unwrap() < 1300.0, "{result:#}");
}

/// The client's CPU time per operation, against the CPU time of its whole process by the kernel's accounts.
#[test]
fn client_cpu_time_is_that_of_the_process() {
    let (target, http) = (Target::start(&["--lun", "0=zero:1T"]), Served::start(&[]));
    for url in [target.url(0), format!("http://{}/512", http.address)] {
        let mut out = tempfile::tempfile().unwrap();
        let mut command = roundtrip();
        command.args(["bench", &url, "--iodepth", "8", "--runtime", "1s", "--json"]);
        command.stdout(out.try_clone().unwrap());
        let mut child = command.spawn().unwrap();
        let seconds = cpu_seconds_at_its_end(child.id());
        assert!(child.wait().unwrap().success(), "{url}");
        let mut text = String::new();
        std::io::Seek::rewind(&mut out).unwrap();
        std::io::Read::read_to_string(&mut out, &mut text).unwrap();
        let result: serde_json::Value = serde_json::from_str(&text).unwrap();
        let run = &result["runs"][0];
        let figure = |key: &str| run[key].as_f64().unwrap();
        let share = figure("client_cpu_us") * figure("operations") / 1e6 / seconds;
        // The rest is the program's begin and end.
        assert!((0.6..=1.02).contains(&share), "{url}: {share} of {seconds} s: {run:#}");
    }
}

/// CPU time of a child process when it has ended, seconds (proc_pid_stat(5): 10 ms exact).
fn cpu_seconds_at_its_end(process: u32) -> f64 {
    loop {
        let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
        // Behind the name in brackets: state, and utime and stime as the 12th and 13th.
        let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
        if fields[0] == "Z" {
            return (fields[11].parse::<f64>().unwrap() + fields[12].parse::<f64>().unwrap()) / 100.0;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn copies_are_made_over_plain_tcp() {
    let server = Served::start(&["--copies"]);
    let url = format!("tcp://{}", server.address);
    let result = bench(&url, &["--bs", "64k", "--iodepth", "1,3", "--size", "3M", "--send-buffer", "64k"]);
    let runs = result["runs"].as_array().unwrap();
    assert_eq!(runs.len(), 2, "{result:#}");
    for (run, copies) in runs.iter().zip([1.0, 3.0]) {
        let all = run["seconds"].as_f64().unwrap() * run["bytes_per_second"].as_f64().unwrap();
        assert!((all - copies * 3_145_728.0).abs() < 1.0, "{run:#}");
    }
    let idle = roundtrip().args(["bench", &url, "--rw", "randread"]).output().unwrap();
    assert!(String::from_utf8_lossy(&idle.stderr).contains("--rw has no effect"));
    drop(server);
    let gone = roundtrip().args(["bench", &url]).output().unwrap();
    assert_eq!(gone.status.code(), Some(1), "no server is listening");
    let wrong = roundtrip().args(["bench", "tcp://127.0.0.1"]).output().unwrap();
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("tcp://host:port"));
}

#[test]
fn loads_http_servers() {
    let server = Served::start(&[]);
    let url = format!("http://{}/{{bs}}", server.address);
    for (arguments, least) in [
        (&["--rw", "read", "--bs", "512,64k", "--iodepth", "1,4"][..], 1000.0),
        (&["--rw", "write", "--bs", "480"], 1000.0),
        (&["--rw", "write", "--bs", "480", "--writes", "apart", "--nagle"], 20.0),
    ] {
        let result = bench(&url, &[arguments, &["--runtime", "100ms"]].concat());
        for run in result["runs"].as_array().unwrap() {
            let iops = run["iops"].as_f64().unwrap();
            assert!(iops > least && (least > 100.0 || iops < 30.0), "{arguments:?}: {run:#}");
        }
    }
    drop(server);
    for (wrong, expected) in
        [("--verify", "--verify has no effect"), ("--timeout=0s", "must be longer than 0")]
    {
        let output = roundtrip().args(["bench", &url, wrong]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{error}");
    }
    for (url, expected) in
        [("http://", "host or path is missing"), ("http://127.0.0.1:x/", "the port is not a number")]
    {
        let output = roundtrip().args(["bench", url]).output().unwrap();
        assert!(
            output.status.code() == Some(2) && String::from_utf8_lossy(&output.stderr).contains(expected)
        );
    }
}

/// The latency of a request that waits for a free connection counts from the time at which it is due.
#[test]
fn http_open_loop_shows_a_queue() {
    let server = Served::start(&[]);
    let url = format!("http://{}/{{bs}}", server.address);
    let run = |arguments: &[&str]| {
        let result = bench(&url, &[arguments, &["--runtime", "1s", "--bs", "480"]].concat());
        result["runs"][0].clone()
    };
    let kept = run(&["--rw", "read", "--iodepth", "8", "--rate", "400"]);
    let iops = kept["iops"].as_f64().unwrap();
    assert!((380.0..420.0).contains(&iops) && kept["behind"].as_u64().unwrap() < 8, "{kept:#}");
    // Each of two connections does 22.7 of these a second: the peer's acknowledgement is delayed by 40 ms.
    let overrun = run(&["--rw", "write", "--iodepth", "2", "--rate", "100", "--writes", "apart", "--nagle"]);
    assert!((30.0..50.0).contains(&overrun["iops"].as_f64().unwrap()), "{overrun:#}");
    assert!((45..70).contains(&overrun["behind"].as_u64().unwrap()), "{overrun:#}");
    assert!(overrun["latency_us"]["p99"].as_f64().unwrap() > 400_000.0, "{overrun:#}");
}

/// The last PDU of a read is the only news of the window: with a window of one command it must not count that command.
#[test]
fn a_window_of_few_commands_stays_open_on_a_slow_disk() {
    for (window, depth) in [("window=1", "1"), ("window=2", "2")] {
        let target = Target::start(&["--lun", "0=ram:8M,delay=100us", "--limit", window]);
        for rw in ["randread", "randwrite"] {
            for size in ["512", "256k"] {
                let load =
                    ["--rw", rw, "--bs", size, "--iodepth", depth, "--runtime", "150ms", "--timeout", "5s"];
                bench(&target.url(0), &load);
            }
        }
    }
}
