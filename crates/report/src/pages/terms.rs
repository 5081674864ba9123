//! Names that occur in pages, and what they mean.

use analysis::Part;
use record::Term;

/// The parts of an operation that an analysis measures.
pub(super) fn parts() -> Vec<(String, String)> {
    let meaning = |part| match part {
        Part::Client => {
            "from an answer to the request that takes its place: the client, and all between it and where it was captured"
        }
        Part::Sending => "from the first byte of a request to its last",
        Part::RoundTrip => "from the request's last byte to the response's last, seen at the client",
        Part::FirstByte => {
            "from the request's last byte to the response's first, where only one side was seen"
        }
        Part::Transfer => "from the response's first byte to its last",
        Part::Gap => "the mean time between the pieces of a response that comes in three or more",
        Part::LongestGap => "the longest time between such pieces",
        Part::DataPhase => "from the server's request for data (R2T, 100 Continue) to the last of the data",
        Part::RequestPath => "a request's way from the client's capture point to the server's",
        Part::Server => "from the request's last byte to the response's last, seen at the server",
        Part::ResponsePath => "a response's way from the server's capture point to the client's",
        Part::Network => "the round trip without the server",
        Part::Whole => {
            "the operation as its user sees it: from the request's first byte to the response's last"
        }
        Part::SetUp => "from the first SYN of a connection until it could carry its first request",
    };
    let mut terms: Vec<(String, String)> =
        Part::ALL.into_iter().map(|part| (part.name().to_owned(), meaning(part).to_owned())).collect();
    terms.extend(percentiles());
    terms
}

/// The terms of the ring.
pub(super) fn ring() -> Vec<(String, String)> {
    let name_of = |(name, meaning): (&str, &str)| (name.to_owned(), meaning.to_owned());
    let mut terms: Vec<(String, String)> =
        Term::ALL.map(|term| name_of((term.name(), term.meaning()))).into();
    let meaning_of = |name: &str| Term::ALL.into_iter().find(|term| term.name() == name).map(Term::meaning);
    let sums: Vec<(String, String)> = crate::study_text::COLUMNS
        .iter()
        .flat_map(|(_, names)| names.iter())
        .filter(|name| name.contains('+'))
        .map(|name| {
            let parts: Vec<&str> = name.split('+').filter_map(meaning_of).collect();
            ((*name).to_owned(), parts.join("; and "))
        })
        .collect();
    terms.extend(sums);
    terms.extend(
        [
            ("SX", "the interrupt that wakes the server's CPU, a part of SR"),
            ("CX", "the interrupt that wakes the client's CPU, a part of CR"),
            ("TPT", "mean time between completions: 1 / IOPS = RTT / QD"),
            (
                "QD needed",
                "queue depth from which on the ring stays at its limit: (sum of the service times + the other stages' start \
                 latencies) / TPTmin",
            ),
        ]
        .map(name_of),
    );
    terms
}

/// The parts that two measurements are compared by.
pub(super) fn compared() -> Vec<(String, String)> {
    let of = |(name, meaning): (&str, &str)| (name.to_owned(), meaning.to_owned());
    let mut terms: Vec<(String, String)> = [
        ("client", "from an answer to the next request on its connection: between operations, no part of them"),
        ("request", "from the request's first byte to its last, with what TCP held before it"),
        ("way there", "from the client's capture point to the server's; of two captures without a common clock, both ways"),
        ("server", "from the request's last byte to the response's first; seen at the client alone, with both ways"),
        ("way back", "from the server's capture point to the client's"),
        ("response", "from the response's first byte to its last, with what a retransmission repaired"),
        ("chance", "how likely it is that equal services differ at least as much"),
        ("per second", "operations that ended in a second"),
    ]
    .map(of)
    .into();
    terms.extend(percentiles());
    terms
}

/// Percentiles.
pub(super) fn percentiles() -> Vec<(String, String)> {
    let of = |(name, meaning): (&str, &str)| (name.to_owned(), meaning.to_owned());
    [
        ("p50", "half of the operations took no longer"),
        ("p90", "nine operations of ten took no longer"),
        ("p99", "99 operations of 100 took no longer"),
        ("p99.9", "999 operations of 1000 took no longer"),
        ("QD", "queue depth: how many requests are under way at once"),
    ]
    .map(of)
    .into()
}
