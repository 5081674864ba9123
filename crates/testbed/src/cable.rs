//! A veth pair as a cable: rate, MTU, offloads, and which CPU receives.

use std::net::{IpAddr, Ipv4Addr};

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use record::wire::ETHERNET_BYTES;
use serde::{Deserialize, Serialize};

use crate::error::WireError;
use crate::namespace::Namespace;
use crate::offloads;
use crate::tools::run;

/// The configuration of a cable.
#[derive(Clone, Debug)]
pub struct CableConfig {
    /// Rate of each direction, bits per second; `None` for no limit.
    pub bits_per_second: Option<u64>,
    /// MTU of both ends, bytes.
    pub mtu_bytes: u32,
    /// The CPU that receives for the client (RPS); `None`: the sender's.
    pub client_cpu: Option<usize>,
    /// The CPU that receives for the server.
    pub server_cpu: Option<usize>,
    /// Size of the queue of each direction, bytes.
    pub queue_bytes: u32,
    /// The default congestion control of both namespaces; `None`: the system's.
    pub congestion: Option<String>,
    /// Leave offloads on: segments larger than the MTU cross then, and captures show packets that no wire carries.
    pub offloads: bool,
}

impl CableConfig {
    /// Without a rate, and with the usual queue.
    #[must_use]
    pub fn new(mtu_bytes: u32) -> Self {
        Self {
            bits_per_second: None,
            mtu_bytes,
            client_cpu: None,
            server_cpu: None,
            queue_bytes: QUEUE_BYTES,
            congestion: None,
            offloads: false,
        }
    }

    /// # Errors
    /// What is impossible.
    pub(crate) fn check(&self) -> Result<(), WireError> {
        if !(576..=65_535).contains(&self.mtu_bytes) {
            let given = self.mtu_bytes.to_string();
            return Err(WireError::Config { key: "mtu", given, allowed: "576 to 65535 bytes are possible" });
        }
        if self.queue_bytes < self.mtu_bytes + ETHERNET_BYTES {
            let given = self.queue_bytes.to_string();
            return Err(WireError::Config { key: "queue", given, allowed: "at least one frame must fit" });
        }
        if let Some(name) = &self.congestion {
            // Others may be chosen for a socket, but are no namespace's default (tcp(7)).
            let choices = std::fs::read_to_string("/proc/sys/net/ipv4/tcp_allowed_congestion_control");
            if !choices.unwrap_or_default().split_whitespace().any(|choice| choice == name) {
                let allowed = "a namespace may have what net.ipv4.tcp_allowed_congestion_control lists; programs may choose others \
                               for their own sockets (bench --congestion, target --congestion)";
                return Err(WireError::Config { key: "congestion", given: name.clone(), allowed });
            }
        }
        Ok(())
    }
}

/// One end of the cable.
#[derive(Clone, Debug)]
pub struct End {
    /// Its namespace.
    pub namespace: Namespace,
    /// Its interface.
    pub interface: String,
    /// Its address.
    pub address: IpAddr,
}

/// A cable between two namespaces. It exists until the last handle of the namespaces is dropped.
#[derive(Clone, Debug)]
pub struct Cable {
    /// The client's end.
    pub client: End,
    /// The server's end.
    pub server: End,
    mtu_bytes: u32,
    queue_bytes: u32,
}

/// Bytes of a frame that a queueing discipline does not count: all of the wire's own but the header.
const UNCOUNTED_BYTES: u32 = ETHERNET_BYTES - 14;

/// Default size of the queue of each direction, bytes: far more than TCP puts there, so that nothing is lost.
const QUEUE_BYTES: u32 = 16 << 20;

impl Cable {
    /// Makes two namespaces and joins them.
    ///
    /// # Errors
    /// When the process may not, a program is missing, or the configuration is impossible.
    pub fn up(config: &CableConfig) -> Result<Self, WireError> {
        config.check()?;
        Self::join(Namespace::new()?, Namespace::new()?, config)
    }

    /// The interfaces of a veth pair: client's and server's.
    pub(crate) const INTERFACES: [&'static str; 2] = ["client0", "server0"];

    /// The cable whose ends these are.
    pub(crate) fn of(namespaces: [Namespace; 2], interfaces: [String; 2], config: &CableConfig) -> Self {
        let end = |namespace, interface, last| {
            let address = IpAddr::V4(Ipv4Addr::new(10, 99, 0, last));
            End { namespace, interface, address }
        };
        let ([client, server], [client_interface, server_interface]) = (namespaces, interfaces);
        Self {
            client: end(client, client_interface, 1),
            server: end(server, server_interface, 2),
            mtu_bytes: config.mtu_bytes,
            queue_bytes: config.queue_bytes,
        }
    }

    /// Joins two namespaces by a veth pair.
    pub(crate) fn join(
        client: Namespace,
        server: Namespace,
        config: &CableConfig,
    ) -> Result<Self, WireError> {
        let cable = Self::of([client, server], Self::INTERFACES.map(str::to_owned), config);
        let server_path = cable.server.namespace.path();
        cable.client.namespace.run(|| {
            run("ip", &["link", "add", "client0", "type", "veth", "peer", "name", "server0"])?;
            run("ip", &["link", "set", "server0", "netns", &server_path]).map(drop)
        })?;
        cable.set_up(config)?;
        Ok(cable)
    }

    /// Addresses, MTU, offloads, CPUs and rate of both ends.
    pub(crate) fn set_up(&self, config: &CableConfig) -> Result<(), WireError> {
        for (end, cpu) in [(&self.client, config.client_cpu), (&self.server, config.server_cpu)] {
            end.namespace.run(|| set_up(end, cpu, config))?;
        }
        self.shape(config.bits_per_second)
    }

    /// Sets the rate of both directions, bits per second; `None` removes the limit.
    ///
    /// # Errors
    /// When `tc` fails.
    pub fn shape(&self, bits_per_second: Option<u64>) -> Result<(), WireError> {
        for end in [&self.client, &self.server] {
            end.namespace.run(|| shape(&end.interface, self, bits_per_second))?;
        }
        Ok(())
    }

    /// The counters of each end's queueing discipline, as `tc` prints them.
    ///
    /// # Errors
    /// When `tc` fails.
    pub fn counters(&self) -> Result<[String; 2], WireError> {
        let of = |end: &End| end.namespace.run(|| run("tc", &["-s", "qdisc", "show", "dev", &end.interface]));
        Ok([of(&self.client)?, of(&self.server)?])
    }
}

/// Sets up one end, from inside its namespace.
fn set_up(end: &End, cpu: Option<usize>, config: &CableConfig) -> Result<(), WireError> {
    let (interface, mtu) = (&*end.interface, config.mtu_bytes.to_string());
    // No router solicitations or neighbour discovery between the packets that are measured.
    write("/proc/sys/net/ipv6/conf/all/disable_ipv6", "1").or_else(|error| match error {
        WireError::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => Ok(()),
        other => Err(other),
    })?;
    run("ip", &["link", "set", "lo", "up"])?;
    run("ip", &["link", "set", interface, "mtu", &mtu])?;
    run("ip", &["address", "add", &format!("{}/30", end.address), "dev", interface])?;
    // Packets as a wire would carry them: no segments larger than the MTU, no merging on arrival.
    if !config.offloads {
        offloads::switch_off(interface)?;
    }
    if let Some(name) = &config.congestion {
        write("/proc/sys/net/ipv4/tcp_congestion_control", name)?;
    }
    run("ip", &["link", "set", interface, "up"])?;
    if let Some(cpu) = cpu {
        steer(interface, cpu)?;
    }
    Ok(())
}

/// Sets an interface's sending rate, or removes the limit.
fn shape(interface: &str, cable: &Cable, bits_per_second: Option<u64>) -> Result<(), WireError> {
    let limit = cable.queue_bytes.to_string();
    let Some(rate) = bits_per_second else {
        let queue = ["qdisc", "replace", "dev", interface, "root", "bfifo", "limit", &limit];
        return run("tc", &queue).map(drop);
    };
    // The bucket holds one frame and the tokens that accrue while the shaper's timer is late. A larger one would send bursts.
    let frame = cable.mtu_bytes + 14 + UNCOUNTED_BYTES;
    let accrued = |us: u64| u32::try_from(rate / 8 / 1_000_000 * us).unwrap_or(u32::MAX);
    let burst = frame.saturating_add(accrued(SHAPER_LATENESS_US)).to_string();
    let (rate, overhead) = (format!("{rate}bit"), UNCOUNTED_BYTES.to_string());
    let shaper = ["tbf", "rate", &rate, "burst", &burst, "limit", &limit, "overhead", &overhead];
    let arguments =
        ["qdisc", "replace", "dev", interface, "root"].into_iter().chain(shaper).collect::<Vec<_>>();
    run("tc", &arguments).map(drop)
}

/// Lateness of the shaper's timer that loses no rate, microseconds: tokens that exceed the bucket are lost. Measured on a
/// busy virtual machine: 60 lost a stream 5 to 20 % of 1 Gb/s at MTU 1500, and reads over iSCSI 10 % at MTU 9000. When the
/// sender sleeps between large bursts, its processor wakes late: 125 lost 1 to 12 % then, 250 nothing.
const SHAPER_LATENESS_US: u64 = 250;

/// Moves the receive softirq of an interface to one CPU (RPS): veth would run it on the sender's. And that CPU's packets to
/// queues of their own (XPS), where there are several.
fn steer(interface: &str, cpu: usize) -> Result<(), WireError> {
    let io = |what: &str, source: nix::Error| WireError::Io { what: what.to_owned(), source: source.into() };
    // sysfs shows the network namespace of the mounting process, so this thread mounts its own in a private namespace.
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| io("making a mount namespace", e))?;
    let none: Option<&str> = None;
    // Mounts below a private mount are not propagated. In a chroot "/" is not a mount point, but /sys is.
    let private = |place| mount(none, place, none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    private("/sys").or_else(|_| private("/")).map_err(|e| io("making /sys private", e))?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)
        .map_err(|e| io("mounting sysfs", e))?;
    // A mask of 32-bit words, the highest first.
    let words = cpu / 32;
    let mask = format!("{:x}{}", 1_u32 << (cpu % 32), ",00000000".repeat(words));
    for QueueCpus { file, .. } in queue_cpus(interface) {
        let written = write(&format!("/sys/class/net/{interface}/queues/{file}"), &mask);
        if file.ends_with(RPS) {
            written?;
        }
    }
    Ok(())
}

/// The files of a queue that name CPUs.
const RPS: &str = "rps_cpus";
const XPS: &str = "xps_cpus";

/// The CPUs of a queue. Wire records contain it as a pair: file, CPUs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(from = "(String, String)", into = "(String, String)")]
pub struct QueueCpus {
    /// The file below the interface's queues, such as `rx-0/rps_cpus`.
    pub file: String,
    /// Its contents: a mask of CPUs.
    pub cpus: String,
}

impl From<(String, String)> for QueueCpus {
    fn from((file, cpus): (String, String)) -> Self {
        Self { file, cpus }
    }
}

impl From<QueueCpus> for (String, String) {
    fn from(queue: QueueCpus) -> Self {
        (queue.file, queue.cpus)
    }
}

/// The CPUs of an interface's queues.
pub(crate) fn queue_cpus(interface: &str) -> Vec<QueueCpus> {
    let queues =
        std::fs::read_dir(format!("/sys/class/net/{interface}/queues")).into_iter().flatten().flatten();
    let mut all: Vec<QueueCpus> = queues
        .filter_map(|queue| {
            let name = queue.file_name().into_string().ok()?;
            let file = if name.starts_with("rx-") { RPS } else { XPS };
            let cpus = std::fs::read_to_string(queue.path().join(file)).unwrap_or_default();
            Some(QueueCpus { file: format!("{name}/{file}"), cpus: cpus.trim().to_owned() })
        })
        .collect();
    all.sort();
    all
}

fn write(path: &str, value: &str) -> Result<(), WireError> {
    std::fs::write(path, value)
        .map_err(|source| WireError::Io { what: format!("writing '{value}' to {path}"), source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn impossible_configurations_are_rejected_before_anything_is_made() {
        let error = Cable::up(&CableConfig::new(100)).unwrap_err().to_string();
        assert!(error.contains("mtu = 100"), "{error}");
        let small = CableConfig { queue_bytes: 1000, ..CableConfig::new(1500) };
        assert!(Cable::up(&small).unwrap_err().to_string().contains("queue = 1000"));
        let unknown = CableConfig { congestion: Some("psychic".into()), ..CableConfig::new(1500) };
        assert!(Cable::up(&unknown).unwrap_err().to_string().contains("psychic"));
    }

    #[test]
    fn cable_carries_packets_and_leaves_nothing_behind() {
        let config = CableConfig {
            bits_per_second: Some(1_000_000_000),
            client_cpu: Some(0),
            server_cpu: Some(0),
            ..CableConfig::new(9000)
        };
        let cable = match Cable::up(&config) {
            Ok(cable) => cable,
            Err(WireError::NotPermitted) => {
                assert!(!testing::require("root, for network namespaces", false));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let server = cable.server.clone();
        let listener = server
            .namespace
            .run(|| {
                std::net::TcpListener::bind((server.address, 0))
                    .map_err(|source| WireError::Io { what: "listening".into(), source })
            })
            .unwrap();
        let port = listener.local_addr().unwrap().port();
        let connected = cable.client.namespace.run(|| {
            std::net::TcpStream::connect((cable.server.address, port))
                .map_err(|source| WireError::Io { what: "connecting".into(), source })
        });
        assert!(connected.is_ok(), "{connected:?}");
        let [client, _] = cable.counters().unwrap();
        assert!(client.contains("tbf"), "{client}");
        // The host has neither interface.
        assert!(!std::path::Path::new("/sys/class/net/client0").exists());
    }
}
