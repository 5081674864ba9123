//! Warnings and errors that repeat: the first few of a second are written, the others summed up. A full disk that fails 20,000 writes in a
//! second must not fill another one with lines.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata};
use tracing_subscriber::layer::{Context, Filter};

use super::Fields;

/// Lines of one kind that are written in a window.
const WRITTEN: u64 = 10;
/// When a window is forgotten that nobody has summed up.
const FORGOTTEN: Duration = Duration::from_secs(10);
/// How long a window lasts.
const WINDOW: Duration = Duration::from_secs(1);

/// The lines of one kind: from one place of the program.
struct Kind {
    begun: Instant,
    seen: u64,
    level: Level,
    last: String,
}

static KINDS: Mutex<Option<HashMap<Identifier, Kind>>> = Mutex::new(None);

/// Lets through what is not repeated too often.
#[derive(Debug)]
pub(super) struct Repeats;

impl<S> Filter<S> for Repeats {
    fn enabled(&self, _: &Metadata<'_>, _: &Context<'_, S>) -> bool {
        true
    }

    fn event_enabled(&self, event: &Event<'_>, _: &Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // The sums themselves, and what is no failure, always pass.
        if *metadata.level() > Level::WARN || metadata.target() == "repeated" {
            return true;
        }
        let text = || {
            let mut fields = Fields::of(event);
            let message = fields.remove("message");
            let mut text =
                message.as_ref().and_then(|message| message.as_str()).unwrap_or_default().to_owned();
            for (name, value) in fields {
                text.push_str(&format!(
                    " {name}={}",
                    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
                ));
            }
            text
        };
        let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
        count(kinds.get_or_insert_default(), metadata.callsite(), *metadata.level(), Instant::now(), text)
    }
}

/// Counts a line; returns whether it is to be written.
fn count(
    kinds: &mut HashMap<Identifier, Kind>,
    place: Identifier,
    level: Level,
    now: Instant,
    text: impl FnOnce() -> String,
) -> bool {
    // As many as there are places in the program.
    let kind = kinds.entry(place).or_insert_with(|| Kind { begun: now, seen: 0, level, last: String::new() });
    // Where nothing asks for the sums, a line must come through again some time.
    let is_over = now - kind.begun >= WINDOW && kind.seen <= WRITTEN;
    if is_over || now - kind.begun >= FORGOTTEN {
        (kind.begun, kind.seen) = (now, 0);
    }
    kind.seen += 1;
    if kind.seen > WRITTEN {
        kind.last = text();
    }
    kind.seen <= WRITTEN
}

/// Takes the sums of windows that have ended, or of all.
pub(super) fn due(now: Instant, is_last: bool) -> Vec<(Level, String)> {
    let mut kinds = KINDS.lock().unwrap_or_else(PoisonError::into_inner);
    kinds.as_mut().map(|kinds| sums(kinds, now, is_last)).unwrap_or_default()
}

fn sums(kinds: &mut HashMap<Identifier, Kind>, now: Instant, is_last: bool) -> Vec<(Level, String)> {
    let mut all = Vec::new();
    for kind in kinds.values_mut() {
        let lasted = now - kind.begun;
        if (is_last || lasted >= WINDOW) && kind.seen > WRITTEN {
            let more = kind.seen - WRITTEN;
            all.push((
                kind.level,
                format!("{more} more in {:.1} s, the last one: {}", lasted.as_secs_f64(), kind.last),
            ));
            (kind.begun, kind.seen) = (now, 0);
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use tracing::callsite::Callsite as _;
    use tracing::callsite::DefaultCallsite;
    use tracing::metadata::Kind as Of;

    static METADATA: Metadata<'static> = Metadata::new(
        "a place",
        "a target",
        Level::WARN,
        None,
        None,
        None,
        tracing::field::FieldSet::new(&[], tracing::callsite::Identifier(&PLACE)),
        Of::EVENT,
    );
    static PLACE: DefaultCallsite = DefaultCallsite::new(&METADATA);

    #[test]
    fn the_first_lines_are_written_and_the_others_summed_up() {
        let (mut kinds, begun) = (HashMap::new(), Instant::now());
        let place = || PLACE.metadata().callsite();
        let line = |kinds: &mut _, n: u64, at: Duration| {
            count(kinds, place(), Level::WARN, begun + at, || format!("failure {n}"))
        };
        let written = (0..10_117).filter(|&n| line(&mut kinds, n, Duration::from_millis(n / 30))).count();
        assert_eq!(written, 10);
        assert!(
            sums(&mut kinds, begun + Duration::from_millis(900), false).is_empty(),
            "the window has not ended"
        );
        let sums_now = sums(&mut kinds, begun + Duration::from_millis(1500), false);
        assert_eq!(sums_now, [(Level::WARN, "10107 more in 1.5 s, the last one: failure 10116".to_owned())]);
        // A new window, and one that had nothing to sum up.
        assert!(
            line(&mut kinds, 0, Duration::from_millis(1600))
                && sums(&mut kinds, begun + Duration::from_secs(9), false).is_empty()
        );
        assert!((0..10).all(|n| line(&mut kinds, n, Duration::from_secs(10))));
        assert!(!line(&mut kinds, 0, Duration::from_secs(10)));
        // At the end nothing is kept back.
        assert_eq!(sums(&mut kinds, begun + Duration::from_secs(10), true).len(), 1);
    }
}
