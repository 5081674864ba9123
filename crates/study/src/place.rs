//! Where a study runs: on a wire between namespaces, or on loopback.

use std::io;
use std::net::IpAddr;

use capture::{CaptureError, LiveCapture, LiveConfig, Role, Watch, WatchReport};
use socket::options::TcpOptions;
use wire::{Cable, CableConfig, Namespace, WireError};

use crate::error::StudyError;
use crate::plan::Plan;
use crate::result::Observation;

/// Memory of one capture's ring, bytes: half a second of a saturated gigabit.
const RING_BYTES: usize = 48 << 20;

/// Operations kept per run; bounds the memory of a study.
pub(crate) const OPERATIONS_MAX: usize = 1_000_000;

/// MTU of the loopback interface, bytes.
const LOOPBACK_MTU: u32 = 65_536;

/// The place, and how it is observed.
pub(crate) struct Place {
    cable: Option<Cable>,
    pub(crate) observation: Observation,
    pub(crate) client_cpu: usize,
    pub(crate) server_cpu: usize,
    mtu_bytes: u32,
    /// Congestion control of both sides; nothing keeps the system's default.
    pub(crate) congestion: Option<String>,
}

/// The congestion control asked for, or another that does not pace, where an ordinary user may not choose.
fn congestion(plan: &Plan, warnings: &mut Vec<String>) -> Option<String> {
    let allowed =
        std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control").unwrap_or_default();
    let may = |name: &str| nix::unistd::geteuid().is_root() || allowed.split_whitespace().any(|a| a == name);
    let chosen = [plan.congestion.as_str(), "cubic", "reno"].into_iter().find(|name| may(name));
    if chosen != Some(plan.congestion.as_str()) {
        let instead = chosen.unwrap_or("the system's default");
        warnings.push(format!("an ordinary user may not choose {} here: {instead} is used", plan.congestion));
    }
    chosen.map(str::to_owned)
}

impl Place {
    /// Chooses the best place that this process may use; says in `warnings` what a lesser one costs.
    pub(crate) fn choose(
        plan: &Plan,
        loopback: bool,
        warnings: &mut Vec<String>,
    ) -> Result<Self, StudyError> {
        let cpus = socket::cpu::allowed()
            .map_err(|source| StudyError::Machine { what: "asking for CPUs", source })?;
        let client_cpu = cpus.first().copied().unwrap_or(0);
        let server_cpu = cpus.get(1).copied().unwrap_or(client_cpu);
        if client_cpu == server_cpu {
            warnings.push(
                "there is one CPU: client and server take turns on it, which no two machines do".to_owned(),
            );
        }
        let config = CableConfig {
            bits_per_second: Some(plan.bits_per_second),
            mtu_bytes: plan.mtu_bytes,
            client_cpu: Some(client_cpu),
            server_cpu: Some(server_cpu),
        };
        let cable = if loopback { Err(WireError::NotPermitted) } else { Cable::up(&config) };
        let cable = match cable {
            Ok(cable) => Some(cable),
            Err(WireError::NotPermitted) => {
                warnings.push(
                    "on loopback there is no wire: no rate limit (W1 = W2 = 0), packets of up to 64 KiB, and the receiver's \
                     softirq runs on the sender's CPU, so SI is charged to the client and CI to the server; run as root \
                     for a shaped wire between two namespaces"
                        .to_owned(),
                );
                None
            }
            Err(error) => return Err(error.into()),
        };
        let mut place = Self {
            mtu_bytes: if cable.is_some() { plan.mtu_bytes } else { LOOPBACK_MTU },
            cable,
            observation: Observation::Packets,
            congestion: congestion(plan, warnings),
            client_cpu,
            server_cpu,
        };
        if let Err(CaptureError::NotPermitted { .. }) = place.try_capture() {
            place.observation = Observation::SocketStamps;
            warnings.push(
                "this process may not capture packets (no CAP_NET_RAW): the four points are the kernel's stamps of both \
                 sides' own sockets; where one receive returns several packets, all carry the last one's stamp"
                    .to_owned(),
            );
        }
        Ok(place)
    }

    /// Socket options of both sides of a study.
    pub(crate) fn tcp(&self) -> TcpOptions {
        TcpOptions { nodelay: true, congestion: self.congestion.clone(), ..TcpOptions::default() }
    }

    /// Whether there is a wire.
    pub(crate) fn has_wire(&self) -> bool {
        self.cable.is_some()
    }

    /// Lifts the wire's rate limit while `work` runs, so that CPUs are what limits the ring.
    pub(crate) fn unlimited<T>(
        &self,
        bits_per_second: u64,
        work: impl FnOnce() -> Result<T, StudyError>,
    ) -> Result<T, StudyError> {
        let Some(cable) = &self.cable else { return work() };
        cable.shape(None)?;
        let outcome = work();
        cable.shape(Some(bits_per_second))?;
        outcome
    }

    /// The server's address.
    pub(crate) fn server_address(&self) -> IpAddr {
        self.cable.as_ref().map_or(IpAddr::from([127, 0, 0, 1]), |cable| cable.server.address)
    }

    /// Runs something on the server's side, on its CPU.
    pub(crate) fn on_server<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, StudyError> {
        self.on_side(self.cable.as_ref().map(|c| &c.server.namespace), self.server_cpu, work)
    }

    /// Runs something on the client's side, on its CPU.
    pub(crate) fn on_client<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, StudyError> {
        self.on_side(self.cable.as_ref().map(|c| &c.client.namespace), self.client_cpu, work)
    }

    fn on_side<T: Send>(
        &self,
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
            .map_err(|source| StudyError::Machine { what: "moving to a side of the wire", source })
    }

    fn try_capture(&self) -> Result<(), CaptureError> {
        let config = |interface: &str| LiveConfig {
            interface: interface.to_owned(),
            port: 1,
            ring_bytes: 0,
            snap_bytes: 0,
        };
        match &self.cable {
            Some(_) => Ok(()),
            None => LiveCapture::open(&config("lo")).map(drop),
        }
    }

    /// Starts capturing both sides, where packets are what is observed.
    pub(crate) fn watch(&self, port: u16) -> Result<Vec<Watch>, StudyError> {
        if self.observation == Observation::SocketStamps {
            return Ok(Vec::new());
        }
        let config = |interface: &str| LiveConfig {
            interface: interface.to_owned(),
            port,
            ring_bytes: RING_BYTES,
            snap_bytes: LiveConfig::SNAP_NOTHING,
        };
        let start = |interface: &str, roles: &[Role], namespace: Option<Namespace>| {
            let enter = move || namespace.map_or(Ok(()), |n| n.enter());
            Watch::start(config(interface), roles, self.mtu_bytes, OPERATIONS_MAX, enter)
        };
        Ok(match &self.cable {
            Some(cable) => vec![
                start(&cable.client.interface, &[Role::Client], Some(cable.client.namespace.clone()))?,
                start(&cable.server.interface, &[Role::Server], Some(cable.server.namespace.clone()))?,
            ],
            None => vec![start("lo", &[Role::Client, Role::Server], None)?],
        })
    }

    /// Stops the captures.
    pub(crate) fn stop_watching(watches: Vec<Watch>) -> Result<Vec<WatchReport>, StudyError> {
        watches.into_iter().map(|w| w.stop().map_err(StudyError::from)).collect()
    }
}
