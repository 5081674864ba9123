//! Persistent wires: their traffic, rejected requests, and their complete removal. The rate of a shaped wire is tested
//! in crates/testbed/tests/rate.rs.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;

use common::roundtrip;
use serde_json::Value;

/// A name that no other run uses.
fn name(of: &str) -> String {
    format!("{of}-{}", std::process::id())
}

fn wire(state: &Path, arguments: &[&str]) -> (Option<i32>, String, String) {
    let output =
        roundtrip().args(["wire", "--state", state.to_str().unwrap()]).args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Runs a command line in a namespace.
fn sh(place: &testbed::Namespace, command: &str) -> std::process::Output {
    place
        .run(|| {
            let output = Command::new("sh").args(["-c", command]).output();
            output.map_err(|source| testbed::WireError::Io { what: command.into(), source })
        })
        .unwrap()
}

#[track_caller]
fn is_root() -> bool {
    testing::require_root("namespaces")
}

fn namespaces(name: &str) -> usize {
    ["client", "server"]
        .iter()
        .filter(|side| Path::new(&format!("/run/netns/roundtrip-{name}-{side}")).exists())
        .count()
}

#[test]
fn wire_carries_commands_until_it_is_taken_down() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, name) = (folder.path(), name("up"));
    let (code, out, error) =
        wire(state, &["up", "--name", &name, "--rate", "1gbit", "--mtu", "9000", "--server-cpu", "0"]);
    assert_eq!(code, Some(0), "{out}{error}");
    // Twice is refused, and leaves the first as it is.
    let (code, _, error) = wire(state, &["up", "--name", &name]);
    assert!(code == Some(2) && error.contains("there is a wire of that name"), "{error}");
    let (code, out, _) = wire(state, &["show", "--json"]);
    assert_eq!(code, Some(0));
    let shown: Value = serde_json::from_str(&out).unwrap();
    let end = &shown["wires"][0]["ends"][1];
    assert!(end["queue"].as_str().unwrap().starts_with("tbf"), "{end:#}");
    assert_eq!(
        (&end["mtu_bytes"], &end["offloads_on"]),
        (&Value::from(9000), &Value::from(Vec::<Value>::new())),
        "{end:#}"
    );
    assert_eq!(shown["wires"][0]["crosses"], true, "{shown:#}");
    // What runs on one side sees that side's interface, and nothing else.
    let (code, out, _) = wire(state, &["exec", "client", "--name", &name, "--", "ip", "-o", "link"]);
    assert!(code == Some(0) && out.contains("client0") && out.lines().count() == 2, "{out}");
    let (code, _, _) = wire(state, &["exec", "server", "--name", &name, "--", "sh", "-c", "exit 7"]);
    assert_eq!(code, Some(7), "the command's own end");
    let (_, out, _) = wire(state, &["show"]);
    assert!(out.contains("100 exchanges cross it"), "{out}");
    assert_eq!(wire(state, &["down", "--name", &name]).0, Some(0));
    assert_eq!(namespaces(&name), 0);
    let (code, _, error) = wire(state, &["down", "--name", &name]);
    assert!(code == Some(2) && error.contains("there is no wire"), "{error}");
}

#[test]
fn the_wires_that_were_taken_down_are_named() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, names) = (folder.path(), [name("down-a"), name("down-b")]);
    for name in &names {
        let (code, out, error) = wire(state, &["up", "--name", name, "--json"]);
        assert_eq!(code, Some(0), "{error}");
        let up: Value = serde_json::from_str(&out).unwrap();
        assert_eq!(up["name"], name.as_str());
        for side in ["client", "server"] {
            let namespace = up[side]["namespace"].as_str().unwrap();
            let shown = Command::new("ip").args(["-n", namespace, "-o", "address"]).output().unwrap();
            let shown = String::from_utf8(shown.stdout).unwrap();
            assert!(shown.contains(up[side]["address"].as_str().unwrap()), "{up}: {shown}");
        }
    }
    let down = |arguments: &[&str]| -> Value {
        let (code, out, error) = wire(state, &[&["down", "--json"][..], arguments].concat());
        assert_eq!(code, Some(0), "{error}");
        serde_json::from_str(&out).unwrap()
    };
    assert_eq!(down(&["--name", &names[0]])["down"], Value::from(vec![names[0].clone()]));
    assert_eq!(down(&["--all"])["down"], Value::from(vec![names[1].clone()]));
    assert_eq!(namespaces(&names[0]) + namespaces(&names[1]), 0);
}

/// Packets that an interface has sent and received, by the kernel's counters.
fn counted(state: &Path, name: &str, side: &str) -> [u64; 2] {
    ["tx_packets", "rx_packets"].map(|counter| {
        let file = format!("/sys/class/net/{side}0/statistics/{counter}");
        let (code, out, error) = wire(state, &["exec", side, "--name", name, "--", "cat", &file]);
        assert_eq!(code, Some(0), "{error}");
        out.trim().parse().unwrap()
    })
}

#[test]
fn packets_of_a_wire_are_those_of_its_ends() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, name) = (folder.path(), name("count"));
    let (code, _, error) = wire(state, &["up", "--name", &name]);
    assert_eq!(code, Some(0), "{error}");
    let both = || ["client", "server"].map(|side| counted(state, &name, side));
    let before = both();
    let (_, out, _) = wire(state, &["show", "--json"]);
    let after = both();
    assert_eq!(wire(state, &["down", "--name", &name]).0, Some(0));
    let shown: Value = serde_json::from_str(&out).unwrap();
    let shown = &shown["wires"][0];
    let exchanges = shown["crossing"]["exchanges"].as_u64().unwrap();
    assert!(exchanges > 0 && shown["crosses"] == true, "{shown:#}");
    for (place, side) in ["client", "server"].into_iter().enumerate() {
        assert_eq!(shown["ends"][place]["side"], side);
        for way in [0, 1] {
            let (before, after) = (before[place][way], after[place][way]);
            let crossed = shown["crossing"][side][way].as_u64().unwrap();
            let packets = shown["ends"][place]["packets"][way].as_u64().unwrap();
            assert!(crossed >= exchanges && crossed <= after - before, "{side} {way}: {shown:#}");
            assert!(packets >= before + crossed && packets <= after, "{side} {way}: {before} {shown:#}");
        }
    }
}

#[test]
fn queue_congestion_control_and_offloads_are_as_requested() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, name) = (folder.path(), name("opt"));
    let asked = ["--queue", "100k", "--congestion", "reno", "--offloads", "--rate", "1gbit", "--mtu", "1500"];
    let (code, _, error) = wire(state, &[&["up", "--name", &name][..], &asked].concat());
    assert_eq!(code, Some(0), "{error}");
    let (_, out, _) = wire(state, &["show", "--json"]);
    let shown: Value = serde_json::from_str(&out).unwrap();
    let exec =
        |command: &[&str]| wire(state, &[&["exec", "server", "--name", &name, "--"][..], command].concat()).1;
    let queue = exec(&["tc", "-s", "qdisc", "show", "dev", "server0"]);
    let congestion = exec(&["cat", "/proc/sys/net/ipv4/tcp_congestion_control"]);
    assert_eq!(wire(state, &["down", "--name", &name]).0, Some(0));
    assert!(!shown["wires"][0]["ends"][0]["offloads_on"].as_array().unwrap().is_empty(), "{shown:#}");
    assert!(shown["wires"][0]["ends"][0]["link"].as_str().unwrap().contains("full"), "{shown:#}");
    assert_eq!(congestion.trim(), "reno");
    // tc prints a queue in time: 100 KiB and the bucket are about a millisecond.
    let latency = queue.split("lat ").nth(1).and_then(|rest| rest.split_whitespace().next());
    assert!(latency.is_some_and(|time| time.ends_with("us") || time.ends_with("ms")), "{queue}");
    assert!(!queue.contains("lat 134"), "the usual queue: {queue}");
    let (code, _, error) = wire(state, &["up", "--name", &name, "--congestion", "psychic"]);
    assert!(code == Some(2) && error.contains("psychic"), "{error}");
    let (code, _, error) = wire(state, &["up", "--name", &name, "--queue", "100"]);
    assert!(code == Some(2) && error.contains("at least one frame"), "{error}");
}

/// Two cards (here: a veth pair in their place) are moved into their namespaces and return with their settings.
#[test]
fn cards_return_with_their_settings() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, name) = (folder.path().to_str().unwrap().to_owned(), name("nic"));
    // In a namespace of its own, so that the host's cards are not touched.
    let place = testbed::Namespace::new().unwrap();
    let inside = |command: &str| sh(&place, command);
    let program = env!("CARGO_BIN_EXE_roundtrip");
    let text = |output: &std::process::Output| {
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    };
    let made = inside(
        "ip link set lo up && ip link add ca type veth peer name cb && ip link set ca mtu 2000 && ip link set cb mtu 2000 &&
         ip address add 192.0.2.1/24 dev ca && ip link set ca up && ip link set cb up &&
         ip link add cc type veth peer name cd && ip address add 198.51.100.1/24 dev cc && ip link set cc up && ip link set cd up &&
         ip route add default via 198.51.100.2 dev cc",
    );
    assert!(made.status.success(), "{}", text(&made));
    let refused = inside(&format!("{program} wire --state {state} up --name {name} --nic cc,cd"));
    assert!(
        refused.status.code() == Some(2) && text(&refused).contains("cc: a default route goes over it"),
        "{}",
        text(&refused)
    );
    let refused = inside(&format!(
        "SSH_CONNECTION='192.0.2.9 1 192.0.2.1 22' {program} wire --state {state} up --name {name} --nic ca,cb"
    ));
    assert!(
        refused.status.code() == Some(2) && text(&refused).contains("your login goes over it"),
        "{}",
        text(&refused)
    );
    let refused = inside(&format!("{program} wire --state {state} up --name {name} --nic ca,nowhere"));
    assert!(
        refused.status.code() == Some(2) && text(&refused).contains("no such interface"),
        "{}",
        text(&refused)
    );
    assert_eq!(namespaces(&name), 0);
    let up = inside(&format!("{program} wire --state {state} up --name {name} --nic ca,cb --mtu 3000"));
    assert!(up.status.success(), "{}", text(&up));
    assert!(!inside("ip link show dev ca").status.success(), "it is in its namespace");
    let shown = inside(&format!("{program} wire --state {state} show"));
    assert!(shown.status.success() && text(&shown).contains("cross it"), "{}", text(&shown));
    // As after a crash: only the written record is left.
    let down = inside(&format!("{program} wire --state {state} down --all"));
    assert!(down.status.success(), "{}", text(&down));
    let back = text(&inside("ip address show dev ca; ip route show default"));
    for as_it_was in ["mtu 2000", "192.0.2.1/24", "UP", "default via 198.51.100.2"] {
        assert!(back.contains(as_it_was), "{as_it_was}: {back}");
    }
    assert!(!back.contains("10.99.0"), "{back}");
    assert_eq!(namespaces(&name), 0);
}

/// The plan for hosts that cannot move a card: its commands, run in a namespace, force packets over the cable.
#[test]
fn the_nat_plan_forces_packets_over_the_cable() {
    if !is_root() {
        return;
    }
    let place = testbed::Namespace::new().unwrap();
    let inside = |command: &str| sh(&place, command);
    assert!(inside("ip link set lo up && ip link add na type veth peer name nb").status.success());
    let plan = testbed::nat_plan("na", "nb");
    for command in &plan.commands {
        let done = inside(command);
        assert!(done.status.success(), "{command}: {}", String::from_utf8_lossy(&done.stderr));
    }
    let crossed = place
        .run(|| {
            use std::io::{Read, Write};
            let fail = |source| testbed::WireError::Io { what: "nat".into(), source };
            let listener = std::net::TcpListener::bind("10.98.2.1:7000").map_err(fail)?;
            let answers = std::thread::spawn(move || {
                let (mut stream, peer) = listener.accept().unwrap();
                let mut bytes = [0; 4];
                stream.read_exact(&mut bytes).unwrap();
                stream.write_all(&bytes).unwrap();
                peer
            });
            let socket = socket_from("10.98.1.1", plan.connect_to, 7000).map_err(fail)?;
            let mut stream = socket;
            stream.write_all(b"ping").map_err(fail)?;
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).map_err(fail)?;
            Ok((bytes, answers.join().unwrap()))
        })
        .unwrap();
    assert_eq!((&crossed.0, crossed.1.ip().to_string().as_str()), (b"ping", "10.98.1.100"));
    let counted = String::from_utf8(inside("cat /proc/net/dev").stdout).unwrap();
    let line = counted.lines().find(|line| line.trim_start().starts_with("nb:")).unwrap().to_owned();
    let packets: u64 = line.split_whitespace().nth(2).unwrap().parse().unwrap();
    assert!(packets >= 4, "they came over the cable: {line}");
    for command in &plan.undo {
        assert!(inside(command).status.success(), "{command}");
    }
    let left = String::from_utf8(inside("ip address; ip route; nft list ruleset").stdout).unwrap();
    assert!(!left.contains("10.98."), "{left}");
}

/// A connection from an address of this host.
fn socket_from(own: &str, to: &str, port: u16) -> std::io::Result<std::net::TcpStream> {
    use nix::sys::socket::{AddressFamily, SockFlag, SockType, SockaddrIn, bind, connect, socket};
    use std::os::fd::AsRawFd;
    let socket = socket(AddressFamily::Inet, SockType::Stream, SockFlag::SOCK_CLOEXEC, None)?;
    let address = |ip: &str, port| SockaddrIn::from(std::net::SocketAddrV4::new(ip.parse().unwrap(), port));
    bind(socket.as_raw_fd(), &address(own, 0))?;
    connect(socket.as_raw_fd(), &address(to, port))?;
    Ok(socket.into())
}

/// A missing program is reported once, with its package, before anything starts.
#[test]
fn missing_tool_is_reported_in_one_line() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    // In a mount namespace of its own, where nothing is in /usr/sbin.
    let script = format!(
        "mount --make-rprivate /; mount -t tmpfs none /usr/sbin; exec {} study --plan post -o {}",
        env!("CARGO_BIN_EXE_roundtrip"),
        folder.path().display()
    );
    let output = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(1), "{stderr}");
    let line =
        stderr.lines().find(|line| line.contains("is not installed")).unwrap_or_else(|| panic!("{stderr}"));
    assert_eq!(line.matches("is not installed").count(), 1, "{line}");
    assert!(line.contains("apt-get install") && !folder.path().join("experiment.json").exists(), "{line}");
}

/// A study on a wire that is up leaves it up and unchanged.
#[test]
fn study_uses_a_persistent_wire_and_leaves_it_unchanged() {
    if !is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (state, name) = (folder.path(), name("use"));
    let up = [
        "up",
        "--name",
        &name,
        "--rate",
        "500mbit",
        "--mtu",
        "1500",
        "--client-cpu",
        "0",
        "--server-cpu",
        "0",
    ];
    assert_eq!(wire(state, &up).0, Some(0));
    let plan = "name = 'x'\nabout = 'y'\nrate = '1gbit'\nruntime = '100ms'\nrepeats = 1\n[[case]]\nlabel = 'copy'\nmtu = 1500\n\
                work = { copy = { bytes = '4M', block = '64k' } }\n";
    let path = |file: &str| folder.path().join(file).display().to_string();
    std::fs::write(path("plan.toml"), plan).unwrap();
    let wires = folder.path().display().to_string();
    let study = |name: &str| {
        roundtrip()
            .args([
                "study",
                "--plan",
                &path("plan.toml"),
                "--wire",
                name,
                "--wires",
                &wires,
                "-o",
                &path("out"),
                "--json",
            ])
            .output()
            .unwrap()
    };
    let done = study(&name);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let result: Value = serde_json::from_slice(&done.stdout).unwrap();
    assert_eq!(result["bits_per_second"], 500_000_000, "the wire's rate, and not the plan's");
    assert!(result["cases"][0]["median"].as_f64().unwrap() < 63.0, "{result:#}");
    let (code, shown, _) = wire(state, &["show"]);
    assert!(code == Some(0) && shown.contains("cross it"), "{shown}");
    assert_eq!(wire(state, &["down", "--name", &name]).0, Some(0));
    let gone = study(&name);
    let stderr = String::from_utf8_lossy(&gone.stderr).into_owned();
    assert!(gone.status.code() == Some(2) && stderr.contains("there is no wire"), "{stderr}");
}

#[test]
fn impossible_wires_are_rejected_before_anything_is_made() {
    let folder = tempfile::tempdir().unwrap();
    for (arguments, stderr) in [
        (&["up", "--name", "Not Good"][..], "1 to 20 small letters"),
        (&["up", "--mtu", "100"], "576 to 65535"),
        (&["up", "--nic", "eth0"], "two different cards"),
        (&["up", "--server-cpu", "9999"], "CPU 9999: this machine has 0 to"),
        (&["exec", "client", "--name", "nothing", "--", "true"], "there is no wire 'nothing'"),
        (&["exec", "middle", "--", "true"], "client, server"),
    ] {
        let (code, _, error) = wire(folder.path(), arguments);
        assert!(code == Some(2) && error.contains(stderr), "{arguments:?}: {error}");
    }
    let (code, out, _) = wire(folder.path(), &["plan", "--nat", "eth4", "eth5"]);
    assert!(code == Some(0) && out.contains("dev eth4") && out.contains("# undo"), "{out}");
    let (code, out, _) = wire(folder.path(), &["show"]);
    assert!(code == Some(0) && out.contains("no wire is up"), "{out}");
}
