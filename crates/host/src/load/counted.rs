//! What the kernel counts while a run lasts: TCP_INFO of the connection, and the counters of the interface that it uses.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use netlink::route;
use netlink::sock_diag::{Diag, TcpInfo};

use crate::facts::cpu::WatchedFacts;
use crate::facts::link::LinkFacts;
use crate::facts::load::{LoadedLink, LoadedProcessors, Sent};
use crate::read::Roots;
use crate::read::cpu::load::{self, Load};
use crate::read::link::{changes, read_one};

/// The most readings of the round trip time that are kept: those of a minute.
const READINGS_MAX: usize = 1200;

/// Readings of TCP_INFO of one connection.
pub(super) struct Watch {
    diag: Diag,
    local: SocketAddr,
    peer: SocketAddr,
    rtt_us: Vec<u32>,
}

impl Watch {
    pub(super) fn new(stream: &TcpStream) -> io::Result<Self> {
        let (local, peer) = (stream.local_addr()?, stream.peer_addr()?);
        Ok(Self { diag: Diag::open()?, local, peer, rtt_us: Vec::new() })
    }

    fn info(&mut self) -> Option<TcpInfo> {
        self.diag.connection(self.local, self.peer).ok()??.info
    }

    /// Reads the smoothed round trip time.
    pub(super) fn read(&mut self) {
        if let Some(info) = self.info().filter(|info| info.rtt_us > 0 && self.rtt_us.len() < READINGS_MAX) {
            self.rtt_us.push(info.rtt_us);
        }
    }

    /// What the connection has sent; `None` where the kernel does not say.
    pub(super) fn sent(&mut self) -> Option<Sent> {
        let info = self.info()?;
        Some(summary(&info, &mut self.rtt_us))
    }
}

fn summary(info: &TcpInfo, rtt_us: &mut [u32]) -> Sent {
    rtt_us.sort_unstable();
    Sent {
        segments: info.data_segments_out.unwrap_or_default(),
        retransmitted_segments: info.retransmitted_segments,
        rtt_min_us: info.rtt_min_us.unwrap_or_default(),
        rtt_median_us: rtt_us.get(rtt_us.len() / 2).copied().unwrap_or(info.rtt_us),
        rtt_max_us: rtt_us.last().copied().unwrap_or(info.rtt_us),
    }
}

/// The interface of a connection, read before a run.
pub(super) struct LinkWatch {
    before: LinkFacts,
    begun: Instant,
}

impl LinkWatch {
    /// Reads the interface that has the connection's own address; `None` where the kernel does not say.
    pub(super) fn begin(stream: &TcpStream) -> Option<Self> {
        let before = read(&interface_of(stream)?)?;
        Some(Self { before, begun: Instant::now() })
    }

    /// Reads it again.
    pub(super) fn end(self) -> Option<LoadedLink> {
        let after = read(self.before.name())?;
        let grown = changes(&self.before, &after, self.begun.elapsed().as_secs_f64());
        let modes = after.modes.as_ref();
        Some(LoadedLink {
            interface: after.name().to_owned(),
            speed_mbps: modes.and_then(|modes| modes.speed_mbps),
            duplex: modes.and_then(|modes| modes.duplex),
            seconds: grown.seconds,
            counters: grown.counters,
        })
    }
}

/// The processors and this process's use of them, read before a run.
pub(super) struct ProcessorWatch {
    before: BTreeMap<u32, Load>,
    used: Duration,
    begun: Instant,
}

impl ProcessorWatch {
    pub(super) fn begin() -> Self {
        Self { before: load::read(&Roots::default().proc), used: used(), begun: Instant::now() }
    }

    /// Reads them again; `None` where the kernel does not say.
    pub(super) fn end(self) -> Option<LoadedProcessors> {
        let process = used().saturating_sub(self.used);
        let watched = load::between(&self.before, &load::read(&Roots::default().proc));
        processors(&watched, process, self.begun.elapsed())
    }
}

/// CPU time of this process so far, in user mode and in the kernel.
fn used() -> Duration {
    Duration::from_nanos(socket::clock::process_cpu_ns())
}

fn processors(watched: &[WatchedFacts], process: Duration, time: Duration) -> Option<LoadedProcessors> {
    if watched.is_empty() || time.is_zero() {
        return None;
    }
    let busy: f64 = watched.iter().map(|cpu| 1.0 - cpu.idle_share).sum();
    Some(LoadedProcessors {
        busy_share: (busy / watched.len() as f64).clamp(0.0, 1.0),
        softirq_share: watched.iter().map(|cpu| cpu.softirq_share).fold(0.0, f64::max).clamp(0.0, 1.0),
        process_share: process.as_secs_f64() / time.as_secs_f64(),
    })
}

fn read(interface: &str) -> Option<LinkFacts> {
    // What the driver does not report, the check of the links says.
    read_one(&Roots::default(), interface, &mut Vec::new()).ok()
}

fn interface_of(stream: &TcpStream) -> Option<String> {
    // An IPv4 client of a server on `[::]` has a mapped address.
    let own = stream.local_addr().ok()?.ip().to_canonical();
    let mut tables = route::Connection::open().ok()?;
    let scope = match stream.local_addr().ok()? {
        SocketAddr::V6(address) => address.scope_id(),
        SocketAddr::V4(_) => 0,
    };
    let addresses = tables.addresses().ok()?;
    let its = addresses
        .iter()
        .find(|address| address.address == own && (scope == 0 || address.interface == scope))?
        .interface;
    tables.links().ok()?.into_iter().find(|link| link.index == its).map(|link| link.name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_and_the_largest_reading_are_kept_beside_the_counters() {
        let info = TcpInfo {
            data_segments_out: Some(1000),
            retransmitted_segments: 7,
            rtt_min_us: Some(40),
            rtt_us: 55,
            ..TcpInfo::default()
        };
        let sent = summary(&info, &mut [300, 100, 900]);
        assert_eq!((sent.segments, sent.retransmitted_segments), (1000, 7));
        assert_eq!((sent.rtt_min_us, sent.rtt_median_us, sent.rtt_max_us), (40, 300, 900));
        let sent = summary(&info, &mut []);
        assert_eq!((sent.rtt_median_us, sent.rtt_max_us), (55, 55));
    }

    #[test]
    fn processors_are_those_of_the_run_and_the_busiest_softirq_counts() {
        let cpu = |idle_share: f64, softirq_share: f64| WatchedFacts {
            idle_share,
            softirq_share,
            ..WatchedFacts::default()
        };
        let time = Duration::from_secs(2);
        let found = processors(&[cpu(0.0, 0.25), cpu(0.5, 0.5)], Duration::from_secs(3), time).unwrap();
        assert_eq!(found, LoadedProcessors { busy_share: 0.75, softirq_share: 0.5, process_share: 1.5 });
        assert_eq!(processors(&[], time, time), None);
        let limit = |busy_share, softirq_share, process_share| {
            LoadedProcessors { busy_share, softirq_share, process_share }.limit()
        };
        assert_eq!(limit(0.89, 0.89, 0.89), None);
        assert_eq!(limit(0.95, 1.0, 1.0).unwrap(), "all processors 95 % busy");
        assert_eq!(limit(0.1, 0.97, 0.0).unwrap(), "one processor 97 % of its time in softirqs");
        assert_eq!(limit(0.1, 0.0, 1.2).unwrap(), "the test itself 120 % of a processor");
    }

    #[test]
    fn the_time_of_this_process_is_read_from_the_kernel() {
        let watch = ProcessorWatch::begin();
        let before = used();
        while used() == before {
            std::hint::black_box(before);
        }
        let found = watch.end().unwrap();
        assert!(found.process_share > 0.0 && (0.0..=1.0).contains(&found.busy_share), "{found:?}");
    }

    #[test]
    fn the_connection_and_its_interface_are_found_by_their_addresses() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            let mut watch = Watch::new(&stream).unwrap();
            watch.read();
            assert!(watch.sent().is_some() && watch.rtt_us.len() == 1, "{address}");
            assert_eq!(LinkWatch::begin(&stream).unwrap().end().unwrap().interface, "lo");
        }
    }
}
