//! Experiments: cases that differ in one thing, run in interleaved order, medians and spread beside what was published.

use std::net::{IpAddr, TcpListener};
use std::time::Duration;

use exchange::{CopySpec, HttpServer, Load, Side, copy, http, ring_of_messages};
use initiator::{Bench, BenchSpec, IscsiUrl, Pattern, SessionOptions};
use ring::units::{parse_bit_rate, parse_size, parse_time_ns};
use serde::{Deserialize, Deserializer, Serialize};
use target::{LunConfig, RunningTarget, SendPolicy, TargetConfig};

use crate::accounts::Snapshot;
use crate::error::StudyError;
use crate::machine::Machine;
use crate::place::Place;
use crate::plan::Plan;
use crate::runner::Watcher;

/// The name of the experiments' target.
const IQN: &str = "iqn.2026-11.example.roundtrip:experiment";

/// The plans that are built in: their names and texts.
pub const PLANS: [(&str, &str); 4] = [
    ("post", include_str!("plans/post.toml")),
    ("pathology", include_str!("plans/pathology.toml")),
    ("nagle-write", include_str!("plans/nagle-write.toml")),
    ("copy", include_str!("plans/copy.toml")),
];

/// A plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Experiment {
    /// Its name.
    pub name: String,
    /// What it is about.
    pub about: String,
    /// Rate of the wire, bits per second.
    #[serde(deserialize_with = "rate")]
    pub rate: u64,
    /// Measured time of each run.
    #[serde(deserialize_with = "time")]
    pub runtime: Duration,
    /// Runs of each case.
    pub repeats: u32,
    /// The cases.
    #[serde(rename = "case")]
    pub cases: Vec<Case>,
}

/// A case: one way to do it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Case {
    /// What stands in the table.
    pub label: String,
    /// MTU of the wire.
    #[serde(default = "usual_mtu")]
    pub mtu: u32,
    /// What is done.
    pub work: Work,
    /// The client's side.
    #[serde(default)]
    pub client: Side,
    /// The server's.
    #[serde(default)]
    pub server: Side,
    /// The case that this one is compared with, by its label.
    pub against: Option<String>,
    /// What was published, in words.
    pub published: Option<String>,
}

fn usual_mtu() -> u32 {
    9000
}

/// What is done.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub enum Work {
    /// Posts of so many bytes, one after another on one connection.
    Post(usize),
    /// Gets of so many bytes.
    Get(usize),
    /// Messages of a header and a body.
    Messages(Load),
    /// A copy over plain TCP.
    Copy {
        /// Bytes in all.
        #[serde(deserialize_with = "size")]
        bytes: u64,
        /// Bytes of one write.
        #[serde(deserialize_with = "size")]
        block: u64,
    },
    /// iSCSI against anybody's target, from this host: what it writes is lost there.
    Url {
        /// `iscsi://host[:port]/iqn/lun`.
        url: String,
        /// Access pattern.
        rw: Pattern,
        /// Bytes of an operation.
        #[serde(deserialize_with = "size")]
        block: u64,
        /// Operations under way.
        depth: u32,
    },
    /// iSCSI against a disk in memory; Nagle on the server's side is its send policy `nagle`.
    Iscsi {
        /// Access pattern.
        rw: Pattern,
        /// Bytes of an operation.
        #[serde(deserialize_with = "size")]
        block: u64,
        /// Operations under way.
        depth: u32,
    },
}

impl Work {
    /// The figure that is compared: exchanges, or millions of bytes, a second.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        match self {
            Self::Post(_) | Self::Get(_) | Self::Messages(_) => "1/s",
            Self::Copy { .. } | Self::Iscsi { .. } | Self::Url { .. } => "MB/s",
        }
    }
}

/// What one run found.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Found {
    /// In the work's unit.
    pub figure: f64,
    /// The median time of an exchange, us, where there are exchanges.
    pub p50_us: Option<f64>,
}

/// A run that is over: what is kept, so that an experiment that was interrupted can go on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeptRun {
    /// Its case's label.
    pub case: String,
    /// Which of the case's runs, from 0.
    pub round: u32,
    /// What it found.
    pub found: Found,
    /// CPU time of the machine's CPUs that others took meanwhile, percent of the time: other guests, other programs.
    pub disturbed_percent: (f64, f64),
}

/// What came of a case.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CaseResult {
    /// It.
    pub case: Case,
    /// `1/s` or `MB/s`.
    pub unit: &'static str,
    /// Every run, in the order in which they were made.
    pub runs: Vec<Found>,
    /// The median figure, the least and the greatest.
    pub median: f64,
    /// See `median`.
    pub least: f64,
    /// See `median`.
    pub greatest: f64,
    /// The median of the runs' median times, us.
    pub p50_us: Option<f64>,
    /// To the case that it is compared with.
    pub ratio: Option<f64>,
    /// What the wire lets pass of application data, in MB/s, for figures in MB/s.
    pub limit: Option<f64>,
}

/// What came of a plan.
#[derive(Clone, Debug, Serialize)]
pub struct ExperimentResult {
    /// The plan.
    pub plan: Experiment,
    /// Where.
    pub machine: Machine,
    /// There was a wire between two namespaces.
    pub wire: bool,
    /// What the reader must know.
    pub warnings: Vec<String>,
    /// The cases.
    pub cases: Vec<CaseResult>,
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied()
}

impl Experiment {
    /// Reads a plan.
    ///
    /// # Errors
    /// What is wrong with it, and where.
    pub fn read(text: &str) -> Result<Self, String> {
        let plan: Self = toml::from_str(text).map_err(|error| error.to_string())?;
        let wrong = |why: String| Err(why);
        if plan.cases.is_empty() {
            return wrong("a plan has at least one [[case]]".into());
        }
        if !(1..=1000).contains(&plan.repeats) {
            return wrong(format!("repeats = {}: 1 to 1000 are possible", plan.repeats));
        }
        for case in &plan.cases {
            let of = |why: String| wrong(format!("case '{}': {why}", case.label));
            if !(576..=65_535).contains(&case.mtu) {
                return of(format!("mtu = {}: 576 to 65535 bytes are possible", case.mtu));
            }
            if let Some(against) = &case.against
                && !plan.cases.iter().any(|other| other.label == *against)
            {
                return of(format!("against = '{against}': there is no such case"));
            }
            let is_right = match &case.work {
                Work::Post(bytes) | Work::Get(bytes) => *bytes <= http::BODY_MAX,
                Work::Messages(load) => {
                    let largest = [load.request, load.response].iter().map(|m| m.0.saturating_add(m.1)).max();
                    (1..=1024).contains(&load.queue_depth)
                        && load.request.0 > 0
                        && load.response.0 > 0
                        && largest.is_some_and(|bytes| bytes <= http::BODY_MAX)
                }
                Work::Copy { bytes, block } => *bytes > 0 && (1..=64 << 20).contains(block),
                Work::Url { url, .. } if url.parse::<IscsiUrl>().is_err() => {
                    return of(format!("url = '{url}': write iscsi://host[:port]/iqn/lun"));
                }
                Work::Iscsi { block, depth, .. } | Work::Url { block, depth, .. } => {
                    *block > 0
                        && block.is_multiple_of(512)
                        && *block <= 16 << 20
                        && (1..=1024).contains(depth)
                }
            };
            if !is_right {
                return of(
                    "sizes are up to 64 MiB (iSCSI: multiples of 512 B up to 16 MiB), depths 1 to 1024"
                        .into(),
                );
            }
        }
        Ok(plan)
    }

    /// Runs it: every case once, then every case again, but for what `earlier` has already; `keep` is told of each run.
    ///
    /// # Errors
    /// When a run fails or cannot be kept, or the watcher stops it.
    pub fn run(
        &self,
        loopback: bool,
        watcher: &dyn Watcher,
        earlier: &[KeptRun],
        keep: &mut dyn FnMut(&KeptRun) -> std::io::Result<()>,
    ) -> Result<ExperimentResult, StudyError> {
        let machine = Machine::here();
        let mut warnings = Vec::new();
        let mut places: Vec<(u32, Place)> = Vec::new();
        for case in &self.cases {
            if !places.iter().any(|(mtu, _)| *mtu == case.mtu) {
                let plan = Plan { bits_per_second: self.rate, mtu_bytes: case.mtu, ..Plan::quick() };
                let mut said = Vec::new();
                places.push((case.mtu, Place::choose(&plan, loopback, &mut said)?));
                said.retain(|warning| !warnings.contains(warning) && !warning.contains("capture packets"));
                warnings.append(&mut said);
            }
        }
        let mut runs: Vec<Vec<Found>> = vec![Vec::new(); self.cases.len()];
        let mut disturbed = (0.0_f64, 0.0_f64);
        for round in 0..self.repeats {
            for (case, found) in self.cases.iter().zip(&mut runs) {
                if watcher.stop() {
                    return Err(StudyError::Interrupted);
                }
                watcher.point(&format!("{}, run {}", case.label, round + 1));
                let Some((_, place)) = places.iter().find(|(mtu, _)| *mtu == case.mtu) else { continue };
                let known = earlier.iter().find(|run| run.case == case.label && run.round == round);
                let run = match known {
                    Some(run) => run.clone(),
                    None => {
                        let run = watched(case, place, self.runtime, round)?;
                        keep(&run).map_err(network("keeping a run"))?;
                        run
                    }
                };
                let (steal, others) = run.disturbed_percent;
                disturbed = (disturbed.0.max(steal), disturbed.1.max(others));
                found.push(run.found);
            }
        }
        for (percent, who) in [(disturbed.0, "other guests of this machine"), (disturbed.1, "other programs")]
        {
            if percent > DISTURBED_PERCENT {
                warnings.push(format!(
                    "{who} took up to {percent:.0} % of the CPUs during a run: look at the spread"
                ));
            }
        }
        let has_wire = places.iter().all(|(_, place)| place.has_wire());
        let of = |runs: &[Found]| median(runs.iter().map(|run| run.figure).collect()).unwrap_or(0.0);
        let medians: Vec<f64> = runs.iter().map(|runs| of(runs)).collect();
        let cases = self
            .cases
            .iter()
            .zip(runs)
            .enumerate()
            .map(|(index, (case, runs))| {
                let other = case.against.as_ref().and_then(|a| self.cases.iter().position(|c| c.label == *a));
                let figures = || runs.iter().map(|run| run.figure);
                let wire = ring::Wire::ethernet(self.rate.max(1), case.mtu);
                CaseResult {
                    unit: case.work.unit(),
                    median: medians[index],
                    least: figures().fold(f64::INFINITY, f64::min),
                    greatest: figures().fold(0.0, f64::max),
                    p50_us: median(runs.iter().filter_map(|run| run.p50_us).collect()),
                    ratio: other.map(|other| medians[index] / medians[other]),
                    limit: (has_wire && case.work.unit() == "MB/s")
                        .then(|| self.rate as f64 / 8e6 * wire.efficiency()),
                    case: case.clone(),
                    runs,
                }
            })
            .collect();
        Ok(ExperimentResult { plan: self.clone(), machine, wire: has_wire, warnings, cases })
    }
}

fn network(what: &'static str) -> impl Fn(std::io::Error) -> StudyError {
    move |source| StudyError::Machine { what, source }
}

/// A side, with the congestion control of the study where the plan names none.
fn side(own: &Side, place: &Place) -> Side {
    Side { congestion: own.congestion.clone().or_else(|| place.congestion.clone()), ..own.clone() }
}

/// More of the CPUs than this in other hands is worth a word.
const DISTURBED_PERCENT: f64 = 5.0;

/// Runs a case, with an eye on who else uses the CPUs.
fn watched(case: &Case, place: &Place, runtime: Duration, round: u32) -> Result<KeptRun, StudyError> {
    let cpus = [place.client_cpu, place.server_cpu];
    let before = Snapshot::take(&[]).map_err(network("reading CPU times"))?;
    let found = run_case(case, place, runtime)?;
    let after = Snapshot::take(&[]).map_err(network("reading CPU times"))?;
    let seconds = after.seconds_since(&before).max(1e-6);
    let steal = cpus.iter().map(|cpu| after.cpu_since(&before, *cpu).steal).fold(0.0, f64::max);
    let others = after.others_since(&before, &cpus).max(0.0);
    let percent = |time: f64| time / seconds * 100.0;
    Ok(KeptRun {
        case: case.label.clone(),
        round,
        found,
        disturbed_percent: (percent(steal), percent(others)),
    })
}

fn run_case(case: &Case, place: &Place, runtime: Duration) -> Result<Found, StudyError> {
    let (client, server) = (side(&case.client, place), side(&case.server, place));
    let address: IpAddr = place.server_address();
    let listen = || TcpListener::bind((address, 0));
    match &case.work {
        Work::Post(bytes) | Work::Get(bytes) => {
            let bytes = *bytes;
            let server = place
                .on_server(|| HttpServer::start(listen()?, server, bytes))?
                .map_err(network("an HTTP server"))?;
            let request = http::Request {
                is_post: matches!(case.work, Work::Post(_)),
                path: "/".into(),
                host: address.to_string(),
                body_bytes: bytes,
            };
            let found = place.on_client(|| http::ask(server.address(), &request, &client, runtime))?;
            let (found, _) = found.map_err(network("HTTP over the wire"))?;
            Ok(Found { figure: found.per_second, p50_us: Some(found.latency_us.p50) })
        }
        Work::Messages(load) => {
            let listener = place.on_server(listen)?.map_err(network("listening"))?;
            let to = listener.local_addr().map_err(network("listening"))?;
            let found = std::thread::scope(|scope| {
                let answers =
                    scope.spawn(|| place.on_server(|| ring_of_messages::answer(&listener, load, &server)));
                let found = place.on_client(|| ring_of_messages::ask(to, load, &client, runtime));
                let _ = answers.join();
                found
            })?;
            let found = found.map_err(network("messages over the wire"))?;
            Ok(Found { figure: found.per_second, p50_us: Some(found.latency_us.p50) })
        }
        Work::Copy { bytes, block } => {
            let spec = CopySpec { bytes: *bytes, block_bytes: *block as usize };
            let listener = place.on_server(listen)?.map_err(network("listening"))?;
            let to = listener.local_addr().map_err(network("listening"))?;
            let received = std::thread::scope(|scope| {
                let received = scope.spawn(|| place.on_server(|| copy::receive(&listener, &server)));
                let sent = place.on_client(|| copy::send(to, &spec, &client));
                (received.join(), sent)
            });
            let (received, sent) = received;
            sent?.map_err(network("sending a copy"))?;
            let lost = || std::io::Error::other("the thread panicked");
            let received = received.map_err(|_| network("receiving a copy")(lost()))??;
            let received = received.map_err(network("receiving a copy"))?;
            Ok(Found { figure: received.megabytes_per_second, p50_us: None })
        }
        Work::Iscsi { rw, block, depth } => iscsi(case, place, runtime, (*rw, *block, *depth)),
        Work::Url { url, rw, block, depth } => {
            let url: IscsiUrl = url.parse()?;
            let cpu = place.client_cpu;
            let load = std::thread::scope(|scope| {
                scope
                    .spawn(|| {
                        // From this host's own namespace: the target is somewhere else.
                        socket::cpu::pin(cpu).map_err(network("choosing a CPU"))?;
                        load(&url, case, place, runtime, (*rw, *block, *depth))
                    })
                    .join()
            });
            load.unwrap_or_else(|_| Err(network("a load")(std::io::Error::other("the thread panicked"))))
        }
    }
}

fn iscsi(
    case: &Case,
    place: &Place,
    runtime: Duration,
    (pattern, block_bytes, queue_depth): (Pattern, u64, u32),
) -> Result<Found, StudyError> {
    let disk = std::sync::Arc::new(store::Ram::new(DISK_BYTES));
    let config = TargetConfig {
        send: if case.server.nagle { SendPolicy::Nagle } else { SendPolicy::Nodelay },
        tcp: side(&case.server, place).tcp(),
        ..TargetConfig::new((place.server_address(), 0).into(), IQN, vec![LunConfig::new(0, disk)])
    };
    let target = place.on_server(|| RunningTarget::start(config))??;
    let port = target.address().port();
    let url = IscsiUrl { host: target.address().ip().to_string(), port, iqn: IQN.to_owned(), lun: 0 };
    place.on_client(|| load(&url, case, place, runtime, (pattern, block_bytes, queue_depth)))?
}

/// Drives a target.
fn load(
    url: &IscsiUrl,
    case: &Case,
    place: &Place,
    runtime: Duration,
    (pattern, block_bytes, queue_depth): (Pattern, u64, u32),
) -> Result<Found, StudyError> {
    let options = SessionOptions { tcp: side(&case.client, place).tcp(), ..SessionOptions::default() };
    let spec = BenchSpec {
        pattern,
        block_bytes,
        queue_depth,
        runtime,
        ramp: Duration::from_millis(200),
        ..BenchSpec::default()
    };
    let bench = Bench::run(url, &options, &spec, &|_| (), &|| false)?;
    Ok(Found { figure: bench.result.bytes_per_second / 1e6, p50_us: Some(bench.result.latency_us.p50) })
}

/// The disk that is read and written.
const DISK_BYTES: u64 = 256 << 20;

fn rate<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    with(from, parse_bit_rate)
}

fn size<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    with(from, parse_size)
}

fn time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    with(from, |text| parse_time_ns(text).map(Duration::from_nanos))
}

fn with<'de, D: Deserializer<'de>, T, E: std::fmt::Display>(
    from: D,
    parse: impl Fn(&str) -> Result<T, E>,
) -> Result<T, D::Error> {
    let text = String::deserialize(from)?;
    parse(&text).map_err(|error| serde::de::Error::custom(format!("{text}: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_plan_is_one() {
        for (name, text) in PLANS {
            let plan = Experiment::read(text);
            assert!(plan.as_ref().is_ok_and(|plan| plan.name == name), "{name}: {plan:?}");
        }
    }
}
