//! Processors.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Processors.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CpuFacts {}
