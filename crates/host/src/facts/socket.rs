//! A TCP socket.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A TCP socket.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct SocketFacts {}
