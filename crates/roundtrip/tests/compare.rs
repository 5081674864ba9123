//! `roundtrip compare`: what was planted is found, and equal runs do not differ.

#![allow(clippy::unwrap_used, reason = "tests fail by panicking")]

mod common;

use std::path::{Path, PathBuf};

use common::roundtrip;
use serde_json::Value;

/// Seeds of each stage; all of them with ROUNDTRIP_COMPARE_SEEDS=25.
fn seeds() -> u64 {
    std::env::var("ROUNDTRIP_COMPARE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(4)
}

/// A ring whose times vary by a fifth, captured at both ends.
fn ring(folder: &Path, name: &str, seed: u64, set: &[&str]) -> PathBuf {
    let path = folder.join(format!("{name}-{seed}.pcapng"));
    let mut command = roundtrip();
    command.args(["simulate", "--iodepth", "1", "--operations", "1500", "--seed", &seed.to_string()]);
    command.args(["--set", "jitter=0.2"]).args(set.iter().flat_map(|one| ["--set", one]));
    let output = command.arg("--pcapng").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    path
}

/// Compares, and returns the exit code and the result.
fn compared(a: &Path, b: &Path) -> (i32, Value) {
    let output = roundtrip().arg("compare").args([a, b]).arg("--json").output().unwrap();
    let result = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)));
    (output.status.code().unwrap(), result)
}

/// 15 us in each stage of the ring: the part of the time that holds the stage carries the change.
#[test]
fn a_planted_delay_is_found_in_its_part() {
    // The defaults of the simulation (`simulate --set` without a preset), 15 us longer.
    let stages = [
        ("client.start=35us", "client"),
        ("client.interrupt=20us", "way back"),
        ("client.softirq=16us", "client"),
        ("server.interrupt=20us", "way there"),
        ("server.softirq=16us", "server"),
        ("server.start=35us", "server"),
        ("server.service=16us", "server"),
        ("wire.delay=16us", "way"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let seeds = seeds();
    for (set, part) in stages {
        let mut missed = Vec::new();
        for seed in 1..=seeds {
            let before = ring(folder.path(), "before", seed, &[]);
            let after = ring(folder.path(), "after", seed + 1000, &[set]);
            let (code, result) = compared(&before, &after);
            let row = &result["rows"][0];
            if code != 1 || !row["carried_by"][0].as_str().is_some_and(|by| by.starts_with(part)) {
                missed.push((seed, row.clone()));
            }
        }
        assert!(missed.len() as u64 <= seeds / 25, "{set}: {} of {seeds}: {missed:?}", missed.len());
    }
}

/// Simulated runs with these seeds, as a result.
fn repeats(folder: &Path, name: &str, seeds: std::ops::Range<u64>, set: &[&str]) -> PathBuf {
    let path = folder.join(format!("{name}.json"));
    let seeds: Vec<String> = seeds.map(|seed| seed.to_string()).collect();
    let mut command = roundtrip();
    command.args(["simulate", "--iodepth", "1", "--operations", "400", "--json", "--set", "jitter=0.2"]);
    command.args(["--sweep", &format!("seed={}", seeds.join(","))]);
    let output = command.args(set.iter().flat_map(|one| ["--set", one])).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    std::fs::write(&path, output.stdout).unwrap();
    path
}

/// 15 us in each of eight stages, in results of repeated runs: the stage itself carries the change.
#[test]
fn repeats_tell_the_stage_that_became_longer() {
    let stages = [
        ("client.start=35us", "response start"),
        ("client.interrupt=20us", "response interrupt"),
        ("client.softirq=16us", "response softirq"),
        ("server.interrupt=20us", "request interrupt"),
        ("server.softirq=16us", "request softirq"),
        ("server.start=35us", "request start"),
        ("server.service=16us", "response work"),
        ("wire.delay=16us", "delay"),
    ];
    let folder = tempfile::tempdir().unwrap();
    let trials = seeds();
    for (set, stage) in stages {
        let mut missed = Vec::new();
        for trial in 0..trials {
            let first = trial * 20;
            let before = repeats(folder.path(), "before", first..first + 5, &[]);
            let after = repeats(folder.path(), "after", first + 10..first + 15, &[set]);
            let (code, result) = compared(&before, &after);
            let by = result["rows"][0]["carried_by"][0].as_str().unwrap_or("nothing").to_owned();
            if code != 1 || !by.ends_with(stage) {
                missed.push((trial, by));
            }
        }
        assert!(missed.len() as u64 <= trials / 25, "{set}: {} of {trials}: {missed:?}", missed.len());
    }
    let equal = (0..trials).filter(|trial| {
        let first = trial * 20;
        let before = repeats(folder.path(), "before", first..first + 5, &[]);
        let after = repeats(folder.path(), "after", first + 10..first + 15, &[]);
        compared(&before, &after).0 != 0
    });
    assert!(equal.count() as u64 <= trials / 25);
}

/// Studies are repeats of each other in a folder; one of each side says that it knows no noise; kinds do not mix.
#[test]
fn studies_in_folders_are_repeats() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    let study = |iops: f64, us: f64| {
        serde_json::json!({"plan": {}, "stanzas": [{"queue_depth": 1, "block_size_bytes": 512, "policy": "nodelay", "completed": 9,
            "iops": iops, "rtt_us": us, "breakdown": {"terms": [{"terms": "SP+SK", "mean_us": us - 40.0}]}}]})
        .to_string()
    };
    for (side, more) in [("before", 0.0), ("after", 9.0)] {
        for (number, noise) in [0.0, 0.2, -0.1].into_iter().enumerate() {
            let own = at.join(side).join(number.to_string());
            std::fs::create_dir_all(&own).unwrap();
            let us = 60.0 + more + noise;
            std::fs::write(own.join("study.json"), study(1e6 / us, us)).unwrap();
        }
    }
    let (code, result) = compared(&at.join("before"), &at.join("after"));
    assert_eq!((code, &result["rows"][0]["carried_by"][0]), (1, &"SP+SK".into()), "{result}");
    let (code, result) = compared(&at.join("before/0"), &at.join("after/0"));
    assert_eq!(code, 0, "{result}");
    assert!(result["rows"][0]["note"].as_str().unwrap().contains("measured once"), "{result}");
    let capture = ring(at, "a", 1, &[]);
    let output = roundtrip().arg("compare").arg(at.join("before")).arg(capture).output().unwrap();
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("results of one kind"), "{error}");
}

#[test]
fn equal_runs_do_not_differ() {
    let folder = tempfile::tempdir().unwrap();
    let seeds = seeds();
    let differs = |seed: u64| {
        let before = ring(folder.path(), "before", seed, &[]);
        let after = ring(folder.path(), "after", seed + 1000, &[]);
        compared(&before, &after).0 != 0
    };
    let found: Vec<u64> = (1..=seeds).filter(|&seed| differs(seed)).collect();
    assert!(found.len() as u64 <= seeds / 25, "{found:?}");
    let one = ring(folder.path(), "one", 1, &[]);
    assert_eq!(compared(&one, &one).0, 0);
}

/// A profile that was kept says the same as its capture, in a hundredth of the room.
#[test]
fn a_kept_profile_stands_for_its_capture() {
    let folder = tempfile::tempdir().unwrap();
    let before = ring(folder.path(), "before", 1, &[]);
    let after = ring(folder.path(), "after", 2, &["server.service=30us"]);
    let kept = |path: &Path, name: &str| {
        let output = roundtrip()
            .env("XDG_DATA_HOME", folder.path())
            .args(["analyze", "--save", name])
            .arg(path)
            .output()
            .unwrap();
        assert!(output.status.code().unwrap() < 2, "{}", String::from_utf8_lossy(&output.stderr));
    };
    kept(&before, "tuesday");
    let file = folder.path().join("after.profile");
    kept(&after, file.to_str().unwrap());
    let output = roundtrip()
        .env("XDG_DATA_HOME", folder.path())
        .args(["compare", "tuesday", file.to_str().unwrap(), "--json"])
        .output()
        .unwrap();
    let of_profiles: Value = serde_json::from_slice(&output.stdout).unwrap();
    let (_, of_captures) = compared(&before, &after);
    assert_eq!(of_profiles["rows"], of_captures["rows"]);
    let size = |path: &Path| path.metadata().unwrap().len();
    let profile = folder.path().join("roundtrip/profiles/tuesday.profile");
    assert!(size(&profile) * 100 < size(&before), "{} of {}", size(&profile), size(&before));
}

#[test]
fn conditions_decide_and_wrong_files_are_named() {
    let folder = tempfile::tempdir().unwrap();
    let before = ring(folder.path(), "before", 1, &[]);
    let after = ring(folder.path(), "after", 2, &["server.service=16us"]);
    let run = |words: &[&str]| {
        let output = roundtrip().arg("compare").args(words).output().unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
    };
    let (a, b) = (before.to_str().unwrap(), after.to_str().unwrap());
    let (code, _, error) = run(&[a, b, "--assert", "mean=5%"]);
    assert!(code == 1 && error.contains("broken: ") && error.contains("mean us"), "{error}");
    assert_eq!(run(&[a, b, "--assert", "mean=90%", "--assert", "failed"]).0, 0);
    assert_eq!(run(&[b, a, "--assert", "mean=5%", "--assert", "rate=5%"]).0, 0, "it became better");
    let (_, markdown, _) = run(&[a, b, "--markdown"]);
    assert!(markdown.contains("| server +15") && markdown.starts_with("### "), "{markdown}");
    let (_, text, _) = run(&[a, b]);
    assert!(
        text.lines().next().unwrap().contains("slower")
            && text.lines().all(|line| line.chars().count() <= 80),
        "{text}"
    );
    let wrong = folder.path().join("wrong.json");
    for (content, why) in [
        ("{\"a\": 1}", "neither a profile"),
        ("{", "wrong.json"),
        ("{\"format\": 77}", "format 77"),
        ("", "wrong.json"),
    ] {
        std::fs::write(&wrong, content).unwrap();
        let (code, _, error) = run(&[a, wrong.to_str().unwrap()]);
        assert!(code == 2 && error.contains(why), "{content}: {error}");
    }
    assert!(run(&[a, "/nowhere"]).2.contains("/nowhere"));
    // A small file that becomes a large text.
    let bomb =
        zstd::encode_all(&*[b" {\"format\":1,\"series\":[".to_vec(), b"{},".repeat(30 << 20)].concat(), 0)
            .unwrap();
    std::fs::write(&wrong, bomb).unwrap();
    let (code, _, error) = run(&[a, wrong.to_str().unwrap()]);
    assert!(code == 2 && error.contains("more than 64 MiB"), "{error}");
    assert_eq!(run(&[a, b, "--assert", "p98=3%"]).0, 2);
}

/// Silence counts: a capture is as long as it was looked, not as long as operations ended.
#[test]
fn rates_are_over_the_whole_capture() {
    let Some(_alone) = common::live::may_capture() else { return };
    let target = common::Target::start(&["--lun", "0=ram:1M"]);
    let folder = tempfile::tempdir().unwrap();
    let (capture, profile) = (folder.path().join("a.pcapng"), folder.path().join("a.profile"));
    let port = target.address.rsplit_once(':').unwrap().1;
    let mut capturing = roundtrip();
    capturing.args(["capture", "--interface", "lo", "--port", port, "--duration", "3s", "--output"]);
    let child = capturing.arg(&capture).stderr(std::process::Stdio::null()).spawn().unwrap();
    // On a busy machine it takes its time until it listens: then it has a socket for packets.
    let until = std::time::Instant::now() + std::time::Duration::from_secs(20);
    let sockets = format!("/proc/{}/fd", child.id());
    let listens = || {
        let packets = std::fs::read_to_string("/proc/net/packet").unwrap();
        let inodes: Vec<&str> =
            packets.lines().skip(1).filter_map(|line| line.split_whitespace().last()).collect();
        let links =
            std::fs::read_dir(&sockets).unwrap().filter_map(|fd| std::fs::read_link(fd.ok()?.path()).ok());
        let mut own = links.map(|link| link.to_string_lossy().into_owned());
        own.any(|link| inodes.iter().any(|inode| link == format!("socket:[{inode}]")))
    };
    while !listens() {
        assert!(std::time::Instant::now() < until, "nothing captures");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    common::bench(&target.url(0), &["--runtime", "200ms", "--ramp", "0s", "--iodepth", "1"]);
    std::thread::sleep(std::time::Duration::from_secs(1));
    // Packets without an operation, a second after the last one.
    drop(std::net::TcpStream::connect(&target.address).unwrap());
    assert!(child.wait_with_output().unwrap().status.success());
    let output = roundtrip().args(["analyze", "--save"]).args([&profile, &capture]).output().unwrap();
    assert!(output.status.code().unwrap() < 2, "{}", String::from_utf8_lossy(&output.stderr));
    let text = zstd::decode_all(std::fs::File::open(&profile).unwrap()).unwrap();
    let kept: Value = serde_json::from_slice(&text).unwrap();
    let ns = |key: &str| kept[key].as_u64().unwrap();
    assert!(
        (1_000_000_000..3_000_000_000).contains(&(ns("end_ns") - ns("begin_ns"))),
        "{} to {}",
        ns("begin_ns"),
        ns("end_ns")
    );
}
