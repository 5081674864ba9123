#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use record::{Exchange, Greeting, Refusal, Setup, Side, StallKind};

use super::*;
use crate::application::Protocol;
use crate::decode::protocol_named;
use crate::observer::seen::Seen;
use crate::packet::Endpoint;
use crate::vantage::{Selection, Vantage};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;
const ACK: u8 = Segment::ACK;
const SYN: u8 = Segment::SYN;
const GET: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
const OK: &[u8] = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";

/// One connection, packet by packet. The client's sequence numbers begin at 99, the server's at 899.
struct Talk {
    vantage: Vantage,
    seen: Seen,
    frame: u64,
    next: [u32; 2],
}

impl Talk {
    fn new(protocol: Protocol) -> Self {
        let selection = Selection { protocol, ..Selection::default() };
        Self { vantage: Vantage::new(selection), seen: Seen::default(), frame: 0, next: [99, 899] }
    }

    /// A packet at this time, whose first byte has this sequence number.
    fn raw(&mut self, ns: u64, side: Side, seq: u32, ack: u32, flags: u8, payload: &[u8]) {
        self.frame += 1;
        let ends = [Endpoint { address: 1, port: 5000 }, Endpoint { address: 2, port: 80 }];
        let segment = Segment {
            tag: crate::encapsulation::Tag::NONE,
            source: ends[side as usize],
            destination: ends[side.peer() as usize],
            seq,
            ack,
            flags,
            window: 30_000,
            options: &[2, 4, 0x03, 0xe8],
            ip_id: self.frame as u16,
            ttl: 64,
            payload,
            payload_bytes: payload.len(),
        };
        let at = At { ns: SECOND + ns, frame: self.frame };
        self.vantage.segment(&segment, at, 60 + payload.len() as u32, &mut self.seen);
    }

    /// A new packet of a side, which acknowledges everything.
    fn send(&mut self, ns: u64, side: Side, flags: u8, payload: &[u8]) {
        let (seq, ack) = (self.next[side as usize], self.next[side.peer() as usize]);
        let takes = u32::from(flags & (SYN | Segment::FIN) != 0) + payload.len() as u32;
        self.next[side as usize] = seq.wrapping_add(takes);
        self.raw(ns, side, seq, ack, flags, payload);
    }

    /// The handshake, with this round trip to the server.
    fn shake(&mut self, ns: u64, round_trip_ns: u64) {
        self.send(ns, Side::Client, SYN, b"");
        self.send(ns + round_trip_ns, Side::Server, SYN | ACK, b"");
        self.send(ns + round_trip_ns, Side::Client, ACK, b"");
    }

    fn end(mut self) -> Seen {
        let vantage = std::mem::replace(&mut self.vantage, Vantage::new(Selection::default()));
        vantage.finish(&mut self.seen);
        self.seen
    }

    fn setup(self) -> Setup {
        self.end().facts[0].setup
    }
}

#[test]
fn a_repeated_syn_lengthens_the_set_up_and_not_the_round_trip() {
    let mut talk = Talk::new(Protocol::Http);
    talk.raw(0, Side::Client, 99, 0, SYN, b"");
    // A copy in the capture.
    talk.raw(10_000, Side::Client, 99, 0, SYN, b"");
    talk.raw(SECOND, Side::Client, 99, 0, SYN, b"");
    talk.shake(3 * SECOND, 2 * MS);
    // A copy behind the answer says nothing.
    talk.raw(3 * SECOND + 3 * MS, Side::Client, 99, 0, SYN, b"");
    talk.send(3 * SECOND + 10 * MS, Side::Client, ACK, GET);
    talk.send(3 * SECOND + 12 * MS, Side::Server, ACK, OK);
    let seen = talk.end();
    let facts = &seen.facts[0];
    assert_eq!((facts.setup.syns, facts.setup.waited_ns), (3, 3 * SECOND));
    assert_eq!(facts.setup.frames, [1, 4, 5]);
    assert_eq!(facts.handshake_ns, Some((2 * MS, 0)));
    assert_eq!(facts.setup.lasted_ns(), Some(3 * SECOND + 2 * MS));
    assert_eq!(seen.exchanges[0].setup_ns, Some(3 * SECOND + 2 * MS));
    assert_eq!(record::Observed::alone(Side::Client, &seen.exchanges[0]).whole_ns(), 2 * MS);
}

#[test]
fn a_repeated_answer_to_the_syn_is_no_part_of_the_round_trip() {
    let mut talk = Talk::new(Protocol::Http);
    talk.send(0, Side::Client, SYN, b"");
    talk.send(MS, Side::Server, SYN | ACK, b"");
    talk.raw(SECOND, Side::Server, 899, 100, SYN | ACK, b"");
    talk.send(SECOND + 5 * MS, Side::Client, ACK, b"");
    talk.send(SECOND + 5 * MS, Side::Client, ACK, GET);
    talk.send(SECOND + 6 * MS, Side::Server, ACK, OK);
    let facts = talk.end().facts[0];
    assert_eq!(facts.handshake_ns, Some((MS, 5 * MS)));
    assert_eq!((facts.setup.syn_acks_again, facts.setup.was_dropped_after_handshake()), (0, false));
}

#[test]
fn a_full_accept_queue_drops_the_last_ack_and_the_first_data() {
    let mut talk = Talk::new(Protocol::Http);
    talk.shake(0, MS);
    talk.send(2 * MS, Side::Client, ACK, GET);
    for ms in [202, 602] {
        talk.raw(ms * MS, Side::Client, 100, 900, ACK, GET);
    }
    talk.raw(SECOND, Side::Server, 899, 100, SYN | ACK, b"");
    talk.raw(SECOND + MS, Side::Client, 118, 900, ACK, b"");
    talk.raw(1402 * MS, Side::Client, 100, 900, ACK, GET);
    talk.send(1403 * MS, Side::Server, ACK, b"");
    talk.send(1404 * MS, Side::Server, ACK, OK);
    let seen = talk.end();
    let facts = &seen.facts[0];
    assert_eq!((facts.setup.syn_acks_again, facts.setup.first_data_again), (1, 3));
    assert_eq!(facts.handshake_ns, Some((MS, 0)), "the repeated SYN+ACK is no answer to the SYN");
    assert_eq!(
        (facts.client_conduct.retransmitted, facts.client_conduct.timeouts),
        (0, 0),
        "nothing was lost"
    );
    assert_eq!(seen.stalls.iter().map(|stall| stall.kind).collect::<Vec<_>>(), [StallKind::AcceptQueue]);
    assert_eq!(seen.exchanges[0].stalls.wait_ns(StallKind::AcceptQueue), 1400 * MS);
    assert_eq!(seen.exchanges[0].stalls.sum_ns(), 1400 * MS);
}

#[test]
fn data_that_is_lost_once_was_lost_on_the_path() {
    let mut talk = Talk::new(Protocol::Http);
    talk.shake(0, MS);
    talk.send(2 * MS, Side::Client, ACK, GET);
    talk.raw(202 * MS, Side::Client, 100, 900, ACK, GET);
    talk.send(203 * MS, Side::Server, ACK, OK);
    // Later data that is lost three times neither.
    talk.send(300 * MS, Side::Client, ACK, GET);
    for ms in [500, 900, 1700] {
        talk.raw(ms * MS, Side::Client, 118, 940, ACK, GET);
    }
    talk.send(1701 * MS, Side::Server, ACK, OK);
    let seen = talk.end();
    assert!(!seen.facts[0].setup.was_dropped_after_handshake());
    assert_eq!(seen.facts[0].client_conduct.retransmitted, 4);
    assert!(seen.stalls.iter().all(|stall| stall.kind == StallKind::Timeout), "{:?}", seen.stalls);
}

#[test]
fn refusals_are_told_from_ends_that_clients_choose() {
    let refusal = |packets: &[(u64, Side, u8, &[u8])]| {
        let mut talk = Talk::new(Protocol::Http);
        for &(ms, side, flags, payload) in packets {
            talk.send(ms * MS, side, flags, payload);
        }
        talk.setup().refusal
    };
    let rst = Segment::RST;
    let shaken =
        [(0, Side::Client, SYN, &b""[..]), (1, Side::Server, SYN | ACK, b""), (1, Side::Client, ACK, b"")];
    let then = |more: &[(u64, Side, u8, &'static [u8])]| [&shaken[..], more].concat();
    assert_eq!(refusal(&[shaken[0], (1, Side::Server, rst | ACK, b"")]), Some(Refusal::AtSyn));
    assert_eq!(refusal(&then(&[(2, Side::Server, rst, b"")])), Some(Refusal::AfterHandshake));
    // A port check, an idle connection that a server drops, an exchange that was complete.
    assert_eq!(refusal(&[shaken[0], shaken[1], (1, Side::Client, rst, b"")]), None);
    assert_eq!(refusal(&then(&[(5000, Side::Server, rst, b"")])), None);
    assert_eq!(
        refusal(&then(&[(2, Side::Client, Segment::FIN | ACK, b""), (3, Side::Server, rst, b"")])),
        None
    );
    let whole = [(2, Side::Client, ACK, GET), (3, Side::Server, ACK, OK)];
    assert_eq!(refusal(&[then(&whole), vec![(4, Side::Server, rst, b"")]].concat()), None);
}

#[test]
fn a_reset_fails_the_requests_that_it_leaves_without_a_response() {
    let reset = |protocol, packets: &[(Side, u8, &[u8])]| {
        let mut talk = Talk::new(protocol);
        talk.shake(0, MS);
        for (ms, &(side, flags, payload)) in (10..).zip(packets) {
            talk.send(ms * MS, side, flags, payload);
        }
        talk.setup().requests_reset
    };
    let rst = Segment::RST | ACK;
    let fin = Segment::FIN | ACK;
    let (client, server) = (Side::Client, Side::Server);
    let turns = Protocol::Turns;
    for protocol in [Protocol::Http, turns] {
        assert_eq!(reset(protocol, &[(client, ACK, GET), (server, rst, b"")]), 1);
        let second = [(client, ACK, GET), (server, ACK, OK), (client, ACK, GET), (server, rst, b"")];
        assert_eq!(reset(protocol, &second), 1);
        // Everything was answered; and a client that resets its own request.
        assert_eq!(reset(protocol, &[(client, ACK, GET), (server, ACK, OK), (server, rst, b"")]), 0);
        assert_eq!(reset(protocol, &[(client, ACK, GET), (client, rst, b"")]), 0);
        // The client had closed its side.
        assert_eq!(reset(protocol, &[(client, ACK, GET), (client, fin, b""), (server, rst, b"")]), 0);
    }
    // The server closes an idle connection just before the next request: lost in HTTP; in an unknown protocol it may be a
    // farewell, such as a TLS alert.
    let crossing =
        [(client, ACK, GET), (server, ACK, OK), (server, fin, b""), (client, ACK, GET), (server, rst, b"")];
    assert_eq!((reset(Protocol::Http, &crossing), reset(turns, &crossing)), (1, 0));
    // Two pipelined requests.
    assert_eq!(reset(Protocol::Http, &[(client, ACK, GET), (client, ACK, GET), (server, rst, b"")]), 2);
}

#[test]
fn a_server_that_closes_leaves_requests_without_a_response() {
    let closed = |protocol, packets: &[(Side, u8, &[u8])]| {
        let mut talk = Talk::new(protocol);
        talk.shake(0, MS);
        for (ms, &(side, flags, payload)) in (10..).zip(packets) {
            talk.send(ms * MS, side, flags, payload);
        }
        let setup = talk.setup();
        (setup.requests_closed, setup.requests_reset)
    };
    let (client, server) = (Side::Client, Side::Server);
    let (rst, fin) = (Segment::RST | ACK, Segment::FIN | ACK);
    let http = |packets: &[(Side, u8, &[u8])]| closed(Protocol::Http, packets);
    assert_eq!(http(&[(client, ACK, GET), (server, fin, b"")]), (1, 0));
    assert_eq!(
        http(&[(client, ACK, GET), (client, ACK, GET), (server, ACK, OK), (server, fin, b"")]),
        (1, 0)
    );
    // A part of a response, and what the client's next packet is answered with.
    assert_eq!(http(&[(client, ACK, GET), (server, fin, &OK[..OK.len() - 1])]), (1, 0));
    assert_eq!(
        http(&[(client, ACK, GET), (server, fin, b""), (client, ACK, b""), (server, rst, b"")]),
        (0, 1)
    );
    // All was answered, also by a response that the FIN ends; the client closed first; it is no request that is known.
    assert_eq!(http(&[(client, ACK, GET), (server, fin, OK)]), (0, 0));
    assert_eq!(
        http(&[(client, ACK, GET), (server, ACK, b"HTTP/1.1 200 OK\r\n\r\nall"), (server, fin, b"")]),
        (0, 0)
    );
    assert_eq!(http(&[(client, ACK, GET), (client, fin, b""), (server, fin, b"")]), (0, 0));
    assert_eq!(closed(Protocol::Turns, &[(client, ACK, b"farewell"), (server, fin, b"")]), (0, 0));
    let redis = || Protocol::Decoded(protocol_named("redis").unwrap());
    assert_eq!(closed(redis(), &[(client, ACK, b"GET a\r\n"), (server, fin, b"")]), (1, 0));
    // What is said last in a conversation needs no answer.
    let upgrade = &b"GET /chat HTTP/1.1\r\nHost: a\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"[..];
    let switches =
        &b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"[..];
    let hello = &b"\x81\x82abcd\x09\x0b"[..];
    let chat = [(client, ACK, upgrade), (server, ACK, switches), (client, ACK, hello), (server, fin, b"")];
    assert_eq!(closed(Protocol::Auto, &chat), (0, 0));
    // Who waits for an event may wait for another server.
    assert_eq!(closed(redis(), &[(client, ACK, b"BLPOP a 0\r\n"), (server, fin, b"")]), (0, 0));
}

#[test]
fn a_response_that_was_not_captured_is_no_end_without_one() {
    let closed = |talk: Talk| talk.setup().requests_closed;
    let asked = || {
        let mut talk = Talk::new(Protocol::Http);
        talk.shake(0, MS);
        talk.send(10 * MS, Side::Client, ACK, GET);
        talk
    };
    let mut whole = asked();
    whole.send(11 * MS, Side::Server, Segment::FIN | ACK, b"");
    assert_eq!(closed(whole), 1);
    // The response is in front of the FIN, and comes behind it, or never.
    let mut late = asked();
    let seq = late.next[1];
    let behind = seq.wrapping_add(OK.len() as u32);
    late.raw(11 * MS, Side::Server, behind, late.next[0], Segment::FIN | ACK, b"");
    assert_eq!(closed(late), 0);
}

#[test]
fn greetings_belong_to_the_set_up() {
    let hello = [&[22, 3, 1, 0, 4][..], b"abcd"].concat();
    let reply = [&[22, 3, 3, 0, 4][..], b"abcd", &[23, 3, 3, 0, 2], b"xy"].concat();
    let last = [&[20, 3, 3, 0, 1, 1, 23, 3, 3, 0, 2][..], b"fi"].concat();
    let data = [&[23, 3, 3, 0, 2][..], b"rq"].concat();
    let answer = [&[23, 3, 3, 0, 3][..], b"ans"].concat();
    let start = [0, 0, 0, 9, 0, 3, 0, 0, 0];
    let ready = [&b"R\0\0\0\x08\0\0\0\0"[..], READY_FOR_QUERY].concat();
    let query = b"Q\0\0\0\x0dselect 1\0";
    /// The greeting, the packets, when the connection is ready, milliseconds, and the exchanges before.
    type Row<'a> = (Greeting, Vec<(Side, &'a [u8])>, u64, usize);
    let greetings: [Row<'_>; 5] = [
        // MySQL agrees on TLS behind the server's greeting.
        (
            Greeting::Tls,
            vec![
                (Side::Server, b"5.7.1"),
                (Side::Client, b"tls"),
                (Side::Client, &hello),
                (Side::Server, &reply),
                (Side::Client, &last),
                (Side::Server, &answer),
            ],
            16,
            1,
        ),
        (
            Greeting::Tls,
            vec![
                (Side::Client, &hello),
                (Side::Server, &reply),
                (Side::Client, &last),
                (Side::Server, &answer),
            ],
            14,
            1,
        ),
        (
            Greeting::PostgreSql,
            vec![(Side::Client, &start), (Side::Server, &ready), (Side::Client, query), (Side::Server, b"D")],
            13,
            1,
        ),
        (
            Greeting::ServerFirst,
            vec![
                (Side::Server, b"5.7.1"),
                (Side::Client, b"me"),
                (Side::Server, b"OK"),
                (Side::Client, query),
                (Side::Server, b"D"),
            ],
            14,
            1,
        ),
        (
            Greeting::None,
            vec![
                (Side::Client, b"ask"),
                (Side::Server, b"tell"),
                (Side::Client, b"ask"),
                (Side::Server, b"tell"),
            ],
            2,
            0,
        ),
    ];
    for (greeting, packets, ready_ms, before) in greetings {
        let mut talk = Talk::new(Protocol::Turns);
        talk.shake(0, 2 * MS);
        for (ms, (side, payload)) in (12..).zip(packets) {
            talk.send(ms * MS, side, ACK, payload);
        }
        talk.send(30 * MS, Side::Client, ACK, &data);
        talk.send(31 * MS, Side::Server, ACK, &answer);
        let seen = talk.end();
        let setup = seen.facts[0].setup;
        assert_eq!((setup.greeting, setup.greeting_exchanges), (greeting, before as u64), "{greeting:?}");
        assert_eq!(setup.lasted_ns(), Some(ready_ms * MS), "{greeting:?}");
        // The set-up is a part of the first exchange behind it.
        let parts: Vec<bool> = seen.exchanges.iter().map(|exchange| exchange.setup_ns.is_some()).collect();
        let expected: Vec<bool> = (0..parts.len()).map(|place| place == before).collect();
        assert_eq!(parts, expected, "{greeting:?}");
    }
}

#[test]
fn a_connection_from_the_middle_has_no_set_up() {
    let mut talk = Talk::new(Protocol::Http);
    talk.send(0, Side::Client, ACK, GET);
    talk.send(MS, Side::Server, ACK, OK);
    let seen = talk.end();
    assert_eq!((seen.facts[0].setup, seen.exchanges[0].setup_ns), (Setup::default(), None));
}

#[test]
fn chunks_and_their_gaps_are_those_of_a_response_that_comes_in_pieces() {
    let stream = |gaps_ms: &[u64], size: usize| {
        let mut talk = Talk::new(Protocol::Http);
        talk.shake(0, 2 * MS);
        talk.send(10 * MS, Side::Client, ACK, GET);
        let mut ms = 50;
        let total = gaps_ms.len() * size;
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {total}\r\n\r\n");
        talk.send(ms * MS, Side::Server, ACK, head.as_bytes());
        for gap in gaps_ms {
            ms += gap;
            talk.send(ms * MS, Side::Server, ACK, &vec![b'x'; size]);
        }
        talk.send((ms + 1) * MS, Side::Client, ACK, b"");
        let seen = talk.end();
        (seen.exchanges[0].chunks, seen.facts[0].server_conduct.trains)
    };
    // Tokens: a piece each 15 ms and one pause.
    let gaps = [&[15; 20][..], &[80]].concat();
    let (chunks, trains) = stream(&gaps, 20);
    assert_eq!((chunks.count, chunks.gaps_ns, chunks.gap_max_ns), (22, 380 * MS, 80 * MS));
    assert_eq!((chunks.gap_mean_ns(), trains), (Some(380 * MS / 21), 0));
    // Full segments that wait for acknowledgements are one piece.
    let (chunks, _) = stream(&[15; 20], 1000);
    assert_eq!((chunks.count, chunks.is_stream()), (2, false), "the head is a piece of its own");
    // Small segments back to back are a train, and no stream.
    let (chunks, trains) = stream(&[0; 20], 20);
    assert_eq!((chunks.count, trains), (1, 1));
}

#[test]
fn a_lost_chunk_is_no_gap() {
    let mut talk = Talk::new(Protocol::Http);
    talk.shake(0, 2 * MS);
    talk.send(10 * MS, Side::Client, ACK, GET);
    talk.send(20 * MS, Side::Server, ACK, b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nabc");
    let seq = talk.next[Side::Server as usize];
    talk.raw(420 * MS, Side::Server, seq + 3, 118, ACK, b"ghi");
    talk.raw(421 * MS, Side::Server, seq, 118, ACK, b"def");
    talk.raw(422 * MS, Side::Client, 118, seq + 6, ACK, b"");
    let chunks = talk.end().exchanges[0].chunks;
    assert_eq!((chunks.count, chunks.gap_max_ns), (1, 0));
}

#[test]
fn a_response_whose_tail_was_not_captured_ends_with_its_acknowledgement() {
    let mut talk = Talk::new(Protocol::Http);
    talk.shake(0, 2 * MS);
    talk.send(10 * MS, Side::Client, ACK, GET);
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    talk.send(12 * MS, Side::Server, ACK, head);
    // The capture lost the body.
    talk.next[Side::Server as usize] += 500;
    talk.send(14 * MS, Side::Client, ACK, b"");
    talk.send(50 * MS, Side::Client, ACK, GET);
    talk.send(52 * MS, Side::Server, ACK, OK);
    // And then a whole response.
    talk.send(60 * MS, Side::Client, ACK, GET);
    talk.next[Side::Server as usize] += OK.len() as u32;
    talk.send(62 * MS, Side::Client, ACK, b"");
    talk.send(80 * MS, Side::Client, ACK, GET);
    talk.send(82 * MS, Side::Server, ACK, OK);
    talk.send(83 * MS, Side::Client, ACK, b"");
    let seen = talk.end();
    let times = |exchange: &Exchange| {
        [exchange.request.began, exchange.response.ended].map(|at| (at.ns().unwrap() - SECOND) / MS)
    };
    let all: Vec<_> = seen.exchanges.iter().map(times).collect();
    assert_eq!(all, [[10, 14], [50, 52], [80, 82]]);
    assert_eq!(seen.exchanges[1].thought_ns, Some(36 * MS));
}

#[test]
fn what_repairs_a_response_is_no_time_of_the_client() {
    const PING: &[u8] = b"PING\r\n";
    for (protocol, request, response) in [
        (Protocol::Http, GET, OK),
        (Protocol::Turns, GET, OK),
        (Protocol::Decoded(protocol_named("redis").unwrap()), PING, &b"+PONG\r\n"[..]),
    ] {
        let mut talk = Talk::new(protocol);
        talk.shake(0, 2 * MS);
        talk.send(10 * MS, Side::Client, ACK, request);
        talk.send(12 * MS, Side::Server, ACK, response);
        // Lost behind the capture point.
        talk.raw(212 * MS, Side::Server, 900, 100 + request.len() as u32, ACK, response);
        talk.send(215 * MS, Side::Client, ACK, request);
        talk.send(216 * MS, Side::Server, ACK, response);
        talk.send(217 * MS, Side::Client, ACK, b"");
        let seen = talk.end();
        let times = (seen.exchanges[0].repaired_ns, seen.exchanges[1].thought_ns);
        assert_eq!(times, (200 * MS, Some(3 * MS)), "{protocol:?}");
    }
}

#[test]
fn a_capture_that_begins_in_the_middle_pairs_no_response_with_a_later_request() {
    let mut talk = Talk::new(Protocol::Auto);
    // A pipelined request before the capture; its response passes when the next request has passed.
    talk.raw(0, Side::Client, 118, 900, ACK, GET);
    talk.raw(2 * MS, Side::Server, 900, 118, ACK, OK);
    talk.raw(5 * MS, Side::Server, 900 + OK.len() as u32, 136, ACK, OK);
    talk.raw(6 * MS, Side::Client, 136, 900 + 2 * OK.len() as u32, ACK, b"");
    let seen = talk.end();
    assert_eq!(seen.exchanges.len(), 1);
    assert_eq!(seen.exchanges[0].response.ended.ns(), Some(SECOND + 5 * MS));
}
