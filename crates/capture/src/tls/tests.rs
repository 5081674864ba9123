use proptest::prelude::*;
use record::{Exchange, Side, Status};

use super::cipher::Epoch;
use super::cutter::{ALERT, APPLICATION_DATA, CHANGE_CIPHER_SPEC, HANDSHAKE};
use super::keys::Secret;
use super::suite::suite;
use crate::application::{Application, Protocol};
use crate::decode::Shown;
use crate::observer::seen::Seen;
use crate::packet::At;
use crate::stream::Absent;
use crate::{Counted, Keys};
use record::Encryption;

use Side::{Client, Server};

mod talk;
use talk::{Talk, hello_of, key_log, plain};

/// The records of RFC 8448, section 3, and their secrets.
fn rfc8448() -> (Vec<(Side, Vec<u8>)>, Keys) {
    let (mut records, keys) = (Vec::new(), Keys::default());
    for line in include_str!("tests/rfc8448.txt").lines() {
        let side = match line.split_once(' ') {
            Some(("client", hex)) => (Client, hex),
            Some(("server", hex)) => (Server, hex),
            _ => {
                assert_eq!(keys.read(line.as_bytes()).unwrap().wrong_lines, 0, "{line}");
                continue;
            }
        };
        let digits: Vec<u8> = side.1.chars().map(|c| c.to_digit(16).unwrap() as u8).collect();
        records.push((side.0, digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()));
    }
    (records, keys)
}

/// A proxy may write the header of a record apart.
#[test]
fn a_client_hello_in_segments_is_one() {
    let (records, keys) = rfc8448();
    for segment in [1, 5, 50] {
        let mut talk = Talk::with(keys.clone());
        talk.segment = segment;
        records.iter().for_each(|(side, record)| talk.send(*side, record));
        assert_eq!(
            talk.application.tls().map(|tls| tls.encryption),
            Some(Encryption::Decrypted),
            "{segment}"
        );
        assert_eq!(talk.end().exchanges.len(), 1, "{segment}");
    }
}

#[test]
fn the_records_of_rfc_8448_are_decrypted() {
    let (records, keys) = rfc8448();
    assert_eq!((records.len(), keys.count()), (9, 4));
    for segment in [1, 7, 50, 5000] {
        let mut talk = Talk::with(keys.clone());
        for (side, record) in &records {
            talk.send(*side, record);
            // The first segment shows what is spoken.
            talk.segment = segment;
        }
        assert_eq!(talk.application.tls().unwrap().encryption, Encryption::Decrypted);
        let began = |talk: &Talk, n: usize| talk.sent[n].0;
        let times = [began(&talk, 5), talk.sent[5].1, began(&talk, 6), talk.sent[6].1];
        let told = talk.end();
        let [turn] = &told.exchanges[..] else { panic!("{segment}: {:?}", told.exchanges) };
        assert_eq!((turn.op.request_bytes, turn.op.response_bytes), (50, 50), "{segment}");
        // The header of a record is none of its content.
        let [asked, asked_end, answered, answered_end] = times;
        assert!((asked..asked + 6000).contains(&turn.request.began.ns().unwrap()), "{segment}");
        assert_eq!(turn.request.ended.ns(), Some(asked_end), "{segment}: the tag is a part");
        assert!((answered..answered + 6000).contains(&turn.response.began.ns().unwrap()), "{segment}");
        assert_eq!(turn.response.ended.ns(), Some(answered_end), "{segment}");
        assert_eq!((told.counted, told.unanswered), (Counted::default(), 0), "{segment}");
        assert_eq!(turn.response_end_seq, told.ends[6], "{segment}: as without TLS");
    }
}

#[test]
fn without_secrets_they_are_turns_and_the_handshake_is_none() {
    let (records, _) = rfc8448();
    for segment in [1, 7, 50, 5000] {
        let mut talk = Talk::with(Keys::default());
        for (side, record) in &records {
            talk.send(*side, record);
            talk.segment = segment;
        }
        let facts = talk.application.tls().unwrap();
        assert_eq!(facts.encryption, Encryption::NoKeyLog);
        assert_eq!((talk.application.name(), talk.application.undecoded()), ("turns", Some("TLS")));
        let told = talk.end();
        let [turn] = &told.exchanges[..] else { panic!("{segment}: {:?}", told.exchanges) };
        assert_eq!((turn.op.request_bytes, turn.op.response_bytes), (67, 67), "{segment}");
        assert_eq!(told.name_of(turn), "server");
        assert!(turn.overlaps, "what is spoken is not known");
        assert_eq!((told.unanswered, turn.response_end_seq), (0, told.ends[6]));
    }
}

/// Suites of both versions.
const SUITES: [(u16, bool); 6] =
    [(0x1301, true), (0x1302, true), (0x1303, true), (0xc02f, false), (0xc030, false), (0xcca8, false)];

/// A conversation of HTTP: request n asks for a path of its own and gets a status of its own.
fn http(talk: &mut Talk, requests: u16) {
    for n in 0..requests {
        let letter = char::from(b'a' + n as u8);
        talk.say(Client, format!("GET /{letter} HTTP/1.1\r\nHost: x\r\n\r\n"));
        talk.say(Server, format!("HTTP/1.1 {} X\r\nContent-Length: 40\r\n\r\n", 400 + n));
        talk.say(Server, [b'x'; 40]);
    }
}

#[test]
fn http_in_tls_is_the_same_as_without() {
    let expected: Vec<String> =
        (0..20).map(|n| format!("GET /{} {}", char::from(b'a' + n), 400 + u16::from(n))).collect();
    for (number, is_13) in SUITES {
        for segment in [1, 7, 50, 5000] {
            let mut talk = Talk::of(number, is_13);
            talk.segment = segment;
            http(&mut talk, 20);
            talk.alert(Client, &[1, 0]);
            assert_eq!(talk.application.name(), "http", "{number:#x}");
            let told = talk.end();
            assert_eq!(told.lines(), expected, "{number:#x} {segment}");
            assert_eq!((told.counted, told.unanswered), (Counted::default(), 0));
            assert!(told.exchanges.iter().all(|e| e.response.began > e.request.ended));
        }
    }
}

#[test]
fn pipelines_and_records_of_several_messages_are_as_many_requests() {
    let mut talk = Talk::of(0x1301, true);
    let ask = |letter: char| format!("GET /{letter} HTTP/1.1\r\n\r\n");
    let answer = |code: u16| format!("HTTP/1.1 {code} X\r\nContent-Length: 0\r\n\r\n");
    let asked = ['a', 'b', 'c'].map(ask).concat();
    // Two records in one segment, which cut a message.
    let both = [
        talk.seal(Client, APPLICATION_DATA, &asked.as_bytes()[..40]),
        talk.seal(Client, APPLICATION_DATA, &asked.as_bytes()[40..]),
    ];
    talk.send(Client, &both.concat());
    talk.say(Server, [200, 201, 202].map(answer).concat());
    let told = talk.end();
    assert_eq!(told.lines(), ["GET /a 200", "GET /b 201", "GET /c 202"]);
    let ends: Vec<u32> = told.exchanges.iter().map(|e| e.response_end_seq).collect();
    assert!(ends.windows(2).all(|pair| pair[0] < pair[1]), "{ends:?}");
}

#[test]
fn key_updates_padding_and_tickets_are_followed() {
    let mut talk = Talk::of(0x1302, true);
    http(&mut talk, 2);
    talk.seal_and_send(Server, HANDSHAKE, &[4, 0, 0, 3, 1, 2, 3]);
    for side in [Client, Server, Server] {
        talk.seal_and_send(side, HANDSHAKE, &[24, 0, 0, 1, 0]);
        talk.update(side);
        talk.say(Client, "GET /x HTTP/1.1\r\n\r\n");
        talk.padding = 100;
        talk.say(Server, "HTTP/1.1 204 X\r\n\r\n");
        talk.padding = 0;
    }
    let told = talk.end();
    assert_eq!(told.lines(), ["GET /a 400", "GET /b 401", "GET /x 204", "GET /x 204", "GET /x 204"]);
}

#[test]
fn alpn_decides_what_is_spoken() {
    // HTTP/2 whose preface the capture has lost.
    let mut talk = Talk::with(key_log(|_| {}, true, 32));
    talk.alpn = b"\0\x09\0\x10\0\x05\0\x03\x02h2";
    talk.handshake(0x1301, true);
    talk.lose_record = true;
    talk.say(Client, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    talk.lose_record = false;
    talk.say(Server, b"\0\0\0\x04\0\0\0\0\0");
    assert_eq!(talk.application.name(), "http2");
}

#[test]
fn early_data_are_named_and_cost_nothing_else() {
    let mut talk = Talk::early(0x1301);
    http(&mut talk, 3);
    let facts = talk.application.tls().unwrap();
    assert!(facts.has_early_data && facts.encryption == Encryption::Decrypted);
    assert_eq!(talk.end().lines(), ["GET /a 400", "GET /b 401", "GET /c 402"]);
}

#[test]
fn secrets_of_another_connection_are_told_and_leave_turns() {
    for (number, is_13) in SUITES {
        let wrong =
            key_log(|secret: &mut [u8]| secret[0] ^= 1, is_13, suite(number, is_13).unwrap().hash.bytes());
        let none = Keys::default();
        none.read(
            &b"CLIENT_RANDOM 00000000000000000000000000000000000000000000000000000000000000ff \
            000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000000"
                [..],
        )
        .unwrap();
        let mut counts = Vec::new();
        for (keys, why) in [
            (wrong, Encryption::WrongSecret),
            (none, Encryption::NoSecret),
            (Keys::default(), Encryption::NoKeyLog),
        ] {
            let mut talk = Talk::keyed(number, is_13, keys);
            http(&mut talk, 9);
            talk.alert(Client, &[1, 0]);
            talk.alert(Server, &[1, 0]);
            assert_eq!(talk.application.tls().unwrap().encryption, why, "{number:#x}");
            assert_eq!((talk.application.name(), talk.application.undecoded()), ("turns", Some("TLS")));
            let told = talk.end();
            assert!(told.exchanges.iter().all(|e| e.op.verb == record::Verb::Turn), "{number:#x}");
            assert_eq!(told.name_of(&told.exchanges[0]), "a.example (h2, http/1.1)");
            counts.push((told.exchanges.len(), told.unanswered));
        }
        assert_eq!(counts, [(9, 0); 3], "{number:#x}");
    }
}

#[test]
fn a_suite_that_cannot_be_decrypted_is_named() {
    for (number, is_13) in [(0xc013, false), (0x1304, true)] {
        let mut talk = Talk::with(key_log(|_| {}, is_13, 32));
        talk.send(Client, &hello_of(Client, number, is_13, false));
        talk.send(Server, &hello_of(Server, number, is_13, false));
        assert_eq!(talk.application.tls().unwrap().encryption, Encryption::Suite(number));
    }
}

#[test]
fn alerts_that_end_a_connection_are_errors() {
    // In answer to the hello.
    let mut talk = Talk::with(Keys::default());
    talk.send(Client, &hello_of(Client, 0x1301, true, false));
    talk.send(Server, &plain(ALERT, &[2, 40]));
    let told = talk.end();
    assert_eq!(told.lines(), ["HANDSHAKE a.example (h2, http/1.1) tls handshake_failure"]);
    assert!(told.exchanges[0].error.is_some() && told.unanswered == 0);
    // The client refuses the certificate, and the server a client without one.
    for (side, code) in [(Client, 48), (Server, 116)] {
        let mut talk = Talk::of(0x1301, true);
        talk.alert(side, &[2, code]);
        let told = talk.end();
        assert_eq!((told.exchanges.len(), told.exchanges[0].status), (1, Status::Alert(code)));
        assert_eq!(told.exchanges[0].op.verb.name(), "HANDSHAKE");
    }
    // Behind data.
    let mut talk = Talk::of(0xc02f, false);
    http(&mut talk, 2);
    talk.alert(Server, &[2, 80]);
    let told = talk.end();
    assert_eq!(told.exchanges.len(), 3);
    assert_eq!(
        (told.exchanges[2].op.verb.name().as_str(), told.exchanges[2].status),
        ("ALERT", Status::Alert(80))
    );
    // OpenSSL's servers are told of an end of the stream without that of the session, behind all answers.
    let mut talk = Talk::of(0x1301, true);
    http(&mut talk, 2);
    talk.close(Client);
    talk.alert(Server, &[2, 50]);
    let told = talk.end();
    assert_eq!((told.exchanges.len(), told.unanswered), (2, 0));
    // What closes a connection as it should.
    let mut talk = Talk::of(0x1301, true);
    http(&mut talk, 2);
    talk.alert(Client, &[1, 0]);
    assert_eq!(talk.end().exchanges.len(), 2);
}

#[test]
fn a_hello_without_an_answer_is_told() {
    let mut talk = Talk::with(Keys::default());
    talk.send(Client, &hello_of(Client, 0x1301, true, false));
    assert_eq!(talk.application.awaited(true), 1);
    let told = talk.end();
    assert_eq!((told.unanswered, told.counted.unanswered, told.exchanges.len()), (1, 1, 0));
}

#[test]
fn a_middle_is_turns_and_says_why() {
    let mut talk = Talk::in_the_middle(key_log(|_| {}, true, 32));
    let mut sealed = Talk::of(0x1301, true);
    for _ in 0..3 {
        let asked = sealed.seal(Client, APPLICATION_DATA, b"GET / HTTP/1.1\r\n\r\n");
        talk.send(Client, &asked);
        let answered = sealed.seal(Server, APPLICATION_DATA, b"HTTP/1.1 204 X\r\n\r\n");
        talk.send(Server, &answered);
    }
    assert_eq!(talk.application.tls().unwrap().encryption, Encryption::NoHandshake);
    assert_eq!(talk.application.undecoded(), Some("TLS"));
    assert_eq!(talk.end().exchanges.len(), 3);
}

#[test]
fn a_database_goes_on_in_what_it_agreed_on() {
    let query = |talk: &mut Talk, sql: &str| {
        let length = (sql.len() as u32 + 5).to_be_bytes();
        talk.say(Client, [&b"Q"[..], &length, sql.as_bytes(), &[0]].concat());
        talk.say(Server, b"C\0\0\0\x0dSELECT 1\0Z\0\0\0\x05I");
    };
    let mut talk = Talk::with(key_log(|_| {}, true, 32));
    talk.send(Client, b"\0\0\0\x08\x04\xd2\x16\x2f");
    talk.send(Server, b"S");
    talk.handshake(0x1301, true);
    talk.send_startup();
    query(&mut talk, "SELECT a FROM b WHERE c = 17");
    assert_eq!(talk.application.name(), "postgres");
    let told = talk.end();
    assert_eq!(told.lines(), ["startup ok", "SELECT SELECT a FROM b WHERE c = ? ok"]);
    // The same without secrets.
    let mut talk = Talk::with(Keys::default());
    talk.send(Client, b"\0\0\0\x08\x04\xd2\x16\x2f");
    talk.send(Server, b"S");
    talk.handshake(0x1301, true);
    query(&mut talk, "SELECT 1");
    assert_eq!((talk.application.name(), talk.application.undecoded()), ("turns", Some("TLS")));
    assert_eq!(talk.end().exchanges.len(), 1);
}

/// Each record in turn is not in the capture: what is told is right, and no more than the messages that it touches is missing.
#[test]
fn a_lost_record_costs_its_messages_and_pairs_nothing_wrongly() {
    for (number, is_13) in SUITES {
        for lost in 0..60 {
            let mut talk = Talk::of(number, is_13);
            talk.lost = Some(lost);
            http(&mut talk, 20);
            let told = talk.end();
            told.assert_pairs();
            let missing = 20 - told.exchanges.len();
            // The body of a response is not needed, if its length is told by what is behind it.
            let most = if lost % 3 == 2 && lost < 59 { 0 } else { 1 };
            assert!(missing <= most, "{number:#x} {lost}: {:?}", told.lines());
        }
    }
}

/// What a client asks before the first answer shows the protocol is decoded, too.
#[test]
fn requests_before_the_answer_that_shows_the_protocol_are_decoded() {
    for (number, is_13) in SUITES {
        let mut talk = Talk::of(number, is_13);
        for _ in 0..5 {
            talk.say(Client, "get k:1\r\n".repeat(4));
            for _ in 0..4 {
                talk.say(Server, "VALUE k:1 0 1\r\nx\r\nEND\r\n");
            }
        }
        assert_eq!(talk.application.name(), "memcached");
        let told = talk.end();
        let found = (told.exchanges.len(), told.counted.unmatched, told.counted.abandoned);
        assert_eq!(found, (20, 0, 0), "{number:#x}: {:?}", told.lines());
    }
}

/// A record is lost among those with what the client asks first: what is kept of it does not count its requests, and no answer is shifted.
#[test]
fn a_hole_in_what_the_client_asks_first_shifts_no_answer() {
    for lost in 0..3 {
        let mut talk = Talk::of(0x1301, true);
        talk.lose_next(lost);
        let before = talk.sent.len();
        for k in ["a", "b", "c"] {
            talk.say(Client, format!("get {k}:1\r\n"));
        }
        for k in ["a", "b", "c"] {
            talk.say(Server, format!("VALUE {k}:1 0 1\r\nx\r\nEND\r\n"));
        }
        let mut sent = talk.sent[before..].to_vec();
        sent.insert(lost, (0, 0));
        let told = talk.end();
        for exchange in &told.exchanges {
            let own = (exchange.request.began.ns().unwrap(), exchange.response.ended.ns().unwrap());
            let is_own = (0..3).any(|n| own == (sent[n].0, sent[n + 3].1));
            // Where the protocol has not shown itself, all of it is one turn.
            let is_turn = exchange.op.verb == record::Verb::Turn;
            assert!(is_own || is_turn, "{lost}: {own:?} of {sent:?}, {:?}", told.lines());
        }
    }
}

/// Several requests in a record, each answer in one of its own: one that is lost costs its batch, of HTTP and of what is framed.
#[test]
fn a_lost_answer_to_a_record_of_several_requests_costs_their_batch() {
    let postgres = |kind: &str, body: &str| format!("{kind}\0\0\0{}{body}", char::from(body.len() as u8 + 4));
    for is_http in [true, false] {
        for lost in 0..25 {
            let mut talk =
                if is_http { Talk::of(0x1301, true) } else { Talk::with(key_log(|_| {}, true, 32)) };
            if !is_http {
                talk.send(Client, b"\0\0\0\x08\x04\xd2\x16\x2f");
                talk.send(Server, b"S");
                talk.handshake(0x1301, true);
                talk.send_startup();
            }
            talk.lose_next(lost);
            let before = talk.sent.len();
            for n in 0..5 * 4 {
                let letter = char::from(b'a' + n as u8);
                let ask = |letter: char| match is_http {
                    true => format!("GET /{letter} HTTP/1.1\r\nHost: x\r\n\r\n"),
                    false => postgres("Q", &format!("SELECT {letter}\0")),
                };
                if n % 4 == 0 {
                    talk.say(Client, (0..4).map(|k| ask(char::from(letter as u8 + k))).collect::<String>());
                }
                talk.say(
                    Server,
                    match is_http {
                        true => format!("HTTP/1.1 {} X\r\nContent-Length: 0\r\n\r\n", 400 + n),
                        false => postgres("C", "SELECT 1\0") + &postgres("Z", "I"),
                    },
                );
            }
            // What was lost has no times.
            let mut sent = talk.sent[before..].to_vec();
            sent.insert(lost, (0, 0));
            let pairs: Vec<(u64, u64)> = (sent.chunks(5))
                .flat_map(|batch| batch[1..].iter().map(|answer| (batch[0].0, answer.1)))
                .collect();
            let told = talk.end();
            let exchanges = &told.exchanges[usize::from(!is_http)..];
            for exchange in exchanges {
                let own = (exchange.request.began.ns().unwrap(), exchange.response.ended.ns().unwrap());
                assert!(pairs.contains(&own), "{is_http} {lost}: {own:?} of {pairs:?}");
            }
            if is_http {
                told.assert_pairs();
            }
            let missing = 20 - exchanges.len();
            assert!(missing <= 4, "{is_http} {lost}: {missing} {:?}", told.lines());
        }
    }
}

/// A capture that keeps only the beginning of each packet has no whole record: what it touches is missing, and nothing is made up.
#[test]
fn a_snap_length_makes_nothing_up() {
    for (number, is_13) in SUITES {
        let mut talk = Talk::of(number, is_13);
        http(&mut talk, 5);
        talk.kept = 30;
        http(&mut talk, 5);
        let told = talk.end();
        told.assert_pairs();
        assert_eq!(told.exchanges.len(), 5, "{number:#x}");
    }
}

/// What is lost ends anywhere, and takes key updates with it.
#[test]
fn holes_of_any_place_and_length_cost_what_they_touch() {
    for (number, is_13) in SUITES {
        for seed in 0..150 {
            let mut random = fastrand::Rng::with_seed(seed);
            let mut talk = Talk::of(number, is_13);
            let from = random.u32(0..3000);
            let count = random.u32(1..1500);
            talk.segment = *random.choice(&[30, 100, 1448]).unwrap();
            talk.hole = Some((*random.choice(&[Client, Server]).unwrap(), from, count));
            for round in 0..4 {
                for n in round * 5..round * 5 + 5 {
                    let letter = char::from(b'a' + n);
                    talk.say(Client, format!("GET /{letter} HTTP/1.1\r\nHost: x\r\n\r\n"));
                    let body = random.usize(0..300);
                    talk.say(
                        Server,
                        format!("HTTP/1.1 {} X\r\nContent-Length: {body}\r\n\r\n", 400 + u16::from(n)),
                    );
                    talk.say(Server, vec![b'x'; body]);
                }
                if is_13 && round == 1 {
                    for side in [Client, Server] {
                        talk.seal_and_send(side, HANDSHAKE, &[24, 0, 0, 1, 0]);
                        talk.update(side);
                    }
                }
            }
            let touched = talk.touched.len();
            let told = talk.end();
            told.assert_pairs();
            let missing = 20 - told.exchanges.len();
            assert!(missing <= touched, "{number:#x} {seed}: {missing} of {touched}: {:?}", told.lines());
        }
    }
}

proptest! {
    /// Whatever comes behind the hellos: nothing panics, and no request of HTTP is made up.
    #[test]
    fn any_records_are_survived(
        place in 0..SUITES.len(),
        keyed: bool,
        parts in proptest::collection::vec(
            (any::<bool>(), 19_u8..26, proptest::collection::vec(any::<u8>(), 0..80), 0_u8..6, 0_u64..70_000),
            0..40,
        ),
    ) {
        let (number, is_13) = SUITES[place];
        let mut talk = if keyed { Talk::of(number, is_13) } else { Talk::keyed(number, is_13, Keys::default()) };
        for (from_client, kind, bytes, how, lost) in parts {
            let side = if from_client { Client } else { Server };
            match how {
                0 => talk.lose(side, lost + 1),
                1 => { talk.send(side, &bytes); }
                2 => { talk.send(side, &[&[kind, 3, 3, (lost >> 8) as u8, lost as u8], &bytes[..]].concat()); }
                3 => { talk.send(side, &plain(kind, &bytes)); }
                4 => { talk.seal_and_send(side, kind, &bytes); }
                _ => { talk.say(side, &bytes); }
            }
        }
        let told = talk.end();
        prop_assert!(told.exchanges.iter().all(|e| !matches!(e.op.verb, record::Verb::Http(_))));
        for exchange in &told.exchanges {
            let took = exchange.response.ended.since(exchange.request.began);
            prop_assert!(took.is_some_and(|ns| ns >= 0), "{exchange:?}");
        }
    }
}
