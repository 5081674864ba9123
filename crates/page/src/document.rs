//! What a page consists of.

use crate::{Bars, Chart, Ring, Table, Unit};

/// A page.
#[derive(Clone, Debug, Default)]
pub struct Page {
    /// Its title.
    pub title: String,
    /// The unit of its times.
    pub unit: Unit,
    /// One for each result.
    pub reports: Vec<Report>,
}

/// The report of a result.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// What it is about.
    pub heading: String,
    /// Sentences: the answer first.
    pub answer: Vec<String>,
    /// Where and how it was measured, one line each.
    pub place: Vec<String>,
    /// What follows.
    pub sections: Vec<Section>,
    /// Names that occur, and what they mean.
    pub terms: Vec<(String, String)>,
}

/// What answers a question.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The question, or what is shown.
    pub title: String,
    /// What is shown.
    pub parts: Vec<Part>,
}

/// A part of a section.
#[derive(Clone, Debug)]
pub enum Part {
    /// A paragraph.
    Text(String),
    /// A paragraph that says that something does not hold.
    Warning(String),
    /// Points, one line each.
    Notes(Vec<String>),
    /// The stages of a round trip.
    Ring(Ring),
    /// A chart.
    Chart(Chart),
    /// Figures as bars.
    Bars(Bars),
    /// A table.
    Table(Table),
    /// A drawing: its name and its SVG.
    Picture(String, String),
    /// A link to a file beside the page: the text before it, and the file.
    File(String, String),
    /// What is folded away at first, unless it is open, under a title.
    Fold {
        /// The title.
        title: String,
        /// Shown at first.
        is_open: bool,
        /// What is in it.
        parts: Vec<Part>,
    },
}

impl Section {
    /// A section.
    #[must_use]
    pub fn new(title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self { title: title.into(), parts }
    }
}

impl Report {
    /// Adds a section, if there is anything in it.
    pub fn add(&mut self, title: impl Into<String>, parts: Vec<Part>) {
        if !parts.is_empty() {
            self.sections.push(Section::new(title, parts));
        }
    }
}

impl Part {
    /// What is folded away at first.
    #[must_use]
    pub fn fold(title: impl Into<String>, parts: Vec<Part>) -> Self {
        Self::Fold { title: title.into(), is_open: false, parts }
    }
}
