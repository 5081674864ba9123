//! Forward error correction.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::bitset::Bitset;
use crate::attributes::Attributes;

const MODES: u16 = 2;
const AUTO: u16 = 3;
const ACTIVE: u16 = 4;
const COUNTERS: u16 = 5;
const CORRECTED: u16 = 2;
const UNCORRECTABLE: u16 = 3;

/// Forward error correction (IEEE 802.3 clauses 74, 91, 108).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Fec {
    /// The modes that are configured: `None`, `BASER`, `RS`, `LLRS`.
    pub configured: Vec<String>,
    /// Whether the card chooses.
    pub is_automatic: Option<bool>,
    /// The mode in use, while there is a link.
    pub active: Option<String>,
    /// Blocks that were corrected, where the driver counts them.
    pub corrected_blocks: Option<u64>,
    /// Blocks that were lost, where the driver counts them.
    pub uncorrectable_blocks: Option<u64>,
}

pub(super) fn parse(answer: Attributes<'_>, names: &[String]) -> Fec {
    // The first number of each counter is the total, those that follow are lanes.
    let counter = |kind| answer.nested(COUNTERS).and_then(|counters| counters.u64(kind));
    let active = answer.u32(ACTIVE).and_then(|bit| usize::try_from(bit).ok());
    Fec {
        configured: answer.nested(MODES).map(|set| Bitset::parse(set, names).value).unwrap_or_default(),
        is_automatic: super::flag(answer, AUTO),
        active: active.and_then(|bit| names.get(bit)).cloned(),
        corrected_blocks: counter(CORRECTED),
        uncorrectable_blocks: counter(UNCORRECTABLE),
    }
}
