//! Findings in the making.

use super::shell::{quoted, word};
use crate::change::{Change, Setting};
use crate::finding::{Cost, Finding, Severity};

/// A finding without cost and remedy.
pub(super) fn finding(id: &str, severity: Severity, subject: &str, measured: String, why: &str) -> Finding {
    Finding {
        id: id.to_owned(),
        severity,
        subject: subject.to_owned(),
        measured,
        why: why.to_owned(),
        cost: None,
        commands: Vec::new(),
        changes: Vec::new(),
        other_end: None,
    }
}

/// Remedies and costs, one after another.
pub(super) trait Draft: Sized {
    /// The time that it may add to a round trip, microseconds.
    fn adds_us(self, us: f64) -> Self;
    /// The most that a connection can carry with it, bits per second.
    fn carries_at_most(self, bits_per_second: f64) -> Self;
    /// A command for a person; `tune` does not run it.
    fn command(self, command: String) -> Self;
    /// A kernel parameter that mends it.
    fn sysctl(self, name: &str, value: &str) -> Self;
    /// A file below /sys that mends it.
    fn sysfs(self, path: &str, value: &str) -> Self;
    /// Files below /sys that mend it together: one command for a person, a change of each for `tune`.
    fn sysfs_all(self, command: String, paths: &[String], value: &str) -> Self;
    /// An interrupt that goes to another processor from then on.
    fn interrupt(self, number: u32, cpu: u32) -> Self;
    /// What the other end must do.
    fn other_end(self, what: &str) -> Self;
}

impl Draft for Finding {
    fn adds_us(mut self, us: f64) -> Self {
        self.cost = Some(Cost { us_per_round_trip: Some(us), bits_per_second_at_most: bits(self.cost) });
        self
    }

    fn carries_at_most(mut self, bits_per_second: f64) -> Self {
        let us = self.cost.and_then(|cost| cost.us_per_round_trip);
        self.cost = Some(Cost { us_per_round_trip: us, bits_per_second_at_most: Some(bits_per_second) });
        self
    }

    fn command(mut self, command: String) -> Self {
        self.commands.push(command);
        self
    }

    fn sysctl(mut self, name: &str, value: &str) -> Self {
        self.commands.push(format!("sysctl -w {}={}", word(name), quoted(value)));
        self.changes
            .push(Change { setting: Setting::Sysctl { name: name.to_owned() }, value: value.to_owned() });
        self
    }

    fn sysfs(mut self, path: &str, value: &str) -> Self {
        self.commands.push(format!("echo {} > {}", word(value), quoted(&format!("/sys/{path}"))));
        self.changes
            .push(Change { setting: Setting::Sysfs { path: path.to_owned() }, value: value.to_owned() });
        self
    }

    fn sysfs_all(mut self, command: String, paths: &[String], value: &str) -> Self {
        self.commands.push(command);
        let change = |path: &String| Change {
            setting: Setting::Sysfs { path: path.clone() },
            value: value.to_owned(),
        };
        self.changes.extend(paths.iter().map(change));
        self
    }

    fn interrupt(mut self, number: u32, cpu: u32) -> Self {
        self.commands.push(format!("echo {cpu} > /proc/irq/{number}/smp_affinity_list"));
        let setting = Setting::InterruptAffinity { interrupt: number };
        self.changes.push(Change { setting, value: cpu.to_string() });
        self
    }

    fn other_end(mut self, what: &str) -> Self {
        self.other_end = Some(what.to_owned());
        self
    }
}

fn bits(cost: Option<Cost>) -> Option<f64> {
    cost.and_then(|cost| cost.bits_per_second_at_most)
}

/// A rate in words: `1.25 Gb/s`.
pub(super) fn rate(bits_per_second: f64) -> String {
    for (factor, unit) in [(1e9, "Gb/s"), (1e6, "Mb/s"), (1e3, "kb/s")] {
        if bits_per_second >= factor {
            return format!("{:.2} {unit}", bits_per_second / factor);
        }
    }
    format!("{bits_per_second:.0} b/s")
}

/// A time in words: `83.0 us`, `12.0 ms`.
pub(super) fn time(us: f64) -> String {
    if us < 1000.0 {
        format!("{us:.1} us")
    } else if us < 1e6 {
        format!("{:.1} ms", us / 1e3)
    } else {
        format!("{:.1} s", us / 1e6)
    }
}

/// The most that a window carries in a round trip time, bits per second.
pub(super) fn window_rate(window_bytes: u64, rtt_us: f64) -> f64 {
    window_bytes as f64 * 8e6 / rtt_us
}

/// Bytes in flight that fill a link: bandwidth times delay.
pub(super) fn bandwidth_delay_bytes(bits_per_second: u64, rtt_us: f64) -> f64 {
    bits_per_second as f64 * rtt_us / 8e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_that_is_bandwidth_times_delay_fills_the_link() {
        let window = bandwidth_delay_bytes(1_000_000_000, 10_000.0);
        assert_eq!(window, 1_250_000.0);
        assert_eq!(window_rate(1_250_000, 10_000.0), 1e9);
        assert_eq!([time(83.04), time(12_000.0), time(2.5e6)], ["83.0 us", "12.0 ms", "2.5 s"]);
        assert_eq!([rate(1.25e9), rate(65.5e6), rate(9.0)], ["1.25 Gb/s", "65.50 Mb/s", "9 b/s"]);
    }
}
