//! Conversations of Redis.

use super::*;
use crate::decode::play::Play;
use crate::decode::play::each_packet::{Cost, assert_each_packet_lost, assert_each_packet_of_a_window_lost};

use Side::{Client, Server};

const SET: &str = "*3\r\n$3\r\nset\r\n$10\r\nuser:alice\r\n$5\r\nvalue\r\n";
const GET: &str = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000012\r\n";

#[test]
fn commands_that_wait_for_an_event_say_so() {
    let array = |words: &str| {
        let parts = words.split(' ').map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.split(' ').count(), parts.collect::<String>())
    };
    let commands = [
        ("BLPOP jobs 0", true),
        ("brpop jobs 5", true),
        ("BLMOVE a b LEFT RIGHT 0", true),
        ("BZPOPMIN a 0", true),
        ("WAIT 1 100", true),
        ("XREAD COUNT 2 BLOCK 0 STREAMS log $", true),
        ("XREADGROUP GROUP g c block 500 STREAMS log >", true),
        ("XREAD COUNT 2 STREAMS log 0", false),
        ("XREAD STREAMS block 0", false),
        ("LPOP block", false),
        ("SUBSCRIBE news", false),
    ];
    for segment in [usize::MAX, 1, 7, 50] {
        for inline in [false, true] {
            let mut play = Play::new(&ENTRY);
            play.segment = segment;
            play.say(Client, array("PING"));
            play.say(Server, "+PONG\r\n");
            for (command, _) in commands {
                play.say(Client, if inline { format!("{command}\r\n") } else { array(command) });
                play.say(Server, "*-1\r\n");
            }
            let held: Vec<bool> = play.end().exchanges.iter().map(|e| e.awaits_event).collect();
            let expected: Vec<bool> = commands.iter().map(|command| command.1).collect();
            assert_eq!(held[1..], expected, "{segment} {inline}");
        }
    }
}

/// A snap length may hide the option that says so.
#[test]
fn commands_cut_behind_their_name_may_wait_for_an_event() {
    for (name, held) in [("BLMPOP", true), ("XREADGROUP", true), ("XREAD", true), ("LRANGE", false)] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, "*1\r\n$4\r\nPING\r\n");
        play.say(Server, "+PONG\r\n");
        for _ in 0..3 {
            play.say(Client, format!("*9\r\n${}\r\n{name}\r\n$5\r\nGR", name.len()));
            play.cut(Client, 60);
            play.say(Server, "*-1\r\n");
        }
        let told = play.end();
        assert!(told.exchanges.len() > 1, "{name}");
        assert!(
            told.exchanges.iter().skip(1).all(|e| e.awaits_event == held),
            "{name} {:#?}",
            told.exchanges
        );
    }
}

#[test]
fn pipelined_commands_are_requests_of_their_own() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        play.say(Client, [SET, GET, GET, "PING\r\n"].concat());
        play.say(Server, "+OK\r\n$-1\r\n$3\r\nabc\r\n-LOADING wait\r\n");
        let told = play.end();
        let expected = ["SET user:* ok", "GET key:* ok", "GET key:* ok", "PING  LOADING"];
        assert_eq!(told.lines(), expected, "{segment}");
        let bytes: Vec<_> =
            told.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
        let (set, get) = (SET.len() as u32, GET.len() as u32);
        assert_eq!(bytes, [(set, 5), (get, 5), (get, 9), (6, 15)]);
        assert_eq!(told.exchanges[3].error.map(|e| e.to_string()), Some("LOADING".to_owned()));
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn nested_replies_are_one_reply() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, [GET, GET].concat());
    play.say(Server, "*3\r\n*2\r\n:1\r\n$1\r\na\r\n*0\r\n%1\r\n+k\r\n|1\r\n+ttl\r\n:3\r\n_\r\n:7\r\n");
    let told = play.end();
    assert_eq!(told.exchanges.len(), 2);
    assert_eq!(told.exchanges[1].op.response_bytes, 4);
}

#[test]
fn messages_to_subscribers_are_no_replies() {
    let subscribe = "*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n";
    let confirm = "3\r\n$9\r\nsubscribe\r\n$1\r\na\r\n:1\r\n";
    let message = "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n";
    for kind in ["*", ">"] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, subscribe).say(Server, format!("{kind}{confirm}"));
        for _ in 0..5 {
            play.say(Server, format!("{kind}{message}"));
        }
        play.say(Client, "*1\r\n$4\r\nPING\r\n").say(Server, "+PONG\r\n");
        let told = play.end();
        assert_eq!(told.lines(), ["SUBSCRIBE a ok", "PING  ok"], "{kind}");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

/// The last answers to a batch are missing, and later one of the requests that are sent one at a time: the answer to that one does not
/// stand in for a missing one.
#[test]
fn a_lost_request_behind_lost_answers_shifts_none() {
    let mut play = Play::new(&ENTRY);
    for _ in 0..20 {
        play.say_behind(Client, SET);
    }
    // A snap length has cut the packet with all answers.
    play.say(Server, "+OK\r\n".repeat(20).split_at(94).0).lose(Server, 6);
    for number in 0..90 {
        play.pause(1_000_000);
        if number == 10 {
            play.lose_unnoticed(Client, GET.len() as u64);
        } else {
            play.say(Client, GET);
        }
        play.say(Server, "$1\r\na\r\n");
    }
    let told = play.end();
    let gets = told.exchanges.iter().filter(|e| e.op.response_bytes == 7);
    let took: Vec<i64> = gets.map(|e| e.response.ended.since(e.request.ended).unwrap()).collect();
    assert!(took.iter().all(|&ns| ns < 500_000), "{took:?}");
    assert!(took.len() >= 10, "{}", took.len());
}

#[test]
fn a_server_that_is_full_fails_what_is_asked() {
    for (text, is_failure) in [("max number of clients reached", true), ("unknown command 'FOO'", false)] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, GET).say(Server, format!("-ERR {text}\r\n"));
        let told = play.end();
        assert_eq!(told.exchanges[0].error.is_some(), is_failure, "{text}");
        assert_eq!(told.lines()[0].ends_with("MAXCLIENTS"), is_failure, "{:?}", told.lines());
    }
}

/// Messages come at any time: behind a PING, behind a subscription, and among the confirmations of one.
#[test]
fn messages_answer_nothing_that_is_asked_meanwhile() {
    let asked = |words: &[&str]| {
        let words = words.iter().map(|word| format!("${}\r\n{word}\r\n", word.len()));
        format!("*{}\r\n{}", words.len(), words.collect::<String>())
    };
    let confirm = |channel: &str| format!("3\r\n$9\r\nsubscribe\r\n$1\r\n{channel}\r\n:1\r\n");
    let message = "3\r\n$7\r\nmessage\r\n$1\r\na\r\n$2\r\nhi\r\n";
    for (kind, pong) in [("*", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"), (">", "+PONG\r\n")] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, [asked(&["LRANGE", "l"]), asked(&["SUBSCRIBE", "a"])].concat());
        play.say(Server, format!("*3\r\n:1\r\n:2\r\n:3\r\n{kind}{}", confirm("a")));
        let ask = |play: &mut Play, words: &[&str]| {
            play.pause(1_000_000).say(Client, asked(words));
            for _ in 0..3 {
                play.pause(1_000_000).say(Server, format!("{kind}{message}"));
            }
        };
        ask(&mut play, &["PING"]);
        play.say(Server, pong);
        ask(&mut play, &["SUBSCRIBE", "b"]);
        play.say(Server, format!("{kind}{}", confirm("b")));
        ask(&mut play, &["SUBSCRIBE", "b", "c", "d"]);
        for channel in ["b", "c", "d"] {
            play.pause(1_000_000).say(Server, format!("{kind}{}{kind}{message}", confirm(channel)));
        }
        play.say(Client, asked(&["PING"])).say(Server, pong);
        let told = play.end();
        let lines =
            ["LRANGE l ok", "SUBSCRIBE a ok", "PING  ok", "SUBSCRIBE b ok", "SUBSCRIBE b ok", "PING  ok"];
        assert_eq!(told.lines(), lines, "{kind}");
        let took: Vec<i64> = told
            .exchanges
            .iter()
            .map(|e| e.response.ended.since(e.request.ended).unwrap() / 1_000_000)
            .collect();
        assert_eq!(took, [0, 0, 3, 3, 6, 0], "{kind}");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0), "{kind}");
    }
}

#[test]
fn commands_without_a_reply_wait_for_none() {
    let client = |word: &str| format!("*3\r\n$6\r\nCLIENT\r\n$5\r\nreply\r\n${}\r\n{word}\r\n", word.len());
    let mut play = Play::new(&ENTRY);
    play.say(Client, [&client("SKIP"), SET, GET].concat()).say(Server, "$1\r\na\r\n");
    play.say(Client, [&client("off"), SET, &client("SKIP"), SET, SET].concat());
    play.say(Client, [&client("ON"), GET].concat()).say(Server, "+OK\r\n$1\r\na\r\n");
    play.say(Client, "client reply skip\r\nPING\r\nPING\r\n").say(Server, "+PONG\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["GET key:* ok", "CLIENT  ok", "GET key:* ok", "PING  ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, GET).say(Server, "$1\r\na\r\n");
    // The reply to the second is lost, and half of the third request.
    play.say(Client, GET).lose(Server, 7);
    play.say(Client, &GET[..20]).lose(Client, GET.len() as u64 - 20).say(Server, "$1\r\nb\r\n");
    for _ in 0..3 {
        play.say(Client, SET).say(Server, "+OK\r\n");
    }
    let told = play.end();
    assert_eq!(told.lines(), ["GET key:* ok", "GET  ok", "SET user:* ok", "SET user:* ok", "SET user:* ok"]);
    assert!(told.exchanges.iter().all(|e| e.response.ended.since(e.request.ended) == Some(1000)));
}

#[test]
fn a_reply_of_a_batch_in_a_hole_does_not_shift_the_next_ones() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, GET).say(Server, "$1\r\na\r\n");
    play.say(Client, [GET, GET, GET].concat()).say(Server, "$1\r\na\r\n").lose(Server, 7);
    play.say(Server, "$1\r\nc\r\n");
    for _ in 0..4 {
        play.say(Client, SET).say(Server, "+OK\r\n");
    }
    let told = play.end();
    assert_eq!(told.lines()[3..], ["SET user:* ok"; 4]);
    assert_eq!((told.unanswered.len(), told.counted.abandoned), (0, 1));
}

/// A hole costs no request that is sent behind it.
#[test]
fn requests_behind_a_hole_were_not_answered_in_it() {
    let mut play = Play::new(&ENTRY);
    let (one, two) = ("$1\r\na\r\n", "$1\r\na\r\n$1\r\na\r\n");
    play.say(Client, GET).say(Client, GET).say(Server, two);
    play.say(Client, GET).say(Server, one).lose(Client, GET.len() as u64).say(Server, one);
    for _ in 0..3 {
        play.say(Client, GET).say(Client, GET).say(Server, two);
    }
    assert_eq!(play.end().exchanges.len(), 2 + 1 + 6);
}

/// Which requests the answers behind the hole are of is not known to the end: they are no operations.
#[test]
fn answers_without_a_request_are_not_counted() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, GET)
        .say(Client, GET)
        .say(Client, GET)
        .lose(Server, 7)
        .say(Server, "$1\r\na\r\n")
        .say(Client, GET);
    assert_eq!(play.end().lines(), [""; 0]);
}

/// A client that sends each request before the answer to the one before, in batches. The answers that a hole held do not show, but
/// the client waits for the last ones of each batch.
#[test]
fn a_reply_in_a_hole_shifts_nothing_where_the_client_does_not_wait() {
    let conversation = |lost: Option<(usize, usize)>, batches: usize| {
        let mut play = Play::new(&ENTRY);
        for batch in 0..batches {
            play.say(Client, GET).say(Client, GET);
            for i in 0..6 {
                if lost.is_some_and(|(at, to)| batch == 3 && (at..to).contains(&i)) {
                    play.lose(Server, 7);
                } else {
                    play.say(Server, "$1\r\na\r\n");
                }
                if i < 4 {
                    play.say(Client, GET);
                }
            }
            play.pause(1_000_000);
        }
        play.end()
    };
    for batches in [4, 5, 20] {
        let times = |told: &crate::decode::play::Told| {
            let pair = |e: &record::Exchange| (e.request.began, e.response.ended);
            told.exchanges.iter().map(pair).collect::<Vec<_>>()
        };
        let whole = times(&conversation(None, batches));
        assert_eq!(whole.len(), batches * 6);
        for (at, to) in [(0, 1), (2, 3), (5, 6), (1, 4), (0, 6)] {
            let told = conversation(Some((at, to)), batches);
            let found = times(&told);
            let invented = found.iter().filter(|pair| !whole.contains(pair)).count();
            assert!(found.len() >= (batches - 1) * 6, "{batches} {at} {to}: {}", found.len());
            // Which answers of the batch were in the hole shows nowhere, where they were not the first ones in flight.
            assert!(invented <= 6 - (to - at), "{batches} {at} {to}: {invented} of {}", found.len());
            assert_eq!(found[found.len() - (batches - 4) * 6..], whole[24..], "{batches} {at} {to}");
            assert!(told.unanswered.is_empty());
        }
    }
}

#[test]
fn in_the_middle_the_first_request_is_found_by_the_acknowledgements() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, "bytes of a reply\r\n$1\r\nz\r\n");
    play.say(Client, [GET, GET].concat()).say(Server, "$1\r\na\r\n$1\r\nb\r\n").say(Client, SET);
    play.say(Server, "+OK\r\n");
    let told = play.end();
    assert_eq!(told.lines(), ["GET key:000000000012 ok", "GET key:000000000012 ok", "SET user:alice ok"]);
}

#[test]
fn what_only_looks_like_redis_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for _ in 0..4 {
        play.say(Client, "*1\r\n$4\r\nPING\r\n").say(Server, "\x00\x01\x02\n");
        play.say(Server, "+OK\r\n\x00\n");
    }
    assert!(play.is_contradicted());
}

fn is_begun(side: Side, bytes: &[u8], port: u16, is_first: bool) -> bool {
    begins(&Start::new(side, bytes, port, is_first))
}

#[test]
fn what_a_server_says_in_the_middle_is_no_command() {
    let popped = b"*2\r\n$4\r\njobs\r\n$10\r\ncardnumber\r\n";
    assert!(!is_begun(Client, popped, 40_000, false) && !is_begun(Client, popped, PORT, false));
    assert!(is_begun(Client, GET.as_bytes(), 40_000, false));
    // A module's command at the beginning of a connection.
    assert!(is_begun(Client, b"*2\r\n$8\r\nJSON.GET\r\n$1\r\na\r\n", 40_000, true));
}

#[test]
fn other_text_protocols_on_its_port_are_not_redis() {
    for line in
        ["USER joe", "PASS x", "STAT", "EHLO a", "NICK a", "a1 LOGIN b c", "CONNECT {}", "MODE READER"]
    {
        assert!(!is_begun(Client, format!("{line}\r\n").as_bytes(), PORT, true), "{line}");
    }
    assert!(is_begun(Client, b"PING\r\n", PORT, true) && is_begun(Client, b"set a b\r\n", PORT, true));
}

/// A mistyped or renamed AUTH has a password, and no key.
#[test]
fn arguments_of_unknown_commands_are_not_shown() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, "*2\r\n$4\r\nAUHT\r\n$7\r\nsekretr\r\n").say(Server, "-ERR unknown command\r\n");
    play.say(Client, "AUHT sekretr\r\n").say(Server, "-ERR unknown command\r\n");
    // A secret in the place of a command, also with the dot of a module.
    play.say(Client, "HUNTER2SECRET\r\nhunter.secret\r\n").say(Server, "-ERR a\r\n-ERR b\r\n");
    assert_eq!(play.end().lines(), ["unknown  ERR"; 4]);
    let mut play = Play::new(&ENTRY);
    play.say(Client, "*1\r\n$8\r\njson.get\r\n").say(Server, "$-1\r\n");
    assert_eq!(play.end().lines(), ["JSON.GET  ok"]);
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, false);
    play.say(Client, "auht secret\r\n").say(Server, "-ERR a\r\n");
    assert_eq!(play.end().lines(), ["AUHT  ERR"]);
}

/// A replica asks for all data, and what follows is no answer: neither the data set, whose end is no line's, nor what changes.
#[test]
fn a_replica_is_no_client() {
    let changes = ["*1\r\n$4\r\nPING\r\n", "*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"].concat();
    let data = [b"$20\r\nREDIS0011\xfa\x00\x01*3\r\n-ERR ", changes.as_bytes()].concat();
    for (asks, good) in
        [("*3\r\n$5\r\nPSYNC\r\n$1\r\n?\r\n$2\r\n-1\r\n", "+FULLRESYNC 3b8a 0\r\n"), ("SYNC\r\n", "")]
    {
        for segment in [usize::MAX, 1, 7] {
            let mut play = Play::new(&ENTRY);
            play.segment = segment;
            play.say(Client, "PING\r\n").say(Server, "+PONG\r\n");
            play.say(Client, asks).say(Server, [good.as_bytes(), &data].concat());
            for _ in 0..40 {
                play.say(Server, &changes).say(Client, "*3\r\n$8\r\nREPLCONF\r\n$3\r\nACK\r\n$2\r\n14\r\n");
            }
            let told = play.end();
            let expected: &[&str] = if good.is_empty() { &["PING  ok"] } else { &["PING  ok", "PSYNC  ok"] };
            assert_eq!(told.lines(), expected, "{segment}");
            assert!(told.exchanges.iter().skip(1).all(|e| e.awaits_event));
            let counted = told.counted;
            assert_eq!((counted.boundaries_lost, counted.skipped_bytes, counted.unmatched), (0, 0, 0));
            assert_eq!(counted.unanswered, 0);
        }
    }
    // One that is refused goes on.
    let mut play = Play::new(&ENTRY);
    play.say(Client, "PSYNC ? -1\r\n").say(Server, "-NOMASTERLINK no\r\n");
    play.say(Client, "PING\r\n").say(Server, "+PONG\r\n");
    assert_eq!(play.end().lines(), ["PSYNC  NOMASTERLINK", "PING  ok"]);
}

#[test]
fn lengths_are_bounded() {
    for hostile in ["$99999999999999999999\r\n", "*99999999999\r\n$1\r\na\r\n", "$-2\r\n"] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, GET).say(Server, hostile).say(Server, "+OK\r\n");
        assert!(play.end().exchanges.len() <= 1, "{hostile}");
    }
    let mut play = Play::new(&ENTRY);
    play.say(Client, GET).say(Server, "*1\r\n".repeat(40)).say(Server, vec![b'+'; 200_000]);
    assert!(play.end().exchanges.len() <= 1);
}

#[test]
fn no_hole_shifts_the_answers_behind_it() {
    Play::assert_no_shift(|| Play::new(&ENTRY), GET.as_bytes(), b"$3\r\nabc\r\n");
    Play::assert_no_shift_in_batches(|| Play::new(&ENTRY), GET.as_bytes(), b"$3\r\nabc\r\n");
    Play::assert_no_shift_in_flight(|| Play::new(&ENTRY), GET.as_bytes(), b"$3\r\nabc\r\n", true);
}

#[test]
fn a_capture_that_begins_within_a_burst_pairs_no_others() {
    Play::assert_own_answers_from_the_middle(&ENTRY, GET.as_bytes(), b"$3\r\nabc\r\n");
    Play::assert_unsure_in_flight_from_the_middle(&ENTRY, GET.as_bytes(), b"$3\r\nabc\r\n");
}

/// A bulk load sends tens of thousands of commands before it reads an answer.
#[test]
fn a_deep_pipeline_is_told_whole() {
    const COMMANDS: usize = 50_000;
    let mut play = Play::new(&ENTRY);
    play.say(Client, SET.repeat(COMMANDS)).say(Server, "+OK\r\n".repeat(COMMANDS));
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.counted.abandoned), (COMMANDS, 0));
}

/// A batch whose packets cut its requests, each sent when the answers to the whole ones before have come; the packet with the answers of the
/// batch before was not captured.
#[test]
fn a_request_that_goes_on_in_the_packet_of_the_next_is_not_answered_before() {
    const BATCHES: u64 = 8;
    let mut play = Play::new(&ENTRY);
    for batch in 0..BATCHES {
        play.pause(1_000_000_000);
        let requests = [GET, GET, GET].concat();
        let (first, rest) = requests.split_at(GET.len() * 3 / 2);
        let answer = "$3\r\nabc\r\n";
        if batch < 5 {
            play.say(Client, first).say(Client, rest);
            let all = answer.repeat(3);
            if batch == 4 {
                play.lose(Server, all.len() as u64)
            } else {
                play.say(Server, all)
            };
        } else {
            play.say(Client, first).say(Server, answer).pause(100_000_000).say(Client, rest);
            play.say(Server, answer.repeat(2));
        }
    }
    let told = play.end();
    assert_eq!(told.exchanges.len(), 3 * (BATCHES as usize - 1));
    for exchange in &told.exchanges {
        let second = |stamp: record::Stamp| stamp.ns().unwrap() / 1_000_000_000;
        assert_eq!(second(exchange.request.began), second(exchange.response.ended));
        // No answer came before its request was complete.
        assert!(exchange.response.ended.ns() > exchange.request.ended.ns());
    }
}

#[test]
fn a_lost_packet_costs_its_batch() {
    let requests: [(&[u8], &[u8]); 4] = [
        (b"*3\r\n$3\r\nSET\r\n$1\r\n1\r\n$5\r\nhello\r\n", b"+OK\r\n"),
        (GET.as_bytes(), b"$5\r\nhello\r\n"),
        (b"*3\r\n$3\r\nSET\r\n$1\r\n2\r\n$5\r\nhello\r\n", b"+OK\r\n"),
        (GET.as_bytes(), b"$-1\r\n"),
    ];
    assert_each_packet_lost(
        || Play::new(&ENTRY),
        &requests,
        Cost { from: 0, most: 2, wrong: 0, is_one_batch: true },
    );
    assert_each_packet_of_a_window_lost(|| Play::new(&ENTRY), &requests);
}

/// A client that sends on when some answers have come, and whose next hole is one of answers, before its requests are paired again.
#[test]
fn a_second_hole_does_not_end_pairing() {
    const BATCHES: usize = 60;
    for second in [Client, Server] {
        let mut play = Play::new(&ENTRY);
        for batch in 0..BATCHES {
            play.pause(1_000_000_000);
            for n in 0..4 {
                let is_lost =
                    |side| (batch, n, side) == (10, 1, Client) || (batch, n, side) == (14, 2, second);
                if is_lost(Client) {
                    play.lose(Client, GET.len() as u64);
                } else {
                    play.say(Client, GET);
                }
                // One answer behind the second request, and the others behind the last two.
                for _ in 0..[0, 1, 1, 2][n] {
                    if is_lost(Server) {
                        play.lose(Server, 9);
                    } else {
                        play.say(Server, "$3\r\nabc\r\n");
                    }
                }
            }
        }
        let told = play.end();
        // What is between the holes, and the batches that they are in.
        assert!(told.exchanges.len() >= 4 * (BATCHES - 6), "{second:?}: {}", told.exchanges.len());
        assert!(told.longest_ns(0) < 1_000_000_000);
        let last = told.exchanges.last().map(|exchange| exchange.request.began.ns().unwrap());
        assert!(last > Some((BATCHES as u64) * 1_000_000_000), "{second:?}");
    }
}
