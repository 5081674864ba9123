//! PostgreSQL and pgbench: simple and prepared statements, and pipelines.

use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::{analyzed, free_address, row};
use crate::common::daemon::{Daemon, PATIENCE};
use crate::common::live::may_capture;
use crate::common::succeed;

/// The programs of the newest PostgreSQL.
pub(super) fn program(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL; `make setup` installs it");
    let newest = versions.flatten().map(|entry| entry.path()).max().expect("a version");
    newest.join("bin").join(name)
}

/// A command as the user of PostgreSQL, which does not run as root.
fn as_postgres(name: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program(name));
    command
}

pub(super) fn start(folder: &Path, address: SocketAddr) -> Daemon {
    start_with(folder, address, &[])
}

/// Starts a server with further arguments.
pub(super) fn start_with(folder: &Path, address: SocketAddr, arguments: &[&str]) -> Daemon {
    let data = folder.join("data");
    std::fs::set_permissions(folder, std::fs::Permissions::from_mode(0o777)).unwrap();
    let made = as_postgres("initdb")
        .args(["-A", "trust", "-U", "postgres", "--no-sync", "-D"])
        .arg(&data)
        .stdout(Stdio::null())
        .status()
        .unwrap();
    assert!(made.success());
    let mut server = as_postgres("postgres");
    server
        .arg("-D")
        .arg(&data)
        .args(["-F", "-h", "127.0.0.1", "-p", &address.port().to_string(), "-k"])
        .arg(folder)
        .args(arguments);
    let server = Daemon::start(&mut server, address);
    // It listens before it has read its files, and refuses sessions until then ("is starting up").
    let began = Instant::now();
    let is_ready = || {
        let mut question = Command::new(program("pg_isready"));
        question.args(["-q", "-h", "127.0.0.1", "-p", &address.port().to_string()]);
        question.status().expect("pg_isready").success()
    };
    while !is_ready() {
        assert!(began.elapsed() < PATIENCE, "PostgreSQL on {address} accepts no session");
        std::thread::sleep(Duration::from_millis(20));
    }
    server
}

#[test]
fn every_statement_is_an_operation() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let _server = start(folder.path(), address);
    let port = address.port().to_string();
    let pgbench = program("pgbench").display().to_string();
    let to = ["-h", "127.0.0.1", "-p", &port, "-U", "postgres", "postgres"];
    let bench = |arguments: &[&str]| succeed(&pgbench, &[arguments, &to[..]].concat());
    bench(&["-i", "-q", "-s", "1"]);
    // What pgbench asks before its transactions are statements, too.
    let statement = "SELECT abalance FROM pgbench_accounts WHERE aid = ?";
    for mode in ["simple", "extended", "prepared"] {
        let (_, result) = analyzed(address, &[], || bench(&["-n", "-S", "-M", mode, "-t", "300", "-c", "4"]));
        let row = row(&result, "SELECT");
        assert_eq!(row["protocol"], "postgres");
        let keys = row["keys"].as_array().unwrap();
        let own: u64 = keys
            .iter()
            .filter(|key| key["name"].as_str().unwrap().replace("$1", "?").contains(statement))
            .map(|key| key["operations"].as_u64().unwrap())
            .sum();
        assert_eq!(own, 1200, "{mode}: {keys:#?}");
        assert_eq!((&row["failed"], &row["overlapping"]), (&0.into(), &0.into()));
    }
    for pipelined in [1_usize, 4, 16] {
        let script = folder.path().join("pipeline.sql");
        let statements = "select 12345;\n".repeat(pipelined);
        std::fs::write(&script, format!("\\startpipeline\n{statements}\\endpipeline\n")).unwrap();
        let arguments = ["-n", "-M", "prepared", "-t", "100", "-f", script.to_str().unwrap()];
        let (_, result) = analyzed(address, &[], || bench(&arguments));
        let row = row(&result, "SELECT");
        let keys = row["keys"].as_array().unwrap();
        let own = keys.iter().find(|key| key["name"] == "select ?;").unwrap_or_else(|| panic!("{keys:#?}"));
        assert_eq!(own["operations"], 100 * pipelined as u64, "{own:#}");
        assert_eq!(row["in_flight_max"], pipelined, "{row:#}");
    }
}
