//! OpenLDAP's server, with python-ldap and its own tools.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use serde_json::Value;

use super::wireshark::{Dissector, recorded};
use super::{free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::{analyze, may_capture};
use crate::common::nginx::certificate;
use crate::common::succeed;

/// Debian's, which has its modules.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocols/ldap_client.py");

fn start(folder: &Path, address: SocketAddr) -> Daemon {
    certificate(folder, "DNS:localhost,IP:127.0.0.1");
    std::fs::create_dir(folder.join("data")).unwrap();
    let path = folder.display();
    let configuration = format!(
        "include /etc/ldap/schema/core.schema\npidfile {path}/pid\nmodulepath /usr/lib/ldap\n\
         moduleload back_mdb\nmoduleload syncprov\n\
         TLSCertificateFile {path}/cert.pem\nTLSCertificateKeyFile {path}/key.pem\n\
         database mdb\nsuffix \"dc=example,dc=com\"\nrootdn \"cn=admin,dc=example,dc=com\"\nrootpw secret\n\
         directory {path}/data\ndbnosync\noverlay syncprov\n"
    );
    let file = folder.join("slapd.conf");
    std::fs::write(&file, configuration).unwrap();
    let mut server = Command::new("/usr/sbin/slapd");
    server.args(["-h", &format!("ldap://{address}"), "-f", file.to_str().unwrap(), "-d", "0"]);
    Daemon::start(&mut server, address)
}

/// How often a key has been asked for, and how many of these have failed.
#[track_caller]
fn of_key(row: &Value, name: &str) -> (u64, u64) {
    let keys = row["keys"].as_array().unwrap();
    let key = keys.iter().find(|key| key["name"] == name).unwrap_or_else(|| panic!("no {name} in {keys:#?}"));
    (key["operations"].as_u64().unwrap(), key["failed"].as_u64().unwrap())
}

#[test]
fn every_request_is_an_operation() {
    const OUTSTANDING: u64 = 16;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let arguments = [PROGRAM, &format!("ldap://{address}"), &OUTSTANDING.to_string()];
    let (text, file) = recorded(address, folder.path(), || succeed(PYTHON, &arguments));
    let ops = folder.path().join("ops.csv").display().to_string();
    let result = analyze(&[file.to_str().unwrap(), "--ops", &ops]);
    let mut sum = 0;
    for line in text.lines() {
        let (kind, count) = line.split_once(' ').unwrap();
        let count: u64 = count.parse().unwrap();
        let row = row(&result, kind);
        assert_eq!((&row["protocol"], &row["operations"]), (&"ldap".into(), &count.into()), "{row:#}");
        sum += count;
    }
    let services = result["services"].as_array().unwrap();
    assert_eq!(services.iter().map(|row| row["operations"].as_u64().unwrap()).sum::<u64>(), sum);
    assert!(sum > 900, "{text}");
    assert_eq!((&result["streams"]["unmatched"], &result["streams"]["unanswered"]), (&0.into(), &0.into()));
    let search = row(&result, "Search");
    let in_flight = search["in_flight_max"].as_u64().unwrap();
    assert!((2..=OUTSTANDING).contains(&in_flight), "{search:#}");
    assert_eq!(of_key(search, "ou=people,dc=example,dc=com sub"), (600, 0));
    assert_eq!(of_key(search, "ou=people,dc=example,dc=com one"), (1, 0));
    assert_eq!(of_key(search, "ou=none,dc=example,dc=com base"), (1, 1));
    assert_eq!(of_key(row(&result, "Add"), "cn=*,ou=people,dc=example,dc=com"), (200, 0));
    assert_eq!(of_key(row(&result, "Bind"), "cn=*,dc=example,dc=com"), (3, 2));
    // Comparisons are answers.
    assert_eq!(row(&result, "Compare")["failed"], 0);
    let text = std::fs::read_to_string(ops).unwrap();
    for status in [
        "invalidCreds",
        "unwilling",
        "entryExists",
        "noSuchObject",
        "compareTrue",
        "compareFalse",
        "canceled",
    ] {
        assert_eq!(text.matches(&format!(",{status},")).count(), 1, "{status}: {text}");
    }
    assert!(!text.contains("user1") && !text.contains("secret"));
    // tshark has times of entries, too: frames with some are left out.
    let dissector = Dissector { file: &file, port: address.port(), protocol: "ldap" };
    let ends = "ldap.time && !(ldap.protocolOp == 4) && !(ldap.protocolOp == 25)";
    let found = dissector.agrees(ends, "ldap.time") as u64;
    assert!((sum / 2..=sum).contains(&found), "{found} of {sum}");
}

/// Behind StartTLS the requests are in records, which the client's secrets open.
#[test]
fn requests_go_on_behind_an_agreement_on_tls() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let keys = folder.path().join("keys.log").display().to_string();
    let (log, url) = (format!("SSLKEYLOGFILE={keys}"), format!("ldap://{address}"));
    let search = ["ldapsearch", "-x", "-ZZ", "-H", &url, "-s", "base", "-b", ""];
    let (_, file) = recorded(address, folder.path(), || {
        succeed(search[0], &[&search[1..2], &search[3..]].concat());
        succeed("env", &[&[log.as_str(), "LDAPTLS_REQCERT=never"][..], &search].concat())
    });
    let file = file.to_str().unwrap();
    for (arguments, expected) in [
        (&[file, "--keylog", &keys][..], &[("StartTLS", 1), ("Bind", 2), ("Search", 2)][..]),
        (&[file], &[("StartTLS", 1), ("Bind", 1), ("Search", 1)]),
    ] {
        let result = analyze(arguments);
        for &(operation, count) in expected {
            let row = row(&result, operation);
            assert_eq!((&row["operations"], &row["failed"]), (&count.into(), &0.into()), "{row:#}");
            // Also beside a connection whose rest nobody can read.
            assert_eq!(row["protocol"], "ldap");
        }
        assert_eq!(result["streams"]["mistaken"], 0);
    }
}
