//! The path to a peer.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The path to a peer.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PathFacts {}
