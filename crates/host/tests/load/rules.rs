//! Rules on data: a file for each host, with the findings that it must have and no other. CRC errors and collisions cannot be
//! produced on veth devices.

use std::path::Path;

use host::facts::load::LoadFacts;
use host::finding::{Finding, Severity};
use serde::Deserialize;

use crate::{findings, ids};

#[derive(Deserialize)]
struct Case {
    expected: Vec<String>,
    facts: LoadFacts,
}

fn case(name: &str) -> Case {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/load/cases").join(format!("{name}.toml"));
    toml::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap_or_else(|error| panic!("{name}: {error}"))
}

fn found(name: &str) -> Vec<Finding> {
    findings(case(name).facts)
}

#[test]
fn each_load_test_yields_the_findings_that_its_file_names_and_no_other() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/load/cases");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_stem().unwrap().to_str().unwrap();
        assert_eq!(ids(&found(name)), case(name).expected, "{name}");
        count += 1;
    }
    assert!(count >= 8, "{count}");
}

#[test]
fn a_duplex_mismatch_names_the_counters_and_the_end_that_counted_them() {
    let found = found("duplex-mismatch");
    let one = |id: &str| found.iter().find(|finding| finding.id == id).unwrap();
    assert_eq!(one("duplex-mismatch").measured, "48 late collisions within 15.3 s, under load");
    assert_eq!(one("link-errors").measured, "131 CRC errors within 15.3 s, under load");
    assert!(one("link-errors").commands.is_empty(), "it is mended there");
    let suspected = one("half-duplex-suspected");
    assert_eq!(
        suspected.measured,
        "to store2 alone 71.00 Mb/s, from it alone 68.00 Mb/s; both together 9.50 Mb/s + 2.10 Mb/s; 95 and 60 segments sent again \
         (10.6 % and 27.3 %); counters that moved: standard_late_collisions here 41, tx_window_errors here 41, rx_crc_errors there \
         120"
    );
    assert_eq!(suspected.severity, Severity::Broken);
    assert_eq!(suspected.cost.and_then(|cost| cost.bits_per_second_at_most), Some(11.6e6));
}

#[test]
fn a_shared_rate_is_told_with_what_each_direction_carried() {
    let found = found("wireless");
    assert_eq!(
        found[0].measured,
        "to store2 alone 200.00 Mb/s, from it alone 210.00 Mb/s; both together 101.00 Mb/s + 104.00 Mb/s"
    );
    assert_eq!(
        (found[0].severity, found[0].commands[0].as_str()),
        (Severity::Slow, "roundtrip host show wlan0")
    );
}

#[test]
fn loss_without_a_queue_is_told_with_its_share_and_the_round_trips() {
    let found = found("policer");
    assert_eq!(
        found[0].measured,
        "to the peer alone: 200 of 10000 segments sent again (2.0 %) at 40.00 Mb/s; round trip 1.2 ms under load, 1.0 ms at least"
    );
}
