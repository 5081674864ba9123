//! Every verb on a terminal of 80 columns: what it prints fits, whatever it measured, and its first 24 lines are in docs/screens.
//! `ROUNDTRIP_WRITE_SCREENS=1 cargo test -p roundtrip --test screens` writes them anew.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use common::{Target, roundtrip};

const COLUMNS: usize = 80;
const LINES: usize = 24;

/// What a command prints, whatever its exit code.
fn printed(folder: &Path, line: &str) -> String {
    let output = roundtrip()
        .current_dir(folder)
        .env("COLUMNS", "80")
        .env("HOME", folder)
        .args(line.split(' '))
        .output()
        .unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code().is_some_and(|code| code < 2), "{line}: {error}");
    String::from_utf8(output.stdout).unwrap()
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/screens")
}

/// A command as one types it, in lines that fit.
fn typed(command: &str, url: &str) -> String {
    let command = command.replace(url, "URL");
    let mut lines = vec!["$ roundtrip".to_owned()];
    for word in command.split(' ') {
        let line = lines.last_mut().unwrap();
        if line.len() + word.len() + 3 <= COLUMNS {
            line.push_str(&format!(" {word}"));
        } else {
            line.push_str(" \\");
            lines.push(format!("      {word}"));
        }
    }
    lines.join("\n")
}

/// The columns of a line: characters, as nothing here is wider than one.
fn columns(line: &str) -> usize {
    line.trim_end().chars().count()
}

#[test]
fn every_verb_fits_80_columns_and_has_a_screen() {
    let folder_of_work = tempfile::tempdir().unwrap();
    let at = folder_of_work.path();
    let control = at.join("control.sock");
    let target = Target::start(&["--lun", "0=ram:16M", "--control", control.to_str().unwrap()]);
    let url = target.url(0);
    let save =
        r#"{"storage_objects": [{"name": "d", "plugin": "ramdisk", "size": 16777216}], "targets": []}"#;
    std::fs::write(at.join("saveconfig.json"), save).unwrap();
    std::fs::write(at.join("target.toml"), "[luns]\n0 = \"ram:16M\"\n").unwrap();
    let plan = "name = \"nagle\"\nabout = \"header and body apart\"\nrate = \"1gbit\"\nruntime = \"300ms\"\nrepeats = 1\n\
                [[case]]\nlabel = \"apart\"\nwork = { post = 480 }\nclient = { nagle = true, writes = \"apart\" }\n\
                [[case]]\nlabel = \"together\"\nwork = { post = 480 }\nagainst = \"apart\"\n";
    std::fs::write(at.join("plan.toml"), plan).unwrap();
    let ring = "simulate --iodepth 4 --operations 4000 --set jitter=0.2";
    let commands: Vec<String> = [
        &format!("{ring} --seed 3 --pcapng a.pcapng"),
        &format!("{ring} --seed 4 --set server.service=16us --pcapng b.pcapng"),
        "simulate --preset two-sends --operations 300 --pcapng c.pcapng",
        "simulate --preset post --operations 100",
        "simulate --paper --operations 200",
        "analyze a.pcapng",
        "analyze c.pcapng",
        "analyze c.pcapng --explain",
        "analyze a.pcapng --by connection",
        "analyze a.pcapng --by client",
        "analyze a.pcapng --by size",
        "analyze a.pcapng --slowest 5",
        "compare a.pcapng b.pcapng",
        "model --preset seed-512",
        "model --preset seed-512 --iodepth 4 --what-if bandwidth=10gbit --what-if sl=0",
        "model --preset copy-mtu-read",
        "model --preset post",
        &format!("bench {url} --bs 512,4k --iodepth 1,8 --runtime 300ms"),
        "study --quick --loopback --bs 512 --iodepth 1,4 --send nodelay --runtime 100ms -o ring",
        "study --plan plan.toml --loopback -o cases",
        "host check",
        "ctl --control control.sock status",
        "ctl --control control.sock disk list",
        "ctl --control control.sock session list",
        "ctl --control control.sock connections",
        "ctl --control control.sock config",
        "top control.sock --once",
        "target --check target.toml",
        "import targetcli saveconfig.json",
        "wire plan --nat eth1 eth2",
        "wire show",
        "report ring -o page.html",
        "serve --help",
        "capture --help",
        "target --help",
    ]
    .into_iter()
    .map(str::to_owned)
    .collect();
    let mut screens: BTreeMap<String, String> = BTreeMap::new();
    let mut wide = Vec::new();
    for command in &commands {
        let text = printed(at, command);
        // Its lines are commands to be copied: a broken one would not work.
        let is_for_copying = command.starts_with("wire plan");
        wide.extend(
            text.lines()
                .filter(|line| columns(line) > COLUMNS && !is_for_copying)
                .map(|line| format!("{command}: {} columns: {line}", columns(line))),
        );
        let verb = command.split(' ').next().unwrap().to_owned();
        let shown: Vec<&str> = text.lines().take(LINES - 2).map(str::trim_end).collect();
        let more = if text.lines().count() > shown.len() { "...\n" } else { "" };
        let screen = screens.entry(verb).or_default();
        screen.push_str(&format!("{}\n{}\n{more}\n", typed(command, &url), shown.join("\n")));
    }
    target.stop();
    assert!(wide.is_empty(), "{}", wide.join("\n"));
    // A verb without a screen is one that nobody looked at.
    let help = printed(at, "--help");
    let verbs: Vec<&str> = help
        .lines()
        .skip_while(|line| !line.starts_with("Commands:"))
        .skip(1)
        .take_while(|line| !line.trim().is_empty())
        .filter(|line| line.starts_with("  ") && !line.starts_with("    "))
        .filter_map(|line| line.split_whitespace().next())
        .filter(|verb| *verb != "help")
        .collect();
    assert!(verbs.len() > 10, "{help}");
    let missing: Vec<&&str> = verbs.iter().filter(|verb| !screens.contains_key(**verb)).collect();
    assert!(missing.is_empty(), "verbs without a screen: {missing:?}");
    if std::env::var_os("ROUNDTRIP_WRITE_SCREENS").is_some() {
        std::fs::create_dir_all(folder()).unwrap();
        for (verb, screen) in &screens {
            std::fs::write(folder().join(format!("{verb}.txt")), format!("{}\n", screen.trim_end())).unwrap();
        }
    }
    for verb in screens.keys() {
        let path = folder().join(format!("{verb}.txt"));
        let kept =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let fits = |line: &str| columns(line) <= COLUMNS || verb == "wire";
        assert!(kept.lines().all(fits), "{}", path.display());
        for command in commands.iter().filter(|command| command.split(' ').next() == Some(verb)) {
            let shown = typed(command, &url);
            assert!(kept.contains(&shown), "{}: without {shown}", path.display());
        }
    }
}

/// A whole number with its thousands apart.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let groups: Vec<&str> =
        digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(" ")
}

/// Captures whose times are seconds long, whose keys are long, and whose losses are many: tables fit, and no figure runs into another.
#[test]
fn long_times_and_keys_fit_their_columns() {
    let folder = tempfile::tempdir().unwrap();
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/captures");
    for name in [
        "bufferbloat-8mbit",
        "nginx-black-hole",
        "go-events-10ms",
        "postgres-chatty-10ms.mended",
        "postgres-updates",
    ] {
        let capture = corpus.join(format!("{name}.pcapng.zst"));
        let capture = capture.to_str().unwrap();
        let json: serde_json::Value =
            serde_json::from_str(&printed(folder.path(), &format!("analyze {capture} --json"))).unwrap();
        let text = printed(folder.path(), &format!("analyze {capture} --by key --slowest 5"));
        // The names of files may be long.
        let wide: Vec<&str> =
            text.lines().filter(|line| columns(line) > COLUMNS && !line.contains(name)).collect();
        assert!(wide.is_empty(), "{name}: {}", wide.join("\n"));
        let unit = ["p50 us", "p50 ms", "p50 s"].iter().position(|unit| text.contains(unit)).unwrap();
        let scale = [1.0, 1e3, 1e6][unit];
        for service in json["services"].as_array().unwrap().iter().take(10) {
            let p99 = service["p99_us"].as_f64().unwrap() / scale;
            let shown = if p99 < 100.0 { format!(" {p99:.1} ") } else { format!(" {} ", thousands(p99)) };
            assert!(text.contains(&shown), "{name}: '{shown}' is not in\n{text}");
        }
    }
}
