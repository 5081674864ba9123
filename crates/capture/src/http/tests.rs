use proptest::prelude::*;
use record::ConnectionFacts;

use super::*;
use crate::observer::StreamHole;

#[derive(Default)]
struct Seen(Vec<Exchange>);

impl Observer for Seen {
    fn exchange(&mut self, exchange: &Exchange) {
        self.0.push(*exchange);
    }
    fn hole(&mut self, _: StreamHole) {}
    fn connection(&mut self, _: &ConnectionFacts) {}
    fn counted(&mut self, _: &Counted) {}
}

fn at(ns: u64) -> At {
    At { ns, frame: ns }
}

/// Plays messages of both sides, each in a packet of its own, and returns (request bytes, response bytes,
/// times).
fn play(packets: &[(Side, &str)]) -> Vec<(u32, u32, [u64; 4])> {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    for (index, (side, text)) in packets.iter().enumerate() {
        http.bytes(*side, text.as_bytes(), at(index as u64 + 1), &mut seen);
    }
    http.closed(Side::Server, at(packets.len() as u64), &mut seen);
    let ns = |s: Stamp| s.ns().unwrap_or(0);
    seen.0
        .iter()
        .map(|e| {
            let times = [e.request.began, e.request.ended, e.response.began, e.response.ended].map(ns);
            (e.op.request_bytes, e.op.response_bytes, times)
        })
        .collect()
}

use Side::{Client, Server};

#[test]
fn a_post_in_two_segments_is_one_exchange() {
    let all = play(&[
        (Client, "POST / HTTP/1.1\r\nContent-Length: 5\r\n\r\n"),
        (Client, "hello"),
        (Server, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n"),
        (Server, "ok"),
    ]);
    assert_eq!(all, [(43, 40, [1, 2, 3, 4])]);
}

#[test]
fn pipelined_chunked_head_and_closed_responses_are_paired() {
    let all = play(&[
        (Client, "HEAD /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\nGET /c HTTP/1.1\r\n\r\n"),
        (
            Server,
            "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        ),
        (Server, "c\r\n0;x=1\r\nTrailer: y\r\n\r\nHTTP/1.1 200 OK\r\n\r\n"),
        (Server, "until the end"),
    ]);
    let responses: Vec<_> = all.iter().map(|(_, _, t)| (t[2], t[3])).collect();
    assert_eq!(responses, [(2, 2), (2, 3), (3, 4)]);
}

#[test]
fn hundred_continue_is_not_the_final_response() {
    let all = play(&[
        (Client, "PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n"),
        (Server, "HTTP/1.1 100 Continue\r\n\r\n"),
        (Client, "abc"),
        (Server, "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"),
    ]);
    assert_eq!(all.len(), 1);
    assert_eq!(all[0].2, [1, 3, 4, 4]);
}

#[test]
fn a_hole_in_a_body_costs_nothing_and_one_in_a_head_is_counted() {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    let get = b"GET / HTTP/1.1\r\n\r\n";
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    http.bytes(Client, get, at(1), &mut seen);
    http.bytes(Server, ok, at(2), &mut seen);
    http.missing(Server, 10, at(3), &mut seen);
    assert_eq!(seen.0.len(), 1);
    http.bytes(Client, get, at(4), &mut seen);
    http.missing(Server, 50, at(5), &mut seen);
    http.bytes(Client, get, at(6), &mut seen);
    http.bytes(Server, ok, at(7), &mut seen);
    http.bytes(Server, b"0123456789", at(8), &mut seen);
    assert_eq!(seen.0.len(), 2);
    assert_eq!(seen.0[1].request.began, Stamp::at(6));
    let counted = http.finish(&mut seen);
    assert_eq!((counted.boundaries_lost, counted.abandoned, counted.unanswered), (1, 1, 0));
}

proptest! {
    /// Cut anywhere, the same exchanges come out.
    #[test]
    fn cuts_do_not_matter(cuts in prop::collection::vec(1_usize..60, 1..30)) {
        let text = "POST / HTTP/1.1\r\ncontent-length: 7\r\n\r\n1234567GET / HTTP/1.1\r\n\r\n";
        let answer = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\nHTTP/1.1 304 No\r\n\r\n";
        let (mut http, mut seen) = (Http::new(1, false), Seen::default());
        for (side, text) in [(Client, text), (Server, answer)] {
            let (mut rest, mut cuts) = (text.as_bytes(), cuts.iter().cycle());
            while !rest.is_empty() {
                let (now, behind) = rest.split_at((*cuts.next().unwrap()).min(rest.len()));
                http.bytes(side, now, at(1), &mut seen);
                rest = behind;
            }
        }
        let sizes: Vec<_> = seen.0.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
        prop_assert_eq!(sizes, [(45, 60), (18, 19)]);
    }

    #[test]
    fn no_bytes_can_panic(chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(prop_oneof![
        Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'f'), Just(b'H'), any::<u8>()], 0..80), 0_u64..50), 0..20)) {
        let (mut http, mut seen) = (Http::new(1, false), Seen::default());
        for (client, bytes, gap) in chunks {
            let side = if client { Client } else { Server };
            http.bytes(side, if client { b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" }, at(1), &mut seen);
            http.bytes(side, &bytes, at(1), &mut seen);
            http.missing(side, gap, at(1), &mut seen);
        }
        http.closed(Server, at(2), &mut seen);
        let _ = http.finish(&mut seen);
    }
}
