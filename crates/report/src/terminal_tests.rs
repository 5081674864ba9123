//! The figures of the tables, and what untrusted text may do in them.

use iscsi_target::Stage;

use super::*;

#[test]
fn failures_are_listed_by_class_and_a_failed_run_says_so() {
    let failure = |class: &str, count| load::Failure { class: class.into(), count };
    let run = RunResult {
        operations: 186,
        errors: 10_114,
        failures: vec![failure("BUSY", 10_000), failure("HTTP status 503", 114)],
        failed_mean_us: Some(43.21),
        ..RunResult::default()
    };
    let text = failures(&run);
    for part in
        ["10 114 operations failed, 186 succeeded", "MOST", "10 000  BUSY", "114  HTTP status 503", "43.2 us"]
    {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    assert!(!failures(&RunResult { errors: 5, operations: 100, ..run }).contains("MOST"));
    assert_eq!(failures(&RunResult::default()), "");
    let one = RunResult { errors: 1, operations: 100, unmeasured_errors: 1, ..RunResult::default() };
    assert_eq!(
        failures(&one),
        "randread 0 B, queue depth 0: 1 operation failed, 100 succeeded in the measured time\n\
         randread 0 B, queue depth 0: 1 operation failed outside the measured time (--ramp, or in flight at its end)"
    );
    let ramp = failures(&RunResult { unmeasured_errors: 900, ..RunResult::default() });
    assert!(ramp.contains(": 900 operations failed outside") && !ramp.contains("MOST"), "{ramp}");
}

#[test]
fn mixed_runs_have_a_row_for_each_kind() {
    let kind = |kind, iops| load::KindResult {
        kind,
        operations: 1,
        iops,
        transferred_bytes: 0,
        bytes_per_second: iops * 4096.0,
        errors: 0,
        short: 0,
        latency_us: record::latency::LatencyFigures { p99: iops / 10.0, ..Default::default() },
        latency: record::latency::Latency::new(),
    };
    let kinds = vec![kind(load::Operation::Read, 7000.0), kind(load::Operation::Trim, 3000.0)];
    let text = runs_wide(&[RunResult { kinds, rate: Some(5.0), ..RunResult::default() }]);
    let row = |name: &str| text.lines().find(|l| l.trim_start().starts_with(name)).unwrap().to_owned();
    assert!(
        row("read").contains("7 000") && row("read").contains("28.7") && row("read").contains("700.0"),
        "{text}"
    );
    assert!(row("trim").contains("3 000") && row("trim").contains("300.0"), "{text}");
}

#[test]
fn thousands_are_separated() {
    assert_eq!(thousands(0.0), "0");
    assert_eq!(thousands(999.4), "999");
    assert_eq!(thousands(63_104.0), "63 104");
    assert_eq!(thousands(-1_234_567.0), "-1 234 567");
}

#[test]
fn text_of_a_peer_cannot_leave_its_cell() {
    let mut t = table(&["initiator", "count"]);
    t.add_row(vec![cell("iqn.\x1b[2J\nFAKE\u{202e}"), number("1\u{9b}".to_owned())]);
    let text = t.to_string();
    assert!(text.contains("iqn.\\u001b[2J\\u000aFAKE\\u202e") && text.contains("1\\u009b"), "{text}");
    assert_eq!(text.lines().count(), 3, "{text}");
}

/// The cells of a table of two lines by their headings.
fn cells(table: &str) -> std::collections::BTreeMap<String, String> {
    let of = |line: &str| -> Vec<String> {
        line.split("  ").map(str::trim).filter(|cell| !cell.is_empty()).map(str::to_owned).collect()
    };
    let lines: Vec<Vec<String>> = table.lines().filter(|line| !line.contains('─')).map(of).collect();
    assert_eq!(lines[0].len(), lines[1].len(), "{table}");
    lines[0].iter().cloned().zip(lines[1].iter().cloned()).collect()
}

#[test]
fn statistics_are_under_their_headings() {
    let busy_count = policy::BusyCount {
        busy: 2,
        max_busy: 7,
        idles: 10,
        served: 25,
        ended: [0, 4, 2, 1, 1, 0, 1, 1].into(),
    };
    let connection = ConnectionStatistics {
        id: 1,
        target: String::new(),
        peer: "10.0.0.1:5000".parse().unwrap(),
        initiator_name: "iqn.a".into(),
        send: policy::SendPolicy::Auto,
        thread: 1,
        cpu: None,
        open: true,
        commands: 1234,
        received_bytes: 1,
        sent_bytes: 2,
        sends: 777,
        receives: 3,
        modes: policy::control::Shares { nodelay: 1, nagle: 3, batch: 6 },
        busy_count,
        stages: Stages {
            turn: Stage { count: 4, sum_ns: 10_000, max_ns: 9_000 },
            store: Stage { count: 1, sum_ns: 1_234_000, max_ns: 1_234_000 },
            ..Stages::default()
        },
    };
    let found = cells(&stages(std::slice::from_ref(&connection)));
    for (heading, expected) in [
        ("peer", "10.0.0.1:5000"),
        ("turn us", "2.5"),
        ("receive us", "-"),
        ("store us", "1234.0"),
        ("transmit us", "-"),
    ] {
        assert_eq!(found[heading], expected, "{heading}");
    }
    let found = cells(&connections(&[connection]));
    for (heading, expected) in [
        ("initiator", "iqn.a"),
        ("peer", "10.0.0.1:5000"),
        ("send", "auto"),
        ("commands", "1 234"),
        ("sends", "777"),
        ("nodelay", "10%"),
        ("nagle", "30%"),
        ("batch", "60%"),
        ("busy", "2"),
        ("max", "7"),
        ("avg", "2.50"),
        ("idles", "10"),
        ("1", "40%"),
        ("2", "20%"),
        ("3", "10%"),
        ("4", "10%"),
        ("5", "0%"),
        (">5", "20%"),
    ] {
        assert_eq!(found[heading], expected, "{heading}");
    }
    let passed = Passed {
        operation: Operation::Discard,
        count: 5000,
        bytes: 12_300_000,
        errors: 3,
        mean_us: 11.0,
        p50_us: 12.0,
        p99_us: 13.0,
        max_us: 14.0,
    };
    let found = cells(&disks(&[(4, vec![passed])]));
    for (heading, expected) in [
        ("disk", "4"),
        ("operation", "unmap"),
        ("count", "5 000"),
        ("MB", "12.3"),
        ("mean us", "11.0"),
        ("p50", "12.0"),
        ("p99", "13.0"),
        ("max", "14.0"),
        ("errors", "3"),
    ] {
        assert_eq!(found[heading], expected, "{heading}");
    }
}

#[test]
fn each_figure_of_a_run_is_under_its_heading() {
    let latency_us = record::latency::LatencyFigures {
        mean: 1.0,
        min: 2.0,
        p50: 3.0,
        p90: 4.0,
        p99: 5.0,
        p999: 6.0,
        max: 7.0,
    };
    let share = |block_bytes, percent| load::initiator::BlockShare { block_bytes, percent };
    let run = RunResult {
        rw: load::Pattern::RandWrite,
        block_size_bytes: 4096,
        queue_depth: 8,
        operations: 11,
        iops: 12_345.0,
        bytes_per_second: 50.3e6,
        errors: 13,
        unmeasured_errors: 14,
        rate: Some(20_000.0),
        behind: Some(15),
        latency_us,
        ..RunResult::default()
    };
    let found = cells(&runs_wide(std::slice::from_ref(&run)));
    for (heading, expected) in [
        ("rw", "randwrite"),
        ("block", "4k"),
        ("QD", "8"),
        ("IOPS", "12 345"),
        ("MB/s", "50.3"),
        ("mean us", "1.0"),
        ("p50", "3.0"),
        ("p90", "4.0"),
        ("p99", "5.0"),
        ("p99.9", "6.0"),
        ("max", "7.0"),
        ("errors", "13"),
        ("asked/s", "20 000"),
        ("behind", "15"),
    ] {
        assert_eq!(found[heading], expected, "{heading}");
    }
    let split = vec![share(512, 60), share(4096, 40)];
    let mixed = cells(&runs_wide(&[RunResult { block_split: split, ..run.clone() }]));
    assert_eq!(mixed["block"], "512/60:4k/40");
    let copied = cells(&copies(3 << 20, &[RunResult { seconds: 1.25, sessions: 4, ..run }]));
    for (heading, expected) in
        [("block", "4k"), ("at once", "4"), ("each", "3M"), ("seconds", "1.25"), ("MB/s", "50.3")]
    {
        assert_eq!(copied[heading], expected, "{heading}");
    }
}

#[test]
fn the_ends_of_a_wire_are_under_their_headings_and_packets_in_their_direction() {
    let end = |side, packets| testbed::EndState {
        side,
        namespace: "n".into(),
        interface: "rt-w".into(),
        address: "10.0.0.1/24".into(),
        mtu_bytes: 9000,
        queue: "tbf".into(),
        offloads_on: vec!["tso".into(), "gro".into()],
        link: "10000Mb/s".into(),
        packets,
    };
    let record = testbed::WireRecord {
        name: "w".into(),
        bits_per_second: None,
        mtu_bytes: 9000,
        cpus: [None; 2],
        queue_bytes: 0,
        congestion: None,
        offloads: true,
        nics: None,
    };
    let crossing = testbed::Crossing { exchanges: 10, client: [11, 12], server: [12, 11] };
    let ends = [end("client", [1001, 1002]), end("server", [1003, 1004])];
    let text = wires(&[Wire { record, ends, crossing }]);
    let row = |side: &str| text.lines().find(|line| line.contains(side) && line.contains("rt-w")).unwrap();
    let has = |row: &str, parts: &[&str]| {
        let at: Vec<usize> =
            parts.iter().map(|part| row.find(part).unwrap_or_else(|| panic!("{part}: {row}"))).collect();
        assert!(at.is_sorted(), "{row}");
    };
    let common = ["rt-w", "10.0.0.1/24", "9000", "10000Mb/s", "tbf", "tso, gro"];
    has(row("client"), &[&common[..], &["1 001", "1 002"]].concat());
    has(row("server"), &[&common[..], &["1 003", "1 004"]].concat());
    let proof = "w: 10 exchanges cross it: the client's end sent 11 packets and the server's received 11; back 12 and 12";
    assert!(text.ends_with(proof), "{text}");
}
