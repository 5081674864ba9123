//! Some operations take longer: every n-th, some by chance, all by an amount that rises and falls; all the time or in a window.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use record::units::parse_time_ns;

use super::{Hook, Work};
use crate::StoreError;
use crate::operation::Operation;

/// Which operations take longer, and by how much.
#[derive(Clone, Debug, PartialEq)]
pub enum Shape {
    /// Every n-th.
    Every(u64),
    /// This share of them, by chance.
    Share(f64),
    /// All, by an amount that rises from nothing over each period and drops.
    Rise(Duration),
    /// All, by an amount that falls to nothing over each period and jumps up.
    Fall(Duration),
}

/// When operations take longer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Window {
    /// Always.
    Always,
    /// In this time since the first operation.
    Time(Range<Duration>),
    /// These operations, counted from 0.
    Operations(Range<u64>),
}

/// The pattern of a layer `extra`: `119us:every=5:time=1s-2s`.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtraSpec {
    /// The time of a slow operation; the most of it, where it rises and falls.
    pub time: Duration,
    /// Which operations.
    pub shape: Shape,
    /// When.
    pub window: Window,
}

// The share is a number that was read, never NaN.
impl Eq for ExtraSpec {}

impl ExtraSpec {
    /// Reads `TIME[:every=N|share=P|rise=PERIOD|fall=PERIOD][:time=FROM-TO|ops=FROM-TO]`.
    pub(super) fn read(text: &str) -> Result<Self, ()> {
        let time = |text: &str| parse_time_ns(text).map(Duration::from_nanos).map_err(|_| ());
        let mut parts = text.split(':');
        let extra = parts.next().map(time).ok_or(())??;
        let (mut shape, mut window) = (None, None);
        for part in parts {
            let (name, value) = part.split_once('=').ok_or(())?;
            let ends = || value.split_once('-').ok_or(());
            let own = match name {
                "every" => Shape::Every(value.parse().ok().filter(|&n: &u64| n > 0).ok_or(())?),
                "share" => Shape::Share(value.parse().ok().filter(|p| (0.0..=1.0).contains(p)).ok_or(())?),
                "rise" => Shape::Rise(time(value).ok().filter(|period| !period.is_zero()).ok_or(())?),
                "fall" => Shape::Fall(time(value).ok().filter(|period| !period.is_zero()).ok_or(())?),
                "time" | "ops" if window.is_some() => return Err(()),
                "time" => {
                    let (from, to) = ends()?;
                    window = Some(Window::Time(time(from)?..time(to)?));
                    continue;
                }
                "ops" => {
                    let (from, to) = ends()?;
                    let number = |text: &str| text.parse().map_err(|_| ());
                    window = Some(Window::Operations(number(from)?..number(to)?));
                    continue;
                }
                _ => return Err(()),
            };
            if shape.replace(own).is_some() {
                return Err(());
            }
        }
        let is_empty = match &window {
            Some(Window::Time(range)) => range.is_empty(),
            Some(Window::Operations(range)) => range.is_empty(),
            _ => false,
        };
        if is_empty || extra.is_zero() {
            return Err(());
        }
        Ok(Self {
            time: extra,
            shape: shape.unwrap_or(Shape::Every(1)),
            window: window.unwrap_or(Window::Always),
        })
    }

    /// By how much an operation is longer; `drawn` is a number drawn by chance, 0 to 1.
    fn of(&self, number: u64, at: Duration, drawn: f64) -> Duration {
        let (is_in, from) = match &self.window {
            Window::Always => (true, 0),
            Window::Time(range) => (range.contains(&at), 0),
            Window::Operations(range) => (range.contains(&number), range.start),
        };
        if !is_in {
            return Duration::ZERO;
        }
        let phase =
            |period: &Duration| at.as_nanos().rem_euclid(period.as_nanos()) as f64 / period.as_nanos() as f64;
        match &self.shape {
            Shape::Every(n) if (number - from).is_multiple_of(*n) => self.time,
            Shape::Share(share) if drawn < *share => self.time,
            Shape::Every(_) | Shape::Share(_) => Duration::ZERO,
            Shape::Rise(period) => self.time.mul_f64(phase(period)),
            Shape::Fall(period) => self.time.mul_f64(1.0 - phase(period)),
        }
    }
}

impl fmt::Display for ExtraSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let time = self.time;
        match &self.shape {
            Shape::Every(1) => write!(f, "every operation {time:?} longer"),
            Shape::Every(n) => write!(f, "one operation in {n} {time:?} longer, evenly spaced"),
            Shape::Share(share) => {
                write!(f, "{:.0} % of the operations {time:?} longer, by chance", share * 100.0)
            }
            Shape::Rise(period) => write!(f, "0 to {time:?} longer, rising for {period:?} and dropping"),
            Shape::Fall(period) => write!(f, "{time:?} to 0 longer, falling for {period:?} and jumping up"),
        }?;
        match &self.window {
            Window::Always => Ok(()),
            Window::Time(range) => write!(f, ", from {:?} to {:?}", range.start, range.end),
            Window::Operations(range) => write!(f, ", operations {} to {}", range.start, range.end - 1),
        }
    }
}

/// Keeps the processor busy before some reads and writes. Flushes and discards pass and are not counted.
#[derive(Debug)]
pub struct Extra {
    spec: ExtraSpec,
    /// Reads and writes so far.
    count: AtomicU64,
    /// When the first one began.
    begun: OnceLock<Instant>,
    random: Mutex<fastrand::Rng>,
}

impl Extra {
    /// A layer with this pattern. Which operations are longer by chance is the same each time.
    #[must_use]
    pub fn new(spec: ExtraSpec) -> Self {
        let random = Mutex::new(fastrand::Rng::with_seed(0));
        Self { spec, count: AtomicU64::new(0), begun: OnceLock::new(), random }
    }
}

impl Hook for Extra {
    fn before(&self, operation: Operation, offset: u64, bytes: u64) -> Result<(), StoreError> {
        if !matches!(operation, Operation::Read | Operation::Write) {
            return Ok(());
        }
        let now = Instant::now();
        let begun = *self.begun.get_or_init(|| now);
        let number = self.count.fetch_add(1, Ordering::Relaxed);
        let drawn = match self.spec.shape {
            Shape::Share(_) => self.random.lock().unwrap_or_else(PoisonError::into_inner).f64(),
            _ => 0.0,
        };
        let extra = self.spec.of(number, now.saturating_duration_since(begun), drawn);
        if extra.is_zero() { Ok(()) } else { Work(extra).before(operation, offset, bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn longer(text: &str, operations: u64, each: Duration) -> Vec<u64> {
        let spec = ExtraSpec::read(text).unwrap();
        let mut random = fastrand::Rng::with_seed(1);
        (0..operations)
            .map(|n| spec.of(n, each * u32::try_from(n).unwrap(), random.f64()).as_micros() as u64)
            .collect()
    }

    #[test]
    fn patterns_are_where_their_specs_say() {
        let ms = Duration::from_millis(1);
        assert_eq!(longer("10us", 3, ms), [10, 10, 10]);
        assert_eq!(longer("119us:every=3", 7, ms), [119, 0, 0, 119, 0, 0, 119]);
        assert_eq!(longer("119us:every=2:ops=3-6", 9, ms), [0, 0, 0, 119, 0, 119, 0, 0, 0]);
        assert_eq!(longer("7us:time=2ms-4ms", 6, ms), [0, 0, 7, 7, 0, 0]);
        assert_eq!(longer("100us:rise=4ms", 6, ms), [0, 25, 50, 75, 0, 25]);
        assert_eq!(longer("100us:fall=4ms:time=1ms-9ms", 6, ms), [0, 75, 50, 25, 100, 75]);
        let some = longer("9us:share=0.3", 10_000, ms).into_iter().filter(|us| *us == 9).count();
        assert!((2800..3200).contains(&some), "{some}");
    }

    #[test]
    fn impossible_patterns_are_rejected() {
        for wrong in [
            "",
            "0us",
            "soon",
            "5us:every=0",
            "5us:share=2",
            "5us:rise=0ms",
            "5us:every=2:share=0.5",
            "5us:time=2s-1s",
            "5us:ops=7-7",
            "5us:ops=1-2:time=1s-2s",
            "5us:ops=2",
            "5us:every",
            "5us:often=3",
        ] {
            assert_eq!(ExtraSpec::read(wrong), Err(()), "{wrong}");
        }
    }

    /// The store itself takes longer, and what is neither a read nor a write does not count.
    #[test]
    fn operations_take_the_time_of_their_pattern() {
        use std::sync::Arc;

        use crate::layer::Layered;
        use crate::{Ram, Store as _};
        let spec = ExtraSpec::read("2ms:every=2:ops=1-6").unwrap();
        let store = Layered::new(Extra::new(spec), Arc::new(Ram::new(1 << 20)));
        let slow: Vec<bool> = (0..8)
            .map(|_| {
                store.flush().unwrap();
                let begun = Instant::now();
                assert!(store.read_now(0, &mut [0; 512]).unwrap());
                begun.elapsed() >= Duration::from_millis(2)
            })
            .collect();
        // A busy machine makes others late too, so only the planted ones are certain.
        assert!(slow[1] && slow[3] && slow[5], "{slow:?}");
    }

    #[test]
    fn a_pattern_is_described_as_it_was_written() {
        let text = |spec: &str| ExtraSpec::read(spec).unwrap().to_string();
        assert_eq!(
            text("119us:every=5:time=1s-2s"),
            "one operation in 5 119µs longer, evenly spaced, from 1s to 2s"
        );
        assert_eq!(text("164us:fall=105ms"), "164µs to 0 longer, falling for 105ms and jumping up");
        assert_eq!(
            text("9us:share=0.25:ops=10-20"),
            "25 % of the operations 9µs longer, by chance, operations 10 to 19"
        );
    }
}
