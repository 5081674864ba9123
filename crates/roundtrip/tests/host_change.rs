//! The verbs that change a host, in network and mount namespaces of their own: a TAP device or a veth pair stands for the card.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::roundtrip;
use serde_json::{Value, json};

/// Set in a test that runs in namespaces of its own.
const INSIDE: &str = "HOST_TEST_INSIDE";
/// The journal there.
const STATE: &str = "/run/state";
const LINK_FILE: &str = "/etc/systemd/network/00-roundtrip-tap0.link";
const LOGIN: &str = "10.7.0.2 50000 10.7.0.1 22";

/// Whether the calling test runs in network and mount namespaces of its own. If not, it is run in them, and passes as it does there.
#[track_caller]
fn inside() -> bool {
    if std::env::var_os(INSIDE).is_some() {
        sh(
            "mount -t sysfs sysfs /sys; for d in /etc/systemd/network /etc/network /etc/sysctl.d /etc/tmpfiles.d /run; do \
            mkdir -p $d; mount -t tmpfs tmpfs $d; done; ip tuntap add tap0 mode tap; ip link set tap0 up",
        );
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
        .env_remove("SSH_CONNECTION")
        .env_remove("SSH_CLIENT")
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

/// Exit code and all output of `roundtrip host` with a command line.
fn host(line: &str) -> (i32, String) {
    logged_in("", line)
}

fn logged_in(login: &str, line: &str) -> (i32, String) {
    let mut command = roundtrip();
    command.arg("host").args(line.split_whitespace());
    if line.split_whitespace().next() != Some("profile") {
        command.args(["--state", STATE]);
    }
    if !login.is_empty() {
        command.env("SSH_CONNECTION", login);
    }
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code().unwrap(), text.into_owned())
}

fn mtu(interface: &str) -> String {
    std::fs::read_to_string(format!("/sys/class/net/{interface}/mtu")).unwrap().trim().to_owned()
}

fn shown() -> String {
    sh("ethtool tap0; ip -o link show tap0; sysctl net.ipv4.tcp_rmem net.ipv4.tcp_slow_start_after_idle")
}

const FORCED: &str = "set tap0 speed=100 duplex=half autoneg=off --force-speed mtu=1400";

#[test]
fn a_dry_run_changes_nothing_and_undo_restores_what_apply_changed() {
    if !inside() {
        return;
    }
    let before = shown();
    let (code, text) = host(FORCED);
    assert_eq!(code, 0, "{text}");
    assert!(text.contains("MTU of tap0: 1500 -> 1400") && text.contains("nothing was changed"), "{text}");
    assert!(
        text.contains("this end: half duplex") && text.contains("other end: the other end must be forced"),
        "{text}"
    );
    assert!(shown() == before && !Path::new(STATE).exists());
    let (code, text) = host(&format!("{FORCED} --apply"));
    assert!(code == 0 && text.contains("applied as change set 1"), "{text}");
    let during = shown();
    assert!(
        during.contains("Speed: 100Mb/s") && during.contains("Duplex: Half") && during.contains("mtu 1400"),
        "{during}"
    );
    assert!(!Path::new(LINK_FILE).exists());
    assert_eq!(host("verify").0, 0);
    let (_, list) = host("undo --list");
    assert!(
        list.contains("1: set tap0")
            && list.contains("(in force)")
            && list.contains("MTU of tap0: 1500 -> 1400"),
        "{list}"
    );
    sh("ip link set tap0 mtu 1450");
    let (code, text) = host("verify");
    assert!(code == 1 && text.contains("MTU of tap0: 1450, but change set 1 asked for 1400"), "{text}");
    let (code, text) = host("undo");
    assert!(code == 1 && text.contains("left at 1450") && text.contains("--force"), "{text}");
    assert_eq!(host("undo 1 --force").0, 0);
    assert_eq!(shown(), before);
    let (code, text) = host("undo");
    assert!(code == 0 && text.contains("nothing to undo"), "{text}");
    assert_eq!(host("undo 7").0, 2, "there is no change set 7");
}

#[test]
fn wrong_requests_change_nothing() {
    if !inside() {
        return;
    }
    let before = shown();
    for (line, code, word) in [
        ("set tap0 speed=1000 duplex=full autoneg=off --force-speed --apply", 2, "needs autonegotiation"),
        ("set tap0 speed=100 duplex=full autoneg=off --apply", 2, "--force-speed"),
        ("set tap0 speed=100 --apply", 2, "no modes"),
        ("set tap0 color=red --apply", 2, "unknown"),
        ("set none0 mtu=1400 --apply", 1, "none0"),
        ("set tap0 mtu=1400 --apply --confirm-within 61m", 2, "1s to 60m"),
        ("tune --profile storage-100g --apply", 2, "storage-25g"),
        ("tune --facts /none --apply", 2, "/none"),
        ("confirm 1", 2, "no change set 1"),
        ("confirm", 2, "no change set waits"),
    ] {
        let (found, text) = host(line);
        assert!(found == code && text.contains(word), "{line}: {found} {text}");
    }
    assert_eq!(shown(), before);
}

#[test]
fn the_callers_interface_and_the_default_route_are_refused() {
    if !inside() {
        return;
    }
    sh(
        "ip link add br0 type bridge; ip link set br0 up; ip link set tap0 master br0; ip address add 10.7.0.1/24 dev br0; \
        ip link add link br0 name mac0 type macvlan; ip tuntap add tap1 mode tap",
    );
    let before = sh("ip -o link");
    for interface in ["tap0", "br0", "mac0"] {
        let (code, text) = logged_in(LOGIN, &format!("set {interface} mtu=1400 --apply"));
        assert!(
            code == 2 && text.contains("your connection goes over") && text.contains("--confirm-within"),
            "{text}"
        );
        let (code, text) = logged_in(LOGIN, &format!("set {interface} mtu=1400"));
        assert!(code == 0 && text.contains("note:"), "a dry run says so, too: {text}");
    }
    assert_eq!(sh("ip -o link"), before);
    assert_eq!(host("set tap0 mtu=1450 --apply").0, 0, "without a login");
    assert_eq!(host("undo").0, 0);
    sh("ip link property add dev tap0 altname other0");
    let (code, text) = logged_in(LOGIN, "set other0 mtu=1400 --apply");
    assert!(code == 2 && text.contains("alternative names are not taken"), "{text}");
    assert_eq!(mtu("tap0"), "1500");
    sh("ip link set tap1 up; ip route add default dev tap1");
    let (code, text) = host("set tap1 mtu=1400 --apply");
    assert!(code == 2 && text.contains("a default route goes over it"), "{text}");
    let facts = json!({ "findings": [{
        "id": "x", "severity": "slow", "subject": "tap1", "measured": "1", "why": "y", "cost": null, "commands": [],
        "changes": [{ "setting": { "kind": "sysfs", "path": "class/net/lo/subsystem/tap1/mtu" }, "value": "1400" }],
        "other_end": null,
    }] });
    std::fs::write("/run/facts", facts.to_string()).unwrap();
    let (code, text) = host("tune --facts /run/facts --apply");
    assert!(code == 2 && text.contains("tap1 is not changed"), "also by a file: {text}");
}

#[test]
fn two_persisted_sets_share_a_file_and_each_undo_takes_its_part() {
    if !inside() {
        return;
    }
    let read = || std::fs::read_to_string(LINK_FILE).unwrap();
    assert_eq!(host(&format!("{FORCED} --apply --persist")).0, 0);
    assert!(
        read().contains("OriginalName=tap0")
            && read().contains("BitsPerSecond=100M")
            && read().contains("MTUBytes=1400")
    );
    assert_eq!(host("set tap0 mtu=1450 --apply --persist").0, 0);
    assert!(
        read().contains("MTUBytes=1450") && !read().contains("1400") && read().contains("Duplex=half"),
        "{}",
        read()
    );
    let (_, json) = host("verify --json");
    let verified: Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&verified["holds"], &verified["files"]), (&json!(true), &json!([])));
    let settings = verified["settings"].as_array().unwrap();
    assert_eq!(settings.len(), 2, "{json}");
    let mtu = settings.iter().find(|setting| setting["setting"]["kind"] == "mtu").unwrap();
    assert_eq!(
        [&mtu["asked"], &mtu["in_force"], &mtu["change_set"], &mtu["persist"], &mtu["was_rebooted"]],
        [&json!("1450"), &json!("1450"), &json!(2), &json!(true), &json!(false)]
    );
    // The first set's MTU is now the second's.
    let (code, text) = host("undo 1");
    assert!(code == 1 && text.contains("change set 2 has changed the MTU of tap0 too"), "{text}");
    assert!(read().contains("MTUBytes=1450") && !read().contains("BitsPerSecond"), "{}", read());
    std::fs::remove_file(LINK_FILE).unwrap();
    let (code, text) = host("verify");
    assert!(code == 1 && text.contains("00-roundtrip-tap0.link: it is missing"), "{text}");
    assert_eq!(host("undo 2").0, 0);
    assert_eq!(sh("ls /etc/systemd/network"), "");
}

#[test]
fn files_of_others_and_edited_files_are_left_alone() {
    if !inside() {
        return;
    }
    std::fs::write(LINK_FILE, "# mine\n").unwrap();
    let (code, text) = host("set tap0 mtu=1400 --apply --persist");
    assert!(code == 1 && text.contains("was left alone: another program has written it"), "{text}");
    assert_eq!(host("undo").0, 0);
    assert_eq!(std::fs::read_to_string(LINK_FILE).unwrap(), "# mine\n");
    std::fs::remove_file(LINK_FILE).unwrap();
    std::os::unix::fs::symlink("/run/victim", LINK_FILE).unwrap();
    assert_eq!(host("set tap0 mtu=1400 --apply --persist").0, 1);
    assert!(!Path::new("/run/victim").exists());
    assert_eq!(host("undo").0, 0);
    std::fs::remove_file(LINK_FILE).unwrap();
    assert_eq!(host("set tap0 mtu=1400 --apply --persist").0, 0);
    let edited = std::fs::read_to_string(LINK_FILE).unwrap() + "WakeOnLan=magic\n";
    std::fs::write(LINK_FILE, &edited).unwrap();
    let (code, text) = host("undo");
    assert!(code == 1 && text.contains("it was edited since"), "{text}");
    assert_eq!((mtu("tap0"), std::fs::read_to_string(LINK_FILE).unwrap()), ("1500".to_owned(), edited));
}

/// The other end of a veth pair, in a namespace that ends with this process.
struct Peer {
    process: Child,
    socket: UdpSocket,
}

impl Peer {
    fn new() -> Self {
        let mut process = Command::new("unshare")
            .args(["--net", "sh", "-c", "echo ready; exec cat"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(
            &mut std::io::BufReader::new(process.stdout.as_mut().unwrap()),
            &mut line,
        )
        .unwrap();
        let id = process.id();
        sh(&format!(
            "ip link add near type veth peer name far netns {id}; ip address add 10.7.0.1/24 dev near; ip link set near up; \
             nsenter -t {id} -n sh -c 'ip address add 10.7.0.2/24 dev far; ip link set far up'"
        ));
        let socket = UdpSocket::bind("10.7.0.1:9000").unwrap();
        Self { process, socket }
    }

    /// Sizes of the datagrams that arrive when the peer sends a large and a small one.
    fn arrives(&self) -> Vec<usize> {
        let send = |bytes: usize| format!("head -c {bytes} /dev/zero >/dev/udp/10.7.0.1/9000");
        let script = format!("{}; {}", send(1400), send(10));
        let id = self.process.id().to_string();
        let status = Command::new("nsenter").args(["-t", &id, "-n", "bash", "-c", &script]).status().unwrap();
        assert!(status.success());
        let mut sizes = Vec::new();
        // The small one is the last, and always arrives.
        while sizes.last() != Some(&10) {
            sizes.push(self.socket.recv(&mut [0; 2000]).unwrap());
        }
        sizes
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// The process that keeps the deadline.
fn guard() -> u32 {
    let is_guard = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1..3) == Some(&[&b"host"[..], b"guard"])
            && std::fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|other| other == own)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let mut ids = entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_guard);
    ids.next().expect("a guard runs")
}

/// Returns when a process has ended.
fn wait_for(process: u32) {
    sh(&format!("tail --pid={process} -s 0.02 -f /dev/null"));
}

#[test]
fn a_change_that_cuts_the_path_rolls_back_within_its_time() {
    if !inside() {
        return;
    }
    let peer = Peer::new();
    assert_eq!(peer.arrives(), [1400, 10]);
    let (code, text) = logged_in(LOGIN, "set near mtu=1280 --apply --confirm-within 1s");
    assert!(
        code == 0 && text.contains("rolls back in 1 s; keep it with: roundtrip host confirm 1"),
        "{text}"
    );
    let guard = guard();
    assert_eq!(
        (peer.arrives(), mtu("near")),
        (vec![10], "1280".to_owned()),
        "the path is cut for full packets"
    );
    wait_for(guard);
    assert_eq!((peer.arrives(), mtu("near")), (vec![1400, 10], "1500".to_owned()));
    let (code, text) = host("confirm 1");
    assert!(code == 2 && text.contains("was rolled back"), "{text}");
}

#[test]
fn a_confirmed_change_stays_and_is_persisted_only_then() {
    if !inside() {
        return;
    }
    let (code, text) = host("set tap0 mtu=1400 --apply --persist --confirm-within 1s");
    assert_eq!(code, 0, "{text}");
    let guard = guard();
    assert!(!Path::new(LINK_FILE).exists(), "a power cut must not make an unconfirmed change permanent");
    let (code, text) = host("confirm");
    assert!(code == 0 && text.contains("change set 1 stays"), "{text}");
    wait_for(guard);
    assert_eq!(mtu("tap0"), "1400");
    assert!(std::fs::read_to_string(LINK_FILE).unwrap().contains("MTUBytes=1400"));
    assert_eq!(host("undo").0, 0);
    assert!(mtu("tap0") == "1500" && !Path::new(LINK_FILE).exists());
}

#[test]
fn the_rollback_survives_the_callers_shell() {
    if !inside() {
        return;
    }
    let program = env!("CARGO_BIN_EXE_roundtrip");
    let script = format!(
        "{program} host set tap0 mtu=1400 --apply --confirm-within 1s --state {STATE}; kill -HUP 0; kill -KILL 0"
    );
    // A session of its own, whose every process is killed, as at the end of a login.
    let status =
        Command::new("setsid").args(["--wait", "sh", "-c", &script]).stdout(Stdio::null()).status().unwrap();
    assert!(!status.success());
    let guard = guard();
    let stat = std::fs::read_to_string(format!("/proc/{guard}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    assert_eq!(
        (fields[3], fields[4]),
        (guard.to_string().as_str(), "0"),
        "its own session, without a terminal"
    );
    assert_eq!(mtu("tap0"), "1400");
    wait_for(guard);
    assert_eq!(mtu("tap0"), "1500");
}

#[test]
fn the_next_command_rolls_back_what_a_killed_guard_has_left() {
    if !inside() {
        return;
    }
    assert_eq!(host("set tap0 mtu=1400 --apply --confirm-within 1s").0, 0);
    let guard = guard();
    sh(&format!("kill -KILL {guard}"));
    wait_for(guard);
    // The deadline is a time since boot; the journal says that it has passed.
    let path = format!("{STATE}/1.json");
    let mut set: Value = serde_json::from_slice(&std::fs::read(&path).unwrap()).unwrap();
    set["deadline"]["boottime_ms"] = json!(1);
    std::fs::write(&path, set.to_string()).unwrap();
    assert_eq!(mtu("tap0"), "1400");
    let (code, text) = host("verify");
    assert!(text.contains("change set 1 was not confirmed in time and is rolled back"), "{text}");
    assert!(code == 0 && mtu("tap0") == "1500", "{text}");
}

fn finding(id: &str, changes: &[(&str, &str)]) -> Value {
    let changes: Vec<Value> = changes
        .iter()
        .map(|(name, value)| json!({ "setting": { "kind": "sysctl", "name": name }, "value": value }))
        .collect();
    json!({ "id": id, "severity": "slow", "subject": "tcp", "measured": "1", "why": "it costs time", "cost": null, "commands": [],
            "changes": changes, "other_end": "set the same there" })
}

#[test]
fn findings_of_a_saved_check_are_mended_and_restored() {
    if !inside() {
        return;
    }
    let before = shown();
    let save = |findings: &[Value]| {
        std::fs::write("/run/facts", json!({ "findings": findings }).to_string()).unwrap();
    };
    let rmem = finding("small-buffer", &[("net.ipv4.tcp_rmem", "4096 65536 1048576")]);
    save(&[
        rmem.clone(),
        finding("idle-restart", &[("net.ipv4.tcp_slow_start_after_idle", "0")]),
        finding("by-hand", &[]),
    ]);
    let (code, text) = host("tune --facts /run/facts small-buffer --apply --persist");
    assert!(code == 0 && text.contains("other end: set the same there"), "{text}");
    let sysctl = "/etc/sysctl.d/99-zz-roundtrip.conf";
    assert!(std::fs::read_to_string(sysctl).unwrap().contains("\nnet.ipv4.tcp_rmem = 4096 65536 1048576\n"));
    assert!(shown().contains("tcp_rmem = 4096\t65536\t1048576") && shown().contains("after_idle = 1"));
    let (code, text) = host("tune --facts /run/facts --apply");
    assert!(code == 0 && text.contains("by-hand (tcp) cannot be mended here: it costs time"), "{text}");
    assert!(shown().contains("after_idle = 0"));
    assert_eq!(host("undo --all").0, 0);
    assert!(shown() == before && !Path::new(sysctl).exists());
    let (code, text) = host("tune --facts /run/facts no-such-thing");
    assert!(code == 2 && text.contains("did not find no-such-thing; it found small-buffer"), "{text}");
    // The driver of TAP devices takes at most 64 frames.
    let mut frames = finding("frames", &[]);
    let setting = json!({ "kind": "coalescing", "interface": "tap0", "parameter": "rx-frames" });
    frames["changes"] = json!([{ "setting": setting, "value": "100" }]);
    save(&[frames]);
    let (code, text) = host("tune --facts /run/facts --apply");
    assert!(
        code == 0 && text.contains("coalescing rx-frames of tap0: the kernel took 64 instead of 100"),
        "{text}"
    );
    assert_eq!((host("verify").0, host("undo").0), (0, 0));
    save(&[rmem, finding("smaller", &[("net.ipv4.tcp_rmem", "1 2 3")])]);
    let (code, text) = host("tune --facts /run/facts --apply");
    assert!(code == 2 && text.contains("different values of the net.ipv4.tcp_rmem"), "{text}");
    save(&[finding("escape", &[("../../../run/facts", "1")])]);
    let (code, text) = host("tune --facts /run/facts --apply");
    assert!(code == 2 && text.contains("/proc/sys"), "{text}");
    std::fs::write("/run/facts", "{\"findings\": [{}]}").unwrap();
    assert_eq!(host("tune --facts /run/facts").0, 2);
    assert_eq!(shown(), before);
}

#[test]
fn a_profile_is_applied_and_restored() {
    if !inside() {
        return;
    }
    let before = sh(
        "ip -o link show tap0; sysctl -a 2>/dev/null | grep -E '^net.(ipv4.tcp_|core)' | grep -v fastopen_key",
    );
    let (code, text) = host("tune --profile storage-25g --apply");
    assert!(
        code == 0 && text.contains("left out: MTU of INTERFACE: name the storage interface with --interface"),
        "{text}"
    );
    assert_eq!(host("undo").0, 0);
    let (code, text) = host("tune --profile storage-25g --interface tap0 --apply");
    assert!(
        code == 0 && text.contains("left out: tx-tcp-segmentation of tap0"),
        "a feature that the device cannot have: {text}"
    );
    assert_eq!(mtu("tap0"), "9000");
    assert_eq!(sh("sysctl -n net.ipv4.tcp_wmem"), "4096\t16384\t16777216\n");
    assert_eq!(host("verify").0, 0);
    assert_eq!(host("undo").0, 0);
    let after = sh(
        "ip -o link show tap0; sysctl -a 2>/dev/null | grep -E '^net.(ipv4.tcp_|core)' | grep -v fastopen_key",
    );
    assert_eq!(after, before);
    let (code, text) = host("profile low-latency");
    assert!(code == 0 && text.contains("why = ") && text.contains("busy_poll"), "{text}");
    let (_, list) = host("profile");
    assert_eq!(list.lines().count(), 4, "{list}");
}
