//! `bench` when operations fail: what counts, what is reported, and the exit code.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};

use common::{IQN, Target, roundtrip};
use serde_json::Value;

/// Runs `bench`, which may fail, and returns its output.
fn run(url: &str, arguments: &[&str]) -> Output {
    roundtrip().args(["bench", url]).args(arguments).output().unwrap()
}

/// Runs `bench` where operations fail, and returns the JSON of its only run.
fn failing(url: &str, arguments: &[&str]) -> Value {
    let output = run(url, &[arguments, &["--json"]].concat());
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{error}");
    let all: Value = serde_json::from_slice(&output.stdout).unwrap();
    all["runs"][0].clone()
}

#[test]
fn failed_operations_are_no_throughput() {
    let target = Target::start(&["--lun", "0=ram:8M,readonly"]);
    let arguments = ["--rw", "randwrite", "--iodepth", "4", "--runtime", "200ms"];
    let result = failing(&target.url(0), &arguments);
    assert_eq!((&result["operations"], &result["iops"]), (&0.into(), &0.0.into()));
    assert_eq!((&result["transferred_bytes"], &result["bytes_per_second"]), (&0.into(), &0.0.into()));
    assert_eq!(result["latency_us"]["p99"], 0.0);
    let class = "CHECK CONDITION, DATA PROTECT, WRITE PROTECTED (07/27/00)";
    let failures = result["failures"].as_array().unwrap();
    assert_eq!((failures.len(), &failures[0]["class"]), (1, &class.into()), "{result:#}");
    assert_eq!(failures[0]["count"], result["errors"]);
    assert!(result["errors"].as_u64().unwrap() > 10 && result["failed_mean_us"].as_f64().unwrap() > 0.0);
    let output = run(&target.url(0), &arguments);
    let table = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(table.contains(class) && table.contains("MOST OPERATIONS FAILED"), "{table}");
}

/// Reads succeed, writes fail: the figures of the reads are not diluted.
#[test]
fn half_of_a_mix_may_fail() {
    let target = Target::start(&["--lun", "0=ram:8M,readonly"]);
    let load = [
        "--rw",
        "randrw",
        "--rwmix",
        "80",
        "--iodepth",
        "4",
        "--runtime",
        "300ms",
        "--ramp",
        "0ms",
        "--bs",
        "4k",
    ];
    let result = failing(&target.url(0), &load);
    let number = |value: &Value| value.as_f64().unwrap();
    let (operations, errors) = (number(&result["operations"]), number(&result["errors"]));
    assert!((0.1..0.4).contains(&(errors / operations)), "one in five fails: {result:#}");
    assert_eq!(number(&result["transferred_bytes"]), operations * 4096.0);
    let kinds = result["kinds"].as_array().unwrap();
    let kind = |name: &str| kinds.iter().find(|kind| kind["kind"] == name).unwrap();
    assert_eq!((kind("read")["errors"].as_u64(), kind("write")["operations"].as_u64()), (Some(0), Some(0)));
    assert_eq!(number(&kind("read")["operations"]), operations);
    let series = result["series"].as_array().unwrap();
    assert_eq!(series.iter().map(|s| number(&s["operations"])).sum::<f64>(), operations);
    let bins = result["histogram"].as_array().unwrap();
    assert_eq!(bins.iter().map(|bin| number(&bin["count"])).sum::<f64>(), operations);
}

/// Errors, operations, series and kinds are of one interval: the ramp is in none of them.
#[test]
fn errors_of_the_ramp_are_apart() {
    let target = Target::start(&["--lun", "0=ram:8M,readonly"]);
    let load = ["--rw", "randrw", "--iodepth", "4", "--runtime", "200ms", "--ramp", "600ms"];
    let result = failing(&target.url(0), &load);
    let number = |value: &Value| value.as_u64().unwrap();
    let (operations, errors) = (number(&result["operations"]), number(&result["errors"]));
    let ratio = errors as f64 / operations as f64;
    assert!((0.8..1.25).contains(&ratio), "half of them fail: {result:#}");
    let of = |list: &str| {
        result[list].as_array().unwrap().iter().map(|entry| number(&entry["errors"])).sum::<u64>()
    };
    assert_eq!(
        (of("series"), of("kinds"), number(&result["failures"][0]["count"])),
        (errors, errors, errors)
    );
    assert!(number(&result["unmeasured_errors"]) > errors, "three times as long: {result:#}");
    let table = String::from_utf8(run(&target.url(0), &load).stdout).unwrap();
    assert!(table.contains("operations failed outside the measured time (--ramp"), "{table}");
    // A run whose ramp alone fails is not a success.
    let cut = format!("iscsi://{}/{IQN}/0", cut_after(100_000, &target.address));
    let lost = failing(&cut, &["--ramp", "60s", "--runtime", "1s", "--iodepth", "2"]);
    assert_eq!((number(&lost["errors"]), number(&lost["unmeasured_errors"])), (0, 2), "{lost:#}");
}

/// A target in a mount namespace of its own, whose disk is a sparse file on a file system that is too small.
struct OnFullDisk {
    child: Child,
    url: String,
    _folder: tempfile::TempDir,
}

impl OnFullDisk {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let script = format!(
            "mount --make-rprivate / && mount -t tmpfs -o size=4m none {0} && exec {1} target --portal 127.0.0.1:0 \
             --iqn {IQN} --lun 0=file:{0}/disk,size=64M",
            folder.path().display(),
            env!("CARGO_BIN_EXE_roundtrip"),
        );
        let mut child = Command::new("unshare")
            .args(["-m", "sh", "-c", &script])
            .stdout(Stdio::piped())
            // It logs each failed write: a pipe that is not read would block it.
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().unwrap()).read_line(&mut line).unwrap();
        let Some(address) = line.strip_prefix("ready ").and_then(|rest| rest.split_whitespace().next())
        else {
            panic!("'{line}'");
        };
        let url = format!("iscsi://{address}/{IQN}/0");
        Self { child, url, _folder: folder }
    }
}

impl Drop for OnFullDisk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn full_file_system_is_reported_by_its_sense_and_not_as_throughput() {
    if !testing::require_root("a mount namespace with a small file system") {
        return;
    }
    let target = OnFullDisk::start();
    // A tenth of the disk's data fits.
    let load = ["--rw", "write", "--bs", "64k", "--iodepth", "2", "--runtime", "500ms", "--ramp", "0ms"];
    let result = failing(&target.url, &load);
    let failures = result["failures"].as_array().unwrap();
    let class = failures[0]["class"].as_str().unwrap();
    assert!(class.contains("SPACE ALLOCATION FAILED WRITE PROTECT (07/27/07)"), "{result:#}");
    let counted: u64 = failures.iter().map(|failure| failure["count"].as_u64().unwrap()).sum();
    assert_eq!(Some(counted), result["errors"].as_u64());
    let (operations, bytes) =
        (result["operations"].as_u64().unwrap(), result["transferred_bytes"].as_u64().unwrap());
    assert_eq!(bytes, operations * 65_536);
    let rate = result["bytes_per_second"].as_f64().unwrap() * result["seconds"].as_f64().unwrap();
    assert!((rate - bytes as f64).abs() < 1.0, "{result:#}");
}

/// Forwards one connection, and cuts it after this many bytes of requests. Returns the address to connect to.
fn cut_after(requests_bytes: usize, target: &str) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let target = target.to_owned();
    std::thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let mut server = TcpStream::connect(target).unwrap();
        let (mut back, mut to_client) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || std::io::copy(&mut back, &mut to_client));
        let (mut buffer, mut left) = ([0; 4096], requests_bytes);
        while let Ok(count @ 1..) = client.read(&mut buffer) {
            left = left.saturating_sub(count);
            if left == 0 || server.write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        let _ = (client.shutdown(Shutdown::Both), server.shutdown(Shutdown::Both));
    });
    address
}

/// The operations in flight when a connection is lost are counted, and the figures before it are kept.
#[test]
fn lost_connection_counts_the_operations_in_flight() {
    let folder = tempfile::tempdir().unwrap();
    let ops = folder.path().join("ops.csv");
    let target = Target::start(&["--lun", "0=ram:8M"]);
    let url = format!("iscsi://{}/{IQN}/0", cut_after(100_000, &target.address));
    let load = ["--iodepth", "3", "--runtime", "60s", "--ramp", "0ms", "--ops", ops.to_str().unwrap()];
    let result = failing(&url, &load);
    assert!(result["operations"].as_u64().unwrap() > 100, "{result:#}");
    assert!(result["seconds"].as_f64().unwrap() < 30.0, "{result:#}");
    assert_eq!((&result["errors"], &result["failures"][0]["count"]), (&3.into(), &3.into()), "{result:#}");
    assert_eq!(result["failures"][0]["class"], "connection lost");
    let text = std::fs::read_to_string(ops).unwrap();
    let failed: Vec<&str> = text.lines().filter(|line| line.contains(",failed,")).collect();
    assert_eq!(failed.len(), 3);
    assert!(failed.iter().all(|line| line.ends_with(",0")), "they have no end: {failed:?}");
}

/// A disk that does not answer in time: a failure of the measured time, although that waits for operations that are stuck.
#[test]
fn timeouts_are_a_class_of_failures() {
    let target = Target::start(&["--lun", "0=ram:8M,delay=30s"]);
    for ramp in ["0ms", "100ms"] {
        let load = ["--iodepth", "2", "--runtime", "1s", "--ramp", ramp, "--timeout", "300ms"];
        let result = failing(&target.url(0), &load);
        assert_eq!(result["failures"][0]["class"], "no response in time", "{result:#}");
        assert_eq!((&result["failures"][0]["count"], &result["operations"]), (&2.into(), &0.into()));
    }
}

/// Bytes of the PDUs of each operation, headers included: what was sent and received is known.
#[test]
fn records_have_the_bytes_of_requests_and_responses() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ops.csv");
    let target = Target::start(&["--lun", "0=ram:8M", "--lun", "1=ram:8M,readonly"]);
    // Data, request and response bytes. A read's status is in its last Data-In; the target sends 256 KiB in each.
    let large = 512 << 10;
    let cases: [(u16, &str, &str, &str); 6] = [
        (0, "randread", "4k", "good,1,4096,48,4144"),
        (0, "randwrite", "4k", "good,1,4096,4144,48"),
        (0, "randtrim", "4k", "good,1,24,72,48"),
        (0, "randwritezeroes", "4k", "good,1,512,560,48"),
        (0, "randread", "512k", &format!("good,1,{large},48,{}", large + 96)),
        // Sense data: two bytes of length and 18 of sense.
        (1, "randwrite", "4k", "failed,1,4096,4144,68"),
    ];
    for (lun, rw, bs, expected) in cases {
        let load =
            ["--rw", rw, "--bs", bs, "--runtime", "30ms", "--ramp", "0ms", "--ops", file.to_str().unwrap()];
        run(&target.url(lun), &load);
        let text = std::fs::read_to_string(&file).unwrap();
        assert!(text.lines().count() > 2, "{rw} {bs}");
        for line in text.lines().skip(1) {
            let what: Vec<&str> = line.split(',').skip(4).take(5).collect();
            assert_eq!(what.join(","), expected, "{rw} {bs}: {line}");
        }
    }
    let digests =
        ["--header-digest", "--data-digest", "--bs", "4k", "--runtime", "30ms", "--ramp", "0ms", "--ops"];
    run(&target.url(0), &[&digests[..], &[file.to_str().unwrap()]].concat());
    let text = std::fs::read_to_string(&file).unwrap();
    assert!(text.lines().nth(1).unwrap().contains(",4096,52,4152,"), "{text}");
}
