//! What a target has counted at one time.

use std::collections::BTreeMap;

use serde_json::Value;

/// Bounds of the buckets of latencies, microseconds; the last bucket has none.
pub const BOUNDS_US: [f64; 19] = [
    5.0, 10.0, 25.0, 50.0, 100.0, 250.0, 500.0, 1e3, 2.5e3, 5e3, 1e4, 2.5e4, 5e4, 1e5, 2.5e5, 5e5, 1e6,
    2.5e6, 1e7,
];

/// The stages of a command, in their order.
pub const STAGES: [&str; 6] = ["turn", "receive", "queue", "execute", "store", "transmit"];

/// A target at one time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Sample {
    /// Its version.
    pub version: String,
    /// How long it has run, seconds.
    pub uptime_s: f64,
    /// The send policy.
    pub send: String,
    /// Logins are refused.
    pub is_draining: bool,
    /// Sessions.
    pub sessions: u64,
    /// Disks, by target and number.
    pub disks: BTreeMap<(String, u64), Disk>,
    /// Connections, by number; none where only metrics are known.
    pub connections: BTreeMap<u64, Connection>,
    /// Measured time of each stage, nanoseconds, and how often it was measured.
    pub stages: BTreeMap<String, (f64, f64)>,
}

/// The counters of a disk.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Disk {
    /// Reads, writes, and all commands.
    pub operations: [f64; 3],
    /// Bytes of all commands.
    pub moved: f64,
    /// Latencies by bucket, each bucket with its own.
    pub latencies: Vec<f64>,
    /// The sum of all latencies, microseconds.
    pub latency_us: f64,
    /// Responses other than GOOD.
    pub errors: f64,
}

/// The counters of a connection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Connection {
    /// The initiator's name.
    pub initiator: String,
    /// The initiator's address and port.
    pub peer: String,
    /// The target.
    pub target: String,
    /// Commands.
    pub commands: f64,
    /// Bytes, both ways.
    pub moved: f64,
    /// Send calls.
    pub sends: f64,
    /// Responses by mode, a count each: nodelay, nagle, batch.
    pub modes: [f64; 3],
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or(0.0)
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

impl Sample {
    /// Reads the answers of a control socket: of `/v1/status`, `/v1/disks` and `/v1/connections`.
    #[must_use]
    pub fn of_control(status: &Value, disks: &Value, connections: &Value) -> Self {
        let disk = |disk: &Value| {
            let mut counters = Disk { latencies: vec![0.0; BOUNDS_US.len() + 1], ..Disk::default() };
            for (index, counts) in list(&disk["counts"]["operations"]).enumerate() {
                let commands = number(&counts["commands"]);
                counters.operations[2] += commands;
                if index < 2 {
                    counters.operations[index] += commands;
                }
                counters.moved += number(&counts["bytes"]);
                counters.latency_us += number(&counts["latency_sum_ns"]) / 1e3;
                std::iter::zip(&mut counters.latencies, list(&counts["latencies"]))
                    .for_each(|(all, more)| *all += number(more));
            }
            counters.errors =
                list(&disk["counts"]["failed"]).fold(0.0, |all, failed| all + number(&failed[2]));
            ((text(&disk["target"]), disk["lun"].as_u64().unwrap_or(0)), counters)
        };
        let connection = |one: &Value| {
            let modes = ["nodelay", "nagle", "batch"].map(|mode| number(&one["modes"][mode]));
            let counters = Connection {
                initiator: text(&one["initiator_name"]),
                peer: text(&one["peer"]),
                target: text(&one["target"]),
                commands: number(&one["commands"]),
                moved: number(&one["received_bytes"]) + number(&one["sent_bytes"]),
                sends: number(&one["sends"]),
                modes,
            };
            (one["id"].as_u64().unwrap_or(0), counters)
        };
        let stages = &status["totals"]["stages"];
        let stage = |name: &&str| {
            ((*name).to_owned(), (number(&stages[*name]["sum_ns"]), number(&stages[*name]["count"])))
        };
        Self {
            version: text(&status["version"]),
            uptime_s: number(&status["uptime_s"]),
            send: text(&status["send"]),
            is_draining: status["draining"] == true,
            sessions: status["sessions"].as_u64().unwrap_or(0),
            disks: list(disks).map(disk).collect(),
            connections: list(connections).map(connection).collect(),
            stages: STAGES.iter().map(stage).collect(),
        }
    }

    /// Reads metrics in OpenMetrics' text format. What is no metric of a target is passed over.
    #[must_use]
    pub fn of_metrics(metrics: &str) -> Self {
        let mut sample = Self::default();
        for line in metrics.lines().filter(|line| !line.starts_with('#')) {
            let Some((name, labels, value)) = metric(line) else { continue };
            let label =
                |wanted: &str| labels.iter().find(|(name, _)| name == wanted).map_or("", |(_, value)| value);
            if let Some(field) = name.strip_prefix("roundtrip_disk_") {
                let key = (label("target").to_owned(), label("lun").parse().unwrap_or(0));
                let disk = sample.disks.entry(key).or_default();
                match field {
                    "operations_total" => {
                        disk.operations[2] += value;
                        match label("operation") {
                            "read" => disk.operations[0] += value,
                            "write" => disk.operations[1] += value,
                            _ => {}
                        }
                    }
                    "bytes_total" => disk.moved += value,
                    "errors_total" => disk.errors += value,
                    "latency_seconds_sum" => disk.latency_us += value * 1e6,
                    "latency_seconds_bucket" => {
                        disk.latencies.resize(BOUNDS_US.len() + 1, 0.0);
                        let bound = label("le").parse::<f64>().unwrap_or(f64::INFINITY) * 1e6;
                        let index = BOUNDS_US
                            .iter()
                            .position(|own| (own - bound).abs() < own / 1e3)
                            .unwrap_or(BOUNDS_US.len());
                        disk.latencies[index] += value;
                    }
                    _ => {}
                }
                continue;
            }
            match name {
                "roundtrip_build" => {
                    (sample.version, sample.send) = (label("version").to_owned(), label("send").to_owned());
                }
                "roundtrip_uptime_seconds" => sample.uptime_s = value,
                "roundtrip_draining" => sample.is_draining = value != 0.0,
                "roundtrip_sessions" => sample.sessions += value as u64,
                "roundtrip_stage_seconds_total" => {
                    sample.stages.entry(label("stage").to_owned()).or_default().0 = value * 1e9;
                }
                "roundtrip_stage_samples_total" => {
                    sample.stages.entry(label("stage").to_owned()).or_default().1 = value;
                }
                _ => {}
            }
        }
        // Buckets are cumulative in the text.
        for disk in sample.disks.values_mut() {
            for index in (1..disk.latencies.len()).rev() {
                disk.latencies[index] -= disk.latencies[index - 1];
            }
        }
        sample
    }
}

/// Names and values.
type Labels = Vec<(String, String)>;

/// A line of metrics: name, labels and value.
fn metric(line: &str) -> Option<(&str, Labels, f64)> {
    let (before, value) = line.rsplit_once(' ')?;
    let value = value.parse().ok().filter(|value: &f64| value.is_finite())?;
    let Some((name, labels)) = before.split_once('{') else { return Some((before, Vec::new(), value)) };
    let mut rest = labels.strip_suffix('}')?;
    let mut all = Vec::new();
    while let Some((key, behind)) = rest.split_once("=\"") {
        let mut text = String::new();
        let mut characters = behind.char_indices();
        let mut end = None;
        while let Some((at, character)) = characters.next() {
            match character {
                '"' => {
                    end = Some(at);
                    break;
                }
                '\\' => match characters.next()?.1 {
                    'n' => text.push('\n'),
                    other => text.push(other),
                },
                other => text.push(other),
            }
        }
        all.push((key.trim_start_matches(',').to_owned(), text));
        rest = &behind[end? + 1..];
    }
    Some((name, all, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn metrics_and_control_tell_the_same_of_disks() {
        let mut latencies = vec![0; 20];
        (latencies[1], latencies[19]) = (30, 2);
        let mut operations =
            vec![json!({ "commands": 0, "bytes": 0, "latencies": vec![0; 20], "latency_sum_ns": 0 }); 5];
        operations[0] =
            json!({ "commands": 32, "bytes": 131_072, "latencies": latencies, "latency_sum_ns": 2_000_000 });
        operations[4]["commands"] = json!(3);
        let disks = json!([{
            "target": "iqn.a:b", "lun": 7,
            "counts": { "operations": operations, "failed": [[2, 5, 4], [8, 0, 1]] }
        }]);
        let control = Sample::of_control(&json!({}), &disks, &json!([]));
        let mut text = String::from(
            "# HELP x\nother_metric{a=\"b\"} 5\nroundtrip_disk_size_bytes{target=\"iqn.a:b\",lun=\"7\"} 1024.0\n",
        );
        let of = "target=\"iqn.a:b\",lun=\"7\",operation=\"read\"";
        text.push_str(&format!(
            "roundtrip_disk_operations_total{{{of}}} 32\nroundtrip_disk_bytes_total{{{of}}} 131072\n"
        ));
        text.push_str(
            "roundtrip_disk_operations_total{target=\"iqn.a:b\",lun=\"7\",operation=\"other\"} 3\n",
        );
        text.push_str(
            "roundtrip_disk_errors_total{target=\"iqn.a:b\",lun=\"7\",status=\"busy\",sense=\"none\"} 1\n",
        );
        text.push_str("roundtrip_disk_errors_total{target=\"iqn.a:b\",lun=\"7\",status=\"check_condition\",sense=\"x\"} 4\n");
        text.push_str(&format!("roundtrip_disk_latency_seconds_sum{{{of}}} 0.002\n"));
        for (index, bound) in BOUNDS_US.iter().enumerate() {
            let below = if index == 0 { 0 } else { 30 };
            text.push_str(&format!(
                "roundtrip_disk_latency_seconds_bucket{{le=\"{}\",{of}}} {below}\n",
                bound / 1e6
            ));
        }
        text.push_str(&format!("roundtrip_disk_latency_seconds_bucket{{le=\"+Inf\",{of}}} 32\n"));
        assert_eq!(Sample::of_metrics(&text).disks, control.disks);
    }

    #[test]
    fn labels_are_read_with_what_is_escaped_in_them() {
        let (name, labels, value) = metric(r#"m{a="x\"y\\z\n",b=""} 1.5e3"#).expect("a metric");
        assert_eq!((name, value), ("m", 1500.0));
        assert_eq!(labels, [("a".into(), "x\"y\\z\n".into()), ("b".into(), String::new())]);
        for odd in ["", " ", "m{", "m{a=\"", "m{a=\"b} 1", "m x", "m{a=\"\\", "m NaN", "m +Inf"] {
            assert_eq!(metric(odd), None, "{odd}");
        }
        assert_eq!(metric("m 1"), Some(("m", Vec::new(), 1.0)));
    }
}
