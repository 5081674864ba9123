//! The policies by name.

use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::adaptive::Adaptive;

/// How the target sends its responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum SendPolicy {
    /// Whichever of the others is best here and now, found out by measuring.
    #[default]
    Auto,
    /// One send per response, TCP_NODELAY.
    Nodelay,
    /// One send per response with Nagle's algorithm on; what it holds back is flushed when the session goes
    /// idle, or every lull would cost a delayed ACK.
    Nagle,
    /// Nagle while many requests are served between idle moments, TCP_NODELAY otherwise (the paper).
    Adaptive(Adaptive),
    /// The responses to all requests already received leave in one send.
    Batch,
}

impl SendPolicy {
    /// One send per response with Nagle's algorithm on, and nothing flushed: the setting of [`Self::Adaptive`] with which the paper's
    /// runs with Nagle agree. A lull costs a delayed ACK.
    pub const NAGLE_UNFLUSHED: SendPolicy = SendPolicy::Adaptive(Adaptive::NAGLE_UNFLUSHED);

    /// All policies, with their default settings, for help texts and sweeps.
    pub const ALL: [SendPolicy; 5] = [
        SendPolicy::Auto,
        SendPolicy::Nodelay,
        SendPolicy::Nagle,
        SendPolicy::Adaptive(Adaptive::DEFAULT),
        SendPolicy::Batch,
    ];

    /// The name on the command line, without settings.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            SendPolicy::Auto => "auto",
            SendPolicy::Nodelay => "nodelay",
            SendPolicy::Nagle => "nagle",
            SendPolicy::NAGLE_UNFLUSHED => "nagle-unflushed",
            SendPolicy::Adaptive(_) => "adaptive",
            SendPolicy::Batch => "batch",
        }
    }

    /// Whether every response is sent immediately and individually.
    #[must_use]
    pub fn is_nodelay(self) -> bool {
        self == SendPolicy::Nodelay
    }
}

impl std::fmt::Display for SendPolicy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SendPolicy::Adaptive(a) if ![Adaptive::DEFAULT, Adaptive::NAGLE_UNFLUSHED].contains(a) => {
                write!(f, "adaptive:{}:{}", a.threshold, a.margin)
            }
            _ => f.write_str(self.name()),
        }
    }
}

impl FromStr for SendPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            format!(
                "'{text}' is not a send policy; use auto, nodelay, nagle, nagle-unflushed, adaptive[:THRESHOLD:MARGIN] or batch"
            )
        };
        if let Some(settings) = text.strip_prefix("adaptive:") {
            let (threshold, margin) = settings.split_once(':').ok_or_else(wrong)?;
            let number = |text: &str| text.parse().map_err(|_| wrong());
            return Ok(Self::Adaptive(Adaptive { threshold: number(threshold)?, margin: number(margin)? }));
        }
        Self::ALL.into_iter().chain([Self::NAGLE_UNFLUSHED]).find(|p| p.name() == text).ok_or_else(wrong)
    }
}

impl Serialize for SendPolicy {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for SendPolicy {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn policies_round_trip() {
        for policy in SendPolicy::ALL {
            assert_eq!(policy.to_string().parse(), Ok(policy));
        }
        let set = SendPolicy::Adaptive(Adaptive { threshold: 10, margin: 3 });
        assert_eq!("adaptive:10:3".parse(), Ok(set));
        assert_eq!(set.to_string(), "adaptive:10:3");
        assert_eq!("adaptive:0:0".parse(), Ok(SendPolicy::NAGLE_UNFLUSHED));
        assert_eq!(SendPolicy::NAGLE_UNFLUSHED.to_string(), "nagle-unflushed");
        for wrong in ["", "fast", "adaptive:", "adaptive:1", "adaptive:-1:2", "nagle:1:2"] {
            assert!(wrong.parse::<SendPolicy>().is_err(), "{wrong}");
        }
    }
}
