//! Redis (RESP2 and RESP3): commands and replies in order.
//!
//! A message is one element: a line, or a string with its length. An array is its line and the elements that it counts, so that
//! replies of any size need no memory.

mod commands;

use std::collections::VecDeque;

use record::{Side, Status, Word};

use super::keys::{KEY_MAX, fold_into, folded};
use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};

/// Redis, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry =
    ProtocolEntry { name: "redis", begins, new: |shown| Box::new(Redis { shown, ..Redis::default() }) };

/// Redis's port.
const PORT: u16 = 6379;
/// Deepest nesting of arrays.
const DEPTH_MAX: usize = 32;
/// Longest line: a simple string, an error, or an inline command.
const LINE_MAX: usize = 64 << 10;
/// Longest string (Redis's proto-max-bulk-len is 512 MiB by default).
const STRING_MAX: u64 = 4 << 30;
/// Most elements of a command that are looked for at once.
const AT_ONCE_MAX: i64 = 16;
/// Most elements of an array.
const ELEMENTS_MAX: u64 = 1 << 32;

const CLIENT: Word = Word::new(b"CLIENT");
const MONITOR: Word = Word::new(b"MONITOR");
const PSYNC: Word = Word::new(b"PSYNC");
const RESET: Word = Word::new(b"RESET");
const PING: Word = Word::new(b"PING");
const QUIT: Word = Word::new(b"QUIT");
const SYNC: Word = Word::new(b"SYNC");
/// Commands that are confirmed by messages like those that they ask for.
const SUBSCRIPTIONS: [Word; 6] = [
    Word::new(b"SUBSCRIBE"),
    Word::new(b"PSUBSCRIBE"),
    Word::new(b"SSUBSCRIBE"),
    Word::new(b"UNSUBSCRIBE"),
    Word::new(b"PUNSUBSCRIBE"),
    Word::new(b"SUNSUBSCRIBE"),
];

/// A connection.
#[derive(Debug, Default)]
struct Redis {
    shown: Shown,
    streams: [Elements; 2],
    /// The command at hand: its elements so far, its name, and the first of its arguments.
    command: Command,
    /// The key of the last command that has one.
    key: String,
    /// The first line of the reply at hand.
    reply: Status,
    is_push: bool,
    /// The connection receives messages without asking: SUBSCRIBE or MONITOR in RESP2.
    is_subscribed: bool,
    /// What begins may confirm a subscription, or be a message: its first word tells.
    is_unclear: bool,
    /// Numbers of the subscriptions in flight that name several channels, and confirmations that each awaits: one for a channel.
    confirmations: VecDeque<(u32, usize)>,
    /// The client is a replica, and the server sends it what changes.
    is_replica: bool,
    replies: Replies,
}

#[derive(Debug, Default)]
struct Command {
    name: Word,
    arguments: u32,
    /// Its first argument is a key.
    has_key: bool,
    /// It is CLIENT REPLY, with the word that follows.
    is_client_reply: bool,
    wanted: Option<Replies>,
    /// An option lets it be held until an event comes.
    is_held: bool,
    /// What follows are names of streams.
    names_streams: bool,
}

/// Which commands the server replies to: `CLIENT REPLY`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Replies {
    #[default]
    All,
    /// All but the next one.
    Skip,
    None,
}

impl Replies {
    fn of(word: &[u8]) -> Option<Self> {
        match Word::upper(word).as_str() {
            "ON" => Some(Self::All),
            "SKIP" => Some(Self::Skip),
            "OFF" => Some(Self::None),
            _ => None,
        }
    }
}

/// Where in nested arrays a side is: how many elements are still to come at each level.
#[derive(Debug, Default)]
struct Elements {
    open: Vec<u64>,
}

impl Elements {
    fn is_nested(&self) -> bool {
        !self.open.is_empty()
    }

    /// Counts an element that holds so many others. False if it is nested too deeply.
    fn begin(&mut self, inside: u64) -> bool {
        if inside > 0 {
            self.open.push(inside);
            return self.open.len() <= DEPTH_MAX;
        }
        while let Some(last) = self.open.last_mut() {
            *last -= 1;
            if *last > 0 {
                break;
            }
            self.open.pop();
        }
        true
    }
}

/// Bytes of a line with its end, if it is complete.
fn line(bytes: &[u8]) -> Option<&[u8]> {
    let end = bytes.iter().position(|&b| b == b'\n')?;
    bytes.get(..=end).filter(|line| line.ends_with(b"\r\n"))
}

/// The number of a line such as `$5`; -1 is nothing.
fn number(line: &[u8]) -> Option<i64> {
    let digits = line.get(1..line.len().checked_sub(2)?)?;
    if let [digit @ b'0'..=b'9'] = digits {
        return Some(i64::from(digit - b'0'));
    }
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// Bytes of a command, an array of strings, if the whole of it is at hand: its elements are one message then.
fn whole_command(bytes: &[u8]) -> Option<usize> {
    let first = line(bytes).filter(|line| line[0] == b'*')?;
    let mut at = first.len();
    for _ in 0..number(first).filter(|count| (1..=AT_ONCE_MAX).contains(count))? {
        let rest = bytes.get(at..)?;
        let head = line(rest).filter(|line| line[0] == b'$')?;
        at += head.len() + usize::try_from(number(head)?).ok()?.checked_add(2)?;
        (at <= bytes.len()).then_some(())?;
    }
    Some(at)
}

/// Whether these bytes begin an element of RESP.
fn is_element(bytes: &[u8]) -> bool {
    let Some(&kind) = bytes.first() else { return false };
    let Some(first) = line(bytes) else { return false };
    match kind {
        b'*' | b'$' => number(first).is_some_and(|n| n >= -1),
        b'%' | b'~' | b'>' | b'=' | b'!' | b'|' => number(first).is_some_and(|n| n >= 0),
        b':' => number(first).is_some(),
        b'+' => first.len() > 3 && first[1..first.len() - 2].iter().all(|b| (b' '..=b'~').contains(b)),
        b'-' => first.get(1).is_some_and(u8::is_ascii_uppercase),
        b'_' => first == b"_\r\n",
        b'#' => matches!(first, b"#t\r\n" | b"#f\r\n"),
        _ => false,
    }
}

/// Whether a command begins so: an array of strings, the first of which is a word.
fn is_command(bytes: &[u8]) -> bool {
    let Some(first) = line(bytes).filter(|line| line.first() == Some(&b'*')) else { return false };
    let Some(rest) = bytes.get(first.len()..) else { return false };
    if number(first).is_none_or(|n| n < 1) {
        return false;
    }
    let Some(second) = line(rest).filter(|line| line.first() == Some(&b'$')) else { return false };
    let length = number(second).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
    let word = rest.get(second.len()..second.len() + length.min(32)).unwrap_or_default();
    !word.is_empty() && word.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'))
}

/// Whether a command on a line of its own begins so: other text protocols have other words.
fn is_inline(bytes: &[u8]) -> bool {
    let is_text = |line: &[u8]| line.iter().all(|b| matches!(b, b' '..=b'~' | b'\r' | b'\n'));
    let Some(line) = line(bytes).filter(|line| is_text(line)) else { return false };
    let word = line.split(|b| matches!(b, b' ' | b'\r')).next().unwrap_or_default();
    commands::may_be_inline(Word::upper(word))
}

/// The name of the command that begins so.
fn first_word(bytes: &[u8]) -> Option<Word> {
    let first = line(bytes)?;
    Some(Word::upper(text(bytes.get(first.len()..)?)))
}

/// Whether a command of Redis begins so.
pub(crate) fn is_known_command(bytes: &[u8]) -> bool {
    is_command(bytes) && first_word(bytes).is_some_and(commands::is_known)
}

fn begins(start: &Start<'_>) -> bool {
    match start.side {
        // In the middle the sides may be mistaken for each other, and what a list holds is no command.
        Side::Client if !start.is_first => is_known_command(start.bytes),
        Side::Client => is_command(start.bytes) || start.is_at(PORT) && is_inline(start.bytes),
        // A reply alone is no proof: "+OK" begins answers of POP3.
        Side::Server => false,
    }
}

impl Decoder for Redis {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if self.is_replica {
            return Length::Is(start.len() as u64);
        }
        let Some(first) = line(start) else {
            let is_cut = start.contains(&b'\n') || start.len() > LINE_MAX;
            return if is_cut { Length::Invalid } else { Length::More };
        };
        let whole = Length::Is(first.len() as u64);
        match first[0] {
            b'$' | b'=' | b'!' => match number(first) {
                Some(-1) => whole,
                Some(n @ 0..) if n as u64 <= STRING_MAX => Length::Is(first.len() as u64 + n as u64 + 2),
                _ => Length::Invalid,
            },
            b'*' | b'%' | b'~' | b'>' | b'|' => match number(first) {
                Some(1..) if side == Side::Client && !self.streams[0].is_nested() => {
                    whole_command(start).map_or(whole, |length| Length::Is(length as u64))
                }
                Some(-1..) => whole,
                _ => Length::Invalid,
            },
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => whole,
            // A command on a line of its own.
            byte if side == Side::Client && !self.streams[0].is_nested() => {
                if byte.is_ascii_graphic() || byte == b'\r' { whole } else { Length::Invalid }
            }
            _ => Length::Invalid,
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        if self.is_replica {
            return;
        }
        let elements = &mut self.streams[message.side as usize];
        let is_first = !elements.is_nested();
        if message.side == Side::Client
            && is_first
            && let Some(first) = line(message.bytes).filter(|line| line.len() < message.bytes.len())
            && first[0] == b'*'
        {
            self.whole(message.bytes, first, requests);
            return;
        }
        let inside = inside(message.bytes);
        if inside > ELEMENTS_MAX || !elements.begin(inside) {
            elements.open.clear();
            return;
        }
        let is_last = !elements.is_nested();
        match message.side {
            Side::Client => self.command(message.bytes, is_first, is_last, requests),
            Side::Server => self.reply(message.bytes, is_first, is_last, requests),
        }
    }

    fn kept(&self) -> usize {
        256
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        match side {
            _ if self.is_replica => true,
            Side::Client => is_command(start),
            Side::Server => is_element(start),
        }
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        self.streams[side as usize].open.clear();
        if side == Side::Server {
            self.is_push = false;
            requests.lost_answers();
        }
    }

    fn closed(&mut self, side: Side, requests: &mut Requests) {
        if side == Side::Client {
            requests.client_closed();
        }
    }
}

/// How many elements are inside an element.
fn inside(bytes: &[u8]) -> u64 {
    let Some(first) = line(bytes) else { return 0 };
    let count = || number(first).and_then(|n| u64::try_from(n).ok()).unwrap_or(0);
    match first[0] {
        b'*' | b'~' | b'>' => count(),
        b'%' => count().saturating_mul(2),
        // Attributes are followed by the element that they are of.
        b'|' => count().saturating_mul(2).saturating_add(1),
        _ => 0,
    }
}

/// The text of a string, or of a line; of a long string as much as is shown. Nothing where a hole is in it.
fn text(bytes: &[u8]) -> &[u8] {
    let Some(first) = line(bytes) else { return &[] };
    if first[0] == b'$' {
        let rest = bytes.get(first.len()..).unwrap_or_default();
        let length = number(first).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        rest.get(..length.min(KEY_MAX)).unwrap_or_default()
    } else {
        first.strip_suffix(b"\r\n").unwrap_or(first)
    }
}

impl Redis {
    /// A command with all its arguments, behind its first line.
    fn whole(&mut self, bytes: &[u8], first: &[u8], requests: &mut Requests) {
        self.command = Command::default();
        requests.ask(Of::Order, &Asked::only(Word::default()));
        let mut rest = bytes.get(first.len()..).unwrap_or_default();
        while let Some(head) = line(rest) {
            self.argument(rest, requests);
            let length = number(head).and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
            rest = rest.get(head.len() + length + 2..).unwrap_or_default();
        }
        self.sent(self.command.name, requests);
    }

    fn command(&mut self, bytes: &[u8], is_first: bool, is_last: bool, requests: &mut Requests) {
        if is_first {
            self.command = Command::default();
            if bytes == b"\r\n" {
                return;
            }
            if inside(bytes) == 0 {
                // Inline.
                let words = text(bytes);
                let mut words = words.split(|&b| b == b' ');
                let name = Word::upper(words.next().unwrap_or_default());
                let mut options = words.clone().take_while(|word| !word.eq_ignore_ascii_case(b"STREAMS"));
                self.command.is_held = options.any(|word| commands::is_blocking_by(name, word));
                let first = words.next().unwrap_or_default();
                let key = if commands::has_key(name) { first } else { &[] };
                let key = folded(key, self.shown);
                let is_client_reply = name == CLIENT && first.eq_ignore_ascii_case(b"reply");
                self.command.wanted = words.next().filter(|_| is_client_reply).and_then(Replies::of);
                let operation = commands::shown(name, self.shown);
                requests.ask(Of::Order, &Asked { operation, key: &key, stream: 0 });
                self.sent(name, requests);
                return;
            }
            requests.ask(Of::Order, &Asked::only(Word::default()));
            return;
        }
        requests.ask_more(Of::Order);
        self.argument(bytes, requests);
        if is_last {
            self.sent(self.command.name, requests);
        }
    }

    /// The command's name, or one of its arguments.
    fn argument(&mut self, bytes: &[u8], requests: &mut Requests) {
        match self.command.arguments {
            0 => {
                let name = Word::upper(text(bytes));
                self.command.name = name;
                self.command.has_key = commands::has_key(name);
                let operation = if self.command.has_key { name } else { commands::shown(name, self.shown) };
                requests.rename(Of::Order, &Asked::only(operation));
                // What follows may not be in the capture: then it may be held.
                if commands::may_block(name) {
                    requests.awaits_event(Of::Order, true);
                }
            }
            1 if self.command.has_key => {
                let key = &mut self.key;
                fold_into(key, text(bytes), self.shown);
                requests.rename(Of::Order, &Asked { operation: self.command.name, key, stream: 0 });
            }
            1 if self.command.name == CLIENT => {
                self.command.is_client_reply = text(bytes).eq_ignore_ascii_case(b"reply");
            }
            2 if self.command.is_client_reply => self.command.wanted = Replies::of(text(bytes)),
            _ => {
                // The option stands before the word behind which the streams are named.
                let word = text(bytes);
                let command = &mut self.command;
                command.names_streams |= word.eq_ignore_ascii_case(b"STREAMS");
                command.is_held |= !command.names_streams && commands::is_blocking_by(command.name, word);
            }
        }
        self.command.arguments = self.command.arguments.saturating_add(1);
    }

    /// A command is complete.
    fn sent(&mut self, name: Word, requests: &mut Requests) {
        // What a replica is sent is no work for a client.
        if commands::may_block(name) || is_replication(name) {
            let is_held = self.command.is_held || commands::is_blocking(name) || is_replication(name);
            requests.awaits_event(Of::Order, is_held);
        }
        requests.asked(Of::Order);
        match name {
            MONITOR => self.is_subscribed = true,
            // Its answer is the data itself, which has no end.
            SYNC => self.begin_replication(requests),
            RESET => (self.is_subscribed, self.replies) = (false, Replies::All),
            command if is_subscription(command) => {
                self.is_subscribed = true;
                let channels = self.command.arguments.saturating_sub(1) as usize;
                if channels > 1 && self.confirmations.len() < CONFIRMATIONS_MAX {
                    self.confirmations.extend(requests.newest_number().map(|number| (number, channels)));
                }
            }
            _ => {}
        }
        let before = self.replies;
        self.replies = match (self.command.wanted, before) {
            // SKIP changes nothing where all replies are off.
            (Some(Replies::Skip), Replies::None) => Replies::None,
            (Some(wanted), _) => wanted,
            (None, Replies::Skip) => Replies::All,
            (None, before) => before,
        };
        let has_reply = match self.command.wanted {
            Some(wanted) => wanted == Replies::All,
            None => before == Replies::All || name == RESET,
        };
        if !has_reply {
            requests.forget(Of::Order);
        }
    }

    fn reply(&mut self, bytes: &[u8], is_first: bool, is_last: bool, requests: &mut Requests) {
        if is_first {
            // RESP3 confirms subscriptions by pushes. Where RESP2 sends messages, only few commands are answered, none of the others by
            // an array of three and more.
            let next = requests.next_answered();
            let is_list = |bytes: &[u8]| bytes.first() == Some(&b'*') && inside(bytes) >= 3;
            self.is_unclear = false;
            self.is_push = match (bytes.first(), next) {
                (Some(b'>' | b'*'), Some(next)) if is_subscription(next) => {
                    self.is_unclear = !is_last;
                    false
                }
                (Some(b'>'), _) => true,
                (_, None) => self.is_subscribed,
                (_, Some(PING | QUIT | RESET)) => self.is_subscribed && is_list(bytes),
                _ => false,
            };
            self.reply = match bytes.first() {
                Some(b'-') => {
                    let words = text(bytes).get(1..).unwrap_or_default();
                    // The first word is the error's name, and that of this one says nothing.
                    let is_full = words.starts_with(b"ERR max number of clients");
                    Status::Error(if is_full { Word::new(b"MAXCLIENTS") } else { Word::new(words) })
                }
                _ => Status::Good,
            };
        }
        if self.is_unclear && !is_first {
            self.is_unclear = false;
            self.is_push = !is_subscription(Word::upper(text(bytes)));
        }
        if self.is_push {
            self.is_push = !is_last;
            return;
        }
        if self.is_unclear || is_last && self.awaits_confirmations(requests) {
            return;
        }
        let is_followed = self.reply == Status::Good && requests.next_answered() == Some(PSYNC);
        requests.answer(Of::Order);
        if is_last {
            requests.answered(Of::Order, self.reply);
            if is_followed {
                self.begin_replication(requests);
            }
        }
    }

    /// Whether the subscription that has been confirmed awaits further confirmations.
    fn awaits_confirmations(&mut self, requests: &mut Requests) -> bool {
        if self.confirmations.is_empty() || !requests.next_answered().is_some_and(is_subscription) {
            return false;
        }
        let Some(number) = requests.answering() else { return false };
        while self.confirmations.front().is_some_and(|&(of, _)| number.wrapping_sub(of).cast_signed() > 0) {
            self.confirmations.pop_front();
        }
        let Some((_, left)) = self.confirmations.front_mut().filter(|(of, _)| *of == number) else {
            return false;
        };
        *left -= 1;
        if *left == 0 || matches!(self.reply, Status::Error(_)) {
            self.confirmations.pop_front();
            return false;
        }
        requests.answer(Of::Order);
        true
    }

    /// What follows is the data set and its changes for a replica, which answers nothing.
    fn begin_replication(&mut self, requests: &mut Requests) {
        requests.forget_queue();
        self.is_replica = true;
    }
}

/// Most subscriptions in flight whose confirmations are counted.
const CONFIRMATIONS_MAX: usize = 1024;

/// Whether a command asks for all data.
fn is_replication(command: Word) -> bool {
    matches!(command, PSYNC | SYNC)
}

/// Whether a command is confirmed by messages like those that it asks for.
fn is_subscription(command: Word) -> bool {
    SUBSCRIPTIONS.contains(&command)
}

#[cfg(test)]
mod tests;
