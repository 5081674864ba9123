//! Error codes of Kafka.

use record::{Status, Word};

/// Beyond the highest of them that is known: a larger number is none of Kafka.
const CODE_MAX: i16 = 999;

pub(super) fn status(code: i16) -> Status {
    let name = match code {
        0 => return Status::Good,
        -1 => "SERVER_ERROR",
        1 => "OUT_OF_RANGE",
        2 => "CORRUPT_MESSAGE",
        3 | 100 => "UNKNOWN_TOPIC",
        5 => "NO_LEADER",
        6 => "NOT_LEADER",
        7 => "TIMED_OUT",
        8 => "NO_BROKER",
        9 => "NO_REPLICA",
        10 | 18 => "TOO_LARGE",
        13 => "NETWORK",
        // Of the coordinator.
        14 => "LOADING",
        15 => "NO_COORDINATOR",
        16 => "NOT_COORDINATOR",
        17 => "INVALID_TOPIC",
        19 | 20 => "FEW_REPLICAS",
        21 => "INVALID_ACKS",
        22 => "GENERATION",
        25 => "UNKNOWN_MEMBER",
        27 => "REBALANCING",
        29..=31 | 53 | 65 => "NOT_AUTHORIZED",
        35 => "VERSION",
        36 => "EXISTS",
        41 => "NOT_CONTROLLER",
        42 => "INVALID_REQUEST",
        45 => "OUT_OF_ORDER",
        46 => "DUPLICATE",
        47 => "PRODUCER_EPOCH",
        51 => "CONCURRENT_TXN",
        56 => "STORAGE",
        58 => "AUTHENTICATION",
        69 => "UNKNOWN_GROUP",
        70 => "NO_SESSION",
        71 => "SESSION_EPOCH",
        74 => "FENCED_LEADER",
        75 => "LEADER_EPOCH",
        79 => "MEMBER_ID",
        89 => "THROTTLED",
        90 => "PRODUCER_FENCED",
        other if !(-1..=CODE_MAX).contains(&other) => return Status::Unknown,
        other => return Status::Error(Word::new(format!("ERROR_{other}").as_bytes())),
    };
    Status::Error(Word::new(name.as_bytes()))
}
