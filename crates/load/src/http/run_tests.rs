//! The client against servers that violate the protocol, hang, or close connections.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use nix::libc::linger;
use nix::sys::socket::{setsockopt, sockopt};

use super::*;
use crate::Live;
use crate::http::{Body, Method};

pub(super) const WHOLE: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
/// Requests of a connection before the measured time.
pub(super) const WARM_UP: usize = crate::ring_of_messages::WARM_UP as usize;

/// What the scripted server counts.
#[derive(Default)]
pub(super) struct Counts {
    connections: AtomicUsize,
    pub(super) requests: AtomicUsize,
}

/// Reads one request without a body, or with one of five bytes; false at the end of the connection.
fn read_request(stream: &mut TcpStream) -> bool {
    let mut bytes = Vec::new();
    let mut byte = [0];
    while !bytes.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) => bytes.push(byte[0]),
            _ => return false,
        }
    }
    let has_body = bytes.starts_with(b"POST");
    !has_body || stream.read_exact(&mut [0; 5]).is_ok()
}

/// Serves each connection with a script that gets the number of the request among all, and returns whether to continue.
pub(super) fn serve(
    script: impl Fn(&mut TcpStream, usize) -> bool + Send + Sync + 'static,
) -> (SocketAddr, Arc<Counts>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let counts = Arc::new(Counts::default());
    let (script, shared) = (Arc::new(script), Arc::clone(&counts));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            shared.connections.fetch_add(1, Ordering::SeqCst);
            let (script, counts) = (Arc::clone(&script), Arc::clone(&shared));
            std::thread::spawn(move || {
                while read_request(&mut stream) {
                    if !script(&mut stream, counts.requests.fetch_add(1, Ordering::SeqCst)) {
                        break;
                    }
                }
            });
        }
    });
    (address, counts)
}

fn load(method: Method, connections: u32) -> HttpRun {
    let is_post = method == Method::post();
    HttpRun {
        request: HttpRequest {
            method,
            path: "/".into(),
            authority: "test".into(),
            headers: Vec::new(),
            body: if is_post { Body::Zeros(5) } else { Body::None },
        },
        tls: None,
        live: Live::default(),
        side: EndpointOptions::default(),
        pattern: if is_post { Pattern::RandWrite } else { Pattern::RandRead },
        block_bytes: None,
        connections,
        threads: 1,
        rate: None,
        arrival: Arrival::Constant,
        seed: 1,
        ramp: Duration::ZERO,
        runtime: Duration::from_millis(20),
        record_ops: 0,
        patience: Duration::from_secs(20),
    }
}

pub(super) fn get(connections: u32) -> HttpRun {
    load(Method::get(), connections)
}

fn failures(result: &RunResult) -> Vec<(&str, u64)> {
    result.failures.iter().map(|failure| (&*failure.class, failure.count)).collect()
}

#[test]
fn every_request_is_counted_once() {
    for (connections, threads) in [(1, 1), (7, 3), (2, 8)] {
        let (address, counts) = serve(|stream, _| stream.write_all(WHOLE).is_ok());
        let result = HttpRun { threads, ..get(connections) }.run(address).unwrap().result;
        let all = counts.requests.load(Ordering::SeqCst);
        let warm_up = WARM_UP * connections as usize;
        let counted = result.operations as usize;
        // Those in flight at the end of each connection's measured time are in no rate.
        assert!(
            (all - warm_up - connections as usize..=all - warm_up).contains(&counted),
            "{all}: {result:?}"
        );
        assert!(counted >= 10 * connections as usize);
        assert_eq!((result.errors, result.transferred_bytes), (0, 5 * result.operations));
        assert!((result.iops * result.seconds / counted as f64 - 1.0).abs() < 1e-9);
        assert!((result.bytes_per_second / result.iops - 5.0).abs() < 1e-9);
        assert_eq!(result.connections.unwrap().opened, u64::from(connections));
        assert_eq!(counts.connections.load(Ordering::SeqCst), connections as usize);
        assert_eq!(result.block_size_bytes, 5);
        let in_series: u64 = result.series.iter().map(|second| second.operations).sum();
        assert_eq!(in_series, result.operations);
        let in_histogram: u64 = result.histogram.iter().map(|bin| bin.count).sum();
        assert_eq!((in_histogram, result.kinds[0].operations), (result.operations, result.operations));
    }
}

#[test]
fn latency_ends_with_the_last_byte() {
    let pause = Duration::from_millis(3);
    let responses: [&[&'static [u8]]; 3] = [
        &[b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell", b"o"],
        &[b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r", b"\n"],
        &[b"HTTP/1.1 200 OK\r\n\r\nhello", b""],
    ];
    for parts in responses {
        let (address, _) = serve(move |stream, _| {
            let is_ok = stream.write_all(parts[0]).is_ok();
            // The time that the client must see.
            std::thread::sleep(pause);
            is_ok && !parts[1].is_empty() && stream.write_all(parts[1]).is_ok()
        });
        let result = get(1).run(address).unwrap().result;
        assert!(result.latency_us.min >= 2990.0 && result.errors == 0, "{result:?}");
    }
}

#[test]
fn a_response_cut_at_any_byte_is_a_failure() {
    for cut in 1..WHOLE.len() {
        let (address, _) = serve(move |stream, number| {
            let is_cut = number >= WARM_UP && number % 2 == 1;
            let bytes = if is_cut { &WHOLE[..cut] } else { WHOLE };
            stream.write_all(bytes).is_ok() && !is_cut
        });
        let result = get(1).run(address).unwrap().result;
        assert_eq!(failures(&result), [("connection closed within the response", result.errors)], "{cut}");
        assert!(result.errors > 0 && result.connections.unwrap().retried == 0, "{cut}");
    }
}

/// A server may close a connection between requests; what was sent is repeated only if that is safe.
#[test]
fn requests_without_any_answer_are_repeated_only_if_idempotent() {
    for is_reset in [false, true] {
        let run = |method| {
            let (address, counts) = serve(move |stream, number| {
                if number >= WARM_UP && number % 3 == 0 {
                    if is_reset {
                        setsockopt(&*stream, sockopt::Linger, &linger { l_onoff: 1, l_linger: 0 }).unwrap();
                    }
                    return false;
                }
                stream.write_all(WHOLE).is_ok()
            });
            (load(method, 1).run(address).unwrap().result, counts)
        };
        let (result, counts) = run(Method::get());
        let connections = result.connections.unwrap();
        assert!(result.errors == 0 && connections.retried > 0, "{result:?}");
        assert_eq!(connections.opened, connections.retried + 1);
        // Each repetition is another request for the server, but not another operation.
        let all = counts.requests.load(Ordering::SeqCst) as u64;
        assert!(all >= result.operations + connections.retried + WARM_UP as u64);
        let (result, _) = run(Method::post());
        let class = if is_reset {
            "connection reset before the response"
        } else {
            "connection closed before the response"
        };
        assert_eq!(failures(&result), [(class, result.errors)]);
        assert!(result.errors > 0 && result.connections.unwrap().retried == 0, "{result:?}");
    }
}

#[test]
fn a_server_that_always_closes_is_an_error_and_not_asked_forever() {
    let (address, counts) = serve(|_, _| false);
    let error = get(4).run(address).unwrap_err().to_string();
    assert!(error.contains("connection closed before the response"), "{error}");
    assert_eq!(counts.connections.load(Ordering::SeqCst), 4);
}

/// Connections that cannot be made are tried again ever less often.
#[test]
fn reconnecting_to_a_server_that_has_gone_is_bounded() {
    let (close, closed) = std::sync::mpsc::channel::<()>();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        drop(listener);
        for _ in 0..WARM_UP + 5 {
            assert!(read_request(&mut stream));
            stream.write_all(WHOLE).unwrap();
        }
        drop(close);
    });
    let result = HttpRun { runtime: Duration::from_millis(500), ..get(1) }.run(address).unwrap().result;
    assert!(closed.recv().is_err(), "the server has gone");
    assert_eq!(result.operations, 5);
    let [(class, count)] = failures(&result)[..] else { panic!("{result:?}") };
    assert_eq!(class, "cannot connect");
    // 1, 2, 4, ... ms: ten attempts fit into 1.02 s.
    assert!((1..=10).contains(&count), "{count} attempts");
    assert!(result.first_error.unwrap().contains("refused"));
}

#[test]
fn malformed_responses_are_counted_with_their_reason() {
    let endless = [b"HTTP/1.1 200 OK\r\nA: ".as_slice(), &[b'a'; 40_000]].concat();
    for (bytes, reason) in [
        (&b"\x16\x03\x01\x02\x00garbage\r\n\r\n"[..], "the head is not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nhello", "more bytes than the response has"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1, 2\r\n\r\nhello", "Content-Length is not one number"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nx", "chunked body is invalid"),
        (b"HTTP/1.1 101 Switching Protocols\r\n\r\n", "another protocol"),
        (b"HTTP/1.1 200 \x1b[31mRED\r\n\x1b: x\r\n\r\n", "the head is not HTTP"),
        (&endless, "exceeds 32 KiB"),
    ] {
        let wrong = bytes.to_vec();
        let (address, _) = serve(move |stream, number| {
            stream.write_all(if number < WARM_UP { WHOLE } else { &wrong }).is_ok()
        });
        let result = get(1).run(address).unwrap().result;
        assert_eq!((failures(&result), result.operations), (vec![("malformed response", result.errors)], 0));
        let first = result.first_error.unwrap();
        assert!(first.contains(reason) && !first.contains('\x1b'), "{first}");
        assert_eq!((result.iops, result.bytes_per_second, result.latency_us.max), (0.0, 0.0, 0.0));
        assert!(result.failed_mean_us.unwrap() > 0.0);
    }
}

#[test]
fn a_response_byte_by_byte_is_received() {
    let (address, _) = serve(|stream, _| {
        stream.set_nodelay(true).unwrap();
        WHOLE.iter().all(|byte| stream.write_all(&[*byte]).is_ok())
    });
    let result = get(2).run(address).unwrap().result;
    assert!(result.errors == 0 && result.operations >= 20, "{result:?}");
}

#[test]
fn statuses_are_counted_and_are_no_throughput() {
    let (address, _) = serve(|stream, number| {
        let status = [200, 404, 503, 301][number % 4];
        let text = format!("HTTP/1.1 {status} X\r\nLocation: /elsewhere\r\nContent-Length: 5\r\n\r\nhello");
        stream.write_all(text.as_bytes()).is_ok()
    });
    let result = HttpRun { runtime: Duration::from_millis(200), ..get(1) }.run(address).unwrap().result;
    let mut classes = failures(&result);
    classes.sort_unstable();
    let [("HTTP status 301", a), ("HTTP status 404", b), ("HTTP status 503", c)] = classes[..] else {
        panic!("{classes:?}")
    };
    assert!(a.abs_diff(b) <= 1 && b.abs_diff(c) <= 1 && result.operations.abs_diff(a) <= 1, "{result:?}");
    assert_eq!((result.errors, result.transferred_bytes), (a + b + c, 5 * result.operations));
    assert!((result.iops - result.operations as f64 / result.seconds).abs() < 1e-6);
    let in_series: u64 = result.series.iter().map(|second| second.errors).sum();
    assert_eq!(result.errors, in_series);
    assert!(result.latency_us.max > 0.0 && result.connections.unwrap().opened == 1);
}

#[test]
fn silence_is_a_timeout_and_the_next_request_has_a_new_connection() {
    let patience = Duration::from_millis(100);
    let (address, _) = serve(|stream, number| {
        // It never answers every sixteenth request, and keeps the connection open.
        number % 16 == 15 || stream.write_all(WHOLE).is_ok()
    });
    let result =
        HttpRun { patience, runtime: Duration::from_millis(300), ..get(1) }.run(address).unwrap().result;
    assert_eq!(failures(&result), [("no response in time", result.errors)]);
    let opened = result.connections.unwrap().opened;
    // The last failure may end the run.
    assert!(
        result.errors > 0 && result.operations > 0 && (result.errors..=result.errors + 1).contains(&opened),
        "{result:?}"
    );
    assert!(result.failed_mean_us.unwrap() >= 100_000.0 && result.latency_us.max < 100_000.0, "{result:?}");
    let (address, _) = serve(|_, _| true);
    let error = HttpRun { patience, ..get(3) }.run(address).unwrap_err().to_string();
    assert!(error.contains("takes too long"), "{error}");
}

/// An early answer ends the request, and the connection: the rest of the body would begin the next request.
#[test]
fn an_answer_before_the_whole_request_is_counted_and_not_mixed_with_the_next_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        let mut held = Vec::new();
        for mut stream in listener.incoming().flatten() {
            stream.read_exact(&mut [0; 5]).unwrap();
            stream.write_all(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n").unwrap();
            // The rest of the request has no room to be sent.
            held.push(stream);
        }
    });
    let mut run = load(Method::post(), 2);
    run.request.body = Body::Zeros(32 << 20);
    let result = run.run(address).unwrap().result;
    assert_eq!(failures(&result), [("HTTP status 413", result.errors)]);
    assert!(result.errors > 0 && result.transferred_bytes == 0, "{result:?}");
}

#[test]
fn an_open_loop_survives_closed_connections_and_counts_from_the_scheduled_time() {
    let (address, _) = serve(|stream, number| {
        let text = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello";
        if number == WARM_UP * 2 {
            std::thread::sleep(Duration::from_millis(100));
        }
        let _ = stream.write_all(text);
        false
    });
    let run = HttpRun { rate: Some(200.0), runtime: Duration::from_millis(300), ..get(2) };
    let result = run.run(address).unwrap().result;
    assert_eq!((result.errors, result.rate), (0, Some(200.0)));
    let all = result.operations + result.behind.unwrap();
    assert!((58..=60).contains(&all), "{result:?}");
    // Those in flight at the end are in no figure but this.
    let opened = result.connections.unwrap().opened - WARM_UP as u64 * 2;
    assert!((result.operations..=result.operations + 2).contains(&opened), "{result:?}");
}

/// A short run of a slow server lasts until every connection has done ten requests; otherwise it lasts as long as asked.
#[test]
fn the_measured_time_is_the_one_asked_for() {
    let (address, _) = serve(|stream, _| stream.write_all(WHOLE).is_ok());
    for rate in [None, Some(1000.0)] {
        let run = HttpRun { runtime: Duration::from_millis(300), rate, ..get(2) };
        let before = Instant::now();
        let result = run.run(address).unwrap().result;
        // The schedule begins a little before the first thread is ready for it.
        assert!((0.28..before.elapsed().as_secs_f64()).contains(&result.seconds), "{result:?}");
    }
    let pause = Duration::from_millis(5);
    let (address, _) = serve(move |stream, _| {
        std::thread::sleep(pause);
        stream.write_all(WHOLE).is_ok()
    });
    let result = HttpRun { runtime: Duration::from_millis(1), ..get(1) }.run(address).unwrap().result;
    assert!(result.operations == 10 && result.seconds >= 0.05, "{result:?}");
}

#[test]
fn the_slowest_connection_is_reported() {
    let slow = AtomicUsize::new(usize::MAX);
    let (address, _) = serve(move |stream, _| {
        let port = usize::from(stream.peer_addr().unwrap().port());
        // The first connection that asks is slow from then on.
        let first = slow.compare_exchange(usize::MAX, port, Ordering::SeqCst, Ordering::SeqCst).is_ok();
        if first || slow.load(Ordering::SeqCst) == port {
            std::thread::sleep(Duration::from_millis(5));
        }
        stream.write_all(WHOLE).is_ok()
    });
    let result = HttpRun { runtime: Duration::from_millis(100), ..get(2) }.run(address).unwrap().result;
    assert!((1.0..201.0).contains(&result.slowest_session_iops), "{result:?}");
    assert!(result.slowest_session_iops * 2.0 < result.iops, "{result:?}");
}

#[test]
fn cpu_time_is_within_the_measured_time() {
    let (address, _) = serve(|stream, _| stream.write_all(WHOLE).is_ok());
    let result = get(1).run(address).unwrap().result;
    let share = result.client_cpu_us * result.operations as f64 / result.seconds / 1e6;
    assert!(share > 0.0 && share <= 1.0, "{share}: {result:?}");
}
