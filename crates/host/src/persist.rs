//! Settings that hold after a reboot, in the files of whichever program owns an interface.
//!
//! What is to hold is a function of the change sets that are in force ([`desired`]), so that an undo of one of them leaves the
//! settings of the others. [`files`] brings the disk to it, and touches no file that another program has written or changed.

use std::collections::BTreeMap;
use std::path::PathBuf;

use serde::Serialize;

use crate::change::{Change, Setting};
use crate::journal::{ChangeSet, SetState, StepState};

pub mod files;
mod ifupdown;
mod link_file;
mod network_manager;
pub mod owner;
mod plain;

pub use owner::{Owner, OwnerFacts};

/// The first lines of every file.
pub(crate) const HEADER: &str = "# Written by `roundtrip host --persist`. Do not edit: `roundtrip host undo` removes or rewrites this file,\n\
                                 # and leaves it alone once it was edited.\n";

/// Whether a file is meant to be executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Kind {
    /// Read by a program.
    Text,
    /// Executed by one.
    Script,
}

/// A file that keeps settings.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OwnFile {
    /// Its path below the root of the system.
    pub path: PathBuf,
    /// Whether it is executed.
    pub kind: Kind,
    /// Its content.
    pub content: String,
}

/// A setting that no file can keep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Lost {
    /// The setting.
    pub setting: Setting,
    /// Why, and what to do.
    pub why: String,
}

/// What is to hold after a reboot.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Desired {
    /// The files.
    pub files: Vec<OwnFile>,
    /// Settings that no file can keep.
    pub lost: Vec<Lost>,
    /// What else to do.
    pub notes: Vec<String>,
    /// Files of interfaces that are not there now: they stay as they are.
    pub untouched: Vec<PathBuf>,
}

/// The changes of connections of NetworkManager that keep changes of interfaces which it owns.
#[must_use]
pub fn connections(changes: &[Change], owners: &BTreeMap<String, OwnerFacts>) -> Vec<Change> {
    let change = |change: &Change| {
        let facts = owners.get(change.setting.interface()?)?;
        match facts.owner() {
            Owner::NetworkManager { uuid } => network_manager::properties(&uuid, change),
            _ => None,
        }
    };
    changes.iter().filter_map(change).flatten().collect()
}

/// The settings that are to hold after a reboot, with their values, in the order of the settings.
#[must_use]
pub fn settings(sets: &[ChangeSet]) -> BTreeMap<Setting, String> {
    let in_force = sets.iter().filter(|set| set.persist && set.state == SetState::Applied);
    let steps = in_force.flat_map(|set| &set.steps);
    let done = steps.filter(|step| matches!(step.state, StepState::Done | StepState::InForce));
    done.filter(|step| !step.setting.survives_reboot())
        .map(|step| (step.setting.clone(), step.asked.clone()))
        .collect()
}

/// The files that keep settings, for the owners of their interfaces.
#[must_use]
pub fn desired(settings: &BTreeMap<Setting, String>, owners: &BTreeMap<String, OwnerFacts>) -> Desired {
    let mut desired = Desired::default();
    let (mut sysctls, mut sysfs) = (Vec::new(), Vec::new());
    let mut interfaces: BTreeMap<String, Vec<Change>> = BTreeMap::new();
    for (setting, value) in settings {
        let change = Change { setting: setting.clone(), value: value.clone() };
        match setting {
            Setting::Sysctl { .. } => sysctls.push(change),
            Setting::Sysfs { .. } => sysfs.push(change),
            Setting::InterruptAffinity { .. } => {
                desired
                    .lost
                    .push(lost(setting, "numbers of interrupts change at a reboot; tune again after it"));
            }
            _ => match setting.interfaces().pop() {
                Some(interface) => interfaces.entry(interface).or_default().push(change),
                None => desired.lost.push(lost(setting, "it names no interface")),
            },
        }
    }
    plain::sysctl(&sysctls, &mut desired);
    plain::tmpfiles(&sysfs, &mut desired);
    for (interface, changes) in interfaces {
        match owners.get(&interface).filter(|_| is_plain(&interface)) {
            Some(facts) => of_interface(facts, changes, &mut desired),
            None => {
                let why = "the interface is not there, or its name has characters that files cannot hold";
                desired.untouched.extend([link_file::path(&interface), ifupdown::path(&interface)]);
                desired.lost.extend(changes.iter().map(|change| lost(&change.setting, why)));
            }
        }
    }
    desired
}

fn of_interface(facts: &OwnerFacts, changes: Vec<Change>, desired: &mut Desired) {
    match facts.owner() {
        Owner::Ifupdown => ifupdown::hook(&facts.interface, &changes, desired),
        Owner::Udev | Owner::Networkd => link_file::link_file(facts, &changes, desired),
        Owner::NetworkManager { uuid } => {
            // What its connection cannot say, it leaves alone, and udev sets it.
            let (own, rest): (Vec<Change>, Vec<Change>) =
                changes.into_iter().partition(|change| network_manager::properties(&uuid, change).is_some());
            if !own.is_empty() {
                desired.notes.push(format!(
                    "NetworkManager sets {} when it next activates the connection {uuid}",
                    facts.interface
                ));
            }
            if !rest.is_empty() {
                link_file::link_file(facts, &rest, desired);
            }
        }
    }
}

fn lost(setting: &Setting, why: &str) -> Lost {
    Lost { setting: setting.clone(), why: why.to_owned() }
}

/// Whether an interface's name means itself in globs, shells and file names.
fn is_plain(name: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '@');
    !name.is_empty() && !name.starts_with(['-', '.']) && name.chars().all(is_plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired_for(interface: &str, owners: &[&str]) -> Desired {
        let setting = Setting::Mtu { interface: interface.to_owned() };
        let facts = |name: &&str| {
            ((*name).to_owned(), OwnerFacts { interface: (*name).to_owned(), ..OwnerFacts::default() })
        };
        desired(&BTreeMap::from([(setting, "1400".to_owned())]), &owners.iter().map(facts).collect())
    }

    /// The files of an interface that is unplugged stay until it is back.
    #[test]
    fn files_of_a_missing_interface_stay() {
        let missing = desired_for("eth4", &[]);
        assert!(missing.files.is_empty() && missing.lost.len() == 1);
        assert!(missing.untouched.contains(&PathBuf::from("etc/systemd/network/00-roundtrip-eth4.link")));
        let there = desired_for("eth4", &["eth4"]);
        assert_eq!((there.files.len(), there.untouched.len()), (1, 0));
    }

    #[test]
    fn names_that_mean_more_than_themselves_are_not_written() {
        for name in ["eth*", "a;reboot", "$(x)", "'", "..", "-a", "a b"] {
            let desired = desired_for(name, &[name]);
            assert!(desired.files.is_empty() && desired.lost.len() == 1, "{name}");
        }
    }

    #[test]
    fn values_that_would_break_a_file_are_not_written() {
        let sysctl = |name: &str| Setting::Sysctl { name: name.to_owned() };
        let sysfs = |path: &str| Setting::Sysfs { path: path.to_owned() };
        let settings = BTreeMap::from([
            (sysctl("net.a"), "1\nkernel.b = 2".to_owned()),
            (sysctl("net.c\nkernel.d"), "1".to_owned()),
            (sysctl("net.e"), String::new()),
            (sysfs("class/x y"), "1".to_owned()),
            (sysfs("class/z"), "100% \\n".to_owned()),
        ]);
        let desired = desired(&settings, &BTreeMap::new());
        assert_eq!(desired.lost.len(), 4, "{:?}", desired.lost);
        assert!(
            desired.files[0].content.ends_with("\nw /sys/class/z - - - - 100%% \\\\n\n"),
            "{}",
            desired.files[0].content
        );
    }
}
