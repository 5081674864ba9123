//! Conversations of MQTT.

use super::*;
use crate::decode::play::{Play, Told};

use Side::{Client, Server};

/// A packet with its fixed header.
fn packet(first: u8, body: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first];
    let mut left = body.len();
    loop {
        let more = if left > 0x7f { 0x80 } else { 0 };
        bytes.push((left & 0x7f) as u8 | more);
        left >>= 7;
        if left == 0 {
            return [&bytes, body].concat();
        }
    }
}

fn text(text: &str) -> Vec<u8> {
    [&(text.len() as u16).to_be_bytes()[..], text.as_bytes()].concat()
}

fn connect(version: u8) -> Vec<u8> {
    let properties: &[u8] = if version == 5 { &[0] } else { &[] };
    packet(0x10, &[&text("MQTT")[..], &[version, 2, 0, 60], properties, &text("someone")].concat())
}

fn connack(version: u8, code: u8) -> Vec<u8> {
    if version == 5 { packet(0x20, &[0, code, 0]) } else { packet(0x20, &[0, code]) }
}

/// A PUBLISH of version 3 with a message of some bytes.
fn publish(quality: u8, topic: &str, id: u16, bytes: usize) -> Vec<u8> {
    let id = id.to_be_bytes();
    let id: &[u8] = if quality > 0 { &id } else { &[] };
    packet(0x30 | quality << 1, &[&text(topic), id, &vec![b'm'; bytes]].concat())
}

/// A PUBLISH of version 5 with properties.
fn publish_five(topic: &str, id: u16, properties: &[u8]) -> Vec<u8> {
    let length = properties.len() as u8;
    packet(0x32, &[&text(topic)[..], &id.to_be_bytes(), &[length], properties, b"message"].concat())
}

/// An acknowledgement of a kind.
fn ack(first: u8, id: u16) -> Vec<u8> {
    packet(first, &id.to_be_bytes())
}

fn coded(first: u8, id: u16, rest: &[u8]) -> Vec<u8> {
    packet(first, &[&id.to_be_bytes()[..], rest].concat())
}

fn subscribe(version: u8, id: u16, filters: &[&str]) -> Vec<u8> {
    let properties: &[u8] = if version == 5 { &[0] } else { &[] };
    let filters: Vec<u8> = filters.iter().flat_map(|filter| [text(filter), vec![1]].concat()).collect();
    packet(0x82, &[&id.to_be_bytes()[..], properties, &filters].concat())
}

const PUBACK: u8 = 0x40;
const PUBREC: u8 = 0x50;
const PUBREL: u8 = 0x62;
const PUBCOMP: u8 = 0x70;

fn connected(version: u8) -> Play {
    let mut play = Play::new(&ENTRY);
    play.say(Client, connect(version)).say(Server, connack(version, 0));
    play
}

/// What is told behind the CONNECT.
fn lines(told: &Told) -> Vec<String> {
    let lines = told.lines();
    assert_eq!(lines[0], "CONNECT  ok");
    lines[1..].to_vec()
}

#[test]
fn every_packet_that_is_answered_is_a_request() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        play.say(Client, connect(4)).say(Server, connack(4, 0));
        play.say(Client, subscribe(4, 1, &["a/+/b", "c/#"])).say(Server, coded(0x90, 1, &[1, 0]));
        let three = [publish(1, "home/17/lamp", 2, 3), publish(0, "quiet", 0, 90), publish(1, "b", 3, 300)];
        play.say(Client, three.concat());
        // The broker publishes, too, with identifiers of its own.
        play.say(Server, [publish(1, "x", 2, 5), ack(PUBACK, 3), ack(PUBACK, 2)].concat());
        play.say(Client, [ack(PUBACK, 2), publish(2, "exact", 4, 10)].concat());
        play.say(Server, ack(PUBREC, 4)).say(Client, [ack(PUBREL, 4), vec![0xc0, 0]].concat());
        play.say(Server, [vec![0xd0, 0], ack(PUBCOMP, 4)].concat());
        play.say(Client, packet(0xa2, &[&[0, 5][..], &text("a/+/b")].concat())).say(Server, ack(0xb0, 5));
        play.say(Client, [0xe0, 0]);
        let told = play.end();
        let expected = [
            "SUBSCRIBE a/+/b ok",
            "PUBLISH b ok",
            "PUBLISH home/:n/lamp ok",
            "PINGREQ  ok",
            "PUBLISH exact ok",
            "UNSUBSCRIBE a/+/b ok",
        ];
        assert_eq!(lines(&told), expected, "{segment}");
        let exact = &told.exchanges[5];
        assert_eq!((exact.op.request_bytes, exact.op.response_bytes), (21 + 4, 4));
        assert!(exact.asked_for_data.is_known() && exact.data_ended >= exact.asked_for_data);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn version_five_has_properties_aliases_and_reasons() {
    for segment in [usize::MAX, 1, 7] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        play.say(Client, connect(5)).say(Server, connack(5, 0));
        play.say(Client, subscribe(5, 1, &["open", "secret/#"])).say(Server, coded(0x90, 1, &[0, 1, 0x87]));
        // A user property stands before the alias.
        let named = publish_five("a/1/b", 2, &[0x26, 0, 1, b'k', 0, 1, b'v', 0x23, 0, 7]);
        play.say(Client, [named, publish_five("", 3, &[0x23, 0, 7])].concat());
        play.say(Server, [coded(PUBACK, 2, &[0x10]), coded(PUBACK, 3, &[0x97, 0])].concat());
        play.say(Client, packet(0x34, &[&text("x")[..], &[0, 4, 0]].concat()));
        play.say(Server, coded(PUBREC, 4, &[0x87]));
        play.say(Client, publish_five("a/2/b", 5, &[])).say(Server, packet(0xe0, &[0x8b, 0]));
        let told = play.end();
        let expected = [
            "SUBSCRIBE open NOT_AUTHORIZED",
            "PUBLISH a/:n/b ok",
            "PUBLISH a/:n/b QUOTA_EXCEEDED",
            "PUBLISH x NOT_AUTHORIZED",
            "PUBLISH a/:n/b SHUTTING_DOWN",
        ];
        assert_eq!(lines(&told), expected, "{segment}");
        let failed: Vec<bool> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
        assert_eq!(failed, [false, false, false, true, false, true], "what the broker failed to do");
        assert!(told.unanswered.is_empty());
    }
}

#[test]
fn refused_connections_are_told_with_their_reasons() {
    for (version, code, reason) in [
        (4, 5, "NOT_AUTHORIZED"),
        (4, 2, "BAD_CLIENT_ID"),
        (4, 3, "SERVER_UNAVAIL"),
        (5, 0x86, "BAD_CREDENTIALS"),
        (5, 0x89, "SERVER_BUSY"),
    ] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, connect(version)).say(Server, connack(version, code));
        assert_eq!(play.end().lines(), [format!("CONNECT  {reason}")]);
    }
    let mut play = connected(4);
    play.say(Client, subscribe(4, 9, &["a"])).say(Server, coded(0x90, 9, &[0x80]));
    assert_eq!(lines(&play.end()), ["SUBSCRIBE a FAILURE"]);
}

#[test]
fn a_packet_that_is_sent_again_is_the_same_request() {
    let mut play = connected(4);
    let again = [&[0x3a][..], &publish(1, "a", 1, 5)[1..]].concat();
    play.say(Client, publish(1, "a", 1, 5)).say(Client, again).say(Server, ack(PUBACK, 1));
    let told = play.end();
    assert_eq!(lines(&told), ["PUBLISH a ok"]);
    assert_eq!(told.exchanges[1].request.first_frame, 3);
}

/// Ten messages at once, of whose answers one is in a hole.
#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = connected(4);
    let batch = |from: u16| (from..from + 10).flat_map(|id| publish(1, "a", id, 5)).collect::<Vec<_>>();
    // The broker need not answer requests of several kinds in one order.
    play.say(Client, subscribe(4, 80, &["s"])).say(Client, batch(1));
    play.say(Server, [ack(PUBACK, 1), ack(PUBACK, 2)].concat()).lose(Server, 4);
    play.say(Server, (4..=10).flat_map(|id| ack(PUBACK, id)).collect::<Vec<_>>());
    play.say(Server, coded(0x90, 80, &[0]));
    // The last answer of a batch, and half of a request.
    play.say(Client, batch(11)).say(Server, (11..20).flat_map(|id| ack(PUBACK, id)).collect::<Vec<_>>());
    play.lose(Server, 4);
    let long = publish(1, "long", 21, 50);
    play.say(Client, &long[..20]).lose(Client, long.len() as u64 - 20).say(Server, ack(PUBACK, 21));
    // Identifiers are used again.
    play.say(Client, batch(1)).say(Server, (1..=10).flat_map(|id| ack(PUBACK, id)).collect::<Vec<_>>());
    let told = play.end();
    let published = lines(&told).iter().filter(|line| *line == "PUBLISH a ok").count();
    assert_eq!(published, 9 + 9 + 10);
    assert!(lines(&told).contains(&"SUBSCRIBE s ok".to_owned()));
    // Its head was there, and the bytes that are missing are within it.
    assert_eq!(lines(&told).iter().filter(|line| *line == "PUBLISH long ok").count(), 1);
    assert!(told.longest_ns(0) <= 5000, "{}", told.longest_ns(0));
    assert!(told.unanswered.is_empty() && told.counted.abandoned == 0);
}

/// The answer to a request and the next request with its identifier are missing: the answer to that is none to the first.
#[test]
fn holes_of_both_sides_invent_no_times() {
    for client_first in [false, true] {
        let mut play = connected(4);
        play.say(Client, publish(1, "a", 1, 5)).pause(1_000_000);
        if client_first {
            play.lose(Client, 12).lose(Server, 4);
        } else {
            play.lose(Server, 4).lose(Client, 12);
        }
        play.say(Server, ack(PUBACK, 1));
        play.say(Client, publish(1, "a", 2, 5)).say(Server, ack(PUBACK, 2));
        let told = play.end();
        assert_eq!(lines(&told), ["PUBLISH a ok"], "{client_first}");
        assert!(told.longest_ns(0) <= 2000);
    }
}

/// A client's acknowledgements are no requests: that TCP held them is no time of the next request.
#[test]
fn waits_of_what_is_no_request_are_not_those_of_the_next_one() {
    const HELD_NS: u64 = 40_000_000;
    let mut play = connected(4);
    for id in 1..=25 {
        play.say(Server, publish(1, "a", id, 10)).hold(Client, HELD_NS).say(Client, ack(PUBACK, id));
        play.hold(Client, HELD_NS).say(Client, publish(0, "b", 0, 10));
    }
    play.pause(5_000_000_000).say(Client, [0xc0, 0]).say(Server, [0xd0, 0]);
    // One that was held itself, also behind an acknowledgement in the same packet.
    play.pause(HELD_NS).hold(Client, HELD_NS).say(Client, [0xc0, 0]).say(Server, [0xd0, 0]);
    let both = [ack(PUBACK, 30), vec![0xc0, 0]].concat();
    play.pause(HELD_NS).hold(Client, HELD_NS).say(Client, both).say(Server, [0xd0, 0]);
    let told = play.end();
    let held: Vec<u64> = told.exchanges.iter().skip(1).map(|e| e.held_ns).collect();
    assert_eq!(held, [0, HELD_NS, HELD_NS]);
}

#[test]
fn a_capture_that_begins_in_the_middle_shows_what_follows() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, true);
    play.say(Client, [b'm'; 40]).say(Server, ack(PUBACK, 7));
    play.say(Client, [publish(1, "a/17", 8, 500), publish(2, "b", 9, 5)].concat());
    play.say(Server, [ack(PUBACK, 8), ack(PUBREC, 9)].concat());
    play.say(Client, ack(PUBREL, 9)).say(Server, ack(PUBCOMP, 9));
    // Its version is not known.
    play.say(Client, subscribe(5, 10, &["x/17"])).say(Server, coded(0x90, 10, &[0, 0x87]));
    play.say(Client, subscribe(4, 11, &["y"])).say(Server, coded(0x90, 11, &[0x80]));
    play.say(Client, [0xc0, 0]).say(Server, [0xd0, 0]);
    let told = play.end();
    let expected = [
        "PUBLISH a/17 ok",
        "PUBLISH b ok",
        "SUBSCRIBE x/17 NOT_AUTHORIZED",
        "SUBSCRIBE y FAILURE",
        "PINGREQ  ok",
    ];
    assert_eq!(told.lines(), expected);
    assert!(told.unanswered.is_empty());
}

fn is_begun(side: Side, bytes: &[u8], port: u16, is_first: bool) -> bool {
    begins(&Start::new(side, bytes, port, is_first))
}

#[test]
fn a_client_shows_itself_on_any_port_and_later_packets_on_the_port_alone() {
    for version in [4, 5] {
        assert!(is_begun(Client, &connect(version), 40_000, true));
    }
    assert!(is_begun(
        Client,
        &packet(0x10, &[&text("MQIsdp")[..], &[3, 2, 0, 60], &text("a")].concat()),
        1,
        true
    ));
    assert!(!is_begun(Client, b"\x10\x10\0\x04MQTX\x04\x02\0\x3c\0\x04abcd", PORT, true));
    assert!(!is_begun(Client, b"\x10\x10\0\x04MQTT\x07\x02\0\x3c\0\x04abcd", PORT, true));
    assert!(!is_begun(Server, &connect(4), PORT, false));
    let published = publish(1, "a/b", 3, 500);
    assert!(is_begun(Client, &published[..100], PORT, false));
    assert!(!is_begun(Client, &published, 40_000, false) && !is_begun(Client, &published, PORT, true));
    assert!(is_begun(Server, &ack(PUBACK, 3), PORT, false));
    // An identifier is never 0, and all of a SUBACK must be there.
    assert!(!is_begun(Server, &ack(PUBACK, 0), PORT, false));
    assert!(!is_begun(Server, &[0x90, 10, 0, 1, 0], PORT, false));
}

#[test]
fn data_and_other_protocols_do_not_look_like_packets() {
    let others: [&[u8]; 10] = [
        b"GET / HTTP/1.1\r\n\r\n",
        b"PING\r\n",
        b"*1\r\n$4\r\nPING\r\n",
        b"220 mail ESMTP\r\n",
        b"000000001111111122222222",
        b"{\"temperature\": 21.5}",
        b"\x16\x03\x01\x00\x2d\x01\x00\x00\x29\x03\x03",
        b"\0\0\0\x05hello",
        b"\x30\x0c\0\x03a+b\0\0\0\0\0\0\0",
        b"\x82\x04abcd",
    ];
    for other in others {
        for side in [Client, Server] {
            assert!(!packet::are_packets(side, other), "{}", other.escape_ascii());
        }
    }
    let mut random = 1_u64;
    let mut found = 0;
    for _ in 0..100_000 {
        let bytes: Vec<u8> = (0..40)
            .map(|_| {
                random =
                    random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (random >> 56) as u8
            })
            .collect();
        found += usize::from(packet::are_packets(Client, &bytes))
            + usize::from(packet::are_packets(Server, &bytes));
    }
    assert!(found <= 10, "{found}");
}

#[test]
fn what_is_no_packet_contradicts() {
    let mut play = connected(4);
    for _ in 0..4 {
        play.say(Client, publish(1, "a", 1, 5)).say(Server, ack(PUBACK, 1)).say(Server, "hello");
        play.say(Client, [0, 0, 1, 2]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_and_tables_are_bounded() {
    let hostile: [&[u8]; 5] = [
        &[0x30, 0xff, 0xff, 0xff, 0xff, 1],
        &[0x32, 3, 0, 200, 0],
        &[0x82, 0x80, 0x80, 0x80, 0x80],
        &[0xc0, 5],
        &[0x36, 20, 0, 1],
    ];
    for hostile in hostile {
        assert_eq!(packet::read(Client, hostile).err(), Some(Length::Invalid));
        let mut play = connected(5);
        play.say(Client, hostile).say(Server, ack(PUBACK, 1));
        assert!(play.end().exchanges.len() <= 1);
    }
    let mut play = connected(5);
    for alias in 1..500_u16 {
        let [high, low] = alias.to_be_bytes();
        play.say(Client, publish_five(&"t/".repeat(300), alias, &[0x23, high, low]));
        // Behind the last one that is remembered, the topic is not known.
        play.say(Client, publish_five("", alias | 0x8000, &[0x23, high, low]));
    }
    for id in 1..=5000 {
        play.say(Client, publish(1, "a", id | 0x4000, 0));
    }
    play.say(Server, ack(PUBACK, 5000 | 0x4000));
    let told = play.end();
    assert_eq!(lines(&told), ["PUBLISH a ok"]);
    assert!(told.counted.abandoned > 4000);
}

#[test]
fn a_hole_shifts_no_answers() {
    Play::assert_no_shift(|| connected(4), &packet(0xc0, &[]), &packet(0xd0, &[]));
    Play::assert_no_shift_in_batches(|| connected(4), &packet(0xc0, &[]), &packet(0xd0, &[]));
    // Clients may use one identifier again and again.
    Play::assert_no_shift(|| connected(4), &publish(1, "a/b", 1, 10), &ack(0x40, 1));
    Play::assert_no_shift(|| connected(4), &subscribe(4, 1, &["a/b"]), &coded(0x90, 1, &[0]));
}
