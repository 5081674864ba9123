//! Kafka: a broker of Apache Kafka with librdkafka and with its own clients in Java. No package of the distribution has one, so the captures
//! are kept; `captures/kafka.py` makes them.

use super::{CAPTURES, recorded, row};
use crate::common::succeed;

/// Kinds of which librdkafka counts all: it forgets what it has asked on the connections that it begins with.
const COUNTED: [&str; 7] =
    ["Produce", "Fetch", "ListOffsets", "OffsetFetch", "JoinGroup", "SyncGroup", "Heartbeat"];

#[test]
fn requests_are_as_many_of_each_kind_as_librdkafka_says() {
    let (said, result, operations) = recorded("kafka");
    for operation in COUNTED {
        let row = row(&result, operation);
        assert_eq!((&row["protocol"], &row["operations"]), (&"kafka".into(), &said[operation]), "{row:#}");
    }
    assert_eq!(row(&result, "Produce")["operations"], 300);
    assert!(row(&result, "Produce")["in_flight_max"].as_u64().unwrap() > 10);
    for (operation, key) in [("Produce", "orders-*"), ("Heartbeat", "billing"), ("ListOffsets", "orders-*")] {
        assert_eq!(row(&result, operation)["keys"][0]["name"], key);
    }
    let with = |operation: &str, status: &str| {
        operations.iter().filter(|op| op["operation"] == operation && op["status"] == status).count()
    };
    assert_eq!((with("Produce", "ok"), with("Metadata", "UNKNOWN_TOPIC")), (300, 2));
    assert_eq!((with("JoinGroup", "LOADING"), with("JoinGroup", "MEMBER_ID")), (1, 1));
    assert_eq!(result["streams"]["unmatched"], 0);
    // The client closed two connections before the last answer came.
    assert_eq!(requests_by_tshark("kafka"), operations.len() + 2);
}

#[test]
fn requests_are_as_many_as_the_producers_in_java_say() {
    let (said, result, operations) = recorded("kafka-java");
    let number = |name: &str| said[name].as_u64().unwrap() as usize;
    // Those without acknowledgement have no answer.
    assert_eq!(operations.len(), number("requests") - number("unacknowledged"));
    let produced = row(&result, "Produce");
    assert_eq!(
        (&produced["operations"], &produced["in_flight_max"]),
        (&400.into(), &5.into()),
        "{produced:#}"
    );
    assert_eq!((&result["streams"]["unmatched"], &result["streams"]["unanswered"]), (&0.into(), &0.into()));
}

#[test]
fn requests_are_as_many_as_the_consumer_in_java_says() {
    let (said, result, operations) = recorded("kafka-java-consumer");
    let count = |operation: &str| row(&result, operation)["operations"].as_u64().unwrap();
    assert_eq!(count("OffsetCommit"), said["OffsetCommit"]);
    // It asks for more while it ends, which it does not count.
    assert_eq!(count("Fetch"), said["Fetch"].as_u64().unwrap() + 1);
    assert_eq!(
        (requests_by_tshark("kafka-java-consumer"), &result["streams"]["unmatched"]),
        (operations.len(), &0.into())
    );
}

/// How many requests tshark finds. Their answers it finds only where it knows the version.
fn requests_by_tshark(name: &str) -> usize {
    let file = format!("{CAPTURES}/{name}.pcapng.zst");
    let text = succeed(
        "tshark",
        &["-r", &file, "-Y", "kafka.request_key", "-T", "fields", "-e", "kafka.request_key"],
    );
    let lines = text.lines().filter(|line| line.starts_with(|c: char| c.is_ascii_digit()));
    lines.map(|line| line.split(',').count()).sum()
}
