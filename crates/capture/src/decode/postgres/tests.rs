use super::*;
use crate::decode::play::Play;
use crate::decode::play::each_packet::{Cost, assert_each_packet_lost, assert_each_packet_of_a_window_lost};

use Side::{Client, Server};

const SEGMENTS: [usize; 4] = [usize::MAX, 1, 7, 50];

/// A message with its type and length.
fn message(kind: u8, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let length = (body.len() as u32 + 4).to_be_bytes();
    [&[kind][..], &length, body].concat()
}

fn start_message(code: u32, body: &[u8]) -> Vec<u8> {
    [&(body.len() as u32 + 8).to_be_bytes()[..], &code.to_be_bytes(), body].concat()
}

fn query(sql: &str) -> Vec<u8> {
    message(b'Q', format!("{sql}\0"))
}

fn parse(name: &str, sql: &str) -> Vec<u8> {
    message(b'P', format!("{name}\0{sql}\0\0\0"))
}

fn bind(name: &str) -> Vec<u8> {
    // One value in text, all results in text.
    message(b'B', [&b"\0"[..], name.as_bytes(), b"\0\0\0\0\x01\0\0\0\x0217\0\0"].concat())
}

fn execute() -> Vec<u8> {
    message(b'E', b"\0\0\0\0\0")
}

fn sync() -> Vec<u8> {
    message(b'S', b"")
}

fn row() -> Vec<u8> {
    message(b'D', b"\0\x01\0\0\0\x01x")
}

fn done(tag: &str) -> Vec<u8> {
    message(b'C', format!("{tag}\0"))
}

fn ready() -> Vec<u8> {
    message(b'Z', b"I")
}

fn bound_and(tag: &str) -> Vec<u8> {
    [message(b'2', b""), row(), done(tag)].concat()
}

fn error(code: &str) -> Vec<u8> {
    message(b'E', format!("SERROR\0VERROR\0C{code}\0Mno\0\0"))
}

/// A connection behind its start.
fn started(segment: usize) -> Play {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    play.say(Client, start_message(TLS, b"")).say(Server, "N");
    play.say(Client, start_message(3 << 16, b"user\0u\0database\0d\0\0"));
    play.say(Server, message(b'R', b"\0\0\0\x0aSCRAM-SHA-256\0\0"))
        .say(Client, message(b'p', b"SCRAM-SHA-256\0"));
    play.say(Server, message(b'R', b"\0\0\0\x0bdata")).say(Client, message(b'p', b"proof"));
    let parameter = message(b'S', b"standard_conforming_strings\0on\0");
    play.say(Server, [message(b'R', b"\0\0\0\0"), parameter, message(b'K', [0; 8]), ready()].concat());
    play
}

#[test]
fn simple_queries_end_with_ready_for_query() {
    for segment in SEGMENTS {
        let mut play = started(segment);
        play.say(Client, query("SELECT a FROM t1 WHERE b = 'x\\' AND c = 5"));
        play.say(Server, [message(b'T', b"\0\0"), row(), row(), done("SELECT 2"), ready()].concat());
        play.say(Client, query("BEGIN; select 2"));
        play.say(Server, [done("BEGIN"), message(b'N', b"SNOTICE\0\0"), done("SELECT 1"), ready()].concat());
        play.say(Client, query("select nothing")).say(Server, [error("42703"), ready()].concat());
        play.say(Client, query("")).say(Server, [message(b'I', b""), ready()].concat());
        play.say(Client, message(b'X', b""));
        let told = play.end();
        let expected = [
            "startup  ok",
            "SELECT SELECT a FROM t1 WHERE b = ? AND c = ? ok",
            "BEGIN BEGIN; select ? ok",
            "SELECT select nothing 42703",
            "QUERY  ok",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        assert_eq!((told.unanswered.len(), told.counted.unmatched), (0, 0));
        // T, two rows, the completion and the end.
        assert_eq!(told.exchanges[1].op.response_bytes, 7 + 24 + 14 + 6);
        assert!(
            told.exchanges[0].response.began.since(told.exchanges[0].request.ended).is_some_and(|ns| ns > 0)
        );
    }
}

#[test]
fn each_execute_of_a_pipeline_is_a_request() {
    for segment in SEGMENTS {
        let mut play = started(segment);
        // The first prepares, the others use it; one Sync for all.
        let sql = "INSERT INTO t VALUES ($1)";
        let first = [parse("s1", sql), bind("s1"), message(b'D', b"P\0"), execute()].concat();
        let again = [bind("s1"), execute()].concat();
        play.say(Client, [&first[..], &again, &again, &sync()].concat());
        let answers =
            [message(b'1', b""), message(b'2', b""), message(b'n', b""), done("INSERT 0 1")].concat();
        play.say(
            Server,
            [&answers[..], &bound_and("INSERT 0 1"), &bound_and("INSERT 0 1"), &ready()].concat(),
        );
        // Two batches in flight.
        play.say(Client, [again.clone(), sync(), again, sync()].concat());
        play.say(Server, [bound_and("INSERT 0 1"), ready(), bound_and("INSERT 0 1"), ready()].concat());
        let told = play.end();
        let expected = vec!["INSERT INSERT INTO t VALUES (?) ok"; 5];
        assert_eq!(told.lines()[1..], expected, "{segment}");
        assert_eq!(told.exchanges[1].op.request_bytes as usize, first.len());
        assert_eq!(told.exchanges[1].op.response_bytes as usize, answers.len());
        assert_eq!((told.unanswered.len(), told.counted.unmatched, told.counted.abandoned), (0, 0, 0));
    }
}

#[test]
fn behind_an_error_all_up_to_the_sync_is_aborted() {
    for segment in SEGMENTS {
        let mut play = started(segment);
        let one = |sql| [parse("", sql), bind(""), execute()].concat();
        let batch = [one("select 1"), one("select x"), one("select 2"), parse("p", "select 3"), sync()];
        play.say(Client, [batch.concat(), one("select 4"), sync()].concat());
        let good = [message(b'1', b""), bound_and("SELECT 1")].concat();
        play.say(Server, [good.clone(), message(b'1', b""), error("22012"), ready(), good, ready()].concat());
        let told = play.end();
        let expected = [
            "SELECT select ? ok",
            "SELECT select x 22012",
            "SELECT select ? aborted",
            "PARSE select ? aborted",
            "SELECT select ? ok",
        ];
        assert_eq!(told.lines()[1..], expected, "{segment}");
        assert_eq!((told.unanswered.len(), told.counted.unmatched), (0, 0));
    }
}

#[test]
fn what_has_no_execute_is_a_request_of_its_own() {
    for segment in SEGMENTS {
        let mut play = started(segment);
        let prepare = [parse("a", "select 1"), message(b'D', b"Sa\0")].concat();
        let prepared = [message(b'1', b""), message(b't', b"\0\0"), message(b'T', b"\0\0")].concat();
        // With a Flush, and with a Sync.
        play.say(Client, [prepare.clone(), message(b'H', b"")].concat()).say(Server, &prepared);
        play.say(Client, [bind("a"), execute(), sync()].concat());
        play.say(Server, [bound_and("SELECT 1"), ready()].concat());
        play.say(Client, [message(b'D', b"Sa\0"), sync()].concat());
        play.say(Server, [&prepared[5..], &ready()].concat());
        play.say(Client, [message(b'C', b"Sa\0"), sync()].concat());
        play.say(Server, [message(b'3', b""), ready()].concat());
        play.say(Client, sync()).say(Server, ready());
        // A portal of which more is fetched, and a name that was not seen.
        play.say(Client, [bind("gone"), execute(), execute(), sync()].concat());
        play.say(
            Server,
            [message(b'2', b""), row(), message(b's', b""), row(), done("SELECT 1"), ready()].concat(),
        );
        let told = play.end();
        let expected = [
            "PARSE select ? ok",
            "SELECT select ? ok",
            "DESCRIBE select ? ok",
            "CLOSE select ? ok",
            "SYNC  ok",
            "EXECUTE  ok",
            "EXECUTE  ok",
        ];
        assert_eq!(told.lines()[1..], expected, "{segment}");
        assert_eq!((told.unanswered.len(), told.counted.unmatched), (0, 0));
    }
}

/// A statement that its client cancelled is no failure of the server; one that took too long is.
#[test]
fn cancelled_statements_are_told_from_late_ones() {
    let mut play = started(usize::MAX);
    for text in ["user request", "statement timeout", "wegen Benutzeraufforderung"] {
        let cancelled = format!("SERROR\0VERROR\0C57014\0Mcanceling statement due to {text}\0\0");
        play.say(Client, query("SELECT 1")).say(Server, [message(b'E', cancelled), ready()].concat());
    }
    let told = play.end();
    assert_eq!(
        told.lines()[1..],
        ["SELECT SELECT ? 57014", "SELECT SELECT ? 57014/timeout", "SELECT SELECT ? 57014"]
    );
    let errors: Vec<bool> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
    assert_eq!(errors, [false, false, true, false]);
}

#[test]
fn copies_are_one_request_each() {
    for segment in SEGMENTS {
        let mut play = started(segment);
        let data = message(b'd', b"17\tsecret\n");
        play.say(Client, query("COPY t FROM STDIN")).say(Server, message(b'G', b"\0\0\x01\0\0"));
        // The server ignores a Sync and a Flush in the data.
        let ignored = [sync(), message(b'H', b"")].concat();
        play.say(Client, [data.clone(), ignored, data.clone(), message(b'c', b"")].concat());
        play.say(Server, [done("COPY 2"), ready()].concat());
        // With the extended protocol its Sync is passed over while data comes.
        play.say(Client, [parse("", "COPY t FROM STDIN"), bind(""), execute(), sync()].concat());
        play.say(Server, [message(b'1', b""), message(b'2', b""), message(b'G', b"\0\0\x01\0\0")].concat());
        play.say(Client, [data.clone(), message(b'f', b"no\0"), sync()].concat());
        play.say(Server, [error("57014"), ready()].concat());
        play.say(Client, query("COPY t TO STDOUT"));
        play.say(
            Server,
            [message(b'H', b"\0\0\x01\0\0"), data, message(b'c', b""), done("COPY 1"), ready()].concat(),
        );
        play.say(Client, query("SELECT 1")).say(Server, [row(), done("SELECT 1"), ready()].concat());
        let told = play.end();
        let copy = ["COPY COPY t FROM STDIN ok", "COPY COPY t FROM STDIN 57014", "COPY COPY t TO STDOUT ok"];
        assert_eq!(told.lines()[1..], [&copy[..], &["SELECT SELECT ? ok"]].concat(), "{segment}");
        assert_eq!(told.exchanges[1].op.request_bytes, 23 + 15 * 2 + 5 * 3);
        assert!(
            told.exchanges[1].response.began.since(told.exchanges[1].request.ended).is_some_and(|ns| ns > 0)
        );
    }
}

#[test]
fn behind_the_agreement_on_tls_nothing_is_decoded() {
    for (code, answer) in [(TLS, "S"), (GSS, "G")] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, start_message(code, b"")).say(Server, answer);
        let told = play.end();
        assert_eq!((told.exchanges.len(), told.unanswered.len()), (0, 0));
        let mut decoder = Postgres { phase: Phase::Offered, ..Postgres::default() };
        let mut requests = Requests::default();
        decoder.message(&Message { side: Server, bytes: answer.as_bytes(), length: 1 }, &mut requests);
        assert!(decoder.has_ended());
    }
    let mut play = Play::new(&ENTRY);
    play.say(Client, start_message(CANCEL, &[1; 8]));
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len()), (0, 0));
}

#[test]
fn a_refused_connection_and_one_that_is_ended_have_their_error() {
    let fatal = |code: &str| message(b'E', format!("SFATAL\0VFATAL\0C{code}\0\0"));
    let mut play = Play::new(&ENTRY);
    play.say(Client, start_message(3 << 16, b"user\0u\0\0")).say(Server, fatal("53300"));
    let told = play.end();
    assert_eq!(told.lines(), ["startup  53300"]);
    assert!(told.exchanges[0].error.is_some());
    let mut play = started(usize::MAX);
    play.say(Client, query("select pg_sleep(9)")).say(Server, fatal("57P01")).say(Server, fatal("57P01"));
    assert_eq!(play.end().lines()[1..], ["SELECT select pg_sleep(?) 57P01"]);
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = started(usize::MAX);
    let ask = |play: &mut Play| {
        play.say(Client, [parse("", "select 1"), bind(""), execute(), sync()].concat());
    };
    let answer = [message(b'1', b""), bound_and("SELECT 1"), ready()].concat();
    ask(&mut play);
    play.lose(Server, answer.len() as u64);
    for _ in 0..3 {
        ask(&mut play);
        play.say(Server, &answer);
    }
    // Half of a request.
    play.say(Client, &query("select 'secret'")[..9])
        .lose(Client, 12)
        .say(Server, [done("SELECT 1"), ready()].concat());
    play.say(Client, query("update t set a = 1")).say(Server, [done("UPDATE 1"), ready()].concat());
    let told = play.end();
    let lines = told.lines();
    assert_eq!(lines[1..4], ["SELECT select ? ok"; 3]);
    assert_eq!(lines.last().map(String::as_str), Some("UPDATE update t set a = ? ok"));
    assert!(told.longest_ns(1) <= 2000);
}

#[test]
fn a_batch_in_a_hole_does_not_shift_the_next_ones() {
    let mut play = started(usize::MAX);
    let batch = [[bind("s"), execute()].concat().repeat(3), sync()].concat();
    let answer = [bound_and("SELECT 1").repeat(3), ready()].concat();
    play.say(Client, &batch).say(Server, &answer);
    play.say(Client, &batch).lose(Server, answer.len() as u64);
    for _ in 0..4 {
        play.say(Client, &batch).say(Server, &answer);
    }
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len(), told.counted.abandoned), (1 + 15, 0, 3));
    let waits = |e: &record::Exchange| e.response.ended.since(e.request.ended);
    assert!(told.exchanges[1..].iter().all(|e| waits(e) == Some(1000)));
}

/// Some packets of a batch's answer are lost: which answers they held does not show, and the next batches are as they were.
#[test]
fn an_answer_of_a_batch_in_a_hole_does_not_shift_the_next_ones() {
    let batch = [[bind("s"), execute()].concat().repeat(3), sync()].concat();
    let one = bound_and("SELECT 1");
    let answer = [one.clone(), one.clone(), one, ready()];
    for lost in 1..0b1_0000_u32 {
        let mut play = started(usize::MAX);
        play.say(Client, &batch).say(Server, answer.concat());
        play.say(Client, &batch);
        for (i, part) in answer.iter().enumerate() {
            match lost >> i & 1 {
                0 => play.say(Server, part),
                _ => play.lose(Server, part.len() as u64),
            };
        }
        for _ in 0..4 {
            play.say(Client, &batch).say(Server, answer.concat());
            play.say(Client, query("select 1")).say(Server, [done("SELECT 1"), ready()].concat());
        }
        let told = play.end();
        let lines = told.lines();
        assert!(told.unanswered.is_empty() && (20..=23).contains(&lines.len()), "{lost:b} {lines:?}");
        let next = lines.len() - 16;
        let four = ["EXECUTE  ok", "EXECUTE  ok", "EXECUTE  ok", "SELECT select ? ok"];
        assert_eq!(lines[next..], four.repeat(4), "{lost:b}");
        assert_eq!(told.longest_ns(next), 1000, "{lost:b} {lines:?}");
    }
}

#[test]
fn in_the_middle_a_chain_of_messages_is_found() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, [row(), done("SELECT 1"), ready()].concat());
    play.say(Client, [bind("s"), execute(), sync()].concat())
        .say(Server, [bound_and("SELECT 1"), ready()].concat());
    play.say(Client, query("select 17"))
        .say(Server, [message(b'T', b"\0\0"), done("SELECT 1"), ready()].concat());
    let told = play.end();
    assert_eq!(told.lines(), ["EXECUTE  ok", "SELECT select 17 ok"]);
}

fn is_found(side: Side, bytes: &[u8], is_first: bool) -> bool {
    begins(&Start::new(side, bytes, 5432, is_first))
}

#[test]
fn only_messages_of_postgres_begin() {
    assert!(is_found(Client, &start_message(3 << 16, b"user\0u\0\0"), true));
    assert!(is_found(Client, &start_message(TLS, b""), true));
    assert!(!is_found(Client, &start_message(TLS, b""), false));
    assert!(is_found(Client, &query("select 1"), false));
    assert!(is_found(Server, &[row(), done("SELECT 1"), ready()].concat(), false));
    let foreign: [&[u8]; 14] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"EHLO example.org\r\n",
        b"QUIT\r\n",
        b"220 example.org ESMTP\r\n",
        b"PASS x\r\n",
        b"SELECT 1;\n",
        b"S\0\0\0\x04",
        b"C\0\0\0\x05\0",
        b"D\0\0\0\x06\0\0",
        b"Q\0\0\0\x20\x01\x02\x03\x04",
        b"E\0\0\0\x08abcd",
        b"\0\0\0\x08\x04\xd2\x16\x00",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03",
        b"*1\r\n$4\r\nPING\r\n",
    ];
    for bytes in foreign {
        for side in [Client, Server] {
            assert!(!is_found(side, bytes, true), "{bytes:?}");
        }
    }
    let mut random = fastrand::Rng::with_seed(7);
    for _ in 0..200_000 {
        let bytes: Vec<u8> =
            (0..random.usize(..40)).map(|_| if random.bool() { 0 } else { random.u8(..) }).collect();
        assert!(!is_found(Client, &bytes, true) && !is_found(Server, &bytes, true), "{bytes:?}");
    }
}

#[test]
fn what_only_looks_like_postgres_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for _ in 0..4 {
        play.say(Client, start_message(3 << 16, b"user\0u\0\0")).say(Server, "220 hello\r\n");
        play.say(Client, query("select 1")).say(Server, "\0\x01\x02");
    }
    assert!(play.is_contradicted());
}

#[test]
fn tables_have_limits() {
    let mut play = started(usize::MAX);
    for n in 0..80_000 {
        play.say(Client, [parse(&format!("s{n}"), "select 1"), execute(), sync()].concat());
    }
    assert!(play.end().unanswered.len() <= 65_536);
    let mut play = started(usize::MAX);
    play.say(Client, b"Q\xff\xff\xff\xff select").say(Server, b"D\x80\0\0\0");
    assert_eq!(play.end().exchanges.len(), 1);
}

/// Whether the statement failed is in the hole: only ReadyForQuery is left of its answer.
#[test]
fn an_error_in_a_hole_is_no_success() {
    let mut play = started(usize::MAX);
    play.say(Client, query("select nosuch")).lose(Server, error("42703").len() as u64).say(Server, ready());
    play.say(Client, query("select 1")).say(Server, [row(), done("SELECT 1"), ready()].concat());
    let told = play.end();
    let statuses: Vec<Status> = told.exchanges.iter().rev().take(2).map(|e| e.status).collect();
    assert_eq!(statuses, [Status::Good, Status::Unknown]);
}

#[test]
fn no_hole_shifts_the_answers_behind_it() {
    let begun = || started(usize::MAX);
    Play::assert_no_shift(begun, &query("select 1"), &[row(), done("SELECT 1"), ready()].concat());
    Play::assert_no_shift_in_batches(begun, &query("select 1"), &[row(), done("SELECT 1"), ready()].concat());
    Play::assert_no_shift_in_flight(
        begun,
        &query("select 1"),
        &[row(), done("SELECT 1"), ready()].concat(),
        false,
    );
    let statement = [parse("", "select $1"), bind(""), execute(), sync()].concat();
    let answer = [message(b'1', b""), bound_and("SELECT 1"), ready()].concat();
    Play::assert_no_shift(begun, &statement, &answer);
    Play::assert_no_shift_in_batches(begun, &statement, &answer);
    Play::assert_no_shift_in_flight(begun, &statement, &answer, false);
}

#[test]
fn a_capture_that_begins_within_a_burst_pairs_no_others() {
    let rows = [row(), done("SELECT 1"), ready()].concat();
    Play::assert_own_answers_from_the_middle(&ENTRY, &query("select 1"), &rows);
    Play::assert_unsure_in_flight_from_the_middle(
        &ENTRY,
        &query("select 1"),
        &[row(), done("SELECT 1"), ready()].concat(),
    );
    let statement = [parse("", "select $1"), bind(""), execute(), sync()].concat();
    let answer = [message(b'1', b""), bound_and("SELECT 1"), ready()].concat();
    Play::assert_own_answers_from_the_middle(&ENTRY, &statement, &answer);
}

#[test]
fn a_lost_packet_gives_no_operation_the_answer_of_another() {
    let [simple, rows] = [query("select 1"), [row(), done("SELECT 1"), ready()].concat()];
    let [empty, done] = [query("begin"), [done("BEGIN"), ready()].concat()];
    let both: [(&[u8], &[u8]); 2] = [(&simple, &rows), (&empty, &done)];
    assert_each_packet_lost(
        || started(usize::MAX),
        &[both, both].concat(),
        Cost { from: 0, most: 2, wrong: 0, is_one_batch: false },
    );
    assert_each_packet_of_a_window_lost(|| started(usize::MAX), &[both, both].concat());
}

/// A hole within a pipeline up to its Sync: what the client sends of it when some answers have come is not paired.
#[test]
fn a_hole_within_a_pipeline_shifts_no_answers_of_its_rest() {
    let statement = || [parse("", "select $1"), bind(""), execute()].concat();
    let answer = [message(b'1', b""), bound_and("SELECT 1")].concat();
    for is_lost in [false, true] {
        let mut play = started(usize::MAX);
        for pipeline in 0..10 {
            play.pause(3_000_000_000).say(Client, statement());
            if pipeline == 6 && is_lost {
                play.lose(Client, statement().len() as u64);
            } else {
                play.say(Client, statement());
            }
            // The client has always waited for all answers, until the hole.
            if pipeline < 6 {
                play.say(Client, [statement(), sync()].concat()).say(Server, &answer);
            } else {
                play.say(Server, &answer).say(Client, [statement(), sync()].concat());
            }
            for _ in 0..2 {
                play.pause(100_000_000).say(Server, &answer);
            }
            play.say(Server, ready());
        }
        let told = play.end();
        let took = |e: &record::Exchange| e.response.ended.since(e.request.began).unwrap() / 100_000_000;
        let took: Vec<i64> = (told.exchanges.iter())
            .filter(|e| e.request.began.ns() > Some(1_000_000_000))
            .map(took)
            .collect();
        // The first is answered at once, the second a tenth of a second later, and the third two. The hole costs the rest of its pipeline,
        // and the next one: the silence behind that shows that none is in flight.
        let expected = match is_lost {
            false => [0, 1, 2].repeat(10),
            true => [[0, 1, 2].repeat(6), vec![0], [0, 1, 2].repeat(2)].concat(),
        };
        assert_eq!(took, expected, "{is_lost}");
    }
}
