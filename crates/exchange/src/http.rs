//! HTTP/1.1, as much of it as an experiment needs: a server that takes what is posted and gives bodies of any size, and
//! a client that posts or gets again and again on one connection.

use std::io::{self, Read as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ring::latency::Latency;
use serde::{Deserialize, Serialize};

use crate::pace::Pace;
use crate::ring_of_messages::{Exchanges, Tally, WARM_UP};
use crate::side::Side;
use crate::writes::write;

/// Longest head of a message, bytes, and most of its lines.
const HEAD_MAX: usize = 16 << 10;
const LINES_MAX: usize = 64;
/// Largest body, bytes.
pub const BODY_MAX: usize = 64 << 20;
/// Most connections of a server.
const CONNECTIONS_MAX: usize = 1024;
/// A connection that says nothing for so long ends.
const SILENCE: Duration = Duration::from_secs(60);

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl HttpServer {
    /// Serves what comes to a listener, each connection by a thread of its own, started where the caller is. A GET is
    /// answered with `body_bytes`, or with as many as its path says after the last slash.
    ///
    /// # Errors
    /// When the listener has no address.
    pub fn start(listener: TcpListener, side: Side, body_bytes: usize) -> io::Result<Self> {
        // What an accepted socket has it has from its listener.
        side.tcp().apply(&listener)?;
        let (address, is_over) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let (over, connections) = (Arc::clone(&is_over), Arc::new(AtomicUsize::new(0)));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if over.load(Ordering::Relaxed) {
                    break;
                }
                let Ok(stream) = stream else { continue };
                if connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS_MAX {
                    connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let (side, connections) = (side.clone(), Arc::clone(&connections));
                std::thread::spawn(move || {
                    // A client that says nonsense, or goes, has its connection closed; others go on.
                    let _ = serve(stream, &side, body_bytes);
                    connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Ok(Self { address, is_over })
    }

    /// Where it listens.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // The listener's thread looks when somebody comes; where nobody can, it ends with the process.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(200));
    }
}

/// A head that was read: how long it is, and what it says.
struct Head {
    bytes: usize,
    content_bytes: usize,
    method: String,
    path: String,
}

fn wrong(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}

/// What is read of a message: its head and what came with it.
#[derive(Debug, Default)]
struct Received {
    buffer: Vec<u8>,
}

impl Received {
    /// Reads a head; nothing when the connection has ended before one.
    fn head(&mut self, stream: &mut TcpStream, side: &Side, is_request: bool) -> io::Result<Option<Head>> {
        loop {
            if let Some(head) = parse(&self.buffer, is_request)? {
                self.buffer.drain(..head.bytes);
                return Ok(Some(head));
            }
            if self.buffer.len() > HEAD_MAX {
                return Err(wrong("a head of more than 16 KiB"));
            }
            let mut bytes = [0; 16 << 10];
            let count = stream.read(&mut bytes)?;
            side.received(stream)?;
            if count == 0 {
                return if self.buffer.is_empty() { Ok(None) } else { Err(wrong("the end within a head")) };
            }
            self.buffer.extend_from_slice(&bytes[..count]);
        }
    }

    /// Reads a body and forgets it.
    fn body(&mut self, stream: &mut TcpStream, side: &Side, mut left: usize) -> io::Result<()> {
        let here = left.min(self.buffer.len());
        self.buffer.drain(..here);
        left -= here;
        let mut bytes = [0; 64 << 10];
        while left > 0 {
            let most = left.min(bytes.len());
            let count = stream.read(&mut bytes[..most])?;
            side.received(stream)?;
            if count == 0 {
                return Err(wrong("the end within a body"));
            }
            left -= count;
        }
        Ok(())
    }
}

/// The head at the beginning of `bytes`, when it is whole.
fn parse(bytes: &[u8], is_request: bool) -> io::Result<Option<Head>> {
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let nonsense = |_| wrong("no HTTP");
    let (length, method, path) = if is_request {
        let mut request = httparse::Request::new(&mut lines);
        let httparse::Status::Complete(length) = request.parse(bytes).map_err(nonsense)? else {
            return Ok(None);
        };
        (length, request.method.unwrap_or_default().to_owned(), request.path.unwrap_or_default().to_owned())
    } else {
        let mut response = httparse::Response::new(&mut lines);
        let httparse::Status::Complete(length) = response.parse(bytes).map_err(nonsense)? else {
            return Ok(None);
        };
        (length, response.code.unwrap_or(0).to_string(), String::new())
    };
    let mut content_bytes = 0;
    for line in lines.iter().take_while(|line| !line.name.is_empty()) {
        if line.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(wrong("bodies come with Content-Length here"));
        }
        if line.name.eq_ignore_ascii_case("content-length") {
            let text = std::str::from_utf8(line.value).map_err(|_| wrong("Content-Length is no number"))?;
            content_bytes = text.trim().parse().map_err(|_| wrong("Content-Length is no number"))?;
        }
    }
    if content_bytes > BODY_MAX {
        return Err(wrong("a body of more than 64 MiB"));
    }
    Ok(Some(Head { bytes: length, content_bytes, method, path }))
}

fn serve(mut stream: TcpStream, side: &Side, body_bytes: usize) -> io::Result<()> {
    stream.set_read_timeout(Some(SILENCE))?;
    let mut received = Received::default();
    let mut body = Vec::new();
    while let Some(head) = received.head(&mut stream, side, true)? {
        received.body(&mut stream, side, head.content_bytes)?;
        let asked = head.path.rsplit('/').next().and_then(|last| last.parse::<usize>().ok());
        let bytes = match &*head.method {
            "GET" => asked.unwrap_or(body_bytes).min(BODY_MAX),
            _ => 0,
        };
        body.resize(bytes, b'x');
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
        );
        if bytes == 0 {
            std::io::Write::write_all(&mut stream, answer.as_bytes())?;
        } else {
            write(side.writes, &mut stream, answer.as_bytes(), &body)?;
        }
    }
    Ok(())
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// POST, or GET.
    pub is_post: bool,
    /// Where to.
    pub path: String,
    /// The name in its Host line.
    pub host: String,
    /// Bytes of a POST's body, or those that a GET asks for.
    pub body_bytes: usize,
}

/// A connection on which the same is asked again and again.
#[derive(Debug)]
pub struct Client {
    stream: TcpStream,
    side: Side,
    head: String,
    body: Vec<u8>,
    received: Received,
}

impl Client {
    /// Connects, and asks a few times: the first acknowledgements of a connection are not delayed.
    ///
    /// # Errors
    /// When the connection cannot be made, is lost, or the server says that it failed.
    pub fn connect(server: SocketAddr, request: &Request, side: &Side) -> io::Result<Self> {
        let stream = side.connect(&server)?;
        stream.set_read_timeout(Some(Duration::from_secs(30)))?;
        let (path, host, bytes) = (&request.path, &request.host, request.body_bytes);
        let (head, body) = if request.is_post {
            let head = format!(
                "POST {path} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
            );
            (head, vec![b'x'; bytes])
        } else {
            (format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n"), Vec::new())
        };
        let mut client = Self { stream, side: side.clone(), head, body, received: Received::default() };
        for _ in 0..WARM_UP {
            client.exchange()?;
        }
        Ok(client)
    }

    /// Asks once and takes the answer.
    fn exchange(&mut self) -> io::Result<()> {
        let Self { stream, side, head, body, received } = self;
        if body.is_empty() {
            std::io::Write::write_all(stream, head.as_bytes())?;
        } else {
            write(side.writes, stream, head.as_bytes(), body)?;
        }
        let answer = received.head(stream, side, false)?.ok_or_else(|| wrong("the end before an answer"))?;
        received.body(stream, side, answer.content_bytes)?;
        if answer.method.starts_with('2') {
            Ok(())
        } else {
            Err(io::Error::other(format!("the server answered {}", answer.method)))
        }
    }

    /// A closed loop: asks again as soon as it has an answer, for so long and at least ten times.
    ///
    /// # Errors
    /// When the connection is lost, or the server says that it failed.
    pub fn ask(&mut self, runtime: Duration) -> io::Result<(Exchanges, Latency)> {
        let mut tally = Tally::new(Instant::now());
        loop {
            let asked = Instant::now();
            self.exchange()?;
            if tally.add(asked, Instant::now(), runtime) {
                return Ok(tally.finish());
            }
        }
    }

    /// An open loop: asks when it is time, and counts from the moment at which it was.
    ///
    /// # Errors
    /// As [`Self::ask`].
    pub fn keep_pace(&mut self, pace: &Pace) -> io::Result<(Exchanges, Latency)> {
        let mut tally = Tally::new(pace.start());
        while let Some(due) = pace.wait() {
            self.exchange()?;
            tally.add(due, Instant::now(), Duration::ZERO);
        }
        Ok(tally.finish())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ring::Writes;

    fn server(side: Side) -> HttpServer {
        HttpServer::start(TcpListener::bind("127.0.0.1:0").unwrap(), side, 100).unwrap()
    }

    fn request(is_post: bool, path: &str, body_bytes: usize) -> Request {
        Request { is_post, path: path.into(), host: "test".into(), body_bytes }
    }

    #[test]
    fn posts_and_gets_are_answered_however_they_are_written() {
        for writes in Writes::ALL {
            let is_slow = matches!(writes, Writes::MoreUnfinished | Writes::CorkUnfinished);
            let side = Side { writes, ..Side::default() };
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
    fn nonsense_ends_a_connection_and_nothing_else() {
        use std::io::Write as _;
        let server = server(Side::default());
        for nonsense in [
            &b"\x00\x01\x02 nothing\r\n\r\n"[..],
            b"POST / HTTP/1.1\r\nContent-Length: many\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n",
            &[b'x'; 20_000],
        ] {
            let mut stream = TcpStream::connect(server.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
            let _ = stream.write_all(nonsense);
            // The end, or a reset where bytes were left unread.
            assert!(matches!(stream.read(&mut [0]), Ok(0) | Err(_)));
        }
        let client = Client::connect(server.address(), &request(false, "/", 100), &Side::default());
        assert!(client.is_ok(), "{client:?}");
    }
}
