//! The system's settings of TCP.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The system's settings of TCP.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TcpFacts {}
