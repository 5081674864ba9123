//! `bench`'s mixes, distributions, thresholds and output formats.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeSet;
use std::process::Output;

use common::{Target, bench, roundtrip, succeed};
use serde_json::Value;

fn run(url: &str, arguments: &[&str]) -> Output {
    roundtrip().args(["bench", url]).args(arguments).output().unwrap()
}

fn error(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// The records of a run: operation, data bytes.
fn operations(target: &Target, arguments: &[&str]) -> Vec<(String, u64)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ops.csv");
    let short = ["--runtime", "100ms", "--ramp", "0ms", "--iodepth", "8", "--ops", file.to_str().unwrap()];
    bench(&target.url(0), &[&short[..], arguments].concat());
    let text = std::fs::read_to_string(file).unwrap();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        (fields[2].to_owned(), fields[6].parse().unwrap())
    };
    text.lines().skip(1).map(row).collect()
}

/// The share of the records for which `is` holds, and five standard deviations of it.
fn share(all: &[(String, u64)], expected: f64, is: impl Fn(&(String, u64)) -> bool) {
    let share = all.iter().filter(|record| is(record)).count() as f64 / all.len() as f64;
    let deviation = (expected * (1.0 - expected) / all.len() as f64).sqrt();
    assert!((share - expected).abs() < 5.0 * deviation, "{share} of {} is not {expected}", all.len());
}

#[test]
fn mixes_have_the_requested_shares() {
    let target = Target::start(&["--lun", "0=ram:64M"]);
    let all = operations(&target, &["--rw", "randrw", "--rwmix", "70"]);
    share(&all, 0.7, |(name, _)| name == "read(10)");
    let all = operations(&target, &["--rw", "rw", "--bssplit", "512/60:16k/40"]);
    share(&all, 0.5, |(name, _)| name == "read(10)");
    share(&all, 0.6, |(_, bytes)| *bytes == 512);
    assert!(all.iter().all(|(_, bytes)| [512, 16_384].contains(bytes)));
}

/// Clearing commands clear: a written disk reads as zeros afterwards, and the range counts as throughput.
#[test]
fn trims_and_write_zeroes_clear_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    for (rw, kind) in [("trim", "trim"), ("writezeroes", "write_zeroes")] {
        std::fs::write(&image, vec![7; 2 << 20]).unwrap();
        let target = Target::start(&["--lun", &format!("0=file:{}", image.display())]);
        let load = ["--rw", rw, "--bs", "64k", "--iodepth", "4", "--runtime", "300ms", "--size", "1M"];
        let result = bench(&target.url(0), &load);
        let run = &result["runs"][0];
        assert_eq!(run["kinds"][0]["kind"], kind);
        let bytes = run["operations"].as_u64().unwrap() * 65_536;
        assert_eq!((&run["transferred_bytes"], &run["errors"]), (&bytes.into(), &0.into()));
        target.stop();
        let content = std::fs::read(&image).unwrap();
        assert!(content[..1 << 20].iter().all(|&byte| byte == 0), "{rw}");
        assert!(content[1 << 20..].iter().all(|&byte| byte == 7), "{rw} beyond --size");
    }
}

/// The most frequent place of Zipf's law against its analytic frequency, seen on the disk by what is written where.
#[test]
fn zipf_concentrates_on_few_places() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("disk");
    std::fs::write(&image, vec![7; 4 << 20]).unwrap();
    let target = Target::start(&["--lun", &format!("0=file:{}", image.display())]);
    let written = |distribution: &str, seed: &str| {
        std::fs::write(&image, vec![7; 4 << 20]).unwrap();
        let load = ["--rw", "randwrite", "--bs", "4k", "--random-distribution", distribution, "--seed", seed];
        // A thousand places and a few hundred operations.
        let rate = ["--rate", "1000", "--runtime", "400ms", "--ramp", "0ms", "--iodepth", "32"];
        bench(&target.url(0), &[&load[..], &rate].concat());
        std::fs::read(&image).unwrap().chunks(4096).filter(|block| block[0] == 0).count()
    };
    let (uniform, zipf) = (written("uniform", "1"), written("zipf:1.5", "1"));
    assert!(zipf > 5 && zipf * 3 < uniform, "{zipf} and {uniform} of 1024 places");
}

#[test]
fn poisson_arrivals_keep_the_mean_rate() {
    let target = Target::start(&["--lun", "0=ram:8M"]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("ops.csv");
    let load =
        ["--rate", "1000", "--runtime", "2s", "--ramp", "0ms", "--iodepth", "256", "--arrival", "poisson"];
    bench(&target.url(0), &[&load[..], &["--ops", file.to_str().unwrap()]].concat());
    let text = std::fs::read_to_string(file).unwrap();
    let start = |line: &str| line.split(',').nth(18).unwrap().parse::<u64>().unwrap();
    let mut starts: Vec<u64> = text.lines().skip(1).map(start).collect();
    starts.sort_unstable();
    let intervals: Vec<f64> = starts.windows(2).map(|pair| (pair[1] - pair[0]) as f64 / 1e6).collect();
    let count = intervals.len() as f64;
    let mean = intervals.iter().sum::<f64>() / count;
    let deviation = (intervals.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / count).sqrt();
    // Due times, so the scheduler has no part in them: mean and deviation of an exponential distribution are equal.
    assert!((mean - 1.0).abs() < 5.0 / count.sqrt(), "{mean} ms, {count}");
    assert!((deviation / mean - 1.0).abs() < 0.15, "{deviation} {mean}");
}

#[test]
fn thresholds_decide_the_exit_code() {
    let target = Target::start(&["--lun", "0=ram:8M,delay=2ms"]);
    let url = target.url(0);
    let short = ["--runtime", "200ms", "--ramp", "0ms"];
    let with = |thresholds: &[&str]| {
        let all: Vec<&str> = thresholds.iter().flat_map(|t| ["--assert", t]).collect();
        run(&url, &[&short[..], &all].concat())
    };
    let met = with(&["p99<10s", "p50>=2ms", "errors=0", "iops<=500", "mb/s<3"]);
    assert!(met.status.success(), "{}", error(&met));
    let missed = with(&["p99<10s", "p50<1ms", "iops>100000"]);
    let text = error(&missed);
    assert_eq!(missed.status.code(), Some(1));
    assert!(text.contains("p50<1ms failed: measured 2") && text.contains("iops>100000 failed"), "{text}");
    assert!(!text.contains("p99<10s failed"), "{text}");
    let malformed = with(&["p99<2"]);
    assert_eq!(malformed.status.code(), Some(2), "{}", error(&malformed));
}

#[test]
fn unusable_arguments_are_errors_with_the_accepted_forms() {
    let target = Target::start(&["--lun", "0=ram:8M"]);
    let cases: [(&[&str], &str); 12] = [
        (&["--size", "9M"], "larger than the disk of 8388608 B"),
        (&["--runtime", "5"], "write 5s"),
        (&["--bs", "4kk"], "k, M, G, T or P"),
        (&["--bs", "1000"], "logical block"),
        (&["--rwmix", "70"], "--rw randrw"),
        (&["--rw", "randrw", "--rwmix", "170"], "0 to 100"),
        (&["--bssplit", "4k/60:64k/60"], "add up to 120"),
        (&["--bssplit", "4k/60:64k/40", "--verify"], "one size"),
        (&["--random-distribution", "zipf:0"], "above 0"),
        (&["--rw", "read", "--random-distribution", "zipf:1.1"], "random pattern"),
        (&["--arrival", "poisson"], "add --rate"),
        (&["--rw", "trim", "--verify"], "needs data"),
    ];
    for (arguments, expected) in cases {
        let output = run(&target.url(0), arguments);
        let error = error(&output);
        assert!(output.status.code() == Some(2) && error.contains(expected), "{arguments:?}: {error}");
    }
}

/// The keys of an object and all objects in it, as `read.clat_ns.min`.
fn keys(value: &Value, path: &str, into: &mut BTreeSet<String>) {
    let Some(map) = value.as_object() else {
        into.insert(path.to_owned());
        return;
    };
    for (key, value) in map {
        // The ends of bins are figures, not keys.
        if key != "bins" {
            keys(value, &format!("{path}.{key}"), into);
        }
    }
}

/// Every key that fio prints for a direction is there, with the same type, so scripts that read them work.
#[test]
fn json_plus_has_the_keys_of_fio() {
    let theirs =
        succeed("fio", &["--name=x", "--ioengine=null", "--size=1M", "--rw=randrw", "--output-format=json+"]);
    let theirs: Value = serde_json::from_str(&theirs[theirs.find('{').unwrap()..]).unwrap();
    let target = Target::start(&["--lun", "0=ram:8M"]);
    let load = ["--rw", "randrw", "--runtime", "1100ms", "--output-format", "json+", "--iodepth", "4"];
    let ours = run(&target.url(0), &load);
    let ours: Value = serde_json::from_slice(&ours.stdout).unwrap();
    let of = |value: &Value| {
        let mut all = BTreeSet::new();
        let job = &value["jobs"][0];
        for part in
            ["read", "write", "trim", "sync", "latency_ns", "latency_us", "latency_ms", "iodepth_level"]
        {
            keys(&job[part], part, &mut all);
        }
        for key in ["jobname", "groupid", "error", "elapsed", "job_runtime"] {
            all.insert(format!("{key}: {}", if job[key].is_string() { "text" } else { "number" }));
        }
        all.insert(format!("fio version: {}", value["fio version"].is_string()));
        all
    };
    let missing: Vec<String> = of(&theirs).difference(&of(&ours)).cloned().collect();
    assert!(missing.is_empty(), "{missing:?}");
    let read = &ours["jobs"][0]["read"];
    let (bytes, count) = (read["io_bytes"].as_u64().unwrap(), read["total_ios"].as_u64().unwrap());
    assert!(count > 0 && bytes == count * 4096, "{read:#}");
    assert_eq!(read["clat_ns"]["N"].as_u64(), Some(count));
    let ns = read["clat_ns"]["percentile"]["99.000000"].as_u64().unwrap();
    assert!(ns > 1000 && ns <= read["clat_ns"]["max"].as_u64().unwrap() + 1000, "{read:#}");
}

#[test]
fn series_has_every_second_and_histogram_every_operation() {
    let target = Target::start(&["--lun", "0=ram:8M"]);
    let result = bench(&target.url(0), &["--runtime", "2200ms", "--sessions", "2", "--rate", "500"]);
    let run = &result["runs"][0];
    let count = |list: &str, key: &str| {
        run[list].as_array().unwrap().iter().map(|entry| entry[key].as_u64().unwrap()).sum::<u64>()
    };
    let operations = run["operations"].as_u64().unwrap();
    assert_eq!((count("series", "operations"), count("histogram", "count")), (operations, operations));
    assert_eq!(count("series", "transferred_bytes"), run["transferred_bytes"].as_u64().unwrap());
    let seconds: Vec<u64> = run["series"]
        .as_array()
        .unwrap()
        .iter()
        .map(|second| second["operations"].as_u64().unwrap())
        .collect();
    assert_eq!(seconds.len(), 3, "{seconds:?}");
    assert!(seconds[..2].iter().all(|count| (470..530).contains(count)), "{seconds:?}");
    let bins = run["histogram"].as_array().unwrap();
    let ends: Vec<u64> = bins.iter().map(|bin| bin["up_to_ns"].as_u64().unwrap()).collect();
    assert!(ends.is_sorted(), "{ends:?}");
}

/// A job names the options of fio that make the same load, and no others.
#[test]
fn json_plus_names_the_options_of_the_load() {
    let target = Target::start(&["--lun", "0=ram:8M"]);
    let options = |arguments: &[&str]| {
        let fixed = ["--runtime", "50ms", "--ramp", "0ms", "--output-format", "json+"];
        let output = run(&target.url(0), &[&fixed[..], arguments].concat());
        let value: Value =
            serde_json::from_slice(&output.stdout).unwrap_or_else(|e| panic!("{e}: {}", error(&output)));
        value["jobs"][0]["job options"].clone()
    };
    let plain = serde_json::json!({ "rw": "randread", "bs": "4096", "iodepth": "1" });
    assert_eq!(options(&[]), plain);
    assert_eq!(
        options(&[
            "--rw",
            "randrw",
            "--rwmix",
            "70",
            "--bssplit",
            "4k/60:64k",
            "--iodepth",
            "4",
            "--sessions",
            "2"
        ]),
        serde_json::json!({ "rw": "randrw", "bssplit": "4k/60:64k/40", "rwmixread": "70", "iodepth": "4", "numjobs": "2" })
    );
    let zipf = options(&["--random-distribution", "zipf:1.1", "--rate", "500", "--arrival", "poisson"]);
    assert_eq!(
        (&zipf["random_distribution"], &zipf["rate_iops"], &zipf["rate_process"], &zipf["rwmixread"]),
        (&"zipf:1.1".into(), &"500".into(), &"poisson".into(), &Value::Null)
    );
    assert_eq!(options(&["--rw", "rw"])["rwmixread"], "50", "the default");
    let table = run(&target.url(0), &["--runtime", "50ms", "--ramp", "0ms", "--bssplit", "512/60:4k/40"]);
    let table = String::from_utf8(table.stdout).unwrap();
    assert!(table.contains("512/60:4k/40"), "both sizes: {table}");
}
