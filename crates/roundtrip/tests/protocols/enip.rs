//! EtherNet/IP: cpppo, both sides. No package of the distribution has a server, so the capture is kept; `captures/enip.py` makes it.

use std::path::Path;

use super::{recorded, response_times, row};

#[test]
fn every_pipelined_request_is_an_operation() {
    let (said, result, operations) = recorded("enip");
    let with = |status: &str| operations.iter().filter(|op| op["status"] == status).count();
    for operation in ["REGISTER", "READ_TAG", "WRITE_TAG", "GET_ATTR", "MULTIPLE"] {
        let row = row(&result, operation);
        assert_eq!((&row["protocol"], &row["operations"]), (&"enip".into(), &said[operation]), "{row:#}");
    }
    for status in ["GENERAL", "ENCAP_08"] {
        assert_eq!(with(status), said[status].as_u64().unwrap() as usize, "{status}");
    }
    let keys = ["READ_TAG", "GET_ATTR", "MULTIPLE"].map(|name| &row(&result, name)["keys"][0]["name"]);
    assert_eq!(keys, ["SCADA", "Identity", "Line_*"]);
    // cpppo reads an answer when more than its depth are in flight.
    assert_eq!(row(&result, "READ_TAG")["in_flight_max"], 9);
    assert_eq!(result["streams"]["unmatched"], 0);
}

#[test]
fn response_times_are_those_of_tshark() {
    let file = Path::new(super::CAPTURES).join("enip.pcapng.zst");
    let [agreeing, theirs, ours] = response_times::agreeing(&file, 44818, 44818, "enip.time");
    eprintln!("{agreeing} of tshark's {theirs} times, {ours} operations");
    assert!(theirs > 390 && agreeing * 1000 >= theirs * 995, "{agreeing} of {theirs}");
}
