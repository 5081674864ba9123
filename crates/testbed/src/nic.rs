//! Network cards: which may be moved, and their settings before the move.

use serde::{Deserialize, Serialize};

use crate::cable::{QueueCpus, queue_cpus};
use crate::error::WireError;
use crate::interrupts::{self, Interrupt};
use crate::offloads::{offloads_on, switch_on};
use crate::tools::{ip_json, run};

/// A card and its settings before the move.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Nic {
    /// Its interface.
    pub interface: String,
    /// MTU, bytes.
    pub mtu_bytes: u64,
    /// Whether it was up.
    pub is_up: bool,
    /// Its addresses with their prefixes, but for those that the kernel makes itself.
    pub addresses: Vec<String>,
    /// Offloads that hide packets and were on, as ethtool sets them.
    pub offloads_on: Vec<String>,
    /// The CPUs that its queues receive on and send from, as sysfs has them.
    pub queue_cpus: Vec<QueueCpus>,
    /// Its interrupts, and the CPUs that each may go to.
    pub interrupts: Vec<Interrupt>,
}

impl Nic {
    /// Reads the settings of a card that may be moved.
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
                return refuse("a default route goes over it: moving it would disconnect the machine");
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
                return refuse("your login goes over it: moving it would disconnect you");
            }
            if let Some(peer) = login.split_whitespace().next()
                && ip_json(&["route", "get", peer]).is_ok_and(|route| route[0]["dev"] == interface)
            {
                return refuse("your login goes over it: moving it would disconnect you");
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
            offloads_on: offloads_on(interface)?.map(|offload| offload.key.to_owned()).collect(),
            queue_cpus: queue_cpus(interface),
            interrupts: interrupts::of(interface),
        })
    }

    /// Moves the card from a namespace to the caller's and restores its settings.
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
            // It was never moved and has disappeared since.
            return Ok(());
        }
        run("ip", &["link", "set", interface, "mtu", &self.mtu_bytes.to_string()])?;
        // One at a time: a card that rejects one of them still gets the others.
        for name in &self.offloads_on {
            let _ = switch_on(interface, name);
        }
        for QueueCpus { file, cpus } in &self.queue_cpus {
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
