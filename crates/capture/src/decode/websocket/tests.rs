use super::*;
use crate::decode::Shown;
use crate::decode::play::{Play, Told};

use Side::{Client, Server};

/// A frame: its first byte, and its payload, masked if the client sends it.
fn frame(side: Side, first: u8, payload: impl AsRef<[u8]>) -> Vec<u8> {
    let payload = payload.as_ref();
    let mask = if side == Client { 0x80 } else { 0 };
    let mut bytes = vec![first];
    match payload.len() {
        length @ ..126 => bytes.push(mask | length as u8),
        length @ ..65_536 => {
            bytes.push(mask | 126);
            bytes.extend((length as u16).to_be_bytes());
        }
        length => {
            bytes.push(mask | 127);
            bytes.extend((length as u64).to_be_bytes());
        }
    }
    let key: &[u8] = if side == Client { &[0x37, 0xfa, 0x21, 0x3d] } else { &[] };
    bytes.extend(key);
    bytes.extend(payload.iter().enumerate().map(|(at, byte)| byte ^ key.get(at % 4).unwrap_or(&0)));
    bytes
}

fn text(side: Side, text: &str) -> Vec<u8> {
    frame(side, 0x81, text)
}

/// A connection behind its handshake.
fn opened(segment: usize) -> Play {
    let mut play = Play::new(&ENTRY);
    play.say(Client, "GET /chat HTTP/1.1\r\nUpgrade: websocket\r\n\r\n");
    play.say(Server, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n");
    play.segment = segment;
    play
}

/// Operation and status of each exchange, and whether it overlaps.
fn lines(told: &Told) -> Vec<String> {
    let marks = told.exchanges.iter().map(|e| if e.overlaps { " overlaps" } else { "" });
    told.lines().iter().zip(marks).map(|(line, mark)| format!("{}{mark}", line.replace("  ", " "))).collect()
}

#[test]
fn a_message_is_answered_by_the_next_one() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = opened(segment);
        for length in [0, 5, 125, 126, 70_000] {
            play.say(Client, frame(Client, 0x81, vec![b'q'; length]));
            play.say(Server, frame(Server, 0x82, vec![1; length]));
        }
        play.say(Client, frame(Client, 0xc2, [1, 2, 3])).say(Server, frame(Server, 0xc1, [9; 300]));
        let told = play.end();
        let expected = ["TEXT", "TEXT", "TEXT", "TEXT", "TEXT", "BINARY"];
        assert_eq!(lines(&told), expected, "{segment}");
        let bytes: Vec<_> =
            told.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
        let lengths = [(6, 2), (11, 7), (131, 127), (134, 130), (70_014, 70_010), (9, 304)];
        assert_eq!(bytes, lengths);
        assert!(told.exchanges.iter().all(|e| e.response.began.since(e.request.ended) == Some(1000)));
        let counted = told.counted;
        assert_eq!((counted.unmatched, counted.abandoned, told.unanswered.len()), (0, 0, 0));
    }
}

#[test]
fn fragments_are_one_message_with_control_frames_between() {
    let mut play = opened(usize::MAX);
    play.say(Client, frame(Client, 0x01, "a")).say(Client, frame(Client, 0x89, "p"));
    play.say(Client, frame(Client, 0x00, "b")).say(Server, frame(Server, 0x8a, "p"));
    play.say(Client, frame(Client, 0x80, "c"));
    play.say(Server, frame(Server, 0x02, "x")).say(Server, frame(Server, 0x89, ""));
    play.say(Client, frame(Client, 0x8a, "")).say(Server, frame(Server, 0x80, "y"));
    play.say(Client, text(Client, "d")).say(Server, text(Server, "z"));
    let told = play.end();
    assert_eq!(lines(&told), ["PING ok", "TEXT", "TEXT"]);
    let first = &told.exchanges[1];
    assert_eq!((first.op.request_bytes, first.op.response_bytes), (21, 6));
    assert_eq!(first.request.ended.since(first.request.began), Some(4000));
    assert_eq!(first.response.ended.since(first.response.began), Some(3000));
}

#[test]
fn pings_are_answered_by_their_payload() {
    let mut play = opened(usize::MAX);
    for payload in ["a", "b", "", "a"] {
        play.say(Client, frame(Client, 0x89, payload));
    }
    play.say(Server, frame(Server, 0x8a, "unasked"));
    for payload in ["a", "b", "", "a"] {
        play.say(Server, frame(Server, 0x8a, payload));
    }
    // A server's ping is no request, nor is its answer a message.
    play.say(Server, frame(Server, 0x89, "s")).say(Client, frame(Client, 0x8a, "s"));
    // The last of several may be the only one that is answered.
    play.say(Client, frame(Client, 0x89, "old")).say(Client, frame(Client, 0x89, "new"));
    play.say(Server, frame(Server, 0x8a, "new"));
    let told = play.end();
    assert_eq!(lines(&told), ["PING ok"; 5]);
    let took: Vec<_> = told.exchanges.iter().map(|e| e.response.ended.since(e.request.ended)).collect();
    assert_eq!(took, [5000, 5000, 5000, 5000, 1000].map(Some));
    assert_eq!((told.unanswered.len(), told.counted.unmatched), (0, 0));
}

#[test]
fn messages_without_one_answer_overlap_from_then_on() {
    let alternating = |play: &mut Play| {
        play.say(Client, text(Client, "q")).say(Server, text(Server, "a"));
    };
    // Two messages before an answer, an answer of two, and a message while the answer is still coming.
    let cases: [&[(Side, u8)]; 4] = [
        &[(Client, 0x81), (Client, 0x81), (Server, 0x81)],
        &[(Client, 0x81), (Server, 0x81), (Server, 0x81)],
        &[(Client, 0x81), (Server, 0x01), (Client, 0x81), (Server, 0x80)],
        &[(Client, 0x01), (Server, 0x81), (Client, 0x80)],
    ];
    for case in cases {
        let mut play = opened(usize::MAX);
        alternating(&mut play);
        for &(side, first) in case {
            play.say(side, frame(side, first, "m"));
        }
        alternating(&mut play);
        let told = play.end();
        assert_eq!(lines(&told), ["TEXT", "TEXT overlaps", "TEXT overlaps"], "{case:?}");
    }
}

/// What left before its sender had received the other's message is no answer to it.
#[test]
fn the_acknowledgements_show_who_did_not_wait() {
    // The server's messages cross the client's: the first is a greeting, the second is unasked.
    let mut play = opened(usize::MAX);
    play.say(Client, text(Client, "q")).say_behind(Server, text(Server, "hello"));
    play.say(Server, text(Server, "a"));
    play.say(Client, text(Client, "q")).say(Server, text(Server, "a"));
    play.say(Client, text(Client, "q")).say_behind(Server, text(Server, "push"));
    play.say(Server, text(Server, "a"));
    let told = play.end();
    assert_eq!(lines(&told), ["TEXT", "TEXT", "TEXT overlaps"]);
    assert!(told.exchanges.iter().all(|e| e.op.response_bytes == 3));
    // The client asks again before the answer has come.
    let mut play = opened(usize::MAX);
    play.say(Client, text(Client, "q")).say(Server, text(Server, "a"));
    play.say_behind(Client, text(Client, "q")).say(Server, text(Server, "a"));
    assert_eq!(lines(&play.end()), ["TEXT overlaps", "TEXT overlaps"]);
}

#[test]
fn a_subscriber_has_one_turn() {
    let mut play = opened(usize::MAX);
    play.say(Server, text(Server, "welcome")).say(Client, text(Client, "subscribe"));
    for _ in 0..100 {
        play.say(Server, text(Server, "event"));
    }
    let told = play.end();
    assert_eq!(lines(&told), ["TEXT overlaps"]);
    assert_eq!(told.exchanges[0].op.response_bytes, 700);
    // A client that only tells waits for nothing, and one whose server only tells asks nothing.
    let mut play = opened(usize::MAX);
    for _ in 0..10 {
        play.say(Client, text(Client, "value"));
    }
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len()), (0, 1));
    assert!(told.unanswered[0].overlaps);
    let mut play = opened(usize::MAX);
    play.say(Server, text(Server, "event")).say(Server, text(Server, "event"));
    assert!(play.end().exchanges.is_empty());
}

#[test]
fn a_close_has_its_code() {
    let closing = |side: Side, code: u16| frame(side, 0x88, code.to_be_bytes());
    for (codes, expected) in [
        ((1000, 1000), "CLOSE ok"),
        ((1001, 1001), "CLOSE ok"),
        ((1002, 1002), "CLOSE PROTOCOL"),
        ((1009, 1000), "CLOSE TOO_BIG"),
        ((1000, 4321), "CLOSE 4321"),
    ] {
        let mut play = opened(usize::MAX);
        play.say(Client, closing(Client, codes.0)).say(Server, closing(Server, codes.1));
        assert_eq!(lines(&play.end()), [expected]);
    }
    let mut play = opened(usize::MAX);
    play.say(Client, frame(Client, 0x88, "")).say(Server, frame(Server, 0x88, ""));
    assert_eq!(lines(&play.end()), ["CLOSE ok"]);
    // A server that has no time for it.
    let mut play = opened(usize::MAX);
    play.say(Client, closing(Client, 1000));
    assert_eq!(play.end().unanswered.len(), 0);
    // The server refuses the message in flight; the client's Close is its echo.
    let mut play = opened(usize::MAX);
    play.say(Client, text(Client, "q")).say(Server, closing(Server, 1011)).say(Client, closing(Client, 1011));
    let told = play.end();
    assert_eq!((lines(&told), told.unanswered.len()), (vec!["TEXT INTERNAL".to_owned()], 0));
    assert!(told.exchanges[0].error.is_some());
    // It says goodbye, which answers nothing.
    let mut play = opened(usize::MAX);
    play.say(Client, text(Client, "q")).say(Server, closing(Server, 1001)).say(Client, closing(Client, 1001));
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len()), (0, 1));
}

#[test]
fn a_hole_within_a_message_costs_nothing() {
    let mut play = opened(usize::MAX);
    let long = frame(Server, 0x82, vec![7; 5000]);
    for _ in 0..3 {
        play.say(Client, text(Client, "q")).say(Server, &long[..1000]).lose(Server, 3000);
        play.say(Server, &long[4000..]);
    }
    let told = play.end();
    assert_eq!(lines(&told), ["TEXT"; 3]);
    assert!(told.exchanges.iter().all(|e| e.op.response_bytes == 5004));
}

#[test]
fn a_hole_costs_the_turns_that_it_touches() {
    for side in [Client, Server] {
        let mut play = opened(usize::MAX);
        let turn = |play: &mut Play, n: u32| {
            // Each turn has a length of its own.
            let bytes = format!("message {}", "x".repeat(n as usize));
            play.say(Client, text(Client, &bytes)).say(Server, text(Server, &bytes));
        };
        (0..10).for_each(|n| turn(&mut play, n));
        play.lose(side, 500);
        (10..30).for_each(|n| turn(&mut play, n));
        let told = play.end();
        let count = told.exchanges.len();
        assert!((25..30).contains(&count), "{side:?}: {count}");
        for e in &told.exchanges {
            assert_eq!(e.op.request_bytes, e.op.response_bytes + 4, "a message and its echo");
            assert_eq!(e.response.ended.since(e.request.ended), Some(1000));
            assert!(!e.overlaps);
        }
        assert_eq!(told.unanswered.len(), 0);
    }
}

/// A hole shows itself in the stream when its side sends again, and before that in what the other side acknowledges.
#[test]
fn a_hole_that_shows_itself_later_pairs_and_marks_nothing() {
    let message = |n: u32| format!("message {}", "x".repeat(n as usize));
    for (of_client, of_server) in [(true, false), (false, true), (true, true)] {
        let mut play = opened(usize::MAX);
        for n in 0..60_u32 {
            let messages = [text(Client, &message(n)), text(Server, &message(n))];
            for (side, bytes, is_lost) in
                [(Client, &messages[0], of_client), (Server, &messages[1], of_server)]
            {
                if is_lost && n % 20 == 10 {
                    play.lose_unnoticed(side, bytes.len() as u64);
                } else {
                    play.say(side, bytes);
                }
            }
        }
        let told = play.end();
        let count = told.exchanges.len();
        assert!((40..60).contains(&count), "{of_client} {of_server}: {count}");
        for e in &told.exchanges {
            assert_eq!(e.op.request_bytes, e.op.response_bytes + 4, "a message and its echo");
            assert_eq!(e.response.ended.since(e.request.ended), Some(1000));
            assert!(!e.overlaps, "{of_client} {of_server}");
        }
        assert_eq!(told.unanswered.len(), 0);
    }
}

#[test]
fn only_a_chain_of_frames_ends_a_hole() {
    let mut seed = 1_u32;
    let mut random = move || {
        seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (seed >> 24) as u8
    };
    let patterns: Vec<Vec<u8>> = vec![
        vec![0; 1448],
        vec![0x80; 1448],
        vec![0x81; 1448],
        [0x82, 0x02].repeat(700),
        [0x02, 0x02].repeat(700),
        [0x00, 0x02].repeat(700),
        [0x89, 0x00].repeat(700),
        b"ABBA".repeat(300),
        "\u{1000}\u{2000}".repeat(200).into_bytes(),
    ];
    for side in [Client, Server] {
        let mut chain = Chain::default();
        for _ in 0..200_000 {
            let segment: Vec<u8> = (0..random() % 130).map(|_| random()).collect();
            assert!(!chain.proves(side, &segment), "{segment:?}");
        }
        for pattern in &patterns {
            let mut chain = Chain::default();
            for length in [pattern.len(), 2, 4, 6, 7, 127, 700] {
                let is_found = chain.proves(side, &pattern[..length.min(pattern.len())]);
                assert!(!is_found, "{side:?} {length} {:x?}", &pattern[..4]);
            }
        }
        // One short frame is no proof, a few are.
        let mut chain = Chain::default();
        let found: Vec<bool> = (0..4).map(|n| chain.proves(side, &frame(side, 0x82, vec![n; 9]))).collect();
        assert_eq!(found, [false, false, true, true], "{side:?}");
    }
    // What is in the middle of a message is skipped.
    let mut chain = Chain::default();
    let long = frame(Server, 0x82, vec![3; 3000]);
    for part in [&frame(Server, 0x81, "one"), &frame(Server, 0x81, "two"), &long[..1448], &long[1448..2896]] {
        chain.proves(Server, part);
    }
    assert!(!chain.proves(Server, &long[2896..]));
    assert!(chain.proves(Server, &frame(Server, 0x81, "three")));
}

#[test]
fn in_the_middle_text_of_a_client_is_found() {
    let json = "{\"id\":17,\"method\":\"state\",\"params\":[]}";
    let is_begun = |side, bytes: &[u8], is_first| begins(&Start::new(side, bytes, 80, is_first));
    assert!(is_begun(Client, &text(Client, json), false));
    assert!(!is_begun(Client, &text(Client, json), true), "a connection begins with HTTP");
    assert!(!is_begun(Server, &text(Server, json), false), "a server's frame has no mask");
    assert!(!is_begun(Client, &text(Client, "short"), false));
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    for n in 0..12 {
        let bytes = format!("{json}{}", "x".repeat(n));
        play.say(Client, text(Client, &bytes)).say(Server, text(Server, &bytes));
    }
    let told = play.end();
    assert!(told.exchanges.len() >= 8, "{}", told.exchanges.len());
    assert!(told.exchanges.iter().all(|e| !e.overlaps && e.op.request_bytes == e.op.response_bytes + 4));
}

#[test]
fn frames_that_are_none_are_contradicted() {
    let hostile: [(Side, &[u8]); 13] = [
        (Client, &[0x81, 0x05, b'h', b'e', b'l', b'l', b'o']),
        (Server, &[0x81, 0x85, 1, 2, 3, 4, b'h', b'e', b'l', b'l', b'o']),
        (Server, &[0xa1, 0x00]),
        (Server, &[0x83, 0x00]),
        (Server, &[0x09, 0x00]),
        (Server, &[0x89, 0x7e, 0, 126]),
        (Server, &[0xc9, 0x00]),
        (Server, &[0xc0, 0x00]),
        (Server, &[0x82, 0x7e, 0, 125]),
        (Server, &[0x82, 0x7f, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
        (Server, &[0x82, 0x7f, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        (Server, &[0x82, 0x7f, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]),
        (Server, &[0x80, 0x01, 0x00]),
    ];
    for (side, bytes) in hostile {
        let mut play = opened(usize::MAX);
        play.say(Client, text(Client, "q")).say(side, bytes).say(Server, text(Server, "a"));
        let told = play.end();
        assert_eq!((told.exchanges.len(), told.counted.boundaries_lost), (0, 1), "{bytes:x?}");
    }
    let mut play = opened(usize::MAX);
    for _ in 0..20 {
        play.say(Client, [0xff; 40]).say(Server, [0xff; 40]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn pings_are_bounded() {
    let mut play = opened(usize::MAX);
    for n in 0..10_000_u32 {
        play.say(Client, frame(Client, 0x89, n.to_be_bytes()));
    }
    assert_eq!(play.end().unanswered.len(), PINGS_MAX);
}

/// A capture of the fronts of packets that begins in the middle: each frame's rest is missing.
#[test]
fn cut_frames_are_found_again() {
    const SNAP: usize = 40;
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    for _ in 0..20 {
        for side in [Client, Server] {
            let frame = frame(side, 0x82, [7; 300]);
            play.say(side, &frame[..SNAP]).cut(side, (frame.len() - SNAP) as u64);
        }
    }
    let told = play.end();
    assert!((14..20).contains(&told.exchanges.len()), "{}", told.exchanges.len());
    let sizes = told.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes));
    assert!(sizes.into_iter().all(|sizes| sizes == (308, 304)));
}
