//! `roundtrip host show` and `roundtrip host check` about links, on devices of the kernel in a network namespace of the test's own.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::fs::PermissionsExt as _;
use std::process::{Command, Output};

use common::roundtrip;
use serde_json::Value;

/// Runs a test in a thread with a network namespace of its own that holds a TAP device `tap0` and a veth pair `a0` and `b0`.
fn in_namespace(test: impl FnOnce() + Send + 'static) {
    if !testing::require_root("a network namespace") {
        return;
    }
    let inside = std::thread::spawn(move || {
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNET).unwrap();
        run("ip tuntap add tap0 mode tap");
        run("ip link add a0 type veth peer name b0");
        for interface in ["lo", "tap0", "a0", "b0"] {
            run(&format!("ip link set {interface} up"));
        }
        test();
    });
    inside.join().unwrap();
}

fn run(command: &str) {
    let mut words = command.split(' ');
    let status = Command::new(words.next().unwrap()).args(words).status().unwrap();
    assert!(status.success(), "{command}");
}

fn host(arguments: &[&str]) -> Output {
    roundtrip().arg("host").args(arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!("{error}: {}{}", text(output), String::from_utf8_lossy(&output.stderr))
    })
}

/// Names of the findings about one subject.
fn about(result: &Value, subject: &str) -> Vec<String> {
    let findings = result["findings"].as_array().unwrap().iter();
    let its = findings.filter(|finding| finding["subject"] == subject);
    its.map(|finding| finding["id"].as_str().unwrap().to_owned()).collect()
}

const CHECK_TAP: [&str; 6] = ["check", "--interface", "tap0", "--watch", "0s", "--json"];

#[test]
fn show_prints_speed_duplex_negotiation_and_modes_in_words() {
    in_namespace(|| {
        run("ethtool -s tap0 speed 1000 duplex half autoneg on advertise 100baseT/Full on");
        run("ip link set tap0 mtu 9000");
        let output = host(&["show", "tap0"]);
        assert_eq!(output.status.code(), Some(0));
        let text = text(&output);
        for row in [
            "interface    tap0: no link, driver tun",
            "speed        1 000 Mb/s",
            "duplex       half",
            "negotiation  on",
            "supported    none reported",
            "advertised   100baseT/Full",
            "partner      not reported",
            "port         twisted pair",
            "MTU          9000 bytes, of 68 to 65521",
            "coalescing   rx-frames 0",
            "errors       none",
        ] {
            assert!(text.lines().any(|line| line == row), "{row}:\n{text}");
        }
        assert!(text.contains("\ncarrier      changed "), "{text}");
        let facts = json(&host(&["show", "tap0", "--json"]));
        assert_eq!(facts["name"], "tap0");
        assert_eq!(
            (&facts["modes"]["speed_mbps"], &facts["modes"]["duplex"]),
            (&1000.into(), &"half".into())
        );
        assert_eq!((&facts["mtu"], &facts["max_mtu"]), (&9000.into(), &65_521.into()));
    });
}

#[test]
fn an_interface_that_does_not_exist_is_a_usage_error() {
    in_namespace(|| {
        for arguments in [&["show", "eth9"][..], &["check", "--interface", "eth9", "--watch", "0s"]] {
            let output = host(arguments);
            assert_eq!(output.status.code(), Some(2), "{arguments:?}");
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(error.contains("there is no interface"), "{error}");
        }
    });
}

#[test]
fn a_healthy_tap_has_no_finding_and_half_duplex_is_found_on_it() {
    in_namespace(|| {
        assert_eq!(about(&json(&host(&CHECK_TAP)), "tap0"), Vec::<String>::new());
        run("ethtool -s tap0 speed 100 duplex half");
        let output = host(&CHECK_TAP);
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(about(&json(&output), "tap0"), ["half-duplex"]);
        let output = host(&["check", "--interface", "tap0", "--watch", "0s", "--explain"]);
        assert_eq!(output.status.code(), Some(1));
        let text = text(&output);
        for part in [
            "broken: half-duplex (tap0)\n   measured   100 Mb/s, half duplex\n",
            "   costs      at most 100mbit/s\n",
            "   remedy     ethtool tap0\n",
            "roundtrip host set tap0 speed=100 duplex=full autoneg=off --force-speed --apply",
            "half-duplex: the link is half duplex\n",
            "illumos",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        assert!(!text.contains("host tune half-duplex"), "a bare tune forces nothing: {text}");
        run("ethtool -s tap0 autoneg off speed 100 duplex full");
        assert_eq!(about(&json(&host(&CHECK_TAP)), "tap0"), Vec::<String>::new());
    });
}

#[test]
fn an_explanation_is_printed_without_a_check_and_an_unknown_name_is_a_usage_error() {
    let output = host(&["check", "--explain", "half-duplex"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(text(&output).starts_with("half-duplex: the link is half duplex\n"), "{}", text(&output));
    let output = host(&["check", "--explain", "quarter-duplex"]);
    assert_eq!(output.status.code(), Some(2));
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        error.contains("there is no finding quarter-duplex; there are ") && error.contains("half-duplex"),
        "{error}"
    );
}

#[test]
fn prometheus_gets_findings_and_counters() {
    in_namespace(|| {
        run("ethtool -s tap0 speed 100 duplex half");
        let output = host(&["check", "--watch", "0s", "--prometheus"]);
        assert_eq!(output.status.code(), Some(1));
        let text = text(&output);
        for line in [
            "roundtrip_host_finding{id=\"half-duplex\",subject=\"tap0\",severity=\"broken\"} 1",
            "roundtrip_host_link_up{interface=\"a0\"} 1",
            "roundtrip_host_link_up{interface=\"tap0\"} 0",
            "roundtrip_host_link_speed_bits_per_second{interface=\"a0\"} 10000000000",
            "roundtrip_host_link_mtu_bytes{interface=\"a0\"} 1500",
            "roundtrip_host_link_errors_total{interface=\"a0\",counter=\"rx_crc_errors\"} 0",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\n{text}");
        }
    });
}

#[test]
fn the_table_of_links_has_a_row_for_each_with_its_columns_in_line() {
    in_namespace(|| {
        let text = text(&host(&["check", "--watch", "0s"]));
        // In 80 columns the table may be two, each with the names.
        let heading = text.lines().find(|line| line.contains("negotiates")).unwrap();
        let row = text.lines().find(|line| line.trim_start().starts_with("a0 ")).unwrap();
        let at = |name: &str| heading.find(name).unwrap();
        assert!(row[at("driver")..].starts_with("veth"), "{text}");
        assert!(row[at("link")..].starts_with("up"), "{text}");
        assert!(row[at("duplex")..].starts_with("full"), "{text}");
        assert_eq!(row[at("Mb/s")..at("duplex")].trim(), "10 000", "{text}");
        assert!(row[at("MTU")..].starts_with("1500"), "{text}");
        assert!(!text.lines().any(|line| line.trim_start().starts_with("lo ")), "{text}");
    });
}

/// A folder with a program `ssh` that writes its arguments to a file and prints what the other host would.
fn fake_ssh(script: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("ssh");
    let arguments = folder.path().join("arguments");
    std::fs::write(
        &program,
        format!("#!/bin/sh\nprintf '%s\\n' \"$@\" > {}\n{script}\n", arguments.display()),
    )
    .unwrap();
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755)).unwrap();
    folder
}

fn check_with_peer(folder: &tempfile::TempDir) -> Output {
    check_of(folder, &["--peer", "127.0.0.1", "--ssh"])
}

fn check_of(folder: &tempfile::TempDir, peer: &[&str]) -> Output {
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let arguments = ["host", "check", "--interface", "tap0", "--watch", "0s", "--json"];
    roundtrip().args(arguments).args(peer).env("PATH", path).output().unwrap()
}

#[test]
fn the_check_of_another_host_comes_over_ssh_with_its_findings() {
    in_namespace(|| {
        run("ethtool -s tap0 speed 100 duplex half");
        let there = tempfile::tempdir().unwrap();
        let file = there.path().join("check.json");
        std::fs::write(&file, host(&CHECK_TAP).stdout).unwrap();
        run("ethtool -s tap0 duplex full");
        let folder = fake_ssh(&format!("cat {}; exit 1", file.display()));
        let result = json(&check_with_peer(&folder));
        assert_eq!(about(&result, "tap0"), Vec::<String>::new());
        assert_eq!(about(&result, "127.0.0.1: tap0"), ["half-duplex"]);
        let arguments = std::fs::read_to_string(folder.path().join("arguments")).unwrap();
        let expected = "-o\nBatchMode=yes\n-o\nConnectTimeout=5\n--\n127.0.0.1\nroundtrip host check --json --watch 0ms\n";
        assert_eq!(arguments, expected);
    });
}

#[test]
fn a_host_that_cannot_be_asked_is_named_as_not_seen() {
    in_namespace(|| {
        let scripts = [
            ("echo 'Permission denied (publickey).' >&2; exit 255", "Permission denied (publickey)."),
            ("echo not JSON", "printed no result"),
            ("head -c 100000 /dev/zero", "printed no result"),
        ];
        for (script, why) in scripts {
            let result = json(&check_with_peer(&fake_ssh(script)));
            let unseen = result["facts"]["unseen"].as_array().unwrap().clone();
            let one = unseen.iter().find(|unseen| unseen["what"] == "the check on 127.0.0.1").unwrap();
            assert!(one["why"].as_str().unwrap().contains(why), "{one}");
        }
    });
}

#[test]
fn ssh_is_run_only_when_it_is_asked_for_and_gets_the_user_but_not_the_port() {
    in_namespace(|| {
        let runs = [
            (&["--peer", "127.0.0.1:9"][..], None),
            (&["--peer", "127.0.0.1:9", "--ssh"], Some("127.0.0.1")),
            (&["--peer", "root@127.0.0.1:9"], Some("root@127.0.0.1")),
            (&["--peer", "root@127.0.0.1"], Some("root@127.0.0.1")),
        ];
        for (peer, expected) in runs {
            let folder = fake_ssh("exit 255");
            let result = json(&check_of(&folder, peer));
            let asked = std::fs::read_to_string(folder.path().join("arguments")).ok();
            let destination = asked.as_deref().and_then(|asked| asked.lines().nth(5));
            assert_eq!(destination, expected, "{peer:?}");
            assert_eq!(result["facts"]["path"]["address"], "127.0.0.1", "{peer:?}");
        }
    });
}

#[test]
fn a_link_local_peer_is_probed_through_its_interface() {
    in_namespace(|| {
        run("ip addr add fe80::77/64 dev a0 nodad");
        run("ip addr add fe80::78/64 dev b0 nodad");
        let result =
            json(&host(&["check", "--interface", "a0", "--watch", "0s", "--json", "--peer", "fe80::77%a0"]));
        let path = &result["facts"]["path"];
        assert_eq!((&path["interface"], &path["address"]), (&"a0".into(), &"fe80::77".into()), "{path}");
    });
}

#[test]
fn arguments_that_name_nothing_are_usage_errors_with_a_reason() {
    in_namespace(|| {
        let long = &"a".repeat(300);
        let cases = [
            (&["--peer", "10.0.2.2:99999"][..], "'10.0.2.2:99999' is no peer"),
            (&["--peer", ""], "'' is no peer"),
            (&["--peer", "a b"], "'a b' is no peer"),
            (&["--peer=-oProxyCommand=true"], "-oProxyCommand"),
            (&["--peer", "fe80::1"], "name the interface: fe80::1%eth0"),
            (&["--peer", "256.1.1.1"], "cannot examine '256.1.1.1'"),
            (&["--peer", "*"], "cannot examine '*'"),
            (&["--peer", "fe80::1%nope"], "cannot examine 'fe80::1%nope'"),
            (&["--peer", "0"], "0.0.0.0 is the unspecified address"),
            (&["--peer", "0.0.0.0"], "the unspecified address"),
            (&["--peer", "::"], "the unspecified address"),
            (&["--peer", "ff02::1"], "a multicast group"),
            (&["--peer", "ff02::1%a0"], "a multicast group"),
            (&["--peer", long], "has 300 bytes"),
            (&["--pid", "4194305"], "there is no process 4194305"),
            (&["--pid", "0"], "there is no process 0"),
            (&["--interface", "eth9"], "there is no interface 'eth9'"),
            (&["--interface", ""], "there is no interface ''"),
            (&["--interface", "a-name-that-is-too-long"], "there is no interface 'a-name-that-is-too-long'"),
            (&["--port", "0"], "0 is not in 1..="),
            (&["--ssh"], "--peer"),
            (&["--load"], "--peer"),
            (&["--peer", "127.0.0.1", "--load-time", "1s"], "--load"),
            (&["--peer", "127.0.0.1", "--load", "--load-time", "61s"], "100ms to 60s"),
            (&["--peer", "127.0.0.1", "--load", "--load-port", "0"], "0 is not in 1..="),
            (&["--peer", "127.0.0.1", "--load", "--load-bytes", "0"], "1 to 128G"),
        ];
        for (arguments, why) in cases {
            let output = host(&[&["check", "--watch", "0s"], arguments].concat());
            let error = String::from_utf8_lossy(&output.stderr).into_owned();
            assert_eq!(output.status.code(), Some(2), "{arguments:?}: {error}");
            assert!(error.contains(why), "{arguments:?}: {error}");
            assert_eq!(text(&output), "", "{arguments:?}");
        }
    });
}

#[test]
fn a_peer_that_was_asked_for_and_not_examined_is_not_a_success() {
    in_namespace(|| {
        // There is no route, and only the loopback interface to look at.
        let output = host(&["check", "--watch", "0s", "--interface", "lo", "--peer", "192.0.2.1", "--json"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{error}");
        assert!(error.contains("nothing answered on the way to the peer"), "{error}");
        let unseen = json(&output)["facts"]["unseen"].to_string();
        assert!(unseen.contains("no route to 192.0.2.1"), "{unseen}");
        run("ip link set lo up");
        let output = host(&["check", "--watch", "0s", "--interface", "lo", "--peer", "127.0.0.1", "--json"]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!error.contains("nothing answered"), "{error}");
    });
}
