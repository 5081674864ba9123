//! Knot, dnsperf and kdig.

use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::wireshark::{Dissector, recorded};
use super::{free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::{analyze, may_capture};
use crate::common::succeed;

/// Hosts of the zone: its transfer takes several messages.
const HOSTS: u32 = 5000;

/// A zone with hosts, and one without its file.
fn start(folder: &Path, address: SocketAddr) -> Daemon {
    let mut zone =
        "@ 60 IN SOA ns.example.com. admin.example.com. 7 60 60 60 60\n@ IN NS ns\nns IN A 127.0.0.1\n"
            .to_owned();
    for host in 0..HOSTS {
        writeln!(zone, "host{host} IN A 127.0.0.1").unwrap();
    }
    std::fs::write(folder.join("example.com.zone"), zone).unwrap();
    let folder = folder.display();
    let configuration = format!(
        "server:\n  listen: 127.0.0.1@{}\n  rundir: {folder}\n  pidfile: {folder}/pid\n  tcp-workers: 2\n\
         database:\n  storage: {folder}\n\
         acl:\n  - id: own\n    address: 127.0.0.1\n    action: transfer\n\
         template:\n  - id: default\n    storage: {folder}\n    acl: own\n\
         zone:\n  - domain: example.com\n  - domain: missing.example.net\n",
        address.port()
    );
    let file = format!("{folder}/knot.conf");
    std::fs::write(&file, configuration).unwrap();
    Daemon::start(Command::new("/usr/sbin/knotd").args(["-c", &file]), address)
}

/// The number behind a heading of dnsperf's report.
fn reported(report: &str, heading: &str) -> u64 {
    let line = report
        .lines()
        .find_map(|line| line.trim().strip_prefix(heading))
        .unwrap_or_else(|| panic!("{report}"));
    line.split_whitespace().next().and_then(|number| number.parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// The row of an operation with one status: all its operations.
fn keys_of(row: &Value) -> Vec<(String, u64, u64)> {
    let keys = row["keys"].as_array().unwrap();
    let number = |key: &Value, name: &str| key[name].as_u64().unwrap();
    let mut keys: Vec<_> = keys
        .iter()
        .map(|key| {
            (key["name"].as_str().unwrap().to_owned(), number(key, "operations"), number(key, "failed"))
        })
        .collect();
    keys.sort();
    keys
}

#[test]
fn every_query_is_an_operation() {
    const QUERIES: u64 = 4000;
    const OUTSTANDING: u64 = 16;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let port = address.port().to_string();
    let queries = folder.path().join("queries");
    // A host of the zone, a name that does not exist, and a zone that the server cannot load.
    let kinds =
        ["host{}.example.com A", "none{}.example.com AAAA", "www.missing.example.net TXT", "example.com SOA"];
    let lines = (0..QUERIES).map(|at| kinds[at as usize % 4].replace("{}", &(at % 1000).to_string()) + "\n");
    std::fs::write(&queries, lines.collect::<String>()).unwrap();
    let outstanding = OUTSTANDING.to_string();
    let load = [
        "-s",
        "127.0.0.1",
        "-p",
        &port,
        "-m",
        "tcp",
        "-c",
        "4",
        "-T",
        "1",
        "-q",
        &outstanding,
        "-n",
        "1",
        "-d",
    ];
    let (report, file) = recorded(address, folder.path(), || {
        succeed("dnsperf", &[&load[..], &[queries.to_str().unwrap()]].concat())
    });
    let result = analyze(&[file.to_str().unwrap()]);
    assert_eq!(reported(&report, "Queries completed:"), QUERIES, "{report}");
    let quarter = QUERIES / 4;
    for (operation, key, failed) in [
        ("A", "host*.example.com", 0),
        ("AAAA", "none*.example.com", 0),
        ("TXT", "*.missing.example.net", quarter),
        ("SOA", "example.com", 0),
    ] {
        let row = row(&result, operation);
        assert_eq!((&row["protocol"], &row["operations"]), (&"dns".into(), &quarter.into()), "{row:#}");
        assert_eq!(keys_of(row), [(key.to_owned(), quarter, failed)]);
    }
    let most =
        result["services"].as_array().unwrap().iter().map(|row| row["in_flight_max"].as_u64().unwrap());
    assert!((2..=OUTSTANDING).contains(&most.max().unwrap()), "{result:#}");
    assert_eq!(result["streams"]["unmatched"], 0);
    for (code, count) in [("NOERROR", 2 * quarter), ("NXDOMAIN", quarter), ("SERVFAIL", quarter)] {
        assert!(report.contains(&format!("{code} {count} ")), "{code}: {report}");
    }
    let dissector = Dissector { file: &file, port: address.port(), protocol: "dns" };
    assert_eq!(dissector.agrees("dns.time", "dns.time") as u64, QUERIES);
}

/// A query of a name's type, with its length.
fn query(id: u16, labels: &[&str], kind: u16) -> Vec<u8> {
    let mut bytes = [id.to_be_bytes(), [1, 0], [0, 1], [0; 2], [0; 2], [0; 2]].concat();
    for label in labels {
        bytes.push(label.len() as u8);
        bytes.extend(label.as_bytes());
    }
    bytes.extend([&[0][..], &kind.to_be_bytes(), &[0, 1]].concat());
    [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat()
}

/// Reads answers up to the one with this number, and returns how many.
fn answers_until(stream: &mut TcpStream, id: u16) -> usize {
    for count in 1.. {
        let mut length = [0; 2];
        stream.read_exact(&mut length).unwrap();
        let mut answer = vec![0; u16::from_be_bytes(length).into()];
        stream.read_exact(&mut answer).unwrap();
        if answer[..2] == id.to_be_bytes() {
            return count;
        }
    }
    0
}

/// The messages of a transfer are one answer, also where other queries are in flight.
#[test]
fn a_zone_transfer_is_one_operation() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let port = address.port().to_string();
    let (texts, file) = recorded(address, folder.path(), || {
        let dig = |asked: &[&str]| succeed("kdig", &[&["@127.0.0.1", "-p", &port, "+tcp"], asked].concat());
        // Behind the newest version nothing is sent, and what has changed since an older one is not known.
        let texts =
            [&["example.com", "AXFR"][..], &["example.com", "IXFR=7"], &["example.com", "IXFR=3"]].map(dig);
        let mut stream = TcpStream::connect(address).unwrap();
        let zone = ["example", "com"];
        let asked =
            [query(1, &zone, 252), query(2, &["host1", "example", "com"], 1), query(3, &zone, 2)].concat();
        stream.write_all(&asked).unwrap();
        assert!(answers_until(&mut stream, 3) > 3);
        texts
    });
    assert!(texts[0].lines().count() > HOSTS as usize, "{}", texts[0]);
    let result = analyze(&[file.to_str().unwrap()]);
    for (operation, count) in [("AXFR", 2), ("IXFR", 2), ("A", 1), ("NS", 1)] {
        let row = row(&result, operation);
        assert_eq!((&row["operations"], &row["failed"]), (&count.into(), &0.into()), "{row:#}");
    }
    let transfers = row(&result, "AXFR");
    assert_eq!(keys_of(transfers), [("example.com".to_owned(), 2, 0)]);
    assert_eq!(result["streams"]["unmatched"], 0);
    let dissector = Dissector { file: &file, port: address.port(), protocol: "dns" };
    let messages = dissector.fields("dns.flags.response == 1 && dns.qry.type == 252", &["dns.id"]);
    assert!(messages.len() > 4, "{messages:?}");
}
