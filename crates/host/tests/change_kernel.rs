//! Changes of real kernel objects, in network and mount namespaces of their own: TAP devices, kernel parameters and routes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{change, inside, journal, modes, mtu, sysctl, sysfs, tap};
use host::apply::{self, Kernel, Request, System};
use host::change::{Change, Setting};
use host::error::ChangeError;
use host::journal::{Journal, Now};
use host::undo::{self, Overwrite};
use host::verify::verify;
use testing::sh;

fn request(changes: Vec<Change>) -> Request {
    Request { origin: "test".to_owned(), changes, persist: false, confirm_within: None }
}

fn apply(journal: &Journal, kernel: &impl Kernel, request: &Request) -> Result<u64, ChangeError> {
    Ok(apply::apply(kernel, journal, &journal.lock()?, &Now::read()?, request)?.id)
}

fn undo(journal: &Journal, id: u64) -> undo::Report {
    let mut set = journal.load(id).unwrap();
    let (lock, now) = (journal.lock().unwrap(), Now::read().unwrap());
    undo::undo(&System::default(), journal, &lock, &now, &mut set, Overwrite::Own).unwrap()
}

#[test]
fn settings_of_a_tap_are_set_and_restored() {
    if !inside() {
        return;
    }
    tap("tap0");
    let shown = || sh("ethtool tap0; ethtool -k tap0; ethtool -c tap0; ip -o link show tap0");
    let before = shown();
    let (_folder, journal) = journal();
    let feature = Setting::Feature { interface: "tap0".to_owned(), feature: "rx-gro".to_owned() };
    let frames = Setting::Coalescing { interface: "tap0".to_owned(), parameter: "rx-frames".to_owned() };
    let changes = vec![
        modes("tap0", "autoneg=off speed=100 duplex=half"),
        mtu("tap0", "9000"),
        change(feature, "off"),
        change(frames, "16"),
        sysfs("class/net/tap0/queues/rx-0/rps_cpus", "1"),
        mtu("tap0", "1400"),
    ];
    let id = apply(&journal, &System::default(), &request(changes)).unwrap();
    let during = shown();
    for text in ["Speed: 100Mb/s", "Duplex: Half", "generic-receive-offload: off", "mtu 1400"] {
        assert!(during.contains(text), "{text}: {during}");
    }
    assert!(during.lines().any(|line| line.starts_with("rx-frames:") && line.ends_with("16")), "{during}");
    assert!(
        verify(&System::default(), &journal.all().unwrap().sets, &Now::read().unwrap().boot_id)
            .iter()
            .all(|one| one.holds)
    );
    sh("ethtool -s tap0 speed 10 duplex half autoneg off");
    let verified = verify(&System::default(), &journal.all().unwrap().sets, &Now::read().unwrap().boot_id);
    let wrong: Vec<String> =
        verified.iter().filter(|one| !one.holds).map(|one| one.setting.to_string()).collect();
    assert_eq!(wrong, ["link modes of tap0"]);
    // Somebody else's speed stays, everything else is restored.
    let report = undo(&journal, id);
    assert_eq!(report.kept.len(), 1, "{report:?}");
    sh("ethtool -s tap0 speed 100 duplex half autoneg off");
    undo(&journal, id);
    assert_eq!(shown(), before);
}

/// The driver of a TAP device has no rings, and takes no MTU of 5 bytes.
#[test]
fn what_a_driver_rejects_changes_nothing() {
    if !inside() {
        return;
    }
    tap("tap0");
    let before = sh("ethtool tap0; ip -o link show tap0");
    let (_folder, journal) = journal();
    let ring = Setting::Ring { interface: "tap0".to_owned(), parameter: "rx".to_owned() };
    let speed = || modes("tap0", "autoneg=off speed=100 duplex=full");
    for bad in [
        change(ring, "64"),
        mtu("tap0", "5"),
        mtu("tap0", "many"),
        mtu("none0", "1400"),
        modes("tap0", "speed=x"),
    ] {
        let error = apply(&journal, &System::default(), &request(vec![speed(), bad])).unwrap_err();
        assert_eq!(sh("ethtool tap0; ip -o link show tap0"), before, "{error}");
    }
}

const PARAMETERS: [(&str, &str); 3] = [
    ("net.ipv4.tcp_rmem", "4096 65536 1048576"),
    ("net.ipv4.tcp_slow_start_after_idle", "0"),
    ("net.ipv4.conf.lo.rp_filter", "2"),
];

fn parameters() -> Vec<Change> {
    PARAMETERS.iter().map(|(name, value)| sysctl(name, value)).collect()
}

fn raw_parameters() -> Vec<Vec<u8>> {
    let file = |name: &str| std::fs::read(Path::new("/proc/sys").join(name.replace('.', "/"))).unwrap();
    PARAMETERS.iter().map(|(name, _)| file(name)).collect()
}

#[test]
fn kernel_parameters_are_restored_byte_for_byte() {
    if !inside() {
        return;
    }
    let before = raw_parameters();
    let (_folder, journal) = journal();
    let id = apply(&journal, &System::default(), &request(parameters())).unwrap();
    assert_eq!(raw_parameters()[0], b"4096\t65536\t1048576\n");
    assert_eq!(raw_parameters()[1], b"0\n");
    assert_eq!(undo(&journal, id).restored.len(), 3);
    assert_eq!(raw_parameters(), before);
}

/// The kernel of a process that dies at its nth call.
struct Dying {
    at: usize,
    calls: std::cell::Cell<usize>,
}

impl Dying {
    fn count(&self) {
        self.calls.set(self.calls.get() + 1);
        if self.calls.get() == self.at {
            std::process::abort();
        }
    }
}

impl Kernel for Dying {
    fn read(&self, setting: &Setting) -> Result<String, ChangeError> {
        self.count();
        System::default().read(setting)
    }
    fn write(&self, setting: &Setting, value: &str) -> Result<(), ChangeError> {
        self.count();
        System::default().write(setting, value)?;
        self.count();
        Ok(())
    }
}

/// A process that aborts between the journal and a change, between two changes, or after them, on real kernel parameters.
#[test]
fn a_process_that_aborts_leaves_a_journal_that_restores() {
    const DIE_AT: &str = "HOST_TEST_DIE_AT";
    if let Ok(at) = std::env::var(DIE_AT) {
        let journal = Journal::new(Path::new(&std::env::var("HOST_TEST_STATE").unwrap()));
        let dying = Dying { at: at.parse().unwrap(), calls: std::cell::Cell::new(0) };
        apply(&journal, &dying, &request(parameters())).unwrap();
        return;
    }
    if !inside() {
        return;
    }
    let before = raw_parameters();
    let (mut aborted, mut changed) = (0, 0);
    for at in 1.. {
        let (folder, journal) = journal();
        let output = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "a_process_that_aborts_leaves_a_journal_that_restores"])
            .env(DIE_AT, at.to_string())
            .env("HOST_TEST_STATE", folder.path())
            .output()
            .unwrap();
        changed += usize::from(raw_parameters() != before);
        journal.ids().unwrap().into_iter().for_each(|id| assert!(undo(&journal, id).kept.is_empty()));
        assert_eq!(raw_parameters(), before, "aborted at call {at}");
        if output.status.success() {
            break;
        }
        aborted += 1;
    }
    assert!(aborted == 15 && changed >= 8, "aborted {aborted} times, {changed} with changes");
}

#[test]
fn options_of_routes_are_restored() {
    if !inside() {
        return;
    }
    tap("tap0");
    sh(
        "ip address add 10.7.0.1/24 dev tap0; ip route add 10.8.0.0/16 via 10.7.0.2 dev tap0 metric 7 initcwnd 20; \
        ip route add 10.8.0.0/16 via 10.7.0.3 dev tap0 metric 8",
    );
    let before = sh("ip route show");
    let (_folder, journal) = journal();
    let option =
        |route: &str, option: &str| Setting::Route { route: route.to_owned(), option: option.to_owned() };
    let route = "10.8.0.0/16 via 10.7.0.2";
    let changes = vec![
        change(option(route, "quickack"), "1"),
        change(option(route, "initcwnd"), "40"),
        change(option("10.7.0.0/24 dev tap0", "rto_min"), "5ms"),
    ];
    let id = apply(&journal, &System::default(), &request(changes)).unwrap();
    let during = sh("ip route show");
    for text in ["quickack 1", "initcwnd 40", "rto_min lock 5ms"] {
        assert!(during.contains(text), "{text}: {during}");
    }
    assert_eq!(during.lines().count(), before.lines().count(), "no route is added: {during}");
    assert!(undo(&journal, id).kept.is_empty());
    assert_eq!(sh("ip route show"), before);
    let error =
        apply(&journal, &System::default(), &request(vec![change(option("10.8.0.0/16", "mtu"), "1400")]))
            .unwrap_err();
    assert!(error.to_string().contains("means 2 routes"), "{error}");
}

#[test]
fn an_interface_that_is_made_anew_is_another_one() {
    if !inside() {
        return;
    }
    let remade =
        |mtu: &str| sh(&format!("ip link del tap0; ip tuntap add tap0 mode tap; ip link set tap0 mtu {mtu}"));
    tap("tap0");
    let (_folder, journal) = journal();
    let id = apply(&journal, &System::default(), &request(vec![mtu("tap0", "1400")])).unwrap();
    remade("1400");
    let report = undo(&journal, id);
    assert_eq!(report.ended_with_interface.len(), 1, "{report:?}");
    assert_eq!(report.ended_with_interface[0].in_force, "1400");
    assert!(sh("ip -o link show tap0").contains("mtu 1400"), "somebody else's value stays");
    // The same interface under its old name again is the one that was changed.
    let id = apply(&journal, &System::default(), &request(vec![mtu("tap0", "1350")])).unwrap();
    sh("ip link set tap0 down; ip link set tap0 name away0; ip link set away0 name tap0");
    assert_eq!(undo(&journal, id).restored.len(), 1);
    assert!(sh("ip -o link show tap0").contains("mtu 1400"));
}

#[test]
fn an_mtu_below_that_of_ipv6_is_refused_where_ipv6_is_on() {
    if !inside() {
        return;
    }
    tap("tap0");
    let (_folder, journal) = journal();
    let wanted = [mtu("tap0", "1279"), sysfs("class/net/tap0/mtu", "576")];
    for change in &wanted {
        let error =
            apply(&journal, &System::default(), &request(vec![change.clone()])).unwrap_err().to_string();
        assert!(error.contains("IPv6 addresses of tap0") && error.contains("at least 1280"), "{error}");
        assert!(apply::plan(&System::default(), std::slice::from_ref(change)).is_err(), "a dry run says so");
    }
    assert!(sh("ip -o link show tap0").contains("mtu 1500") && journal.ids().unwrap().is_empty());
    apply(&journal, &System::default(), &request(vec![mtu("tap0", "1280")])).unwrap();
    sh("sysctl -q -w net.ipv6.conf.tap0.disable_ipv6=1 net.ipv6.conf.default.disable_ipv6=1");
    for change in wanted {
        let id = apply(&journal, &System::default(), &request(vec![change])).unwrap();
        let undone = undo(&journal, id);
        assert!(undone.kept.is_empty(), "{undone:?}");
    }
    assert!(sh("ip -o link show tap0").contains("mtu 1280"));
}
