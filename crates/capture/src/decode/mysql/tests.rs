use super::*;
use crate::decode::play::Play;
use crate::decode::play::each_packet::{Cost, assert_each_packet_lost, assert_each_packet_of_a_window_lost};

use Side::{Client, Server};

const SEGMENTS: [usize; 4] = [usize::MAX, 1, 7, 50];

/// A greeting of MariaDB 10.11.
const GREETING: &[u8] = b"\x0a5.5.5-10.11.14-MariaDB\0\x05\0\0\0ABCDEFGH\0\xfe\xf7\x2d\x02\0\xff\x81\x15\0\0\0\0\0\0\x1d\0\0\0abcdefghijkl\0mysql_native_password\0";
/// With CLIENT_PROTOCOL_41, without CLIENT_DEPRECATE_EOF.
const CAPABILITIES: u32 = 0x000f_a285;
const DEPRECATE_EOF: u32 = 1 << 24;
const OK: &[u8] = &[0, 0, 0, 2, 0, 0, 0];
const EOF: &[u8] = &[0xfe, 0, 0, 2, 0];
/// The end of rows with CLIENT_DEPRECATE_EOF.
const OK_END: &[u8] = &[0xfe, 0, 0, 2, 0, 0, 0];

/// Packets in their order.
fn packets(first: u8, payloads: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for (n, payload) in payloads.iter().enumerate() {
        let head = payload.len() as u32 | u32::from(first.wrapping_add(n as u8)) << 24;
        bytes.extend([&head.to_le_bytes()[..], payload].concat());
    }
    bytes
}

fn ask(code: u8, body: impl AsRef<[u8]>) -> Vec<u8> {
    packets(0, &[&[&[code][..], body.as_ref()].concat()])
}

fn answer(payloads: &[&[u8]]) -> Vec<u8> {
    packets(1, payloads)
}

fn execute(id: u32) -> Vec<u8> {
    ask(EXECUTE, [&id.to_le_bytes()[..], &[0, 1, 0, 0, 0]].concat())
}

const COLUMN: &[u8] = b"\x03def\0\0\0\x01a\0\x0c\x3f\0\x01\0\0\0\x03\x81\0\0\0\0";
const ROW: &[u8] = b"\x0217";

/// What answers a PREPARE with one parameter and two columns.
fn prepared(id: u8, has_ends: bool) -> Vec<u8> {
    let head = [0, id, 0, 0, 0, 2, 0, 1, 0, 0, 0, 0];
    let with: &[&[u8]] = &[&head, COLUMN, EOF, COLUMN, COLUMN, EOF];
    let without: &[&[u8]] = &[&head, COLUMN, COLUMN, COLUMN];
    answer(if has_ends { with } else { without })
}

fn login_packet(capabilities: u32) -> Vec<u8> {
    let body =
        [&capabilities.to_le_bytes()[..], &[0, 0, 0, 1, 45], &[0; 23], b"user\0\x14aaaaaaaaaaaaaaaaaaaa"];
    packets(1, &[&body.concat()])
}

fn started(segment: usize, capabilities: u32) -> Play {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    play.say(Server, packets(0, &[GREETING])).say(Client, login_packet(capabilities));
    // Another method.
    play.say(Server, packets(2, &[b"\xfemysql_native_password\0abc\0"])).say(Client, packets(3, &[b"proof"]));
    play.say(Server, packets(4, &[OK]));
    play
}

#[test]
fn commands_and_results() {
    for (segment, has_ends) in SEGMENTS.iter().flat_map(|&segment| [(segment, true), (segment, false)]) {
        let mut play = started(segment, if has_ends { CAPABILITIES } else { CAPABILITIES | DEPRECATE_EOF });
        play.say(Client, ask(QUERY, "SELECT a, b FROM t1 WHERE c = 'x\\'y' AND d = 7"));
        let rows: &[&[u8]] = if has_ends {
            &[&[2], COLUMN, COLUMN, EOF, ROW, ROW, EOF]
        } else {
            &[&[2], COLUMN, COLUMN, ROW, ROW, OK_END]
        };
        play.say(Server, answer(rows));
        play.say(Client, ask(QUERY, "update t set a = 1")).say(Server, answer(&[OK]));
        play.say(Client, ask(QUERY, "selec")).say(Server, answer(&[b"\xff\x28\x04#42000You"]));
        play.say(Client, ask(0x0e, "")).say(Server, answer(&[OK]));
        play.say(Client, ask(0x02, "db")).say(Server, answer(&[OK]));
        play.say(Client, ask(0x04, "t\0"))
            .say(Server, answer(&[COLUMN, if has_ends { EOF } else { OK_END }]));
        play.say(Client, ask(0x09, "")).say(Server, answer(&[b"Uptime: 1"]));
        play.say(Client, ask(0x01, ""));
        let told = play.end();
        let expected = [
            "login  ok",
            "SELECT SELECT a, b FROM t1 WHERE c = ? AND d = ? ok",
            "UPDATE update t set a = ? ok",
            "SELEC selec 1064",
            "PING  ok",
            "INIT_DB  ok",
            "FIELD_LIST  ok",
            "STATISTICS  ok",
        ];
        assert_eq!(told.lines(), expected, "{segment} {has_ends}");
        assert_eq!(told.exchanges[1].op.response_bytes as usize, answer(rows).len());
        assert_eq!((told.unanswered.len(), told.counted.unmatched, told.counted.boundaries_lost), (0, 0, 0));
        assert!(
            told.exchanges[0].response.began.since(told.exchanges[0].request.ended).is_some_and(|ns| ns > 0)
        );
    }
}

#[test]
fn prepared_statements_are_known_by_their_number() {
    for (segment, has_ends) in SEGMENTS.iter().flat_map(|&segment| [(segment, true), (segment, false)]) {
        let mut play = started(segment, if has_ends { CAPABILITIES } else { CAPABILITIES | DEPRECATE_EOF });
        play.say(Client, ask(PREPARE, "SELECT a FROM t WHERE b = ?")).say(Server, prepared(3, has_ends));
        play.say(Client, ask(SEND_LONG_DATA, [3, 0, 0, 0, 0, 0, b'x']));
        let rows: &[&[u8]] =
            if has_ends { &[&[1], COLUMN, EOF, &[0, 0], EOF] } else { &[&[1], COLUMN, &[0, 0], OK_END] };
        play.say(Client, execute(3)).say(Server, answer(rows));
        // With a cursor rows come when they are fetched.
        let opened: &[&[u8]] = &[&[1], COLUMN, &[0xfe, 0, 0, 0x42, 0]];
        play.say(Client, execute(3))
            .say(Server, answer(if has_ends { opened } else { &[&[1], COLUMN, OK_END] }));
        play.say(Client, ask(0x1c, [3, 0, 0, 0, 9, 0, 0, 0])).say(Server, answer(&[&[0, 0], &[0, 0], EOF]));
        play.say(Client, ask(0x1a, [3, 0, 0, 0])).say(Server, answer(&[OK]));
        // MariaDB: several in flight, also of the statement that is being prepared.
        let close = ask(CLOSE, [3, 0, 0, 0]);
        let update = ask(PREPARE, "UPDATE t SET a = ?");
        play.say(Client, [update, execute(LAST_PREPARED), execute(3), close, execute(3)].concat());
        play.say(
            Server,
            [prepared(4, has_ends), answer(&[OK]), answer(rows), answer(&[b"\xff\xdb\x04#HY000no"])].concat(),
        );
        let told = play.end();
        let select = "SELECT a FROM t WHERE b = ?";
        let expected = [
            format!("PREPARE {select} ok"),
            format!("SELECT {select} ok"),
            format!("SELECT {select} ok"),
            format!("FETCH {select} ok"),
            format!("STMT_RESET {select} ok"),
            "PREPARE UPDATE t SET a = ? ok".to_owned(),
            "UPDATE UPDATE t SET a = ? ok".to_owned(),
            format!("SELECT {select} ok"),
            "EXECUTE  1243".to_owned(),
        ];
        assert_eq!(told.lines()[1..], expected, "{segment} {has_ends}");
        assert_eq!((told.unanswered.len(), told.counted.unmatched, told.counted.boundaries_lost), (0, 0, 0));
    }
}

#[test]
fn several_results_and_files_are_one_request() {
    for segment in SEGMENTS {
        let mut play = started(segment, CAPABILITIES);
        play.say(Client, ask(QUERY, "CALL p(1)"));
        let more: &[u8] = &[0xfe, 0, 0, 0x0a, 0];
        play.say(Server, answer(&[&[1], COLUMN, EOF, ROW, more, &[1], COLUMN, EOF, more, OK]));
        play.say(Client, ask(QUERY, "LOAD DATA LOCAL INFILE 'secret' INTO TABLE t"));
        play.say(Server, answer(&[b"\xfb/secret"]));
        play.say(Client, packets(2, &[b"17\tx\n", b""])).say(Server, packets(4, &[OK]));
        play.say(Client, ask(QUERY, "ALTER TABLE t FORCE"));
        play.say(Server, answer(&[b"\xff\xff\xff\x01\x01\x02\0\0\0\x03abc", OK]));
        let told = play.end();
        let expected = [
            "CALL CALL p(?) ok",
            "LOAD LOAD DATA LOCAL INFILE ? INTO TABLE t ok",
            "ALTER ALTER TABLE t FORCE ok",
        ];
        assert_eq!(told.lines()[1..], expected, "{segment}");
        assert_eq!((told.unanswered.len(), told.counted.unmatched, told.counted.boundaries_lost), (0, 0, 0));
    }
}

#[test]
fn packets_of_16_mib_are_continued() {
    let mut play = started(usize::MAX, CAPABILITIES);
    let long = [&b"\xff\xff\xff\0\x03INSERT INTO t VALUES ('"[..], &vec![b's'; 0xff_ffff - 24]].concat();
    let rest = packets(1, &[b"secret')"]);
    let end = long.len() + rest.len();
    play.say(Client, [long, rest].concat()).say(Server, packets(2, &[OK]));
    // A row that is continued, and does not end the result with its second packet.
    play.say(Client, ask(QUERY, "SELECT a FROM t"));
    play.say(Server, answer(&[&[1], COLUMN, EOF]))
        .say(Server, [&b"\xff\xff\xff\x04\xfd"[..], &vec![0; 0xff_fffe]].concat());
    play.say(Server, packets(5, &[EOF, EOF])).say(Client, ask(QUERY, "COMMIT")).say(Server, answer(&[OK]));
    let told = play.end();
    assert_eq!(
        told.lines()[1..],
        ["INSERT INSERT INTO t VALUES (? ok", "SELECT SELECT a FROM t ok", "COMMIT COMMIT ok"]
    );
    assert_eq!(told.exchanges[1].op.request_bytes as usize, end);
    assert_eq!((told.unanswered.len(), told.counted.boundaries_lost), (0, 0));
}

#[test]
fn behind_tls_and_compression_nothing_is_decoded() {
    let mut play = Play::new(&ENTRY);
    let request = [&(CAPABILITIES | 1 << 11).to_le_bytes()[..], &[0; 28]].concat();
    play.say(Server, packets(0, &[GREETING])).say(Client, packets(1, &[&request]));
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len()), (0, 0));
    let mut play = started(usize::MAX, CAPABILITIES | 1 << 5);
    play.say(Client, b"\x0c\0\0\0\0\0\0\x08\0\0\0\x03SELECT 1");
    let told = play.end();
    assert_eq!(told.lines(), ["login  ok"]);
    assert_eq!(told.unanswered.len(), 0);
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = started(usize::MAX, CAPABILITIES);
    let select = ask(QUERY, "SELECT a FROM t");
    let result = answer(&[&[1], COLUMN, EOF, ROW, EOF]);
    play.say(Client, &select).lose(Server, result.len() as u64);
    play.say(Client, &select).say(Server, &result[..10]).lose(Server, result.len() as u64 - 10);
    for _ in 0..3 {
        play.say(Client, &select).say(Server, &result);
    }
    play.say(Client, &select[..9]).lose(Client, select.len() as u64 - 9).say(Server, answer(&[OK]));
    play.say(Client, ask(QUERY, "COMMIT")).say(Server, answer(&[OK]));
    let told = play.end();
    let lines = told.lines();
    assert_eq!(lines.iter().filter(|line| *line == "SELECT SELECT a FROM t ok").count(), 3);
    assert_eq!(lines.last().map(String::as_str), Some("COMMIT COMMIT ok"));
    assert!(told.longest_ns(1) <= 2000);
}

#[test]
fn in_the_middle_the_end_of_columns_is_learned() {
    for has_ends in [true, false] {
        let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
        play.say(Server, b"rest of a row").say(Client, execute(9)).say(Server, answer(&[OK]));
        play.say(Client, ask(PREPARE, "SELECT 1")).say(Server, prepared(1, has_ends));
        play.say(Client, execute(1)).say(Server, answer(&[OK]));
        let told = play.end();
        assert_eq!(told.lines(), ["EXECUTE  ok", "PREPARE SELECT 1 ok", "SELECT SELECT 1 ok"], "{has_ends}");
    }
}

#[test]
fn columns_that_the_client_knows_do_not_follow() {
    let rows = answer(&[&[1, 0], EOF, &[0, 0, 7, 0, 0, 0], EOF]);
    // In the middle, and with MariaDB's capability.
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    play.say(Client, execute(9)).say(Server, &rows).say(Client, execute(9)).say(Server, &rows);
    let told = play.end();
    assert_eq!(told.lines(), ["EXECUTE  ok"; 2]);
    assert_eq!(told.exchanges[0].op.response_bytes as usize, rows.len());
    let mut play = Play::new(&ENTRY);
    let login = [&(CAPABILITIES & !1).to_le_bytes()[..], &[0; 24], &[0x10, 0, 0, 0], b"u\0\0"].concat();
    play.say(Server, packets(0, &[GREETING]))
        .say(Client, packets(1, &[&login]))
        .say(Server, packets(2, &[OK]));
    play.say(Client, execute(9)).say(Server, &rows);
    assert_eq!(play.end().lines(), ["login  ok", "EXECUTE  ok"]);
}

#[test]
fn a_stream_of_events_is_answered_when_it_begins() {
    let mut play = started(usize::MAX, CAPABILITIES);
    play.say(Client, ask(0x12, [4, 0, 0, 0, 0, 0, 1, 0, 0, 0]));
    for n in 0..40 {
        play.say(Server, packets(1 + n, &[b"\0event"]));
    }
    let told = play.end();
    assert_eq!(told.lines()[1..], ["BINLOG_DUMP  ok"]);
    assert_eq!(told.unanswered.len(), 0);
}

#[test]
fn only_packets_of_mysql_begin() {
    let is_found = |side, bytes: &[u8], is_first| begins(&Start::new(side, bytes, 3306, is_first));
    assert!(is_found(Server, &packets(0, &[GREETING]), true));
    assert!(!is_found(Server, &packets(0, &[GREETING]), false));
    assert!(is_found(Client, &ask(QUERY, "SELECT 1"), false));
    assert!(is_found(Client, &ask(QUERY, "\0\x01SELECT 1"), false));
    assert!(is_found(Client, &execute(1), false));
    let foreign: [&[u8]; 9] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"220 example.org ESMTP\r\n",
        b"SELECT 1;\n",
        b"\x01\0\0\0\x0e",
        b"\x05\0\0\0\x0310.1",
        b"\x08\0\0\0\x03PLEASE1",
        b"\x4a\0\0\0\x0aabc",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"*1\r\n$4\r\nPING\r\n",
    ];
    for bytes in foreign {
        assert!(!is_found(Client, bytes, true) && !is_found(Server, bytes, true), "{bytes:?}");
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200_000 {
        let bytes: Vec<u8> =
            (0..random.usize(..40)).map(|_| if random.bool() { 0 } else { random.u8(..) }).collect();
        assert!(!is_found(Client, &bytes, true) && !is_found(Server, &bytes, true), "{bytes:?}");
    }
}

#[test]
fn what_only_looks_like_mysql_is_contradicted() {
    let mut play = started(usize::MAX, CAPABILITIES);
    for _ in 0..4 {
        play.say(Client, ask(QUERY, "SELECT 1"))
            .say(Server, b"HTTP/1.1 200\r\n")
            .say(Client, b"GET / HTTP/1.1\r\n");
    }
    assert!(play.is_contradicted());
}

#[test]
fn tables_have_limits() {
    let mut play = started(usize::MAX, CAPABILITIES);
    for n in 0..80_000 {
        play.say(Client, ask(PREPARE, format!("SELECT a{n}")));
    }
    assert!(play.end().unanswered.len() <= 65_536);
}

#[test]
fn no_hole_shifts_the_answers_behind_it() {
    let begun = || started(usize::MAX, CAPABILITIES);
    Play::assert_no_shift(begun, &ask(QUERY, "SELECT a FROM t"), &answer(&[&[1], COLUMN, EOF, ROW, EOF]));
    Play::assert_no_shift_in_batches(
        begun,
        &ask(QUERY, "SELECT a FROM t"),
        &answer(&[&[1], COLUMN, EOF, ROW, EOF]),
    );
    Play::assert_no_shift_in_flight(
        begun,
        &ask(QUERY, "SELECT a FROM t"),
        &answer(&[&[1], COLUMN, EOF, ROW, EOF]),
        false,
    );
    Play::assert_no_shift(begun, &ask(QUERY, "DO 1"), &answer(&[OK]));
    Play::assert_no_shift_in_batches(begun, &ask(QUERY, "DO 1"), &answer(&[OK]));
    Play::assert_no_shift_in_flight(begun, &ask(QUERY, "DO 1"), &answer(&[OK]), false);
}

#[test]
fn a_capture_that_begins_within_a_burst_pairs_no_others() {
    let rows = answer(&[&[1], COLUMN, EOF, ROW, EOF]);
    Play::assert_own_answers_from_the_middle(&ENTRY, &ask(QUERY, "SELECT a FROM t"), &rows);
    Play::assert_unsure_in_flight_from_the_middle(&ENTRY, &ask(QUERY, "DO 1"), &answer(&[OK]));
    Play::assert_own_answers_from_the_middle(&ENTRY, &ask(QUERY, "DO 1"), &answer(&[OK]));
}

/// Only its rest is missing: the commands behind it have their own answers.
#[test]
fn a_hole_in_the_answer_to_a_login_costs_the_login() {
    let ok = packets(2, &[OK]);
    for is_noticed in [true, false] {
        let mut play = Play::new(&ENTRY);
        play.say(Server, packets(0, &[GREETING])).say(Client, login_packet(CAPABILITIES));
        if is_noticed {
            play.lose(Server, ok.len() as u64);
        } else {
            play.lose_unnoticed(Server, ok.len() as u64);
        }
        for _ in 0..3 {
            play.say(Client, ask(QUERY, "DO 1")).say(Server, answer(&[OK]));
            play.say(Client, ask(QUERY, "SELECT a FROM t"));
            play.say(Server, answer(&[&[1], COLUMN, EOF, ROW, EOF]));
        }
        let told = play.end();
        let expected = ["DO DO ? ok", "SELECT SELECT a FROM t ok"].repeat(3);
        assert_eq!(told.lines(), expected, "{is_noticed}");
        assert_eq!((told.counted.abandoned, told.counted.unmatched), (1, 0), "{is_noticed}");
    }
}

#[test]
fn a_greeting_in_segments_is_one() {
    let greeting = packets(0, &[GREETING]);
    for cut in [28, 30, greeting.len() - 1] {
        assert!(greeting::is_greeting(&greeting[..cut]), "{cut}");
    }
    assert!(!greeting::is_greeting(&greeting[..6]), "no version");
    assert!(!greeting::is_greeting(&[&[0xff, 0xff, 0], &greeting[3..30]].concat()), "too long");
}

const REFUSED: &[u8] = b"\xff\x10\x04Too many connections";

#[test]
fn a_refused_connection_is_an_operation_from_its_handshake() {
    let mut play = Play::new(&ENTRY);
    play.connect().say(Server, packets(0, &[REFUSED]));
    let told = play.end();
    assert_eq!(told.lines(), ["connect  1040"]);
    let exchange = told.exchanges[0];
    assert_eq!([exchange.request.began, exchange.request.ended], [record::Stamp::at(1000); 2]);
    assert_eq!(exchange.response.ended, record::Stamp::at(2000));
    // When the connection began is not in the capture, or the server has greeted before.
    let mut unseen = Play::new(&ENTRY);
    unseen.say(Server, packets(0, &[REFUSED]));
    assert!(unseen.end().exchanges.is_empty());
    let mut greeted = Play::new(&ENTRY);
    greeted.connect().say(Server, packets(0, &[GREETING])).say(Server, packets(0, &[REFUSED]));
    assert!(greeted.end().exchanges.is_empty());
}

#[test]
fn only_a_whole_error_of_a_server_begins_a_connection() {
    let is_begun = |bytes: &[u8], is_first| begins(&Start::new(Server, bytes, 3306, is_first));
    let refused = packets(0, &[REFUSED]);
    assert!(is_begun(&refused, true) && !is_begun(&refused, false));
    assert!(is_begun(&packets(0, &[b"\xff\x6a\x04Host '10.0.0.1' is not allowed to connect"]), true));
    for cut in 0..refused.len() {
        assert!(!is_begun(&refused[..cut], true), "{cut}");
    }
    for other in [packets(1, &[REFUSED]), packets(0, &[b"\xff\x10\x00Too many connections"])] {
        assert!(!is_begun(&other, true));
    }
    assert!(!is_begun(&packets(0, &[b"\xff\x10\x04Too\x00many connections"]), true));
    assert!(!is_begun(&[&refused[..], b"x"].concat(), true));
}

#[test]
fn a_lost_packet_gives_no_operation_the_answer_of_another() {
    let [select, rows] = [ask(QUERY, "SELECT a FROM t"), answer(&[&[1], COLUMN, EOF, ROW, EOF])];
    let [done, ok] = [ask(QUERY, "DO 1"), answer(&[OK])];
    let both: [(&[u8], &[u8]); 2] = [(&select, &rows), (&done, &ok)];
    assert_each_packet_lost(
        || started(usize::MAX, CAPABILITIES),
        &[both, both].concat(),
        Cost { from: 1, most: 2, wrong: 0, is_one_batch: false },
    );
    assert_each_packet_of_a_window_lost(|| started(usize::MAX, CAPABILITIES), &[both, both].concat());
}
