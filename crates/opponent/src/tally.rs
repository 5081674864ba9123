//! Shares with their intervals, and the table of causes.

use std::fmt::Write;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::cause::Cause;
use crate::judge::{Compared, Judged, judged};

/// So many of so many.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Share {
    /// Those that count.
    pub hits: u32,
    /// All.
    pub of: u32,
}

/// The normal quantile of a two-sided 95 % interval.
const Z: f64 = 1.959_963_984_540_054;

impl Share {
    fn add(&mut self, is_hit: bool) {
        self.of += 1;
        self.hits += u32::from(is_hit);
    }

    /// The share; 0 of 0 is 0.
    #[must_use]
    pub fn value(self) -> f64 {
        if self.of == 0 { 0.0 } else { f64::from(self.hits) / f64::from(self.of) }
    }

    /// The 95 % interval of the share that the sample was drawn from (E. B. Wilson 1927: the score interval, which is sound near 0
    /// and 1 and for few samples).
    #[must_use]
    pub fn interval(self) -> (f64, f64) {
        if self.of == 0 {
            return (0.0, 1.0);
        }
        let (n, p) = (f64::from(self.of), self.value());
        let middle = p + Z * Z / (2.0 * n);
        let half = Z * (p * (1.0 - p) / n + Z * Z / (4.0 * n * n)).sqrt();
        let scale = 1.0 + Z * Z / n;
        (((middle - half) / scale).max(0.0), ((middle + half) / scale).min(1.0))
    }

    fn cell(self) -> String {
        if self.of == 0 {
            return "-".to_owned();
        }
        let (low, high) = self.interval();
        format!("{:.1} ({:.1} to {:.1})", 100.0 * self.value(), 100.0 * low, 100.0 * high)
    }
}

/// What is known of a cause.
#[derive(Clone, Copy, Debug, Default)]
pub struct Row {
    /// Setups with it, and those of them in which it was found.
    pub recall: Share,
    /// Setups without it, and those of them with its verdict.
    pub false_alarms: Share,
    /// Verdicts with a gain, and those within a fifth of the measured one.
    pub gains: Share,
    /// Those of them that are intervals of more than a factor of two.
    pub wide: u32,
}

/// Judges setups of consecutive seeds on several threads; the fools are in the order of their causes, the worst first.
///
/// # Panics
/// When a thread panics.
#[must_use]
pub fn many(seed: u64, setups: u64, only: Option<Cause>, threads: usize) -> Tally {
    let (next, tally) = (AtomicU64::new(0), Mutex::new(Tally::default()));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                let mut own = Tally::default();
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= setups {
                        break;
                    }
                    own.add(&judged(seed + number, only));
                }
                tally.lock().expect("no thread panics").merge(own);
            });
        }
    });
    let mut tally = tally.into_inner().expect("no thread panics");
    tally.fools.sort_by(|a, b| {
        let group = (a.cause, a.sort).cmp(&(b.cause, b.sort));
        group.then(b.weight.total_cmp(&a.weight)).then(a.seed.cmp(&b.seed))
    });
    tally
}

/// How a setup fools the analysis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sort {
    /// A verdict on a cause that is not there.
    FalseAlarm,
    /// No verdict on a cause that is there.
    Miss,
    /// A gain that is not what removing the cause measures.
    Gain,
    /// Less than four fifths of the excess is explained; the cause is the one that costs most.
    Unexplained,
}

impl Sort {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Sort::FalseAlarm => "false alarm",
            Sort::Miss => "missed",
            Sort::Gain => "gain",
            Sort::Unexplained => "unexplained",
        }
    }
}

/// A setup that fooled the analysis.
#[derive(Clone, Debug)]
pub struct Fool {
    /// Its seed.
    pub seed: u64,
    /// The cause.
    pub cause: Cause,
    /// How.
    pub sort: Sort,
    /// How much it matters: the share that the cause costs, or that the verdict claims, or by what a gain is off.
    pub weight: f64,
    /// The setup and what was said.
    pub line: String,
}

/// The result of many setups.
#[derive(Clone, Debug)]
pub struct Tally {
    /// A row for each cause, in the order of [`Cause::ALL`].
    pub rows: Vec<Row>,
    /// Setups in which nothing is wrong, and those of them with any verdict.
    pub healthy: Share,
    /// Setups with a cause and an excess, and those of which at least four fifths of the excess are explained.
    pub explained: Share,
    /// Setups that fooled the analysis.
    pub fools: Vec<Fool>,
}

impl Default for Tally {
    fn default() -> Self {
        Self {
            rows: vec![Row::default(); Cause::ALL.len()],
            healthy: Share::default(),
            explained: Share::default(),
            fools: Vec::new(),
        }
    }
}

impl Tally {
    /// Adds a setup.
    pub fn add(&mut self, judged: &Judged) {
        let said: Vec<&str> = judged.said.iter().map(|said| said.kind.as_str()).collect();
        for (row, cause) in self.rows.iter_mut().zip(Cause::ALL.iter().copied()) {
            let fool = |sort, weight, more: String| {
                let line = format!("{}; says {said:?}{more}", judged.setup.line());
                Fool { seed: judged.seed, cause, sort, weight, line }
            };
            let has = judged.has(cause);
            if has == Some(true) {
                let is_found = judged.is_found(cause);
                row.recall.add(is_found);
                if !is_found {
                    let weight = judged.truths.get(&cause).map_or(0.0, |truth| truth.share);
                    self.fools.push(fool(Sort::Miss, weight, format!("; costs {:.0} %", weight * 100.0)));
                }
            }
            let alarm = judged.false_alarm(cause);
            if has == Some(false) {
                row.false_alarms.add(alarm.is_some());
            }
            if let Some(said) = alarm {
                self.fools.push(fool(Sort::FalseAlarm, said.cost_ns, format!("; {}", said.text)));
            }
            if has == Some(true)
                && let Some(gain) = judged.gain(cause)
            {
                row.gains.add(gain.is_right());
                row.wide += u32::from(gain.is_wide());
                if !gain.is_right() {
                    let Compared { least, most, measured } = gain;
                    let more = format!("; predicts {least:.2} to {most:.2}, removing it gains {measured:.2}");
                    self.fools.push(fool(Sort::Gain, gain.off(), more));
                }
            }
        }
        let causes = Cause::ALL.iter().copied().filter(|&cause| judged.has(cause) != Some(false));
        if judged.planted.is_empty() && causes.count() == 0 {
            self.healthy.add(!judged.said.is_empty());
        } else if let Some(explained) = judged.explained {
            self.explained.add(explained >= 0.8);
            let cost = |cause: &Cause| judged.truths.get(cause).map_or(0.0, |truth| truth.share);
            let most = Cause::ALL.iter().copied().max_by(|a, b| cost(a).total_cmp(&cost(b)));
            if let Some(cause) = most
                && explained < 0.8
            {
                let line = format!("{}; says {said:?}; {:.0} %", judged.setup.line(), explained * 100.0);
                let (sort, weight) = (Sort::Unexplained, 1.0 - explained);
                self.fools.push(Fool { seed: judged.seed, cause, sort, weight, line });
            }
        }
    }

    /// Adds other setups.
    pub fn merge(&mut self, other: Tally) {
        let sum = |a: &mut Share, b: Share| (a.hits, a.of) = (a.hits + b.hits, a.of + b.of);
        for (row, more) in self.rows.iter_mut().zip(other.rows) {
            sum(&mut row.recall, more.recall);
            sum(&mut row.false_alarms, more.false_alarms);
            sum(&mut row.gains, more.gains);
            row.wide += more.wide;
        }
        sum(&mut self.healthy, other.healthy);
        sum(&mut self.explained, other.explained);
        self.fools.extend(other.fools);
    }

    /// The table, as Markdown.
    #[must_use]
    pub fn table(&self) -> String {
        let mut text = String::from(
            "| cause | setups with it | found | recall, % | setups without it | false alarms | false alarms, % | gain within 20 % |\n|---|---|---|---|---|---|---|---|\n",
        );
        for (row, cause) in self.rows.iter().zip(Cause::ALL.iter().copied()) {
            let Row { recall, false_alarms, gains, wide } = row;
            let gains =
                if gains.of == 0 { "-".to_owned() } else { format!("{} of {}", gains.hits, gains.of) };
            let wide = if *wide > 0 { format!(" ({wide} wide)") } else { String::new() };
            let _ = writeln!(
                text,
                "| `{}` | {} | {} | {} | {} | {} | {} | {gains}{wide} |",
                cause.name(),
                recall.of,
                recall.hits,
                recall.cell(),
                false_alarms.of,
                false_alarms.hits,
                false_alarms.cell(),
            );
        }
        let _ = writeln!(
            text,
            "\nHealthy setups: {}, with any verdict: {}, % {}",
            self.healthy.of,
            self.healthy.hits,
            self.healthy.cell()
        );
        let _ = writeln!(
            text,
            "Setups with a cause and an excess: {}, at least 80 % of the excess explained: {}, % {}",
            self.explained.of,
            self.explained.hits,
            self.explained.cell()
        );
        text
    }
}
