//! The rows of a result on inputs and connections.

use analysis::verdict::Evidence;
use capture::file::CaptureFile;

use crate::result::{ConnectionRow, InputRow};

/// Most connections that are listed.
const CONNECTIONS_LISTED: usize = 100;

/// Packets that the capturing system dropped, where it counted.
pub(crate) fn drops(file: &CaptureFile) -> Option<u64> {
    file.interfaces().iter().filter_map(|i| i.drops).reduce(u64::saturating_add)
}

/// An input that has been read.
pub(crate) fn input(file: &CaptureFile) -> InputRow {
    InputRow {
        name: file.name().to_owned(),
        frames: file.frames(),
        interfaces: file.interfaces().iter().filter_map(|i| i.name.clone()).collect(),
        drops: drops(file),
        complaint: file.complaint(),
    }
}

/// The connections with the most exchanges, and how many are not listed.
pub(crate) fn connections(evidence: &Evidence) -> (Vec<ConnectionRow>, u64) {
    let us = |ns: u64| ns as f64 / 1000.0;
    let mut rows: Vec<ConnectionRow> = evidence
        .connections()
        .map(|(_, facts)| {
            let lasted_ns = facts.ended_ns.saturating_sub(facts.began_ns);
            let (client, server) = (&facts.client_conduct, &facts.server_conduct);
            ConnectionRow {
                connection: facts.connection,
                client: facts.client.to_string(),
                server: facts.server.to_string(),
                protocol: facts.protocol.to_owned(),
                operations: facts.exchanges,
                seconds: lasted_ns as f64 / 1e9,
                packets: facts.packets,
                bytes: facts.bytes,
                in_flight: facts.in_flight_ns as f64 / lasted_ns.max(1) as f64,
                handshake_us: facts.handshake_ns.map(|(there, here)| us(there + here)),
                ack_min_us: (us(client.ack_min_ns), us(server.ack_min_ns)),
                retransmitted: (client.retransmitted, server.retransmitted),
                mss_bytes: (client.mss_bytes, server.mss_bytes),
            }
        })
        .collect();
    rows.sort_by_key(|row| (std::cmp::Reverse(row.operations), row.connection));
    let not_listed = rows.len().saturating_sub(CONNECTIONS_LISTED) as u64 + evidence.connections_not_kept;
    rows.truncate(CONNECTIONS_LISTED);
    (rows, not_listed)
}
