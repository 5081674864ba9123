//! Charts: lines, bands, points and heat maps, drawn by the page's script.

use std::fmt::Write as _;

use serde::{Serialize, Serializer};

use crate::html::{Writer, escape};

/// A chart that answers one question.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Chart {
    /// The question or what is shown.
    pub title: String,
    /// The axis to the right.
    pub x: Axis,
    /// The axis upwards.
    pub y: Axis,
    /// What is drawn.
    pub lines: Vec<Line>,
    /// A heat map below the lines.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub heat: Option<Heat>,
}

/// An axis.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: String,
    /// It is logarithmic at first. All values must be above zero.
    pub is_logarithmic: bool,
}

/// What is drawn as one, under one name.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Line {
    /// The name; lines of one name are shown and hidden together.
    pub name: String,
    /// How it is drawn.
    pub look: Look,
    /// Where in its direction to the right, ascending.
    #[serde(serialize_with = "rounded")]
    pub x: Vec<f64>,
    /// The number of its colour, where it shares one with others; by default its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub colour: Option<usize>,
    /// How high; of a band its lower end.
    #[serde(serialize_with = "rounded_known")]
    pub y: Vec<Option<f64>>,
    /// The upper end of a band.
    #[serde(skip_serializing_if = "Vec::is_empty", serialize_with = "rounded_known")]
    pub upper: Vec<Option<f64>>,
    /// Rows of tables to which the points lead.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub links: Vec<String>,
}

/// How a line is drawn.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Look {
    /// A line with its points.
    #[default]
    Line,
    /// Points alone.
    Points,
    /// Hollow points.
    Hollow,
    /// An area between two values.
    Band,
}

/// Counts in cells.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Heat {
    /// The ends of the columns, one more than there are.
    #[serde(serialize_with = "rounded")]
    pub x: Vec<f64>,
    /// The ends of the rows, one more than there are.
    #[serde(serialize_with = "rounded")]
    pub y: Vec<f64>,
    /// The cells with something in them.
    pub cells: Vec<Cell>,
    /// What is counted.
    pub of: String,
}

/// The number of the column, of the row, and the count.
#[derive(Clone, Copy, Debug, Default, Serialize)]
pub struct Cell(pub usize, pub usize, pub u64);

/// To nine digits: more cannot be seen.
fn round(value: f64) -> f64 {
    format!("{value:.8e}").parse().unwrap_or(value)
}

fn rounded<S: Serializer>(values: &[f64], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(|value| round(*value)))
}

fn rounded_known<S: Serializer>(values: &[Option<f64>], to: S) -> Result<S::Ok, S::Error> {
    to.collect_seq(values.iter().map(|value| value.map(round)))
}

/// Most points of a chart whose numbers are in a table beside it.
const TABLE_POINTS_MAX: usize = 400;

impl Line {
    /// A line through these points.
    #[must_use]
    pub fn new(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        let (x, y) = points.into_iter().map(|(x, y)| (x, Some(y))).unzip();
        Self { name: name.into(), x, y, ..Self::default() }
    }

    /// Points alone.
    #[must_use]
    pub fn points(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64)>) -> Self {
        Self { look: Look::Points, ..Self::new(name, points) }
    }

    /// An area between two values.
    #[must_use]
    pub fn band(name: impl Into<String>, points: impl IntoIterator<Item = (f64, f64, f64)>) -> Self {
        let mut band = Self { name: name.into(), look: Look::Band, ..Self::default() };
        for (x, low, high) in points {
            band.x.push(x);
            band.y.push(Some(low));
            band.upper.push(Some(high));
        }
        band
    }
}

impl Line {
    /// The line in a colour that it shares with others.
    #[must_use]
    pub fn coloured(mut self, colour: usize) -> Self {
        self.colour = Some(colour);
        self
    }

    /// The line, drawn otherwise.
    #[must_use]
    pub fn looking(mut self, look: Look) -> Self {
        self.look = look;
        self
    }
}

impl Chart {
    /// Whether there is something to draw.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.lines.iter().all(|line| line.x.is_empty())
            && self.heat.as_ref().is_none_or(|heat| heat.cells.is_empty())
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        if self.is_empty() {
            return;
        }
        let text = serde_json::to_string(self).unwrap_or_default();
        let _ = write!(
            to.out,
            "<figure class=\"chart\"><figcaption{}>{}</figcaption><div class=\"tools\"></div><div class=\"plot\" tabindex=\"0\" \
             role=\"application\" aria-roledescription=\"chart\" aria-label=\"{1}; arrow keys move, plus and minus zoom, 0 shows all\"></div>\
             <output class=\"reading\"></output><script type=\"application/json\">{}</script>",
            // What the section is called need not be told again.
            if self.title == to.section { " class=\"same\"" } else { "" },
            escape(&self.title),
            // Nothing of a text can end the element.
            text.replace('<', "\\u003c")
        );
        self.numbers(to);
        to.out.push_str("</figure>");
    }

    /// The numbers as a table, for those who cannot see the chart or want to copy them.
    fn numbers(&self, to: &mut Writer) {
        let points: usize = self.lines.iter().map(|line| line.x.len()).sum();
        if points == 0 || points > TABLE_POINTS_MAX {
            return;
        }
        let _ = write!(
            to.out,
            "<details class=\"numbers\"><summary>The numbers</summary><div class=\"scroll\" tabindex=\"0\" role=\"region\" \
             aria-label=\"Numbers: {0}\"><table><caption>{0}</caption><thead><tr><th scope=\"col\" class=\"t\">what</th>\
             <th scope=\"col\">{1}</th><th scope=\"col\">{2}</th></tr></thead><tbody>",
            escape(&self.title),
            escape(&self.x.label),
            escape(&self.y.label)
        );
        for line in &self.lines {
            for (index, (x, y)) in line.x.iter().zip(&line.y).enumerate() {
                let Some(y) = y else { continue };
                let upper = line.upper.get(index).copied().flatten();
                let upper = upper.map_or_else(String::new, |upper| format!(" to {}", number(upper)));
                let _ = write!(
                    to.out,
                    "<tr><td class=\"t\">{}</td><td>{}</td><td>{}{upper}</td></tr>",
                    escape(&line.name),
                    number(*x),
                    number(*y)
                );
            }
        }
        to.out.push_str("</tbody></table></div></details>");
    }
}

/// A number with at most four digits behind the point, and at least six in all where it has them.
fn number(value: f64) -> String {
    if !value.is_finite() {
        return "-".to_owned();
    }
    if value != 0.0 && value.abs() < 0.001 {
        return format!("{value:.3e}");
    }
    let text = format!("{value:.4}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Unit;

    #[test]
    fn no_text_can_end_the_data() {
        let mut to = Writer::new(Unit::default(), &[]);
        let chart = Chart { lines: vec![Line::new("</script><b>", [(1.0, 2.0)])], ..Chart::default() };
        chart.write(&mut to);
        assert_eq!(to.out.matches("</script>").count(), 1, "{}", to.out);
        assert!(!to.out.contains("<b>"), "{}", to.out);
    }

    #[test]
    fn numbers_that_are_none_are_left_out_of_the_data() {
        let mut to = Writer::new(Unit::default(), &[]);
        let chart = Chart { lines: vec![Line::new("a", [(1.0, f64::NAN), (2.0, 3.0)])], ..Chart::default() };
        chart.write(&mut to);
        assert!(to.out.contains("\"y\":[null,3.0]"), "{}", to.out);
        let mut to = Writer::new(Unit::default(), &[]);
        Chart::default().write(&mut to);
        assert_eq!(to.out, "");
    }

    #[test]
    fn numbers_are_told_to_what_matters() {
        for (value, text) in
            [(15_744.0, "15744"), (0.25, "0.25"), (1.0 / 3.0, "0.3333"), (1e-5, "1.000e-5"), (0.0, "0")]
        {
            assert_eq!(number(value), text);
        }
    }
}
