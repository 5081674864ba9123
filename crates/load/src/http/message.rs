//! Heads and bodies, within bounds.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::endpoint::EndpointOptions;

/// Longest head of a message, bytes, and most of its lines.
const HEAD_MAX: usize = 16 << 10;
const LINES_MAX: usize = 64;
/// Largest body, bytes.
pub const BODY_MAX: usize = 64 << 20;

/// The bytes of every body that is sent: zeros that are never written to, so that no memory stands behind them.
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; BODY_MAX]);

/// Returns a body of at most [`BODY_MAX`] bytes. All connections share one.
pub(super) fn body(bytes: usize) -> &'static [u8] {
    &BODY[..bytes.min(BODY_MAX)]
}

/// What is wrong with a message, with the status that tells its sender.
#[derive(Debug)]
pub(super) enum Fault {
    /// The message cannot be taken.
    Message(u16, &'static str),
    /// The connection failed.
    Io(io::Error),
}

impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<Fault> for io::Error {
    fn from(fault: Fault) -> Self {
        match fault {
            Fault::Message(_, what) => Self::new(io::ErrorKind::InvalidData, what),
            Fault::Io(error) => error,
        }
    }
}

/// A head that was read: how long it is, and what it says.
#[derive(Debug)]
pub(super) struct Head {
    bytes: usize,
    pub(super) content_bytes: usize,
    /// A request's method, or a response's status.
    pub(super) method: String,
    pub(super) path: String,
}

/// A time by which something has to be over, whether the peer is silent or sends a byte now and then.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    begun: Instant,
    patience: Duration,
}

impl Deadline {
    pub(super) fn within(patience: Duration) -> Self {
        Self { begun: Instant::now(), patience }
    }

    /// Reads, and waits no longer than is left.
    fn read(&self, stream: &mut TcpStream, bytes: &mut [u8]) -> io::Result<usize> {
        self.check()?;
        let usual = stream.read_timeout()?;
        let left = self.patience.saturating_sub(self.begun.elapsed()).max(Duration::from_millis(1));
        if usual.is_some_and(|usual| usual <= left) {
            return stream.read(bytes);
        }
        stream.set_read_timeout(Some(left))?;
        let outcome = stream.read(bytes);
        stream.set_read_timeout(usual)?;
        // What ended by the timeout is said to have taken too long.
        if outcome.is_err() {
            self.check()?;
        }
        outcome
    }

    fn check(&self) -> io::Result<()> {
        if self.begun.elapsed() < self.patience {
            return Ok(());
        }
        Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes too long to send a message"))
    }
}

/// What is received of a connection and not used yet: at most a head and what one read brought behind it. Requests that
/// are sent ahead (pipelining) wait in the kernel's buffer beyond that.
#[derive(Debug, Default)]
pub(super) struct Received {
    buffer: Vec<u8>,
}

impl Received {
    /// Reads a head; none when the connection ends before one. Its bytes come within `patience` of the first one.
    pub(super) fn head(
        &mut self,
        stream: &mut TcpStream,
        side: &EndpointOptions,
        is_request: bool,
        patience: Duration,
    ) -> Result<Option<Head>, Fault> {
        let mut deadline: Option<Deadline> = None;
        loop {
            if let Some(head) = parse(&self.buffer, is_request)? {
                self.buffer.drain(..head.bytes);
                return Ok(Some(head));
            }
            if self.buffer.len() > HEAD_MAX {
                return Err(Fault::Message(431, "a head of more than 16 KiB"));
            }
            let mut bytes = [0; 16 << 10];
            let count = if self.buffer.is_empty() {
                stream.read(&mut bytes)?
            } else {
                deadline.get_or_insert_with(|| Deadline::within(patience)).read(stream, &mut bytes)?
            };
            side.received(stream)?;
            if count == 0 {
                let is_between = self.buffer.is_empty();
                return if is_between { Ok(None) } else { Err(Fault::Message(400, "the end within a head")) };
            }
            self.buffer.extend_from_slice(&bytes[..count]);
        }
    }

    /// Reads a body of so many bytes and discards it.
    pub(super) fn body(
        &mut self,
        stream: &mut TcpStream,
        side: &EndpointOptions,
        mut left: usize,
        patience: Duration,
    ) -> io::Result<()> {
        let here = left.min(self.buffer.len());
        self.buffer.drain(..here);
        left -= here;
        if left == 0 {
            return Ok(());
        }
        let deadline = Deadline::within(patience);
        let mut bytes = [0; 64 << 10];
        while left > 0 {
            let most = left.min(bytes.len());
            let count = stream.read(&mut bytes[..most])?;
            side.received(stream)?;
            if count == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the end within a body"));
            }
            left -= count;
            deadline.check()?;
        }
        Ok(())
    }
}

/// Parses the head at the beginning of `bytes`, when it is whole.
fn parse(bytes: &[u8], is_request: bool) -> Result<Option<Head>, Fault> {
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let fault = |error| match error {
        httparse::Error::TooManyHeaders => Fault::Message(431, "a head of more than 64 lines"),
        _ => Fault::Message(400, "no HTTP"),
    };
    let (length, method, path) = if is_request {
        let mut request = httparse::Request::new(&mut lines);
        let httparse::Status::Complete(length) = request.parse(bytes).map_err(fault)? else {
            return Ok(None);
        };
        (length, request.method.unwrap_or_default().to_owned(), request.path.unwrap_or_default().to_owned())
    } else {
        let mut response = httparse::Response::new(&mut lines);
        let httparse::Status::Complete(length) = response.parse(bytes).map_err(fault)? else {
            return Ok(None);
        };
        (length, response.code.unwrap_or(0).to_string(), String::new())
    };
    let mut content_bytes = None;
    for line in lines.iter().take_while(|line| !line.name.is_empty()) {
        if line.name.eq_ignore_ascii_case("transfer-encoding") {
            return Err(Fault::Message(501, "bodies come with Content-Length here"));
        }
        if line.name.eq_ignore_ascii_case("content-length")
            && content_bytes.replace(content_length(line.value)?).is_some()
        {
            return Err(Fault::Message(400, "more than one Content-Length"));
        }
    }
    let content_bytes = content_bytes.unwrap_or(0);
    if content_bytes > BODY_MAX {
        return Err(Fault::Message(413, "a body of more than 64 MiB"));
    }
    Ok(Some(Head { bytes: length, content_bytes, method, path }))
}

fn content_length(value: &[u8]) -> Result<usize, Fault> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Message(400, "Content-Length is not a number"));
    }
    let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    // What does not fit is too much.
    Ok(number.unwrap_or(usize::MAX))
}
