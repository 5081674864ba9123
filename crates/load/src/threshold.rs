//! Thresholds of a run's figures, such as `p99<2ms`, for scripts that only look at an exit code.

use std::fmt;
use std::str::FromStr;

use record::units::parse_time_ns;

use crate::result::RunResult;

/// A figure that has a threshold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Figure {
    Iops,
    Megabytes,
    Errors,
    Behind,
    Mean,
    Min,
    P50,
    P90,
    P99,
    P999,
    Max,
}

/// The relation that must hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Relation {
    Less,
    LessOrEqual,
    Equal,
    GreaterOrEqual,
    Greater,
}

/// A threshold: a figure, a relation and a value. The value is in microseconds for latencies, in millions of bytes per second
/// for `mb/s`, else a plain number.
#[derive(Clone, Debug, PartialEq)]
pub struct Threshold {
    text: String,
    figure: Figure,
    relation: Relation,
    value: f64,
}

/// A threshold that a run has not met.
#[derive(Clone, Debug, PartialEq)]
pub struct Missed {
    /// The threshold as it was written.
    pub threshold: String,
    /// The measured value with its unit; a message if nothing was measured.
    pub measured: String,
}

impl fmt::Display for Missed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} failed: measured {}", self.threshold, self.measured)
    }
}

impl Figure {
    const NAMES: [(&'static str, Self); 13] = [
        ("iops", Self::Iops),
        ("mb/s", Self::Megabytes),
        ("errors", Self::Errors),
        ("behind", Self::Behind),
        ("mean", Self::Mean),
        ("min", Self::Min),
        ("p50", Self::P50),
        ("p90", Self::P90),
        ("p99", Self::P99),
        ("p999", Self::P999),
        ("p99.9", Self::P999),
        ("max", Self::Max),
        ("MB/s", Self::Megabytes),
    ];

    fn is_latency(self) -> bool {
        !matches!(self, Self::Iops | Self::Megabytes | Self::Errors | Self::Behind)
    }

    /// The measured value; `None` if the run has none.
    fn of(self, run: &RunResult) -> Option<f64> {
        let l = &run.latency_us;
        let latency = |value: f64| (run.operations > 0).then_some(value);
        match self {
            Self::Iops => Some(run.iops),
            Self::Megabytes => Some(run.bytes_per_second / 1e6),
            Self::Errors => Some(run.errors as f64),
            Self::Behind => run.behind.map(|behind| behind as f64),
            Self::Mean => latency(l.mean),
            Self::Min => latency(l.min),
            Self::P50 => latency(l.p50),
            Self::P90 => latency(l.p90),
            Self::P99 => latency(l.p99),
            Self::P999 => latency(l.p999),
            Self::Max => latency(l.max),
        }
    }

    fn measured(self, value: Option<f64>) -> String {
        match value {
            None if self == Self::Behind => "nothing: the load is no open loop".to_owned(),
            None => "nothing: no operation succeeded".to_owned(),
            Some(value) if self.is_latency() => format!("{value:.1} us"),
            Some(value) if self == Self::Megabytes => format!("{value:.3} MB/s"),
            Some(value) => format!("{}", (value * 10.0).round() / 10.0),
        }
    }
}

impl Relation {
    /// Longer operators first, so that `<=` is not read as `<`.
    const NAMES: [(&'static str, Self); 6] = [
        ("<=", Self::LessOrEqual),
        (">=", Self::GreaterOrEqual),
        ("==", Self::Equal),
        ("<", Self::Less),
        (">", Self::Greater),
        ("=", Self::Equal),
    ];

    fn holds(self, measured: f64, value: f64) -> bool {
        match self {
            Self::Less => measured < value,
            Self::LessOrEqual => measured <= value,
            Self::Equal => (measured - value).abs() < 1e-9,
            Self::GreaterOrEqual => measured >= value,
            Self::Greater => measured > value,
        }
    }
}

impl Threshold {
    /// Checks a run; `None` if it meets the threshold. A figure that was not measured meets none.
    #[must_use]
    pub fn check(&self, run: &RunResult) -> Option<Missed> {
        let measured = self.figure.of(run);
        if measured.is_some_and(|measured| self.relation.holds(measured, self.value)) {
            return None;
        }
        Some(Missed { threshold: self.text.clone(), measured: self.figure.measured(measured) })
    }
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong =
            |why: String| format!("'{text}': {why}; write p99<2ms, iops>=10000, mb/s>100 or errors=0");
        let at = text.find(['<', '>', '=']).ok_or_else(|| wrong("there is no <, <=, =, >= or >".into()))?;
        let (name, rest) = (text[..at].trim(), &text[at..]);
        let figure = Figure::NAMES.iter().find(|(known, _)| *known == name).map(|(_, figure)| *figure);
        let figure = figure.ok_or_else(|| {
            let names: Vec<&str> = Figure::NAMES.iter().map(|(name, _)| *name).collect();
            wrong(format!("'{name}' is not a figure; use {}", names.join(", ")))
        })?;
        let relation = Relation::NAMES.iter().find(|(symbol, _)| rest.starts_with(symbol));
        let (symbol, relation) = relation.ok_or_else(|| wrong("there is no relation".into()))?;
        let number = rest[symbol.len()..].trim();
        let value = if figure.is_latency() {
            parse_time_ns(number).map_err(|error| wrong(error.to_string()))? as f64 / 1000.0
        } else {
            let value = number.parse::<f64>().ok().filter(|value| value.is_finite() && *value >= 0.0);
            value.ok_or_else(|| wrong(format!("'{number}' is not a plain number")))?
        };
        Ok(Self { text: text.trim().to_owned(), figure, relation: *relation, value })
    }
}

#[cfg(test)]
mod tests {
    use record::latency::LatencyFigures;

    use super::*;

    fn run() -> RunResult {
        let latency_us = LatencyFigures {
            mean: 110.0,
            min: 50.0,
            p50: 100.0,
            p90: 150.0,
            p99: 1999.5,
            p999: 2500.0,
            max: 9000.0,
        };
        RunResult {
            operations: 1000,
            iops: 1000.0,
            bytes_per_second: 4.096e6,
            errors: 3,
            latency_us,
            ..RunResult::default()
        }
    }

    #[test]
    fn thresholds_compare_the_figure_that_they_name() {
        let holds = |text: &str| text.parse::<Threshold>().unwrap().check(&run()).is_none();
        for text in [
            "p99<2ms",
            "p99 <= 1999.5us",
            "p50=100us",
            "p999<2501us",
            "p99.9>2.4ms",
            "mean>109us",
            "min>=50us",
            "max<9.001ms",
            "iops>=1000",
            "iops==1000",
            "mb/s>4",
            "MB/s<4.1",
            "errors<=3",
            "p90<1s",
        ] {
            assert!(holds(text), "{text}");
        }
        for text in [
            "p99<1999us",
            "p99>2ms",
            "p50<100us",
            "p999<2500us",
            "mean<110us",
            "min>50us",
            "max<9ms",
            "iops>1000",
            "mb/s>=4.1",
            "errors=0",
            "errors<3",
            "p90>=151us",
            "behind=0",
        ] {
            assert!(!holds(text), "{text}");
        }
        let missed = "p99<1ms".parse::<Threshold>().unwrap().check(&run()).unwrap();
        assert_eq!(missed.to_string(), "p99<1ms failed: measured 1999.5 us");
    }

    /// The latencies of a run without a success are zero, which is no success.
    #[test]
    fn a_run_that_measured_nothing_meets_no_latency() {
        let failed = RunResult { errors: 5, ..RunResult::default() };
        for text in ["p99<2ms", "mean<1s", "max<=1s", "min=0us", "iops>0"] {
            let missed = text.parse::<Threshold>().unwrap().check(&failed);
            assert!(missed.is_some(), "{text}");
        }
        let missed = "p99<2ms".parse::<Threshold>().unwrap().check(&failed).unwrap().to_string();
        assert!(missed.contains("no operation succeeded"), "{missed}");
    }

    #[test]
    fn malformed_thresholds_are_errors_with_an_example() {
        for text in [
            "",
            "p99",
            "p99<",
            "p99<2",
            "p99<2q",
            "<2ms",
            "p98<2ms",
            "iops>fast",
            "iops>-1",
            "iops>1ms",
            "errors=nan",
            "p99<<2ms",
            "p99=<2ms",
            "iops>inf",
            "p99<2ms,iops>5",
        ] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.contains("p99<2ms"), "{text}: {error}");
        }
    }
}
