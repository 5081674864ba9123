//! What happens in a target, for those who follow it: the last events, and those to come.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::Value;
use tokio::sync::watch;

/// Events that are kept for those who read slowly.
const KEPT: usize = 1024;

/// The last events.
#[derive(Debug)]
struct Last {
    lines: VecDeque<Arc<str>>,
    /// The number of the first one that is kept.
    first: u64,
}

/// Where events are told and followed.
#[derive(Clone, Debug)]
pub struct Events {
    last: Arc<Mutex<Last>>,
    count: watch::Sender<u64>,
}

impl Default for Events {
    fn default() -> Self {
        let last = Last { lines: VecDeque::new(), first: 0 };
        Self { last: Arc::new(Mutex::new(last)), count: watch::Sender::new(0) }
    }
}

impl Events {
    /// Tells an event. It never waits: who reads too slowly loses the oldest events, and is told how many.
    pub fn tell(&self, event: &Value) {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if last.lines.len() == KEPT {
            last.lines.pop_front();
            last.first += 1;
        }
        last.lines.push_back(format!("{event}\n").into());
        let count = last.first + last.lines.len() as u64;
        drop(last);
        self.count.send_replace(count);
    }

    /// Follows the events from now on.
    #[must_use]
    pub fn follow(&self) -> Follower {
        let count = self.count.subscribe();
        let next = *count.borrow();
        Follower { events: self.clone(), count, next }
    }
}

/// A reader of events.
#[derive(Debug)]
pub struct Follower {
    events: Events,
    count: watch::Receiver<u64>,
    next: u64,
}

impl Follower {
    /// Waits for events, and returns them as lines of JSON. The first line says how many were lost, if any were.
    pub async fn next(&mut self) -> Option<String> {
        let next = self.next;
        self.count.wait_for(|count| *count > next).await.ok()?;
        let last = self.events.last.lock().unwrap_or_else(PoisonError::into_inner);
        let lost = last.first.saturating_sub(self.next);
        let skipped = self.next.saturating_sub(last.first) as usize;
        let mut text = String::new();
        if lost > 0 {
            text.push_str(&format!("{}\n", serde_json::json!({ "event": "lost", "count": lost })));
        }
        last.lines.iter().skip(skipped).for_each(|line| text.push_str(line));
        self.next = last.first + last.lines.len() as u64;
        Some(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_follower_hears_what_comes_and_what_it_lost() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().expect("runtime");
        let events = Events::default();
        events.tell(&json!({ "n": 0 }));
        let mut follower = events.follow();
        (1..=3).for_each(|n| events.tell(&json!({ "n": n })));
        assert_eq!(runtime.block_on(follower.next()).as_deref(), Some("{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n"));
        (0..KEPT + 5).for_each(|n| events.tell(&json!({ "n": n })));
        let text = runtime.block_on(follower.next()).expect("events");
        assert!(text.starts_with("{\"count\":5,\"event\":\"lost\"}\n{\"n\":5}\n"), "{}", &text[..80]);
        assert_eq!(text.lines().count(), KEPT + 1);
    }
}
