//! Changes and a journal for tests of real kernel objects, in namespaces of their own.

#![allow(clippy::unwrap_used, unreachable_pub, reason = "a test fails by panicking")]

use host::change::{Change, Setting};
use host::journal::Journal;
use testing::{inside_namespaces, sh};

/// Whether the test runs in its namespaces, and not only starts itself there.
pub fn inside() -> bool {
    inside_namespaces("mount -t sysfs sysfs /sys")
}

pub fn tap(name: &str) {
    sh(&format!("ip tuntap add {name} mode tap && ip link set {name} up"));
}

pub fn change(setting: Setting, value: &str) -> Change {
    Change { setting, value: value.to_owned() }
}

pub fn modes(interface: &str, value: &str) -> Change {
    change(Setting::LinkModes { interface: interface.to_owned() }, value)
}

pub fn mtu(interface: &str, value: &str) -> Change {
    change(Setting::Mtu { interface: interface.to_owned() }, value)
}

pub fn sysctl(name: &str, value: &str) -> Change {
    change(Setting::Sysctl { name: name.to_owned() }, value)
}

pub fn sysfs(path: &str, value: &str) -> Change {
    change(Setting::Sysfs { path: path.to_owned() }, value)
}

pub fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(folder.path());
    (folder, journal)
}
