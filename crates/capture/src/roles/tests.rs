use super::*;
use crate::packet::At;

fn end(address: u128, port: u16) -> Endpoint {
    Endpoint { address, port }
}

fn segment(source: Endpoint, destination: Endpoint, payload: &[u8]) -> Segment<'_> {
    Segment {
        tag: crate::encapsulation::Tag::NONE,
        source,
        destination,
        seq: 1,
        ack: 1,
        flags: Segment::ACK,
        window: 100,
        options: &[],
        ip_id: 0,
        ttl: 64,
        payload,
        payload_bytes: payload.len(),
    }
}

#[test]
fn service_ports_are_sorted_for_the_search() {
    assert!(SERVICE_PORTS.is_sorted());
    assert!(is_service(5432) && is_service(22) && !is_service(40_000));
}

#[test]
fn a_syn_outweighs_ports_and_bytes() {
    let (odd, usual) = (end(1, 55_000), end(2, 80));
    let mut roles = Roles::default();
    let plain = segment(odd, usual, b"x");
    assert_eq!(roles.source(&plain), (Side::Client, Certainty::Certain));
    // Another connection shows that 55000 is the service.
    roles.syn(&Segment { flags: Segment::SYN, ..segment(end(2, 81), odd, b"") });
    assert_eq!(roles.source(&plain), (Side::Server, Certainty::Certain));
    // So does its answer alone.
    let mut roles = Roles::default();
    roles.syn(&Segment { flags: Segment::SYN | Segment::ACK, ..segment(odd, end(2, 81), b"") });
    assert_eq!(roles.source(&plain), (Side::Server, Certainty::Certain));
}

#[test]
fn first_bytes_outweigh_ports() {
    let (high, low) = (end(1, 50_000), end(2, 40_000));
    let roles = Roles::default();
    assert_eq!(roles.source(&segment(low, high, b"anything")), (Side::Server, Certainty::Likely));
    for request in
        [b"GET / HTTP/1.1\r\n".as_slice(), b"*1\r\n$4\r\nPING\r\n", b"\x16\x03\x01\x02\x00\x01\x00"]
    {
        assert_eq!(roles.source(&segment(low, high, request)), (Side::Client, Certainty::Certain));
    }
    for reply in
        [b"HTTP/1.1 200 OK\r\n".as_slice(), b"220 ready\r\n", b"+OK\r\n", b"\x16\x03\x03\x00\x7a\x02\x00"]
    {
        assert_eq!(roles.source(&segment(high, low, reply)), (Side::Server, Certainty::Certain));
    }
}

#[test]
fn an_end_that_several_have_connected_to_is_the_server() {
    let (server, client) = (end(1, 50_000), end(2, 40_000));
    let mut roles = Roles::default();
    roles.seen(server, client);
    roles.seen(server, client);
    assert_eq!(roles.source(&segment(client, server, b"")).1, Certainty::Likely);
    roles.seen(end(2, 40_001), server);
    assert_eq!(roles.source(&segment(client, server, b"")), (Side::Client, Certainty::Certain));
}

/// Questions and answers; the question comes `idle` after the answer, the answer `busy` after the question.
fn talk(asks: Endpoint, answers: Endpoint, idle: u64, busy: u64) -> Vec<HeldSegment> {
    let mut ns = 0;
    let mut all = Vec::new();
    for _ in 0..6 {
        for (from, to, pause) in [(asks, answers, idle), (answers, asks, busy)] {
            ns += pause;
            let at = At { ns, frame: 0 };
            all.push(HeldSegment::new(&segment(from, to, b"data"), at, 70));
            // The acknowledgement comes late.
            let late = At { ns: ns + idle / 2, frame: 0 };
            all.push(HeldSegment::new(&segment(to, from, b""), late, 66));
        }
    }
    all
}

#[test]
fn the_side_that_speaks_after_idle_time_is_the_client() {
    let (server, client) = (end(1, 50_000), end(2, 40_000));
    let roles = Roles::default();
    assert_eq!(roles.server(&talk(client, server, 100_000, 1000)), Some(server));
    // Whoever is seen first.
    assert_eq!(roles.server(&talk(client, server, 100_000, 1000)[2..]), Some(server));
    // Without a clear difference who speaks first asks, if it is answered at the end.
    let even = talk(client, server, 2000, 1000);
    assert_eq!(roles.server(&even), Some(server));
    // Without that the lower port decides.
    assert_eq!(roles.server(&even[..even.len() - 2]), Some(client));
    // A port below the ephemeral ones outweighs pauses: servers may be slow.
    let low = end(1, 9999);
    assert_eq!(roles.server(&talk(client, low, 1000, 100_000)), Some(low));
}
