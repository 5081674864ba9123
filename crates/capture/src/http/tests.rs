use proptest::prelude::*;

use super::*;
use crate::observer::seen::Seen;

fn at(ns: u64) -> At {
    At { ns, frame: ns }
}

/// Bytes of a side come, behind all that both have said.
fn hear(http: &mut Http, side: Side, bytes: &[u8], at: At, seen: &mut Seen) -> usize {
    let ends = [http.requests.offset(), http.responses.offset()].map(|offset| offset as u32);
    http.packet(side, Mark { seq: ends[side as usize], ack: ends[side.peer() as usize] });
    http.bytes(side, bytes, at, seen)
}

/// Plays messages of both sides, each in a packet of its own, and returns (request bytes, response bytes,
/// times).
fn play(packets: &[(Side, &str)]) -> Vec<(u32, u32, [u64; 4])> {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    for (index, (side, text)) in packets.iter().enumerate() {
        hear(&mut http, *side, text.as_bytes(), at(index as u64 + 1), &mut seen);
    }
    http.closed(Side::Server, at(packets.len() as u64), &mut seen);
    let ns = |s: Stamp| s.ns().unwrap_or(0);
    seen.exchanges
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
fn codings_on_several_lines_are_one_list() {
    let head = "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\ntransfer-encoding: chunked \r\n\r\n";
    let all = play(&[
        (Client, "GET /a HTTP/1.1\r\n\r\n"),
        (Server, head),
        (Server, "2\r\nok\r\n0\r\n\r\n"),
        (Client, "GET /b HTTP/1.1\r\n\r\n"),
        (Server, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"),
    ]);
    assert_eq!(all.iter().map(|one| one.2).collect::<Vec<_>>(), [[1, 1, 2, 3], [4, 4, 5, 5]]);
}

#[test]
fn a_response_at_the_end_is_known_as_far_as_it_came() {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    let packets = [
        (Client, "GET /a HTTP/1.1\r\n\r\nGET /b HTTP/1.1\r\n\r\n"),
        (Server, "HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\nabc"),
        (Server, "def"),
    ];
    for (index, (side, text)) in packets.iter().enumerate() {
        hear(&mut http, *side, text.as_bytes(), at(index as u64 + 1), &mut seen);
    }
    http.finish(&mut seen);
    let ends = |e: &Exchange| (e.response.began.ns(), e.response.ended.ns());
    assert_eq!(seen.unanswered.iter().map(ends).collect::<Vec<_>>(), [(Some(2), Some(3)), (None, None)]);
    assert_eq!(seen.exchanges.len(), 0);
}

#[test]
fn requests_that_are_never_answered_are_counted_however_many() {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    for number in 1..=10_000 {
        hear(&mut http, Client, b"GET /a HTTP/1.1\r\n\r\n", at(number), &mut seen);
    }
    let counted = http.finish(&mut seen);
    assert_eq!((seen.unanswered.len(), counted.unanswered, counted.abandoned), (10_000, 10_000, 0));
    assert_eq!(seen.unanswered[0].request.began.ns(), Some(1));
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

/// A body that the client sends so long after 100 Continue asked for it, ns; or before that.
fn asked_for(after_ns: u64, before: &[u8]) -> Exchange {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    let head = b"PUT / HTTP/1.1\r\nExpect: 100-continue\r\nContent-Length: 6\r\n\r\n";
    hear(&mut http, Client, head, at(1_000), &mut seen);
    if !before.is_empty() {
        hear(&mut http, Client, before, at(1_500), &mut seen);
    }
    hear(&mut http, Server, b"HTTP/1.1 100 Continue\r\n\r\n", at(2_000), &mut seen);
    let rest = &b"abcdef"[before.len()..];
    hear(&mut http, Client, &rest[..1], at(2_000 + after_ns), &mut seen);
    hear(&mut http, Client, &rest[1..], at(90_000_000), &mut seen);
    hear(&mut http, Server, b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n", at(91_000_000), &mut seen);
    seen.exchanges[0]
}

#[test]
fn a_body_that_comes_late_after_100_continue_is_a_stall_of_the_client() {
    let late = asked_for(30_000_000, b"");
    assert_eq!(late.stalls.wait_ns(record::StallKind::SlowData), 30_000_000);
    // In time; what comes later of it is another wait.
    assert!(asked_for(1_000_000, b"").stalls.is_empty());
}

/// The waits of a client that announces its body, and what passes before it: in order, each ms after the one before.
fn announced(packets: &[(u64, Side, &str)]) -> Vec<u64> {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    let mut now = 1;
    for (after_ms, side, text) in packets {
        now += after_ms * 1_000_000;
        hear(&mut http, *side, text.as_bytes(), at(now), &mut seen);
    }
    let kind = record::StallKind::ContinueAwaited;
    assert!(seen.exchanges.iter().all(|exchange| exchange.stalls.wait_ns(kind) <= now));
    seen.stalls.iter().filter(|stall| stall.kind == kind).map(|stall| stall.wait_ns).collect()
}

#[test]
fn a_body_that_waits_in_vain_for_100_continue_is_a_stall() {
    let head = "PUT / HTTP/1.1\r\nExpect: 100-Continue\r\nContent-Length: 3\r\n\r\n";
    let (asks, ok) = ("HTTP/1.1 100 Continue\r\n\r\n", "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n");
    let vain = [(0, Client, head), (1001, Client, "abc"), (1, Server, ok)];
    assert_eq!(announced(&vain), [1_001_000_000]);
    let cut = [(0, Client, &head[..30]), (400, Client, &head[30..]), (350, Client, "a"), (500, Client, "bc")];
    assert_eq!(announced(&cut), [350_000_000]);
    let plain = head.replace("100-Continue", "nothing");
    let whole = [head, "abc"].concat();
    for packets in [
        [(0, Client, head), (1, Server, asks), (1001, Client, "abc")],
        [(0, Client, head), (5, Client, "abc"), (1000, Server, ok)],
        [(0, Client, head), (1, Server, ok), (1001, Client, "abc")],
        [(0, Client, plain.as_str()), (1001, Client, "abc"), (1, Server, ok)],
        [(0, Client, whole.as_str()), (1001, Server, ok), (1001, Client, head)],
    ] {
        assert_eq!(announced(&packets), [0; 0], "{packets:?}");
    }
}

#[test]
fn a_hole_in_a_body_costs_nothing_and_one_in_a_head_is_counted() {
    let (mut http, mut seen) = (Http::new(1, false), Seen::default());
    let get = b"GET / HTTP/1.1\r\n\r\n";
    let ok = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n";
    hear(&mut http, Client, get, at(1), &mut seen);
    hear(&mut http, Server, ok, at(2), &mut seen);
    http.missing(Server, Absent::Lost, 10, at(3), &mut seen);
    assert_eq!(seen.exchanges.len(), 1);
    hear(&mut http, Client, get, at(4), &mut seen);
    http.missing(Server, Absent::Lost, 50, at(5), &mut seen);
    hear(&mut http, Client, get, at(6), &mut seen);
    hear(&mut http, Server, ok, at(7), &mut seen);
    hear(&mut http, Server, b"0123456789", at(8), &mut seen);
    assert_eq!(seen.exchanges.len(), 2);
    assert_eq!(seen.exchanges[1].request.began, Stamp::at(6));
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
                hear(&mut http, side, now, at(1), &mut seen);
                rest = behind;
            }
        }
        let sizes: Vec<_> = seen.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
        prop_assert_eq!(sizes, [(45, 60), (18, 19)]);
    }

    #[test]
    fn no_bytes_can_panic(chunks in prop::collection::vec((any::<bool>(), prop::collection::vec(prop_oneof![
        Just(b'\r'), Just(b'\n'), Just(b'0'), Just(b'f'), Just(b'H'), any::<u8>()], 0..80), 0_u64..50), 0..20)) {
        let (mut http, mut seen) = (Http::new(1, false), Seen::default());
        for (client, bytes, gap) in chunks {
            let side = if client { Client } else { Server };
            hear(&mut http, side, if client { b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n" } else { b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" }, at(1), &mut seen);
            hear(&mut http, side, &bytes, at(1), &mut seen);
            http.missing(side, if gap % 2 == 0 { Absent::Lost } else { Absent::Uncaptured }, gap, at(1), &mut seen);
        }
        http.closed(Server, at(2), &mut seen);
        let _ = http.finish(&mut seen);
    }
}

/// RFC 9112 2.2: a line may end without CR, and an empty line may precede a request.
#[test]
fn lines_may_end_without_carriage_return() {
    let lines = ["GET /a HTTP/1.1\nHost: a\n\n", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"];
    let mixed = ["\r\nGET /a HTTP/1.1\r\nHost: a\n\r\n", "HTTP/1.1 200 OK\nContent-Length: 2\r\n\nok"];
    for [request, response] in [lines, mixed] {
        for cut in 1..response.len() {
            let (first, second) = response.split_at(cut);
            let packets =
                [(Client, request), (Server, first), (Server, second), (Client, request), (Server, response)];
            let all = play(&packets);
            assert_eq!(all.len(), 2, "{request:?} {cut}");
            assert_eq!(all[0].1, response.len() as u32);
        }
        for cut in 1..request.len() {
            let (first, second) = request.split_at(cut);
            assert_eq!(play(&[(Client, first), (Client, second), (Server, response)]).len(), 1, "{cut}");
        }
    }
}

#[test]
fn methods_have_their_whole_names() {
    for method in ["PROPFIND", "M-SEARCH", "VERSION-CONTROL", "UNSUBSCRIBE"] {
        let (mut http, mut seen) = (Http::new(1, false), Seen::default());
        hear(&mut http, Client, format!("{method} / HTTP/1.1\r\n\r\n").as_bytes(), at(1), &mut seen);
        hear(&mut http, Server, b"HTTP/1.1 204 No\r\n\r\n", at(2), &mut seen);
        assert_eq!(seen.exchanges[0].op.verb.name(), method);
    }
}

/// A head has as many fields as it has room for.
#[test]
fn heads_with_many_fields_are_read() {
    for count in [64, 65, 150, 10_000] {
        let fields = "a:\r\n".repeat(count);
        let request = format!("GET /a HTTP/1.1\r\n{fields}\r\n");
        let response = format!("HTTP/1.1 200 OK\r\n{fields}Content-Length: 2\r\n\r\nok");
        let all =
            play(&[(Client, &*request), (Server, &*response), (Client, &*request), (Server, &*response)]);
        let sizes: Vec<(u32, u32)> = all.iter().map(|&(request, response, _)| (request, response)).collect();
        assert_eq!(sizes, [(request.len() as u32, response.len() as u32); 2], "{count}");
    }
}
