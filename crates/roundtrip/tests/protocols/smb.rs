//! Samba's server, with impacket and smbclient.

use std::io::Write as _;
use std::net::SocketAddr;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;

use super::wireshark::{Dissector, recorded};
use super::{free_address, row};
use crate::common::daemon::Daemon;
use crate::common::live::{analyze, may_capture};
use crate::common::{random_file, succeed};

/// Debian's, which has its modules.
const PYTHON: &str = "/usr/bin/python3";
const PROGRAM: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/protocols/smb_client.py");

/// The server's own names of commands.
const COMMANDS: [(&str, &str); 17] = [
    ("negprot", "NEGOTIATE"),
    ("sesssetup", "SESSION_SETUP"),
    ("logoff", "LOGOFF"),
    ("tcon", "TREE_CONNECT"),
    ("tdis", "TREE_DISCONNECT"),
    ("create", "CREATE"),
    ("close", "CLOSE"),
    ("flush", "FLUSH"),
    ("read", "READ"),
    ("write", "WRITE"),
    ("lock", "LOCK"),
    ("ioctl", "IOCTL"),
    ("keepalive", "ECHO"),
    ("find", "QUERY_DIRECTORY"),
    ("notify", "CHANGE_NOTIFY"),
    ("getinfo", "QUERY_INFO"),
    ("setinfo", "SET_INFO"),
];

/// A server with one user and one share, which counts commands.
struct Samba {
    _server: Daemon,
    configuration: String,
}

impl Samba {
    fn start(folder: &Path, address: SocketAddr) -> Self {
        let path = folder.display();
        let own = ["private", "lock", "state", "cache", "pid", "ncalrpc", "data"];
        own.iter().for_each(|name| std::fs::create_dir(folder.join(name)).unwrap());
        let text = format!(
            "[global]\nserver role = standalone server\nsmb ports = {}\ninterfaces = 127.0.0.1/8\n\
             bind interfaces only = yes\ndisable netbios = yes\nload printers = no\ndisable spoolss = yes\n\
             private dir = {path}/private\nlock directory = {path}/lock\nstate directory = {path}/state\n\
             cache directory = {path}/cache\npid directory = {path}/pid\nncalrpc dir = {path}/ncalrpc\n\
             usershare path = {path}/none\nlog file = {path}/log\n\
             passdb backend = smbpasswd:{path}/private/passwords\nsmbd profiling level = count\n\
             server min protocol = SMB2_02\n\
             [data]\npath = {path}/data\nread only = no\n",
            address.port()
        );
        let configuration = folder.join("smb.conf").display().to_string();
        std::fs::write(&configuration, text).unwrap();
        let mut passwords = Command::new("smbpasswd")
            .args(["-c", &configuration, "-s", "-a", "root"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("smbpasswd; `make setup` installs it");
        passwords.stdin.take().unwrap().write_all(b"secret\nsecret\n").unwrap();
        assert!(passwords.wait().unwrap().success());
        let mut server = Command::new("/usr/sbin/smbd");
        server.args(["--foreground", "--no-process-group", "--configfile", &configuration]);
        // At its end it ends all of its group.
        server.process_group(0);
        Self { _server: Daemon::start(&mut server, address), configuration }
    }

    /// How many commands of each kind the server has had.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        let text = succeed("smbstatus", &["-P", "--configfile", &self.configuration]);
        let count = |name: &str| {
            let heading = format!("smb2_{name}_count:");
            let line = text.lines().find_map(|line| line.strip_prefix(&heading));
            line.and_then(|line| line.trim().parse().ok()).unwrap_or_else(|| panic!("no {name}: {text}"))
        };
        COMMANDS.map(|(theirs, ours)| (ours, count(theirs))).to_vec()
    }
}

/// Asserts that the operations are as many of each kind as the server has had between two counts, and returns their sum.
#[track_caller]
fn agrees(result: &Value, before: &[(&str, u64)], after: &[(&str, u64)]) -> u64 {
    let mut sum = 0;
    for ((operation, from), (_, to)) in before.iter().zip(after) {
        let rows = result["services"].as_array().unwrap();
        let found = rows.iter().find(|row| row["operation"] == *operation);
        let count = found.map_or(0, |row| row["operations"].as_u64().unwrap());
        assert_eq!(count, to - from, "{operation}: {found:#?}");
        sum += count;
    }
    assert_eq!((&result["streams"]["unmatched"], &result["streams"]["mistaken"]), (&0.into(), &0.into()));
    sum
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
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let server = Samba::start(folder.path(), address);
    let before = server.counts();
    let port = address.port().to_string();
    let (_, file) = recorded(address, folder.path(), || succeed(PYTHON, &[PROGRAM, &port]));
    let after = server.counts();
    let ops = folder.path().join("ops.csv").display().to_string();
    let result = analyze(&[file.to_str().unwrap(), "--ops", &ops]);
    let sum = agrees(&result, &before, &after);
    assert!(sum > 200, "{sum}");
    let read = row(&result, "READ");
    assert_eq!(read["protocol"], "smb");
    assert_eq!(read["in_flight_max"], 8, "{read:#}");
    assert_eq!(of_key(read, "/file:n.txt"), (134, 0));
    assert_eq!(of_key(row(&result, "WRITE"), "/file:n.txt"), (20, 0));
    assert_eq!(of_key(row(&result, "CREATE"), "/none.txt"), (1, 1));
    assert_eq!(of_key(row(&result, "TREE_CONNECT"), "/data"), (1, 0));
    // The steps of a log-in, and the end of a folder, are answers.
    assert_eq!(row(&result, "SESSION_SETUP")["failed"], 0);
    assert_eq!(row(&result, "QUERY_DIRECTORY")["failed"], 0);
    assert_eq!(result["streams"]["unanswered"], 0);
    let text = std::fs::read_to_string(ops).unwrap();
    let statuses = [("NAME_NOT_FOUND", 1), ("NO_MORE_FILES", 1), ("LOCK_REFUSED", 1), ("NOTIFY_CLEANUP", 1)];
    for (status, count) in statuses {
        assert_eq!(text.matches(&format!(",{status},")).count(), count, "{status}: {text}");
    }
    let dissector = Dissector { file: &file, port: address.port(), protocol: "nbss" };
    // That a request is pending is no answer.
    let found = dissector.agrees("smb2.time && !(smb2.nt_status == 0x00000103)", "smb2.time");
    // It does not take a negotiation of SMB 1 for one of SMB 2.
    assert!((sum - 2..=sum).contains(&(found as u64)), "{found} of {sum}");
}

/// smbclient keeps several requests of a file in flight: of this dialect, 64 KiB each.
#[test]
fn transfers_are_counted_request_by_request() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let server = Samba::start(folder.path(), address);
    let before = server.counts();
    let (port, large, copy) =
        (address.port().to_string(), folder.path().join("large"), folder.path().join("copy"));
    random_file(&large, 6 << 20);
    let commands = format!("put {} large; get large {}; ls; del large", large.display(), copy.display());
    let client = ["//127.0.0.1/data", "-p", &port, "-U", "root%secret", "-s", &server.configuration];
    let how = ["--max-protocol=SMB2_02", "-c", &commands];
    let (_, file) = recorded(address, folder.path(), || succeed("smbclient", &[&client[..], &how].concat()));
    let after = server.counts();
    assert_eq!(std::fs::read(&large).unwrap(), std::fs::read(&copy).unwrap());
    let result = analyze(&[file.to_str().unwrap()]);
    agrees(&result, &before, &after);
    for operation in ["READ", "WRITE"] {
        let row = row(&result, operation);
        assert_eq!((of_key(row, "/large"), &row["operations"]), ((96, 0), &96.into()), "{row:#}");
        assert!(row["in_flight_max"].as_u64().unwrap() > 1, "{row:#}");
    }
}

/// What is encrypted is followed as turns, and said to be.
#[test]
fn encrypted_requests_are_turns() {
    let Some(_alone) = may_capture() else { return };
    let (folder, address) = (tempfile::tempdir().unwrap(), free_address());
    let server = Samba::start(folder.path(), address);
    let before = server.counts();
    let port = address.port().to_string();
    let client = ["//127.0.0.1/data", "-p", &port, "-U", "root%secret", "-s", &server.configuration];
    let secret = ["--client-protection=encrypt", "-c", "ls; ls; ls"];
    let (_, file) =
        recorded(address, folder.path(), || succeed("smbclient", &[&client[..], &secret].concat()));
    let after = server.counts();
    let result = analyze(&[file.to_str().unwrap()]);
    let of = |counts: &[(&str, u64)], name| counts.iter().find(|(own, _)| *own == name).unwrap().1;
    for operation in ["NEGOTIATE", "SESSION_SETUP"] {
        assert_eq!(row(&result, operation)["operations"], of(&after, operation) - of(&before, operation));
    }
    let rows = result["services"].as_array().unwrap();
    assert!(
        rows.iter().all(|row| row["operation"] != "CREATE" && row["operation"] != "TREE_CONNECT"),
        "{rows:#?}"
    );
    let notes = result["notes"].to_string();
    assert!(notes.contains("encrypted SMB is not decoded: times are per turn"), "{notes}");
    assert_eq!(result["streams"]["mistaken"], 0);
}
