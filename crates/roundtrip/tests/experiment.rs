//! Experiments through the command line: built-in plans, plans from files, and invalid plans.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use common::live::may_capture;
use common::roundtrip;
use serde_json::Value;

fn study(arguments: &[&str]) -> (Option<i32>, String, String) {
    let output = roundtrip().arg("study").args(arguments).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// A short run of each kind of work on loopback; the effects have the published direction.
#[test]
fn every_kind_of_work_runs_and_shows_its_direction() {
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
fn rejects_invalid_plans_before_anything_starts() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let head = "name = \"x\"\nabout = \"y\"\nrate = \"1gbit\"\nruntime = \"1s\"\nrepeats = 1\n";
    let case = "[[case]]\nlabel = \"a\"\n";
    for (plan, expected) in [
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
        assert!(code == Some(2) && error.contains(expected), "{plan}: {error}");
    }
    let (code, _, error) = study(&["--plan", "nothing", "-o", &path("out")]);
    assert!(
        code == Some(2) && error.contains("quick, paper, figures, post, pathology, nagle-write, copy"),
        "{error}"
    );
    let (code, out, _) = study(&["--plan", "post", "--print"]);
    assert!(code == Some(0) && out.contains("[[case]]"), "{out}");
}

/// Waits for a condition, for a minute at most.
#[track_caller]
fn until(is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(60), "it does not come");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
}

/// An interrupted experiment keeps its results; resumed, it runs only the missing ones; with another plan it runs none.
#[test]
fn interrupted_experiment_resumes() {
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
    until(|| kept() >= 4);
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(common::wait(&mut child, std::time::Duration::from_secs(30)).code(), Some(1));
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

/// The points of a journal during which nothing disturbed the machine: rounds and queue depths.
fn calm_points(journal: &str) -> std::collections::BTreeSet<(u64, u64)> {
    let parts = journal.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let calm = parts.filter(|part| {
        let found = |key: &str| part["Point"][1]["disturbance"][key].as_f64().unwrap();
        found("others") <= 0.08 && found("steal") <= 0.02 && found("clock") <= 0.05
    });
    calm.map(|part| (round_of(&part), part["Point"][1]["queue_depth"].as_u64().unwrap()))
        .filter(|(round, _)| *round < REPEATS)
        .collect()
}

/// The rounds of a plan. Those after them are of points that contradicted their neighbours.
const REPEATS: u64 = 3;

fn round_of(part: &Value) -> u64 {
    part["Point"][0].as_u64().unwrap()
}

/// The same for a ring: only points without a result are measured.
#[test]
fn interrupted_ring_study_resumes() {
    use nix::sys::signal::{Signal, kill};
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().join("out").display().to_string();
    let arguments = ["--quick", "--loopback", "--bs", "512", "--iodepth", "4", "--send", "nodelay"];
    let arguments = [&arguments[..], &["--runtime", "200ms", "--repeats", "3", "-o", &out]].concat();
    let mut child =
        roundtrip().arg("study").args(&arguments).stderr(std::process::Stdio::piped()).spawn().unwrap();
    let kept = || std::fs::read_to_string(folder.path().join("out/runs.jsonl")).unwrap_or_default();
    until(|| kept().lines().count() >= 2);
    kill(nix::unistd::Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert_eq!(common::wait(&mut child, std::time::Duration::from_secs(30)).code(), Some(1));
    let resumed = || {
        let (first, missing) = (kept(), 6 - calm_points(&kept()).len());
        let (code, text, error) = study(&[&arguments[..], &["--resume", "--json"]].concat());
        let result: Value = serde_json::from_str(&text).expect(&error);
        assert_eq!(code, Some(common::code_of_study(&result["stanzas"])), "{error}");
        let all = kept();
        let new = all.lines().skip(first.lines().count()).map(|line| serde_json::from_str(line).unwrap());
        let measured = new.filter(|part| round_of(part) < REPEATS).count();
        assert!(all.starts_with(&first) && measured == missing, "{measured} points of {missing}");
        result
    };
    resumed();
    // A point during which the machine was disturbed is measured again.
    let disturbed = |line: &str| {
        let mut part: Value = serde_json::from_str(line).unwrap();
        part["Point"][1]["disturbance"]["others"] = 0.9.into();
        part.to_string() + "\n"
    };
    let all = kept();
    let mut parts = all.lines();
    let planted =
        disturbed(parts.next().unwrap()) + &parts.map(|line| format!("{line}\n")).collect::<String>();
    assert!(calm_points(&planted).len() <= 5, "two depths, three times, without the one that was planted");
    std::fs::write(folder.path().join("out/runs.jsonl"), planted).unwrap();
    let result = resumed();
    for stanza in result["stanzas"].as_array().unwrap() {
        let runs: Vec<f64> =
            stanza["runs"].as_array().unwrap().iter().map(|run| run[0].as_f64().unwrap()).collect();
        let mut sorted = runs.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted[sorted.len() / 2];
        assert_eq!(stanza["iops"].as_f64().unwrap(), middle, "the run in the middle: {runs:?}");
        let range = (sorted.last().unwrap() - sorted[0]) / 2.0 / middle;
        assert!((stanza["repeatability"].as_f64().unwrap() - range).abs() < 1e-9, "{stanza}");
    }
    let other = [&arguments[..8], &["--runtime", "300ms", "-o", &out, "--resume"]].concat();
    let (code, _, error) = study(&other);
    assert!(code == Some(2) && error.contains("of another plan"), "{error}");
}

/// The page and the text of an experiment: two exchanges frame by frame, the cost of capturing them, and the causes of slowness.
#[test]
fn exchanges_are_kept_frame_by_frame() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let plan = "name = 'x'\nabout = 'y'\nrate = '1gbit'\nruntime = '100ms'\nrepeats = 1\n[[case]]\nlabel = 'apart, <Nagle>'\n\
                work = { post = 480 }\nclient = { nagle = true, writes = 'apart' }\n";
    std::fs::write(path("plan.toml"), plan).unwrap();
    let (code, text, error) = study(&["--plan", &path("plan.toml"), "-o", &path("out"), "--json"]);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let case = &result["cases"][0];
    let frames = case["frames"].as_array().unwrap();
    let at = |frame: &Value| frame["at_us"].as_f64().unwrap();
    let header = frames.iter().position(|f| f["is_clients"] == true && f["bytes"] != 0).unwrap();
    let body = frames.iter().position(|f| f["is_clients"] == true && f["bytes"] == 480).unwrap();
    // The body waits for the acknowledgement of the header, which is delayed.
    assert!(at(&frames[body]) - at(&frames[header]) > 30_000.0, "{frames:#?}");
    let acknowledgement = &frames[body - 1];
    assert!(acknowledgement["is_clients"] == false && acknowledgement["bytes"] == 0, "{frames:#?}");
    assert!(case["observer_cost"].is_number());
    // The analysis of the packets finds the planted pathology and a gain.
    let verdict = &case["verdicts"][0];
    assert_eq!(verdict["kind"], "header_body_apart", "{verdict:#}");
    assert!(verdict["gain"]["throughput_factor"].as_f64().unwrap() > 6.0, "{verdict:#}");
    let trace = folder.path().join("out").join(case["trace"].as_str().unwrap());
    assert!(trace.metadata().unwrap().len() > 1000);
    let page = std::fs::read_to_string(path("out/report.html")).unwrap();
    assert!(page.contains("apart, &lt;Nagle&gt;") && page.contains("acknowledgement was delayed"));
    assert!(page.contains("What the packets say") && page.contains("header and body sent apart"));
}

/// What is planted in a live ring is found: every n-th operation in a part of the run, with its size, its place and its borders;
/// and a run in which nothing is planted has no such pattern.
#[test]
fn planted_regimes_are_found_in_a_live_ring() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    // From an operation on, which a busy machine does not move; it can make delays longer, and other operations slow.
    let plan = r#"
name = "planted"
about = "two regimes"
rate = "1gbit"
runtime = "1s"
repeats = 1
traces = false
[[case]]
label = "nothing"
work = { iscsi = { rw = "randread", block = "4k", depth = 1 } }
structure = true
[[case]]
label = "every fifth from 1000 on"
work = { iscsi = { rw = "randread", block = "4k", depth = 1 } }
layers = ["extra=1ms:every=5:ops=1000-1000000"]
structure = true
published = "119 us, in the request path"
"#;
    std::fs::write(path("plan.toml"), plan).unwrap();
    let (plan, out) = (path("plan.toml"), path("out"));
    let arguments = ["--plan", &plan, "-o", &out, "--ops", "csv", "--json"];
    let (code, text, error) = study(&arguments);
    assert_eq!(code, Some(0), "{error}");
    let result: Value = serde_json::from_str(&text).unwrap();
    let [calm, planted] = [0, 1].map(|case| &result["cases"][case]["structure"]);
    let kind = |findings: &Value, kind: &str| {
        findings.as_array().unwrap().iter().find(|finding| finding["kind"] == kind).cloned()
    };
    // A machine may have patterns of its own, such as one slower operation of two, but not the planted one.
    let fifth_of = |findings: &Value| {
        let all = findings.as_array().unwrap().iter();
        all.clone().find(|finding| finding["kind"] == "every_nth" && finding["n"] == 5).cloned()
    };
    assert!(fifth_of(&calm["findings"]).is_none(), "{calm:#}");
    let regimes = kind(&planted["findings"], "regimes").unwrap_or_else(|| panic!("{planted:#}"));
    let regimes = regimes["regimes"].as_array().unwrap();
    let fifth: Vec<&Value> =
        regimes.iter().filter(|regime| fifth_of(&regime["patterns"]).is_some()).collect();
    assert!(!fifth.is_empty(), "{regimes:#?}");
    let number = |regime: &Value, key: &str| regime[key].as_f64().unwrap();
    // A live ring has regimes of its own, which move the borders and divide the planted part (without them borders are exact:
    // crates/analysis/tests/regimes.rs). So the pattern is not before its place, and in most of its place.
    assert!(fifth.iter().all(|regime| number(regime, "from_operation") > 700.0), "{regimes:#?}");
    let found: f64 =
        fifth.iter().map(|regime| number(regime, "to_operation") - number(regime, "from_operation")).sum();
    let planted_operations = planted["operations"].as_f64().unwrap() - 1000.0;
    assert!(found > planted_operations / 2.0, "{found} of {planted_operations}: {regimes:#?}");
    for regime in fifth {
        let pattern = fifth_of(&regime["patterns"]).unwrap();
        assert_eq!(pattern["segment"], "server", "{pattern:#}");
        assert!((number(&pattern, "longer_us") - 1400.0).abs() < 450.0, "{pattern:#}");
    }
    // Every operation that was followed is in the file, and the text has what was planted beside what was found.
    let file = std::fs::read_to_string(path("out/ops/02-every-fifth-from-1000-on-1.csv")).unwrap();
    assert_eq!(file.lines().count() as u64 - 1, planted["operations"].as_u64().unwrap());
    let (code, text, error) = study(&["--plan", &plan, "-o", &out, "--resume"]);
    assert_eq!(code, Some(0), "{error}");
    for part in [
        "planted    in the disk, so in the server's time: one operation in 5 1ms longer, evenly spaced, operations 1000 to 999999",
        "published  119 us, in the request path",
        "every fifth operation takes",
        "in the server",
        "A disk is on the server",
    ] {
        let joined = text.replace("\n             ", " ").replace("\n  ", " ");
        assert!(joined.contains(part), "{part}: {text}");
    }
    let page = std::fs::read_to_string(path("out/report.html")).unwrap();
    assert!(page.contains("What was planted") && page.contains("every fifth operation takes"));
}

/// The plan of the paper's figures plants what its cases say, beside what was published.
#[test]
fn plan_of_figures_has_what_it_plants_beside_what_was_published() {
    let (code, text, error) = study(&["--plan", "figures", "--print"]);
    assert_eq!(code, Some(0), "{error}");
    for part in
        ["extra=203us:every=3", "extra=164us:fall=105ms", "extra=119us:every=5:time=1s-2s", "second = {"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert_eq!(text.matches("published = ").count(), text.matches("[[case]]").count(), "{text}");
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let head =
        "name = 'x'\nabout = 'y'\nrate = '1gbit'\nruntime = '1s'\nrepeats = 1\n[[case]]\nlabel = 'a'\n";
    let iscsi = "work = { iscsi = { rw = 'read', block = '4k', depth = 1 } }\n";
    for (case, expected) in [
        (format!("{iscsi}layers = ['extra=5us:every=0']\n"), "layer 'extra=5us:every=0'"),
        ("work = { post = 1 }\nstructure = true\n".to_owned(), "they are for iscsi"),
        (
            format!("{iscsi}second = {{ rw = 'read', block = '4k', depth = 1, from = '1s', to = '2s' }}\n"),
            "not within a run",
        ),
    ] {
        std::fs::write(path("plan.toml"), format!("{head}{case}")).unwrap();
        let (code, _, error) = study(&["--plan", &path("plan.toml"), "-o", &path("out")]);
        assert!(code == Some(2) && error.contains(expected), "{case}: {error}");
    }
}

/// CPUs can be chosen, and a nonexistent one is reported.
#[test]
fn threads_and_softirqs_run_on_the_chosen_cpus() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    let (code, _, error) = study(&["--quick", "--server-cpu", "4000", "-o", &out]);
    assert!(code == Some(2) && error.contains("CPU 4000: this process may use 0"), "{error}");
    if !testing::require("two CPUs", std::thread::available_parallelism().unwrap().get() >= 2) {
        return;
    }
    let arguments = ["--quick", "--bs", "512", "--iodepth", "2", "--send", "nodelay", "--runtime", "200ms"];
    let arguments = [&arguments[..], &["--ops", "csv"]].concat();
    let placed = ["--client-cpu", "1", "--server-cpu", "0", "--server-softirq", "1", "-o", &out, "--json"];
    let (code, text, error) = study(&[&arguments[..], &placed].concat());
    let result: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(code, Some(common::code_of_study(&result["stanzas"])), "{error}");
    assert_eq!(result["cpus"], serde_json::json!([1, 0]));
    // Every operation of both depths, with all its stamps.
    for depth in [1, 2] {
        let all =
            std::fs::read_to_string(folder.path().join(format!("ops/512-nodelay-qd{depth}-1.csv"))).unwrap();
        let stamps = |line: &str| line.split(',').filter(|word| word.len() == 19).count();
        assert!(all.lines().count() > 100, "{} operations of depth {depth}", all.lines().count());
        let bare: Vec<&str> = all.lines().skip(1).filter(|line| stamps(line) < 6).collect();
        assert!(bare.is_empty(), "{depth}: of {}, these lack stamps: {bare:#?}", all.lines().count());
    }
    let warnings = result["warnings"].to_string();
    assert!(warnings.contains("shares its CPU with the other side's thread"), "{warnings}");
    // The server's stages are on CPUs of their own: none of them is named together with its softirq.
    for stanza in result["stanzas"].as_array().unwrap() {
        let bottleneck = stanza["breakdown"]["limit"]["bottleneck"].as_str().unwrap();
        assert!(!bottleneck.contains("SI+SP"), "{bottleneck}");
    }
}

#[test]
fn measures_other_targets_beside_roundtrip() {
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
