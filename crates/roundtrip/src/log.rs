//! The log, on stderr: one line for each event, regardless of peers' text in it. What repeats without end is summed up.

mod repeats;

use std::fmt;
use std::io::{self, IsTerminal as _, Write};
use std::sync::OnceLock;
use std::sync::{Mutex, PoisonError};

use control::events::Events;
use output::text::{line, log};
use serde_json::{Map, Value, json};
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt as _;
use tracing_subscriber::filter::{FilterExt as _, filter_fn};
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{DefaultFields, FormatEvent, FormatFields, Writer, debug_fn};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::reload;

use self::repeats::Repeats;

/// The form of a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Format {
    /// Plain text; with colours on a terminal.
    #[default]
    Text,
    /// A JSON object for each line.
    Json,
    /// Plain text without time, with the priority of the journal before it (sd-daemon(3)).
    Journald,
}

/// Replaces the levels of the running log.
static LEVELS: OnceLock<Box<dyn Fn(EnvFilter) + Send + Sync>> = OnceLock::new();
/// What was asked for last, where it is not what ROUNDTRIP_LOG says.
static ASKED: Mutex<Option<String>> = Mutex::new(None);

/// Starts the log with the levels of ROUNDTRIP_LOG.
pub(crate) fn start(format: Format) {
    // This is the only subscriber, so setting it cannot fail.
    let _ = tracing::subscriber::set_global_default(subscriber(levels(), format, is_coloured(), io::stderr));
}

/// The levels of ROUNDTRIP_LOG.
fn levels() -> EnvFilter {
    EnvFilter::try_from_env("ROUNDTRIP_LOG").unwrap_or_else(|_| "warn".into())
}

fn asked() -> std::sync::MutexGuard<'static, Option<String>> {
    ASKED.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The levels in force.
pub(crate) fn level() -> String {
    asked().clone().unwrap_or_else(|| levels().to_string())
}

/// Longest text of levels.
const LEVELS_BYTES_MAX: usize = 1024;

/// Replaces the levels.
///
/// # Errors
/// When they cannot be read.
pub(crate) fn set_level(text: &str) -> Result<(), String> {
    if text.len() > LEVELS_BYTES_MAX {
        return Err(format!("levels: use at most {LEVELS_BYTES_MAX} bytes"));
    }
    // Values of fields would be regular expressions, which take any time and memory.
    let filter = EnvFilter::builder().with_regex(false).parse(text);
    let filter = filter.map_err(|error| format!("level '{text}': {error}"))?;
    if let Some(replace) = LEVELS.get() {
        replace(filter);
        *asked() = Some(text.to_owned());
    }
    Ok(())
}

/// Switches the debug log on, or off again.
pub(crate) fn toggle_debug() {
    let Some(replace) = LEVELS.get() else { return };
    if asked().is_none() {
        *asked() = Some("debug".to_owned());
        replace("debug".into());
        tracing::info!("SIGUSR1: the debug log is on; another one switches it off");
    } else {
        tracing::info!("SIGUSR1: the debug log is off");
        *asked() = None;
        replace(levels());
    }
}

/// Says what was left out because it repeats, if the time for it has come or never will again.
pub(crate) fn sum_up(is_last: bool) {
    for (level, text) in repeats::due(std::time::Instant::now(), is_last) {
        match level {
            Level::ERROR => tracing::error!(target: "repeated", "{text}"),
            _ => tracing::warn!(target: "repeated", "{text}"),
        }
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
    format: Format,
    coloured: bool,
    out: impl Fn() -> W + Send + Sync + 'static,
) -> impl Subscriber + Send + Sync {
    let (filter, levels) = reload::Layer::new(filter);
    // The first subscriber is the log's; tests make others.
    let _ = LEVELS.set(Box::new(move |filter| {
        if let Err(error) = levels.reload(filter) {
            tracing::warn!("cannot change the levels of the log: {error}");
        }
    }));
    let coloured = coloured && format == Format::Text;
    let layer = tracing_subscriber::fmt::layer().with_writer(move || LogWriter { out: out(), coloured });
    let layer = match format {
        Format::Text => {
            let fields = debug_fn(|writer, field, value| match field.name() {
                "message" => write!(writer, "{}", line(format_args!("{value:?}"))),
                name => write!(writer, "{name}={}", line(format_args!("{value:?}"))),
            });
            layer.with_ansi(coloured).fmt_fields(fields.delimited(" ")).boxed()
        }
        Format::Json => layer.with_ansi(false).fmt_fields(DefaultFields::new()).event_format(AsJson).boxed(),
        Format::Journald => {
            layer.with_ansi(false).fmt_fields(DefaultFields::new()).event_format(ForJournal).boxed()
        }
    };
    // What they sum up has passed.
    let sums = filter_fn(|metadata| metadata.target() == "repeated");
    let told = Audit.with_filter(filter_fn(|metadata| metadata.target() == "audit"));
    tracing_subscriber::registry().with(layer.with_filter(filter.or(sums).and(Repeats))).with(told)
}

/// The fields of an event, as JSON.
#[derive(Default)]
struct Fields(Map<String, Value>);

impl Fields {
    fn of(event: &Event<'_>) -> Map<String, Value> {
        let mut fields = Self::default();
        event.record(&mut fields);
        fields.0
    }
}

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), json!(format!("{value:?}")));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.insert(field.name().to_owned(), json!(value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.insert(field.name().to_owned(), json!(value));
    }
}

/// Seconds since 1970.
fn now() -> f64 {
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).map_or(0.0, |time| time.as_secs_f64())
}

/// A line of JSON for each event.
struct AsJson;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for AsJson
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let mut object = Fields::of(event);
        object.insert("time".to_owned(), json!(now()));
        object.insert("level".to_owned(), json!(event.metadata().level().as_str()));
        object.insert("target".to_owned(), json!(event.metadata().target()));
        writeln!(out, "{}", Value::Object(object))
    }
}

/// A line for the journal.
struct ForJournal;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N>
    for ForJournal
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut out: Writer<'_>, event: &Event<'_>) -> fmt::Result {
        let priority = match *event.metadata().level() {
            Level::ERROR => 3,
            Level::WARN => 4,
            Level::INFO => 6,
            _ => 7,
        };
        let mut fields = Fields::of(event);
        let message = fields.remove("message");
        let message = message.as_ref().and_then(Value::as_str).unwrap_or_default();
        write!(out, "<{priority}>{}: {}", event.metadata().target(), line(format_args!("{message}")))?;
        for (name, value) in &fields {
            let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
            write!(out, " {name}={}", line(format_args!("{text}")))?;
        }
        writeln!(out)
    }
}

/// Where audited events go that are followed over the control socket.
static EVENTS: OnceLock<Events> = OnceLock::new();

/// The audited events: logins, refusals, changes.
pub(crate) fn events() -> Events {
    EVENTS.get_or_init(Events::default).clone()
}

/// Tells audited events to those that follow them.
struct Audit;

impl<S: Subscriber> Layer<S> for Audit {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        if let Some(events) = EVENTS.get() {
            let mut object = Fields::of(event);
            let name = object.remove("message").unwrap_or_default();
            object.insert("event".to_owned(), name);
            object.insert("time".to_owned(), json!(now()));
            events.tell(&Value::Object(object));
        }
    }
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
            let subscriber = subscriber("warn".into(), Format::Text, coloured, move || out.clone());
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

    #[test]
    fn json_and_journal_have_one_line_for_each_event() {
        for format in [Format::Json, Format::Journald] {
            let (shared, name) = (Shared::default(), "iqn.\x1b[31mred\n<0>FAKE");
            let out = shared.clone();
            let subscriber = subscriber("info".into(), format, true, move || out.clone());
            tracing::subscriber::with_default(subscriber, || {
                tracing::warn!(initiator = name, count = 7, "login of {name}");
                tracing::info!("the next one");
            });
            let text = String::from_utf8(shared.0.lock().unwrap().clone()).unwrap();
            assert_eq!(text.lines().count(), 2, "{text:?}");
            assert!(!text.contains('\x1b'), "{text:?}");
            if format == Format::Json {
                let first: Value = serde_json::from_str(text.lines().next().unwrap()).unwrap();
                assert_eq!((first["initiator"].as_str(), first["count"].as_u64()), (Some(name), Some(7)));
                assert_eq!(first["level"], "WARN");
            } else {
                assert!(text.starts_with("<4>roundtrip::log") && text.contains("\n<6>"), "{text:?}");
            }
        }
    }
}
