//! The records of a run's requests, if they are requested.

use std::time::Instant;

use record::{Op, OpKind, Outcome, Stamp, Verb, Word};
use socket::clock;

use super::connection::Flight;
use super::request::Method;

/// Which records a thread keeps.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordSpec {
    /// Most records; 0 keeps none.
    pub(super) limit: usize,
    /// Connections of the run.
    pub(super) queue_depth: u32,
    pub(super) verb: Verb,
    pub(super) kind: OpKind,
}

impl RecordSpec {
    /// The verb of a method.
    pub(super) fn verb(method: &Method) -> Verb {
        Verb::Http(Word::new(method.name().as_bytes()))
    }
}

/// The records of a thread.
#[derive(Debug)]
pub(super) struct Records {
    spec: RecordSpec,
    /// The same moment on both clocks: requests are timed by the monotonic one, records are joined with packets, which the
    /// kernel stamps in real time.
    anchor: (Instant, u64),
    ops: Vec<Op>,
    over_limit: u64,
}

impl Records {
    pub(super) fn new(spec: RecordSpec) -> Self {
        Self { spec, anchor: (Instant::now(), clock::realtime_ns()), ops: Vec::new(), over_limit: 0 }
    }

    /// Adds a request of the connection with this local port, which transferred `data_bytes` of bodies and ended at `finish`,
    /// if it has a response.
    #[inline]
    pub(super) fn add(
        &mut self,
        port: u16,
        flight: &Flight,
        data_bytes: u64,
        outcome: Outcome,
        finish: Option<Instant>,
    ) {
        if self.spec.limit == 0 {
            return;
        }
        if self.ops.len() == self.spec.limit {
            self.over_limit += 1;
            return;
        }
        let word = |bytes: u64| u32::try_from(bytes).unwrap_or(u32::MAX);
        self.ops.push(Op {
            connection: port.into(),
            tag: flight.number,
            verb: self.spec.verb,
            kind: self.spec.kind,
            outcome,
            queue_depth: self.spec.queue_depth,
            data_bytes: word(data_bytes),
            request_bytes: word(flight.position as u64),
            response_bytes: word(flight.received_bytes),
            start: self.stamp(flight.begun),
            finish: self.stamp(finish),
            ..Op::default()
        });
    }

    /// Takes the records, and the number of those beyond the limit.
    pub(super) fn take(&mut self) -> (Vec<Op>, u64) {
        (std::mem::take(&mut self.ops), self.over_limit)
    }

    fn stamp(&self, at: Option<Instant>) -> Stamp {
        let (instant, ns) = self.anchor;
        let Some(at) = at else { return Stamp::MISSING };
        let after = at.saturating_duration_since(instant).as_nanos() as u64;
        let before = instant.saturating_duration_since(at).as_nanos() as u64;
        Stamp::at(ns + after - before.min(ns))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn spec(limit: usize) -> RecordSpec {
        RecordSpec { limit, queue_depth: 8, verb: RecordSpec::verb(&Method::post()), kind: OpKind::Write }
    }

    #[test]
    fn records_have_real_times_and_are_bounded() {
        let mut records = Records::new(spec(2));
        let (instant, ns) = records.anchor;
        let at = |us| instant + Duration::from_micros(us);
        let mut flight = Flight::new(Some(at(5)));
        (flight.number, flight.received_bytes) = (7, 40);
        records.add(4711, &flight, 100, Outcome::Good, Some(at(15)));
        records.add(4711, &flight, u64::MAX, Outcome::Failed, None);
        records.add(4711, &flight, 100, Outcome::Good, Some(at(15)));
        let (ops, over_limit) = records.take();
        assert_eq!((ops.len(), over_limit), (2, 1));
        let first = &ops[0];
        assert_eq!((first.connection, first.tag, first.queue_depth, first.data_bytes), (4711, 7, 8, 100));
        assert_eq!((first.start.ns(), first.finish.ns()), (Some(ns + 5_000), Some(ns + 15_000)));
        assert_eq!((first.verb.name(), first.kind, first.response_bytes), ("POST".into(), OpKind::Write, 40));
        assert_eq!((ops[1].finish, ops[1].data_bytes), (Stamp::MISSING, u32::MAX));
        let mut none = Records::new(spec(0));
        none.add(1, &flight, 1, Outcome::Good, None);
        assert_eq!(none.take(), (Vec::new(), 0));
    }

    #[test]
    fn methods_have_their_names() {
        let name = |method: &str| RecordSpec::verb(&method.parse().unwrap()).name();
        assert_eq!((name("GET"), name("PROPPATCH")), ("GET".to_owned(), "PROPPATCH".to_owned()));
    }
}
