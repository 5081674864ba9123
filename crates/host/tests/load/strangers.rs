//! A server that strangers talk to, and servers that are none.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use host::facts::load::LoadFacts;
use host::load::wire::BLOCK_BYTES;
use host::load::{LoadSpec, client, server};

const SPEC: LoadSpec = LoadSpec { port: 0, time: Duration::from_millis(100), bytes: 1 << 20 };

fn serve() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    server::start(listener).unwrap();
    address
}

/// Everything that the server says to some bytes, until it closes.
fn said(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(bytes).unwrap();
    let mut answer = Vec::new();
    // A connection that is closed with unread bytes is reset.
    let _ = stream.read_to_end(&mut answer);
    answer
}

#[test]
fn a_stranger_gets_no_byte_of_an_answer() {
    let address = serve();
    let strangers: [&[u8]; 6] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"roundtrip-load/1 both 3600000 1\n",
        b"roundtrip-load/1 both 1000 1000\nmore",
        &[b'a'; 4096],
    ];
    for bytes in strangers {
        assert_eq!(said(address, bytes), b"", "{:?}", String::from_utf8_lossy(bytes));
    }
    assert!(client::test("a", address, &SPEC).1.is_ok(), "it still serves");
}

#[test]
fn a_second_tester_is_told_that_the_server_is_busy_and_served_when_it_is_free() {
    let address = serve();
    let mut first = TcpStream::connect(address).unwrap();
    first.write_all(b"roundtrip-load/1 to 100 1000\n").unwrap();
    let mut ready = [0; 6];
    first.read_exact(&mut ready).unwrap();
    assert_eq!(&ready, b"ready\n");
    let (facts, outcome) = client::test("a", address, &SPEC);
    assert_eq!(facts.runs().count(), 0);
    assert!(outcome.unwrap_err().contains("busy with another test"));
    // The first ends in the middle: the server closes its side when it has noticed.
    first.shutdown(std::net::Shutdown::Write).unwrap();
    let _ = first.read_to_end(&mut Vec::new());
    assert_eq!(said(address, b"roundtrip-load/1 all 1 1\n"), b"");
    drop(first);
    // The turn is given back before the connection is closed.
    assert!(client::test("a", address, &SPEC).1.is_ok());
}

#[test]
fn a_tester_beside_many_idle_strangers_is_told_that_the_server_is_full() {
    let address = serve();
    let strangers: Vec<TcpStream> = (0..25).map(|_| TcpStream::connect(address).unwrap()).collect();
    let (facts, outcome) = client::test("a", address, &SPEC);
    let why = outcome.unwrap_err();
    assert!(why.contains("the server is full"), "{why}");
    assert_eq!(facts.runs().count(), 0);
    // Those within the limit hear nothing until they are closed; those beyond it hear why.
    let said: Vec<Vec<u8>> = strangers
        .into_iter()
        .map(|mut stream| {
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut said = Vec::new();
            let _ = stream.read_to_end(&mut said);
            said
        })
        .collect();
    assert!(said.iter().take(16).all(Vec::is_empty) && said.iter().skip(16).all(|said| said == b"full\n"));
}

#[test]
fn the_limit_of_bytes_ends_a_run_before_its_time() {
    let address = serve();
    let spec = LoadSpec { time: Duration::from_secs(60), bytes: 3 * BLOCK_BYTES as u64, ..SPEC };
    let (facts, outcome) = client::test("a", address, &spec);
    outcome.unwrap();
    let to = facts.to_peer.unwrap().to_peer.unwrap();
    assert_eq!(to.received.bytes, 3 * BLOCK_BYTES as u64 + 1, "the blocks and the last mark");
    assert_eq!(facts.together.unwrap().from_peer.unwrap().received.bytes, 3 * BLOCK_BYTES as u64 + 1);
}

/// What a tester makes of a server that answers each request so.
fn against(answer: impl Fn(&mut TcpStream) + Send + 'static) -> (LoadFacts, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = [0; 200];
            let _ = stream.read(&mut request);
            answer(&mut stream);
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = stream.read_to_end(&mut Vec::new());
        }
    });
    let (facts, outcome) = client::test("a", address, &SPEC);
    (facts, outcome.unwrap_err())
}

/// What a server does with the connection of a test.
type Answer = Box<dyn Fn(&mut TcpStream) + Send>;

#[test]
fn servers_that_lie_end_the_test_with_a_reason() {
    let report = |text: &'static [u8]| {
        move |stream: &mut TcpStream| {
            let _ = stream.write_all(b"ready\n.").and_then(|()| stream.write_all(text));
        }
    };
    let cases: [(&str, Answer); 8] = [
        (
            "no server of load tests",
            Box::new(|stream| stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap()),
        ),
        ("was closed", Box::new(|_| {})),
        ("was closed", Box::new(|stream| stream.write_all(b"ready\n").unwrap())),
        ("something else than a load test's data", Box::new(|stream| stream.write_all(b"ready\nx").unwrap())),
        ("was closed", Box::new(report(b"{\"received\":null"))),
        ("report cannot be used", Box::new(report(b"not JSON\n"))),
        ("does not say what it received", Box::new(report(b"{}\n"))),
        (
            "report is too long",
            Box::new(|stream| {
                let _ = stream.write_all(b"ready\n.").and_then(|()| stream.write_all(&[b' '; 100_000]));
            }),
        ),
    ];
    for (why, answer) in cases {
        let (facts, error) = against(answer);
        assert!(error.contains(why), "{why}: {error}");
        assert_eq!(facts.runs().count(), 0);
    }
}

#[test]
fn a_port_that_nothing_listens_on_says_what_to_start() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let error = client::test("a", address, &SPEC).1.unwrap_err();
    assert!(error.contains("run `roundtrip host serve` on the peer"), "{error}");
}
