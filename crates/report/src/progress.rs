//! Progress on stderr, for work that takes longer than two seconds.

use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// Work that takes longer than this shows how far it is.
const QUIET: Duration = Duration::from_secs(2);

/// A progress line; plain lines if stderr is not a terminal.
#[derive(Debug)]
pub struct Progress {
    bar: ProgressBar,
    plain: bool,
    started: Instant,
}

impl Progress {
    /// A line of `steps` steps; `shown` is false if stderr should stay quiet.
    #[must_use]
    pub fn new(steps: u64, shown: bool) -> Self {
        let terminal = std::io::IsTerminal::is_terminal(&std::io::stderr());
        let bar = ProgressBar::with_draw_target(
            Some(steps),
            if shown && terminal {
                ProgressDrawTarget::stderr_with_hz(8)
            } else {
                ProgressDrawTarget::hidden()
            },
        );
        let style = ProgressStyle::with_template("[{elapsed_precise}] {bar:30} {pos}/{len} {wide_msg}");
        // The template is a constant; were it wrong, the default style would do.
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        Self { bar, plain: shown && !terminal, started: Instant::now() }
    }

    /// The next step begins.
    pub fn step(&self, what: &str) {
        // A case's name comes from a file.
        let what = output::text::line(what).to_string();
        if self.plain && self.started.elapsed() >= QUIET {
            let (done, all) = (self.bar.position(), self.bar.length().unwrap_or(0));
            eprintln!("[{:>3} s] {done}/{all} {what}", self.started.elapsed().as_secs());
        }
        self.bar.set_message(what);
        self.bar.inc(1);
        self.bar.tick();
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}

/// A count that grows, shown when the work takes longer than two seconds.
#[derive(Debug)]
pub struct Counting {
    bar: ProgressBar,
    started: Instant,
}

impl Counting {
    /// A count of `what`.
    #[must_use]
    pub fn new(what: &'static str) -> Self {
        let bar = ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden());
        let template = format!("[{{elapsed_precise}}] {{spinner}} {{human_pos}} {what} ({{per_sec}})");
        let style = ProgressStyle::with_template(&template);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_spinner()));
        Self { bar, started: Instant::now() }
    }

    /// Sets the count.
    pub fn set(&self, count: u64) {
        if self.bar.is_hidden() && self.started.elapsed() >= QUIET {
            // Draws on a terminal only.
            self.bar.set_draw_target(ProgressDrawTarget::stderr_with_hz(8));
        }
        self.bar.set_position(count);
    }

    /// Removes the line.
    pub fn finish(&self) {
        self.bar.finish_and_clear();
    }
}
