//! The result of a check, as `roundtrip host check --json` prints it and as another host's check is read.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::facts::Facts;
use crate::finding::Finding;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Checked {
    /// What was read.
    pub facts: Facts,
    /// What is wrong, the worst first.
    pub findings: Vec<Finding>,
}
