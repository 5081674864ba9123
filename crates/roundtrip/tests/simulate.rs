//! The simulator through the command line: its captures match its results, in `analyze` and in Wireshark, and its
//! pathologies match those of the kernel.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::collections::HashSet;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::time::Instant;

use common::{records, roundtrip, succeed};
use record::Writes;
use serde_json::Value;

fn simulate(arguments: &[&str]) -> Value {
    let output = roundtrip().arg("simulate").args(arguments).arg("--json").output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The columns of an operation that both the simulation and the analysis of its packets know. HTTP has no tags.
const KNOWN: [&str; 10] = [
    "operation",
    "kind",
    "outcome",
    "data_bytes",
    "request_bytes",
    "response_bytes",
    "c1_ns",
    "s1_ns",
    "s2_ns",
    "c2_ns",
];

/// The known columns of every operation in a file.
fn operations(file: &Path) -> HashSet<[String; 10]> {
    let text = std::fs::read_to_string(file).unwrap();
    let mut lines = text.lines();
    let heading: Vec<&str> = lines.next().unwrap().split(',').collect();
    let columns = KNOWN.map(|name| heading.iter().position(|h| *h == name).unwrap());
    let of = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        columns.map(|c| fields[c].to_owned())
    };
    lines.map(of).collect()
}

/// The analyzer finds in a simulated capture every operation, each stamp to the nanosecond,
/// and the simulated pathology.
#[test]
fn the_analyzer_finds_simulated_stalls() {
    let folder = tempfile::tempdir().unwrap();
    for (preset, more, verdict) in [
        ("seed-512", &[][..], None),
        ("seed-512", &["--iodepth", "16"], None),
        ("seed-512", &["--policy", "batch", "--iodepth", "32", "--bs", "4k", "--mtu", "1500"], None),
        ("post-together", &[], None),
        ("two-sends", &[], Some("header_body_apart")),
        ("post", &[], Some("header_body_apart")),
        ("post-linux", &[], Some("header_body_apart")),
        ("more-broken", &[], Some("unfinished_cork")),
        ("cork-broken", &[], Some("unfinished_cork")),
        ("lossy", &["--operations", "4000"], Some("retransmission")),
    ] {
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (packets, ops, found) = (path("packets.pcapng"), path("ops.csv"), path("found.csv"));
        // Continuous loads run without disturbances here, because a delayed thread is a slow side.
        let fixed = [
            "--preset",
            preset,
            "--operations",
            "300",
            "--set",
            "disturbed=0.0",
            "--pcapng",
            &packets,
            "--ops",
            &ops,
        ];
        let fixed: Vec<&str> =
            if more.contains(&"--operations") { [&fixed[..2], &fixed[4..]].concat() } else { fixed.to_vec() };
        simulate(&[&fixed[..], more].concat());
        // It exits with 1 if there is a verdict.
        let output = roundtrip().args(["analyze", &packets, "--ops", &found, "--json"]).output().unwrap();
        let result: Value = serde_json::from_slice(&output.stdout).unwrap();
        let kinds: Vec<&str> =
            result["verdicts"].as_array().unwrap().iter().map(|v| v["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds.first().copied(), verdict, "{preset} {more:?}: {kinds:?}");
        if preset == "lossy" {
            // A retransmission has the sequence numbers of the lost segment: the analyzer may use either.
            continue;
        }
        assert_eq!(kinds.len(), usize::from(verdict.is_some()), "{preset}: {kinds:?}");
        let (simulated, found) = (operations(Path::new(&ops)), operations(Path::new(&found)));
        assert!(
            simulated.len() >= 300 && found.len() >= simulated.len(),
            "{preset}: {} and {}",
            simulated.len(),
            found.len()
        );
        let missed: Vec<_> = simulated.difference(&found).collect();
        assert!(missed.is_empty(), "{preset} {more:?}: {} missed, such as {:?}", missed.len(), missed[0]);
    }
}

/// HTTP messages have the simulated lengths, from the shortest header that they can have; a shorter one is refused.
#[test]
fn http_headers_have_the_simulated_length_or_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (packets, ops, found) = (path("packets.pcapng"), path("ops.csv"), path("found.csv"));
    let run = |header: u32, data: u32| {
        let keys = [("request.header", header), ("response.header", header), ("response.data", data)];
        let mut command = roundtrip();
        command.args(["simulate", "--operations", "300", "--pcapng", &packets, "--ops", &ops]);
        for (key, value) in keys {
            command.args(["--set", &format!("{key}={value}")]);
        }
        command.output().unwrap()
    };
    // 48 bytes and data that is no whole number of words is not iSCSI either.
    for (header, data) in [(42, 100), (43, 100), (44, 100), (60, 4096), (48, 510)] {
        let output = run(header, data);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        roundtrip().args(["analyze", &packets, "--ops", &found]).output().unwrap();
        let (simulated, found) = (operations(Path::new(&ops)), operations(Path::new(&found)));
        assert!(simulated.len() >= 300 && simulated == found, "{header} {data}");
    }
    let output = run(20, 100);
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && error.contains("request.header: 20 bytes cannot hold HTTP"),
        "{error}"
    );
}

/// Wireshark reads the same PDUs out of it, and finds nothing malformed.
#[test]
fn wireshark_reads_simulated_captures() {
    let folder = tempfile::tempdir().unwrap();
    let packets = folder.path().join("packets.pcapng").display().to_string();
    for (block, depth) in [("512", "16"), ("64k", "4")] {
        simulate(&[
            "--preset",
            "seed-512",
            "--bs",
            block,
            "--iodepth",
            depth,
            "--operations",
            "500",
            "--pcapng",
            &packets,
        ]);
        // One side's packets: Wireshark takes the other's copies for repetitions.
        let side = folder.path().join("client.pcapng").display().to_string();
        succeed("tshark", &["-r", &packets, "-Y", "frame.interface_name == \"client\"", "-w", &side]);
        let text = succeed("tshark", &["-r", &side, "-T", "fields", "-e", "iscsi.opcode"]);
        let answers = text.split(['\n', ',']).filter(|opcode| opcode.trim() == "0x25").count();
        assert!(answers >= 500 + 2000, "{block}: {answers} Data-In PDUs at the client");
        let filter = ["-Y", "_ws.malformed || tcp.analysis.flags", "-T", "fields", "-e", "frame.number"];
        let odd = succeed("tshark", &[&["-r", &side][..], &filter].concat());
        assert!(odd.lines().all(|line| line.parse::<u64>().is_err()), "{odd}");
    }
}

/// The frames of the preset `post` in a capture: the bytes of the note's frames 25 to 28, padded as on a wire, without timestamps.
#[test]
fn frames_of_the_post_are_those_of_the_note() {
    let folder = tempfile::tempdir().unwrap();
    let packets = folder.path().join("packets.pcapng").display().to_string();
    for (preset, expected) in [
        ("post", [("349", "295"), ("60", "0"), ("791", "737"), ("360", "306")]),
        ("post-nodelay", [("349", "295"), ("791", "737"), ("60", "0"), ("360", "306")]),
    ] {
        simulate(&["--preset", preset, "--operations", "5", "--pcapng", &packets]);
        let fields =
            ["-T", "fields", "-e", "frame.len", "-e", "tcp.len", "-e", "tcp.options.timestamp.tsval"];
        let client = ["-r", &packets, "-Y", "frame.interface_name == \"client\" && tcp.flags.syn == 0"];
        let text = succeed("tshark", &[&client[..], &fields].concat());
        // Other lines are warnings of tshark.
        let lines = text.lines().filter(|line| line.contains('\t'));
        let frames: Vec<Vec<&str>> = lines.map(|line| line.split('\t').collect()).collect();
        // After the handshake's last segment.
        for (number, frame) in frames.iter().skip(1).enumerate() {
            let (bytes, payload) = expected[number % 4];
            assert_eq!(frame[..2], [bytes, payload], "{preset}, frame {number}: {text}");
            assert!(frame.get(2).is_none_or(|stamp| stamp.is_empty()), "{preset}: {text}");
        }
        assert!(frames.len() > 20, "{text}");
    }
}

/// Writes header and data of a message.
fn write(stream: &mut TcpStream, parts: [usize; 2], writes: Writes) {
    let bytes = vec![7; parts[0] + parts[1]];
    let (head, body) = bytes.split_at(parts[0]);
    load::write(writes, stream, head, body).unwrap();
}

/// Seconds of each of `count` exchanges on the live kernel, over loopback.
fn live(count: usize, request: ([usize; 2], Writes, bool), response: ([usize; 2], Writes, bool)) -> Vec<f64> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.set_nodelay(!response.2).unwrap();
        let mut message = vec![0; request.0[0] + request.0[1]];
        while stream.read_exact(&mut message).is_ok() {
            write(&mut stream, response.0, response.1);
        }
    });
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_nodelay(!request.2).unwrap();
    let mut answer = vec![0; response.0[0] + response.0[1]];
    let times = (0..count)
        .map(|_| {
            let begun = Instant::now();
            write(&mut stream, request.0, request.1);
            stream.read_exact(&mut answer).unwrap();
            begun.elapsed().as_secs_f64()
        })
        .collect();
    drop(stream);
    server.join().unwrap();
    times
}

/// The kernel's pathologies, simulated and measured in the same test run.
#[test]
fn kernel_behaves_as_simulated() {
    let plain = ([48, 0], Writes::One, false);
    for (preset, request, response, count) in [
        ("two-sends", plain, ([48, 512], Writes::Apart, true), 20),
        ("more-broken", plain, ([48, 512], Writes::MoreUnfinished, false), 6),
        ("cork-broken", plain, ([48, 512], Writes::CorkUnfinished, false), 6),
        ("post-linux", ([160, 480], Writes::Apart, true), ([120, 0], Writes::One, false), 20),
    ] {
        let mut times = live(count, request, response);
        // How many are quick before it begins: the first acknowledgements are not delayed.
        let quick = times.iter().take_while(|seconds| **seconds < 0.02).count();
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("ops.csv");
        let ops = file.display().to_string();
        let loopback = ["wire.mtu=65535", "wire.bandwidth=none", "warm-up=1"];
        let sets: Vec<&str> = loopback.iter().flat_map(|set| ["--set", set]).collect();
        simulate(&[&["--preset", preset, "--operations", "40", "--ops", &ops], &sets[..]].concat());
        let mut simulated: Vec<(u64, f64)> = Vec::new();
        for op in records(&file) {
            let [start, finish] = ["start_ns", "finish_ns"].map(|name| op[name].parse::<u64>().unwrap());
            simulated.push((start, (finish - start) as f64 / 1e9));
        }
        simulated.sort_by_key(|(start, _)| *start);
        let simulated_quick = simulated.iter().take_while(|(_, seconds)| *seconds < 0.02).count();
        assert_eq!(quick, simulated_quick, "{preset}: {times:.4?}");
        let slow = &mut times[quick..];
        slow.sort_by(f64::total_cmp);
        let measured = slow[slow.len() / 2];
        let theirs = simulated[simulated.len() / 2].1;
        assert!(
            (theirs / measured - 1.0).abs() < 0.1,
            "{preset}: {theirs:.4} s simulated, {measured:.4} s measured"
        );
    }
    // Nothing is held where header and body leave together.
    let times = live(20, ([160, 480], Writes::One, true), ([120, 0], Writes::One, false));
    assert!(times.iter().filter(|seconds| **seconds < 0.02).count() > 15, "{times:?}");
}

/// The text of a run that succeeds.
fn printed(arguments: &[&str]) -> String {
    succeed(env!("CARGO_BIN_EXE_roundtrip"), &[&["simulate"][..], arguments].concat())
}

/// The cells of the row that begins with these; of a table that is several, one below the other, of all of its rows.
fn cells<'a>(text: &'a str, begin: &[&str]) -> Vec<&'a str> {
    let rows = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let mut rows = rows.filter(|cells| cells.starts_with(begin));
    let mut all = rows.next().unwrap_or_else(|| panic!("{begin:?}: {text}"));
    rows.for_each(|more| all.extend(&more[begin.len()..]));
    all
}

/// The table of busy cycles has the swept values, the share that served the whole depth, and the published shares beside them.
#[test]
fn busy_cycles_have_published_shares_and_swept_values() {
    let ring = ["--preset", "seed-512", "--iodepth", "4", "--operations", "4000"];
    let sweep = ["--policy", "nodelay,nagle-unflushed,nagle", "--sweep", "client.interrupt=90us,120us"];
    let text = printed(&[&ring[..], &sweep].concat());
    let busy = text.split("Busy cycles of the server").nth(1).unwrap();
    let json = simulate(&[&ring[..], &sweep].concat());
    for (run, swept) in json["runs"].as_array().unwrap().iter().zip(json["swept"].as_array().unwrap()) {
        let policy = run["policy"].as_str().unwrap();
        let cells = cells(busy, &[swept.as_str().unwrap(), policy, "4"]);
        let percent =
            |count: &str| format!("{:.0}", run["busy_count_share"][count].as_f64().unwrap_or(0.0) * 100.0);
        let shares: Vec<String> = ["1", "2", "3", "4", "5"].map(percent).into();
        assert_eq!(cells[3..8], shares, "{policy} {swept}: {busy}");
        // After the counts above five and the mean.
        assert_eq!(cells[10], percent("4"), "{policy} {swept}: {busy}");
        let published: &[&str] = match policy {
            "nodelay" => &["8", "8", "8", "76"],
            "nagle-unflushed" => &["30", "40", "30", "0"],
            _ => &[],
        };
        assert_eq!(cells[11..], *published, "{policy} {swept}: {busy}");
    }
    // Another ring has no published figures.
    let text = printed(&["--iodepth", "4", "--operations", "4000"]);
    assert!(!text.contains("published"), "{text}");
}

/// The table of the paper: text and JSON have the same figures.
#[test]
fn the_paper_s_table_is_printed() {
    let arguments = ["--paper", "--operations", "1000"];
    let (text, json) = (printed(&arguments), simulate(&arguments));
    let rows = json["paper"]["rows"].as_array().unwrap();
    assert_eq!((rows.len(), &json["paper"]["operations"]), (20, &1000.into()));
    for row in rows {
        let (sending, depth) = (row["sending"].as_str().unwrap(), row["queue_depth"].to_string());
        let mut expected = vec![sending.to_owned(), depth.clone()];
        let shares = |key: &str| -> Vec<String> {
            let shares = row[key].as_array().unwrap().iter();
            shares.map(|share| format!("{:.0}", share.as_f64().unwrap())).collect()
        };
        let whole = |key: &str| format!("{:.0}", row[key].as_f64().unwrap());
        expected.extend(["published_percent", "mean_percent"].into_iter().flat_map(shares));
        let range = [whole("misplaced_least_percent"), whole("misplaced_greatest_percent")];
        expected.extend([
            whole("misplaced_percent"),
            format!("({}", range[0]),
            "to".into(),
            format!("{})", range[1]),
        ]);
        expected.extend(["least_percent", "greatest_percent"].into_iter().flat_map(shares));
        let cells = cells(&text, &[sending, &depth]);
        assert_eq!(cells[..expected.len()], expected, "{text}");
    }
    let text = text.replace("\n  ", " ");
    for explanation in json["paper"]["explanations"].as_array().unwrap() {
        let percent = explanation["misplaced_percent"].as_f64().unwrap();
        let sentence = format!("{} {percent:.0} %", explanation["sending"].as_str().unwrap());
        assert!(text.contains(&sentence), "{sentence}: {text}");
    }
    let output = roundtrip().args(["simulate", "--paper", "--preset", "seed-512"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "the table has a setup of its own");
    // What a table depends on: other costs give other cycles, and a key that is none is refused.
    let faster = simulate(&[&arguments[..], &["--set", "server.service=2us"]].concat());
    assert_ne!(faster["paper"]["rows"][3]["mean_percent"], json["paper"]["rows"][3]["mean_percent"]);
    let output = roundtrip().args(["simulate", "--paper", "--set", "server.servce=2us"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

/// `+client-nagle` is `load.nagle=true`, and nothing else.
#[test]
fn a_policy_may_name_the_client_s_nagle() {
    let ring = ["--preset", "seed-512", "--iodepth", "3", "--operations", "3000", "--policy"];
    let named = simulate(&[&ring[..], &["nagle+client-nagle"]].concat());
    let set = simulate(&[&ring[..], &["nagle", "--set", "load.nagle=true"]].concat());
    let without = simulate(&[&ring[..], &["nagle"]].concat());
    assert_eq!(named["runs"], set["runs"]);
    assert_eq!(
        (&named["runs"][0]["client_nagle"], &without["runs"][0]["client_nagle"]),
        (&true.into(), &false.into())
    );
    assert!(named["runs"][0]["iops"].as_f64() < without["runs"][0]["iops"].as_f64(), "it costs throughput");
    let text = printed(&[&ring[..], &["nagle+client-nagle"]].concat());
    assert!(text.contains("nagle+client-nagle"), "{text}");
}

#[test]
fn rejects_invalid_setups_before_anything_starts() {
    for (arguments, expected) in [
        (&["--preset", "nothing"][..], "'nothing' is not a preset"),
        (&["/nowhere/ring.toml"], "cannot read /nowhere/ring.toml"),
        (&["--set", "server.service"], "write KEY=VALUE"),
        (&["--set", "server.sevrice=5us"], "unknown field `sevrice`"),
        (&["--set", "server.service=5 parsec"], "5 parsec"),
        (&["--set", "server.ack-delay=501ms"], "server: ack-delay and ack-delay-max are at most 500 ms"),
        (&["--policy", "nagle+client"], "+client-nagle after it"),
        (&["--set", "wire.loss=2.0"], "wire.loss: 2 is not between 0 and 0.9"),
        (&["--set", "client.tcp=plan9"], "there are linux, windows, freebsd, macos"),
        (&["--iodepth", "0"], "queue-depth: 0 is not between 1 and 4096"),
        (&["--iodepth", "1,2", "--pcapng", "/tmp/never.pcapng"], "need a single run, not 2"),
        (&["--ladder-ops", "9..2"], "is not a range"),
    ] {
        let output = roundtrip().arg("simulate").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(expected), "{arguments:?}: {text}");
    }
}

#[test]
fn a_ladder_and_a_chart_are_drawn() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (ladder, chart) = (path("ladder.svg"), path("chart.svg"));
    simulate(&["--preset", "two-sends", "--ladder", &ladder, "--ladder-ops", "20..21"]);
    let svg = std::fs::read_to_string(&ladder).unwrap();
    assert!(svg.contains("client") && svg.contains("48 B") && svg.contains("ACK"), "{svg}");
    // Every wait that explains a gap has its name, on either axis, and the axis says what it is.
    for (scale, axis) in
        [("events", "Time axis by event, not to scale"), ("time", "Time axis to scale: 100 pixels are")]
    {
        let arguments =
            ["--preset", "two-sends", "--ladder", &ladder, "--ladder-ops", "20..21", "--ladder-scale", scale];
        simulate(&arguments);
        let svg = std::fs::read_to_string(&ladder).unwrap();
        for expected in [axis, "\nNagle 43.9 ms\n", "\ndelayed ACK 43.9 ms\n"] {
            assert!(svg.contains(expected), "{scale}: {expected}: {svg}");
        }
        // 44 ms and 1 us are events apart on the one axis; on the other the short wait has no room.
        assert_eq!(svg.contains("scheduling 20.0 us"), scale == "events", "{svg}");
        assert!(!svg.contains(">\nlost\n"), "what is on its way at the end of the run is not lost: {svg}");
    }
    simulate(&["--preset", "lossy", "--ladder", &ladder, "--ladder-ops", "0..200", "--ladder-scale", "time"]);
    assert!(std::fs::read_to_string(&ladder).unwrap().contains(">\nlost\n"), "a lossy wire loses segments");
    simulate(&[
        "--preset",
        "seed-512",
        "--iodepth",
        "1,4,16",
        "--policy",
        "nodelay,nagle",
        "--operations",
        "2000",
        "--chart",
        &chart,
    ]);
    let svg = std::fs::read_to_string(&chart).unwrap();
    assert!(svg.contains("nodelay") && svg.contains("nagle"));
}

/// A limit that ends a run is named with what ran and what changes it.
#[test]
fn a_run_that_the_time_limit_ended_says_so() {
    let limited = ["--preset", "two-sends", "--operations", "2000", "--set", "time-limit=10s"];
    let run = simulate(&limited)["runs"][0].clone();
    let done = run["operations"].as_u64().unwrap();
    assert!(done > 100 && done < 1000, "23 a second: {run:#}");
    assert_eq!((&run["requested_operations"], &run["ended_by"]), (&2000.into(), &"time_limit".into()));
    assert_eq!((&run["is_complete"], &run["time_limit_seconds"]), (&false.into(), &10.0.into()));
    let text = succeed(env!("CARGO_BIN_EXE_roundtrip"), &[&["simulate"][..], &limited].concat());
    let expected =
        format!("only {done} of 2 000 operations: the limit of simulated time, 10 s, ended the run");
    let text = text.replace("\n  ", " ");
    assert!(text.contains(&expected), "{text}");
    // The advice works.
    let advice = text.split("--set ").nth(1).unwrap().split_whitespace().next().unwrap();
    let run =
        simulate(&["--preset", "two-sends", "--operations", "2000", "--set", advice])["runs"][0].clone();
    assert_eq!((&run["operations"], &run["ended_by"]), (&2000.into(), &"operations".into()), "{advice}");
    assert_eq!(run["is_complete"], true);
}

/// The picture of a run and that of its capture show the same operations; a sweep has no picture.
#[test]
fn a_run_and_its_capture_are_drawn_alike() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (run, capture, packets) = (path("run"), path("capture"), path("run.pcapng"));
    let ring = ["--preset", "seed-512", "--operations", "3000"];
    simulate(&[&ring[..], &["--figures", &run, "--pcapng", &packets]].concat());
    succeed(env!("CARGO_BIN_EXE_roundtrip"), &["analyze", &packets, "--figures", &capture]);
    let medians = |file: &str| -> Vec<(String, f64)> {
        let svg = std::fs::read_to_string(file).unwrap();
        let legends =
            svg.lines().filter(|line| line.contains("data-legend=") && line.contains("data-median-us="));
        let words: Vec<Vec<String>> =
            legends.map(|line| line.split('"').map(str::to_owned).collect()).collect();
        words.iter().map(|words| (words[1].clone(), words[3].parse().unwrap())).collect()
    };
    let (drawn, captured) =
        (medians(&format!("{run}/512-nodelay-qd1.svg")), medians(&format!("{capture}/1-read-10-512.svg")));
    assert_eq!((drawn.len(), captured.len()), (6, 6), "{drawn:?} {captured:?}");
    for ((name, own), (other, theirs)) in drawn.iter().zip(&captured) {
        assert!(name == other && (own - theirs).abs() < 0.5, "{name}: {own} and {theirs}");
    }
    for file in ["run/512-nodelay-qd1.png", "capture/1-read-10-512.png"] {
        assert!(std::fs::read(folder.path().join(file)).unwrap().starts_with(b"\x89PNG"), "{file}");
    }
    // Every operation of the list is in the picture.
    let csv = path("one.csv");
    succeed(env!("CARGO_BIN_EXE_roundtrip"), &["analyze", &packets, "--figures", &capture, "--ops", &csv]);
    let operations = std::fs::read_to_string(&csv).unwrap().lines().count() - 1;
    let svg = std::fs::read_to_string(format!("{capture}/1-read-10-512.svg")).unwrap();
    let whole = format!("data-panel=\"Whole run\" data-operations=\"{operations}\"");
    assert!(svg.contains(&whole), "{whole}");
    for (arguments, expected) in [
        (&["--iodepth", "1,2", "--figures", &run][..], "need a single run, not 2"),
        (&["--figures", &run, "--chart", &format!("{run}/a.svg")], "could overwrite"),
    ] {
        let output = roundtrip().arg("simulate").args(arguments).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.code() == Some(2) && text.contains(expected), "{arguments:?}: {text}");
    }
}
