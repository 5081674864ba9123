//! The metrics of a target in OpenMetrics' text format. How many series there are depends on the configuration (targets and disks) and
//! not on the initiators: one that comes and goes must not fill a database.

use std::fmt::Error;

use iscsi_target::counters::BOUNDS_US;
use iscsi_target::{LimitUse, NodeOverview, Operation};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeCounterValue, EncodeGaugeValue};
use prometheus_client::metrics::MetricType;
use prometheus_client::registry::{Registry, Unit};

use crate::view::Snapshot;

/// Returns the metrics of a target.
#[must_use]
pub fn text(snapshot: Snapshot, process: &Process) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Metrics { snapshot, usage: process.usage() }));
    let mut text = String::new();
    // A string can always be written to.
    let _ = prometheus_client::encoding::text::encode(&mut text, &registry);
    text
}

#[derive(Debug)]
struct Metrics {
    snapshot: Snapshot,
    usage: Usage,
}

/// What the kernel says of the process: /proc/self/stat, which is open from before a sandbox hides it. Open it before that.
#[derive(Debug)]
pub struct Process {
    stat: std::fs::File,
    ticks_per_second: f64,
    page_bytes: u64,
}

/// The figures of a process.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    cpu_seconds: f64,
    resident_bytes: u64,
    threads: u64,
}

impl Process {
    /// Opens the file.
    ///
    /// # Errors
    /// When there is no /proc.
    pub fn open() -> std::io::Result<Self> {
        Ok(Self {
            stat: std::fs::File::open("/proc/self/stat")?,
            // They come from a file of /proc, too.
            ticks_per_second: rustix::param::clock_ticks_per_second() as f64,
            page_bytes: rustix::param::page_size() as u64,
        })
    }

    fn usage(&self) -> Usage {
        use std::os::unix::fs::FileExt as _;

        let mut buffer = [0; 4096];
        let length = self.stat.read_at(&mut buffer, 0).unwrap_or(0);
        let stat = String::from_utf8_lossy(&buffer[..length]);
        // The name in parentheses may hold anything; the fields begin behind it, with the third (proc_pid_stat(5)).
        let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
        let field =
            |number: usize| fields.get(number - 3).and_then(|text| text.parse::<u64>().ok()).unwrap_or(0);
        Usage {
            cpu_seconds: (field(14) + field(15)) as f64 / self.ticks_per_second,
            resident_bytes: field(24) * self.page_bytes,
            threads: field(20),
        }
    }
}

/// Labels: names and values.
type Labels = Vec<(&'static str, String)>;

/// Writes metrics.
struct Writer<'a>(DescriptorEncoder<'a>);

impl Writer<'_> {
    fn counters<V: EncodeCounterValue>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = (Labels, V)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Counter)?;
        for (labels, value) in all {
            metric.encode_family(&labels)?.encode_counter::<Labels, V, u64>(&value, None)?;
        }
        Ok(())
    }

    fn gauges<V: EncodeGaugeValue>(
        &mut self,
        name: &str,
        help: &str,
        all: impl IntoIterator<Item = (Labels, V)>,
    ) -> Result<(), Error> {
        let mut metric = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in all {
            metric.encode_family(&labels)?.encode_gauge(&value)?;
        }
        Ok(())
    }
}

fn none<V>(value: V) -> [(Labels, V); 1] {
    [(Labels::new(), value)]
}

fn as_gauge(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// The names of the sense keys (SPC-4 4.5.6).
const KEYS: [&str; 16] = [
    "none",
    "recovered_error",
    "not_ready",
    "medium_error",
    "hardware_error",
    "illegal_request",
    "unit_attention",
    "data_protect",
    "blank_check",
    "vendor_specific",
    "copy_aborted",
    "aborted_command",
    "reserved",
    "volume_overflow",
    "miscompare",
    "completed",
];

/// The name of a SCSI status (SAM-5 5.3.1).
fn status_name(status: u8) -> &'static str {
    match status {
        0x02 => "check_condition",
        0x08 => "busy",
        0x18 => "reservation_conflict",
        0x28 => "task_set_full",
        0x30 => "aca_active",
        0x40 => "task_aborted",
        _ => "other",
    }
}

/// The name of a login status (RFC 7143 11.13.5).
fn login_status_name(status: u16) -> &'static str {
    match status {
        0x0101 | 0x0102 => "moved",
        0x0201 => "authentication",
        0x0202 => "authorization",
        0x0203 => "no_such_target",
        0x0206 => "too_many_connections",
        0x020a => "no_such_session",
        0x0301 => "draining",
        0x0302 => "out_of_resources",
        _ => "protocol",
    }
}

impl Metrics {
    /// All disks with their labels.
    fn disks(&self) -> impl Iterator<Item = (Labels, &iscsi_target::DiskOverview)> {
        self.snapshot.nodes.iter().flat_map(|node: &NodeOverview| {
            node.disks
                .iter()
                .map(|disk| (vec![("target", node.iqn.clone()), ("lun", disk.lun.to_string())], disk))
        })
    }

    fn write(&self, w: &mut Writer<'_>) -> Result<(), Error> {
        let Snapshot { uptime, send, draining, nodes, connections, reservations, totals, limits, .. } =
            &self.snapshot;
        let info = vec![("version", env!("CARGO_PKG_VERSION").to_owned()), ("send", send.clone())];
        w.gauges("roundtrip_build", "Version and send policy", [(info, 1_i64)])?;
        w.gauges("roundtrip_uptime_seconds", "Time since the start", none(uptime.as_secs_f64()))?;
        w.gauges("roundtrip_draining", "1 while logins are refused to end", none(i64::from(*draining)))?;
        let of_node = |node: &NodeOverview| vec![("target", node.iqn.clone())];
        w.gauges(
            "roundtrip_sessions",
            "Sessions",
            nodes.iter().map(|node| (of_node(node), as_gauge(node.sessions))),
        )?;
        w.gauges("roundtrip_connections", "Open connections", none(as_gauge(connections.len())))?;
        w.counters(
            "roundtrip_connections_accepted",
            "Connections served since the start",
            none(totals.connections),
        )?;
        w.counters("roundtrip_logins", "Logins that succeeded", none(totals.logins))?;
        w.counters(
            "roundtrip_sessions_continued",
            "Sessions of the process before that went on",
            none(totals.continued),
        )?;
        let mut refused = std::collections::BTreeMap::new();
        for (&status, &count) in &totals.refused {
            *refused.entry(login_status_name(status)).or_insert(0_u64) += count;
        }
        let refused = refused.into_iter().map(|(reason, count)| (vec![("reason", reason.to_owned())], count));
        w.counters("roundtrip_logins_refused", "Logins that were refused, by reason", refused)?;
        w.gauges(
            "roundtrip_reservations",
            "Disks with a registration or a reservation",
            none(as_gauge(reservations.len())),
        )?;
        let by_limit = |value: fn(&LimitUse) -> usize| {
            limits.iter().map(move |one| (vec![("limit", one.limit.to_owned())], as_gauge(value(one))))
        };
        w.gauges("roundtrip_limit", "Limits that all initiators share", by_limit(|one| one.most))?;
        w.gauges(
            "roundtrip_limit_used",
            "How much of a limit is in use: a count, or bytes",
            by_limit(|one| one.used),
        )?;
        self.write_disks(w)?;
        w.counters("roundtrip_commands", "SCSI commands received", none(totals.commands))?;
        let directions = [("in", totals.received_bytes), ("out", totals.sent_bytes)];
        let by_direction =
            |(direction, count): (&str, u64)| (vec![("direction", direction.to_owned())], count);
        w.counters("roundtrip_network_bytes", "Bytes on the connections", directions.map(by_direction))?;
        w.counters("roundtrip_sends", "Send calls", none(totals.sends))?;
        w.counters("roundtrip_receives", "Receive calls that returned data", none(totals.receives))?;
        let modes =
            [("nodelay", totals.modes.nodelay), ("nagle", totals.modes.nagle), ("batch", totals.modes.batch)];
        let by_mode = |(mode, count): (&str, u64)| (vec![("mode", mode.to_owned())], count);
        w.counters("roundtrip_responses", "Responses by the mode they were sent in", modes.map(by_mode))?;
        let (served, cycles) = connections.iter().fold((0, 0), |(served, cycles), one| {
            (served + one.busy_count.served, cycles + one.busy_count.idles)
        });
        let busy = served as f64 / cycles.max(1) as f64;
        w.gauges(
            "roundtrip_busy_count",
            "Mean of commands in a busy cycle of the open connections",
            none(busy),
        )?;
        let stages = totals.stages.named();
        let by_stage = |name: &str| vec![("stage", name.to_owned())];
        w.counters(
            "roundtrip_stage_seconds",
            "Time measured in each stage of a command inside the target; divide by roundtrip_stage_samples_total",
            stages.iter().map(|(name, stage)| (by_stage(name), stage.sum_ns as f64 / 1e9)),
        )?;
        w.counters(
            "roundtrip_stage_samples",
            "How often each stage was measured: one turn of a connection in about 32",
            stages.iter().map(|(name, stage)| (by_stage(name), stage.count)),
        )?;
        let Usage { cpu_seconds, resident_bytes, threads } = self.usage;
        w.counters("process_cpu_seconds", "CPU time of the process", none(cpu_seconds))?;
        w.gauges("process_resident_memory_bytes", "Memory of the process", none(resident_bytes as f64))?;
        w.gauges("process_threads", "Threads of the process", none(threads as f64))
    }

    fn write_disks(&self, w: &mut Writer<'_>) -> Result<(), Error> {
        w.gauges(
            "roundtrip_disk_size_bytes",
            "Size of a disk",
            self.disks().map(|(labels, disk)| (labels, disk.bytes as f64)),
        )?;
        let operations = |value: fn(&iscsi_target::counters::OperationCounts) -> u64| {
            self.disks().flat_map(move |(labels, disk)| {
                let counts = Operation::ALL.iter().zip(&disk.counts.operations);
                counts.map(move |(operation, counts)| {
                    let operation = ("operation", operation.name().to_owned());
                    ([labels.clone(), vec![operation]].concat(), value(counts))
                })
            })
        };
        w.counters("roundtrip_disk_operations", "Commands received", operations(|counts| counts.commands))?;
        w.counters(
            "roundtrip_disk_bytes",
            "Bytes that commands were to transfer",
            operations(|counts| counts.bytes),
        )?;
        let failures = self.disks().flat_map(|(labels, disk)| {
            disk.counts.failed.iter().map(move |&(status, key, count)| {
                let key = KEYS[usize::from(key & 15)].to_owned();
                let more = vec![("status", status_name(status).to_owned()), ("sense", key)];
                ([labels.clone(), more].concat(), count)
            })
        });
        w.counters("roundtrip_disk_errors", "Responses other than GOOD, by status and sense key", failures)?;
        let help = "Time of an operation inside the target: answered at once, from its reception (one in about 32 is measured, and \
                    counts for the others); answered later, while the disk had it";
        let unit = Unit::Seconds;
        let mut metric =
            w.0.encode_descriptor("roundtrip_disk_latency", help, Some(&unit), MetricType::Histogram)?;
        for (labels, disk) in self.disks() {
            for (operation, counts) in Operation::ALL.iter().zip(&disk.counts.operations) {
                let mut labels = labels.clone();
                labels.push(("operation", operation.name().to_owned()));
                let bounds = BOUNDS_US.iter().map(|&us| us as f64 / 1e6).chain([f64::MAX]);
                let buckets: Vec<(f64, u64)> = bounds.zip(counts.latencies.iter().copied()).collect();
                let count = counts.latencies.iter().sum();
                let sum = counts.latency_sum_ns as f64 / 1e9;
                metric.encode_family(&labels)?.encode_histogram::<Labels>(sum, count, &buckets, None)?;
            }
        }
        Ok(())
    }
}

impl Collector for Metrics {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> Result<(), Error> {
        self.write(&mut Writer(encoder))
    }
}
