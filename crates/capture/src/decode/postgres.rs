//! PostgreSQL (protocol version 3): simple and extended queries, also pipelined.
//!
//! A request is a simple query with all its statements, an Execute with the messages before it that belong to it (Parse, Bind,
//! Describe), or what is asked without an Execute: PARSE, BIND, DESCRIBE, CLOSE, SYNC, FUNCTION. The set-up of a connection is one
//! request, `startup`, from the client's first message; what the client is asked for on the way is no answer. An Execute ends
//! with its own completion, a simple query with ReadyForQuery. Behind an error the server discards what comes before the next Sync:
//! these requests end with its ReadyForQuery as `aborted`. The status is the SQLSTATE; the key is the normalised SQL of the statement,
//! which is empty if a prepared statement was not seen to be prepared. Replication is answered when its stream begins. Behind the
//! agreement on TLS it goes on in the records; behind that on GSS nothing is decoded.

use std::collections::VecDeque;

use record::{Side, Status, Word};

use super::sql::{self, Backslash, Dialect, Statement, Statements};
use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};

mod chain;

/// PostgreSQL, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry = ProtocolEntry {
    name: "postgres",
    begins,
    new: |shown| Box::new(Postgres { shown, ..Postgres::default() }),
};

/// Longest message (PostgreSQL's limit is 1 GiB).
const MESSAGE_MAX: u64 = 1 << 30;
/// Longest message at the start of a connection.
const START_MAX: usize = 10_000;
/// Most messages whose answer is awaited.
const EXPECTED_MAX: usize = 1 << 16;
/// Codes in place of a version at the start of a connection.
const CANCEL: u32 = 80_877_102;
const TLS: u32 = 80_877_103;
const GSS: u32 = 80_877_104;

/// How far the set-up of the connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    /// The client's messages have no type yet.
    #[default]
    Start,
    /// The server answers with one byte.
    Offered,
    Typed,
    Cancelled,
}

/// What the server answers with messages of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Startup,
    Query,
    Parse,
    Bind,
    Describe,
    Close,
    Execute,
    Sync,
}

#[derive(Clone, Copy, Debug)]
struct Expected {
    /// The request's number; of a Sync that is no request, that of the one before.
    number: u32,
    step: Step,
    /// Whether the request ends with it.
    ends: bool,
}

/// A request of which the Execute may still come.
#[derive(Clone, Copy, Debug)]
struct Building {
    number: u32,
    /// What it is without an Execute.
    step: Step,
    /// The statement that is parsed.
    parsed: Option<u64>,
}

/// A connection.
#[derive(Debug, Default)]
struct Postgres {
    shown: Shown,
    phase: Phase,
    has_ended: bool,
    backslash: Backslash,
    statements: Statements,
    portals: Statements,
    building: Option<Building>,
    expected: VecDeque<Expected>,
    number: u32,
    /// Messages were sent that the next Sync ends.
    is_unsynced: bool,
    /// The server passes over everything before the next Sync.
    is_discarding: bool,
    /// The client sends the data of a COPY.
    is_copying: bool,
    /// The error of the simple query at hand.
    error: Option<Status>,
    /// Which request is answered is not known.
    is_lost: bool,
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Text up to its end, and what follows. The text of a message that is not kept as a whole may have no end.
fn text(bytes: &[u8]) -> (&[u8], &[u8]) {
    match bytes.iter().position(|&b| b == 0) {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (bytes, &[]),
    }
}

fn name(bytes: &[u8]) -> u64 {
    super::hash_of(bytes)
}

/// Whether these bytes are the first message of a connection.
fn is_start(bytes: &[u8]) -> bool {
    let (Some(length), Some(code)) = (u32_at(bytes, 0), u32_at(bytes, 4)) else { return false };
    match code {
        TLS | GSS => length == 8 && bytes.len() == 8,
        CANCEL => (16..=268).contains(&length) && bytes.len() == length as usize,
        // Version 3.x and names with their values.
        _ => {
            code >> 16 == 3
                && code & 0xffff < 1000
                && length as usize <= START_MAX
                && bytes.len() <= length as usize
                && bytes.get(8..).is_some_and(|names| {
                    let (name, value) = text(names);
                    name.len() >= 4
                        && name.iter().all(|b| b.is_ascii_lowercase() || matches!(b, b'_' | b'.'))
                        && !value.is_empty()
                        && (bytes.len() < length as usize || bytes.ends_with(&[0, 0]))
                })
        }
    }
}

fn begins(start: &Start<'_>) -> bool {
    match start.side {
        Side::Client if start.is_first && is_start(start.bytes) => true,
        side => chain::is_plausible(side, start.bytes),
    }
}

impl Decoder for Postgres {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        match (self.phase, side) {
            (Phase::Start, Side::Client) => match (u32_at(start, 0), start.len() < 4) {
                (Some(length), _) if (8..=START_MAX as u32).contains(&length) => Length::Is(length.into()),
                (_, true) => Length::More,
                _ => Length::Invalid,
            },
            (Phase::Offered, Side::Server) => match start.first() {
                Some(b'S' | b'N' | b'G') => Length::Is(1),
                Some(_) => chain::length(side, start),
                None => Length::More,
            },
            _ => chain::length(side, start),
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let bytes = message.bytes;
        match (self.phase, message.side) {
            (Phase::Cancelled, _) => {}
            (Phase::Start, Side::Client) => self.start(bytes, requests),
            (Phase::Offered, Side::Server) if message.length == 1 => match bytes.first() {
                Some(b'N') => self.phase = Phase::Start,
                Some(_) => {
                    requests.forget(Of::Order);
                    self.expected.clear();
                    self.has_ended = true;
                }
                None => self.lost(Side::Server, requests),
            },
            (_, side) => {
                let Some(&kind) = bytes.first() else { return };
                let body = bytes.get(5..).unwrap_or_default();
                match side {
                    Side::Client => {
                        self.asks(kind, body, requests);
                        if matches!(kind, b'Q' | b'F' | b'S') {
                            requests.unit_asked();
                        }
                        self.forget_if_recovering(requests);
                    }
                    Side::Server => {
                        if !requests.is_recovering() {
                            self.answers(kind, body, requests);
                        }
                        if kind == b'Z' {
                            requests.unit_answered();
                        }
                    }
                }
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn secured(&mut self) {
        (self.has_ended, self.phase) = (false, Phase::Start);
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        let resumes = chain::is_plausible(side, start);
        if resumes {
            (self.phase, self.is_lost) = (Phase::Typed, true);
        }
        resumes
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        self.is_lost = true;
        (self.is_discarding, self.is_copying, self.error) = (false, false, None);
        self.phase = Phase::Typed;
        if side == Side::Client {
            self.close_building(requests);
            self.is_unsynced = true;
        }
        requests.lost_order();
        self.forget_if_recovering(requests);
    }
}

impl Postgres {
    /// Nothing is expected while no answer can be paired.
    fn forget_if_recovering(&mut self, requests: &Requests) {
        if requests.is_recovering() {
            self.expected.clear();
            self.building = None;
            (self.is_unsynced, self.is_copying) = (false, false);
        }
    }
}

/// What the client sends.
impl Postgres {
    fn start(&mut self, bytes: &[u8], requests: &mut Requests) {
        let code = u32_at(bytes, 4).unwrap_or(0);
        if code == CANCEL {
            self.phase = Phase::Cancelled;
            return;
        }
        if self.expected.is_empty() {
            self.ask(Step::Startup, &Statement::unknown("startup"), requests);
            self.awaits(Step::Startup, true, requests);
        } else {
            requests.ask_more(Of::Order);
        }
        self.phase = if matches!(code, TLS | GSS) { Phase::Offered } else { Phase::Typed };
    }

    fn asks(&mut self, kind: u8, body: &[u8], requests: &mut Requests) {
        match kind {
            b'Q' => {
                self.close_building(requests);
                let statement = self.read(text(body).0);
                self.ask(Step::Query, &statement, requests);
                self.awaits(Step::Query, true, requests);
                requests.asked(Of::Order);
            }
            b'F' => {
                self.close_building(requests);
                self.ask(Step::Query, &Statement::unknown("FUNCTION"), requests);
                self.awaits(Step::Query, true, requests);
                requests.asked(Of::Order);
            }
            b'P' => {
                let (statement, rest) = text(body);
                let (id, sql) = (name(statement), self.read(text(rest).0));
                self.statements.insert(id, sql.clone());
                if self.building.is_some_and(|building| building.step != Step::Close) {
                    self.close_building(requests);
                }
                self.build(Step::Parse, &sql, requests);
                if let Some(building) = &mut self.building {
                    building.parsed = Some(id);
                }
            }
            b'B' => {
                let (portal, rest) = text(body);
                let id = name(text(rest).0);
                let is_other =
                    |b: Building| b.step == Step::Bind || b.parsed.is_some_and(|parsed| parsed != id);
                if self.building.is_some_and(is_other) {
                    self.close_building(requests);
                }
                let known = self.statements.get(id).cloned();
                let sql = known.unwrap_or_else(|| Statement::unknown("EXECUTE"));
                self.portals.insert(name(portal), sql.clone());
                self.build(Step::Bind, &sql, requests);
            }
            b'D' | b'C' => {
                let step = if kind == b'D' { Step::Describe } else { Step::Close };
                let (&of, rest) = body.split_first().unwrap_or((&b'S', &[]));
                let id = name(text(rest).0);
                let known = if of == b'P' { &mut self.portals } else { &mut self.statements };
                let sql = known.get(id).cloned();
                if kind == b'C' {
                    known.remove(id);
                }
                self.build(step, &sql.unwrap_or_else(|| Statement::unknown("")), requests);
            }
            b'E' => {
                let known = self.portals.get(name(text(body).0)).cloned();
                let sql = known.unwrap_or_else(|| Statement::unknown("EXECUTE"));
                self.build(Step::Execute, &sql, requests);
                self.awaits(Step::Execute, true, requests);
                requests.rename(Of::Order, &asked(&sql));
                requests.asked(Of::Order);
                self.building = None;
            }
            // The server ignores Sync and Flush in COPY data.
            b'd' | b'H' | b'S' if self.is_copying => requests.ask_more(Of::Order),
            b'H' => self.close_building(requests),
            b'S' => {
                self.close_building(requests);
                let is_bare = !std::mem::take(&mut self.is_unsynced);
                if is_bare {
                    self.ask(Step::Sync, &Statement::unknown("SYNC"), requests);
                    requests.asked(Of::Order);
                }
                self.awaits(Step::Sync, is_bare, requests);
            }
            b'c' | b'f' if std::mem::take(&mut self.is_copying) => requests.ask_more(Of::Order),
            // Passwords and the like.
            b'p' => requests.ask_more(Of::Order),
            _ => {}
        }
    }

    fn read(&self, text: &[u8]) -> Statement {
        sql::read(text, Dialect::Postgres, self.backslash, self.shown)
    }

    fn ask(&mut self, step: Step, statement: &Statement, requests: &mut Requests) {
        self.number = requests.ask(Of::Order, &asked(statement));
        self.is_unsynced |= !matches!(step, Step::Query | Step::Startup | Step::Sync);
    }

    fn awaits(&mut self, step: Step, ends: bool, requests: &mut Requests) {
        if self.expected.len() >= EXPECTED_MAX || !requests.has_place(self.expected.len()) {
            self.expected.clear();
            self.is_lost = true;
            requests.interrupted();
        }
        self.expected.push_back(Expected { number: self.number, step, ends });
    }

    /// Adds a message to the request at hand, or begins one with it.
    fn build(&mut self, step: Step, statement: &Statement, requests: &mut Requests) {
        match &mut self.building {
            Some(building) => {
                requests.ask_more(Of::Order);
                // It is named by what it does most.
                if matches!(step, Step::Parse | Step::Bind) {
                    building.step = step;
                    requests.rename(Of::Order, &asked(&named(step, statement)));
                }
            }
            None => {
                self.ask(step, &named(step, statement), requests);
                self.building = Some(Building { number: self.number, step, parsed: None });
            }
        }
        if step != Step::Execute {
            self.awaits(step, false, requests);
        }
    }

    /// The request at hand has no Execute: it ends with the last of its messages.
    fn close_building(&mut self, requests: &mut Requests) {
        let Some(building) = self.building.take() else { return };
        if let Some(last) = self.expected.back_mut().filter(|last| last.number == building.number) {
            last.ends = true;
        }
        requests.asked(Of::Order);
    }
}

fn asked(statement: &Statement) -> Asked<'_> {
    Asked { operation: statement.operation, key: &statement.key, stream: 0 }
}

/// What a request is without an Execute.
fn named(step: Step, statement: &Statement) -> Statement {
    let operation: &[u8] = match step {
        Step::Parse => b"PARSE",
        Step::Bind => b"BIND",
        Step::Describe => b"DESCRIBE",
        Step::Close => b"CLOSE",
        _ => b"EXECUTE",
    };
    Statement { operation: Word::new(operation), key: statement.key.clone() }
}

/// What the server sends.
impl Postgres {
    /// Finds which request the answer at hand belongs to behind a hole. False if it is that of none.
    fn is_aligned(&mut self, kind: u8, requests: &mut Requests) -> bool {
        self.is_lost |= requests.has_skipped();
        if !self.is_lost {
            return true;
        }
        if let Some(number) = requests.answering() {
            while self.expected.front().is_some_and(|next| next.number != number) {
                self.expected.pop_front();
            }
            let Some(front) = self.expected.front() else {
                requests.interrupted();
                return false;
            };
            // The end of what was before is no answer to what only begins.
            self.is_lost = kind == b'Z' && !matches!(front.step, Step::Query | Step::Sync | Step::Startup);
            if kind == b'Z' && !self.is_lost {
                // Whether there was an error is in the hole.
                self.error = Some(Status::Unknown);
            }
            return !self.is_lost;
        }
        if kind == b'Z' && requests.is_orphan() {
            requests.answered(Of::Order, Status::Unknown);
        }
        false
    }

    fn answers(&mut self, kind: u8, body: &[u8], requests: &mut Requests) {
        match kind {
            b'S' => return self.parameter(body),
            // Notices and notifications come when they like.
            b'N' | b'A' | b'K' | b'v' => return,
            _ => {}
        }
        if self.expected.is_empty() {
            requests.unasked();
        }
        if !self.is_aligned(kind, requests) {
            return;
        }
        let Some(&front) = self.expected.front() else { return };
        match kind {
            b'Z' => self.ready(requests),
            b'E' => self.failed(front, body, requests),
            b'R' if front.step == Step::Startup && u32_at(body, 0) == Some(0) => {
                requests.answer(Of::Order);
            }
            b'R' => {}
            b'G' => self.copies(front),
            b'W' => {
                requests.answer(Of::Order);
                self.step(front.step, requests);
                if front.step == Step::Query {
                    self.pop(Status::Good, requests);
                }
            }
            b'1' => self.step(Step::Parse, requests),
            b'2' => self.step(Step::Bind, requests),
            b'3' => self.step(Step::Close, requests),
            b'C' | b'I' | b's' => self.step(Step::Execute, requests),
            b'T' | b'n' if front.step == Step::Describe => self.step(Step::Describe, requests),
            _ if front.step != Step::Sync => {
                requests.answer(Of::Order);
            }
            _ => {}
        }
    }

    /// A parameter of the session.
    fn parameter(&mut self, body: &[u8]) {
        let (name, rest) = text(body);
        if name == b"standard_conforming_strings" {
            let is_on = text(rest).0 == b"on";
            self.backslash = if is_on { Backslash::Plain } else { Backslash::Escapes };
        }
    }

    /// The server has done a step, and with it those before.
    fn step(&mut self, step: Step, requests: &mut Requests) {
        if self.expected.front().is_some_and(|front| matches!(front.step, Step::Query | Step::Startup)) {
            requests.answer(Of::Order);
            return;
        }
        let mut ahead =
            self.expected.iter().take_while(|next| !matches!(next.step, Step::Sync | Step::Query));
        let Some(at) = ahead.position(|next| next.step == step) else { return };
        for _ in 0..=at {
            requests.answer(Of::Order);
            let status = if self.expected.front().is_some_and(|front| front.step == step) {
                Status::Good
            } else {
                Status::Unknown
            };
            self.pop(status, requests);
        }
    }

    /// Takes the next expected message, and ends its request if it is the last one.
    fn pop(&mut self, status: Status, requests: &mut Requests) -> Option<Step> {
        let next = self.expected.pop_front()?;
        if next.ends {
            requests.answered(Of::Order, status);
        }
        Some(next.step)
    }

    /// ReadyForQuery: the next Sync or simple query is done, and what was passed over before it.
    fn ready(&mut self, requests: &mut Requests) {
        let was_discarding = std::mem::take(&mut self.is_discarding);
        let passed_over = Status::Error(Word::new(b"aborted"));
        let ends = |step| match step {
            Step::Sync => true,
            Step::Query | Step::Startup => !was_discarding,
            _ => false,
        };
        // Only a Sync ends what is being passed over; without one it is another server's message.
        if !self.expected.iter().any(|next| ends(next.step)) {
            return;
        }
        while let Some(&next) = self.expected.front() {
            let is_end = ends(next.step);
            if next.ends {
                requests.answer(Of::Order);
            }
            let status = match is_end {
                true => self.error.take().unwrap_or(Status::Good),
                false if was_discarding => passed_over,
                false => Status::Unknown,
            };
            self.pop(status, requests);
            if is_end {
                break;
            }
        }
        requests.passed_behind();
    }

    fn failed(&mut self, front: Expected, body: &[u8], requests: &mut Requests) {
        let status = sqlstate(body);
        self.is_copying = false;
        match front.step {
            Step::Query if !is_fatal(body) => {
                requests.answer(Of::Order);
                self.error = Some(status);
            }
            Step::Sync if !front.ends => {}
            Step::Sync => self.error = Some(status),
            _ => {
                requests.answer(Of::Order);
                self.is_discarding = !matches!(front.step, Step::Query | Step::Startup);
                // The rest of the request gets no answer.
                while let Some(next) =
                    self.expected.front().copied().filter(|next| next.number == front.number)
                {
                    self.pop(status, requests);
                    if next.ends {
                        return;
                    }
                }
                // Its Execute is still to come, and is passed over.
            }
        }
    }

    /// The client is asked for data. A Sync that it has sent already is passed over.
    fn copies(&mut self, front: Expected) {
        self.is_copying = true;
        if front.step == Step::Execute {
            if self.expected.get(1).is_some_and(|next| next.step == Step::Sync && !next.ends) {
                self.expected.remove(1);
            }
            self.is_unsynced = true;
        }
    }
}

/// Fields of an error, each with its letter.
fn field(body: &[u8], wanted: u8) -> Option<&[u8]> {
    let mut rest = body;
    while let Some((&kind, value)) = rest.split_first() {
        let (value, behind) = text(value);
        match kind {
            0 => return None,
            _ if kind == wanted => return Some(value),
            _ => rest = behind,
        }
    }
    None
}

fn sqlstate(body: &[u8]) -> Status {
    let code = field(body, b'C').and_then(|code| <[u8; 5]>::try_from(code).ok());
    match code.filter(|code| code.iter().all(u8::is_ascii_alphanumeric)) {
        // Its own limit, not its client's wish.
        Some([b'5', b'7', b'0', b'1', b'4'])
            if field(body, b'M').is_some_and(|text| text.ends_with(b"statement timeout")) =>
        {
            Status::Error(Word::new(b"57014/timeout"))
        }
        Some(code) => Status::Sql(code),
        None => Status::Error(Word::new(b"error")),
    }
}

/// Whether the connection ends with an error.
fn is_fatal(body: &[u8]) -> bool {
    matches!(field(body, b'V').or_else(|| field(body, b'S')), Some(b"FATAL" | b"PANIC"))
}

#[cfg(test)]
mod tests;
