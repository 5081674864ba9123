//! A real Prometheus scrapes a real target: every query of the dashboard has an answer, every metric of the alerts exists, and the
//! exposition passes a strict parser of OpenMetrics.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use common::daemon::{Daemon, PATIENCE};
use common::{IQN, Target, bench, qemu_io, roundtrip, succeed};
use serde_json::Value;

/// Debian's, which has its modules.
const PYTHON: &str = "/usr/bin/python3";
/// The strict parser fails on what the format does not allow, and on samples that contradict each other.
const PARSE: &str = "import sys, urllib.request
from prometheus_client.openmetrics.parser import text_string_to_metric_families
request = urllib.request.Request(sys.argv[1], headers={'Accept': 'application/openmetrics-text; version=1.0.0'})
with urllib.request.urlopen(request) as answer:
    assert answer.headers['Content-Type'].startswith('application/openmetrics-text'), answer.headers['Content-Type']
    families = list(text_string_to_metric_families(answer.read().decode()))
print(len(families), sum(len(family.samples) for family in families))";

fn packaging(name: &str) -> PathBuf {
    PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging")).join(name)
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

/// A target that has done everything that is counted, also what it refuses.
fn target(metrics: SocketAddr, folder: &tempfile::TempDir) -> Target {
    let file = folder.path().join("target.toml");
    let other = "[[target]]\niqn = \"iqn.2026-11.example.roundtrip:other\"\nluns.0 = \"ram:1M\"\n\
                 access.initiators = [\"iqn.2026-11.example.roundtrip:nobody\"]\n";
    std::fs::write(&file, format!("luns.0 = \"ram:16M\"\nluns.1 = \"ram:16M,readonly\"\n{other}")).unwrap();
    let target = Target::start(&["--config", &file.display().to_string(), "--metrics", &metrics.to_string()]);
    let short = ["--runtime", "200ms", "--ramp", "0ms"];
    bench(&target.url(0), &[&short[..], &["--rw", "randrw", "--bs", "4k", "--iodepth", "4"]].concat());
    for (url, rw) in [
        (target.url(1), "randwrite"),
        (target.url(0).replace(IQN, &IQN.replace("test", "other")), "randread"),
    ] {
        let refused = roundtrip().args(["bench", &url, "--rw", rw]).args(short).output().unwrap();
        assert!(!refused.status.success(), "{url}");
    }
    target
}

fn prometheus(metrics: SocketAddr, folder: &tempfile::TempDir) -> (Daemon, SocketAddr) {
    let (file, address) = (folder.path().join("prometheus.yml"), free_address());
    let text = format!(
        "global: {{ scrape_interval: 200ms, scrape_timeout: 200ms, evaluation_interval: 1s }}\nrule_files: ['{}']\n\
         scrape_configs:\n  - job_name: roundtrip\n    static_configs: [{{ targets: ['{metrics}'] }}]\n",
        packaging("prometheus/alerts.yml").canonicalize().unwrap().display()
    );
    std::fs::write(&file, text).unwrap();
    let mut server = Command::new("prometheus");
    server
        .arg(format!("--config.file={}", file.display()))
        .arg(format!("--storage.tsdb.path={}", folder.path().join("data").display()))
        .arg(format!("--web.listen-address={address}"))
        .arg("--log.level=error");
    let (server, began) = (Daemon::start(&mut server, address), Instant::now());
    // It listens before it has its database.
    while !get(address, "/-/ready").starts_with("HTTP/1.0 200") {
        assert!(began.elapsed() < PATIENCE, "Prometheus is not ready");
        std::thread::sleep(Duration::from_millis(50));
    }
    (server, address)
}

/// An answer of HTTP with its head.
fn get(address: SocketAddr, path: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {path} HTTP/1.0\r\nHost: {address}\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

/// Asks Prometheus' HTTP API, and returns `data` of its answer.
#[track_caller]
fn ask(address: SocketAddr, path: &str) -> Value {
    let answer = get(address, &format!("/api/v1/{path}"));
    let (_, body) = answer.split_once("\r\n\r\n").unwrap();
    let mut answer: Value = serde_json::from_str(body).unwrap_or_else(|e| panic!("{path}: {e}: {body}"));
    assert_eq!(answer["status"], "success", "{path}: {answer}");
    answer["data"].take()
}

/// The series that a query yields.
#[track_caller]
fn query(address: SocketAddr, expression: &str) -> Vec<Value> {
    let encoded: String = expression.bytes().map(|byte| format!("%{byte:02X}")).collect();
    ask(address, &format!("query?query={encoded}"))["result"].as_array().unwrap().clone()
}

/// The names of metrics in a query.
fn names(expression: &str) -> BTreeSet<String> {
    let words = expression.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let is_ours =
        |word: &&str| word.starts_with("roundtrip_") || word.starts_with("process_") || *word == "up";
    words.filter(is_ours).map(str::to_owned).collect()
}

/// The strings under this key, at any depth.
fn strings<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            found.extend(fields.get(key).and_then(Value::as_str));
            fields.values().for_each(|field| strings(field, key, found));
        }
        Value::Array(all) => all.iter().for_each(|one| strings(one, key, found)),
        _ => {}
    }
}

#[test]
fn prometheus_answers_every_query_of_the_dashboard_and_knows_the_metrics_of_the_alerts() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = free_address();
    let _target = target(metrics, &folder);
    let (_prometheus, address) = prometheus(metrics, &folder);
    // A rate needs two scrapes.
    let began = Instant::now();
    while query(address, "count_over_time(up{job=\"roundtrip\"}[1m]) > 3").is_empty() {
        assert!(began.elapsed() < PATIENCE, "no scrapes: {}", ask(address, "targets"));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(query(address, "up == 1").len(), 1, "{}", ask(address, "targets"));
    let known: BTreeSet<String> = serde_json::from_value(ask(address, "label/__name__/values")).unwrap();

    let dashboard = std::fs::read_to_string(packaging("grafana/roundtrip.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&dashboard).unwrap();
    let (mut expressions, mut variables) = (Vec::new(), Vec::new());
    strings(&dashboard["panels"], "expr", &mut expressions);
    strings(&dashboard["templating"], "definition", &mut variables);
    assert!(expressions.len() > 25 && variables.len() == 4, "{expressions:?} {variables:?}");
    for expression in &expressions {
        let filled = expression.replace("$__rate_interval", "1m").replace("$job", "roundtrip");
        let filled =
            ["$instance", "$target", "$lun"].iter().fold(filled, |text, name| text.replace(name, ".*"));
        assert!(!filled.contains('$'), "{filled}");
        assert!(!query(address, &filled).is_empty(), "no answer: {filled}");
    }

    let rules = ask(address, "rules");
    let mut alerts = Vec::new();
    strings(&rules, "query", &mut alerts);
    assert!(alerts.len() > 8, "{rules}");
    let mut health = Vec::new();
    strings(&rules, "health", &mut health);
    assert!(!health.contains(&"err"), "{rules}");
    let mut used = BTreeSet::new();
    for expression in expressions.iter().chain(&variables).chain(&alerts) {
        used.append(&mut names(expression));
    }
    let missing: Vec<&String> = used.difference(&known).collect();
    assert!(missing.is_empty(), "{missing:?} of {used:?}; there are {known:?}");
    // What a target says that no panel shows is forgotten there.
    let unused: Vec<&String> =
        known.difference(&used).filter(|name| name.starts_with("roundtrip_")).collect();
    assert!(unused.is_empty(), "in no panel or alert: {unused:?}");
}

/// What QEMU reads and writes arrives in Prometheus to the last command. QEMU has some commands of its own, the same each time.
#[test]
fn the_sums_in_prometheus_are_those_of_the_client() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = free_address();
    let target = Target::start(&["--lun", "0=ram:16M", "--metrics", &metrics.to_string()]);
    let (_prometheus, address) = prometheus(metrics, &folder);
    let sum = |metric: &str, operation: &str| {
        let found = query(address, &format!("sum({metric}{{operation=\"{operation}\"}})"));
        found.first().map_or(-1.0, |one| one["value"][1].as_str().unwrap().parse::<f64>().unwrap())
    };
    let sums = || {
        ["roundtrip_disk_operations_total", "roundtrip_disk_bytes_total"]
            .map(|metric| ["read", "write"].map(|operation| sum(metric, operation)))
    };
    // Two scrapes after the connection has gone tell the same.
    let settled = || {
        let began = Instant::now();
        loop {
            let before = sums();
            std::thread::sleep(Duration::from_millis(600));
            if before[0][0] >= 0.0 && sums() == before {
                return before;
            }
            assert!(began.elapsed() < PATIENCE, "{before:?}");
        }
    };
    let runs = [(100, 10), (300, 50)].map(|(reads, writes)| {
        let before = settled();
        qemu_io(&target.url(0), reads, writes);
        let after = settled();
        [0, 1].map(|metric| [0, 1].map(|operation| after[metric][operation] - before[metric][operation]))
    });
    let more =
        [0, 1].map(|metric| [0, 1].map(|operation| runs[1][metric][operation] - runs[0][metric][operation]));
    assert_eq!(more, [[200.0, 40.0], [200.0 * 4096.0, 40.0 * 4096.0]], "{runs:?}");
}

#[test]
fn the_exposition_passes_the_strict_parser() {
    let folder = tempfile::tempdir().unwrap();
    let metrics = free_address();
    let _target = target(metrics, &folder);
    let text = succeed(PYTHON, &["-c", PARSE, &format!("http://{metrics}/metrics")]);
    let (families, samples) = text.trim().split_once(' ').unwrap();
    assert!(families.parse::<usize>().unwrap() > 20 && samples.parse::<usize>().unwrap() > 200, "{text}");
}

#[test]
fn promtool_accepts_the_alerts_and_their_tests() {
    let file = |name: &str| packaging(name).display().to_string();
    succeed("promtool", &["check", "rules", &file("prometheus/alerts.yml")]);
    let text = succeed("promtool", &["test", "rules", &file("prometheus/alerts-test.yml")]);
    assert!(text.contains("SUCCESS"), "{text}");
}
