//! Redis and redis-benchmark.

use std::net::SocketAddr;
use std::process::Command;

use super::{analyzed, free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::may_capture;
use crate::common::succeed;

/// A server that keeps nothing.
pub(crate) fn server(address: SocketAddr) -> Daemon {
    let port = address.port().to_string();
    let mut server = Command::new("redis-server");
    server.args(["--bind", "127.0.0.1", "--port", &port, "--save", "", "--appendonly", "no"]);
    Daemon::start(&mut server, address)
}

#[test]
fn every_pipelined_command_is_an_operation() {
    const REQUESTS: u64 = 20_000;
    const CONNECTIONS: u64 = 4;
    let Some(_alone) = may_capture() else { return };
    let address = free_address();
    let port = address.port().to_string();
    let _server = server(address);
    for pipelined in [1, 4, 16] {
        let (requests, connections) = (REQUESTS.to_string(), CONNECTIONS.to_string());
        let depth = pipelined.to_string();
        let benchmark = [
            "-p",
            &port,
            "-n",
            &requests,
            "-c",
            &connections,
            "-P",
            &depth,
            "-t",
            "set,get",
            "-r",
            "1000",
            "-q",
        ];
        let ((), result) = analyzed(address, &[], || {
            succeed("redis-benchmark", &benchmark);
        });
        for operation in ["SET", "GET"] {
            let row = row(&result, operation);
            assert_eq!(row["protocol"], "redis");
            assert_eq!(row["operations"], REQUESTS, "{pipelined}: {row:#}");
            // On a busy machine the connections may never be in flight all at once.
            let in_flight = row["in_flight_max"].as_u64().unwrap();
            assert!((pipelined..=CONNECTIONS * pipelined).contains(&in_flight), "{pipelined}: {row:#}");
            assert_eq!(row["keys"][0]["name"], "key:*");
            assert_eq!((&row["failed"], &row["overlapping"]), (&0.into(), &0.into()));
        }
        // The benchmark asks for the configuration on a connection of its own, two commands at once.
        let depths = result["stanzas"].as_array().unwrap().iter().filter(|s| s["operation"] != "CONFIG");
        let most = depths.map(|stanza| stanza["queue_depth"][2].as_u64().unwrap()).max();
        assert_eq!(most, Some(pipelined), "on one connection");
        assert_eq!(result["streams"]["unmatched"], 0);
    }
}
