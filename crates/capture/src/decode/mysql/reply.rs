//! The server's packets: what ends an answer.

use record::{Status, Word};

use super::{Backslash, Expected, Mysql, Of, Phase, Requests, greeting, lenenc, u16_at, u32_at};

const MORE_RESULTS: u16 = 0x0008;
const CURSOR_EXISTS: u16 = 0x0040;
const NO_BACKSLASH_ESCAPES: u16 = 0x0200;
/// An error that is none: how far a statement is (MariaDB).
const PROGRESS: u16 = 0xffff;
/// Length of a packet that ends columns or rows, where it is no OK.
const EOF_LENGTH: u64 = 5;
/// A packet that begins with 0xfe and is longer is a row.
const END_MAX: u64 = 0xff_ffff;

/// What answers a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expects {
    Nothing,
    Login,
    /// One packet.
    One,
    /// Results, each with columns and rows, or none.
    Results,
    /// Rows without their columns.
    Rows,
    /// A number, and the definitions of parameters and columns.
    Prepared,
    /// Events without an end.
    Stream,
}

/// Where the answer at hand is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Reply {
    #[default]
    First,
    /// Another result follows.
    Next,
    Columns(u64),
    Rows,
    /// Packets of a prepared statement.
    Definitions(u64),
}

impl Mysql {
    pub(super) fn answers(
        &mut self,
        seq: u8,
        payload: &[u8],
        length: u64,
        was_continued: bool,
        requests: &mut Requests,
    ) {
        match self.phase {
            Phase::Streaming => return,
            Phase::Greeting => {
                if let Some(server) = greeting::greeting(payload) {
                    (self.server, self.phase) = (server, Phase::Login);
                } else if let Some(code) = greeting::refusal(payload) {
                    requests.connect_is_answered(Word::new(b"connect"), Status::Code(code.into()));
                }
                return;
            }
            Phase::Login | Phase::Ready => {}
        }
        if seq == 1 && self.expected.is_empty() {
            requests.unasked();
        }
        if seq == 1 && self.reply == Reply::First && !was_continued {
            requests.unit_answered();
        }
        if !self.is_aligned(seq, requests) {
            return;
        }
        if was_continued {
            requests.answer(Of::Order);
            return;
        }
        let Some(front) = self.expected.front() else { return };
        let (expects, first_seq) = (front.expects, front.seq);
        if expects == Expects::Login {
            self.logged_in(payload, requests);
            return;
        }
        if self.reply == Reply::First {
            // The rest of an answer that has ended already.
            if seq != first_seq {
                self.note_column_end(payload, length);
                return;
            }
        } else if seq == first_seq && seq != self.next_seq {
            // The end of the answer before was not seen.
            self.finish(Status::Unknown, requests);
            if self.expected.is_empty() {
                return;
            }
        }
        self.packet(payload, length, requests);
    }

    /// Finds which command is answered behind a hole. False if it is none that was seen.
    fn is_aligned(&mut self, seq: u8, requests: &mut Requests) -> bool {
        if requests.is_recovering() {
            self.reply = Reply::First;
            return false;
        }
        if requests.has_skipped() {
            (self.is_lost, self.reply) = (true, Reply::First);
        }
        if !self.is_lost {
            return true;
        }
        if requests.is_orphan() && seq == 1 {
            // Another answer begins.
            requests.answered(Of::Order, Status::Unknown);
        }
        let Some(number) = requests.answering() else { return false };
        while self.expected.front().is_some_and(|next| next.number != number) {
            self.expected.pop_front();
        }
        self.is_lost = self.expected.is_empty();
        if self.is_lost {
            requests.interrupted();
        }
        !self.is_lost
    }

    fn packet(&mut self, payload: &[u8], length: u64, requests: &mut Requests) {
        let Some(expects) = self.expected.front().map(|front| front.expects) else { return };
        let kind = payload.first().copied().unwrap_or(0);
        // A row cannot begin so.
        if kind == 0xff && length > 2 {
            let code = u16_at(payload, 1).unwrap_or(0);
            if code != PROGRESS {
                requests.answer(Of::Order);
                self.finish(Status::Code(code.into()), requests);
            } else if self.reply == Reply::First && expects == Expects::Results {
                self.reply = Reply::Next;
            }
            return;
        }
        if kind == 0xfb && matches!(self.reply, Reply::First | Reply::Next) && expects == Expects::Results {
            // The server asks for a file.
            self.is_sending_file = true;
            self.reply = Reply::Next;
            return;
        }
        requests.answer(Of::Order);
        let is_end = kind == 0xfe && length < END_MAX;
        match (expects, self.reply) {
            (Expects::Stream, _) => {
                self.finish(Status::Good, requests);
                self.phase = Phase::Streaming;
            }
            (Expects::Prepared, Reply::First) => self.prepared(payload, requests),
            (_, Reply::Definitions(left)) => self.definition(left, payload, length, requests),
            (Expects::Rows, _) | (_, Reply::Rows) => {
                self.reply = Reply::Rows;
                if is_end {
                    self.ended(payload, length, requests);
                }
            }
            (Expects::Results, Reply::First | Reply::Next) if kind == 0 && length >= 7 || is_end => {
                self.ended(payload, length, requests);
            }
            (Expects::Results, Reply::First | Reply::Next) => self.columns(payload),
            (_, Reply::Columns(0)) if is_end && length == EOF_LENGTH => {
                self.note_column_end(payload, length);
                let status = u16_at(payload, 3).unwrap_or(0);
                self.reply = Reply::Rows;
                if status & CURSOR_EXISTS != 0 {
                    self.ended(payload, length, requests);
                }
            }
            (_, Reply::Columns(0)) => {
                self.reply = Reply::Rows;
                if is_end {
                    self.ended(payload, length, requests);
                }
            }
            (_, Reply::Columns(left)) => self.reply = Reply::Columns(left - 1),
            _ => {
                self.note_status(payload, length);
                self.finish(Status::Good, requests);
            }
        }
    }

    fn logged_in(&mut self, payload: &[u8], requests: &mut Requests) {
        let status = match payload.first() {
            Some(0) => {
                self.note_status(payload, payload.len() as u64);
                Status::Good
            }
            Some(0xff) => Status::Code(u16_at(payload, 1).unwrap_or(0).into()),
            // Another method, or more of it.
            _ => return,
        };
        self.phase = Phase::Ready;
        requests.answer(Of::Order);
        self.finish(status, requests);
        self.has_ended = self.login.is_compressed && status == Status::Good;
    }

    fn columns(&mut self, payload: &[u8]) {
        let (before, behind) = (self.login.has_flag_before, self.login.has_flag_behind);
        let number = |bytes| lenenc(bytes).map_or(0, |(count, _)| count);
        let count = match payload {
            [flag, count @ ..] if before => u64::from(*flag) * number(count),
            [.., 0] if behind => 0,
            // Where the login was not seen, the form tells.
            [_, 0] | [0, _] if !self.login.is_understood => 0,
            [1, count] if !self.login.is_understood => (*count).into(),
            payload => number(payload),
        };
        self.reply = Reply::Columns(count);
    }

    fn prepared(&mut self, payload: &[u8], requests: &mut Requests) {
        let id = u32_at(payload, 1);
        let [columns, parameters] = [5, 7].map(|at| u64::from(u16_at(payload, at).unwrap_or(0)));
        if let (Some(id), Some(statement)) =
            (id, self.expected.front_mut().and_then(|front| front.prepares.take()))
        {
            self.statements.insert(id.into(), statement);
        }
        let has_none = self.login.has_flag_before && payload.get(12) == Some(&0);
        let ends = u64::from(columns > 0) + u64::from(parameters > 0);
        let ends = if self.has_column_ends == Some(true) { ends } else { 0 };
        self.reply = Reply::Definitions(if has_none { 0 } else { columns + parameters + ends });
        if matches!(self.reply, Reply::Definitions(0)) {
            self.finish(Status::Good, requests);
        }
    }

    fn definition(&mut self, left: u64, payload: &[u8], length: u64, requests: &mut Requests) {
        // Ends that were not known of do not count.
        let was_known = self.has_column_ends == Some(true);
        let is_end = self.note_column_end(payload, length);
        let left = if is_end && !was_known { left } else { left.saturating_sub(1) };
        self.reply = Reply::Definitions(left);
        if left == 0 {
            self.finish(Status::Good, requests);
        }
    }

    /// Whether this is the end of columns, which is then known to be used.
    fn note_column_end(&mut self, payload: &[u8], length: u64) -> bool {
        let is_end = payload.first() == Some(&0xfe) && length == EOF_LENGTH;
        if is_end && self.has_column_ends.is_none() {
            self.has_column_ends = Some(true);
        }
        is_end
    }

    /// The status that an OK or an EOF carries.
    fn note_status(&mut self, payload: &[u8], length: u64) -> u16 {
        let status = if payload.first() == Some(&0xfe) && length == EOF_LENGTH {
            u16_at(payload, 3)
        } else {
            let numbers = payload.get(1..).and_then(lenenc).and_then(|(_, rest)| lenenc(rest));
            numbers.and_then(|(_, rest)| u16_at(rest, 0))
        };
        let Some(status) = status else { return 0 };
        let is_plain = status & NO_BACKSLASH_ESCAPES != 0;
        self.backslash = if is_plain { Backslash::Plain } else { Backslash::Escapes };
        status
    }

    /// A result has ended.
    fn ended(&mut self, payload: &[u8], length: u64, requests: &mut Requests) {
        if self.note_status(payload, length) & MORE_RESULTS != 0 {
            self.reply = Reply::Next;
        } else {
            self.finish(Status::Good, requests);
        }
    }

    fn finish(&mut self, status: Status, requests: &mut Requests) {
        self.reply = Reply::First;
        self.is_sending_file = false;
        if let Some(Expected { .. }) = self.expected.pop_front() {
            requests.answered(Of::Order, status);
        }
    }
}
