use super::*;
use crate::decode::play::Play;
use crate::decode::play::each_packet::{Cost, assert_each_packet_lost, assert_each_packet_of_a_window_lost};

use Side::{Client, Server};

const SET: &str = "set user:alice 0 60 5\r\nva\r\ne\r\n";
const GET: &str = "get key:12\r\n";
const VALUE: &str = "VALUE key:12 0 3\r\nEND\r\nEND\r\n";

/// A message of the binary protocol: of extras, a key, and a value of zeros.
fn binary(side: Side, opcode: u8, status: u8, extras: u8, key: &str, value: u8) -> Vec<u8> {
    let body = extras + key.len() as u8 + value;
    let magic = MAGIC[side as usize];
    let mut bytes = vec![magic, opcode, 0, key.len() as u8, extras, 0, 0, status, 0, 0, 0, body];
    bytes.extend([0; 12]);
    bytes.extend(vec![0; extras.into()]);
    bytes.extend(key.bytes());
    bytes.extend(vec![0; value.into()]);
    bytes
}

const MAGIC: [u8; 2] = [0x80, 0x81];

fn start(side: Side, bytes: &[u8], port: u16) -> Start<'_> {
    Start::new(side, bytes, port, true)
}

#[test]
fn pipelined_commands_are_requests_of_their_own() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        play.say(Client, [SET, GET, GET, "incr n 1\r\n", "gat 10 key:12 b\r\n", "delete c\r\n"].concat());
        play.say(Server, ["STORED\r\n", VALUE, "END\r\n", "17\r\n", VALUE, "NOT_FOUND\r\n"].concat());
        let told = play.end();
        let expected = [
            "set user:* ok",
            "get key:* ok",
            "get key:* ok",
            "incr n ok",
            "gat key:* ok",
            "delete c NOT_FOUND",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        let bytes: Vec<_> =
            told.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).take(3).collect();
        let (set, get) = (SET.len() as u32, GET.len() as u32);
        assert_eq!(bytes, [(set, 8), (get, VALUE.len() as u32), (get, 5)]);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn a_get_of_several_keys_is_one_request() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, "get a b c\r\nstats items\r\nversion\r\n");
    play.say(Server, "VALUE a 0 1\r\nx\r\nVALUE c 0 0\r\n\r\nEND\r\n");
    play.say(Server, "STAT items:1:number 1\r\nSTAT b 2\r\nEND\r\nVERSION 1.6.18\r\n");
    assert_eq!(play.end().lines(), ["get a ok", "stats items ok", "version  ok"]);
}

#[test]
fn errors_are_told_by_their_kind() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, ["nonsense\r\n", SET, SET, SET].concat());
    play.say(Server, "ERROR\r\nSERVER_ERROR out of memory storing object\r\n");
    play.say(Server, "SERVER_ERROR object too large for cache\r\nCLIENT_ERROR bad data chunk\r\n");
    let told = play.end();
    let expected =
        ["unknown  ERROR", "set user:* SERVER_ERROR", "set user:* TOO_LARGE", "set user:* CLIENT_ERROR"];
    assert_eq!(told.lines(), expected);
    let errors: Vec<bool> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
    assert_eq!(errors, [false, true, false, false]);
}

#[test]
fn what_asks_for_no_answer_waits_for_none() {
    let mut play = Play::new(&ENTRY);
    play.say(
        Client,
        "set a 0 0 1 noreply\r\nx\r\ndelete b noreply\r\nflush_all noreply\r\nms c 1 q\r\nx\r\n",
    );
    play.say(Client, "delete noreply\r\n").say(Server, "DELETED\r\n");
    play.say(Client, "verbosity 1 noreply\r\nquit\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["delete noreply ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

#[test]
fn quiet_misses_end_with_the_next_answer() {
    let mut play = Play::new(&ENTRY);
    play.say(
        Client,
        "mg a v q\r\nmg b v q k\r\nmn\r\nmg c v\r\nms d 2 T0\r\nhi\r\nma e v\r\nmd f q\r\nmg g q\r\n",
    );
    // One of the first two is a hit.
    play.say(Server, "VA 2 kb\r\nhi\r\nMN\r\nEN\r\nNS\r\nVA 2\r\n17\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["mg/q b ok", "mn  ok", "mg c ok", "ms d NS", "ma e ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

/// The answer's key, or the client's own word, shows which of the quiet commands it is of.
#[test]
fn a_quiet_answer_is_of_the_command_that_it_repeats() {
    for (flags, repeats) in [("k O9", "kitem:1 O9"), ("k", "kitem:1"), ("O9", "O9")] {
        let mut play = Play::new(&ENTRY);
        for _ in 0..3 {
            let mut asked = String::new();
            for miss in 0..9 {
                let flags = flags.replace("O9", &format!("O{miss}"));
                asked += &format!("mg cold:{miss} v q {flags}\r\n");
            }
            play.say(Client, format!("{asked}mg item:1 v q {flags}\r\nmg item:2 v q\r\nmn\r\n"));
            play.say(Server, format!("VA 3 {repeats}\r\nabc\r\nMN\r\n"));
        }
        let told = play.end();
        assert_eq!(told.lines(), ["mg/q item:* ok", "mn  ok"].repeat(3), "{flags}");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn quiet_commands_that_fail_answer() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, "ms a 2 q ME\r\nhi\r\nms b 2 q\r\nhi\r\nmg c v\r\nmd d q\r\nmg e v\r\nmn\r\n");
    play.say(Server, "NS\r\nVA 2\r\nhi\r\nNF\r\nEN\r\nMN\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["ms/q a NS", "mg c ok", "md/q d NF", "mg e ok", "mn  ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

/// A client that is never idle behind a hole always has more requests in flight than were answered in the hole. The words of the answers
/// show that they are of other requests.
#[test]
fn answers_behind_a_hole_are_of_requests_of_their_kind() {
    let batch = "get a\r\nmn\r\ndelete b\r\n";
    let answers = ["VALUE a 0 1\r\nx\r\nEND\r\n", "MN\r\n", "DELETED\r\n"];
    let mut play = Play::new(&ENTRY);
    for _ in 0..4 {
        // The second one leaves before the answers to the first one have come.
        play.say(Client, batch).say(Server, answers[0]).say_behind(Client, batch);
        for answer in [1, 2, 0, 1, 2] {
            play.say(Server, answers[answer]);
        }
    }
    play.say(Client, batch).lose(Server, answers[0].len() as u64).say(Server, answers[1]);
    for _ in 0..30 {
        play.say_behind(Client, batch);
        for answer in [2, 0, 1] {
            play.say(Server, answers[answer]);
        }
    }
    let told = play.end();
    for exchange in &told.exchanges {
        let own = match exchange.op.verb {
            record::Verb::Command(name) if name.as_str() == "get" => answers[0],
            record::Verb::Command(name) if name.as_str() == "mn" => answers[1],
            _ => answers[2],
        };
        assert_eq!(exchange.op.response_bytes as usize, own.len(), "{:?}", told.lines());
    }
    assert!(told.exchanges.len() >= 24, "{:?}", told.lines());
}

#[test]
fn lines_of_dumps_and_logs_are_no_answers_of_their_own() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, "lru_crawler metadump all\r\n");
    play.say(Server, "key=a exp=-1\r\nkey=b exp=-1\r\nEND\r\n");
    play.say(Client, "watch fetchers\r\n").say(Server, "OK\r\n");
    play.say(Server, "ts=1 gid=1 type=item_get\r\nts=2 gid=2 type=item_get\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["lru_crawler metadump ok", "watch fetchers ok"]);
    assert_eq!(told.counted.unmatched, 0);
}

#[test]
fn values_of_any_size_are_not_kept() {
    let mut play = Play::new(&ENTRY);
    play.segment = 1448;
    let data = vec![b'x'; 1 << 20];
    play.say(Client, "set big 0 0 1048576\r\n")
        .say(Client, &data)
        .say(Client, "\r\n")
        .say(Server, "STORED\r\n");
    play.say(Client, "get big\r\n").say(Server, "VALUE big 0 1048576\r\n").lose(Server, 1 << 20);
    play.say(Server, "\r\nEND\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["set big ok", "get big ok"]);
    assert!(told.exchanges[1].op.response_bytes > 1 << 20);
    assert!(Memcached::default().kept() < 1024);
}

#[test]
fn the_binary_protocol_is_paired_by_order_and_operation() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let asked = [
            binary(Client, 0x01, 0, 8, "user:1", 9),
            binary(Client, 0x0d, 0, 0, "k1", 0),
            binary(Client, 0x0d, 0, 0, "k2", 0),
            binary(Client, 0x0a, 0, 0, "", 0),
            binary(Client, 0x11, 0, 8, "quiet", 1),
            binary(Client, 0x10, 0, 0, "", 0),
            binary(Client, 0x04, 0, 0, "gone", 0),
        ];
        play.say(Client, asked.concat());
        let answers = [
            binary(Server, 0x01, 0, 0, "", 0),
            binary(Server, 0x0d, 0, 4, "k2", 5),
            binary(Server, 0x0a, 0, 0, "", 0),
            binary(Server, 0x10, 0, 0, "pid", 3),
            binary(Server, 0x10, 0, 0, "", 0),
            binary(Server, 0x04, 1, 0, "", 9),
        ];
        play.say(Server, answers.concat());
        let told = play.end();
        let expected = ["set user:* ok", "getkq k* ok", "noop  ok", "stat  ok", "delete gone NOT_FOUND"];
        assert_eq!(told.lines(), expected, "{segment}");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, GET).say(Server, VALUE);
    // The answer to the second is lost, and half of the third request.
    play.say(Client, GET).lose(Server, 5);
    play.say(Client, &SET[..5]).lose(Client, SET.len() as u64 - 5).say(Server, "STORED\r\n");
    for _ in 0..3 {
        play.say(Client, SET).say(Server, "STORED\r\n");
    }
    let told = play.end();
    assert_eq!(told.lines().first().map(String::as_str), Some("get key:* ok"));
    assert_eq!(told.lines().iter().filter(|line| *line == "set user:* ok").count(), 3);
    assert!(told.exchanges.iter().all(|e| e.response.ended.since(e.request.ended) == Some(1000)));
}

#[test]
fn in_the_middle_the_first_request_is_found_by_the_acknowledgements() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, "12\r\nbytes of a value\r\n");
    play.say(Client, [GET, GET].concat()).say(Server, [VALUE, "END\r\n"].concat()).say(Client, SET);
    play.say(Server, "STORED\r\n");
    assert_eq!(play.end().lines(), ["get key:12 ok", "get key:12 ok", "set user:alice ok"]);
}

#[test]
fn it_begins_with_what_no_other_protocol_says() {
    let get = binary(Client, 0x00, 0, 0, "key", 0);
    let value = binary(Server, 0x00, 0, 4, "", 9);
    for (side, bytes) in [
        (Client, SET.as_bytes()),
        (Client, b"cas a 0 -1 4 17\r\nab"),
        // memaslap's keys begin so.
        (Client, b"set \x10\x10\x10\x103xksjd 0 0 2\r\nab\r\n"),
        (Server, VALUE.as_bytes()),
        (Server, b"NOT_STORED\r\n"),
        (Client, &get),
        (Server, &value),
    ] {
        assert!(begins(&start(side, bytes, 9999)), "{}", bytes.escape_ascii());
    }
    for line in [GET, "mg a v\r\n", "stats\r\n", "version\r\n", "touch a 1\r\n"] {
        assert!(begins(&start(Client, line.as_bytes(), PORT)), "{line}");
        assert!(!begins(&start(Client, line.as_bytes(), 9999)), "{line}");
    }
}

/// The answer that shows memcached to be the one that was asked, with no command of another protocol.
#[test]
fn an_answer_that_only_memcached_gives_is_a_proof() {
    let answering = |asked: &'static str, answer: &'static str| {
        begins(&Start::new(Server, answer.as_bytes(), 9999, false).answering(asked.as_bytes()))
    };
    for (asked, answer) in [
        (GET, "END\r\n"),
        ("get a\r\nget b\r\n", "END\r\nEND\r\n"),
        ("gat 10 a\r\n", "END\r\n"),
        ("mg a v\r\n", "EN\r\n"),
        ("version\r\n", "VERSION 1.6.18\r\n"),
        ("stats\r\n", "STAT pid 1\r\n"),
    ] {
        assert!(answering(asked, answer), "{asked} {answer}");
    }
    for (asked, answer) in [
        ("", "END\r\n"),
        ("get a\n", "END\r\n"),
        ("get \r\n", "END\r\n"),
        ("set a 1\r\n", "END\r\n"),
        ("get a\r\n", "ERROR\r\n"),
        ("get a\r\n", "OK\r\n"),
        ("get a\r\n", "STORED well\r\n"),
        ("delete 5\r\n", "DELETED\r\n"),
        ("touch 5\r\n", "TOUCHED\r\n"),
        ("stats\r\n", "OK 900\r\n"),
        ("version\r\n", "version 1\r\n"),
    ] {
        assert!(!answering(asked, answer), "{asked} {answer}");
    }
}

#[test]
fn a_command_may_come_in_pieces() {
    let start = |bytes, is_first| Start::new(Client, bytes, PORT, is_first);
    assert!(begins(&start(b"set key0 0 0 2", true)));
    for piece in ["set key0 0 0 2", "get key", "mg a"] {
        assert!(!begins(&start(piece.as_bytes(), false)), "{piece}");
    }
    assert!(!begins(&start(b"settle this 0 0", true)));
    // Behind a hole it is found, too.
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    for _ in 0..3 {
        play.say(Client, "set key0 0 0 ")
            .say(Client, "20\r\n12345678901234567890\r\n")
            .say(Server, "STORED\r\n");
        play.say(Client, "get well soon");
        play.lose(Client, 100).say(Server, "END\r\n");
    }
    // Behind the begin of a capture, an answer of no request shows that the one before may be of another, too.
    assert_eq!(play.end().lines(), ["set key* ok"; 2]);
}

#[test]
fn other_protocols_are_not_it() {
    let mut iscsi = [0; 48];
    iscsi[0] = 0x43;
    let foreign: [&[u8]; 14] = [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n",
        b"HELO mail\r\n",
        b"220 mail ESMTP\r\n",
        b"USER anonymous\r\n",
        b"NICK a\r\nUSER a 0 * :a\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"+OK\r\n",
        b"END OF DATA\r\n",
        b"set a 0 0 3\r\nabcdefgh\r\n",
        b"get \r\n",
        b"use test\r\nput 0 0 5\r\n",
        b"\x80\x00\x00\x03\x09\x00\x00\x00\x00\x00\x00\x03aaaaaaaaaaaaaaaaaaaa",
        b"\x81\x85aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        &iscsi,
    ];
    for bytes in foreign {
        for side in [Client, Server] {
            assert!(!begins(&start(side, bytes, PORT)), "{}", bytes.escape_ascii());
        }
    }
    for beanstalkd in ["DELETED\r\n", "NOT_FOUND\r\n", "TOUCHED\r\n"] {
        assert!(!begins(&start(Server, beanstalkd.as_bytes(), 11300)), "{beanstalkd}");
    }
}

#[test]
fn what_only_looks_like_memcached_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for _ in 0..4 {
        play.say(Client, GET).say(Server, "\x00\x01\x02\n").say(Server, "END\r\n\x00\n");
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_are_bounded() {
    let endless = format!("VALUE {}", "x".repeat(200_000));
    for hostile in
        ["VALUE a 0 99999999999999999999\r\n", "VA 18446744073709551615\r\n", "VALUE a 0 -1\r\n", &endless]
    {
        let mut play = Play::new(&ENTRY);
        play.segment = 1448;
        play.say(Client, GET).say(Server, hostile).say(Server, "END\r\n");
        assert!(play.end().exchanges.len() <= 1, "{hostile}");
    }
    let mut play = Play::new(&ENTRY);
    play.say(Client, "mg a q\r\n".repeat(10_000)).say(Client, "mn\r\n").say(Server, "MN\r\n");
    let told = play.end();
    assert_eq!((told.lines(), told.unanswered.len()), (vec!["mn  ok".to_owned()], 0));
}

#[test]
fn no_hole_shifts_the_answers_behind_it() {
    Play::assert_no_shift(|| Play::new(&ENTRY), GET.as_bytes(), VALUE.as_bytes());
    Play::assert_no_shift_in_batches(|| Play::new(&ENTRY), GET.as_bytes(), VALUE.as_bytes());
    Play::assert_no_shift_in_flight(|| Play::new(&ENTRY), GET.as_bytes(), VALUE.as_bytes(), true);
    Play::assert_no_shift(|| Play::new(&ENTRY), b"get a\r\n", b"END\r\n");
    Play::assert_no_shift_in_batches(|| Play::new(&ENTRY), b"get a\r\n", b"END\r\n");
    Play::assert_no_shift_in_flight(|| Play::new(&ENTRY), b"get a\r\n", b"END\r\n", true);
}

#[test]
fn a_capture_that_begins_within_a_burst_pairs_no_others() {
    Play::assert_own_answers_from_the_middle(&ENTRY, GET.as_bytes(), VALUE.as_bytes());
    Play::assert_unsure_in_flight_from_the_middle(&ENTRY, GET.as_bytes(), VALUE.as_bytes());
}

/// What memcached 1.6 answers.
#[test]
fn a_refused_request_whose_data_is_taken_for_a_command_shifts_nothing() {
    let long = format!("set {} 0 0 5", "k".repeat(251));
    let refused = [
        (format!("{long}\r\nhello\r\n"), "CLIENT_ERROR bad command line format\r\nERROR\r\n", "CLIENT_ERROR"),
        (format!("{long} noreply\r\nhello\r\n"), "ERROR\r\n", ""),
        ("set a 0 0 5\r\nhelloXX\r\n".into(), "CLIENT_ERROR bad data chunk\r\nERROR\r\n", "CLIENT_ERROR"),
        ("set a 0 0 5 noreply\r\nhelloXX\r\n".into(), "ERROR\r\n", ""),
        (
            "set a b 0 0 5\r\nhello\r\n".into(),
            "CLIENT_ERROR bad command line format\r\nERROR\r\n",
            "CLIENT_ERROR",
        ),
        ("set a b 0 0 5 noreply\r\nhello\r\n".into(), "ERROR\r\nERROR\r\n", "ERROR"),
        (
            "set a 0 0 -1\r\nhello\r\n".into(),
            "CLIENT_ERROR bad command line format\r\nERROR\r\n",
            "CLIENT_ERROR",
        ),
        ("set a 0 0\r\nhello\r\n".into(), "ERROR\r\nERROR\r\n", "ERROR"),
        (
            "set a x 0 5\r\nhello\r\n".into(),
            "CLIENT_ERROR bad command line format\r\nERROR\r\n",
            "CLIENT_ERROR",
        ),
        ("get\r\n".into(), "ERROR\r\n", "ERROR"),
        ("incr a\r\n".into(), "ERROR\r\n", "ERROR"),
    ];
    for (request, answers, status) in refused {
        let mut play = Play::new(&ENTRY);
        play.say(Client, [GET, &request, "get b\r\nget c\r\n"].concat());
        play.say(Server, ["END\r\n", answers].concat());
        // Those of the others come later.
        play.pause(1_000_000_000).say(Server, "END\r\n").pause(1_000_000_000).say(Server, "END\r\n");
        let told = play.end();
        let of = |key: &str| {
            let exchange = told.exchanges.iter().zip(told.lines()).find(|(_, line)| line.contains(key));
            exchange.map(|(exchange, _)| exchange.response.ended.ns().unwrap() / 1_000_000_000)
        };
        assert_eq!([of("get b"), of("get c")], [Some(1), Some(2)], "{request}: {:?}", told.lines());
        assert!(status.is_empty() || told.lines()[1].ends_with(status), "{request}: {:?}", told.lines());
        assert_eq!(told.unanswered.len(), 0, "{request}");
    }
}

#[test]
fn a_lost_packet_costs_its_batch() {
    let requests: [(&[u8], &[u8]); 5] = [
        (b"set key:1 0 0 5\r\nhello\r\n", b"STORED\r\n"),
        (b"get key:1\r\n", b"VALUE key:1 0 5\r\nhello\r\nEND\r\n"),
        (b"get none:1\r\n", b"END\r\n"),
        (b"set key:2 0 0 5\r\nhello\r\n", b"STORED\r\n"),
        (b"get key:2\r\n", b"VALUE key:2 0 5\r\nhello\r\nEND\r\n"),
    ];
    assert_each_packet_lost(
        || Play::new(&ENTRY),
        &requests,
        Cost { from: 0, most: 2, wrong: 0, is_one_batch: true },
    );
    assert_each_packet_of_a_window_lost(|| Play::new(&ENTRY), &requests);
}
