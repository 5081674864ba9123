//! The place of a study: a wire between namespaces, loopback, or two hosts.

use std::io;
use std::net::IpAddr;
use std::sync::{Mutex, PoisonError};

use analysis::breakdown::Softirqs;
use analysis::stages::SideCpus;
use capture::{CaptureError, LiveCapture, LiveConfig, Watch, WatchReport};
use ftrace::Devices;
use load::initiator::Phase;
use record::Side;
use socket::options::TcpOptions;
use testbed::{Cable, CableConfig, NamedWire, Namespace, WireError};

use crate::accounts::Snapshot;
use crate::capturing::{OPERATIONS_MAX, REMOTE_OPERATIONS_MAX, capture_of};
use crate::client::{Job, perform};
use crate::congestion;
use crate::error::StudyError;
use crate::interface::Interface;
use crate::machine::Machine;
use crate::placement::Placement;
use crate::remote::{Account, Remote, RemoteSpec, Reply};
use crate::result::Observation;
use crate::traced::Traceable;

/// MTU of the loopback interface, bytes.
const LOOPBACK_MTU: u32 = 65_536;

/// The requested place.
#[derive(Clone, Debug, Default)]
pub struct Where {
    /// Use loopback even if a wire could be made.
    pub loopback: bool,
    /// The client is on another host.
    pub client: Option<RemoteSpec>,
    /// A persistent wire.
    pub wire: Option<NamedWire>,
    /// The CPUs.
    pub placement: Placement,
    /// The rate is given, and a network card's driver is not asked for it.
    pub rate_is_known: bool,
}

/// The requested properties of a place.
#[derive(Clone, Debug)]
pub(crate) struct Wanted<'a> {
    /// Rate of the wire, bits per second.
    pub(crate) bits_per_second: u64,
    /// Its MTU, bytes.
    pub(crate) mtu_bytes: u32,
    /// Congestion control of both sides.
    pub(crate) congestion: &'a str,
}

/// The two ends.
#[derive(Debug)]
enum Ends {
    /// Two namespaces and their cable.
    Wire {
        cable: Cable,
        /// This study made it, and may change its rate.
        is_own: bool,
        /// A token bucket keeps its rate.
        is_shaped: bool,
    },
    /// This host's loopback.
    Loopback,
    /// The server here, the client on another host.
    Hosts {
        remote: Mutex<Remote>,
        /// This host's, towards the client.
        interface: Interface,
        /// This host's, as the client reaches it.
        address: IpAddr,
    },
}

/// A place, and the observer of its capture points.
#[derive(Debug)]
pub(crate) struct Place {
    ends: Ends,
    pub(crate) observation: Observation,
    pub(crate) placement: Placement,
    pub(crate) client_cpu: usize,
    pub(crate) server_cpu: usize,
    /// Its MTU, bytes.
    pub(crate) mtu_bytes: u32,
    /// Its rate, bits per second.
    pub(crate) bits_per_second: u64,
    /// Congestion control of both sides; `None` for the system's default.
    pub(crate) congestion: Option<String>,
    /// The client's machine, where it is another.
    pub(crate) client_machine: Option<Machine>,
}

/// The result of a job of the client's side.
pub(crate) struct Performed {
    pub(crate) reply: Reply,
    /// It ran on another host, and `reply.account` is the use of the CPU there.
    pub(crate) is_remote: bool,
}

pub(crate) const NO_CAPTURE: &str = "this process may not capture packets (no CAP_NET_RAW): the four points are the kernel's stamps of both \
                          sides' own sockets; where one receive returns several packets, all carry the last one's stamp";
const ON_LOOPBACK: &str = "on loopback there is no wire: no rate limit (W1 = W2 = 0), packets of up to 64 KiB, and the receiver's \
                           softirq runs on the sender's CPU, so SI is charged to the client and CI to the server; run as root \
                           for a shaped wire between two namespaces";

impl Place {
    /// Chooses the best place that this process may use, and adds the limits of a lesser one to `warnings`.
    pub(crate) fn choose(
        wanted: &Wanted<'_>,
        at: &Where,
        warnings: &mut Vec<String>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, StudyError> {
        let failed = |source| StudyError::machine("asking for CPUs", source);
        let cpus = socket::cpu::allowed().map_err(failed)?;
        let placement = at.placement.complete(&cpus, at.client.is_some(), warnings)?;
        if let Some(spec) = &at.client {
            return Self::with_client(spec, wanted, at, placement, warnings, stop);
        }
        if let Some(wire) = &at.wire {
            return Self::on_wire(wire, wanted, at, placement, warnings);
        }
        let config = CableConfig {
            bits_per_second: Some(wanted.bits_per_second),
            client_cpu: placement.client_softirq,
            server_cpu: placement.server_softirq,
            ..CableConfig::new(wanted.mtu_bytes)
        };
        let cable = if at.loopback { Err(WireError::NotPermitted) } else { Cable::up(&config) };
        let (ends, mtu_bytes) = match cable {
            Ok(cable) => (Ends::Wire { cable, is_own: true, is_shaped: true }, wanted.mtu_bytes),
            Err(WireError::NotPermitted) => {
                warnings.push(ON_LOOPBACK.to_owned());
                (Ends::Loopback, LOOPBACK_MTU)
            }
            Err(error) => return Err(error.into()),
        };
        let mut place = Self {
            ends,
            observation: Observation::Packets,
            congestion: congestion::choose(wanted.congestion, &[congestion::choices()], warnings),
            client_cpu: placement.client.unwrap_or(0),
            server_cpu: placement.server.unwrap_or(0),
            placement,
            mtu_bytes,
            bits_per_second: wanted.bits_per_second,
            client_machine: None,
        };
        if let Err(CaptureError::NotPermitted { .. }) = place.try_capture() {
            place.observation = Observation::SocketStamps;
            warnings.push(NO_CAPTURE.to_owned());
        }
        Ok(place)
    }

    /// A place on a persistent wire: a veth pair, or two network cards and the cable between them.
    fn on_wire(
        wire: &NamedWire,
        wanted: &Wanted<'_>,
        at: &Where,
        placement: Placement,
        warnings: &mut Vec<String>,
    ) -> Result<Self, StudyError> {
        let (cable, record) = (wire.cable()?, &wire.record);
        let server = cable.server.address;
        let speed = cable.server.namespace.run(|| {
            Interface::with(server)
                .map_err(|source| WireError::Io { what: "looking at the wire".into(), source })
        })?;
        let known = if at.rate_is_known { Some(wanted.bits_per_second) } else { None };
        let bits_per_second =
            known.or(record.bits_per_second).or(speed.bits_per_second).unwrap_or(wanted.bits_per_second);
        if record.mtu_bytes != wanted.mtu_bytes {
            warnings.push(format!(
                "the wire '{}' has an MTU of {}, and not of {}; a study does not change a persistent wire",
                record.name, record.mtu_bytes, wanted.mtu_bytes
            ));
        }
        if record.cpus != [placement.client_softirq, placement.server_softirq] {
            warnings.push(format!(
                "the wire '{}' was put up to receive on CPUs {:?}: put it up with --client-cpu and --server-cpu where the model is \
                 to know which stages share a CPU",
                record.name, record.cpus
            ));
        }
        Ok(Self {
            observation: Observation::Packets,
            congestion: congestion::choose(wanted.congestion, &[congestion::choices()], warnings),
            client_cpu: placement.client.unwrap_or(0),
            server_cpu: placement.server.unwrap_or(0),
            placement,
            mtu_bytes: record.mtu_bytes,
            bits_per_second,
            client_machine: None,
            ends: Ends::Wire { cable, is_own: false, is_shaped: record.bits_per_second.is_some() },
        })
    }

    /// A place whose client is on another host.
    fn with_client(
        spec: &RemoteSpec,
        wanted: &Wanted<'_>,
        at: &Where,
        placement: Placement,
        warnings: &mut Vec<String>,
        stop: &dyn Fn() -> bool,
    ) -> Result<Self, StudyError> {
        let mut remote = Remote::start(spec, stop)?;
        let hello = remote.hello(stop)?;
        let address = spec.address.or(hello.caller).ok_or_else(|| StudyError::Remote {
            host: spec.host.clone(),
            message:
                "it does not know where it was called from: give our address as it reaches us (--address)"
                    .into(),
        })?;
        let there = remote.interface(address, stop)?;
        let failed = |source| StudyError::machine("looking for our own interface towards the client", source);
        let interface = Interface::with(address).map_err(failed)?;
        let mtu_bytes = there.mtu_bytes.min(interface.mtu_bytes);
        if mtu_bytes != wanted.mtu_bytes {
            warnings.push(format!(
                "the MTU between the two hosts is {mtu_bytes}, and not {}: a study changes nothing of real interfaces",
                wanted.mtu_bytes
            ));
        }
        let speed = [there.bits_per_second, interface.bits_per_second].into_iter().flatten().min();
        let bits_per_second = match speed {
            Some(speed) if !at.rate_is_known => speed,
            _ => wanted.bits_per_second,
        };
        warnings.push(format!(
            "client on {}, server here ({address} on {}): the wire is taken for one of {}{}; clocks of two hosts are not \
             compared, so the network is known both ways together, and not each way",
            spec.host,
            interface.name,
            record::units::format_bit_rate(bits_per_second),
            if speed.is_none() || at.rate_is_known { "" } else { ", as the network cards say" },
        ));
        let observation = if interface.may_capture && there.may_capture {
            Observation::Packets
        } else {
            warnings.push(NO_CAPTURE.to_owned());
            Observation::SocketStamps
        };
        Ok(Self {
            observation,
            congestion: congestion::choose(
                wanted.congestion,
                &[congestion::choices(), hello.congestion],
                warnings,
            ),
            client_cpu: hello.cpus.first().copied().unwrap_or(0),
            server_cpu: placement.server.unwrap_or(0),
            placement,
            mtu_bytes,
            bits_per_second,
            client_machine: Some(hello.machine),
            ends: Ends::Hosts { remote: Mutex::new(remote), interface, address },
        })
    }

    /// Socket options of both sides of a study.
    pub(crate) fn tcp(&self) -> TcpOptions {
        TcpOptions { nodelay: true, congestion: self.congestion.clone(), ..TcpOptions::default() }
    }

    /// Whether there is a wire.
    pub(crate) fn has_wire(&self) -> bool {
        !matches!(self.ends, Ends::Loopback)
    }

    /// Whether a token bucket keeps its rate, and not a network card.
    pub(crate) fn is_shaped(&self) -> bool {
        matches!(self.ends, Ends::Wire { is_shaped: true, .. })
    }

    /// Where the softirqs of both sides run.
    pub(crate) fn softirqs(&self) -> Softirqs {
        let own = &self.placement;
        let is_common = own.client_softirq == own.server_softirq && own.client != own.server;
        if is_common && !self.is_remote() { Softirqs::Common } else { Softirqs::Apart }
    }

    /// Whether client and server are on one clock.
    pub(crate) fn has_one_clock(&self) -> bool {
        !self.is_remote()
    }

    /// Whether its MTU is given and cannot be chosen.
    pub(crate) fn is_given(&self) -> bool {
        !matches!(self.ends, Ends::Wire { is_own: true, .. } | Ends::Loopback)
    }

    /// Whether the client is on another host.
    pub(crate) fn is_remote(&self) -> bool {
        matches!(self.ends, Ends::Hosts { .. })
    }

    /// Whether packets may be captured here.
    pub(crate) fn may_trace(&self) -> bool {
        self.observation == Observation::Packets
    }

    /// Where the kernel's events of both sides are, or why they are not here.
    pub(crate) fn traceable(&self) -> Result<Traceable, &'static str> {
        if self.observation != Observation::Packets {
            return Err("without capture points there is nothing to compare");
        }
        let Ends::Wire { cable, .. } = &self.ends else {
            return Err(if self.is_remote() {
                "the client's kernel is another host's: its events are on another clock"
            } else {
                "on loopback both directions share one device, so their packets cannot be told apart"
            });
        };
        let number = |cpu: Option<usize>, or: usize| cpu.unwrap_or(or) as u16;
        let side =
            |thread: usize, softirq| SideCpus { thread: thread as u16, softirq: number(softirq, thread) };
        Ok(Traceable {
            devices: Devices {
                client: cable.client.interface.clone(),
                server: cable.server.interface.clone(),
            },
            client: side(self.client_cpu, self.placement.client_softirq),
            server: side(self.server_cpu, self.placement.server_softirq),
        })
    }

    /// Operations that are kept of a run.
    pub(crate) fn operations_max(&self) -> usize {
        if self.is_remote() { REMOTE_OPERATIONS_MAX } else { OPERATIONS_MAX }
    }

    /// Removes the wire's rate limit while `work` runs, so that the CPUs limit the ring. The limit of a wire that this study
    /// did not make stays.
    pub(crate) fn unlimited<T>(&self, work: impl FnOnce() -> Result<T, StudyError>) -> Result<T, StudyError> {
        let Ends::Wire { cable, is_own: true, .. } = &self.ends else { return work() };
        cable.shape(None)?;
        let outcome = work();
        cable.shape(Some(self.bits_per_second))?;
        outcome
    }

    /// The server's address.
    pub(crate) fn server_address(&self) -> IpAddr {
        match &self.ends {
            Ends::Wire { cable, .. } => cable.server.address,
            Ends::Loopback => IpAddr::from([127, 0, 0, 1]),
            Ends::Hosts { address, .. } => *address,
        }
    }

    /// Calls `work` on the server's side, on its CPU.
    pub(crate) fn on_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, StudyError> {
        let namespace = match &self.ends {
            Ends::Wire { cable, .. } => Some(&cable.server.namespace),
            _ => None,
        };
        on_side(namespace, self.server_cpu, work)
    }

    /// Performs a job on the client's side, here or on another host; `observe` is called with its phases.
    pub(crate) fn perform(
        &self,
        job: &Job,
        observe: &(dyn Fn(Phase) + Sync),
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Performed, StudyError> {
        let namespace = match &self.ends {
            Ends::Hosts { remote, .. } => {
                let mut remote = remote.lock().unwrap_or_else(PoisonError::into_inner);
                return Ok(Performed { reply: remote.perform(job, observe, stop)?, is_remote: true });
            }
            Ends::Wire { cable, .. } => Some(&cable.client.namespace),
            Ends::Loopback => None,
        };
        let done = on_side(namespace, self.client_cpu, || perform(job, observe, stop))??;
        Ok(Performed { reply: Reply { done, account: Account::default() }, is_remote: false })
    }

    /// As [`Place::perform`], from this host's own namespace, for a target that is not in the place.
    pub(crate) fn perform_from_here(
        &self,
        job: &Job,
        stop: &(dyn Fn() -> bool + Sync),
    ) -> Result<Performed, StudyError> {
        if self.is_remote() {
            return self.perform(job, &|_| (), stop);
        }
        let done = on_side(None, self.client_cpu, || perform(job, &|_| (), stop))??;
        Ok(Performed { reply: Reply { done, account: Account::default() }, is_remote: false })
    }

    /// Calls `work` and measures the use of the CPUs by other programs and other guests of the machine meanwhile.
    pub(crate) fn watched<T>(
        &self,
        work: impl FnOnce() -> Result<(T, Option<Account>), StudyError>,
    ) -> Result<(T, Disturbance), StudyError> {
        let failed = |source| StudyError::machine("reading CPU times", source);
        let mut cpus = vec![self.server_cpu];
        if !self.is_remote() {
            cpus.push(self.client_cpu);
            cpus.dedup();
        }
        let before = Snapshot::take(&[]).map_err(failed)?;
        let (value, there) = work()?;
        let after = Snapshot::take(&[]).map_err(failed)?;
        let seconds = after.seconds_since(&before).max(1e-6);
        let mut found = Disturbance {
            steal: cpus.iter().map(|cpu| after.cpu_since(&before, *cpu).steal / seconds).fold(0.0, f64::max),
            others: after.others_since(&before, &cpus).max(0.0),
            clock: after.frequency_change(&before),
        };
        if let Some(there) = there {
            found.steal = found.steal.max(there.cpu.steal / there.seconds.max(1e-6));
            found.others = found.others.max(there.others);
        }
        Ok((value, found))
    }

    fn try_capture(&self) -> Result<(), CaptureError> {
        let config = LiveConfig { interface: "lo".to_owned(), port: 1, ring_bytes: 0, snap_bytes: 0 };
        match &self.ends {
            Ends::Loopback => LiveCapture::open(&config).map(drop),
            _ => Ok(()),
        }
    }

    /// Starts capturing the sides on this host, if packets are observed.
    pub(crate) fn watch(&self, port: u16) -> Result<Vec<Watch>, StudyError> {
        if self.observation == Observation::SocketStamps {
            return Ok(Vec::new());
        }
        let start = |interface: &str, sides: &[Side], namespace: Option<Namespace>| {
            let enter = move || namespace.map_or(Ok(()), |n| n.enter());
            Watch::start(capture_of(interface, port), sides, self.mtu_bytes, OPERATIONS_MAX, enter)
        };
        Ok(match &self.ends {
            Ends::Wire { cable, .. } => vec![
                start(&cable.client.interface, &[Side::Client], Some(cable.client.namespace.clone()))?,
                start(&cable.server.interface, &[Side::Server], Some(cable.server.namespace.clone()))?,
            ],
            Ends::Loopback => vec![start("lo", &[Side::Client, Side::Server], None)?],
            Ends::Hosts { interface, .. } => vec![start(&interface.name, &[Side::Server], None)?],
        })
    }

    /// Calls `work` while all packets of a port are captured at the client's end of the wire (at the server's, where the client
    /// is on another host).
    pub(crate) fn traced<T: Send>(
        &self,
        port: u16,
        file: &std::path::Path,
        work: impl FnOnce() -> Result<T, StudyError>,
    ) -> Result<T, StudyError> {
        let (interface, namespace) = match &self.ends {
            Ends::Wire { cable, .. } => {
                (cable.client.interface.clone(), Some(cable.client.namespace.clone()))
            }
            Ends::Loopback => ("lo".to_owned(), None),
            Ends::Hosts { interface, .. } => (interface.name.clone(), None),
        };
        let enter = move || namespace.map_or(Ok(()), |n| n.enter());
        crate::trace::traced(&interface, port, file, enter, work)
    }

    /// Stops the captures.
    pub(crate) fn stop_watching(watches: Vec<Watch>) -> Result<Vec<WatchReport>, StudyError> {
        watches.into_iter().map(|w| w.stop().map_err(StudyError::from)).collect()
    }
}

/// Use of the CPUs by others during a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, serde::Serialize, serde::Deserialize)]
pub struct Disturbance {
    /// Share of the time used by other guests of the machine.
    pub steal: f64,
    /// Share of the time used by other programs.
    pub others: f64,
    /// Change of the CPUs' clock, as a share of the faster one.
    #[serde(default)]
    pub clock: f64,
}

impl Disturbance {
    /// The greater value of each field.
    #[must_use]
    pub fn max(self, other: Self) -> Self {
        Self {
            steal: self.steal.max(other.steal),
            others: self.others.max(other.others),
            clock: self.clock.max(other.clock),
        }
    }
}

/// Calls `work` on a thread inside a namespace and on a CPU.
fn on_side<T: Send>(
    namespace: Option<&Namespace>,
    cpu: usize,
    work: impl FnOnce() -> T + Send,
) -> Result<T, StudyError> {
    let inside = move || -> io::Result<T> {
        if let Some(namespace) = namespace {
            namespace.enter()?;
        }
        socket::cpu::pin(cpu)?;
        Ok(work())
    };
    let ended = std::thread::scope(|scope| scope.spawn(inside).join());
    ended
        .unwrap_or_else(|_| Err(io::Error::other("the thread panicked")))
        .map_err(|source| StudyError::machine("moving to a side of the wire", source))
}
