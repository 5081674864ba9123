//! The settings and counters of a wire's ends.

use serde::Serialize;

use crate::cable::End;
use crate::error::WireError;
use crate::offloads::offloads_on;
use crate::tools::{ip_json, run};

/// The settings and counters of one end of a wire.
#[derive(Clone, Debug, Serialize)]
pub struct EndState {
    /// `client` or `server`.
    pub side: &'static str,
    /// Its namespace.
    pub namespace: String,
    /// Its interface.
    pub interface: String,
    /// Its address.
    pub address: String,
    /// MTU, bytes.
    pub mtu_bytes: u64,
    /// Its queueing discipline, as `tc` names it.
    pub queue: String,
    /// Offloads that are on, of those that hide packets.
    pub offloads_on: Vec<String>,
    /// Speed and duplex, as the card says.
    pub link: String,
    /// Packets sent and received so far.
    pub packets: [u64; 2],
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

/// Reads the settings and counters of an end.
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
            offloads_on: offloads_on(&end.interface)?.map(|offload| offload.name.to_owned()).collect(),
            link: link_of(&end.interface)?,
            packets,
        })
    })
}
