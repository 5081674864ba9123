//! Changes of real kernel objects, in network and mount namespaces of their own: TAP devices, kernel parameters, routes, and the files
//! that udev, ifupdown, sysctl and tmpfiles read.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use host::apply::{self, Kernel, Request, System};
use host::change::{Change, Setting};
use host::error::ChangeError;
use host::journal::{Journal, Now};
use host::persist::{self, Desired, OwnerFacts, files};
use host::undo::{self, Overwrite};
use host::verify::verify;

/// Set in a test that runs in namespaces of its own.
const INSIDE: &str = "HOST_TEST_INSIDE";

/// Whether the calling test runs in network and mount namespaces of its own. If not, it is run in them, and passes as it does there.
#[track_caller]
fn inside() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        sh("mount -t sysfs sysfs /sys");
        return true;
    }
    if !testing::require_root("namespaces") {
        return false;
    }
    let name = std::thread::current().name().unwrap().to_owned();
    let output = Command::new("unshare")
        .args(["--net", "--mount", "--propagation", "private"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", &name, "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && text.contains("1 passed"), "{text}");
    false
}

#[track_caller]
fn sh(command: &str) -> String {
    let output = Command::new("sh").args(["-ec", command]).output().unwrap();
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn tap(name: &str) {
    sh(&format!("ip tuntap add {name} mode tap && ip link set {name} up"));
}

fn change(setting: Setting, value: &str) -> Change {
    Change { setting, value: value.to_owned() }
}

fn modes(interface: &str, value: &str) -> Change {
    change(Setting::LinkModes { interface: interface.to_owned() }, value)
}

fn mtu(interface: &str, value: &str) -> Change {
    change(Setting::Mtu { interface: interface.to_owned() }, value)
}

fn sysctl(name: &str, value: &str) -> Change {
    change(Setting::Sysctl { name: name.to_owned() }, value)
}

fn sysfs(path: &str, value: &str) -> Change {
    change(Setting::Sysfs { path: path.to_owned() }, value)
}

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

fn journal() -> (tempfile::TempDir, Journal) {
    let folder = tempfile::tempdir().unwrap();
    let journal = Journal::new(folder.path());
    (folder, journal)
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
        verify(&System::default(), &journal.all().unwrap(), &Now::read().unwrap().boot_id)
            .iter()
            .all(|one| one.holds)
    );
    sh("ethtool -s tap0 speed 10 duplex half autoneg off");
    let verified = verify(&System::default(), &journal.all().unwrap(), &Now::read().unwrap().boot_id);
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
    let mut changes = parameters();
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
