//! The mean and the 99th percentile of operations are those that load tools measure.
//!
//! A tool's time holds its own work, too, which is no part of what passes on the wire: it makes most of a time of some
//! microseconds. So the services here take tens of milliseconds, and the difference must be less than a twentieth.

use std::path::Path;

use serde_json::Value;

use super::{analyzed, free_address, mysql, postgres, row};
use crate::common::live::may_capture;
use crate::common::nginx::Nginx;
use crate::common::succeed;

/// Mean and 99th percentile of a tool, microseconds.
#[derive(Debug)]
struct Times {
    mean: f64,
    p99: f64,
}

impl Times {
    /// Of the operations' times in a column of a tool's log.
    fn of(log: &Path, column: usize) -> Self {
        let text = std::fs::read_to_string(log).unwrap();
        let time = |line: &str| line.split_whitespace().nth(column).unwrap().parse::<f64>().unwrap();
        let mut all: Vec<f64> = text.lines().map(time).collect();
        all.sort_by(f64::total_cmp);
        let rank = (all.len() * 99).div_ceil(100);
        Self { mean: all.iter().sum::<f64>() / all.len() as f64, p99: all[rank - 1] }
    }

    #[track_caller]
    fn assert_told(&self, row: &Value) {
        assert!(self.mean > 10_000.0, "the service is slow: {self:?}");
        for (name, theirs) in [("mean_us", self.mean), ("p99_us", self.p99)] {
            let ours = row[name].as_f64().unwrap();
            assert!((ours / theirs - 1.0).abs() < 0.05, "{name} {ours}, and {self:?}: {row:#}");
        }
    }
}

#[test]
fn statements_take_as_long_as_pgbench_says() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = postgres::start(folder.path(), address);
    let script = folder.path().join("sleep.sql");
    std::fs::write(&script, "\\set ms random(20, 90)\nselect pg_sleep(:ms / 1000.0);\n").unwrap();
    let port = address.port().to_string();
    let pgbench = postgres::program("pgbench").display().to_string();
    for mode in ["simple", "extended", "prepared"] {
        let log = tempfile::tempdir().unwrap();
        let prefix = log.path().join("log").display().to_string();
        let arguments = ["-n", "-M", mode, "-t", "50", "-c", "8", "-l", "--log-prefix", &prefix, "-f"];
        let to = [script.to_str().unwrap(), "-h", "127.0.0.1", "-p", &port, "-U", "postgres", "postgres"];
        let (_, result) = analyzed(address, &[], || succeed(&pgbench, &[&arguments[..], &to].concat()));
        let file = log.path().read_dir().unwrap().next().unwrap().unwrap().path();
        let row = row(&result, "SELECT");
        let keys = row["keys"].as_array().unwrap();
        let slept = |key: &&Value| key["name"].as_str().unwrap().contains("pg_sleep");
        let key = keys.iter().find(slept).unwrap_or_else(|| panic!("{keys:#?}"));
        assert_eq!(key["operations"], 400, "{mode}");
        Times::of(&file, 2).assert_told(key);
    }
}

#[test]
fn queries_take_as_long_as_sysbench_says() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = mysql::start_with(folder.path(), address, &[]);
    let port = format!("--mysql-port={}", address.port());
    let ask = "connection:query('SELECT SLEEP(' .. milliseconds() .. ' / 1000)')";
    let prepare = "statement = connection:prepare('SELECT SLEEP(? / 1000)')
        parameter = statement:bind_create(sysbench.sql.type.INT)
        statement:bind_param(parameter)";
    let execute = "parameter:set(milliseconds()) statement:execute():free()";
    for (prepare, ask) in [("", ask), (prepare, execute)] {
        let script = folder.path().join("sleep.lua");
        let text = format!(
            "function milliseconds() return sysbench.rand.uniform(20, 90) end
            function thread_init()
                connection = sysbench.sql.driver():connect()
                {prepare}
            end
            function event() {ask} end"
        );
        std::fs::write(&script, text).unwrap();
        let to =
            ["--db-driver=mysql", "--mysql-host=127.0.0.1", &port, "--mysql-user=root", "--mysql-db=mysql"];
        let load =
            ["--threads=8", "--events=400", "--time=0", "--percentile=99", script.to_str().unwrap(), "run"];
        let (report, result) = analyzed(address, &[], || succeed("sysbench", &[&to[..], &load].concat()));
        let us = |name: &str| {
            let line = report.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{report}"));
            line.split_whitespace().last().unwrap().parse::<f64>().unwrap() * 1e3
        };
        let keys =
            result["services"].as_array().unwrap().iter().flat_map(|row| row["keys"].as_array().unwrap());
        let key = keys
            .clone()
            .find(|key| key["name"] == "SELECT SLEEP(? / ?)")
            .unwrap_or_else(|| panic!("{result:#}"));
        assert_eq!(key["operations"], 400);
        Times { mean: us("avg:"), p99: us("99th percentile:") }.assert_told(key);
    }
}

#[test]
fn commands_take_as_long_as_redis_benchmark_says() {
    let Some(_alone) = may_capture() else { return };
    let address = free_address();
    let port = address.port().to_string();
    let _server = super::redis::server(address);
    // The server serves one command after the other: with eight clients each waits for seven others.
    for clients in ["1", "8"] {
        let work = "for i = 1, 3000000 + math.random(3000000) do end";
        let arguments = ["-p", &port, "-n", "300", "-c", clients, "--csv", "eval", work, "0"];
        let (report, result) = analyzed(address, &[], || succeed("redis-benchmark", &arguments));
        let line = report.lines().find(|line| line.contains("eval")).unwrap_or_else(|| panic!("{report}"));
        // The command, its rate, then avg, min, p50, p95, p99 and max, milliseconds.
        let values: Vec<&str> = line.rsplit("\",\"").map(|value| value.trim_matches('"')).collect();
        let us = |at: usize| values[at].parse::<f64>().unwrap() * 1e3;
        let row = row(&result, "EVAL");
        assert_eq!(row["operations"], 300);
        Times { mean: us(5), p99: us(1) }.assert_told(row);
    }
}

#[test]
fn streams_take_as_long_as_h2load_says() {
    let Some(_alone) = may_capture() else { return };
    // A chunk of 4 KiB each 20 ms.
    let nginx = Nginx::start(
        "listen LISTEN http2; root FOLDER; location / { limit_rate 200k; sendfile_max_chunk 4k; }",
    );
    for (name, kilobytes) in [("a", 8), ("b", 16), ("c", 24)] {
        std::fs::write(nginx.path(name), vec![b'x'; kilobytes * 1000]).unwrap();
    }
    let address = format!("{}:8080", nginx.ip).parse().unwrap();
    for streams in ["1", "4", "16"] {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("log");
        let urls = ["a", "b", "c"].map(|name| nginx.url(&format!("/{name}")));
        let arguments = ["-n", "300", "-c", "4", "-m", streams, "--log-file", log.to_str().unwrap()];
        let urls = urls.each_ref().map(String::as_str);
        let (_, result) = analyzed(address, &[], || succeed("h2load", &[&arguments[..], &urls].concat()));
        let row = row(&result, "GET");
        assert_eq!(row["operations"], 300);
        // The start, the status and the time of each.
        Times::of(&log, 2).assert_told(row);
    }
}
