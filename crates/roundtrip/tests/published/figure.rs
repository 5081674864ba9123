//! Figures: those that a published text marks, those that an output has, and their comparison.

use serde_json::Value as Json;

use super::rows::{Bound, Row, Value};

/// A figure as it was published.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Figure {
    pub value: f64,
    /// Digits behind the point.
    pub decimals: usize,
}

impl Figure {
    /// A figure as written: `63 000`, `275.7`.
    pub fn read(text: &str) -> Result<Self, String> {
        let plain: String = text.chars().filter(|c| !matches!(c, ' ' | ',')).collect();
        let decimals = plain.split_once('.').map_or(0, |(_, behind)| behind.len());
        let value = plain.parse().map_err(|e| format!("'{text}' is no figure: {e}"))?;
        Ok(Self { value, decimals })
    }

    /// Half of the last written digit.
    pub fn half_digit(self) -> f64 {
        0.5 * 10f64.powi(-(self.decimals as i32))
    }
}

/// The figures between braces, in order.
pub fn marked(published: &str) -> Result<Vec<Figure>, String> {
    published
        .split('{')
        .skip(1)
        .map(|part| {
            let (figure, _) = part.split_once('}').ok_or(format!("'{published}': a brace is not closed"))?;
            Figure::read(figure)
        })
        .collect()
}

/// The text with a replacement for each pair of braces, whatever is between them.
pub fn filled(text: &str, figures: &[String]) -> String {
    let mut parts = text.split('{');
    let mut out = parts.next().unwrap_or_default().to_owned();
    for (part, figure) in parts.zip(figures) {
        out.push_str(figure);
        out.push_str(part.split_once('}').map_or("", |(_, rest)| rest));
    }
    out
}

/// A number with spaces between thousands, from 10 000 on.
pub fn written(value: f64, decimals: usize) -> String {
    let plain = format!("{value:.decimals$}");
    // A negative zero has no sign.
    let plain =
        if plain.trim_matches(['-', '0', '.']).is_empty() { format!("{:.decimals$}", 0.0) } else { plain };
    let (whole, rest) = plain.split_at(plain.find('.').unwrap_or(plain.len()));
    if value.abs() < 10_000.0 {
        return plain;
    }
    let digits: Vec<char> = whole.chars().collect();
    let groups: Vec<String> = digits.rchunks(3).rev().map(|group| group.iter().collect()).collect();
    groups.join(" ") + rest
}

/// An expression over an output, from left to right: `/runs/1/iops / /runs/0/iops`. A term is a number, a pointer into JSON
/// (with `?` behind it: zero if the key is absent), or `"text {} text"`, whose braces stand for a number of the output's text.
pub fn evaluate(expression: &str, output: &str) -> Result<f64, String> {
    if let Some(pattern) = expression.strip_prefix('"') {
        return in_text(pattern.trim_end_matches('"'), output);
    }
    let mut json = None;
    let mut term = |text: &str| -> Result<f64, String> {
        let Some(pointer) = text.strip_prefix('/') else {
            return text.parse().map_err(|e| format!("'{text}' in '{expression}': {e}"));
        };
        if json.is_none() {
            let read: Json =
                serde_json::from_str(output).map_err(|e| format!("the output is no JSON: {e}"))?;
            json = Some(read);
        }
        let found =
            json.as_ref().and_then(|json| json.pointer(&format!("/{}", pointer.trim_end_matches('?'))));
        match found {
            Some(Json::Array(all)) => Ok(all.len() as f64),
            Some(found) => found.as_f64().ok_or(format!("/{pointer} is no number: {found}")),
            None if pointer.ends_with('?') => Ok(0.0),
            None => Err(format!("the output has no /{pointer}")),
        }
    };
    let mut words = expression.split_whitespace();
    let mut value = term(words.next().ok_or("an empty expression")?)?;
    while let Some(operator) = words.next() {
        let right = term(words.next().ok_or(format!("'{expression}' ends with an operator"))?)?;
        value = match operator {
            "+" => value + right,
            "-" => value - right,
            "*" => value * right,
            "/" => value / right,
            other => return Err(format!("'{other}' in '{expression}' is no operator")),
        };
    }
    if value.is_finite() { Ok(value) } else { Err(format!("'{expression}' is {value}")) }
}

/// The number that braces stand for in a line of text.
fn in_text(pattern: &str, output: &str) -> Result<f64, String> {
    let (before, behind) = pattern.split_once("{}").ok_or(format!("'{pattern}' has no braces"))?;
    let is_of_number = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-');
    let numbers = output.match_indices(before).filter_map(|(at, _)| {
        let rest = output[at + before.len()..].trim_start();
        // A group of three digits belongs to the number before it.
        let mut end = rest.find(|c| !is_of_number(c)).unwrap_or(rest.len());
        while rest[end..].strip_prefix(' ').is_some_and(|next| {
            next.len() >= 3
                && next.bytes().take(3).all(|b| b.is_ascii_digit())
                && !next[3..].starts_with(is_of_number)
        }) {
            end += 4;
        }
        rest[end..].starts_with(behind).then(|| rest[..end].replace(' ', ""))
    });
    let mut numbers: Vec<String> = numbers.collect();
    numbers.dedup();
    match &numbers[..] {
        [one] => one.parse().map_err(|e| format!("'{one}': {e}")),
        [] => Err(format!("the output has no '{pattern}'")),
        several => Err(format!("the output has '{pattern}' several times: {several:?}")),
    }
}

/// Our values of a row, written, and what is wrong with them.
#[derive(Debug, Default)]
pub struct Comparison {
    pub written: Vec<String>,
    /// Values without a published figure.
    pub others: Vec<String>,
    pub faults: Vec<String>,
    /// Some figure is a limit.
    pub is_bound: bool,
    /// Some figure is rounded in the source beyond its last digit.
    pub is_rounded: bool,
}

impl Value {
    /// The expression.
    pub fn expression(&self) -> &str {
        match self {
            Value::Exact(of) | Value::Compared { of, .. } => of,
        }
    }
}

/// Values that have no published figure, written.
fn others(row: &Row, output: &str) -> Result<Vec<String>, String> {
    let write = |value: &Value| {
        let decimals = match value {
            Value::Exact(_) => 1,
            Value::Compared { decimals, .. } => decimals.unwrap_or(1),
        };
        Ok(written(evaluate(value.expression(), output)?, decimals))
    };
    row.values.iter().map(write).collect()
}

/// Compares the values of a row with its marked figures.
pub fn compare(row: &Row, output: &str) -> Comparison {
    let mut result = Comparison::default();
    let figures = match marked(&row.published) {
        Ok(figures) => figures,
        Err(fault) => return Comparison { faults: vec![fault], ..result },
    };
    if figures.len() != row.ours.len() {
        let fault = format!("{} figures are published, {} are ours", figures.len(), row.ours.len());
        return Comparison { faults: vec![fault], ..result };
    }
    match others(row, output) {
        Ok(others) => result.others = others,
        Err(fault) => result.faults.push(fault),
    }
    let mut differences = 0;
    for (figure, value) in figures.into_iter().zip(&row.ours) {
        let (of, within, bound, decimals) = match value {
            Value::Exact(of) => (of, None, None, None),
            Value::Compared { of, within, bound, decimals } => (of, *within, *bound, *decimals),
        };
        let ours = match evaluate(of, output) {
            Ok(ours) => ours,
            Err(fault) => {
                result.faults.push(fault);
                continue;
            }
        };
        let decimals = decimals.unwrap_or(figure.decimals);
        result.written.push(written(ours, decimals));
        result.is_bound |= bound.is_some();
        result.is_rounded |= within.is_some();
        let tolerance = within.unwrap_or(if bound.is_some() { 0.0 } else { figure.half_digit() }) + 1e-9;
        let agrees = match bound {
            None => (ours - figure.value).abs() <= tolerance,
            Some(Bound::AtLeast) => ours >= figure.value - tolerance,
            Some(Bound::AtMost) => ours <= figure.value + tolerance,
        };
        if agrees {
            continue;
        }
        differences += 1;
        let by = (ours - figure.value).abs();
        match &row.differs {
            None => result.faults.push(format!("{of} is {ours}, published {}", figure.value)),
            Some(known) if by > known.by => {
                result
                    .faults
                    .push(format!("{of} is {ours}, {by} from {}: more than {}", figure.value, known.by));
            }
            Some(_) => {}
        }
    }
    if row.differs.is_some() && differences == 0 && result.faults.is_empty() {
        result.faults.push("the figures agree: remove `differs`".to_owned());
    }
    result
}
