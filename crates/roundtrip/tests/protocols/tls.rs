//! TLS 1.2 and 1.3: nginx, PostgreSQL, MariaDB and Redis, with clients that write their secrets.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use super::{analyzed, free_address};
use crate::common::daemon::Daemon;
use crate::common::live::{analyze, captured, may_capture};
use crate::common::nginx::certificate;
use crate::common::{roundtrip, succeed};

/// Version, suite of the client, and of the server (`ssl_conf_command`).
const CASES: [[&str; 3]; 6] = [
    ["TLSv1_3", "-", "TLS_AES_128_GCM_SHA256"],
    ["TLSv1_3", "-", "TLS_AES_256_GCM_SHA384"],
    ["TLSv1_3", "-", "TLS_CHACHA20_POLY1305_SHA256"],
    ["TLSv1_2", "ECDHE-RSA-AES128-GCM-SHA256", "TLS_AES_128_GCM_SHA256"],
    ["TLSv1_2", "ECDHE-RSA-AES256-GCM-SHA384", "TLS_AES_128_GCM_SHA256"],
    ["TLSv1_2", "ECDHE-RSA-CHACHA20-POLY1305", "TLS_AES_128_GCM_SHA256"],
];

/// A folder with a certificate, which any user can read.
struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        use std::os::unix::fs::PermissionsExt as _;
        let folder = tempfile::tempdir().unwrap();
        certificate(folder.path(), "DNS:shop.example");
        std::fs::set_permissions(folder.path(), std::fs::Permissions::from_mode(0o777)).unwrap();
        Self { folder }
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// A web server with TLS at the first address and without at the second.
    fn nginx(&self, [secure, plain]: [SocketAddr; 2], suite: &str) -> Daemon {
        for (name, bytes) in [("a", 300), ("b", 20), ("large", 100_000)] {
            std::fs::write(self.folder.path().join(name), vec![b'x'; bytes]).unwrap();
        }
        let path = self.folder.path().display();
        // Each path has an answer of its own.
        let letters: String = ('a'..='t')
            .zip(400..)
            .map(|(letter, code)| format!("location = /{letter}/{code} {{ return {code} 'an answer'; }}\n"))
            .collect();
        let folders: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {path}/{name};\n"))
            .concat();
        let text = format!(
            "user root; daemon off; master_process off; pid {path}/pid; error_log {path}/error.log;
             events {{}}
             http {{
                 access_log off; {folders}
                 server {{
                     listen {secure} ssl http2; listen {plain};
                     ssl_certificate {path}/cert.pem; ssl_certificate_key {path}/key.pem;
                     ssl_protocols TLSv1.2 TLSv1.3; ssl_session_cache shared:tests:1m; ssl_ciphers ALL; ssl_conf_command Ciphersuites {suite};
                     root {path};
                     location /post {{ return 200 'stored'; }}
                     {letters}
                 }}
             }}"
        );
        std::fs::write(self.path("nginx.conf"), text).unwrap();
        let mut server = Command::new("nginx");
        server.env("PATH", format!("{}:/usr/sbin:/sbin", std::env::var("PATH").unwrap_or_default()));
        Daemon::start(server.args(["-c", &self.path("nginx.conf")]), secure)
    }
}

/// Runs the client of a protocol.
fn client(protocol: &str, address: SocketAddr, count: usize, secure: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocols/tls_client.py");
    let (port, count) = (address.port().to_string(), count.to_string());
    let to = [script.to_str().unwrap(), protocol, "127.0.0.1", &port, &count];
    assert_eq!(succeed("python3", &[&to[..], secure].concat()).trim(), count);
}

/// What is the same with and without TLS: operations, how many failed, their keys and their sizes.
fn told(result: &Value) -> Vec<String> {
    let details = |rows: &Value| -> Vec<String> {
        let rows = rows.as_array().unwrap();
        let mut rows: Vec<String> =
            rows.iter().map(|d| format!("{} {}", d["name"], d["operations"])).collect();
        rows.sort();
        rows
    };
    let row = |row: &Value| {
        let [keys, sizes] = [&row["keys"], &row["sizes"]].map(details);
        let of = ["protocol", "operation", "operations", "failed"].map(|name| row[name].to_string());
        format!("{of:?} {keys:?} {sizes:?}")
    };
    let mut rows: Vec<String> = result["services"].as_array().unwrap().iter().map(row).collect();
    rows.sort();
    rows
}

fn sum(result: &Value) -> u64 {
    result["services"].as_array().unwrap().iter().map(|row| row["operations"].as_u64().unwrap()).sum()
}

fn has_note(result: &Value, text: &str) -> bool {
    result["notes"].as_array().unwrap().iter().any(|note| note.as_str().unwrap().contains(text))
}

#[test]
fn requests_in_tls_are_those_without() {
    const REQUESTS: usize = 60;
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let mut plain = None;
    for [version, suite, of_server] in CASES {
        let _server = place.nginx(addresses, of_server);
        let plain = plain.get_or_insert_with(|| {
            told(&analyzed(addresses[1], &[], || client("http", addresses[1], REQUESTS, &["plain"])).1)
        });
        let log = place.path(of_server.to_owned().as_str()) + suite;
        let (_, result) = analyzed(addresses[0], &["--keylog", &log], || {
            client("http", addresses[0], REQUESTS, &[&log, version, suite]);
        });
        assert_eq!(sum(&result), REQUESTS as u64, "{suite} {of_server}");
        assert_eq!(&told(&result), plain, "{suite} {of_server}");
        assert!(has_note(&result, "is asked for shop.example (http/1.1) by TLS"), "{}", result["notes"]);
        assert_eq!(result["streams"]["unmatched"], 0);
    }
}

#[test]
fn without_secrets_there_are_turns_and_no_requests() {
    const REQUESTS: usize = 40;
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[0][2]);
    let log = place.path("other.log");
    client("http", addresses[0], 1, &[&log, "TLSv1_3", "-"]);
    for [version, suite, _] in [CASES[0], CASES[3]] {
        for (arguments, note) in [
            (&[][..], "--keylog FILE decrypts them"),
            (&["--keylog", &log], "the key log has no secret for them"),
        ] {
            let (_, result) = analyzed(addresses[0], arguments, || {
                client("http", addresses[0], REQUESTS, &["-", version, suite]);
            });
            let rows = result["services"].as_array().unwrap();
            let [row] = &rows[..] else { panic!("{rows:#?}") };
            // The client waits for each answer: the handshake, tickets and alerts are no turns.
            assert_eq!((&row["protocol"], &row["operation"]), (&"TLS".into(), &"turn".into()));
            assert_eq!(row["operations"], REQUESTS, "{version}");
            assert_eq!(row["keys"][0]["name"], "shop.example (http/1.1)");
            assert!(has_note(&result, note), "{}", result["notes"]);
            assert_eq!((&result["streams"]["unanswered"], &row["overlapping"]), (&0.into(), &0.into()));
        }
    }
}

#[test]
fn streams_of_http_2_in_tls_are_operations() {
    const REQUESTS: u64 = 2000;
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[0][2]);
    for streams in ["1", "20"] {
        let log = place.path(&format!("h2-{streams}"));
        let urls = ["a", "b"].map(|path| format!("https://{}/{path}", addresses[0]));
        let (report, result) = analyzed(addresses[0], &["--keylog", &log], || {
            let (log, count) = (format!("SSLKEYLOGFILE={log}"), REQUESTS.to_string());
            succeed("env", &[&log, "h2load", "-n", &count, "-c", "3", "-m", streams, &urls[0], &urls[1]])
        });
        assert!(report.contains(&format!("{REQUESTS} done, {REQUESTS} succeeded")), "{report}");
        let row = super::row(&result, "GET");
        assert_eq!((&row["protocol"], &row["operations"]), (&"http2".into(), &REQUESTS.into()), "{row:#}");
        assert_eq!((&row["failed"], &row["overlapping"]), (&0.into(), &0.into()));
    }
}

#[test]
fn resumed_sessions_are_decrypted() {
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[0][2]);
    for [version, suite, _] in [CASES[0], CASES[3]] {
        let log = place.path(version);
        let (_, result) = analyzed(addresses[0], &["--keylog", &log], || {
            client("resumed", addresses[0], 6, &[&log, version, suite]);
        });
        let row = super::row(&result, "GET");
        assert_eq!((&row["protocol"], &row["operations"]), (&"http".into(), &6.into()), "{version}: {row:#}");
    }
}

/// Some clients, such as Go's, log the secret of a session's first handshake alone (TLS 1.2).
#[test]
fn a_session_is_decrypted_by_the_secret_of_its_first_handshake() {
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[3][2]);
    let [version, suite, _] = CASES[3];
    for by in ["resumed", "resumed-by-identifier"] {
        let [log, first, file] = ["log", "first", "capture"].map(|name| place.path(&format!("{by}.{name}")));
        captured(
            "lo",
            addresses[0].port(),
            Path::new(&file),
            || Ok(()),
            || {
                client(by, addresses[0], 6, &[&log, version, suite]);
            },
        );
        let text = std::fs::read_to_string(&log).unwrap();
        let secrets: Vec<&str> = text.lines().filter(|line| line.starts_with("CLIENT_RANDOM")).collect();
        assert_eq!(secrets.len(), 6, "{by}: OpenSSL logs all");
        for (kept, expected) in [(0, 6), (5, 1)] {
            std::fs::write(&first, secrets[kept]).unwrap();
            let result = analyze(&[&file, "--keylog", &first]);
            let row = super::row(&result, "GET");
            let found = (&row["protocol"], &row["operations"]);
            assert_eq!(found, (&"http".into(), &expected.into()), "{by}, {kept}: {row:#}");
        }
    }
}

#[test]
fn a_refused_handshake_is_a_failed_operation() {
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[0][2]);
    let to = addresses[0].to_string();
    let arguments =
        ["s_client", "-connect", &to, "-servername", "old.example", "-tls1_1", "-cipher", "ALL:@SECLEVEL=0"];
    let (output, result) = analyzed(addresses[0], &[], || {
        Command::new("openssl").args(arguments).stdin(std::process::Stdio::null()).output().unwrap()
    });
    assert!(String::from_utf8_lossy(&output.stderr).contains("alert protocol version"), "{output:?}");
    let row = super::row(&result, "HANDSHAKE");
    assert_eq!((&row["operations"], &row["failed"], &row["protocol"]), (&1.into(), &1.into(), &"TLS".into()));
    assert_eq!(row["keys"][0]["name"], "old.example");
    assert_eq!(result["slowest"][0]["status"], "tls protocol_version");
    assert!(!has_note(&result, "encrypted"), "nothing was: {}", result["notes"]);
}

#[test]
fn a_capture_may_hold_its_secrets() {
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[0][2]);
    let [log, file, both] = ["log", "capture.pcapng", "both.pcapng"].map(|name| place.path(name));
    captured(
        "lo",
        addresses[0].port(),
        Path::new(&file),
        || Ok(()),
        || {
            client("http", addresses[0], 10, &[&log, "TLSv1_3", "-"]);
        },
    );
    succeed("editcap", &["--inject-secrets", &format!("tls,{log}"), &file, &both]);
    let with_log = told(&analyze(&["--keylog", &log, &file]));
    assert_eq!(told(&analyze(&[&both])), with_log);
    assert!(with_log.concat().contains("GET"), "{with_log:?}");
    // A log that is wrong in places is used, and one without anything is an error.
    let text = std::fs::read_to_string(&log).unwrap();
    std::fs::write(place.path("spoiled"), format!("client random\n{text}CLIENT_RANDOM 12 zz\n")).unwrap();
    for (name, code, error) in [
        ("spoiled", None, "line 1: it does not begin with a label"),
        ("cert.pem", Some(2), "has no secret of TLS"),
    ] {
        let output = roundtrip().args(["analyze", "--keylog", &place.path(name), &file]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert!(text.contains(error), "{name}: {text}");
        assert!(code.is_none_or(|code| output.status.code() == Some(code)), "{name}: {:?}", output.status);
    }
}

#[test]
fn databases_go_on_in_tls() {
    type Start = fn(&Place, SocketAddr) -> Daemon;
    let Some(_alone) = may_capture() else { return };
    let place = Place::new();
    let servers: [(&str, Start); 3] = [("redis", redis), ("postgres", postgres), ("mysql", mysql)];
    for (protocol, start) in servers {
        let address = free_address();
        let _server = start(&place, address);
        let plain_address =
            if protocol == "redis" { SocketAddr::new(address.ip(), address.port() + 1) } else { address };
        let (_, plain) = analyzed(plain_address, &[], || client(protocol, plain_address, 40, &["plain"]));
        let plain = told(&plain);
        assert!(plain.concat().contains(protocol), "{plain:?}");
        for [version, suite, _] in [CASES[0], CASES[4]] {
            let log = place.path(&format!("{protocol}-{version}"));
            let (_, result) = analyzed(address, &["--keylog", &log], || {
                client(protocol, address, 40, &[&log, version, suite]);
            });
            assert_eq!(told(&result), plain, "{version}");
        }
    }
}

fn redis(place: &Place, address: SocketAddr) -> Daemon {
    let [tls, plain] = [address.port(), address.port() + 1].map(|port| port.to_string());
    let mut server = Command::new("redis-server");
    let [cert, key, dir] = ["cert.pem", "key.pem", ""].map(|name| place.path(name));
    server.args(["--bind", "127.0.0.1", "--tls-port", &tls, "--port", &plain, "--save", "", "--dir", &dir]);
    server.args(["--tls-cert-file", &cert, "--tls-key-file", &key, "--tls-auth-clients", "no"]);
    Daemon::start(&mut server, address)
}

fn postgres(place: &Place, address: SocketAddr) -> Daemon {
    let folder = PathBuf::from(place.path("postgres"));
    std::fs::create_dir(&folder).unwrap();
    for name in ["cert.pem", "key.pem"] {
        std::fs::copy(place.path(name), folder.join(name)).unwrap();
    }
    succeed("chown", &["-R", "postgres", folder.to_str().unwrap()]);
    succeed("chmod", &["600", folder.join("key.pem").to_str().unwrap()]);
    let [cert, key] =
        ["cert", "key"].map(|name| format!("ssl_{name}_file={}", folder.join(name).display()) + ".pem");
    super::postgres::start_with(&folder, address, &["-c", "ssl=on", "-c", &cert, "-c", &key])
}

fn mysql(place: &Place, address: SocketAddr) -> Daemon {
    let folder = PathBuf::from(place.path("mysql"));
    std::fs::create_dir(&folder).unwrap();
    let [cert, key] = ["cert", "key"].map(|name| format!("--ssl-{name}={}.pem", place.path(name)));
    super::mysql::start_with(&folder, address, &[&cert, &key])
}

/// Each packet behind the handshake in turn is not in the capture: only what it touches is missing, and each answer is that of its
/// request.
#[test]
fn a_packet_that_the_capture_has_lost_costs_its_operations() {
    const REQUESTS: u64 = 20;
    let Some(_alone) = may_capture() else { return };
    let (place, addresses) = (Place::new(), [free_address(), free_address()]);
    let _server = place.nginx(addresses, CASES[0][2]);
    for [version, suite, _] in [CASES[0], CASES[3]] {
        let [log, file, less] = ["keys", "whole.pcapng", "less.pcap"].map(|name| place.path(name));
        captured(
            "lo",
            addresses[0].port(),
            Path::new(&file),
            || Ok(()),
            || {
                client("letters", addresses[0], REQUESTS as usize, &[&log, version, suite]);
            },
        );
        let frames = frames(&file);
        let with_data: Vec<usize> = (0..frames.len()).filter(|&n| payload(&frames[n].1) > 0).collect();
        // Hellos, the rest of the handshake, tickets; then a packet for each request and each answer.
        let first = with_data.len() - 2 * REQUESTS as usize;
        for &lost in &with_data[first..] {
            write(&less, frames.iter().enumerate().filter(|(n, _)| *n != lost).map(|(_, frame)| frame));
            let result = analyze(&["--keylog", &log, "--slowest", "100", &less]);
            let slowest = result["slowest"].as_array().unwrap();
            for op in slowest {
                let key = op["key"].as_str().unwrap();
                let own: String = key.chars().skip(1).take(1).collect();
                let code: u8 = op["status"].as_str().unwrap().parse::<u16>().unwrap().abs_diff(400) as u8;
                assert_eq!(own, char::from(b'a' + code).to_string(), "{version} without {lost}: {op}");
            }
            assert!(slowest.len() as u64 >= REQUESTS - 1, "{version} without {lost}: {}", slowest.len());
        }
        write(&less, frames.iter());
        assert_eq!(sum(&analyze(&["--keylog", &log, &less])), REQUESTS);
    }
}

/// Time and bytes of each frame of a capture of loopback, each packet once.
fn frames(file: &str) -> Vec<(u64, Vec<u8>)> {
    let mut capture = capture::file::CaptureFile::open(Path::new(file)).unwrap();
    let mut frames: Vec<(u64, Vec<u8>)> = Vec::new();
    while let Some(frame) = capture.next_frame().unwrap() {
        if frame.outgoing != Some(true) && !frames.iter().any(|(_, known)| known == frame.data) {
            frames.push((frame.time_ns, frame.data.to_vec()));
        }
    }
    frames
}

/// Bytes of TCP's payload in an Ethernet frame with IPv4.
fn payload(frame: &[u8]) -> usize {
    let total = usize::from(u16::from_be_bytes([frame[16], frame[17]]));
    let header = usize::from(frame[14] & 15) * 4;
    total - header - usize::from(frame[14 + header + 12] >> 4) * 4
}

fn write<'a>(file: &str, frames: impl Iterator<Item = &'a (u64, Vec<u8>)>) {
    let mut out = Vec::new();
    // pcap with nanoseconds and Ethernet.
    for word in [0xa1b2_3c4d_u32, 4 << 16 | 2, 0, 0, 262_144, 1] {
        out.extend(word.to_le_bytes());
    }
    for (ns, bytes) in frames {
        let (seconds, rest) = (ns / 1_000_000_000, ns % 1_000_000_000);
        for word in [seconds as u32, rest as u32, bytes.len() as u32, bytes.len() as u32] {
            out.extend(word.to_le_bytes());
        }
        out.extend(bytes);
    }
    std::fs::write(file, out).unwrap();
}
