//! The files that udev, ifupdown, sysctl and tmpfiles read, applied by these programs in network and mount namespaces of their own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use common::{change, inside, journal, modes, mtu, sysctl, sysfs, tap};
use host::apply::{Kernel as _, System};
use host::change::{Change, Setting};
use host::journal::Journal;
use host::persist::{self, Desired, OwnerFacts, files};
use host::undo::Overwrite;
use testing::sh;

const PARAMETERS: [(&str, &str); 3] = [
    ("net.ipv4.tcp_rmem", "4096 65536 1048576"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.conf.lo.rp_filter", "2"),
];

fn desired(changes: &[Change], facts: &OwnerFacts) -> Desired {
    let settings = changes.iter().map(|change| (change.setting.clone(), change.value.clone())).collect();
    persist::desired(&settings, &BTreeMap::from([(facts.interface.clone(), facts.clone())]))
}

/// Private folders where the tests may write what the system's programs read.
fn private_etc() {
    sh(
        "for d in /etc/systemd/network /etc/network /etc/sysctl.d /etc/tmpfiles.d /run; do mkdir -p $d; mount -t tmpfs tmpfs $d; done; mkdir /run/udev",
    );
}

fn sync(journal: &Journal, desired: &Desired) -> files::Synced {
    files::sync(journal, &journal.lock().unwrap(), Path::new("/"), desired, Overwrite::Own).unwrap()
}

#[test]
fn udev_applies_the_link_file() {
    if !testing::require("udevadm", Path::new("/usr/bin/udevadm").exists()) || !inside() {
        return;
    }
    private_etc();
    tap("tap0");
    let facts = OwnerFacts::read(Path::new("/"), "tap0").unwrap();
    let (_folder, journal) = journal();
    let feature = Setting::Feature { interface: "tap0".to_owned(), feature: "rx-gro".to_owned() };
    let frames = Setting::Coalescing { interface: "tap0".to_owned(), parameter: "rx-frames".to_owned() };
    let changes = [
        modes("tap0", "autoneg=off speed=100 duplex=half"),
        mtu("tap0", "1400"),
        change(feature, "off"),
        change(frames, "16"),
    ];
    let desired = desired(&changes, &facts);
    assert!(desired.lost.is_empty(), "{:?}", desired.lost);
    let synced = sync(&journal, &desired);
    assert_eq!(synced.written, [Path::new("/etc/systemd/network/00-roundtrip-tap0.link")]);
    let out = sh("SYSTEMD_LOG_LEVEL=debug udevadm test-builtin net_setup_link /sys/class/net/tap0 2>&1");
    assert!(out.contains("00-roundtrip-tap0.link is applied"), "{out}");
    for complaint in ["Unknown key", "Failed to parse", "Invalid", "ignoring assignment"] {
        let about_ours = |line: &&str| line.contains(complaint) && line.contains("00-roundtrip");
        assert_eq!(out.lines().find(about_ours), None, "{out}");
    }
    let shown = sh("ethtool tap0; ethtool -k tap0; ethtool -c tap0; ip -o link show tap0");
    for text in ["Speed: 100Mb/s", "Duplex: Half", "generic-receive-offload: off", "mtu 1400"] {
        assert!(shown.contains(text), "{text}: {shown}");
    }
    assert!(shown.lines().any(|line| line.starts_with("rx-frames:") && line.ends_with("16")), "{shown}");
    let synced = sync(&journal, &Desired::default());
    assert_eq!(synced.removed, [Path::new("/etc/systemd/network/00-roundtrip-tap0.link")]);
    assert_eq!(sh("ls /etc/systemd/network"), "");
}

/// Each key that a `.link` file of ours can have is one that udev knows.
#[test]
fn udev_knows_every_key() {
    if !testing::require("udevadm", Path::new("/usr/bin/udevadm").exists()) || !inside() {
        return;
    }
    private_etc();
    tap("tap0");
    let facts = OwnerFacts { interface: "tap0".to_owned(), ..OwnerFacts::default() };
    let name = "tap0".to_owned();
    let mut changes = vec![
        modes(
            "tap0",
            "autoneg=on advertise=10baseT/Half,100baseT/Full,1000baseT/Full,10000baseT/Full,10000baseKR/Full",
        ),
        change(Setting::Pause { interface: name.clone() }, "autoneg=off rx=on tx=off"),
        change(Setting::Ring { interface: name.clone(), parameter: "rx".to_owned() }, "64"),
        change(Setting::Ring { interface: name.clone(), parameter: "tx".to_owned() }, "64"),
    ];
    for parameter in netlink::ethtool::CoalescingParameter::ALL {
        let value = if parameter.is_switch() { "on" } else { "8" };
        changes.push(change(
            Setting::Coalescing { interface: name.clone(), parameter: parameter.name().to_owned() },
            value,
        ));
    }
    for feature in sh("ethtool -k tap0 | tail -n +2 | sed 's/^[ \\t]*//; s/:.*//'").lines().chain([
        "rx-gro",
        "rx-lro",
        "rx-checksum",
    ]) {
        changes
            .push(change(Setting::Feature { interface: name.clone(), feature: feature.to_owned() }, "off"));
    }
    let (_folder, journal) = journal();
    let desired = desired(&changes, &facts);
    let content = &desired.files[0].content;
    assert!(content.lines().filter(|line| line.contains('=')).count() >= 40, "{content}");
    sync(&journal, &desired);
    let out =
        sh("SYSTEMD_LOG_LEVEL=debug udevadm test-builtin net_setup_link /sys/class/net/tap0 2>&1 || true");
    let complaint = out.lines().find(|line| line.contains("00-roundtrip-tap0.link:"));
    assert_eq!(complaint, None, "{out}\n{content}");
    assert!(out.contains("00-roundtrip-tap0.link"), "{out}");
}

#[test]
fn ifupdown_runs_the_hook() {
    if !inside() {
        return;
    }
    private_etc();
    for (interface, speed) in [("tap0", "100"), ("tap0.5", "10")] {
        tap(interface);
        let facts = OwnerFacts {
            interface: interface.to_owned(),
            interfaces: vec![format!("iface {interface} inet dhcp\n")],
            ..OwnerFacts::default()
        };
        let (_folder, journal) = journal();
        let changes =
            [modes(interface, &format!("autoneg=off speed={speed} duplex=half")), mtu(interface, "1400")];
        let synced = sync(&journal, &desired(&changes, &facts));
        assert_eq!(synced.written.len(), 1);
        sh(&format!(
            "IFACE=other0 run-parts --exit-on-error /etc/network/if-up.d; ! ip -o link show {interface} | grep -q 'mtu 1400'"
        ));
        sh(&format!("IFACE={interface} run-parts --exit-on-error /etc/network/if-up.d"));
        let shown = sh(&format!("ethtool {interface}; ip -o link show {interface}"));
        assert!(shown.contains(&format!("Speed: {speed}Mb/s")) && shown.contains("mtu 1400"), "{shown}");
        assert_eq!(sync(&journal, &Desired::default()).removed.len(), 1);
    }
    assert_eq!(sh("ls /etc/network/if-up.d"), "");
}

/// ethtool takes the list of modes, whether or not the card has them.
#[test]
fn ethtool_parses_the_modes_of_the_hook() {
    if !inside() {
        return;
    }
    tap("tap0");
    let facts = OwnerFacts {
        interface: "tap0".to_owned(),
        interfaces: vec!["iface tap0 inet dhcp".to_owned()],
        ..OwnerFacts::default()
    };
    let desired = desired(&[modes("tap0", "autoneg=on advertise=1000baseT/Full")], &facts);
    let script = &desired.files[0].content;
    assert!(script.contains("1000baseT/Full on") && script.contains("100baseT/Full off"), "{script}");
    let output = Command::new("sh").args(["-c", script]).env("IFACE", "tap0").output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !error.contains("bad command line") && !error.contains("invalid") && !error.contains("unknown"),
        "{error}"
    );
}

#[test]
fn sysctl_and_tmpfiles_apply_their_files() {
    let tools = ["/usr/lib/systemd/systemd-sysctl", "/usr/bin/systemd-tmpfiles"];
    if !testing::require("systemd", tools.iter().all(|tool| Path::new(tool).exists())) || !inside() {
        return;
    }
    private_etc();
    tap("tap0");
    let rps = "class/net/tap0/queues/rx-0/rps_cpus";
    let mut changes: Vec<Change> = PARAMETERS.iter().map(|(name, value)| sysctl(name, value)).collect();
    changes.push(sysfs(rps, "1"));
    let facts = OwnerFacts::read(Path::new("/"), "tap0").unwrap();
    let (_folder, journal) = journal();
    let desired = desired(&changes, &facts);
    assert!(desired.lost.is_empty(), "{:?}", desired.lost);
    sync(&journal, &desired);
    sh(
        "/usr/lib/systemd/systemd-sysctl /etc/sysctl.d/99-zz-roundtrip.conf && systemd-tmpfiles --create /etc/tmpfiles.d/roundtrip.conf",
    );
    let kernel = System::default();
    for change in &changes {
        let in_force = kernel.read(&change.setting).unwrap();
        assert!(change.setting.means_the_same(&in_force, &change.value), "{}: {in_force}", change.setting);
    }
    assert_eq!(sync(&journal, &Desired::default()).removed.len(), 2);
    assert_eq!(sh("ls /etc/sysctl.d /etc/tmpfiles.d | grep -v : | grep . || true"), "");
}
