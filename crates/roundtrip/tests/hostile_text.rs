//! Text from files that acts on a terminal, and symbolic links where files are written.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::Output;

use common::roundtrip;

fn run(arguments: &[&str]) -> Output {
    roundtrip().args(arguments).output().unwrap()
}

/// The output of a program: it contains no control characters except line ends and tabs, and no line forged by a file.
fn shown(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr].concat();
    let text = String::from_utf8(text).unwrap();
    assert!(!text.contains(|c: char| c.is_control() && c != '\n' && c != '\t'), "{text:?}");
    assert!(!text.contains('\u{202e}'), "{text:?}");
    assert!(!text.lines().any(|line| line.starts_with("FAKE")), "{text}");
    text
}

fn path(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// A capture whose one interface has this name: packets of a small simulation.
fn capture_of_interface(name: &[u8], file: &Path) {
    let block = |kind: u32, body: &[u8]| {
        let total = (body.len() as u32 + 12).to_le_bytes();
        [&kind.to_le_bytes()[..], &total, body, &total].concat()
    };
    let section = block(0x0a0d_0d0a, b"\x4d\x3c\x2b\x1a\x01\0\0\0\xff\xff\xff\xff\xff\xff\xff\xff");
    let padding = vec![0; name.len().wrapping_neg() & 3];
    let option = [&2_u16.to_le_bytes()[..], &(name.len() as u16).to_le_bytes(), name, &padding].concat();
    let interface = block(1, &[&b"\x01\0\0\0\0\0\x04\0"[..], &option, &[0; 4]].concat());
    let packet = block(6, &[&[0; 12][..], &4_u32.to_le_bytes(), &4_u32.to_le_bytes(), b"none"].concat());
    std::fs::write(file, [section, interface, packet].concat()).unwrap();
}

const HOSTILE: &str = "eth0\x1b]0;owned\x07\x1b[31mRED\nFAKE LINE\u{9b}2J\u{202e}\r";

#[test]
fn interface_names_of_a_capture_do_not_act_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    capture_of_interface(HOSTILE.as_bytes(), &file);
    for format in [&[][..], &["--json"]] {
        let text = shown(&run(&[&["analyze", path(&file)], format].concat()));
        assert!(text.contains("eth0\\u001b]0;owned\\u0007"), "{text}");
    }
}

#[test]
fn file_names_do_not_act_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let name = format!("{HOSTILE}.pcapng");
    let file = folder.path().join(&name);
    let missing = shown(&run(&["analyze", path(&file)]));
    assert!(missing.contains("\\u001b"), "{missing}");
    capture_of_interface(b"eth0", &file);
    assert!(shown(&run(&["analyze", path(&file)])).contains("\\u000aFAKE"));
}

#[test]
fn stage_names_and_quoted_lines_of_a_model_do_not_act_on_a_terminal() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("model.toml");
    let stage = "[[stage]]\nname = \"S\\u001b]0;x\\u0007\\nFAKE\"\nservice = \"1us\"\nlatency = \"1us\"\nresource = \"S\\u001b[2J\"\n";
    std::fs::write(&file, stage).unwrap();
    let output = run(&["model", path(&file)]);
    assert!(output.status.success(), "{}", shown(&output));
    assert!(shown(&output).contains("S\\u001b]0;x\\u0007\\u000aFAKE"));
    shown(&run(&["model", path(&file), "--json"]));
    // An error quotes a key with its content.
    std::fs::write(&file, "\"\\u001b[31m\\nFAKE\" = 5\n").unwrap();
    let output = run(&["study", "--plan", path(&file), "-o", path(&folder.path().join("out"))]);
    let text = shown(&output);
    assert!(output.status.code() == Some(2) && text.contains("\\u001b[31m"), "{text}");
}

#[test]
fn files_that_are_symbolic_links_are_not_written_through() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, link) = (folder.path().join("victim"), |name: &str| folder.path().join(name));
    std::fs::write(&victim, "keep").unwrap();
    let capture = folder.path().join("a.pcapng");
    capture_of_interface(b"eth0", &capture);
    for (name, arguments) in [
        ("ops.csv", &["analyze", path(&capture), "--ops"][..]),
        ("notes.pcapng", &["analyze", path(&capture), "--annotate"]),
        ("kept.pcapng", &["capture", "--port", "9", "--duration", "10ms", "-o"]),
        ("s.pcapng", &["simulate", "--preset", "seed-512", "--operations", "10", "--pcapng"]),
        ("s.csv", &["simulate", "--preset", "seed-512", "--operations", "10", "--ops"]),
        ("ladder.svg", &["simulate", "--preset", "seed-512", "--operations", "10", "--ladder"]),
        ("chart.svg", &["model", "--preset", "seed-512", "--chart"]),
    ] {
        let link = link(name);
        symlink(&victim, &link).unwrap();
        let output = run(&[arguments, &[path(&link)]].concat());
        let text = shown(&output);
        assert_eq!(output.status.code(), Some(2), "{name}: {text}");
        assert!(text.contains("symbolic link"), "{name}: {text}");
    }
    let pictures = folder.path().join("pictures");
    std::fs::create_dir(&pictures).unwrap();
    for name in ["512-nodelay-qd1.svg", "512-nodelay-qd1.png"] {
        symlink(&victim, pictures.join(name)).unwrap();
        let output =
            run(&["simulate", "--preset", "seed-512", "--operations", "10", "--figures", path(&pictures)]);
        let text = shown(&output);
        assert!(output.status.code() == Some(2) && text.contains("symbolic link"), "{name}: {text}");
        std::fs::remove_file(pictures.join(name)).unwrap();
    }
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "keep");
}

#[test]
fn a_study_replaces_links_in_its_folder() {
    let folder = tempfile::tempdir().unwrap();
    let (victim, out) = (folder.path().join("victim"), folder.path().join("out"));
    std::fs::write(&victim, "keep").unwrap();
    std::fs::create_dir(&out).unwrap();
    std::fs::create_dir(out.join("figures")).unwrap();
    let files = [
        "plan.json",
        "runs.jsonl",
        "report.html",
        "study.json",
        "figures/512-nodelay-qd1.svg",
        "figures/512-nodelay-qd1.png",
    ];
    for name in files {
        symlink(&victim, out.join(name)).unwrap();
    }
    let output = run(&[
        "study",
        "--quick",
        "--loopback",
        "--bs",
        "512",
        "--iodepth",
        "1,8",
        "--send",
        "nodelay",
        "--runtime",
        "100ms",
        "-o",
        path(&out),
    ]);
    // The breakdown of such short runs may not close, which is exit code 1.
    assert_ne!(output.status.code(), Some(2), "{}", shown(&output));
    assert_eq!(std::fs::read_to_string(&victim).unwrap(), "keep");
    for name in files {
        assert!(out.join(name).symlink_metadata().unwrap().is_file(), "{name}: {}", shown(&output));
    }
    // A path that is not a folder is refused before anything is measured.
    let elsewhere = folder.path().join("elsewhere");
    std::fs::create_dir(&elsewhere).unwrap();
    symlink(&elsewhere, out.join("traces")).unwrap();
    let output = run(&[
        "study",
        "--plan",
        "post",
        "--loopback",
        "--runtime",
        "50ms",
        "--repeats",
        "1",
        "--force",
        "-o",
        path(&out),
    ]);
    assert!(!output.status.success() && shown(&output).contains("not a folder"), "{}", shown(&output));
    assert_eq!(std::fs::read_dir(&elsewhere).unwrap().count(), 0);
}
