//! Message heads and bodies, with size and time limits.

use std::io::{self, Read as _};
use std::net::TcpStream;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use crate::endpoint::EndpointOptions;

/// Longest head of a message, bytes, and its largest number of lines.
const HEAD_MAX: usize = 16 << 10;
const LINES_MAX: usize = 64;
/// Largest body, bytes.
pub const BODY_MAX: usize = 64 << 20;

/// The bytes of every sent body: never written, so that the zero pages take no memory.
static BODY: LazyLock<Vec<u8>> = LazyLock::new(|| vec![0; BODY_MAX]);

/// Returns a body of at most [`BODY_MAX`] bytes. All connections share one.
pub(super) fn body(bytes: usize) -> &'static [u8] {
    &BODY[..bytes.min(BODY_MAX)]
}

/// Why a message cannot be processed.
#[derive(Debug)]
pub(super) enum Fault {
    /// The message is invalid or too large: status code and reason for its sender.
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

/// A parsed head and its length.
#[derive(Debug)]
pub(super) struct Head {
    bytes: usize,
    pub(super) content_bytes: usize,
    /// A request's method, or a response's status.
    pub(super) method: String,
    pub(super) path: String,
}

/// A deadline for a whole operation, whether the peer is silent or makes slow progress.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline {
    begun: Instant,
    patience: Duration,
}

impl Deadline {
    pub(super) fn within(patience: Duration) -> Self {
        Self { begun: Instant::now(), patience }
    }

    /// Reads, at most until the deadline.
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
        // A socket timeout is reported as an exceeded deadline.
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

/// Received bytes that are not consumed yet: at most a head and the bytes of one read behind it. Further pipelined
/// requests stay in the kernel's buffer.
#[derive(Debug, Default)]
pub(super) struct Received {
    buffer: Vec<u8>,
}

impl Received {
    /// Reads a head; `None` when the connection ends before it. The head must be complete within `patience` of its first
    /// byte.
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
                return Err(Fault::Message(431, "the head exceeds 16 KiB"));
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
                return if is_between {
                    Ok(None)
                } else {
                    Err(Fault::Message(400, "the connection ended within a head"))
                };
            }
            self.buffer.extend_from_slice(&bytes[..count]);
        }
    }

    /// Reads and discards a body of `bytes` bytes.
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
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the connection ended within a body"));
            }
            left -= count;
            deadline.check()?;
        }
        Ok(())
    }
}

/// Parses the head at the beginning of `bytes`; `None` while it is incomplete.
fn parse(bytes: &[u8], is_request: bool) -> Result<Option<Head>, Fault> {
    let mut lines = [httparse::EMPTY_HEADER; LINES_MAX];
    let fault = |error| match error {
        httparse::Error::TooManyHeaders => Fault::Message(431, "the head exceeds 64 lines"),
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
            return Err(Fault::Message(501, "Transfer-Encoding is not supported; use Content-Length"));
        }
        if line.name.eq_ignore_ascii_case("content-length")
            && content_bytes.replace(content_length(line.value)?).is_some()
        {
            return Err(Fault::Message(400, "more than one Content-Length"));
        }
    }
    let content_bytes = content_bytes.unwrap_or(0);
    if content_bytes > BODY_MAX {
        return Err(Fault::Message(413, "the body exceeds 64 MiB"));
    }
    Ok(Some(Head { bytes: length, content_bytes, method, path }))
}

fn content_length(value: &[u8]) -> Result<usize, Fault> {
    let digits = value.trim_ascii();
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Message(400, "Content-Length is not a number"));
    }
    let number = std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok());
    // A number that overflows exceeds every limit.
    Ok(number.unwrap_or(usize::MAX))
}
