//! The system.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The system.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct SystemFacts {
    /// Its name.
    pub hostname: String,
    /// The kernel's release: `6.18.0`.
    pub kernel: String,
    /// ID of os-release: `debian`.
    pub distribution: Option<String>,
    /// Whether the check ran as root.
    pub is_root: bool,
    /// Time since the start of the system, seconds.
    #[serde(default)]
    pub uptime_seconds: Option<u64>,
    /// The address that the caller's SSH session comes from.
    #[serde(default)]
    pub caller: Option<std::net::IpAddr>,
}
