//! HTTP/2 (RFC 9113) without TLS, and gRPC over it: with prior knowledge, behind an upgrade, and from the middle of a connection.
//!
//! A stream that the client opens is a request; pushed streams are none. Its operation is the method, or `gRPC`; its key the path
//! without numbers and identifiers, or gRPC's `/package.Service/Method`; its status `:status`, gRPC's status from the trailers, or
//! the code with which the stream was reset. What a header block says that refers to blocks which were not captured is unknown.
//!
//! - A request that asks for an upgrade is answered by 101 and, from there on, as stream 1.
//! - An informational response (1xx) is no answer. A response may come before the end of its request.
//! - A tunnel (CONNECT) is answered by its head. A gRPC stream of several messages is answered by the first one, and its status is
//!   unknown. A gRPC stream, or one of events (`text/event-stream`), that is open at the end is not unanswered; that the client cancels
//!   the latter is its end.
//! - A stream that the client resets before an answer has begun is withdrawn, and so is one above the last that GOAWAY names: the
//!   server has not refused to answer.
//! - The time in which a window of flow control had no room is a wait of the requests whose data goes on behind it.

mod frame;
mod hpack;
mod huffman;
mod stream;
mod windows;

use std::collections::HashMap;

use record::{Side, StallKind, Status, Word};

use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start, Upgraded};
use frame::{Header, PREFACE};
use hpack::{Content, Head, Table};
use stream::{Reply, Stream};
use windows::{Flow, Window};

/// HTTP/2, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "http2", begins, new: |shown| Box::new(Http2 { shown, ..Http2::default() }) };

/// Most streams whose state is kept.
const STREAMS_MAX: usize = 4096;
/// Most bytes of a header block.
const BLOCK_MAX: usize = 64 << 10;

/// A connection.
#[derive(Debug, Default)]
struct Http2 {
    shown: Shown,
    sides: [Sender; 2],
    streams: HashMap<u32, Stream, foldhash::fast::RandomState>,
    /// The first and the last stream of the client that was seen.
    first: u32,
    last: u32,
    /// Streams that may have ended in a hole.
    uncertain: Vec<u32>,
    /// The last path and its key: most requests have that of the one before.
    recent: Recent,
}

/// A path and the key that it has.
#[derive(Debug, Default)]
struct Recent {
    path: Vec<u8>,
    is_grpc: bool,
    key: String,
}

impl Recent {
    fn key(&mut self, path: &[u8], is_grpc: bool, shown: Shown) -> &str {
        if self.path != path || self.is_grpc != is_grpc || self.key.is_empty() {
            *self = Self { path: path.to_vec(), is_grpc, key: stream::key(path, is_grpc, shown) };
        }
        &self.key
    }
}

/// What one side sends.
#[derive(Debug, Default)]
struct Sender {
    table: Table,
    block: Option<Block>,
    flow: Flow,
    /// Longest payload that it may send, if it is known.
    payload_max: Option<u32>,
    /// Whether its frames are seen.
    is_heard: bool,
}

/// A header block, of which not all frames have passed.
#[derive(Debug)]
struct Block {
    kind: u8,
    stream: u32,
    ends_stream: bool,
    bytes: Vec<u8>,
    is_whole: bool,
}

fn of(stream: u32) -> Of {
    Of::Id(u64::from(stream))
}

fn begins(start: &Start<'_>) -> bool {
    let is_preface = start.side == Side::Client && start.bytes.starts_with(&PREFACE[..16]);
    is_preface || frame::proof(start.side, start.bytes, |_| false) >= frame::CERTAIN
}

impl Decoder for Http2 {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if side == Side::Client && start.starts_with(b"PRI") {
            let is_preface = start.iter().zip(PREFACE).all(|(byte, expected)| byte == expected);
            return match start.len() < PREFACE.len() {
                _ if !is_preface => Length::Invalid,
                true => Length::More,
                false => Length::Is(PREFACE.len() as u64),
            };
        }
        let Some(header) = Header::of(start) else { return Length::More };
        let is_short = self.sides[side as usize].payload_max.is_none_or(|most| header.length <= most);
        let is_valid = header.is_valid(side) && is_short;
        if is_valid { Length::Is(frame::HEADER as u64 + u64::from(header.length)) } else { Length::Invalid }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let Message { side, bytes, length } = *message;
        if bytes == PREFACE {
            self.begin();
            return;
        }
        let Some(header) = Header::of(bytes) else { return };
        self.sides[side as usize].is_heard = true;
        let payload = bytes.get(frame::HEADER..).filter(|_| bytes.len() as u64 == length);
        if side == Side::Server && !self.uncertain.is_empty() {
            self.uncertain.retain(|&stream| stream != header.stream);
        }
        match header.kind {
            frame::DATA => self.data(side, &header, payload, requests),
            frame::HEADERS | frame::PUSH_PROMISE | frame::CONTINUATION => {
                self.fields(side, &header, payload, requests);
            }
            frame::RST_STREAM => {
                self.reset(side, header.stream, frame::number(payload.unwrap_or_default()), requests);
            }
            frame::SETTINGS if !header.has(frame::ACK) => self.settings(side, payload, requests),
            frame::WINDOW_UPDATE => self.update(side, header.stream, payload, requests),
            frame::GOAWAY if side == Side::Server => self.leave(payload, requests),
            _ => {}
        }
    }

    fn kept(&self) -> usize {
        frame::HEADER + frame::PAYLOAD_MAX as usize
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        let is_preface = side == Side::Client && start.starts_with(PREFACE);
        is_preface || frame::proof(side, start, |stream| self.streams.contains_key(&stream)) >= frame::LIKELY
    }

    fn upgraded(&mut self, upgraded: Upgraded, requests: &mut Requests) {
        (self.first, self.last) = (1, 1);
        self.streams.insert(1, Stream::default());
        requests.adopt(of(1), upgraded);
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        let sender = &mut self.sides[side as usize];
        sender.table.lose();
        (sender.block, sender.is_heard) = (None, false);
        self.lose_windows();
        requests.excuse_all();
        self.uncertain = self.streams.keys().copied().collect();
    }
}

impl Http2 {
    /// The connection begins here: all of it is seen.
    fn begin(&mut self) {
        for sender in &mut self.sides {
            sender.flow.begin();
            sender.is_heard = true;
            sender.payload_max = sender.payload_max.or(Some(frame::PAYLOAD_MAX));
        }
    }

    /// Updates of windows, or data, may be missing.
    fn lose_windows(&mut self) {
        self.sides.iter_mut().for_each(|sender| sender.flow.lose());
        for stream in self.streams.values_mut() {
            stream.flows.iter_mut().for_each(|flow| flow.window = Window::default());
        }
    }

    fn settings(&mut self, side: Side, payload: Option<&[u8]>, requests: &Requests) {
        let Some(payload) = payload else { return self.lose_windows() };
        let sender = side.peer() as usize;
        for (id, value) in frame::settings(payload) {
            match id {
                4 => {
                    let size = i64::from(value);
                    let before = self.sides[sender].flow.initial.replace(size);
                    let Some(change) = before.map(|before| size - before) else { continue };
                    let flows = self.streams.values_mut().map(|stream| &mut stream.flows[sender]);
                    flows.for_each(|flow| flow.window.update(change, requests.now()));
                }
                5 => self.sides[sender].payload_max = Some(value),
                _ => {}
            }
        }
    }

    fn update(&mut self, side: Side, stream: u32, payload: Option<&[u8]>, requests: &Requests) {
        let Some(payload) = payload else { return self.lose_windows() };
        let by = i64::from(frame::number(payload) & !(1 << 31));
        let sender = side.peer() as usize;
        let window = match stream {
            0 => Some(&mut self.sides[sender].flow.connection),
            _ => self.streams.get_mut(&stream).map(|stream| &mut stream.flows[sender].window),
        };
        if let Some(window) = window {
            window.update(by, requests.now());
        }
    }

    fn data(&mut self, side: Side, header: &Header, payload: Option<&[u8]>, requests: &mut Requests) {
        let number = header.stream;
        let stream = self.streams.get_mut(&number);
        let (is_known, times) = (stream.is_some(), requests.times());
        let own = stream.map(|stream| &mut stream.flows[side as usize]);
        let waited = self.sides[side as usize].flow.data(own, header.length, times);
        // Where both windows were used up, it is one wait.
        if let Some(wait) = waited.waits.into_iter().flatten().max_by_key(|wait| wait.ns) {
            requests.held(StallKind::FlowControl, side, wait.ns, wait.frames);
        }
        if waited.own_ns > 0 {
            requests.waited(of(number), StallKind::FlowControl, side, waited.own_ns);
        }
        let is_end = header.has(frame::END_STREAM);
        if side == Side::Client {
            requests.ask_more(of(number));
            if is_end {
                requests.asked(of(number));
            }
            return;
        }
        if !is_known {
            return self.unknown_answer(number, is_end, requests);
        }
        let Some(stream) = self.streams.get_mut(&number) else { return };
        if stream.is_grpc && header.length > 0 {
            if matches!(stream.reply, Reply::Left(0)) {
                // A further message: the request has been answered by the first.
                requests.answered(of(number), Status::Unknown);
                self.streams.remove(&number);
                return;
            }
            let data = payload.map(|payload| frame::data(header, payload));
            stream.reply = stream.reply.data(u64::from(header.length), data);
        }
        stream.is_answered = true;
        requests.answer(of(number));
        if is_end {
            self.end(number, requests);
        }
    }

    /// A block of header fields, or a part of it.
    fn fields(&mut self, side: Side, header: &Header, payload: Option<&[u8]>, requests: &mut Requests) {
        let sender = &mut self.sides[side as usize];
        let is_first = header.kind != frame::CONTINUATION;
        let begun = sender.block.take().filter(|block| block.stream == header.stream);
        let mut block = match begun {
            Some(block) if !is_first => block,
            _ => Block {
                kind: header.kind,
                stream: header.stream,
                ends_stream: is_first && header.has(frame::END_STREAM),
                bytes: Vec::new(),
                is_whole: is_first,
            },
        };
        match payload.and_then(|payload| frame::fragment(header, payload)) {
            Some(fragment) if block.bytes.len() + fragment.len() <= BLOCK_MAX => {
                block.bytes.extend_from_slice(fragment);
            }
            fragment => {
                // Too long: it is told as a message of unknown bounds.
                requests.counted.boundaries_lost += u64::from(fragment.is_some() && block.is_whole);
                block.is_whole = false;
            }
        }
        let is_last = header.has(frame::END_HEADERS);
        let head = is_last.then(|| {
            let read = if block.is_whole { sender.table.read(&block.bytes) } else { None };
            read.unwrap_or_else(|| {
                sender.table.lose();
                Head::unseen()
            })
        });
        if side == Side::Client && block.kind == frame::HEADERS {
            self.ask(&block, is_first, head.as_ref(), requests);
        }
        match head {
            Some(head) if side == Side::Server && block.kind == frame::HEADERS => {
                self.answer(&block, &head, requests);
            }
            Some(_) => {}
            None => self.sides[side as usize].block = Some(block),
        }
    }

    /// A part of a request's head has passed, or of its trailers.
    fn ask(&mut self, block: &Block, is_first: bool, head: Option<&Head>, requests: &mut Requests) {
        let number = block.stream;
        let is_trailer = head.is_some_and(|head| head.is_trailer);
        if is_first && number % 2 == 1 && number > self.last && !is_trailer {
            if self.streams.len() >= STREAMS_MAX {
                self.streams.clear();
                requests.forget_all();
            }
            self.first = if self.first == 0 { number } else { self.first };
            self.last = number;
            let flows = [0, 1].map(|side: usize| self.sides[side].flow.stream(requests.now()));
            self.streams.insert(number, Stream { flows, is_unknown: true, ..Stream::default() });
            requests.ask(of(number), &Asked { stream: number, ..Asked::only(Word::default()) });
            if !self.sides[Side::Server as usize].is_heard {
                requests.excuse(of(number));
            }
        } else {
            requests.ask_more(of(number));
        }
        let Some(head) = head else { return };
        if let Some(stream) = self.streams.get_mut(&number).filter(|_| !is_trailer) {
            let operation = stream::operation(head);
            stream.is_grpc = head.content == Some(Content::Grpc);
            stream.is_tunnel = operation == Word::new(b"CONNECT");
            stream.is_unknown = operation == Word::default() && head.path.is_none();
            let (is_grpc, shown) = (stream.is_grpc, self.shown);
            let key = head.path.as_deref().map(|path| self.recent.key(path, is_grpc, shown));
            let key = key.unwrap_or_default();
            requests.rename(of(number), &Asked { operation, key, stream: number });
        }
        if block.ends_stream {
            requests.asked(of(number));
        }
    }

    /// An answer's head or its trailers have passed.
    fn answer(&mut self, block: &Block, head: &Head, requests: &mut Requests) {
        let number = block.stream;
        let Some(stream) = self.streams.get_mut(&number) else {
            return self.unknown_answer(number, block.ends_stream, requests);
        };
        match head.status {
            Some(100..200) => return,
            Some(code) => stream.status = Status::Http(code),
            None => {}
        }
        stream.grpc_status = head.grpc_status.or(stream.grpc_status);
        stream.flows[Side::Server as usize].pass(&self.sides[Side::Server as usize].flow, requests.now());
        if head.content == Some(Content::Grpc) {
            stream.is_grpc = true;
            if std::mem::take(&mut stream.is_unknown) {
                let asked = Asked { stream: number, ..Asked::only(Word::new(b"gRPC")) };
                requests.rename(of(number), &asked);
            }
        }
        stream.is_answered = true;
        requests.answer(of(number));
        stream.is_events |= head.content == Some(Content::Events);
        let is_endless = stream.is_tunnel && matches!(stream.status, Status::Http(200..300));
        if block.ends_stream || is_endless {
            self.end(number, requests);
        } else if stream.is_grpc || stream.is_events {
            requests.excuse(of(number));
        }
    }

    /// A part of an answer passes whose request is not in flight.
    fn unknown_answer(&self, number: u32, is_end: bool, requests: &mut Requests) {
        // Of streams that were reset, or that go on behind their answer, something may still come.
        let is_past = self.first != 0 && (self.first..=self.last).contains(&number);
        if is_end && number % 2 == 1 && !is_past {
            requests.answered(of(number), Status::Unknown);
        }
    }

    /// The answer is complete.
    fn end(&mut self, number: u32, requests: &mut Requests) {
        let Some(stream) = self.streams.remove(&number) else { return };
        requests.answered(of(number), stream.status());
        // What is still open when a later request has been answered has ended in the hole.
        if self.uncertain.iter().all(|&other| other < number) {
            for other in std::mem::take(&mut self.uncertain) {
                self.withdraw(other, requests);
            }
        }
    }

    fn withdraw(&mut self, number: u32, requests: &mut Requests) {
        if self.streams.remove(&number).is_some() {
            requests.forget(of(number));
        }
    }

    fn reset(&mut self, side: Side, number: u32, code: u32, requests: &mut Requests) {
        let Some(stream) = self.streams.get(&number) else { return };
        if side == Side::Client && !stream.is_answered {
            return self.withdraw(number, requests);
        }
        if side == Side::Server {
            requests.answer(of(number));
        }
        // How clients end a stream of events.
        let is_end = side == Side::Client && stream.is_events;
        requests.answered(of(number), if is_end { stream.status() } else { Status::Reset(code) });
        self.streams.remove(&number);
    }

    /// The server leaves: it has not processed streams above the last that it names (RFC 9113 6.8).
    fn leave(&mut self, payload: Option<&[u8]>, requests: &mut Requests) {
        let Some(payload) = payload else { return };
        let last = frame::number(payload) & !(1 << 31);
        let above: Vec<u32> = self.streams.keys().copied().filter(|&number| number > last).collect();
        above.into_iter().for_each(|number| self.withdraw(number, requests));
    }
}

#[cfg(test)]
mod tests;
