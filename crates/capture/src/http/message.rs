//! Cuts a byte stream into HTTP/1.1 messages without keeping their bodies (RFC 9112 6).

use record::{Side, Word};

use crate::follow::MessageState;
pub(super) use crate::http::first_line::may_begin;
use crate::http::first_line::{self, Asked};
use crate::packet::At;
use crate::stream::Absent;

/// The content of a message's first line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// The method, whether the body waits for 100 Continue, and whether it asks for WebSocket (RFC 6455 4.2.1), if that is visible.
    Request { method: Word, awaits_continue: bool, asks_websocket: Option<bool> },
    /// The status code, and whether it changes the protocol to WebSocket (RFC 6455 4.2.2), if that is visible.
    Response { status: u16, is_websocket: Option<bool> },
}

/// An event on the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event<'a> {
    /// The first byte of a message passed.
    Began(At),
    /// Its head is complete.
    Head(Start),
    /// The target of the request whose head is complete.
    Target(&'a [u8]),
    /// Its last byte passed: all its bytes, those of its body, the offset in the stream behind it, and its chunks (RFC 9112 7.1).
    Ended { at: At, bytes: u64, body_bytes: u64, offset: u64, chunks: u32 },
    /// The boundary was lost; the current message is dropped.
    Lost(At),
}

/// Most bytes of a head, and of a line in a chunked body.
const HEAD_MAX: usize = 64 << 10;
/// Header fields of most heads.
const FIELDS: usize = 64;
/// As many fields as a head can have: each takes four bytes at least, `a:` and its line's end.
const FIELDS_MAX: usize = HEAD_MAX / 4;

#[derive(Debug)]
enum State {
    /// Gathering a head.
    Head,
    /// In a body, of which this many bytes remain.
    Body(u64),
    /// In a chunked body (RFC 9112 7.1).
    Chunked(Chunk),
    /// In a body that ends with the connection.
    UntilClosed,
    /// In a message whose head or chunks were not all captured: it ends before the next one of either side. When its last byte
    /// so far passed.
    Cut(At),
    /// In what is left of a message that has been taken as ended: the other side has begun to send.
    Rest,
    /// No boundary is known.
    Lost,
}

#[derive(Debug)]
enum Chunk {
    /// Gathering the line with a chunk's length.
    Length,
    /// In a chunk; its line end is counted.
    Data(u64),
    /// Behind the last chunk: lines up to an empty one.
    Trailer,
}

/// One direction.
#[derive(Debug)]
pub(super) struct Messages {
    side: Side,
    state: State,
    /// The received part of the head or of a line.
    text: Vec<u8>,
    /// Bytes of the current message, of its body, and of the stream.
    bytes: u64,
    body_bytes: u64,
    /// Its chunks so far.
    chunks: u32,
    offset: u64,
    /// How often the boundary was lost, and bytes without one.
    pub(super) lost: u64,
    pub(super) skipped_bytes: u64,
}

impl Messages {
    pub(super) fn new(side: Side, in_the_middle: bool) -> Self {
        Self {
            side,
            state: if in_the_middle { State::Lost } else { State::Head },
            text: Vec::new(),
            bytes: 0,
            body_bytes: 0,
            chunks: 0,
            offset: 0,
            lost: 0,
            skipped_bytes: 0,
        }
    }

    /// Whether the present bytes are of a body whose end is known.
    pub(super) fn is_in_body(&self) -> bool {
        matches!(self.state, State::Body(_) | State::Chunked(_))
    }

    /// Whether the rest of the present body was there when its head was written: its length is known.
    pub(super) fn has_rest(&self) -> bool {
        matches!(self.state, State::Body(_))
    }

    /// Whether the end of the present message is not in the capture, so that others may follow it unseen.
    pub(super) fn is_cut(&self) -> bool {
        matches!(self.state, State::Cut(_))
    }

    /// Offset of the next byte in the stream.
    pub(super) fn offset(&self) -> u64 {
        self.offset
    }

    pub(super) fn message_state(&self) -> MessageState {
        match self.state {
            State::Head if self.text.is_empty() => MessageState::Nothing,
            State::Rest | State::Lost => MessageState::Unknown,
            State::Body(_) | State::Chunked(_) if self.body_bytes == 0 && self.text.is_empty() => {
                MessageState::Header
            }
            _ => MessageState::Part,
        }
    }

    /// Processes the next bytes, the payload of one segment.
    pub(super) fn bytes(&mut self, bytes: &[u8], at: At, mut take: impl FnMut(Event<'_>)) {
        let mut rest = bytes;
        while !rest.is_empty() {
            let taken = self.one(rest, at, Asked::Other, &mut take);
            rest = rest.get(taken..).unwrap_or_default();
        }
    }

    /// Bytes come whose front is that of a segment, even if they do not come at once.
    pub(super) fn front(&mut self, bytes: &[u8]) {
        if matches!(self.state, State::Rest | State::Lost) && may_begin(self.side, bytes) {
            self.state = State::Head;
        }
    }

    /// Whether a message begins with these bytes, and ends none.
    pub(super) fn begins(&self, bytes: &[u8]) -> bool {
        match self.state {
            State::Head => self.text.is_empty() && !matches!(bytes, [b'\r' | b'\n', ..]),
            State::Rest | State::Lost => may_begin(self.side, bytes),
            _ => false,
        }
    }

    /// As [`Messages::bytes`], up to the end of a message at most; how many bytes were taken, at least one.
    pub(super) fn one(
        &mut self,
        bytes: &[u8],
        at: At,
        asked: Asked,
        mut take: impl FnMut(Event<'_>),
    ) -> usize {
        let taken = match &mut self.state {
            State::Head => return self.head(bytes, at, asked, &mut take),
            State::Rest | State::Lost => {
                // A sender begins a message at the front of a segment.
                if may_begin(self.side, bytes) {
                    self.state = State::Head;
                    return self.head(bytes, at, asked, &mut take);
                }
                self.skipped_bytes += bytes.len() as u64;
                bytes.len()
            }
            State::Body(left) => {
                let count = (*left).min(bytes.len() as u64);
                *left -= count;
                self.body_bytes += count;
                count as usize
            }
            State::UntilClosed => {
                self.body_bytes += bytes.len() as u64;
                bytes.len()
            }
            State::Cut(last) => {
                if may_begin(self.side, bytes) {
                    self.end_cut(&mut take);
                    self.state = State::Head;
                    return self.head(bytes, at, asked, &mut take);
                }
                *last = at;
                bytes.len()
            }
            State::Chunked(_) => return self.chunked(bytes, at, &mut take),
        };
        self.count(taken as u64);
        self.end_body(at, &mut take);
        taken.max(1)
    }

    /// Processes bytes that were on the wire and are not in the capture.
    pub(super) fn missing(&mut self, absent: Absent, count: u64, at: At, mut take: impl FnMut(Event<'_>)) {
        let inside = match &mut self.state {
            State::Body(left) => {
                let inside = count.min(*left);
                *left -= inside;
                inside
            }
            // The line end after a chunk is not needed.
            State::Chunked(Chunk::Data(left)) => {
                let inside = count.min(left.saturating_sub(1));
                *left -= inside;
                inside
            }
            State::UntilClosed => count,
            State::Head | State::Cut(_) | State::Chunked(_) | State::Rest | State::Lost => 0,
        };
        self.body_bytes += inside;
        self.count(inside);
        self.end_body(at, &mut take);
        if inside < count {
            self.beyond(absent, count - inside, at, &mut take);
        }
    }

    /// Processes missing bytes in which a boundary may be. The rest of a segment belongs to its message, unless that has ended; a
    /// hole may hold other messages.
    fn beyond(&mut self, absent: Absent, count: u64, at: At, take: &mut impl FnMut(Event<'_>)) {
        let start = match (absent, &self.state) {
            (Absent::Uncaptured, State::Head) => first_line::read(self.side, &self.text),
            _ => None,
        };
        match (absent, &self.state) {
            (Absent::Uncaptured, State::Cut(_) | State::Chunked(_)) => self.cut(at),
            (Absent::Uncaptured, State::Rest) => self.skipped_bytes += count,
            (Absent::Uncaptured, State::Head) if let Some(start) = start => {
                take(Event::Head(start));
                if let Some(target) = first_line::target(self.side, &self.text) {
                    take(Event::Target(target));
                }
                self.cut(at);
                // What follows the answer that changes the protocol is none of HTTP.
                if matches!(start, Start::Response { status: 101, .. }) {
                    self.count(count);
                    return self.ended(at, take);
                }
            }
            (Absent::Lost, State::Lost) => {
                // It may hold messages that the hole before has not.
                take(Event::Lost(at));
                self.skipped_bytes += count;
            }
            _ => {
                self.lose(at, take);
                self.skipped_bytes += count;
            }
        }
        self.count(count);
    }

    fn cut(&mut self, at: At) {
        self.text = Vec::new();
        self.state = State::Cut(at);
    }

    /// Ends a message whose end was not captured: the other side has begun to send, or the connection has ended.
    pub(super) fn end_cut(&mut self, mut take: impl FnMut(Event<'_>)) {
        if let State::Cut(last) = self.state {
            self.ended(last, &mut take);
            self.state = State::Rest;
        }
    }

    /// The sender has closed its side.
    pub(super) fn closed(&mut self, at: At, mut take: impl FnMut(Event<'_>)) {
        if matches!(self.state, State::UntilClosed) {
            self.ended(at, &mut take);
        }
        self.end_cut(take);
    }

    fn count(&mut self, bytes: u64) {
        self.bytes += bytes;
        self.offset += bytes;
    }

    fn head(&mut self, bytes: &[u8], at: At, asked: Asked, take: &mut impl FnMut(Event<'_>)) -> usize {
        if self.text.is_empty() {
            // Empty lines before a message are to be ignored (RFC 9112 2.2).
            let blank = bytes.iter().take_while(|b| matches!(b, b'\r' | b'\n')).count();
            if blank > 0 {
                self.offset += blank as u64;
                return blank;
            }
            (self.bytes, self.body_bytes) = (0, 0);
            take(Event::Began(at));
        }
        let before = self.text.len();
        let room = HEAD_MAX.saturating_sub(before);
        self.text.extend_from_slice(&bytes[..bytes.len().min(room)]);
        let from = before.saturating_sub(3);
        let Some(end) = end_of_head(&self.text[from..]).map(|end| from + end) else {
            if self.text.len() >= HEAD_MAX {
                self.lose(at, take);
            }
            self.count(bytes.len() as u64);
            return bytes.len();
        };
        let taken = end - before;
        self.count(taken as u64);
        let text = std::mem::take(&mut self.text);
        match read_head(self.side, &text[..end], asked) {
            Some((start, state)) => {
                take(Event::Head(start));
                if let Some(target) = first_line::target(self.side, &text) {
                    take(Event::Target(target));
                }
                self.state = state;
                self.end_body(at, take);
            }
            None => self.lose(at, take),
        }
        taken
    }

    fn chunked(&mut self, bytes: &[u8], at: At, take: &mut impl FnMut(Event<'_>)) -> usize {
        let State::Chunked(chunk) = &mut self.state else { return bytes.len() };
        if let Chunk::Data(left) = chunk {
            let count = (*left).min(bytes.len() as u64);
            *left -= count;
            self.body_bytes += count;
            if *left == 0 {
                *chunk = Chunk::Length;
            }
            self.count(count);
            return (count as usize).max(1);
        }
        // A line.
        let end = bytes.iter().position(|&b| b == b'\n').map(|at| at + 1);
        let taken = end.unwrap_or(bytes.len());
        self.text.extend_from_slice(&bytes[..taken]);
        self.count(taken as u64);
        if self.text.len() > HEAD_MAX {
            self.lose(at, take);
            return taken;
        }
        if end.is_none() {
            return taken;
        }
        let line = std::mem::take(&mut self.text);
        let line = line.trim_ascii();
        match self.state {
            State::Chunked(Chunk::Length) => {
                let digits = line.split(|&b| b == b';').next().unwrap_or_default().trim_ascii();
                let length = std::str::from_utf8(digits).ok().and_then(|d| u64::from_str_radix(d, 16).ok());
                match length {
                    Some(0) => self.state = State::Chunked(Chunk::Trailer),
                    Some(length) => {
                        self.chunks = self.chunks.saturating_add(1);
                        self.state = State::Chunked(Chunk::Data(length.saturating_add(2)));
                    }
                    None => self.lose(at, take),
                }
            }
            State::Chunked(Chunk::Trailer) if line.is_empty() => self.ended(at, take),
            _ => {}
        }
        taken
    }

    /// Ends the message when its body is complete.
    fn end_body(&mut self, at: At, take: &mut impl FnMut(Event<'_>)) {
        if matches!(self.state, State::Body(0)) {
            self.ended(at, take);
        }
    }

    fn ended(&mut self, at: At, take: &mut impl FnMut(Event<'_>)) {
        self.state = State::Head;
        let (bytes, body_bytes) = (self.bytes, self.body_bytes);
        let chunks = std::mem::take(&mut self.chunks);
        take(Event::Ended { at, bytes, body_bytes, offset: self.offset, chunks });
    }

    pub(super) fn lose(&mut self, at: At, take: &mut impl FnMut(Event<'_>)) {
        self.text = Vec::new();
        if !matches!(self.state, State::Lost) {
            self.state = State::Lost;
            self.lost += 1;
            take(Event::Lost(at));
        }
    }
}

/// Parses a complete head: its first line, and how its body is delimited (RFC 9112 6.3).
fn read_head(side: Side, head: &[u8], asked: Asked) -> Option<(Start, State)> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    match read_fields(side, head, asked, &mut fields) {
        Err(httparse::Error::TooManyHeaders) => {
            read_fields(side, head, asked, &mut vec![httparse::EMPTY_HEADER; FIELDS_MAX]).ok()?
        }
        read => read.ok()?,
    }
}

/// The same, with room for so many fields; `None` if the head is none of HTTP, an error if it does not parse.
fn read_fields<'a>(
    side: Side,
    head: &'a [u8],
    asked: Asked,
    fields: &mut [httparse::Header<'a>],
) -> Result<Option<(Start, State)>, httparse::Error> {
    let (mut start, fields) = match side {
        Side::Client => {
            let mut request = httparse::Request::new(fields);
            request.parse(head)?;
            let Some(method) = request.method else { return Ok(None) };
            let method = Word::new(method.as_bytes());
            let states = |name: &str, value: &[u8]| {
                let field = request.headers.iter().find(|f| f.name.eq_ignore_ascii_case(name));
                field.is_some_and(|f| f.value.trim_ascii().eq_ignore_ascii_case(value))
            };
            let awaits_continue = states("expect", b"100-continue");
            let asks_websocket = Some(states("upgrade", b"websocket"));
            (Start::Request { method, awaits_continue, asks_websocket }, request.headers)
        }
        Side::Server => {
            let mut response = httparse::Response::new(fields);
            response.parse(head)?;
            let Some(status) = response.code else { return Ok(None) };
            (Start::Response { status, is_websocket: Some(false) }, response.headers)
        }
    };
    let field = |name: &str| fields.iter().find(|f| f.name.eq_ignore_ascii_case(name)).map(|f| f.value);
    if let Start::Response { status: 101, is_websocket } = &mut start {
        let value = field("upgrade");
        *is_websocket = Some(value.is_some_and(|value| value.eq_ignore_ascii_case(b"websocket")));
    }
    // Several lines of a field are one list.
    let coding = fields.iter().rfind(|f| f.name.eq_ignore_ascii_case("transfer-encoding"));
    let is_chunked = coding.is_some_and(|f| f.value.to_ascii_lowercase().trim_ascii().ends_with(b"chunked"));
    let length = match field("content-length") {
        Some(value) => match std::str::from_utf8(value).map(|value| value.trim().parse::<u64>()) {
            Ok(Ok(length)) => Some(length),
            _ => return Ok(None),
        },
        None => None,
    };
    let without_body = match start {
        Start::Response { status, .. } => {
            let is_tunnel = asked == Asked::Connect && (200..300).contains(&status);
            asked == Asked::Head || is_tunnel || (100..200).contains(&status) || matches!(status, 204 | 304)
        }
        Start::Request { .. } => false,
    };
    let state = if without_body {
        State::Body(0)
    } else if is_chunked {
        State::Chunked(Chunk::Length)
    } else if let Some(length) = length {
        State::Body(length)
    } else if matches!(start, Start::Response { .. }) {
        State::UntilClosed
    } else {
        State::Body(0)
    };
    Ok(Some((start, state)))
}

/// The bytes up to the first empty line, and with it. A line may end without CR (RFC 9112 2.2).
fn end_of_head(bytes: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        at += bytes.get(at..)?.iter().position(|&b| b == b'\n')? + 1;
        match bytes.get(at..)? {
            [b'\n', ..] => return Some(at + 1),
            [b'\r', b'\n', ..] => return Some(at + 2),
            _ => {}
        }
    }
}
