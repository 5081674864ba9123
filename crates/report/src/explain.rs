//! What each cause of an analysis means: when it is named, and what mends it. The words are those of docs/analyze.md, so that there is
//! one text of it.

use std::fmt::Write as _;

use analysis::verdict::{VerdictKind, name, remedies};
use output::text::wrapped;

/// The page that has a row for each cause.
const PAGE: &str = include_str!("../../../docs/analyze.md");

/// The causes by their names in JSON, and when each is named.
fn causes() -> impl Iterator<Item = (&'static str, &'static str)> {
    let rows = PAGE.lines().skip_while(|line| !line.starts_with("### Verdicts")).skip(1);
    let rows = rows.take_while(|line| !line.starts_with("### "));
    rows.filter_map(|line| {
        let (kind, when) = line.strip_prefix("| `")?.split_once("` | ")?;
        Some((kind, when.trim_end_matches([' ', '|'])))
    })
}

/// The names of the causes.
#[must_use]
pub fn kinds() -> Vec<&'static str> {
    causes().map(|(kind, _)| kind).collect()
}

/// When a cause is named, and the remedies on each system; `None` if there is none of this name.
#[must_use]
pub fn cause(kind: &str) -> Option<String> {
    let (own, when) = causes().find(|(own, _)| *own == kind)?;
    let parsed: VerdictKind = serde_json::from_value(own.into()).ok()?;
    let mut out = wrapped(format_args!("{}: {}", name(parsed), sentence(when)), "  ");
    let remedies = remedies(parsed);
    if !remedies.is_empty() {
        out.push_str("\nRemedies\n");
    }
    for remedy in remedies {
        out.push_str(&wrapped(format_args!("  {}: {}", remedy.system, remedy.action), "    "));
    }
    let _ = write!(out, "\ndocs/analyze.md has how the figures of it come about");
    Some(out)
}

/// Text of a Markdown table: without its links and marks.
fn sentence(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        out.push_str(before);
        rest = link;
        if let Some((text, after)) = link.split_once("](")
            && let Some((_, after)) = after.split_once(')')
        {
            out.push_str(text);
            rest = after;
        } else {
            out.push('[');
        }
    }
    out.push_str(rest);
    out.replace(['`', '*'], "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_cause_is_explained() {
        let kinds = kinds();
        assert!(kinds.len() > 30, "{kinds:?}");
        for kind in kinds {
            let text = cause(kind).unwrap_or_else(|| panic!("{kind} is none of the program's"));
            assert!(text.len() > 100 && text.lines().all(|line| line.chars().count() <= 80), "{text}");
            let said = text.split("\nRemedies").next().unwrap_or_default();
            assert!(!said.contains("](") && !said.contains('`'), "{text}");
        }
        assert_eq!(cause("rain"), None);
    }

    #[test]
    fn links_are_their_text() {
        assert_eq!(sentence("a [b c](#d) `e` [f"), "a b c e [f");
    }
}
