//! Offloads that hide packets from captures: segments larger than the MTU, and checksums that a card fills in.

use crate::error::WireError;
use crate::tools::run;

/// An offload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Offload {
    /// The name by which `ethtool -K` sets it.
    pub(crate) key: &'static str,
    /// The name that `ethtool -k` prints.
    pub(crate) name: &'static str,
}

/// The offloads that hide packets.
pub(crate) const OFFLOADS: [Offload; 6] = [
    Offload { key: "tso", name: "tcp-segmentation-offload" },
    Offload { key: "gso", name: "generic-segmentation-offload" },
    Offload { key: "gro", name: "generic-receive-offload" },
    Offload { key: "tx", name: "tx-checksumming" },
    Offload { key: "rx", name: "rx-checksumming" },
    Offload { key: "sg", name: "scatter-gather" },
];

/// Switches the offloads with these keys `on` or `off`.
fn switch(interface: &str, keys: &[&str], to: &str) -> Result<(), WireError> {
    let switches = keys.iter().flat_map(|key| [*key, to]);
    let arguments: Vec<&str> = ["-K", interface].into_iter().chain(switches).collect();
    run("ethtool", &arguments).map(drop)
}

/// Switches all of them off.
pub(crate) fn switch_off(interface: &str) -> Result<(), WireError> {
    switch(interface, &OFFLOADS.map(|offload| offload.key), "off")
}

/// Switches the offload with this key on.
pub(crate) fn switch_on(interface: &str, key: &str) -> Result<(), WireError> {
    switch(interface, &[key], "on")
}

/// The offloads that are on.
pub(crate) fn offloads_on(interface: &str) -> Result<impl Iterator<Item = Offload>, WireError> {
    let features = run("ethtool", &["-k", interface])?;
    Ok(OFFLOADS.into_iter().filter(move |offload| {
        features.lines().any(|line| line.trim().starts_with(&format!("{}: on", offload.name)))
    }))
}
