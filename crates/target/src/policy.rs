//! Send policies: when responses leave (the paper, "Nagle's Algorithm").

use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How the target sends its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SendPolicy {
    /// One send per response, TCP_NODELAY.
    #[default]
    Nodelay,
    /// One send per response with Nagle's algorithm on; what it holds back is flushed when the session goes
    /// idle, or every lull would cost a delayed ACK.
    Nagle,
}

impl SendPolicy {
    /// All policies, for help texts and sweeps.
    pub const ALL: [SendPolicy; 2] = [SendPolicy::Nodelay, SendPolicy::Nagle];

    /// The name on the command line.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SendPolicy::Nodelay => "nodelay",
            SendPolicy::Nagle => "nagle",
        }
    }
}

impl std::fmt::Display for SendPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for SendPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|p| p.name() == text).ok_or_else(|| {
            format!("'{text}' is no send policy; use {}", Self::ALL.map(SendPolicy::name).join(" or "))
        })
    }
}
