//! Experiments through the command line: built-in plans, plans of one's own, and what is wrong with them.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::roundtrip;
use serde_json::Value;

fn study(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = roundtrip().arg("study").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// Each kind of work, in short, on loopback; directions are the published ones.
#[test]
fn every_kind_of_work_runs_and_tells_its_direction() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let plan = r#"
name = "short"
about = "one of each"
rate = "1gbit"
runtime = "100ms"
repeats = 1
[[case]]
label = "apart, Nagle"
work = { post = 480 }
client = { nagle = true, writes = "apart" }
[[case]]
label = "together"
work = { post = 480 }
against = "apart, Nagle"
[[case]]
label = "get"
work = { get = 100000 }
[[case]]
label = "cork never lifted"
work = { messages = { request = [48, 0], response = [48, 512], queue_depth = 1 } }
server = { writes = "cork-unfinished" }
[[case]]
label = "copy"
work = { copy = { bytes = "20M", block = "64k" } }
client = { send-buffer = 65536 }
server = { receive-buffer = 65536 }
[[case]]
label = "iscsi"
work = { iscsi = { rw = "write", block = "4k", depth = 4 } }
server = { nagle = true }
"#;
    std::fs::write(path("plan.toml"), plan).unwrap();
    let (code, out, error) =
        study(&["--plan", &path("plan.toml"), "--loopback", "-o", &path("out"), "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&out).unwrap();
    let case = |label: &str| {
        result["cases"]
            .as_array()
            .unwrap()
            .iter()
            .find(|c| c["case"]["label"] == label)
            .unwrap_or_else(|| panic!("{label}: {result:#}"))
    };
    assert!(case("together")["ratio"].as_f64().unwrap() > 6.0, "{result:#}");
    let corked = case("cork never lifted")["median"].as_f64().unwrap();
    assert!((4.0..5.2).contains(&corked), "{corked}");
    for label in ["get", "copy", "iscsi"] {
        assert!(case(label)["median"].as_f64().unwrap() > 1.0, "{result:#}");
    }
    let kept: Value =
        serde_json::from_str(&std::fs::read_to_string(path("out/experiment.json")).unwrap()).unwrap();
    assert_eq!(kept["plan"]["name"], "short");
}

#[test]
fn wrong_plans_are_said_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let head = "name = \"x\"\nabout = \"y\"\nrate = \"1gbit\"\nruntime = \"1s\"\nrepeats = 1\n";
    let case = "[[case]]\nlabel = \"a\"\n";
    for (plan, said) in [
        (format!("{head}{case}work = {{ post = 1 }}\nspeed = 3\n"), "unknown field `speed`"),
        (format!("{head}{case}work = {{ put = 1 }}\n"), "unknown variant `put`"),
        (format!("{head}{case}work = {{ post = 1 }}\nmtu = 1\n"), "case 'a': mtu = 1"),
        (format!("{head}{case}work = {{ post = 1 }}\nagainst = \"b\"\n"), "there is no such case"),
        (
            format!("{head}{case}work = {{ iscsi = {{ rw = \"read\", block = \"100\", depth = 1 }} }}\n"),
            "multiples of 512 B",
        ),
        (head.replace("1gbit", "fast") + case + "work = { post = 1 }\n", "fast"),
        (head.to_owned(), "missing field `case`"),
    ] {
        std::fs::write(path("plan.toml"), &plan).unwrap();
        let (code, _, error) = study(&["--plan", &path("plan.toml"), "-o", &path("out")]);
        assert!(code == Some(2) && error.contains(said), "{plan}: {error}");
    }
    let (code, _, error) = study(&["--plan", "nothing", "-o", &path("out")]);
    assert!(code == Some(2) && error.contains("post, pathology, nagle-write, copy"), "{error}");
    let (code, out, _) = study(&["--plan", "post", "--print"]);
    assert!(code == Some(0) && out.contains("[[case]]"), "{out}");
}

/// Interrupted, it keeps what it has; resumed, it makes only what is missing; of another plan it makes nothing.
#[test]
fn an_experiment_goes_on_where_it_was_interrupted() {
    use nix::sys::signal::{Signal, kill};
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let plan = |gets: usize| {
        let head =
            "name = \"x\"\nabout = \"y\"\nrate = \"1gbit\"\nruntime = \"200ms\"\nrepeats = 3\n".to_owned();
        head + &(0..gets)
            .map(|n| format!("[[case]]\nlabel = \"{n}\"\nwork = {{ get = {n} }}\n"))
            .collect::<String>()
    };
    std::fs::write(path("plan.toml"), plan(6)).unwrap();
    let (plan_file, out) = (path("plan.toml"), path("out"));
    let arguments = ["--plan", &plan_file, "--loopback", "-o", &out];
    let mut child =
        roundtrip().arg("study").args(arguments).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let kept = || std::fs::read_to_string(path("out/runs.jsonl")).unwrap_or_default().lines().count();
    while kept() < 4 {
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(1));
    let before = kept();
    assert!((4..18).contains(&before), "{before}");
    let first = std::fs::read_to_string(path("out/runs.jsonl")).unwrap();
    let (code, text, error) = study(&[&arguments[..], &["--resume", "--json"]].concat());
    assert_eq!(code, Some(0), "{error}");
    let all = std::fs::read_to_string(path("out/runs.jsonl")).unwrap();
    assert!(
        all.starts_with(&first) && all.lines().count() == 18,
        "{before} were kept, and each other was made once"
    );
    let result: Value = serde_json::from_str(&text).unwrap();
    assert!(
        result["cases"].as_array().unwrap().iter().all(|case| case["runs"].as_array().unwrap().len() == 3)
    );
    std::fs::write(path("plan.toml"), plan(5)).unwrap();
    let (code, _, error) = study(&[&arguments[..], &["--resume"]].concat());
    assert!(code == Some(2) && error.contains("is of another plan"), "{error}");
}

#[test]
fn other_targets_are_measured_beside_ours() {
    let folder = tempfile::tempdir().unwrap();
    let target = common::Target::start(&["--lun", "0=ram:16M"]);
    let out = folder.path().display().to_string();
    let (code, text, error) = study(&[
        "--compare",
        &target.url(0),
        "--bs",
        "512,4k",
        "--iodepth",
        "4",
        "--runtime",
        "100ms",
        "--repeats",
        "1",
        "-o",
        &out,
        "--json",
    ]);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let cases = result["cases"].as_array().unwrap();
    assert_eq!(cases.len(), 4, "{result:#}");
    assert!(
        cases[1]["ratio"].as_f64().unwrap() > 0.1 && cases[1]["case"]["against"] == "ours, 512 B, QD 4",
        "{result:#}"
    );
}
