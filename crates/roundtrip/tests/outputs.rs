//! Nothing is destroyed: a run that fails leaves older files as they were and no others, and what cannot be printed is an
//! error.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

use common::roundtrip;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

/// A folder with a simulated capture.
fn simulated() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let packets = folder.path().join("packets.pcapng").display().to_string();
    let output = roundtrip()
        .args(["simulate", "--preset", "two-sends", "--operations", "30", "--pcapng", &packets])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    (folder, packets)
}

/// The outputs of every verb, when the run fails after its arguments have been accepted.
#[test]
fn failed_runs_leave_older_files_as_they_were() {
    let (folder, packets) = simulated();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let damaged = path("damaged.pcapng");
    std::fs::write(&damaged, "no capture").unwrap();
    for name in ["old.csv", "old.parquet", "old.pcapng", "old.svg"] {
        std::fs::write(folder.path().join(name), "old").unwrap();
    }
    let before = names(folder.path());
    let [csv, parquet, pcapng, svg] = ["old.csv", "old.parquet", "old.pcapng", "old.svg"].map(path);
    for arguments in [
        &["analyze", &damaged, "--ops", &csv][..],
        &["analyze", &damaged, "--ops", &parquet],
        &["analyze", &damaged, "--annotate", &pcapng],
        &["analyze", &packets, "--port", "9", "--ops", &csv, "--annotate", &pcapng],
        &["analyze", "/no/such/file", "--ops", &csv],
        &["bench", "iscsi://127.0.0.1:1/iqn.x/0", "--ops", &csv],
        &["simulate", "--ops", &csv, "--pcapng", "/no/such/folder/x.pcapng"],
        &["simulate", "--pcapng", &pcapng, "--set", "response.header=1"],
        &["simulate", "--operations", "30", "--ladder", &svg, "--ladder-ops", "900000..900001"],
        &["model", "--preset", "seed-512", "--what-if", "colour=red", "--chart", &svg],
        &["capture", "--port", "9", "--interface", "no-such-if", "-o", &pcapng],
    ] {
        let output = roundtrip().args(arguments).output().unwrap();
        assert!(!output.status.success(), "{arguments:?}");
        assert_eq!(names(folder.path()), before, "{arguments:?}");
        for file in [&csv, &parquet, &pcapng, &svg] {
            assert_eq!(std::fs::read(file).unwrap(), b"old", "{arguments:?}: {file}");
        }
    }
    // And a run that succeeds replaces them.
    let output =
        roundtrip().args(["analyze", &packets, "--ops", &csv, "--annotate", &pcapng]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a verdict");
    // With Wireshark's profile beside the annotated capture.
    let mut after = before;
    after.push("old.pcapng.wireshark".to_owned());
    after.sort();
    assert_eq!(names(folder.path()), after);
    assert!(std::fs::read(&csv).unwrap().len() > 1000 && std::fs::read(&pcapng).unwrap().len() > 1000);
}

/// A file size limit makes every write fail in the middle of the output.
#[test]
fn a_full_disk_leaves_older_files_as_they_were() {
    let (folder, packets) = simulated();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let [csv, pcapng, svg] = ["old.csv", "old.pcapng", "old.svg"].map(path);
    for file in [&csv, &pcapng, &svg] {
        std::fs::write(file, "old").unwrap();
    }
    let before = names(folder.path());
    for arguments in [
        format!("analyze {packets} --ops {csv}"),
        format!("analyze {packets} --annotate {pcapng}"),
        format!("simulate --ops {csv}"),
        format!("simulate --pcapng {pcapng}"),
        format!("simulate --iodepth 1,2 --chart {svg}"),
        format!("model --preset seed-512 --chart {svg}"),
    ] {
        let command = format!("ulimit -f 1; exec {} {arguments}", env!("CARGO_BIN_EXE_roundtrip"));
        let output = Command::new("sh").args(["-c", &command]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{arguments}: {text}");
        assert!(text.contains("too large") && !text.contains("panicked"), "{arguments}: {text}");
        assert_eq!(names(folder.path()), before, "{arguments}");
        for file in [&csv, &pcapng, &svg] {
            assert_eq!(std::fs::read(file).unwrap(), b"old", "{arguments}: {file}");
        }
    }
}

/// A run that is interrupted, or killed, while it reads: a FIFO that delivers the first half of a capture.
#[test]
fn interrupted_runs_leave_older_files_as_they_were() {
    use std::io::Write as _;
    let (folder, packets) = simulated();
    let path = |name: &str| folder.path().join(name);
    let bytes = std::fs::read(&packets).unwrap();
    std::fs::write(path("old.csv"), "old").unwrap();
    nix::unistd::mkfifo(&path("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let before = names(folder.path());
    for signal in [Signal::SIGTERM, Signal::SIGKILL] {
        let mut child = roundtrip()
            .args(["analyze", path("fifo").to_str().unwrap(), "--ops", path("old.csv").to_str().unwrap()])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Opening the FIFO waits until the program has opened it, with its signal handlers installed.
        let mut fifo = File::options().write(true).open(path("fifo")).unwrap();
        fifo.write_all(&bytes[..bytes.len() / 2]).unwrap();
        kill(Pid::from_raw(child.id() as i32), signal).unwrap();
        drop(fifo);
        assert!(!child.wait().unwrap().success(), "{signal}");
        assert_eq!(names(folder.path()), before, "{signal}");
        assert_eq!(std::fs::read(path("old.csv")).unwrap(), b"old", "{signal}");
    }
}

/// A live capture is different: what was captured survives, beside the older file.
#[test]
fn a_killed_capture_leaves_what_it_has_captured() {
    if !testing::require_root("a live capture") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let output = path("kept.pcapng");
    let served = common::Served::start(&[]);
    let port = served.address.rsplit(':').next().unwrap();
    let capture = || {
        let mut child = roundtrip()
            .args(["capture", "--port", port, "--baseline", "0s", "-o", output.to_str().unwrap()])
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let part = path("kept.pcapng.part");
        // The header of the file is written when the interface is open.
        let mut stderr = std::io::BufReader::new(child.stderr.take().unwrap());
        std::io::BufRead::read_line(&mut stderr, &mut String::new()).unwrap();
        let url = format!("http://{}/{{bs}}", served.address);
        // The writer's buffer reaches the file after a mebibyte. The bound keeps a capture to another file from filling the disk.
        for loads in 0.. {
            if std::fs::metadata(&part).is_ok_and(|metadata| metadata.len() > 1 << 20) {
                break;
            }
            assert!(loads < 50, "nothing was written to {}", part.display());
            let loaded = roundtrip()
                .args(["bench", &url, "--rw", "read", "--bs", "64k", "--runtime", "100ms"])
                .output();
            assert!(loaded.unwrap().status.success());
        }
        child
    };
    std::fs::write(&output, "old").unwrap();
    let mut child = capture();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(std::fs::read(&output).unwrap(), b"old");
    assert_eq!(names(folder.path()), ["kept.pcapng", "kept.pcapng.part"]);
    let found =
        roundtrip().args(["analyze", path("kept.pcapng.part").to_str().unwrap(), "--json"]).output().unwrap();
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    assert!(found["operations"].as_u64().unwrap() > 0, "{found:#}");
    // It is not overwritten by the next capture.
    let refused =
        roundtrip().args(["capture", "--port", port, "-o", output.to_str().unwrap()]).output().unwrap();
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(2) && text.contains("kept.pcapng.part exists"), "{text}");
    std::fs::remove_file(path("kept.pcapng.part")).unwrap();
    // Ctrl-C completes the file.
    let mut child = capture();
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    assert!(matches!(child.wait().unwrap().code(), Some(0 | 1)), "1: packets were dropped");
    assert_eq!(names(folder.path()), ["kept.pcapng"]);
    assert!(std::fs::read(&output).unwrap().len() > 1 << 20);
}

#[test]
fn special_files_are_written_directly() {
    let (folder, packets) = simulated();
    let annotated =
        roundtrip().args(["analyze", &packets, "--annotate", "/dev/stdout", "--json"]).output().unwrap();
    assert!(annotated.stdout.starts_with(&[0x0a, 0x0d, 0x0d, 0x0a]), "a pcapng file, and then JSON");
    let null =
        roundtrip().args(["simulate", "--operations", "30", "--pcapng", "/dev/null"]).output().unwrap();
    assert!(null.status.success());
    let full =
        roundtrip().args(["simulate", "--operations", "30", "--pcapng", "/dev/full"]).output().unwrap();
    let text = String::from_utf8_lossy(&full.stderr);
    assert!(full.status.code() == Some(1) && text.contains("No space left"), "{text}");
    let fifo = folder.path().join("fifo.pcapng");
    nix::unistd::mkfifo(&fifo, nix::sys::stat::Mode::S_IRWXU).unwrap();
    let mut reader = roundtrip().arg("analyze").arg(&fifo).stdout(Stdio::null()).spawn().unwrap();
    let written =
        roundtrip().args(["simulate", "--operations", "30", "--pcapng"]).arg(&fifo).output().unwrap();
    assert!(written.status.success(), "{}", String::from_utf8_lossy(&written.stderr));
    assert_eq!(reader.wait().unwrap().code(), Some(0), "ordinary reads have no verdict");
}

/// Every verb that prints a result, with and without --json.
fn printing(packets: &str) -> Vec<Vec<String>> {
    let verbs: [&[&str]; 7] = [
        &["analyze", packets],
        &["simulate", "--operations", "30"],
        &["simulate", "--list"],
        &["simulate", "--preset", "post", "--print"],
        &["model", "--preset", "seed-512"],
        &["study", "--quick", "--print"],
        &["wire", "plan", "--nat", "eth4", "eth5"],
    ];
    let mut all: Vec<Vec<String>> = Vec::new();
    for help in [&["--help"][..], &["-h"], &["--version"], &["help"], &["help", "study"]] {
        all.push(help.iter().map(ToString::to_string).collect());
    }
    for verb in ["target", "bench", "study", "model", "simulate", "serve", "capture", "analyze", "wire"] {
        all.push(vec![verb.to_owned(), "--help".to_owned()]);
    }
    all.push(["wire", "up", "--help"].map(str::to_owned).to_vec());
    for verb in verbs {
        all.push(verb.iter().map(ToString::to_string).collect());
        all.push(verb.iter().chain(&["--json"]).map(ToString::to_string).collect());
    }
    all
}

#[test]
fn results_that_cannot_be_printed_are_an_error() {
    let (_folder, packets) = simulated();
    for arguments in printing(&packets) {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let output = roundtrip().args(&arguments).stdout(full).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {text}");
        assert!(text.contains("cannot print the result: No space left"), "{arguments:?}: {text}");
    }
}

/// As `| head -1` does it: the reader closes the pipe. The program ends without a message.
#[test]
fn a_closed_pipe_ends_the_program_quietly() {
    let (_folder, packets) = simulated();
    for arguments in printing(&packets) {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = roundtrip().args(&arguments).stdout(writer).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), text.as_ref()), (Some(1), ""), "{arguments:?}");
    }
}

#[test]
fn a_finished_study_is_not_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let out = folder.path().display().to_string();
    std::fs::write(folder.path().join("study.json"), "{}").unwrap();
    let output = roundtrip().args(["study", "--quick", "-o", &out]).output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{text}");
    assert!(
        text.contains("study.json is the result of a finished study") && text.contains("--force"),
        "{text}"
    );
    assert_eq!(names(folder.path()), ["study.json"]);
    let output = roundtrip().args(["study", "--quick", "--force", "--resume", "-o", &out]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "--force and --resume exclude one another");
}

#[test]
fn two_outputs_of_one_name_and_an_input_as_output_are_rejected() {
    let (folder, packets) = simulated();
    let out = folder.path().join("out.csv").display().to_string();
    let setup = folder.path().join("ring.toml").display().to_string();
    let text = roundtrip().args(["simulate", "--preset", "seed-512", "--print"]).output().unwrap().stdout;
    std::fs::write(&setup, &text).unwrap();
    let before = names(folder.path());
    let small = ["simulate", "--preset", "seed-512", "--operations", "50"];
    let with =
        |options: &[&str]| small.iter().chain(options).map(|word| (*word).to_owned()).collect::<Vec<_>>();
    let words = |line: &[&str]| line.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
    for (line, problem) in [
        (words(&["analyze", &packets, "--annotate", &out, "--ops", &out]), "both write"),
        (with(&["--ops", &out, "--pcapng", &out]), "both write"),
        (with(&["--ladder", &out, "--chart", &out]), "both write"),
        (words(&["simulate", &setup, "--chart", &setup]), "would overwrite the input"),
        (words(&["model", &setup, "--chart", &setup]), "would overwrite the input"),
        (
            words(&["bench", "http://127.0.0.1:1/", "--rw", "write", "--body-file", &setup, "--ops", &setup]),
            "would overwrite the input",
        ),
    ] {
        let output = roundtrip().args(&line).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(problem), "{line:?}: {error}");
        assert_eq!(names(folder.path()), before, "{line:?} wrote nothing");
        assert_eq!(std::fs::read(&setup).unwrap(), text);
    }
}
