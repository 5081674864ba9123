//! Conversations of Modbus/TCP.

use super::*;
use crate::decode::play::Play;
use crate::decode::play::each_packet::{Cost, assert_each_packet_lost, assert_each_packet_of_a_window_lost};

use Side::{Client, Server};

/// A message: identifier, unit, function, and data.
fn adu(id: u16, unit: u8, function: u8, data: &[u8]) -> Vec<u8> {
    let length = u16::try_from(data.len() + 2).unwrap();
    let [id, length] = [id, length].map(u16::to_be_bytes);
    [&id[..], &[0, 0], &length, &[unit, function], data].concat()
}

fn read(id: u16, first: u16, count: u16) -> Vec<u8> {
    let [first, count] = [first, count].map(u16::to_be_bytes);
    adu(id, 3, names::READ_HOLDING, &[first, count].concat())
}

fn registers(id: u16, count: u8) -> Vec<u8> {
    adu(id, 3, names::READ_HOLDING, &[&[2 * count][..], &vec![7; 2 * usize::from(count)]].concat())
}

fn exception(id: u16, function: u8, code: u8) -> Vec<u8> {
    adu(id, 3, function | EXCEPTION, &[code])
}

/// Nanoseconds behind which a client asks again.
const TIMEOUT_NS: u64 = 500_000_000;

#[test]
fn requests_are_paired_by_their_identifiers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        let write = adu(8, 1, names::WRITE_REGISTERS, &[0, 9, 0, 2, 4, 1, 2, 3, 4]);
        let coil = adu(9, 1, names::WRITE_COIL, &[0x1b, 0x58, 0xff, 0]);
        play.say(Client, [read(7, 4096, 3), write, coil, adu(10, 2, 17, &[])].concat());
        let written = adu(8, 1, names::WRITE_REGISTERS, &[0, 9, 0, 2]);
        let refused = exception(10, 17, 1);
        let set = adu(9, 1, names::WRITE_COIL, &[0x1b, 0x58, 0xff, 0]);
        play.say(Server, [written, registers(7, 3), refused, set].concat());
        let told = play.end();
        let expected = [
            "WRITE_REGISTERS unit 1: 0-999 ok",
            "READ_HOLDING unit 3: 4000-4999 ok",
            "SERVER_ID unit 2 ILLEGAL_FUNC",
            "WRITE_COIL unit 1: 7000-7999 ok",
        ];
        assert_eq!(told.lines(), expected, "{segment}");
        let bytes: Vec<_> =
            told.exchanges.iter().map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
        assert_eq!(bytes, [(17, 12), (12, 15), (8, 9), (12, 12)]);
        assert_eq!(told.exchanges.iter().map(|e| e.op.queue_depth).collect::<Vec<_>>(), [2, 1, 4, 3]);
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn exceptions_say_whether_the_device_failed() {
    let mut play = Play::new(&ENTRY);
    for code in 1..=12 {
        play.say(Client, read(code.into(), 0, 1)).say(Server, exception(code.into(), 3, code));
    }
    let told = play.end();
    let failed: Vec<String> = told.exchanges.iter().filter_map(|e| e.error).map(|e| e.to_string()).collect();
    let of_service = ["DEVICE_FAILURE", "DEVICE_BUSY", "PARITY_ERROR", "GATEWAY_PATH", "GATEWAY_TARGET"];
    assert_eq!((told.exchanges.len(), failed), (12, of_service.map(str::to_owned).to_vec()));
    assert!(told.lines()[11].ends_with("EXCEPTION_12"));
}

#[test]
fn keys_are_shown_as_they_are_on_request() {
    let mut play = Play::of(&ENTRY, Shown { verbatim: true }, false);
    play.say(Client, read(1, 65_500, 36)).say(Server, registers(1, 36));
    play.say(Client, adu(2, 255, names::READ_FIFO, &[4, 222]));
    play.say(Server, adu(2, 255, names::READ_FIFO, &[0, 2, 0, 0]));
    assert_eq!(
        play.end().lines(),
        ["READ_HOLDING unit 3: 65500-65535 ok", "READ_FIFO unit 255: 1246-1246 ok"]
    );
    let mut play = Play::new(&ENTRY);
    play.say(Client, read(1, 65_500, 36)).say(Server, registers(1, 36));
    assert_eq!(play.end().lines(), ["READ_HOLDING unit 3: 65000-65535 ok"]);
}

/// Some clients give all requests the same identifier.
#[test]
fn requests_with_one_identifier_are_answered_in_order() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = Play::new(&ENTRY);
        play.segment = segment;
        for _ in 0..3 {
            play.say(Client, read(0, 100, 1)).say(Server, registers(0, 1));
        }
        play.say(Client, [read(0, 100, 1), read(0, 2000, 2), read(0, 3000, 3)].concat());
        play.say(Server, [registers(0, 1), exception(0, 3, 2), registers(0, 3)].concat());
        let told = play.end();
        assert_eq!(
            told.lines()[3..],
            [
                "READ_HOLDING unit 3: 0-999 ok",
                "READ_HOLDING unit 3: 2000-2999 ILLEGAL_ADDRESS",
                "READ_HOLDING unit 3: 3000-3999 ok",
            ]
        );
        assert_eq!((told.exchanges.len(), told.unanswered.len()), (6, 0), "{segment}");
    }
}

/// Both, from the first request on.
/// A client that keeps some requests in flight and takes the lowest identifier that is free.
#[test]
fn an_identifier_may_be_used_again_at_once() {
    for depth in [2, 3, 8] {
        for late in 0..depth {
            let mut play = Play::new(&ENTRY);
            let mut in_flight: Vec<(usize, u64)> = Vec::new();
            let mut pairs = Vec::new();
            for round in 0..100 {
                let id = (0..depth).find(|id| in_flight.iter().all(|(other, _)| other != id)).unwrap();
                play.say(Client, read(id as u16, 0, 1));
                in_flight.push((id, play.now_ns()));
                // The device answers some later than others.
                while in_flight.len() == depth || round % 7 == 0 && !in_flight.is_empty() {
                    let (id, asked) =
                        in_flight.remove(if round % 3 == 0 { 0 } else { late.min(in_flight.len() - 1) });
                    play.say(Server, registers(id as u16, 1));
                    pairs.push((asked, play.now_ns()));
                }
            }
            let told = play.end();
            let seen: Vec<(u64, u64)> = (told.exchanges.iter())
                .map(|e| (e.request.began.ns().unwrap(), e.response.ended.ns().unwrap()))
                .collect();
            assert_eq!(seen, pairs, "depth {depth}, late {late}");
        }
    }
}

#[test]
fn the_first_requests_may_have_one_identifier() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, [read(0, 100, 1), read(0, 2000, 2), read(0, 3000, 3)].concat());
    play.say(Server, [registers(0, 1), exception(0, 3, 6), registers(0, 3)].concat());
    let told = play.end();
    let lines = told.lines();
    assert_eq!(lines[1], "READ_HOLDING unit 3: 2000-2999 DEVICE_BUSY");
    assert_eq!((lines.len(), told.unanswered.len()), (3, 0));
}

/// A device that is silent once shifts no answer to the next request, whatever the identifiers.
#[test]
fn a_request_that_is_given_up_shifts_nothing() {
    for ids in [[0, 0, 0, 0, 0], [1, 2, 2, 3, 4], [1, 2, 3, 4, 5]] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, read(ids[0], 0, 1)).say(Server, registers(ids[0], 1));
        play.say(Client, read(ids[1], 1000, 1)).pause(TIMEOUT_NS);
        for id in &ids[2..] {
            play.say(Client, read(*id, 2000, 1)).say(Server, registers(*id, 1));
        }
        let told = play.end();
        assert_eq!(told.lines()[1..], ["READ_HOLDING unit 3: 2000-2999 ok"; 3], "{ids:?}");
        assert_eq!(told.longest_ns(0), 1000);
        assert_eq!((told.unanswered.len(), told.counted.unanswered), (1, 1), "{ids:?}");
    }
}

/// In the same order, an answer of another function is no answer to the oldest request.
#[test]
fn an_answer_is_of_a_request_of_its_function() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, read(0, 0, 1)).say(Server, registers(0, 1));
    play.say(Client, [read(0, 0, 1), adu(0, 3, names::READ_COILS, &[0, 0, 0, 8])].concat());
    play.say(Server, adu(0, 3, names::READ_COILS, &[1, 0xff]));
    play.say(Client, read(5, 0, 1)).say(Server, adu(5, 3, names::READ_COILS, &[1, 0xff]));
    play.say(Server, registers(5, 1));
    let told = play.end();
    assert_eq!(told.lines()[1..], ["READ_COILS unit 3: 0-999 ok", "READ_HOLDING unit 3: 0-999 ok"]);
    assert_eq!(told.counted.unmatched, 1);
}

/// A gateway sends what is written to unit 0 to all its units, and answers nothing.
#[test]
fn what_is_sent_to_all_units_needs_no_answer() {
    let mut play = Play::new(&ENTRY);
    play.say(Client, adu(1, 0, names::WRITE_REGISTER, &[0, 1, 0, 7])).pause(TIMEOUT_NS);
    play.say(Client, read(2, 0, 1)).say(Server, registers(2, 1));
    // A device that has no serial line answers.
    let write = adu(3, 0, names::WRITE_REGISTER, &[0, 1, 0, 7]);
    play.say(Client, &write).say(Server, &write).say(Client, read(4, 0, 1)).say(Server, registers(4, 1));
    let told = play.end();
    assert_eq!(
        told.lines(),
        ["READ_HOLDING unit 3: 0-999 ok", "WRITE_REGISTER unit 0: 0-999 ok", "READ_HOLDING unit 3: 0-999 ok",]
    );
    assert_eq!(told.exchanges[2].op.queue_depth, 1);
    assert!(told.unanswered.is_empty());
}

#[test]
fn a_hole_costs_the_requests_that_it_touches() {
    for ids in [[1, 2, 3, 4, 5, 6], [9; 6]] {
        let mut play = Play::new(&ENTRY);
        play.say(Client, read(ids[0], 0, 1)).say(Server, registers(ids[0], 1));
        // The answer to the second is lost, and half of the third request.
        play.say(Client, read(ids[1], 1000, 1)).lose(Server, registers(0, 1).len() as u64);
        play.say(Client, read(ids[2], 2000, 1)).say(Server, registers(ids[2], 1));
        play.say(Client, &read(ids[3], 3000, 1)[..5]).lose(Client, 7).say(Server, registers(ids[3], 1));
        play.say(Client, read(ids[4], 4000, 1)).say(Server, registers(ids[4], 1));
        play.say(Client, read(ids[5], 5000, 1)).say(Server, registers(ids[5], 1));
        let told = play.end();
        let thousands = ["0-999", "2000-2999", "4000-4999", "5000-5999"];
        let expected = thousands.map(|range| format!("READ_HOLDING unit 3: {range} ok"));
        assert_eq!(told.lines(), expected, "{ids:?}");
        assert_eq!(told.longest_ns(0), 1000);
        assert!(told.unanswered.is_empty(), "{ids:?}");
        assert_eq!(told.exchanges[3].op.queue_depth, 1, "what was in the hole is in flight no longer");
    }
}

#[test]
fn answers_behind_a_hole_find_their_requests() {
    let mut play = Play::new(&ENTRY);
    let requests: Vec<u8> = (1..=6).flat_map(|id| read(id, id * 1000, 1)).collect();
    play.say(Client, requests).say(Server, registers(1, 1)).lose(Server, 2 * registers(0, 1).len() as u64);
    play.say(Server, [registers(4, 1), registers(5, 1), registers(6, 1)].concat());
    play.say(Client, read(7, 7000, 1)).say(Server, registers(7, 1));
    let told = play.end();
    let lines = [1, 4, 5, 6, 7].map(|k| format!("READ_HOLDING unit 3: {k}000-{k}999 ok"));
    assert_eq!(told.lines(), lines);
    assert_eq!((told.unanswered.len(), told.counted.abandoned), (0, 2));
    assert_eq!(told.exchanges[4].op.queue_depth, 1);
}

/// The first answer behind a hole says nothing of later requests, the next one does: the hole had those to 1 and 3.
#[test]
fn each_answer_behind_a_hole_tells_which_came_before() {
    let mut play = Play::new(&ENTRY);
    let requests: Vec<u8> = (1..=4).flat_map(|id| read(id, id * 1000, 1)).collect();
    play.say(Client, requests).lose(Server, 2 * registers(0, 1).len() as u64);
    play.say(Server, registers(2, 1)).say(Server, registers(4, 1));
    play.say(Client, read(5, 5000, 1)).say(Server, registers(5, 1));
    let told = play.end();
    assert_eq!(told.lines(), [2, 4, 5].map(|k| format!("READ_HOLDING unit 3: {k}000-{k}999 ok")));
    assert_eq!((told.exchanges[2].op.queue_depth, told.counted.abandoned), (1, 2));
}

#[test]
fn in_the_middle_answers_without_their_requests_are_none() {
    for middle in [registers(4, 20), registers(5, 20)] {
        let mut play = Play::of(&ENTRY, Shown::default(), true);
        play.say(Server, &middle[9..]).say(Server, &middle);
        play.say(Client, [read(5, 0, 1), read(6, 9000, 1)].concat());
        play.say(Server, [registers(6, 1), registers(5, 1)].concat());
        let told = play.end();
        assert_eq!(told.lines(), ["READ_HOLDING unit 3: 9000-9999 ok", "READ_HOLDING unit 3: 0-999 ok"]);
        assert_eq!(told.longest_ns(0), 1000);
    }
}

/// Behind a hole, what only looks like a message is none.
#[test]
fn data_do_not_resume() {
    let mut modbus = Modbus::default();
    for bytes in [
        adu(1, 1, names::READ_HOLDING, &[3, 0, 0]),
        adu(1, 1, names::READ_HOLDING, &[4, 0, 0]),
        adu(1, 1, 65, &[1, 2]),
        exception(1, 3, 40),
        registers(1, 2)[..9].to_vec(),
    ] {
        assert!(!modbus.resumes(Server, &bytes), "{bytes:?}");
    }
    let cut = [registers(1, 2), registers(2, 2)[..9].to_vec()].concat();
    assert!(modbus.resumes(Server, &registers(1, 2)) && modbus.resumes(Server, &cut));
}

fn is_begun(side: Side, bytes: &[u8], port: u16) -> bool {
    begins(&Start::new(side, bytes, port, true))
}

#[test]
fn requests_show_the_protocol_on_any_port() {
    let write = |coils: u16, bytes: &[u8]| {
        let [coils, count] = [coils, bytes.len() as u16].map(u16::to_be_bytes);
        adu(1, 1, names::WRITE_COILS, &[&[0, 0], &coils[..], &count[1..], bytes].concat())
    };
    for request in [
        read(1, 0, 125),
        adu(1, 1, names::READ_COILS, &[0, 0, 7, 0xd0]),
        adu(1, 1, names::WRITE_COIL, &[0, 0, 0, 0]),
        adu(1, 1, names::READ_WRITE, &[0, 0, 0, 1, 0, 9, 0, 1, 2, 3, 4]),
        adu(1, 1, names::MASK_WRITE, &[0; 6]),
        adu(1, 1, names::READ_FILE, &[7, 6, 0, 4, 0, 1, 0, 2]),
        adu(1, 1, names::ENCAPSULATED, &[14, 1, 0]),
        write(9, &[1, 2]),
    ] {
        let two = [&request[..], &request].concat();
        assert!(is_begun(Client, &request, 5020) && is_begun(Client, &two, 5020), "{request:?}");
        assert!(!is_begun(Server, &request, 5020));
        assert!(!is_begun(Client, &request[..request.len() - 1], 5020));
        assert!(!is_begun(Client, &[&request[..], &[1, 2, 3, 4, 5, 6, 7, 8]].concat(), 5020));
    }
    for none in [
        read(1, 0, 0),
        read(1, 0, 126),
        adu(1, 1, names::READ_COILS, &[0, 0, 7, 0xd1]),
        adu(1, 1, names::WRITE_COIL, &[0, 0, 0, 1]),
        adu(1, 1, 17, &[]),
        adu(1, 1, 65, &[1, 2, 3, 4]),
        write(17, &[1, 2]),
        adu(1, 1, names::WRITE_REGISTERS, &[0, 0, 0, 1, 3, 1, 2]),
        registers(1, 2),
        // A TPKT, an enciphered record, a call, a name to look up.
        b"\x03\0\0\x16\x11\xe0\0\0\0\x01\0\xc0".to_vec(),
        b"\x16\x03\x01\0\x06\x01\0\0\x02\x03\x03\0".to_vec(),
        b"\x80\0\0\x28\0\0\0\x01\0\0\0\0\0\0\0\x02".to_vec(),
        b"\0\x1d\0\0\x01\0\0\x01\0\0\0\0\0\0\x07example\x03com\0\0\x01\0\x01".to_vec(),
        vec![0; 12],
        vec![0; 300],
    ] {
        assert!(!is_begun(Client, &none, 5020), "{none:?}");
    }
}

#[test]
fn on_its_port_all_functions_are_its_own() {
    for (side, bytes) in [
        (Client, adu(1, 1, 17, &[])),
        (Client, adu(1, 1, 65, &[1, 2, 3, 4])),
        (Client, read(1, 0, 126)),
        (Server, registers(1, 2)),
        (Server, exception(1, 3, 2)),
    ] {
        assert!(is_begun(side, &bytes, PORT), "{bytes:?}");
    }
    for (side, bytes) in [
        (Client, exception(1, 3, 2)),
        (Server, adu(1, 1, 0x83, &[1, 2])),
        (Client, b"GET / HTTP/1.1\r\n\r\n".to_vec()),
        (Client, adu(1, 1, 0, &[1, 2, 3])),
        (Client, vec![0; 12]),
    ] {
        assert!(!is_begun(side, &bytes, PORT), "{bytes:?}");
    }
}

#[test]
fn what_is_no_message_is_contradicted() {
    let mut play = Play::new(&ENTRY);
    for k in 0..3 {
        let other = b"\0\x01\0\x02\0\x06\x01\x03\0\0\0\0";
        play.say(Client, read(k, 0, 1)).say(Server, other).say(Server, registers(k, 1)).say(Client, other);
        play.say(Client, read(k, 0, 1));
    }
    assert!(play.is_contradicted());
    // Lengths of nothing, and of more than there may be.
    for length in [0_u16, 1, 255, u16::MAX] {
        let mut play = Play::new(&ENTRY);
        let [high, low] = length.to_be_bytes();
        play.say(Client, read(1, 0, 1)).say(Server, [0, 1, 0, 0, high, low, 3, 3, 2, 0, 0]);
        play.say(Client, read(2, 0, 1)).say(Server, registers(2, 1));
        assert_eq!(play.end().exchanges.len(), 1, "{length}");
    }
}

#[test]
fn a_capture_that_begins_within_a_burst_pairs_no_others() {
    Play::assert_own_answers_from_the_middle(&ENTRY, &read(0, 4096, 3), &registers(0, 3));
}

#[test]
fn a_hole_shifts_no_answers_with_one_identifier() {
    Play::assert_no_shift(|| Play::new(&ENTRY), &read(0, 4096, 3), &registers(0, 3));
    Play::assert_no_shift_in_batches(|| Play::new(&ENTRY), &read(0, 4096, 3), &registers(0, 3));
    Play::assert_no_shift_in_flight(|| Play::new(&ENTRY), &read(0, 4096, 3), &registers(0, 3), true);
}

#[test]
fn a_lost_packet_gives_no_operation_the_answer_of_another() {
    let [asked, answer] = [read(0, 4096, 3), registers(0, 3)];
    assert_each_packet_lost(
        || Play::new(&ENTRY),
        &[(&asked[..], &answer[..]); 4],
        Cost { from: 0, most: 2, wrong: 0, is_one_batch: false },
    );
    assert_each_packet_of_a_window_lost(|| Play::new(&ENTRY), &[(&asked[..], &answer[..]); 4]);
}
