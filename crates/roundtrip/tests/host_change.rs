//! The verbs that change a host, in network and mount namespaces of their own: a TAP device stands for the card.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;

use common::host::{LINK_FILE, LOGIN, STATE, host, inside, logged_in, mtu, with_environment};
use serde_json::{Value, json};
use testing::sh;

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
        ("set none0 mtu=1400 --apply", 2, "there is no interface none0"),
        ("set none0 speed=100", 2, "there is no interface none0"),
        ("set a/b speed=100", 2, "cannot be the name of an interface"),
        ("set sixteen-letters- mtu=1400", 2, "cannot be the name of an interface"),
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
    // A login that cannot be told may go over any interface.
    for variables in [&[("SSH_CONNECTION", "junk")][..], &[("SSH_CONNECTION", ""), ("SSH_CLIENT", "junk")]] {
        let (code, text) = with_environment(variables, "set tap1 mtu=1400 --apply");
        assert!(code == 2 && text.contains("your connection may go over it: SSH_"), "{text}");
        assert!(text.contains("'junk'") && text.contains("--confirm-within"), "{text}");
    }
    let client = [("SSH_CONNECTION", ""), ("SSH_CLIENT", "10.7.0.2 50000 22")];
    let (code, text) = with_environment(&client, "set tap0 mtu=1400 --apply");
    assert!(code == 2 && text.contains("your connection goes over"), "{text}");
    assert_eq!((mtu("tap0"), mtu("tap1")), ("1500".to_owned(), "1500".to_owned()));
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
    // The set is undone, and the file is still not as asked for.
    let (code, text) = host("verify");
    assert!(code == 1 && text.contains("tap0.link: no change set in force wants it"), "{text}");
    let (code, text) = host("undo");
    assert!(code == 1 && text.contains("it was edited since") && !text.contains("nothing to undo"), "{text}");
    let (code, text) = host("undo --force");
    assert!(code == 0 && text.contains("removed /etc/systemd/network/00-roundtrip-tap0.link"), "{text}");
    assert!(!Path::new(LINK_FILE).exists());
    assert_eq!(host("verify").0, 0);
    let (code, text) = host("undo --force");
    assert!(code == 0 && text.contains("nothing to undo"), "{text}");
}

#[test]
fn what_stands_in_place_of_our_file_is_removed_on_request_or_named_for_removal_by_hand() {
    if !inside() {
        return;
    }
    std::fs::write("/run/victim", "kept").unwrap();
    for (put, is_removed) in
        [("ln -s /run/victim", true), ("head -c 9 /dev/zero >", true), ("mkfifo", false), ("mkdir", false)]
    {
        assert_eq!(host("set tap0 mtu=1400 --apply --persist").0, 0);
        sh(&format!("rm {LINK_FILE}; {put} {LINK_FILE}"));
        let (code, text) = host("undo");
        let advice = if is_removed { "or with --force" } else { "remove it by hand" };
        assert!(code == 1 && text.contains(advice), "{put}: {text}");
        assert_eq!(text.contains("--force"), is_removed, "{put}: {text}");
        let (code, text) = host("undo --force");
        assert!((code == 0) == is_removed && !text.contains("--force"), "{put}: {text}");
        assert_eq!(std::fs::symlink_metadata(LINK_FILE).is_err(), is_removed, "{put}");
        if !is_removed {
            sh(&format!("rm -r {LINK_FILE}"));
        }
        assert_eq!((host("undo").0, mtu("tap0").as_str()), (0, "1500"));
    }
    assert_eq!(std::fs::read_to_string("/run/victim").unwrap(), "kept", "the link was not followed");
    sh("rm /run/victim");
}

#[test]
fn verify_names_what_an_undo_has_left() {
    if !inside() {
        return;
    }
    assert_eq!(host("set tap0 mtu=1400 --apply").0, 0);
    sh("ip link set tap0 mtu 1450");
    assert_eq!(host("undo").0, 1);
    let (code, text) = host("verify");
    assert!(
        code == 1 && text.contains("MTU of tap0: 1450, but the undo of change set 1 was to restore 1500"),
        "{text}"
    );
    let (_, list) = host("undo --list");
    assert!(
        list.contains("(partly undone)") && list.contains("(not restored: it was changed since"),
        "{list}"
    );
    assert_eq!(host("undo --force").0, 0);
    assert_eq!((mtu("tap0"), host("verify").0), ("1500".to_owned(), 0));
}

#[test]
fn a_damaged_journal_file_is_named_and_the_others_are_used() {
    if !inside() {
        return;
    }
    for value in [1450, 1400] {
        assert_eq!(host(&format!("set tap0 mtu={value} --apply --persist")).0, 0);
    }
    std::fs::write(format!("{STATE}/7.json"), "{").unwrap();
    sh(&format!("mkfifo {STATE}/8.json"));
    let is_named =
        |text: &str| text.contains("7.json cannot be used: it is damaged") && text.contains("8.json");
    let (code, text) = host("verify");
    assert!(code == 1 && is_named(&text) && text.contains("MTU of tap0: 1400, as asked for"), "{text}");
    for (more, id) in [("", 9), (" --confirm-within 60m", 10)] {
        let (code, text) = host(&format!("set tap0 mtu=1420 --apply{more}"));
        let applied = format!("applied as change set {id}");
        assert!(code == 1 && is_named(&text) && text.contains(&applied), "{text}");
        let (code, text) = host(&format!("undo {id}"));
        assert!(code == 1 && is_named(&text), "{text}");
    }
    let (code, text) = host("undo --list");
    assert!(code == 1 && is_named(&text) && text.contains("2: set tap0 mtu=1400"), "{text}");
    let (code, text) = host("undo");
    assert!(code == 1 && is_named(&text) && text.contains("MTU of tap0: is 1450 again"), "{text}");
    let file = std::fs::read_to_string(LINK_FILE).unwrap();
    assert!(file.contains("MTUBytes=1400") && text.contains("were left as they are"), "{text}");
    sh(&format!("rm {STATE}/7.json {STATE}/8.json"));
    assert_eq!(host("undo").0, 0);
    assert!(mtu("tap0") == "1500" && !Path::new(LINK_FILE).exists());
}

#[test]
fn an_interface_that_is_made_anew_is_named_and_left_alone() {
    if !inside() {
        return;
    }
    assert_eq!(host("set tap0 mtu=1400 --apply").0, 0);
    sh("ip link del tap0; ip tuntap add tap0 mode tap; ip link set tap0 mtu 1400 up");
    let (code, text) = host("undo");
    let said = "MTU of tap0: its value ended with the interface that had it; another one has its name now and was left at 1400";
    assert!(code == 0 && text.contains(said), "{text}");
    assert_eq!(mtu("tap0"), "1400");
}

#[test]
fn a_finding_cannot_end_ipv6() {
    if !inside() {
        return;
    }
    let mut small = finding("small-mtu", &[]);
    small["changes"] = json!([{ "setting": { "kind": "mtu", "interface": "tap0" }, "value": "1279" }]);
    std::fs::write("/run/facts", json!({ "findings": [small] }).to_string()).unwrap();
    for line in [
        "tune --facts /run/facts",
        "tune --facts /run/facts --apply",
        "tune --facts /run/facts --apply --confirm-within 1s",
    ] {
        let (code, text) = host(line);
        assert!(code == 2 && text.contains("removes all IPv6 addresses of tap0"), "{line}: {text}");
    }
    assert_eq!(mtu("tap0"), "1500");
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
    assert!(code == 0 && text.contains("other end of small-buffer (tcp): set the same there"), "{text}");
    let sysctl = "/etc/sysctl.d/99-zz-roundtrip.conf";
    assert!(std::fs::read_to_string(sysctl).unwrap().contains("\nnet.ipv4.tcp_rmem = 4096 65536 1048576\n"));
    assert!(shown().contains("tcp_rmem = 4096\t65536\t1048576") && shown().contains("after_idle = 1"));
    let (code, text) = host("tune --facts /run/facts --apply");
    assert!(code == 0 && text.contains("by-hand (tcp) is not changed by tune: 1"), "{text}");
    assert_eq!(text.matches("set the same there").count(), 1, "each other end once: {text}");
    assert!(
        text.contains(
            "other end of small-buffer (tcp), idle-restart (tcp), by-hand (tcp): set the same there"
        ),
        "{text}"
    );
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
