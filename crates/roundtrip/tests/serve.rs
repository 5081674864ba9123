//! `roundtrip serve` under hostile clients.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod common;

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use common::{Served, bench, roundtrip};

/// A field of a process's status that is a number, such as VmRSS in KiB.
fn status(server: &Served, field: &str) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/{}/status", server.child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with(field)).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

fn connect(server: &Served) -> TcpStream {
    let stream = TcpStream::connect(&server.address).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

#[test]
fn clients_that_do_not_read_large_responses_cost_little_memory() {
    let server = Served::start(&[]);
    let mut clients: Vec<TcpStream> = (0..40).map(|_| connect(&server)).collect();
    for client in &mut clients {
        client.write_all(&b"GET /67108864 HTTP/1.1\r\n\r\n".repeat(4)).unwrap();
        // Its first byte has arrived, so the response's memory is allocated.
        client.read_exact(&mut [0]).unwrap();
    }
    let resident_kib = status(&server, "VmRSS");
    assert!(resident_kib < 200 << 10, "{resident_kib} KiB for 40 clients");
    let result = bench(&format!("http://{}/", server.address), &["--rw", "read", "--runtime", "50ms"]);
    assert!(result["runs"][0]["operations"].as_u64().unwrap() > 0);
}

#[test]
fn limits_bound_connections_and_threads() {
    for (options, what) in [
        (&["--limit", "connections=5"][..], "in all"),
        (&["--limit", "connections_per_address=5"], "of an address"),
        (&["--copies", "--limit", "connections=5"], "copies"),
    ] {
        let server = Served::start(options);
        let mut open: Vec<TcpStream> = (0..5).map(|_| connect(&server)).collect();
        let mut refused: Vec<TcpStream> = (0..20).map(|_| connect(&server)).collect();
        // The refused connections are closed; the others are open.
        for client in &mut refused {
            let mut answer = Vec::new();
            let _ = client.read_to_end(&mut answer);
            assert!(answer.is_empty() || answer.starts_with(b"HTTP/1.1 503 "), "{what}");
        }
        for client in &mut open {
            client.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
            assert!(client.read(&mut [0]).is_err(), "{what}: it waits for a request");
        }
        // Main thread, accepting thread, one for each connection.
        assert!(status(&server, "Threads:") <= 5 + 2, "{what}");
    }
}

#[test]
fn silent_connections_are_closed_after_the_limit() {
    for options in [&["--limit", "silence=100ms"][..], &["--copies", "--limit", "silence=100ms"]] {
        let server = Served::start(options);
        let mut silent = connect(&server);
        assert!(matches!(silent.read(&mut [0]), Ok(0)), "{options:?}");
    }
}

#[test]
fn rejects_invalid_limits() {
    for (limit, expected) in [
        ("connections=0", "1 to 65536 are possible"),
        ("silence=0s", "at least 1ms is possible"),
        ("head_time=soon", "limit head_time=soon"),
        ("sessions=5", "is not a limit; use connections"),
        ("connections", "write NAME=VALUE"),
    ] {
        let output =
            roundtrip().args(["serve", "--listen", "127.0.0.1:0", "--limit", limit]).output().unwrap();
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.code() == Some(2) && error.contains(expected), "{limit}: {error}");
    }
}

#[test]
fn bench_times_out_on_an_unfinished_response() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
                while stream.write_all(b"z").is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
    let mut child = roundtrip()
        .args(["bench", &url, "--rw", "read", "--timeout", "200ms", "--runtime", "100ms"])
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let status = common::wait(&mut child, Duration::from_secs(20));
    let mut error = String::new();
    child.stderr.take().unwrap().read_to_string(&mut error).unwrap();
    assert!(status.code() == Some(1) && error.contains("takes too long"), "{error}");
}
