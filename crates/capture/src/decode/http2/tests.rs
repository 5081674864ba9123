use proptest::prelude::*;
use record::Side::{Client, Server};

use super::stream::{PATH_MAX, key};
use super::*;
use crate::decode::play::{Play, Told};

/// `:status: 200`, and what begins requests: `:scheme: http`, `:path` and `:method` are literals of the static table's names.
const OK: &[u8] = b"\x88";

fn frame(kind: u8, flags: u8, stream: u32, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let length = (payload.len() as u32).to_be_bytes();
    [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn literal(name: u8, value: &str) -> Vec<u8> {
    [&[name, value.len() as u8], value.as_bytes()].concat()
}

fn fields(method: &str, path: &str) -> Vec<u8> {
    [literal(0x02, method), literal(0x04, path), vec![0x86]].concat()
}

fn get(stream: u32, path: &str) -> Vec<u8> {
    frame(frame::HEADERS, 0x5, stream, fields("GET", path))
}

fn head(stream: u32, flags: u8, block: impl AsRef<[u8]>) -> Vec<u8> {
    frame(frame::HEADERS, flags, stream, block)
}

fn data(stream: u32, flags: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    frame(frame::DATA, flags, stream, payload)
}

fn window(stream: u32, by: u32) -> Vec<u8> {
    frame(frame::WINDOW_UPDATE, 0, stream, by.to_be_bytes())
}

fn settings(all: &[(u16, u32)]) -> Vec<u8> {
    let bytes: Vec<u8> =
        all.iter().flat_map(|(id, value)| [&id.to_be_bytes()[..], &value.to_be_bytes()].concat()).collect();
    frame(frame::SETTINGS, 0, 0, bytes)
}

/// A connection that has begun.
fn begun(segment: usize) -> Play {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    play.say(Client, [PREFACE, &settings(&[(3, 100)])].concat());
    play.say(Server, [settings(&[(3, 100)]), frame(frame::SETTINGS, 1, 0, [])].concat());
    play.say(Client, frame(frame::SETTINGS, 1, 0, []));
    play
}

fn counts(told: &Told) -> (u64, usize) {
    (told.counted.unmatched, told.unanswered.len())
}

#[test]
fn interleaved_streams_are_requests_of_their_own() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = begun(segment);
        let post = [head(3, 0x4, fields("POST", "/a/17")), data(3, 1, "body")].concat();
        play.say(Client, [get(1, "/users/17"), post, get(5, "/x?token=1")].concat());
        play.say(
            Server,
            [head(5, 0x5, b"\x8d"), head(1, 0x4, OK), head(3, 0x4, OK), data(1, 0, "one")].concat(),
        );
        play.say(Client, frame(6, 0, 0, [0; 8]));
        play.say(
            Server,
            [data(3, 0, "x"), frame(6, 1, 0, [0; 8]), data(1, 1, "two"), data(3, 1, "")].concat(),
        );
        let told = play.end();
        assert_eq!(told.lines(), ["GET /x 404", "GET /users/:n 200", "POST /a/:n 200"], "{segment}");
        assert_eq!(counts(&told), (0, 0));
        let streams: Vec<u32> = told.exchanges.iter().map(|e| e.stream).collect();
        assert_eq!(streams, [5, 1, 3]);
        let bytes: Vec<_> =
            told.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
        assert_eq!(bytes[1], (get(1, "/users/17").len() as u32, 10 + 12 + 12));
        assert!(told.exchanges.iter().all(|e| e.request.ended <= e.response.began));
    }
}

#[test]
fn blocks_in_pieces_with_padding_and_priority() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = begun(segment);
        let block = fields("PUT", "/continued");
        let (one, rest) = block.split_at(3);
        let (two, three) = rest.split_at(5);
        let padded = [&[4][..], &[0, 0, 0, 0, 16], one, &[0; 4]].concat();
        play.say(Client, frame(frame::HEADERS, 0x1 | 0x8 | 0x20, 1, padded));
        play.say(Client, [frame(9, 0, 1, two), frame(9, 4, 1, three)].concat());
        play.say(Server, frame(frame::HEADERS, 0xc, 1, [&[2][..], OK, &[0; 2]].concat()));
        play.say(Server, frame(frame::DATA, 0x9, 1, [3, b'a', 0, 0, 0]));
        let told = play.end();
        assert_eq!(told.lines(), ["PUT /continued 200"]);
        let took = told.exchanges[0].request.ended.since(told.exchanges[0].request.began);
        assert!(took > Some(0), "its first frame began it");
    }
}

/// A gRPC call and its parts.
fn call(stream: u32, method: &str) -> Vec<u8> {
    let content = [&[0x0f, 0x10, 16][..], b"application/grpc"].concat();
    head(stream, 0x4, [fields("POST", method), content].concat())
}

fn reply_head(stream: u32) -> Vec<u8> {
    head(stream, 0x4, [OK, &[0x0f, 0x10, 16], b"application/grpc"].concat())
}

fn trailers(stream: u32, code: &str) -> Vec<u8> {
    head(stream, 0x5, [&[0, 11][..], b"grpc-status", &literal(0, code)[1..]].concat())
}

fn grpc(text: &str) -> Vec<u8> {
    [&[0, 0, 0, 0, text.len() as u8], text.as_bytes()].concat()
}

#[test]
fn grpc_has_its_method_and_the_status_of_its_trailers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = begun(segment);
        for (stream, code) in [(1, "0"), (3, "14"), (5, "5")] {
            play.say(
                Client,
                [call(stream, "/pkg.v1beta.Echo12/Say99"), data(stream, 1, grpc("hi"))].concat(),
            );
            play.say(
                Server,
                [reply_head(stream), data(stream, 0, grpc("ho")), trailers(stream, code)].concat(),
            );
        }
        // Without a message, and not as gRPC.
        play.say(
            Client,
            [call(7, "/p.S/M"), data(7, 1, grpc("")), call(9, "/p.S/M"), data(9, 1, grpc(""))].concat(),
        );
        play.say(Server, [trailers(7, "12"), head(9, 0x5, b"\x8e")].concat());
        let told = play.end();
        let lines = ["0", "14", "5"].map(|code| format!("gRPC /pkg.v1beta.Echo12/Say99 grpc {code}"));
        assert_eq!(told.lines()[..3], lines, "{segment}");
        assert_eq!(told.lines()[3..], ["gRPC /p.S/M grpc 12", "gRPC /p.S/M 500"]);
        assert_eq!(counts(&told), (0, 0));
        assert!(told.exchanges[1].error.is_some() && told.exchanges[2].error.is_none());
    }
}

#[test]
fn streams_of_messages_are_answered_by_the_first() {
    let mut play = begun(usize::MAX);
    play.say(Client, [call(1, "/p.S/Watch"), data(1, 0, grpc("a"))].concat());
    play.say(Server, reply_head(1)).say(Server, data(1, 0, grpc("first")));
    for _ in 0..5 {
        play.say(Client, data(1, 0, grpc("more"))).say(Server, data(1, 0, grpc("event")));
    }
    // Others are open: one without a message so far, one whose request has no end.
    play.say(Client, [call(3, "/p.S/Watch"), data(3, 1, grpc("a"))].concat()).say(Server, reply_head(3));
    let told = play.end();
    assert_eq!(told.lines(), ["gRPC /p.S/Watch"]);
    assert_eq!(counts(&told), (0, 0));
    let first = &told.exchanges[0];
    assert_eq!(first.response.ended.since(first.response.began), Some(1000));
}

#[test]
fn streams_of_events_last_until_their_end() {
    let mut play = begun(usize::MAX);
    for number in [1, 3, 5] {
        play.say(Client, get(number, "/events"));
        play.say(Server, head(number, 0x4, [OK, &[0x0f, 0x10, 17], b"text/event-stream"].concat()));
        play.say(Server, data(number, 0, "data: 1\n\n"));
    }
    // One ends, the client cancels another, and one is open.
    play.say(Server, data(1, 1, "data: 2\n\n"));
    play.say(Client, frame(frame::RST_STREAM, 0, 3, [0, 0, 0, 8]));
    let told = play.end();
    assert_eq!(told.lines(), ["GET /events 200", "GET /events 200"]);
    assert_eq!(counts(&told), (0, 0));
    for exchange in &told.exchanges {
        let lasted = exchange.response.ended.since(exchange.response.began);
        assert!(lasted.is_some_and(|ns| ns >= 1000), "{exchange:#?}");
        assert!(exchange.error.is_none(), "{exchange:#?}");
    }
}

#[test]
fn answers_that_end_early_or_are_informational() {
    let mut play = begun(usize::MAX);
    play.say(Client, head(1, 0x4, fields("POST", "/big"))).say(Server, head(1, 0x4, b"\x08\x03100"));
    play.say(Client, data(1, 0, "part"));
    play.say(Server, head(1, 0x5, b"\x08\x03413")).say(Server, frame(frame::RST_STREAM, 0, 1, [0; 4]));
    play.say(Client, data(1, 1, "rest"));
    play.say(Client, frame(frame::HEADERS, 0x5, 3, fields("HEAD", "/big"))).say(Server, head(3, 0x5, OK));
    // A pushed stream is no request.
    let promise = [&[0, 0, 0, 2][..], &fields("GET", "/pushed")].concat();
    play.say(Client, get(5, "/")).say(Server, frame(frame::PUSH_PROMISE, 0x4, 5, promise));
    play.say(Server, [head(2, 0x4, OK), head(5, 0x5, OK), data(2, 1, "pushed")].concat());
    // The request goes on behind the beginning of its answer.
    play.say(Client, head(7, 0x4, fields("POST", "/chat"))).say(Server, head(7, 0x4, OK));
    play.say(Client, data(7, 1, "more")).say(Server, data(7, 1, "end"));
    let told = play.end();
    assert_eq!(told.lines(), ["POST /big 413", "HEAD /big 200", "GET / 200", "POST /chat 200"]);
    assert_eq!(counts(&told), (0, 0));
    assert!(told.exchanges.iter().all(|e| e.request.ended <= e.response.began));
}

#[test]
fn streams_that_are_reset_or_refused() {
    let mut play = begun(usize::MAX);
    let reset = |stream, code: u8| frame(frame::RST_STREAM, 0, stream, [0, 0, 0, code]);
    play.say(Client, get(1, "/withdrawn")).say(Client, reset(1, 8)).say(Server, head(1, 0x5, OK));
    play.say(Client, get(3, "/cancelled")).say(Server, head(3, 0x4, OK)).say(Client, reset(3, 8));
    play.say(Client, get(5, "/refused")).say(Server, reset(5, 7));
    play.say(Client, get(7, "/done")).say(Client, get(9, "/above"));
    play.say(Server, [frame(frame::GOAWAY, 0, 0, [0, 0, 0, 7, 0, 0, 0, 0]), head(7, 0x5, OK)].concat());
    let told = play.end();
    assert_eq!(told.lines(), ["GET /cancelled reset 8", "GET /refused reset 7", "GET /done 200"]);
    assert_eq!(counts(&told), (0, 0));
    assert!(told.exchanges[0].error.is_none() && told.exchanges[1].error.is_some());
}

#[test]
fn behind_a_hole_nothing_is_wrong() {
    let mut play = begun(usize::MAX);
    // "/a" is inserted in the client's table, then "/b" where nothing is captured.
    let indexed = |stream, index: u8| head(stream, 0x5, [0x82, 0x86, index]);
    play.say(Client, head(1, 0x5, [&[0x82, 0x86][..], &literal(0x44, "/a")].concat()));
    play.say(Server, head(1, 0x5, OK));
    play.say(Client, indexed(3, 0xbe)).say(Server, head(3, 0x4, OK)).say(Server, data(3, 0, "x"));
    play.lose(Client, 30).lose(Server, 40);
    play.say(Client, indexed(7, 0xbe)).say(Server, head(7, 0x5, OK));
    play.say(Client, head(9, 0x5, [&[0x82, 0x86][..], &literal(0x44, "/c")].concat()));
    play.say(Server, head(9, 0x5, OK));
    play.say(Client, indexed(11, 0xbe)).say(Server, head(11, 0x5, OK));
    play.say(Client, indexed(13, 0xbf)).say(Server, head(13, 0x5, OK));
    let told = play.end();
    // The second had no end when bytes were lost: it is withdrawn when a later one has been answered.
    assert_eq!(told.lines(), ["GET /a 200", "GET  200", "GET /c 200", "GET /c 200", "GET  200"]);
    assert_eq!(counts(&told), (0, 0));
}

#[test]
fn in_the_middle_what_is_not_known_is_not_said() {
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    play.say(Server, data(41, 1, vec![7; 300]));
    // All its fields refer to what was not captured; another one says what it is.
    play.say(Client, head(43, 0x5, [0x83, 0x86, 0xc0, 0xbe])).say(Server, reply_head(43));
    play.say(Server, [data(43, 0, grpc("a")), trailers(43, "0")].concat());
    play.say(Client, get(45, "/b"))
        .say(Server, head(45, 0x5, OK))
        .say(Client, head(47, 0x5, [0x83, 0x86, 0xc0]));
    play.say(Server, head(47, 0x5, OK)).say(Client, get(49, "/never"));
    let told = play.end();
    assert_eq!(told.lines(), ["gRPC  grpc 0", "GET /b 200", "  200"]);
    assert_eq!(told.unanswered.len(), 1);
}

#[test]
fn a_window_without_room_is_a_wait_of_the_request() {
    let mut play = begun(usize::MAX);
    play.say(Client, [get(1, "/large"), get(3, "/small"), get(5, "/early")].concat());
    play.say(Server, [head(1, 0x4, OK), head(3, 0x4, OK), head(5, 0x5, OK)].concat());
    for part in [16_384, 16_384, 16_384, 16_383] {
        play.say(Server, data(1, 0, vec![0; part]));
    }
    play.pause(5_000_000).say(Client, [window(0, 65_535), window(1, 65_535)].concat());
    play.say(Server, [data(1, 0, "goes on"), data(3, 1, "too")].concat());
    play.pause(50_000_000).say(Server, data(1, 1, "its own time"));
    let (told, stalls) = play.end_with_stalls();
    let waits: Vec<_> = told.exchanges.iter().map(|e| e.stalls.wait_ns(StallKind::FlowControl)).collect();
    assert_eq!(told.lines(), ["GET /early 200", "GET /small 200", "GET /large 200"]);
    assert_eq!(waits, [0, 5_002_000, 5_002_000]);
    // Both windows were used up: one wait each.
    let kinds: Vec<_> = stalls.iter().map(|s| (s.kind, s.sender, s.wait_ns)).collect();
    assert_eq!(kinds, [(StallKind::FlowControl, Server, 5_002_000)]);
    assert!(stalls[0].frames.is_sorted() && stalls[0].frames[0] > 0);
}

#[test]
fn windows_have_the_sizes_of_the_settings() {
    let mut play = begun(usize::MAX);
    play.say(Client, [settings(&[(4, 1000)]), head(1, 0x4, fields("PUT", "/up"))].concat());
    play.say(Server, settings(&[(4, 10)]));
    // The client's own setting is for the server's data.
    play.say(Client, data(1, 0, [0; 10])).pause(2_000_000).say(Server, settings(&[(4, 30)]));
    play.say(Client, data(1, 0, [0; 15])).pause(2_000_000).say(Client, data(1, 1, [0; 5]));
    play.say(Server, head(1, 0x5, OK));
    let told = play.end();
    assert_eq!(told.exchanges[0].stalls.wait_ns(StallKind::FlowControl), 2_002_000);
}

/// A server may speak before the client's preface, and give room.
#[test]
fn room_that_is_given_before_the_preface_counts() {
    for (updates, wait_ns) in [(vec![], 3_002_000), (window(0, 10), 0)] {
        let mut play = Play::new(&ENTRY);
        play.say(Server, [settings(&[(4, 1 << 20)]), updates].concat()).say(Client, PREFACE);
        play.say(Client, head(1, 0x4, fields("PUT", "/up")));
        for part in [16_384, 16_384, 16_384, 16_383] {
            play.say(Client, data(1, 0, vec![0; part]));
        }
        play.pause(3_000_000).say(Server, window(0, 65_535)).say(Client, data(1, 1, "x"));
        play.say(Server, head(1, 0x5, OK));
        let told = play.end();
        assert_eq!(told.exchanges[0].stalls.wait_ns(StallKind::FlowControl), wait_ns);
    }
}

#[test]
fn what_only_looks_like_it_is_contradicted() {
    let mut play = begun(usize::MAX);
    for _ in 0..4 {
        play.say(Client, get(1, "/")).say(Server, [0xff; 30]).say(Server, head(1, 0x5, OK));
    }
    assert!(play.is_contradicted());
}

#[test]
fn it_begins_with_its_preface_or_certain_frames() {
    let start = |side, bytes: &[u8]| begins(&Start::new(side, bytes, 80, true));
    assert!(start(Client, PREFACE) && start(Server, &settings(&[(3, 100), (4, 65_535)])));
    assert!(start(Client, &get(31, "/a")) && start(Server, &head(31, 0x4, OK)));
    assert!(!start(Client, b"PRI * HTTP/1.1\r\n") && !start(Server, PREFACE));
    // Data of any stream is no proof, nor are settings without meaning.
    assert!(!start(Server, &data(31, 0, "abc")) && !start(Server, &frame(frame::SETTINGS, 1, 0, [])));
    assert!(!start(Client, &frame(frame::SETTINGS, 0, 0, [0; 12])) && !start(Client, &[0; 64]));
}

#[test]
fn hostile_lengths_cost_nothing() {
    let mut play = begun(usize::MAX);
    play.say(Client, get(1, "/"));
    play.say(Server, [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1]).say(Server, head(1, 0x5, OK));
    assert_eq!(play.end().lines(), ["GET / 200"]);
    // A block without an end, and many streams.
    let mut play = begun(usize::MAX);
    play.say(Client, head(1, 0x1, [0x82]));
    for _ in 0..100 {
        play.say(Client, frame(frame::CONTINUATION, 0, 1, vec![0x82; 1000]));
    }
    play.say(Client, frame(frame::CONTINUATION, 4, 1, [0x82])).say(Server, head(1, 0x5, OK));
    for stream in 1..10_000 {
        play.say(Client, head(stream * 2 + 1, 0x4, OK));
    }
    assert_eq!(play.end().lines(), ["  200"]);
}

#[test]
fn keys_are_folded_unless_they_are_shown() {
    let verbatim = Shown { verbatim: true };
    for (path, is_grpc, shown, expected) in [
        ("/users/17?x=1", false, Shown::default(), "/users/:n"),
        ("/pkg.Service17/Method", true, Shown::default(), "/pkg.Service17/Method"),
        ("/pkg.Service/secret/17", true, Shown::default(), "/pkg.Service/secret/:n"),
        ("/users/17?x=1\n", false, verbatim, "/users/17?x=1\\n"),
    ] {
        assert_eq!(key(path.as_bytes(), is_grpc, shown), expected);
    }
    assert!(key(&[b'/'; 500], false, verbatim).len() <= 4 * PATH_MAX);
}

proptest! {
    /// Whatever frames come in whatever order, nothing panics, and no answer comes before its request.
    #[test]
    fn any_frames_are_survived(
        frames in proptest::collection::vec(
            (any::<bool>(), 0_u8..11, any::<u8>(), 0_u32..8, proptest::collection::vec(any::<u8>(), 0..40), 0_u8..12),
            0..60,
        ),
    ) {
        let mut play = begun(usize::MAX);
        for (from_client, kind, flags, stream, payload, loss) in frames {
            let side = if from_client { Client } else { Server };
            match loss {
                0 => play.lose(side, 5),
                _ => play.say(side, frame(kind, flags, stream, payload)),
            };
        }
        for exchange in play.end().exchanges {
            let took = exchange.response.ended.since(exchange.request.began);
            prop_assert!(took.is_some_and(|ns| ns >= 0), "{exchange:?}");
        }
    }
}
