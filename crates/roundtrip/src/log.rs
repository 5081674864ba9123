//! The log, on stderr: one line for each event, regardless of peers' text in it.

use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use output::text::{line, log};
use tracing::Subscriber;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::fmt::format::debug_fn;

/// Replaces the levels of the running log.
static LEVELS: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();
/// Whether the debug log is on beside what was asked for.
static IS_DEBUG: AtomicBool = AtomicBool::new(false);

/// Starts the log with the levels of ROUNDTRIP_LOG.
pub(crate) fn start() {
    // This is the only subscriber, so setting it cannot fail.
    let _ = tracing::subscriber::set_global_default(subscriber(levels(), is_coloured(), io::stderr));
}

/// The levels of ROUNDTRIP_LOG.
fn levels() -> EnvFilter {
    EnvFilter::try_from_env("ROUNDTRIP_LOG").unwrap_or_else(|_| "warn".into())
}

/// Switches the debug log on, or off again.
pub(crate) fn toggle_debug() {
    let Some(replace) = LEVELS.get() else { return };
    let is_debug = !IS_DEBUG.fetch_xor(true, Ordering::Relaxed);
    if is_debug {
        replace("debug".into());
        tracing::info!("SIGUSR1: the debug log is on; another one switches it off");
    } else {
        tracing::info!("SIGUSR1: the debug log is off");
        replace(levels());
    }
}

/// Whether the log is coloured: on a terminal, unless NO_COLOR is set (no-color.org).
fn is_coloured() -> bool {
    io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Fields are escaped one by one, so the colours in an event are the subscriber's own; the writer keeps only these control
/// sequences.
fn subscriber<W: Write + 'static>(
    filter: EnvFilter,
    coloured: bool,
    out: impl Fn() -> W + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    let fields = debug_fn(|writer, field, value| match field.name() {
        "message" => write!(writer, "{}", line(format_args!("{value:?}"))),
        name => write!(writer, "{name}={}", line(format_args!("{value:?}"))),
    });
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(coloured)
        .fmt_fields(fields.delimited(" "))
        .with_writer(move || LogWriter { out: out(), coloured })
        .with_filter_reloading();
    let levels = builder.reload_handle();
    // The first subscriber is the log's; tests make others.
    let _ = LEVELS.set(Box::new(move |filter| {
        if let Err(error) = levels.reload(filter) {
            tracing::warn!("cannot change the levels of the log: {error}");
        }
    }));
    builder.finish()
}

/// Writes events of the log to `out`, each as one line.
#[derive(Debug)]
struct LogWriter<W> {
    out: W,
    coloured: bool,
}

impl<W: Write> Write for LogWriter<W> {
    /// Writes an event, which the subscriber passes in one call.
    fn write(&mut self, event: &[u8]) -> io::Result<usize> {
        let text = log(&String::from_utf8_lossy(event), self.coloured);
        self.out.write_all(text.as_bytes())?;
        Ok(event.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn peers_cannot_colour_or_begin_lines_of_the_log() {
        for coloured in [false, true] {
            let (shared, name) = (Shared::default(), "iqn.\x1b[31mred\x1b]0;t\x07\nFAKE\u{202e}\u{9b}2J");
            let out = shared.clone();
            let subscriber = subscriber("warn".into(), coloured, move || out.clone());
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(initiator = name, %name, ?name, "login of {name}");
                tracing::warn!("the next one");
            });
            let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 2, "{text:?}");
            assert_eq!(text.contains("\x1b["), coloured, "{text:?}");
            for control in ["\x1b[31m", "\x1b]", "\x07", "\nFAKE", "\u{202e}", "\u{9b}"] {
                assert!(!text.contains(control), "{control:?}: {text:?}");
            }
        }
    }
}
