use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use record::Writes;

use super::*;
use crate::{EndpointOptions, Limits};

fn server(side: EndpointOptions) -> HttpServer {
    limited(side, Limits::default())
}

fn limited(side: EndpointOptions, limits: Limits) -> HttpServer {
    HttpServer::start(TcpListener::bind("127.0.0.1:0").unwrap(), side, 100, limits).unwrap()
}

fn request(is_post: bool, path: &str, body_bytes: usize) -> Request {
    Request { is_post, path: path.into(), host: "test".into(), body_bytes }
}

fn connect(server: &HttpServer) -> TcpStream {
    let stream = TcpStream::connect(server.address()).unwrap();
    // Nothing here takes longer, unless it hangs.
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream
}

/// Returns the response of a server to these bytes, up to the end of the connection.
fn answer(server: &HttpServer, bytes: &[u8]) -> String {
    let mut stream = connect(server);
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    String::from_utf8_lossy(&answer).into_owned()
}

/// Whether a connection has ended, waiting for it.
fn has_ended(stream: &mut TcpStream) -> bool {
    match stream.read(&mut [0]) {
        Ok(count) => count == 0,
        Err(error) => error.kind() == std::io::ErrorKind::ConnectionReset,
    }
}

#[test]
fn posts_and_gets_succeed_in_every_write_mode() {
    for writes in Writes::ALL {
        let is_slow = matches!(writes, Writes::MoreUnfinished | Writes::CorkUnfinished);
        let side = EndpointOptions { writes, ..EndpointOptions::default() };
        let server = server(side.clone());
        for (is_post, path, bytes) in [(true, "/", 5000), (false, "/70000", 70_000), (false, "/", 100)] {
            if is_slow && bytes != 100 {
                continue;
            }
            let mut client =
                Client::connect(server.address(), &request(is_post, path, bytes), &side).unwrap();
            let (found, _) = client.ask(Duration::from_millis(1)).unwrap();
            assert!(found.count >= 10, "{writes:?}");
            assert_eq!(found.latency_us.p50 > 150_000.0, is_slow, "{writes:?} {found:?}");
        }
    }
}

#[test]
fn invalid_requests_get_an_error_status_and_end_only_their_connection() {
    let server = server(EndpointOptions::default());
    for (nonsense, status) in [
        (&b"\x00\x01\x02 nothing\r\n\r\n"[..], "400"),
        (b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nContent-Length: +1\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "400"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n", "413"),
        (b"POST / HTTP/1.1\r\nContent-Length: 99999999999999999999999\r\n\r\n", "413"),
        (b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "501"),
        (&[b'x'; 20_000], "431"),
        (&[b"GET / HTTP/1.1\r\n".as_slice(), &b"A: b\r\n".repeat(65), b"\r\n"].concat(), "431"),
    ] {
        let answer = answer(&server, nonsense);
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{status}: {answer}");
    }
    let client = Client::connect(server.address(), &request(false, "/", 100), &EndpointOptions::default());
    assert!(client.is_ok(), "{client:?}");
}

#[test]
fn get_above_the_largest_body_is_rejected_and_keeps_the_connection() {
    let server = server(EndpointOptions::default());
    let largest = BODY_MAX;
    for number in [format!("{}", largest + 1), "17179869184".into(), "9".repeat(40)] {
        let text = format!("GET /{number} HTTP/1.1\r\n\r\nGET /5 HTTP/1.1\r\n\r\n");
        let mut stream = connect(&server);
        stream.write_all(text.as_bytes()).unwrap();
        stream.shutdown(std::net::Shutdown::Write).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let statuses: Vec<&str> = answer.lines().filter(|line| line.starts_with("HTTP/1.1")).collect();
        assert_eq!(statuses, ["HTTP/1.1 400 Bad Request", "HTTP/1.1 200 OK"], "{number}");
        assert!(answer.contains(&largest.to_string()), "the refusal names the limit: {answer}");
    }
}

#[test]
fn connections_over_the_limit_are_rejected_until_slots_are_free() {
    for limits in [
        Limits { connections: 3, ..Limits::default() },
        Limits { connections_per_address: 3, ..Limits::default() },
    ] {
        let server = limited(EndpointOptions::default(), limits);
        let mut open: Vec<TcpStream> = (0..3).map(|_| connect(&server)).collect();
        for stream in &mut open {
            stream.write_all(b"GET /1 HTTP/1.1\r\n\r\n").unwrap();
            assert_ne!(stream.read(&mut [0; 9]).unwrap(), 0, "it is served");
        }
        let refused = answer(&server, b"");
        assert!(refused.starts_with("HTTP/1.1 503 "), "{refused}");
        open.clear();
        // The places come back when the threads have seen the end.
        let begun = Instant::now();
        while Client::connect(server.address(), &request(false, "/", 1), &EndpointOptions::default()).is_err()
        {
            assert!(begun.elapsed() < Duration::from_secs(20), "the places did not come back");
        }
    }
}

#[test]
fn head_sent_byte_by_byte_times_out() {
    let limits = Limits { head_time: Duration::from_millis(200), ..Limits::default() };
    let server = limited(EndpointOptions::default(), limits);
    let mut stream = connect(&server);
    let begun = Instant::now();
    // Never silent, and never whole.
    while stream.write_all(b"a").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "a slow head was waited for");
        std::thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn stalled_head_times_out() {
    let limits = Limits {
        head_time: Duration::from_millis(200),
        silence: Duration::from_secs(60),
        ..Limits::default()
    };
    let server = limited(EndpointOptions::default(), limits);
    let mut stream = connect(&server);
    stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    stream.write_all(b"GET / HT").unwrap();
    assert!(has_ended(&mut stream), "it was waited for");
}

#[test]
fn silent_connections_are_closed_between_and_within_requests() {
    let limits = Limits { silence: Duration::from_millis(100), ..Limits::default() };
    let server = limited(EndpointOptions::default(), limits);
    for begin in [&b""[..], b"GET / HT", b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\n123"] {
        let mut stream = connect(&server);
        stream.write_all(begin).unwrap();
        assert!(has_ended(&mut stream), "{begin:?}");
    }
}

#[test]
fn client_that_does_not_read_is_dropped() {
    let limits = Limits { silence: Duration::from_millis(200), ..Limits::default() };
    let server =
        limited(EndpointOptions { send_buffer: Some(16 << 10), ..EndpointOptions::default() }, limits);
    let mut stream = connect(&server);
    let text = format!("GET /{BODY_MAX} HTTP/1.1\r\n\r\n");
    stream.write_all(text.as_bytes()).unwrap();
    // A write fails once the server has closed its end, which resets what is unread.
    let begun = Instant::now();
    while stream.write_all(b"G").is_ok() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it was waited for");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A server that answers every connection with `first`, then with `drip` every few milliseconds.
fn malicious(first: &'static [u8], drip: &'static [u8]) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let _ = stream.read(&mut [0; 4096]);
                let _ = stream.write_all(first);
                while !drip.is_empty() && stream.write_all(drip).is_ok() {
                    std::thread::sleep(Duration::from_millis(5));
                }
            });
        }
    });
    address
}

#[test]
fn unfinished_response_times_out() {
    for (first, drip) in [
        (&b"HTTP/1.1 200 OK\r\nX: "[..], &b"a"[..]),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 60000000\r\n\r\n", b"z"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 18446744073709551615\r\n\r\n", b"z"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"z"),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 404 \x1b[31mRED\r\n\r\n", b""),
    ] {
        let (begun, patience) = (Instant::now(), Duration::from_millis(200));
        let ask = request(false, "/", 1);
        let error =
            Client::connect_within(malicious(first, drip), &ask, &EndpointOptions::default(), patience);
        let error = error.unwrap_err().to_string();
        assert!(begun.elapsed() < Duration::from_secs(20), "{error}");
        assert!(!error.contains('\x1b'), "{error:?}");
    }
}

#[test]
fn server_that_does_not_read_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let side = EndpointOptions { send_buffer: Some(64 << 10), ..EndpointOptions::default() };
    let ask = request(true, "/", BODY_MAX);
    let patience = Duration::from_millis(200);
    // The connection stays in the backlog: no thread reads from it.
    let error = Client::connect_within(listener.local_addr().unwrap(), &ask, &side, patience).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut, "{error}");
}
