//! Messages are built as RFC 1035, RFC 1995 and RFC 6891 describe them.

use super::*;
use crate::decode::play::Play;

use Side::{Client, Server};

const A: u16 = 1;
const MX: u16 = 15;
/// Refers to the name in the question.
const SAME: [u8; 2] = [0xc0, 12];

fn name(text: &str) -> Vec<u8> {
    let label = |label: &str| [&[label.len() as u8], label.as_bytes()].concat();
    let labels = text.split('.').filter(|text| !text.is_empty()).flat_map(label);
    labels.chain([0]).collect()
}

/// A record of the question's name.
fn record(kind: u16, data: &[u8]) -> Vec<u8> {
    let fields = [kind.to_be_bytes(), [0, 1], [0, 0], [0, 60], (data.len() as u16).to_be_bytes()].concat();
    [&SAME[..], &fields, data].concat()
}

fn soa(serial: u32) -> Vec<u8> {
    record(wire::SOA, &[&name("ns")[..], &SAME, &serial.to_be_bytes(), &[0; 16]].concat())
}

/// EDNS, with the upper bits of the response code.
fn edns(code: u8) -> Vec<u8> {
    vec![0, 0, 41, 0x10, 0, code, 0, 0, 0, 0, 0]
}

/// A message with its length: flags, question, and the records of the three sections.
fn whole(id: u16, flags: u16, question: Option<(&str, u16)>, sections: [&[Vec<u8>]; 3]) -> Vec<u8> {
    let mut bytes = [id.to_be_bytes(), flags.to_be_bytes()].concat();
    bytes.extend(u16::from(question.is_some()).to_be_bytes());
    sections.iter().for_each(|records| bytes.extend((records.len() as u16).to_be_bytes()));
    if let Some((text, kind)) = question {
        bytes.extend([name(text), kind.to_be_bytes().to_vec(), vec![0, 1]].concat());
    }
    sections.iter().for_each(|records| bytes.extend(records.concat()));
    [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat()
}

fn ask(id: u16, text: &str, kind: u16) -> Vec<u8> {
    whole(id, 0x120, Some((text, kind)), [&[], &[], &[edns(0)]])
}

fn answer(id: u16, text: &str, kind: u16, records: &[Vec<u8>]) -> Vec<u8> {
    whole(id, 0x8180, Some((text, kind)), [records, &[], &[edns(0)]])
}

fn fails(id: u16, text: &str, code: u16) -> Vec<u8> {
    whole(id, 0x8180 | code & 0xf, Some((text, A)), [&[], &[], &[edns((code >> 4) as u8)]])
}

fn address() -> Vec<u8> {
    record(A, &[127, 0, 0, 1])
}

#[test]
fn queries_are_paired_by_their_numbers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let names = ["www.example.com", "db17.Example.COM", "a.b.example.com", "x.example.com", "."];
        let asked =
            names.iter().enumerate().map(|(id, name)| ask(id as u16, name, if id == 1 { MX } else { A }));
        play.say(Client, asked.collect::<Vec<_>>().concat());
        play.say(Client, whole(9, 0x2800, Some(("example.com", wire::SOA)), [&[], &[], &[]]));
        play.say(Client, whole(10, 0, Some(("z.example.com", 4711)), [&[], &[], &[]]));
        let long = vec![address(); 300];
        play.say(
            Server,
            [answer(1, names[1], MX, &[]), answer(0, names[0], A, &long), fails(3, names[3], 2)].concat(),
        );
        play.say(Server, [fails(2, names[2], 3), fails(4, ".", 16), fails(9, "example.com", 0)].concat());
        play.say(Server, fails(10, "z.example.com", 4));
        let told = play.end();
        let expected = [
            "MX db*.example.com ok",
            "A www.example.com ok",
            "A x.example.com SERVFAIL",
            "A *.b.example.com NXDOMAIN",
            "A . BADVERS",
            "UPDATE example.com ok",
            "TYPE4711 z.example.com NOTIMP",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        let errors: Vec<bool> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
        assert_eq!(errors, [false, false, true, false, false, false, false]);
        let failed = |at: usize| told.exchanges[at].op.outcome == record::Outcome::Failed;
        assert!(failed(2) && !failed(3) && failed(4), "a name that does not exist is an answer");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn a_transfer_is_one_request() {
    let zone = "example.com";
    let axfr = |id| ask(id, zone, wire::AXFR);
    let from = |id, serial| whole(id, 0, Some((zone, wire::IXFR)), [&[], &[soa(serial)], &[]]);
    // Further messages need no question.
    let more = |id, records: &[Vec<u8>]| whole(id, 0x8400, None, [records, &[], &[]]);
    let one = |id, records: &[Vec<u8>]| answer(id, zone, wire::AXFR, records);
    let (filled, change) = (vec![address(); 900], [soa(5), address(), soa(7), address()]);
    for segment in [usize::MAX, 1, 7, 50, 1448] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let alike = |told: &mut Play, asked: Vec<u8>, answers: &[Vec<u8>]| {
            told.say(Client, asked);
            // A query among the messages of the transfer.
            for (place, message) in answers.iter().enumerate() {
                if place == 1 {
                    told.say(Client, ask(99, "www.example.com", A));
                    told.say(Server, answer(99, "www.example.com", A, &[address()]));
                }
                told.say(Server, message);
            }
        };
        alike(
            &mut play,
            axfr(1),
            &[one(1, &[soa(7), address()]), more(1, &filled), more(1, &[&filled[..], &[soa(7)]].concat())],
        );
        alike(&mut play, axfr(2), &[one(2, &[soa(7)]), more(2, &[address()]), more(2, &[soa(7)])]);
        alike(&mut play, axfr(3), &[one(3, &[soa(7), soa(7)])]);
        alike(&mut play, axfr(4), &[fails(4, zone, 9)]);
        // The server fails in between.
        alike(&mut play, axfr(9), &[one(9, &[soa(7), address()]), fails(9, zone, 2)]);
        // The client has the newest version; it has an old one; it has one that is too old; changes come in pieces.
        alike(&mut play, from(5, 7), &[one(5, &[soa(7)])]);
        alike(&mut play, from(6, 5), &[one(6, &[&[soa(7)], &change[..], &[soa(7)]].concat())]);
        alike(
            &mut play,
            from(7, 1),
            &[one(7, &[soa(7), address()]), more(7, &[address()]), more(7, &[soa(7)])],
        );
        let steps =
            [soa(7), soa(5), address(), soa(6), address(), soa(6), address(), soa(7), address(), soa(7)];
        alike(&mut play, from(8, 5), &steps.clone().map(|record| more(8, &[record])));
        let told = play.end();
        let expected = [
            "A www.example.com ok",
            "AXFR example.com ok",
            "A www.example.com ok",
            "AXFR example.com ok",
            "AXFR example.com ok",
            "AXFR example.com NOTAUTH",
            "A www.example.com ok",
            "AXFR example.com SERVFAIL",
            "IXFR example.com ok",
            "IXFR example.com ok",
            "A www.example.com ok",
            "IXFR example.com ok",
            "A www.example.com ok",
            "IXFR example.com ok",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        assert!(told.exchanges[1].op.response_bytes > 900 * 16, "{:?}", told.exchanges[1].op);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0), "{segment}");
    }
}

#[test]
fn a_hole_in_a_transfer_leaves_no_request_without_an_answer() {
    let end = |lost: usize, last: &[Vec<u8>]| {
        let mut play = Play::new(&ENTRY);
        play.say(Client, ask(1, "example.com", wire::AXFR));
        let first = answer(1, "example.com", wire::AXFR, &[vec![soa(7)], vec![address(); 200]].concat());
        play.say(Server, &first[..200]).lose(Server, lost as u64);
        play.say(Server, &first[200 + lost..]);
        if !last.is_empty() {
            play.say(Server, whole(1, 0x8400, None, [last, &[], &[]]));
        }
        play.say(Client, ask(2, "example.com", A)).say(Server, answer(2, "example.com", A, &[address()]));
        play.end()
    };
    let told = end(1000, &[address(), soa(7)]);
    assert_eq!(told.lines(), ["AXFR example.com ok", "A example.com ok"]);
    assert_eq!(told.unanswered.len(), 0);
    // As far as it shows, the end was in the hole.
    let told = end(1000, &[]);
    assert_eq!(told.lines(), ["A example.com ok"]);
    assert_eq!(told.unanswered.len(), 0);
}

#[test]
fn messages_without_an_answer_are_no_requests() {
    let stateful = |id: u16, flags: u16| {
        let body = [&[0, 1, 0, 8][..], &[0; 8]].concat();
        let header = [id.to_be_bytes(), flags.to_be_bytes(), [0; 2], [0; 2], [0; 2], [0; 2]].concat();
        [&((header.len() + body.len()) as u16).to_be_bytes()[..], &header, &body].concat()
    };
    let mut play = Play::new(&ENTRY);
    play.say(Client, ask(3, "example.com", A)).say(Server, answer(3, "example.com", A, &[]));
    play.say(Client, stateful(1, 0x3000)).say(Server, stateful(1, 0xb000));
    // The server pushes, and asks; the client says something of its own.
    play.say(Server, stateful(0, 0x3000)).say(Client, stateful(0, 0x3000));
    play.say(Server, stateful(8, 0x3000)).say(Client, stateful(8, 0xb000));
    let told = play.end();
    assert_eq!(told.lines(), ["A example.com ok", "DSO  ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

#[test]
fn a_hole_costs_what_was_in_flight() {
    let mut play = Play::new(&ENTRY);
    let answers = |id| answer(id, "example.com", A, &[address()]);
    play.say(Client, [ask(1, "example.com", A), ask(2, "example.com", A)].concat());
    play.lose(Server, answers(1).len() as u64);
    play.say(Server, b"data\0\0\0\x01of a response").say(Server, answers(2));
    play.say(Client, ask(3, "example.com", A)).say(Server, answers(3));
    // A hole in a query, and one within an answer.
    play.lose(Client, 40).say(Client, ask(5, "example.com", MX));
    let cut = answers(5);
    play.say(Server, &cut[..20]).lose(Server, 10).say(Server, &cut[30..]);
    let told = play.end();
    assert_eq!(told.lines(), ["A example.com ok", "A example.com ok", "MX example.com ok"]);
    assert_eq!((told.counted.abandoned, told.unanswered.len()), (1, 0));
}

#[test]
fn a_lost_answer_costs_its_own_request() {
    Play::assert_a_lost_answer_costs_one(
        || Play::new(&ENTRY),
        |id| ask(id, "example.com", A),
        |id| answer(id, "example.com", A, &[address()]),
    );
}

#[test]
fn in_the_middle_messages_are_found() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Server, vec![0; 600]).say(Client, vec![1; 90]).say(Client, ask(1, "DB17.example.com", A));
    play.say(
        Server,
        [answer(8, "example.com", A, &[address()]), answer(1, "DB17.example.com", A, &[address()])].concat(),
    );
    let told = play.end();
    assert_eq!(told.lines(), ["A db17.example.com ok"]);
    assert_eq!(told.counted.unmatched, 1);
}

#[test]
fn names_without_their_secrets() {
    for (text, shown) in [
        ("", "."),
        ("com", "com"),
        ("example.com", "example.com"),
        ("WWW.Example.com", "www.example.com"),
        ("user-4711.db.example.com", "*.db.example.com"),
        ("user-4711.example.com", "user-*.example.com"),
        ("3f2a99c1.example.com", "*.example.com"),
        ("deadbeef01.example.com", "*.example.com"),
        ("f81d4fae-7dec-11d0-a765-00a0c91e6bf6.example.com", "*.example.com"),
        ("averyveryverylongtokenofletters.example.com", "*.example.com"),
        ("4.3.2.1.in-addr.arpa", "*.in-addr.arpa"),
        ("_ldap._tcp.example.com", "*._tcp.example.com"),
        ("a\x1bb.example.com", "a*.example.com"),
    ] {
        let labels: Vec<&[u8]> = text.split('.').filter(|l| !l.is_empty()).map(str::as_bytes).collect();
        assert_eq!(wire::key(&labels, Shown::default()), shown, "{text}");
    }
    let long = vec![&b"label\n"[..]; 60];
    assert!(wire::key(&long, Shown { verbatim: true }).len() <= 2 * 96);
}

fn is_begun(side: Side, bytes: &[u8], port: u16) -> bool {
    begins(&Start::new(side, bytes, port, true))
}

#[test]
fn it_begins_with_sound_messages_only() {
    let asks = ask(1, "example.com", A);
    let answers = answer(1, "example.com", A, &[address(), soa(3)]);
    for (side, bytes) in [
        (Client, asks.clone()),
        (Client, [asks.clone(), ask(2, "example.org", MX)].concat()),
        (Client, whole(1, 0, Some(("example.com", wire::IXFR)), [&[], &[soa(1)], &[]])),
        (Server, answers.clone()),
        (Server, answers[..answers.len() - 5].to_vec()),
        (Server, answers[..answers.len() - 30].to_vec()),
        (Server, whole(1, 0x8400, None, [&[soa(1)], &[], &[]])),
    ] {
        assert!(is_begun(side, &bytes, 5300), "{bytes:?}");
        assert!(!is_begun(side.peer(), &bytes, 53), "{bytes:?}");
    }
    // The length has a segment of its own.
    assert!(is_begun(Client, &asks[..2], 53));
    assert!(!is_begun(Client, &asks[..2], 5300) && !is_begun(Client, b"\0\x05", 53));
    let broken = |at: usize, byte| {
        let mut bytes = asks.clone();
        bytes[at] = byte;
        bytes
    };
    for bytes in [
        broken(0, 1),
        broken(1, asks.len() as u8),
        broken(4, 0x19),
        broken(5, 0x60),
        broken(7, 2),
        broken(9, 1),
        broken(13, 9),
        broken(14, 0x80),
        broken(16, 7),
        // Nothing, and more than is stated.
        whole(1, 0x8400, None, [&[], &[], &[]]),
        [&[0, asks.len() as u8][..], &asks[2..], &[0, 0]].concat(),
        vec![0; 80],
        vec![0xff; 80],
        b"GET / HTTP/1.1\r\nHost: example.com and more of its name\r\n\r\n".to_vec(),
        b"220 mail.example.com ESMTP ready at noon, and go on\r\n".to_vec(),
        b"*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000012\r\n".to_vec(),
        [vec![0x41, 0x81, 0, 0], vec![0; 44]].concat(),
    ] {
        for side in [Client, Server] {
            assert!(!is_begun(side, &bytes, 53), "{bytes:?}");
        }
    }
}

#[test]
fn what_only_looks_like_dns_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for id in 0..4 {
        play.say(Client, ask(id, "example.com", A)).say(Server, vec![0xee; 64]);
        play.say(Server, answer(id, "example.com", A, &[address()])).say(Server, vec![0xee; 64]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_and_tables_are_bounded() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, ask(0, "example.com", A)).say(Server, b"\xff\xff\0\0\x81\x80\0\0\xff\xff\0\0\0\0");
    play.say(Server, vec![0xc0; 70_000]);
    for id in 0..500 {
        play.say(Client, ask(id, "example.com", wire::AXFR));
    }
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len() <= TRANSFERS_MAX), (1, true));
    // A name that refers to itself, and one without an end.
    for name in [&[0xc0, 12][..], &[0xc0, 0], &[1; 300], &[63; 200]] {
        let rest = [name, &[0, 1, 0, 1]].concat();
        let mut bytes = vec![0, 0, 1, 0x20, 0, 1, 0, 0, 0, 0, 0, 0];
        bytes.extend(rest);
        let whole = [&(bytes.len() as u16).to_be_bytes()[..], &bytes].concat();
        assert!(!is_begun(Client, &whole, 53), "{name:?}");
    }
}
