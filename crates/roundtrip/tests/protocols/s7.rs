//! S7 communication: python-snap7, both sides. No package of the distribution has a server, so the capture is kept; `captures/s7.py` makes
//! it. tshark has no times of this protocol.

use super::{recorded, row};

#[test]
fn every_request_is_an_operation() {
    let (said, result, operations) = recorded("s7");
    for operation in ["CONNECT", "SETUP", "READ_VAR", "WRITE_VAR", "READ_CLOCK", "BLOCK_LIST"] {
        let row = row(&result, operation);
        assert_eq!((&row["protocol"], &row["operations"]), (&"s7".into(), &said[operation]), "{row:#}");
    }
    for status in ["NO_OBJECT", "BAD_ADDRESS"] {
        let count = operations.iter().filter(|op| op["status"] == status).count();
        assert_eq!(count, said[status].as_u64().unwrap() as usize, "{status}");
    }
    let of_key = |operation: &str, key: &str| {
        operations.iter().filter(|op| op["operation"] == operation && op["key"] == key).count()
    };
    // Each connection reads 100 times from block 1 and from the flags, 120 times from block 5, and 10 times from both blocks.
    let reads = ["DB1", "M", "DB5", "DB1+", "DB99"].map(|key| of_key("READ_VAR", key));
    assert_eq!(reads, [2 * 110, 200, 240, 20, 20]);
    assert_eq!(of_key("WRITE_VAR", "DB5"), 200);
    assert_eq!(
        (&row(&result, "READ_VAR")["in_flight_max"], &result["streams"]["unmatched"]),
        (&6.into(), &0.into())
    );
}
