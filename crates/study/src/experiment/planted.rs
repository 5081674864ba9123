//! What a case plants in a run: layers over the disk, and a second load.

use std::fmt;
use std::time::Duration;

use load::Pattern;
use serde::{Deserialize, Serialize};
use store::layer::LayerSpec;

use super::Case;
use crate::values::{size, time};

/// Another load on the same hosts, against a target and a disk of its own, in a part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct SecondLoad {
    /// Access pattern.
    pub rw: Pattern,
    /// Bytes of an operation.
    #[serde(deserialize_with = "size")]
    pub block: u64,
    /// Operations in flight.
    pub depth: u32,
    /// When it begins, after the start of the run.
    #[serde(deserialize_with = "time")]
    pub from: Duration,
    /// When it ends, after the start of the run.
    #[serde(deserialize_with = "time")]
    pub to: Duration,
}

impl fmt::Display for SecondLoad {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rw, block, depth, from, to } = self;
        write!(f, "a second load of {} of {block} B at depth {depth}, from {from:?} to {to:?}", rw.name())
    }
}

impl Case {
    /// The layers over its disk.
    pub(super) fn parsed_layers(&self) -> Result<Vec<LayerSpec>, String> {
        let read = |text: &String| {
            text.parse().map_err(|()| format!("layer '{text}': docs/durability.md has the layers"))
        };
        self.layers.iter().map(read).collect()
    }

    /// Checks what it plants against the time of a run.
    pub(super) fn check_planted(&self, runtime: Duration) -> Result<(), String> {
        self.parsed_layers()?;
        let Some(SecondLoad { block, depth, from, to, .. }) = &self.second else { return Ok(()) };
        if from >= to || *to > runtime {
            return Err(format!("second: from {from:?} to {to:?} is not within a run of {runtime:?}"));
        }
        if !block.is_multiple_of(512) || !(512..=16 << 20).contains(block) || !(1..=1024).contains(depth) {
            return Err("second: blocks are multiples of 512 B up to 16 MiB, depths 1 to 1024".to_owned());
        }
        Ok(())
    }

    /// What it plants, a sentence each.
    #[must_use]
    pub fn planted(&self) -> Vec<String> {
        let layers = self.parsed_layers().unwrap_or_default();
        let texts = self.layers.iter().zip(layers).map(|(text, layer)| match layer {
            LayerSpec::Extra(extra) => format!("in the disk, so in the server's time: {extra}"),
            _ => format!("in the disk: {text}"),
        });
        texts.chain(self.second.as_ref().map(ToString::to_string)).collect()
    }
}
