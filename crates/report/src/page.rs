//! The common parts of HTML pages: style, tables, machines.

use std::fmt::{Display, Write as _};

use study::machine::Machine;

const STYLE: &str = "
:root{color-scheme:light}
body{font:15px/1.45 system-ui,sans-serif;max-width:1340px;margin:2rem auto;padding:0 1rem;color:#1c2430}
h1{font-size:1.6rem;margin-bottom:.2rem} h2{font-size:1.15rem;margin-top:2.2rem}
table{border-collapse:collapse;font-variant-numeric:tabular-nums;font-size:.86rem;width:100%}
th,td{padding:.28rem .5rem;text-align:right;border-bottom:1px solid #e3e7ed;white-space:nowrap}
th{background:#f3f5f8;position:sticky;top:0;font-weight:600} td.t,th.t{text-align:left}
tr.first td{border-top:2px solid #9aa5b5} td.bottleneck{background:#ffe9c7;font-weight:600}
td small{color:#68758a} .no{color:#b00020;font-weight:600} .key i{display:inline-block;width:.7em;height:.7em;border-radius:50%;margin:0 .3em 0 1em}
ul.notes li{margin:.35rem 0} .scroll{overflow-x:auto} p.where{color:#4a5566;margin:.15rem 0}
.bar{display:flex;height:1.5rem;border-radius:3px;overflow:hidden;font-size:.7rem;color:#fff;margin:.15rem 0 .6rem}
.bar span{overflow:hidden;text-align:center;line-height:1.5rem;white-space:nowrap}
.barname{font-size:.85rem;color:#4a5566} dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem .9rem;font-size:.88rem} dt{font-weight:600}dd{margin:0}
.figures{display:grid;grid-template-columns:max-content 1fr;gap:.3rem .9rem;align-items:center;font-size:.86rem}
.figures .name{text-align:right;color:#4a5566}
.track{position:relative;height:1.25rem;margin-right:5rem;background:#f3f5f8;border-radius:3px}
.track i{position:absolute;inset:0 auto 0 0;background:#0e7490;border-radius:3px}
.track u{position:absolute;top:.55rem;height:.15rem;background:#f0a868;text-decoration:none}
.track b{position:absolute;padding-left:.45rem;line-height:1.25rem;font-weight:600}
.pair{display:grid;grid-template-columns:repeat(auto-fit,minmax(560px,1fr));gap:.6rem}
img.figure{width:100%;min-width:900px} figure{margin:0} figcaption{font-size:.86rem;color:#4a5566;padding-left:3.6rem}
details{margin:.35rem 0} summary{cursor:pointer;font-weight:600} details table{width:auto} details.rows table{width:100%} tr.said td{white-space:normal;vertical-align:top} tr.waited td{background:#ffe9c7}
";

/// Text made safe for HTML, between tags and in quoted attributes.
pub(crate) fn escape(text: impl Display) -> String {
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

/// The beginning of a page.
pub(crate) fn begin(title: &str, heading: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{}</title><style>{STYLE}</style></head><body><h1>{}</h1>",
        escape(title),
        escape(heading)
    )
}

/// The end of a page.
pub(crate) fn end(mut page: String) -> String {
    page.push_str("</body></html>\n");
    page
}

/// The title of a table's column.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Title<'a> {
    text: &'a str,
    /// The column has text, aligned to the left, and not numbers.
    is_text: bool,
}

impl<'a> Title<'a> {
    pub(crate) fn number(text: &'a str) -> Self {
        Self { text, is_text: false }
    }

    pub(crate) fn text(text: &'a str) -> Self {
        Self { text, is_text: true }
    }
}

/// The beginning of a table.
pub(crate) fn table_head(titles: &[Title<'_>], page: &mut String) {
    page.push_str("<div class=\"scroll\"><table><thead><tr>");
    for Title { text, is_text } in titles {
        let _ = write!(page, "<th{}>{}</th>", if *is_text { " class=\"t\"" } else { "" }, escape(text));
    }
    page.push_str("</tr></thead><tbody>");
}

/// Most rows of a table that is not folded.
const ROWS_OPEN: usize = 24;

/// A titled table, folded if it has many rows.
pub(crate) fn folded(title: &str, rows: usize, page: &mut String, table: impl FnOnce(&mut String)) {
    let _ = write!(page, "<h2>{}</h2>", escape(title));
    if rows <= ROWS_OPEN {
        table(page);
        return;
    }
    let _ = write!(page, "<details class=\"rows\"><summary>{rows} rows</summary>");
    table(page);
    page.push_str("</details>");
}

/// The list of warnings.
pub(crate) fn notes(warnings: &[String], page: &mut String) {
    if warnings.is_empty() {
        return;
    }
    page.push_str("<h2>What to know about these figures</h2><ul class=\"notes\">");
    for warning in warnings {
        let _ = write!(page, "<li>{}</li>", escape(warning));
    }
    page.push_str("</ul>");
}

/// The machines, with the settings that matter.
pub(crate) fn machines(server: &Machine, client: Option<&Machine>, page: &mut String) {
    page.push_str("<h2>Machines</h2>");
    let name = if client.is_some() { "server" } else { "client and server" };
    for (name, m) in [(name, Some(server)), ("client", client)] {
        let Some(m) = m else { continue };
        let _ = write!(
            page,
            "<h3>{name}</h3><dl><dt>CPU</dt><dd>{}, {} of them</dd><dt>kernel</dt><dd>{}</dd><dt>memory</dt><dd>{} GiB</dd>\
             <dt>clock source</dt><dd>{}</dd><dt>congestion control</dt><dd>{} by default</dd><dt>roundtrip</dt><dd>{}</dd>",
            escape(&m.cpu),
            m.cpus,
            escape(&m.kernel),
            m.memory_bytes >> 30,
            escape(&m.clock_source),
            escape(&m.default_congestion),
            escape(&m.version),
        );
        for (key, value) in &m.settings {
            let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", escape(key), escape(value));
        }
        page.push_str("</dl>");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_cannot_become_markup() {
        assert_eq!(escape("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
        assert_eq!(escape("a'\u{202e}\x1b"), "a&#39;\\u202e\\u001b");
    }
}
