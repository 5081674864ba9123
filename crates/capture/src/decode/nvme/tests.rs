//! PDUs are built as NVMe's TCP transport specification 1.0 (3.6.2) describes them.

use super::*;
use crate::decode::Shown;
use crate::decode::play::Play;

use Side::{Client, Server};

/// A PDU of a type, with flags, the bytes of its header behind the first eight, and data.
fn pdu_of(kind: u8, flags: u8, header: &[u8], data: &[u8]) -> Vec<u8> {
    let length = 8 + header.len();
    let digests = [flags & HEADER_DIGEST, (flags & DATA_DIGEST) / 2].map(|has| usize::from(has) * 4);
    let data_at = if data.is_empty() { 0 } else { length + digests[0] };
    let data_digest = if data.is_empty() { 0 } else { digests[1] };
    let whole = (length + digests[0] + data.len() + data_digest) as u32;
    let mut bytes = vec![kind, flags, length as u8, data_at as u8];
    bytes.extend(whole.to_le_bytes());
    bytes.extend(header);
    bytes.extend(vec![0xd1; digests[0]]);
    bytes.extend(data);
    bytes.extend(vec![0xd2; data_digest]);
    bytes
}

fn initialize(kind: u8) -> Vec<u8> {
    let mut header = [0; 120];
    header[3] = 3;
    pdu_of(kind, 0, &header, &[])
}

/// A command capsule. `ten` are the bytes from the tenth double word on.
fn command(opcode: u8, id: u16, namespace: u32, moved: u32, ten: u32, flags: u8, data: &[u8]) -> Vec<u8> {
    let mut sqe = [0; 64];
    (sqe[0], sqe[1]) = (opcode, 0x40);
    sqe[2..4].copy_from_slice(&id.to_le_bytes());
    sqe[4..8].copy_from_slice(&namespace.to_le_bytes());
    sqe[32..36].copy_from_slice(&moved.to_le_bytes());
    sqe[39] = 0x5a;
    sqe[40..44].copy_from_slice(&ten.to_le_bytes());
    pdu_of(CAPSULE_CMD, flags, &sqe, data)
}

fn read(id: u16, moved: u32) -> Vec<u8> {
    command(2, id, 1, moved, 0, 0, &[])
}

fn response(id: u16, status: u16, flags: u8) -> Vec<u8> {
    let mut cqe = [0; 16];
    cqe[12..14].copy_from_slice(&id.to_le_bytes());
    cqe[14..16].copy_from_slice(&(status << 1).to_le_bytes());
    pdu_of(CAPSULE_RESP, flags, &cqe, &[])
}

/// Data of either side.
fn data(kind: u8, flags: u8, id: u16, bytes: &[u8]) -> Vec<u8> {
    let mut header = [0; 16];
    header[..2].copy_from_slice(&id.to_le_bytes());
    header[8..12].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
    pdu_of(kind, flags, &header, bytes)
}

fn ask_for_data(id: u16, length: u32) -> Vec<u8> {
    let mut header = [0; 16];
    header[..2].copy_from_slice(&id.to_le_bytes());
    header[8..12].copy_from_slice(&length.to_le_bytes());
    pdu_of(R2T, 0, &header, &[])
}

/// Connects to a queue, whose number is in the upper half of the tenth double word.
fn connect(queue: u32) -> Vec<u8> {
    command(names::FABRICS, 0, 1, 1024, queue << 16, 0, &[0; 1024])
}

fn opened(queue: u32, segment: usize) -> Play {
    let mut play = Play::new(&ENTRY);
    play.segment = segment;
    play.say(Client, initialize(IC_REQ)).say(Server, initialize(IC_RESP));
    play.say(Client, connect(queue)).say(Server, response(0, 0, 0));
    play
}

#[test]
fn commands_are_paired_by_their_numbers() {
    for segment in [usize::MAX, 1, 7, 50] {
        let mut play = opened(1, segment);
        let write = command(1, 9, 1, 512, 0, 0, &[7; 512]);
        play.say(Client, [read(1, 4096), read(2, 131_072), write, command(0, 3, 1, 0, 0, 0, &[])].concat());
        // The last data of one say that it has succeeded; the other has a response behind its data.
        let answers = [
            data(C2H_DATA, 0, 2, &[2; 65_536]),
            data(C2H_DATA, LAST | SUCCESS, 1, &[1; 4096]),
            response(9, 0, 0),
            data(C2H_DATA, LAST, 2, &[2; 65_536]),
            response(3, 0, 0),
            response(2, 0x281, 0),
        ];
        play.say(Server, answers.concat());
        let told = play.end();
        let expected =
            ["Connect ok", "Read 4k ok", "Write 512 ok", "Flush ok", "Read 128k MEDIA_81"].map(str::to_owned);
        let lines: Vec<_> = told.lines().iter().map(|line| line.replace("  ", " ")).collect();
        assert_eq!(lines, expected, "{segment}");
        assert_eq!(told.exchanges[1].op.response_bytes, 24 + 4096);
        assert_eq!(told.exchanges[4].op.response_bytes, 2 * (24 + 65_536) + 24);
        assert!(told.exchanges[4].error.is_some() && told.exchanges[3].error.is_none());
        assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
    }
}

#[test]
fn data_that_are_asked_for_belong_to_their_write() {
    let mut play = opened(1, usize::MAX);
    play.say(Client, command(1, 5, 1, 8192, 0, 0, &[])).say(Server, ask_for_data(5, 8192));
    play.say(Client, data(H2C_DATA, 0, 5, &[0; 4096])).say(Client, data(H2C_DATA, LAST, 5, &[0; 4096]));
    play.say(Server, response(5, 0, 0));
    let told = play.end();
    let write = &told.exchanges[1];
    assert_eq!(told.lines()[1], "Write 8k ok");
    assert_eq!(write.op.request_bytes, 72 + 2 * (24 + 4096));
    assert_eq!(write.data_ended.since(write.asked_for_data), Some(2000));
    assert_eq!(write.response.ended.since(write.request.ended), Some(1000));
}

#[test]
fn the_queue_decides_what_opcodes_mean() {
    for (queue, names) in [(0, ["GetLogPage", "SetFeatures"]), (3, ["Read", "DatasetMgmt"])] {
        let mut play = opened(queue, usize::MAX);
        play.say(Client, [command(2, 1, 1, 0, 0, 0, &[]), command(9, 2, 1, 0, 0, 0, &[])].concat());
        play.say(Server, [response(1, 0, 0), response(2, 0, 0)].concat());
        let told = play.end();
        let named: Vec<_> = told.exchanges.iter().skip(1).map(|e| e.op.verb.name()).collect();
        assert_eq!(named, names, "{queue}");
    }
}

#[test]
fn requests_for_events_are_not_in_flight() {
    let mut play = opened(0, usize::MAX);
    let event = |id| command(names::ASYNC_EVENT, id, 0, 0, 0, 0, &[]);
    play.say(Client, [event(8), event(9), command(0x18, 1, 0, 0, 0, 0, &[])].concat());
    play.say(Server, response(1, 0, 0)).say(Server, response(8, 0, 0));
    let told = play.end();
    assert_eq!(told.lines(), ["Connect  ok", "KeepAlive  ok"]);
    assert_eq!((told.counted.unmatched, told.unanswered.len()), (0, 0));
}

#[test]
fn digests_are_part_of_their_messages() {
    let mut play = opened(1, 50);
    play.say(Client, command(2, 1, 1, 4096, 0, HEADER_DIGEST, &[]));
    play.say(Client, command(1, 2, 1, 512, 0, HEADER_DIGEST | DATA_DIGEST, &[3; 512]));
    play.say(Server, data(C2H_DATA, HEADER_DIGEST | DATA_DIGEST | LAST | SUCCESS, 1, &[3; 4096]));
    play.say(Server, response(2, 0, HEADER_DIGEST));
    let told = play.end();
    assert_eq!(told.lines()[1..], ["Read 4k ok", "Write 512 ok"]);
    let bytes: Vec<_> =
        told.exchanges.iter().skip(1).map(|e| (e.op.request_bytes, e.op.response_bytes)).collect();
    assert_eq!(bytes, [(76, 28 + 4096 + 4), (76 + 512 + 4, 28)]);
}

#[test]
fn a_hole_costs_what_was_in_flight() {
    let mut play = opened(1, usize::MAX);
    play.say(Client, [read(1, 4096), read(2, 4096), command(1, 4, 1, 512, 0, 0, &[0; 512])].concat());
    // The first data of the second may be in the hole; of the third nothing is.
    play.lose(Server, 4120 + 24).say(Server, [response(2, 0, 0), response(4, 0, 0)].concat());
    // The data of another are cut.
    play.say(Client, read(3, 4096)).say(Server, &data(C2H_DATA, LAST | SUCCESS, 3, &[0; 4096])[..100]);
    play.lose(Server, 4020).say(Client, read(1, 4096));
    play.say(Server, data(C2H_DATA, LAST | SUCCESS, 1, &[0; 4096]));
    let told = play.end();
    assert_eq!(told.lines(), ["Connect  ok", "Write 512 ok", "Read 4k ok", "Read 4k ok"]);
    assert_eq!((told.counted.abandoned, told.unanswered.len()), (2, 0));
}

#[test]
fn a_lost_answer_costs_its_own_request() {
    Play::assert_a_lost_answer_costs_one(
        || opened(1, usize::MAX),
        |id| read(id, 512),
        |id| data(C2H_DATA, LAST | SUCCESS, id, &[0; 512]),
    );
}

#[test]
fn in_the_middle_headers_are_found() {
    let mut play = Play::of(&ENTRY, Shown::default(), true);
    play.say(Server, vec![0x5a; 700]).say(Client, vec![0; 500]);
    play.say(Client, [read(1, 512), command(6, 2, 0, 4096, 1, 0, &[])].concat());
    play.say(Server, data(C2H_DATA, LAST | SUCCESS, 1, &[0; 512])).say(Server, response(2, 2, 0));
    assert_eq!(play.end().lines(), ["Read 512 ok", "Identify  0/02"]);
}

#[test]
fn it_begins_with_sound_headers_only() {
    let is_begun = |side, bytes: &[u8]| begins(&Start::new(side, bytes, 4420, true));
    for (side, bytes) in [
        (Client, initialize(IC_REQ)),
        (Server, initialize(IC_RESP)),
        (Client, read(1, 4096)),
        (Client, connect(1)),
        (Server, response(1, 0, 1)),
        (Server, data(C2H_DATA, LAST, 1, &[0; 64])),
    ] {
        assert!(is_begun(side, &bytes), "{bytes:?}");
        assert!(!is_begun(side.peer(), &bytes), "{bytes:?}");
    }
    let broken = |mut bytes: Vec<u8>, at: usize, byte| {
        bytes[at] = byte;
        bytes
    };
    for (side, bytes) in [
        (Client, broken(initialize(IC_REQ), 4, 127)),
        (Client, broken(initialize(IC_REQ), 100, 1)),
        (Client, broken(read(1, 4096), 9, 0)),
        (Client, broken(read(1, 4096), 7, 1)),
        (Server, broken(response(1, 0, 0), 4, 25)),
        (Server, broken(data(C2H_DATA, LAST, 1, &[0; 64]), 16, 65)),
        (Server, [response(1, 0, 0), vec![0xff; 30]].concat()),
        (Client, b"GET / HTTP/1.1\r\nHost: example.com\r\n\r\n".to_vec()),
        (Server, b"220 mail.example.com ESMTP ready at noon\r\n".to_vec()),
        (Client, vec![0; 128]),
        // iSCSI: a SCSI command and a login.
        (Client, [vec![0x41, 0x81, 0, 0], vec![0; 44]].concat()),
        (Client, [vec![0x43, 0x87, 0, 0], vec![0; 44]].concat()),
    ] {
        assert!(!is_begun(side, &bytes), "{bytes:?}");
    }
}

#[test]
fn what_only_looks_like_nvme_is_contradicted() {
    let mut play = opened(1, usize::MAX);
    for _ in 0..4 {
        play.say(Client, read(1, 512)).say(Server, vec![0xee; 64]).say(Server, response(1, 0, 0));
        play.say(Server, vec![0xee; 64]);
    }
    assert!(play.is_contradicted());
}

#[test]
fn lengths_and_tables_are_bounded() {
    let mut play = opened(0, usize::MAX);
    let mut hostile = data(C2H_DATA, LAST, 1, &[0; 64]);
    hostile[4..8].copy_from_slice(&u32::MAX.to_le_bytes());
    hostile[16..20].copy_from_slice(&(u32::MAX - 24).to_le_bytes());
    play.say(Server, hostile).say(Server, response(1, 0, 0));
    for id in 0..2000 {
        play.say(Client, command(names::ASYNC_EVENT, id, 0, 0, 0, 0, &[]));
    }
    let told = play.end();
    assert_eq!((told.exchanges.len(), told.unanswered.len()), (1, 0));
}
