//! `roundtrip top`: the live view of a target.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ::top::view::Key;
use ::top::{Rates, Sample, View};
use anyhow::Context as _;
use control::client;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use serde_json::json;

use crate::print::print_json_line;
use crate::target::default_socket;
use crate::{Failure, args};

/// Watch a running target: disks, connections, and where the time of a command goes
///
/// Reads the control socket of a target, or the metrics of one anywhere (without its connections). Latencies are those inside the
/// target. Keys: q quits, s sorts, / filters, p pauses.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip top\n  roundtrip top http://192.0.2.1:9260/metrics\n  \
                        roundtrip top --once --json --interval 5s")]
pub(crate) struct TopArgs {
    /// The control socket, or the URL of metrics [default: /run/roundtrip/control.sock]
    source: Option<String>,
    /// The time between two samples
    #[arg(long, value_parser = args::time, default_value = "1s", value_name = "TIME")]
    interval: Duration,
    /// Print the figures of one interval and end
    #[arg(long)]
    once: bool,
    /// With --once: print JSON
    #[arg(long, requires = "once")]
    json: bool,
}

/// Where samples come from.
enum Source {
    Control(PathBuf),
    Metrics(client::Url),
}

impl Source {
    fn sample(&self) -> anyhow::Result<Sample> {
        match self {
            Self::Control(path) => of_control(path),
            Self::Metrics(url) => {
                let answer = client::get(url).with_context(|| url.to_string())?;
                anyhow::ensure!(answer.status == 200, "{url}: status {}", answer.status);
                Ok(Sample::of_metrics(&answer.text))
            }
        }
    }
}

fn of_control(path: &Path) -> anyhow::Result<Sample> {
    let get = |what: &str| {
        let answer = client::ask(path, "GET", what, None);
        let answer = answer.with_context(|| format!("{}: no target answers", path.display()))?;
        answer.json().map_err(anyhow::Error::msg)
    };
    Ok(Sample::of_control(&get("/v1/status")?, &get("/v1/disks")?, &get("/v1/connections")?))
}

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    let source = match args.source.as_deref() {
        Some(url) if url.contains("://") => {
            Source::Metrics(url.parse().map_err(|error: String| Failure::Usage(anyhow::Error::msg(error)))?)
        }
        other => Source::Control(other.map_or_else(default_socket, PathBuf::from)),
    };
    if args.interval < Duration::from_millis(100) {
        return Err(Failure::Usage(anyhow::anyhow!("--interval: use 100ms or more")));
    }
    if args.once {
        once(args, &source).map_err(Failure::Work)?;
    } else {
        if !std::io::stdout().is_terminal() {
            return Err(Failure::Usage(anyhow::anyhow!(
                "stdout is not a terminal; use --once, with --json for scripts"
            )));
        }
        watch(args, &source).map_err(Failure::Work)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Prints the figures of one interval.
fn once(args: &TopArgs, source: &Source) -> anyhow::Result<()> {
    let (before, begun) = (source.sample()?, Instant::now());
    std::thread::sleep(args.interval);
    let now = source.sample()?;
    let rates = Rates::between(&before, &now, begun.elapsed().as_secs_f64());
    if args.json {
        return print_json_line(&json!(rates)).map_err(Failure::into_error);
    }
    let height = 16 + rates.disks.len() + rates.connections.len();
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(
        80,
        u16::try_from(height).unwrap_or(u16::MAX),
    ))?;
    terminal.draw(|frame| View::default().draw(frame, &rates))?;
    let buffer = terminal.backend().buffer();
    let area = buffer.area;
    // The last line is that of the keys.
    for y in 0..area.height - 1 {
        let row: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        crate::print::print_line(format_args!("{}", row.trim_end()));
    }
    Ok(())
}

/// Draws until a key ends it. The terminal is given back as it was, also by a panic.
fn watch(args: &TopArgs, source: &Source) -> anyhow::Result<()> {
    let mut before = (source.sample()?, Instant::now());
    let mut terminal = ratatui::init();
    let watched = (|| {
        let (mut view, mut rates) = (View::default(), Rates::between(&before.0, &before.0, 1.0));
        let mut at = Instant::now() + args.interval;
        loop {
            terminal.draw(|frame| view.draw(frame, &rates))?;
            if event::poll(at.saturating_duration_since(Instant::now()))? {
                if let Event::Key(key) = event::read()?
                    && key.kind == KeyEventKind::Press
                {
                    let ends =
                        key.code == KeyCode::Char('c') && key.modifiers.contains(KeyModifiers::CONTROL);
                    if ends || !named(key.code).is_none_or(|key| view.key(key)) {
                        return Ok(());
                    }
                }
                continue;
            }
            at = Instant::now() + args.interval;
            if view.is_paused {
                continue;
            }
            // A target that is restarted is shown again when it answers.
            match source.sample() {
                Ok(sample) => {
                    let now = (sample, Instant::now());
                    rates = Rates::between(&before.0, &now.0, (now.1 - before.1).as_secs_f64());
                    (before, view.problem) = (now, None);
                }
                Err(error) => view.problem = Some(format!("{error:#}")),
            }
        }
    })();
    ratatui::restore();
    watched
}

fn named(code: KeyCode) -> Option<Key> {
    Some(match code {
        KeyCode::Char(character) => Key::Character(character),
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use ::top::sample::{BOUNDS_US, STAGES};

    /// `top` depends on no target: it may run where none does.
    #[test]
    fn buckets_and_stages_are_those_of_the_target() {
        assert_eq!(BOUNDS_US, iscsi_target::counters::BOUNDS_US.map(|us| us as f64));
        assert_eq!(STAGES, iscsi_target::Stages::default().named().map(|(name, _)| name));
    }
}
