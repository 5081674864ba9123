//! What capture points observe, in batches: reading a capture and judging it run at the same time.

use analysis::pairing::Point;
use capture::{Counted, Observer, StreamHole};
use record::{ClockStep, ConnectionFacts, Exchange, Key, Opened, Stall};

/// Events that are delivered together.
pub(crate) const EVENTS_AT_ONCE: usize = 1024;

/// What happened.
#[derive(Debug)]
pub(crate) enum Event {
    /// A capture point begins, in this capture, which may have others.
    Point {
        point: Point,
        capture: u32,
        may_have_others: bool,
    },
    /// An observation of the capture point with this number.
    Exchange(u32, Exchange),
    Unanswered(u32, Exchange),
    Named(Key, Box<str>),
    Hole(u32, StreamHole),
    Stall(u32, Stall),
    ClockStep(u32, ClockStep),
    Opened(u32, Opened),
    Connection(u32, Box<ConnectionFacts>),
    Counted(Counted),
}

/// Takes a batch, and leaves an empty one.
pub(crate) type Deliver<'a> = dyn FnMut(&mut Vec<Event>) + 'a;

/// Gathers events, and delivers them before they are many.
pub(crate) struct Outbox<'a> {
    events: Vec<Event>,
    /// Events so far.
    pub(crate) count: u64,
    deliver: &'a mut Deliver<'a>,
}

impl<'a> Outbox<'a> {
    pub(crate) fn new(deliver: &'a mut Deliver<'a>) -> Self {
        Self { events: Vec::new(), count: 0, deliver }
    }

    #[inline]
    pub(crate) fn push(&mut self, event: Event) {
        self.events.push(event);
        self.count += 1;
        if self.events.len() >= EVENTS_AT_ONCE {
            self.flush();
        }
    }

    /// Delivers what there is.
    pub(crate) fn flush(&mut self) {
        (self.deliver)(&mut self.events);
        debug_assert!(self.events.is_empty(), "a batch is taken as a whole");
    }

    /// The observer of the capture point with this number.
    #[inline]
    pub(crate) fn observer(&mut self, vantage: u32) -> PointObserver<'_, 'a> {
        PointObserver { vantage, outbox: self }
    }
}

/// The observer of one capture point.
pub(crate) struct PointObserver<'b, 'a> {
    vantage: u32,
    outbox: &'b mut Outbox<'a>,
}

impl Observer for PointObserver<'_, '_> {
    #[inline]
    fn exchange(&mut self, exchange: &Exchange) {
        self.outbox.push(Event::Exchange(self.vantage, *exchange));
    }

    fn named(&mut self, key: Key, name: &str) {
        self.outbox.push(Event::Named(key, name.into()));
    }

    fn hole(&mut self, hole: StreamHole) {
        self.outbox.push(Event::Hole(self.vantage, hole));
    }

    fn unanswered(&mut self, exchange: &Exchange) {
        self.outbox.push(Event::Unanswered(self.vantage, *exchange));
    }

    fn stall(&mut self, stall: &Stall) {
        self.outbox.push(Event::Stall(self.vantage, *stall));
    }

    fn clock_step(&mut self, step: &ClockStep) {
        self.outbox.push(Event::ClockStep(self.vantage, *step));
    }

    fn opened(&mut self, opened: &Opened) {
        self.outbox.push(Event::Opened(self.vantage, *opened));
    }

    fn connection(&mut self, facts: &ConnectionFacts) {
        self.outbox.push(Event::Connection(self.vantage, Box::new(*facts)));
    }

    fn counted(&mut self, counted: &Counted) {
        self.outbox.push(Event::Counted(*counted));
    }
}
