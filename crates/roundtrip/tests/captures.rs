//! Input and output of an analysis: agreement with tshark, both sides of a wire, annotated files, tgt as
//! another target, and invalid input.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::{HashMap, HashSet};
use std::io::Write;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use common::live::{analyze, captured, kinds, may_capture};
use common::tgt::Tgt;
use common::{IQN, Target, bench, roundtrip, succeed, wait};
use nix::sched::{CpuSet, sched_getaffinity, sched_setaffinity};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use testbed::{Cable, CableConfig};

/// The kernel's buffer for dumpcap: larger than all that these tests send (150 MB), because a busy machine may not read it in time.
const BUFFER_MIB: &str = "512";

/// dumpcap on loopback: each packet once, as in users' captures.
struct Dumpcap(Child);

impl Dumpcap {
    fn start(port: u16, snap: u32, file: &Path) -> Self {
        let (filter, snap) = (format!("tcp port {port}"), snap.to_string());
        let child = Command::new("dumpcap")
            .args([
                "-q",
                "-i",
                "lo",
                "-B",
                BUFFER_MIB,
                "-f",
                &filter,
                "-s",
                &snap,
                "-w",
                file.to_str().unwrap(),
            ])
            .stderr(Stdio::null())
            .spawn()
            .expect("dumpcap; `make setup` installs it with tshark");
        let began = Instant::now();
        while !file.exists() && began.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        std::thread::sleep(Duration::from_millis(300));
        Self(child)
    }

    fn stop(mut self) {
        std::thread::sleep(Duration::from_millis(300));
        kill(Pid::from_raw(self.0.id() as i32), Signal::SIGINT).unwrap();
        wait(&mut self.0, Duration::from_secs(10));
    }
}

fn port_of(target: &Target) -> u16 {
    target.address.rsplit(':').next().unwrap().parse().unwrap()
}

/// A frame in tshark: the tags of its PDUs, and the response times of some or all of
/// them.
struct TsharkFrame {
    frame: u64,
    /// When it was captured, by the epoch.
    at_ns: u64,
    tags: Vec<u32>,
    times: Vec<f64>,
}

/// The frames with responses, as tshark sees them.
fn tshark_frames(file: &Path, port: u16) -> Vec<TsharkFrame> {
    let decode = format!("tcp.port=={port},iscsi");
    let fields = ["frame.number", "frame.time_epoch", "iscsi.initiatortasktag", "iscsi.time"];
    // A response that TCP sent again is one operation, not two.
    let wanted = "iscsi.time && !tcp.analysis.retransmission && !tcp.analysis.fast_retransmission && \
                  !tcp.analysis.spurious_retransmission";
    let output = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-d", &decode, "-Y", wanted, "-T", "fields"])
        .args(fields.iter().flat_map(|field| ["-e", field]))
        .output()
        .expect("tshark; `make setup` installs it");
    assert!(output.status.success());
    let parse = |line: &str| {
        let [frame, at, tags, times] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
        let tag = |t: &str| u32::from_str_radix(t.trim_start_matches("0x"), 16).unwrap();
        TsharkFrame {
            frame: frame.parse().unwrap(),
            at_ns: at.replace('.', "").parse().unwrap(),
            tags: tags.split(',').map(tag).collect(),
            times: times.split(',').map(|t| t.parse().unwrap()).collect(),
        }
    };
    String::from_utf8(output.stdout).unwrap().lines().map(parse).collect()
}

/// Keeps this thread, and what it starts from now on, on one processor: what a connection sends through loopback passes the capture in
/// its order there. From two processors the order in the file is not that on the wire, and tshark ignores operations then.
fn stay_on_one_processor() {
    let allowed = sched_getaffinity(Pid::from_raw(0)).unwrap();
    let first = (0..CpuSet::count()).find(|&at| allowed.is_set(at).unwrap()).unwrap();
    let mut one = CpuSet::new();
    one.set(first).unwrap();
    sched_setaffinity(Pid::from_raw(0), &one).unwrap();
}

/// Frames after a doubted one in which tshark may still miss operations, because it reassembles them together.
const DOUBTED_FRAMES: u64 = 64;

/// Frames that tshark marks as retransmitted, out of order or missing: tshark ignores the operations of such frames.
fn tshark_doubts(file: &Path) -> Vec<u64> {
    let doubts = "tcp.analysis.retransmission || tcp.analysis.spurious_retransmission || tcp.analysis.out_of_order || \
                  tcp.analysis.lost_segment || tcp.analysis.ack_lost_segment";
    let output = Command::new("tshark")
        .args(["-r", file.to_str().unwrap(), "-Y", doubts, "-T", "fields", "-e", "frame.number"])
        .output()
        .unwrap();
    assert!(output.status.success());
    String::from_utf8(output.stdout).unwrap().lines().map(|line| line.parse().unwrap()).collect()
}

/// When an operation's request began and its response ended, by the epoch.
#[derive(Clone, Copy)]
struct Span {
    begin_ns: u64,
    end_ns: u64,
}

impl Span {
    /// Whether it is the operation to which tshark gives the time `seconds`, with a response in a frame of `frame_ns`. Where the file has
    /// the frame before another one of the stream that precedes it, the response has ended with that one, and tshark's time is too short.
    fn agrees(self, seconds: f64, frame_ns: u64, is_doubted: bool) -> bool {
        let begin_ns = frame_ns - (seconds * 1e9).round() as u64;
        self.begin_ns.abs_diff(begin_ns) < 1_000
            && (self.end_ns == frame_ns || is_doubted && self.end_ns > frame_ns)
    }
}

/// Operations by Roundtrip, from their records, and the number of retransmitted segments.
fn our_operations(file: &Path, folder: &Path) -> (HashMap<(u64, u32), Span>, u64) {
    let ops = folder.join("ops.csv");
    let result = analyze(&[file.to_str().unwrap(), "--no-modes", "--ops", ops.to_str().unwrap()]);
    let repeated = result["streams"]["retransmitted"].as_u64().unwrap();
    let text = std::fs::read_to_string(ops).unwrap();
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
    let column = |name: &str| heading.iter().position(|h| *h == name).unwrap();
    let columns = ["response_frame", "tag", "c1_ns", "c2_ns", "s1_ns", "s2_ns"].map(column);
    let operations = lines
        .map(|line| {
            let fields: Vec<&str> = line.split(',').collect();
            let [frame, tag, c1, c2, s1, s2] = columns.map(|c| fields[c].parse::<u64>().unwrap());
            // On loopback the handshake may indicate either side.
            ((frame, tag as u32), Span { begin_ns: c1 + s1, end_ns: c2 + s2 })
        })
        .collect();
    (operations, repeated)
}

/// Every operation that tshark finds, with its response time to the microsecond, whole packets or the first 128
/// bytes of each.
#[test]
fn every_operation_agrees_with_tshark() {
    let Some(_alone) = may_capture() else { return };
    stay_on_one_processor();
    let folder = tempfile::tempdir().unwrap();
    let target = Target::start(&["--lun", "0=ram:64M"]);
    for snap in [0, 128] {
        let file = folder.path().join(format!("snap{snap}.pcapng"));
        let capture = Dumpcap::start(port_of(&target), snap, &file);
        let limits = ["--runtime", "60ms", "--ramp", "10ms"];
        let arguments = ["--rw", "randread", "--bs", "512,4k", "--iodepth", "1,16,128"];
        let measured = bench(&target.url(0), &[&arguments[..], &limits].concat());
        capture.stop();
        let theirs = tshark_frames(&file, port_of(&target));
        let (ours, repeated) = our_operations(&file, folder.path());
        let doubts = tshark_doubts(&file);
        let (mut found, mut unmatched) = (0, 0);
        for TsharkFrame { frame, at_ns, tags, times } in &theirs {
            let is_doubted = doubts.contains(frame);
            found += times.len();
            unmatched += tags.len() - times.len();
            let mut of_ours: Vec<Span> =
                tags.iter().filter_map(|&tag| ours.get(&(*frame, tag)).copied()).collect();
            // tshark occasionally loses a request, and does not report which response then has no time.
            for (place, time) in times.iter().enumerate() {
                let same = |our: &Span| our.agrees(*time, *at_ns, is_doubted);
                let mine = if tags.len() == times.len() {
                    ours.get(&(*frame, tags[place])).copied().filter(same)
                } else {
                    of_ours.iter().position(same).map(|at| of_ours.swap_remove(at))
                };
                assert!(mine.is_some(), "frame {frame}: {time} is not among ours, tags {tags:x?}");
            }
        }
        // Those of the measured time, which a ramp precedes. At depth 1 each response has a frame of its own; of several in a frame,
        // the first 128 bytes have one.
        let runs = measured["runs"].as_array().unwrap();
        let counted = runs.iter().filter(|run| snap == 0 || run["queue_depth"] == 1);
        let counted: u64 = counted.map(|run| run["operations"].as_u64().unwrap()).sum();
        assert!(counted > 0 && found as u64 >= counted * 9 / 10, "{found} of {counted}");
        if snap == 0 {
            assert!(ours.len() >= found, "{} of {found}", ours.len());
            // The two agree on all operations except those in frames that tshark doubts, or soon after them, which it
            // ignores.
            if unmatched == 0 && repeated == 0 && ours.len() != found {
                let theirs: HashSet<(u64, u32)> =
                    theirs.iter().flat_map(|f| f.tags.iter().map(|&tag| (f.frame, tag))).collect();
                for (frame, tag) in ours.keys().filter(|operation| !theirs.contains(operation)) {
                    let is_near = doubts.iter().any(|doubt| (*doubt..doubt + DOUBTED_FRAMES).contains(frame));
                    assert!(is_near, "tshark has not frame {frame}, tag {tag:x}, and doubts {doubts:?}");
                }
            }
        }
    }
}

fn seconds(value: &Value) -> f64 {
    value.as_f64().unwrap()
}

/// The part of a stanza, its mean in microseconds.
fn part(stanza: &Value, name: &str) -> Option<f64> {
    let parts = stanza["parts"].as_array().unwrap();
    parts.iter().find(|p| p["part"] == name).map(|p| seconds(&p["mean_us"]))
}

/// A wire captured at both ends, in two files: joined by sequence numbers, independent of the clocks.
#[test]
fn both_sides_of_a_wire_are_joined_without_their_clocks() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let config = CableConfig::new(9000);
    let cable = Cable::up(&config).unwrap();
    let (client_file, server_file) = (folder.path().join("c.pcapng"), folder.path().join("s.pcapng"));
    let url = std::sync::Mutex::new(None);
    // The target runs inside the server's namespace, in a process of its own.
    let portal = format!("{}:3260", cable.server.address);
    let mut target = cable
        .server
        .namespace
        .run(|| {
            let child = roundtrip()
                .args(["target", "--portal", &portal, "--iqn", IQN, "--lun", "0=zero:1G"])
                .stdout(Stdio::piped())
                .stderr(Stdio::null())
                .spawn()
                .unwrap();
            Ok(child)
        })
        .unwrap();
    let mut ready = [0; 5];
    std::io::Read::read_exact(target.stdout.as_mut().unwrap(), &mut ready).unwrap();
    *url.lock().unwrap() = Some(format!("iscsi://{portal}/{IQN}/0"));
    let (client, server) = (cable.client.clone(), cable.server.clone());
    captured(
        &client.interface,
        3260,
        &client_file,
        || client.namespace.enter(),
        || {
            captured(
                &server.interface,
                3260,
                &server_file,
                || server.namespace.enter(),
                || {
                    let url = url.lock().unwrap().clone().unwrap();
                    cable
                        .client
                        .namespace
                        .run(|| {
                            bench(
                                &url,
                                &["--bs", "4k", "--iodepth", "1,8", "--runtime", "100ms", "--ramp", "10ms"],
                            );
                            Ok(())
                        })
                        .unwrap();
                },
            );
        },
    );
    target.kill().unwrap();
    target.wait().unwrap();
    let (c, s) = (client_file.to_str().unwrap(), server_file.to_str().unwrap());
    for arguments in [&["--client", c, "--server", s][..], &["--server", s, "--client", c], &[s, c]] {
        let result = analyze(arguments);
        let operations = result["operations"].as_u64().unwrap();
        assert!(operations > 1000);
        assert_eq!(result["operations_both_sides"].as_u64(), Some(operations), "{arguments:?}");
        assert_eq!(result["operations_one_side"], 0);
        // One clock stamped both: the measured offset must be zero.
        let clocks = &result["clocks"];
        assert!(seconds(&clocks["offset_us"]).abs() <= seconds(&clocks["uncertainty_us"]) + 5.0, "{clocks}");
        for stanza in
            result["stanzas"].as_array().unwrap().iter().filter(|s| s["operations"].as_u64() > Some(300))
        {
            let [whole, server, network] =
                ["round_trip", "server", "network"].map(|name| part(stanza, name).unwrap());
            assert!((whole - server - network).abs() < 0.01 && network > 0.0, "{stanza}");
            assert!(part(stanza, "request_path").is_none(), "the clocks of two files are not subtracted");
            assert_eq!(stanza["closes"], true, "{stanza}");
        }
    }
    // One side alone gives the same operations.
    let alone = analyze(&[c]);
    assert_eq!(alone["operations_both_sides"], 0);
    assert!(part(&alone["stanzas"][0], "server").is_none());
}

/// Both taps of loopback in one file share a clock, so both paths can be separated.
#[test]
fn taps_with_one_clock_separate_both_paths() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("lo.pcapng");
    let target = Target::start(&["--lun", "0=zero:1G"]);
    captured(
        "lo",
        port_of(&target),
        &file,
        || Ok(()),
        || {
            // Long enough that what is in flight at its ends does not count, also where a busy machine stops for some milliseconds.
            bench(&target.url(0), &["--bs", "512", "--iodepth", "4", "--runtime", "1s", "--ramp", "10ms"]);
        },
    );
    let result = analyze(&[file.to_str().unwrap()]);
    assert_eq!(result["operations_both_sides"], result["operations"]);
    let stanza = &result["stanzas"][0];
    let names = ["round_trip", "request_path", "server", "response_path"];
    let [whole, request, server, response] = names.map(|name| part(stanza, name).unwrap());
    assert!((whole - request - server - response).abs() < 0.01, "{stanza}");
    assert!(request >= 0.0 && response >= 0.0);
    assert_eq!(stanza["closes"], true, "{stanza}");
    assert_eq!(stanza["queue_depth"][2], 4);
}

/// Wireshark shows each verdict on the frames that prove it, and each capture point as an interface.
#[test]
fn the_annotated_capture_shows_verdicts_in_wireshark() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (file, annotated) = (folder.path().join("a.pcapng"), folder.path().join("b.pcapng"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 64];
        while std::io::Read::read(&mut stream, &mut request).unwrap_or(0) > 0 {
            for piece in ["HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n", "ok"] {
                stream.write_all(piece.as_bytes()).unwrap();
            }
        }
    });
    captured(
        "lo",
        port,
        &file,
        || Ok(()),
        || {
            let mut client = std::net::TcpStream::connect(("127.0.0.1", port)).unwrap();
            for _ in 0..8 {
                client.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
                std::io::Read::read_exact(&mut client, &mut [0; 40]).unwrap();
            }
        },
    );
    let (file, annotated) = (file.to_str().unwrap(), annotated.to_str().unwrap());
    let result = analyze(&[file, "--annotate", annotated]);
    assert_eq!(kinds(&result), ["header_body_apart"]);
    let shown = succeed(
        "tshark",
        &[
            "-r",
            annotated,
            "-Y",
            "frame.comment contains \"header and body\"",
            "-T",
            "fields",
            "-e",
            "frame.number",
        ],
    );
    let shown: Vec<u64> = shown.lines().filter_map(|l| l.trim().parse().ok()).collect();
    let named: Vec<u64> = result["verdicts"][0]["frames"]["numbers"]
        .as_array()
        .unwrap()
        .iter()
        .map(|n| n.as_u64().unwrap())
        .collect();
    assert_eq!(shown, named);
    let all = succeed("tshark", &["-r", annotated, "-T", "fields", "-e", "frame.interface_name"]);
    assert!(all.contains("lo at the client") && all.contains("lo at the server"), "{all}");
    // The annotated copy yields the same result.
    assert_eq!(kinds(&analyze(&[annotated])), ["header_body_apart"]);
    // Wireshark's columns and colours for it: read without a complaint, with the comment in its column.
    let output = std::process::Command::new("tshark")
        .env("WIRESHARK_CONFIG_DIR", format!("{annotated}.wireshark"))
        .args(["-C", "roundtrip", "-r", annotated, "--color", "-Y", &format!("frame.number == {}", named[0])])
        .output()
        .unwrap();
    let (row, said) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && row.contains("header and body sent apart"), "{row}{said}");
    let complaints = said.lines().filter(|line| !line.starts_with("Running as user")).count();
    assert_eq!(complaints, 0, "{said}");
    // Each rule of colour is a filter that there is.
    let rules =
        std::fs::read_to_string(format!("{annotated}.wireshark/profiles/roundtrip/colorfilters")).unwrap();
    assert_eq!(rules.lines().count(), 6);
    for rule in rules.lines() {
        let filter = rule.split('@').nth(2).unwrap();
        succeed("tshark", &["-r", annotated, "-c", "1", "-Y", filter]);
    }
}

/// Another target with other clients: writes with their data phases, no verdict.
#[test]
fn tgt_with_libiscsi_and_qemu_is_followed_and_clean() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let (image, source, file) =
        (folder.path().join("disk"), folder.path().join("source"), folder.path().join("tgt.pcapng"));
    std::fs::File::create(&image).unwrap().set_len(64 << 20).unwrap();
    common::random_file(&source, 2 << 20);
    let tgt = Tgt::start(&image);
    let port = tgt.port;
    let url = format!("iscsi://127.0.0.1:{port}/{IQN}/1");
    let capture = Dumpcap::start(port, 0, &file);
    succeed("iscsi-inq", &[&url]);
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", source.to_str().unwrap(), &url]);
    succeed("qemu-io", &["-f", "raw", "-c", "read 0 1M", "-c", "write -P 7 1M 256k", &url]);
    bench(&url, &["--rw", "randrw", "--bs", "4k", "--iodepth", "8", "--runtime", "100ms", "--ramp", "10ms"]);
    capture.stop();
    drop(tgt);
    let result = analyze(&[file.to_str().unwrap()]);
    // A server that waits for a busy machine's processors and disk is slow, and called so.
    let mut others = kinds(&result);
    others.retain(|kind| !matches!(kind.as_str(), "slow_target" | "rare_stalls"));
    assert_eq!(others, [""; 0], "{:#}", result["verdicts"]);
    let streams = &result["streams"];
    assert_eq!((&streams["unmatched"], &streams["boundaries_lost"]), (&0.into(), &0.into()), "{streams}");
    let theirs: usize = tshark_frames(&file, port).iter().map(|frame| frame.times.len()).sum();
    assert!(theirs > 500, "{theirs}");
    let has_phases = |s: &Value| s["kind"] == "write" && part(s, "data_phase").is_some();
    let stanzas = result["stanzas"].as_array().unwrap();
    assert!(stanzas.iter().any(has_phases), "{:#}", result["stanzas"]);
}

/// Packets dropped on purpose: the loss gets a verdict.
#[test]
fn a_lossy_path_is_named() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("loss.pcapng");
    let config = CableConfig::new(1500);
    let cable = Cable::up(&config).unwrap();
    let (client, server) = (cable.client.clone(), cable.server.clone());
    let listener = server.namespace.run(|| Ok(TcpListener::bind((server.address, 0)).unwrap())).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = vec![0; 100_000];
        while std::io::Read::read_exact(&mut stream, &mut request).is_ok() {
            stream.write_all(b"done").unwrap();
        }
    });
    // One packet in a hundred does not arrive.
    server
        .namespace
        .run(|| {
            let rules = "add table ip loss; add chain ip loss in { type filter hook input priority 0; }; \
                         add rule ip loss in tcp dport 1-65535 numgen random mod 100 == 0 drop";
            succeed("nft", &[rules]);
            Ok(())
        })
        .unwrap();
    captured(
        &client.interface,
        port,
        &file,
        || client.namespace.enter(),
        || {
            let connect = || Ok(std::net::TcpStream::connect((cable.server.address, port)).unwrap());
            let mut stream = cable.client.namespace.run(connect).unwrap();
            for _ in 0..40 {
                stream.write_all(&vec![b'x'; 100_000]).unwrap();
                std::io::Read::read_exact(&mut stream, &mut [0; 4]).unwrap();
            }
        },
    );
    let result = analyze(&[file.to_str().unwrap()]);
    assert_eq!(kinds(&result), ["retransmission"], "{:#}", result["verdicts"]);
}

/// A server of HTTP that answers each request on any of its connections with `ok`.
fn answer_http(listener: TcpListener) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            std::thread::spawn(move || {
                let mut request = Vec::new();
                let mut piece = [0; 4096];
                while let Ok(count @ 1..) = std::io::Read::read(&mut stream, &mut piece) {
                    request.extend_from_slice(&piece[..count]);
                    if request.ends_with(b"\r\n\r\n") {
                        let slow = request.starts_with(b"GET /slow");
                        std::thread::sleep(Duration::from_millis(if slow { 20 } else { 0 }));
                        stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap();
                        request.clear();
                    }
                }
            });
        }
    });
}

/// Paths are folded, counted to the last request, and each has its own times. Beyond the limit they are counted together.
#[test]
fn services_are_divided_by_path() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("paths.pcapng");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    answer_http(listener);
    // A name of letters only, which is not folded.
    let name =
        |n: u32| n.to_string().bytes().map(|digit| char::from(digit - b'0' + b'a')).collect::<String>();
    let paths = (0..20).map(|n| format!("/slow/{n}?secret={n}"));
    let paths: Vec<String> = paths.chain((0..400).map(|n| format!("/quick/{}", name(n)))).collect();
    let ask = || {
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        for path in &paths {
            stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: a\r\n\r\n").as_bytes()).unwrap();
            std::io::Read::read_exact(&mut stream, &mut [0; 40]).unwrap();
        }
    };
    captured("lo", address.port(), &file, || Ok(()), ask);
    let file = file.to_str().unwrap();
    let result = analyze(&[file]);
    let rows = result["services"][0]["keys"].as_array().unwrap();
    let count = |name: &str| {
        let own = rows.iter().find(|row| row["name"] == name);
        own.map_or(0, |row| row["operations"].as_u64().unwrap())
    };
    assert_eq!((count("/slow/:n"), count("/quick/b"), count("others")), (20, 1, 420 - 256 - 19), "{rows:#?}");
    assert_eq!(rows.iter().map(|row| row["operations"].as_u64().unwrap()).sum::<u64>(), 420);
    assert_eq!(rows[0]["name"], "/slow/:n", "the one with the most time comes first");
    assert!(seconds(&rows[0]["p50_us"]) >= 20_000.0, "{}", rows[0]);
    let output = roundtrip().args(["analyze", "--by", "path", file]).output().unwrap();
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("/slow/:n") && !text.contains("secret"), "{text}");
}

/// Rotated files are no capture points of the same traffic: the report says what to do with them.
#[test]
fn files_that_follow_one_another_are_to_be_joined() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let [file, first, second] = ["all", "first", "second"].map(|name| folder.path().join(name));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    answer_http(listener);
    let capture = Dumpcap::start(address.port(), 0, &file);
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    for _ in 0..100 {
        stream.write_all(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
        std::io::Read::read_exact(&mut stream, &mut [0; 40]).unwrap();
    }
    capture.stop();
    let paths = [&file, &first, &second].map(|path| path.to_str().unwrap());
    succeed("editcap", &["-r", paths[0], paths[1], "1-200"]);
    succeed("editcap", &["-r", paths[0], paths[2], "201-100000"]);
    let said = |files: &[&str]| analyze(files)["notes"].to_string().contains("mergecap");
    assert!(said(&paths[1..]));
    assert!(!said(&paths[..1]));
}

#[test]
fn reads_standard_input_and_compressed_files_and_rejects_bad_ones() {
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a.pcapng");
    let target = Target::start(&["--lun", "0=zero:1G"]);
    captured(
        "lo",
        port_of(&target),
        &file,
        || Ok(()),
        || {
            bench(&target.url(0), &["--bs", "512", "--iodepth", "4", "--runtime", "50ms", "--ramp", "10ms"]);
        },
    );
    let whole = analyze(&[file.to_str().unwrap()])["operations"].clone();
    let bytes = std::fs::read(&file).unwrap();
    let piped = |bytes: &[u8]| {
        let mut child = roundtrip()
            .args(["analyze", "--json", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut input = child.stdin.take().unwrap();
        let bytes = bytes.to_vec();
        let writer = std::thread::spawn(move || drop(input.write_all(&bytes)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        output
    };
    let json = |bytes: &[u8]| -> Value { serde_json::from_slice(&piped(bytes).stdout).unwrap() };
    assert_eq!(json(&bytes)["operations"], whole);
    succeed("gzip", &["-k", file.to_str().unwrap()]);
    assert_eq!(analyze(&[&format!("{}.gz", file.display())])["operations"], whole);
    // Truncated: the frames before the end are used, and a note states the position.
    let cut = json(&bytes[..bytes.len() / 2]);
    let operations = cut["operations"].as_u64().unwrap();
    assert!(operations > 10 && operations < whole.as_u64().unwrap());
    assert!(cut["notes"].to_string().contains("ends in the middle of"), "{}", cut["notes"]);
    for (bytes, words) in
        [(&b"%PDF-1.7 is not a capture at all"[..], "is not a capture"), (b"", "is not a capture")]
    {
        let output = piped(bytes);
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(text.contains(words), "{text}");
    }
    let output = roundtrip().args(["analyze", "/nowhere.pcap"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&output.stderr).contains("/nowhere.pcap"));
}

/// Live analysis of an interface, without a file.
#[test]
fn an_interface_is_analysed_while_it_is_captured() {
    let Some(_alone) = may_capture() else { return };
    let target = Target::start(&["--lun", "0=zero:1G"]);
    let port = port_of(&target).to_string();
    let child = roundtrip()
        .args(["analyze", "--interface", "lo", "--port", &port, "--duration", "1500ms", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    std::thread::sleep(Duration::from_millis(500));
    bench(&target.url(0), &["--bs", "512", "--iodepth", "4", "--runtime", "50ms", "--ramp", "10ms"]);
    let output = child.wait_with_output().unwrap();
    let result: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|e| {
        panic!("{e}: {}", String::from_utf8_lossy(&output.stderr));
    });
    assert!(result["operations"].as_u64().unwrap() > 100);
    assert_eq!(result["operations_both_sides"], result["operations"]);
    assert_eq!(result["inputs"][0]["name"], "lo");
}

/// The live view of a service: all operations are counted, and one of an otherwise idle connection is shown at once.
#[test]
fn a_service_is_watched_by_its_packets() {
    let Some(_alone) = may_capture() else { return };
    let target = Target::start(&["--lun", "0=zero:1G"]);
    let port = port_of(&target).to_string();
    let watch_at = |port: &[&str], work: &dyn Fn()| -> Value {
        let mut top = roundtrip();
        top.args(["top", "--interface", "lo", "--once", "--interval", "1500ms", "--json"]).args(port);
        let child = top.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        std::thread::sleep(Duration::from_millis(500));
        work();
        let output = child.wait_with_output().unwrap();
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|e| panic!("{e}: {}", String::from_utf8_lossy(&output.stderr)))
    };
    let watch = |work: &dyn Fn()| watch_at(&["--port", &port], work);
    let operations = |rates: &Value, name: &str| {
        let rows = rates["services"].as_array().unwrap().iter();
        let sum: f64 = rows.filter(|row| row["name"] == name).map(|row| row["per_s"].as_f64().unwrap()).sum();
        (sum * rates["seconds"].as_f64().unwrap()).round()
    };
    let done = std::cell::Cell::new(0);
    let rates = watch(&|| {
        let words =
            ["--bs", "512", "--iodepth", "4", "--runtime", "50ms", "--ramp", "0s", "--rw", "randread"];
        let run = bench(&target.url(0), &words);
        done.set(run["runs"][0]["operations"].as_u64().unwrap());
    });
    let (seen, done) = (operations(&rates, "read(10)"), done.get() as f64);
    // Those that were in flight at the end are counted here, and not there.
    assert!((done..=done + 4.0).contains(&seen), "{seen} of {done}");
    assert_eq!(rates["capture"]["drops"], 0, "{rates}");
    let row = rates["services"].as_array().unwrap().iter().find(|row| row["name"] == "read(10)").unwrap();
    assert_eq!(row["service"].as_str(), Some(&*target.address), "{rates}");
    assert!(row["p50_us"].as_f64().unwrap() > 0.0 && row["depth"].as_f64().unwrap() > 1.0, "{rates}");
    assert_eq!(rates["clients"][0]["name"], "127.0.0.1", "{rates}");

    let options = load::initiator::session::SessionOptions::default();
    let session = load::initiator::session::Session::open(&target.url(0).parse().unwrap(), &options).unwrap();
    let session = std::cell::RefCell::new(session);
    session.borrow_mut().capacity().unwrap();
    let rates = watch(&|| {
        for _ in 0..3 {
            session.borrow_mut().capacity().unwrap();
        }
    });
    assert_eq!(operations(&rates, "service action in"), 3.0, "{rates}");
    session.into_inner().close().unwrap();
    // All services, where no port is given: they are known by how their connections begin.
    let rates = watch_at(&[], &|| {
        let mut session =
            load::initiator::session::Session::open(&target.url(0).parse().unwrap(), &options).unwrap();
        for _ in 0..3 {
            session.capacity().unwrap();
        }
        session.close().unwrap();
    });
    assert!(operations(&rates, "service action in") >= 3.0, "{rates}");
}
