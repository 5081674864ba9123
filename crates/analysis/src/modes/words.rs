//! Numbers in the sentences of findings.

/// third, 21st.
pub(super) fn ordinal(n: u32) -> String {
    match n {
        2 => "second".to_owned(),
        3 => "third".to_owned(),
        4 => "fourth".to_owned(),
        5 => "fifth".to_owned(),
        n => match (n % 10, n % 100) {
            (1, r) if r != 11 => format!("{n}st"),
            (2, r) if r != 12 => format!("{n}nd"),
            (3, r) if r != 13 => format!("{n}rd"),
            _ => format!("{n}th"),
        },
    }
}

/// Milliseconds with three digits.
pub(super) fn milliseconds(ms: f64) -> String {
    match ms.abs() {
        v if v >= 100.0 => format!("{ms:.0}"),
        v if v >= 10.0 => format!("{ms:.1}"),
        _ => format!("{ms:.2}"),
    }
}
