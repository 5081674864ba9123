//! The note on dd and Nagle's algorithm: writes are 1.8 to 2.0 times as fast without the target's Nagle, and where that holds.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use tcpsim::preset::Preset;
use tcpsim::{Setup, simulate};

/// Published: without and with Nagle, MB/s, two runs each.
const OFF: [f64; 2] = [47.9, 47.8];
const ON: [f64; 2] = [26.7, 24.1];

fn megabytes(policy: &str, settings: &[&str]) -> f64 {
    let policy = format!("policy={policy}");
    let settings: Vec<String> =
        [&policy[..]].iter().chain(settings).map(|&setting| setting.to_owned()).collect();
    let setup = Setup::read_with(Preset::named("nagle-write").unwrap().text, &settings).unwrap();
    simulate(&Setup { operations: 6000, warm_up: 500, ..setup }, &mut ()).bytes_per_second / 1e6
}

/// Throughput without Nagle divided by that with the target's Nagle, never flushed.
fn ratio(settings: &[&str]) -> f64 {
    megabytes("nodelay", settings) / megabytes("nagle-unflushed", settings)
}

/// Both figures of the note, and their ratio, from one setup.
#[test]
fn the_preset_writes_as_fast_as_the_note() {
    let (off, on) = (megabytes("nodelay", &[]), megabytes("nagle-unflushed", &[]));
    assert!(OFF.iter().all(|published| (off / published - 1.0).abs() < 0.02), "{off}");
    assert!((ON[1]..ON[0]).contains(&on), "{on}");
    assert!((OFF[1] / ON[0]..OFF[0] / ON[1]).contains(&(off / on)), "{off} {on}");
}

/// The target's Nagle costs 1.8 to 2.0 at every depth from 2 to 16, in either form of the algorithm, and with variation.
#[test]
fn the_ratio_does_not_depend_on_depth_or_on_the_form_of_nagle() {
    for depth in [2, 3, 4, 6, 8] {
        let depth = format!("queue-depth={depth}");
        for tcp in ["linux", "freebsd", "windows"] {
            let (client, server) = (format!("client.tcp={tcp}"), format!("server.tcp={tcp}"));
            let found = ratio(&[&depth, &client, &server]);
            assert!((1.8..=2.0).contains(&found), "{depth} {tcp}: {found:.2}");
        }
        let found = ratio(&[&depth, "jitter=0.3", "disturbed=0.003"]);
        assert!((1.8..=2.0).contains(&found), "{depth}, with variation: {found:.2}");
    }
}

/// It holds while latencies, not the wire or a processor, limit the ring, and while more than one write is in flight.
#[test]
fn the_ratio_vanishes_where_something_else_is_the_limit() {
    for (settings, least, most) in [
        (&["queue-depth=1"][..], 0.99, 1.01),
        (&["queue-depth=32"], 0.95, 1.3),
        (&["server.service=100us"], 0.95, 1.1),
        (&["wire.bandwidth=100mbit"], 0.95, 1.2),
        // Short latencies: part of the time is work.
        (&["queue-depth=2", "wire.delay=0us"], 1.5, 1.75),
    ] {
        let found = ratio(settings);
        assert!((least..most).contains(&found), "{settings:?}: {found:.2}");
    }
    let flushed = megabytes("nodelay", &[]) / megabytes("nagle", &[]);
    assert!(
        (0.97..1.03).contains(&flushed),
        "a target that flushes when it goes idle loses nothing: {flushed:.2}"
    );
}

/// The client's Nagle reaches it at depth 2 alone: from 3 on, small writes fill segments while they wait.
#[test]
fn the_client_s_nagle_reaches_it_at_depth_two_alone() {
    let ratio = |depth: u32, tcp: &str| {
        let (depth, tcp) = (format!("queue-depth={depth}"), format!("client.tcp={tcp}"));
        megabytes("nodelay", &[&depth, &tcp]) / megabytes("nodelay", &[&depth, &tcp, "load.nagle=true"])
    };
    for tcp in ["linux", "freebsd"] {
        assert!((1.8..=2.0).contains(&ratio(2, tcp)), "{tcp}: {:.2}", ratio(2, tcp));
        for depth in [3, 4, 6, 8] {
            assert!((1.0..1.8).contains(&ratio(depth, tcp)), "{tcp} {depth}: {:.2}", ratio(depth, tcp));
        }
    }
}

/// The table of docs/experiments.md: times without Nagle divided by the target's Nagle, by the network's delay and the depth.
#[test]
fn the_published_table_is_what_is_simulated() {
    let text = include_str!("../../../docs/experiments.md");
    let cells = |line: &str| -> Vec<String> {
        line.trim_matches('|').split('|').map(|cell| cell.trim().trim_matches('*').to_owned()).collect()
    };
    let mut lines = text.lines().skip_while(|line| !line.starts_with("| network, each way |"));
    let depths: Vec<String> = cells(lines.next().unwrap()).split_off(1);
    let mut rows = 0;
    for line in lines.skip(1).take_while(|line| line.starts_with('|')) {
        let row = cells(line);
        let delay = if row[0] == "0" { "0us".to_owned() } else { row[0].replace(' ', "") };
        for (depth, published) in depths.iter().zip(&row[1..]) {
            let depth = depth.trim_start_matches("QD ");
            let found = ratio(&[&format!("wire.delay={delay}"), &format!("queue-depth={depth}")]);
            let published: f64 = published.parse().unwrap();
            assert!(
                (found - published).abs() < 0.015,
                "{delay}, depth {depth}: {found:.3}, in the docs {published}"
            );
        }
        rows += 1;
    }
    assert_eq!((rows, depths.len()), (5, 7));
}
