//! The stages of a run: what counts in the ramp, the measured time and the drain, and when requests of a schedule start.

use std::io::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::tests::{WARM_UP, WHOLE, get, serve};
use super::*;

/// The server fails during the ramp and the drain only: the measured time is as good as it was.
#[test]
fn failures_of_the_ramp_are_apart_from_those_of_the_measured_time() {
    let begun = Instant::now();
    let ramp = Duration::from_millis(300);
    let (address, _) = serve(move |stream, number| {
        let is_good = number < WARM_UP || begun.elapsed() > ramp / 2;
        let text = format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", if is_good { 200 } else { 503 });
        stream.write_all(text.as_bytes()).is_ok()
    });
    let result = HttpRun { ramp, ..get(1) }.run(address).unwrap().result;
    assert_eq!((result.errors, result.failures.len(), result.failed_mean_us), (0, 0, None), "{result:?}");
    assert!(result.unmeasured_errors > 0 && result.operations > 0, "{result:?}");
    assert_eq!(result.first_error.unwrap(), "HTTP status 503");
    let (address, _) = serve(|stream, number| number >= WARM_UP || stream.write_all(WHOLE).is_ok());
    // An open loop ends on time, and leaves requests without an answer to the drain.
    let (patience, rate) = (Duration::from_millis(100), Some(1000.0));
    let result = HttpRun { patience, rate, ..get(1) }.run(address).unwrap().result;
    assert_eq!((result.errors, result.unmeasured_errors, result.operations), (0, 1, 0), "{result:?}");
}

#[test]
fn the_ramp_is_before_the_measured_time_and_in_no_figure() {
    let ramp = Duration::from_millis(200);
    for rate in [None, Some(500.0)] {
        let before = Instant::now();
        let early = Arc::new(AtomicU64::new(0));
        let in_ramp = Arc::clone(&early);
        let (address, counts) = serve(move |stream, number| {
            // The ramp begins later than this.
            if number >= WARM_UP && before.elapsed() < ramp {
                in_ramp.fetch_add(1, Ordering::SeqCst);
            }
            stream.write_all(WHOLE).is_ok()
        });
        let run = HttpRun { ramp, rate, runtime: Duration::from_millis(100), ..get(2) };
        let result = run.run(address).unwrap().result;
        assert!(before.elapsed() >= ramp + Duration::from_millis(100), "{result:?}");
        assert!((0.05..0.28).contains(&result.seconds), "{result:?}");
        let all = counts.requests.load(Ordering::SeqCst) as u64;
        let early = early.load(Ordering::SeqCst);
        assert!(early > 0 && result.operations > 0, "{early} of {all}");
        assert!(result.operations + early <= all, "{} and {early} of {all}", result.operations);
        let in_series: u64 = result.series.iter().map(|second| second.operations).sum();
        assert_eq!(in_series, result.operations);
        assert_eq!(result.connections.unwrap().opened, 2);
    }
}

#[test]
fn poisson_requests_are_sent_at_random_times_and_recorded() {
    let (address, _) = serve(|stream, number| {
        let text =
            if number % 4 == 3 { "HTTP/1.1 404 X\r\nContent-Length: 2\r\n\r\nno".as_bytes() } else { WHOLE };
        stream.write_all(text).is_ok()
    });
    let run = |arrival, rate| HttpRun {
        arrival,
        rate,
        record_ops: 1000,
        ramp: Duration::from_millis(100),
        runtime: Duration::from_millis(300),
        ..get(2)
    };
    let recorded = run(Arrival::Poisson, Some(500.0)).run(address).unwrap();
    let result = &recorded.result;
    let good = recorded.ops.iter().filter(|op| op.outcome == record::Outcome::Good).count() as u64;
    assert!(good >= result.operations && recorded.ops_over_limit == 0, "{result:?}");
    assert!((120..290).contains(&recorded.ops.len()), "200 on average: {}", recorded.ops.len());
    assert_eq!(result.arrival, Some(Arrival::Poisson));
    let mut starts: Vec<u64> = recorded.ops.iter().map(|op| op.start.ns().unwrap()).collect();
    starts.sort_unstable();
    let mut intervals: Vec<u64> = starts.windows(2).map(|pair| pair[1] - pair[0]).collect();
    intervals.sort_unstable();
    // Equal intervals would all be 2 ms; of exponential ones a fifth is below 0.45 ms and a fifth above 3.2 ms.
    assert!(intervals[intervals.len() / 5] < 1_000_000, "{intervals:?}");
    assert!(intervals[intervals.len() * 4 / 5] > 2_500_000, "{intervals:?}");
    let closed = run(Arrival::Constant, None);
    let closed = HttpRun { record_ops: 5, ..closed }.run(address).unwrap();
    assert_eq!((closed.ops.len(), closed.result.arrival), (5, None));
    let measured = closed.result.operations + closed.result.errors;
    assert!(closed.ops_over_limit > measured + 10, "the ramp is recorded, too: {measured}");
    for op in &closed.ops {
        let is_good = op.outcome == record::Outcome::Good;
        let (data, response) = if is_good { (5, WHOLE.len()) } else { (2, 39) };
        assert_eq!(
            (op.data_bytes, op.response_bytes as usize, op.queue_depth),
            (data, response, 2),
            "{op:?}"
        );
        assert!(op.finish.since(op.start).unwrap() > 0 && op.connection > 1023, "{op:?}");
        assert_eq!(op.request_bytes as usize, closed_request_bytes());
    }
}

/// Bytes of the request of [`get`].
fn closed_request_bytes() -> usize {
    get(1).request.head().len()
}
