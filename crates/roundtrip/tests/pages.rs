//! Pages of results, in a browser: what they show is what the JSON says, at every width and in both themes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;

use common::{Target, roundtrip};
use serde_json::{Value, json};

/// Runs the program in a folder; its output, whatever the exit code of a verdict or a difference is.
fn run(folder: &Path, line: &str, more: &[&str]) -> String {
    let output = roundtrip().current_dir(folder).args(line.split(' ')).args(more).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)) && !error.contains("panicked"), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

/// Where npm put axe-core (`scripts/setup.sh test`).
fn axe() -> Option<PathBuf> {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/pages/node_modules/axe-core/axe.min.js");
    let has_all = path.is_file()
        && ["node", "chromium"].iter().all(|program| Command::new(program).arg("--version").output().is_ok());
    testing::require("node, chromium and axe-core (scripts/setup.sh test)", has_all).then_some(path)
}

/// The pages of a folder in the browser.
fn check(axe: &Path, folder: &Path, names: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/pages/check.mjs");
    let output = Command::new("node").arg(script).arg(axe).arg(folder).args(names).output().unwrap();
    let (said, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}{error}");
}

const RING: &str = "simulate --iodepth 4 --operations 3000 --set jitter=0.2";

/// What is measured here is analysed, loaded, simulated and compared, and each result's page is looked at.
#[test]
fn pages_show_what_the_json_says_at_every_width_and_theme() {
    let Some(axe) = axe() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let write = |name: &str, text: &str| std::fs::write(at.join(name), text).unwrap();
    run(at, RING, &["--seed", "3", "--pcapng", "a.pcapng"]);
    run(at, RING, &["--seed", "4", "--set", "server.service=30us", "--pcapng", "b.pcapng"]);
    // Pages whose unit is the millisecond.
    for (name, service) in [("c", "60ms"), ("d", "90ms")] {
        let slow =
            format!("simulate --iodepth 1 --operations 80 --set jitter=0.2 --set server.service={service}");
        run(at, &slow, &["--pcapng", &format!("{name}.pcapng")]);
    }
    write("slower.json", &run(at, "compare c.pcapng d.pcapng --json --html slower.html", &[]));
    write("slow.json", &run(at, "analyze c.pcapng --json --html slow.html", &[]));
    write("analysis.json", &run(at, "analyze a.pcapng --json --html analysis.html", &[]));
    write("comparison.json", &run(at, "compare a.pcapng b.pcapng --json --html comparison.html", &[]));
    write(
        "simulation.json",
        &run(at, "simulate --iodepth 1,8,64 --operations 2000 --json --html simulation.html", &[]),
    );
    let target = Target::start(&["--lun", "0=ram:16M"]);
    let load = "--bs 512,4k --iodepth 1,8 --runtime 2s --json --html bench.html";
    write("bench.json", &run(at, &format!("bench {} {load}", target.url(0)), &[]));
    target.stop();
    let plan = r#"
name = "short"
about = "one of each"
rate = "1gbit"
runtime = "300ms"
repeats = 2
[[case]]
label = "apart, Nagle"
work = { post = 480 }
client = { nagle = true, writes = "apart" }
[[case]]
label = "together"
work = { post = 480 }
against = "apart, Nagle"
[[case]]
label = "iscsi"
work = { iscsi = { rw = "write", block = "4k", depth = 4 } }
"#;
    write("plan.toml", plan);
    run(at, "study --plan plan.toml --loopback -o cases", &[]);
    run(
        at,
        "study --quick --loopback --bs 512 --iodepth 1,4,16 --send nodelay,nagle --runtime 300ms -o ring",
        &[],
    );
    for (name, file) in [("cases", "cases/experiment.json"), ("ring", "ring/study.json")] {
        std::fs::copy(at.join(file), at.join(format!("{name}.json"))).unwrap();
        std::fs::copy(at.join(name).join("report.html"), at.join(format!("{name}.html"))).unwrap();
    }
    check(&axe, at, &["analysis", "slow", "comparison", "slower", "simulation", "bench", "cases", "ring"]);
    // A page is made again from what was kept, with the same content.
    for name in ["simulation", "bench", "cases", "ring"] {
        let source = if name == "cases" || name == "ring" { name.to_owned() } else { format!("{name}.json") };
        run(at, &format!("report {source} -o again.html"), &[]);
        let read = |file: &str| std::fs::read_to_string(at.join(file)).unwrap();
        assert!(read("again.html") == read(&format!("{name}.html")), "{name}: made again it is another page");
    }
}

/// Every text of a result, replaced by one that would act if it became markup.
fn hostile(value: &mut Value) {
    const TEXT: &str = "</script><script>window.acted=1</script><img src=x onerror=\"window.acted=1\">'\"&";
    match value {
        Value::String(text) if !text.is_empty() && !text.chars().next().unwrap().is_lowercase() => {
            *text = TEXT.into();
        }
        Value::Array(all) => all.iter_mut().for_each(hostile),
        Value::Object(all) => all.iter_mut().for_each(|(key, value)| match key.as_str() {
            // Texts that anybody on the network or a file can choose.
            "service" | "operation" | "name" | "key" | "status" | "text" | "action" | "client" | "server"
                if value.is_string() =>
            {
                *value = TEXT.into();
            }
            _ => hostile(value),
        }),
        _ => {}
    }
}

#[test]
fn no_text_of_a_result_acts_in_a_browser() {
    let Some(axe) = axe() else { return };
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    run(at, RING, &["--seed", "5", "--pcapng", "a.pcapng"]);
    let mut analysis: Value = serde_json::from_str(&run(at, "analyze a.pcapng --json", &[])).unwrap();
    hostile(&mut analysis);
    let text = analysis.to_string();
    assert!(text.matches("window.acted").count() > 20, "{text}");
    std::fs::write(at.join("hostile.json"), text).unwrap();
    run(at, "report hostile.json -o hostile.html", &[]);
    check(&axe, at, &["hostile"]);
}

#[test]
fn what_is_no_result_is_refused_and_nothing_is_written() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let cases: [(&str, &[u8], &str); 7] = [
        ("empty", b"", "not a result"),
        ("array", b"[1, 2]", "not a result"),
        ("other", b"{\"a\": 1}", "no result that a page can show"),
        ("cut", b"{\"runs\": [", "EOF"),
        ("services", b"{\"services\": 3}", "looks like an analysis"),
        ("runs", b"{\"runs\": [{}]}", "looks like the runs of bench"),
        ("rows", b"{\"rows\": [], \"before\": 1}", "looks like a comparison"),
    ];
    for (name, content, why) in cases {
        std::fs::write(at.join(name), content).unwrap();
        let output = roundtrip().current_dir(at).args(["report", name, "-o", "page.html"]).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{name}: {error}");
        assert!(error.contains(why) && error.contains(name), "{name}: {error}");
        assert!(!at.join("page.html").exists(), "{name}");
    }
    std::fs::create_dir(at.join("folder")).unwrap();
    std::fs::write(at.join("a.json"), json!({"runs": [], "swept": []}).to_string()).unwrap();
    for (line, why) in [
        ("report folder", "no dataset, and neither study.json"),
        ("report missing.json", "No such file"),
        ("report a.json -o a.json", "overwrite"),
        ("report a.json -o folder/study.json", "a page's name ends with .html"),
        ("simulate --operations 10 --html page.json", "a page's name ends with .html"),
    ] {
        let output = roundtrip().current_dir(at).args(line.split(' ')).output().unwrap();
        let error = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(2) && error.contains(why), "{line}: {error}");
    }
    // What can be read, but has nothing in it, is a page that says so.
    run(at, "report a.json", &[]);
    assert!(std::fs::read_to_string(at.join("report.html")).unwrap().contains("No operation ended"));
}

/// An analysis and what was kept of it are one report; without it, two results are two.
#[test]
fn an_analysis_is_put_together_with_what_was_kept_of_it() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    run(at, RING, &["--pcapng", "a.pcapng"]);
    let json = run(at, "analyze a.pcapng --json --save ./a.profile --html own.html", &[]);
    std::fs::write(at.join("a.json"), &json).unwrap();
    std::fs::write(at.join("b.json"), json.replace("a.pcapng", "b.pcapng")).unwrap();
    let page = |files: &str| {
        run(at, &format!("report {files} -o page.html"), &[]);
        std::fs::read_to_string(at.join("page.html")).unwrap()
    };
    let reports =
        |page: &str| (page.matches("<article>").count(), page.contains("How are the times distributed?"));
    assert_eq!(reports(&std::fs::read_to_string(at.join("own.html")).unwrap()), (1, true));
    assert_eq!(reports(&page("a.json")), (1, false));
    assert_eq!(reports(&page("a.json a.profile")), (1, true));
    assert_eq!(reports(&page("a.profile a.json")), (1, true));
    assert_eq!(reports(&page("a.profile")), (1, true));
    // It is of another capture.
    assert_eq!(reports(&page("b.json a.profile")), (2, true));
    assert_eq!(reports(&page("a.json b.json a.profile")).0, 2);
}

/// A value of a result, replaced by another one that JSON can have.
fn mutate(value: &mut Value, random: &mut fastrand::Rng) {
    let nested = |value: &Value| matches!(value, Value::Array(all) if !all.is_empty()) || value.is_object();
    // Down to a value at random; now and then a whole part.
    if nested(value) && random.u8(..) > 12 {
        match value {
            Value::Array(all) => {
                let at = random.usize(..all.len());
                return mutate(&mut all[at], random);
            }
            Value::Object(all) if !all.is_empty() => {
                let at = random.usize(..all.len());
                return all.iter_mut().nth(at).into_iter().for_each(|(_, value)| mutate(value, random));
            }
            _ => {}
        }
    }
    let number = |of: f64| serde_json::Number::from_f64(of).map_or(Value::Null, Value::Number);
    *value = match (random.u8(..11), &*value) {
        (0, _) => Value::Null,
        (1, _) => number(-1.0),
        (2, _) => number(1e300),
        (3, _) => 0.into(),
        (4, _) => u64::MAX.into(),
        (5, _) => i64::MIN.into(),
        (6, _) => "x".repeat(5000).into(),
        (7, _) => json!([]),
        (8, _) => json!({}),
        (9, Value::Array(all)) => all.iter().cycle().take(all.len() * 50).cloned().collect(),
        (_, Value::Number(own)) => number(own.as_f64().unwrap_or(1.0) * -1e9),
        (_, other) => json!([other]),
    };
}

/// Results with wrong values are refused with a word, or shown; none ends the program otherwise, and none is endless.
#[test]
fn mutants_of_results_are_refused_or_shown() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    run(at, "simulate --iodepth 2 --operations 150 --pcapng a.pcapng", &[]);
    let study = json!({
        "plan": {}, "stanzas": [{"queue_depth": 1, "block_size_bytes": 512, "policy": "nodelay", "completed": 9, "iops": 9.0,
        "rtt_us": 1.0, "breakdown": {"terms": [{"terms": "SP+SK", "mean_us": 1.0}]}}]
    });
    let profile = run(at, "analyze a.pcapng --json --save ./a.profile", &[]);
    let kept = zstd::decode_all(&*std::fs::read(at.join("a.profile")).unwrap()).unwrap();
    let results = [
        ("report", profile),
        ("report", String::from_utf8(kept.clone()).unwrap()),
        ("report", run(at, "compare a.pcapng a.pcapng --json", &[])),
        ("report", run(at, "simulate --iodepth 1,2 --operations 100 --json", &[])),
        ("compare", String::from_utf8(kept).unwrap()),
        ("compare", run(at, "simulate --sweep seed=1,2 --operations 100 --json", &[])),
        ("compare", study.to_string()),
    ];
    let mut random = fastrand::Rng::with_seed(27);
    let (mut refused, mut shown) = (0, 0);
    for (verb, text) in results {
        let whole: Value = serde_json::from_str(&text).unwrap();
        std::fs::write(at.join("whole.json"), &text).unwrap();
        for _ in 0..30 {
            let mut mutant = whole.clone();
            mutate(&mut mutant, &mut random);
            std::fs::write(at.join("mutant.json"), mutant.to_string()).unwrap();
            let arguments: &[&str] = match verb {
                "report" => &["report", "mutant.json", "-o", "page.html"],
                _ => &["compare", "whole.json", "mutant.json"],
            };
            let output = roundtrip().current_dir(at).args(arguments).output().unwrap();
            let error = String::from_utf8_lossy(&output.stderr);
            match output.status.code() {
                Some(2) => refused += 1,
                Some(0 | 1) => shown += 1,
                other => panic!("{other:?}: {error}: {mutant}"),
            }
            assert!(!error.contains("panicked"), "{error}: {mutant}");
        }
    }
    assert!(refused > 20 && shown > 20, "{refused} refused, {shown} shown");
}
