//! Operations of any service, as packets show them.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use hdrhistogram::Histogram;
use serde::Serialize;

/// Most rows of services with their operations, and of clients; what comes beyond is added up in a row of its own.
const ROWS_MAX: usize = 256;

/// Looks after which an idle row leaves.
const IDLE_MAX: u32 = 60;

/// The name of that row.
const OTHERS: &str = "(others)";

/// Longest time that is told apart, nanoseconds.
const LONGEST_NS: u64 = 3_600_000_000_000;

/// The parts of an operation's time, in their order: the request's transfer, until the first byte of the answer, the answer's transfer, and
/// the client's time between an answer and its next request.
pub const PARTS: [&str; 4] = ["request", "first byte", "response", "client"];

/// An operation that packets show.
#[derive(Clone, Copy, Debug)]
pub struct Operation<'a> {
    /// The server.
    pub service: Option<SocketAddr>,
    /// The client.
    pub client: Option<IpAddr>,
    /// What was asked for.
    pub name: &'a str,
    /// Whether it reads, or writes; `None` where its protocol does not tell.
    pub reads: Option<bool>,
    /// Bytes of the request and the answer.
    pub bytes: u64,
    /// From the first byte of the request to the last one of the answer, nanoseconds.
    pub total_ns: Option<u64>,
    /// The parts of its time, nanoseconds.
    pub parts_ns: [Option<u64>; 4],
    /// Operations in flight on its connection when it began, itself included.
    pub depth: u32,
    /// It was answered with an error.
    pub failed: bool,
}

/// The operations since the last look.
#[derive(Debug, Default)]
pub struct Traffic {
    services: BTreeMap<(String, String), Sums>,
    clients: BTreeMap<(String, String), Sums>,
    /// Sum and count of each part.
    parts: [(f64, u64); 4],
}

/// The operations of a row.
#[derive(Debug)]
struct Sums {
    operations: u64,
    reads: u64,
    writes: u64,
    bytes: u64,
    depths: u64,
    failed: u64,
    /// Since the first look.
    failed_ever: u64,
    /// Looks without any.
    idle: u32,
    times: Histogram<u32>,
}

impl Default for Sums {
    fn default() -> Self {
        // The bounds and two digits are allowed ones.
        let times = Histogram::new_with_bounds(1, LONGEST_NS, 2).unwrap_or_else(|_| unreachable!());
        Self {
            operations: 0,
            reads: 0,
            writes: 0,
            bytes: 0,
            depths: 0,
            failed: 0,
            failed_ever: 0,
            idle: 0,
            times,
        }
    }
}

impl Sums {
    fn add(&mut self, one: &Operation<'_>) {
        self.operations += 1;
        match one.reads {
            Some(true) => self.reads += 1,
            Some(false) => self.writes += 1,
            None => {}
        }
        self.bytes += one.bytes;
        self.depths += u64::from(one.depth);
        self.failed += u64::from(one.failed);
        self.failed_ever += u64::from(one.failed);
        if let Some(ns) = one.total_ns {
            self.times.saturating_record(ns.max(1));
        }
    }

    fn take(&mut self, name: &(String, String), seconds: f64) -> ServiceRates {
        let (operations, timed) = (self.operations as f64, !self.times.is_empty());
        let quantile = |share: f64| timed.then(|| self.times.value_at_quantile(share) as f64 / 1e3);
        let rates = ServiceRates {
            service: name.0.clone(),
            name: name.1.clone(),
            per_s: operations / seconds,
            read_share: (self.reads + self.writes > 0)
                .then(|| self.reads as f64 / (self.reads + self.writes) as f64),
            bytes_per_s: self.bytes as f64 / seconds,
            p50_us: quantile(0.5),
            p99_us: quantile(0.99),
            depth: (self.operations > 0).then(|| self.depths as f64 / operations),
            errors_per_s: self.failed as f64 / seconds,
            errors: self.failed_ever,
        };
        self.idle = if self.operations > 0 { 0 } else { self.idle.saturating_add(1) };
        self.times.reset();
        (self.operations, self.reads, self.writes, self.bytes, self.depths, self.failed) = (0, 0, 0, 0, 0, 0);
        rates
    }
}

/// What is known of the capture since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Capture {
    /// The interfaces.
    pub interfaces: Vec<String>,
    /// The port; 0: all.
    pub port: u16,
    /// Packets that came.
    pub packets: u64,
    /// Packets among them that were lost because the ring was full: operations are missing.
    pub drops: u64,
}

/// The operations between two looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct TrafficRates {
    /// The time between them, seconds.
    pub seconds: f64,
    /// The capture.
    pub capture: Capture,
    /// Each service with each kind of operation.
    pub services: Vec<ServiceRates>,
    /// Each client with each service.
    pub clients: Vec<ServiceRates>,
    /// Mean time of each part of an operation, microseconds; `None` where nothing was measured.
    pub parts: Vec<(&'static str, Option<f64>)>,
}

/// Operations of a service between two looks.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct ServiceRates {
    /// The server's address and port.
    pub service: String,
    /// The operation, or the client's address.
    pub name: String,
    /// Operations a second.
    pub per_s: f64,
    /// Share of reads among reads and writes; `None` without either.
    pub read_share: Option<f64>,
    /// Bytes a second, both ways.
    pub bytes_per_s: f64,
    /// Median time, microseconds.
    pub p50_us: Option<f64>,
    /// 99th percentile, microseconds.
    pub p99_us: Option<f64>,
    /// Mean of operations in flight on the connection of each, itself included; `None` without any.
    pub depth: Option<f64>,
    /// Operations that failed, a second.
    pub errors_per_s: f64,
    /// Operations that failed since the first look.
    pub errors: u64,
}

/// The sums of a row; of the common one where there are too many.
fn row<'a>(rows: &'a mut BTreeMap<(String, String), Sums>, service: String, name: &str) -> &'a mut Sums {
    let key = (service, name.to_owned());
    if rows.len() < ROWS_MAX || rows.contains_key(&key) {
        return rows.entry(key).or_default();
    }
    rows.entry((OTHERS.to_owned(), String::new())).or_default()
}

impl Traffic {
    /// Adds an operation.
    pub fn add(&mut self, one: &Operation<'_>) {
        let service = || one.service.map_or_else(|| OTHERS.to_owned(), |service| service.to_string());
        row(&mut self.services, service(), one.name).add(one);
        if let Some(client) = one.client {
            row(&mut self.clients, service(), &client.to_string()).add(one);
        }
        for ((sum, count), ns) in self.parts.iter_mut().zip(one.parts_ns) {
            if let Some(ns) = ns {
                *sum += ns as f64;
                *count += 1;
            }
        }
    }

    /// Returns what came in the `seconds` since the last look. Rows stay for [`IDLE_MAX`] looks, so that what has become idle is seen to be.
    pub fn take(&mut self, seconds: f64, capture: Capture) -> TrafficRates {
        let seconds = seconds.max(1e-9);
        let all = |rows: &mut BTreeMap<(String, String), Sums>| {
            let rates = rows.iter_mut().map(|(name, sums)| sums.take(name, seconds)).collect();
            // What has been idle for long makes room.
            rows.retain(|_, sums| sums.idle < IDLE_MAX);
            rates
        };
        let parts = std::mem::take(&mut self.parts);
        let mean = |(sum, count): (f64, u64)| (count > 0).then(|| sum / count as f64 / 1e3);
        TrafficRates {
            seconds,
            capture,
            services: all(&mut self.services),
            clients: all(&mut self.clients),
            parts: PARTS.into_iter().zip(parts.map(mean)).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Operation<'_> = Operation {
        service: None,
        client: Some(IpAddr::V4(std::net::Ipv4Addr::LOCALHOST)),
        name: "GET",
        reads: Some(true),
        bytes: 1000,
        total_ns: Some(20_000),
        parts_ns: [Some(0), Some(15_000), None, Some(5_000)],
        depth: 3,
        failed: false,
    };

    fn service(port: u16) -> Option<SocketAddr> {
        Some(SocketAddr::from(([127, 0, 0, 1], port)))
    }

    #[test]
    fn rates_are_those_since_the_last_look() {
        let mut traffic = Traffic::default();
        for _ in 0..99 {
            traffic.add(&Operation { service: service(80), ..ONE });
        }
        traffic.add(&Operation {
            service: service(80),
            total_ns: Some(5_000_000),
            failed: true,
            depth: 103,
            ..ONE
        });
        traffic.add(&Operation { service: service(80), name: "PUT", reads: Some(false), ..ONE });
        let rates = traffic.take(2.0, Capture::default());
        let get = &rates.services[0];
        assert_eq!((get.service.as_str(), get.name.as_str()), ("127.0.0.1:80", "GET"));
        assert_eq!((get.per_s, get.bytes_per_s, get.errors_per_s, get.errors), (50.0, 50_000.0, 0.5, 1));
        assert_eq!((get.depth, get.read_share), (Some(4.0), Some(1.0)));
        let near = |value: Option<f64>, wanted: f64| (value.unwrap() / wanted - 1.0).abs() < 0.01;
        assert!(near(get.p50_us, 20.0) && near(get.p99_us, 20.0), "{get:?}");
        assert_eq!(rates.services[1].read_share, Some(0.0));
        assert_eq!(rates.clients.len(), 1);
        assert_eq!((rates.clients[0].per_s, rates.clients[0].name.as_str()), (50.5, "127.0.0.1"));
        let means: Vec<Option<f64>> = rates.parts.iter().map(|(_, mean)| *mean).collect();
        assert_eq!(means, [Some(0.0), Some(15.0), None, Some(5.0)]);
        let idle = traffic.take(1.0, Capture::default());
        let get = &idle.services[0];
        assert_eq!((get.per_s, get.p50_us, get.depth, get.errors), (0.0, None, None, 1), "the row stays");
        assert!(idle.parts.iter().all(|(_, mean)| mean.is_none()));
        for _ in 0..IDLE_MAX {
            traffic.take(1.0, Capture::default());
        }
        assert!(traffic.take(1.0, Capture::default()).services.is_empty(), "it left");
    }

    #[test]
    fn rows_are_bounded_and_nothing_is_lost() {
        let mut traffic = Traffic::default();
        for port in 0..1000 {
            let client = Some(IpAddr::from([10, 0, (port >> 8) as u8, port as u8]));
            traffic.add(&Operation { service: service(port), client, ..ONE });
        }
        let rates = traffic.take(1.0, Capture::default());
        for rows in [&rates.services, &rates.clients] {
            assert_eq!(rows.len(), ROWS_MAX + 1);
            assert_eq!(rows.iter().map(|row| row.per_s).sum::<f64>(), 1000.0);
            assert!(rows.iter().any(|row| row.service == OTHERS));
        }
    }
}
