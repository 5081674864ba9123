//! Control of a running target: every call over HTTP and by `roundtrip ctl`, what is refused changes nothing, and metrics count what was
//! done.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use common::{IQN, bench, qemu_io, roundtrip};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

const OTHER: &str = "iqn.2026-11.example.roundtrip:other";

/// A target with a control socket, and its configuration file.
struct Controlled {
    child: Child,
    address: String,
    metrics: String,
    folder: tempfile::TempDir,
}

impl Drop for Controlled {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Controlled {
    fn start(config: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (file, socket) = (folder.path().join("target.toml"), folder.path().join("control"));
        std::fs::write(&file, config).unwrap();
        let mut child = roundtrip()
            .args(["target", "--portal", "127.0.0.1:0", "--metrics", "127.0.0.1:0", "--config"])
            .arg(&file)
            .arg("--control")
            .arg(&socket)
            .env("ROUNDTRIP_LOG", "warn")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        let metrics = lines
            .find_map(|line| line.unwrap().strip_prefix("metrics at http://").map(str::to_owned))
            .unwrap();
        // What follows must not fill the pipe.
        std::thread::spawn(move || lines.map_while(Result::ok).for_each(drop));
        let mut ready = String::new();
        let mut out = BufReader::new(child.stdout.take().unwrap());
        out.read_line(&mut ready).unwrap();
        std::thread::spawn(move || out.lines().map_while(Result::ok).for_each(drop));
        let address = ready.split(' ').nth(1).unwrap().to_owned();
        Self { child, address, metrics: metrics.trim_end_matches("/metrics").to_owned(), folder }
    }

    fn socket(&self) -> PathBuf {
        self.folder.path().join("control")
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("target.toml")
    }

    /// One exchange of HTTP over the control socket: status and body.
    fn http(&self, method: &str, path: &str, body: Option<&Value>) -> (u16, String) {
        let body = body.map(Value::to_string).unwrap_or_default();
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        let stream = UnixStream::connect(self.socket()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        exchange(stream, &request)
    }

    fn json(&self, method: &str, path: &str, body: Option<&Value>) -> Value {
        let (status, text) = self.http(method, path, body);
        assert_eq!(status, 200, "{method} {path}: {text}");
        serde_json::from_str(&text).unwrap()
    }

    fn ctl(&self, words: &[&str]) -> Output {
        roundtrip().args(["ctl", "--control"]).arg(self.socket()).args(words).output().unwrap()
    }

    fn ctl_json(&self, words: &[&str]) -> Value {
        let output = self.ctl(&[words, &["--json"]].concat());
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap_or(Value::Null)
    }

    /// The declared state: targets, disks, rules, send policy.
    fn state(&self) -> [Value; 3] {
        let mut disks = self.json("GET", "/v1/disks", None);
        disks
            .as_array_mut()
            .unwrap()
            .iter_mut()
            .for_each(|disk| drop(disk.as_object_mut().unwrap().remove("counts")));
        [disks, self.json("GET", "/v1/access", None), self.json("GET", "/v1/send", None)]
    }

    fn metric(&self, name: &str, labels: &[&str]) -> f64 {
        let (status, text) = exchange(
            std::net::TcpStream::connect(&self.metrics).unwrap(),
            "GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n",
        );
        assert_eq!(status, 200);
        let is_it = |line: &&str| {
            line.split(['{', ' ']).next() == Some(name) && labels.iter().all(|label| line.contains(label))
        };
        let values =
            text.lines().filter(is_it).map(|line| line.rsplit(' ').next().unwrap().parse::<f64>().unwrap());
        values.sum()
    }

    fn disk_url(&self, iqn: &str, lun: u16) -> String {
        format!("iscsi://{}/{iqn}/{lun}", self.address)
    }
}

fn exchange<S: std::io::Read + std::io::Write>(mut stream: S, request: &str) -> (u16, String) {
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
}

fn config() -> String {
    format!(
        "# ours\niqn = \"{IQN}\"\n[luns]\n0 = \"ram:4M\"   # the first\n[[target]]\niqn = \"{OTHER}\"\nluns.0 = \"ram:1M\"\n"
    )
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn every_call_by_http() {
    let target = Controlled::start(&config());
    let other = format!("/v1/targets/{OTHER}");
    let status = target.json("GET", "/v1/status", None);
    let limits: Vec<(&str, u64)> = (status["limits"].as_array().unwrap().iter())
        .map(|one| (one["limit"].as_str().unwrap(), one["used"].as_u64().unwrap()))
        .collect();
    let in_use = ["connections", "sessions"].map(|name| (name, status["sessions"].as_u64().unwrap()));
    assert_eq!(limits, [in_use[0], ("logins", 0), in_use[1], ("memory_bytes", 0), ("receive_bytes", 0)]);
    assert_eq!(
        (&status["targets"], &status["disks"], &status["draining"]),
        (&json!(2), &json!(2), &json!(false))
    );
    assert_eq!(target.json("GET", "/v1/portals", None)[0]["address"], json!(target.address));
    assert_eq!(
        target.json("PUT", &format!("{other}/disks/3"), Some(&json!({ "store": "ram:1M", "serial": "abc" }))),
        json!({})
    );
    let disks = target.json("GET", "/v1/disks", None);
    let disk = disks.as_array().unwrap().iter().find(|disk| disk["lun"] == 3).unwrap();
    assert_eq!(
        (&disk["store"], &disk["serial"], &disk["bytes"]),
        (&json!("ram:1M"), &json!("abc"), &json!(1 << 20))
    );
    target.json("PUT", &format!("{other}/disks/3/size"), Some(&json!({ "size": "2M" })));
    assert_eq!(target.json("GET", "/v1/targets", None)[1]["disks"][1]["bytes"], json!(2 << 20));
    target.json("DELETE", &format!("{other}/disks/3"), None);
    target.json("PUT", "/v1/targets/iqn.2026-11.example.roundtrip:new", Some(&json!({})));
    assert_eq!(target.json("GET", "/v1/targets", None).as_array().unwrap().len(), 3);
    target.json("DELETE", "/v1/targets/iqn.2026-11.example.roundtrip:new", None);
    let rules = json!({ "rules": "addresses = ['192.0.2.0/24']" });
    target.json("PUT", &format!("{other}/access"), Some(&rules));
    assert_eq!(target.json("GET", "/v1/access", None)[OTHER], json!(["from 192.0.2.0/24"]));
    target.json("PUT", &format!("{other}/access"), Some(&json!({ "rules": "open" })));
    target.json("PUT", "/v1/send", Some(&json!({ "policy": "batch" })));
    assert_eq!(target.json("GET", "/v1/send", None)["policy"], "batch");
    target.json("PUT", "/v1/log-level", Some(&json!({ "level": "info" })));
    assert_eq!(target.json("GET", "/v1/log-level", None)["level"], "info");
    assert_eq!(target.json("GET", "/v1/reservations", None), json!([]));
    assert_eq!(target.json("DELETE", &format!("{other}/disks/0/reservations"), None)["cleared"], 0);
    assert_eq!(target.json("GET", "/v1/sessions", None), json!([]));
    assert_eq!(target.json("GET", "/v1/connections", None), json!([]));
    let (_, text) = target.http("GET", "/v1/config", None);
    assert!(text.contains("# ours") && text.contains("send = \"batch\""), "{text}");
    let more = format!("{text}[[target]]\niqn = 'iqn.2026-11.example.roundtrip:third'\nluns.0 = 'zero:1M'\n");
    let change = json!([
        "+ target iqn.2026-11.example.roundtrip:third",
        "+ LUN 0 of iqn.2026-11.example.roundtrip:third: zero:1M"
    ]);
    let dry = target.json("POST", "/v1/apply", Some(&json!({ "config": more, "dry_run": true })));
    assert_eq!((&dry["changes"], &dry["applied"]), (&change, &json!(false)));
    assert_eq!(target.json("GET", "/v1/targets", None).as_array().unwrap().len(), 2, "nothing has changed");
    let applied = target.json("POST", "/v1/apply", Some(&json!({ "config": more })));
    assert_eq!((&applied["changes"], &applied["applied"]), (&change, &json!(true)));
    assert_eq!(target.json("GET", "/v1/targets", None).as_array().unwrap().len(), 3);
    // The file does not have what was added: it serves a disk, so a reload refuses to drop it.
    assert_eq!(target.http("POST", "/v1/reload", None).0, 409);
    target.json("DELETE", "/v1/targets/iqn.2026-11.example.roundtrip:third", None);
    assert_eq!(target.json("POST", "/v1/reload", None)["changes"], json!(["~ send: batch -> auto"]));
    assert_eq!(target.json("GET", "/v1/openapi.json", None)["openapi"], "3.1.0");
    assert!(target.http("GET", "/metrics", None).1.ends_with("# EOF\n"));
}

#[test]
fn what_is_refused_changes_nothing() {
    let target = Controlled::start(&config());
    let before = target.state();
    let other = format!("/v1/targets/{OTHER}");
    let file = std::fs::read_to_string(target.file()).unwrap();
    let apply = |config: &str| json!({ "config": config });
    for (method, path, body, status) in [
        ("PUT", format!("{other}/disks/0"), Some(json!({ "store": "ram:1M", "new": true })), 409),
        ("PUT", format!("{other}/disks/1"), Some(json!({ "store": "floppy:1M" })), 400),
        ("PUT", format!("{other}/disks/1"), Some(json!({ "store": "file:/nonexistent/disk" })), 409),
        ("PUT", format!("{other}/disks/1"), Some(json!({ "store": "ram:1M", "serial": "../x" })), 400),
        ("PUT", format!("{other}/disks/256"), Some(json!({ "store": "ram:1M" })), 400),
        ("PUT", "/v1/targets/iqn.none/disks/0".to_owned(), Some(json!({ "store": "ram:1M" })), 404),
        ("DELETE", format!("{other}/disks/9"), None, 404),
        ("PUT", format!("{other}/disks/9/size"), Some(json!({ "size": "1M" })), 404),
        ("PUT", format!("{other}/disks/0/size"), Some(json!({ "size": "many" })), 400),
        ("PUT", format!("{other}/disks/0/size"), Some(json!({ "size": "700" })), 400),
        ("PUT", "/v1/targets/disk".to_owned(), Some(json!({})), 409),
        ("PUT", "/v1/targets/iqn.2026-11.example:x".to_owned(), Some(json!({ "groups": [9] })), 409),
        ("DELETE", "/v1/targets/iqn.none".to_owned(), None, 404),
        ("DELETE", "/v1/sessions/1".to_owned(), None, 404),
        ("DELETE", "/v1/initiators/iqn.none".to_owned(), None, 404),
        ("DELETE", format!("{other}/disks/9/reservations"), None, 404),
        ("PUT", format!("{other}/access"), Some(json!({ "rules": "chap = []" })), 400),
        (
            "PUT",
            format!("{other}/access"),
            Some(json!({ "rules": "initiators = [{ name = 'iqn.a:b', luns = [7] }]" })),
            409,
        ),
        ("PUT", "/v1/send".to_owned(), Some(json!({ "policy": "never" })), 400),
        ("PUT", "/v1/log-level".to_owned(), Some(json!({ "level": "a=b=c" })), 400),
        ("POST", "/v1/apply".to_owned(), Some(apply("luns = 5")), 400),
        ("POST", "/v1/apply".to_owned(), Some(apply(&format!("{file}[limits]\nsessions = 7"))), 409),
        (
            "POST",
            "/v1/apply".to_owned(),
            Some(apply(&format!("{file}luns.1 = 'ram:1M'\nluns.2 = 'file:/nonexistent/d'"))),
            409,
        ),
        ("POST", "/v1/drain".to_owned(), Some(json!({ "patience": 1 })), 400),
    ] {
        let (got, text) = target.http(method, &path, body.as_ref());
        assert_eq!(got, status, "{method} {path} {body:?}: {text}");
        assert!(
            serde_json::from_str::<Value>(&text).unwrap()["error"].as_str().is_some_and(|why| why.len() > 8),
            "{text}"
        );
        assert_eq!(target.state(), before, "{method} {path} {body:?}");
    }
    let too_long = json!({ "store": "x".repeat(2 << 20) });
    assert_eq!(target.http("PUT", &format!("{other}/disks/1"), Some(&too_long)).0, 413);
    assert_eq!(target.json("GET", "/v1/status", None)["draining"], false);
    // Those that may read metrics may do nothing else.
    for path in ["/v1/status", "/v1/drain", "/"] {
        let request =
            format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert_eq!(
            exchange(std::net::TcpStream::connect(&target.metrics).unwrap(), &request).0,
            404,
            "{path}"
        );
    }
}

#[test]
fn the_control_socket_is_for_its_owner() {
    use std::os::unix::fs::PermissionsExt as _;
    let target = Controlled::start(&config());
    let mode = target.socket().metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    // A second target does not take the socket away.
    let second = roundtrip()
        .args(["target", "--portal", "127.0.0.1:0", "--lun", "0=ram:1M", "--control"])
        .arg(target.socket())
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(second.status.code() == Some(2) && error.contains("another target listens there"), "{error}");
    assert_eq!(target.http("GET", "/v1/status", None).0, 200);
    // A file that is no socket is not removed.
    let file = target.folder.path().join("precious");
    std::fs::write(&file, "data").unwrap();
    let third = roundtrip()
        .args(["target", "--portal", "127.0.0.1:0", "--lun", "0=ram:1M", "--control"])
        .arg(&file)
        .output()
        .unwrap();
    assert!(!third.status.success() && std::fs::read_to_string(&file).unwrap() == "data");
}

#[test]
fn every_verb_of_ctl() {
    let target = Controlled::start(&config());
    let file = || std::fs::read_to_string(target.file()).unwrap();
    let fails = |words: &[&str], why: &str| {
        let output = target.ctl(words);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(1) && error.contains(why), "{words:?}: {error}");
    };
    assert_eq!(target.ctl_json(&["status"])["targets"], 2);
    assert_eq!(target.ctl_json(&["targets"]).as_array().unwrap().len(), 2);
    assert_eq!(target.ctl_json(&["portals"]).as_array().unwrap().len(), 1);
    fails(&["disk", "add", "3", "ram:1M"], "name one with --target");
    target.ctl_json(&["disk", "add", "3", "ram:1M", "--target", OTHER, "--serial", "abc"]);
    assert!(!file().contains("abc"), "volatile");
    fails(&["disk", "add", "3", "ram:1M", "--target", OTHER], "has a LUN 3");
    target.ctl_json(&["disk", "resize", "3", "2M", "--target", OTHER, "--save"]);
    assert!(
        file().contains("abc") && file().contains("ram:2M") && file().contains("# the first"),
        "{}",
        file()
    );
    target.ctl_json(&["disk", "remove", "3", "--target", OTHER, "--save"]);
    assert!(!file().contains("abc"));
    fails(&["disk", "remove", "3", "--target", OTHER], "no LUN 3");
    target.ctl_json(&["targets", "add", "iqn.2026-11.example.roundtrip:new", "--save"]);
    assert!(file().contains("roundtrip:new"));
    target.ctl_json(&["targets", "remove", "iqn.2026-11.example.roundtrip:new", "--save"]);
    assert!(!file().contains("roundtrip:new"));
    let rules = target.folder.path().join("access.toml");
    std::fs::write(&rules, "addresses = ['192.0.2.1']\n").unwrap();
    target.ctl_json(&["access", "set", rules.to_str().unwrap(), "--target", OTHER, "--save"]);
    assert!(file().contains("192.0.2.1"));
    assert_eq!(target.ctl_json(&["access"])[OTHER], json!(["from 192.0.2.1/32"]));
    target.ctl_json(&["access", "set", "open", "--target", OTHER]);
    target.ctl_json(&["send", "nodelay"]);
    assert_eq!(target.ctl_json(&["send"])["policy"], "nodelay");
    target.ctl_json(&["log-level", "error"]);
    assert_eq!(target.ctl_json(&["log-level"])["level"], "error");
    assert_eq!(target.ctl_json(&["reservations"]), json!([]));
    assert_eq!(target.ctl_json(&["reservations", "clear", "0", "--target", OTHER])["cleared"], 0);
    assert_eq!(target.ctl_json(&["session", "list"]), json!([]));
    fails(&["session", "drop", "1"], "no session 1");
    fails(&["session", "drop", "iqn.none"], "has no session");
    assert_eq!(target.ctl_json(&["connections"]), json!([]));
    let changed = target.ctl_json(&["reload"])["changes"].clone();
    assert!(changed.to_string().contains("192.0.2.1"), "{changed}");
    let wanted = target.folder.path().join("wanted.toml");
    std::fs::write(&wanted, format!("iqn = '{IQN}'\nluns.0 = 'ram:8M'\n")).unwrap();
    let dry = target.ctl_json(&["apply", wanted.to_str().unwrap(), "--dry-run"]);
    assert_eq!(
        dry["changes"],
        json!([format!("- target {OTHER}"), format!("~ LUN 0 of {IQN}: ram:4M -> ram:8M")])
    );
    target.ctl_json(&["apply", wanted.to_str().unwrap(), "--save"]);
    assert_eq!(target.ctl_json(&["status"])["targets"], 1);
    assert!(file().contains("ram:8M") && !file().contains(OTHER), "{}", file());
    // Tables for people.
    for words in [&["status"][..], &["targets"], &["disk", "list"], &["portals"], &["config"]] {
        let output = target.ctl(words);
        assert!(output.status.success() && output.stdout.len() > 20, "{words:?}");
    }
    let nobody = roundtrip().args(["ctl", "--control", "/nonexistent/socket", "status"]).output().unwrap();
    assert_eq!(nobody.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&nobody.stderr).contains("no target answers"));
}

#[test]
fn metrics_count_what_was_done() {
    let target = Controlled::start(&config());
    let of = |operation: &str| {
        [format!("target=\"{IQN}\""), "lun=\"0\"".to_owned(), format!("operation=\"{operation}\"")]
    };
    let value = |name: &str, labels: &[String]| {
        target.metric(name, &labels.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let counts = || {
        until("the connection has ended", || target.metric("roundtrip_connections", &[]) == 0.0);
        ["read", "write"].map(|operation| {
            let labels = of(operation);
            (value("roundtrip_disk_operations_total", &labels), value("roundtrip_disk_bytes_total", &labels))
        })
    };
    // What QEMU does beside is the same each time.
    let runs = [(100, 10), (300, 50)].map(|(reads, writes)| {
        let before = counts();
        qemu_io(&target.disk_url(IQN, 0), reads, writes);
        std::iter::zip(counts(), before)
            .map(|(now, before)| (now.0 - before.0, now.1 - before.1))
            .collect::<Vec<_>>()
    });
    let more: Vec<_> =
        std::iter::zip(&runs[0], &runs[1]).map(|(one, two)| (two.0 - one.0, two.1 - one.1)).collect();
    assert_eq!(more, [(200.0, 200.0 * 4096.0), (40.0, 40.0 * 4096.0)], "{runs:?}");
    let other = [format!("target=\"{OTHER}\"")];
    assert_eq!(value("roundtrip_disk_operations_total", &other), 0.0, "the other target has none");
    let before = value("roundtrip_disk_latency_seconds_count", &of("read"));
    let counted = counts()[0].0;
    bench(&target.disk_url(IQN, 0), &["--rw", "randread", "--runtime", "1s", "--iodepth", "16"]);
    let counted = counts()[0].0 - counted;
    let latency = value("roundtrip_disk_latency_seconds_count", &of("read")) - before;
    assert!((counted * 0.5..counted * 2.0).contains(&latency), "{latency} of {counted}");
    assert!(target.metric("roundtrip_stage_samples_total", &["stage=\"execute\""]) > 0.0);
    assert!(target.metric("roundtrip_network_bytes_total", &["direction=\"out\""]) > counted * 4096.0);
    assert_eq!(
        target.metric("roundtrip_logins_total", &[]),
        target.metric("roundtrip_connections_accepted_total", &[])
    );
    // A refused login has its reason.
    let refused = roundtrip()
        .args(["bench", &target.disk_url("iqn.2026-11.example.roundtrip:none", 0), "--runtime", "1s"])
        .output()
        .unwrap();
    assert!(!refused.status.success());
    assert!(target.metric("roundtrip_logins_refused_total", &["reason=\"no_such_target\""]) >= 1.0);
}

#[test]
fn sessions_are_listed_dropped_and_told_of() {
    let target = Controlled::start(&config());
    let mut events = UnixStream::connect(target.socket()).unwrap();
    events.write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
    let mut events = BufReader::new(events);
    let mut heard = |word: &str| {
        let mut line = String::new();
        while !line.contains(word) {
            line.clear();
            assert!(events.read_line(&mut line).unwrap() > 0, "no event with {word}");
        }
        line
    };
    heard("200 OK");
    let mut load = roundtrip()
        .args(["bench", &target.disk_url(IQN, 0), "--runtime", "30s", "--iodepth", "4"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = heard("logged in");
    assert!(line.contains(IQN), "{line}");
    until("a session", || target.json("GET", "/v1/sessions", None).as_array().unwrap().len() == 1);
    let session = &target.json("GET", "/v1/sessions", None)[0];
    assert_eq!(
        (session["target"].as_str(), session["connections"][0]["address"].as_str()),
        (Some(IQN), Some("127.0.0.1"))
    );
    let initiator = session["initiator"].as_str().unwrap();
    until("statistics", || target.json("GET", "/v1/connections", None)[0]["commands"].as_u64() > Some(100));
    assert_eq!(target.json("DELETE", &format!("/v1/initiators/{initiator}"), None)["dropped"], 1);
    heard("connection ended");
    let _ = load.kill();
    let _ = load.wait();
    until("no session", || target.json("GET", "/v1/sessions", None) == json!([]));
    target.json("PUT", "/v1/send", Some(&json!({ "policy": "batch" })));
    assert!(heard("configuration changed").contains("batch"));
}

#[test]
fn drain_refuses_logins_lets_sessions_end_and_ends() {
    let mut target = Controlled::start(&config());
    let mut load = roundtrip()
        .args(["bench", &target.disk_url(IQN, 0), "--runtime", "30s"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("a session", || target.json("GET", "/v1/sessions", None).as_array().unwrap().len() == 1);
    let begun = Instant::now();
    target.json("POST", "/v1/drain", Some(&json!({ "patience_ms": 1500 })));
    assert_eq!(target.json("GET", "/v1/status", None)["draining"], true);
    let refused =
        roundtrip().args(["bench", &target.disk_url(OTHER, 0), "--runtime", "1s"]).output().unwrap();
    let error = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && error.contains("service unavailable"), "{error}");
    until("the target has ended", || target.child.try_wait().unwrap().is_some());
    assert!(target.child.wait().unwrap().success() && begun.elapsed() < Duration::from_secs(6));
    let _ = load.kill();
    let _ = load.wait();
}

#[test]
fn attach_and_detach_leave_no_session() {
    let target = Controlled::start(&config());
    for round in 0..100 {
        let name = format!("/v1/targets/iqn.2026-11.example.roundtrip:volume-{round}");
        target.json("PUT", &name, Some(&json!({})));
        target.json("PUT", &format!("{name}/disks/0"), Some(&json!({ "store": "ram:1M" })));
        let url = target.disk_url(&format!("iqn.2026-11.example.roundtrip:volume-{round}"), 0);
        let inquired = Command::new("iscsi-inq").arg(&url).output().unwrap();
        assert!(inquired.status.success(), "{round}: {}", String::from_utf8_lossy(&inquired.stderr));
        target.json("DELETE", &name, None);
    }
    until("no session", || target.json("GET", "/v1/sessions", None) == json!([]));
    assert_eq!(target.json("GET", "/v1/targets", None).as_array().unwrap().len(), 2);
    assert_eq!(target.json("GET", "/v1/connections", None), json!([]));
}

#[test]
fn a_random_sequence_of_calls_under_load_keeps_what_must_hold() {
    let target = Controlled::start(&config());
    let seed: u64 = std::env::var("ROUNDTRIP_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or_else(|| fastrand::u64(..));
    let mut random = fastrand::Rng::with_seed(seed);
    // The first disk is under verified load all the time, and must lose nothing.
    let mut load = roundtrip()
        .args([
            "bench",
            &target.disk_url(IQN, 0),
            "--rw",
            "randrw",
            "--runtime",
            "4s",
            "--iodepth",
            "8",
            "--verify",
        ])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut model: std::collections::BTreeMap<u16, u64> = [(0, 1 << 20)].into();
    let mut calls = 0;
    while load.try_wait().unwrap().is_none() {
        calls += 1;
        let (lun, size) = (random.u16(0..4), random.u64(1..5) << 20);
        let path = format!("/v1/targets/{OTHER}/disks/{lun}");
        let step = random.u8(0..6);
        let (status, expected) = match step {
            0 => {
                let status = target
                    .http("PUT", &path, Some(&json!({ "store": format!("ram:{size}"), "new": true })))
                    .0;
                let expected = if model.contains_key(&lun) { 409 } else { 200 };
                model.entry(lun).or_insert(size);
                (status, expected)
            }
            1 => (target.http("DELETE", &path, None).0, if model.remove(&lun).is_some() { 200 } else { 404 }),
            2 => {
                let status =
                    target.http("PUT", &format!("{path}/size"), Some(&json!({ "size": size.to_string() }))).0;
                let known = model.get_mut(&lun);
                let expected = if known.is_some() { 200 } else { 404 };
                known.into_iter().for_each(|known| *known = size);
                (status, expected)
            }
            3 => {
                let policy = ["auto", "nodelay", "nagle", "batch"][random.usize(0..4)];
                (target.http("PUT", "/v1/send", Some(&json!({ "policy": policy }))).0, 200)
            }
            4 => (target.http("PUT", &path, Some(&json!({ "store": "ram:700" }))).0, 400),
            _ => (
                target
                    .http(
                        "PUT",
                        &format!("/v1/targets/{OTHER}/access"),
                        Some(&json!({ "rules": "initiators = []" })),
                    )
                    .0,
                400,
            ),
        };
        assert_eq!(status, expected, "seed {seed}, call {calls}, step {step}");
        let disks = target.json("GET", "/v1/disks", None);
        let there: std::collections::BTreeMap<u16, u64> = disks
            .as_array()
            .unwrap()
            .iter()
            .filter(|disk| disk["target"] == OTHER)
            .map(|disk| (disk["lun"].as_u64().unwrap() as u16, disk["bytes"].as_u64().unwrap()))
            .collect();
        assert_eq!(there, model, "seed {seed}, call {calls}, step {step}");
    }
    let output = load.wait_with_output().unwrap();
    assert!(output.status.success(), "seed {seed}: {}", String::from_utf8_lossy(&output.stderr));
    assert!(calls > 50, "{calls}");
}

#[test]
fn slow_and_many_clients_do_not_stop_control() {
    let target = Controlled::start(&config());
    let silent: Vec<UnixStream> = (0..20).map(|_| UnixStream::connect(target.socket()).unwrap()).collect();
    for (index, mut stream) in silent.iter().enumerate() {
        let part =
            ["", "GET /v1/sta", "PUT /v1/send HTTP/1.1\r\nContent-Length: 50\r\n\r\n{", "\0\0\0\0\r\n\r\n"]
                [index % 4];
        let _ = stream.write_all(part.as_bytes());
    }
    let begun = Instant::now();
    assert_eq!(target.http("GET", "/v1/status", None).0, 200);
    assert!(begun.elapsed() < Duration::from_secs(5));
    kill(Pid::from_raw(target.child.id() as i32), Signal::SIGTERM).unwrap();
}

/// What an opponent once stopped the main thread with, for half a minute and more.
#[test]
fn no_request_takes_long() {
    let target = Controlled::start(&config());
    let begun = Instant::now();
    let pattern = format!("[{{a={}a}}]=debug", "(a|b)*a(a|b)".repeat(16));
    assert_ne!(
        target
            .http("PUT", "/v1/log-level", Some(&json!({ "level": format!("{pattern}{}", "x".repeat(2000)) })))
            .0,
        200
    );
    let _ = target.http("PUT", "/v1/log-level", Some(&json!({ "level": pattern })));
    let names: Vec<String> = (0..40_000).map(|n| format!("\"iqn.a:{n}\"")).collect();
    let rules = json!({ "rules": format!("initiators = [{}]", names.join(",")) });
    let (status, why) = target.http("PUT", &format!("/v1/targets/{OTHER}/access"), Some(&rules));
    assert!(status == 400 && why.contains("at most 4096"), "{status} {why}");
    assert_eq!(target.http("GET", "/v1/status", None).0, 200);
    assert!(begun.elapsed() < Duration::from_secs(5), "{:?}", begun.elapsed());
}

#[test]
fn scrapes_and_followers_leave_room_for_control() {
    let target = Controlled::start(&config());
    let scrape = |_| {
        let mut stream = std::net::TcpStream::connect(&target.metrics).unwrap();
        stream.write_all(b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    };
    let scrapes: Vec<_> = (0..80).map(scrape).collect();
    let follow = |_| {
        let mut stream = UnixStream::connect(target.socket()).unwrap();
        stream.write_all(b"GET /v1/events HTTP/1.1\r\nHost: x\r\n\r\n").unwrap();
        stream
    };
    let followers: Vec<_> = (0..20).map(follow).collect();
    std::thread::sleep(Duration::from_millis(300));
    let begun = Instant::now();
    assert_eq!(target.http("GET", "/v1/status", None).0, 200);
    assert_eq!(target.http("GET", "/v1/events", None).0, 503, "as many as may follow do");
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    drop((scrapes, followers));
}

#[test]
fn secrets_are_told_to_nobody() {
    let secret = "hunter2hunter2";
    let rules = format!("[[chap]]\nname = 'u'\nsecret = '{secret}'\ninitiators = 'any'\n");
    let config = format!(
        "iqn = '{IQN}'\nluns.0 = 'ram:1M'\n[access]\n{}",
        rules.replace("[[chap]]", "[[access.chap]]")
    );
    let target = Controlled::start(&config);
    for path in ["/v1/status", "/v1/access", "/v1/targets", "/v1/openapi.json", "/metrics"] {
        assert!(!target.http("GET", path, None).1.contains("hunter"), "{path}");
    }
    for wrong in [
        rules.replace(&format!("'{secret}'"), &format!("\"{secret}")),
        rules.replace(&format!("'{secret}'"), secret),
        rules.replace("secret =", "secrett ="),
        rules.replace("initiators = 'any'", &format!("initiators = ['{secret}'")),
        rules.replace("name = 'u'", &format!("name = {{ a = '{secret}' }}")),
        rules.replace("'any'", "7").replace("secret = ", "secret = 1").replace(&format!("'{secret}'"), "7"),
        format!("{rules}secret = '{secret}'\n"),
        format!("discovery = '{secret}'\n{rules}"),
        format!("{rules}'{secret}"),
    ] {
        let (status, why) =
            target.http("PUT", &format!("/v1/targets/{IQN}/access"), Some(&json!({ "rules": wrong })));
        assert!(status == 400 && !why.contains("hunter"), "{status} {why}");
        let file = target.folder.path().join("wrong.toml");
        std::fs::write(&file, &wrong).unwrap();
        let checked = roundtrip()
            .args(["target", "--portal", "127.0.0.1:0", "--lun", "0=ram:1M", "--access"])
            .arg(&file)
            .output()
            .unwrap();
        let error = String::from_utf8_lossy(&checked.stderr).into_owned();
        assert!(checked.status.code() == Some(2) && !error.contains("hunter"), "{error}");
    }
    let other = rules.replace(secret, "swordfish-12");
    let changed = target.json(
        "POST",
        "/v1/apply",
        Some(&json!({ "config": config.replace(secret, "swordfish-12"), "dry_run": true })),
    );
    assert_eq!(changed["changes"], json!([format!("~ access of {IQN}: other secrets")]), "{other}");
}

#[test]
fn what_the_command_line_sets_is_not_saved() {
    let folder = tempfile::tempdir().unwrap();
    let (file, socket) = (folder.path().join("t.toml"), folder.path().join("c"));
    std::fs::write(&file, "luns.0 = 'ram:1M'\n").unwrap();
    let mut child = roundtrip()
        .args(["target", "--portal", "127.0.0.1:0", "--lun", "5=ram:1M", "--config"])
        .arg(&file)
        .arg("--control")
        .arg(&socket)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    until("the control socket", || UnixStream::connect(&socket).is_ok());
    let output = roundtrip()
        .args(["ctl", "disk", "add", "6", "ram:1M", "--save", "--control"])
        .arg(&socket)
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.code() == Some(1) && error.contains("in force, but not saved"), "{error}");
    assert_eq!(std::fs::read_to_string(&file).unwrap(), "luns.0 = 'ram:1M'\n");
    child.kill().unwrap();
    child.wait().unwrap();
}

#[test]
fn a_scrape_counts_what_an_idle_connection_has_done() {
    let target = Controlled::start(&config());
    let mut load = roundtrip()
        .args(["bench", &target.disk_url(IQN, 0), "--runtime", "20s", "--rate", "400"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let reads = || target.metric("roundtrip_disk_operations_total", &[IQN, "operation=\"read\""]);
    until("reads", || reads() > 50.0);
    // The initiator stops without a word, and its connection stays.
    kill(Pid::from_raw(load.id() as i32), Signal::SIGSTOP).unwrap();
    std::thread::sleep(Duration::from_millis(100));
    let commands = target.json("GET", "/v1/connections", None)[0]["commands"].as_f64().unwrap();
    let (first, other) = (reads(), target.metric("roundtrip_disk_operations_total", &[IQN]));
    assert_eq!(other, commands, "all commands are some disk's: {first}");
    kill(Pid::from_raw(load.id() as i32), Signal::SIGCONT).unwrap();
    load.kill().unwrap();
    load.wait().unwrap();
}

#[test]
fn a_volume_is_nobodys_until_it_is_published() {
    let target = Controlled::start(&config());
    let iqn = "iqn.2026-11.example.roundtrip:volume";
    let path = format!("/v1/targets/{iqn}");
    target.json("PUT", &path, Some(&json!({ "access": "nobody" })));
    target.json("PUT", &format!("{path}/disks/0"), Some(&json!({ "store": "ram:1M", "new": true })));
    let inquire =
        || Command::new("iscsi-inq").arg(target.disk_url(iqn, 0)).output().unwrap().status.success();
    let finds = || {
        let found = Command::new("iscsi-ls").arg(format!("iscsi://{}", target.address)).output().unwrap();
        String::from_utf8_lossy(&found.stdout).contains(iqn)
    };
    assert!(!inquire() && !finds());
    target.json("PUT", &format!("{path}/access"), Some(&json!({ "rules": "open" })));
    assert!(inquire() && finds());
    target.json("PUT", &format!("{path}/access"), Some(&json!({ "rules": "nobody" })));
    assert!(!inquire() && !finds());
    let (_, text) = target.http("GET", "/v1/config", None);
    assert!(text.contains("access = \"nobody\""), "{text}");
}

/// Answers each request with what belongs to its first line, as a target would that has been taken over.
fn impostor(socket: &std::path::Path, answers: Vec<(&'static str, String)>) {
    let listener = std::os::unix::net::UnixListener::bind(socket).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let mut head = String::new();
            let mut reader = BufReader::new(&stream);
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).is_ok_and(|read| read > 0) {}
            let answer =
                answers.iter().find(|(start, _)| head.starts_with(start)).map_or("{}", |(_, text)| text);
            let length = answer.len();
            let _ = write!(
                &stream,
                "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{answer}"
            );
        }
    });
}

#[test]
fn saving_writes_a_configuration_over_a_configuration_alone() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    let config = "luns.0 = 'ram:1M'\n";
    std::fs::write(at("good.toml"), config).unwrap();
    std::fs::write(at("passwd"), "root:x:0:0\n").unwrap();
    std::fs::write(at("other.toml"), "[package]\nname = 'x'\n").unwrap();
    let cases = [
        ("passwd", config, "root:x:0:0\n", false),
        ("other.toml", config, "[package]\nname = 'x'\n", false),
        ("good.toml", "root::0:0\n", config, false),
        ("good.toml", "luns.0 = 'ram:2M'\n", "luns.0 = 'ram:2M'\n", true),
    ];
    for (number, (name, text, after, is_saved)) in cases.into_iter().enumerate() {
        let (socket, path) = (at(&format!("socket{number}")), at(name));
        let status = json!({ "config": path }).to_string();
        impostor(&socket, vec![("GET /v1/status", status), ("GET /v1/config", text.to_owned())]);
        let output =
            roundtrip().args(["ctl", "send", "batch", "--save", "--control"]).arg(&socket).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), after, "{name}: {error}");
        assert!(
            output.status.success() == is_saved && (is_saved || error.contains("not saved")),
            "{name}: {error}"
        );
    }
}
