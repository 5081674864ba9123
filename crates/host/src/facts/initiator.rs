//! An iSCSI initiator of this host and its disks.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An iSCSI initiator of this host and its disks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct InitiatorFacts {}
