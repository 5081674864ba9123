//! Network cards: which may be moved, how they were, and what they count.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cable::{Cable, End, OFFLOADS, queue_cpus, switch_offloads};
use crate::error::WireError;
use crate::interrupts::{self, Interrupt};
use crate::named::EndState;
use crate::tools::run;

/// A card as it was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its interface.
    pub interface: String,
    /// MTU, bytes.
    pub mtu_bytes: u64,
    /// It was up.
    pub is_up: bool,
    /// Its addresses with their prefixes, but for those that the kernel makes itself.
    pub addresses: Vec<String>,
    /// Offloads that hide packets and were on, as ethtool sets them.
    pub offloads_on: Vec<String>,
    /// The CPUs that its queues receive on and send from, as sysfs has them.
    pub queue_cpus: Vec<(String, String)>,
    /// Its interrupts, and the CPUs that each may go to.
    pub interrupts: Vec<Interrupt>,
}

/// What `ip` says as JSON.
fn ip_json(arguments: &[&str]) -> Result<Value, WireError> {
    let text = run("ip", &[&["-j"], arguments].concat())?;
    let io = |error: serde_json::Error| WireError::Io {
        what: "reading what ip prints".into(),
        source: error.into(),
    };
    // Nothing is an empty list.
    if text.trim().is_empty() {
        Ok(Value::Array(Vec::new()))
    } else {
        serde_json::from_str(&text).map_err(io)
    }
}

impl Nic {
    /// Looks at a card, and refuses one that must not be moved.
    ///
    /// # Errors
    /// When there is none of that name, or a default route or the caller's login goes over it.
    pub fn look(interface: &str) -> Result<Self, WireError> {
        let refuse = |why| Err(WireError::Nic { interface: interface.to_owned(), why });
        let Ok(found) = ip_json(&["address", "show", "dev", interface]) else {
            return refuse("there is no such interface; `ip link` lists them");
        };
        let link = &found[0];
        if link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "LOOPBACK")) {
            return refuse("it is the loopback interface");
        }
        for family in ["-4", "-6"] {
            let routes = ip_json(&[family, "route", "show", "default"])?;
            if routes.as_array().is_some_and(|all| all.iter().any(|route| route["dev"] == interface)) {
                return refuse("a default route goes over it: whoever moves it cuts the machine off");
            }
        }
        let addresses: Vec<(String, u64, bool)> = link["addr_info"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|info| {
                let is_kernels = info["scope"] == "link";
                Some((info["local"].as_str()?.to_owned(), info["prefixlen"].as_u64()?, is_kernels))
            })
            .collect();
        // "client port server port": the address that the caller came in by.
        if let Ok(login) = std::env::var("SSH_CONNECTION")
            && let Some(own) = login.split_whitespace().nth(2)
        {
            if addresses.iter().any(|(address, ..)| address == own) {
                return refuse("your login goes over it: whoever moves it is cut off");
            }
            if let Some(peer) = login.split_whitespace().next()
                && ip_json(&["route", "get", peer]).is_ok_and(|route| route[0]["dev"] == interface)
            {
                return refuse("your login goes over it: whoever moves it is cut off");
            }
        }
        Ok(Self {
            interface: interface.to_owned(),
            mtu_bytes: link["mtu"].as_u64().unwrap_or(1500),
            is_up: link["flags"].as_array().is_some_and(|flags| flags.iter().any(|flag| flag == "UP")),
            addresses: addresses
                .into_iter()
                .filter(|(_, _, is_kernels)| !is_kernels)
                .map(|(address, prefix, _)| format!("{address}/{prefix}"))
                .collect(),
            offloads_on: offloads_on(interface)?.map(|(set, _)| set.to_owned()).collect(),
            queue_cpus: queue_cpus(interface),
            interrupts: interrupts::of(interface),
        })
    }

    /// Moves the card out of a namespace to the caller's, and sets it as it was.
    pub(crate) fn give_back(&self, namespace: &str) -> Result<(), WireError> {
        let interface = &*self.interface;
        let is_there = std::path::Path::new("/run/netns").join(namespace).exists()
            && run("ip", &["-n", namespace, "link", "show", "dev", interface]).is_ok();
        if is_there {
            // The shaper and the address stay behind.
            let _ = run("tc", &["-n", namespace, "qdisc", "del", "dev", interface, "root"]);
            run(
                "ip",
                &["-n", namespace, "link", "set", interface, "netns", &std::process::id().to_string()],
            )?;
        }
        if run("ip", &["link", "show", "dev", interface]).is_err() {
            // It was never moved, and is gone by itself.
            return Ok(());
        }
        run("ip", &["link", "set", interface, "mtu", &self.mtu_bytes.to_string()])?;
        // One by one: a card that cannot be told one of them keeps the others.
        for name in &self.offloads_on {
            let _ = switch_offloads(interface, &[name], "on");
        }
        for (file, cpus) in &self.queue_cpus {
            // A card of one queue has files that cannot be written.
            let _ = std::fs::write(format!("/sys/class/net/{interface}/queues/{file}"), cpus);
        }
        interrupts::give_back(&self.interrupts);
        if self.is_up {
            run("ip", &["link", "set", interface, "up"])?;
        }
        for address in &self.addresses {
            run("ip", &["address", "replace", address, "dev", interface])?;
        }
        Ok(())
    }
}

/// Offloads that hide packets, as ethtool names those that [`OFFLOADS`] sets.
const OFFLOAD_NAMES: [&str; 6] = [
    "tcp-segmentation-offload",
    "generic-segmentation-offload",
    "generic-receive-offload",
    "tx-checksumming",
    "rx-checksumming",
    "scatter-gather",
];

/// Those that are on, as ethtool sets and as it names them.
fn offloads_on(interface: &str) -> Result<impl Iterator<Item = (&'static str, &'static str)>, WireError> {
    let features = run("ethtool", &["-k", interface])?;
    Ok(OFFLOADS.into_iter().zip(OFFLOAD_NAMES).filter(move |(_, name)| {
        features.lines().any(|line| line.trim().starts_with(&format!("{name}: on")))
    }))
}

/// Speed and duplex, as ethtool prints them.
fn link_of(interface: &str) -> Result<String, WireError> {
    let all = run("ethtool", &[interface])?;
    let of = |key: &str| {
        all.lines()
            .find_map(|line| Some(line.trim().strip_prefix(key)?.trim().to_owned()))
            .unwrap_or_default()
    };
    Ok(format!("{} {}", of("Speed:"), of("Duplex:").to_lowercase()))
}

/// Packets that an end sent and received so far.
pub(crate) fn packets(end: &End) -> Result<[u64; 2], WireError> {
    end.namespace.run(|| {
        let link = ip_json(&["-s", "link", "show", "dev", &end.interface])?;
        let of = |way: &str| link[0]["stats64"][way]["packets"].as_u64().unwrap_or(0);
        Ok([of("tx"), of("rx")])
    })
}

/// How an end is set.
pub(crate) fn end_state(side: &'static str, namespace: String, end: &End) -> Result<EndState, WireError> {
    let packets = packets(end)?;
    end.namespace.run(|| {
        let link = ip_json(&["address", "show", "dev", &end.interface])?;
        let queue = run("tc", &["qdisc", "show", "dev", &end.interface])?;
        Ok(EndState {
            side,
            namespace,
            interface: end.interface.clone(),
            address: end.address.to_string(),
            mtu_bytes: link[0]["mtu"].as_u64().unwrap_or(0),
            queue: queue.lines().next().unwrap_or_default().trim_start_matches("qdisc ").trim().to_owned(),
            offloads_on: offloads_on(&end.interface)?.map(|(_, name)| name.to_owned()).collect(),
            link: link_of(&end.interface)?,
            packets,
        })
    })
}

/// Makes exchanges of 64 B each way over a cable.
pub(crate) fn exchange(cable: &Cable, count: u64) -> Result<(), WireError> {
    let io = |what: &'static str| move |source| WireError::Io { what: what.to_owned(), source };
    const PATIENCE: Duration = Duration::from_secs(5);
    let address: IpAddr = cable.server.address;
    let listener = cable.server.namespace.run(|| TcpListener::bind((address, 0)).map_err(io("listening")))?;
    let port = listener.local_addr().map_err(io("listening"))?.port();
    let answers = std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut bytes = [0; 64];
        for _ in 0..count {
            stream.read_exact(&mut bytes)?;
            stream.write_all(&bytes)?;
        }
        Ok(())
    });
    let asked = cable.client.namespace.run(|| {
        let what = "an exchange over the wire";
        let mut stream = TcpStream::connect_timeout(&(address, port).into(), PATIENCE).map_err(io(what))?;
        stream.set_nodelay(true).map_err(io(what))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(io(what))?;
        let mut bytes = [0; 64];
        for _ in 0..count {
            stream.write_all(&bytes).map_err(io(what))?;
            stream.read_exact(&mut bytes).map_err(io(what))?;
        }
        Ok(())
    });
    asked?;
    match answers.join() {
        Ok(Ok(())) => Ok(()),
        Ok(Err(source)) => Err(WireError::Io { what: "an exchange over the wire".into(), source }),
        Err(_) => {
            let source = std::io::Error::other("the thread panicked");
            Err(WireError::Io { what: "an exchange over the wire".into(), source })
        }
    }
}
