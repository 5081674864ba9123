//! What shows that a turn of unknown protocol holds several requests.
//!
//! Lines that begin with the same word are commands behind each other. Where they do not, the answer decides: a request of several
//! lines, or of several records that begin with their length, whose answer has several of the same form, is taken for several. One
//! request of two records with an answer of two looks the same, which is why a turn *may* hold several.

use record::Side;

/// Most bytes of a segment in which commands are told apart.
const COMMANDS_MAX: usize = 512;
/// Most bytes of a segment of lines: what segmentation offload makes.
const LINES_MAX: usize = 64 << 10;
/// Longest name of a command.
const COMMAND_MAX: usize = 16;
/// Fewest bytes of a record behind its length: shorter ones occur in any data.
const RECORD_MIN: u64 = 4;
/// Longest record.
const RECORD_MAX: u64 = 64 << 20;

/// How a record states its length.
#[derive(Clone, Copy, Debug)]
struct Framing {
    bytes: usize,
    is_big_endian: bool,
    /// The length counts its own bytes.
    is_inclusive: bool,
}

const FRAMINGS: [Framing; 8] = [
    Framing::new(4, true, false),
    Framing::new(4, true, true),
    Framing::new(4, false, false),
    Framing::new(4, false, true),
    Framing::new(2, true, false),
    Framing::new(2, true, true),
    Framing::new(2, false, false),
    Framing::new(2, false, true),
];

impl Framing {
    const fn new(bytes: usize, is_big_endian: bool, is_inclusive: bool) -> Self {
        Self { bytes, is_big_endian, is_inclusive }
    }

    /// Bytes of the record that begins so.
    fn length(self, start: &[u8]) -> Option<u64> {
        let number = start.get(..self.bytes)?;
        let push = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        let stated =
            if self.is_big_endian { number.iter().fold(0, push) } else { number.iter().rev().fold(0, push) };
        let own = self.bytes as u64;
        let length = if self.is_inclusive { stated } else { stated + own };
        (own + RECORD_MIN..=RECORD_MAX).contains(&length).then_some(length)
    }
}

/// Records behind each other, of one framing.
#[derive(Clone, Copy, Debug, Default)]
struct Records {
    count: u32,
    /// Bytes of the newest that are still to come.
    left: u64,
    is_refuted: bool,
}

impl Records {
    fn pass(&mut self, framing: Framing, segment: &[u8]) {
        let mut rest = segment;
        while !self.is_refuted && !rest.is_empty() {
            if self.left == 0 {
                match framing.length(rest) {
                    Some(length) => (self.left, self.count) = (length, self.count.saturating_add(1)),
                    None => self.is_refuted = true,
                }
            }
            let here = self.left.min(rest.len() as u64);
            self.left -= here;
            rest = rest.get(here as usize..).unwrap_or_default();
        }
    }

    fn absent(&mut self, bytes: u64) {
        match self.left.checked_sub(bytes) {
            Some(left) => self.left = left,
            None => self.is_refuted = true,
        }
    }

    fn are_several(&self) -> bool {
        !self.is_refuted && self.count > 1 && self.left == 0
    }
}

/// What one side sends in a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Sent {
    records: [Records; FRAMINGS.len()],
    lines: u32,
    are_no_lines: bool,
}

impl Sent {
    fn pass(&mut self, segment: &[u8]) {
        for (records, framing) in self.records.iter_mut().zip(FRAMINGS) {
            records.pass(framing, segment);
        }
        if !self.are_no_lines {
            match lines(segment) {
                Some(lines) => self.lines = self.lines.saturating_add(lines),
                None => self.are_no_lines = true,
            }
        }
    }

    fn absent(&mut self, bytes: u64) {
        self.records.iter_mut().for_each(|records| records.absent(bytes));
        self.are_no_lines = true;
    }

    fn has_several_lines(&self) -> bool {
        !self.are_no_lines && self.lines > 1
    }
}

/// A turn.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Several {
    sides: [Sent; 2],
    /// Commands behind each other.
    are_commands: bool,
}

impl Several {
    /// The next segment of a side.
    pub(super) fn pass(&mut self, side: Side, segment: &[u8]) {
        self.are_commands |= side == Side::Client && are_commands(segment);
        self.sides[side as usize].pass(segment);
    }

    /// Bytes that were on the wire and are not in the capture.
    pub(super) fn absent(&mut self, side: Side, bytes: u64) {
        self.sides[side as usize].absent(bytes);
    }

    /// Whether the turn may hold several requests.
    pub(super) fn is_likely(&self) -> bool {
        let [client, server] = &self.sides;
        let mut records = client.records.iter().zip(&server.records);
        self.are_commands
            || client.has_several_lines() && server.has_several_lines()
            || records.any(|(asked, answered)| asked.are_several() && answered.are_several())
    }
}

/// The lines of a segment of text that ends with one. An empty line ends a head with fields, and one that begins with a blank goes on
/// with the line before: both are of one message.
fn lines(segment: &[u8]) -> Option<u32> {
    let is_text = |b: &u8| !matches!(b, 0..=8 | 11 | 12 | 14..=31 | 127);
    let may_be = segment.first().is_some_and(|b| !b.is_ascii_whitespace() && is_text(b));
    if !may_be || segment.len() > LINES_MAX || segment.last() != Some(&b'\n') {
        return None;
    }
    let mut count = 0;
    for line in segment.split_inclusive(|&b| b == b'\n') {
        if line.first().is_none_or(u8::is_ascii_whitespace) || !line.iter().all(is_text) {
            return None;
        }
        count += 1;
    }
    Some(count)
}

/// Whether bytes are several lines that begin with the same word: commands behind each other.
fn are_commands(bytes: &[u8]) -> bool {
    let bytes = bytes.get(..bytes.len().min(COMMANDS_MAX)).unwrap_or_default();
    let command = |line: &'_ [u8]| line.iter().take_while(|b| b.is_ascii_alphabetic()).count();
    let Some(first) = bytes.first().filter(|b| b.is_ascii_alphabetic()).map(|_| command(bytes)) else {
        return false;
    };
    let is_end = |b: Option<&u8>| matches!(b, Some(b' ' | b'\r' | b'\n'));
    if first > COMMAND_MAX || !is_end(bytes.get(first)) {
        return false;
    }
    let (word, mut rest, mut lines) = (&bytes[..first], bytes, 0_u32);
    while let Some(end) = rest.iter().position(|&b| b == b'\n') {
        let line = &rest[..=end];
        if command(line) != first || !line.starts_with(word) || !is_end(line.get(first)) {
            return false;
        }
        (rest, lines) = (&rest[end + 1..], lines + 1);
    }
    lines > 1
}

#[cfg(test)]
mod tests {
    use Side::{Client, Server};

    use super::*;

    /// Whether a turn of these segments may hold several requests.
    fn of(asked: &[&[u8]], answered: &[&[u8]]) -> bool {
        let mut several = Several::default();
        asked.iter().for_each(|segment| several.pass(Client, segment));
        answered.iter().for_each(|segment| several.pass(Server, segment));
        several.is_likely()
    }

    #[test]
    fn lines_that_are_answered_by_lines_are_several() {
        assert!(of(&[b"SET a 1\r\nGET a\r\n"], &[b"+OK\r\n$1\r\n1\r\n"]));
        assert!(of(&[b"delete k\r\nincr n 1\r\n"], &[b"DELETED\r\n", b"5\r\n"]));
        assert!(of(
            &[b"put 0 0 9 1\r\n", b"a\r\n", b"reserve\r\n"],
            &[b"INSERTED 1\r\n", b"RESERVED 1 1\r\na\r\n"]
        ));
        // The same word needs no answer to show it.
        assert!(of(&[b"get a\r\nget b\r\n"], &[b"\x01"]));
        // One command with its data; one with an answer of several lines; a message of several lines.
        assert!(!of(&[b"put 0 0 9 1\r\na\r\n"], &[b"INSERTED 1\r\n"]));
        assert!(!of(&[b"{\n  \"a\": 1\n}\n"], &[b"{\n  \"b\": 2\n}\n"]), "a document");
        let long = [&b"put 0 0 9 600\r\n"[..], &[b'a'; 600], b"\r\n"].concat().repeat(4);
        assert!(of(&[&long], &[b"INSERTED 1\r\nINSERTED 2\r\n"]));
        assert!(of(&["say \u{e9}\nhear\n".as_bytes()], &[b"1\n2\n"]));
        assert!(!of(&[b"stats\r\n"], &[b"STAT a 1\r\nSTAT b 2\r\nEND\r\n"]));
        assert!(!of(&[b"OPTIONS sip:a SIP/2.0\r\nVia: a\r\n\r\n"], &[b"SIP/2.0 200 OK\r\nVia: a\r\n\r\n"]));
        assert!(!of(&[b"Subject: a\r\n", b"hello\r\n.\r\n"], &[b"250 queued\r\n"]));
        assert!(!of(&[b"SELECT a\nFROM t"], &[b"1\n2\n"]), "an open line");
    }

    /// ZooKeeper's requests, and those of any protocol whose messages begin with their length.
    #[test]
    fn records_that_are_answered_by_records_are_several() {
        for framing in FRAMINGS {
            let record = |payload: &[u8]| {
                let own = if framing.is_inclusive { framing.bytes } else { 0 };
                let stated = ((payload.len() + own) as u32).to_be_bytes();
                let mut number = stated[4 - framing.bytes..].to_vec();
                if !framing.is_big_endian {
                    number.reverse();
                }
                [&number, payload].concat()
            };
            let (one, other) = (record(b"\0\0\0\x01abc"), record(&[7; 300]));
            let both = [one.clone(), other.clone()].concat();
            assert!(of(&[&both], &[&both]), "{framing:?}");
            assert!(of(&[&one, &other], &[&both[..50], &both[50..]]), "{framing:?}: in segments");
            assert!(!of(&[&one], &[&both]), "{framing:?}: one request with an answer of two records");
            assert!(!of(&[&both], &[&one]), "{framing:?}: one answer");
            assert!(!of(&[&both[..both.len() - 1]], &[&both]), "{framing:?}: an open record");
            assert!(!of(&[&[&both[..], &[1]].concat()], &[&both]), "{framing:?}: something behind them");
            let mut several = Several::default();
            several.pass(Client, &both[..60]);
            several.absent(Client, both.len() as u64 - 60);
            several.pass(Server, &both);
            assert!(several.is_likely(), "{framing:?}: a record whose rest is missing");
            several.absent(Server, 1);
            assert!(!several.is_likely(), "{framing:?}: a hole between records");
        }
        let zeros = [0; 64];
        assert!(!of(&[&zeros], &[&zeros]));
    }
}
