//! What fails today, from corpus/known-misses.toml.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use serde::Deserialize;

/// One failure of one case.
#[derive(Clone, Debug, Deserialize, Eq, Ord, PartialEq, PartialOrd)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    pub case: String,
    /// `missed`, `false alarm` (healthy), `besides` (a wrong verdict on a planted capture), `gain` (no figure
    /// that was measured is in the predicted interval), `wide` (one is, but an end of it is more than 20 % away), `no gain` (none is
    /// predicted), `mended` (still accused).
    pub what: String,
    /// Kind of the verdict that is wrong or missing.
    pub kind: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}: {}", self.case, self.what, self.kind)
    }
}

#[derive(Default, Deserialize)]
struct List {
    #[serde(default)]
    miss: Vec<Fault>,
}

pub fn read(path: &Path) -> BTreeSet<Fault> {
    let text = std::fs::read_to_string(path).unwrap();
    toml::from_str::<List>(&text).unwrap().miss.into_iter().collect()
}

/// Writes the list in groups by what is wrong.
pub fn write(path: &Path, faults: &BTreeSet<Fault>) {
    let mut groups: BTreeMap<(&str, &str), Vec<&Fault>> = BTreeMap::new();
    for fault in faults {
        groups.entry((&fault.what, &fault.kind)).or_default().push(fault);
    }
    let mut text = String::from(
        "# What `analyze` gets wrong in the corpus. Entries are removed when they no longer fail; none is added to make a test pass.\n\
         # `gain`: no gain that was measured is within 20 % of what is predicted. `wide`: one is, but the prediction is an interval\n\
         # with an end further away. `no gain`: none is predicted. The last two passed before the test became stricter, and are listed since.\n",
    );
    for ((what, kind), faults) in groups {
        text += &format!("\n# {what}: {kind}\n");
        for fault in faults {
            text += &format!("[[miss]]\ncase = \"{}\"\nwhat = \"{what}\"\nkind = \"{kind}\"\n", fault.case);
        }
    }
    std::fs::write(path, text).unwrap();
}
