//! Charts as SVG files, by plotters. Those of pages are drawn in the browser: see the crate `page`.

use plotters::prelude::*;

/// Size of a chart, pixels.
const SIZE: (u32, u32) = (960, 300);

/// Points of a line, x and y in the chart's units.
pub type Line = Vec<(f64, f64)>;

/// The area between two lines.
#[derive(Clone, Debug)]
pub struct Area {
    /// Its lower edge.
    pub low: Line,
    /// Its upper edge.
    pub high: Line,
}

/// A curve with its guaranteed band and its range over start phases.
#[derive(Clone, Debug)]
pub struct Curve {
    /// Its title.
    pub title: String,
    /// The axes.
    pub x_label: String,
    /// See `x_label`.
    pub y_label: String,
    /// The guaranteed band.
    pub guaranteed: Area,
    /// Least to greatest over start phases.
    pub settles: Area,
    /// The mean.
    pub mean: Line,
}

/// Draws a curve and its bands over a logarithmic axis; `None` when there are no points or the drawing fails.
#[must_use]
pub fn band(curve: &Curve) -> Option<String> {
    const SURE: RGBColor = RGBColor(0xe2, 0xe8, 0xf0);
    const PHASES: RGBColor = RGBColor(0x94, 0xc5, 0xcf);
    const MEAN: RGBColor = RGBColor(0xc2, 0x41, 0x0c);
    let (first, last) = (curve.mean.first()?.0, curve.mean.last()?.0);
    let high = curve.guaranteed.high.iter().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max) * 1.08;
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, SIZE.1 + 100)).into_drawing_area();
        let mut chart = ChartBuilder::on(&root)
            .caption(&curve.title, ("sans-serif", 14))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(60)
            .build_cartesian_2d((first..last.max(first * 2.0)).log_scale(), 0.0..high)
            .ok()?;
        chart
            .configure_mesh()
            .x_desc(&curve.x_label)
            .y_desc(&curve.y_label)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| crate::terminal::thousands(*y))
            .label_style(("sans-serif", 12).into_font())
            .light_line_style(WHITE)
            .draw()
            .ok()?;
        for (area, colour, label) in
            [(&curve.guaranteed, SURE, "guaranteed band"), (&curve.settles, PHASES, "over start phases")]
        {
            let around: Line = area.low.iter().copied().chain(area.high.iter().rev().copied()).collect();
            chart
                .draw_series(std::iter::once(Polygon::new(around, colour.filled())))
                .ok()?
                .label(label)
                .legend(move |(x, y)| Rectangle::new([(x, y - 5), (x + 18, y + 5)], colour.filled()));
        }
        chart
            .draw_series(LineSeries::new(curve.mean.clone(), MEAN.stroke_width(2)))
            .ok()?
            .label("mean")
            .legend(|(x, y)| PathElement::new([(x, y), (x + 18, y)], MEAN.stroke_width(2)));
        chart.draw_series(curve.mean.iter().map(|p| Circle::new(*p, 3, MEAN.filled()))).ok()?;
        chart
            .configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .background_style(WHITE.mix(0.8))
            .border_style(SURE)
            .label_font(("sans-serif", 12))
            .draw()
            .ok()?;
        root.present().ok()?;
    }
    Some(svg)
}

/// A line of a chart.
#[derive(Clone, Debug)]
pub struct NamedLine {
    /// Its name in the legend.
    pub name: String,
    /// Its points.
    pub points: Line,
}

/// Lines over a logarithmic axis.
#[derive(Clone, Debug)]
pub struct Lines {
    /// Its title.
    pub title: String,
    /// The axes.
    pub x_label: String,
    /// See `x_label`.
    pub y_label: String,
    /// Their names and points, in the chart's units.
    pub series: Vec<NamedLine>,
}

/// Draws lines with their points over a logarithmic axis. Nothing when there are no points or the drawing fails.
#[must_use]
pub fn lines(chart: &Lines) -> Option<String> {
    const COLOURS: [RGBColor; 6] = [
        RGBColor(0xc2, 0x41, 0x0c),
        RGBColor(0x0e, 0x74, 0x90),
        RGBColor(0x4d, 0x7c, 0x0f),
        RGBColor(0x6d, 0x28, 0xd9),
        RGBColor(0xdb, 0x27, 0x77),
        RGBColor(0x33, 0x41, 0x55),
    ];
    let all = || chart.series.iter().flat_map(|line| line.points.iter());
    let first = all().map(|p| p.0).fold(f64::INFINITY, f64::min);
    let last = all().map(|p| p.0).fold(0.0, f64::max);
    let high = all().map(|p| p.1).fold(f64::MIN_POSITIVE, f64::max) * 1.08;
    if !first.is_finite() {
        return None;
    }
    let mut svg = String::new();
    {
        let root = SVGBackend::with_string(&mut svg, (SIZE.0, SIZE.1 + 100)).into_drawing_area();
        let mut area = ChartBuilder::on(&root)
            .caption(&chart.title, ("sans-serif", 14))
            .margin(10)
            .x_label_area_size(36)
            .y_label_area_size(64)
            .build_cartesian_2d((first..last.max(first * 2.0)).log_scale(), 0.0..high)
            .ok()?;
        area.configure_mesh()
            .x_desc(&chart.x_label)
            .y_desc(&chart.y_label)
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| crate::terminal::thousands(*y))
            .label_style(("sans-serif", 12).into_font())
            .light_line_style(WHITE)
            .draw()
            .ok()?;
        for (NamedLine { name, points: line }, colour) in chart.series.iter().zip(COLOURS.into_iter().cycle())
        {
            area.draw_series(LineSeries::new(line.clone(), colour.stroke_width(2)))
                .ok()?
                .label(name)
                .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(2)));
            area.draw_series(line.iter().map(|p| Circle::new(*p, 3, colour.filled()))).ok()?;
        }
        area.configure_series_labels()
            .position(SeriesLabelPosition::LowerRight)
            .border_style(BLACK.mix(0.2))
            .background_style(WHITE.mix(0.8))
            .draw()
            .ok()?;
        root.present().ok()?;
    }
    Some(svg)
}
