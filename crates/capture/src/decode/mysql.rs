//! MySQL and MariaDB: commands and their results, in order.
//!
//! A request is a command that has an answer: COM_QUERY and COM_STMT_EXECUTE by the first keyword of their SQL, all others by their
//! name. The set-up of a connection is one request, `login`, from the client's answer to the server's greeting. A statement that several
//! results answer is one request. The status is the error's number; the key is the normalised SQL, which is empty if a prepared statement
//! was not seen to be prepared. COM_STMT_CLOSE, COM_STMT_SEND_LONG_DATA and COM_QUIT have no answer. A stream of events is answered
//! when it begins. A server that refuses a connection says so instead of greeting: that answers the request `connect`. Behind the change
//! to TLS it goes on in the records; a compressed protocol is not decoded.

use std::collections::VecDeque;

use record::Side;

use super::sql::{self, Backslash, Dialect, Statement, Statements};
use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};

mod greeting;
mod plausible;
mod reply;

use greeting::{Login, lenenc, login, u16_at, u32_at};
use reply::{Expects, Reply};

/// MySQL, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "mysql", begins, new: |shown| Box::new(Mysql { shown, ..Mysql::default() }) };

/// Most commands whose answer is awaited.
const EXPECTED_MAX: usize = 1 << 16;
/// Length of a packet that the next one continues.
const CONTINUED: u64 = 0xff_ffff;
/// The statement that was prepared last, in MariaDB.
const LAST_PREPARED: u32 = u32::MAX;

const QUERY: u8 = 0x03;
const PREPARE: u8 = 0x16;
const EXECUTE: u8 = 0x17;
const SEND_LONG_DATA: u8 = 0x18;
const CLOSE: u8 = 0x19;
const BULK_EXECUTE: u8 = 0xfa;

/// How far the set-up of the connection is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Phase {
    #[default]
    Greeting,
    Login,
    Ready,
    /// The server sends events without an end.
    Streaming,
}

#[derive(Debug)]
struct Expected {
    number: u32,
    expects: Expects,
    /// Sequence number of the answer's first packet.
    seq: u8,
    /// What is prepared.
    prepares: Option<Statement>,
}

/// A connection.
#[derive(Debug, Default)]
struct Mysql {
    shown: Shown,
    phase: Phase,
    has_ended: bool,
    server: Login,
    login: Login,
    /// Whether columns are followed by their own end: unknown until it is seen.
    has_column_ends: Option<bool>,
    backslash: Backslash,
    statements: Statements,
    last_prepared: Option<Statement>,
    expected: VecDeque<Expected>,
    reply: Reply,
    /// Sequence number of the server's next packet.
    next_seq: u8,
    /// The packet before is continued.
    is_continued: [bool; 2],
    /// What is continued has no answer.
    is_unanswered: bool,
    /// The client sends a file.
    is_sending_file: bool,
    /// Which command is answered is not known.
    is_lost: bool,
}

fn begins(start: &Start<'_>) -> bool {
    match start.side {
        Side::Server => start.is_first && greeting::begins(start.bytes),
        Side::Client => plausible::is_command(start.bytes),
    }
}

impl Decoder for Mysql {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        let Some((length, seq)) = plausible::head(start) else { return Length::More };
        let is_free = self.is_continued[side as usize] || self.phase != Phase::Ready;
        let is_possible = is_free
            || match side {
                Side::Client if self.is_sending_file || self.is_authenticating() => true,
                Side::Client => seq == 0 && length > 0 && start.get(4).is_none_or(|&c| command(c).is_some()),
                Side::Server => {
                    let first = self.expected.front().map_or(1, |next| next.seq);
                    seq == self.next_seq
                        || seq == first
                        || self.is_authenticating()
                        || seq == 0 && start.get(4).is_none_or(|&b| b == 0xff)
                }
            };
        if is_possible { Length::Is(length + 4) } else { Length::Invalid }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        let seq = message.bytes.get(3).copied().unwrap_or(0);
        let payload = message.bytes.get(4..).unwrap_or_default();
        let length = message.length.saturating_sub(4);
        let continues = length == CONTINUED;
        let was_continued = std::mem::replace(&mut self.is_continued[message.side as usize], continues);
        if message.side == Side::Client && self.is_sending_file {
            self.next_seq = seq.wrapping_add(1);
        }
        match message.side {
            Side::Client if was_continued => self.asks_more(continues, requests),
            Side::Client => self.asks(seq, payload, length, requests),
            Side::Server => {
                self.answers(seq, payload, length, was_continued, requests);
                self.next_seq = seq.wrapping_add(1);
            }
        }
    }

    fn has_ended(&self) -> bool {
        self.has_ended
    }

    fn secured(&mut self) {
        self.has_ended = false;
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        let resumes = match side {
            Side::Client => plausible::is_command(start),
            Side::Server => plausible::is_answer(start),
        };
        if resumes {
            (self.phase, self.is_lost) = (Phase::Ready, true);
        }
        resumes
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        requests.lost_order();
        if requests.is_recovering() {
            self.expected.clear();
        }
        self.is_lost = true;
        self.phase = Phase::Ready;
        self.is_continued[side as usize] = false;
        if side == Side::Server {
            self.reply = Reply::First;
        } else {
            self.is_sending_file = false;
        }
    }
}

/// The name of a command, and what answers it.
fn command(code: u8) -> Option<(&'static str, Expects)> {
    let known = match code {
        0x01 => ("QUIT", Expects::Nothing),
        0x02 => ("INIT_DB", Expects::One),
        QUERY => ("QUERY", Expects::Results),
        0x04 => ("FIELD_LIST", Expects::Rows),
        0x05 => ("CREATE_DB", Expects::One),
        0x06 => ("DROP_DB", Expects::One),
        0x07 => ("REFRESH", Expects::One),
        0x08 => ("SHUTDOWN", Expects::One),
        0x09 => ("STATISTICS", Expects::One),
        0x0a => ("PROCESS_INFO", Expects::Results),
        0x0c => ("PROCESS_KILL", Expects::One),
        0x0d => ("DEBUG", Expects::One),
        0x0e => ("PING", Expects::One),
        0x11 => ("CHANGE_USER", Expects::Login),
        0x12 => ("BINLOG_DUMP", Expects::Stream),
        0x13 => ("TABLE_DUMP", Expects::Stream),
        0x15 => ("REGISTER_SLAVE", Expects::One),
        PREPARE => ("PREPARE", Expects::Prepared),
        EXECUTE => ("EXECUTE", Expects::Results),
        SEND_LONG_DATA => ("SEND_LONG_DATA", Expects::Nothing),
        CLOSE => ("CLOSE", Expects::Nothing),
        0x1a => ("STMT_RESET", Expects::One),
        0x1b => ("SET_OPTION", Expects::One),
        0x1c => ("FETCH", Expects::Rows),
        0x1e => ("BINLOG_DUMP_GTI", Expects::Stream),
        0x1f => ("RESET_CONNECTIO", Expects::One),
        BULK_EXECUTE => ("EXECUTE", Expects::Results),
        _ => return None,
    };
    Some(known)
}

/// What the client sends.
impl Mysql {
    fn is_authenticating(&self) -> bool {
        self.expected.front().is_some_and(|next| next.expects == Expects::Login)
    }

    fn asks(&mut self, seq: u8, payload: &[u8], length: u64, requests: &mut Requests) {
        let is_command = seq == 0 && payload.first().is_some_and(|&code| command(code).is_some());
        if self.is_authenticating() && is_command && (self.is_lost || requests.is_behind_unseen()) {
            // The login has ended in a hole.
            self.expected.clear();
            requests.abandon(Of::Order);
            self.phase = Phase::Ready;
        }
        match self.phase {
            Phase::Streaming => {}
            Phase::Greeting | Phase::Login if self.expected.is_empty() => {
                self.logs_in(payload, length, requests);
            }
            _ if self.is_sending_file => {
                requests.ask_more(Of::Order);
                self.is_sending_file = length > 0;
            }
            _ if self.is_authenticating() => requests.ask_more(Of::Order),
            _ => self.commands(payload, requests),
        }
    }

    fn logs_in(&mut self, payload: &[u8], length: u64, requests: &mut Requests) {
        self.login = login(payload, length).and(&self.server);
        if self.login.is_tls || !self.login.is_understood {
            self.has_ended = true;
            return;
        }
        self.has_column_ends = Some(self.login.has_column_ends);
        self.ask(&Statement::unknown("login"), Expects::Login, requests);
    }

    fn commands(&mut self, payload: &[u8], requests: &mut Requests) {
        let Some((&code, body)) = payload.split_first() else { return };
        let Some((name, expects)) = command(code) else { return };
        let id = u32_at(body, 0).unwrap_or(0);
        self.is_unanswered = expects == Expects::Nothing;
        if code == CLOSE {
            self.statements.remove(id.into());
        }
        if self.is_unanswered {
            return;
        }
        let known = |statement: Option<&Statement>| statement.map(|known| known.key.clone());
        let statement = match code {
            QUERY => self.query(body),
            PREPARE => {
                let read = self.read(body);
                self.last_prepared = Some(read.clone());
                Statement { key: read.key, ..Statement::unknown(name) }
            }
            EXECUTE | BULK_EXECUTE => {
                let last = self.last_prepared.as_ref().filter(|_| id == LAST_PREPARED);
                let statement = last.or_else(|| self.statements.get(id.into()));
                statement.cloned().unwrap_or_else(|| Statement::unknown(name))
            }
            0x1a | 0x1c => {
                let key = known(self.statements.get(id.into())).unwrap_or_default();
                Statement { key, ..Statement::unknown(name) }
            }
            _ => Statement::unknown(name),
        };
        self.ask(&statement, expects, requests);
        if code == PREPARE
            && let Some(last) = self.expected.back_mut()
        {
            last.prepares = self.last_prepared.clone();
        }
    }

    /// SQL, behind the attributes of the query if there are any.
    fn query(&self, body: &[u8]) -> Statement {
        match body {
            // Values that are not read.
            [1..=8, ..] => Statement::unknown("QUERY"),
            body => self.read(body.strip_prefix(&[0, 1]).unwrap_or(body)),
        }
    }

    fn read(&self, text: &[u8]) -> Statement {
        sql::read(text, Dialect::MySql, self.backslash, self.shown)
    }

    fn ask(&mut self, statement: &Statement, expects: Expects, requests: &mut Requests) {
        if self.expected.len() >= EXPECTED_MAX || !requests.has_place(self.expected.len()) {
            self.expected.clear();
            self.is_lost = true;
            requests.interrupted();
        }
        let asked = Asked { operation: statement.operation, key: &statement.key, stream: 0 };
        let number = requests.ask(Of::Order, &asked);
        requests.unit_asked();
        if requests.is_recovering() {
            return;
        }
        self.expected.push_back(Expected { number, expects, seq: 1, prepares: None });
        if !self.is_continued[Side::Client as usize] && expects != Expects::Login {
            requests.asked(Of::Order);
        }
    }

    /// A packet that continues the one before.
    fn asks_more(&mut self, continues: bool, requests: &mut Requests) {
        if self.is_unanswered {
            return;
        }
        requests.ask_more(Of::Order);
        if let Some(newest) = self.expected.back_mut() {
            newest.seq = newest.seq.wrapping_add(1);
        }
        if !continues {
            requests.asked(Of::Order);
        }
    }
}

#[cfg(test)]
mod tests;
