//! Conversations of MongoDB.

use super::*;
use crate::decode::play::{Play, Told};

use Side::{Client, Server};

/// An element of a document, with its kind.
fn element(kind: u8, name: &str, value: &[u8]) -> Vec<u8> {
    [&[kind], name.as_bytes(), &[0], value].concat()
}

fn text(name: &str, value: &str) -> Vec<u8> {
    let length = (value.len() as u32 + 1).to_le_bytes();
    element(2, name, &[&length[..], value.as_bytes(), &[0]].concat())
}

fn int(name: &str, value: i32) -> Vec<u8> {
    element(0x10, name, &value.to_le_bytes())
}

fn long(name: &str, value: i64) -> Vec<u8> {
    element(0x12, name, &value.to_le_bytes())
}

fn double(name: &str, value: f64) -> Vec<u8> {
    element(1, name, &value.to_le_bytes())
}

fn document(elements: &[Vec<u8>]) -> Vec<u8> {
    let elements = elements.concat();
    [&(elements.len() as u32 + 5).to_le_bytes()[..], &elements, &[0]].concat()
}

fn inner(name: &str, elements: &[Vec<u8>]) -> Vec<u8> {
    element(3, name, &document(elements))
}

fn array(name: &str, documents: &[Vec<u8>]) -> Vec<u8> {
    let documents: Vec<_> =
        documents.iter().enumerate().map(|(i, d)| element(3, &i.to_string(), d)).collect();
    element(4, name, &document(&documents))
}

/// A message of a kind with its number and that of what it answers.
fn message(number: u32, answers: u32, operation: u32, body: &[u8]) -> Vec<u8> {
    let fields = [body.len() as u32 + 16, number, answers, operation];
    [&fields.map(u32::to_le_bytes).concat()[..], body].concat()
}

/// OP_MSG with flags and a document.
fn flagged(flags: u32, number: u32, answers: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    let body = [&flags.to_le_bytes()[..], &[0], &document(elements)].concat();
    message(number, answers, message::MESSAGE, &body)
}

fn command(number: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    flagged(0, number, 0, elements)
}

fn find(number: u32, collection: &str) -> Vec<u8> {
    let filter = inner("filter", &[text("name", "somebody")]);
    command(number, &[text("find", collection), filter, int("limit", 10), text("$db", "shop")])
}

fn reply(answers: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    flagged(0, answers | 0x8000_0000, answers, elements)
}

fn good(answers: u32) -> Vec<u8> {
    reply(answers, &[int("n", 1), double("ok", 1.0)])
}

/// OP_QUERY to a collection.
fn query(number: u32, collection: &str, elements: &[Vec<u8>]) -> Vec<u8> {
    let body =
        [&[0; 4][..], collection.as_bytes(), &[0; 5], &(-1_i32).to_le_bytes(), &document(elements)].concat();
    message(number, 0, message::QUERY, &body)
}

/// OP_REPLY with a document.
fn old_reply(answers: u32, elements: &[Vec<u8>]) -> Vec<u8> {
    message(9, answers, 1, &[&[0; 16][..], &1_u32.to_le_bytes(), &document(elements)].concat())
}

fn told(segment: usize, conversation: &[(Side, Vec<u8>)]) -> Told {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    for (side, bytes) in conversation {
        play.say(*side, bytes);
    }
    play.end()
}

#[test]
fn commands_are_paired_by_their_numbers() {
    let insert = [text("insert", "orders.17"), text("$db", "shop")];
    let sequence = {
        let documents = document(&[text("name", &"x".repeat(3000))]).repeat(2);
        let named = [&(documents.len() as u32 + 14).to_le_bytes()[..], b"documents\0", &documents].concat();
        // The documents stand before the command, and a checksum ends all.
        let body = [&1_u32.to_le_bytes()[..], &[1], &named[..], &[0], &document(&insert), b"crc3"].concat();
        message(2, 0, message::MESSAGE, &body)
    };
    let short = command(3, &[&insert[..], &[array("documents", &[document(&[int("a", 1)])])]].concat());
    let conversation = [
        (Client, query(1, "admin.$cmd", &[inner("$query", &[int("isMaster", 1), int("helloOk", 1)])])),
        (Server, old_reply(1, &[int("maxWireVersion", 17), double("ok", 1.0)])),
        // Three at once, the second of which is answered first.
        (Client, [short, find(4, "users"), command(5, &[int("ping", 1), text("$db", "admin")])].concat()),
        (Server, [good(4), good(3)].concat()),
        (Server, good(5)),
        (Client, command(6, &[long("getMore", 77), text("collection", "users"), text("$db", "shop")])),
        (Server, good(6)),
        // It names a user, whatever its value looks like.
        (Client, command(7, &[text("createUser", "alice"), text("pwd", "secret"), text("$db", "shop")])),
        (Server, good(7)),
    ];
    let lines = [
        "isMaster  ok",
        "find shop.users ok",
        "insert shop.orders.:n ok",
        "ping admin ok",
        "getMore shop.users ok",
        "createUser shop ok",
    ];
    for segment in [usize::MAX, 1, 7, 50] {
        let told = told(segment, &conversation);
        assert_eq!(told.lines(), lines, "{segment}");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
        assert_eq!(told.exchanges[1].op.request_bytes as usize, find(4, "users").len());
    }
    // The command of a long sequence is behind what is kept.
    let told = told(1000, &[(Client, sequence), (Server, good(2))]);
    assert_eq!(told.lines(), ["command  ok"]);
}

#[test]
fn errors_have_their_names() {
    let write = |code: i32| {
        array("writeErrors", &[document(&[int("index", 0), int("code", code), text("errmsg", "e")])])
    };
    let concern = inner("writeConcernError", &[int("code", 64), text("codeName", "WriteConcernFailed")]);
    let failed = |code: i32, name: &str| {
        vec![double("ok", 0.0), text("errmsg", "e"), int("code", code), text("codeName", name)]
    };
    let replies: [(Vec<Vec<u8>>, &str, bool); 8] = [
        (failed(26, "NamespaceNotFound"), "NamespaceNotFou", false),
        (failed(91, "ShutdownInProgress"), "ShutdownInProgr", true),
        (failed(50, "MaxTimeMSExpired"), "MaxTimeMSExpire", true),
        (vec![int("ok", 0), int("code", 40_415)], "40415", false),
        (vec![double("ok", 0.0), text("errmsg", "e")], "error", false),
        (vec![int("n", 0), write(11_000), double("ok", 1.0)], "DuplicateKey", false),
        (vec![int("n", 1), concern, double("ok", 1.0)], "WriteConcernFai", true),
        // All writes were carried out.
        (vec![int("n", 1), array("writeErrors", &[]), double("ok", 1.0)], "ok", false),
    ];
    for (elements, status, is_failure) in replies {
        let told = told(usize::MAX, &[(Client, find(1, "a")), (Server, reply(1, &elements))]);
        assert_eq!(told.lines(), [format!("find shop.a {status}")]);
        assert_eq!(told.exchanges[0].error.is_some(), is_failure, "{status}");
    }
    let old = [
        (Client, query(1, "shop.users", &[])),
        (Server, old_reply(1, &[text("$err", "e"), int("code", 13)])),
    ];
    assert_eq!(told(7, &old).lines(), ["query  13"]);
    // A reply whose end is not kept is one of data, and no error.
    let rows = array("firstBatch", &vec![document(&[text("name", &"x".repeat(500))]); 40]);
    let long = reply(1, &[inner("cursor", &[rows, long("id", 0)]), double("ok", 1.0)]);
    assert_eq!(told(1000, &[(Client, find(1, "a")), (Server, long)]).lines(), ["find shop.a ok"]);
}

#[test]
fn messages_without_a_reply_are_no_requests() {
    let silent = flagged(message::MORE_TO_COME, 1, 0, &[text("insert", "a"), text("$db", "shop")]);
    let killed = message(2, 0, 2007, &[&[0; 4][..], &1_u32.to_le_bytes(), &[7; 8]].concat());
    let told = told(usize::MAX, &[(Client, [silent, killed, find(3, "a")].concat()), (Server, good(3))]);
    assert_eq!((told.lines(), told.unanswered.len()), (vec!["find shop.a ok".to_owned()], 0));
}

/// Numbers of replies continue each other.
fn streamed(number: u32, answers: u32, has_more: bool) -> Vec<u8> {
    flagged(if has_more { message::MORE_TO_COME } else { 0 }, number, answers, &[double("ok", 1.0)])
}

#[test]
fn what_is_streamed_is_answered_once() {
    let hello = flagged(
        1 << 16,
        1,
        0,
        &[
            int("hello", 1),
            inner("topologyVersion", &[]),
            int("maxAwaitTimeMS", 10_000),
            text("$db", "admin"),
        ],
    );
    let told = told(
        7,
        &[
            (Client, hello),
            (Server, streamed(100, 1, true)),
            (Server, streamed(101, 100, true)),
            (Server, streamed(102, 101, false)),
            (Client, command(2, &[int("hello", 1), text("$db", "admin")])),
            (Server, good(2)),
        ],
    );
    assert_eq!(told.lines(), ["hello admin ok"; 2]);
    assert_eq!(told.counted.unmatched, 0);
    let waited: Vec<bool> = told.exchanges.iter().map(|e| e.awaits_event).collect();
    assert_eq!(waited, [true, false]);
}

#[test]
fn cursors_that_wait_for_events_say_so() {
    let opened =
        |answers: u32, id: i64| reply(answers, &[inner("cursor", &[long("id", id)]), double("ok", 1.0)]);
    let more = |number: u32, id: i64, time: Option<i32>| {
        let mut elements = vec![long("getMore", id), text("collection", "a"), text("$db", "shop")];
        elements.extend(time.map(|ms| int("maxTimeMS", ms)));
        command(number, &elements)
    };
    let stream = array("pipeline", &[document(&[inner("$changeStream", &[])])]);
    let plain = array("pipeline", &[document(&[inner("$match", &[])])]);
    let opens: [(Vec<Vec<u8>>, bool); 4] = [
        (vec![text("find", "a"), element(8, "tailable", &[1]), element(8, "awaitData", &[1])], true),
        (vec![text("find", "a"), element(8, "awaitData", &[0])], false),
        (vec![text("aggregate", "a"), stream], true),
        (vec![text("aggregate", "a"), plain], false),
    ];
    for (elements, waits) in opens {
        let told = told(
            usize::MAX,
            &[
                (Client, command(1, &elements)),
                (Server, opened(1, 55)),
                (Client, more(2, 55, None)),
                (Server, good(2)),
                (Client, more(3, 56, None)),
                (Server, good(3)),
                (Client, more(4, 56, Some(500))),
                (Server, good(4)),
            ],
        );
        let waited: Vec<bool> = told.exchanges.iter().map(|e| e.awaits_event).collect();
        assert_eq!(waited, [false, waits, false, true]);
    }
    let told = told(
        usize::MAX,
        &[
            (Client, command(1, &[text("find", "a"), element(8, "awaitData", &[1])])),
            (Server, opened(1, 55)),
            (Client, command(2, &[text("find", "a"), element(8, "awaitData", &[1])])),
            (Server, opened(2, 56)),
            (Client, more(3, 55, None)),
            (Server, good(3)),
        ],
    );
    assert!(told.exchanges[2].awaits_event);
}

#[test]
fn compressed_messages_are_paired_and_have_no_names() {
    let compressed = |number: u32, answers: u32| {
        let body = [&message::MESSAGE.to_le_bytes()[..], &90_u32.to_le_bytes(), &[2], b"compressed"].concat();
        message(number, answers, message::COMPRESSED, &body)
    };
    // The second one may be a write that wants no reply.
    let told = told(7, &[(Client, compressed(1, 0)), (Server, compressed(9, 1)), (Client, compressed(2, 0))]);
    assert_eq!(told.lines(), ["compressed"]);
    assert!(told.unanswered.is_empty());
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let length = good(1).len() as u64;
    let mut play = Play::new(&ENTRY);
    play.say(Client, find(1, "a")).say(Server, good(1));
    // A reply, then one beside a reply that comes, and a request.
    play.say(Client, find(2, "a")).lose(Server, length).say(Client, find(3, "b")).say(Server, good(3));
    play.say(Client, [find(4, "c"), find(5, "d")].concat()).lose(Server, length).say(Server, good(5));
    let request = find(6, "e");
    play.say(Client, &request[..30]).lose(Client, request.len() as u64 - 30).say(Server, good(6));
    play.lose(Client, 90).say(Server, good(7)).say(Client, find(8, "f")).say(Server, good(8));
    let told = play.end();
    let expected = ["find shop.a ok", "find shop.b ok", "find shop.d ok", "command  ok", "find shop.f ok"];
    assert_eq!(told.lines(), expected);
    assert!(told.longest_ns(0) <= 2000);
    // Number 4, of which nothing says when it was answered, is given up with the next reply; so no queue grows for ever.
    assert!(told.unanswered.is_empty());
    assert_eq!(told.exchanges.last().map(|e| e.op.queue_depth), Some(1));
}

#[test]
fn a_capture_that_begins_in_the_middle_shows_what_follows() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, [7; 90]).say(Server, good(1));
    play.say(Client, find(2, "orders.17")).say(Server, good(2));
    let told = play.end();
    assert_eq!(told.lines(), ["find shop.orders.17 ok"]);
    assert!(told.unanswered.is_empty());
}

fn is_begun(side: Side, bytes: &[u8]) -> bool {
    begins(&Start::new(side, bytes, 40_000, true))
}

#[test]
fn its_messages_show_it_on_any_port() {
    assert!(is_begun(Client, &find(1, "a")) && is_begun(Server, &good(1)));
    assert!(is_begun(Client, &query(1, "admin.$cmd", &[int("isMaster", 1)])));
    assert!(is_begun(Server, &old_reply(1, &[double("ok", 1.0)])));
    assert!(!is_begun(Server, &find(1, "a")) && !is_begun(Client, &good(1)));
    assert!(!is_begun(Client, &find(1, "a")[16..]));
    let mut flags = find(1, "a");
    flags[18] = 0x80;
    let mut longer = find(1, "a");
    longer[21] = 0xff;
    let mut name = find(1, "a");
    name[26] = 1;
    let mut kind = find(1, "a");
    kind[20] = 3;
    let mut value = find(1, "a");
    value[25] = 0x50;
    let mut nameless = find(1, "a");
    nameless[26] = 0;
    for other in
        [&flags[..], &longer, &name, &kind, &value, &nameless, b"GET / HTTP/1.1\r\n\r\n", &[0; 60], b""]
    {
        assert!(!is_begun(Client, other) && !is_begun(Server, other), "{}", other.escape_ascii());
    }
}

#[test]
fn what_is_no_message_contradicts() {
    let mut play = Play::new(&ENTRY);
    for number in 1..5 {
        play.say(Client, find(number, "a")).say(Server, good(number)).say(Server, "hello, this is text");
        play.say(Client, "so is this, which is no message");
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_and_tables_are_bounded() {
    for length in [0_u32, 15, 25, 1 << 31, u32::MAX] {
        let mut hostile = find(1, "a");
        hostile[..4].copy_from_slice(&length.to_le_bytes());
        assert_eq!(message::head(Client, &hostile).err(), Some(Length::Invalid), "{length}");
    }
    assert_eq!(message::head(Client, &good(1)).err(), Some(Length::Invalid), "a client answers nothing");
    // Lengths of documents, strings and sequences that are not there.
    for (place, value) in [(21, u32::MAX), (21, 1 << 31), (31, u32::MAX), (31, 1 << 30)] {
        let mut hostile = find(1, "a");
        hostile[place..place + 4].copy_from_slice(&value.to_le_bytes());
        let told = told(usize::MAX, &[(Client, hostile), (Server, good(1))]);
        assert!(told.exchanges.len() <= 1);
    }
    let sequences = [&[0; 4][..], &[1, 0, 0, 0, 0].repeat(50)].concat();
    assert!(told(usize::MAX, &[(Client, message(1, 0, message::MESSAGE, &sequences))]).exchanges.is_empty());
    let mut play = Play::new(&ENTRY);
    for number in 1..3000 {
        play.say(
            Client,
            command(number, &[text("find", "a"), element(8, "awaitData", &[1]), text("$db", "shop")]),
        );
    }
    play.say(Server, good(2999));
    for number in 3000..3200 {
        play.say(Client, command(number, &[text("find", "a"), element(8, "awaitData", &[1])]));
        play.say(Server, reply(number, &[inner("cursor", &[long("id", number.into())]), double("ok", 1.0)]));
    }
    let told = play.end();
    assert_eq!(told.lines().len(), 201);
    assert!(told.counted.abandoned >= 2000);
}
