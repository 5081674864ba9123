//! HTTP/2 without TLS: nghttpd and h2load.

use std::process::Command;

use super::{analyzed, free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::may_capture;
use crate::common::succeed;

#[test]
fn every_stream_is_an_operation() {
    const REQUESTS: u64 = 3000;
    const CONNECTIONS: u64 = 2;
    let Some(_alone) = may_capture() else { return };
    let folder = tempfile::tempdir().unwrap();
    for name in ["1", "a"] {
        std::fs::write(folder.path().join(name), vec![b'x'; 3000]).unwrap();
    }
    let address = free_address();
    let port = address.port().to_string();
    let mut server = Command::new("nghttpd");
    server.args(["--no-tls", "-a", "127.0.0.1", "-d", folder.path().to_str().unwrap(), &port]);
    let _server = Daemon::start(&mut server, address);
    for streams in [1, 10, 100] {
        let (requests, connections) = (REQUESTS.to_string(), CONNECTIONS.to_string());
        let urls = ["1", "a"].map(|path| format!("http://{address}/{path}"));
        let (most, [one, other]) = (streams.to_string(), &urls);
        let (report, result) = analyzed(address, &[], || {
            succeed("h2load", &["-n", &requests, "-c", &connections, "-m", &most, one, other])
        });
        assert!(report.contains(&format!("{REQUESTS} done, {REQUESTS} succeeded")), "{report}");
        let row = row(&result, "GET");
        assert_eq!((&row["protocol"], &row["operations"]), (&"http2".into(), &REQUESTS.into()), "{row:#}");
        assert_eq!((&row["failed"], &row["overlapping"]), (&0.into(), &0.into()));
        let in_flight = row["in_flight_max"].as_u64().unwrap();
        assert!((streams..=CONNECTIONS * streams).contains(&in_flight), "{streams}: {in_flight}");
        // Each connection asks for the paths in turn.
        for (name, expected) in [("/:n", REQUESTS / 2), ("/a", REQUESTS / 2)] {
            let keys = row["keys"].as_array().unwrap();
            let key = keys.iter().find(|key| key["name"] == name).unwrap_or_else(|| panic!("{keys:#?}"));
            assert_eq!(key["operations"], expected);
        }
        assert_eq!(result["streams"]["unmatched"], 0);
    }
}
