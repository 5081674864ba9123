//! Notes on what limits a result.

use analysis::verdict::Evidence;
use capture::Link;
use record::ConnectionFacts;
use record::units::counted;

use crate::reading::Reading;
use crate::result::AnalysisResult;

/// Connections that a note names.
const NAMED: usize = 3;

/// Names the connections that carried data without an operation.
fn without_operations(count: u64, evidence: &Evidence) -> String {
    let is_one = |(connection, facts): &(u32, &ConnectionFacts)| {
        let has_data = facts.client_conduct.bytes + facts.server_conduct.bytes > 0;
        facts.exchanges == 0 && has_data && !evidence.is_unanswered(*connection)
    };
    let all: Vec<String> = evidence
        .connections()
        .filter(is_one)
        .take(NAMED)
        .map(|(_, facts)| format!("{} to {} ({} packets)", facts.client, facts.server, facts.packets))
        .collect();
    let names = if all.is_empty() { String::new() } else { format!(", such as {}", all.join(", ")) };
    format!("{count} connections carried data in which no request and response was recognised{names}")
}

/// Limitations of the capture that affect the result.
pub(crate) fn notes(
    result: &AnalysisResult,
    readings: &[Reading],
    evidence: &Evidence,
    crowded: u64,
) -> Vec<String> {
    let mut notes = Vec::new();
    let mut note_if = |condition: bool, text: String| {
        if condition {
            notes.push(text);
        }
    };
    for reading in readings {
        if let Some(complaint) = reading.file.complaint() {
            note_if(true, complaint);
        }
        let (name, unsupported, link) = (reading.file.name(), reading.unsupported, reading.unsupported_link);
        note_if(
            unsupported > 0,
            format!(
                "{name}: {unsupported} frames of link type {link} were skipped; supported are {}",
                Link::NAMES
            ),
        );
        note_if(
            reading.overlaps && result.operations_one_side > 0,
            format!(
                "{name}: a section begins before an earlier one ends. Sections are read one after the other, and an operation \
                 waits for the view of another capture point while some hundred others pass: in longer captures each view is \
                 counted. Give captures of the same time as separate files"
            ),
        );
    }
    let f = &result.frames;
    note_if(
        readings.len() > 1 && result.operations_both_sides == 0 && result.operations_one_side > 0,
        "no operation is in two of the files, although its connection is: several files are those of several capture points; \
         join files that follow one another with mergecap -w ALL.pcapng FILE..., and analyse that"
            .to_owned(),
    );
    note_if(result.packets == 0, "the capture has no TCP packet of the selected connections".to_owned());
    note_if(
        f.super_packets > 0,
        format!(
            "{} packets are larger than any Ethernet frame: segmentation offload made them, and the wire carried \
             others; switch it off while measuring (ethtool -K IF tso off gso off gro off)",
            f.super_packets
        ),
    );
    let hidden: Vec<String> =
        result.contents.not_read().map(|(name, count)| format!("{count} of {name}")).collect();
    note_if(
        !hidden.is_empty(),
        format!("packets that were not read and may hold TCP: {}", hidden.join(", ")),
    );
    note_if(f.truncated > 0, format!("{} frames are shorter than their headers", f.truncated));
    note_if(f.too_big > 0, format!("{} ICMP messages report a packet too big for the path", f.too_big));
    note_if(
        f.backwards > 0,
        format!(
            "{} frames are older than the ones before them: the clock was set, or the file was merged",
            f.backwards
        ),
    );
    let backwards = result.operations_backwards;
    note_if(
        backwards > 0,
        format!(
            "{backwards} operations are left out: a part of them ends before it begins, because the clock was set back or the \
             file was merged out of order"
        ),
    );
    let paths = result.paths_backwards;
    note_if(
        paths > 0,
        format!(
            "{paths} operations have no times between the capture points: messages arrive before they leave, because the clocks \
             of the interfaces differ"
        ),
    );
    note_if(
        f.strays > 0,
        format!(
            "{} segments are far outside the window of their connection, and no others follow them: they were skipped",
            f.strays
        ),
    );
    note_if(
        f.evicted > 0,
        format!("{} connections were dropped: more than 4096 were open at once", f.evicted),
    );
    note_if(
        crowded > 0,
        format!("{crowded} connections were seen at more than two capture points; two were used"),
    );
    for leg in &result.proxies {
        note_if(
            true,
            format!(
                "{} is a proxy of {}: {:.0} % of the time of {} operations ({:.0} of {:.0} us) passes at its upstream",
                leg.proxy,
                leg.upstream,
                leg.upstream_share * 100.0,
                leg.operations,
                leg.upstream_us,
                leg.proxy_us
            ),
        );
    }
    let s = &result.streams;
    note_if(
        s.boundaries_lost > 0,
        format!(
            "{} a message boundary was lost (a hole, or a header that was not captured or is too long); {} skipped until the next",
            counted(s.boundaries_lost, "time"),
            counted(s.skipped_bytes, "byte")
        ),
    );
    note_if(
        s.unmatched > 0,
        format!("{} without a request in the capture", counted(s.unmatched, "response")),
    );
    let unanswered = result.unanswered;
    note_if(unanswered > 0, format!("{} without a response in the capture", counted(unanswered, "request")));
    note_if(
        s.mistaken > 0,
        format!(
            "{} that seemed to be iSCSI (by the port) or HTTP (by a line) and is not is followed as turns",
            counted(s.mistaken, "connection")
        ),
    );
    note_if(s.without_operations > 0, without_operations(s.without_operations, evidence));
    let (mut duplicates, mut one_way) = (0, 0);
    for (_, facts) in evidence.connections() {
        duplicates += facts.duplicates;
        one_way += u64::from(!facts.both_directions && facts.packets > 10);
    }
    note_if(
        duplicates > 0,
        format!(
            "{} in the capture twice (a capture on several interfaces at once), of which one was skipped",
            counted(duplicates, "packet")
        ),
    );
    note_if(
        one_way > 0,
        format!("{} with only one direction in the capture", counted(one_way, "connection")),
    );
    notes
}
