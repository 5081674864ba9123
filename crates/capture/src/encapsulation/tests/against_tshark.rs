//! The same frames in tshark.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use super::frames::{Case, all};
use super::*;

/// A capture of frames of one link layer, from a host of their byte order.
fn capture(link: u32, cases: &[&Case]) -> Vec<u8> {
    let is_big_endian = cases.iter().any(|case| BIG_ENDIAN.contains(&case.name));
    let word = |word: u32| if is_big_endian { word.to_be_bytes() } else { word.to_le_bytes() };
    // 2 and 4 are the version, each of two bytes.
    let version = if is_big_endian { 0x0002_0004 } else { 0x0004_0002 };
    let mut file: Vec<u8> = [0xa1b2_c3d4, version, 0, 0, 262_144, link].map(word).concat();
    for (number, case) in cases.iter().enumerate() {
        let length = case.bytes.len() as u32;
        file.extend([1000, number as u32, length, length].map(word).concat());
        file.extend_from_slice(&case.bytes);
    }
    file
}

/// Frames whose headers are in the byte order of the host that captured, which the file's has to be, too.
const BIG_ENDIAN: &[&str] = &["NFLOG of a big-endian host"];

/// Frames that tshark does not read without being told, or reads as something else.
const NOT_IN_TSHARK: &[&str] = &[
    // OpenBSD's newer numbers of families, and a header of another length.
    "PFLOG",
    "ENC",
    // A link type that tshark does not have.
    "PPP of pppd",
];

#[test]
fn tshark_finds_the_same_segments() {
    let is_there =
        Command::new("tshark").arg("-v").stdout(Stdio::null()).status().is_ok_and(|status| status.success());
    if !testing::require("tshark", is_there) {
        return;
    }
    let cases = all();
    let mut different = Vec::new();
    let mut files: BTreeMap<(u32, bool), Vec<&Case>> = BTreeMap::new();
    for case in cases.iter().filter(|case| !NOT_IN_TSHARK.contains(&case.name)) {
        files.entry((case.link, BIG_ENDIAN.contains(&case.name))).or_default().push(case);
    }
    for ((link, _), frames) in files {
        let found = tshark(&capture(link, &frames));
        assert_eq!(found.len(), frames.len(), "frames of link type {link}");
        for (case, found) in frames.iter().zip(found) {
            let segment = read(link, &case.bytes).unwrap();
            let ours = format!(
                "{}\t{}\t{}\t{}",
                segment.source.port, segment.destination.port, segment.seq, segment.payload_bytes
            );
            if found != ours {
                different.push(format!("{}, link type {link}: {found:?}, not {ours:?}", case.name));
            }
        }
    }
    assert!(different.is_empty(), "tshark finds something else:\n{}", different.join("\n"));
}

/// Ports, sequence number and payload bytes of the innermost segment of each frame.
fn tshark(file: &[u8]) -> Vec<String> {
    let mut child = Command::new("tshark")
        // Labels do not state what is behind them.
        .args(["-d", "mpls.label==700,pwethcw", "-d", "mpls.label==701,pwethnocw"])
        .args(["-r", "-", "-T", "fields", "-E", "occurrence=l"])
        .args(["-e", "tcp.srcport", "-e", "tcp.dstport", "-e", "tcp.seq_raw", "-e", "tcp.len"])
        .env("HOME", Path::new("/nonexistent"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("tshark");
    child.stdin.take().expect("a pipe").write_all(file).expect("written");
    let output = child.wait_with_output().expect("its output");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text").lines().map(str::to_owned).collect()
}
