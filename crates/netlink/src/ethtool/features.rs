//! Offloads and other features of an interface.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Switch;
use super::bitset::{Bitset, Wanted, changing};
use crate::attributes::{Attributes, Builder};

const CHANGEABLE: u16 = 2;
const WANTED: u16 = 3;
const ACTIVE: u16 = 4;
const FIXED: u16 = 5;

/// Features that are on, wanted or changeable, by the kernel's names: `rx-gro`, `tx-tcp-segmentation`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct Features {
    /// Each feature's state.
    pub features: BTreeMap<String, FeatureState>,
}

/// State of a feature.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FeatureState {
    /// Whether it is in force.
    pub is_on: bool,
    /// Whether it was asked for; it is not in force then while another setting forbids it.
    pub is_wanted: bool,
    /// Whether it can be changed.
    pub is_changeable: bool,
}

impl Features {
    /// Whether a feature is in force; none where the kernel reports nothing about it.
    #[must_use]
    pub fn is_on(&self, feature: &str) -> Option<bool> {
        self.features.get(feature).map(|state| state.is_on)
    }
}

pub(super) fn request(feature: &str, state: Switch) -> Builder {
    let bits = [Wanted { name: feature, is_set: state == Switch::On }];
    Builder::new().nested(WANTED, &changing(&bits))
}

pub(super) fn parse(answer: Attributes<'_>, names: &[String]) -> Features {
    let set = |kind| answer.nested(kind).map(|set| Bitset::parse(set, names).value).unwrap_or_default();
    let mut features: BTreeMap<String, FeatureState> = names
        .iter()
        .filter(|name| !name.is_empty())
        .map(|name| (name.clone(), FeatureState::default()))
        .collect();
    for name in set(CHANGEABLE) {
        features.entry(name).or_default().is_changeable = true;
    }
    for name in set(WANTED) {
        features.entry(name).or_default().is_wanted = true;
    }
    for name in set(ACTIVE) {
        features.entry(name).or_default().is_on = true;
    }
    for name in set(FIXED) {
        features.entry(name).or_default().is_changeable = false;
    }
    Features { features }
}
