//! MariaDB and mysqlslap.

use std::io::Read;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};

use super::{analyzed, free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::may_capture;
use crate::common::succeed;

/// Starts a server with further arguments.
pub(super) fn start_with(folder: &Path, address: SocketAddr, arguments: &[&str]) -> Daemon {
    let data = format!("--datadir={}", folder.join("data").display());
    let made = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--user=root", "--auth-root-authentication-method=normal", &data])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .expect("MariaDB; `make setup` installs it");
    assert!(made.success());
    let port = format!("--port={}", address.port());
    let mut server = Command::new("mariadbd");
    let socket = format!("--socket={}", folder.join("socket").display());
    server.args(["--no-defaults", "--user=root", "--bind-address=127.0.0.1", &data, &port, &socket]);
    Daemon::start(server.args(arguments), address)
}

#[test]
fn every_query_is_an_operation() {
    const QUERIES: u64 = 1200;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start_with(folder.path(), address, &[]);
    let port = format!("--port={}", address.port());
    let queries = format!("--number-of-queries={QUERIES}");
    let arguments = [
        "--no-defaults",
        "--protocol=tcp",
        "--host=127.0.0.1",
        &port,
        "--user=root",
        "--concurrency=4",
        "--create-schema=mysql",
        "--no-drop",
        "--query=SELECT 4711, 'secret' FROM DUAL",
        &queries,
    ];
    let (_, result) = analyzed(address, &[], || succeed("mariadb-slap", &arguments));
    let row = row(&result, "SELECT");
    assert_eq!(row["protocol"], "mysql");
    let keys = row["keys"].as_array().unwrap();
    let own =
        keys.iter().find(|key| key["name"] == "SELECT ? FROM DUAL").unwrap_or_else(|| panic!("{keys:#?}"));
    assert_eq!(own["operations"], QUERIES);
    assert_eq!(own["failed"], 0);
    assert!((1..=4).contains(&row["in_flight_max"].as_u64().unwrap()), "{row:#}");
    // A number may have these digits by chance.
    let shown = texts(&result).join("\n");
    assert!(
        shown.contains("SELECT ? FROM DUAL") && !shown.contains("secret") && !shown.contains("4711"),
        "{shown}"
    );
}

/// A server that is full says so instead of greeting: its clients have sent nothing, and see an error.
#[test]
fn every_refused_connection_is_a_failed_operation() {
    const CONNECTIONS: usize = 30;
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start_with(folder.path(), address, &["--max-connections=10"]);
    let mut refused = 0;
    let (_, result) = analyzed(address, &[], || {
        let first_byte = |stream: &mut TcpStream| {
            let mut bytes = [0; 5];
            stream.read_exact(&mut bytes).unwrap();
            bytes[4]
        };
        let mut kept: Vec<TcpStream> =
            (0..CONNECTIONS).map(|_| TcpStream::connect(address).unwrap()).collect();
        refused = kept.iter_mut().map(first_byte).filter(|&byte| byte == 0xff).count() as u64;
    });
    assert!(refused > 10, "{refused}");
    let row = row(&result, "connect");
    let counts = ["operations", "failed"].map(|name| row[name].as_u64().unwrap());
    assert_eq!((&row["protocol"], counts), (&"mysql".into(), [refused; 2]), "{row:#}");
}

/// All strings of a result.
fn texts(value: &serde_json::Value) -> Vec<&str> {
    match value {
        serde_json::Value::String(text) => vec![text],
        serde_json::Value::Array(all) => all.iter().flat_map(texts).collect(),
        serde_json::Value::Object(all) => all.values().flat_map(texts).collect(),
        _ => Vec::new(),
    }
}
