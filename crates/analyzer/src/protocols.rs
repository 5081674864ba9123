//! Notes on what was decoded: which services' operations are requests, and which are turns that may hold several.

use std::collections::BTreeMap;

use analysis::service::ServiceRow;

/// Share of turns that may hold several requests from which on a service is named.
const NAMED_FROM: f64 = 0.01;
/// Services that are named.
const NAMED_MAX: usize = 5;

/// Services whose times are per turn, not per request.
pub(crate) fn notes(services: &[ServiceRow]) -> Vec<String> {
    let mut by_service: BTreeMap<(&str, &str), (u64, u64)> = BTreeMap::new();
    // Those of TLS have notes of their own.
    let is_own = |row: &&ServiceRow| row.overlapping > 0 && row.protocol.as_deref() != Some("TLS");
    for row in services.iter().filter(is_own) {
        let of = (row.service.as_deref().unwrap_or("others"), row.protocol.as_deref().unwrap_or("turns"));
        let sums = by_service.entry(of).or_default();
        *sums = (sums.0 + row.overlapping, sums.1 + row.figures.operations);
    }
    let lists = services.iter().filter(|row| row.several > 0).fold(BTreeMap::new(), |mut lists, row| {
        let sums: &mut (u64, u64) = lists.entry(row.service.as_deref().unwrap_or("others")).or_default();
        *sums = (sums.0 + row.several, sums.1 + row.figures.operations);
        lists
    });
    let is_much = |(_, (some, all)): &(_, (u64, u64))| *some as f64 > NAMED_FROM * *all as f64;
    let mut notes: Vec<String> = by_service
        .into_iter()
        .filter(is_much)
        .map(|((service, protocol), (some, all))| match protocol {
            "turns" => format!(
                "{service}: requests overlap: in {some} of {all} turns a side did not wait for the other; their times are per turn, not \
                 per request"
            ),
            "websocket" => format!(
                "{service}: messages overlap: times are per turn, not per message, in {some} of {all} turns: after a side did not wait for \
                 the other, no message shows which one it answers"
            ),
            known => format!("{service}: {known} is not decoded: times are per turn, not per request"),
        })
        .collect();
    let is_many = |(_, (some, all)): &(&str, (u64, u64))| *some as f64 > NAMED_FROM * *all as f64;
    notes.extend(lists.into_iter().filter(is_many).map(|(service, (some, all))| {
        format!(
            "{service}: {some} of {all} turns may hold several requests, because several lines, or records that begin with their \
             length, are answered by several; their times are per turn, not per request"
        )
    }));
    let unread = services.iter().filter(|row| row.unread > 0).fold(BTreeMap::new(), |mut unread, row| {
        let sums: &mut (u64, u64) = unread.entry(row.service.as_deref().unwrap_or("others")).or_default();
        *sums = (sums.0 + row.unread, sums.1 + row.figures.operations);
        unread
    });
    notes.extend(unread.into_iter().filter(is_many).map(|(service, (some, all))| {
        format!(
            "{service}: a snap length hides what {some} of {all} turns hold, which may be several requests: their times are per turn, not \
             per request; whole packets show what they are"
        )
    }));
    let more = notes.len().saturating_sub(NAMED_MAX);
    notes.truncate(NAMED_MAX);
    if more > 0 {
        notes.push(format!("{more} more services have times per turn, not per request"));
    }
    notes
}
