//! An observer that keeps everything, for tests.

use record::{ClockStep, ConnectionFacts, Exchange, Key, Stall};

use super::{Counted, Observer, StreamHole};

#[derive(Default)]
pub(crate) struct Seen {
    pub(crate) exchanges: Vec<Exchange>,
    pub(crate) unanswered: Vec<Exchange>,
    pub(crate) names: Vec<(Key, String)>,
    pub(crate) holes: Vec<StreamHole>,
    pub(crate) stalls: Vec<Stall>,
    pub(crate) steps: Vec<ClockStep>,
    pub(crate) facts: Vec<ConnectionFacts>,
    pub(crate) counted: Vec<Counted>,
}

impl Observer for Seen {
    fn exchange(&mut self, exchange: &Exchange) {
        self.exchanges.push(*exchange);
    }
    fn unanswered(&mut self, exchange: &Exchange) {
        self.unanswered.push(*exchange);
    }
    fn named(&mut self, key: Key, name: &str) {
        self.names.push((key, name.to_owned()));
    }
    fn hole(&mut self, hole: StreamHole) {
        self.holes.push(hole);
    }
    fn stall(&mut self, stall: &Stall) {
        self.stalls.push(*stall);
    }
    fn clock_step(&mut self, step: &ClockStep) {
        self.steps.push(*step);
    }
    fn connection(&mut self, facts: &ConnectionFacts) {
        self.facts.push(*facts);
    }
    fn counted(&mut self, counted: &Counted) {
        self.counted.push(*counted);
    }
}
