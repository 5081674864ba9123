//! `roundtrip top`: the live view of a target, or of any service.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use ::top::traffic::{Capture, Operation};
use ::top::view::Key;
use ::top::{Figures, Rates, Sample, Traffic, View};
use analyzer::{Analysis, Input, Named, Options};
use anyhow::Context as _;
use capture::record_to_file::Seen;
use capture::{Protocol, Selection};
use control::client;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use record::{Observed, OpKind, Outcome};
use serde_json::json;

use crate::analyze::{PortArg, port};
use crate::print::print_json_line;
use crate::stop::Stop;
use crate::target::default_socket;
use crate::{Failure, args, live};

/// Watch a running target, or any service: rates, latencies, and where the time of a command goes
///
/// Reads the control socket of a target, or the metrics of one anywhere (without its connections), where latencies are those inside the
/// target. With --interface it captures packets, and shows the operations of every service that `analyze` knows, as their clients see
/// them at that place. Keys: q quits, s sorts, / filters, p pauses.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  roundtrip top\n  roundtrip top http://192.0.2.1:9260/metrics\n  \
                        roundtrip top --interface eth0 --port 6379\n  roundtrip top --once --json --interval 5s")]
pub(crate) struct TopArgs {
    /// The control socket, or the URL of metrics [default: /run/roundtrip/control.sock]
    source: Option<String>,
    /// Watch what packets on this interface show (repeatable; needs CAP_NET_RAW)
    #[arg(long, value_name = "IF", conflicts_with = "source")]
    interface: Vec<String>,
    /// With --interface: the port of the service, and its protocol if it is not to be found out [default: all ports]
    #[arg(long, requires = "interface", value_parser = port, value_name = "N[=PROTOCOL]")]
    port: Option<PortArg>,
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

/// Where samples of a target come from.
enum Source {
    Control(PathBuf),
    Metrics(client::Url),
}

impl Source {
    fn of(text: Option<&str>) -> Result<Self, Failure> {
        Ok(match text {
            Some(url) if url.contains("://") => {
                Self::Metrics(url.parse().map_err(|error: String| Failure::Usage(anyhow::Error::msg(error)))?)
            }
            other => Self::Control(other.map_or_else(default_socket, PathBuf::from)),
        })
    }

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

/// Returns what has happened since the last call; the first one returns what is there.
type Look<'a> = dyn FnMut() -> anyhow::Result<Figures> + 'a;

pub(crate) fn run(args: &TopArgs) -> Result<ExitCode, Failure> {
    if args.interval < Duration::from_millis(100) {
        return Err(Failure::Usage(anyhow::anyhow!("--interval: use 100ms or more")));
    }
    if !args.once && !std::io::stdout().is_terminal() {
        return Err(Failure::Usage(anyhow::anyhow!(
            "stdout is not a terminal; use --once, with --json for scripts"
        )));
    }
    if args.interface.is_empty() {
        let source = Source::of(args.source.as_deref())?;
        show(args, &mut of_target(&source)).map_err(Failure::Work)?;
    } else {
        of_packets(args)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn show(args: &TopArgs, look: &mut Look<'_>) -> anyhow::Result<()> {
    if args.once { once(args, look) } else { watch(args, look) }
}

/// Looks at a target.
fn of_target(source: &Source) -> impl FnMut() -> anyhow::Result<Figures> + '_ {
    let mut before: Option<(Sample, Instant)> = None;
    move || {
        let now = (source.sample()?, Instant::now());
        let (sample, seconds) = match &before {
            Some((sample, at)) => (sample, (now.1 - *at).as_secs_f64()),
            None => (&now.0, 1.0),
        };
        let rates = Rates::between(sample, &now.0, seconds);
        before = Some(now);
        Ok(Figures::Target(rates))
    }
}

/// Captures while the figures are shown, and looks at what the packets show.
fn of_packets(args: &TopArgs) -> Result<(), Failure> {
    let port = args.port.as_ref();
    let (seen, traffic) = (Arc::new(Seen::default()), Mutex::new(Traffic::default()));
    let is_over = AtomicBool::new(false);
    let (begun, begins) = mpsc::sync_channel(1);
    let spec = live::Spec {
        interfaces: &args.interface,
        port: port.map_or(0, |of| of.port),
        duration: None,
        seen: Some(Arc::clone(&seen)),
    };
    let options = Options {
        selection: Selection {
            port: port.map(|of| of.port),
            protocol: port.and_then(|of| of.protocol).unwrap_or(Protocol::Auto),
            ..Selection::default()
        },
        prompt: true,
        ..Options::default()
    };
    let lock = || traffic.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        let capturing = scope.spawn(|| {
            let ready = || {
                let _ = begun.try_send(());
            };
            let stop = || is_over.load(Ordering::Relaxed);
            let mut take = |observed: &Observed, named: &Named<'_>| add(&mut lock(), observed, named);
            let result = live::analyse(&spec, &ready, &stop, |file| {
                let inputs = vec![Input { file, place: None }];
                Analysis::run(inputs, &options, Some(&mut take), &mut |_| (), &|| false)
            });
            // Also where it has not begun.
            ready();
            result
        });
        let _ = begins.recv();
        let mut at = Instant::now();
        let mut look = || {
            anyhow::ensure!(!capturing.is_finished(), "the capture has ended");
            let now = Instant::now();
            let capture = Capture {
                interfaces: args.interface.clone(),
                port: spec.port,
                packets: seen.packets.load(Ordering::Relaxed),
                drops: seen.drops.load(Ordering::Relaxed),
            };
            let rates = lock().take((now - std::mem::replace(&mut at, now)).as_secs_f64(), capture);
            Ok(Figures::Traffic(rates))
        };
        let shown = show(args, &mut look);
        is_over.store(true, Ordering::Relaxed);
        match capturing.join() {
            Ok(captured) => captured.map(|_| ())?,
            Err(_) => return Err(Failure::Work(anyhow::anyhow!("the capturing thread panicked"))),
        }
        shown.map_err(Failure::Work)
    })
}

/// Adds an operation, as its client's side of the capture shows it, or the server's where there is no other.
fn add(traffic: &mut Traffic, observed: &Observed, named: &Named<'_>) {
    let Observed { op, detail, .. } = observed;
    let ns = |ns: Option<i64>| ns.and_then(|ns| u64::try_from(ns).ok());
    let (request, response) = (detail.request, detail.response);
    traffic.add(&Operation {
        service: named.service,
        client: named.client,
        name: &op.verb.name(),
        reads: match op.kind {
            OpKind::Read => Some(true),
            OpKind::Write => Some(false),
            OpKind::Other => None,
        },
        bytes: u64::from(op.request_bytes) + u64::from(op.response_bytes),
        total_ns: ns(response.ended.since(request.began)),
        parts_ns: [
            ns(request.ended.since(request.began)),
            ns(detail.first_byte_ns()),
            ns(response.ended.since(response.began)),
            detail.thought_ns,
        ],
        depth: op.queue_depth,
        failed: op.outcome == Outcome::Failed || detail.error.is_some(),
    });
}

/// Prints the figures of one interval.
fn once(args: &TopArgs, look: &mut Look<'_>) -> anyhow::Result<()> {
    look()?;
    std::thread::sleep(args.interval);
    let figures = look()?;
    if args.json {
        return print_json_line(&json!(figures)).map_err(Failure::into_error);
    }
    let height = u16::try_from(figures.height()).unwrap_or(u16::MAX);
    let mut terminal = ratatui::Terminal::new(ratatui::backend::TestBackend::new(80, height))?;
    terminal.draw(|frame| View::default().draw(frame, &figures))?;
    let buffer = terminal.backend().buffer();
    let area = buffer.area;
    // The last line is that of the keys.
    for y in 0..area.height - 1 {
        let row: String = (0..area.width).map(|x| buffer[(x, y)].symbol()).collect();
        crate::print::print_line(format_args!("{}", row.trim_end()));
    }
    Ok(())
}

/// Time between two looks for a signal.
const STOP_LOOK: Duration = Duration::from_millis(200);

/// Draws until a key or a signal ends it. The terminal is given back as it was, also by a panic.
fn watch(args: &TopArgs, look: &mut Look<'_>) -> anyhow::Result<()> {
    // A signal, too, gives the terminal back.
    let stop = Stop::on_signals().context("cannot install signal handlers")?;
    let mut figures = look()?;
    let mut terminal = ratatui::init();
    let watched = (|| {
        let mut view = View::default();
        let mut at = Instant::now() + args.interval;
        loop {
            terminal.draw(|frame| view.draw(frame, &figures))?;
            if stop.is_raised() {
                return Ok(());
            }
            let wait = at.saturating_duration_since(Instant::now());
            if event::poll(wait.min(STOP_LOOK))? {
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
            if Instant::now() < at {
                continue;
            }
            at = Instant::now() + args.interval;
            if view.is_paused {
                continue;
            }
            // A target that is restarted is shown again when it answers.
            match look() {
                Ok(now) => (figures, view.problem) = (now, None),
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
