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
    /// The CPU that receives for the client (RPS); `None`: on a veth pair one for each connection, by its hash.
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
    match cpu {
        Some(cpu) => steer(interface, &[cpu], Queues::Both),
        // A card has queues of its own, which keep the order.
        None if !Cable::INTERFACES.contains(&interface) => Ok(()),
        // Where the kernel cannot, the pair works as well, except for the order.
        None => steer(interface, &online_cpus(), Queues::Receiving).or(Ok(())),
    }
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

/// The queues of an interface whose CPUs are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Queues {
    /// Those for received packets (RPS).
    Receiving,
    /// Also those for packets to be sent (XPS), where there are several.
    Both,
}

/// Moves the receive softirq of an interface to these CPUs (RPS), each connection to one of them by its hash. Otherwise veth
/// receives on the CPU that sends, and segments of one connection that leave on two (a thread that was moved, or a softirq
/// beside it) overtake each other: TCP takes that for loss and sends again.
fn steer(interface: &str, cpus: &[usize], queues: Queues) -> Result<(), WireError> {
    let io = |what: &str, source: nix::Error| WireError::Io { what: what.to_owned(), source: source.into() };
    // sysfs shows the network namespace of the mounting process, so this thread mounts its own in a private namespace.
    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| io("making a mount namespace", e))?;
    let none: Option<&str> = None;
    // Mounts below a private mount are not propagated. In a chroot "/" is not a mount point, but /sys is.
    let private = |place| mount(none, place, none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none);
    private("/sys").or_else(|_| private("/")).map_err(|e| io("making /sys private", e))?;
    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)
        .map_err(|e| io("mounting sysfs", e))?;
    let mask = mask(cpus);
    for QueueCpus { file, .. } in queue_cpus(interface) {
        if queues == Queues::Receiving && !file.ends_with(RPS) {
            continue;
        }
        let written = write(&format!("/sys/class/net/{interface}/queues/{file}"), &mask);
        if file.ends_with(RPS) {
            written?;
        }
    }
    Ok(())
}

/// A mask of CPUs: words of 32 bits, the highest first.
fn mask(cpus: &[usize]) -> String {
    let words = cpus.iter().max().map_or(1, |most| most / 32 + 1);
    let word = |index: usize| {
        cpus.iter().filter(|&&cpu| cpu / 32 == index).fold(0_u32, |word, cpu| word | 1 << (cpu % 32))
    };
    let text: Vec<String> = (0..words).rev().map(|index| format!("{:08x}", word(index))).collect();
    text.join(",")
}

/// The CPUs that are online, as the kernel lists them ("0-3,8"); the first one if the list cannot be read.
fn online_cpus() -> Vec<usize> {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let all = listed(text.trim());
    if all.is_empty() { vec![0] } else { all }
}

fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
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
    fn masks_name_the_cpus_of_a_list() {
        assert_eq!(listed("0-3,8"), [0, 1, 2, 3, 8]);
        assert!(listed("").is_empty());
        assert_eq!(mask(&[0, 1]), "00000003");
        assert_eq!(mask(&[33, 0, 8]), "00000002,00000101");
    }

    #[test]
    fn a_cable_steers_each_connection_to_one_cpu_unless_told_otherwise() {
        let config = CableConfig { server_cpu: Some(0), ..CableConfig::new(1500) };
        let cable = match Cable::up(&config) {
            Ok(cable) => cable,
            Err(WireError::NotPermitted) => {
                assert!(!testing::require("root, for network namespaces", false));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let of = |end: &End| {
            end.namespace
                .run(|| {
                    let nobody = |source| WireError::Io { what: "sysfs".into(), source };
                    unshare(CloneFlags::CLONE_NEWNS).map_err(|e| nobody(e.into()))?;
                    let none: Option<&str> = None;
                    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)
                        .map_err(|e| nobody(e.into()))?;
                    mount(Some("sysfs"), "/sys", Some("sysfs"), MsFlags::empty(), none)
                        .map_err(|e| nobody(e.into()))?;
                    Ok(queue_cpus(&end.interface))
                })
                .unwrap()
        };
        // Leading zeros depend on the kernel's number of CPUs.
        let value = |end: &End| {
            let all = of(end);
            let rps = all.iter().find(|queue| queue.file == "rx-0/rps_cpus").unwrap();
            rps.cpus.trim_start_matches(['0', ',']).to_owned()
        };
        let all = mask(&online_cpus());
        assert_eq!(value(&cable.client), all.trim_start_matches(['0', ',']));
        assert_eq!(value(&cable.server), "1");
    }

    /// A counter of TCP's in this thread's namespace.
    fn counter(name: &str) -> u64 {
        let text = std::fs::read_to_string("/proc/thread-self/net/netstat").unwrap();
        let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("TcpExt:")).collect();
        let place = lines[0].split(' ').position(|word| word == name).unwrap();
        lines[1].split(' ').nth(place).unwrap().parse().unwrap()
    }

    #[test]
    fn segments_of_a_connection_do_not_overtake_each_other() {
        use std::io::{Read, Write};

        let cable = match Cable::up(&CableConfig::new(1500)) {
            Ok(cable) => cable,
            Err(WireError::NotPermitted) => {
                assert!(!testing::require("root, for network namespaces", false));
                return;
            }
            Err(error) => panic!("{error}"),
        };
        let io = |source| WireError::Io { what: "test".into(), source };
        let (server, client) = (&cable.server, &cable.client);
        for end in [client, server] {
            // What is in flight fits into the queue of a processor (net.core.netdev_max_backlog) and into the receivers'
            // buffers: nothing is lost.
            end.namespace.run(|| write("/proc/sys/net/ipv4/tcp_wmem", "4096 65536 65536")).unwrap();
        }
        let listener =
            server.namespace.run(|| std::net::TcpListener::bind((server.address, 0)).map_err(io)).unwrap();
        let address = listener.local_addr().unwrap();
        // Bulk data in both directions of several connections: senders are moved, and acknowledgements send beside them.
        const BYTES: usize = 24 << 20;
        let copy = |stream: std::net::TcpStream| {
            let mut other = stream.try_clone().unwrap();
            std::thread::scope(|scope| {
                scope.spawn(move || other.write_all(&vec![7; BYTES]).unwrap());
                let mut stream = &stream;
                let mut buffer = vec![0; BYTES];
                stream.read_exact(&mut buffer).unwrap();
            });
        };
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let stream = client.namespace.run(|| std::net::TcpStream::connect(address).map_err(io));
                scope.spawn(move || copy(stream.unwrap()));
                let accepted = listener.accept().unwrap().0;
                scope.spawn(move || copy(accepted));
            }
        });
        for end in [client, server] {
            // Segments sent twice are no proof: on a busy machine an acknowledgement can be later than the timer.
            let out_of_order = end.namespace.run(|| Ok(counter("TCPOFOQueue"))).unwrap();
            assert_eq!(out_of_order, 0);
        }
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
