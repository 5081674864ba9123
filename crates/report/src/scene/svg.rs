//! A drawing as SVG.

use std::fmt::Write as _;

use super::{Anchor, CellRun, Colour, Place, Scene, Shape, Size, TIP};
use page::escape;

/// Writes a drawing as SVG, which scales with its place.
#[must_use]
pub fn svg(scene: &Scene) -> String {
    let Scene { width, height, title, groups } = scene;
    let mut out = String::new();
    let _ = write!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"100%\" role=\"img\" \
         font-family=\"sans-serif\"><title>{}</title><rect width=\"{width}\" height=\"{height}\" fill=\"#fff\"/>",
        escape(title)
    );
    out.push('\n');
    for group in groups {
        out.push_str("<g");
        for (name, value) in &group.data {
            let _ = write!(out, " data-{name}=\"{}\"", escape(value));
        }
        out.push_str(">\n");
        group.shapes.iter().for_each(|shape| write_shape(shape, &mut out));
        out.push_str("</g>\n");
    }
    out.push_str("</svg>\n");
    out
}

/// A number with one decimal at most.
fn short(value: f64) -> String {
    let tenths = (value * 10.0).round() as i64;
    let sign = if tenths < 0 { "-" } else { "" };
    match (tenths.abs() / 10, tenths.abs() % 10) {
        (whole, 0) => format!("{sign}{whole}"),
        (whole, part) => format!("{sign}{whole}.{part}"),
    }
}

fn hex(Colour(red, green, blue): Colour) -> String {
    format!("#{red:02x}{green:02x}{blue:02x}")
}

fn write_shape(shape: &Shape, out: &mut String) {
    match shape {
        Shape::Fill { area, colour } => {
            let _ = writeln!(
                out,
                "<rect x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" fill=\"{}\"/>",
                short(area.x),
                short(area.y),
                short(area.width),
                short(area.height),
                hex(*colour)
            );
        }
        Shape::Text { at, words, size, anchor, colour } => {
            let anchor = match anchor {
                Anchor::Start => "",
                Anchor::Middle => " text-anchor=\"middle\"",
                Anchor::End => " text-anchor=\"end\"",
            };
            let weight = if matches!(size, Size::Bold | Size::Title) { " font-weight=\"bold\"" } else { "" };
            let _ = writeln!(
                out,
                "<text x=\"{}\" y=\"{}\" font-size=\"{}\"{anchor}{weight} fill=\"{}\">{}</text>",
                short(at.x),
                short(at.y),
                size.pixels(),
                hex(*colour),
                escape(words)
            );
        }
        Shape::Cells { at, cell, runs, colour, opacity } => {
            let _ = writeln!(
                out,
                "<path d=\"{}\" stroke=\"{}\" stroke-width=\"{cell}\" opacity=\"{opacity}\" fill=\"none\"/>",
                cells(*at, *cell, runs),
                hex(*colour)
            );
        }
        Shape::Dots { places, width, colour } => {
            let mut path = String::new();
            for Place { x, y } in places {
                let _ = write!(path, "M{} {}h0", short(*x), short(*y));
            }
            let _ = writeln!(
                out,
                "<path d=\"{path}\" stroke=\"{}\" stroke-width=\"{width}\" stroke-linecap=\"round\" fill=\"none\"/>",
                hex(*colour)
            );
        }
        Shape::Tip { at, points_up, colour, words } => {
            let (half, height) = (TIP.0 / 2.0, if *points_up { TIP.1 } else { -TIP.1 });
            let _ = writeln!(
                out,
                "<path d=\"M{} {}l{} {}h{}z\" fill=\"{}\"><title>{}</title></path>",
                short(at.x),
                short(at.y),
                short(half),
                short(height),
                short(-TIP.0),
                hex(*colour),
                escape(words)
            );
        }
    }
}

/// The path of cells: relative moves, which are short.
fn cells(at: Place, cell: f64, runs: &[CellRun]) -> String {
    let mut path = String::new();
    let mut pen: Option<(f64, f64)> = None;
    for run in runs {
        let x = at.x + (f64::from(run.column) + 0.5) * cell;
        let y = at.y + f64::from(run.row) * cell;
        let length = f64::from(run.rows) * cell;
        let _ = match pen {
            None => write!(path, "M{} {}v{}", short(x), short(y), short(length)),
            Some((pen_x, pen_y)) => {
                let (dx, dy) = (short(x - pen_x), short(y - pen_y));
                let between = if dy.starts_with('-') { "" } else { " " };
                write!(path, "m{dx}{between}{dy}v{}", short(length))
            }
        };
        pen = Some((x, y + length));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scene::{Group, INK};

    #[test]
    fn text_of_a_capture_cannot_become_markup() {
        let mut group = Group { data: vec![("name", "\"><script>".into())], shapes: Vec::new() };
        group.text(Place { x: 1.0, y: 2.0 }, Size::Normal, Anchor::Start, INK, "<b>&\u{1b}[2J");
        let text =
            svg(&Scene { width: 10.0, height: 10.0, title: "</title><script>".into(), groups: vec![group] });
        assert!(!text.contains("<script") && !text.contains("<b>") && !text.contains('\u{1b}'), "{text}");
        assert!(text.contains("&lt;b&gt;&amp;"), "{text}");
    }

    #[test]
    fn cells_are_relative_moves_that_add_up() {
        let runs = [(0, 5, 1), (0, 9, 2), (1, 0, 3)].map(|(column, row, rows)| CellRun { column, row, rows });
        // The second begins 4 rows below the begin of the first, whose end is 1 row lower.
        assert_eq!(cells(Place { x: 10.0, y: 20.0 }, 2.0, &runs), "M11 30v2m0 6v4m2-22v6");
        assert_eq!((short(-0.04), short(2.25), short(-2.25)), ("0".into(), "2.3".into(), "-2.3".into()));
    }
}
