//! Conversations of S7 communication.

use super::*;
use crate::decode::Shown;
use crate::decode::play::Play;

use Side::{Client, Server};

/// A message of ISO transport with data.
fn data(is_last: bool, bytes: &[u8]) -> Vec<u8> {
    let length = (bytes.len() as u16 + 7).to_be_bytes();
    [&[3, 0][..], &length, &[2, DATA, if is_last { LAST } else { 0 }], bytes].concat()
}

fn pdu(kind: u8, reference: u16, error: Option<[u8; 2]>, parameters: &[u8], data: &[u8]) -> Vec<u8> {
    let [reference, parameter_bytes, data_bytes] =
        [reference, parameters.len() as u16, data.len() as u16].map(u16::to_be_bytes);
    let header = [&[PROTOCOL, kind, 0, 0][..], &reference, &parameter_bytes, &data_bytes].concat();
    [&header[..], error.as_ref().map_or(&[][..], |error| &error[..]), parameters, data].concat()
}

/// A variable of an area.
fn variable(area: u8, block: u16) -> Vec<u8> {
    let [high, low] = block.to_be_bytes();
    vec![0x12, 10, 0x10, 2, 0, 4, high, low, area, 0, 0, 8]
}

/// A job that reads variables.
fn read(reference: u16, variables: &[Vec<u8>]) -> Vec<u8> {
    let parameters = [&[4, variables.len() as u8][..], &variables.concat()].concat();
    data(true, &pdu(JOB, reference, None, &parameters, &[]))
}

fn read_block(reference: u16, block: u16) -> Vec<u8> {
    read(reference, &[variable(0x84, block)])
}

/// What was read: items with their return codes.
fn items(reference: u16, items: &[&[u8]]) -> Vec<u8> {
    data(true, &pdu(ACK_DATA, reference, Some([0, 0]), &[4, items.len() as u8], &items.concat()))
}

/// Four bytes, of which the length is in bits.
const FOUR: &[u8] = &[0xff, 4, 0, 32, 1, 2, 3, 4];

fn user_data(reference: u16, kind: u8, group: u8, function: u8, error: [u8; 2]) -> Vec<u8> {
    let is_answer = kind != 4;
    let length = if is_answer { 8 } else { 4 };
    let method = if is_answer { 0x12 } else { 0x11 };
    let mut parameters = vec![0, 1, 0x12, length, method, kind << 4 | group, function, 1];
    if is_answer {
        parameters.extend([0, 0, error[0], error[1]]);
    }
    data(true, &pdu(USER_DATA, reference, None, &parameters, &[10, 0, 0, 0]))
}

/// Asks for a connection: to an access point of a kind, and a rack and slot.
fn connect(kind: u8) -> Vec<u8> {
    vec![3, 0, 0, 22, 17, CONNECT, 0, 0, 0, 1, 0, 0xc1, 2, 1, 0, 0xc2, 2, kind, 2, 0xc0, 1, 10]
}

fn confirm(kind: u8) -> Vec<u8> {
    let mut message = connect(1);
    message[5] = kind;
    message
}

fn opened(segment: usize) -> Play {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    let setup = |kind, error| data(true, &pdu(kind, 1, error, &[0xf0, 0, 0, 1, 0, 1, 1, 224], &[]));
    play.say(Client, connect(1)).say(Server, confirm(CONFIRM));
    play.say(Client, setup(JOB, None)).say(Server, setup(ACK_DATA, Some([0, 0])));
    play
}

#[test]
fn jobs_are_paired_by_their_references() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = opened(segment);
        let write = |error: Option<[u8; 2]>, kind, data_bytes: &[u8]| {
            let variables = if kind == JOB { variable(0x83, 0) } else { Vec::new() };
            let parameters = [&[5, 1][..], &variables].concat();
            data(true, &pdu(kind, 4, error, &parameters, data_bytes))
        };
        let several = read(3, &[variable(0x84, 1), variable(0x84, 1), variable(0x81, 0)]);
        let stop = |kind, error| data(true, &pdu(kind, 5, error, &[0x29, 0, 0, 0], &[]));
        let requests = [read_block(2, 5), several, write(None, JOB, &[0, 4, 0, 8, 1]), stop(JOB, None)];
        play.say(Client, requests.concat());
        let answers = [
            write(Some([0, 0]), ACK_DATA, &[3]),
            items(3, &[FOUR, FOUR, &[5, 0, 0, 0]]),
            stop(ACK, Some([0x83, 4])),
            items(2, &[FOUR]),
        ];
        play.say(Server, answers.concat());
        let told = play.end();
        let expected = [
            "CONNECT  ok",
            "SETUP  ok",
            "WRITE_VAR M ACCESS_DENIED",
            "READ_VAR DB1+ BAD_ADDRESS",
            "PLC_STOP  NO_RESOURCES",
            "READ_VAR DB5 ok",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        assert_eq!(told.exchanges[5].op.request_bytes as usize, requests[0].len());
        let failed: Vec<_> = told.exchanges.iter().map(|e| e.error.is_some()).collect();
        assert_eq!(failed, [false, false, false, false, true, false]);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn user_data_that_ask_are_requests_and_those_that_tell_are_none() {
    for segment in [usize::MAX, 1, 7] {
        let mut play = opened(segment);
        play.say(Client, user_data(7, 4, 4, 1, [0; 2])).say(Server, user_data(0, 0, 4, 6, [0; 2]));
        play.say(Server, user_data(7, 8, 4, 1, [0; 2]));
        play.say(Client, user_data(8, 4, 3, 3, [0; 2])).say(Server, user_data(8, 8, 3, 3, [0xd2, 0x0c]));
        // A controller loads a program: it asks, and the client answers.
        play.say(Server, data(true, &pdu(JOB, 0, None, &[0x1b, 0], &[])));
        play.say(Client, data(true, &pdu(ACK_DATA, 0, Some([0, 0]), &[0x1b], &[1])));
        play.say(Client, user_data(9, 4, 7, 1, [0; 2])).say(Server, user_data(9, 8, 7, 1, [0; 2]));
        let told = play.end();
        assert_eq!(
            told.lines()[2..],
            ["READ_SZL  ok", "BLOCK_INFO  ERROR_D20C", "READ_CLOCK  ok"],
            "{segment}"
        );
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn a_pdu_in_several_messages_is_one() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = opened(segment);
        let asked = pdu(JOB, 2, None, &[&[5, 1][..], &variable(0x84, 9)].concat(), &[7; 300]);
        let (head, rest) = asked.split_at(100);
        play.say(Client, [data(false, head), data(false, &rest[..50]), data(true, &rest[50..])].concat());
        let answer = pdu(ACK_DATA, 2, Some([0, 0]), &[5, 1], &[0xff; 40]);
        play.say(Server, data(false, &answer[..30])).say(Server, data(true, &answer[30..]));
        play.say(Client, read_block(3, 1)).say(Server, items(3, &[FOUR]));
        let told = play.end();
        assert_eq!(told.lines()[2..], ["WRITE_VAR DB9 ok", "READ_VAR DB1 ok"], "{segment}");
        let write = &told.exchanges[2].op;
        assert_eq!(
            (write.request_bytes as usize, write.response_bytes as usize),
            (asked.len() + 21, answer.len() + 14)
        );
        assert_eq!(told.exchanges[3].op.queue_depth, 1);
    }
}

#[test]
fn a_refused_connection_has_failed() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, connect(3)).say(Server, confirm(DISCONNECT));
    assert_eq!(play.end().lines(), ["CONNECT  REFUSED"]);
}

#[test]
fn errors_say_whether_the_controller_failed() {
    for (answer, status, is_failure) in [
        (items(2, &[&[1, 0, 0, 0]]), "HARDWARE_FAULT", true),
        (items(2, &[&[6, 0, 0, 0]]), "BAD_TYPE", false),
        (data(true, &pdu(ACK_DATA, 2, Some([0x85, 0]), &[4, 0], &[])), "SUPPLIES", true),
        (data(true, &pdu(ACK_DATA, 2, Some([0x81, 4]), &[], &[])), "ERROR_8104", false),
    ] {
        let mut play = opened(usize::MAX);
        play.say(Client, read_block(2, 5)).say(Server, answer);
        let told = play.end();
        assert_eq!(told.lines()[2], format!("READ_VAR DB5 {status}"));
        assert_eq!(told.exchanges[2].error.is_some(), is_failure, "{status}");
    }
}

#[test]
fn requests_with_one_reference_are_answered_in_order() {
    let mut play = opened(usize::MAX);
    for _ in 0..2 {
        play.say(Client, read_block(0, 1)).say(Server, items(0, &[FOUR]));
    }
    play.say(Client, [read_block(0, 1), read_block(0, 2)].concat());
    play.say(Server, [items(0, &[FOUR]), items(0, &[&[10, 0, 0, 0]])].concat());
    assert_eq!(play.end().lines()[4..], ["READ_VAR DB1 ok", "READ_VAR DB2 NO_OBJECT"]);
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    let mut play = opened(usize::MAX);
    play.say(Client, [read_block(2, 2), read_block(3, 3), read_block(4, 4)].concat());
    play.lose(Server, items(2, &[FOUR]).len() as u64)
        .say(Server, [items(3, &[FOUR]), items(4, &[FOUR])].concat());
    play.say(Client, &read_block(5, 5)[..9]).lose(Client, read_block(5, 5).len() as u64 - 9);
    play.say(Server, items(5, &[FOUR])).say(Client, read_block(6, 6)).say(Server, items(6, &[FOUR]));
    let told = play.end();
    // The length of the fifth is known, and what it asks for is not.
    assert_eq!(told.lines()[2..], ["READ_VAR DB3 ok", "READ_VAR DB4 ok", "READ_VAR DB6 ok"]);
    assert_eq!((told.unanswered.len(), told.exchanges[4].op.queue_depth), (0, 1));
}

#[test]
fn in_the_middle_answers_without_their_requests_are_none() {
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    play.say(Server, &items(1, &[FOUR])[5..]).say(Server, items(2, &[FOUR]));
    play.say(Client, [read_block(3, 3), read_block(4, 4)].concat());
    play.say(Server, [items(4, &[FOUR]), items(3, &[FOUR])].concat());
    assert_eq!(play.end().lines(), ["READ_VAR DB4 ok", "READ_VAR DB3 ok"]);
}

fn is_begun(side: Side, bytes: &[u8]) -> bool {
    begins(&Start::new(side, bytes, 102, true))
}

#[test]
fn other_protocols_over_iso_transport_are_none() {
    for kind in 1..=3 {
        assert!(is_begun(Client, &connect(kind)) && !is_begun(Server, &connect(kind)));
    }
    assert!(
        is_begun(Client, &read_block(2, 5))
            && is_begun(Client, &[read_block(2, 5), read_block(3, 5)].concat())
    );
    // MMS: another access point, and a session behind it.
    let mms = [3, 0, 0, 22, 17, CONNECT, 0, 0, 0, 1, 0, 0xc0, 1, 13, 0xc2, 2, 0, 1, 0xc1, 2, 0, 1];
    // A remote desktop asks for its own negotiation.
    let desktop = [3, 0, 0, 19, 14, CONNECT, 0, 0, 0, 0, 0, 1, 0, 8, 0, 3, 0, 0, 0];
    let other = data(true, &[1, 0, 1, 0, 0x61, 0x50, 0x30, 0x4e, 2, 1]);
    let mut longer = read_block(2, 5);
    longer[16] += 1;
    for none in [
        &mms[..],
        &desktop,
        &other,
        &longer,
        &read_block(2, 5)[..20],
        &items(2, &[FOUR]),
        &[0; 40],
        b"GET / HTTP/1.1\r\n\r\n",
    ] {
        assert!(!is_begun(Client, none), "{none:?}");
    }
}

#[test]
fn what_is_no_message_is_refused() {
    for hostile in [
        &[3_u8, 0, 0, 0, 2, DATA, LAST][..],
        &[3, 0, 0, 7, 2, DATA, LAST],
        &[3, 0, 0xff, 0xff, 9, DATA, LAST, 0],
        &[3, 1, 0, 8, 2, DATA, LAST, 0],
        &[2, 0, 0, 8, 2, DATA, LAST, 0],
    ] {
        let mut play = opened(usize::MAX);
        for reference in 2..4 {
            play.say(Client, read_block(reference, 5))
                .say(Server, hostile)
                .say(Server, items(reference, &[FOUR]));
        }
        play.say(Client, hostile);
        assert!(play.is_contradicted(), "{hostile:?}");
    }
    // Lengths that are those of nothing.
    let mut play = opened(usize::MAX);
    for bytes in [
        &[PROTOCOL, JOB, 0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 4, 255, 0x12, 255][..],
        &[PROTOCOL, JOB, 0, 0, 0, 3, 0, 1, 0, 0],
    ] {
        play.say(Client, data(true, bytes));
    }
    play.say(Server, data(true, &pdu(ACK_DATA, 2, Some([0, 0]), &[4, 255], &[0xff, 4, 0xff, 0xff])));
    assert!(play.end().exchanges.len() <= 4);
}
