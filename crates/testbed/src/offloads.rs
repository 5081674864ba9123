//! Offloads that hide packets from captures: segments larger than the MTU, and checksums that a card fills in.

use crate::error::WireError;
use crate::tools::run;

/// Offloads that hide packets, as ethtool sets them.
pub(crate) const OFFLOADS: [&str; 6] = ["tso", "gso", "gro", "tx", "rx", "sg"];

/// Switches offloads `on` or `off`.
pub(crate) fn switch_offloads(interface: &str, names: &[&str], to: &str) -> Result<(), WireError> {
    let switches = names.iter().flat_map(|name| [*name, to]);
    let arguments: Vec<&str> = ["-K", interface].into_iter().chain(switches).collect();
    run("ethtool", &arguments).map(drop)
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

/// The offloads that are on, each as ethtool sets it and as it names it.
pub(crate) fn offloads_on(
    interface: &str,
) -> Result<impl Iterator<Item = (&'static str, &'static str)>, WireError> {
    let features = run("ethtool", &["-k", interface])?;
    Ok(OFFLOADS.into_iter().zip(OFFLOAD_NAMES).filter(move |(_, name)| {
        features.lines().any(|line| line.trim().starts_with(&format!("{name}: on")))
    }))
}
