//! The first operations of a connection whose capture begins in the middle.
//!
//! Requests may have been in flight before it, and their answers are taken for those of the first requests that were captured. Then more
//! answers come than there are requests. So what is paired is kept until the client asks while none is in flight, and no answer has
//! been too many. A client that is never without a request in flight shows none of this: its operations are told as turns, which may
//! hold another number of requests, until it is.

use record::Exchange;

use super::Requests;

/// Most operations that are kept.
const KEPT_MAX: usize = 64;

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Beginning {
    kept: Vec<Exchange>,
    /// Requests have numbers that others may have had.
    has_numbers: bool,
}

impl Beginning {
    /// Keeps an operation, and tells those before it if they are too many.
    pub(super) fn keep(&mut self, exchange: Exchange, done: &mut Vec<Exchange>) {
        if self.kept.len() >= KEPT_MAX {
            self.tell(done);
        }
        self.kept.push(exchange);
    }

    /// Tells what is kept, of which the answers may be those of other requests.
    fn tell(&mut self, done: &mut Vec<Exchange>) {
        done.extend(self.kept.drain(..).map(|exchange| Exchange { overlaps: true, ..exchange }));
    }

    pub(super) fn has_numbers(&self) -> bool {
        self.has_numbers
    }
}

impl Requests {
    /// The message at hand is of an answer, and no request awaits one: those that are kept may have been of requests before.
    #[cold]
    pub(crate) fn unasked(&mut self) {
        // Those of requests that were left out tell nothing of holes to come.
        if self.left_with_lost.is_none() {
            self.unasked_ack = Some(self.passing.mark.ack);
        }
        if let Some(Beginning { kept, .. }) = &mut self.beginning {
            self.counted.abandoned += kept.len() as u64;
            self.pace.ended -= kept.len() as u64;
            kept.clear();
        }
    }

    /// A request begins whose number those before it may have had.
    pub(crate) fn begins_numbered(&mut self) {
        let is_idle = self.queue.is_empty() && self.by_id.is_empty();
        if let Some(beginning) = &mut self.beginning {
            beginning.has_numbers = true;
            if is_idle && !beginning.kept.is_empty() {
                self.end_beginning();
            }
        }
    }

    /// A request begins while none is in flight, or the capture ends.
    pub(super) fn end_beginning(&mut self) {
        if let Some(Beginning { mut kept, .. }) = self.beginning.take() {
            self.done.append(&mut kept);
        }
    }
}
