//! Progress on stderr, for work that takes longer than two seconds.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use load::Live;

/// Work that takes longer than this shows how far it is.
const QUIET: Duration = Duration::from_secs(2);

/// A progress line; plain lines if stderr is not a terminal.
#[derive(Debug)]
pub struct Progress {
    shared: Arc<Shared>,
    plain: bool,
    /// Moves the bar within a step; absent without a terminal, where nothing else should run beside a measurement.
    mover: Option<JoinHandle<()>>,
}

/// What the bar shows.
#[derive(Debug)]
struct Shared {
    bar: ProgressBar,
    started: Instant,
    /// Steps in all, as far as is known.
    steps: AtomicU64,
    /// Steps that have begun.
    begun: AtomicU64,
    /// When the last one began, milliseconds after the start.
    step_ms: AtomicU64,
    /// The expected duration of the first one, milliseconds; 0: unknown.
    expected_ms: u64,
    /// The operations of a load, and what was last seen of them.
    live: OnceLock<(Live, Mutex<Rate>)>,
    is_over: AtomicBool,
}

/// The rate of a load whose operations become known second by second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Rate {
    seen_ms: u64,
    operations: u64,
    per_second: Option<f64>,
}

impl Rate {
    /// After `now_ms` since the start, `operations` are known. Threads make theirs known one after the other: changes count once in
    /// about a second.
    fn update(&mut self, now_ms: u64, operations: u64) {
        let since_ms = now_ms.saturating_sub(self.seen_ms);
        if operations > self.operations && since_ms >= 900 {
            let seconds = (since_ms as f64 / 1000.0).round().max(1.0);
            self.per_second = Some((operations - self.operations) as f64 / seconds);
            (self.seen_ms, self.operations) = (now_ms, operations);
        }
    }

    fn text(self) -> String {
        let text = |rate: f64| format!(", {} operations/s", crate::terminal::thousands(rate));
        self.per_second.map(text).unwrap_or_default()
    }
}

/// Hundredths of a step: a bar moves within a step, too.
const PARTS: u64 = 100;

/// The position of a bar in [`PARTS`] of steps, when `done` steps are complete and the next one runs since `in_step_ms` and is
/// expected to take `expected_ms`.
fn position(done: u64, steps: u64, in_step_ms: u64, expected_ms: u64) -> u64 {
    // An expectation that is exceeded does not end the step.
    let within = (in_step_ms * PARTS).checked_div(expected_ms).unwrap_or(0).min(PARTS - 1);
    if done >= steps { steps * PARTS } else { done * PARTS + within }
}

/// The expected duration of a step that began at `step_ms`: like the `done` steps before it, and the first one as its caller
/// expects. Milliseconds; 0: unknown.
fn expected(done: u64, step_ms: u64, first_ms: u64) -> u64 {
    step_ms.checked_div(done).unwrap_or(first_ms)
}

impl Shared {
    fn elapsed_ms(&self) -> u64 {
        u64::try_from(self.started.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn draw(&self) {
        let done = self.begun.load(Ordering::Relaxed).saturating_sub(1);
        let step_ms = self.step_ms.load(Ordering::Relaxed);
        let expected_ms = expected(done, step_ms, self.expected_ms);
        let in_step_ms = self.elapsed_ms().saturating_sub(step_ms);
        self.bar.set_position(position(done, self.steps.load(Ordering::Relaxed), in_step_ms, expected_ms));
        let load = self.live.get().map(|(live, last)| {
            let mut last = last.lock().unwrap_or_else(PoisonError::into_inner);
            last.update(self.elapsed_ms(), live.operations());
            last.text()
        });
        self.bar.set_prefix(rate(done, step_ms) + &load.unwrap_or_default());
    }
}

/// The rate of completed steps, as the time of one; nothing before the first is complete.
fn rate(done: u64, step_ms: u64) -> String {
    match step_ms.checked_div(done) {
        Some(each_ms) => format!(", {:.1} s each", each_ms as f64 / 1000.0),
        None => String::new(),
    }
}

impl Progress {
    /// A line of `steps` steps; `shown` is false if stderr should stay quiet. The first step is expected to take `expected`.
    #[must_use]
    pub fn new(steps: u64, expected: Duration, shown: bool) -> Self {
        Self::begun(Instant::now(), steps, expected, shown)
    }

    fn begun(started: Instant, steps: u64, expected: Duration, shown: bool) -> Self {
        let is_terminal = shown && std::io::IsTerminal::is_terminal(&std::io::stderr());
        let target =
            if is_terminal { ProgressDrawTarget::stderr_with_hz(8) } else { ProgressDrawTarget::hidden() };
        let bar = ProgressBar::with_draw_target(Some(steps.saturating_mul(PARTS)), target);
        let style = ProgressStyle::with_template(
            "[{elapsed_precise}] {bar:30} {percent} %{prefix}, {eta} left: {wide_msg}",
        );
        // The template is a constant; were it wrong, the default style would do.
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        let shared = Arc::new(Shared {
            bar,
            started,
            steps: AtomicU64::new(steps),
            begun: AtomicU64::new(0),
            step_ms: AtomicU64::new(0),
            expected_ms: u64::try_from(expected.as_millis()).unwrap_or(u64::MAX / PARTS),
            live: OnceLock::new(),
            is_over: AtomicBool::new(false),
        });
        let moved = Arc::clone(&shared);
        let mover = is_terminal.then(|| {
            std::thread::spawn(move || {
                while !moved.is_over.load(Ordering::Relaxed) {
                    moved.draw();
                    std::thread::park_timeout(Duration::from_millis(250));
                }
            })
        });
        Self { shared, plain: shown && !is_terminal, mover }
    }

    /// Shows the rate of a load as well.
    #[must_use]
    pub fn of_load(self, live: &Live) -> Self {
        // Nothing sets it twice.
        let _ = self.shared.live.set((live.clone(), Mutex::default()));
        self
    }

    /// The next step is one more than was expected.
    pub fn extend(&self) {
        self.shared.steps.fetch_add(1, Ordering::Relaxed);
        self.shared.bar.inc_length(PARTS);
    }

    /// The next step begins; those before it are done.
    pub fn step(&self, what: &str) {
        let Shared { bar, started, begun, step_ms, .. } = &*self.shared;
        let steps = self.shared.steps.load(Ordering::Relaxed);
        // A case's name comes from a file.
        let what = output::text::line(what).to_string();
        let elapsed_ms = self.shared.elapsed_ms();
        step_ms.store(elapsed_ms, Ordering::Relaxed);
        let done = begun.fetch_add(1, Ordering::Relaxed);
        if self.plain && started.elapsed() >= QUIET {
            eprintln!("{}", plain_line(done, steps, started.elapsed(), &what));
        }
        bar.set_message(format!("{}/{steps} {what}", done + 1));
        self.shared.draw();
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        self.shared.bar.finish_and_clear();
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
        if let Some(mover) = self.mover.take() {
            mover.thread().unpark();
            let _ = mover.join();
        }
    }
}

/// Bytes that are read, shown with their rate and the time left when the work takes longer than two seconds.
#[derive(Debug)]
pub struct Reading {
    bar: ProgressBar,
    started: Instant,
}

impl Reading {
    /// A reading of `bytes` bytes in all; `None` where their number is unknown (standard input, a live capture).
    #[must_use]
    pub fn new(bytes: Option<u64>) -> Self {
        let bar = ProgressBar::with_draw_target(bytes, ProgressDrawTarget::hidden());
        let template = match bytes {
            Some(_) => "[{elapsed_precise}] {bar:30} {bytes}/{total_bytes} ({bytes_per_sec}, {eta} left)",
            None => "[{elapsed_precise}] {spinner} {bytes} ({bytes_per_sec})",
        };
        let style = ProgressStyle::with_template(template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, started: Instant::now() }
    }

    /// Sets the bytes read so far.
    pub fn set(&self, bytes: u64) {
        if self.bar.is_hidden() && self.started.elapsed() >= QUIET {
            // Draws on a terminal only.
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        // A file may grow while it is read.
        if self.bar.length().is_some_and(|length| length < bytes) {
            self.bar.set_length(bytes);
        }
        self.bar.set_position(bytes);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// The text of a line without a terminal: the step, what it is, and the time left after the steps before it.
fn plain_line(done: u64, all: u64, elapsed: Duration, what: &str) -> String {
    let left = if done == 0 {
        String::new()
    } else {
        let left = elapsed.mul_f64((all.saturating_sub(done)) as f64 / done as f64);
        let elapsed_ms = u64::try_from(elapsed.as_millis()).unwrap_or(u64::MAX);
        format!("{}, about {} s left", rate(done, elapsed_ms), left.as_secs())
    };
    format!("[{:>3} s] {}/{all} {what}{left}", elapsed.as_secs(), done + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_line_has_the_step_and_the_time_left() {
        let line = |done, seconds| plain_line(done, 8, Duration::from_secs(seconds), "512 B");
        assert_eq!(line(0, 3), "[  3 s] 1/8 512 B");
        assert_eq!(line(2, 30), "[ 30 s] 3/8 512 B, 15.0 s each, about 90 s left");
        assert_eq!(line(7, 70), "[ 70 s] 8/8 512 B, 10.0 s each, about 10 s left");
    }

    #[test]
    fn a_bar_moves_with_the_steps_and_within_them() {
        assert_eq!(position(0, 1, 0, 4000), 0);
        assert_eq!(position(0, 1, 2000, 4000), 50, "a single step of four seconds moves too");
        assert_eq!(position(0, 1, 9000, 4000), 99, "a step that takes longer does not end");
        assert_eq!(position(0, 1, 9000, 0), 0, "without an expectation it waits for the end");
        assert_eq!(position(3, 4, 1000, 4000), 325);
        assert_eq!(position(4, 4, 1000, 4000), 400);
        assert_eq!(
            [expected(0, 0, 4000), expected(0, 50, 4000), expected(3, 6000, 4000)],
            [4000, 4000, 2000]
        );
        let progress = Progress::new(4, Duration::from_secs(3600), false);
        progress.step("first");
        assert_eq!((progress.shared.bar.position(), progress.shared.bar.length()), (0, Some(400)));
        progress.step("second");
        assert!((100..200).contains(&progress.shared.bar.position()));
        assert_eq!(progress.shared.bar.prefix(), ", 0.0 s each");
        progress.extend();
        assert_eq!(
            (progress.shared.bar.length(), progress.shared.steps.load(Ordering::Relaxed)),
            (Some(500), 5)
        );
        // A step begins when it is announced: what preceded the first one is no part of it.
        let started = Instant::now() - Duration::from_secs(1800);
        let late = Progress::begun(started, 4, Duration::from_secs(3600), false);
        late.step("first");
        assert_eq!(late.shared.bar.position(), 0);
        // The second step is expected to take as long as the first, which began long ago.
        late.step("second");
        assert_eq!(late.shared.bar.position(), 100);
        assert!(progress.mover.is_none(), "nothing runs beside a measurement without a terminal");
    }

    #[test]
    fn the_rate_of_a_load_is_that_of_its_last_seconds() {
        let mut rate = Rate::default();
        assert_eq!(rate.text(), "");
        for (now_ms, operations, expected) in [
            (250, 0, None),
            (1300, 5000, Some(5000.0)),
            // Another thread's share of the same second.
            (1550, 6000, Some(5000.0)),
            (2300, 12_000, Some(7000.0)),
            // A stall, and what came in it.
            (4300, 12_000, Some(7000.0)),
            (5300, 15_000, Some(1000.0)),
        ] {
            rate.update(now_ms, operations);
            assert_eq!(rate.per_second, expected, "after {now_ms} ms");
        }
        assert_eq!(rate.text(), ", 1 000 operations/s");
        let progress = Progress::new(1, Duration::ZERO, false).of_load(&Live::default());
        progress.step("only");
        assert_eq!(progress.shared.bar.prefix(), "");
    }

    #[test]
    fn bytes_are_counted_up_to_the_size_and_beyond() {
        let reading = Reading::new(Some(1000));
        reading.set(250);
        assert_eq!((reading.bar.position(), reading.bar.length()), (250, Some(1000)));
        reading.set(1500);
        assert_eq!((reading.bar.position(), reading.bar.length()), (1500, Some(1500)));
        let unknown = Reading::new(None);
        unknown.set(7);
        assert_eq!((unknown.bar.position(), unknown.bar.length()), (7, None));
    }
}
