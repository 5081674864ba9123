//! Sets of names: which bit of a bitset means what.

use std::fmt;

use crate::attributes::{Attributes, Builder};

/// A set of names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(super) enum StringSet {
    /// Offloads and other features.
    Features = 4,
    /// Link modes.
    LinkModes = 9,
}

impl fmt::Display for StringSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self == Self::Features { "features" } else { "link modes" })
    }
}

/// Sets that were read.
#[derive(Debug, Default)]
pub(super) struct Strings {
    features: Option<Vec<String>>,
    link_modes: Option<Vec<String>>,
}

impl Strings {
    fn place(&mut self, set: StringSet) -> &mut Option<Vec<String>> {
        match set {
            StringSet::Features => &mut self.features,
            StringSet::LinkModes => &mut self.link_modes,
        }
    }

    pub(super) fn get(&mut self, set: StringSet) -> Option<Vec<String>> {
        self.place(set).clone()
    }

    pub(super) fn learn(&mut self, set: StringSet, names: Vec<String>) -> Vec<String> {
        self.place(set).insert(names).clone()
    }
}

const HEADER: u16 = 1;
const SETS: u16 = 2;
const SET: u16 = 1;
const ID: u16 = 1;
const STRINGS: u16 = 3;
const STRING: u16 = 1;
const INDEX: u16 = 1;
const VALUE: u16 = 2;

/// More names than any set has; an index beyond is ignored, so that an answer cannot ask for memory.
const MOST: usize = 4096;

pub(super) fn request(set: StringSet) -> Builder {
    let sets = Builder::new().nested(SET, &Builder::new().u32(ID, set as u32));
    Builder::new().nested(HEADER, &Builder::new()).nested(SETS, &sets)
}

/// The names of a set, at their index; a missing one is empty.
pub(super) fn parse(answer: Attributes<'_>, set: u32) -> Vec<String> {
    let mut names = Vec::new();
    let sets = answer.nested(SETS).into_iter().flat_map(Attributes::iter);
    let sets = sets.filter(|(kind, _)| *kind == SET).map(|(_, bytes)| Attributes::new(bytes));
    for wanted in sets.filter(|found| found.u32(ID) == Some(set)) {
        for (_, bytes) in
            wanted.nested(STRINGS).into_iter().flat_map(Attributes::iter).filter(|(k, _)| *k == STRING)
        {
            let string = Attributes::new(bytes);
            let index = string.u32(INDEX).and_then(|index| usize::try_from(index).ok());
            let Some(index) = index.filter(|index| *index < MOST) else { continue };
            if names.len() <= index {
                names.resize(index + 1, String::new());
            }
            names[index] = string.text(VALUE).unwrap_or_default();
        }
    }
    names
}
