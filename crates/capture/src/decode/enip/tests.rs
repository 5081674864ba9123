//! Conversations of EtherNet/IP.

use super::*;
use crate::decode::play::Play;

use Side::{Client, Server};

const SESSION: u32 = 0x3f23_f21e;

fn packet(command: u16, session: u32, status: u32, context: u64, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len()).unwrap();
    let [command, length] = [command, length].map(u16::to_le_bytes);
    let [session, status] = [session, status].map(u32::to_le_bytes);
    [&command[..], &length, &session, &status, &context.to_le_bytes(), &[0; 4], data].concat()
}

fn register(session: u32) -> Vec<u8> {
    packet(REGISTER, session, 0, 7, &[1, 0, 0, 0])
}

/// A CIP message that is not connected.
fn unconnected(context: u64, message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u16).to_le_bytes();
    let data = [&[0, 0, 0, 0, 5, 0, 2, 0, 0, 0, 0, 0, 0xb2, 0][..], &length, message].concat();
    packet(SEND_RR_DATA, SESSION, 0, context, &data)
}

/// A CIP message of a connection.
fn connected(sequence: u16, message: &[u8]) -> Vec<u8> {
    let length = (message.len() as u16 + 2).to_le_bytes();
    let sequence = sequence.to_le_bytes();
    let items = [2, 0, 0xa1, 0, 4, 0, 1, 2, 3, 4, 0xb1, 0];
    packet(SEND_UNIT_DATA, SESSION, 0, 0, &[&[0; 6][..], &items, &length, &sequence, message].concat())
}

/// A request of a service for a tag.
fn tag(service: u8, name: &str) -> Vec<u8> {
    let mut path = vec![0x91, name.len() as u8];
    path.extend(name.as_bytes());
    path.resize(path.len().next_multiple_of(2), 0);
    [&[service, (path.len() / 2) as u8][..], &path, &[1, 0]].concat()
}

/// A request of a service for an attribute.
fn attribute(service: u8, class: u8, instance: u8) -> Vec<u8> {
    vec![service, 3, 0x20, class, 0x24, instance, 0x30, 7]
}

/// An Unconnected Send of a request.
fn sent(request: &[u8]) -> Vec<u8> {
    let length = (request.len() as u16).to_le_bytes();
    [&[0x52, 2, 0x20, 6, 0x24, 1, 5, 157][..], &length, request, &[1, 0, 1, 0]].concat()
}

fn reply(service: u8, status: u8) -> Vec<u8> {
    vec![service | cip::REPLY, 0, status, 0, 1, 2]
}

fn opened(segment: usize) -> Play {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    play.say(Client, register(0)).say(Server, register(SESSION));
    play
}

#[test]
fn requests_are_paired_by_their_contexts() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = opened(segment);
        let several =
            [&[0x0a, 2, 0x20, 2, 0x24, 1, 2, 0, 6, 0, 30, 0][..], &tag(0x4c, "Line_7.Speed")].concat();
        let requests = [
            unconnected(1, &sent(&tag(0x4c, "SCADA"))),
            unconnected(2, &tag(0x4d, "Pump12")),
            unconnected(3, &attribute(0x0e, 1, 1)),
            unconnected(4, &sent(&several)),
            packet(NOP, SESSION, 0, 9, &[1, 2]),
            packet(LIST_IDENTITY, 0, 0, 5, &[]),
        ];
        play.say(Client, requests.concat());
        let answers = [
            unconnected(3, &reply(0x0e, 0x14)),
            unconnected(1, &reply(0x4c, 0)),
            unconnected(4, &reply(0x0a, 0x1e)),
            packet(LIST_IDENTITY, 0, 0, 5, &[0; 40]),
            unconnected(2, &reply(0x4d, 2)),
        ];
        play.say(Server, answers.concat());
        let told = play.end();
        let expected = [
            "REGISTER  ok",
            "GET_ATTR Identity NO_ATTRIBUTE",
            "READ_TAG SCADA ok",
            "MULTIPLE Line_* EMBEDDED",
            "LIST_IDENTITY  ok",
            "WRITE_TAG Pump* NO_RESOURCES",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        assert_eq!(told.exchanges[2].op.request_bytes as usize, requests[0].len());
        assert_eq!(told.exchanges[2].op.response_bytes as usize, answers[1].len());
        assert!(told.exchanges[5].error.is_some() && told.exchanges[1].error.is_none());
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn connected_requests_are_paired_by_their_sequence_counts() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = opened(segment);
        play.say(Client, [connected(8, &tag(0x52, "Tank")), connected(9, &tag(0x53, "Tank"))].concat());
        // What a device asks or tells is no answer.
        play.say(Server, connected(9, &tag(0x4c, "Tank")));
        play.say(Server, [connected(9, &reply(0x53, 0)), connected(8, &reply(0x52, 6))].concat());
        play.say(Client, connected(10, &reply(0x4c, 0)));
        let told = play.end();
        assert_eq!(told.lines()[1..], ["WRITE_FRAGMENT Tank ok", "READ_FRAGMENT Tank ok"], "{segment}");
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn requests_with_one_context_are_answered_in_order() {
    let mut play = opened(usize::MAX);
    for _ in 0..2 {
        play.say(Client, unconnected(0, &tag(0x4c, "One"))).say(Server, unconnected(0, &reply(0x4c, 0)));
    }
    play.say(Client, [unconnected(0, &tag(0x4c, "One")), unconnected(0, &tag(0x4c, "Two"))].concat());
    play.say(Server, [unconnected(0, &reply(0x4c, 0)), unconnected(0, &reply(0x4c, 4))].concat());
    assert_eq!(play.end().lines()[3..], ["READ_TAG One ok", "READ_TAG Two BAD_PATH"]);
}

/// Those of a connection have other numbers, also between them.
#[test]
fn requests_with_one_context_and_those_of_a_connection_are_apart() {
    let mut play = opened(usize::MAX);
    for _ in 0..2 {
        play.say(Client, unconnected(0, &tag(0x4c, "One"))).say(Server, unconnected(0, &reply(0x4c, 0)));
    }
    let requests = [
        unconnected(0, &tag(0x4c, "One")),
        connected(8, &tag(0x52, "Tank")),
        unconnected(0, &tag(0x4c, "Two")),
    ];
    play.say(Client, requests.concat()).say(Server, connected(8, &reply(0x52, 0)));
    play.say(Server, [unconnected(0, &reply(0x4c, 0)), unconnected(0, &reply(0x4c, 4))].concat());
    let told = play.end();
    assert_eq!(told.lines()[3..], ["READ_FRAGMENT Tank ok", "READ_TAG One ok", "READ_TAG Two BAD_PATH"]);
    assert!(told.unanswered.is_empty());
}

#[test]
fn what_could_not_be_passed_on_or_decoded_has_failed() {
    let mut play = opened(usize::MAX);
    let timeout = [0xd2, 0, 1, 1, 4, 2];
    play.say(Client, unconnected(1, &sent(&tag(0x4c, "Far")))).say(Server, unconnected(1, &timeout));
    play.say(Client, unconnected(2, &attribute(0x54, 6, 1)));
    play.say(Server, unconnected(2, &[0xd4, 0, 1, 1, 0x13, 1]));
    play.say(Client, unconnected(3, &attribute(0x33, 172, 1)));
    play.say(Server, packet(SEND_RR_DATA, SESSION, 0x64, 3, &[]));
    play.say(Client, packet(REGISTER, 0, 0, 4, &[9, 0, 0, 0]));
    play.say(Server, packet(REGISTER, 0, 0x69, 4, &[1, 0, 0, 0]));
    let told = play.end();
    assert_eq!(
        told.lines()[1..],
        [
            "READ_TAG Far TIMEOUT",
            "FORWARD_OPEN Connection Manager NO_RESOURCES",
            "SERVICE_33 class 172 BAD_SESSION",
            "REGISTER  BAD_REVISION",
        ]
    );
    let failed: Vec<_> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
    assert_eq!(failed, [false, true, true, false, false]);
}

#[test]
fn keys_are_shown_as_they_are_on_request() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, false);
    play.say(Client, unconnected(1, &tag(0x4c, "Line_7.Speed"))).say(Server, unconnected(1, &reply(0x4c, 0)));
    play.say(Client, unconnected(2, &[0x0e, 3, 0x21, 0, 0xac, 0, 0x24, 3]));
    play.say(Server, unconnected(2, &reply(0x0e, 0)));
    assert_eq!(play.end().lines(), ["READ_TAG Line_7.Speed ok", "GET_ATTR class 172 3 ok"]);
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = opened(usize::MAX);
    let read = |context, name| unconnected(context, &tag(0x4c, name));
    let answer = |context| unconnected(context, &reply(0x4c, 0));
    play.say(Client, [read(1, "a"), read(2, "b"), read(3, "c")].concat());
    play.lose(Server, answer(1).len() as u64).say(Server, [answer(2), answer(3)].concat());
    play.say(Client, &read(4, "d")[..30]).lose(Client, read(4, "d").len() as u64 - 30).say(Server, answer(4));
    play.say(Client, &read(5, "e")[..10]).lose(Client, 70).say(Server, answer(5));
    play.say(Client, read(6, "f")).say(Server, answer(6));
    let told = play.end();
    assert_eq!(told.lines()[1..], ["READ_TAG b ok", "READ_TAG c ok", "READ_TAG f ok"]);
    assert_eq!((told.unanswered.len(), told.exchanges[3].op.queue_depth), (0, 1));
}

#[test]
fn in_the_middle_answers_without_their_requests_are_none() {
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    let answer = |context| unconnected(context, &reply(0x4c, 0));
    play.say(Server, &answer(1)[9..]).say(Server, answer(2));
    play.say(Client, [unconnected(3, &tag(0x4c, "a")), unconnected(4, &tag(0x4c, "b"))].concat());
    play.say(Server, [answer(4), answer(3)].concat());
    let told = play.end();
    assert_eq!(told.lines(), ["READ_TAG b ok", "READ_TAG a ok"]);
}

fn is_begun(side: Side, bytes: &[u8], port: u16) -> bool {
    begins(&Start::new(side, bytes, port, true))
}

#[test]
fn sessions_and_data_show_the_protocol() {
    let read = unconnected(1, &tag(0x4c, "a"));
    let both = [register(0), read.clone()].concat();
    assert!(is_begun(Client, &both, 5000) && is_begun(Client, &both[..both.len() - 1], 5000));
    for bytes in [register(0), read.clone(), connected(3, &tag(0x4c, "a"))] {
        assert!(is_begun(Client, &bytes, 5000), "{bytes:?}");
        assert!(!is_begun(Server, &bytes, 5000));
        assert!(!is_begun(Client, &bytes[..bytes.len() - 1], 5000));
    }
    assert!(is_begun(Server, &unconnected(1, &reply(0x4c, 0)), PORT));
    let identity = packet(LIST_IDENTITY, 0, 0, 0, &[]);
    assert!(is_begun(Client, &identity, PORT) && !is_begun(Client, &identity, 5000));
    let mut longer = read.clone();
    longer[38] += 1;
    let mut other_item = read;
    other_item[36] = 0xb3;
    for none in [
        longer,
        other_item,
        packet(SEND_RR_DATA, SESSION, 0, 0, &[0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0xb2, 0, 2, 0, 1, 0, 0]),
        packet(SEND_RR_DATA, SESSION, 0, 0, &[0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]),
        packet(REGISTER, 0, 0, 0, &[2, 0, 0, 0]),
        packet(REGISTER, 0, 1, 0, &[1, 0, 0, 0]),
        packet(SEND_RR_DATA, 0, 0, 0, &[0; 16]),
        packet(UNREGISTER, SESSION, 0, 0, &[]),
        packet(5, 0, 0, 0, &[]),
        vec![0; 24],
        vec![0; 300],
        b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n".to_vec(),
    ] {
        assert!(!is_begun(Client, &none, PORT), "{none:?}");
    }
}

#[test]
fn what_is_no_packet_is_refused() {
    let mut options = register(0);
    options[20] = 1;
    for hostile in [
        packet(0x99, 0, 0, 0, &[]),
        options,
        [&[0x6f, 0, 0xff, 0xff][..], &[0; 20]].concat(),
        packet(SEND_RR_DATA, 1, 0, 0, &[0; 4]),
    ] {
        let mut play = opened(usize::MAX);
        play.say(Client, unconnected(1, &tag(0x4c, "a"))).say(Server, &hostile);
        play.say(Server, unconnected(1, &reply(0x4c, 0)));
        play.say(Client, unconnected(2, &tag(0x4c, "a"))).say(Server, &hostile);
        play.say(Server, unconnected(2, &reply(0x4c, 0)));
        play.say(Client, &hostile);
        assert!(play.is_contradicted(), "{hostile:?}");
    }
    // Items and paths that are longer than what holds them.
    let mut play = opened(usize::MAX);
    for message in [
        &[0x4c, 0xff, 0x91][..],
        &[0x52, 2, 0x20, 6, 0x24, 1, 0, 0, 0xff, 0xff],
        &[0x0a, 0, 9, 0, 0xff, 0xff],
        &[0x4c, 1, 0x91, 200],
        &[0x4c],
    ] {
        play.say(Client, unconnected(1, message));
    }
    let mut cut = connected(1, &tag(0x4c, "a"));
    cut[32] = 0xff;
    cut[33] = 0xff;
    play.say(Client, cut);
    assert!(play.end().exchanges.len() <= 6);
}
