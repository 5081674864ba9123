//! Messages are built as RFC 4511 describes them.

use super::*;
use crate::decode::play::Play;

use Side::{Client, Server};

/// A value with a length in one byte, or in the five that Active Directory always uses.
fn value_as(tag: u8, content: &[u8], is_long: bool) -> Vec<u8> {
    let length = content.len() as u32;
    let header = match length {
        0..128 if !is_long => vec![tag, length as u8],
        _ => [&[tag, 0x84], &length.to_be_bytes()[..]].concat(),
    };
    [header, content.to_vec()].concat()
}

fn value(tag: u8, content: &[u8]) -> Vec<u8> {
    value_as(tag, content, false)
}

fn text(text: &str) -> Vec<u8> {
    value(ber::STRING, text.as_bytes())
}

fn number(tag: u8, number: u32) -> Vec<u8> {
    let bytes = number.to_be_bytes();
    let skipped = (0..3).take_while(|&at| bytes[at] == 0 && bytes[at + 1] < 0x80).count();
    value(tag, &bytes[skipped..])
}

fn message_with(id: u32, tag: u8, content: &[u8], controls: &[u8]) -> Vec<u8> {
    value(ber::SEQUENCE, &[number(ber::INTEGER, id), value(tag, content), controls.to_vec()].concat())
}

fn message(id: u32, tag: u8, content: &[u8]) -> Vec<u8> {
    message_with(id, tag, content, &[])
}

fn bind(id: u32, name: &str) -> Vec<u8> {
    message(id, BIND, &[number(ber::INTEGER, 3), text(name), value(PASSWORD, b"secret")].concat())
}

fn sasl(id: u32) -> Vec<u8> {
    let credentials = [text("SCRAM-SHA-1"), text("n,,n=user,r=4711")].concat();
    message(id, BIND, &[number(ber::INTEGER, 3), text(""), value(SASL, &credentials)].concat())
}

fn search_with(id: u32, base: &str, scope: u32, filter: &str, controls: &[u8]) -> Vec<u8> {
    let limits = [number(ber::INTEGER, 0), number(ber::INTEGER, 0), value(ber::BOOLEAN, &[0])].concat();
    let filter = value(0xa3, &[text("uid"), text(filter)].concat());
    let start = [text(base), number(ber::ENUMERATED, scope), number(ber::ENUMERATED, 0)].concat();
    message_with(id, SEARCH, &[start, limits, filter, value(ber::SEQUENCE, &[])].concat(), controls)
}

fn search(id: u32, base: &str, scope: u32) -> Vec<u8> {
    search_with(id, base, scope, "alice", &[])
}

fn entry(id: u32, bytes: usize) -> Vec<u8> {
    message(
        id,
        ENTRY_FOUND,
        &[text("uid=alice,dc=example,dc=com"), value(ber::SEQUENCE, &vec![7; bytes])].concat(),
    )
}

fn result(id: u32, tag: u8, code: u32) -> Vec<u8> {
    message(id, tag, &[number(ber::ENUMERATED, code), text(""), text("why")].concat())
}

fn control(oid: &str, value_of: &[u8]) -> Vec<u8> {
    let control = [text(oid), value(ber::BOOLEAN, &[0xff]), value(ber::STRING, value_of)].concat();
    value(CONTROLS, &value(ber::SEQUENCE, &control))
}

/// The control of RFC 4533 with a mode.
fn synchronize(mode: u32) -> Vec<u8> {
    control("1.3.6.1.4.1.4203.1.9.1.1", &value(ber::SEQUENCE, &number(ber::ENUMERATED, mode)))
}

fn unbind(id: u32) -> Vec<u8> {
    message(id, UNBIND, &[])
}

const PEOPLE: &str = "ou=people,dc=example,dc=com";

#[test]
fn requests_are_paired_by_their_numbers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let entry_of = |id| format!("uid=user{id},{PEOPLE}");
        let named = |id, tag, rest: &[u8]| message(id, tag, &[&text(&entry_of(id))[..], rest].concat());
        let list = value(ber::SEQUENCE, &[5; 300]);
        play.say(Client, bind(1, "cn=admin,dc=example,dc=com")).say(Server, result(1, BOUND, 0));
        play.say(
            Client,
            [search(2, PEOPLE, 2), search(3, "", 0), named(4, MODIFY, &list), named(300, ADD, &list)]
                .concat(),
        );
        play.say(Client, message(70_000, DELETE, entry_of(70_000).as_bytes()));
        play.say(
            Client,
            [named(7, COMPARE, &list), named(8, RENAME, &[text("uid=x"), value(1, &[255])].concat())]
                .concat(),
        );
        play.say(Client, message(9, EXTENDED, &value(0x80, b"1.3.6.1.4.1.4203.1.11.3")));
        let answers = [
            entry(2, 100),
            result(3, DONE, 32),
            entry(2, 9000),
            message(2, REFERENCE, &text("ldap://other.example.com/")),
            result(70_000, DELETED, 66),
            result(2, DONE, 4),
            result(4, MODIFIED, 52),
            result(300, ADDED, 0),
            result(7, COMPARED, 6),
            result(8, RENAMED, 9999),
            result(9, EXTENDED_DONE, 0),
        ];
        play.say(Server, answers.concat());
        let told = play.end();
        let key = "uid=*,ou=people,dc=example,dc=com";
        let expected = [
            "Bind cn=*,dc=example,dc=com ok".to_owned(),
            "Search root base noSuchObject".to_owned(),
            format!("Delete {key} notOnNonLeaf"),
            format!("Search {PEOPLE} sub sizeLimit"),
            format!("Modify {key} unavailable"),
            format!("Add {key} ok"),
            format!("Compare {key} compareTrue"),
            format!("ModifyDN {key} result9999"),
            "WhoAmI  ok".to_owned(),
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        let errors: Vec<usize> = (0..9).filter(|&at| told.exchanges[at].error.is_some()).collect();
        assert_eq!(errors, [4]);
        assert_eq!(
            told.exchanges[6].op.outcome,
            record::Outcome::Good,
            "a comparison that differs is an answer"
        );
        assert!(told.exchanges[3].op.response_bytes > 9100);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn long_lengths_are_those_of_active_directory() {
    let mut play = Play::new(&ENTRY);
    let long = |bytes: &[u8]| value_as(ber::SEQUENCE, &bytes[2..], true);
    let content = [number(ber::ENUMERATED, 0), text(""), text("")].concat();
    let done = [number(ber::INTEGER, 5), value_as(DONE, &content, true)].concat();
    for segment in [usize::MAX, 1, 7] {
        play.segment = segment;
        play.say(Client, long(&search(5, PEOPLE, 1))).say(Server, value_as(ber::SEQUENCE, &done, true));
    }
    assert_eq!(play.end().lines(), vec![format!("Search {PEOPLE} one ok"); 3]);
}

#[test]
fn messages_without_an_answer_are_no_requests() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, search(1, PEOPLE, 2)).say(Server, entry(1, 10));
    play.say(Client, [message(2, ABANDON, &[1]), search(3, "", 0)].concat()).say(Server, result(3, DONE, 0));
    // The server says why it goes.
    play.say(Server, result(0, EXTENDED_DONE, 52));
    let told = play.end();
    assert_eq!(told.lines(), ["Search root base ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    // What is in flight is given up with the connection.
    let mut play = Play::new(&ENTRY);
    play.say(Client, search(1, PEOPLE, 2)).say(Client, unbind(5));
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len()), (0, 0));
}

#[test]
fn searches_that_go_on_for_changes_wait_for_events() {
    let persistent = control("2.16.840.1.113730.3.4.3", &[]);
    let paged = control("1.2.840.113556.1.4.319", &[]);
    let cases = [
        (synchronize(3), true),
        (synchronize(1), false),
        (persistent, true),
        (paged, false),
        (vec![], false),
    ];
    for (controls, is_held) in cases {
        let mut play = Play::new(&ENTRY);
        play.say(Client, search_with(1, PEOPLE, 2, "x", &controls)).say(Server, entry(1, 10));
        let information = value(0x80, b"1.3.6.1.4.1.4203.1.9.1.4");
        play.say(Server, message(1, INTERMEDIATE, &information)).say(Server, result(1, DONE, 118));
        play.say(Client, search_with(2, PEOPLE, 2, "x", &controls)).say(Server, entry(2, 10));
        let told = play.end();
        assert_eq!(told.lines(), [format!("Search {PEOPLE} sub canceled")]);
        assert_eq!(told.exchanges[0].awaits_event, is_held, "{controls:x?}");
        assert_eq!(told.unanswered.len(), usize::from(!is_held));
    }
}

#[test]
fn behind_an_agreement_on_tls_nothing_is_read() {
    let start = message(1, EXTENDED, &value(0x80, b"1.3.6.1.4.1.1466.20037"));
    for (code, line, is_over) in [(0, "StartTLS  ok", true), (53, "StartTLS  unwilling", false)] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, &start).say(Server, result(1, EXTENDED_DONE, code));
        play.say(Client, search(2, PEOPLE, 0)).say(Server, result(2, DONE, 0));
        let told = play.end();
        assert_eq!(told.lines()[0], line);
        assert_eq!(told.lines().len(), if is_over { 1 } else { 2 });
    }
}

#[test]
fn what_sasl_protects_is_not_read() {
    let sealed = |length: u32| [&length.to_be_bytes()[..], &vec![0xa5; length as usize]].concat();
    let mut play = Play::new(&ENTRY);
    play.say(Client, sasl(1))
        .say(Server, result(1, BOUND, 14))
        .say(Client, sasl(2))
        .say(Server, result(2, BOUND, 0));
    for _ in 0..40 {
        play.say(Client, sealed(90)).say(Server, sealed(120));
    }
    assert!(!play.is_contradicted());
    let told = play.end();
    assert_eq!(told.lines(), ["Bind SCRAM-SHA-1 saslInProgress", "Bind SCRAM-SHA-1 ok"]);
    assert!(told.exchanges.iter().all(|e| e.op.outcome == record::Outcome::Good));
    // The mechanism protects nothing.
    let mut play = Play::new(&ENTRY);
    play.say(Client, sasl(1))
        .say(Server, result(1, BOUND, 0))
        .say(Client, search(2, "", 0))
        .say(Server, result(2, DONE, 0));
    assert_eq!(play.end().lines().len(), 2);
}

#[test]
fn a_hole_costs_what_was_in_flight() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, [search(1, PEOPLE, 2), search(2, PEOPLE, 2)].concat());
    play.lose(Server, result(1, DONE, 0).len() as u64 + 50);
    play.say(Server, b"0\x05\x02data\0of an entry").say(Server, result(2, DONE, 0));
    // A hole in the attributes of an entry, and one in a request.
    play.say(Client, search(3, PEOPLE, 1));
    let found = entry(3, 2000);
    play.say(Server, &found[..100])
        .lose(Server, 1000)
        .say(Server, &found[1100..])
        .say(Server, result(3, DONE, 0));
    // What has one answer has it whole behind the hole, or not at all.
    let delete = |id| message(id, DELETE, PEOPLE.as_bytes());
    play.say(Client, [delete(30), delete(31)].concat()).lose(Server, result(30, DELETED, 0).len() as u64);
    play.say(Server, result(31, DELETED, 0));
    play.lose(Client, 60)
        .say(Client, search(5, PEOPLE, 0))
        .say(Server, [result(4, DONE, 0), result(5, DONE, 0)].concat());
    let told = play.end();
    let expected = [
        format!("Search {PEOPLE} one ok"),
        format!("Delete {PEOPLE} ok"),
        format!("Search {PEOPLE} base ok"),
    ];
    assert_eq!(told.lines(), expected);
    assert_eq!((told.counted.abandoned, told.counted.unmatched, told.unanswered.len()), (3, 2, 0));
}

/// A lost answer costs its own request, of many that are in flight, in whatever order the others are answered.
#[test]
fn a_lost_answer_costs_its_own_request() {
    Play::assert_a_lost_answer_costs_one(
        || Play::new(&ENTRY),
        |id| message(id.into(), DELETE, PEOPLE.as_bytes()),
        |id| result(id.into(), DELETED, 0),
    );
    let ask = |id: u32| {
        if id.is_multiple_of(3) { search(id, PEOPLE, 2) } else { message(id, DELETE, PEOPLE.as_bytes()) }
    };
    let answer = |id: u32| match id % 3 {
        0 => [entry(id, 200), result(id, DONE, 0)].concat(),
        _ => result(id, DELETED, 0),
    };
    let requests: Vec<u8> = (1..=60).flat_map(ask).collect();
    for order in [1, 7, 59] {
        for lost in [1, 21, 40, 59] {
            let mut play = Play::new(&ENTRY);
            play.say(Client, &requests);
            for id in (1..=60).map(|place| place * order % 61) {
                let answer = answer(id);
                if id == lost {
                    play.lose(Server, answer.len() as u64);
                } else {
                    play.say(Server, answer);
                }
            }
            // The connection goes on, with one request at a time.
            for id in 61..64 {
                play.say(Client, ask(id)).say(Server, answer(id));
            }
            let told = play.end();
            // Where the hole is long enough for an entry, the first search behind it may lack one.
            let costs = if lost % 3 == 0 { 2 } else { 1 };
            let lost_too = costs - 1;
            let counts = (told.exchanges.len(), told.counted.unmatched, told.counted.abandoned);
            assert_eq!(counts, (63 - costs, lost_too as u64, costs as u64), "order {order}, lost {lost}");
            assert_eq!(told.exchanges.last().unwrap().op.queue_depth, 1, "order {order}, lost {lost}");
        }
    }
}

#[test]
fn in_the_middle_messages_are_found() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, vec![0x30; 600]).say(Client, vec![1; 90]).say(Client, search(7, "cn=a\x1b,dc=x", 1));
    play.say(Server, [entry(6, 10), result(6, DONE, 0), entry(7, 10), result(7, DONE, 0)].concat());
    let told = play.end();
    assert_eq!(told.lines(), ["Search cn=a\\x1b,dc=x one ok"]);
    assert_eq!(told.counted.unmatched, 1);
}

#[test]
fn names_without_their_secrets() {
    for (name, shown) in [
        ("", "root"),
        ("dc=example,dc=com", "dc=example,dc=com"),
        ("DC=Example, DC=com", "dc=example,dc=com"),
        ("uid=4711,OU=People,o=Example Ltd,c=DE", "uid=*,ou=people,o=example ltd,c=de"),
        ("uid=alice,ou=a,ou=b,dc=example,dc=com", "*,ou=a,ou=b,dc=example,dc=com"),
        ("cn=Smith\\, John,ou=db17,dc=x", "cn=*,ou=*,dc=x"),
        ("cn=a+uid=b,dc=x", "cn=*,dc=x"),
        ("0.9.2342.19200300.100.1.25=x", "*"),
        ("secret", "*"),
        ("dc=", "dc=*"),
        ("ou=averyveryverylongnameofsomething", "ou=*"),
    ] {
        assert_eq!(names::key(name.as_bytes(), Shown::default()), shown, "{name}");
    }
}

fn is_begun(side: Side, bytes: &[u8]) -> bool {
    begins(&Start::new(side, bytes, 389, true))
}

#[test]
fn it_begins_with_sound_messages_only() {
    for (side, bytes) in [
        (Client, bind(1, "")),
        (Client, sasl(1)),
        (Client, search(1, PEOPLE, 2)),
        (Client, [search(1, PEOPLE, 2), search(2, PEOPLE, 2)].concat()),
        (Client, [search(1, PEOPLE, 2), unbind(2)].concat()),
        (Client, search_with(1, PEOPLE, 2, &"x".repeat(3000), &[])[..1448].to_vec()),
        (Client, message(1, EXTENDED, &value(0x80, b"1.3.6.1.4.1.1466.20037"))),
        (Server, result(9, DONE, 0)),
        (Server, entry(9, 9000)[..1000].to_vec()),
    ] {
        assert!(is_begun(side, &bytes), "{bytes:?}");
        assert!(!is_begun(side.peer(), &bytes), "{bytes:?}");
    }
    let broken = |at: usize, byte| {
        let mut bytes = search(1, PEOPLE, 2);
        bytes[at] = byte;
        bytes
    };
    for bytes in [
        message(1, BIND, &[number(ber::INTEGER, 9), text(""), value(PASSWORD, b"")].concat()),
        message(1, DELETE, b"no name"),
        unbind(1),
        message(2, ABANDON, &[1]),
        broken(0, 0x31),
        broken(1, 0x80),
        broken(2, 4),
        broken(4, 0x80),
        broken(5, 0x64),
        broken(7, 0x30),
        broken(9 + PEOPLE.len() + 2, 7),
        // SNMP, and a certificate.
        value(ber::SEQUENCE, &[number(ber::INTEGER, 1), text("public"), value(0xa0, &[0; 20])].concat()),
        value(ber::SEQUENCE, &value(ber::SEQUENCE, &[value(0xa0, &number(2, 2)), number(2, 4711)].concat())),
        vec![0; 80],
        vec![0x30; 80],
        b"GET / HTTP/1.1\r\nHost: example.com and more of its name\r\n\r\n".to_vec(),
        b"0 packets, and go on\r\n".to_vec(),
    ] {
        for side in [Client, Server] {
            assert!(!is_begun(side, &bytes), "{bytes:?}");
        }
    }
}

#[test]
fn what_only_looks_like_ldap_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for id in 1..5 {
        play.say(Client, search(id, PEOPLE, 1)).say(Server, vec![0xee; 64]);
        play.say(Server, result(id, DONE, 0)).say(Server, vec![0xee; 64]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_are_bounded() {
    let mut play = Play::new(&ENTRY);
    let endless = [&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff][..], &entry(1, 20)[2..]].concat();
    assert!(!is_begun(Server, &endless));
    play.say(Client, search(1, PEOPLE, 1)).say(Server, endless);
    play.say(Client, search(2, PEOPLE, 1)).say(Server, result(2, DONE, 0));
    play.say(Server, vec![0x30; 70_000]);
    play.say(Server, [0x30, 0x88, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]).say(Server, result(1, DONE, 0));
    assert_eq!(play.end().lines(), [format!("Search {PEOPLE} one ok")]);
}
