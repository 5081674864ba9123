//! Layers as people write them: `delay=1ms`, `work=10us`, `extra=119us:every=5`, `iops=500`, `bandwidth=100M`, `error=read:0.01:0-4095`, `stats`,
//! `log`.

use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use record::units::{parse_size, parse_time_ns};

use super::{Delay, ErrorAt, Extra, ExtraSpec, Layered, Log, Stats, Throttle, Work};
use crate::operation::Operation;
use crate::{Fault, Store};

/// A layer and its settings.
#[derive(Clone, Debug, PartialEq)]
pub enum LayerSpec {
    /// `delay=TIME`.
    Delay(Duration),
    /// `work=TIME`.
    Work(Duration),
    /// `extra=TIME[:SHAPE[:WINDOW]]`.
    Extra(ExtraSpec),
    /// `iops=N`.
    Iops(u64),
    /// `bandwidth=SIZE`, bytes a second.
    Bandwidth(u64),
    /// `error=KIND[:RATE[:FROM-TO[:FAULT]]]`.
    Error {
        /// Which operations fail.
        operation: Operation,
        /// How often, 0 to 1.
        rate: f64,
        /// Where, bytes.
        bytes: Range<u64>,
        /// With what.
        fault: Fault,
    },
    /// `stats`.
    Stats,
    /// `log`.
    Log,
}

// The rate is a number that was read, never NaN.
impl Eq for LayerSpec {}

impl FromStr for LayerSpec {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (name, value) = text.split_once('=').unwrap_or((text, ""));
        let time = |value: &str| parse_time_ns(value).map(Duration::from_nanos).map_err(|_| ());
        let count = |value: &str| value.parse().ok().filter(|&n: &u64| n > 0).ok_or(());
        match name {
            "delay" => time(value).map(Self::Delay),
            "work" => time(value).map(Self::Work),
            "extra" => ExtraSpec::read(value).map(Self::Extra),
            "iops" => count(value).map(Self::Iops),
            "bandwidth" => parse_size(value).ok().filter(|&n| n > 0).map(Self::Bandwidth).ok_or(()),
            "error" => error(value),
            "stats" if text == "stats" => Ok(Self::Stats),
            "log" if text == "log" => Ok(Self::Log),
            _ => Err(()),
        }
    }
}

fn error(value: &str) -> Result<LayerSpec, ()> {
    let mut parts = value.split(':');
    let operation = match parts.next() {
        Some("read") => Operation::Read,
        Some("write") => Operation::Write,
        Some("unmap") => Operation::Discard,
        Some("flush") => Operation::Flush,
        _ => return Err(()),
    };
    let rate: f64 = parts.next().map_or(Ok(1.0), str::parse).map_err(|_| ())?;
    let bytes = match parts.next().filter(|range| !range.is_empty()) {
        None => 0..u64::MAX,
        Some(range) => {
            let (from, to) = range.split_once('-').ok_or(())?;
            let (from, to) = (parse_size(from).map_err(|_| ())?, parse_size(to).map_err(|_| ())?);
            from..to.checked_add(1).ok_or(())?
        }
    };
    let fault = match parts.next() {
        None | Some("medium") => Fault::Medium,
        Some("hardware") => Fault::Hardware,
        Some("not-ready") => Fault::NotReady,
        Some("no-space") => Fault::NoSpace,
        Some(_) => return Err(()),
    };
    let is_good = (0.0..=1.0).contains(&rate) && bytes.start < bytes.end && parts.next().is_none();
    if is_good { Ok(LayerSpec::Error { operation, rate, bytes, fault }) } else { Err(()) }
}

impl LayerSpec {
    /// Puts the layer over a store that is called `name`.
    #[must_use]
    pub fn over(&self, inner: Arc<dyn Store>, name: &str) -> Arc<dyn Store> {
        match self {
            Self::Delay(time) => Arc::new(Layered::new(Delay(*time), inner)),
            Self::Work(time) => Arc::new(Layered::new(Work(*time), inner)),
            Self::Extra(spec) => Arc::new(Layered::new(Extra::new(spec.clone()), inner)),
            Self::Iops(count) => Arc::new(Layered::new(Throttle::new(Some(*count), None), inner)),
            Self::Bandwidth(bytes) => Arc::new(Layered::new(Throttle::new(None, Some(*bytes)), inner)),
            Self::Error { operation, rate, bytes, fault } => {
                let hook = ErrorAt::new(*operation, *fault, *rate, bytes.clone(), 0);
                Arc::new(Layered::new(hook, inner))
            }
            Self::Stats => Arc::new(Layered::new(Stats::default(), inner)),
            Self::Log => Arc::new(Layered::new(Log { name: name.to_owned() }, inner)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layer_specs_round_trip_and_others_are_rejected() {
        assert_eq!("delay=1ms".parse(), Ok(LayerSpec::Delay(Duration::from_millis(1))));
        assert_eq!("bandwidth=100M".parse(), Ok(LayerSpec::Bandwidth(100 << 20)));
        let whole = LayerSpec::Error {
            operation: Operation::Write,
            rate: 0.5,
            bytes: 4096..8192,
            fault: Fault::NoSpace,
        };
        assert_eq!("error=write:0.5:4k-8191:no-space".parse(), Ok(whole));
        for wrong in [
            "delay",
            "delay=-1",
            "iops=0",
            "error",
            "error=look",
            "error=read:2",
            "error=read:1:9-3",
            "logs",
            "extra",
            "extra=5us:every=0",
            "stats=1",
        ] {
            assert_eq!(wrong.parse::<LayerSpec>(), Err(()), "{wrong}");
        }
    }
}
