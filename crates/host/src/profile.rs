//! Named sets of settings, each with its reason.
//!
//! A profile is a file that people read: every value has a `why`. It is parsed strictly, so that a misspelt key does not become a
//! setting that silently is missing.

use serde::{Deserialize, Serialize};

use crate::apply::files::Tree;
use crate::apply::{CHANGE_LIMIT, Kernel};
use crate::change::{Change, Setting};
use crate::error::ChangeError;

/// The profiles of the program, by name.
const PROFILES: [(&str, &str); 4] = [
    ("storage-1g", include_str!("../profiles/storage-1g.toml")),
    ("storage-10g", include_str!("../profiles/storage-10g.toml")),
    ("storage-25g", include_str!("../profiles/storage-25g.toml")),
    ("low-latency", include_str!("../profiles/low-latency.toml")),
];

/// Stands for the interface that the user names.
const INTERFACE: &str = "INTERFACE";

/// A profile.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// Its name.
    pub name: String,
    /// What it is for, in one sentence.
    pub summary: String,
    /// The rate that it is made for, bits per second.
    pub bits_per_second: u64,
    /// The longest round trip for which its buffers hold a full window, microseconds.
    pub round_trip_us: u64,
    /// The settings in their order.
    #[serde(rename = "setting")]
    pub settings: Vec<Entry>,
}

/// A setting of a profile.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Entry {
    /// What to set. `INTERFACE` stands for the interface that the user names, and a `*` in a path for every name.
    pub set: Setting,
    /// Its value.
    pub value: String,
    /// Whether a larger value may stay.
    #[serde(default)]
    pub rule: Rule,
    /// Why this value.
    pub why: String,
}

/// Which values satisfy a setting of a profile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Rule {
    /// Only this one.
    #[default]
    Exactly,
    /// Each number of the value at least; larger ones stay.
    AtLeast,
}

/// The changes of a profile on this system.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expanded {
    /// The changes, in order.
    pub changes: Vec<Change>,
    /// Settings that are left out here, with the reason.
    pub left_out: Vec<LeftOut>,
}

/// A setting of a profile that is left out.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// The setting as the profile has it.
    pub setting: String,
    /// Why it is left out.
    pub why: String,
}

/// The names of the profiles.
pub fn names() -> impl Iterator<Item = &'static str> {
    PROFILES.iter().map(|(name, _)| *name)
}

/// The profile of a name.
///
/// # Errors
/// When there is none.
pub fn profile(name: &str) -> Result<Profile, ChangeError> {
    let wrong = |why: String| ChangeError::Profile { name: name.to_owned(), why };
    let text =
        text(name).ok_or_else(|| wrong(format!("there are {}", names().collect::<Vec<_>>().join(", "))))?;
    Profile::parse(name, text)
}

/// The file of a profile.
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    PROFILES.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

impl Profile {
    /// Reads a profile.
    ///
    /// # Errors
    /// When it is not TOML of a profile, a key is unknown, or a setting has no value or no reason.
    pub fn parse(name: &str, text: &str) -> Result<Self, ChangeError> {
        let wrong = |why: String| ChangeError::Profile { name: name.to_owned(), why };
        let profile: Self = toml::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if profile.name != name {
            return Err(wrong(format!("it calls itself {}", profile.name)));
        }
        if let Some(entry) =
            profile.settings.iter().find(|entry| entry.why.trim().is_empty() || entry.value.is_empty())
        {
            return Err(wrong(format!("{} has no value or no why", entry.set)));
        }
        Ok(profile)
    }

    /// Bytes in flight at its rate and round trip.
    #[must_use]
    pub fn bandwidth_delay_bytes(&self) -> u64 {
        self.bits_per_second / 8 * self.round_trip_us / 1_000_000
    }

    /// The changes on a system: settings that it lacks are left out with the reason, larger values stay where the rule says so.
    #[must_use]
    pub fn expand(&self, kernel: &impl Kernel, sysfs: &Tree, interface: Option<&str>) -> Expanded {
        let mut expanded = Expanded::default();
        for entry in &self.settings {
            let settings = match with_interface(&entry.set, interface) {
                Some(Setting::Sysfs { path }) if path.contains('*') => sysfs
                    .matches(&path, CHANGE_LIMIT)
                    .into_iter()
                    .map(|path| Setting::Sysfs { path })
                    .collect(),
                Some(setting) => vec![setting],
                None => {
                    expanded.leave_out(&entry.set, "name the storage interface with --interface");
                    continue;
                }
            };
            if settings.is_empty() {
                expanded.leave_out(&entry.set, "this system has no such file");
            }
            for setting in settings {
                match kernel.read(&setting) {
                    Ok(in_force) => {
                        let value = entry.rule.value(&entry.value, &in_force);
                        match kernel.obstacle(&setting, &value) {
                            Some(why) => expanded.leave_out(&setting, &why),
                            None => expanded.changes.push(Change { setting, value }),
                        }
                    }
                    Err(error) => expanded.leave_out(&setting, &error.to_string()),
                }
            }
        }
        expanded
    }
}

impl Expanded {
    fn leave_out(&mut self, setting: &Setting, why: &str) {
        self.left_out.push(LeftOut { setting: setting.to_string(), why: why.to_owned() });
    }
}

impl Rule {
    /// The value to set where another is in force.
    fn value(self, wanted: &str, in_force: &str) -> String {
        let numbers = |text: &str| {
            text.split_whitespace().map(|word| word.parse::<u64>().ok()).collect::<Option<Vec<_>>>()
        };
        match (self, numbers(wanted), numbers(in_force)) {
            (Self::AtLeast, Some(wanted), Some(in_force)) if wanted.len() == in_force.len() => {
                let larger = wanted.iter().zip(&in_force).map(|(a, b)| a.max(b).to_string());
                larger.collect::<Vec<_>>().join(" ")
            }
            _ => wanted.to_owned(),
        }
    }
}

/// The setting of the named interface; none where it needs one and none is named.
fn with_interface(setting: &Setting, interface: Option<&str>) -> Option<Setting> {
    let mut setting = setting.clone();
    let name = match &mut setting {
        Setting::LinkModes { interface }
        | Setting::Mtu { interface }
        | Setting::Coalescing { interface, .. }
        | Setting::Ring { interface, .. }
        | Setting::Feature { interface, .. }
        | Setting::Pause { interface }
        | Setting::EnergyEfficientEthernet { interface } => interface,
        Setting::Sysfs { path } if path.split('/').any(|part| part == INTERFACE) => {
            let parts: Vec<&str> = path.split('/').collect();
            let named = parts.iter().map(|part| if *part == INTERFACE { interface } else { Some(*part) });
            *path = named.collect::<Option<Vec<_>>>()?.join("/");
            return Some(setting);
        }
        _ => return Some(setting),
    };
    if name == INTERFACE {
        interface?.clone_into(name);
    }
    Some(setting)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all() -> Vec<Profile> {
        names().map(|name| profile(name).unwrap()).collect()
    }

    fn last_number(profile: &Profile, sysctl: &str) -> Option<u64> {
        let is = |entry: &&Entry| entry.set == Setting::Sysctl { name: sysctl.to_owned() };
        profile.settings.iter().find(is)?.value.split_whitespace().last()?.parse().ok()
    }

    #[test]
    fn every_setting_of_a_profile_says_why() {
        for profile in all() {
            assert!(profile.settings.len() >= 5 && profile.summary.len() > 20, "{}", profile.name);
            for entry in &profile.settings {
                assert!(
                    entry.why.split_whitespace().count() >= 4,
                    "{}: {}: '{}'",
                    profile.name,
                    entry.set,
                    entry.why
                );
            }
        }
    }

    #[test]
    fn no_setting_of_a_profile_is_there_twice() {
        for profile in all() {
            for (at, entry) in profile.settings.iter().enumerate() {
                assert!(profile.settings[..at].iter().all(|other| other.set != entry.set), "{}", entry.set);
            }
        }
    }

    #[test]
    fn buffers_hold_bandwidth_times_delay() {
        for (name, bytes) in [("storage-1g", 125_000), ("storage-10g", 1_250_000), ("storage-25g", 3_125_000)]
        {
            let profile = profile(name).unwrap();
            let in_flight = profile.bandwidth_delay_bytes();
            assert_eq!(in_flight, bytes, "{name}");
            let receive = last_number(&profile, "net.ipv4.tcp_rmem").unwrap();
            assert!(receive >= 4 * in_flight, "{name}: {receive}");
            let send = last_number(&profile, "net.ipv4.tcp_wmem").unwrap();
            assert!(send >= 2 * in_flight, "{name}: {send}");
            for asked in ["net.core.rmem_max", "net.core.wmem_max"] {
                assert!(last_number(&profile, asked).unwrap() >= 4 * in_flight, "{name}: {asked}");
            }
            // More than sixteen windows for each connection is memory for nothing, but for what the kernel takes by default.
            assert!(receive <= (16 * in_flight).max(6_291_456), "{name}: {receive}");
        }
    }

    #[test]
    fn a_backlog_holds_a_millisecond() {
        for name in ["storage-10g", "storage-25g"] {
            let profile = profile(name).unwrap();
            // 1538 bytes on the wire for each packet of 1500.
            let packets = profile.bits_per_second / 1000 / (1538 * 8);
            assert!(last_number(&profile, "net.core.netdev_max_backlog").unwrap() >= 2 * packets, "{name}");
        }
    }

    #[test]
    fn a_wrong_profile_is_an_error() {
        let good = "name = \"x\"\nsummary = \"s\"\nbits_per_second = 1\nround_trip_us = 1\n\
                    [[setting]]\nset = { kind = \"sysctl\", name = \"a.b\" }\nvalue = \"1\"\nwhy = \"because\"\n";
        assert!(Profile::parse("x", good).is_ok());
        for (from, to, word) in [
            ("why = ", "reason = ", "reason"),
            ("value = \"1\"", "value = \"\"", "no value"),
            ("\"because\"", "\" \"", "no why"),
            ("name = \"a.b\"", "name = \"a.b\", more = 1", "more"),
            ("\"sysctl\"", "\"sysctls\"", "sysctls"),
            ("summary", "sumary", "sumary"),
            ("name = \"x\"", "name = \"y\"", "calls itself y"),
            ("value", "rule = \"at-most\"\nvalue", "at-most"),
        ] {
            let error = Profile::parse("x", &good.replacen(from, to, 1)).unwrap_err().to_string();
            assert!(error.contains(word), "{from}: {error}");
        }
        assert!(profile("storage-100g").unwrap_err().to_string().contains("storage-25g"));
    }

    #[test]
    fn larger_buffers_stay() {
        for (wanted, in_force, value) in [
            ("4096 131072 6291456", "4096\t262144\t4194304", "4096 262144 6291456"),
            ("8", "16", "16"),
            ("16", "8", "16"),
            ("1 2", "1 2 3", "1 2"),
            ("on", "off", "on"),
        ] {
            assert_eq!(Rule::AtLeast.value(wanted, in_force), value);
            assert_eq!(Rule::Exactly.value(wanted, in_force), wanted);
        }
    }

    #[test]
    fn the_interface_is_the_users() {
        let mtu = Setting::Mtu { interface: INTERFACE.to_owned() };
        assert_eq!(with_interface(&mtu, Some("eth4")), Some(Setting::Mtu { interface: "eth4".to_owned() }));
        assert_eq!(with_interface(&mtu, None), None);
        let path = Setting::Sysfs { path: "class/net/INTERFACE/queues/rx-0/rps_cpus".to_owned() };
        let named = Setting::Sysfs { path: "class/net/eth4/queues/rx-0/rps_cpus".to_owned() };
        assert_eq!(with_interface(&path, Some("eth4")), Some(named));
        assert_eq!(with_interface(&path, None), None);
        let sysctl = Setting::Sysctl { name: "net.ipv4.tcp_rmem".to_owned() };
        assert_eq!(with_interface(&sysctl, None), Some(sysctl));
    }
}
