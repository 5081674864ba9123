//! Many captures in one dataset.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;

use common::roundtrip;
use serde_json::Value;

fn run(folder: &Path, line: &str) -> Output {
    roundtrip().current_dir(folder).args(line.split(' ')).output().unwrap()
}

/// The JSON of a command that succeeds.
fn json(folder: &Path, line: &str) -> Value {
    let output = run(folder, line);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(matches!(output.status.code(), Some(0 | 1)), "{line}: {error}");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|parse| panic!("{line}: {parse}: {error}"))
}

/// Simulated captures, of which each differs from the others.
fn captures(folder: &Path, count: u32) {
    std::fs::create_dir_all(folder.join("captures/deep")).unwrap();
    for seed in 0..count {
        let place = if seed % 3 == 0 { "deep/" } else { "" };
        let line = format!(
            "simulate --iodepth {} --operations {} --seed {seed} --set jitter=0.2 --pcapng captures/{place}host-{seed}.pcapng",
            1 + seed % 4,
            200 + 50 * seed
        );
        assert!(run(folder, &line).status.success(), "{line}");
    }
}

/// All files below a folder, with their content.
fn content(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut all = BTreeMap::new();
    let mut left = vec![folder.to_owned()];
    while let Some(folder) = left.pop() {
        for entry in std::fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                left.push(path);
            } else {
                all.insert(path.clone(), std::fs::read(&path).unwrap());
            }
        }
    }
    all
}

fn relative(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    content(folder)
        .into_iter()
        .map(|(path, bytes)| (path.strip_prefix(folder).unwrap().to_owned(), bytes))
        .collect()
}

/// The dataset has every operation of every capture, however many are analysed at a time and in however many calls; its distribution
/// is that of all captures together.
#[test]
fn a_dataset_has_every_operation_whatever_the_way_there() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    captures(at, 7);
    let single: Vec<Value> = (0..7)
        .map(|seed| {
            let place = if seed % 3 == 0 { "deep/" } else { "" };
            json(at, &format!("analyze captures/{place}host-{seed}.pcapng --json"))
        })
        .collect();
    let operations: u64 = single.iter().map(|one| one["operations"].as_u64().unwrap()).sum();
    let told = json(at, "analyze --each captures --ops one --json");
    assert_eq!((&told["captures"], &told["analysed"]), (&7.into(), &7.into()), "{told}");
    assert_eq!(told["operations"], operations, "{told}");
    assert_eq!(told["failed"].as_array().unwrap().len(), 0);
    // Another number at a time, and in two calls, of which the second one names some again.
    json(at, "analyze --each captures/deep --ops two --json --jobs 1");
    let told = json(at, "analyze --each captures --ops two --json --jobs 3");
    assert_eq!((&told["analysed"], &told["complete_before"]), (&4.into(), &3.into()), "{told}");
    assert!(relative(&at.join("one")) == relative(&at.join("two")), "the same dataset");
    // The service's own figures: those of the operations of all captures, sorted.
    assert!(run(at, "simulate --iodepth 4 --operations 10 --pcapng x.pcapng").status.success());
    let rows: u64 = content(&at.join("one/operations"))
        .keys()
        .map(|path| {
            let file = std::fs::File::open(path).unwrap();
            let reader = parquet::file::reader::SerializedFileReader::new(file).unwrap();
            parquet::file::reader::FileReader::metadata(&reader).file_metadata().num_rows() as u64
        })
        .sum();
    assert_eq!(rows, operations);
    let service = &told["services"][0];
    let total: f64 = single
        .iter()
        .map(|one| {
            let row = &one["services"][0];
            row["mean_us"].as_f64().unwrap() * row["operations"].as_f64().unwrap()
        })
        .sum();
    assert!((service["total_us"].as_f64().unwrap() / total - 1.0).abs() < 1e-9, "{service} {total}");
    // What reads one measurement reads the merged ones.
    let same = run(at, "compare one two --json");
    assert_eq!(same.status.code(), Some(0), "{}", String::from_utf8_lossy(&same.stdout));
    assert!(run(at, "report one -o page.html").status.success());
    let page = std::fs::read_to_string(at.join("page.html")).unwrap();
    assert!(page.contains("How are the times distributed?"));
}

/// A capture that cannot be read is named, the others are in the dataset, and nothing of it is; killed in the middle, the next call
/// completes what is missing.
#[test]
fn what_cannot_be_read_is_named_and_what_was_killed_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    captures(at, 4);
    std::fs::write(at.join("captures/broken.pcap"), "no capture").unwrap();
    std::fs::write(at.join("captures/note.txt"), "no capture, and not named like one").unwrap();
    let output = run(at, "analyze --each captures --ops data --json");
    assert_eq!(output.status.code(), Some(1));
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((told["captures"].as_u64(), told["failed"].as_array().unwrap().len()), (Some(4), 1), "{told}");
    assert!(told["failed"][0]["capture"].as_str().unwrap().ends_with("broken.pcap"), "{told}");
    assert!(!relative(&at.join("data")).keys().any(|path| path.to_string_lossy().contains("broken")));
    std::fs::remove_file(at.join("captures/broken.pcap")).unwrap();
    let whole = relative(&at.join("data"));
    // As a kill leaves it: parts without a result, and a part of the files.
    let results: Vec<PathBuf> = content(&at.join("data/results")).into_keys().collect();
    std::fs::remove_file(&results[0]).unwrap();
    std::fs::remove_file(&results[2]).unwrap();
    let cut = content(&at.join("data/operations")).into_keys().next().unwrap();
    std::fs::remove_file(cut).unwrap();
    let mut child = roundtrip()
        .current_dir(at)
        .args(["analyze", "--each", "captures", "--ops", "killed", "--jobs", "1"])
        .spawn()
        .unwrap();
    std::thread::sleep(std::time::Duration::from_millis(60));
    let _ = child.kill();
    child.wait().unwrap();
    let told = json(at, "analyze --each captures --ops data --json");
    assert_eq!((&told["analysed"], &told["complete_before"]), (&2.into(), &2.into()), "{told}");
    assert!(relative(&at.join("data")) == whole);
    let told = json(at, "analyze --each captures --ops killed --json");
    assert_eq!(told["captures"], 4, "{told}");
    assert!(relative(&at.join("killed")) == whole);
}

/// A capture of one request and its answer, a millisecond apart, at so many seconds since 1970.
fn capture_at(path: &Path, seconds: u32) {
    let frame = |micros: u32,
                 from: [u8; 4],
                 to: [u8; 4],
                 ports: [u16; 2],
                 [seq, ack]: [u32; 2],
                 flags: u8,
                 data: &[u8]| {
        let mut ip = vec![0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 6, 0, 0];
        ip[2..4].copy_from_slice(&(40 + data.len() as u16).to_be_bytes());
        ip.extend(from.iter().chain(&to));
        ip.extend(ports.iter().flat_map(|port| port.to_be_bytes()));
        ip.extend(seq.to_be_bytes());
        ip.extend(ack.to_be_bytes());
        ip.extend([0x50, flags, 0xff, 0xff, 0, 0, 0, 0]);
        ip.extend(data);
        let length = (ip.len() as u32).to_le_bytes();
        [&seconds.to_le_bytes()[..], &micros.to_le_bytes(), &length, &length, &ip].concat()
    };
    let (client, server) = ([192, 0, 2, 1], [192, 0, 2, 2]);
    let mut file = b"\xd4\xc3\xb2\xa1\x02\0\x04\0\0\0\0\0\0\0\0\0\xff\xff\0\0\x65\0\0\0".to_vec();
    file.extend(frame(0, client, server, [40_000, 80], [0, 0], 0x02, b""));
    file.extend(frame(10, server, client, [80, 40_000], [0, 1], 0x12, b""));
    for turn in 0..5_u32 {
        let request = b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n";
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
        let at = 100 + turn * 2000;
        let (asked, answered) = (request.len() as u32, answer.len() as u32);
        let places = [1 + turn * asked, 1 + turn * answered];
        file.extend(frame(at, client, server, [40_000, 80], places, 0x18, request));
        let places = [places[1], places[0] + asked];
        file.extend(frame(at + 1000, server, client, [80, 40_000], places, 0x18, answer));
    }
    std::fs::write(path, file).unwrap();
}

/// Clocks that are wrong, names that others do not see, attempts that were killed, results that are empty, and other options: none
/// makes the dataset unreadable or wrong.
#[test]
fn one_bad_capture_or_attempt_does_not_spoil_the_dataset() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::create_dir(at.join("captures")).unwrap();
    // 1970, today, 2050, and the last second that a capture can have (2106).
    for (name, seconds) in
        [("old", 100), ("now", 1_795_000_000), ("2050", 2_524_608_000), ("_(last)", u32::MAX)]
    {
        capture_at(&at.join(format!("captures/{name}.pcap")), seconds);
    }
    let told = json(at, "analyze --each captures --ops data --json");
    assert_eq!((&told["captures"], &told["operations"]), (&4.into(), &20.into()), "{told}");
    assert!(run(at, "report data -o page.html").status.success());
    let clean = relative(&at.join("data"));
    let is_seen = |path: &PathBuf| {
        path.components().all(|part| !part.as_os_str().to_string_lossy().starts_with(['_', '.']))
    };
    assert!(clean.keys().all(is_seen), "{:?}", clean.keys());
    // As kills leave it: results that are empty or without a sketch, parts with and without a name.
    let files: Vec<PathBuf> = clean.keys().map(|path| at.join("data").join(path)).collect();
    let of = |part: &str| {
        files.iter().filter(|path| path.to_string_lossy().contains(part)).cloned().collect::<Vec<_>>()
    };
    std::fs::write(&of("results")[0], "").unwrap();
    std::fs::remove_file(&of("sketches")[1]).unwrap();
    let parquet =
        of("2050.pcap-").into_iter().find(|path| path.to_string_lossy().ends_with("parquet")).unwrap();
    let name = parquet.file_name().unwrap().to_str().unwrap().to_owned();
    let stray = parquet.parent().unwrap().parent().unwrap().join("server=10.0.0.9_80");
    std::fs::create_dir(&stray).unwrap();
    std::fs::copy(&parquet, stray.join(&name)).unwrap();
    std::fs::write(parquet.parent().unwrap().join(format!(".{name}.77.2")), "cut").unwrap();
    std::fs::remove_file(&of("results/2050")[0]).unwrap();
    json(at, "analyze --each captures --ops data --json");
    assert!(relative(&at.join("data")) == clean);
    // What was read in another way would be taken for complete.
    let output = run(at, "analyze --each captures --ops data --port 81");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("other options"), "{error}");
    // A pipe is no capture that one waits for.
    let pipe = at.join("captures/pipe.pcap");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let told = json(at, "analyze --each captures captures/pipe.pcap --ops data --json");
    assert_eq!(told["failed"][0]["why"], "not a file", "{told}");
}

/// Who comes while a capture is analysed waits, and finds it complete.
#[test]
fn a_capture_is_analysed_by_one_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    captures(at, 1);
    json(at, "analyze --each captures --ops data --json");
    let result = content(&at.join("data/results")).into_keys().next().unwrap();
    let name = result.file_stem().unwrap().to_str().unwrap();
    std::fs::rename(&result, at.join("kept")).unwrap();
    std::fs::create_dir_all(at.join("data/locks")).unwrap();
    // Another one has it, and completes it a while later.
    let script = format!("echo; sleep 0.7; cp kept data/results/{name}.json");
    let mut other = std::process::Command::new("flock")
        .current_dir(at)
        .args([&format!("data/locks/{name}"), "sh", "-c", &script])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Read::read_exact(other.stdout.as_mut().unwrap(), &mut [0]).unwrap();
    let told = json(at, "analyze --each captures --ops data --json");
    assert_eq!((&told["analysed"], &told["complete_before"]), (&0.into(), &1.into()), "{told}");
    assert!(other.wait().unwrap().success());
    assert!(content(&at.join("data/locks")).is_empty(), "no lock is left");
}

/// Captures that differ only in the middle are one name; those that differ at an end are two, also under one name.
#[test]
fn captures_of_one_name_from_two_hosts_are_two() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    for (host, service) in [("a", "16us"), ("b", "5ms")] {
        std::fs::create_dir_all(at.join(host)).unwrap();
        let line = format!(
            "simulate --iodepth 1 --operations 3000 --set server.service={service} --pcapng {host}/ring.pcapng"
        );
        assert!(run(at, &line).status.success());
    }
    assert!(std::fs::metadata(at.join("a/ring.pcapng")).unwrap().len() > 2 << 20);
    let told = json(at, "analyze --each a b --ops data --json");
    let alone =
        |host: &str| json(at, &format!("analyze {host}/ring.pcapng --json"))["operations"].as_u64().unwrap();
    assert_eq!(told["operations"].as_u64(), Some(alone("a") + alone("b")), "{told}");
}

#[test]
fn what_is_no_dataset_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let at = folder.path();
    std::fs::create_dir(at.join("empty")).unwrap();
    std::fs::write(at.join("file"), "").unwrap();
    captures(at, 1);
    for (line, why) in [
        ("analyze --each empty --ops data", "no capture found"),
        ("analyze --each captures", "--ops"),
        ("analyze --each captures --ops file", "it is a folder, and this is a file"),
        ("analyze --each - --ops data", "standard input has no name"),
        ("analyze --each captures --ops data --slowest 3", "cannot be used with"),
        ("compare empty empty", "empty"),
    ] {
        let output = run(at, line);
        let error = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && error.contains(why), "{line}: {error}");
    }
    // A sketch that is damaged is named.
    json(at, "analyze --each captures --ops data --json");
    let sketch = content(&at.join("data/sketches")).into_keys().next().unwrap();
    std::fs::write(&sketch, "{\"format\": 1, \"source\": 3}").unwrap();
    let output = run(at, "report data");
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(2) && error.contains("host-0.pcapng"), "{error}");
}
