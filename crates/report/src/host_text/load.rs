//! A load test as text: a row for each direction of each run.

use host::facts::load::{LoadFacts, LoadRun, StreamFacts};
use output::text::line;
use record::units::grouped;

use crate::terminal::{cell, number, table};

/// The table of a load test, with the counters of errors that moved.
pub(super) fn load(facts: &LoadFacts) -> String {
    let heading = [
        "load",
        "direction",
        "Mb/s",
        "segments",
        "sent again",
        "%",
        "RTT least ms",
        "RTT median ms",
        "RTT most ms",
    ];
    let mut table = table(&heading);
    for (name, run) in facts.runs() {
        for (direction, stream) in [("to", &run.to_peer), ("from", &run.from_peer)] {
            if let Some(stream) = stream {
                table.add_row(row(name, direction, stream));
            }
        }
    }
    let mut text = format!("{table}\n");
    for (name, run) in facts.runs() {
        text += &moved(name, run);
    }
    text
}

fn row(name: &str, direction: &str, stream: &StreamFacts) -> Vec<comfy_table::Cell> {
    let rate = stream.received.rate();
    let rate = rate.map_or("too short to measure".to_owned(), |rate| format!("{:.1}", rate / 1e6));
    let of_sender =
        |text: &dyn Fn(host::facts::load::Sent) -> String| stream.sender.map_or("-".to_owned(), text);
    let milliseconds = |us: u32| format!("{:.2}", f64::from(us) / 1e3);
    vec![
        cell(name),
        cell(direction),
        number(rate),
        number(of_sender(&|sent| grouped(u64::from(sent.segments)))),
        number(of_sender(&|sent| grouped(u64::from(sent.retransmitted_segments)))),
        number(of_sender(&|_| format!("{:.2}", stream.retransmitted_share() * 100.0))),
        number(of_sender(&|sent| milliseconds(sent.rtt_min_us))),
        number(of_sender(&|sent| milliseconds(sent.rtt_median_us))),
        number(of_sender(&|sent| milliseconds(sent.rtt_max_us))),
    ]
}

/// Errors, drops and collisions that were counted in a run, at either end.
fn moved(name: &str, run: &LoadRun) -> String {
    let mut text = String::new();
    for (place, link) in [("here", &run.here), ("there", &run.there)] {
        let Some(link) = link else { continue };
        let is_told = |name: &str| ["error", "drop", "collision"].iter().any(|part| name.contains(part));
        let counters = link.counters.iter().filter(|(name, _)| is_told(name));
        let counters: Vec<String> = counters.map(|(name, grown)| format!("{} {grown}", line(name))).collect();
        if !counters.is_empty() {
            text += &format!("{name}, {} {place}: {}\n", line(&link.interface), counters.join(", "));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use host::facts::load::{LoadedLink, Received, Sent};

    use super::*;

    #[test]
    fn a_load_test_has_a_row_for_each_direction_of_each_run_and_the_errors_that_moved() {
        let stream = |megabits: f64| StreamFacts {
            received: Received { bytes: 1, seconds: 1.0, bits_per_second: megabits * 1e6 },
            sender: Some(Sent {
                segments: 4000,
                retransmitted_segments: 50,
                rtt_min_us: 40,
                rtt_median_us: 12_345,
                rtt_max_us: 20_000,
            }),
        };
        let link = |interface: &str, counter: &str| {
            let counters = [(counter.to_owned(), 7), ("rx_packets".to_owned(), 9)].into();
            Some(LoadedLink { interface: interface.to_owned(), counters, ..LoadedLink::default() })
        };
        let facts = LoadFacts {
            to_peer: Some(LoadRun { to_peer: Some(stream(94.15)), ..LoadRun::default() }),
            together: Some(LoadRun {
                to_peer: Some(stream(50.0)),
                from_peer: Some(StreamFacts { sender: None, ..stream(41.0) }),
                here: link("eth0", "rx_crc_errors"),
                there: link("e\u{1b}[31m", "standard_late_collisions"),
                ..LoadRun::default()
            }),
            from_peer: Some(LoadRun {
                from_peer: Some(StreamFacts { received: Received::new(1_048_577, 0.000_08), sender: None }),
                ..LoadRun::default()
            }),
            ..LoadFacts::default()
        };
        let text = load(&facts);
        let words: Vec<String> =
            text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        for row in [
            "to the peer alone to 94.2 4 000 50 1.25 0.04 12.35 20.00",
            "both together to 50.0 4 000 50 1.25 0.04 12.35 20.00",
            "from the peer alone from too short to measure - - - - - -",
            "both together from 41.0 - - - - - -",
            "both together, eth0 here: rx_crc_errors 7",
        ] {
            assert!(words.iter().any(|line| line == row), "{row}\n{text}");
        }
        assert!(text.contains("there: standard_late_collisions 7") && !text.contains('\u{1b}'), "{text}");
        assert!(!text.contains("rx_packets"), "{text}");
    }
}
