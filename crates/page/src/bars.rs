//! Figures as bars, with an axis.

use std::fmt::Write as _;

use crate::html::{Writer, escape};

/// Figures of one unit.
#[derive(Clone, Debug, Default)]
pub struct Bars {
    /// What they are, with the unit.
    pub title: String,
    /// The figures.
    pub bars: Vec<Bar>,
}

/// A figure.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Of what.
    pub name: String,
    /// The figure.
    pub value: f64,
    /// The least and the greatest of several runs.
    pub spread: Option<(f64, f64)>,
    /// The figure as text.
    pub text: String,
    /// Where it is in the JSON of the result.
    pub at: Option<String>,
}

/// From this ratio of the greatest to the least figure on, the axis is logarithmic: the least could not be seen else.
const LOGARITHMIC_FROM: f64 = 50.0;

impl Bars {
    /// The ends of the axis, and whether it is logarithmic.
    fn axis(&self) -> (f64, f64, bool) {
        let all = || self.bars.iter().map(|bar| bar.value).filter(|value| value.is_finite() && *value > 0.0);
        let spread = self.bars.iter().filter_map(|bar| bar.spread).map(|(_, greatest)| greatest);
        let greatest = all().chain(spread).filter(|value| value.is_finite()).fold(0.0, f64::max);
        let least = all().fold(f64::INFINITY, f64::min);
        if least.is_finite() && greatest / least > LOGARITHMIC_FROM {
            // From a power of ten below the least, so that its bar can be seen.
            let from = 10_f64.powf((least.log10() - 0.1).floor());
            (from, greatest, true)
        } else {
            (0.0, greatest, false)
        }
    }

    pub(crate) fn write(&self, to: &mut Writer) {
        let (from, until, is_logarithmic) = self.axis();
        if until <= 0.0 {
            return;
        }
        let share = |value: f64| {
            let of = if is_logarithmic {
                (value.max(from) / from).ln() / (until / from).ln()
            } else {
                value / until
            };
            (of * 100.0).clamp(0.0, 100.0)
        };
        let scale = if is_logarithmic { ", logarithmic axis" } else { "" };
        let _ = write!(
            to.out,
            "<figure class=\"bars\"><figcaption>{}{scale}</figcaption><div class=\"grid\">",
            escape(&self.title)
        );
        for bar in &self.bars {
            let width = share(bar.value);
            let _ = write!(
                to.out,
                "<div class=\"name\">{}</div><div class=\"track\"><i style=\"width:{width:.2}%\"></i>",
                escape(&bar.name)
            );
            if let Some((least, greatest)) = bar.spread {
                let (least, greatest) = (share(least), share(greatest));
                let _ = write!(
                    to.out,
                    "<u style=\"left:{least:.2}%;width:{:.2}%\"></u>",
                    (greatest - least).max(0.2)
                );
            }
            let at = bar.at.as_ref().map_or_else(String::new, |at| format!(" data-at=\"{}\"", escape(at)));
            let _ = write!(to.out, "</div><div class=\"value\"{at}>{}</div>", escape(&bar.text));
        }
        to.out.push_str("<div></div><div class=\"ticks\" aria-hidden=\"true\">");
        for tick in ticks(from, until, is_logarithmic) {
            let _ = write!(to.out, "<span style=\"left:{:.2}%\">{}</span>", share(tick), short(tick));
        }
        to.out.push_str("</div><div></div></div></figure>");
    }
}

/// Places on the axis with a number: at most five.
fn ticks(from: f64, until: f64, is_logarithmic: bool) -> Vec<f64> {
    if is_logarithmic {
        let (first, last) = (from.log10().round() as i32, until.log10().floor() as i32);
        let step = ((last - first) / 4).max(1);
        return (first..=last).step_by(step as usize).map(|power| 10_f64.powi(power)).collect();
    }
    let step = nice(until / 4.0);
    (0..=(until / step).floor() as u32).map(|n| f64::from(n) * step).collect()
}

/// The next of 1, 2, 5 times a power of ten.
fn nice(value: f64) -> f64 {
    let power = 10_f64.powf(value.log10().floor());
    let times =
        [1.0, 2.0, 5.0, 10.0].into_iter().find(|times| times * power >= value * 0.999).unwrap_or(10.0);
    times * power
}

/// A number of an axis.
fn short(value: f64) -> String {
    match value {
        v if v >= 1e9 => format!("{}G", v / 1e9),
        v if v >= 1e6 => format!("{}M", v / 1e6),
        v if v >= 1e3 => format!("{}k", v / 1e3),
        v => format!("{}", (v * 1e6).round() / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[f64]) -> Bars {
        let bar = |value: &f64| Bar {
            name: "x".into(),
            value: *value,
            spread: None,
            text: String::new(),
            at: None,
        };
        Bars { title: "t".into(), bars: values.iter().map(bar).collect() }
    }

    #[test]
    fn far_figures_have_a_logarithmic_axis_with_its_powers() {
        assert_eq!(bars(&[10.0, 100.0]).axis(), (0.0, 100.0, false));
        let (from, until, is_logarithmic) = bars(&[23.0, 634.0 * 23.0]).axis();
        assert!(is_logarithmic && from == 10.0 && until == 634.0 * 23.0);
        assert_eq!(ticks(from, until, true), [10.0, 100.0, 1000.0, 10_000.0]);
        assert_eq!(ticks(0.0, 100.0, false), [0.0, 50.0, 100.0]);
        assert_eq!(ticks(0.0, 37.0, false), [0.0, 10.0, 20.0, 30.0]);
    }

    #[test]
    fn a_figure_634_times_as_great_is_as_many_powers_longer() {
        let mut to = Writer::new(crate::Unit::default(), &[]);
        bars(&[10.0, 6340.0]).write(&mut to);
        let widths: Vec<f64> = to
            .out
            .split("<i style=\"width:")
            .skip(1)
            .map(|rest| rest.split('%').next().unwrap().parse().unwrap())
            .collect();
        // The axis has 3.8 powers of ten, of which the least figure fills one.
        assert_eq!(widths, [26.3, 100.0]);
        assert!(to.out.contains(">1k</span>"), "{}", to.out);
    }

    #[test]
    fn no_figure_no_bars() {
        for none in [&[][..], &[0.0], &[f64::NAN]] {
            let mut to = Writer::new(crate::Unit::default(), &[]);
            bars(none).write(&mut to);
            assert_eq!(to.out, "");
        }
    }
}
