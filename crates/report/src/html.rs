//! A study as one self-contained HTML file.

use std::fmt::Write as _;

use analysis::{ClosureOutcome, Stanza, TermSource};
use record::Term;
use study::StudyResult;

use crate::chart::{Lines, NamedLine, lines};
use crate::closure_text::{self, Rows, closure};
use crate::page::{Title, begin, end, escape, folded, machines, notes, table_head};
use crate::study_text::{COLUMNS, PUBLISHED_COLUMNS, column, heading, published_rows, spread};
use crate::terminal::{thousands, us};

/// The whole page, with these pictures.
#[must_use]
pub fn study(result: &StudyResult, pictures: &[Figure]) -> String {
    let mut page = begin("Roundtrip study", "Where the round trip goes");
    for line in heading(result) {
        let _ = write!(page, "<p class=\"where\">{}</p>", escape(line));
    }
    let fails = result.with(ClosureOutcome::Fails).next().is_some();
    for line in closure(result).lines() {
        let class = if fails { "where no" } else { "where" };
        let _ = write!(page, "<p class=\"{class}\">{}</p>", escape(line));
    }
    curves(result, &mut page);
    folded("Throughput and limits", result.stanzas.len(), &mut page, |page| summary(result, page));
    published(result, &mut page);
    bars(result, &mut page);
    breakdown(result, &mut page);
    let title = "Throughput as the model predicts it from the queue depth 1 run and the CPU-bound run alone";
    folded(title, result.stanzas.len(), &mut page, |page| predictions(result, page));
    let _ = write!(page, "<p>{}</p>", escape(crate::study_text::prediction_errors(&result.stanzas)));
    let title = "Evidence from the kernel's own events, and predictions from other points";
    rows(title, &closure_text::evidence(result), &mut page);
    rows("Stages by the kernel's events, microseconds", &closure_text::stages(result), &mut page);
    let title = "Busy cycles of the server thread that ended having served n requests";
    folded(title, result.stanzas.len(), &mut page, |page| busy_counts(result, page));
    figures(pictures, &mut page);
    notes(&result.warnings, &mut page);
    machines(&result.machine, result.client_machine.as_ref(), &mut page);
    terms(&mut page);
    end(page)
}

fn summary(result: &StudyResult, page: &mut String) {
    table_head(
        &[
            Title::number("block"),
            Title::text("send"),
            Title::number("QD"),
            Title::number("IOPS"),
            Title::number("with capture"),
            Title::number("TPT µs"),
            Title::number("RTT µs"),
            Title::number("CPU client"),
            Title::number("CPU server"),
            Title::text("at depth"),
            Title::text("bottleneck"),
            Title::number("TPTmin µs"),
            Title::number("QD needed"),
            Title::text("closure"),
        ],
        page,
    );
    for s in &result.stanzas {
        let l = &s.breakdown.limit;
        let first = if s.queue_depth == 1 { " class=\"first\"" } else { "" };
        let class = if s.closure.outcome == ClosureOutcome::Fails { " no" } else { "" };
        let closure = format!("<td class=\"t{class}\">{}</td>", s.closure.outcome.text());
        let _ = write!(
            page,
            "<tr{first}><td>{}</td><td class=\"t\">{}</td><td>{}</td><td>{}</td><td>{:+.1} %</td><td>{}</td><td>{}</td>\
             <td>{:.0} %</td><td>{:.0} %</td><td class=\"t\">{}</td><td class=\"t\">{}</td><td>{}</td><td>{:.1}</td>{closure}</tr>",
            record::units::format_size(s.block_size_bytes),
            escape(&s.policy),
            s.queue_depth,
            escape(spread(s)),
            -s.observer_cost() * 100.0,
            us(s.tpt_us),
            us(s.rtt_us),
            s.cpu_busy.0 * 100.0,
            s.cpu_busy.1 * 100.0,
            l.bound.text(),
            escape(&l.bottleneck),
            us(l.tpt_min_us),
            l.queue_depth_needed,
        );
    }
    page.push_str("</tbody></table></div>");
}

/// Published figures beside the measured ones.
fn published(result: &StudyResult, page: &mut String) {
    if result.plan.published.is_empty() {
        return;
    }
    page.push_str("<h2>What was published, and what came out here</h2>");
    let mut titles = vec![Title::number("block"), Title::text("send"), Title::number("QD")];
    titles.extend(PUBLISHED_COLUMNS.map(Title::number));
    table_head(&titles, page);
    for (stanza, cells) in published_rows(result) {
        row_start(stanza, page);
        for cell in cells {
            let _ = write!(page, "<td>{}</td>", escape(cell));
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div><p class=\"where\">Each cell: published, then measured.</p>");
}

/// Colours of the columns: client warm, wire grey, server cool.
const COLOURS: [&str; 14] = [
    "#c2410c", "#f6c89a", "#6b7280", "#a3abb8", "#c9ced6", "#0e7490", "#7cc7d9", "#155e75", "#b3e0ea",
    "#6b7280", "#a3abb8", "#c9ced6", "#e07b39", "#f0a868",
];

/// Each round trip as a bar.
fn bars(result: &StudyResult, page: &mut String) {
    page.push_str("<h2>The round trip, to scale</h2>");
    for s in result.stanzas.iter().filter(|s| result.is_end(s.queue_depth)) {
        let _ = write!(
            page,
            "<div class=\"barname\">{} B, {}, QD {}: {} µs</div><div class=\"bar\">",
            s.block_size_bytes,
            escape(&s.policy),
            s.queue_depth,
            us(s.rtt_us)
        );
        for ((_, names), colour) in COLUMNS.into_iter().zip(COLOURS) {
            let Some(value) = column(s, names) else { continue };
            let share = (value.mean_us / s.rtt_us * 100.0).clamp(0.0, 100.0);
            if share >= 0.3 {
                let label = if share > 4.0 { escape(&value.terms) } else { String::new() };
                let _ = write!(
                    page,
                    "<span style=\"width:{share:.2}%;background:{colour}\" title=\"{} {} µs\">{label}</span>",
                    escape(&value.terms),
                    us(value.mean_us)
                );
            }
        }
        page.push_str("</div>");
        for (text, is_contradiction) in closure_text::not_drawn(s) {
            let class = if is_contradiction { "where no" } else { "where" };
            let _ = write!(page, "<p class=\"{class}\">{}</p>", escape(text));
        }
    }
}

fn breakdown(result: &StudyResult, page: &mut String) {
    page.push_str("<h2>Breakdown, microseconds (means)</h2>");
    let mut titles = vec![Title::number("block"), Title::text("send"), Title::number("QD")];
    titles.extend(COLUMNS.iter().map(|(name, _)| Title::number(name)));
    titles.extend([Title::number("sum"), Title::number("RTT")]);
    table_head(&titles, page);
    for s in result.stanzas.iter().filter(|s| result.is_end(s.queue_depth)) {
        row_start(s, page);
        for (title, names) in COLUMNS {
            let Some(value) = column(s, names) else {
                page.push_str("<td></td>");
                continue;
            };
            // The stages that limit the ring at depth.
            let limits =
                value.terms.split('+').any(|term| s.breakdown.limit.bottleneck.split('+').any(|b| b == term))
                    && value.source != TermSource::Remainder;
            let is_negative = closure_text::is_contradiction(s, value);
            let class = match (is_negative, limits) {
                (true, _) => " class=\"no\"",
                (false, true) => " class=\"bottleneck\"",
                (false, false) => "",
            };
            // A token bucket takes no time of an operation: it keeps frames apart.
            let apart = s.path.filter(|p| p.token_bucket).and_then(|p| match title {
                "W1" => Some(p.w1_us),
                "W2" => Some(p.w2_us),
                _ => None,
            });
            if let Some(apart) = apart {
                let _ = write!(
                    page,
                    "<td{class}>{}<br><small>{} apart</small></td>",
                    us(value.mean_us),
                    us(apart)
                );
                continue;
            }
            let name = if value.terms == title {
                String::new()
            } else {
                format!("<small>{}</small> ", escape(&value.terms))
            };
            let _ = write!(page, "<td{class}>{name}{}</td>", us(value.mean_us));
        }
        let _ = write!(page, "<td>{}</td><td>{}</td></tr>", us(s.breakdown.joined.rtt_us), us(s.rtt_us));
    }
    page.push_str(
        "</tbody></table></div><p class=\"where\">Marked: the stages that limit the ring at depth.</p>",
    );
}

/// A table of stanzas.
fn rows(title: &str, rows: &Rows<'_>, page: &mut String) {
    if rows.rows.is_empty() {
        return;
    }
    folded(title, rows.rows.len(), page, |page| {
        let mut titles = vec![Title::number("block"), Title::text("send"), Title::number("QD")];
        titles.extend(rows.headings.iter().map(|name| Title::number(name)));
        table_head(&titles, page);
        for (stanza, cells) in &rows.rows {
            row_start(stanza, page);
            for cell in cells {
                let _ = write!(page, "<td>{}</td>", escape(cell));
            }
            page.push_str("</tr>");
        }
        page.push_str("</tbody></table></div>");
    });
}

/// The cells that name a stanza, with the opening of its row.
fn row_start(s: &Stanza, page: &mut String) {
    let first = if s.queue_depth == 1 { " class=\"first\"" } else { "" };
    let size = record::units::format_size(s.block_size_bytes);
    let _ = write!(
        page,
        "<tr{first}><td>{size}</td><td class=\"t\">{}</td><td>{}</td>",
        escape(&s.policy),
        s.queue_depth
    );
}

fn predictions(result: &StudyResult, page: &mut String) {
    let names = ["QD", "measured", "predicted", "least phase", "greatest phase", "band from", "to", "error"];
    let mut titles = vec![Title::number("block"), Title::text("send")];
    titles.extend(names.map(Title::number));
    table_head(&titles, page);
    for s in &result.stanzas {
        let Some(p) = s.predicted else { continue };
        row_start(s, page);
        let [measured, predicted, low, high, from, to] =
            [s.iops, p.iops, p.iops_low, p.iops_high, p.band_low, p.band_high].map(thousands);
        let _ = write!(
            page,
            "<td>{measured}</td><td>{predicted}</td><td>{low}</td><td>{high}</td><td>{from}</td><td>{to}</td><td>{:+.1} %</td></tr>",
            p.error * 100.0
        );
    }
    page.push_str("</tbody></table></div>");
}

fn busy_counts(result: &StudyResult, page: &mut String) {
    let mut titles = vec![Title::number("block"), Title::text("send")];
    titles.extend(["QD", "mean", "n = 1", "2", "3", "4", "5", "6", "7", "8", "more"].map(Title::number));
    table_head(&titles, page);
    for s in &result.stanzas {
        row_start(s, page);
        let _ = write!(page, "<td>{:.1}</td>", s.avg_busy);
        let rest = (1.0 - s.busy_count_share.iter().sum::<f64>()).max(0.0);
        for share in s.busy_count_share.iter().chain([&rest]) {
            let _ = write!(page, "<td>{:.0} %</td>", share * 100.0);
        }
        page.push_str("</tr>");
    }
    page.push_str("</tbody></table></div>");
}

/// Throughput over queue depth, a chart for each block size, where there is something to draw.
fn curves(result: &StudyResult, page: &mut String) {
    if result.plan.queue_depths.len() < 3 {
        return;
    }
    page.push_str("<h2>Throughput over queue depth</h2>");
    for &bytes in &result.plan.block_bytes {
        let series = result
            .plan
            .policies
            .iter()
            .map(|policy| {
                let name = policy.to_string();
                let own = result.stanzas.iter().filter(|s| s.block_size_bytes == bytes && s.policy == name);
                let points = own.map(|s| (f64::from(s.queue_depth), s.iops)).collect();
                NamedLine { name, points }
            })
            .collect();
        let chart = Lines {
            title: format!("{bytes} B"),
            x_label: "queue depth".into(),
            y_label: "operations a second".into(),
            series,
        };
        page.push_str(&lines(&chart).unwrap_or_default());
    }
}

/// A picture of a point's operations over time.
#[derive(Clone, Debug)]
pub struct Figure {
    /// Its file, as it is named in the page.
    pub file: String,
    /// The picture.
    pub svg: String,
}

/// The six quantities of single operations over time.
pub(crate) fn figures(figures: &[Figure], page: &mut String) {
    if figures.is_empty() {
        return;
    }
    page.push_str("<h2>Intervals of single operations over time</h2>");
    for Figure { file, svg } in figures {
        // As an image, so that nothing in it can act on the page.
        let _ = write!(
            page,
            "<div class=\"scroll\"><img class=\"figure\" alt=\"{0}\" src=\"data:image/svg+xml,{1}\"></div><p class=\"where\">{0}</p>",
            escape(file),
            percent_encoded(svg)
        );
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

/// The meaning of the terms.
fn terms(page: &mut String) {
    page.push_str("<h2>The terms</h2><dl>");
    for term in Term::ALL {
        let _ = write!(page, "<dt>{}</dt><dd>{}</dd>", term.name(), term.meaning());
    }
    page.push_str(
        "<dt>SX, CX</dt><dd>the interrupt that wakes the server's or the client's CPU, a part of SR and CR</dd>\
         <dt>TPT</dt><dd>mean time between completions: 1 / IOPS = RTT / QD</dd>\
         <dt>QD needed</dt><dd>queue depth from which the ring stays at its limit: (sum of the service times + the other stages' start \
         latencies) / TPTmin</dd></dl>",
    );
}
