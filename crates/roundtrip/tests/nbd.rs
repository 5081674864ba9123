//! Disks of real NBD servers: nbdkit, and QEMU's storage daemon with an image in QEMU's own format.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use common::nbd::Server;
use common::{Target, UNMAP_SINGLE, UNMAP_UNTIL_END, random_file, succeed};
use iscsi::initiator::Direction;
use load::initiator::session::{Session, SessionOptions};
use nix::sys::signal::Signal;

const WRITE: [u8; 16] = [0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];
const READ: [u8; 16] = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0];

fn open(target: &Target) -> Session {
    let mut session = Session::open(&target.url(0).parse().unwrap(), &SessionOptions::default()).unwrap();
    let _ = session.command([0; 16], Direction::None);
    session
}

/// Copies an image of 16 MiB to a disk of that size and back, and runs libiscsi's whole suite on it.
fn comes_back(disk: &str) {
    let folder = tempfile::tempdir().unwrap();
    let (image, back) = (folder.path().join("image"), folder.path().join("back"));
    random_file(&image, 16 << 20);
    let [image, back] = [&image, &back].map(|path| path.to_str().unwrap());
    let disk = format!("0={disk}");
    let target = Target::start(&["--lun", &disk]);
    let url = target.url(0);
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, &url]);
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", &url, back]);
    let (image, back) = (std::fs::read(image).unwrap(), std::fs::read(back).unwrap());
    assert!(image[..] == back[..image.len()], "{disk}");
    target.stop();
    for (family, contradict) in [("SCSI", &[UNMAP_SINGLE, UNMAP_UNTIL_END][..]), ("iSCSI", &[])] {
        let target = Target::start(&["--lun", &disk]);
        let url = target.url(0);
        common::suite_passes_but(contradict, family, &[&url, &url]);
    }
}

#[test]
fn data_copied_to_exports_reads_back_and_the_suite_passes() {
    let folder = tempfile::tempdir().unwrap();
    let memory = Server::nbdkit(folder.path(), &["memory", "16M"]);
    let image = folder.path().join("image.qcow2");
    succeed("qemu-img", &["create", "-q", "-f", "qcow2", image.to_str().unwrap(), "16M"]);
    let qemu = Server::qemu(folder.path(), "qcow2", &image);
    std::thread::scope(|scope| {
        scope.spawn(|| comes_back(&format!("{},connections=2", memory.disk(""))));
        scope.spawn(|| comes_back(&qemu.disk("disk")));
    });
}

/// Commands that are longer than what a connection may gather, and than what a server takes at once.
#[test]
fn the_longest_commands_are_carried_out() {
    let folder = tempfile::tempdir().unwrap();
    let policy = [
        "--filter=blocksize-policy",
        "memory",
        "64M",
        "blocksize-maximum=1M",
        "blocksize-error-policy=error",
    ];
    let server = Server::nbdkit(folder.path(), &policy);
    let target = Target::start(&["--lun", &format!("0={},stats", server.disk(""))]);
    let commands = [
        "write -P 7 0 48M",
        "read -P 7 0 48M",
        "discard 1M 40M",
        "flush",
        "read -P 0 1M 40M",
        "read -P 7 41M 7M",
    ];
    let arguments: Vec<&str> = commands.iter().flat_map(|command| ["-c", command]).collect();
    let text = succeed("qemu-io", &[&["-f", "raw"], &arguments[..], &[&target.url(0)]].concat());
    assert!(!text.contains("failed"), "{text}");
}

/// A server whose extents do not fit the disk's blocks: a block of which a part is allocated is read, and not taken for zeros.
#[test]
fn extents_that_do_not_fit_blocks_lose_no_data() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let written = std::fs::OpenOptions::new().write(true).open(&file).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&written, b"HELLO", 4096).unwrap();
    let words = ["--filter=offset", "file", file.to_str().unwrap(), "offset=512", "range=524288"];
    let server = Server::nbdkit(folder.path(), &words);
    let target = Target::start(&["--lun", &format!("0={},bs=4k", server.disk(""))]);
    let copy = folder.path().join("copy");
    succeed("qemu-img", &["convert", "-f", "raw", "-O", "raw", &target.url(0), copy.to_str().unwrap()]);
    let (disk, copy) = (std::fs::read(&file).unwrap(), std::fs::read(&copy).unwrap());
    assert!(disk[512..512 + 524_288] == copy[..]);
}

/// A server that is away for longer than requests are held fails them with a clear sense, and the session goes on when it is back.
#[test]
fn a_server_that_is_away_fails_requests_after_their_time_and_not_the_session() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("disk");
    std::fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
    let mut server = Server::nbdkit(folder.path(), &["file", file.to_str().unwrap()]);
    let target = Target::start(&["--lun", &format!("0={},hold=1s", server.disk(""))]);
    let mut session = open(&target);
    assert_eq!(session.write(WRITE, &[1; 512]).unwrap().status, 0);
    // Killed and back within the time: nobody sees anything of it.
    server.kill();
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| session.write(WRITE, &[2; 512]).unwrap().status);
        std::thread::sleep(Duration::from_millis(300));
        server.restart();
        assert_eq!(writing.join().unwrap(), 0);
    });
    server.kill();
    let begun = Instant::now();
    let reply = session.write(WRITE, &[3; 512]).unwrap();
    assert!(begun.elapsed() >= Duration::from_millis(900), "{:?}", begun.elapsed());
    assert_eq!((reply.status, reply.sense[2] & 15, reply.sense[12], reply.sense[13]), (2, 0x0b, 8, 1));
    server.restart();
    let until = Instant::now() + Duration::from_secs(10);
    while session.write(WRITE, &[4; 512]).unwrap().status != 0 {
        assert!(Instant::now() < until);
        std::thread::sleep(Duration::from_millis(50));
    }
    assert_eq!(session.command(READ, Direction::In(512)).unwrap().data, [4; 512]);
    let log = target.stop();
    assert!(log.contains("the connection is back") && log.contains("away for 1 s"), "{log}");
}

/// A server that stops answers nothing for as long, and no request is given up: it may still carry them out.
#[test]
fn a_server_that_stands_still_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::nbdkit(folder.path(), &["memory", "1M"]);
    let target = Target::start(&["--lun", &format!("0={},hold=100ms", server.disk(""))]);
    let mut session = open(&target);
    common::stand_still(server.id());
    std::thread::scope(|scope| {
        let writing = scope.spawn(|| session.write(WRITE, &[7; 512]).unwrap().status);
        std::thread::sleep(Duration::from_secs(1));
        assert!(!writing.is_finished());
        server.signal(Signal::SIGCONT);
        assert_eq!(writing.join().unwrap(), 0);
    });
    assert_eq!(session.command(READ, Direction::In(512)).unwrap().data, [7; 512]);
}

#[test]
fn errors_of_the_server_are_told_apart() {
    let folder = tempfile::tempdir().unwrap();
    let trigger = folder.path().join("fail");
    let filter = format!("error-file={}", trigger.display());
    for (error, sense) in [("ENOSPC", (7, 0x27, 7)), ("EIO", (3, 0x0c, 0)), ("EPERM", (7, 0x27, 0))] {
        let _ = std::fs::remove_file(&trigger);
        let name = format!("error={error}");
        let arguments = ["--filter=error", "memory", "1M", &name, "error-rate=100%", &filter];
        let server = Server::nbdkit(folder.path(), &arguments);
        let target = Target::start(&["--lun", &format!("0={}", server.disk(""))]);
        let mut session = open(&target);
        assert_eq!(session.write(WRITE, &[1; 512]).unwrap().status, 0);
        std::fs::write(&trigger, "").unwrap();
        let reply = session.write(WRITE, &[2; 512]).unwrap();
        assert_eq!((reply.sense[2] & 15, reply.sense[12], reply.sense[13]), sense, "{error}");
        std::fs::remove_file(&trigger).unwrap();
        assert_eq!(session.command(READ, Direction::In(512)).unwrap().data, [1; 512], "{error}");
    }
}

/// What cannot be a disk is refused at the start, with its reason.
#[test]
fn refuses_what_cannot_be_served() {
    let folder = tempfile::tempdir().unwrap();
    let image = folder.path().join("image");
    std::fs::File::create(&image).unwrap().set_len(1 << 20).unwrap();
    let server = Server::qemu(folder.path(), "raw", &image);
    let big = tempfile::tempdir().unwrap();
    let policy =
        ["--filter=blocksize-policy", "memory", "1M", "blocksize-minimum=8k", "blocksize-preferred=8k"];
    let big = Server::nbdkit(big.path(), &policy);
    for (disk, reason) in [
        (server.disk("other"), "the server refuses the export 'other': there is no such export"),
        (big.disk(""), "requests must be multiples of 8192 B"),
        ("nbd+unix:///x?socket=/nowhere/at/all".to_owned(), "No such file"),
        ("nbd://127.0.0.1:1/x".to_owned(), "Connection refused"),
        (
            "nbd://no.such.name.example.invalid/x".to_owned(),
            "cannot find the address of 'no.such.name.example.invalid'",
        ),
        (server.disk("disk") + ",size=1M", "option 'size=1M' is not known"),
        (server.disk("disk") + ",connections=0", "option 'connections=0' is not known"),
        (server.disk("disk") + ",hold=60s,hold=2s", "given twice"),
    ] {
        let output = common::roundtrip()
            .args(["target", "--portal", "127.0.0.1:0", "--lun", &format!("0={disk}")])
            .output();
        let output = output.unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(reason), "{disk}: {text}");
    }
}

/// Certificates of an authority of our own, for a name.
fn certificates(folder: &Path, name: &str) {
    let run = |arguments: &[&str]| {
        let output = Command::new("openssl").args(arguments).current_dir(folder).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let key = ["req", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
    run(&[
        &key[..],
        &["-x509", "-days", "2", "-subj", "/CN=authority", "-keyout", "ca-key.pem", "-out", "ca-cert.pem"],
    ]
    .concat());
    for (role, use_of) in [("server", "serverAuth"), ("client", "clientAuth")] {
        let subject = format!("/CN={name}");
        let [own_key, request, own] = ["key", "request", "cert"].map(|part| format!("{role}-{part}.pem"));
        run(&[&key[..], &["-subj", &subject, "-keyout", &own_key, "-out", &request]].concat());
        let more = folder.join("more");
        std::fs::write(&more, format!("subjectAltName=DNS:{name}\nextendedKeyUsage={use_of}\n")).unwrap();
        run(&[
            "x509",
            "-req",
            "-days",
            "2",
            "-in",
            &request,
            "-CA",
            "ca-cert.pem",
            "-CAkey",
            "ca-key.pem",
            "-CAcreateserial",
            "-extfile",
            "more",
            "-out",
            &own,
        ]);
    }
}

/// TLS over TCP, where each proves who it is; without the authority, with another name, and without TLS it is refused.
#[test]
fn tls_admits_only_who_proves_it() {
    let folder = tempfile::tempdir().unwrap();
    certificates(folder.path(), "localhost");
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let pki = format!("--tls-certificates={}", folder.path().display());
    let start = || {
        let words = [
            "-f",
            "-i",
            "127.0.0.1",
            "-p",
            &port.to_string(),
            "--tls=require",
            "--tls-verify-peer",
            &pki,
            "memory",
            "16M",
        ];
        let mut server = Command::new("nbdkit").args(words).spawn().unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while std::net::TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(Instant::now() < until && server.try_wait().unwrap().is_none());
            std::thread::sleep(Duration::from_millis(5));
        }
        server
    };
    let mut server = start();
    let disk =
        |host: &str, folder: &Path| format!("0=nbds://{host}:{port}/?tls-certificates={}", folder.display());
    let target = Target::start(&["--sandbox", "require", "--lun", &disk("localhost", folder.path())]);
    let mut session = open(&target);
    let data: Vec<u8> = (0..1 << 20).map(|at: u32| (at % 251) as u8).collect();
    let all = |code: u8| [code, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0];
    for _ in 0..4 {
        assert_eq!(session.write(all(0x2a), &data).unwrap().status, 0);
        assert!(session.command(all(0x28), Direction::In(1 << 20)).unwrap().data == data);
    }
    // The sandbox lets the target connect again.
    server.kill().unwrap();
    server.wait().unwrap();
    let mut server = start();
    assert_eq!(session.write(all(0x2a), &data).unwrap().status, 0);
    drop(session);
    target.stop();
    let stranger = tempfile::tempdir().unwrap();
    certificates(stranger.path(), "localhost");
    let anonymous = tempfile::tempdir().unwrap();
    std::fs::copy(folder.path().join("ca-cert.pem"), anonymous.path().join("ca-cert.pem")).unwrap();
    for (disk, reason) in [
        (disk("localhost", stranger.path()), "TLS: invalid peer certificate"),
        (disk("127.0.0.1", folder.path()), "TLS: invalid peer certificate"),
        (disk("localhost", anonymous.path()), "negotiation failed"),
        (disk("localhost", &folder.path().join("none")), "ca-cert.pem"),
        (format!("0=nbd://127.0.0.1:{port}/"), "it requires TLS; write nbds://"),
    ] {
        let output =
            common::roundtrip().args(["target", "--portal", "127.0.0.1:0", "--lun", &disk]).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(reason), "{disk}: {text}");
    }
    server.kill().unwrap();
    server.wait().unwrap();
}
