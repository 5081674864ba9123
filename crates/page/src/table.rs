//! Tables.

use std::fmt::Write as _;

use crate::html::{Writer, escape};

/// Most rows that a page shows of one table.
const ROWS_MAX: usize = 2000;

/// Rows from which on a table is folded.
const ROWS_OPEN: usize = 24;

/// A table.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// What it shows; also read out.
    pub caption: String,
    /// Its columns.
    pub columns: Vec<Column>,
    /// Its rows.
    pub rows: Vec<Row>,
}

/// A column.
#[derive(Clone, Debug)]
pub struct Column {
    title: String,
    /// It has text, aligned to the left, and not numbers.
    is_text: bool,
}

impl Column {
    /// A column of numbers.
    #[must_use]
    pub fn number(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_text: false }
    }

    /// A column of text.
    #[must_use]
    pub fn text(title: impl Into<String>) -> Self {
        Self { title: title.into(), is_text: true }
    }
}

/// A row.
#[derive(Clone, Debug, Default)]
pub struct Row {
    /// Its cells, as many as there are columns.
    pub cells: Vec<Cell>,
    /// Its name within the page, to which a chart can point.
    pub id: Option<String>,
    /// It begins a group.
    pub is_first: bool,
}

impl<C: Into<Cell>> FromIterator<C> for Row {
    fn from_iter<I: IntoIterator<Item = C>>(cells: I) -> Self {
        Self { cells: cells.into_iter().map(Into::into).collect(), ..Self::default() }
    }
}

/// A cell.
#[derive(Clone, Debug, Default)]
pub struct Cell {
    text: String,
    /// Where its number is in the JSON of the result.
    at: Option<String>,
    mark: Mark,
    /// Lengths one behind the other, of a whole of one: drawn instead of the text, which is read out.
    lengths: Vec<f64>,
}

/// What stands out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mark {
    /// Nothing.
    #[default]
    None,
    /// What limits.
    Limit,
    /// What does not hold.
    Bad,
}

impl Cell {
    /// A cell with a number whose place in the JSON of the result is this JSON pointer.
    #[must_use]
    pub fn at(text: impl Into<String>, pointer: impl Into<String>) -> Self {
        Self { text: text.into(), at: Some(pointer.into()), ..Self::default() }
    }

    /// A cell with lengths one behind the other, of a whole of one; `text` says the same.
    #[must_use]
    pub fn lengths(text: impl Into<String>, lengths: Vec<f64>) -> Self {
        Self { text: text.into(), lengths, ..Self::default() }
    }

    /// The cell, marked.
    #[must_use]
    pub fn marked(mut self, mark: Mark) -> Self {
        self.mark = mark;
        self
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        text.to_owned().into()
    }
}

impl Table {
    /// The table without columns in which nothing is.
    #[must_use]
    pub fn without_empty(mut self) -> Self {
        let used: Vec<bool> = (0..self.columns.len())
            .map(|at| self.rows.iter().any(|row| row.cells.get(at).is_some_and(|cell| !cell.text.is_empty())))
            .collect();
        let mut kept = used.iter();
        self.columns.retain(|_| kept.next().copied().unwrap_or(true));
        for row in &mut self.rows {
            let mut kept = used.iter();
            row.cells.retain(|_| kept.next().copied().unwrap_or(true));
        }
        self
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        let is_long = self.rows.len() > ROWS_OPEN;
        if is_long {
            let _ = write!(
                to.out,
                "<details><summary>{}: {} rows</summary>",
                escape(&self.caption),
                self.rows.len()
            );
        }
        let _ = write!(
            to.out,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table><caption>{0}</caption><thead><tr>",
            escape(&self.caption)
        );
        for Column { title, is_text } in &self.columns {
            let class = if *is_text { " class=\"t\"" } else { "" };
            let _ = write!(to.out, "<th scope=\"col\"{class}>");
            to.term(title);
            to.out.push_str("</th>");
        }
        to.out.push_str("</tr></thead><tbody>");
        for row in self.rows.iter().take(ROWS_MAX) {
            to.out.push_str("<tr");
            if let Some(id) = &row.id {
                let _ = write!(to.out, " id=\"{}\" tabindex=\"-1\"", escape(id));
            }
            to.out.push_str(if row.is_first { " class=\"first\">" } else { ">" });
            for (cell, column) in row.cells.iter().zip(&self.columns) {
                let class = match (column.is_text, cell.mark) {
                    (true, Mark::None) => " class=\"t\"",
                    (false, Mark::None) => "",
                    (true, Mark::Limit) => " class=\"t limit\"",
                    (false, Mark::Limit) => " class=\"limit\"",
                    (true, Mark::Bad) => " class=\"t no\"",
                    (false, Mark::Bad) => " class=\"no\"",
                };
                let _ = write!(to.out, "<td{class}");
                if let Some(at) = &cell.at {
                    let _ = write!(to.out, " data-at=\"{}\"", escape(at));
                }
                if cell.lengths.is_empty() {
                    let _ = write!(to.out, ">{}</td>", escape(&cell.text));
                    continue;
                }
                let _ = write!(
                    to.out,
                    "><span class=\"ladder\" role=\"img\" aria-label=\"{}\">",
                    escape(&cell.text)
                );
                for length in &cell.lengths {
                    let _ =
                        write!(to.out, "<i style=\"width:{:.1}%\"></i>", (length * 100.0).clamp(0.0, 100.0));
                }
                to.out.push_str("</span></td>");
            }
            to.out.push_str("</tr>");
        }
        to.out.push_str("</tbody></table></div>");
        if self.rows.len() > ROWS_MAX {
            let _ = write!(
                to.out,
                "<p class=\"where\">{} more rows are in the JSON.</p>",
                self.rows.len() - ROWS_MAX
            );
        }
        if is_long {
            to.out.push_str("</details>");
        }
    }
}
