//! memcached, with requests that are sent before the answers to those before them.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;

use super::{analyzed, free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::may_capture;

#[test]
fn every_pipelined_request_is_an_operation() {
    const BATCHES: u64 = 200;
    let Some(_alone) = may_capture() else { return };
    let address = free_address();
    let mut server = Command::new("memcached");
    server.args(["-l", "127.0.0.1", "-p", &address.port().to_string(), "-U", "0", "-u", "nobody"]);
    let _server = Daemon::start(&mut server, address);
    for pipelined in [1_u64, 4, 16] {
        let ((), result) = analyzed(address, &[], || {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(b"set user:1 0 0 5\r\nhello\r\n").unwrap();
            stream.read_exact(&mut [0; 8]).unwrap();
            let requests = "get user:1\r\n".repeat(usize::try_from(pipelined).unwrap());
            let mut answers = vec![0; "VALUE user:1 0 5\r\nhello\r\nEND\r\n".len() * pipelined as usize];
            for _ in 0..BATCHES {
                stream.write_all(requests.as_bytes()).unwrap();
                stream.read_exact(&mut answers).unwrap();
            }
        });
        let row = row(&result, "get");
        assert_eq!(row["operations"], BATCHES * pipelined, "{row:#}");
        assert_eq!((&row["protocol"], &row["in_flight_max"]), (&"memcached".into(), &pipelined.into()));
        assert_eq!(row["keys"][0]["name"], "user:*");
    }
}
