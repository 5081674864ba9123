//! memcached: the text protocol with its meta commands, and the binary protocol.
//!
//! A request is a command with its data; a `get` of several keys is one. Requests are answered in order. Those that ask for no answer
//! (`noreply`) have no time and are not told. A meta command with `q` is told, as `mg/q` and the like, if it was answered, `mg` by its value
//! and the others by what went wrong: a later answer, at the latest that of `mn`, shows that it was not. The key is the prefix of the
//! first key. The status is the answer's word where it is no success; a miss of `get` and `mg` is none.

mod binary;
mod echoed;

use std::collections::VecDeque;

use record::{Side, Status, Word};

use self::echoed::Echoed;
use super::keys::{UNKNOWN, folded};
use super::{Asked, Decoder, Length, Message, Of, ProtocolEntry, Requests, Shown, Start};

/// memcached, in the table of protocols.
pub(super) const ENTRY: ProtocolEntry = ProtocolEntry {
    name: "memcached",
    begins,
    new: |shown| Box::new(Memcached { shown, ..Memcached::default() }),
};

/// memcached's port.
const PORT: u16 = 11211;
/// Longest line: a `get` of many keys.
const LINE_MAX: usize = 60 << 10;
/// Longest value (memcached's item size is at most 1 GiB).
const VALUE_MAX: u64 = 1 << 30;
/// Most requests behind each other that may stay without an answer and are waited for.
const QUIET_MAX: usize = 1024;

/// A connection.
#[derive(Debug, Default)]
struct Memcached {
    shown: Shown,
    /// The connection receives the lines of a log: `watch`.
    is_watching: bool,
    /// Requests since the last one that must be answered.
    quiet: usize,
    /// There are requests that may have no answer.
    is_quiet: bool,
    /// What the answers of meta commands in flight repeat of them, by their numbers.
    echoed: VecDeque<(u32, Echoed)>,
    /// There were malformed commands, whose answer is `ERROR`.
    has_malformed: bool,
}

/// A line without its end, and its length with it.
fn line(bytes: &[u8]) -> Option<(&[u8], usize)> {
    let end = bytes.iter().position(|&b| b == b'\n')?;
    let line = bytes.get(..end)?;
    Some((line.strip_suffix(b"\r").unwrap_or(line), end + 1))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(|&b| b == b' ').filter(|word| !word.is_empty())
}

fn first_word(line: &[u8]) -> Option<&str> {
    std::str::from_utf8(words(line).next()?).ok()
}

fn number(word: &[u8]) -> Option<u64> {
    if !word.iter().all(u8::is_ascii_digit) {
        return None;
    }
    std::str::from_utf8(word).ok()?.parse().ok()
}

fn is_storage(command: &[u8]) -> bool {
    matches!(command, b"set" | b"add" | b"replace" | b"append" | b"prepend" | b"cas")
}

fn is_retrieval(command: &str) -> bool {
    matches!(command, "get" | "gets" | "gat" | "gats")
}

fn is_meta(command: &[u8]) -> bool {
    matches!(command, b"mg" | b"ms" | b"md" | b"ma" | b"me" | b"mn")
}

/// Whether it is a command of memcached: a word that is none may be a secret.
fn is_known(command: &[u8]) -> bool {
    is_storage(command)
        || is_meta(command)
        || std::str::from_utf8(command).is_ok_and(is_retrieval)
        || matches!(
            command,
            b"delete"
                | b"touch"
                | b"incr"
                | b"decr"
                | b"version"
                | b"quit"
                | b"shutdown"
                | b"stats"
                | b"flush_all"
                | b"verbosity"
                | b"watch"
                | b"lru"
                | b"lru_crawler"
                | b"slabs"
                | b"cache_memlimit"
                | b"extstore"
                | b"misbehave"
                | b"refresh_certs"
        )
}

/// Whether all servers know a command.
fn do_all_know(command: Word) -> bool {
    let command = command.as_str();
    matches!(command, "get" | "gets" | "delete" | "incr" | "decr") || is_storage(command.as_bytes())
}

/// Whether a command that all servers know has too few words, or too many.
fn is_malformed(line: &[u8]) -> bool {
    let count = words(line).count();
    match words(line).next().unwrap_or_default() {
        b"get" | b"gets" => count < 2,
        b"delete" => !(2..=4).contains(&count),
        b"incr" | b"decr" => !(3..=4).contains(&count),
        b"cas" => !(6..=7).contains(&count),
        command if is_storage(command) => !(5..=6).contains(&count),
        _ => false,
    }
}

/// Bytes of the data block that follows a command's line, without its end.
fn data_of(line: &[u8]) -> Option<u64> {
    let mut words = words(line);
    match words.next()? {
        command if is_storage(command) => number(words.nth(3)?),
        b"ms" => number(words.nth(1)?),
        _ => None,
    }
}

/// Bytes of the data block that follows an answer's line, without its end.
fn data_of_answer(line: &[u8]) -> Option<u64> {
    let mut words = words(line);
    match words.next()? {
        b"VALUE" => number(words.nth(2)?),
        b"VA" => number(words.next()?),
        _ => None,
    }
}

/// Whether a key has the form that memcached accepts: any bytes that do not end it, also control characters.
fn is_key(word: &[u8]) -> bool {
    (1..=250).contains(&word.len()) && !word.iter().any(|b| matches!(b, 0 | b'\r' | b'\n'))
}

/// Whether the line is a command with what it needs.
fn is_command(line: &[u8]) -> bool {
    let mut words = words(line);
    let command = words.next().unwrap_or_default();
    match command {
        b"get" | b"gets" => words.next().is_some() && words_of(line, 1).all(is_key),
        b"gat" | b"gats" => words.next().and_then(number).is_some() && words.next().is_some_and(is_key),
        b"delete" | b"mg" | b"md" | b"ma" | b"me" => words.next().is_some_and(is_key),
        b"touch" | b"incr" | b"decr" => {
            words.next().is_some_and(is_key) && words.next().and_then(number).is_some()
        }
        b"ms" => words.next().is_some_and(is_key) && data_of(line).is_some(),
        b"mn" | b"version" | b"quit" => words.next().is_none(),
        b"stats" | b"flush_all" | b"verbosity" | b"watch" | b"lru" | b"lru_crawler" | b"slabs" => {
            words.count() <= 6 && line.iter().all(|b| (b' '..=b'~').contains(b))
        }
        _ if is_storage(command) => is_store(line),
        _ => false,
    }
}

fn words_of(line: &[u8], from: usize) -> impl Iterator<Item = &[u8]> {
    words(line).skip(from)
}

/// Whether the line is that of a storage command: a key and three numbers, and perhaps one more and `noreply`.
fn is_store(line: &[u8]) -> bool {
    let mut words = words(line);
    let command = words.next().unwrap_or_default();
    let is_time = |word: &[u8]| number(word.strip_prefix(b"-").unwrap_or(word)).is_some();
    is_storage(command)
        && words.next().is_some_and(is_key)
        && words.next().and_then(number).is_some()
        && words.next().is_some_and(is_time)
        && words.next().and_then(number).is_some()
        && words.all(|word| word == b"noreply" || number(word).is_some())
}

/// Whether a storage command begins so, whose line goes on in the next segment: its key and two numbers are there.
fn begins_a_store(bytes: &[u8]) -> bool {
    let mut words = words(bytes);
    let is_begun = words.next().is_some_and(is_storage)
        && words.next().is_some_and(is_key)
        && words.next().and_then(number).is_some();
    is_begun && words.next().is_some() && words_of(bytes, 3).all(|word| number(word).is_some())
}

/// Whether a command begins so, whose line goes on in the next segment.
fn begins_a_command(bytes: &[u8]) -> bool {
    let word = words(bytes).next().unwrap_or_default();
    let is_known = is_storage(word)
        || is_meta(word)
        || matches!(word, b"get" | b"gets" | b"gat" | b"gats" | b"delete" | b"touch" | b"incr" | b"decr");
    is_known && bytes.get(word.len()) == Some(&b' ') && !bytes.contains(&b'\n')
}

/// Whether the line is an answer that no other protocol gives so: beanstalkd has words in common with memcached.
fn is_answer(line: &[u8]) -> bool {
    let mut words = words(line);
    match words.next().unwrap_or_default() {
        b"VALUE" => {
            let is_whole = words.next().is_some_and(is_key)
                && words.next().and_then(number).is_some()
                && words.next().and_then(number).is_some();
            is_whole && words.all(|word| number(word).is_some())
        }
        b"STORED" | b"NOT_STORED" => words.next().is_none(),
        _ => false,
    }
}

/// Whether the line may be an answer.
fn may_be_answer(line: &[u8]) -> bool {
    let mut words = words(line);
    match words.next().unwrap_or_default() {
        b"VA" => words.next().and_then(number).is_some(),
        b"END" | b"ERROR" | b"EN" | b"MN" | b"OK" | b"NOT_FOUND" | b"EXISTS" | b"DELETED" | b"TOUCHED" => {
            words.next().is_none()
        }
        b"HD" | b"NF" | b"NS" | b"EX" => words.all(|word| word.first().is_some_and(u8::is_ascii_alphabetic)),
        b"CLIENT_ERROR" | b"SERVER_ERROR" | b"STAT" | b"VERSION" => true,
        _ => is_answer(line),
    }
}

fn begins(start: &Start<'_>) -> bool {
    if binary::begins(start.side, start.bytes) {
        return true;
    }
    let is_port = start.is_at(PORT);
    let Some((line, length)) = line(start.bytes) else {
        return is_port && start.side == Side::Client && start.is_first && begins_a_command(start.bytes);
    };
    match start.side {
        Side::Client if is_store(line) => ends_data(start.bytes, length),
        Side::Client => is_port && is_command(line),
        Side::Server => is_answer(line) || is_port && may_be_answer(line) || is_answer_to(line, start.asked),
    }
}

/// Whether the first answer is one that only memcached gives to the command before it: other protocols have some of its commands, and
/// some of its answers.
fn is_answer_to(answer: &[u8], asked: &[u8]) -> bool {
    let Some((command, _)) =
        line(asked).filter(|(line, length)| is_command(line) && *length == line.len() + 2)
    else {
        return false;
    };
    match (first_word(command), first_word(answer)) {
        (Some(command), Some(word)) => {
            let is_own = is_retrieval(command)
                || is_meta(command.as_bytes())
                || matches!(command, "version" | "stats");
            is_own && word != "ERROR" && may_be_answer(answer) && may_answer(word.as_bytes(), command)
        }
        _ => false,
    }
}

/// Whether the data of a storage command ends as it states, or is not all there.
fn ends_data(bytes: &[u8], line: usize) -> bool {
    let length = bytes.get(..line).and_then(data_of_line).and_then(|data| usize::try_from(data).ok());
    let Some(end) = length.and_then(|length| line.checked_add(length)) else { return false };
    bytes.get(end..).is_none_or(|end| end.is_empty() || b"\r\n".starts_with(end) || end.starts_with(b"\r\n"))
}

fn data_of_line(bytes: &[u8]) -> Option<u64> {
    data_of(line(bytes)?.0)
}

/// Whether an answer that begins with this word may be that of a command.
fn may_answer(word: &[u8], command: &str) -> bool {
    let is_meta = is_meta(command.trim_end_matches("/q").as_bytes());
    match word {
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => true,
        b"VALUE" => is_retrieval(command),
        b"END" => is_retrieval(command) || matches!(command, "stats" | "lru_crawler"),
        b"STAT" | b"ITEM" | b"PREFIX" | b"RESET" => command == "stats",
        b"STORED" | b"NOT_STORED" => is_storage(command.as_bytes()),
        b"EXISTS" => command == "cas",
        b"NOT_FOUND" => matches!(command, "cas" | "delete" | "incr" | "decr" | "touch"),
        b"DELETED" => command == "delete",
        b"TOUCHED" => command == "touch",
        b"MN" => command == "mn",
        b"ME" => command == "me",
        b"VA" => matches!(command, "mg" | "mg/q" | "ma"),
        b"EN" => matches!(command, "mg" | "me" | "lru_crawler"),
        b"HD" => is_meta && !matches!(command, "mn" | "me" | "ms/q" | "md/q" | "ma/q"),
        b"NF" | b"NS" | b"EX" => matches!(command, "ms" | "md" | "ma" | "ms/q" | "md/q" | "ma/q"),
        word if number(word).is_some() => matches!(command, "incr" | "decr"),
        _ => !is_meta && !is_retrieval(command) && !is_storage(command.as_bytes()),
    }
}

/// The status that an answer's last line states.
fn status_of(line: &[u8]) -> Status {
    let word = words(line).next().unwrap_or_default();
    match word {
        // The request itself, and no failure of the server.
        b"SERVER_ERROR" if line.ends_with(b"too large for cache") => Status::Error(Word::new(b"TOO_LARGE")),
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" | b"NOT_STORED" | b"EXISTS" | b"NOT_FOUND" | b"NF"
        | b"NS" | b"EX" => Status::Error(Word::new(word)),
        _ => Status::Good,
    }
}

impl Decoder for Memcached {
    fn length(&mut self, side: Side, start: &[u8]) -> Length {
        if start.first().is_some_and(|&byte| byte >= 0x80) {
            return binary::length(side, start);
        }
        let is_text = start.first().is_some_and(|b| b.is_ascii_graphic() || matches!(b, b'\r' | b'\n'));
        if !is_text {
            return Length::Invalid;
        }
        let Some((line, length)) = line(start) else {
            return if start.len() > LINE_MAX { Length::Invalid } else { Length::More };
        };
        let data = if side == Side::Client { data_of(line) } else { data_of_answer(line) };
        match data {
            Some(data) if data <= VALUE_MAX => Length::Is(length as u64 + data + 2),
            _ => Length::Is(length as u64),
        }
    }

    fn message(&mut self, message: &Message<'_>, requests: &mut Requests) {
        match (message.side, message.bytes.first()) {
            (Side::Client, Some(0x80..)) => self.binary(message.bytes, requests),
            (Side::Server, Some(0x80..)) => binary::answer(message.bytes, requests),
            (Side::Client, _) => self.command(message.bytes, requests),
            (Side::Server, _) => self.answer(message.bytes, requests),
        }
    }

    /// The longest line whose words matter: two keys of 250 bytes.
    fn kept(&self) -> usize {
        600
    }

    fn resumes(&mut self, side: Side, start: &[u8]) -> bool {
        if binary::begins(side, start) {
            return true;
        }
        match (side, line(start)) {
            (Side::Client, None) => begins_a_store(start),
            (Side::Server, None) => false,
            (Side::Client, Some((line, length))) => {
                is_command(line) && (!is_store(line) || ends_data(start, length))
            }
            (Side::Server, Some((line, _))) => may_be_answer(line),
        }
    }

    fn lost(&mut self, side: Side, requests: &mut Requests) {
        // Misses that are not answered have no place in the order.
        if side == Side::Server && !self.is_quiet && requests.is_pipelining() {
            requests.lost_answers();
        }
    }

    fn closed(&mut self, side: Side, requests: &mut Requests) {
        if side == Side::Client {
            // Nothing will show that they were misses.
            (0..std::mem::take(&mut self.quiet)).for_each(|_| requests.forget(Of::Order));
            requests.client_closed();
        }
    }
}

/// Which word of a command is its first key, or names what it is about.
fn place_of_key(command: &[u8]) -> Option<usize> {
    match command {
        b"gat" | b"gats" => Some(2),
        b"mn" | b"version" | b"quit" | b"shutdown" | b"flush_all" | b"verbosity" | b"cache_memlimit" => None,
        _ => Some(1),
    }
}

impl Memcached {
    fn command(&mut self, bytes: &[u8], requests: &mut Requests) {
        let Some((line, _)) = line(bytes) else { return };
        let Some(command) = words(line).next() else { return };
        let flags = || words_of(line, 2);
        let is_quiet = is_meta(command) && flags().any(|flag| flag == b"q");
        let command_shown =
            if self.shown.verbatim || is_known(command) { Word::new(command) } else { UNKNOWN };
        let is_encoded = is_meta(command) && flags().any(|flag| flag == b"b");
        let key = place_of_key(command).and_then(|place| words_of(line, place).next()).unwrap_or_default();
        let key = if is_encoded && !self.shown.verbatim { "*".to_owned() } else { folded(key, self.shown) };
        // What a quiet command says shows that it failed, and what `mg` says that it found something.
        let quiet: Option<&[u8]> = match command {
            b"mg" => Some(b"mg/q"),
            b"ms" => Some(b"ms/q"),
            b"md" => Some(b"md/q"),
            b"ma" => Some(b"ma/q"),
            _ => None,
        };
        let quiet = quiet.filter(|_| is_quiet);
        let is_optional = quiet.is_some();
        let operation = quiet.map_or(command_shown, Word::new);
        let number = requests.ask(Of::Order, &Asked { operation, key: &key, stream: 0 });
        let echoed = if is_meta(command) { Echoed::asked(line) } else { Echoed::default() };
        if !echoed.is_nothing() {
            if self.echoed.len() >= QUIET_MAX {
                self.echoed.pop_front();
            }
            self.echoed.push_back((number, echoed));
        }
        // A key may have that name.
        let behind_key = place_of_key(command).map_or(1, |place| place + 1);
        let is_silent = is_quiet && !is_optional
            || matches!(command, b"quit" | b"shutdown")
            || !is_retrieval(operation.as_str())
                && !is_malformed(line)
                && words_of(line, behind_key).last() == Some(b"noreply");
        self.sent(is_optional, is_silent, requests);
        self.is_watching |= command == b"watch";
        self.has_malformed |= is_malformed(line);
    }

    /// A request is complete, which may have an answer or has none.
    fn sent(&mut self, is_optional: bool, is_silent: bool, requests: &mut Requests) {
        requests.asked(Of::Order);
        self.is_quiet |= is_optional;
        if is_silent || is_optional && self.quiet >= QUIET_MAX {
            requests.forget(Of::Order);
        } else if is_optional {
            self.quiet += 1;
        } else {
            self.quiet = 0;
        }
    }

    fn binary(&mut self, bytes: &[u8], requests: &mut Requests) {
        let Some(asked) = binary::asked(bytes) else { return };
        let key = folded(asked.key, self.shown);
        requests.ask(Of::Order, &Asked { operation: asked.operation, key: &key, stream: 0 });
        self.sent(asked.is_optional, asked.is_silent, requests);
    }

    fn answer(&mut self, bytes: &[u8], requests: &mut Requests) {
        let Some((line, _)) = line(bytes) else { return };
        let word = words(line).next().unwrap_or_default();
        if self.is_watching && !requests.is_open(Of::Order) {
            return;
        }
        let is_dumping = requests.next_answered().is_some_and(|next| next.as_str() == "lru_crawler");
        let is_part = matches!(word, b"VALUE" | b"STAT" | b"ITEM" | b"PREFIX")
            || is_dumping && (word.starts_with(b"key=") || word == b"mg");
        if word == b"ERROR" && !self.has_malformed && requests.next_answered().is_some_and(do_all_know) {
            // A second answer to a refused request: the server took its data for a command.
            return;
        }
        let echoed = Echoed::answered(line);
        let asker = self.echoed.iter().find(|(_, asked)| !echoed.is_nothing() && asked.answers_with(echoed));
        let asker = asker.map(|&(number, _)| number);
        let may_be_of = |command: &str, number: u32| {
            may_answer(word, command) && asker.is_none_or(|asker| asker == number)
        };
        if let Some(asker) = asker {
            self.echoed.retain(|(number, _)| number.wrapping_sub(asker).cast_signed() > 0);
        }
        if !requests.skip_to(may_be_of) {
            if !is_part {
                requests.answered_none();
            }
            return;
        }
        requests.answer(Of::Order);
        requests.answer_says(word, may_answer);
        if !is_part {
            requests.answered(Of::Order, status_of(line));
        }
    }
}

#[cfg(test)]
mod tests;
