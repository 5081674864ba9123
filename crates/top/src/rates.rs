//! What happened between two samples.

use serde::Serialize;

use crate::sample::{BOUNDS_US, STAGES, Sample};

/// What happened between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Rates {
    /// The time between them, seconds.
    pub seconds: f64,
    /// Its disks.
    pub disks: Vec<DiskRates>,
    /// Its connections.
    pub connections: Vec<ConnectionRates>,
    /// Mean time of each stage of a command, microseconds; `None` where nothing was measured.
    pub stages: Vec<(String, Option<f64>)>,
    /// Sessions at the end.
    pub sessions: u64,
    /// The send policy at the end.
    pub send: String,
    /// Logins are refused.
    pub draining: bool,
    /// The version of the target.
    pub version: String,
    /// How long it has run, seconds.
    pub uptime_s: f64,
}

/// A disk between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct DiskRates {
    /// The target.
    pub target: String,
    /// Logical unit number.
    pub lun: u64,
    /// Commands a second.
    pub iops: f64,
    /// Share of reads among reads and writes; `None` without either.
    pub read_share: Option<f64>,
    /// Bytes a second.
    pub bytes_per_s: f64,
    /// Median latency inside the target, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Commands in the target on average, by Little's law: rate times mean latency. What waits before its connection's turn is not
    /// among them.
    pub depth: f64,
    /// Responses other than GOOD, a second.
    pub errors_per_s: f64,
    /// Responses other than GOOD since the target began.
    pub errors: f64,
}

/// A connection between two samples.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ConnectionRates {
    /// Its number.
    pub id: u64,
    /// The initiator's name.
    pub initiator: String,
    /// The initiator's address and port.
    pub peer: String,
    /// The target.
    pub target: String,
    /// Commands a second.
    pub iops: f64,
    /// Bytes a second, both ways.
    pub bytes_per_s: f64,
    /// Send calls for each command; `None` without commands.
    pub sends_per_command: Option<f64>,
    /// The mode that most responses were sent in.
    pub mode: &'static str,
}

/// The difference of two counters; one that went back has begun anew.
fn more(now: f64, before: f64) -> f64 {
    if now >= before { now - before } else { now }
}

/// A quantile of latencies by bucket, interpolated within its bucket; `None` without any.
fn quantile(latencies: &[f64], share: f64) -> Option<f64> {
    let all: f64 = latencies.iter().sum();
    let (wanted, mut below) = (all * share, 0.0);
    for (index, &count) in latencies.iter().enumerate().filter(|(_, count)| **count > 0.0) {
        if below + count >= wanted {
            let low = index.checked_sub(1).map_or(0.0, |index| BOUNDS_US[index]);
            // Beyond the last bound nothing more is known.
            let high = BOUNDS_US.get(index).copied().unwrap_or(low);
            return Some(low + (high - low) * (wanted - below) / count);
        }
        below += count;
    }
    None
}

impl Rates {
    /// Returns what happened between two samples that are `seconds` apart.
    #[must_use]
    pub fn between(before: &Sample, now: &Sample, seconds: f64) -> Self {
        let rate = |now: f64, before: f64| more(now, before) / seconds.max(1e-9);
        let disks = now.disks.iter().map(|(key, disk)| {
            let old = before.disks.get(key).cloned().unwrap_or_default();
            let [reads, writes, all] =
                [0, 1, 2].map(|index| more(disk.operations[index], old.operations[index]));
            let latencies: Vec<f64> = (disk.latencies.iter().enumerate())
                .map(|(index, &count)| more(count, old.latencies.get(index).copied().unwrap_or(0.0)))
                .collect();
            let (measured, sum_us) = (latencies.iter().sum::<f64>(), more(disk.latency_us, old.latency_us));
            let mean_us = if measured > 0.0 { sum_us / measured } else { 0.0 };
            DiskRates {
                target: key.0.clone(),
                lun: key.1,
                iops: all / seconds.max(1e-9),
                read_share: (reads + writes > 0.0).then(|| reads / (reads + writes)),
                bytes_per_s: rate(disk.moved, old.moved),
                p50_us: quantile(&latencies, 0.5),
                p99_us: quantile(&latencies, 0.99),
                depth: all / seconds.max(1e-9) * mean_us / 1e6,
                errors_per_s: rate(disk.errors, old.errors),
                errors: disk.errors,
            }
        });
        let connections = now.connections.iter().map(|(&id, one)| {
            let old = before.connections.get(&id).cloned().unwrap_or_default();
            let commands = more(one.commands, old.commands);
            let modes = [0, 1, 2].map(|index| more(one.modes[index], old.modes[index]));
            let named =
                std::iter::zip(modes, ["nodelay", "nagle", "batch"]).filter(|(count, _)| *count > 0.0);
            let mode = named.max_by(|(a, _), (b, _)| a.total_cmp(b)).map_or("-", |(_, name)| name);
            ConnectionRates {
                id,
                initiator: one.initiator.clone(),
                peer: one.peer.clone(),
                target: one.target.clone(),
                iops: commands / seconds.max(1e-9),
                bytes_per_s: rate(one.moved, old.moved),
                sends_per_command: (commands > 0.0).then(|| more(one.sends, old.sends) / commands),
                mode,
            }
        });
        let stages = STAGES.iter().map(|name| {
            let (sum, count) = now.stages.get(*name).copied().unwrap_or_default();
            let (old_sum, old_count) = before.stages.get(*name).copied().unwrap_or_default();
            let (sum, count) = (more(sum, old_sum), more(count, old_count));
            ((*name).to_owned(), (count > 0.0).then(|| sum / count / 1e3))
        });
        Self {
            seconds,
            disks: disks.collect(),
            connections: connections.collect(),
            stages: stages.collect(),
            sessions: now.sessions,
            send: now.send.clone(),
            draining: now.is_draining,
            version: now.version.clone(),
            uptime_s: now.uptime_s,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{Connection, Disk};

    fn disk(reads: f64, latencies: &[(usize, f64)], sum_us: f64) -> Disk {
        let mut all = vec![0.0; 20];
        latencies.iter().for_each(|&(index, count)| all[index] = count);
        Disk {
            operations: [reads, 0.0, reads],
            moved: reads * 4096.0,
            latencies: all,
            latency_us: sum_us,
            ..Disk::default()
        }
    }

    fn with(disk: Disk) -> Sample {
        Sample { disks: [(("t".to_owned(), 0), disk)].into(), ..Sample::default() }
    }

    #[test]
    fn rates_quantiles_and_depth_are_of_the_time_between() {
        let before = with(disk(1000.0, &[(0, 1000.0)], 3000.0));
        let now = with(disk(3000.0, &[(0, 1000.0), (2, 1980.0), (7, 20.0)], 3000.0 + 2000.0 * 20.0));
        let rates = Rates::between(&before, &now, 2.0);
        let disk = &rates.disks[0];
        assert_eq!((disk.iops, disk.bytes_per_s, disk.read_share), (1000.0, 4_096_000.0, Some(1.0)));
        // 1000 of 1980 in the bucket from 10 to 25 us; the 1980th of 2000 is its last one.
        assert!((disk.p50_us.expect("p50") - (10.0 + 15.0 * 1000.0 / 1980.0)).abs() < 1e-9);
        assert!((disk.p99_us.expect("p99") - 25.0).abs() < 1e-9);
        assert!((disk.depth - 0.02).abs() < 1e-9, "1000/s of 20 us each: {}", disk.depth);
        // A target that was restarted counts from 0.
        let again = Rates::between(&now, &with(super::tests::disk(10.0, &[(0, 10.0)], 30.0)), 1.0);
        assert_eq!(again.disks[0].iops, 10.0);
        // Nothing happened.
        let idle = Rates::between(&now, &now, 1.0);
        assert_eq!((idle.disks[0].iops, idle.disks[0].p50_us, idle.disks[0].depth), (0.0, None, 0.0));
    }

    #[test]
    fn mode_is_that_of_most_responses_since() {
        let connection = |modes, commands| Sample {
            connections: [(1, Connection { modes, commands, sends: commands, ..Connection::default() })]
                .into(),
            ..Sample::default()
        };
        let rates = Rates::between(
            &connection([100.0, 0.0, 0.0], 100.0),
            &connection([110.0, 0.0, 50.0], 160.0),
            1.0,
        );
        assert_eq!((rates.connections[0].mode, rates.connections[0].sends_per_command), ("batch", Some(1.0)));
    }
}
