//! The HTTP server.

use std::io::{self, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::message::{BODY_MAX, Fault, Head, Received, body};
use crate::accept::{Limits, accept_all};
use crate::endpoint::EndpointOptions;
use crate::writes::write_within;

/// A server that runs until it is dropped.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    is_over: Arc<AtomicBool>,
}

impl HttpServer {
    /// Serves connections to a listener, each on its own thread, in the namespace and with the CPU affinity of the caller.
    /// A GET is answered with `body_bytes`, or with the number of bytes after the last slash of its path; above
    /// [`BODY_MAX`] it is rejected. Requests of a connection are answered in sequence, and a response takes no memory
    /// beyond the socket's buffer.
    ///
    /// # Errors
    /// When the listener has no address or the accepting thread cannot be started.
    pub fn start(
        listener: TcpListener,
        side: EndpointOptions,
        body_bytes: usize,
        limits: Limits,
    ) -> io::Result<Self> {
        // Accepted sockets inherit the options.
        side.tcp().apply(&listener)?;
        let (address, is_over) = (listener.local_addr()?, Arc::new(AtomicBool::new(false)));
        let over = Arc::clone(&is_over);
        let own = limits.clone();
        let serve = Arc::new(move |stream| {
            // A failed connection is closed; others continue.
            let _ = serve(stream, &side, body_bytes, &own);
        });
        std::thread::Builder::new().spawn(move || {
            accept_all(&listener, &limits, &over, &serve, refuse);
        })?;
        Ok(Self { address, is_over })
    }

    /// Returns its address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        // Connecting wakes the accepting thread from accept(2). If that fails, the thread ends with the process.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_millis(200));
    }
}

/// Rejects a connection above the limits. The socket buffer is empty, so the write does not block.
fn refuse(mut stream: TcpStream) {
    let _ = stream.write_all(status(503, "too many connections", true).as_bytes());
}

/// Formats a response whose body is the reason.
fn status(code: u16, reason: &str, is_last: bool) -> String {
    let name = match code {
        413 => "Content Too Large",
        431 => "Request Header Fields Too Large",
        501 => "Not Implemented",
        503 => "Service Unavailable",
        _ => "Bad Request",
    };
    let close = if is_last { "Connection: close\r\n" } else { "" };
    format!(
        "HTTP/1.1 {code} {name}\r\nContent-Type: text/plain\r\n{close}Content-Length: {}\r\n\r\n{reason}\n",
        reason.len() + 1
    )
}

fn serve(
    mut stream: TcpStream,
    side: &EndpointOptions,
    body_bytes: usize,
    limits: &Limits,
) -> io::Result<()> {
    stream.set_read_timeout(Some(limits.silence))?;
    stream.set_write_timeout(Some(limits.silence))?;
    let mut received = Received::default();
    loop {
        let head = match received.head(&mut stream, side, true, limits.head_time) {
            Ok(Some(head)) => head,
            Ok(None) => return Ok(()),
            Err(Fault::Message(code, reason)) => {
                stream.write_all(status(code, reason, true).as_bytes())?;
                return end(&stream);
            }
            Err(Fault::Io(error)) => return Err(error),
        };
        received.body(&mut stream, side, head.content_bytes, limits.body_time(head.content_bytes))?;
        let Some(bytes) = wanted(&head, body_bytes) else {
            let reason = format!("a body has at most {BODY_MAX} bytes");
            stream.write_all(status(400, &reason, false).as_bytes())?;
            continue;
        };
        let answer = format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/octet-stream\r\nContent-Length: {bytes}\r\n\r\n"
        );
        if bytes == 0 {
            stream.write_all(answer.as_bytes())?;
        } else {
            let patience = Some(limits.body_time(bytes));
            write_within(side.writes, &stream, answer.as_bytes(), body(bytes), patience)?;
        }
    }
}

/// Returns the requested number of bytes; `None` when it exceeds [`BODY_MAX`].
fn wanted(head: &Head, body_bytes: usize) -> Option<usize> {
    if head.method != "GET" {
        return Some(0);
    }
    let last = head.path.rsplit('/').next().unwrap_or_default();
    if last.is_empty() || !last.bytes().all(|byte| byte.is_ascii_digit()) {
        return Some(body_bytes.min(BODY_MAX));
    }
    // A number that overflows is too large as well.
    last.parse().ok().filter(|bytes| *bytes <= BODY_MAX)
}

/// Longest time to read from a rejected client before the close: closing a socket with unread bytes resets the
/// connection, and the reset would discard the sent response.
const LINGER: Duration = Duration::from_millis(200);

/// Closes a connection whose client may still be sending.
fn end(mut stream: &TcpStream) -> io::Result<()> {
    stream.shutdown(Shutdown::Write)?;
    stream.set_read_timeout(Some(LINGER))?;
    let begun = Instant::now();
    while begun.elapsed() < LINGER && stream.read(&mut [0; 16 << 10])? > 0 {}
    Ok(())
}
