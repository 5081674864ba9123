//! MongoDB's protocol: FerretDB with PyMongo, in a capture that corpus/decoders/mongodb.py has made, beside what the driver counted.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::Value;

use super::row;
use crate::common::live::analyze;

type Counts = BTreeMap<String, u64>;

fn counts(value: &Value) -> Counts {
    let object = value.as_object().unwrap().iter();
    object.map(|(name, count)| (name.clone(), count.as_u64().unwrap())).collect()
}

#[test]
fn every_command_is_an_operation() {
    let made = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../corpus/decoders");
    let said: Value = serde_json::from_slice(&std::fs::read(made.join("mongodb.json")).unwrap()).unwrap();
    let (folder, capture) = (tempfile::tempdir().unwrap(), made.join("mongodb.pcapng.zst"));
    let ops = folder.path().join("ops.csv");
    let result = analyze(&[capture.to_str().unwrap(), "--verbatim", "--ops", ops.to_str().unwrap()]);
    let text = std::fs::read_to_string(ops).unwrap();
    let mut lines = text.lines().map(|line| line.split(',').collect::<Vec<_>>());
    let head = lines.next().unwrap();
    let column = |name: &str| head.iter().position(|known| *known == name).unwrap();
    let (operation, key, status) = (column("operation"), column("key"), column("status"));
    let (mut commands, mut errors, mut handshakes) = (Counts::new(), Counts::new(), 0);
    for line in lines {
        if matches!(line[operation], "hello" | "isMaster" | "ismaster") {
            handshakes += 1;
            continue;
        }
        *commands.entry(format!("{} {}", line[operation], line[key])).or_default() += 1;
        if line[status] != "ok" {
            *errors.entry(line[status].to_owned()).or_default() += 1;
        }
    }
    assert_eq!(commands, counts(&said["commands"]));
    // The driver has the numbers of errors of writes.
    let mut expected = counts(&said["errors"]);
    let duplicates = expected.remove("11000").unwrap();
    expected.insert("DuplicateKey".to_owned(), duplicates);
    assert_eq!(errors, expected);
    let others = counts(&said["others"]);
    assert_eq!(handshakes, others["connections"] + others["heartbeats"]);
    assert!(result["services"].as_array().unwrap().iter().all(|row| row["protocol"] == "mongodb"));
    let found = row(&result, "find");
    assert!((2..=8).contains(&found["in_flight_max"].as_u64().unwrap()), "{found:#}");
    let streams = &result["streams"];
    let counts = ["unmatched", "mistaken", "unanswered"].map(|name| streams[name].as_u64());
    assert_eq!(counts, [Some(0); 3], "{streams:#}");
}
