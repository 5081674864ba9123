//! Responses (RFC 9112), received in pieces of any length. Bodies are counted and discarded, so a response takes no memory
//! beyond its head, which is bounded.

use std::mem::MaybeUninit;

use super::chunked::Chunked;

/// Longest head of a response, bytes, and most of its fields.
pub const HEAD_MAX: usize = 32 << 10;
/// Most fields of a head.
pub const FIELDS_MAX: usize = 128;
/// Most interim responses (1xx) before a response.
pub const INTERIM_MAX: u32 = 64;

/// Why bytes are no response.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Malformed {
    /// The head cannot be parsed.
    #[error("the head is not HTTP/1.1 or HTTP/1.0")]
    Head,
    /// The head exceeds [`HEAD_MAX`].
    #[error("the head exceeds 32 KiB")]
    HeadTooLong,
    /// The head exceeds [`FIELDS_MAX`].
    #[error("the head has more than 128 fields")]
    TooManyFields,
    /// Content-Length is no number, is too large, or occurs with different values.
    #[error("Content-Length is not one number of bytes")]
    ContentLength,
    /// The length of the body is ambiguous (RFC 9112 6.1, 6.3).
    #[error("Transfer-Encoding is invalid, or contradicts Content-Length or HTTP/1.0")]
    TransferEncoding,
    /// The chunked coding is invalid.
    #[error("the chunked body is invalid")]
    Chunk,
    /// A line of the chunked coding is too long.
    #[error("a line or the trailer of the chunked body is too long")]
    ChunkLine,
    /// Status 101.
    #[error("the server switches to another protocol (101)")]
    SwitchedProtocol,
    /// More than [`INTERIM_MAX`] interim responses.
    #[error("more than 64 interim responses (1xx)")]
    TooManyInterim,
    /// Bytes after the end of a response that belong to no request.
    #[error("the server sent more bytes than the response has")]
    Excess,
}

/// A received response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status, 100 to 999.
    pub status: u16,
    /// Bytes of the body; of a chunked one, those of its data.
    pub body_bytes: u64,
    /// Whether the connection can be used for another request.
    pub is_reusable: bool,
}

/// The result of a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fed {
    /// Bytes that belong to the response.
    pub used: usize,
    /// The response, if it is complete.
    pub response: Option<Response>,
}

/// How the end of a body is recognised.
#[derive(Clone, Debug)]
enum State {
    Head,
    /// After this many bytes.
    Length(u64),
    Chunked(Chunked),
    /// By the end of the connection.
    UntilClose,
}

/// Receives one response after the other.
#[derive(Debug)]
pub struct ResponseReader {
    state: State,
    /// The incomplete head.
    head: Vec<u8>,
    /// The response so far.
    response: Response,
    /// Whether responses have no body in any case: the method is HEAD.
    is_bodyless: bool,
    interim: u32,
    has_begun: bool,
}

const NO_RESPONSE: Response = Response { status: 0, body_bytes: 0, is_reusable: false };

/// A parsed head.
struct Head {
    bytes: usize,
    status: u16,
    is_reusable: bool,
    body: State,
}

impl ResponseReader {
    /// Creates a reader; `is_bodyless` if requests have the method HEAD.
    #[must_use]
    pub fn new(is_bodyless: bool) -> Self {
        Self {
            state: State::Head,
            head: Vec::new(),
            response: NO_RESPONSE,
            is_bodyless,
            interim: 0,
            has_begun: false,
        }
    }

    /// Forgets an incomplete response: the next byte is the first of another connection.
    pub fn reset(&mut self) {
        *self = Self { head: std::mem::take(&mut self.head), ..Self::new(self.is_bodyless) };
        self.head.clear();
    }

    /// Returns whether any byte of the current response has been received.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Processes the next bytes of the connection, up to the end of the response.
    ///
    /// # Errors
    /// When they are no valid response. The reader must be [reset](Self::reset) then.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<Fed, Malformed> {
        self.has_begun |= !bytes.is_empty();
        let mut used = 0;
        loop {
            let rest = &bytes[used..];
            match &mut self.state {
                State::Head => match self.feed_head(rest)? {
                    Some(count) => used += count,
                    None => return Ok(Fed { used: bytes.len(), response: None }),
                },
                State::Length(left) => {
                    let here = usize::try_from(*left).unwrap_or(usize::MAX).min(rest.len());
                    *left -= here as u64;
                    self.response.body_bytes += here as u64;
                    let is_complete = *left == 0;
                    return Ok(self.fed(used + here, is_complete));
                }
                State::Chunked(chunked) => {
                    let fed = chunked.feed(rest)?;
                    self.response.body_bytes = chunked.data_bytes;
                    return Ok(self.fed(used + fed.used, fed.is_complete));
                }
                State::UntilClose => {
                    self.response.body_bytes += rest.len() as u64;
                    return Ok(Fed { used: bytes.len(), response: None });
                }
            }
        }
    }

    /// Processes the end of the connection: returns the response if that ends it.
    #[must_use]
    pub fn close(&mut self) -> Option<Response> {
        let response = matches!(self.state, State::UntilClose).then_some(self.response);
        self.reset();
        response
    }

    fn fed(&mut self, used: usize, is_complete: bool) -> Fed {
        let response = is_complete.then_some(self.response);
        if is_complete {
            self.state = State::Head;
            self.response = NO_RESPONSE;
            self.interim = 0;
            self.has_begun = false;
        }
        Fed { used, response }
    }

    /// Processes bytes of a head; returns how many, or `None` when all are used and the head is still incomplete.
    fn feed_head(&mut self, bytes: &[u8]) -> Result<Option<usize>, Malformed> {
        if self.head.is_empty() {
            // Most heads arrive in one piece and are parsed where they are.
            let piece = &bytes[..bytes.len().min(HEAD_MAX)];
            if let Some(head) = parse(piece, self.is_bodyless)? {
                let used = head.bytes;
                self.begin_body(head)?;
                return Ok(Some(used));
            }
            if bytes.len() >= HEAD_MAX {
                return Err(Malformed::HeadTooLong);
            }
            self.head.extend_from_slice(bytes);
            return Ok(None);
        }
        let before = self.head.len();
        let room = HEAD_MAX - before;
        self.head.extend_from_slice(&bytes[..bytes.len().min(room)]);
        // Parsing again is worth its time only if the new bytes may hold the end of the head.
        if has_empty_line(&self.head[before.saturating_sub(2)..])
            && let Some(head) = parse(&self.head, self.is_bodyless)?
        {
            // A head that was complete before these bytes would have been parsed then.
            let used = head.bytes.saturating_sub(before);
            self.head.clear();
            self.begin_body(head)?;
            return Ok(Some(used));
        }
        if self.head.len() >= HEAD_MAX { Err(Malformed::HeadTooLong) } else { Ok(None) }
    }

    fn begin_body(&mut self, head: Head) -> Result<(), Malformed> {
        if head.status == 101 {
            return Err(Malformed::SwitchedProtocol);
        }
        if head.status < 200 {
            self.interim += 1;
            return if self.interim > INTERIM_MAX { Err(Malformed::TooManyInterim) } else { Ok(()) };
        }
        self.response = Response { status: head.status, body_bytes: 0, is_reusable: head.is_reusable };
        self.state = head.body;
        Ok(())
    }
}

/// Returns whether a line end is followed by another one.
fn has_empty_line(bytes: &[u8]) -> bool {
    bytes.iter().enumerate().any(|(at, byte)| {
        *byte == b'\n' && matches!(bytes.get(at + 1..), Some([b'\n', ..] | [b'\r', b'\n', ..]))
    })
}

/// Parses the head at the beginning of `bytes`; `None` while it is incomplete.
fn parse(bytes: &[u8], is_bodyless: bool) -> Result<Option<Head>, Malformed> {
    let mut fields = [const { MaybeUninit::uninit() }; FIELDS_MAX];
    let mut response = httparse::Response::new(&mut []);
    let status = httparse::ParserConfig::default()
        .parse_response_with_uninit_headers(&mut response, bytes, &mut fields)
        .map_err(|error| match error {
            httparse::Error::TooManyHeaders => Malformed::TooManyFields,
            _ => Malformed::Head,
        })?;
    let httparse::Status::Complete(length) = status else { return Ok(None) };
    let status = response.code.filter(|code| *code >= 100).ok_or(Malformed::Head)?;
    let is_old = response.version == Some(0);
    let mut framing = Framing::default();
    for field in response.headers.iter() {
        framing.add(field.name, field.value)?;
    }
    let is_empty = is_bodyless || status < 200 || status == 204 || status == 304;
    let body = if is_empty { State::Length(0) } else { framing.body(is_old)? };
    let persists = if is_old { framing.keeps_alive } else { true };
    let is_reusable = persists && !framing.closes && !matches!(body, State::UntilClose);
    Ok(Some(Head { bytes: length, status, is_reusable, body }))
}

/// The fields of a head that decide where the response and the connection end.
#[derive(Default)]
struct Framing {
    content_length: Option<u64>,
    /// Whether there is a Transfer-Encoding, and whether its last coding is chunked.
    last_is_chunked: Option<bool>,
    closes: bool,
    keeps_alive: bool,
}

impl Framing {
    fn add(&mut self, name: &str, value: &[u8]) -> Result<(), Malformed> {
        // Compared by length first: most fields are none of these.
        match name.len() {
            14 if name.eq_ignore_ascii_case("content-length") => self.add_length(value),
            17 if name.eq_ignore_ascii_case("transfer-encoding") => self.add_codings(value),
            10 if name.eq_ignore_ascii_case("connection") => {
                for option in elements(value) {
                    self.closes |= option.eq_ignore_ascii_case(b"close");
                    self.keeps_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// Several equal lengths are valid (RFC 9110 8.6).
    fn add_length(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for number in elements(value) {
            let is_number = !number.is_empty() && number.iter().all(u8::is_ascii_digit);
            let text = std::str::from_utf8(number).ok().filter(|_| is_number);
            let bytes = text.and_then(|text| text.parse().ok()).ok_or(Malformed::ContentLength)?;
            if self.content_length.replace(bytes).is_some_and(|before| before != bytes) {
                return Err(Malformed::ContentLength);
            }
        }
        Ok(())
    }

    fn add_codings(&mut self, value: &[u8]) -> Result<(), Malformed> {
        for coding in elements(value) {
            // Nothing may be applied after chunked (RFC 9112 6.1).
            if self.last_is_chunked == Some(true) {
                return Err(Malformed::TransferEncoding);
            }
            self.last_is_chunked = Some(coding.eq_ignore_ascii_case(b"chunked"));
        }
        Ok(())
    }

    /// RFC 9112 6.3; where it leaves a choice, ambiguous responses are invalid.
    fn body(&self, is_old: bool) -> Result<State, Malformed> {
        match (self.last_is_chunked, self.content_length) {
            (Some(_), Some(_)) => Err(Malformed::TransferEncoding),
            (Some(_), None) if is_old => Err(Malformed::TransferEncoding),
            (Some(true), None) => Ok(State::Chunked(Chunked::new())),
            (None, Some(bytes)) => Ok(State::Length(bytes)),
            (Some(false) | None, None) => Ok(State::UntilClose),
        }
    }
}

/// The elements of a comma-separated list, without surrounding space.
fn elements(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

#[cfg(test)]
#[path = "response_tests.rs"]
mod tests;
