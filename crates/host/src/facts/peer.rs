//! The other end of a link.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The other end of a link.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct PeerFacts {}
