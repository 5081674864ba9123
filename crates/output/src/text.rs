//! Escaping of output text.
//!
//! Names in captures, headers of peers, files and error messages that quote them can hold control characters, and a
//! terminal acts on these: they set its title, clear it, or overwrite its content. Two rules keep them out:
//!
//! - **Untrusted text passes [`line`]** where it becomes part of the output (a table's cell, a name in a sentence), so
//!   that it cannot begin a line of its own.
//! - **All printed or logged text passes [`lines`] or [`log`]** at the end, whatever its parts. So the only control characters
//!   that reach a terminal are line ends and tabs, and in logs the colours of the log itself.
//!
//! Escapes have the syntax of JSON and TOML (`\u001b`), so results that are printed in these formats keep their meaning.

use std::fmt::{self, Display, Formatter, Write};

/// Whether a character controls a terminal or the direction of text: C0, DEL, C1, line and paragraph separators, and the marks
/// of bidirectional text.
fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(
            c,
            '\u{061c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}'
                | '\u{feff}'
        )
}

/// Displays a text with its control characters escaped.
#[derive(Clone, Copy, Debug)]
pub struct Escaped<T> {
    text: T,
    keeps_lines: bool,
}

/// Displays a text as a part of one line: line ends and tabs are escaped, too.
pub fn line<T: Display>(text: T) -> Escaped<T> {
    Escaped { text, keeps_lines: false }
}

/// Displays a text of several lines: line ends and tabs are kept.
pub fn lines<T: Display>(text: T) -> Escaped<T> {
    Escaped { text, keeps_lines: true }
}

impl<T: Display> Display for Escaped<T> {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(Escaping { out: f, keeps_lines: self.keeps_lines }, "{}", self.text)
    }
}

/// Columns of a terminal that every text fits.
pub const COLUMNS: usize = 80;

/// Escapes a text, and breaks it into lines of [`COLUMNS`]; the later ones begin with `indent`. Ends with a line end.
pub fn wrapped(text: impl Display, indent: &str) -> String {
    let text = together(&line(text).to_string());
    let options = textwrap::Options::new(COLUMNS)
        .subsequent_indent(indent)
        .word_separator(textwrap::WordSeparator::AsciiSpace)
        .word_splitter(textwrap::WordSplitter::NoHyphenation)
        .break_words(false);
    format!("{}\n", textwrap::fill(&text, options).replace(TOGETHER, " "))
}

/// Escapes a text, and cuts it to so many columns.
pub fn cut(text: impl Display, columns: usize) -> String {
    let text = line(text).to_string();
    if textwrap::core::display_width(&text) <= columns {
        return text;
    }
    let mut kept = String::new();
    for c in text.chars() {
        kept.push(c);
        if textwrap::core::display_width(&kept) >= columns {
            kept.pop();
            break;
        }
    }
    kept.push('…');
    kept
}

/// The columns that an escaped text takes.
pub fn width(text: &str) -> usize {
    textwrap::core::display_width(text)
}

/// A text of this many columns, filled with spaces or cut.
pub fn filled(text: impl Display, columns: usize) -> String {
    let mut text = cut(text, columns);
    let missing = columns.saturating_sub(width(&text));
    text.extend(std::iter::repeat_n(' ', missing));
    text
}

/// A space that no line ends at.
const TOGETHER: char = '\u{a0}';

/// Keeps numbers whole, and their units with them.
fn together(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut before = ' ';
    for (at, c) in text.char_indices() {
        let rest = &text[at..];
        let is_unit = || {
            ["us", "ms", "ns", "s", "%", "B", "MB/s"].iter().any(|unit| {
                rest[1..]
                    .strip_prefix(unit)
                    .is_some_and(|rest| !rest.starts_with(|c: char| c.is_alphanumeric()))
            })
        };
        let is_inside = c == ' '
            && before.is_ascii_digit()
            && (rest[1..].starts_with(|c: char| c.is_ascii_digit()) || is_unit());
        out.push(if is_inside { TOGETHER } else { c });
        before = c;
    }
    out
}

/// A writer that escapes its input.
struct Escaping<'a, W> {
    out: &'a mut W,
    keeps_lines: bool,
}

impl<W: Write> Write for Escaping<'_, W> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let mut rest = text;
        while let Some(at) = rest.find(|c| is_control(c) && !(self.keeps_lines && matches!(c, '\n' | '\t'))) {
            let (before, from) = rest.split_at(at);
            self.out.write_str(before)?;
            let mut after = from.chars();
            if let Some(c) = after.next() {
                // All control characters have at most four hexadecimal digits.
                write!(self.out, "\\u{:04x}", u32::from(c))?;
            }
            rest = after.as_str();
        }
        self.out.write_str(rest)
    }
}

/// Returns one event of a log as one line with its end. If `coloured`, the log's own colours are kept: sequences that select
/// graphic rendition (`ESC [ digits m`), which change only the appearance of text.
#[must_use]
pub fn log(event: &str, coloured: bool) -> String {
    let mut out = String::with_capacity(event.len() + 1);
    let mut rest = event.strip_suffix('\n').unwrap_or(event);
    while let Some(at) = rest.find('\x1b').filter(|_| coloured) {
        let (before, from) = rest.split_at(at);
        let _ = write!(out, "{}", line(before));
        let length = rendition(from).unwrap_or(0);
        out.push_str(&from[..length]);
        let skip = if length == 0 { 1 } else { length };
        if length == 0 {
            let _ = write!(out, "{}", line(&from[..1]));
        }
        rest = &from[skip..];
    }
    let _ = write!(out, "{}", line(rest));
    out.push('\n');
    out
}

/// Returns the length of a sequence that selects graphic rendition at the beginning of a text.
fn rendition(text: &str) -> Option<usize> {
    let parameters = text.strip_prefix("\x1b[")?;
    let length = parameters.find(|c: char| !c.is_ascii_digit() && c != ';')?;
    parameters[length..].starts_with('m').then_some(2 + length + 1)
}

/// Returns a text as a cell of a CSV file: control characters escaped, quoted if necessary (RFC
/// 4180), and with an apostrophe before a first character that a spreadsheet would parse as a formula. Not for numbers.
#[must_use]
pub fn csv(text: &str) -> String {
    let mut cell = line(text).to_string();
    if text.starts_with(['=', '+', '-', '@', '\t', '\r']) {
        cell.insert(0, '\'');
    }
    if cell.contains([',', '"', ';']) { format!("\"{}\"", cell.replace('"', "\"\"")) } else { cell }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn texts_are_cut_by_the_columns_that_they_take() {
        assert_eq!(cut("abc", 3), "abc");
        assert_eq!(cut("abcd", 3), "ab…");
        for columns in 2..12 {
            for text in ["漢字漢字漢字漢字", "a漢b字c漢d字", "plain text that is long", "\x1b[2J\x1b[2J"]
            {
                assert!(width(&cut(text, columns)) <= columns, "{text} {columns}");
                assert_eq!(width(&filled(text, columns)), columns, "{text} {columns}");
            }
        }
    }

    #[test]
    fn wrapped_lines_fit_and_keep_numbers_whole() {
        let text = "the operations took 41 177 us of 12 s ".repeat(20);
        let all = wrapped(&text, "  ");
        assert!(all.lines().count() > 8 && all.ends_with('\n') && !all.contains('\u{a0}'));
        for line in all.lines() {
            assert!(line.chars().count() <= COLUMNS, "{line}");
            let last = line.split(' ').next_back().unwrap_or_default();
            assert!(!["41", "177", "12"].contains(&last), "{line}");
        }
        assert!(all.lines().skip(1).all(|line| line.starts_with("  ")));
        assert!(!wrapped("a\x1b[2J\nb", "").contains('\x1b'));
    }

    #[test]
    fn control_characters_are_escaped() {
        for (text, shown) in [
            ("eth0 ä 你好 🦀 \\u", "eth0 ä 你好 🦀 \\u"),
            ("\x1b]0;owned\x07\x1b[31mRED", "\\u001b]0;owned\\u0007\\u001b[31mRED"),
            ("a\nFAKE\tLINE\r", "a\\u000aFAKE\\u0009LINE\\u000d"),
            ("\u{7f}\u{9b}31m\u{85}", "\\u007f\\u009b31m\\u0085"),
            ("\u{202e}gnp\u{2066}\u{2069}\u{2028}\u{200f}", "\\u202egnp\\u2066\\u2069\\u2028\\u200f"),
            ("", ""),
        ] {
            assert_eq!(line(text).to_string(), shown);
        }
        assert_eq!(lines("a\n\tb\x1b[2J\r\n").to_string(), "a\n\tb\\u001b[2J\\u000d\n");
        assert_eq!(lines(format_args!("{}{}", 1, '\x07')).to_string(), "1\\u0007");
    }

    #[test]
    fn a_log_event_is_one_line_with_its_own_colours_only() {
        let event = "\x1b[2m12:00\x1b[0m \x1b[33m WARN\x1b[0m peer said \x1b]0;x\x07\x1b[2J\nFAKE\x1b\n";
        assert_eq!(
            log(event, true),
            "\x1b[2m12:00\x1b[0m \x1b[33m WARN\x1b[0m peer said \\u001b]0;x\\u0007\\u001b[2J\\u000aFAKE\\u001b\n"
        );
        assert!(log(event, false).trim_end().chars().all(|c| !c.is_control()));
    }

    #[test]
    fn cells_are_neither_formulas_nor_split() {
        for (text, cell) in [
            ("GET", "GET"),
            ("=1+1", "'=1+1"),
            ("+SUM(1,2)", "\"'+SUM(1,2)\""),
            ("-2+3", "'-2+3"),
            ("@SUM(A1)", "'@SUM(A1)"),
            ("\tx", "'\\u0009x"),
            ("\r=1", "'\\u000d=1"),
            ("a,b", "\"a,b\""),
            ("a\"b", "\"a\"\"b\""),
            ("a=b", "a=b"),
        ] {
            assert_eq!(csv(text), cell, "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn shown_text_has_no_control_characters(
            text in any::<String>(), parts in prop::collection::vec("[\\x00-\\x20\\x7f-\\xa0\\u{2020}-\\u{2070}m;0-9\\[]{0,4}", 0..8),
        ) {
            let acts = |c: char| c.is_control() || ('\u{2028}'..='\u{202e}').contains(&c);
            let text = parts.concat() + &text;
            prop_assert!(!line(&text).to_string().contains(acts));
            prop_assert!(!lines(&text).to_string().contains(|c| acts(c) && c != '\n' && c != '\t'));
            prop_assert!(!csv(&text).contains(acts));
            let plain = log(&text, false);
            prop_assert!(!plain.strip_suffix('\n').unwrap().contains(acts));
            let coloured = log(&text, true);
            let coloured = coloured.strip_suffix('\n').unwrap();
            prop_assert!(!coloured.contains(|c| acts(c) && c != '\x1b'));
            prop_assert!(coloured.match_indices('\x1b').all(|(at, _)| rendition(&coloured[at..]).is_some()));
        }
    }
}
