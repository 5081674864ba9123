//! Live capture of several interfaces into one file.

use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::error::CaptureError;
use crate::file::{InterfaceDescription, PcapngWriter};
use crate::live::{LiveCapture, LiveConfig, LiveStatistics, Packet};
use crate::packet::decode;

/// What to capture.
#[derive(Clone, Debug)]
pub struct RecordSpec {
    /// Interface names, in the network namespace of the process.
    pub interfaces: Vec<String>,
    /// TCP port, either side; 0: any.
    pub port: u16,
    /// Bytes kept of each packet.
    pub snap_bytes: u32,
    /// Size of each interface's ring, bytes.
    pub ring_bytes: usize,
    /// Time after which the capture stops, if any.
    pub duration: Option<Duration>,
    /// Approximate limit on the file's size: later packets are counted and not kept.
    pub bytes_max: Option<u64>,
    /// Time to count packets before and after the capture.
    pub baseline: Duration,
    /// Name of the application in the file.
    pub application: String,
    /// Where to count while it runs, for a reader at the other end of a pipe: then an empty frame follows when nothing came for a while, so
    /// that the reader takes what it has.
    pub seen: Option<Arc<Seen>>,
}

/// What a running capture has counted.
#[derive(Debug, Default)]
pub struct Seen {
    /// Packets of the port, dropped ones included.
    pub packets: AtomicU64,
    /// Packets dropped because the ring was full.
    pub drops: AtomicU64,
}

/// The result of one interface.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RecordedInterface {
    /// Its name.
    pub interface: String,
    /// Packets of the port, dropped ones included.
    pub packets: u64,
    /// Packets dropped because the ring was full.
    pub drops: u64,
    /// CPU time of the capturing thread, seconds.
    pub cpu_seconds: f64,
    /// Packets per second of the whole interface before, during and after the capture.
    pub packets_per_second: (f64, f64, f64),
    /// The share of the interface's packet rate, and so of the operation rate, that the capture cost; absent
    /// without steady traffic before and after.
    pub cost: Option<f64>,
}

/// The result of a capture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Recorded {
    /// Duration, seconds.
    pub seconds: f64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// The results by interface.
    pub interfaces: Vec<RecordedInterface>,
}

/// A capture failed.
#[derive(Debug, Error)]
pub enum RecordError {
    /// An interface failed.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The file cannot be written.
    #[error("cannot write the capture: {0}")]
    Write(#[from] io::Error),
}

impl RecordError {
    /// Whether the arguments are the cause.
    #[must_use]
    pub fn is_usage(&self) -> bool {
        matches!(self, RecordError::Capture(CaptureError::NoInterface { .. }))
    }
}

/// Captures until `stop` returns true or the duration has elapsed, and returns the result when the file is complete. Calls
/// `ready` when the capture of every interface has begun.
///
/// # Errors
/// When an interface cannot be captured, or the file cannot be written.
pub fn record(
    spec: &RecordSpec,
    out: impl Write + Send,
    ready: &dyn Fn(),
    stop: &(dyn Fn() -> bool + Sync),
) -> Result<Recorded, RecordError> {
    let mut captures = Vec::new();
    let before = rates(spec, spec.baseline, stop);
    let mut writer = PcapngWriter::new(out, &spec.application)?;
    for interface in &spec.interfaces {
        let config = LiveConfig {
            interface: interface.clone(),
            port: spec.port,
            ring_bytes: spec.ring_bytes,
            snap_bytes: spec.snap_bytes,
        };
        let capture = LiveCapture::open(&config)?;
        // Loopback shows each packet twice, leaving and arriving: both ends of the wire.
        let names: &[&str] =
            if interface == "lo" { &["lo at the client", "lo at the server"] } else { &[interface] };
        let mut points = Vec::new();
        for name in names {
            points.push(writer.interface(&InterfaceDescription {
                name: (*name).to_owned(),
                description: None,
                link: ETHERNET,
                snap_bytes: spec.snap_bytes,
                bits_per_second: None,
            })?);
        }
        captures.push((capture, points));
    }
    ready();
    let (writer, failed) = (Mutex::new(writer), AtomicBool::new(false));
    let started = Instant::now();
    let counted = counters(spec);
    let is_over =
        || stop() || failed.load(Ordering::Relaxed) || spec.duration.is_some_and(|d| started.elapsed() >= d);
    let newest_ns = AtomicU64::new(0);
    let ended: Vec<_> = std::thread::scope(|scope| {
        let threads: Vec<_> = captures
            .into_iter()
            .map(|(capture, points)| {
                let (writer, failed, newest_ns, is_over) = (&writer, &failed, &newest_ns, &is_over);
                scope.spawn(move || {
                    let ended = drain(capture, &points, spec, writer, newest_ns, is_over);
                    failed.fetch_or(ended.is_err(), Ordering::Relaxed);
                    ended
                })
            })
            .collect();
        threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect()
    });
    let seconds = started.elapsed().as_secs_f64();
    let during = per_second(&counted, &counters(spec), seconds);
    let mut interfaces = Vec::new();
    let after = rates(spec, spec.baseline, &|| false);
    let mut writer = writer.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    for (index, ended) in ended.into_iter().enumerate() {
        let ended = ended.map_err(|_| io::Error::other("a capturing thread panicked"))??;
        ended.count(&mut writer, newest_ns.load(Ordering::Relaxed))?;
        let rates = (before[index], during[index], after[index]);
        interfaces.push(RecordedInterface {
            interface: spec.interfaces[index].clone(),
            packets: ended.packets,
            drops: ended.drops,
            cpu_seconds: ended.cpu_ns as f64 / 1e9,
            packets_per_second: rates,
            cost: cost(rates.0, rates.1, rates.2),
        });
    }
    let file_bytes = writer.bytes;
    writer.finish()?;
    Ok(Recorded { seconds, file_bytes, interfaces })
}

/// Time between two counts while a capture runs.
const TOLD_EVERY: Duration = Duration::from_millis(100);

/// LINKTYPE_ETHERNET: the link layer of AF_PACKET, also on loopback.
const ETHERNET: u32 = 1;

/// The result of a capturing thread.
struct Ended {
    points: Vec<u32>,
    packets: u64,
    drops: u64,
    cpu_ns: u64,
}

impl Ended {
    /// Writes the counters of an interface, once: loopback's two points are one interface, and a reader adds the counters of all.
    fn count<W: Write>(&self, writer: &mut PcapngWriter<W>, time_ns: u64) -> io::Result<()> {
        self.points
            .first()
            .map_or(Ok(()), |&point| writer.statistics(point, time_ns, self.packets, self.drops))
    }
}

/// Writes the packets of an interface until the capture has ended and the last packets have arrived.
fn drain<W: Write>(
    mut capture: LiveCapture,
    points: &[u32],
    spec: &RecordSpec,
    writer: &Mutex<PcapngWriter<W>>,
    newest_ns: &AtomicU64,
    is_over: &dyn Fn() -> bool,
) -> Result<Ended, RecordError> {
    let (port, bytes_max) = (spec.port, spec.bytes_max.unwrap_or(u64::MAX));
    let write = |packet: &Packet<'_>, writer: &mut PcapngWriter<W>| {
        let point = match points {
            [_, server] if !is_clients(packet, port) => *server,
            [first, ..] => *first,
            [] => 0,
        };
        let outgoing = Some(packet.outgoing);
        newest_ns.fetch_max(packet.time_ns, Ordering::Relaxed);
        if writer.bytes > bytes_max {
            return Ok(());
        }
        writer.frame(point, packet.time_ns, outgoing, packet.data, packet.wire_bytes, None)
    };
    let mut over_since: Option<Instant> = None;
    let mut told = (Instant::now(), LiveStatistics::default());
    // An empty frame has followed the last packet.
    let mut is_quiet = true;
    loop {
        let mut result = Ok(());
        let mut locked = None;
        let came = capture.poll(Duration::from_millis(20), |packet| {
            // The file is locked when packets have arrived, not while waiting for them.
            let writer = locked
                .get_or_insert_with(|| writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner));
            if result.is_ok() {
                result = write(packet, writer);
            }
        })?;
        drop(locked);
        result?;
        if let Some(seen) = &spec.seen {
            if !came && !is_quiet {
                let mut writer = writer.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                let at_ns = newest_ns.load(Ordering::Relaxed);
                writer.frame(points.first().copied().unwrap_or(0), at_ns, None, &[], 0, None)?;
            }
            is_quiet = !came;
            if told.0.elapsed() >= TOLD_EVERY {
                let now = capture.statistics();
                seen.packets.fetch_add(now.packets - told.1.packets, Ordering::Relaxed);
                seen.drops.fetch_add(now.drops - told.1.drops, Ordering::Relaxed);
                told = (Instant::now(), now);
            }
        }
        if is_over() {
            // Who looks on wants no rest.
            if spec.seen.is_some() {
                break;
            }
            let since = *over_since.get_or_insert_with(Instant::now);
            // Several times the time after which the kernel hands over a block that is not full.
            if !came && since.elapsed() >= Duration::from_millis(60)
                || since.elapsed() > Duration::from_secs(2)
            {
                break;
            }
        }
    }
    let statistics = capture.statistics();
    Ok(Ended {
        points: points.to_vec(),
        packets: statistics.packets,
        drops: statistics.drops,
        cpu_ns: socket::clock::thread_cpu_ns(),
    })
}

/// Whether loopback's copy of a packet is the client's: its requests leave, its responses arrive.
fn is_clients(packet: &Packet<'_>, port: u16) -> bool {
    // Where the port is not known, a server has the lower one as a rule.
    let is_request = decode(packet.data, packet.wire_bytes).is_ok_and(|segment| match port {
        0 => segment.destination.port < segment.source.port,
        port => segment.destination.port == port,
    });
    packet.outgoing == is_request
}

/// Packets that each interface has received and sent.
fn counters(spec: &RecordSpec) -> Vec<u64> {
    let table = std::fs::read_to_string("/proc/thread-self/net/dev").unwrap_or_default();
    spec.interfaces.iter().map(|name| packets_of(name, &table)).collect()
}

/// Packets that an interface has received and sent, by the table of /proc/net/dev.
fn packets_of(interface: &str, table: &str) -> u64 {
    let line = table.lines().find_map(|line| line.trim_start().strip_prefix(interface)?.strip_prefix(':'));
    let fields: Vec<u64> =
        line.unwrap_or_default().split_whitespace().filter_map(|f| f.parse().ok()).collect();
    // Received packets are the second field, sent ones the tenth.
    fields.get(1).unwrap_or(&0) + fields.get(9).unwrap_or(&0)
}

fn per_second(from: &[u64], to: &[u64], seconds: f64) -> Vec<f64> {
    let rate = |(from, to): (&u64, &u64)| to.saturating_sub(*from) as f64 / seconds.max(1e-9);
    from.iter().zip(to).map(rate).collect()
}

/// Packets per second of each interface over some time.
fn rates(spec: &RecordSpec, time: Duration, stop: &dyn Fn() -> bool) -> Vec<f64> {
    let (from, began) = (counters(spec), Instant::now());
    while began.elapsed() < time && !stop() {
        std::thread::sleep(Duration::from_millis(10).min(time));
    }
    per_second(&from, &counters(spec), began.elapsed().as_secs_f64())
}

/// The cost of the capture, as a share of the rate before and after, if that was steady.
fn cost(before: f64, during: f64, after: f64) -> Option<f64> {
    let (low, high) = (before.min(after), before.max(after));
    (low > 100.0 && high < 1.3 * low).then(|| 1.0 - during / ((before + after) / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The drops of a file are those of its captures, however many points each has.
    #[test]
    fn the_drops_of_a_capture_are_counted_once() {
        let mut writer = PcapngWriter::new(Vec::new(), "test").unwrap();
        let mut point = |name: &str| {
            let description = InterfaceDescription {
                name: name.to_owned(),
                description: None,
                link: ETHERNET,
                snap_bytes: 128,
                bits_per_second: None,
            };
            writer.interface(&description).unwrap()
        };
        let points = [vec![point("lo at the client"), point("lo at the server")], vec![point("eth0")]];
        for (points, drops) in points.into_iter().zip([7, 30]) {
            Ended { points, packets: 100, drops, cpu_ns: 0 }.count(&mut writer, 5).unwrap();
        }
        let bytes = io::Cursor::new(writer.finish().unwrap());
        let mut file = crate::file::CaptureFile::read("test", Box::new(bytes)).unwrap();
        while file.next_frame().unwrap().is_some() {}
        assert_eq!(file.interfaces().iter().filter_map(|interface| interface.drops).sum::<u64>(), 37);
    }

    #[test]
    fn packets_are_those_received_and_sent_by_the_interface() {
        let table = "Inter-|   Receive                            |  Transmit\n \
                     face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs\n \
                     eth10: 1000 70 0 0 0 0 0 3 2000 900 1 0 0 0 0 0\n  \
                     eth1:500 6 5 4 3 2 1 9 800 50 7 0 0 0 0 0\n";
        assert_eq!(packets_of("eth1", table), 56);
        assert_eq!(packets_of("eth10", table), 970);
        assert_eq!(packets_of("eth", table), 0);
    }

    #[test]
    fn rates_are_packets_over_time() {
        assert_eq!(per_second(&[100, 7], &[300, 7], 0.5), [400.0, 0.0]);
        // The counters of an interface that was made anew begin at 0.
        assert_eq!(per_second(&[100], &[50], 1.0), [0.0]);
    }

    #[test]
    fn the_cost_needs_steady_traffic() {
        assert_eq!(cost(0.0, 1000.0, 0.0), None);
        assert_eq!(cost(1000.0, 1000.0, 10_000.0), None);
        assert!((cost(1000.0, 800.0, 1000.0).unwrap() - 0.2).abs() < 1e-9);
    }
}
