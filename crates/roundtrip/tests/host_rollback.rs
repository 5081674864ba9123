//! Changes that roll back unless they are confirmed, in network and mount namespaces of their own: a TAP device or a veth pair stands
//! for the card.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::net::UdpSocket;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use common::host::{LINK_FILE, LOGIN, STATE, host, inside, logged_in, mtu};
use serde_json::{Value, json};
use testing::sh;

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
    guards()[0]
}

/// The processes that keep deadlines.
fn guards() -> Vec<u32> {
    let is_guard = |id: &u32| {
        let line = std::fs::read(format!("/proc/{id}/cmdline")).unwrap_or_default();
        let own = std::fs::read_link("/proc/self/ns/net").unwrap();
        let words: Vec<&[u8]> = line.split(|byte| *byte == 0).collect();
        words.get(1..3) == Some(&[&b"host"[..], b"guard"])
            && std::fs::read_link(format!("/proc/{id}/ns/net")).is_ok_and(|other| other == own)
    };
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(is_guard).collect()
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

#[test]
fn two_changes_that_nobody_confirms_end_at_the_first_value() {
    if !inside() {
        return;
    }
    assert_eq!(host("set tap0 mtu=1400 --apply --confirm-within 2s").0, 0);
    let (code, text) = host("set tap0 mtu=1300 --apply --confirm-within 3s");
    assert!(code == 0 && mtu("tap0") == "1300", "{text}");
    guards().into_iter().for_each(wait_for);
    assert_eq!(mtu("tap0"), "1500");
    let (_, list) = host("undo --list");
    assert_eq!(list.matches("(undone)").count(), 2, "{list}");
    assert_eq!(host("verify").0, 0);
}

/// The state of a step in the journal.
fn step_state(id: u64) -> Value {
    let set: Value = serde_json::from_slice(&std::fs::read(format!("{STATE}/{id}.json")).unwrap()).unwrap();
    set["steps"][0]["state"].clone()
}

/// The guard of a change set whose first attempt to roll back has failed, and the journal says so: tap0 is called away0.
fn rolled_back_without_its_interface() -> u32 {
    assert_eq!(host("set tap0 mtu=1400 --apply --confirm-within 1s").0, 0);
    let guard = guard();
    sh("ip link set tap0 down; ip link set tap0 name away0");
    while step_state(1) != "kept" {
        std::thread::yield_now();
    }
    guard
}

#[test]
fn a_rollback_waits_for_an_interface_that_is_gone_for_a_moment() {
    if !inside() {
        return;
    }
    let guard = rolled_back_without_its_interface();
    assert_eq!(mtu("away0"), "1400");
    let (_, list) = host("undo --list");
    assert!(
        list.contains("(partly undone)") && list.contains("(not restored: cannot read the MTU of tap0"),
        "{list}"
    );
    sh("ip link set away0 name tap0");
    wait_for(guard);
    assert_eq!((mtu("tap0"), step_state(1)), ("1500".to_owned(), json!("undone")));
}

#[test]
fn an_undo_finishes_what_a_rollback_has_left() {
    if !inside() {
        return;
    }
    let guard = rolled_back_without_its_interface();
    sh(&format!("kill -KILL {guard}"));
    wait_for(guard);
    sh("ip link set away0 name tap0");
    let (code, text) = host("undo");
    assert!(code == 0 && text.contains("MTU of tap0: is 1500 again"), "{text}");
    assert_eq!(mtu("tap0"), "1500");
}

#[test]
fn an_interface_that_was_made_anew_while_nobody_watched_is_named_by_the_next_command() {
    if !inside() {
        return;
    }
    assert_eq!(host("set tap0 mtu=1400 --apply --confirm-within 1s").0, 0);
    let guard = guard();
    sh("ip link del tap0; ip tuntap add tap0 mode tap; ip link set tap0 mtu 1400 up");
    wait_for(guard);
    let (code, text) = host("verify");
    let said = "MTU of tap0: 1400, but the undo of change set 1 was to restore 1500: the interface that was changed is gone";
    assert!(code == 1 && text.contains(said), "{text}");
    let (code, text) = host("undo");
    let said = "MTU of tap0: its value ended with the interface that had it; another one has its name now and was left at 1400";
    assert!(code == 0 && text.contains(said), "{text}");
    let (code, text) = host("undo");
    assert!(code == 0 && text.contains("nothing to undo"), "{text}");
    assert_eq!((mtu("tap0"), host("verify").0), ("1400".to_owned(), 0));
}
