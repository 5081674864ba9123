//! Both sides of a connection together: the server's send policy, and Nagle's algorithm on the client's side.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::SendPolicy;

/// Follows the policy's name where the client has Nagle's algorithm on.
const CLIENT_NAGLE: &str = "+client-nagle";

/// How both sides of a connection send. Its text is the policy's name, followed by `+client-nagle` where the client has
/// Nagle's algorithm on: `nodelay`, `nagle+client-nagle`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sending {
    /// The server's send policy.
    pub policy: SendPolicy,
    /// The client has Nagle's algorithm on: its requests are held as the server's responses are.
    pub client_nagle: bool,
}

impl Sending {
    /// The policy with Nagle's algorithm on the client's side.
    #[must_use]
    pub const fn with_client_nagle(policy: SendPolicy) -> Self {
        Self { policy, client_nagle: true }
    }

    /// Whether every response is sent immediately and individually.
    #[must_use]
    pub fn is_nodelay(self) -> bool {
        self.policy.is_nodelay()
    }
}

impl From<SendPolicy> for Sending {
    /// The policy with a client that has Nagle's algorithm off.
    fn from(policy: SendPolicy) -> Self {
        Self { policy, client_nagle: false }
    }
}

impl std::fmt::Display for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Padded as one text in tables.
        f.pad(&format!("{}{}", self.policy, if self.client_nagle { CLIENT_NAGLE } else { "" }))
    }
}

impl FromStr for Sending {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (policy, client_nagle) = match text.strip_suffix(CLIENT_NAGLE) {
            Some(policy) => (policy, true),
            None => (text, false),
        };
        let policy = policy
            .parse()
            .map_err(|why| format!("{why}, and {CLIENT_NAGLE} after it for a client with Nagle"))?;
        Ok(Self { policy, client_nagle })
    }
}

impl Serialize for Sending {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sending {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_policy_has_a_text_with_and_without_the_client_s_nagle() {
        for policy in SendPolicy::ALL.into_iter().chain([SendPolicy::NAGLE_UNFLUSHED]) {
            for sending in [Sending::from(policy), Sending::with_client_nagle(policy)] {
                assert_eq!(sending.to_string().parse(), Ok(sending));
            }
        }
        assert_eq!(Sending::from(SendPolicy::Nodelay).to_string(), "nodelay");
        assert_eq!(Sending::with_client_nagle(SendPolicy::Nagle).to_string(), "nagle+client-nagle");
        assert_eq!(
            "adaptive:10:3+client-nagle".parse::<Sending>().map(|sending| sending.policy),
            "adaptive:10:3".parse()
        );
        for wrong in ["", "+client-nagle", "nagle+", "nagle+client", "nagle +client-nagle", "client-nagle"] {
            let why = wrong.parse::<Sending>().unwrap_err();
            assert!(why.contains("is not a send policy") && why.contains("+client-nagle"), "{wrong}: {why}");
        }
    }
}
