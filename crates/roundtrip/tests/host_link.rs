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
            assert!(error.contains("there is no interface eth9"), "{error}");
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
            "   remedy     ethtool -s tap0 autoneg off speed 100 duplex full\n",
            "   or         roundtrip host tune half-duplex\n",
            "half-duplex: the link is half duplex\n",
            "illumos",
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
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
        let heading = text.lines().find(|line| line.contains("negotiates")).unwrap();
        let row = text.lines().find(|line| line.trim_start().starts_with("a0 ")).unwrap();
        let at = |name: &str| heading.find(name).unwrap();
        assert!(row[at("driver")..].starts_with("veth"), "{text}");
        assert!(row[at("link")..].starts_with("up"), "{text}");
        assert!(row[at("duplex")..].starts_with("full"), "{text}");
        assert_eq!(row[at("Mb/s")..at("duplex")].trim(), "10 000", "{text}");
        assert!(row[at("MTU")..].starts_with("1500 "), "{text}");
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
    let path = format!("{}:{}", folder.path().display(), std::env::var("PATH").unwrap());
    let arguments =
        ["host", "check", "--interface", "tap0", "--watch", "0s", "--json", "--peer", "127.0.0.1"];
    roundtrip().args(arguments).env("PATH", path).output().unwrap()
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
