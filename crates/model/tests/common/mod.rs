//! A ring and a comparison that several tests use.

#![allow(dead_code, reason = "no test uses all of it")]

use model::Stage;

/// W1 1 (latency 2), SP 8 (4), W2 5 (2), CP 6 (10): 38 us round.
pub(crate) fn four() -> Vec<Stage> {
    vec![
        Stage::own("W1", 1.0, 2.0),
        Stage::own("SP", 8.0, 4.0),
        Stage::own("W2", 5.0, 2.0),
        Stage::own("CP", 6.0, 10.0),
    ]
}

/// Compares with a relative tolerance of 1e-9, absolute below 1.
pub(crate) fn close(value: f64, expected: f64) {
    assert!((value - expected).abs() <= 1e-9 * expected.abs().max(1.0), "{value} is not {expected}");
}
