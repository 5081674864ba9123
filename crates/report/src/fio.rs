//! Results of `bench` with the keys of fio's `--output-format=json` and `json+`, for scripts that read them (fio 3.33,
//! `stat.c`).

use load::initiator::workload::block_split;
use load::{Arrival, KindResult, Operation, Pattern, RunResult, Second};
use record::latency::Latency;
use serde_json::{Map, Value, json};

/// The percentiles that fio prints by default.
const PERCENTILES: [f64; 17] =
    [1.0, 5.0, 10.0, 20.0, 30.0, 40.0, 50.0, 60.0, 70.0, 80.0, 90.0, 95.0, 99.0, 99.5, 99.9, 99.95, 99.99];

/// The upper ends of fio's latency groups, in each of its three units.
const GROUPS: [u64; 10] = [2, 4, 10, 20, 50, 100, 250, 500, 750, 1000];

/// The errno that stands for failed operations.
const EIO: i32 = 5;

/// Whether distributions are printed in full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bins {
    /// Percentiles only: `json`.
    Omitted,
    /// With `bins`: `json+`.
    Printed,
}

/// Returns fio's JSON of these runs, one job each. `at_ms` is the time of the end, milliseconds since 1970.
#[must_use]
pub fn json(url: &str, runs: &[RunResult], bins: Bins, at_ms: u64) -> Value {
    let jobs: Vec<Value> = runs.iter().map(|run| job(run, bins)).collect();
    json!({
        "fio version": concat!("roundtrip-", env!("CARGO_PKG_VERSION")),
        "timestamp": at_ms / 1000,
        "timestamp_ms": at_ms,
        "global options": { "filename": url },
        "jobs": jobs,
    })
}

fn job(run: &RunResult, bins: Bins) -> Value {
    let of = |kinds: &[Operation]| direction(run, kinds, bins);
    let sizes = match &run.block_split[..] {
        [] => run.block_size_bytes.to_string(),
        split => block_split(split),
    };
    let mut job = json!({
        "jobname": format!("{}-{sizes}-qd{}", run.rw.name(), run.queue_depth),
        "groupid": 0,
        "error": if run.errors > 0 { EIO } else { 0 },
        "total_err": run.errors,
        "eta": 0,
        "elapsed": run.seconds.ceil() as u64,
        "job options": options(run),
        "read": of(&[Operation::Read]),
        "write": of(&[Operation::Write, Operation::WriteZeroes]),
        "trim": of(&[Operation::Trim]),
        "sync": { "total_ios": 0, "lat_ns": figures(&Latency::new()) },
        "job_runtime": runtime_ms(run),
    });
    if let Some(job) = job.as_object_mut() {
        job.extend(groups(run));
    }
    job
}

/// The options of a fio job that does the same, as strings, as fio prints them. What fio's defaults are is left out.
fn options(run: &RunResult) -> Map<String, Value> {
    let (rw, zeroes) = match run.rw {
        // fio 3.33 has no such direction: its engine for SCSI devices writes so.
        Pattern::WriteZeroes => (Pattern::Write, Some("write_same")),
        Pattern::RandWriteZeroes => (Pattern::RandWrite, Some("write_same")),
        rw => (rw, None),
    };
    // One size or split is that of reads, writes and trims alike, as here.
    let sizes = match &run.block_split[..] {
        [] => ("bs", run.block_size_bytes.to_string()),
        split => ("bssplit", block_split(split)),
    };
    let rate = run.rate.map(|rate| rate.to_string());
    let is_poisson = run.arrival == Some(Arrival::Poisson);
    let sessions = (run.sessions > 1 && run.connections.is_none()).then(|| run.sessions.to_string());
    let all = [
        ("rw", Some(rw.name().to_owned())),
        (sizes.0, Some(sizes.1)),
        ("iodepth", Some(depth_of_session(run).to_string())),
        ("numjobs", sessions),
        ("rwmixread", run.read_percent.map(|percent| percent.to_string())),
        ("random_distribution", run.zipf_exponent.map(|exponent| format!("zipf:{exponent}"))),
        ("rate_iops", rate),
        ("rate_process", is_poisson.then(|| "poisson".to_owned())),
        ("sg_write_mode", zeroes.map(str::to_owned)),
    ];
    let given = |(name, value): (&str, Option<String>)| Some((name.to_owned(), Value::from(value?)));
    all.into_iter().filter_map(given).collect()
}

/// The queue depth of one job of fio, which is one session; of HTTP, whose sessions are connections, that of all of them.
fn depth_of_session(run: &RunResult) -> u32 {
    if run.connections.is_some() { run.queue_depth } else { run.queue_depth / run.sessions.max(1) }
}

fn runtime_ms(run: &RunResult) -> u64 {
    (run.seconds * 1000.0).round() as u64
}

/// One direction of a job. fio's submission latency is part of the completion latency here: `bench` takes one time stamp
/// before it makes a request.
fn direction(run: &RunResult, which: &[Operation], bins: Bins) -> Value {
    let kinds: Vec<&KindResult> = run.kinds.iter().filter(|kind| which.contains(&kind.kind)).collect();
    let mut latency = Latency::new();
    kinds.iter().for_each(|kind| latency.add(&kind.latency));
    let sum = |of: fn(&KindResult) -> u64| kinds.iter().map(|kind| of(kind)).sum::<u64>();
    let rate = |of: fn(&KindResult) -> f64| kinds.iter().map(|kind| of(kind)).sum::<f64>();
    let (bytes, bytes_per_second) = (sum(|k| k.transferred_bytes), rate(|k| k.bytes_per_second));
    let mut value = json!({
        "io_bytes": bytes,
        "io_kbytes": bytes / 1024,
        "bw_bytes": bytes_per_second.round() as u64,
        "bw": (bytes_per_second / 1024.0) as u64,
        "iops": rate(|k| k.iops),
        "runtime": if kinds.is_empty() { 0 } else { runtime_ms(run) },
        "total_ios": sum(|k| k.operations),
        "short_ios": sum(|k| k.short),
        "drop_ios": 0,
        "slat_ns": figures(&Latency::new()),
        "clat_ns": distribution(&latency, bins),
        "lat_ns": figures(&latency),
    });
    if let Some(value) = value.as_object_mut() {
        // The series has no directions: it is that of a direction only if there is no other.
        let is_alone = run.kinds.iter().all(|kind| which.contains(&kind.kind));
        value.extend(samples(if is_alone { whole_seconds(run) } else { &[] }));
    }
    value
}

/// Returns the seconds that lie completely within the measured time.
fn whole_seconds(run: &RunResult) -> &[Second] {
    &run.series[..run.series.len().min(run.seconds as usize)]
}

fn figures(latency: &Latency) -> Value {
    let f = latency.figures();
    let count = latency.count();
    json!({
        "min": (f.min * 1000.0).round() as u64,
        "max": (f.max * 1000.0).round() as u64,
        "mean": f.mean * 1000.0,
        "stddev": latency.deviation_ns(),
        "N": count,
    })
}

fn distribution(latency: &Latency, bins: Bins) -> Value {
    let mut value = figures(latency);
    let Some(map) = value.as_object_mut().filter(|_| latency.count() > 0) else { return value };
    let at = |percent: f64| (format!("{percent:.6}"), Value::from(latency.quantile_ns(percent / 100.0)));
    map.insert("percentile".to_owned(), PERCENTILES.map(at).into_iter().collect::<Map<_, _>>().into());
    if bins == Bins::Printed {
        let bins = latency.bins().into_iter().map(|bin| (bin.up_to_ns.to_string(), Value::from(bin.count)));
        map.insert("bins".to_owned(), bins.collect::<Map<_, _>>().into());
    }
    value
}

/// The spread of the rates over whole seconds.
fn samples(seconds: &[Second]) -> Map<String, Value> {
    let spread = |name: &str, values: Vec<f64>| {
        let count = values.len() as f64;
        let mean = values.iter().sum::<f64>() / count.max(1.0);
        // Of a sample.
        let variance = values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (count - 1.0).max(1.0);
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        let least = if least.is_finite() { least } else { 0.0 };
        let deviation = if name == "bw" { "bw_dev" } else { "iops_stddev" };
        [
            (format!("{name}_min"), Value::from(least.round() as u64)),
            (format!("{name}_max"), Value::from(most.round() as u64)),
            (format!("{name}_mean"), Value::from(mean)),
            (deviation.to_owned(), Value::from(variance.sqrt())),
            (format!("{name}_samples"), Value::from(values.len())),
        ]
    };
    let bytes = seconds.iter().map(|second| second.transferred_bytes as f64 / 1024.0).collect();
    let operations = seconds.iter().map(|second| second.operations as f64).collect();
    let share = ("bw_agg".to_owned(), Value::from(if seconds.is_empty() { 0.0 } else { 100.0 }));
    spread("bw", bytes).into_iter().chain(spread("iops", operations)).chain([share]).collect()
}

/// The shares of operations by latency and by depth, percent.
fn groups(run: &RunResult) -> Map<String, Value> {
    let all = run.histogram.iter().map(|bin| bin.count).sum::<u64>().max(1) as f64;
    let share = |from_ns: u64, to_ns: u64| {
        let inside = |ns: u64| ns > from_ns && ns <= to_ns;
        let count: u64 = run.histogram.iter().filter(|bin| inside(bin.up_to_ns)).map(|bin| bin.count).sum();
        Value::from(count as f64 * 100.0 / all)
    };
    let mut map = Map::new();
    // Each unit begins where the one before ends.
    for (name, unit_ns, begins_ns) in
        [("latency_ns", 1, 0), ("latency_us", 1000, 1000), ("latency_ms", 1_000_000, 1_000_000)]
    {
        let mut from_ns = begins_ns;
        let mut group = Map::new();
        for end in GROUPS {
            group.insert(end.to_string(), share(from_ns, end * unit_ns));
            from_ns = end * unit_ns;
        }
        if name == "latency_ms" {
            group.insert("2000".to_owned(), share(from_ns, 2_000_000_000));
            group.insert(">=2000".to_owned(), share(2_000_000_000, u64::MAX));
        }
        map.insert(name.to_owned(), group.into());
    }
    if run.rate.is_none() {
        map.insert("iodepth_level".to_owned(), depths(depth_of_session(run)).into());
    }
    map
}

/// The depth of a closed loop, which is constant.
fn depths(depth: u32) -> Map<String, Value> {
    let own = if depth >= 64 { 64 } else { 1 << depth.max(1).ilog2() };
    let name = |level: u32| if level == 64 { ">=64".to_owned() } else { level.to_string() };
    let share = |level: u32| Value::from(if level == own { 100.0 } else { 0.0 });
    [1, 2, 4, 8, 16, 32, 64].into_iter().map(|level| (name(level), share(level))).collect()
}

#[cfg(test)]
mod tests {
    use load::initiator::BlockShare;

    use super::*;

    fn kind(kind: Operation, from_us: u64) -> KindResult {
        let mut latency = Latency::new();
        (0..1000).for_each(|i| latency.record((from_us + i) * 1000));
        KindResult {
            kind,
            operations: 1000,
            iops: 500.0,
            transferred_bytes: 4_096_000,
            bytes_per_second: 2_048_000.0,
            errors: 2,
            short: 1,
            latency_us: latency.figures(),
            latency,
        }
    }

    fn run(kinds: Vec<KindResult>) -> RunResult {
        let mut all = Latency::new();
        kinds.iter().for_each(|kind| all.add(&kind.latency));
        let second =
            |operations| Second { operations, transferred_bytes: operations * 4096, ..Second::default() };
        RunResult {
            rw: Pattern::RandRw,
            block_size_bytes: 4096,
            queue_depth: 5,
            seconds: 2.25,
            histogram: all.bins(),
            kinds,
            series: vec![second(400), second(600), second(9)],
            errors: 2,
            ..RunResult::default()
        }
    }

    #[test]
    fn figures_are_those_of_their_direction() {
        let runs = [run(vec![kind(Operation::Read, 100), kind(Operation::Write, 5000)])];
        let value = json("iscsi://h", &runs, Bins::Printed, 1_500);
        let job = &value["jobs"][0];
        assert_eq!(
            (&value["timestamp"], &job["error"], &job["total_err"]),
            (&1.into(), &5.into(), &2.into())
        );
        for (name, from_us) in [("read", 100), ("write", 5000)] {
            let direction = &job[name];
            assert_eq!(direction["io_bytes"], 4_096_000);
            assert_eq!((&direction["bw"], &direction["bw_bytes"]), (&2000.into(), &2_048_000.into()));
            assert_eq!((&direction["total_ios"], &direction["short_ios"]), (&1000.into(), &1.into()));
            assert_eq!((&direction["iops"], &direction["runtime"]), (&500.0.into(), &2250.into()));
            let at = direction["clat_ns"]["percentile"]["99.000000"].as_f64().unwrap();
            let expected = f64::from(from_us + 989) * 1000.0;
            assert!((at / expected - 1.0).abs() < 0.002, "{name}: {at} is not {expected}");
            let mean = direction["lat_ns"]["mean"].as_f64().unwrap();
            assert!((mean - (f64::from(from_us) + 499.5) * 1000.0).abs() < 1.0, "{mean}");
            // Of equally distributed values: width over the root of 12.
            let deviation = direction["clat_ns"]["stddev"].as_f64().unwrap();
            assert!((deviation / 288_675.0 - 1.0).abs() < 0.01, "{deviation}");
            let bins = direction["clat_ns"]["bins"].as_object().unwrap();
            assert_eq!(bins.values().map(|count| count.as_u64().unwrap()).sum::<u64>(), 1000);
        }
        assert_eq!(
            (&job["read"]["io_kbytes"], &job["elapsed"], &job["job_runtime"]),
            (&4000.into(), &3.into(), &2250.into())
        );
        assert_eq!((&job["trim"]["total_ios"], &job["trim"]["runtime"]), (&0.into(), &0.into()));
        assert_eq!(job["read"]["iops_samples"], 0, "the series does not tell reads from writes");
        assert_eq!(job["iodepth_level"]["4"], 100.0);
        let shares = ["latency_ns", "latency_us", "latency_ms"].map(|unit| {
            job[unit].as_object().unwrap().values().map(|share| share.as_f64().unwrap()).sum::<f64>()
        });
        assert!((shares.iter().sum::<f64>() - 100.0).abs() < 1e-6, "{shares:?}");
        assert!((shares[2] - 52.5).abs() < 3.0, "{shares:?}");
        // A group begins where the one before it ends, also where the unit changes.
        let mut kind = kind(Operation::Read, 100);
        kind.latency = Latency::new();
        [900, 1500, 1_900_000, 5_000_000_000].into_iter().for_each(|ns| kind.latency.record(ns));
        let job = &json("", &[run(vec![kind])], Bins::Omitted, 0)["jobs"][0];
        let groups =
            [("latency_ns", "1000"), ("latency_us", "2"), ("latency_ms", "2"), ("latency_ms", ">=2000")];
        assert_eq!(groups.map(|(unit, end)| job[unit][end].as_f64()), [Some(25.0); 4], "{job:#}");
    }

    #[test]
    fn rates_spread_over_whole_seconds() {
        let runs = [run(vec![kind(Operation::WriteZeroes, 100)])];
        let value = json("", &runs, Bins::Omitted, 0);
        let write = &value["jobs"][0]["write"];
        assert_eq!((&write["iops_min"], &write["iops_max"]), (&400.into(), &600.into()));
        assert_eq!((&write["iops_mean"], &write["iops_samples"]), (&500.0.into(), &2.into()));
        assert_eq!((&write["bw_min"], &write["bw_max"]), (&1600.into(), &2400.into()));
        assert!((write["iops_stddev"].as_f64().unwrap() - 141.42).abs() < 0.01);
        assert!(write["clat_ns"]["bins"].is_null() && write["clat_ns"]["percentile"].is_object());
    }

    #[test]
    fn options_are_those_of_a_fio_job_that_does_the_same() {
        let of = |run: RunResult| json("", &[run], Bins::Omitted, 0)["jobs"][0].clone();
        let plain =
            of(RunResult { block_size_bytes: 4096, queue_depth: 8, sessions: 1, ..RunResult::default() });
        assert_eq!(plain["job options"], json!({ "rw": "randread", "bs": "4096", "iodepth": "8" }));
        assert_eq!(plain["jobname"], "randread-4096-qd8");
        let share = |block_bytes, percent| BlockShare { block_bytes, percent };
        let mixed = RunResult {
            rw: Pattern::RandRw,
            block_size_bytes: 65_536,
            block_split: vec![share(4096, 60), share(65_536, 40)],
            read_percent: Some(70),
            zipf_exponent: Some(1.1),
            rate: Some(2000.0),
            arrival: Some(Arrival::Poisson),
            queue_depth: 16,
            sessions: 2,
            ..RunResult::default()
        };
        let job = of(mixed.clone());
        let expected = json!({ "rw": "randrw", "bssplit": "4k/60:64k/40", "rwmixread": "70", "iodepth": "8", "numjobs": "2",
            "random_distribution": "zipf:1.1", "rate_iops": "2000", "rate_process": "poisson" });
        assert_eq!((&job["job options"], &job["jobname"]), (&expected, &"randrw-4k/60:64k/40-qd16".into()));
        let zeroes = of(RunResult { rw: Pattern::WriteZeroes, block_split: Vec::new(), ..mixed.clone() });
        assert_eq!(
            (&zeroes["job options"]["rw"], &zeroes["job options"]["sg_write_mode"]),
            (&"write".into(), &"write_same".into())
        );
        // Each connection of an HTTP load is a session, and fio's depth is that of all of them.
        let http = of(RunResult { sessions: 16, connections: Some(load::Connections::default()), ..mixed });
        assert_eq!(
            (&http["job options"]["iodepth"], &http["job options"]["numjobs"]),
            (&"16".into(), &Value::Null)
        );
    }
}
