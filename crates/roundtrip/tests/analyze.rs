//! Captures of real pathologies on the real kernel: each yields its verdict and no other; clean traffic
//! yields none.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::Path;
use std::time::{Duration, Instant};

use common::live::{analyze, captured, kinds, may_capture};
use common::{Target, bench, roundtrip, succeed, tool};
use iscsi::pdu::{DataIn, ScsiCommand};
use nix::sys::socket::{MsgFlags, send, setsockopt, sockopt};
use serde_json::Value;
use testbed::{Cable, CableConfig};

/// A server on loopback that answers each connection by `serve`; its port.
fn server(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            serve(stream);
        }
    });
    port
}

/// Reads an HTTP message whose body is `Content-Length` bytes; its body.
fn read_message(stream: &mut TcpStream) -> Option<Vec<u8>> {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).ok()? == 0 {
            return None;
        }
        head.push(byte[0]);
    }
    let text = String::from_utf8_lossy(&head).to_lowercase();
    let length = text.split("content-length: ").nth(1).and_then(|t| t.lines().next()?.parse().ok());
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).ok()?;
    Some(body)
}

const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// A plain server: reads a message, answers in one write.
fn plain(mut stream: TcpStream) {
    stream.set_nodelay(true).unwrap();
    while read_message(&mut stream).is_some() {
        stream.write_all(OK).unwrap();
    }
}

fn capture_of(port: u16, work: impl FnOnce()) -> Value {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    let ((), recorded) = captured("lo", port, &file, || Ok(()), work);
    assert_eq!(recorded.interfaces[0].drops, 0);
    analyze(&[file.to_str().unwrap()])
}

/// The only verdict, and that it is of this kind.
#[track_caller]
fn only<'a>(result: &'a Value, kind: &str) -> &'a Value {
    assert_eq!(kinds(result), [kind], "{result:#}");
    let verdict = &result["verdicts"][0];
    assert!(!verdict["remedy"].as_array().unwrap().is_empty());
    assert!(!verdict["text"].as_str().unwrap().is_empty());
    verdict
}

#[track_caller]
fn within(value: &Value, least: f64, most: f64) {
    let value = value.as_f64().unwrap();
    assert!((least..=most).contains(&value), "{value} is not between {least} and {most}");
}

/// Seed: "with Nagle the body waits for the peer's delayed ACK".
#[test]
fn a_post_whose_header_and_body_are_sent_apart() {
    let Some(_alone) = may_capture() else { return };
    let port = server(plain);
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        for _ in 0..12 {
            client.write_all(b"POST /a HTTP/1.1\r\nHost: a\r\nContent-Length: 480\r\n\r\n").unwrap();
            client.write_all(&[b'x'; 480]).unwrap();
            assert_eq!(read_message(&mut client).unwrap(), b"ok");
        }
    });
    let verdict = only(&result, "header_body_apart");
    // The first exchanges of a connection are acknowledged at once.
    within(&verdict["operations"], 9.0, 12.0);
    within(&verdict["cost_us"], 9.0 * 38e3, 12.0 * 60e3);
    assert!(verdict["text"].as_str().unwrap().contains("client"), "{verdict:#}");
    within(&verdict["gain"]["throughput_factor"], 5.0, 1e6);
    // Header, ACK and body of each.
    assert!(verdict["frames"]["numbers"].as_array().unwrap().len() >= 27, "{verdict:#}");
    assert_eq!(result["operations"], 12);
}

/// The same by a server: an iSCSI response whose header and data are two sends.
#[test]
fn an_iscsi_target_that_sends_header_and_data_apart() {
    let Some(_alone) = may_capture() else { return };
    let port = server(|mut stream| {
        let mut command = [0; 48];
        while stream.read_exact(&mut command).is_ok() {
            let tag = ScsiCommand::read(&iscsi::Bhs(command)).tag;
            let mut bhs = DataIn { tag, is_final: true, has_status: true, ..DataIn::default() }.write();
            bhs.set_data_bytes(512);
            stream.write_all(&bhs.0).unwrap();
            stream.write_all(&[0; 512]).unwrap();
        }
    });
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        let mut answer = [0; 560];
        for tag in 0..10 {
            let mut command = ScsiCommand {
                read: true,
                is_final: true,
                tag,
                expected_bytes: 512,
                ..ScsiCommand::default()
            };
            command.cdb[0] = 0x28;
            client.write_all(&command.write().0).unwrap();
            client.read_exact(&mut answer).unwrap();
        }
    });
    let verdict = only(&result, "header_body_apart");
    within(&verdict["operations"], 7.0, 10.0);
    assert!(verdict["text"].as_str().unwrap().contains("server"), "{verdict:#}");
    assert_eq!(result["connections"][0]["protocol"], "iscsi");
}

/// Two small responses in two writes: the second waits for the delayed ACK of the first.
#[test]
fn small_responses_held_by_nagle() {
    let Some(_alone) = may_capture() else { return };
    let port = server(|mut stream| {
        while read_message(&mut stream).is_some() && read_message(&mut stream).is_some() {
            stream.write_all(OK).unwrap();
            stream.write_all(OK).unwrap();
        }
    });
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        for _ in 0..12 {
            client.write_all(b"GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n").unwrap();
            read_message(&mut client).unwrap();
            read_message(&mut client).unwrap();
        }
    });
    let verdict = only(&result, "nagle_delayed_ack");
    within(&verdict["operations"], 9.0, 12.0);
    assert_eq!(result["operations"], 24);
}

/// MSG_MORE on the last piece: 200 ms until the kernel's timer sends it.
#[test]
fn msg_more_that_is_never_lifted() {
    let Some(_alone) = may_capture() else { return };
    let port = server(|mut stream| {
        while read_message(&mut stream).is_some() {
            // MSG_MORE, which nix does not name.
            let (head, body) = OK.split_at(OK.len() - 2);
            for part in [head, body] {
                send(stream.as_raw_fd(), part, MsgFlags::from_bits_retain(0x8000)).unwrap();
            }
        }
    });
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        // Pauses that spread the beginnings of the waits over the ticks of any kernel (1, 4 and 10 ms), so that their lengths differ.
        for request in 0..32_u64 {
            std::thread::sleep(Duration::from_micros(request % 16 * 620));
            client.write_all(b"GET /a HTTP/1.1\r\n\r\n").unwrap();
            read_message(&mut client).unwrap();
        }
    });
    let verdict = only(&result, "unfinished_cork");
    within(&verdict["operations"], 30.0, 32.0);
    within(&verdict["cost_us"], 30.0 * 198e3, 32.0 * 220e3);
}

/// A large message through a small receive buffer.
#[test]
fn a_receive_window_that_is_too_small() {
    let Some(_alone) = may_capture() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    setsockopt(&listener, sockopt::RcvBuf, &4096).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            plain(stream);
        }
    });
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        let body = vec![b'x'; 400_000];
        for _ in 0..3 {
            let mut message = b"POST /a HTTP/1.1\r\nContent-Length: 400000\r\n\r\n".to_vec();
            message.extend_from_slice(&body);
            client.write_all(&message).unwrap();
            read_message(&mut client).unwrap();
        }
    });
    let verdict = only(&result, "window_limited");
    assert!(verdict["text"].as_str().unwrap().contains("server's window"), "{verdict:#}");
    within(&verdict["operations"], 3.0, 3.0);
}

/// Ten bytes at a time.
#[test]
fn messages_in_trains_of_small_segments() {
    let Some(_alone) = may_capture() else { return };
    let port = server(plain);
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        for _ in 0..20 {
            client.write_all(b"POST /a HTTP/1.1\r\nContent-Length: 400\r\n\r\n").unwrap();
            for piece in [b'x'; 400].chunks(10) {
                client.write_all(piece).unwrap();
            }
            read_message(&mut client).unwrap();
        }
    });
    let verdict = only(&result, "small_segments");
    within(&verdict["operations"], 19.0, 20.0);
}

/// A server that takes 5 ms for each answer, and a client that waits 5 ms before each question: a poll by design looks the same.
#[test]
fn attributes_time_to_the_slow_side() {
    let Some(_alone) = may_capture() else { return };
    for server_sleeps in [true, false] {
        let port = server(move |mut stream| {
            stream.set_nodelay(true).unwrap();
            while read_message(&mut stream).is_some() {
                if server_sleeps {
                    std::thread::sleep(Duration::from_millis(5));
                }
                stream.write_all(OK).unwrap();
            }
        });
        let result = capture_of(port, || {
            let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
            client.set_nodelay(true).unwrap();
            for _ in 0..60 {
                client.write_all(b"GET /a HTTP/1.1\r\n\r\n").unwrap();
                read_message(&mut client).unwrap();
                if !server_sleeps {
                    std::thread::sleep(Duration::from_millis(5));
                }
            }
        });
        if server_sleeps {
            only(&result, "slow_target");
        } else {
            assert_eq!(result["verdicts"].as_array().unwrap().len(), 0, "{:#}", result["verdicts"]);
        }
    }
}

fn cable(mtu_bytes: u32) -> Cable {
    Cable::up(&CableConfig::new(mtu_bytes)).unwrap()
}

/// "After raising the MTU on one host some transfers hung: small answers came, larger ones never did."
#[test]
fn path_mtu_black_hole() {
    let Some(_alone) = may_capture() else { return };
    let cable = cable(9000);
    let (client_end, server_end) = (cable.client.clone(), cable.server.clone());
    let listener =
        server_end.namespace.run(|| Ok(TcpListener::bind((server_end.address, 0)).unwrap())).unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            plain(stream);
        }
    });
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("capture.pcapng");
    let enter = || client_end.namespace.enter();
    captured(&client_end.interface, port, &file, enter, || {
        let mut client = cable
            .client
            .namespace
            .run(|| Ok(TcpStream::connect((cable.server.address, port)).unwrap()))
            .unwrap();
        client.set_nodelay(true).unwrap();
        // Small ones pass.
        for _ in 0..3 {
            client.write_all(b"GET /a HTTP/1.1\r\n\r\n").unwrap();
            read_message(&mut client).unwrap();
        }
        // Somewhere on the way the MTU is smaller now.
        let interface = cable.server.interface.clone();
        cable
            .server
            .namespace
            .run(|| {
                succeed("ip", &["link", "set", &interface, "mtu", "1500"]);
                Ok(())
            })
            .unwrap();
        let mut message = b"POST /a HTTP/1.1\r\nContent-Length: 40000\r\n\r\n".to_vec();
        message.resize(message.len() + 40_000, b'x');
        client.set_read_timeout(Some(Duration::from_secs(4))).unwrap();
        client.write_all(&message).unwrap();
        let began = Instant::now();
        assert!(read_message(&mut client).is_none(), "it got through after {:?}", began.elapsed());
    });
    let result = analyze(&[file.to_str().unwrap()]);
    let verdict = only(&result, "path_mtu_black_hole");
    within(&verdict["cost_us"], 1e6, 4.5e6);
}

/// Runs of well-behaved clients and servers: nothing may be found.
#[test]
fn clean_runs_have_no_verdict() {
    let Some(_alone) = may_capture() else { return };
    let port = server(plain);
    let result = capture_of(port, || {
        let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
        client.set_nodelay(true).unwrap();
        for length in [0_usize, 10, 1000, 100_000].into_iter().cycle().take(400) {
            let mut message = format!("POST /a HTTP/1.1\r\nContent-Length: {length}\r\n\r\n").into_bytes();
            message.resize(message.len() + length, b'x');
            client.write_all(&message).unwrap();
            read_message(&mut client).unwrap();
        }
    });
    assert_eq!(kinds(&result), [""; 0], "{result:#}");
    assert_eq!(result["operations"], 400);

    let target = Target::start(&["--lun", "0=ram:64M"]);
    let port: u16 = target.address.rsplit(':').next().unwrap().parse().unwrap();
    let result = capture_of(port, || iscsi_clients(&target.url(0), Path::new("/dev/null")));
    // A machine that does other work meanwhile stalls both programs now and then, which is so.
    let found: Vec<_> = kinds(&result).into_iter().filter(|kind| kind != "rare_stalls").collect();
    assert_eq!(found, [""; 0], "{:#}", result["verdicts"]);
    assert!(result["operations"].as_u64().unwrap() > 2000);
    assert_eq!(result["streams"]["unmatched"], 0);
    assert_eq!(result["streams"]["boundaries_lost"], 0);
    drop(target);
}

/// What libiscsi, QEMU and our own client do in a second or so.
fn iscsi_clients(url: &str, _scratch: &Path) {
    let digests = format!("{url}?header_digest=crc32c");
    succeed("iscsi-inq", &[&digests]);
    tool("timeout", &["-s", "INT", "1", "iscsi-perf", "-b", "1", "-m", "8", "-t", "1", url]);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("image");
    common::random_file(&file, 4 << 20);
    let image = file.to_str().unwrap();
    succeed("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", image, url]);
    succeed("qemu-io", &["-f", "raw", "-c", "read 0 1M", "-c", "write -P 7 1M 256k", url]);
    succeed("qemu-io", &["-f", "raw", "-c", "write -P 9 0 2M", url]);
    bench(
        url,
        &["--rw", "randrw", "--bs", "512", "--iodepth", "1,16", "--runtime", "100ms", "--ramp", "10ms"],
    );
}

/// The answer comes first, and nothing is wider than a terminal.
#[test]
fn every_report_begins_with_its_answer_and_fits_80_columns() {
    let corpus = concat!(env!("CARGO_MANIFEST_DIR"), "/../../corpus");
    let mut reports = 0;
    for folder in ["decoders", "captures"] {
        for file in std::fs::read_dir(format!("{corpus}/{folder}")).unwrap() {
            let path = file.unwrap().path();
            let is_capture = path.to_string_lossy().ends_with(".pcapng.zst");
            // One side of a pair says less; a third of the others is enough here.
            if !is_capture || (folder == "captures" && path.to_string_lossy().len() % 3 > 0) {
                continue;
            }
            let output = roundtrip()
                .args(["analyze", path.file_name().unwrap().to_str().unwrap(), "--by", "key", "--explain"])
                .current_dir(path.parent().unwrap())
                .output()
                .unwrap();
            let text = String::from_utf8(output.stdout).unwrap();
            if output.status.code() == Some(2) {
                continue;
            }
            assert!(text.starts_with("Verdict"), "{}: {text}", path.display());
            let wide = text.lines().find(|line| line.chars().count() > 80);
            assert_eq!(wide, None, "{}", path.display());
            reports += 1;
        }
    }
    assert!(reports > 30, "{reports}");
}
