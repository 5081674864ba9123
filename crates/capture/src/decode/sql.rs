//! SQL text as an operation and a key that tells no values.
//!
//! Literals, numbers and parameters become `?`, lists of them one `?`, comments disappear. Identifiers stay, also with digits. Where a
//! string ends depends on whether a backslash escapes its quote, which a session may set: text behind a place where that is unknown and
//! matters is not shown.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use record::Word;

use super::Shown;

/// Longest key.
const KEY_MAX: usize = 200;
/// Most statements of a connection that are known by name or number.
const KNOWN_MAX: usize = 512;

/// Whose SQL it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Dialect {
    Postgres,
    MySql,
}

/// What a backslash in a string does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Backslash {
    /// The session's setting was not seen.
    #[default]
    Unknown,
    Escapes,
    Plain,
}

/// A statement, as far as it may be shown.
#[derive(Clone, Debug)]
pub(super) struct Statement {
    /// Its first keyword.
    pub(super) operation: Word,
    pub(super) key: Arc<str>,
}

impl Statement {
    /// An operation whose text is unknown.
    pub(super) fn unknown(operation: &str) -> Self {
        Self { operation: Word::new(operation.as_bytes()), key: Arc::from("") }
    }
}

/// Statements by their name or number; the oldest are forgotten.
#[derive(Debug, Default)]
pub(super) struct Statements {
    known: HashMap<u64, Statement, foldhash::fast::RandomState>,
    order: VecDeque<u64>,
}

impl Statements {
    pub(super) fn insert(&mut self, id: u64, statement: Statement) {
        if self.known.insert(id, statement).is_none() {
            self.order.push_back(id);
        }
        while self.known.len() > KNOWN_MAX || self.order.len() > 2 * KNOWN_MAX {
            let Some(oldest) = self.order.pop_front() else { break };
            self.known.remove(&oldest);
        }
    }

    pub(super) fn get(&self, id: u64) -> Option<&Statement> {
        self.known.get(&id)
    }

    pub(super) fn remove(&mut self, id: u64) {
        self.known.remove(&id);
    }
}

/// Reads the text of a statement, or of several. It may be cut anywhere.
pub(super) fn read(text: &[u8], dialect: Dialect, backslash: Backslash, shown: Shown) -> Statement {
    let mut folder = Folder {
        text,
        at: 0,
        out: String::new(),
        last: Last::Start,
        spaced: false,
        first: None,
        place: Place::Start,
        depth: 0,
        dialect,
        backslash,
        is_utf8: std::str::from_utf8(text).map_or_else(|e| e.error_len().is_none(), |_| true),
    };
    folder.fold();
    let operation = folder.first.unwrap_or_else(|| Word::new(b"QUERY"));
    let key = if shown.verbatim { verbatim(text) } else { folder.out };
    Statement { operation, key: key.into() }
}

/// The beginning of a text as it is.
fn verbatim(text: &[u8]) -> String {
    let text = text.trim_ascii();
    printable(text.get(..text.len().min(KEY_MAX)).unwrap_or_default())
}

/// Text without characters that act on a terminal.
fn printable(text: &[u8]) -> String {
    let mut shown = String::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            ' '..='~' | char::REPLACEMENT_CHARACTER => shown.push(c),
            c if c.is_alphanumeric() => shown.push(c),
            c => shown.extend(c.escape_default()),
        }
    }
    shown
}

/// Keywords behind which a sign is a number's.
const BEFORE_SIGNS: &[&str] = &[
    "AND",
    "BETWEEN",
    "BY",
    "CASE",
    "ELSE",
    "IN",
    "INTERVAL",
    "LIKE",
    "LIMIT",
    "NOT",
    "OFFSET",
    "OR",
    "RETURN",
    "RETURNING",
    "SELECT",
    "SET",
    "THEN",
    "VALUES",
    "WHEN",
    "WHERE",
];

/// The token before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Last {
    Start,
    Word,
    /// A word of [`BEFORE_SIGNS`].
    Keyword,
    Literal,
    /// `(`, `[`, `.` and `::`, behind which there is no space.
    Opening,
    Comma,
    Closing,
    Operator,
}

/// Where in a statement a token is: what a parameter is set to is a value, also without quotes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before its first word.
    Start,
    /// In one that may set parameters: ALTER.
    Altering,
    /// Behind SET.
    Setting,
    /// Behind what the parameter is set with: TO or `=`.
    Value,
    Other,
}

impl Place {
    /// The place behind a word.
    fn behind(self, word: &[u8]) -> Self {
        let is = |keyword: &str| word.eq_ignore_ascii_case(keyword.as_bytes());
        match self {
            Self::Start | Self::Altering if is("SET") => Self::Setting,
            Self::Start if is("ALTER") => Self::Altering,
            Self::Start => Self::Other,
            Self::Setting if is("TO") => Self::Value,
            other => other,
        }
    }
}

#[derive(Debug)]
struct Folder<'a> {
    text: &'a [u8],
    at: usize,
    out: String,
    last: Last,
    /// Whether there was space or a comment since the token before.
    spaced: bool,
    first: Option<Word>,
    place: Place,
    /// Of parentheses.
    depth: u32,
    dialect: Dialect,
    backslash: Backslash,
    is_utf8: bool,
}

fn begins_word(b: u8) -> bool {
    b.is_ascii_alphabetic() || b == b'_' || b >= 0x80
}

fn is_in_word(b: u8) -> bool {
    begins_word(b) || b.is_ascii_digit() || b == b'$'
}

impl Folder<'_> {
    fn peek(&self, ahead: usize) -> Option<u8> {
        self.text.get(self.at + ahead).copied()
    }

    fn is_mysql(&self) -> bool {
        self.dialect == Dialect::MySql
    }

    fn fold(&mut self) {
        while let Some(b) = self.peek(0) {
            if self.out.len() >= KEY_MAX {
                self.cut();
                return;
            }
            if b <= b' ' || b == 0x7f {
                self.at += 1;
                self.spaced = true;
            } else if self.comment(b) {
                self.spaced = true;
            } else {
                self.token(b);
            }
        }
        if self.out.len() > KEY_MAX {
            self.cut();
        }
    }

    fn cut(&mut self) {
        let mut end = KEY_MAX.min(self.out.len());
        while !self.out.is_char_boundary(end) {
            end -= 1;
        }
        self.out.truncate(end);
        self.out.push('…');
    }

    fn token(&mut self, b: u8) {
        let next = self.peek(1);
        match b {
            b'\'' => self.string(b'\'', self.backslash),
            b'"' if self.is_mysql() => self.string(b'"', self.backslash),
            b'"' | b'`' => self.quoted_name(b),
            b'$' if !self.is_mysql() => self.dollar(),
            b'0'..=b'9' => self.number(),
            b'.' if self.last != Last::Word && next.is_some_and(|b| b.is_ascii_digit()) => self.number(),
            b'-' | b'+' if self.is_sign() => self.at += 1,
            b'?' if self.is_mysql() => {
                self.at += 1;
                self.literal();
            }
            b'@' if self.is_mysql() => self.word(),
            _ if begins_word(b) => self.word(),
            _ => self.punctuation(b),
        }
    }

    /// Passes a comment, if one begins here.
    fn comment(&mut self, b: u8) -> bool {
        let next = self.peek(1);
        match (b, next) {
            (b'-', Some(b'-')) if !self.is_mysql() || self.peek(2).is_none_or(|b| b <= b' ') => {
                self.line_comment();
            }
            (b'#', _) if self.is_mysql() => self.line_comment(),
            // The server reads what is in it.
            (b'/', Some(b'*')) if self.is_mysql() && matches!(self.peek(2), Some(b'!')) => self.at += 3,
            (b'/', Some(b'*')) if self.is_mysql() && self.text[self.at..].starts_with(b"/*M!") => {
                self.at += 4;
            }
            (b'*', Some(b'/')) if self.is_mysql() => {
                self.at += 2;
                return true;
            }
            (b'/', Some(b'*')) => {
                self.block_comment();
                return true;
            }
            _ => return false,
        }
        if matches!(b, b'/') {
            while self.peek(0).is_some_and(|b| b.is_ascii_digit()) {
                self.at += 1;
            }
        }
        true
    }

    fn line_comment(&mut self) {
        let rest = self.text.get(self.at..).unwrap_or_default();
        let ends = |b: &u8| *b == b'\n' || *b == b'\r' && !self.is_mysql();
        self.at = rest.iter().position(ends).map_or(self.text.len(), |end| self.at + end + 1);
    }

    fn block_comment(&mut self) {
        self.at += 2;
        let mut depth = 1_u32;
        while let Some(b) = self.peek(0) {
            match (b, self.peek(1)) {
                (b'*', Some(b'/')) => {
                    self.at += 2;
                    depth -= 1;
                    if depth == 0 {
                        return;
                    }
                }
                (b'/', Some(b'*')) if !self.is_mysql() => {
                    self.at += 2;
                    depth += 1;
                }
                _ => self.at += 1,
            }
        }
    }

    /// Passes a string whose quote is next. What follows is not shown if its end is not known.
    fn string(&mut self, quote: u8, backslash: Backslash) {
        self.at += 1;
        let end = self.string_end(quote, backslash);
        self.at = end.unwrap_or(self.text.len());
        self.literal();
    }

    fn string_end(&self, quote: u8, backslash: Backslash) -> Option<usize> {
        let mut at = self.at;
        loop {
            let b = *self.text.get(at)?;
            if b == b'\\' && backslash != Backslash::Plain {
                let run = self.text[at..].iter().take_while(|&&b| b == b'\\').count();
                let is_quoted = self.text.get(at + run) == Some(&quote);
                // In some character sets a backslash is the second byte of a character.
                let may_be_half = !self.is_utf8 && at > 0 && self.text[at - 1] >= 0x80;
                let is_odd = run % 2 == 1;
                if is_quoted && (may_be_half || is_odd && backslash == Backslash::Unknown) {
                    return None;
                }
                at += run + usize::from(is_odd && backslash == Backslash::Escapes);
            } else if b != quote {
                at += 1;
            } else if self.text.get(at + 1) == Some(&quote) {
                at += 2;
            } else {
                return Some(at + 1);
            }
        }
    }

    /// Passes a name in quotes. One that could be anything is not shown.
    fn quoted_name(&mut self, quote: u8) {
        let from = self.at;
        self.at += 1;
        let Some(end) = self.string_end(quote, Backslash::Plain) else {
            self.at = self.text.len();
            self.literal();
            return;
        };
        self.at = end;
        if self.place == Place::Value {
            self.literal();
            return;
        }
        let name = &self.text[from..end];
        let is_plain = |b: &u8| is_in_word(*b) || matches!(b, b' ' | b'-' | b'"' | b'`' | b'.');
        if name.len() <= 66 && name.iter().all(is_plain) {
            self.push(&printable(name), Last::Word);
        } else {
            self.literal();
        }
    }

    /// A parameter such as `$1`, or a string such as `$$text$$`.
    fn dollar(&mut self) {
        let rest = &self.text[self.at + 1..];
        if rest.first().is_some_and(u8::is_ascii_digit) {
            self.at += 1 + rest.iter().take_while(|b| b.is_ascii_digit()).count();
            self.literal();
            return;
        }
        let tag = rest.iter().take_while(|&&b| is_in_word(b) && b != b'$').count();
        match rest.get(tag) {
            Some(b'$') => {
                let (tag, inside) = (&self.text[self.at..self.at + tag + 2], &rest[tag + 1..]);
                let end = inside.windows(tag.len()).position(|window| window == tag);
                self.at = end.map_or(self.text.len(), |end| self.text.len() - inside.len() + end + tag.len());
                self.literal();
            }
            // The text is cut inside the tag.
            None => {
                self.at = self.text.len();
                self.literal();
            }
            Some(_) => self.punctuation(b'$'),
        }
    }

    fn number(&mut self) {
        let mut before = 0;
        while let Some(b) = self.peek(0) {
            let is_exponent_sign = matches!(b, b'+' | b'-') && matches!(before, b'e' | b'E');
            if !(is_in_word(b) || b == b'.' || is_exponent_sign) {
                break;
            }
            before = b;
            self.at += 1;
        }
        // A number in hexadecimal digits may end in `e`, which no sign follows.
        self.literal();
    }

    /// Whether the sign that is next is that of a number.
    fn is_sign(&self) -> bool {
        let is_number = match (self.peek(1), self.peek(2)) {
            (Some(b'.'), Some(b)) | (Some(b), _) => b.is_ascii_digit(),
            _ => false,
        };
        is_number && !matches!(self.last, Last::Word | Last::Literal | Last::Closing)
    }

    fn word(&mut self) {
        let rest = &self.text[self.at..];
        let at_signs = rest.iter().take_while(|&&b| b == b'@').count();
        let length = at_signs + rest[at_signs..].iter().take_while(|&&b| is_in_word(b)).count();
        let (word, behind) = rest.split_at(length);
        // A string with a prefix: E'', x'', _utf8mb4''.
        let quote = match behind.first() {
            Some(&quote @ b'\'') => Some(quote),
            Some(&quote @ b'"') if self.is_mysql() => Some(quote),
            _ => None,
        };
        if let Some(quote) = quote {
            self.at += length;
            let is_escaped = !self.is_mysql() && word.eq_ignore_ascii_case(b"E");
            self.string(quote, if is_escaped { Backslash::Escapes } else { self.backslash });
            return;
        }
        if !self.is_mysql() && word.eq_ignore_ascii_case(b"U") && behind.starts_with(b"&'") {
            self.at += length + 1;
            self.string(b'\'', Backslash::Plain);
            return;
        }
        self.at += length;
        let is = |keyword: &&str| word.eq_ignore_ascii_case(keyword.as_bytes());
        let is_value = ["NULL", "TRUE", "FALSE", "DEFAULT"].iter().any(is);
        if is_value && (matches!(self.last, Last::Opening | Last::Comma) || self.out.ends_with('=')) {
            self.literal();
            return;
        }
        if self.place == Place::Value {
            self.literal();
            return;
        }
        self.place = self.place.behind(word);
        self.first.get_or_insert_with(|| Word::upper(word));
        let kind = if BEFORE_SIGNS.iter().any(is) { Last::Keyword } else { Last::Word };
        self.push(&printable(word), kind);
    }

    fn punctuation(&mut self, b: u8) {
        self.at += 1;
        let text = [b];
        let text = std::str::from_utf8(&text).unwrap_or("?");
        self.place = match (b, self.place) {
            (b';', _) => Place::Start,
            (b'=', Place::Setting) => Place::Value,
            // The next parameter; in PostgreSQL it is a list of values.
            (b',', Place::Value) if self.is_mysql() && self.depth == 0 => Place::Setting,
            (_, place) => place,
        };
        self.depth = match b {
            b'(' => self.depth.saturating_add(1),
            b')' => self.depth.saturating_sub(1),
            _ => self.depth,
        };
        match b {
            b'(' | b'[' | b'.' => self.push(text, Last::Opening),
            b')' | b']' => {
                self.push(text, Last::Closing);
                if self.out.ends_with("(?), (?)") {
                    self.out.truncate(self.out.len() - 5);
                }
            }
            b',' => self.push(text, Last::Comma),
            _ => self.push(text, Last::Operator),
        }
    }

    /// A value.
    fn literal(&mut self) {
        self.first.get_or_insert_with(|| Word::new(b"QUERY"));
        self.push("?", Last::Literal);
        if self.out.ends_with("?, ?") {
            self.out.truncate(self.out.len() - 3);
        }
    }

    fn push(&mut self, token: &str, kind: Last) {
        let is_glued = match token {
            ")" | "]" | "[" | "," | "." | ";" => true,
            "(" => matches!(self.last, Last::Word | Last::Keyword) && !self.spaced,
            _ => kind == Last::Operator && self.last == Last::Operator && !self.spaced,
        };
        if !is_glued && !matches!(self.last, Last::Start | Last::Opening) {
            self.out.push(' ');
        }
        self.out.push_str(token);
        (self.last, self.spaced) = (kind, false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Dialect::{MySql, Postgres};

    fn key(text: &str, dialect: Dialect, backslash: Backslash) -> String {
        read(text.as_bytes(), dialect, backslash, Shown::default()).key.to_string()
    }

    #[test]
    fn values_are_folded_and_names_stay() {
        for (text, expected) in [
            ("SELECT * FROM t1 WHERE id = 17", "SELECT * FROM t1 WHERE id = ?"),
            (
                "select  a.b2,count(*)\n from users_2024 a where x IN (1, 2,-3) and y in ('a','b');",
                "select a.b2, count(*) from users_2024 a where x IN (?) and y in (?);",
            ),
            ("INSERT INTO t (a, b) VALUES (1, 'x'), (2, NULL), (-3,'z')", "INSERT INTO t (a, b) VALUES (?)"),
            ("UPDATE t SET n = n + -1.5e-10 WHERE k=0x1F", "UPDATE t SET n = n + ? WHERE k = ?"),
            (
                "UPDATE t SET n = n - 5, s = NULL WHERE z IS NULL",
                "UPDATE t SET n = n - ?, s = ? WHERE z IS NULL",
            ),
            ("SELECT 'it''s', \"\"", "SELECT ?"),
            ("SELECT 1 -- secret 7\n, 2 /* secret */ FROM t", "SELECT ? FROM t"),
            ("BEGIN", "BEGIN"),
        ] {
            let expected_postgres = expected.replace("SELECT ?\"", "SELECT ?");
            if !text.contains("\"\"") {
                assert_eq!(key(text, Postgres, Backslash::Plain), expected_postgres, "{text}");
            }
            assert_eq!(key(text, MySql, Backslash::Escapes), expected, "{text}");
        }
        assert_eq!(
            key("SELECT a->>'k', b::int4, $1, $2", Postgres, Backslash::Plain),
            "SELECT a ->> ?, b :: int4, ?"
        );
        assert_eq!(key("SELECT a #> '{x}' -- c", Postgres, Backslash::Plain), "SELECT a #> ?");
        assert_eq!(
            key("SELECT `a b`, @v1, @@max_x FROM `t` # no", MySql, Backslash::Escapes),
            "SELECT `a b`, @v1, @@max_x FROM `t`"
        );
        assert_eq!(key("/*!40101 SET NAMES utf8mb4 */", MySql, Backslash::Escapes), "SET NAMES utf8mb4");
        assert_eq!(
            key("SELECT \"User\".\"Id\" FROM \"User\"", Postgres, Backslash::Plain),
            "SELECT \"User\".\"Id\" FROM \"User\""
        );
    }

    #[test]
    fn what_a_parameter_is_set_to_is_a_value() {
        for (text, dialect, expected) in [
            ("SET application_name TO secret", Postgres, "SET application_name TO ?"),
            ("set session a.b = secret, \"secret\", 'secret'", Postgres, "set session a.b = ?"),
            ("BEGIN; SET LOCAL x TO secret; SELECT a = b", Postgres, "BEGIN; SET LOCAL x TO ?; SELECT a = b"),
            ("ALTER ROLE joe SET x TO secret", Postgres, "ALTER ROLE joe SET x TO ?"),
            ("ALTER SYSTEM SET x = secret", Postgres, "ALTER SYSTEM SET x = ?"),
            ("ALTER TABLE t RENAME a TO b", Postgres, "ALTER TABLE t RENAME a TO b"),
            (
                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
                Postgres,
                "SET TRANSACTION ISOLATION LEVEL SERIALIZABLE",
            ),
            ("SET a = secret, @b := secret(1, secret), c = `secret`", MySql, "SET a = ?, @b := ? (?), c = ?"),
            ("UPDATE t SET a = b WHERE c = d", MySql, "UPDATE t SET a = b WHERE c = d"),
            ("CREATE TABLE t SELECT a = b", MySql, "CREATE TABLE t SELECT a = b"),
        ] {
            assert_eq!(key(text, dialect, Backslash::Plain), expected, "{text}");
        }
    }

    #[test]
    fn the_first_keyword_is_the_operation() {
        for (text, expected) in [
            ("  /* app */ select 1", "SELECT"),
            ("-- x\ninsert into t values (1)", "INSERT"),
            ("(SELECT 1) UNION SELECT 2", "SELECT"),
            ("begin; select 1; commit", "BEGIN"),
            ("", "QUERY"),
            ("'text'", "QUERY"),
        ] {
            for dialect in [Postgres, MySql] {
                let read = read(text.as_bytes(), dialect, Backslash::Unknown, Shown::default());
                assert_eq!(read.operation.as_str(), expected, "{text}");
            }
        }
    }

    const HIDING: &[(&str, Dialect, Backslash)] = &[
        ("SELECT 'a''secret', 'secret'", Postgres, Backslash::Plain),
        (r"SELECT 'a\', 1, 'secret'", Postgres, Backslash::Plain),
        (r"SELECT 'a\'secret', 1", Postgres, Backslash::Escapes),
        (r"SELECT 'a\'secret', 1, 'secret' from b", Postgres, Backslash::Unknown),
        (r"SELECT 'a\', 'secret', 1", Postgres, Backslash::Unknown),
        (r"SELECT 'a\\\', 'secret', 1", MySql, Backslash::Unknown),
        (r"SELECT E'a\'secret', e'\\', 'secret'", Postgres, Backslash::Plain),
        ("SELECT $$ secret ' $$, $a1$ $$ secret $a$ $a1$, 'secret'", Postgres, Backslash::Plain),
        ("SELECT $1, $fn$ secret", Postgres, Backslash::Plain),
        ("SELECT U&'secret\\', x'5ec4e7', N'secret', U&\"a\"", Postgres, Backslash::Plain),
        ("SELECT 1 /* /* secret */ secret ' */, 'secret'", Postgres, Backslash::Plain),
        (r#"SELECT "secret \" secret", 'a\\', "secret""#, MySql, Backslash::Escapes),
        (r"SELECT _utf8mb4'se\'cret secret', x'12', _binary 'secret'", MySql, Backslash::Escapes),
        ("SELECT 5--'a\n secret'", MySql, Backslash::Escapes),
        ("SELECT 5 --\t'a\n, 'secret'", MySql, Backslash::Escapes),
        ("SELECT 1 /* ' */, 'secret' # ' secret", MySql, Backslash::Escapes),
        ("SET PASSWORD FOR 'secret'@'secret' = 'secret'", MySql, Backslash::Escapes),
        ("/*!40000 SELECT '*/ secret' */", MySql, Backslash::Escapes),
        ("SELECT `a``secret secret (`, \"x;secret\"", MySql, Backslash::Escapes),
    ];

    #[test]
    fn strings_are_never_shown_wherever_the_text_is_cut() {
        for (text, dialect, backslash) in HIDING {
            for end in 0..=text.len() {
                let shown = key(&text[..end], *dialect, *backslash);
                assert!(!shown.contains("se") && !shown.contains("cret"), "{text} at {end}: {shown}");
            }
        }
        // A character whose second byte is a backslash.
        let bytes = b"SELECT 'a\x95\\', 'secret', 1";
        let shown = read(bytes, MySql, Backslash::Escapes, Shown::default()).key;
        assert_eq!(&*shown, "SELECT ?");
    }

    #[test]
    fn keys_are_short_and_statements_few() {
        let long = format!("SELECT {}", "long_column_name, ".repeat(100));
        let shown = key(&long, MySql, Backslash::Escapes);
        assert!(shown.len() < KEY_MAX + 4 && shown.ends_with('…'), "{shown}");
        let wide = format!("SELECT {}", "\u{fc}".repeat(1000));
        assert!(key(&wide, Postgres, Backslash::Plain).len() < KEY_MAX + 4);
        let shown = read(b"SELECT\n'a\x1b[2J'", MySql, Backslash::Escapes, Shown { verbatim: true });
        assert_eq!(&*shown.key, "SELECT\\n'a\\u{1b}[2J'");
        let mut statements = Statements::default();
        for id in 0..10_000 {
            statements.insert(id, Statement::unknown("EXECUTE"));
            statements.remove(id.wrapping_sub(1));
        }
        assert!(statements.order.len() <= 2 * KNOWN_MAX && statements.known.len() <= KNOWN_MAX);
        assert!(statements.get(9_999).is_some());
    }
}
