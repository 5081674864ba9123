//! A network interface.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A network interface.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct LinkFacts {}
