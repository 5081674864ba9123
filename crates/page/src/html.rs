//! A page as HTML.

use std::collections::BTreeMap;
use std::fmt::{Display, Write as _};

use crate::{Page, Part, Report, Unit};

const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");
/// uPlot, MIT licence: assets/uPlot.LICENSE.
const CHARTS_STYLE: &str = include_str!("../assets/uPlot.min.css");
const CHARTS_SCRIPT: &str = include_str!("../assets/uPlot.iife.min.js");

/// Text made safe for HTML, between tags and in quoted attributes.
#[must_use]
pub fn escape(text: impl Display) -> String {
    let mut out = String::new();
    for c in output::text::lines(text).to_string().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    out
}

/// HTML while it grows.
pub(crate) struct Writer {
    pub(crate) out: String,
    pub(crate) unit: Unit,
    /// The title of the section.
    pub(crate) section: String,
    /// The terms of the report, and the number of each.
    terms: BTreeMap<String, usize>,
}

impl Writer {
    pub(crate) fn new(unit: Unit, terms: &[(String, String)]) -> Self {
        let mut to = Self { out: String::new(), unit, section: String::new(), terms: BTreeMap::new() };
        to.know(0, terms);
        to
    }

    fn know(&mut self, report: usize, terms: &[(String, String)]) {
        let number = |index: usize| report * 1000 + index;
        self.terms =
            terms.iter().enumerate().map(|(index, (name, _))| (name.clone(), number(index))).collect();
    }

    /// A name, which explains itself when it is pointed at, tapped or reached by keys, if it is a term.
    pub(crate) fn term(&mut self, name: &str) {
        let text = escape(name);
        let _ = match self.terms.get(name) {
            Some(number) => write!(
                self.out,
                "<button type=\"button\" class=\"term\" popovertarget=\"term-{number}\">{text}</button>"
            ),
            None => write!(self.out, "<span class=\"named\">{text}</span>"),
        };
    }
}

impl Page {
    /// The page as one file.
    #[must_use]
    pub fn html(&self) -> String {
        let mut to = Writer::new(self.unit, &[]);
        let _ = write!(
            to.out,
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" \
             content=\"width=device-width,initial-scale=1\"><meta name=\"color-scheme\" content=\"light dark\"><title>{}</title>\
             <style>{CHARTS_STYLE}{STYLE}</style></head><body><a class=\"skip\" href=\"#answer-0\">To the answer</a><header>\
             <span class=\"brand\">Roundtrip</span><button type=\"button\" id=\"theme\" hidden>dark or light</button></header><main>",
            escape(&self.title)
        );
        if self.reports.len() > 1 {
            to.out.push_str("<nav aria-label=\"Results\"><ul>");
            for (index, report) in self.reports.iter().enumerate() {
                let _ =
                    write!(to.out, "<li><a href=\"#answer-{index}\">{}</a></li>", escape(&report.heading));
            }
            to.out.push_str("</ul></nav>");
        }
        for (index, one) in self.reports.iter().enumerate() {
            to.know(index, &one.terms);
            report(index, one, &mut to);
        }
        let _ = writeln!(
            to.out,
            "</main><footer><p>All times of this page are in {}, unless another unit is named. Made by Roundtrip; charts: uPlot \
             (MIT).</p></footer><script>{CHARTS_SCRIPT}</script><script>{SCRIPT}</script></body></html>",
            to.unit.sign()
        );
        to.out
    }
}

fn report(index: usize, report: &Report, to: &mut Writer) {
    let level = if index == 0 { "h1" } else { "h1 class=\"next\"" };
    let _ = write!(to.out, "<article><{level} id=\"answer-{index}\">{}</h1>", escape(&report.heading));
    to.out.push_str("<div class=\"answer\">");
    for sentence in &report.answer {
        let _ = write!(to.out, "<p>{}</p>", escape(sentence));
    }
    to.out.push_str("</div>");
    for line in &report.place {
        let _ = write!(to.out, "<p class=\"where\">{}</p>", escape(line));
    }
    for section in &report.sections {
        let _ = write!(to.out, "<section><h2>{}</h2>", escape(&section.title));
        to.section.clone_from(&section.title);
        parts(&section.parts, to);
        to.out.push_str("</section>");
    }
    if !report.terms.is_empty() {
        to.out.push_str("<section><h2>The terms</h2><dl>");
        for (name, meaning) in &report.terms {
            let _ = write!(to.out, "<dt>{}</dt><dd>{}</dd>", escape(name), escape(meaning));
        }
        to.out.push_str("</dl></section>");
        for (number, (name, meaning)) in report.terms.iter().enumerate() {
            let _ = write!(
                to.out,
                "<div popover id=\"term-{}\" class=\"meaning\"><strong>{}</strong>: {}</div>",
                index * 1000 + number,
                escape(name),
                escape(meaning)
            );
        }
    }
    to.out.push_str("</article>");
}

fn parts(all: &[Part], to: &mut Writer) {
    // Charts in a row are beside each other where there is room.
    for run in all.chunk_by(|a, b| matches!((a, b), (Part::Chart(_), Part::Chart(_)))) {
        if run.len() > 1 {
            to.out.push_str("<div class=\"plots\">");
        }
        run.iter().for_each(|one| part(one, to));
        if run.len() > 1 {
            to.out.push_str("</div>");
        }
    }
}

fn part(part: &Part, to: &mut Writer) {
    match part {
        Part::Text(text) => {
            let _ = write!(to.out, "<p class=\"where\">{}</p>", escape(text));
        }
        Part::Warning(text) => {
            let _ = write!(to.out, "<p class=\"no\">{}</p>", escape(text));
        }
        Part::Notes(notes) => {
            to.out.push_str("<ul class=\"notes\">");
            for note in notes {
                let _ = write!(to.out, "<li>{}</li>", escape(note));
            }
            to.out.push_str("</ul>");
        }
        Part::Ring(ring) => ring.write(to),
        Part::Chart(chart) => chart.write(to),
        Part::Bars(bars) => bars.write(to),
        Part::Table(table) => table.write(to),
        // As an image, so that nothing in it can act on the page.
        Part::Picture(name, svg) => {
            let _ = write!(
                to.out,
                "<div class=\"scroll picture\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><img alt=\"{0}\" \
                     src=\"data:image/svg+xml,{1}\"></div><p class=\"where\">{0}</p>",
                escape(name),
                percent_encoded(svg)
            );
        }
        Part::File(text, file) => {
            let _ = write!(
                to.out,
                "<p class=\"where\">{} <a href=\"./{}\">{}</a></p>",
                escape(text),
                percent_encoded(file),
                escape(file)
            );
        }
        Part::Fold { title, is_open, parts: inner } => {
            let open = if *is_open { " open" } else { "" };
            let _ = write!(to.out, "<details{open}><summary>{}</summary>", escape(title));
            parts(inner, to);
            to.out.push_str("</details>");
        }
    }
}

/// A text as a part of a URL in an attribute.
fn percent_encoded(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + text.len() / 16);
    for byte in text.bytes() {
        match byte {
            b' ' | b'!' | b'\''..=b';' | b'=' | b'?'..=b'Z' | b'_' | b'a'..=b'z' | b'~' => {
                out.push(char::from(byte));
            }
            other => {
                let _ = write!(out, "%{other:02X}");
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Cell, Column, Ring, Row, Section, Stage, Table, Where};

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
        assert_eq!(escape("a'\u{202e}\x1b"), "a&#39;\\u202e\\u001b");
    }

    /// A page with this text wherever text can be.
    fn everywhere(text: &str) -> Page {
        let t = || text.to_owned();
        let stage = Stage {
            name: t(),
            place: Where::Wire,
            us: 1.0,
            at: Some(t()),
            is_limit: true,
            remark: Some(t()),
        };
        let table = Table {
            caption: t(),
            columns: vec![Column::text(t())],
            rows: vec![Row { cells: vec![Cell::at(t(), t())], id: Some(t()), is_first: false }],
        };
        let ring = Ring { title: t(), middle: vec![t()], there: vec![stage.clone()], back: vec![stage] };
        let parts = vec![
            Part::Text(t()),
            Part::Warning(t()),
            Part::Notes(vec![t()]),
            Part::Ring(ring),
            Part::Table(table),
            Part::File(t(), t()),
            Part::Picture(t(), t()),
            Part::fold(t(), vec![Part::Text(t())]),
        ];
        let report = Report {
            heading: t(),
            answer: vec![t()],
            place: vec![t()],
            sections: vec![Section::new(t(), parts)],
            terms: vec![(t(), t())],
        };
        Page { title: t(), unit: Unit::default(), reports: vec![report.clone(), report] }
    }

    #[test]
    fn no_text_of_a_page_can_act() {
        let plain = everywhere("x").html();
        let hostile = everywhere("<script>alert(1)</script>\"'><img src=x onerror=alert(1)>").html();
        for mark in ["<script", "<img", "<b>", "<a "] {
            assert_eq!(plain.matches(mark).count(), hostile.matches(mark).count(), "{mark}");
        }
        assert!(!hostile.contains("\"'>"), "a quotation mark in an attribute");
    }

    #[test]
    fn a_link_leads_to_a_file_and_nowhere_else() {
        let page = everywhere("javascript:alert(1)").html();
        assert!(!page.contains("href=\"javascript:"), "a link that acts");
    }

    #[test]
    fn nothing_is_fetched() {
        let page = everywhere("x").html();
        for mark in ["src=\"http", "src=\"/", "href=\"http", "@import", "url("] {
            assert!(!page.contains(mark), "{mark}");
        }
    }
}
